"""The channel: in the air signals fade, add up, and meet noise."""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs, prng
from jaxota._core.part import (
    Memory,
    PerUser,
    Scalar,
    Traced,
    Vector,
    Vectors,
    optional,
    part,
    static,
    traced,
)
from jaxota._core.state import Moments
from jaxota.errors import InputError
from jaxota.stages.answers import Link, ideal_link
from jaxota.stages.compress import SideInfo
from jaxota.stages.fading import Fades, Keys, Links, NoFading
from jaxota.stages.geometry import Cell
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


class Noise(Protocol):
    """A law of the channel's noise, such as `Gaussian`."""

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian; estimators derived for Gaussian noise refuse others."""

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """Draw independent numbers of mean 0 and variance 1.

        A law of infinite variance says so by `finite_variance = False`, and draws numbers of scale
        1 in its own units: what is called the noise's deviation is then its scale.
        """


class Carrier(Protocol):
    """The medium of both blocks: `Channel`, or `Ideal` of `jaxota.stages.channel`.

    A carrier may also have `noise_ratio(dim)`, sw2/P of the model block, which is then used in
    place of `noise_variance`: sw2 itself may be too small or too large for float32.
    """

    @property
    def power(self) -> Scalar | float:
        """P of the model block."""

    @property
    def control_budget(self) -> Scalar | float:
        """P of the control block."""

    @property
    def noise(self) -> Noise:
        """The law of the noise."""

    def noise_variance(self, dim: int) -> Scalar | None:
        """Return sw2 per coordinate of a block of `dim` coordinates, None without noise."""

    @optional
    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """Return the memory before round 1; by default none."""
        return None

    def links(self, keys: Keys, memory: Memory, users: int, dim: int, controlled: bool) -> Links:
        """Return the links of both blocks and memory.

        `keys` [3] serve the fading, the law's own generator, and the choice of participants;
        `controlled` says whether a control block is sent.
        """

    @optional
    def cohort(
        self, keys: Keys, memory: Memory, users: int, dim: int, controlled: bool, size: int
    ) -> Any:
        """Return the numbers [size] of users who may take part, and their `links`.

        Only these users then compute. By default None, and all do.
        """
        return None

    @optional
    def carry(
        self,
        key: PRNGKeyArray,
        sent: "Block",
        energy: Float[Array, "*user"],
        noise: Scalar | None,
        link: Link,
    ) -> tuple[Float[Array, "s"], Scalar, PerUser]:
        """Return the symbols [s] at the server, their noise's deviation [], and powers [user].

        By default signals add up: see `superpose`, which says what the arguments are.
        """
        return superpose(key, sent, energy, noise, link, self.noise)


class Medium(Protocol):
    """The users' way to the server: over the channel, `OverTheAir`, or not, `ErrorFree`."""

    def __call__(self, channel: Carrier) -> Carrier:
        """Return the carrier that takes the channel's place."""


@part
class Gaussian:
    """White Gaussian noise."""

    gaussian = True

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        return prng.normal(key, shape)


@part
class Channel:
    """A multiple-access channel with real noise of variance sw2 per coordinate on each block.

    Attributes:
        snr_db: 10 log10(P/sw2) with `snr_per="vector"`, 10 log10(P/(d·sw2)) with "symbol"; infinity
            is the ideal channel.
        power: P, the budget of the model block.
        control_power: the budget of the control block; None for P.
        fading: `rayleigh(...)`, `rician(...)` or `nakagami(...)`; by default none.
        gains: [user] the users' mean power gains under fading, or a `cell(...)` that has them; None
            for 1.
        participants: size of a uniformly drawn set of users that alone transmit, the paper's AS4;
            None for all.
        snr_per: reference of the signal-to-noise ratio, "vector" or "symbol".
        noise: the law of the noise: `Gaussian()`, `Laplace()` or `Stable(alpha)`.
    """

    snr_db: Traced[Scalar] = traced(default=10.0, above=-300.0, infinite=True)
    power: Traced[Scalar] = traced(default=1.0, above=0.0)
    control_power: Traced[Scalar | None] = traced(default=None, above=0.0)
    fading: Fades = NoFading()
    gains: Traced[PerUser | Cell | None] = traced(default=None, rank=1, at_least=0.0)
    participants: Traced[Int[Array, ""] | None] = traced(default=None, dtype="int32")
    snr_per: str = static(default="vector", one_of=("vector", "symbol"))
    noise: Noise = Gaussian()

    superposes = True  # for `exact`: links and signals are those of this class
    replace = dataclasses.replace

    @property
    def control_budget(self) -> Scalar:
        """P of the control block."""
        return self.control_power if self.control_power is not None else self.power

    def noise_variance(self, dim: int) -> Scalar:
        """Return sw2 per coordinate of a block of `dim` coordinates."""
        return self.power * self.noise_ratio(dim)

    def noise_ratio(self, dim: int) -> Scalar:
        """Return sw2/P of a block of `dim` coordinates, which depends on the SNR alone."""
        symbols = dim if self.snr_per == "symbol" else 1
        # Exactly 0 for an infinite SNR. P cancels, however small or large it is.
        return 10.0 ** (-self.snr_db / 10.0) / symbols

    carry = Carrier.carry

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        memory = self.fading.start(key, users)
        # Drawn once in a trial: users stay where they are.
        return (memory, self.gains.draw(key).gains) if isinstance(self.gains, Cell) else memory

    def links(self, keys: Keys, memory: Memory, users: int, dim: int, controlled: bool) -> Links:
        *links, memory = self._fade(keys, memory, users, dim, controlled)
        if self.participants is not None:
            # A uniform subset whose size is traced: the first of a random order of all users.
            order = jnp.argsort(prng.uniform(keys[2], (users,)))
            drawn = jnp.zeros(users, bool).at[order].set(jnp.arange(users) < self.participants)
            links = [link.replace(heard=link.heard * drawn) for link in links]
        return *links, memory

    def cohort(
        self, keys: Keys, memory: Memory, users: int, dim: int, controlled: bool, size: int
    ) -> tuple[Int[Array, "user"], Link, Link, Memory]:
        """Return the users whom `participants` draws, filled up to `size`, and their `links`."""
        assert self.participants is not None  # else there is no `cohort_size`
        # The same order as in `links`, as far as it is needed.
        _, order = jax.lax.top_k(-prng.uniform(keys[2], (users,)), size)
        place = jnp.argsort(order)  # sums then have the order of all users, too
        members, drawn = order[place], place < self.participants
        *links, memory = self._fade(keys, memory, users, dim, controlled)
        model, control = (link.of(members) for link in links)
        model, control = (x.replace(heard=x.heard * drawn) for x in (model, control))
        return members, model, control, memory

    def cohort_size(self, users: int) -> int | None:
        """Return how many users compute where only participants do, None where all do.

        Cohorts of nearly one size share a program, which computes up to an eighth more users.
        """
        if self.participants is None or inputs.is_traced(self.participants):
            return None
        if not np.size(self.participants):  # refused where the fields are checked
            return None
        most = int(np.max(self.participants))
        step = 2 ** max(0, (most - 1).bit_length() - 3)
        size = -(-most // step) * step
        return size if size < users else None

    def _fade(self, keys: Keys, memory: Memory, users: int, dim: int, controlled: bool) -> Links:
        """Return the links of all users as the fading leaves them."""
        if isinstance(self.gains, Cell):
            memory, mean = memory
            channel = self.replace(gains=mean)
            model, control, memory = channel._fade(keys, memory, users, dim, controlled)
            return model, control, (memory, mean)
        mean = self.gains if self.gains is not None else jnp.ones(users, "float32")
        over = jnp.stack([jnp.float32(1.0), self.power / self.control_budget])
        noise = dim * self.noise_ratio(dim) * over  # d·sw2/P of either block
        model, control, memory = self.fading.links(keys[:2], jnp.sqrt(mean), memory, noise)
        # A user transmits in both blocks or in none, so that both averages are over one set S^r.
        heard = model.heard > 0
        if controlled:
            heard &= control.heard > 0
        ones = heard.astype("float32")
        return model.replace(heard=ones), control.replace(heard=ones), memory

    def check(self, path: str, setting: "Setting") -> None:
        users = setting.task.users
        numbers = self.gains if not isinstance(self.gains, Cell) else None
        if numbers is not None and numbers.shape[-1] != users:
            raise InputError(
                f"channel.gains must have one entry for each of {users} users, "
                f"got shape {list(numbers.shape)}"
            )
        if self.participants is not None:
            good = (self.participants >= 1) & (self.participants <= users)
            if isinstance(good, jax.core.Tracer):  # under a user's own jit: results become NaN
                return inputs.check_traced(good)
            bad = np.asarray(self.participants)[~np.asarray(good)]
            if bad.size:
                raise InputError(
                    f"channel.participants must lie in 1 … {users}, the users, got {bad.flat[0]}"
                )


@part
class Ideal:
    """Error-free, orthogonal links: all users are heard, without noise and at no power."""

    power = control_budget = 1.0
    fading, participants, superposes = NoFading(), None, True
    noise, start, carry, cohort = Gaussian(), no_memory, Carrier.carry, Carrier.cohort

    def noise_variance(self, dim: int) -> None:
        return None

    def links(self, keys: Keys, memory: Memory, users: int, dim: int, controlled: bool) -> Links:
        # Nothing is on the air, so no power is spent.
        link = ideal_link(users).replace(amplification=jnp.zeros(users, "float32"))
        return link, link, memory


@part
class OverTheAir:
    """Users reach the server over the channel."""

    cohorts = True

    def __call__(self, channel: Carrier) -> Carrier:
        return channel


@part
class ErrorFree:
    """Users reach the server over error-free links, whatever the channel: for references."""

    def __call__(self, channel: Carrier) -> Ideal:
        return Ideal()


@part
class Block:
    """One of the two transmitted blocks of a round: updates Δ_i, or controls c_i.

    Attributes:
        values: [user, d], after compression [user, s]: the users' values to be averaged.
        held: [user, d] the users' own vectors: θ_i, or c_i.
        origin: [d] the vector that the server adds back: θ̂ for updates, 0 for controls.
        power: [] the budget P of this block.
        reach: [] norm that gradients of norm 1 give a value: Kη for updates, 1 for controls.
        moments: this round's row of the plan.
        energies: [user] ‖·‖² of `values`.
        side: coded side information.
    """

    values: Float[Array, "user s"]
    held: Vectors
    origin: Vector
    power: Scalar | float
    reach: Scalar
    moments: Moments
    energies: PerUser
    side: SideInfo = SideInfo()

    replace = dataclasses.replace


def noise_over(power: Scalar | float, carrier: Carrier, dim: int) -> Scalar | None:
    """Return sw2/P of a block of `dim` coordinates and budget P = `power`, None without noise."""
    ratio = getattr(carrier, "noise_ratio", None)
    if ratio is not None:
        # Not ratio/(power/P): XLA would make that (ratio·P)/power, and so form sw2 after all.
        return ratio(dim) * (carrier.power / power)
    noise = carrier.noise_variance(dim)
    return noise / power if noise is not None else None


def superpose(
    key: PRNGKeyArray,
    block: Block,
    energy: Float[Array, "*user"],
    noise: Scalar | None,
    link: Link,
    law: Noise = Gaussian(),
) -> tuple[Float[Array, "s"], Scalar, PerUser]:
    """Send all users' values at once over the air, and undo the gains.

    The average plus equivalent noise is formed directly: quotients of gains would leave float32.

    `energy` is P/α, [] or [user]: with one for each user the average is weighted by √α_i, and |S|√α
    is Σ√α_i. `noise` is sw2/P, None without noise, and `law` its law.

    Returns:
        The average over S^r plus noise [s]; the standard deviation √ν of that noise, with
        ν = sw2/(|S|²·α·h_min²), its root mean square over the symbols under selective fading; and
        the transmit power ‖x_i‖²/P of each user [user].
    """
    average, deviation = _average(block.values, energy, noise, link)
    spent = link.heard * link.amplification * block.energies
    if link.carriers is not None:
        symbols = link.by_symbol(block.values.shape[1])
        average, deviation = _by_symbol(block.values, energy, noise, symbols)
        spent = jnp.sum(symbols.heard * symbols.amplification * block.values**2, 1)
    if noise is not None:
        average += deviation * law.draw(key, average.shape)
    # Under selective fading users are heard on some symbols, each with noise of its own.
    deviation = deviation if jnp.ndim(deviation) == 0 else jnp.sqrt(jnp.mean(deviation**2))
    # 0/0 where a user sends nothing and the full-power energy is 0: no power.
    return average, deviation, jnp.where(spent == 0, 0.0, spent / energy)


def _average(
    values: Float[Array, "user s"],
    energy: Float[Array, "*user"],
    noise: Scalar | None,
    link: Link,
) -> tuple[Float[Array, "s"], Scalar]:
    """Return the average over S^r without noise, and the deviation of the noise."""
    received, common = link.gain[:, None] * values, energy
    if jnp.ndim(energy) == 1:  # the server cannot undo different gains one by one
        weight, common = _weights(energy, link)
        received = weight[:, None] * received
    received = link.mean(received)
    deviation = jnp.float32(0.0)
    if noise is not None:
        # Roots before the product: ν itself may overflow where its root does not. Without noise it
        # is 0 even where the energy is infinite.
        deviation = jnp.where(noise == 0, 0.0, jnp.sqrt(noise) * jnp.sqrt(common))
        deviation /= link.count * link.floor
    return received, deviation


def _by_symbol(
    values: Float[Array, "user s"],
    energy: Float[Array, "*user"],
    noise: Scalar | None,
    symbols: Link,
) -> tuple[Float[Array, "s"], Float[Array, "s"]]:
    """Return averages and deviations of symbols, each with a link of its own."""

    def one(values: PerUser, link: Link) -> tuple[Scalar, Scalar]:
        average, deviation = _average(values[:, None], energy, noise, link)
        anyone = link.heard.sum() > 0  # else the server takes nothing from this symbol
        return jnp.where(anyone, average[0], 0.0), jnp.where(anyone, deviation, 0.0)

    axes = Link(1, 1, 1, 0)  # type: ignore[arg-type]
    return jax.vmap(one, (1, axes))(values, symbols)


def _weights(energy: PerUser, link: Link) -> tuple[PerUser, Scalar]:
    """Return weights √α_i of mean 1 over S^r [user], and the common energy of the same noise.

    A common α gives the same noise where n√α = Σ√α_i.
    """
    least = jnp.min(jnp.where(link.heard > 0, energy, jnp.inf))
    least = jnp.where(jnp.isfinite(least), least, 0.0)  # where nobody is heard
    # Relative to the largest √α_i of users heard, so that no weight overflows.
    weight = jnp.where(energy > least, jnp.sqrt(least / energy), 1.0)
    share = link.count / jnp.maximum(jnp.sum(link.heard * weight), 1.0)
    return weight * share, least * share**2
