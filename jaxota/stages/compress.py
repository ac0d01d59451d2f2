"""Compressors, at each user: fewer or coarser numbers in place of a block.

A compressor may report scalars to the server over a coded link, and hears the server's answer
before it encodes. Its memory is settled once it is known who was heard.
"""

import dataclasses
from typing import Any, Protocol, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core.part import (
    Memory,
    PerUser,
    Scalar,
    Traced,
    Vector,
    Vectors,
    optional,
    part,
    traced,
)
from jaxota.errors import InputError
from jaxota.stages.answers import Link
from jaxota.stages.local import if_heard, no_memory, norms

Symbols: TypeAlias = Float[Array, "user s"]  # s = d without compression
Heard: TypeAlias = Float[Array, "user *symbol"]  # [user], or [user, s] for `by_symbol`
Received: TypeAlias = Float[Array, "s"]  # their average, with noise


@part
class SideInfo:
    """Coded side information of one block: few numbers, which arrive without error.

    Attributes:
        key: a random key that users and server share in this round.
        reports: [user] the users' reported scalars, by name.
        answer: the server's answer to all users, before they send.
    """

    key: PRNGKeyArray | None = None
    reports: dict[str, PerUser] = dataclasses.field(default_factory=dict)
    answer: Any = None

    replace = dataclasses.replace


class Compressor(Protocol):
    """The map from a user's vector to the symbols on the air, such as `Clipped`.

    A compressor whose decoded vector is no average, as that of votes, says so by
    `averages = False`: the error of the aggregation is then not stated. With `by_symbol = True` its
    `remember` is told who was heard on each symbol, [user, s].
    """

    @property
    def white(self) -> bool:
        """Whether a decoded average carries the channel's noise on each coordinate, no more."""

    @optional
    def start(self, users: int, dim: int) -> Memory:
        """Return the memory [user, …] before round 1; by default none."""
        return None

    @optional
    def report(self, values: Vectors, memory: Memory) -> dict[str, PerUser]:
        """Return coded scalars [user] for the server, by name; by default none."""
        return {}

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        """Return the symbols [user, s] that stand for `values` [user, d], and new memory."""

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        """Return the average [d], d = `dim`, and the standard deviation of its noise.

        `received` [s] are the symbols' average and noise of this `deviation`.
        """

    @optional
    def remember(self, before: Memory, after: Memory, heard: Heard) -> Memory:
        """Return the memory [user, …] once it is known who was `heard`; see `if_heard`."""
        return if_heard(self, before, after, heard)


@part
class Uncompressed:
    """No compression: every coordinate is sent as it is."""

    white = cohorts = True
    keeps_values = True  # for `exact`
    start, report = no_memory, Compressor.report

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        return values, memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        return received, deviation

    def remember(self, before: Memory, after: Memory, heard: PerUser) -> Memory:
        return after


@part
class Centred:
    """Each vector's mean coordinate is reported, coded; the centred vector is sent.

    Attributes:
        rest: the compressor of the centred vector; `Clipped()`, for example.
    """

    rest: Compressor = Uncompressed()

    @property
    def white(self) -> bool:
        return self.rest.white

    @property
    def cohorts(self) -> bool:
        return getattr(self.rest, "cohorts", False)

    @property
    def averages(self) -> bool:
        return getattr(self.rest, "averages", True)

    @property
    def by_symbol(self) -> bool:
        return getattr(self.rest, "by_symbol", False)

    def start(self, users: int, dim: int) -> Memory:
        return self.rest.start(users, dim)

    def report(self, values: Vectors, memory: Memory) -> dict[str, PerUser]:
        mean = values.mean(1)
        return self.rest.report(values - mean[:, None], memory) | {"mean": mean}

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        # Minus the reported mean, which is the one that the server adds back.
        return self.rest.encode(values - side.reports["mean"][:, None], memory, side)

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        centred, deviation = self.rest.decode(received, deviation, link, side, dim)
        # The means of the users who were heard, as the received average is theirs.
        return centred + link.mean(side.reports["mean"]), deviation

    def remember(self, before: Memory, after: Memory, heard: Heard) -> Memory:
        return self.rest.remember(before, after, heard)


@part
class Clipped:
    """Vectors are clipped to the norm τ that the server answers, with error feedback.

    Attributes:
        leak: the fraction of the clipped-off remainder that is carried to the next round.

    The server must answer a level τ, as `Innovations` does. Users who were not heard keep their
    old remainder: their round is lost, as it would be in FedAvg.
    """

    leak: Traced[Scalar] = traced(default=0.9, at_least=0.0)

    white = cohorts = True
    decode, remember = Uncompressed.decode, if_heard

    def start(self, users: int, dim: int) -> Memory:
        return jnp.zeros((users, dim), "float32")

    def report(self, values: Vectors, memory: Memory) -> dict[str, PerUser]:
        return {"size": norms(values + memory)}  # the remainder of earlier rounds included

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        level, size = level_of(side.answer), side.reports["size"]
        total = values + memory
        # Not min(1, level/size): a vector of norm 0 under level 0 would become NaN.
        factor = jnp.where(size > level, level / jnp.where(size > 0, size, 1.0), 1.0)
        sent = total * factor[:, None]
        return sent, self.leak * (total - sent)


@part
class Unheard:
    """Memory of what fading silenced: AirFL-Mem (Wen et al., 2023).

    "AirFL-Mem: improving communication-learning trade-off by long-term memory". Each user adds to
    its values those of earlier rounds that were not heard, symbol by symbol under selective fading.
    The server divides by the number of all users: each value arrives once, late at the worst.
    """

    white = by_symbol = True
    averages = False  # of this round's values
    report = Compressor.report

    def start(self, users: int, dim: int) -> Memory:
        return jnp.zeros((users, dim), "float32")

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        return values + memory, values + memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        symbols = link.by_symbol(dim)
        users, count = len(link.heard), symbols.heard.sum(0)
        # A symbol's ν is as 1/(n·floor)²; of it, n/N is left.
        before = jnp.where(count > 0, 1.0 / (jnp.maximum(count, 1.0) * symbols.floor) ** 2, 0.0)
        after = jnp.where(count > 0, 1.0 / (users * symbols.floor) ** 2, 0.0)
        share = jnp.sqrt(after.sum() / jnp.where(before.sum() > 0, before.sum(), 1.0))
        return received * count / users, deviation * share

    def remember(self, before: Memory, after: Memory, heard: Heard) -> Memory:
        return jnp.where(heard > 0, 0.0, after)


@part
class NormBounded:
    """Vectors longer than a fixed norm are scaled down to it, and what is cut off is lost.

    Attributes:
        bound: the largest norm. With `jo.Constant(√P/bound)` no user exceeds the budget P.
    """

    bound: Traced[Scalar] = traced(above=0.0)

    white = True
    start, report = no_memory, Compressor.report
    decode, remember = Uncompressed.decode, Uncompressed.remember

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        size = norms(values)
        factor = jnp.where(size > self.bound, self.bound / jnp.where(size > 0, size, 1.0), 1.0)
        return values * factor[:, None], memory


def level_of(answer: Any) -> Scalar:
    """Return the level τ in a server's answer."""
    if not isinstance(answer, dict) or "level" not in answer:
        raise InputError(
            "algorithm.server must answer a level to jo.Clipped and jo.Level, as jo.Innovations "
            "does"
        )
    return answer["level"]
