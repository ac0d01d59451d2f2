"""Random numbers are JAX's own to the bit; minibatch indices are uniform and exactly scaled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxota._core import prng

SHAPES = (), (10,), (3, 7), (4099,)


def _drawn(random, kind):
    """Normal numbers of several shapes, keys that are split and such as numbers are folded in."""
    key = jax.random.key(5, impl=kind)

    def each(number):
        own = random.fold_in(key, number)
        keys = random.split(own, 5)
        folded = random.fold_in(own, np.uint32(2**32 - 1))
        draws = [random.normal(keys[0], shape) for shape in SHAPES]
        return draws, *map(jax.random.key_data, (keys, folded))

    return jax.jit(jax.vmap(each))(jnp.arange(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("partitionable", [True, False])
def test_numbers_equal_those_of_jax_to_the_bit(kind, partitionable):
    """Of its default generator; others, and the older order of counting, are left to it."""
    with jax.threefry_partitionable(partitionable):
        ours, theirs = _drawn(prng, kind), _drawn(jax.random, kind)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@functools.partial(jax.jit, static_argnums=2)
def _indices(seeds, streams, size, count):
    """Indices [seed, stream, sample] below `count`."""

    def draw(seed, stream):
        words = prng.words(jax.random.key(seed))
        return prng.minibatch_indices(words, stream, size, count)

    return jax.vmap(jax.vmap(draw, (None, 0)), (0, None))(seeds, streams)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 600, 65_537, 60_000_000])
def test_scaling_is_exact(count):
    words = np.random.default_rng(0).integers(0, 2**32, 2000, dtype=np.uint64)
    words = np.concatenate([words, np.array([0, 1, 2**32 - 1], np.uint64)])
    scaled = jax.jit(prng._scale)(words.astype(np.uint32), np.uint32(count))
    assert np.asarray(scaled).tolist() == [int(w) * count >> 32 for w in words]


@pytest.mark.parametrize("count", [2, 7, 100, 600])
def test_indices_are_uniform(count):
    drawn = np.asarray(_indices(np.arange(25), np.array([5]), 4000, count))
    observed = np.bincount(drawn.ravel(), minlength=count)
    assert stats.chisquare(observed).pvalue > 1e-4


def test_pairs_of_neighbours_are_uniform():
    """Neighbouring samples, steps, users and rounds fall on all pairs of indices alike."""
    count, size = 8, 64
    grid = np.asarray(
        _indices(np.arange(24), np.arange(64), size, count)
    )  # [round, stream, sample]
    for axis in range(3):
        first, second = np.delete(grid, -1, axis), np.delete(grid, 0, axis)
        pairs = np.bincount((first * count + second).ravel(), minlength=count**2)
        assert stats.chisquare(pairs).pvalue > 1e-4


def test_streams_of_one_round_do_not_repeat():
    first, second = np.asarray(_indices(np.arange(1), np.arange(2), 1000, 2**31 - 1))[0]
    assert len(np.union1d(first, second)) == 2000
