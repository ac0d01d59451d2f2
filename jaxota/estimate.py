"""At the server: from the noisy average to an estimate of the average.

An estimator sees what was received [d] (the average of the values, plus noise), the standard
deviation √ν of that noise, the block it came from and the link. Without noise every estimator is
the identity.
"""

import jax.numpy as jnp

from jaxota.channel import Block, Link
from jaxota.types import Array, part


@part
class Identity:
    """What was received, as it is."""

    needs_plan = False

    def __call__(self, received: Array, deviation: Array, block: Block, link: Link) -> Array:
        return block.origin + received


@part
class MMSE:
    """Conditional mean under the plan's prior, users independent; eq. MSE_Solution."""

    needs_plan = True

    def __call__(self, received: Array, deviation: Array, block: Block, link: Link) -> Array:
        mean, spread = _of_average(block.moments.mean, block.moments.var, link)
        return _conditional_mean(block.origin + received, deviation, mean, spread)


@part
class ReportedMMSE:
    """MMSE with the moments that users measure on their own θ_i and c_i and report, coded."""

    needs_plan = False

    def __call__(self, received: Array, deviation: Array, block: Block, link: Link) -> Array:
        held = block.origin[None] + block.values  # [user, d]
        mean, spread = _of_average(held.mean(-1), held.var(-1), link)
        return _conditional_mean(block.origin + received, deviation, mean, spread)


@part
class PooledMMSE:
    """MMSE with the plan's moments of the average itself: correlation between users is kept."""

    needs_plan = True

    def __call__(self, received: Array, deviation: Array, block: Block, link: Link) -> Array:
        mean, spread = block.moments.average_mean, block.moments.average_var
        return _conditional_mean(block.origin + received, deviation, mean, spread)


@part
class JamesStein:
    """Positive-part shrinkage of the update (or control) to zero: no prior, no calibration."""

    needs_plan = False

    def __call__(self, received: Array, deviation: Array, block: Block, link: Link) -> Array:
        ratio = received / jnp.where(deviation > 0, deviation, 1.0)
        shrink = max(received.size - 2, 0) / jnp.sum(ratio**2)
        factor = jnp.maximum(0.0, 1.0 - shrink) if received.size > 2 else 1.0
        return block.origin + jnp.where(deviation > 0, factor, 1.0) * received


def _of_average(means: Array, variances: Array, link: Link):
    """μ and s² of the average of independent users from their own moments [user]."""
    return link.mean(means), link.mean(variances) / link.count


def _conditional_mean(seen: Array, deviation: Array, mean: Array, spread: Array) -> Array:
    """E[x | x + noise = seen] for x ~ N(mean, spread), for ν of any size and s² from 0 to ∞."""
    gain = 1.0 / (1.0 + (deviation / jnp.sqrt(spread)) ** 2)
    exact = (deviation == 0) | (gain == 1)  # also where ν = s² = 0
    return jnp.where(exact, seen, mean + gain * (seen - mean))
