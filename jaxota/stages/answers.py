"""Answers to fading: what users and server make of a round's gains, and the link that results.

Gains are complex numbers as pairs of real ones, [2, antenna, user]. Users and server act on
estimates ĥ; the true gains h do the rest.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core.part import PerUser, Scalar, Traced, part, traced
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

Gains: TypeAlias = Float[Array, "2 *shape"]  # real and imaginary parts


@part
class Link:
    """One block's path from the users to the server for one round.

    The server receives (1/n)·Σ gain_i·v_i over the n users heard, with noise of deviation
    √(sw2·E/P)/(n·floor), where E is the energy that spends the whole budget P.

    Attributes:
        heard: [user] 1 for users in S^r, else 0.
        gain: [user] what remains of a user's signal after fading and its inversion.
        amplification: [user] factor on the transmit power, (h_min/h)² for inversion.
        floor: [] h_min, by which the server divides besides n.
    """

    heard: PerUser
    gain: PerUser
    amplification: PerUser
    floor: Scalar

    replace = dataclasses.replace

    @property
    def count(self) -> Scalar:
        """Number of users in S^r, at least 1 so that it can divide."""
        return jnp.maximum(self.heard.sum(), 1.0)

    def mean(self, values: Float[Array, "user *shape"]) -> Float[Array, "*shape"]:
        """Average `values` over S^r."""
        # Not heard·values: a diverged user who is silent would make the average NaN.
        heard = self.heard.reshape(-1, *[1] * (values.ndim - 1)) > 0
        return jnp.where(heard, values, 0.0).sum(0) / self.count


def ideal_link(users: int) -> Link:
    """Return the link over which all users are heard with gain 1."""
    ones = jnp.ones(users, "float32")
    return Link(ones, ones, ones, jnp.float32(1.0))


class Above(NamedTuple):
    """Moments of gains h whose estimates ĥ exceed a floor, for `exact`.

    Attributes:
        chance: P(|ĥ| > floor).
        gain, square: mean and second moment of Re(h/ĥ) above the floor.
        inverse: mean of 1/|ĥ|² above the floor.
    """

    chance: PerUser
    gain: PerUser
    square: PerUser
    inverse: PerUser


class Answer(Protocol):
    """The users' response to their channel estimates, such as `Inversion`."""

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        """Return the link of block 0 (model) or 1 (controls) from true and estimated gains.

        Both are [2, antenna, user]; `noise` is d·sw2/P.
        """


@part
class Inversion:
    """Truncated inversion: users whose estimate ĥ exceeds a floor scale it to that floor.

    The others stay silent. The server sees the real part of h/ĥ: the errors of ĥ in amplitude and
    phase remain.

    Attributes:
        threshold: h_min of the model block.
        control_threshold: ρ_min of the control block.
    """

    threshold: Traced[Scalar] = traced(default=0.3, above=0.0)
    control_threshold: Traced[Scalar] = traced(default=0.3, above=0.0)

    @property
    def floors(self) -> tuple[Scalar, Scalar]:
        """h_min and ρ_min."""
        return self.threshold, self.control_threshold

    def above(self, block: int, law: Any, amplitudes: PerUser, error: Scalar) -> Above:
        return law.above(self.floors[block], amplitudes, error)

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        gains, estimates, floor = gains[:, 0], estimates[:, 0], self.floors[block]
        power = jnp.sum(estimates**2, 0)
        heard = power > floor**2  # by the estimate: users do not know h itself
        safe = jnp.where(heard, power, 1.0)  # no division by 0, not even in gradients
        return Link(heard, jnp.sum(gains * estimates, 0) / safe, floor**2 / safe, floor)

    def check(self, path: str, setting: "Setting") -> None:
        fading: Any = setting.channel.fading  # the `Fading` that holds this answer
        if fading.antennas > 1:
            raise InputError(
                f"{path} must combine {fading.antennas} antennas, which Inversion "
                "does not: give one antenna, or an answer of your own"
            )
