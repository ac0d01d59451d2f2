"""The numbers of `jax.random.normal` to the bit, from straight code.

On CPU, JAX runs the rounds of its generator in a loop, which compiles quickly. Inside the rounds of
a simulation, where a few numbers are drawn at a time, that loop costs many times what it draws.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Independent draws from N(0, 1)."""
    config: Any = jax.config
    threefry = jax.random.key_impl(key) == "threefry2x32"
    if not (threefry and config.jax_threefry_partitionable):
        return jax.random.normal(key, shape, "float32")
    count = jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape)
    first, second = _threefry(jax.random.key_data(key), jnp.zeros_like(count), count)
    one = jax.lax.bitcast_convert_type(((first ^ second) >> 9) | 0x3F800000, jnp.float32)  # [1, 2)
    low = np.nextafter(np.float32(-1.0), np.float32(0.0))
    uniform = jnp.maximum(low, (one - 1.0) * (np.float32(1.0) - low) + low)
    return np.float32(np.sqrt(2.0)) * jax.lax.erf_inv(uniform)


def _threefry(
    key: UInt32[Array, "2"], x: UInt32[Array, "*shape"], y: UInt32[Array, "*shape"]
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Threefry-2x32 with 20 rounds."""
    keys = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)
    x, y = x + keys[0], y + keys[1]
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return x, y
