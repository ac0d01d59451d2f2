"""At each user: fewer or coarser numbers in place of a block, and what they leave out.

A compressor may tell the server scalars beforehand (`report`), over a coded link, and hears its
answer before it encodes. What users remember is settled once it is known who was heard.
"""

import dataclasses
from typing import Any, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core.part import Memory, Scalar, Traced, Vector, part, traced
from jaxota.errors import InputError
from jaxota.stages.fading import Link
from jaxota.stages.local import norms


@part
class SideInfo:
    """Coded side information of one block: few numbers, which arrive without error.

    Attributes:
        key: of random numbers that users and server share in this round.
        reports: [user] what users report, by names.
        answer: what the server answers to all of them before they send.
    """

    key: PRNGKeyArray | None = None
    reports: dict[str, Float[Array, "user"]] = dataclasses.field(default_factory=dict)
    answer: Any = None

    replace = dataclasses.replace


class Compressor(Protocol):
    """At each user: what goes on the air in place of a vector. `Uncompressed`."""

    @property
    def white(self) -> bool:
        """Whether what is decoded carries the channel's noise on each coordinate, no more."""

    def start(self, users: int, dim: int) -> Memory:
        """Memory [user, …] before round 1."""

    def report(
        self, values: Float[Array, "user d"], memory: Memory
    ) -> dict[str, Float[Array, "user"]]:
        """Coded scalars [user] for the server."""

    def encode(
        self, values: Float[Array, "user d"], memory: Memory, side: SideInfo
    ) -> tuple[Float[Array, "user s"], Memory]:
        """`values` [user, d] → what is sent [user, s], and what is to be remembered."""

    def decode(
        self, received: Float[Array, "s"], deviation: Scalar, link: Link, side: SideInfo
    ) -> Vector:
        """The average [d] from what was received [s], noise of that `deviation` included."""

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """Memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""


@part
class Uncompressed:
    """Every coordinate as it is."""

    white = True  # the noise on what is decoded is that of the channel, coordinate by coordinate

    def start(self, users: int, dim: int) -> Memory:
        """What each user remembers before round 1 [user, …]."""
        return None

    def report(
        self, values: Float[Array, "user d"], memory: Memory
    ) -> dict[str, Float[Array, "user"]]:
        """Scalars [user] for the server, before anything is sent."""
        return {}

    def encode(
        self, values: Float[Array, "user d"], memory: Memory, side: SideInfo
    ) -> tuple[Float[Array, "user s"], Memory]:
        """What goes on the air [user, s] for `values` [user, d], and what is to be remembered."""
        return values, memory

    def decode(
        self, received: Float[Array, "s"], deviation: Scalar, link: Link, side: SideInfo
    ) -> Vector:
        """The average [d] from what was received [s], with noise of that deviation."""
        return received

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """What users remember [user, …], `heard` or not."""
        return after


@part
class Centred:
    """The mean of a vector's coordinates is reported, coded, and the rest is sent.

    Attributes:
        rest: how; `Clipped()`, say.
    """

    rest: Compressor = Uncompressed()

    @property
    def white(self) -> bool:
        return self.rest.white

    def start(self, users: int, dim: int) -> Memory:
        return self.rest.start(users, dim)

    def report(
        self, values: Float[Array, "user d"], memory: Memory
    ) -> dict[str, Float[Array, "user"]]:
        mean = values.mean(1)
        return self.rest.report(values - mean[:, None], memory) | {"mean": mean}

    def encode(
        self, values: Float[Array, "user d"], memory: Memory, side: SideInfo
    ) -> tuple[Float[Array, "user s"], Memory]:
        return self.rest.encode(values - side.reports["mean"][:, None], memory, side)

    def decode(
        self, received: Float[Array, "s"], deviation: Scalar, link: Link, side: SideInfo
    ) -> Vector:
        rest = self.rest.decode(received, deviation, link, side)
        return rest + link.mean(side.reports["mean"])

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        return self.rest.remember(before, after, heard)


@part
class Clipped:
    """Vectors are cut to the level τ that the server answers; what is cut off comes later.

    Attributes:
        leak: what share of it is kept for the next round.

    It goes with a server that answers a level, as `Innovations` does. Users who were not heard keep
    what they had: their round is lost, as FedAvg's would be.
    """

    leak: Traced[Scalar] = traced(default=0.9, at_least=0.0)

    white = True

    def start(self, users: int, dim: int) -> Memory:
        return jnp.zeros((users, dim), "float32")

    def report(
        self, values: Float[Array, "user d"], memory: Memory
    ) -> dict[str, Float[Array, "user"]]:
        return {"size": norms(values + memory)}

    def encode(
        self, values: Float[Array, "user d"], memory: Memory, side: SideInfo
    ) -> tuple[Float[Array, "user d"], Memory]:
        level, size = level_of(side.answer), side.reports["size"]
        whole = values + memory
        sent = whole * jnp.where(size > level, level / jnp.where(size > 0, size, 1.0), 1.0)[:, None]
        return sent, self.leak * (whole - sent)

    def decode(
        self, received: Float[Array, "s"], deviation: Scalar, link: Link, side: SideInfo
    ) -> Vector:
        return received

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        return jnp.where(heard[:, None] > 0, after, before)


def level_of(answer: Any) -> Scalar:
    """The server's level τ in what it answered."""
    if not isinstance(answer, dict) or "level" not in answer:
        raise InputError(
            "algorithm.server must answer a level to jo.Clipped and jo.Level, as jo.Innovations "
            "does"
        )
    return answer["level"]
