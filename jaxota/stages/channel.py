"""In the air: signals fade, add up, and meet noise."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core import prng as _random
from jaxota._core.part import Memory, Scalar, Traced, Vector, part, static, traced
from jaxota._core.state import Moments
from jaxota.errors import InputError
from jaxota.stages.compress import SideInfo
from jaxota.stages.fading import Fades, Link, Still, everyone

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


class Noise(Protocol):
    """In the air: the law of the noise. `Gaussian`."""

    @property
    def gaussian(self) -> bool:
        """Whether it is Gaussian: estimators that reckon with such noise refuse others."""

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """Independent draws of variance 1."""


class Carrier(Protocol):
    """In the air, or in its place: what carries both blocks. `Channel`, `Ideal` of
    `jaxota.stages.channel`.
    """

    @property
    def power(self) -> Scalar | float:
        """P of the model block."""

    @property
    def control_budget(self) -> Scalar | float:
        """P of the control block."""

    @property
    def noise(self) -> Noise:
        """The law of its noise."""

    def noise_variance(self, dim: int) -> Scalar | None:
        """sw2, the variance of a coordinate of a block of `dim`; None if there is no noise at all.

        A carrier may also have `noise_ratio(dim)`, sw2/P of the model block, which is then asked
        in its place: sw2 itself may be too small or too large for float32.
        """

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """Memory before round 1."""

    def links(
        self,
        keys: Sequence[PRNGKeyArray],
        memory: Memory,
        users: int,
        dim: int,
        controlled: bool,
    ) -> tuple[Link, Link, Memory]:
        """The links of both blocks and memory; `keys` [3], `controlled` if there are two blocks."""


class Medium(Protocol):
    """How users reach the server: over the channel (`OverTheAir`), or not (`ErrorFree`)."""

    def __call__(self, channel: Carrier) -> Carrier:
        """What takes the channel's place."""


@part
class Gaussian:
    """White Gaussian noise."""

    gaussian = True

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """Independent draws of variance 1."""
        return _random.normal(key, shape)


@part
class Channel:
    """A multiple-access channel with real noise of variance sw2 per coordinate on each block.

    Attributes:
        snr_db: 10 log10(P/sw2) with `snr_per="vector"`, 10 log10(P/(d·sw2)) with "symbol"; an
            infinite one is the ideal channel.
        power: the budget P of the model block.
        control_power: that of the control block: the same unless given.
        fading: `rayleigh(...)`, `rician(...)` or `nakagami(...)`; by default none.
        gains: [user] the users' mean power gains, under fading; 1 unless given.
        participants: the size of a uniformly drawn set of users that alone transmit, the paper's
            AS4; by default all.
        snr_per: what the signal-to-noise ratio is of, "vector" or "symbol".
        noise: its law, `Gaussian()`.
    """

    snr_db: Traced[Scalar] = traced(default=10.0, above=-300.0, infinite=True)
    power: Traced[Scalar] = traced(default=1.0, above=0.0)
    control_power: Traced[Scalar | None] = traced(default=None, above=0.0)
    fading: Fades = Still()
    gains: Traced[Float[Array, "user"] | None] = traced(default=None, rank=1, at_least=0.0)
    participants: Traced[Int[Array, ""] | None] = traced(default=None, dtype="int32")
    snr_per: str = static(default="vector", one_of=("vector", "symbol"))
    noise: Noise = Gaussian()

    replace = dataclasses.replace

    @property
    def control_budget(self) -> Scalar:
        """P of the control block."""
        return self.control_power if self.control_power is not None else self.power

    def noise_variance(self, dim: int) -> Scalar:
        """sw2, the noise variance per coordinate of a block of `dim` coordinates."""
        return self.power * self.noise_ratio(dim)

    def noise_ratio(self, dim: int) -> Scalar:
        """sw2/P: of the SNR alone, as sw2 itself may be too small or too large for float32."""
        symbols = dim if self.snr_per == "symbol" else 1
        return 10.0 ** (-self.snr_db / 10.0) / symbols

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """What the fading remembers before round 1."""
        return self.fading.start(key, users)

    def links(
        self,
        keys: Sequence[PRNGKeyArray],
        memory: Memory,
        users: int,
        dim: int,
        controlled: bool,
    ) -> tuple[Link, Link, Memory]:
        """Both blocks' links for this round, and what the fading remembers.

        `keys` [3] serve the fading law, its own generator, and the choice of participants. Users
        are heard if they are chosen and if the answers to both their gains (without controls, to
        the model block's) let them speak.
        """
        mean = self.gains if self.gains is not None else jnp.ones(users, "float32")
        noise = dim * self.noise_ratio(dim)
        model, control, memory = self.fading.links(keys[:2], jnp.sqrt(mean), memory, noise)
        heard = model.heard > 0
        if controlled:
            heard &= control.heard > 0
        if self.participants is not None:
            order = jnp.argsort(jax.random.uniform(keys[2], (users,), "float32"))
            heard &= jnp.zeros(users, bool).at[order].set(jnp.arange(users) < self.participants)
        ones = heard.astype("float32")
        return model.replace(heard=ones), control.replace(heard=ones), memory

    def check(self, path: str, setting: "Setting") -> None:
        """What a channel owes to the users of a task."""
        users = setting.task.users
        if self.gains is not None and self.gains.shape[-1] != users:
            raise InputError(
                f"channel.gains must have one entry for each of {users} users, "
                f"got shape {list(self.gains.shape)}"
            )
        if self.participants is not None:
            line = f"channel.participants must lie in 1 … {users}, the users"
            good = (self.participants >= 1) & (self.participants <= users)
            if isinstance(good, jax.core.Tracer):
                return inputs.check(good)
            bad = np.asarray(self.participants)[~np.asarray(good)]
            if bad.size:
                raise InputError(f"{line}, got {bad.flat[0]}")


@part
class Ideal:
    """Error-free, orthogonal links: everyone is heard, without noise and at no power on the air."""

    power = control_budget = 1.0
    noise = Gaussian()

    def noise_variance(self, dim: int) -> None:
        return None

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        return None

    def links(
        self,
        keys: Sequence[PRNGKeyArray],
        memory: Memory,
        users: int,
        dim: int,
        controlled: bool,
    ) -> tuple[Link, Link, Memory]:
        link = everyone(users).replace(amplification=jnp.zeros(users, "float32"))
        return link, link, memory


@part
class OverTheAir:
    """The algorithm's users reach the server over the channel."""

    def __call__(self, channel: Carrier) -> Carrier:
        return channel


@part
class ErrorFree:
    """They reach it over links of their own, whatever the channel: the error-free references."""

    def __call__(self, channel: Carrier) -> Ideal:
        return Ideal()


@part
class Block:
    """One of the two transmitted blocks of a round: updates Δ_i, or controls c_i.

    Attributes:
        values: [user, d], after compression [user, s]: what the users send.
        held: [user, d] what the users hold: θ_i, or c_i.
        origin: [d] what the server adds back: θ̂ for updates, 0 for controls.
        power: [] the budget P of this block.
        reach: [] how far gradients of norm 1 can carry a value: Kη for updates, 1 for controls.
        moments: this round's row of the plan.
        energies: [user] ‖·‖² of `values`.
        side: coded side information.
    """

    values: Float[Array, "user s"]
    held: Float[Array, "user d"]
    origin: Vector
    power: Scalar | float
    reach: Scalar
    moments: Moments
    energies: Float[Array, "user"]
    side: SideInfo = SideInfo()

    replace = dataclasses.replace


def noise_over(power: Scalar | float, air: Carrier, dim: int) -> Scalar | None:
    """sw2/P of a block of budget P = `power` and `dim` coordinates; `None` if there is no noise."""
    ratio = getattr(air, "noise_ratio", None)
    if ratio is not None:
        # Not ratio/(power/P): XLA would make that (ratio·P)/power, and so form sw2 after all.
        return ratio(dim) * (air.power / power)
    noise = air.noise_variance(dim)
    return noise / power if noise is not None else None


def superpose(
    key: PRNGKeyArray,
    block: Block,
    energy: Float[Array, "*user"],
    noise: Scalar | None,
    link: Link,
    law: Noise = Gaussian(),
) -> tuple[Float[Array, "s"], Scalar, Float[Array, "user"]]:
    """All users' values at once over the air, gains undone.

    `energy` [] or [user] is P/α and `noise` sw2/P, `None` if there is none. Returns the average
    over S^r plus its equivalent noise [s], that noise's standard deviation √ν with
    ν = sw2/(|S|²·α·h_min²), and each user's ‖x_i‖²/P [user]. With an energy for each user the
    average is weighted by √α_i, and |S|√α is Σ√α_i.
    """
    received, common = link.gain[:, None] * block.values, energy
    if jnp.ndim(energy) == 1:
        weight, common = _weighted(energy, link)
        received = weight[:, None] * received
    received = link.mean(received)
    deviation = jnp.float32(0.0)
    if noise is not None:
        # Roots before the product: ν itself may overflow where its root does not.
        deviation = jnp.where(noise == 0, 0.0, jnp.sqrt(noise) * jnp.sqrt(common))
        deviation /= link.count * link.floor
        received += deviation * law.draw(key, received.shape)
    spent = link.heard * link.amplification * block.energies
    return received, deviation, jnp.where(spent == 0, 0.0, spent / energy)


def _weighted(energy: Float[Array, "user"], link: Link) -> tuple[Float[Array, "user"], Scalar]:
    """Of energies the weights √α_i by which users count, their mean over S^r being 1,
    and the common energy of the same noise: n√α = Σ√α_i.
    """
    least = jnp.min(jnp.where(link.heard > 0, energy, jnp.inf))
    least = jnp.where(jnp.isfinite(least), least, 0.0)  # where nobody is heard
    weight = jnp.where(energy > least, jnp.sqrt(least / energy), 1.0)  # of the largest √α_i
    share = link.count / jnp.maximum(jnp.sum(link.heard * weight), 1.0)
    return weight * share, least * share**2
