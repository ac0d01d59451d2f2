"""The numbers drawn are JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxota._core import prng as _random

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
def test_they_are_those_of_jax_to_the_bit(kind, partitionable):
    """Of its default generator; others, and the older order of counting, are left to it."""
    with jax.threefry_partitionable(partitionable):
        ours, theirs = _drawn(_random, kind), _drawn(jax.random, kind)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
