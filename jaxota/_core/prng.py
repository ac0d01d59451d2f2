"""Random numbers in straight-line code: those of `jax.random` to the bit, and minibatch indices.

On CPU, JAX runs the rounds of its generator in a loop. In the rounds of a simulation, where a few
numbers are drawn at a time, that loop costs many times what it draws, and several such loops are
most of what there is to compile.

Minibatches need far more numbers. Threefry inside the nested loops of users and steps would cost
more than everything else together, in run and in compile time. Threefry keys every round of every
trial (two words), and a 32-bit finaliser, applied twice, turns (user, step, sample) into an index.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, UInt32

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Draw independent numbers from N(0, 1), as `jax.random.normal` does."""
    if not _is_default(key):
        return jax.random.normal(key, shape, "float32")
    low = np.nextafter(np.float32(-1.0), np.float32(0.0))
    uniform = jnp.maximum(low, _uniform(key, shape) * (np.float32(1.0) - low) + low)
    return np.float32(np.sqrt(2.0)) * jax.lax.erf_inv(uniform)


def uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Draw independent numbers from [0, 1), as `jax.random.uniform` does."""
    if not _is_default(key):
        return jax.random.uniform(key, shape, "float32")
    return _uniform(key, shape)


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    first, second = _threefry(key, jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape))
    one = jax.lax.bitcast_convert_type(((first ^ second) >> 9) | 0x3F800000, jnp.float32)  # [1, 2)
    return one - 1.0


def split(key: PRNGKeyArray, count: int) -> Key[Array, "count"]:
    """Split a key into `count` keys, as `jax.random.split` does."""
    if not _is_default(key):
        return jax.random.split(key, count)
    return _as_keys(*_threefry(key, jax.lax.iota(jnp.uint32, count)))


def fold_in(key: PRNGKeyArray, number: Any) -> PRNGKeyArray:
    """Derive the key of this number, as `jax.random.fold_in` does."""
    if not _is_default(key):
        return jax.random.fold_in(key, number)
    return _as_keys(*_threefry(key, jnp.asarray(number, jnp.uint32)))


def _is_default(key: PRNGKeyArray) -> bool:
    """Return whether the key is of JAX's default generator, which counts as it does by default."""
    config: Any = jax.config
    return jax.random.key_impl(key) == "threefry2x32" and config.jax_threefry_partitionable


def _as_keys(
    first: UInt32[Array, "*shape"], second: UInt32[Array, "*shape"]
) -> Key[Array, "*shape"]:
    return jax.random.wrap_key_data(jnp.stack([first, second], -1), impl="threefry2x32")


@jax.jit  # traced once, however often a program uses it
def _threefry(
    key: PRNGKeyArray, count: UInt32[Array, "*shape"]
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Threefry-2x32 with 20 rounds, of the counters (0, count)."""
    words = jax.random.key_data(key)
    keys = words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(0x1BD11BDA)
    x, y = jnp.zeros_like(count) + keys[0], count + keys[1]
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        # Every fourth round mixes in the key again, each time in another order.
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return x, y


def words(key: PRNGKeyArray) -> UInt32[Array, "2"]:
    """Return the two random words of a key, for `minibatch_indices`."""
    return jax.random.key_data(key)[:2]


@functools.partial(jax.jit, static_argnames="size")  # traced once for all users of a program
def minibatch_indices(
    words: UInt32[Array, "2"], streams: Int[Array, "*stream"], size: int, count: Int[Array, ""]
) -> Int[Array, "*stream {size}"]:
    """Draw `size` indices for each stream, uniform on [0, count) with replacement.

    `words` are of the round's key; each user and step has a stream of its own.
    """
    streams = jnp.asarray(streams, jnp.uint32)
    counter = streams[..., None] * jnp.uint32(size) + jax.lax.broadcasted_iota(
        jnp.uint32, (*streams.shape, size), streams.ndim
    )
    word = _mix(_mix(counter + words[0]) ^ words[1])
    return _scale(word, jnp.uint32(count)).astype(jnp.int32)


def permutations(
    words: UInt32[Array, "2"], streams: Int[Array, "stream"], size: int, count: Int[Array, ""]
) -> Int[Array, "stream {size}"]:
    """Draw a random order of 0 … count − 1 for each stream; the indices from `count` on follow."""
    place = jax.lax.broadcasted_iota(jnp.uint32, (len(streams), size), 1)
    counter = jnp.asarray(streams, jnp.uint32)[:, None] * jnp.uint32(size) + place
    word = _mix(_mix(counter + words[0]) ^ words[1])
    # Stable: should a word be the largest by chance, its index still precedes those that follow.
    return jnp.argsort(jnp.where(place < jnp.uint32(count), word, jnp.uint32(2**32 - 1)))


def _mix(x: UInt32[Array, "*size"]) -> UInt32[Array, "*size"]:
    """Map 32-bit words one to one so that every input bit flips every output bit half the time."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _scale(word: UInt32[Array, "*size"], count: UInt32[Array, ""]) -> UInt32[Array, "*size"]:
    """floor(word · count / 2³²) without 64-bit arithmetic: uniform words to [0, count)."""
    high, low = word >> 16, word & 0xFFFF
    count_high, count_low = count >> 16, count & 0xFFFF
    cross, other = high * count_low, low * count_high
    carry = ((low * count_low >> 16) + (cross & 0xFFFF) + (other & 0xFFFF)) >> 16
    return high * count_high + (cross >> 16) + (other >> 16) + carry
