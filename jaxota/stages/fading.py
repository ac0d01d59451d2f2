"""Block fading: what the air does to each user's signal in a round, and how users answer it.

Every law draws complex gains h e^{jφ} with E[h²] = 1, fresh each round, for the model block and
independently for the control block, and for each of the server's antennas. Users know an estimate ĥ
of theirs; what they make of it is the answer: by default those above a threshold invert it and
transmit, the paper's section IV-D. Complex numbers are kept as pairs of real ones, [2, …], which
every platform computes alike.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import batching
from jaxota._core import inputs as _validate
from jaxota._core import prng as _random
from jaxota._core.part import Memory, Numbers, Scalar, Traced, part, static, traced
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

PerUser: TypeAlias = Float[Array, "user"]
Gains: TypeAlias = Float[Array, "2 *shape"]  # real and imaginary parts


@part
class Link:
    """One block's path from the users to the server for one round.

    The server is left with (1/n)·Σ gain_i·v_i over the n users heard, and with noise of deviation
    √(sw2·E/P)/(n·floor), where E is the energy that spends the whole budget P.

    Attributes:
        heard: [user] 1 for users in S^r, else 0.
        gain: [user] what remains of a user's signal after fading and the answer to it.
        amplification: [user] power that the answer takes, (h_min/h)² for inversion.
        floor: [] h_min, what the server divides by besides n.
    """

    heard: PerUser
    gain: PerUser
    amplification: PerUser
    floor: Scalar

    replace = dataclasses.replace

    @property
    def count(self) -> Scalar:
        """|S^r|, at least 1 so that it divides."""
        return jnp.maximum(self.heard.sum(), 1.0)

    def mean(self, values: Float[Array, "user *shape"]) -> Float[Array, "*shape"]:
        """The average over S^r of what users hold."""
        heard = self.heard.reshape(-1, *[1] * (values.ndim - 1)) > 0
        return jnp.where(heard, values, 0.0).sum(0) / self.count


class Fades(Protocol):
    """In the air: the links of a round. `Fading`, made of a law and an answer to it."""

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """Memory before round 1."""

    def links(
        self,
        keys: Sequence[PRNGKeyArray],
        amplitudes: Float[Array, "user"],
        memory: Memory,
        noise: Scalar,
    ) -> tuple[Link, Link, Memory]:
        """The links of both blocks and memory; `amplitudes` [user], `noise` d·sw2/P."""


class Law(Protocol):
    """In the air: a law of fading. `Rayleigh`, `Rician`, `Nakagami` of `jaxota.stages.fading`."""

    def start(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Memory:
        """Memory before round 1, for gains [2, *shape]."""

    def draw(
        self, key: PRNGKeyArray, fresh: Float[Array, "2 *shape"], memory: Memory
    ) -> tuple[Float[Array, "2 *shape"], Memory]:
        """Gains [2, *shape] of a round from circular Gaussians `fresh`, and memory."""


class Answer(Protocol):
    """At each user: what it does with what it knows of its channel. `Inversion`."""

    def __call__(
        self,
        block: int,
        gains: Float[Array, "2 antenna user"],
        estimates: Float[Array, "2 antenna user"],
        noise: Scalar,
    ) -> Link:
        """The link of block 0 (model) or 1 (controls), true and known gains [2, antenna, user];
        `noise` is d·sw2/P.
        """


def everyone(users: int) -> Link:
    """The link over which all are heard, with gain one."""
    ones = jnp.ones(users, "float32")
    return Link(ones, ones, ones, jnp.float32(1.0))


@part
class Still:
    """No fading: every gain is one."""

    floors = (1.0, 1.0)

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        return None

    def links(
        self, keys: Sequence[PRNGKeyArray], amplitudes: PerUser, memory: Memory, noise: Scalar
    ) -> tuple[Link, Link, Memory]:
        link = everyone(amplitudes.size)
        return link, link, memory

    def check(self, path: str, setting: "Setting") -> None:
        if setting.channel.gains is not None:
            raise InputError("channel.gains need channel.fading, such as jo.rayleigh()")


def _stationary(self: object, key: PRNGKeyArray, shape: tuple[int, ...]) -> Gains:
    """A law's `start`: the scattered component before round 1, stationary."""
    return _circular(key, (2, *shape))


@part
class Rayleigh:
    """Scattering alone: h e^{jφ} ~ CN(0, 1)."""

    correlation: Traced[Scalar] = traced(default=0.0, at_least=0.0, below=1.0)

    start = _stationary

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Gains) -> tuple[Gains, Gains]:
        """This round's gains, and what the next round remembers."""
        scatter = _scattered(self.correlation, fresh, memory)
        return scatter, scatter


@part
class Rician:
    """A line of sight of power K/(K+1) and scattering of power 1/(K+1)."""

    k_factor: Traced[Scalar] = traced(at_least=0.0, infinite=True)
    correlation: Traced[Scalar] = traced(default=0.0, at_least=0.0, below=1.0)

    start = _stationary

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Gains) -> tuple[Gains, Gains]:
        scatter = _scattered(self.correlation, fresh, memory)
        sight = jnp.sqrt(1.0 / (1.0 + 1.0 / self.k_factor))  # exact for K = 0 and K = ∞ too
        return (scatter / jnp.sqrt(1.0 + self.k_factor)).at[0].add(sight), scatter


@part
class Nakagami:
    """h² ~ Gamma(m, 1/m), uniform phase; independent between rounds."""

    m: Traced[Scalar] = traced(at_least=0.5)

    def start(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Memory:
        return None

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Memory) -> tuple[Gains, Memory]:
        power = jax.random.gamma(key, self.m, fresh.shape[1:], "float32") / self.m
        return fresh * jnp.sqrt(power / jnp.sum(fresh**2, 0))[None], None


@part
class Inversion:
    """Users who think their gain above a floor invert it down to that floor, the others keep still.

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

    def __call__(
        self,
        block: int,
        gains: Float[Array, "2 antenna user"],
        estimates: Float[Array, "2 antenna user"],
        noise: Scalar,
    ) -> Link:
        """Of h and ĥ the server sees the real part of h/ĥ: amplitude and phase
        that inversion missed remain. Heard is who thinks h above the floor.
        """
        gains, estimates, floor = gains[:, 0], estimates[:, 0], self.floors[block]
        power = jnp.sum(estimates**2, 0)
        heard = power > floor**2
        safe = jnp.where(heard, power, 1.0)
        return Link(heard, jnp.sum(gains * estimates, 0) / safe, floor**2 / safe, floor)

    def check(self, path: str, setting: "Setting") -> None:
        fading: Any = setting.channel.fading  # a `Fading`, whose answer this is
        if fading.antennas > 1:
            raise InputError(
                f"{path} must combine {fading.antennas} antennas, which Inversion "
                "does not: give one antenna, or an answer of your own"
            )


@part
class Fading:
    """A law of fading, and how users answer what they know of it.

    Attributes:
        law: how gains are drawn: `Rayleigh`, `Rician` or `Nakagami` of `jaxota.stages.fading`.
        answer: what users do with what they know of their gains.
        csi_error: variance of the error in what they know.
        antennas: how many the server has.
    """

    law: Law
    answer: Answer = Inversion()
    csi_error: Traced[Scalar] = traced(default=0.0, at_least=0.0)
    antennas: int = static(default=1, at_least=1)

    replace = dataclasses.replace

    @property
    def floors(self) -> tuple[Scalar, Scalar]:
        """h_min and ρ_min, by which the server divides."""
        answer: Any = self.answer  # one that theory can speak of has them
        return answer.floors

    def check(self, path: str, setting: "Setting") -> None:
        taken = 4 * 2 * 4 * 2 * self.antennas * setting.task.users
        batching.refuse(f"{path}.antennas", f"gains of {self.antennas} antennas", taken)

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        return self.law.start(key, (2, self.antennas, users))

    def draw(
        self, keys: Sequence[PRNGKeyArray], amplitudes: PerUser, memory: Memory
    ) -> tuple[Float[Array, "2 block antenna user"], Float[Array, "2 block antenna user"], Memory]:
        """True and estimated gains of a round, times `amplitudes`, and what the law remembers."""
        k_normal, k_law = keys
        fresh = _circular(k_normal, (4, 2, self.antennas, amplitudes.size))
        gains, memory = self.law.draw(k_law, fresh[:2], memory)
        gains = amplitudes[None, None, None] * gains
        return gains, gains + jnp.sqrt(self.csi_error) * fresh[2:], memory

    def links(
        self, keys: Sequence[PRNGKeyArray], amplitudes: PerUser, memory: Memory, noise: Scalar
    ) -> tuple[Link, Link, Memory]:
        """Both blocks' links, and what the law remembers.

        `noise` is d·sw2/P, the noise over the signal of one coordinate at full power.
        """
        gains, estimates, memory = self.draw(keys, amplitudes, memory)
        model, control = (
            self.answer(block, gains[:, block], estimates[:, block], noise) for block in (0, 1)
        )
        return model, control, memory


def rayleigh(
    threshold: Numbers = 0.3,
    control_threshold: Numbers = 0.3,
    csi_error: Numbers = 0.0,
    correlation: Numbers = 0.0,
    answer: Answer | None = None,
    antennas: int = 1,
) -> Fading:
    """Rayleigh fading: h is heard above `threshold` with probability exp(−threshold²).

    Args:
        threshold: h_min of the model block: users below it keep still.
        control_threshold: ρ_min of the control block.
        csi_error: variance of the error in what users know of their gains.
        correlation: of the scattered component between rounds, 0 … 1.
        answer: what users do with their gains in place of truncated inversion.
        antennas: how many the server has; more than one need an `answer` that combines them.
    """
    kept = _answer(threshold, control_threshold, answer)
    return Fading(Rayleigh(correlation), kept, csi_error, antennas)


def rician(
    k_factor: Numbers,
    threshold: Numbers = 0.3,
    control_threshold: Numbers = 0.3,
    csi_error: Numbers = 0.0,
    correlation: Numbers = 0.0,
    answer: Answer | None = None,
    antennas: int = 1,
) -> Fading:
    """Rician fading.

    Args:
        k_factor: power of the line of sight over that of the scattering: 0 is Rayleigh, infinity is
            no fading.

    The other arguments are those of `rayleigh`.
    """
    kept = _answer(threshold, control_threshold, answer)
    return Fading(Rician(k_factor, correlation), kept, csi_error, antennas)


def nakagami(
    m: Numbers,
    threshold: Numbers = 0.3,
    control_threshold: Numbers = 0.3,
    csi_error: Numbers = 0.0,
    correlation: Numbers = 0.0,
    answer: Answer | None = None,
    antennas: int = 1,
) -> Fading:
    """Nakagami-m fading, without correlation between rounds.

    Args:
        m: the shape, at least 1/2: 1 is Rayleigh, more is steadier.

    The other arguments are those of `rayleigh`; `correlation` must be 0.
    """
    if np.shape(_validate.number("correlation", correlation)) or correlation != 0:
        raise InputError(
            f"correlation must be 0 with Nakagami fading, got {_validate.shown(correlation)}"
        )
    return Fading(Nakagami(m), _answer(threshold, control_threshold, answer), csi_error, antennas)


def _answer(threshold: Numbers, control_threshold: Numbers, answer: Answer | None) -> Answer:
    return Inversion(threshold, control_threshold) if answer is None else answer


def _scattered(rho: Scalar, fresh: Gains, memory: Gains) -> Gains:
    """The scattered component of a round, of correlation `rho` with that of the round before."""
    return rho * memory + jnp.sqrt(1.0 - rho**2) * fresh


def _circular(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Circular complex Gaussians of variance 1: each of their two parts has variance 1/2."""
    return _random.normal(key, shape) * jnp.float32(0.5**0.5)
