"""What an algorithm's gains make of the channel's noise, as the theorems count it."""

import jax
import jax.numpy as jnp

from jaxota.channel import Block
from jaxota.theory.proposition import noise_after
from jaxota.types import Array, given


def largest(algorithm, channel, dim: int, block: int, moments, energies, heard, inside):
    """max_r σ^r of a block, and the least M² by which 1/α ≤ (KηM)²/P (1/β ≤ M²/P) is true of it.

    block: 0 is the model block, with σ_θ; 1 the control block, with σ_c.
    moments: what the plan knows of the block [round, …], or ().
    energies: [trial, round, user] ‖·‖² of what users sent.
    heard: the number of users.
    inside: [1, round] which rounds count.
    """
    noise = algorithm.medium(channel).noise_variance(dim)
    if not given(noise):
        return jnp.float32(0.0), jnp.float32(0.0)
    power = (channel.power, channel.control_budget)[block]
    reach = (algorithm.local.reach, jnp.float32(1.0))[block]
    floor = channel.fading.floors[block]

    def one(moments, energies):
        sent = Block((), (), (), power, reach, moments, energies=energies)
        energy = jnp.max(algorithm.precode.energy(sent))
        received = noise / power * energy / (heard * floor) ** 2
        spread = algorithm.estimate.spread(moments, heard)
        return noise_after(noise, received, spread), energy / reach**2

    found: tuple[Array, Array] = jax.vmap(jax.vmap(one), (None, 0))(moments, energies)
    sigma, needed = (jnp.max(jnp.where(inside, x, 0.0)) for x in found)
    return sigma, needed
