"""Minibatch indices from a counter-based hash: as many as a round needs from two random words.

Threefry inside the nested loops of a simulation costs more than everything else together, in
run and in compile time. Here threefry keys every round of every trial (two words), and a 32-bit
finaliser, applied twice, turns (user, step, sample) into an index.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt32


def _mix(x: UInt32[Array, "*size"]) -> UInt32[Array, "*size"]:
    """A bijection of 32-bit words in which every input bit flips every output bit half the time."""
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


def words(key: PRNGKeyArray) -> UInt32[Array, "2"]:
    """The two random words that a key consists of, for `indices`."""
    return jax.random.key_data(key)[:2]


@functools.partial(jax.jit, static_argnames="size")  # traced once for all users of a program
def indices(
    words: UInt32[Array, "2"], streams: Int[Array, "*stream"], size: int, count: Int[Array, ""]
) -> Int[Array, "*stream size"]:
    """Draws, uniform on [0, count) with replacement, of some `streams` of `words`."""
    streams = jnp.asarray(streams, jnp.uint32)
    counter = streams[..., None] * jnp.uint32(size) + jax.lax.broadcasted_iota(
        jnp.uint32, (*streams.shape, size), streams.ndim
    )
    word = _mix(_mix(counter + words[0]) ^ words[1])
    return _scale(word, jnp.uint32(count)).astype(jnp.int32)
