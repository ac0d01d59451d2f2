"""At each user: fewer or coarser numbers in place of a block, and what they leave out.

A compressor may tell the server scalars beforehand (`report`), over a coded link, and hears its
answer before it encodes. What users remember is settled once it is known who was heard.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxota.types import Array, part


@part
class Side:
    """Coded side information of one block: few numbers, which arrive without error."""

    key: Array = ()  # of random numbers that users and server share in this round
    reports: dict[str, Array] = dataclasses.field(default_factory=dict)  # [user] what users report
    answer: Any = ()  # what the server answers to all of them before they send


@part
class Uncompressed:
    """Every coordinate as it is."""

    white = True  # the noise on what is decoded is that of the channel, coordinate by coordinate

    def start(self, users: int, dim: int):
        """What each user remembers before round 1 [user, …]."""
        return ()

    def report(self, values: Array, memory) -> dict[str, Array]:
        """Scalars [user] for the server, before anything is sent."""
        return {}

    def encode(self, values: Array, memory, side: Side):
        """What goes on the air [user, s] for `values` [user, d], and what is to be remembered."""
        return values, memory

    def decode(self, received: Array, deviation: Array, link, side: Side) -> Array:
        """The average [d] from what was received [s], with noise of that deviation."""
        return received

    def remember(self, before, after, heard: Array):
        """What users remember [user, …], `heard` [user] or not."""
        return after


def if_heard(self, before, after, heard: Array):
    """A part's `remember`: `after` for users who were heard, `before` for the others."""

    def chosen(new, old):
        return jnp.where(heard.reshape(-1, *[1] * (new.ndim - 1)) > 0, new, old)

    return jax.tree.map(chosen, after, before)
