"""The noise's numbers are JAX's own."""

import jax
import numpy as np
import pytest

from jaxota._normals import normal


@pytest.mark.parametrize("shape", [(), (10,), (3, 7), (4099,)])
def test_they_are_those_of_jax_to_the_bit(shape):
    keys = jax.random.split(jax.random.key(5), 3)
    ours = jax.jit(jax.vmap(lambda key: normal(key, shape)))(keys)
    theirs = jax.jit(jax.vmap(lambda key: jax.random.normal(key, shape, "float32")))(keys)
    np.testing.assert_array_equal(ours, theirs)


def test_other_generators_are_left_to_jax():
    key = jax.random.key(5, impl="rbg")
    theirs = jax.random.normal(key, (10,), "float32")
    np.testing.assert_array_equal(normal(key, (10,)), theirs)


def test_so_is_the_older_order_of_counting():
    with jax.threefry_partitionable(False):
        key = jax.random.key(5)
        theirs = jax.random.normal(key, (10,), "float32")
        np.testing.assert_array_equal(normal(key, (10,)), theirs)
