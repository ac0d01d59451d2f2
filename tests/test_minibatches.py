"""Minibatch indices are uniform, independent, and exactly scaled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxota import _minibatches


def _words(seed):
    return _minibatches.words(jax.random.key(seed))


@pytest.mark.parametrize("count", [1, 2, 3, 100, 600, 65_537, 60_000_000])
def test_scaling_is_exact(count):
    words = np.random.default_rng(0).integers(0, 2**32, 2000, dtype=np.uint64)
    words = np.concatenate([words, np.array([0, 1, 2**32 - 1], np.uint64)])
    scaled = _minibatches._scale(jnp.asarray(words, jnp.uint32), jnp.uint32(count))
    assert [int(x) for x in scaled] == [int(w) * count >> 32 for w in words]


@pytest.mark.parametrize("count", [2, 7, 100, 600])
def test_indices_are_uniform(count):
    drawn = [_minibatches.indices(_words(seed), 5, 4000, count) for seed in range(25)]
    observed = np.bincount(np.concatenate(drawn), minlength=count)
    assert stats.chisquare(observed).pvalue > 1e-4


def test_pairs_of_neighbours_are_uniform():
    """Neighbouring samples, steps, users and rounds fall on all pairs of indices alike."""
    count, size = 8, 64
    grid = np.stack(
        [
            [_minibatches.indices(_words(seed), s, size, count) for s in range(64)]
            for seed in range(24)
        ]
    )  # [round, stream, sample]
    for axis in range(3):
        first, second = np.delete(grid, -1, axis), np.delete(grid, 0, axis)
        pairs = np.bincount((first * count + second).ravel(), minlength=count**2)
        assert stats.chisquare(pairs).pvalue > 1e-4


def test_streams_of_one_round_do_not_repeat():
    first, second = (
        np.asarray(_minibatches.indices(_words(0), s, 1000, 2**31 - 1)) for s in (0, 1)
    )
    assert len(np.union1d(first, second)) == 2000
