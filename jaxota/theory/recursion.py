"""The recursion behind `jo.exact`: second moments of the broadcast state, round by round.

With minibatches drawn with replacement, gains that are known beforehand and an affine estimate, one
round maps the mean and the second moment of the broadcast state linearly. The state is s = (θ̂, 1),
with controls s = (θ̂^r, θ̂^{r−1}, ĉ^r, 1). S = E[s sᵀ] is carried from round to round, in float64.

Given s, user i ends its K steps at θ_i, of mean Φ_i s and second moment M_i = E[θ_i θ_iᵀ]. Users
draw independently, so that their average has the mean Φ̄ s and, given s, the covariance
(1/N²) Σ_i (M_i − Φ_i S Φ_iᵀ), to which the channel adds ν·I.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core.part import Scalar
from jaxota.algorithms import Algorithm


class Data(NamedTuple):
    """The users' least squares problems, in float64."""

    hessians: Float[Array, "user d d"]
    slopes: Float[Array, "user d"]  # −∇f_i(0)
    features: Float[Array, "user sample d"]
    targets: Float[Array, "user sample"]
    counts: Float[Array, "user"]


class Link(NamedTuple):
    """One block's way to the server: [round], or one round's."""

    energy: Array  # P/α, the ‖·‖² that spends the whole budget
    noise: Array  # ν·n², for n users heard
    gain: Array  # of the estimate, gain·(origin + received) + offset + kept·origin
    offset: Array
    kept: Array


class Heard(NamedTuple):
    """Expectations over n, the number of users heard."""

    anyone: Scalar  # P(n ≥ 1)
    inverse: Scalar  # E[1/n; n ≥ 1]
    inverse_square: Scalar  # E[1/n²; n ≥ 1]


class Moments(NamedTuple):
    """Moments of the users' vectors in one round, θ_i or c_i, and the error of their average."""

    energy: Float[Array, "user"]  # E‖Δ_i‖², or E‖c_i‖²
    mean: Float[Array, "user"]  # over coordinates
    var: Float[Array, "user"]
    average_mean: Scalar  # over coordinates of the average
    average_var: Scalar
    sent_mean: Float[Array, "user"]  # over coordinates of Δ_i, or c_i
    sent_var: Float[Array, "user"]
    error: Scalar  # E‖estimate − true average‖²


def run(
    rounds: int, algorithm: Algorithm, data: Data, heard: Heard, links: tuple[Link, ...]
) -> tuple[Float[Array, "round m m"], tuple[Moments, ...]]:
    """Return S after every round, and the moments of each block, from θ^0 ~ N(0, I)."""
    local: Any = algorithm.local
    dim, steps = data.slopes.shape[1], local.linear_steps()
    size = 1 + (3 if local.controlled else 1) * dim
    start = jnp.zeros((size, size)).at[-1, -1].set(1.0).at[:dim, :dim].set(jnp.eye(dim))
    if local.controlled:
        # θ̂^{−1} = θ^0, and ĉ^0 = 0 or, with a warm start, the mean gradient at θ^0.
        gradient = _gradient(data.hessians.mean(0), data.slopes.mean(0), jnp.eye(dim, size))
        control = gradient if steps.warm_start else jnp.zeros((dim, size))
        first = jnp.concatenate([*[jnp.eye(dim, size)] * 2, control, jnp.eye(1, size, size - 1)])
        start = first @ start @ first.T
    # Without a warm start, the steps of round 1 are plain.
    corrected = jnp.ones(rounds).at[0].set(1.0 if steps.warm_start else 0.0)
    return jax.lax.scan(
        functools.partial(_one_round, local, data, heard), start, (corrected, links)
    )[1]


def _gradient(hessian: Array, slope: Array, place: Float[Array, "d m"]) -> Float[Array, "d m"]:
    """Return ∇f_i at the model `place`·s, as a map of s."""
    return (hessian @ place).at[:, -1].add(-slope)


def _one_round(
    local: Any,
    data: Data,
    heard: Heard,
    s: Float[Array, "m m"],
    row: tuple[Scalar, tuple[Link, ...]],
) -> tuple[Float[Array, "m m"], tuple[Float[Array, "m m"], tuple[Moments, ...]]]:
    """Map S through one round; returns it twice, as state and as result, and the moments."""
    corrected, links = row
    (users, dim), size = data.slopes.shape, len(s)
    places = [jnp.eye(dim, size, start) for start in range(0, size - 1, dim)]
    phi, second = jax.vmap(lambda own: _user_steps(local, own, corrected, places, s))(data)
    mean = phi.mean(0)
    # Averages over a random set of n users: one user counts 1/n in them, two users 1 − 1/n.
    explained = jnp.einsum("ndm,mk,nek->de", phi, s, phi)
    pairs = (users**2 * (mean @ s @ mean.T) - explained) / max(users * (users - 1), 1)
    single = second.sum(0) / users
    average = heard.inverse * single + (heard.anyone - heard.inverse) * pairs
    moments = [_moments(phi, second, mean, average, places[0], s, heard, links[0])]
    sent, noises = [mean], [average - heard.anyone * (mean @ s @ mean.T)]
    if local.controlled:
        controls = jax.vmap(lambda h, b: _gradient(h, b, places[0]))(data.hessians, data.slopes)
        square = jnp.einsum("ndm,mk,nek->nde", controls, s, controls)
        mean = controls.mean(0)
        parts = controls, square, mean, mean @ s @ mean.T, jnp.zeros((dim, size))
        moments.append(_moments(*parts, s, heard, links[1]))
        sent, noises = [*sent, mean], [*noises, jnp.zeros((dim, dim))]
    estimates = [(k.gain * m).at[:, -1].add(k.offset) for k, m in zip(links, sent, strict=False)]
    estimates[0] += links[0].kept * places[0]  # the origin of controls is 0
    # s' = (estimate of the model, the model before, estimate of the controls, 1).
    rows = [
        estimates[0],
        *[places[0]] * (len(sent) - 1),
        *estimates[1:],
        jnp.eye(1, size, size - 1),
    ]
    step = jnp.concatenate(rows)
    after = heard.anyone * (step @ s @ step.T) + (1.0 - heard.anyone) * s  # silence changes nothing
    for place, link, noise in zip((0, 2 * dim), links, noises, strict=False):
        received = noise + heard.inverse_square * link.noise * jnp.eye(dim)
        block = slice(place, place + dim)
        after = after.at[block, block].add(link.gain**2 * received)
    return after, (after, tuple(moments))


def _user_steps(
    local: Any, data: Data, corrected: Scalar, places: list[Array], s: Float[Array, "m m"]
) -> tuple[Float[Array, "d m"], Float[Array, "d d"]]:
    """Return Φ_i and M_i of one user after its K steps."""
    hessian, slope, features, targets, count = data
    dim, pull = len(slope), local.linear_steps().pull
    eta, start = jnp.float64(local.step_size), places[0]
    # θ ← shrink·θ + shift·s − η·(g − E[g | θ])
    shrink = (1.0 - eta * pull) * jnp.eye(dim) - eta * hessian
    shift = eta * (pull * start).at[:, -1].add(slope)
    if local.controlled:
        shift -= eta * corrected * (places[2] - _gradient(hessian, slope, places[1]))

    def gradient_covariance(mean: Array, second: Array) -> Array:
        """Return E[Cov(g | θ)]: that of one sample, over the size of a minibatch."""
        square = jnp.einsum("sd,de,se->s", features, second, features)
        residual = square - 2.0 * targets * (features @ mean) + targets**2  # E(a_jᵀθ − b_j)²
        sample = 4.0 / count * jnp.einsum("s,sd,se->de", residual, features, features)
        cross = jnp.outer(hessian @ mean, slope)
        full = hessian @ second @ hessian - cross - cross.T + jnp.outer(slope, slope)
        return (sample - full) / local.batch

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        phi, second = carry
        cross = shrink @ phi @ s @ shift.T
        after = shrink @ second @ shrink.T + cross + cross.T + shift @ s @ shift.T
        if local.batch is not None:
            after += eta**2 * gradient_covariance(phi @ s[:, -1], second)
        return (shrink @ phi + shift, after), None

    return jax.lax.scan(step, (start, start @ s @ start.T), None, local.steps)[0]


def _moments(
    phi: Float[Array, "user d m"],
    second: Float[Array, "user d d"],
    mean_phi: Float[Array, "d m"],
    average: Float[Array, "d d"],
    origin: Float[Array, "d m"],
    s: Float[Array, "m m"],
    heard: Heard,
    link: Link,
) -> Moments:
    """Return a block's moments; users hold `phi`·s on average, and send it less `origin`·s."""
    dim, squares = phi.shape[1], jnp.trace(second, axis1=1, axis2=2)
    cross = jnp.einsum("ndm,mk,dk->n", phi, s, origin)
    mean, centre = (phi @ s[:, -1]).mean(1), mean_phi @ s[:, -1]
    total = jnp.trace(average)  # E‖average‖², where somebody is heard
    # estimate − average = gain·noise − (1 − gain)·average + kept·origin + offset
    error = link.gain**2 * heard.inverse_square * link.noise * dim + (1.0 - link.gain) ** 2 * total
    rest = link.kept * (origin @ s[:, -1]) - (1.0 - link.gain) * centre
    error += heard.anyone * link.offset * (dim * link.offset + 2.0 * rest.sum())
    start = jnp.trace(origin @ s @ origin.T)
    error += link.kept * (link.kept * start - 2.0 * (1.0 - link.gain) * cross.mean())
    energy = squares - 2.0 * cross + start
    sent_mean = mean - (origin @ s[:, -1]).mean()
    return Moments(
        energy=energy,
        mean=mean,
        var=squares / dim - mean**2,
        average_mean=centre.mean(),
        average_var=total / dim - centre.mean() ** 2,
        sent_mean=sent_mean,
        sent_var=energy / dim - sent_mean**2,
        error=error,
    )
