"""Eigenvalues that several devices of one host can compute at once.

With jaxlib 0.10 on CPU, LAPACK deals a batch of matrices out to a pool of threads and waits for
them on a thread of that very pool: where several virtual devices do so at once, all wait for ever.
One matrix at a time, nothing is dealt out.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_batching.sequential_vmap
def eigh(matrix: Float[Array, "d d"]) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@jax.custom_batching.sequential_vmap
def _eigvalsh(matrix: Float[Array, "d d"]) -> Float[Array, "d"]:
    return jnp.linalg.eigvalsh(matrix)


def eigenvalues(matrices: Float[Array, "n d d"]) -> Float[Array, "n d"]:
    """Those of each of several symmetric matrices."""
    return jax.vmap(_eigvalsh)(matrices)
