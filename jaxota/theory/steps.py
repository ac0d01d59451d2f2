"""Moments of the users' local steps on least squares, for the recursion."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxota._core.part import Scalar

PACKED = 20  # parameters up to which sums over samples are one matrix


class Data(NamedTuple):
    """The users' least squares problems, in float64."""

    hessians: Float[Array, "user d d"]
    slopes: Float[Array, "user d"]  # −∇f_i(0)
    features: Float[Array, "user sample d"]
    targets: Float[Array, "user sample"]
    counts: Float[Array, "user"]
    weights: Float[Array, "user"]  # in the objective, of mean 1


def gradient_map(hessian: Array, slope: Array, place: Float[Array, "d m"]) -> Float[Array, "d m"]:
    """Return ∇f_i at the model `place`·s, as a map of s."""
    return (hessian @ place).at[:, -1].add(-slope)


def take_steps(
    count: int,
    steps: Any,
    step_size: Scalar,
    own: Data,
    operator: Float[Array, "p q"] | None,
    drift: Float[Array, "d m"],
    start: Float[Array, "d m"],
    s: Float[Array, "m m"],
) -> tuple[Float[Array, "d m"], Float[Array, "d d"]]:
    """Return Φ_i and E[θ_i θ_iᵀ] of one user after K steps.

    A step is θ ← A θ + w − η·(g − E[g | θ]), with A = (1 − ημ)·I − ηH and w = `drift`·s.
    """
    shrink = -step_size * own.hessians + jnp.eye(len(drift))
    if steps.pull is not None:
        shrink -= step_size * steps.pull * jnp.eye(len(drift))
    moved = s @ drift.T
    square = drift @ moved

    def step(carry: Any, _: None) -> tuple[Any, None]:
        phi, second = carry
        cross = shrink @ (phi @ moved)
        after = shrink @ second @ shrink.T + cross + cross.T + square
        if steps.batch is not None:
            covariance = _gradient_covariance(own, operator, phi @ s[:, -1], second)
            after += step_size**2 / steps.batch * covariance
        return (shrink @ phi + drift, after), None

    return jax.lax.scan(step, (start, start @ s @ start.T), None, count)[0]


def _gradient_covariance(
    own: Data, operator: Array | None, mean: Float[Array, "d"], second: Float[Array, "d d"]
) -> Float[Array, "d d"]:
    """Return E[Cov(g | θ)] for the gradient g of one sample."""
    hessian, slope, features, targets, count = own[:5]
    if operator is None:
        square = ((features @ second) * features).sum(1)
        residual = square - 2.0 * targets * (features @ mean) + targets**2  # E(a_jᵀθ − b_j)²
        sample = 4.0 / count * (features.T @ (residual[:, None] * features))
    else:
        i, j = np.triu_indices(len(mean))
        places = np.zeros((len(mean), len(mean)), int)
        places[i, j] = places[j, i] = np.arange(len(i))
        sample = (operator @ jnp.concatenate([second[i, j], mean, jnp.ones(1)]))[places]
    cross = jnp.outer(hessian @ mean, slope)
    return sample - (hessian @ second @ hessian - cross - cross.T + jnp.outer(slope, slope))


def sample_operator(own: Data) -> Float[Array, "p q"] | None:
    """Return the sum over a user's samples as a matrix, None where the samples cost less.

    It maps the upper triangle of E[θ θᵀ], E[θ] and 1 to that of E[g gᵀ]. Applied, it takes about
    d⁴/4 multiplications; the samples take 2·D·d².
    """
    samples, dim = own.features.shape
    if dim > PACKED or dim**2 > 8 * samples:
        return None
    i, j = np.triu_indices(dim)
    a, b = own.features, own.targets[:, None]
    pairs = a[:, i] * a[:, j]
    twice = np.where(i == j, 1.0, 2.0)[None]
    residuals = jnp.concatenate([twice * pairs, -2.0 * b * a, b**2], 1)
    return 4.0 / own.counts * (pairs.T @ residuals)
