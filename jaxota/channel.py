"""In the air: signals fade, add up, and meet noise."""

import jax
import jax.numpy as jnp

from jaxota.fading import Fading
from jaxota.types import Array, part, static, traced


@part
class Still:
    """No fading: every gain is one."""

    def start(self, key, users: int):
        return ()


@part
class Link:
    """One block's path from the users to the server for one round."""

    heard: Array  # [user] 1 for users in S^r, else 0
    gain: Array  # [user] what remains of a user's signal after fading and its inversion
    amplification: Array  # [user] power spent on inversion, (h_min/h)²
    floor: Array  # [] h_min, the common amplitude of the inverted signals

    @property
    def count(self) -> Array:
        """|S^r|, at least 1 so that it divides."""
        return jnp.maximum(self.heard.sum(), 1.0)

    def mean(self, values: Array) -> Array:
        """The average over S^r of what users hold: [user, ...] → [...]."""
        heard = self.heard.reshape(-1, *[1] * (values.ndim - 1)) > 0
        return jnp.where(heard, values, 0.0).sum(0) / self.count


@part
class Channel:
    """A multiple-access channel with real noise N(0, sw2) per coordinate on each block.

    `snr_db` is 10 log10(P/sw2) with `snr_per="vector"`, 10 log10(P/(d·sw2)) with "symbol"; an
    infinite one is the ideal channel. `power` is the budget P of the model block, `control_power`
    that of the control block: the same unless given. `fading` is `rayleigh(...)`, `rician(...)` or
    `nakagami(...)`, with `gains` [user] the users' mean power gains. `participants` is the size of
    a uniformly drawn set of users that alone transmit, the paper's AS4.
    """

    snr_db: Array = traced(10.0, above=-300.0, infinite=True)
    power: Array = traced(1.0, above=0.0)
    control_power: Array = traced((), above=0.0)
    fading: Fading | Still = Still()
    gains: Array = traced((), rank=1, at_least=0.0)
    participants: Array = traced((), dtype="int32")
    snr_per: str = static("vector", one_of=("vector", "symbol"))

    @property
    def control_budget(self) -> Array:
        return self.power if isinstance(self.control_power, tuple) else self.control_power

    def noise_variance(self, dim: int) -> Array:
        """sw2, the noise variance per coordinate of a block of `dim` coordinates."""
        symbols = dim if self.snr_per == "symbol" else 1
        return self.power * 10.0 ** (-self.snr_db / 10.0) / symbols

    def start(self, key, users: int):
        """What the fading remembers before round 1."""
        return self.fading.start(key, users)

    def links(self, keys, memory, users: int, controlled: bool):
        """Both blocks' links for this round, and what the fading remembers.

        `keys` [3] serve the fading law, its own generator, and the choice of participants. Users
        are heard if they are chosen and both their gains (without controls, the model block's)
        look strong enough to them.
        """
        model = control = everyone(users)
        heard = model.heard > 0
        if not isinstance(self.fading, Still):
            mean = jnp.ones(users, "float32") if isinstance(self.gains, tuple) else self.gains
            gains, estimates, memory = self.fading.draw(keys[:2], jnp.sqrt(mean), memory)
            floors = self.fading.threshold, self.fading.control_threshold
            model, control = (_inverted(gains[:, b], estimates[:, b], floors[b]) for b in (0, 1))
            heard = model.heard & control.heard if controlled else model.heard
        if not isinstance(self.participants, tuple):
            order = jnp.argsort(jax.random.uniform(keys[2], (users,), "float32"))
            heard &= jnp.zeros(users, bool).at[order].set(jnp.arange(users) < self.participants)
        heard = heard.astype("float32")
        return model.replace(heard=heard), control.replace(heard=heard), memory


@part
class Ideal:
    """Error-free, orthogonal links: everyone is heard, without noise."""

    power = control_budget = 1.0

    def noise_variance(self, dim: int):
        return ()

    def start(self, key, users: int):
        return ()

    def links(self, keys, memory, users: int, controlled: bool):
        return everyone(users), everyone(users), memory


def everyone(users: int) -> Link:
    """The link over which all are heard, with gain one."""
    ones = jnp.ones(users, "float32")
    return Link(ones, ones, ones, jnp.float32(1.0))


@part
class Block:
    """One of the two transmitted blocks of a round: updates Δ_i, or controls c_i."""

    values: Array  # [user, d] what the users send
    origin: Array  # [d] what the server adds back: θ̂ for updates, 0 for controls
    power: Array  # [] the budget P of this block
    reach: Array  # [] how far gradients of norm 1 can carry a value: Kη for updates, 1 for controls
    moments: Array  # this round's row of the plan, or ()


def superpose(key, block: Block, energy: Array, noise: Array, link: Link):
    """All users' values at once over the air, gains undone.

    `energy` is P/α and `noise` sw2, `()` if there is none at all. Returns the average over S^r plus
    its equivalent noise [d], that noise's standard deviation √ν with ν = sw2/(|S|²·α·h_min²), and
    each user's ‖x_i‖²/P [user].
    """
    received = link.mean(link.gain[:, None] * block.values)
    deviation = jnp.float32(0.0)
    if not isinstance(noise, tuple):
        # Roots before the product: ν itself may overflow where its root does not.
        deviation = jnp.where(noise > 0, jnp.sqrt(noise / block.power) * jnp.sqrt(energy), 0.0)
        deviation /= link.count * link.floor
        received += deviation * jax.random.normal(key, received.shape, "float32")
    spent = link.heard * link.amplification * jnp.sum(block.values**2, -1)
    return received, deviation, jnp.where(spent == 0, 0.0, spent / energy)


def _inverted(gains: Array, estimates: Array, floor: Array) -> Link:
    """The link of users who invert what they think of their gains, down to the common `floor`.

    Of h and ĥ [2, user] the server sees the real part of h/ĥ: amplitude and phase that inversion
    missed remain. Heard is who thinks h above the floor.
    """
    power = jnp.sum(estimates**2, 0)
    heard = power > floor**2
    safe = jnp.where(heard, power, 1.0)
    return Link(heard, jnp.sum(gains * estimates, 0) / safe, floor**2 / safe, floor)
