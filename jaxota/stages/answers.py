"""Answers to fading: what users and server make of a round's gains, and the link that results.

Gains are complex numbers as pairs of real ones, [2, antenna, user]. Users and server act on
estimates ĥ; the true gains h do the rest.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxota._core.part import TINY, PerUser, Scalar, Traced, part, static, traced
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

Gains: TypeAlias = Float[Array, "2 *shape"]  # real and imaginary parts


@part
class Subcarriers:
    """The links of a block's subcarriers, under frequency-selective fading: symbol j takes j mod C.

    Attributes:
        heard, gain, amplification: [user, carrier] as of `Link`.
        floor: [user, carrier] `Link.floor`, the same for all users.
    """

    heard: Float[Array, "user carrier"]
    gain: Float[Array, "user carrier"]
    amplification: Float[Array, "user carrier"]
    floor: Float[Array, "user carrier"]

    replace = dataclasses.replace


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
        carriers: the links of the subcarriers, of which the others are then the summary: heard on
            any, and means. None for flat fading.
    """

    heard: PerUser
    gain: PerUser
    amplification: PerUser
    floor: Scalar
    carriers: Subcarriers | None = None

    replace = dataclasses.replace

    def of(self, members: Int[Array, "user"]) -> "Link":
        """Return the link of these users alone."""
        return jax.tree.map(lambda x: x[members] if jnp.ndim(x) else x, self)

    def by_symbol(self, count: int) -> "Link":
        """Return the links of `count` symbols, [user, s] and `floor` [s]."""
        of = self.carriers
        if of is None:
            h, g, a = (jnp.broadcast_to(x[:, None], (len(x), count)) for x in self.of_users)
            return Link(h, g, a, jnp.broadcast_to(self.floor, (count,)))
        number = jnp.arange(count) % of.heard.shape[1]
        heard = self.heard[:, None] * of.heard[:, number]
        return Link(heard, of.gain[:, number], of.amplification[:, number], of.floor[0, number])

    @property
    def of_users(self) -> tuple[PerUser, PerUser, PerUser]:
        """The fields [user]."""
        return self.heard, self.gain, self.amplification

    @property
    def count(self) -> Scalar:
        """Number of users in S^r, at least 1 so that it can divide."""
        return jnp.maximum(self.heard.sum(), 1.0)

    def mean(self, values: Float[Array, "user *shape"]) -> Float[Array, "*shape"]:
        """Average `values` over S^r; those of symbols [user, s] over who is heard on each."""
        if self.carriers is not None and values.ndim == 2:
            heard = self.by_symbol(values.shape[1]).heard > 0
            return jnp.where(heard, values, 0.0).sum(0) / jnp.maximum(heard.sum(0), 1)
        # Not heard·values: a diverged user who is silent would make the average NaN.
        heard = self.heard.reshape(-1, *[1] * (values.ndim - 1)) > 0
        return jnp.where(heard, values, 0.0).sum(0) / self.count


def ideal_link(users: int) -> Link:
    """Return the link over which all users are heard with gain 1."""
    ones = jnp.ones(users, "float32")
    return Link(ones, ones, ones, jnp.float32(1.0))


def selective_link(carriers: Subcarriers) -> Link:
    """Return the link of subcarriers, from their links with the axes [carrier, user]."""
    swapped = Subcarriers(*(x.astype("float32").T for x in vars(carriers).values()))
    count = jnp.maximum(swapped.heard.sum(1), 1.0)
    gain = (swapped.heard * swapped.gain).sum(1) / count
    amplification = (swapped.heard * swapped.amplification).sum(1) / count
    heard = (swapped.heard.sum(1) > 0).astype("float32")
    return Link(heard, gain, amplification, swapped.floor.mean(), swapped)


class Above(NamedTuple):
    """Moments of the links of users who are heard, for `exact`.

    Attributes:
        chance: probability of being heard; for inversion, P(|ĥ| > floor).
        gain, square: mean and second moment of `Link.gain`; for inversion, of Re(h/ĥ).
        power: mean of `Link.amplification`; for inversion, of (floor/|ĥ|)².
        floor: `Link.floor`.
    """

    chance: PerUser
    gain: PerUser
    square: PerUser
    power: PerUser
    floor: Scalar


class Answer(Protocol):
    """The users' response to their channel estimates, such as `Inversion`."""

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        """Return the link of block 0 (model) or 1 (controls) from true and estimated gains.

        Both are [2, antenna, user]; `noise` is d·sw2/P of this block.
        """


def _one_antenna(self: object, path: str, setting: "Setting") -> None:
    """Refuse several antennas: the `check` of answers that do not combine them."""
    fading: Any = setting.channel.fading  # the `Fading` that holds this answer
    if fading.antennas > 1:
        raise InputError(
            f"{path} must combine {fading.antennas} antennas, which {type(self).__name__} "
            "does not: give one antenna, or jo.UniformForcing() or jo.Blind()"
        )


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

    check = _one_antenna
    reads, errors = "above", True  # the law's method that `above` calls; it knows CSI errors

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


@part
class PhaseOnly:
    """GBMA: users correct their phase and send at full power (Sery & Cohen, 2020).

    "On analog gradient descent learning over multiple access fading channels". The server receives
    each value times |h|. All users are heard.

    Attributes:
        mean_gain: E|h|, by which the server divides, √π/2 under Rayleigh fading; None for 1.
    """

    mean_gain: Traced[Scalar | None] = traced(default=None, above=0.0)

    check = _one_antenna
    reads = "modulus"

    @property
    def divisor(self) -> Scalar:
        return jnp.float32(1.0) if self.mean_gain is None else self.mean_gain

    def above(self, block: int, law: Any, amplitudes: PerUser, error: Scalar) -> Above:
        power, ones = amplitudes**2, jnp.ones_like(amplitudes)
        total = jnp.maximum(power + error, TINY)  # E|ĥ|²
        share = power / total  # given ĥ, h is Gaussian around share·ĥ
        mean = share * law.modulus() * jnp.sqrt(total)
        square = share**2 * total + share * error / 2.0
        return Above(ones, mean / self.divisor, square / self.divisor**2, ones, self.divisor)

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        seen, _ = _in_phase(gains[:, 0], estimates[:, 0])
        ones = jnp.ones_like(seen)
        return Link(ones, seen / self.divisor, ones, self.divisor)


@part
class OptimalPower:
    """Power control of least mean squared error (Cao, Zhu, Xu & Huang, 2020).

    "Optimized power control for over-the-air computation in fading channels". Users whose gain is
    below a level √η send at full power, the others invert theirs down to that level; all are heard.
    The level is optimal for independent vectors of mean 0 and equal norm; from the server's
    estimates of all gains it is

        √η = min_k (σ² + Σ_{i≤k} |h_i|²) / Σ_{i≤k} |h_i|,    |h_1| ≤ |h_2| ≤ …,    σ² = d·sw2/P.
    """

    check = _one_antenna

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        seen, size = _in_phase(gains[:, 0], estimates[:, 0])
        weakest = jnp.sort(size)
        levels = (noise + jnp.cumsum(weakest**2)) / jnp.maximum(jnp.cumsum(weakest), TINY)
        level = jnp.maximum(levels.min(), TINY)
        scale = jnp.minimum(1.0, level / jnp.maximum(size, TINY))  # of the amplitude
        return Link(jnp.ones_like(size), seen * scale / level, scale**2, level)


@part
class UniformForcing:
    """Several antennas combined so that all users arrive alike (Yang, Jiang, Shi & Ding, 2020).

    "Federated learning via over-the-air computation". The server combines its antennas by a unit
    vector f, and users invert fᴴh_i down to the weakest, so that nobody is silent.

    Attributes:
        combiner: f, from the estimated channels of all users: "ascent", which raises the smallest
            |fᴴh_i| by fixed steps, "sum" of the channels, or "eigenvector" of Σ_i h_i h_iᴴ. Only
            "ascent" saves users from a fade that the combination makes.
        threshold: users below it are silent, and the others invert down to it; None for the
            smallest |fᴴh_i|. With one antenna, a number makes this `Inversion`.
    """

    combiner: str = static(default="ascent", one_of=("ascent", "sum", "eigenvector"))
    threshold: Traced[Scalar | None] = traced(default=None, above=0.0)

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        f = {"ascent": _ascent, "sum": _sum, "eigenvector": _eigenvector}[self.combiner](estimates)
        seen, size = _in_phase(_combined(f, gains), _combined(f, estimates))
        smallest = size.min()
        floor = smallest if self.threshold is None else self.threshold
        heard = (size > floor) | (self.threshold is None)
        safe = jnp.maximum(jnp.where(heard, size, 1.0), TINY)
        return Link(heard, seen / safe, (floor / safe) ** 2, jnp.maximum(floor, TINY))


@part
class Blind:
    """Many antennas, and users who know nothing of their channels (Amiri, Duman & Gündüz, 2021).

    "Blind federated edge learning". Users send as they are. The server weights antenna a by the
    conjugate of Σ_i h_{i,a}, over the number of antennas: what users do to each other, and noise,
    vanish as antennas grow. Users of larger mean gain count more.
    """

    def __call__(self, block: int, gains: Gains, estimates: Gains, noise: Scalar) -> Link:
        antennas, ones = gains.shape[1], jnp.ones(gains.shape[2])
        weights = estimates.sum(-1)
        gain, _ = _combined(weights, gains) / antennas
        size = jnp.sqrt(jnp.sum(weights**2))
        return Link(ones, gain, ones, antennas / jnp.maximum(size, TINY))


STEPS, POWERS = 30, 200  # of the ascent, and of the power iteration


def _in_phase(gains: Gains, estimates: Gains) -> tuple[PerUser, PerUser]:
    """Return Re(h·ĥ*)/|ĥ|, a gain after correction of the phase of its estimate, and |ĥ|."""
    power = jnp.sum(estimates**2, 0)
    size = jnp.sqrt(jnp.where(power > 0, power, 1.0))  # no root of 0, not even in gradients
    return jnp.sum(gains * estimates, 0) / size, jnp.where(power > 0, size, 0.0)


def _combined(f: Float[Array, "2 antenna"], gains: Gains) -> Float[Array, "2 user"]:
    """Return fᴴh of every user."""
    real = jnp.einsum("ca,cau->u", f, gains)
    return jnp.stack([real, f[0] @ gains[1] - f[1] @ gains[0]])


def _unit(f: Float[Array, "2 antenna"]) -> Float[Array, "2 antenna"]:
    return f / jnp.maximum(jnp.sqrt(jnp.sum(f**2)), TINY)


def _sum(gains: Gains) -> Float[Array, "2 antenna"]:
    """Return the direction of Σ_i h_i."""
    return _unit(gains.sum(-1))


def _pulled(seen: Float[Array, "2 user"], gains: Gains) -> Float[Array, "2 antenna"]:
    """Return Σ_i h_i (fᴴh_i)*, half the gradient of Σ_i |fᴴh_i|² by f, from fᴴh_i."""
    (real, imaginary), (x, y) = seen, gains
    return jnp.stack([x @ real + y @ imaginary, y @ real - x @ imaginary])


def _eigenvector(gains: Gains) -> Float[Array, "2 antenna"]:
    """Return the leading eigenvector of Σ_i h_i h_iᴴ, by power iteration."""

    # Not by `eigh`, whose threads can wait for each other for ever on CPU.
    def step(f: Array, _: None) -> tuple[Array, None]:
        return _unit(_pulled(_combined(f, gains), gains)), None

    return jax.lax.scan(step, _sum(gains), None, POWERS)[0]


def _ascent(gains: Gains) -> Float[Array, "2 antenna"]:
    """Return the best unit vector on a path of steps that raise the smallest |fᴴh_i|."""

    def step(carry: tuple[Array, Array, Array], t: Scalar) -> tuple[Any, None]:
        f, best, most = carry
        seen = _combined(f, gains)
        power = jnp.sum(seen**2, 0)
        weakest = power.argmin()
        best = jnp.where(power[weakest] > most, f, best)
        most = jnp.maximum(most, power[weakest])
        slope = _pulled(seen[:, weakest][:, None], gains[:, :, weakest][:, :, None])
        return (_unit(f + _unit(slope) / jnp.sqrt(t)), best, most), None

    start = _sum(gains)
    first = start, start, jnp.float32(-1.0)
    return jax.lax.scan(step, first, jnp.arange(1.0, STEPS + 1.0, dtype="float32"))[0][1]
