"""At each user: fewer or coarser numbers in place of a block, and what they leave out.

A compressor may tell the server scalars beforehand (`report`), over a coded link, and hears its
answer before it encodes. What users remember is settled once it is known who was heard.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota.types import Maybe, Memory, Scalar, Vector, part

if TYPE_CHECKING:
    from jaxota.fading import Link


@part
class Side:
    """Coded side information of one block: few numbers, which arrive without error.

    key: of random numbers that users and server share in this round.
    reports: [user] what users report, by names.
    answer: what the server answers to all of them before they send.
    """

    key: Maybe[PRNGKeyArray] = ()
    reports: dict[str, Float[Array, "user"]] = dataclasses.field(default_factory=dict)
    answer: Any = ()

    replace = dataclasses.replace


@part
class Uncompressed:
    """Every coordinate as it is."""

    white = True  # the noise on what is decoded is that of the channel, coordinate by coordinate

    def start(self, users: int, dim: int) -> Memory:
        """What each user remembers before round 1 [user, …]."""
        return ()

    def report(
        self, values: Float[Array, "user d"], memory: Memory
    ) -> dict[str, Float[Array, "user"]]:
        """Scalars [user] for the server, before anything is sent."""
        return {}

    def encode(
        self, values: Float[Array, "user d"], memory: Memory, side: Side
    ) -> tuple[Float[Array, "user s"], Memory]:
        """What goes on the air [user, s] for `values` [user, d], and what is to be remembered."""
        return values, memory

    def decode(
        self, received: Float[Array, "s"], deviation: Scalar, link: "Link", side: Side
    ) -> Vector:
        """The average [d] from what was received [s], with noise of that deviation."""
        return received

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """What users remember [user, …], `heard` or not."""
        return after


def if_heard(self: object, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
    """A part's `remember`: `after` for users who were `heard`, `before` for the others.

    self: the part, as it is one of its methods.
    before, after: [user, …] what users remembered before the round, and of it.
    heard: [user] 1 for users who were heard, else 0.
    """

    def chosen(new: Array, old: Array) -> Array:
        return jnp.where(heard.reshape(-1, *[1] * (new.ndim - 1)) > 0, new, old)

    return jax.tree.map(chosen, after, before)
