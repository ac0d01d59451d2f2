"""Parts are pytrees that no one takes for another."""

import gc
import itertools
import types

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import jaxota as jo
from jaxota import rounds
from jaxota._core import inputs, prng
from jaxota._core.part import canonical
from jaxota.stages.fading import Nakagami, Rayleigh

ALIKE = {
    "precoders": [jo.Offline(), jo.Online()],
    "mediums": [jo.OverTheAir(), jo.ErrorFree()],
    "estimators": [
        jo.Identity(),
        jo.MMSE(),
        jo.ReportedMMSE(),
        jo.PooledMMSE(),
        jo.UpdateMMSE(),
        jo.JamesStein(),
    ],
    "one number": [Rayleigh(1.0), Nakagami(1.0), jo.Bounded(1.0), jo.Constant(1.0)],
    "algorithms": [jo.cotaf(0.1, 1), jo.baaf(0.1, 1), jo.noisy_fedavg(0.1, 1), jo.fedavg(0.1, 1)],
    "channels": [jo.Channel(fading=jo.rayleigh()), jo.Channel(fading=jo.nakagami(1.0))],
}


@pytest.mark.parametrize("kind", ALIKE)
def test_parts_of_one_shape_have_different_structures(kind):
    """Equal structures would share a compiled program, though they compute other things."""
    for first, second in itertools.combinations(ALIKE[kind], 2):
        assert jax.tree.structure(first) != jax.tree.structure(second)
    for part in ALIKE[kind]:
        assert jax.tree.structure(part) == jax.tree.structure(jax.tree.map(np.float32, part))


def test_static_fields_are_structure_and_traced_ones_leaves():
    algorithm = jo.cobaaf(0.1, 3, batch=2)
    assert jax.tree.leaves(algorithm) == [0.1]
    (path, _), *_ = jax.tree_util.tree_flatten_with_path(algorithm)[0]
    assert jax.tree_util.keystr(path) == ".local.step_size"
    assert jax.tree.structure(algorithm) != jax.tree.structure(jo.cobaaf(0.1, 4, batch=2))
    twice = jax.tree.map(lambda x: 2 * x, algorithm)
    assert twice.local.step_size == 0.2 and twice.local.steps == 3
    assert isinstance(twice, jo.Algorithm) and twice.replace(precode=jo.Online()) is not twice


def test_parts_are_frozen():
    with pytest.raises(AttributeError):
        jo.Channel().snr_db = 3.0


def test_annotations_of_arrays_hold():
    """In the tests, by the import hook of conftest: a wrong shape is seen where it is made."""
    with pytest.raises(jaxtyping.TypeCheckError):
        rounds._energies(jnp.ones(3))
    with pytest.raises(jaxtyping.TypeCheckError):
        prng.minibatch_indices(jnp.zeros(3, "uint32"), jnp.arange(4), 2, jnp.int32(5))


def test_canonical_tells_transformations_apart():
    def same(first, second):
        return canonical(first) is canonical(second)

    assert same(optax.identity(), optax.identity())
    assert same(optax.adam(1e-3, b1=0.8), optax.adam(1e-3, b1=0.8))
    assert same(optax.chain(optax.clip(1.0)), optax.chain(optax.clip(1.0)))
    assert not same(optax.adam(1e-3), optax.adam(2e-3))
    assert not same(optax.scale(1), optax.scale(1.0))
    assert not same(optax.scale(1.0), optax.scale(2.0))
    assert not same(optax.trace(0.9), optax.trace(0.9, nesterov=True))
    array = jnp.ones(3)
    assert not same(optax.scale(array), optax.scale(array))  # unhashable: identity decides


def test_canonical_of_closures_that_hold_themselves():
    def make(factor):
        def update(updates, state, params=None):
            return jax.tree.map(lambda u: factor * u, updates), (state, update)

        update.__module__ = "optax.of_ones_own"
        return optax.GradientTransformation(optax.identity().init, update)

    one, again, other = make(1.0), make(1.0), make(2.0)
    assert canonical(one) is canonical(again)
    assert canonical(one) is not canonical(other)


@pytest.mark.slow
def test_canonical_forgets_old_values():
    """Transformations that are gone from use are gone from memory."""
    for number in range(400):
        canonical(optax.scale(float(number)))
    gc.collect()
    kept = [x for x in gc.get_objects() if isinstance(x, types.FunctionType)]
    held = [f for f in kept if f.__qualname__ == "scale.<locals>.update_fn"]
    assert 0 < len(held) < 400


def test_at_most_bounds_a_field():
    @jo.part
    class Shrink:
        factor: float = jo.traced(at_least=0.0, at_most=1.0)

    for value in (0.0, 1.0, [0.5, 1.0]):
        inputs.cast_fields(Shrink(value), "part")
    with pytest.raises(jo.InputError, match=r"^part.factor must be finite and ≥ 0 and ≤ 1, got 2"):
        inputs.cast_fields(Shrink([1.0, 2.0]), "part")
