"""In the air: signals fade, add up, and meet noise."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxota.compress import Side
from jaxota.errors import InputError
from jaxota.fading import Fading, Link, Still, everyone
from jaxota.types import Array, given, part, static, traced


@part
class Gaussian:
    """White Gaussian noise."""

    gaussian = True

    def draw(self, key, shape) -> Array:
        """Independent draws of this shape, of variance 1."""
        return jax.random.normal(key, shape, "float32")


@part
class Channel:
    """A multiple-access channel with real noise of variance sw2 per coordinate on each block.

    `snr_db` is 10 log10(P/sw2) with `snr_per="vector"`, 10 log10(P/(d·sw2)) with "symbol"; an
    infinite one is the ideal channel. `power` is the budget P of the model block, `control_power`
    that of the control block: the same unless given. `fading` is `rayleigh(...)`, `rician(...)` or
    `nakagami(...)`, with `gains` [user] the users' mean power gains. `participants` is the size of
    a uniformly drawn set of users that alone transmit, the paper's AS4. `noise` is its law.
    """

    snr_db: Array = traced(10.0, above=-300.0, infinite=True)
    power: Array = traced(1.0, above=0.0)
    control_power: Array = traced((), above=0.0)
    fading: Fading | Still = Still()
    gains: Array = traced((), rank=1, at_least=0.0)
    participants: Array = traced((), dtype="int32")
    snr_per: str = static("vector", one_of=("vector", "symbol"))
    noise: Gaussian = Gaussian()

    @property
    def control_budget(self) -> Array:
        return self.control_power if given(self.control_power) else self.power

    def noise_variance(self, dim: int) -> Array:
        """sw2, the noise variance per coordinate of a block of `dim` coordinates."""
        symbols = dim if self.snr_per == "symbol" else 1
        return self.power * 10.0 ** (-self.snr_db / 10.0) / symbols

    def start(self, key, users: int):
        """What the fading remembers before round 1."""
        return self.fading.start(key, users)

    def links(self, keys, memory, users: int, dim: int, controlled: bool):
        """Both blocks' links for this round, and what the fading remembers.

        `keys` [3] serve the fading law, its own generator, and the choice of participants. Users
        are heard if they are chosen and if the answers to both their gains (without controls, to
        the model block's) let them speak.
        """
        mean = self.gains if given(self.gains) else jnp.ones(users, "float32")
        noise = dim * self.noise_variance(dim) / self.power
        model, control, memory = self.fading.links(keys[:2], jnp.sqrt(mean), memory, noise)
        heard = model.heard > 0
        if controlled:
            heard &= control.heard > 0
        if given(self.participants):
            order = jnp.argsort(jax.random.uniform(keys[2], (users,), "float32"))
            heard &= jnp.zeros(users, bool).at[order].set(jnp.arange(users) < self.participants)
        heard = heard.astype("float32")
        return model.replace(heard=heard), control.replace(heard=heard), memory

    def check(self, path: str, setting) -> None:
        """What a channel owes to the users of a task."""
        users = setting.task.users
        if given(self.gains) and self.gains.shape[-1] != users:
            raise InputError(
                f"channel.gains must have one entry for each of {users} users, "
                f"got shape {list(self.gains.shape)}"
            )
        if given(self.participants) and not isinstance(self.participants, jax.core.Tracer):
            chosen = np.asarray(self.participants)
            bad = chosen[(chosen < 1) | (chosen > users)]
            if bad.size:
                raise InputError(
                    f"channel.participants must lie in 1 … {users}, the users, got {bad.flat[0]}"
                )


@part
class Ideal:
    """Error-free, orthogonal links: everyone is heard, without noise and at no power on the air."""

    power = control_budget = 1.0
    noise = Gaussian()

    def noise_variance(self, dim: int):
        return ()

    def start(self, key, users: int):
        return ()

    def links(self, keys, memory, users: int, dim: int, controlled: bool):
        link = everyone(users).replace(amplification=jnp.zeros(users, "float32"))
        return link, link, memory


@part
class Air:
    """The algorithm's users reach the server over the channel."""

    def __call__(self, channel: Channel) -> Channel:
        return channel


@part
class Wired:
    """They reach it over links of their own, whatever the channel: the error-free references."""

    def __call__(self, channel: Channel) -> Ideal:
        return Ideal()


@part
class Block:
    """One of the two transmitted blocks of a round: updates Δ_i, or controls c_i."""

    values: Array  # [user, d], after compression [user, s]: what the users send
    held: Array  # [user, d] what the users hold: θ_i, or c_i
    origin: Array  # [d] what the server adds back: θ̂ for updates, 0 for controls
    power: Array  # [] the budget P of this block
    reach: Array  # [] how far gradients of norm 1 can carry a value: Kη for updates, 1 for controls
    moments: Array  # this round's row of the plan, or ()
    side: Side = Side()  # coded side information
    energies: Array = ()  # [user] ‖·‖² of what is sent


def superpose(key, block: Block, energy: Array, noise: Array, link: Link, law=Gaussian()):
    """All users' values at once over the air, gains undone.

    `energy` [] or [user] is P/α and `noise` sw2, `()` if there is none at all. Returns the average
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
    if given(noise):
        # Roots before the product: ν itself may overflow where its root does not.
        deviation = jnp.where(noise > 0, jnp.sqrt(noise / block.power) * jnp.sqrt(common), 0.0)
        deviation /= link.count * link.floor
        received += deviation * law.draw(key, received.shape)
    spent = link.heard * link.amplification * block.energies
    return received, deviation, jnp.where(spent == 0, 0.0, spent / energy)


def _weighted(energy: Array, link: Link):
    """Of energies [user] the weights √α_i by which users count [user], their mean over S^r being 1,
    and the common energy of the same noise: n√α = Σ√α_i."""
    least = jnp.min(jnp.where(link.heard > 0, energy, jnp.inf))
    least = jnp.where(jnp.isfinite(least), least, 0.0)  # where nobody is heard
    weight = jnp.where(energy > least, jnp.sqrt(least / energy), 1.0)  # of the largest √α_i
    share = link.count / jnp.maximum(jnp.sum(link.heard * weight), 1.0)
    return weight * share, least * share**2
