"""At each user: the gain that scales a block to the power budget.

Every precoder answers with the *full-power energy* P/α: the ‖Δ‖² that spends the whole budget.
Neither α nor P is formed, since α spans more orders of magnitude than float32 can square.
"""

import jax.numpy as jnp

from jaxota.channel import Block, Channel, Ideal
from jaxota.types import Array, part, traced


@part
class Offline:
    """α^r = P / max_i E‖Δ_i^r‖², the expectation from the plan; eq. precoder."""

    needs_plan = True

    def over(self, channel: Channel) -> Channel:
        return channel

    def energy(self, block: Block) -> Array:
        return block.moments.energy


@part
class Online:
    """α^r = P / max_i ‖Δ_i^r‖², the realised maximum: the budget holds exactly, always."""

    needs_plan = False
    over = Offline.over

    def energy(self, block: Block) -> Array:
        return jnp.max(jnp.sum(block.values**2, -1))


@part
class Constant:
    """x_i = gain·Δ_i in all rounds; without a gain, the largest that meets the plan's budget."""

    gain: Array = traced((), above=0.0)

    over = Offline.over

    @property
    def needs_plan(self) -> bool:
        return isinstance(self.gain, tuple)

    def energy(self, block: Block) -> Array:
        return block.moments.peak if self.needs_plan else block.power / self.gain**2


@part
class Bounded:
    """α = P/(KηM)² and β = P/M² for a known bound M on gradient norms."""

    bound: Array = traced(above=0.0)

    needs_plan = False
    over = Offline.over

    def energy(self, block: Block) -> Array:
        return (block.reach * self.bound) ** 2


@part
class ErrorFree:
    """Nothing goes on the air: orthogonal, noiseless links carry the average, at no power."""

    needs_plan = False

    def over(self, channel: Channel) -> Ideal:
        return Ideal()

    def energy(self, block: Block) -> Array:
        return jnp.float32(jnp.inf)
