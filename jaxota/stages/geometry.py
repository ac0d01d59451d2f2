"""Geometry: users around a server, and the path gains that their distances give."""

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import inputs, prng
from jaxota._core.part import Numbers, PerUser, Scalar, Seed, Traced, part, static, traced
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


class Placed(NamedTuple):
    """Users in a cell."""

    positions: Float[Array, "user 2"]
    gains: PerUser


@part
class Cell:
    """Users in a disc around the server, for `jo.Channel(gains=...)`.

    The fields are those of `cell`, which makes one.
    """

    key: Traced[PRNGKeyArray] = traced(dtype="key")
    users: int = static(at_least=1)
    radius: Traced[Scalar] = traced(default=500.0, above=0.0)
    exponent: Traced[Scalar] = traced(default=3.5, at_least=0.0)
    shadowing_db: Traced[Scalar] = traced(default=0.0, at_least=0.0)
    nearest: Traced[Scalar] = traced(default=35.0, above=0.0)
    reference: Traced[Scalar | None] = traced(default=None, above=0.0)
    redraw: bool = static(default=False, one_of=(False, True))

    replace = dataclasses.replace

    @property
    def positions(self) -> Float[Array, "user 2"]:
        """Where users are, the server at (0, 0)."""
        return self.draw().positions

    @property
    def distances(self) -> PerUser:
        """The users' distances from the server."""
        return jnp.linalg.norm(self.positions, axis=-1)

    @property
    def gains(self) -> PerUser:
        """The users' mean power gains, path loss and shadowing."""
        return self.draw().gains

    def snr_db(self, channel_snr_db: float | Scalar) -> PerUser:
        """Return the users' average SNRs over a channel with this `snr_db`, that of gain 1."""
        return jnp.asarray(channel_snr_db) + 10.0 * jnp.log10(self.gains)

    def draw(self, trial: PRNGKeyArray | None = None) -> Placed:
        """Return positions and gains: those of a `trial`'s key where they are redrawn."""
        key = inputs.key("key", self.key)
        if self.redraw and trial is not None:
            key = prng.fold_in(key, prng.words(trial)[0])
        place, shadow = (prng.fold_in(key, number) for number in (0, 1))
        share, turn = jax.random.uniform(place, (2, self.users), "float32")
        # Uniform over the ring's area, which grows with the square of the distance.
        squared = self.nearest**2 + share * (self.radius**2 - self.nearest**2)
        distance, angle = jnp.sqrt(squared), 2.0 * jnp.pi * turn
        lost = self.shadowing_db * prng.normal(shadow, (self.users,))
        reference = self.radius if self.reference is None else self.reference
        gains = (reference / distance) ** self.exponent * 10.0 ** (-lost / 10.0)
        directions = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
        return Placed(distance[:, None] * directions, gains)

    def check(self, path: str, setting: "Setting") -> None:
        if self.users != setting.task.users:
            wanted = f"{setting.task.users}, as many as the task has"
            raise InputError(f"{path}.users must be {wanted}, got {self.users}")
        inside = self.nearest < self.radius
        if inputs.is_traced(inside):
            inputs.check_traced(inside)
        elif not inside.all():
            raise InputError(f"{path}.nearest must be < radius, got {inputs.shown(self.nearest)}")


def cell(
    key: Seed,
    users: int,
    radius: Numbers = 500.0,
    exponent: Numbers = 3.5,
    shadowing_db: Numbers = 0.0,
    nearest: Numbers = 35.0,
    reference: Numbers | None = None,
    redraw: bool = False,
) -> Cell:
    """Place users uniformly in a disc around the server, for `jo.Channel(gains=jo.cell(...))`.

    User i at distance r_i has the mean power gain (reference/r_i)^exponent · 10^(−X_i/10) with
    log-normal shadowing X_i ~ N(0, shadowing_db²). The fading multiplies it, fresh in each round.

    Args:
        key: random key, or seed, of positions and shadowing.
        users: N.
        radius: the largest distance, in metres or any other unit.
        exponent: the path loss exponent: 2 in free space, 3 to 4 in cities.
        shadowing_db: the standard deviation of the shadowing.
        nearest: the least distance.
        reference: the distance at which the gain is 1 without shadowing, so that the channel's
            `snr_db` is the average SNR there; None for the radius, the edge of the cell.
        redraw: whether every trial draws positions and shadowing of its own.
    """
    key = inputs.key("key", key, axes=1)
    return Cell(key, users, radius, exponent, shadowing_db, nearest, reference, redraw)
