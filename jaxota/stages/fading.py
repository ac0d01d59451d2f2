"""Block fading: laws of the users' gains in a round.

Every law draws complex gains h e^{jφ} with E[h²] = 1, fresh in each round, independently for the
model block, the control block and each antenna of the server. Users know an estimate ĥ of theirs.
By default those above a threshold invert it and transmit, the paper's section IV-D. Complex numbers
are pairs of real ones, [2, …], which every platform computes alike.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import capacity, inputs, prng
from jaxota._core.part import (
    TINY,
    Memory,
    Numbers,
    PerUser,
    Scalar,
    Traced,
    optional,
    part,
    static,
    traced,
)
from jaxota.errors import InputError
from jaxota.stages.answers import (
    Above,
    Answer,
    Gains,
    Inversion,
    Link,
    Subcarriers,
    ideal_link,
    selective_link,
)
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

Keys: TypeAlias = Sequence[PRNGKeyArray]
Noises: TypeAlias = Float[Array, "2"]
Links: TypeAlias = tuple[Link, Link, Memory]  # of the model block and of the control block


class Fades(Protocol):
    """A fading channel's links of a round, such as `Fading`, made of a law and an answer."""

    @optional
    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """Return the memory before round 1; by default none."""
        return None

    def links(self, keys: Keys, amplitudes: PerUser, memory: Memory, noise: Noises) -> Links:
        """Return the links of both blocks and memory.

        `amplitudes` are [user], and `noise` [block] is d·sw2/P of either block.
        """


class Law(Protocol):
    """A law of fading, such as `Rayleigh`, `Rician` or `Nakagami` of `jaxota.stages.fading`."""

    @optional
    def start(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Memory:
        """Return the memory before round 1, for gains of `(2, *shape)`; by default none."""
        return None

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Memory) -> tuple[Gains, Memory]:
        """Return the gains of a round, shaped like the circular Gaussians `fresh`, and memory."""


@part
class NoFading:
    """No fading: every gain is 1."""

    floors, independent = (1.0, 1.0), True
    start = no_memory

    def above(self, block: int, amplitudes: PerUser) -> None:
        return None  # all users are heard, with gain 1

    def links(self, keys: Keys, amplitudes: PerUser, memory: Memory, noise: Noises) -> Links:
        link = ideal_link(amplitudes.size)
        return link, link, memory

    def check(self, path: str, setting: "Setting") -> None:
        if setting.channel.gains is not None:
            raise InputError("channel.gains need channel.fading, such as jo.rayleigh()")


def _stationary(self: object, key: PRNGKeyArray, shape: tuple[int, ...]) -> Gains:
    """Draw the scattered component before round 1 as in any other: a law's `start`."""
    return _circular(key, (2, *shape))


def _moments_above(
    floor: Scalar, mass: Array, moduli: Array, sight: Array, total: Array, share: Array | float
) -> Above:
    """Return the moments of h/ĥ from the probability [user, node] that |ĥ| is at a node.

    There ĥ ~ CN(sight, total), and h = share·ĥ + (1 − share)·sight + noise of variance
    share·(1 − share)·total. The angle between ĥ and `sight` has a von Mises law.
    """
    kappa = jnp.maximum(2.0 * sight * moduli / total, TINY)
    cosine = jax.scipy.special.i1e(kappa) / jax.scipy.special.i0e(kappa)
    rest, inverse = (1.0 - share) * sight / moduli, 1.0 / moduli**2
    gain = share + rest * cosine
    square = share**2 + 2.0 * share * rest * cosine + rest**2 * (1.0 - cosine / kappa)
    square += share * (1.0 - share) * total / 2.0 * inverse
    chance = mass.sum(-1)
    gain, square, power = (
        (mass * x).sum(-1) / jnp.maximum(chance, TINY) for x in (gain, square, floor**2 * inverse)
    )
    return Above(chance, gain, square, power, floor)


@part
class Rayleigh:
    """Scattering alone: h e^{jφ} ~ CN(0, 1)."""

    correlation: Traced[Scalar] = traced(default=0.0, at_least=0.0, below=1.0)

    start = _stationary
    errors = True  # of estimates: all answers know how they act on this law

    def above(self, floor: Scalar, amplitudes: PerUser, error: Scalar) -> Above:
        power = amplitudes**2
        total = jnp.maximum(power + error, TINY)  # E|ĥ|²
        ratio = jnp.minimum(floor**2 / total, 500.0)
        inverse = jnp.exp(ratio) * jax.scipy.special.exp1(ratio) / total
        # Given ĥ, h is Gaussian around gain·ĥ.
        gain = power / total
        square = gain**2 + gain * error / 2.0 * inverse
        return Above(jnp.exp(-ratio), gain, square, floor**2 * inverse, floor)

    def modulus(self) -> Scalar:
        return jnp.sqrt(jnp.pi / 4.0)

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Gains) -> tuple[Gains, Gains]:
        scatter = _scattered(self.correlation, fresh, memory)
        return scatter, scatter


@part
class Rician:
    """A line of sight of power K/(K+1) and scattering of power 1/(K+1)."""

    k_factor: Traced[Scalar] = traced(at_least=0.0, infinite=True)
    correlation: Traced[Scalar] = traced(default=0.0, at_least=0.0, below=1.0)

    start = _stationary

    def above(self, floor: Scalar, amplitudes: PerUser, error: Scalar) -> Above:
        k, power = jnp.minimum(self.k_factor, 1e12), amplitudes[:, None] ** 2
        total = jnp.maximum(power / (k + 1.0) + error, TINY)  # of the scattering in ĥ
        sight = jnp.sqrt(power * k / (k + 1.0))
        scaled = sight / jnp.sqrt(total)
        # |ĥ|/√total = scaled + v, with v near a standard normal.
        low = jnp.clip(floor / jnp.sqrt(total) - scaled, -jnp.minimum(scaled, 7.0), 7.0)
        v, lengths = _nodes(low[:, 0], 7.0)
        bessel = jax.scipy.special.i0e(2.0 * scaled * (scaled + v))
        mass = lengths * 2.0 * (scaled + v) * jnp.exp(-(v**2)) * bessel
        share = power / (k + 1.0) / total
        return _moments_above(floor, mass, jnp.sqrt(total) * (scaled + v), sight, total, share)

    def modulus(self) -> Scalar:
        k = jnp.minimum(self.k_factor, 1e12)
        bessel = (1.0 + k) * jax.scipy.special.i0e(k / 2.0) + k * jax.scipy.special.i1e(k / 2.0)
        return jnp.sqrt(jnp.pi / 4.0 / (k + 1.0)) * bessel

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Gains) -> tuple[Gains, Gains]:
        scatter = _scattered(self.correlation, fresh, memory)
        sight = jnp.sqrt(1.0 / (1.0 + 1.0 / self.k_factor))  # exact for K = 0 and K = ∞ too
        return (scatter / jnp.sqrt(1.0 + self.k_factor)).at[0].add(sight), scatter


@part
class Nakagami:
    """h² ~ Gamma(m, 1/m), uniform phase; independent between rounds."""

    m: Traced[Scalar] = traced(at_least=0.5)

    correlation = 0.0
    start = no_memory

    def above(self, floor: Scalar, amplitudes: PerUser, error: Scalar) -> Above:
        # Over r = |ĥ|, and for each r over a = |h|, as ĥ ~ CN(h, error). Where the error is 0, a
        # is so close to r that nothing else sees the difference.
        unit = jnp.maximum(amplitudes, TINY)[:, None, None]
        error = jnp.maximum(error, 1e-12 * unit**2)
        near = 7.0 * jnp.sqrt(error)
        least = unit * jnp.exp(-30.0 / self.m)  # a has no mass below, or above `most`
        most = unit * jnp.sqrt(1.0 + 12.0 / jnp.sqrt(self.m) + 40.0 / self.m)
        lowest = jnp.clip(least - near, floor, most + near)
        r, outer = _nodes(lowest[:, 0, 0], (most + near)[:, 0, 0])
        r, outer = r[:, :, None], outer[:, :, None]
        low, high = jnp.maximum(r - near, least), jnp.minimum(r + near, most)
        # Squares of nodes, as |h| may have a density of any power > 0 at 0.
        t, inner = _nodes(jnp.zeros(1), 1.0)
        width = jnp.maximum(high - low, 0.0)
        a = low + width * t[:, None] ** 2
        y = 2.0 * jnp.log(a / unit)
        log_density = self.m * (y - jnp.exp(y) + jnp.log(self.m))
        log_density -= jax.scipy.special.gammaln(self.m) + (r - a) ** 2 / error
        bessel = jax.scipy.special.i0e(2.0 * a * r / error)
        mass = 4.0 * r / (a * error) * jnp.exp(log_density) * bessel
        mass *= outer * 2.0 * width * t[:, None] * inner[:, None]
        shape = len(amplitudes), -1
        mass, r, a, error = (
            jnp.broadcast_to(x, mass.shape).reshape(shape) for x in (mass, r, a, error)
        )
        return _moments_above(floor, mass, r, a, error, 0.0)

    def modulus(self) -> Scalar:
        log = jax.scipy.special.gammaln
        return jnp.exp(log(self.m + 0.5) - log(self.m)) / jnp.sqrt(self.m)

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Memory) -> tuple[Gains, Memory]:
        power = jax.random.gamma(key, self.m, fresh.shape[1:], "float32") / self.m
        # The phase of a circular Gaussian is uniform: only its modulus is replaced.
        return fresh * jnp.sqrt(power / jnp.sum(fresh**2, 0))[None], None


@part
class Fading:
    """A law of fading, and the users' answer to their channel estimates.

    Attributes:
        law: the law of the gains: `Rayleigh`, `Rician` or `Nakagami` of `jaxota.stages.fading`.
        answer: the users' response to their estimated gains.
        csi_error: variance of the error of these estimates.
        antennas: the number of the server's antennas.
        carriers: the number of subcarriers, which fade independently; 1 for flat fading.
    """

    law: Law
    answer: Answer = Inversion()
    csi_error: Traced[Scalar] = traced(default=0.0, at_least=0.0)
    antennas: int = static(default=1, at_least=1)
    carriers: int = static(default=1, at_least=1)

    replace = dataclasses.replace

    @property
    def floors(self) -> tuple[Scalar, Scalar]:
        """h_min and ρ_min of the answer, which must have them for `jaxota.theory`."""
        answer: Any = self.answer
        if self.carriers > 1:
            raise AttributeError("floors: the theorems speak of flat fading")
        return answer.floors

    @property
    def independent(self) -> bool:
        """Whether rounds fade independently, with moments that `above` knows."""
        answer: Any = self.answer
        known = hasattr(answer, "above") and hasattr(self.law, answer.reads) and self.carriers == 1
        zeros = [getattr(self.law, "correlation", 0.0)]
        if not getattr(answer, "errors", False) and not getattr(self.law, "errors", False):
            zeros.append(self.csi_error)
        return known and not any(np.any(np.asarray(x) != 0) for x in zeros)

    def above(self, block: int, amplitudes: PerUser) -> Above:
        """Return the moments of users who are heard on a block, for `exact`."""
        answer: Any = self.answer
        return answer.above(block, self.law, amplitudes, self.csi_error)

    def check(self, path: str, setting: "Setting") -> None:
        # 4 bytes each of `fresh` [4, 2, antenna, user]; as much again for gains and estimates.
        size = 4 * (4 * 2 * self.antennas * self.carriers * setting.task.users) * 2
        capacity.refuse_memory(f"{path}.antennas", f"gains of {self.antennas} antennas", size)

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        return self.law.start(key, (2, self.carriers * self.antennas, users))

    def draw(self, keys: Keys, amplitudes: PerUser, memory: Memory) -> tuple[Gains, Gains, Memory]:
        """Return a round's true and estimated gains [2, block, antenna, user], and memory.

        With subcarriers, the antennas of one come after those of the other.
        """
        k_normal, k_law = keys
        # Gains and estimation errors from one draw, which is cheaper than two.
        fresh = _circular(k_normal, (4, 2, self.carriers * self.antennas, amplitudes.size))
        gains, memory = self.law.draw(k_law, fresh[:2], memory)
        gains = amplitudes[None, None, None] * gains
        # The error is independent of h, so that E|ĥ|² = E|h|² + csi_error.
        return gains, gains + jnp.sqrt(self.csi_error) * fresh[2:], memory

    def links(self, keys: Keys, amplitudes: PerUser, memory: Memory, noise: Noises) -> Links:
        gains, estimates, memory = self.draw(keys, amplitudes, memory)
        model, control = (self.link(b, gains[:, b], estimates[:, b], noise[b]) for b in (0, 1))
        return model, control, memory

    def link(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        """Return the answer to the gains of one block, on each subcarrier."""
        if self.carriers == 1:
            return self.answer(block, gains, estimates, noise)

        def one(gains: Gains, estimates: Gains) -> Subcarriers:
            link = self.answer(block, gains, estimates, noise)
            return Subcarriers(*link.of_users, jnp.broadcast_to(link.floor, link.gain.shape))

        shape = 2, self.carriers, self.antennas, -1
        pairs = gains.reshape(shape), estimates.reshape(shape)
        return selective_link(jax.vmap(one, (1, 1))(*pairs))


def rayleigh(
    threshold: Numbers | None = None,
    control_threshold: Numbers | None = None,
    csi_error: Numbers = 0.0,
    correlation: Numbers = 0.0,
    answer: Answer | None = None,
    antennas: int = 1,
    carriers: int = 1,
) -> Fading:
    """Rayleigh fading: a gain exceeds `threshold` with probability exp(−threshold²).

    Args:
        threshold: h_min of the model block: users below it stay silent; 0.3 by default.
        control_threshold: ρ_min of the control block; 0.3 by default.
        csi_error: variance of the error of the users' channel estimates.
        correlation: correlation of the scattered component between rounds, 0 … 1.
        answer: the users' response to their gains; None for truncated inversion.
        antennas: number of the server's antennas; more than one need an `answer` that combines
            them.
        carriers: number of subcarriers, which fade independently; symbols take them in turn.
    """
    answer = _or_inversion(answer, threshold, control_threshold)
    return Fading(Rayleigh(correlation), answer, csi_error, antennas, carriers)


def rician(
    k_factor: Numbers,
    threshold: Numbers | None = None,
    control_threshold: Numbers | None = None,
    csi_error: Numbers = 0.0,
    correlation: Numbers = 0.0,
    answer: Answer | None = None,
    antennas: int = 1,
    carriers: int = 1,
) -> Fading:
    """Rician fading.

    Args:
        k_factor: power of the line of sight over that of the scattering: 0 is Rayleigh, infinity is
            no fading.

    The other arguments are those of `rayleigh`.
    """
    answer = _or_inversion(answer, threshold, control_threshold)
    return Fading(Rician(k_factor, correlation), answer, csi_error, antennas, carriers)


def nakagami(
    m: Numbers,
    threshold: Numbers | None = None,
    control_threshold: Numbers | None = None,
    csi_error: Numbers = 0.0,
    correlation: Numbers = 0.0,
    answer: Answer | None = None,
    antennas: int = 1,
    carriers: int = 1,
) -> Fading:
    """Nakagami-m fading, without correlation between rounds.

    Args:
        m: the shape, at least 1/2: 1 is Rayleigh, larger values fade less.

    The other arguments are those of `rayleigh`; `correlation` must be 0.
    """
    if np.shape(inputs.number("correlation", correlation)) or correlation != 0:
        raise InputError(
            f"correlation must be 0 with Nakagami fading, got {inputs.shown(correlation)}"
        )
    answer = _or_inversion(answer, threshold, control_threshold)
    return Fading(Nakagami(m), answer, csi_error, antennas, carriers)


def _or_inversion(answer: Answer | None, *thresholds: Numbers | None) -> Answer:
    if answer is None:
        return Inversion(*(0.3 if each is None else each for each in thresholds))
    for name, value in zip(("threshold", "control_threshold"), thresholds, strict=True):
        if value is not None:
            raise InputError(
                f"{name} must be given to the answer itself, such as jo.Inversion(0.5), where "
                f"answer= is given, got {inputs.shown(value)}"
            )
    return answer


def _scattered(rho: Scalar, fresh: Gains, memory: Gains) -> Gains:
    """Return the scattered component of a round, of correlation `rho` with the last round's."""
    # Gauss-Markov: the power stays 1 in every round.
    return rho * memory + jnp.sqrt(1.0 - rho**2) * fresh


def _nodes(low: PerUser, high: Array | float) -> tuple[Float[Array, "user node"], Array]:
    """Return nodes and weights of Gauss-Legendre quadrature between `low` and `high`."""
    x, weights = np.polynomial.legendre.leggauss(128)
    half = (jnp.reshape(high, -1) - low)[:, None] / 2.0
    return low[:, None] + half * (1.0 + x[None]), half * weights[None]


def _circular(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Draw circular complex Gaussians of variance 1: each of their two parts has variance 1/2."""
    return prng.normal(key, shape) * jnp.float32(0.5**0.5)
