"""The ground we stand on: a jax that computes wrong numbers is recognised by computing."""

import os
import subprocess
import sys

import jax

PROBE = """
import jax, jax.numpy as jnp, numpy as np
rng = np.random.default_rng(0)
matrix = rng.standard_normal((3, 3))
f = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.float32(matrix) @ row) ** 2)))
for rows in (1_000, 32_769, 70_001):
    x = rng.standard_normal((rows, 3))
    expected = ((x @ matrix.T) ** 2).sum(-1)
    np.testing.assert_allclose(f(jnp.float32(x)), expected, rtol=1e-4, atol=1e-5)
"""


def test_vmapped_matrix_vector_reduction_is_right_under_jit():
    """jax-ml/jax#39103: wrong rows from 32,769 on in release 0.10.2, on CPU, in float32.

    In a process of its own, compiled as users compile and not as the other tests do.
    """
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    probe = subprocess.run([sys.executable, "-c", PROBE], env=plain, capture_output=True, text=True)
    assert probe.returncode == 0, (
        "this jax computes wrong numbers (jax-ml/jax#39103), install another release:\n"
        + probe.stderr
    )


def test_splitting_a_key_does_not_depend_on_how_often():
    """The same trial has the same random numbers whatever comes after."""
    key = jax.random.key(3)
    few, many = jax.random.split(key, 5), jax.random.split(key, 50)
    assert (jax.random.key_data(few) == jax.random.key_data(many)[:5]).all()
