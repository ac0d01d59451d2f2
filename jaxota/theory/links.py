"""Moments of the weights that a channel and an estimator give to users, for the recursion.

Fading and `participants` decide who is heard, independently of the models. An *outcome* is a set of
users heard or, where users are alike, their number.
"""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxota._core.part import PerUser, Scalar
from jaxota._core.schedule import at_round
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.answers import Above
from jaxota.stages.answers import Link as Path
from jaxota.stages.channel import Block, noise_over
from jaxota.theory.recursion import Air, Link
from jaxota.theory.steps import Data

SETS = 2**18  # outcomes that are enumerated


class Outcomes(NamedTuple):
    """Who may be heard in a round, given that anyone is.

    Attributes:
        chance: probability of each outcome.
        heard: the users of each set; of a number, as many.
        pairs: probability of an outcome in which both users are heard; None for sets.
        anyone: P(anyone is heard).
    """

    chance: Float[Array, "outcome"]
    heard: Float[Array, "outcome user"]
    pairs: Float[Array, "user user outcome"] | None
    anyone: Scalar

    def single(self, values: Float[Array, "outcome"]) -> PerUser:
        """Return E[value; user heard] of every user."""
        if self.pairs is None:
            return (self.chance * values) @ self.heard
        return jnp.einsum("iix,x->i", self.pairs, values)

    def pair(self, values: Float[Array, "outcome"]) -> Float[Array, "user user"]:
        """Return E[value; both heard] of every two users."""
        if self.pairs is None:
            return ((self.chance * values)[:, None] * self.heard).T @ self.heard
        return self.pairs @ values


def is_random(carrier: Any) -> bool:
    """Whether fading or a lottery decides who is heard."""
    return carrier.participants is not None or fades(carrier)


def fades(carrier: Any) -> bool:
    """Whether users fade."""
    return jax.eval_shape(lambda: carrier.fading.above(0, jnp.ones(1))) is not None


def alike(algorithm: Algorithm, carrier: Any) -> bool:
    """Whether the number of users heard is all that counts."""
    reads_users = {"mean", "var"} & {*algorithm.estimate.needs}
    lottery = carrier.gains is None or carrier.participants is None
    return not reads_users and lottery


def enumerate_sets(users: int, participants: Any, fades: bool) -> Int[np.ndarray, "set"]:
    """Return all sets of users that may be heard, as bits; InputError where they are too many."""
    chosen = np.unique(users if participants is None else np.asarray(participants))
    sizes = range(1, int(chosen.max()) + 1) if fades else [int(size) for size in chosen]
    count = sum(math.comb(users, size) for size in sizes)
    if count > SETS:
        raise InputError(
            f"channel must let fewer sets of users be heard for exact curves, at most {SETS:,}, "
            f"got {count:,} with an estimate or gains that tell users apart: jo.simulate runs it"
        )
    bits = (sum(1 << user for user in own) for k in sizes for own in _combinations(users, k))
    return np.fromiter(bits, np.int64, count)


def _combinations(users: int, size: int) -> Any:
    return itertools.combinations(range(users), size)


def outcomes(carrier: Any, users: int, blocks: int, sets: Array | None) -> Outcomes:
    """Return the outcomes of a round, by `sets` of users, or by their number for None."""
    if not is_random(carrier):
        one = jnp.ones(1)
        return Outcomes(one, jnp.ones((1, users)), None, one[0])
    chosen, chances = carrier.participants, jnp.ones(users)
    for above in _above(carrier, users, blocks):
        chances *= above.chance if above is not None else 1.0
    if sets is not None:
        heard = ((sets[:, None] >> jnp.arange(users)[None]) & 1).astype(float)
        each = _of_sets(heard, chances, chosen)
        return Outcomes(each / each.sum(), heard, None, each.sum())
    number, heard = jnp.arange(1.0, users + 1.0), jnp.tri(users)
    if carrier.gains is None:
        total = jnp.float64(users if chosen is None else chosen)
        each = jax.scipy.stats.binom.pmf(number, total, chances[0])
        pair = each * (number - 1.0) * number / max(users * (users - 1), 1)
        same = jnp.eye(users)[:, :, None]
        pairs = same * (each * number / users)[None, None] + (1.0 - same) * pair[None, None]
    else:
        pairs = _unequal_pairs(chances)
        each = jnp.einsum("iix->x", pairs) / number
    return Outcomes(each / each.sum(), heard, pairs / each.sum(), each.sum())


def _above(carrier: Any, users: int, blocks: int) -> list[Above | None]:
    """Return the moments of fading of each block, None without fading."""
    power = carrier.gains if carrier.gains is not None else jnp.ones(users)
    return [carrier.fading.above(block, jnp.sqrt(power)) for block in range(blocks)]


def _of_sets(heard: Array, chances: PerUser, chosen: Any) -> Float[Array, "outcome"]:
    """Return the probability that each set is heard, of users `chosen` at random or of all."""
    inside = jnp.where(heard > 0, chances[None], 1.0).prod(1)
    silent = jnp.where(heard > 0, 0.0, 1.0 - chances[None])
    if chosen is None:
        return inside * jnp.where(heard > 0, 1.0, silent).prod(1)
    # Of the users chosen, the others are silent: an elementary symmetric polynomial.
    users = len(chances)
    polynomial = jnp.zeros((len(heard), users + 1)).at[:, 0].set(1.0)

    def add(each: Array, column: Array) -> tuple[Array, None]:
        return each.at[:, 1:].add(column[:, None] * each[:, :-1]), None

    polynomial, _ = jax.lax.scan(add, polynomial, silent.T)
    left = jnp.int32(chosen) - heard.sum(1).astype("int32")
    found = jnp.take_along_axis(polynomial, jnp.maximum(left, 0)[:, None], 1)[:, 0]
    log = jax.scipy.special.gammaln
    ways = jnp.exp(log(users + 1.0) - log(chosen + 1.0) - log(users - chosen + 1.0))
    return jnp.where(left < 0, 0.0, inside * found) / ways


def _unequal_pairs(chances: PerUser) -> Float[Array, "user user outcome"]:
    """Return P(both heard, n heard) for users who are heard independently, by chances."""
    users = len(chances)

    def others(one: Array, other: Array) -> Float[Array, "count"]:
        """Return the law of the number heard among all but two."""
        left_out = (jnp.arange(users) == one) | (jnp.arange(users) == other)

        def add(law: Array, chance: Scalar) -> tuple[Array, None]:
            return (1.0 - chance) * law + chance * jnp.roll(law, 1), None

        return jax.lax.scan(add, jnp.eye(1, users)[0], jnp.where(left_out, 0.0, chances))[0]

    every = jnp.arange(users)
    law = jax.vmap(jax.vmap(others, (None, 0)), (0, None))(every, every)
    same = jnp.eye(users)[:, :, None]
    both = (chances[:, None] * chances[None])[:, :, None] * jnp.roll(law, 1, -1)
    return jnp.where(same > 0, chances[:, None, None] * law, both)


def air(
    rounds: int, algorithm: Algorithm, carrier: Any, data: Data, rows: Any, sets: Array | None
) -> tuple[Air, list[Scalar], list[PerUser]]:
    """Return the way to the server in every round, deviations by round, and shares of the energy.

    A share is the mean power of a user over its energy, in units of the full-power energy. `rows`
    are the moments of each block in the plan, or None.
    """
    users, controlled = len(data.weights), algorithm.local.controlled
    blocks = 1 + controlled
    found = outcomes(carrier, users, blocks, sets)
    known: list[Above | None] = [None] * blocks
    if is_random(carrier):
        known = _above(carrier, users, blocks)

    def one(r: Array, rows: Any) -> tuple[Air, list[Array]]:
        rule = at_round(algorithm, r)
        given = [_block(rule, carrier, data, b, rows[b], known[b]) for b in range(blocks)]
        return _one_round(rule, found, known, given, controlled, is_random(carrier))

    way, deviations = jax.vmap(one)(jnp.arange(rounds), rows or [None] * blocks)
    heard = found.anyone * found.single(jnp.ones(len(found.chance)))
    shares = []
    for above in known:
        spent = heard if above is None else heard * above.power
        shares.append(0.0 * heard if carrier.noise_variance(1) is None else spent)
    return way, deviations, shares


class _Given(NamedTuple):
    """One block of one round."""

    block: Block
    energy: Scalar
    noise: Scalar  # ν·n² over the energy
    floor: Scalar | float


def _block(
    algorithm: Algorithm, carrier: Any, data: Data, number: int, row: Any, above: Above | None
) -> _Given:
    users, dim = data.slopes.shape
    power = (carrier.power, carrier.control_budget)[number]
    noise = noise_over(power, carrier, dim)
    # A bound on the norms that users send grows by the largest weight.
    reach = (algorithm.local.reach, 1.0)[number] * data.weights.max()
    # NaN shows in the energy if a precoder reads what users send in a run.
    absent: Any = None
    unknown = jnp.full(users, jnp.nan)
    block = Block(absent, absent, absent, power, reach, row, energies=unknown)
    if noise is None:
        return _Given(block, jnp.ones(()), jnp.zeros(()), 1.0)
    floor = above.floor if above is not None else 1.0
    energy = jnp.asarray(algorithm.precode.energy(block), "float64")
    return _Given(block, energy, jnp.asarray(noise, "float64") / floor**2, floor)


def _one_round(
    algorithm: Algorithm,
    found: Outcomes,
    known: list[Above | None],
    given: list[_Given],
    controlled: bool,
    random: bool,
) -> tuple[Air, list[Array]]:
    """Return the way to the server in one round, and the deviations √ν of both blocks."""
    estimate: Any = algorithm.estimate
    users, count = found.heard.shape[1], found.heard.sum(1)
    ones, every = jnp.ones(users), jnp.ones(len(count))
    links, deviations, fixed, values = [], [], [], []
    for (block, energy, noise, floor), above in zip(given, known, strict=True):
        level = jnp.where(noise == 0, 0.0, jnp.sqrt(noise) * jnp.sqrt(energy))

        path = Path(found.heard, ones, ones, jnp.float64(floor))
        keep, gain, offset = _affine(estimate, level / count, block, path)
        reached = (ones, ones) if above is None else (above.gain, above.square)
        value = (gain / count, *reached)
        fixed += [keep, offset]
        values.append(value)
        weights, _ = _moments(found, [keep, offset], [value])
        average = (1.0 / count, ones, ones)
        mean, covariance = _moments(found, [keep - 1.0, offset], [value, average])
        errors = jnp.eye(2 + users, 2 + 2 * users)  # weights less those of the average
        errors = errors.at[2:, 2 + users :].set(-jnp.eye(users))
        noises = noise * found.chance @ (gain / count) ** 2
        spread = errors @ covariance @ errors.T if random else None
        links.append(Link(energy, noises, weights, errors @ mean, spread))
        deviations.append(level * jnp.sqrt(found.chance @ (1.0 / count**2)))
    if controlled:
        values.append((every, ones, ones))
    joint = _moments(found, fixed, values)[1] if random else None
    way = Air(tuple(links), found.anyone, found.single(every), joint)
    return way, deviations


def _affine(estimate: Any, deviations: Array, block: Block, path: Path) -> list[Array]:
    """Return the estimator's map in every outcome; `path` has all of their sets."""

    def one(deviation: Scalar, heard: PerUser) -> Any:
        return estimate.affine(deviation, block, path.replace(heard=heard))

    maps = jax.vmap(one)(deviations, path.heard)
    return [jnp.broadcast_to(x, len(deviations)).astype("float64") for x in maps]


def _moments(
    found: Outcomes,
    fixed: list[Float[Array, "outcome"]],
    values: list[tuple[Array, PerUser, PerUser]],
) -> tuple[Float[Array, "j"], Float[Array, "j j"]]:
    """Return mean and covariance of `fixed` and of users' weights, which are 0 where not heard.

    The weight of a user who is heard is a factor [outcome] times a random gain of its own, of which
    mean and second moment [user] are given.
    """
    means = [jnp.stack([found.chance @ f for f in fixed])]
    means += [found.single(a) * gain for a, gain, _ in values]
    corner = jnp.stack([jnp.stack([found.chance @ (f * g) for g in fixed]) for f in fixed])
    side = [[found.single(f * a) * gain for a, gain, _ in values] for f in fixed]
    side_block = jnp.stack([jnp.concatenate(row) for row in side])
    pairs = []
    for n, (a, gain, square) in enumerate(values):
        row = [found.pair(a * b) * jnp.outer(gain, other) for b, other, _ in values]
        row[n] += jnp.diag(found.single(a * a) * (square - gain**2))
        pairs.append(row)
    second = jnp.block([[corner, side_block], [side_block.T, jnp.block(pairs)]])
    mean = jnp.concatenate(means)
    return mean, second - jnp.outer(mean, mean)
