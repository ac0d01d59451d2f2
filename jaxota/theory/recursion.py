"""The recursion behind `jo.exact`: second moments of the broadcast state, round by round.

With minibatches drawn with replacement, gains that are known beforehand and an affine estimate, one
round maps the mean and the second moment of the state s linearly. S = E[s sᵀ] is carried from round
to round, in float64. The state holds the model, the server's memory, the broadcast control, and
what users remember of their controls, each of d numbers, and a 1:

    s = (θ̂, memory…, ĉ, past…, 1)

Where all users are heard, their controls are gradients at θ̂ of the round before: past = θ̂^{r−1}.
Where a user may be silent it keeps its old control: past = (c_1, …, c_N).

Given s, user i ends its K steps at θ_i, of mean Φ_i s and covariance V_i, independent of the other
users. The server's estimate is a sum Σ_k w_k y_k plus noise; y holds the origin θ̂, ones, and the
users' values. The weights w are random where fading or a lottery decides who is heard, but they are
independent of s: their means and covariances are all that counts.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxota._core.part import Scalar
from jaxota.algorithms import Algorithm
from jaxota.theory.steps import Data, gradient_map, sample_operator, take_steps


class Link(NamedTuple):
    """One block's way to the server: [round, …], or one round's, given that anyone is heard."""

    energy: Array | None  # P/α, the ‖·‖² that spends the budget; None for max_i E‖·‖² of the run
    noise: Array  # variance of the noise on the estimate, over the energy
    weights: Float[Array, "*round k"]  # mean of w: of the origin, of ones, of the users' values
    errors: Float[Array, "*round k"]  # the same, less the weights of the true average
    error_covariance: Float[Array, "*round k k"] | None = None  # None where nothing is random


class Air(NamedTuple):
    """Both blocks' way to the server: [round, …], or one round's.

    The covariance is that of all random weights, in this order: of origin and ones, of both blocks;
    of the users' values, of both blocks; and of 1 for users heard, 0 for others.
    """

    links: tuple[Link, ...]
    anyone: Array  # P(anyone is heard)
    heard: Float[Array, "*round user"]  # P(user is heard | anyone is)
    covariance: Float[Array, "*round j j"] | None = None  # None where nothing is random


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


class Values(NamedTuple):
    """A block's values: maps of s, and covariances given s, which are None where there are none."""

    origin: Float[Array, "d m"]
    maps: Float[Array, "user d m"]
    covariances: Float[Array, "user d d"] | None


def run(
    rounds: int, algorithm: Algorithm, data: Data, air: Air
) -> tuple[Float[Array, "round m m"], tuple[Moments, ...]]:
    """Return S after every round, and the moments of each block, from θ^0 ~ N(0, I)."""
    local: Any = algorithm.local
    server: Any = algorithm.server
    steps, memory = local.linear_steps(), server.start(jnp.zeros(1))
    dim, controlled = data.slopes.shape[1], local.controlled
    model = jnp.eye(dim, dim + 1)  # θ^0 as a map of (θ^0, 1)
    gradients = jax.vmap(gradient_map, (0, 0, None))(data.hessians, data.slopes, model)
    controls = gradients if steps.warm_start else jnp.zeros_like(gradients)
    held = len(server.affine(memory)[0]) - 1
    first = [model, *[0.0 * model] * held]
    if controlled:
        past = [model] if air.covariance is None else list(controls)
        first += [jnp.einsum("n,ndm->dm", data.weights / len(controls), controls), *past]
    start = jnp.concatenate([*first, jnp.eye(1, dim + 1, dim)])
    # Without a warm start the steps of round 1 are plain. Controls that users hold are 0 then.
    corrected = jnp.ones(rounds).at[0].set(float(steps.warm_start or air.covariance is not None))
    operators = jax.vmap(sample_operator)(data) if steps.batch is not None else None
    sizes = jnp.asarray(steps.step_size, "float64").reshape(-1)[:rounds]
    sizes = jnp.broadcast_to(sizes, rounds)
    one_round = functools.partial(_one_round, local, server, data, operators, held)
    return jax.lax.scan(one_round, (start @ start.T, memory), (corrected, sizes, air))[1]


def _one_round(
    local: Any,
    server: Any,
    data: Data,
    operators: Array | None,
    held: int,
    carry: tuple[Float[Array, "m m"], Any],
    row: tuple[Scalar, Scalar, Air],
) -> tuple[tuple[Float[Array, "m m"], Any], Any]:
    """Map S through one round; `held` vectors are the server's memory."""
    (s, memory), (corrected, step_size, air) = carry, row
    (users, dim), size = data.slopes.shape, len(s)
    places = [jnp.eye(dim, size, start) for start in range(0, size - 1, dim)]
    control, past = 1 + held, jnp.stack(places[2 + held :] or [places[0]])
    correction = jnp.zeros((users, dim, size))
    if local.controlled:
        if air.covariance is None:
            past = jax.vmap(gradient_map, (0, 0, None))(data.hessians, data.slopes, past[0])
        correction = corrected * (places[control][None] - past)
    pull = local.linear_steps().pull
    pull = (0.0 if pull is None else pull) * places[0]
    drift = step_size * (pull[None] - correction).at[:, :, -1].add(data.slopes)
    walk = functools.partial(take_steps, local.steps, local.linear_steps(), step_size)
    walk = jax.vmap(walk, (0, 0, 0, None, None))
    phi, second = walk(data, operators, drift, places[0], s)
    explained = _congruence(phi, s)
    weights, updates = data.weights[:, None, None], phi - places[0][None]
    blocks = [Values(places[0], weights * updates, weights**2 * (second - explained))]
    renewed: Any = None
    if local.controlled:
        controls = jax.vmap(gradient_map, (0, 0, None))(data.hessians, data.slopes, places[0])
        blocks.append(Values(jnp.zeros((dim, size)), weights * controls, None))
        renewed = controls - past
    received = [_receive(s, block, link) for block, link in zip(blocks, air.links, strict=False)]
    records, estimates, noises = zip(*received, strict=True)
    # s' as a map of s, in the mean, and the covariance of its random parts.
    step, memory = server.affine(memory)
    ones = jnp.zeros((dim, size)).at[:, -1].set(1.0)
    server_inputs = jnp.stack([*places[: 1 + held], estimates[0], ones])
    rows = [jnp.einsum("ok,kdm->odm", step, server_inputs).reshape(-1, size)]
    lift = jnp.concatenate([step[:, -2], jnp.zeros(len(places) - 1 - held)])[:, None]
    spread = [noises[0]]
    if local.controlled:
        rows.append(estimates[1])
        lift = jnp.concatenate([lift, jnp.eye(len(places), 1, -control)], 1)
        spread.append(noises[1])
        if air.covariance is None:
            rows.append(places[0])
        else:
            kept = past + air.heard[:, None, None] * renewed
            rows.append(kept.reshape(-1, size))
            lift = jnp.concatenate([lift, jnp.eye(len(places), users, -control - 1)], 1)
            spread += [jnp.zeros((dim, dim))] * users
    mean_map = jnp.concatenate([*rows, jnp.eye(1, size, size - 1)])
    covariance = jax.scipy.linalg.block_diag(*spread)
    if air.covariance is not None:
        covariance += _random_weights(air.covariance, blocks, renewed, s)
    lift = jnp.pad(jnp.kron(lift, jnp.eye(dim)), ((0, 1), (0, 0)))
    after = mean_map @ s @ mean_map.T + lift @ covariance @ lift.T
    after = air.anyone * after + (1.0 - air.anyone) * s  # silence changes nothing
    records = tuple(record._replace(error=air.anyone * record.error) for record in records)
    return (after, memory), (after, records)


def _congruence(maps: Float[Array, "*user d m"], s: Float[Array, "m m"]) -> Array:
    """Return maps·S·mapsᵀ."""
    return (maps @ s) @ jnp.swapaxes(maps, -1, -2)


def _receive(
    s: Float[Array, "m m"], block: Values, link: Link
) -> tuple[Moments, Float[Array, "d m"], Float[Array, "d d"]]:
    """Return a block's moments, its estimate as a map of s in the mean, and its noise given s."""
    origin, maps, covariances = block
    users, dim, size = maps.shape
    held = maps + origin[None]  # θ_i, or c_i
    product = maps @ s
    squares = (product * maps).sum((1, 2))
    crosses = (product * origin[None]).sum((1, 2))
    held_squares = squares + 2.0 * crosses + jnp.trace(_congruence(origin, s))
    own = jnp.zeros(users) if covariances is None else jnp.trace(covariances, axis1=1, axis2=2)
    energies = squares + own
    y = jnp.stack([origin, jnp.zeros((dim, size)).at[:, -1].set(1.0), *maps])
    estimate, missed = (jnp.einsum("k,kdm->dm", w, y) for w in (link.weights, link.errors))
    weights, errors = link.weights[2:] ** 2, link.errors[2:] ** 2
    energy = energies.max() if link.energy is None else link.energy
    noise = jnp.where(link.noise == 0, 0.0, link.noise * energy)  # the energy may be infinite
    error = jnp.trace(_congruence(missed, s)) + noise * dim
    if link.error_covariance is not None:
        error += jnp.einsum("kl,kdm,mn,ldn->", link.error_covariance, y, s, y)
        errors += jnp.diagonal(link.error_covariance)[2:]
    mean, sent, centre = (held @ s[:, -1]).mean(1), (maps @ s[:, -1]).mean(1), held.mean(0)
    total = jnp.trace(_congruence(centre, s)) + own.sum() / users**2
    average_mean = (centre @ s[:, -1]).mean()
    moments = Moments(
        energy=energies,
        mean=mean,
        var=(held_squares + own) / dim - mean**2,
        average_mean=average_mean,
        average_var=total / dim - average_mean**2,
        sent_mean=sent,
        sent_var=energies / dim - sent**2,
        error=error + errors @ own,
    )
    covariance = noise * jnp.eye(dim)
    if covariances is not None:
        covariance += jnp.einsum("i,ide->de", weights, covariances)
    return moments, estimate, covariance


def _random_weights(
    covariance: Float[Array, "j j"],
    blocks: list[Values],
    renewed: Float[Array, "user d m"] | None,
    s: Float[Array, "m m"],
) -> Float[Array, "e e"]:
    """Return the covariance, by random weights, of both estimates and of the users' controls.

    It is Σ_jl Cov(w_j, w_l)·y_j S y_lᵀ, summed over the weights of each estimate, plus the users'
    own noise under random weights. `renewed` is the change of a user's control if it is heard.
    """
    users, dim, size = blocks[0].maps.shape
    ones = jnp.zeros((dim, size)).at[:, -1].set(1.0)
    fixed = [y for block in blocks for y in (block.origin, ones)]
    values = [block.maps for block in blocks]
    number = len(blocks)
    targets = [*np.repeat(range(number), 2), *np.repeat(range(number), users)]
    if renewed is not None:
        values.append(renewed)
        targets += range(number, number + users)
    y = jnp.concatenate([jnp.stack(fixed), *values]).reshape(-1, size)
    products = (y @ s @ y.T).reshape(len(targets), dim, len(targets), dim)
    weighted = products * covariance[:, None, :, None]
    sums = np.eye(max(targets) + 1)[:, targets]  # [estimate or control, weight]
    result = jnp.einsum("bj,jdle,cl->bdce", sums, weighted, sums)
    own = jnp.diagonal(covariance)[2 * number : 2 * number + users]
    assert blocks[0].covariances is not None
    result = result.at[0, :, 0].add(jnp.einsum("i,ide->de", own, blocks[0].covariances))
    return result.reshape(len(result) * dim, -1)
