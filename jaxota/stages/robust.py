"""Liars among the users, and the median of groups, which few liars cannot move."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxota._core.part import (
    Memory,
    PerUser,
    Scalar,
    Traced,
    Vector,
    Vectors,
    part,
    static,
    traced,
)
from jaxota.errors import InputError
from jaxota.stages.answers import Link
from jaxota.stages.compress import Compressor, Received, SideInfo, Symbols, Uncompressed
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


@part
class GroupMedian:
    """The coordinate-wise median of the averages of random groups of users (Sifaou & Li, 2022).

    "Robust federated learning via over-the-air computation". Users are dealt to groups anew in
    each round; each group sends in a slot of its own. Liars in fewer than half of the groups cannot
    move the median beyond the honest groups' averages.

    Attributes:
        groups: number of groups, each of which takes d symbols; 1 is the plain average.
    """

    groups: int = static(at_least=1)

    white = False
    start, report, remember = no_memory, Compressor.report, Uncompressed.remember

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        own = self.membership(side, len(values))
        return (own[:, :, None] * values[:, None]).reshape(len(values), -1), memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        """Return the median, and the deviation of the noise on one group's average."""
        sizes = link.heard @ self.membership(side, link.heard.size)
        # From shares of the average over all users to the averages of groups.
        means = received.reshape(self.groups, dim) * (link.count / jnp.maximum(sizes, 1.0))[:, None]
        means = jnp.where(sizes[:, None] > 0, means, jnp.nan)  # a silent group has no say
        median = jnp.nanmedian(means, axis=0)
        noise = deviation * link.count / jnp.maximum(jnp.max(sizes), 1.0)
        return jnp.where(link.heard.sum() > 0, median, 0.0), noise

    def membership(self, side: SideInfo, users: int) -> Float[Array, "user group"]:
        """Return 1 where a user is in a group, else 0; groups differ by at most one user."""
        assert side.key is not None  # a round's side information has one
        places = jax.random.permutation(side.key, users) % self.groups
        return (places[:, None] == jnp.arange(self.groups)[None]).astype("float32")

    def check(self, path: str, setting: "Setting") -> None:
        users = setting.task.users
        if self.groups > users:
            raise InputError(f"{path}.groups must be at most {users}, the users, got {self.groups}")


@part
class Liars:
    """Some users send a multiple of their vectors, such as the opposite.

    The first users lie. Errors are those against the true average.

    Attributes:
        count: the number of liars.
        factor: their multiple: −1 is the opposite, 0 nothing.
        rest: the compressor of all users, which is what liars give their multiples to.
    """

    count: Traced[Int[Array, ""]] = traced(at_least=0, dtype="int32")
    factor: Traced[Scalar] = traced(default=-1.0)
    rest: Compressor = Uncompressed()

    @property
    def white(self) -> bool:
        return self.rest.white

    @property
    def averages(self) -> bool:
        return getattr(self.rest, "averages", True)

    def start(self, users: int, dim: int) -> Memory:
        return self.rest.start(users, dim)

    def report(self, values: Vectors, memory: Memory) -> dict[str, PerUser]:
        return self.rest.report(self.said(values), memory)

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        return self.rest.encode(self.said(values), memory, side)

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        return self.rest.decode(received, deviation, link, side, dim)

    def remember(self, before: Memory, after: Memory, heard: PerUser) -> Memory:
        return self.rest.remember(before, after, heard)

    def said(self, values: Vectors) -> Vectors:
        """Return the vectors with those of liars multiplied."""
        lie = jnp.arange(len(values)) < self.count
        return jnp.where(lie[:, None], self.factor * values, values)
