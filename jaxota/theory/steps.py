"""Moments of the users' local steps on least squares, for the recursion."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxota._core.part import Scalar

PACKED = 20  # parameters up to which the noise of gradients is one matrix


class Data(NamedTuple):
    """The users' least squares problems, in float64."""

    hessians: Float[Array, "user d d"]
    slopes: Float[Array, "user d"]  # −∇f_i(0)
    features: Float[Array, "user sample d"]
    targets: Float[Array, "user sample"]
    counts: Float[Array, "user"]


def gradient_map(hessian: Array, slope: Array, place: Float[Array, "d m"]) -> Float[Array, "d m"]:
    """Return ∇f_i at the model `place`·s, as a map of s."""
    return (hessian @ place).at[:, -1].add(-slope)


class Walk(NamedTuple):
    """The K steps of one user, θ ← A θ + w − η·(g − E[g | θ]), with A = (1 − ημ)·I − ηH."""

    before: Float[Array, "k*d 2d"]  # (A^k, Σ_{j<k} A^j), for k = 0 … K − 1
    after: Float[Array, "k*d 2d"]  # the same for k = 1 … K
    noise: Scalar  # η²/m, 0 for full gradients
    packed: Float[Array, "p q"] | None  # the map of E[θ θᵀ] by a step, or by all K, with noise


def prepare(
    count: int, steps: Any, whole: bool, step_size: Scalar, own: Data, operator: Array | None
) -> Walk:
    """Return what one user's steps need in any round with this step size.

    Where w is a constant and no map of s, all K steps are one matrix, the `whole` walk.
    """
    dim = len(own.slopes)
    pull = 0.0 if steps.pull is None else steps.pull
    shrink = (1.0 - step_size * pull) * jnp.eye(dim) - step_size * own.hessians

    def multiply(power: Array, _: None) -> tuple[Array, Array]:
        return shrink @ power, power

    last, powers = jax.lax.scan(multiply, jnp.eye(dim), None, count)
    powers = jnp.concatenate([powers, last[None]])
    both = jnp.concatenate([powers, jnp.cumsum(powers, 0) - powers], 2)
    # One tall matrix each, as many small products would be slow.
    stacks = both[:-1].reshape(-1, 2 * dim), both[1:].reshape(-1, 2 * dim)
    noise = step_size**2 / steps.batch if steps.batch is not None else jnp.zeros(())
    if operator is None:
        return Walk(*stacks, noise, None)
    packed = jnp.pad(_packed_congruence(shrink), ((0, 0), (0, dim + 1))) + noise * operator
    if whole:
        (i, j), w, size = np.triu_indices(dim), step_size * own.slopes, len(packed)
        crosses = shrink[i] * w[j][:, None] + shrink[j] * w[i][:, None]
        packed = packed.at[:, size:].add(jnp.concatenate([crosses, (w[i] * w[j])[:, None]], 1))
        mean = jnp.pad(jnp.concatenate([shrink, w[:, None]], 1), ((0, 0), (size, 0)))
        one_step = jnp.concatenate([packed, mean, jnp.eye(1, packed.shape[1], packed.shape[1] - 1)])
        packed = jnp.linalg.matrix_power(one_step, count)[:size]
    return Walk(*stacks, noise, packed)


def take_steps(
    whole: bool,
    walk: Walk,
    own: Data,
    drift: Float[Array, "d m"],
    start: Float[Array, "d m"],
    s: Float[Array, "m m"],
) -> tuple[Float[Array, "d m"], Float[Array, "d d"]]:
    """Return Φ_i and E[θ_i θ_iᵀ] of one user after its K steps, which add w = `drift`·s each."""
    dim = len(drift)
    shrink, last, noise, packed = walk.after[:dim, :dim], walk.after[-dim:], walk.noise, walk.packed
    begin, moved = start @ s, drift @ s
    (rows, columns), second = np.triu_indices(dim), begin @ start.T
    places = np.zeros((dim, dim), int)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    phi = last @ jnp.concatenate([start, drift])
    if whole and packed is not None:
        packs = jnp.concatenate([second[rows, columns], begin[:, -1], jnp.ones(1)])
        return phi, (packed @ packs)[places]
    # E[θ_k] and E[A θ_k wᵀ] + E[w wᵀ], for k = 0 … K − 1.
    means = walk.before @ jnp.concatenate([begin[:, -1], moved[:, -1]])
    square = moved @ drift.T
    crosses = walk.after @ jnp.concatenate([begin @ drift.T, square])
    means, crosses = means.reshape(-1, dim), crosses.reshape(-1, dim, dim)
    added = crosses + jnp.swapaxes(crosses, 1, 2) - square[None]

    def packed_step(second: Array, given: Any) -> tuple[Array, None]:
        mean, more = given
        assert packed is not None
        return packed @ jnp.concatenate([second, mean, jnp.ones(1)]) + more, None

    def step(second: Array, given: Any) -> tuple[Array, None]:
        mean, more = given
        after = shrink @ second @ shrink.T + more
        return after + noise * _gradient_covariance(own, mean, second), None

    if packed is None:
        second, _ = jax.lax.scan(step, second, (means, added))
    else:
        triangles = means, added[:, rows, columns]
        second = jax.lax.scan(packed_step, second[rows, columns], triangles)[0][places]
    return phi, second


def _gradient_covariance(
    own: Data, mean: Float[Array, "d"], second: Float[Array, "d d"]
) -> Float[Array, "d d"]:
    """Return E[Cov(g | θ)] for the gradient g of one sample."""
    hessian, slope, features, targets, count = own
    square = ((features @ second) * features).sum(1)
    residual = square - 2.0 * targets * (features @ mean) + targets**2  # E(a_jᵀθ − b_j)²
    sample = 4.0 / count * (features.T @ (residual[:, None] * features))
    cross = jnp.outer(hessian @ mean, slope)
    return sample - (hessian @ second @ hessian - cross - cross.T + jnp.outer(slope, slope))


def gradient_noise(data: Data) -> Float[Array, "user p q"] | None:
    """Return `_gradient_covariance` of every user as a matrix, None where samples cost less.

    It acts on the upper triangle of E[θ θᵀ], E[θ] and 1. Applied, it takes about d⁴/4
    multiplications; the samples take 2·D·d².
    """
    samples, dim = data.features.shape[1:]
    if dim > PACKED or dim**2 > 8 * samples:
        return None
    i, j = np.triu_indices(dim)

    def user(own: Data) -> Array:
        h, b, a, y, count = own
        pairs, twice = a[:, i] * a[:, j], np.where(i == j, 1.0, 2.0)
        residuals = jnp.concatenate(
            [twice[None] * pairs, -2.0 * y[:, None] * a, y[:, None] ** 2], 1
        )
        crosses = -h[i] * b[j][:, None] - h[j] * b[i][:, None]
        full = jnp.concatenate([_packed_congruence(h), crosses, (b[i] * b[j])[:, None]], 1)
        return 4.0 / count * (pairs.T @ residuals) - full

    return jax.vmap(user)(data)


def _packed_congruence(a: Float[Array, "d d"]) -> Float[Array, "p p"]:
    """Return X → A X Aᵀ as a matrix that acts on the upper triangle of a symmetric X."""
    i, j = np.triu_indices(len(a))
    both = a[i][:, i] * a[j][:, j] + a[i][:, j] * a[j][:, i]
    return both * np.where(i == j, 0.5, 1.0)[None]
