"""What an algorithm's gains make of the channel's noise, as the theorems count it."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxota._core.part import Scalar
from jaxota._core.state import Moments
from jaxota.algorithms import Algorithm
from jaxota.stages.channel import Block, Channel, noise_over
from jaxota.theory.proposition import noise_after

_NOTHING: Any = None  # what no precoder reads


def largest(
    algorithm: Algorithm,
    channel: Channel,
    dim: int,
    block: int,
    moments: Moments | None,
    energies: Float[Array, "trial round user"],
    heard: Scalar,
    inside: Bool[Array, "1 round"],
) -> tuple[Scalar, Scalar]:
    """max_r σ^r of a block, and the least M² by which 1/α ≤ (KηM)²/P (1/β ≤ M²/P) is true of it.

    Args:
        block: 0 is the model block, with σ_θ; 1 the control block, with σ_c.
        moments: what the plan knows of the block [round, …], or ().
        energies: ‖·‖² of what users sent.
        heard: the number of users.
        inside: which rounds count.
    """
    air, power = algorithm.medium(channel), (channel.power, channel.control_budget)[block]
    noise, over = air.noise_variance(dim), noise_over(power, air, dim)
    if noise is None or over is None:
        return jnp.float32(0.0), jnp.float32(0.0)
    reach = (algorithm.local.reach, jnp.float32(1.0))[block]
    # What theory asks of parts beyond their protocols.
    fading: Any = channel.fading
    estimator: Any = algorithm.estimate
    floor = fading.floors[block]

    def one(moments: Any, energies: Float[Array, "user"]) -> tuple[Scalar, Scalar]:
        sent = Block(_NOTHING, _NOTHING, _NOTHING, power, reach, moments, energies=energies)
        energy = jnp.max(algorithm.precode.energy(sent))
        received = over * energy / (heard * floor) ** 2
        spread = estimator.spread(moments, heard)
        return noise_after(noise, received, spread), energy / reach**2

    found = jax.vmap(jax.vmap(one), (None, 0))(moments, energies)
    sigma, needed = (jnp.max(jnp.where(inside, x, 0.0)) for x in found)
    return sigma, needed
