"""The ground we stand on: a jax that computes wrong numbers is recognised by computing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize("rows", [1_000, 32_769, 70_001])
def test_vmapped_matrix_vector_reduction_is_right_under_jit(rows):
    """jax-ml/jax#39103: wrong rows from 32,769 on in release 0.10.2, on CPU, in float32."""
    rng = np.random.default_rng(0)
    matrix, x = rng.standard_normal((3, 3)), rng.standard_normal((rows, 3))
    f = jax.vmap(lambda row: jnp.sum((jnp.float32(matrix) @ row) ** 2))
    expected = ((x @ matrix.T) ** 2).sum(-1)
    np.testing.assert_allclose(
        jax.jit(f)(jnp.float32(x)),
        expected,
        rtol=1e-4,
        atol=1e-5,
        err_msg="this jax computes wrong numbers (jax-ml/jax#39103): install another release",
    )


def test_splitting_a_key_does_not_depend_on_how_often():
    """The same trial has the same random numbers whatever comes after."""
    key = jax.random.key(3)
    few, many = jax.random.split(key, 5), jax.random.split(key, 50)
    assert (jax.random.key_data(few) == jax.random.key_data(many)[:5]).all()
