"""Programs for TPUs and GPUs: what their branches compute, and what their compilers make of them.

The compilers run without the hardware, in a process of their own, which libtpu ends where it fails.
`make accelerators` installs them; elsewhere these tests are skipped.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo
from jaxota.cli import hlo, targets
from jaxota.errors import InputError

# Numbers: a minibatch of TPUs weighs all samples, on whatever platform it is asked to.


def regression():
    return jo.tasks.synthetic_regression(0, 3, 7, 4).problem(0)


def softmax(features=None):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 7, 4)) if features is None else features
    y = rng.integers(0, 3, (3, 7))
    return jo.tasks.classification(jo.tasks.SoftmaxRegression(3), (x, y), (x[0], y[0]))


SAMPLES = jnp.array([5, 1, 5, 0, 5])  # one of them several times


def test_weighing_samples_is_the_gradient_on_their_rows():
    problem, model = regression(), jnp.arange(4.0)
    for user in range(3):
        weighed = problem._of_weights(model, user, SAMPLES)
        np.testing.assert_allclose(weighed, problem._of_rows(model, user, SAMPLES), rtol=2e-6)
    task = softmax()
    layout, params = task.layout, task.layout.unravel(jnp.linspace(-1.0, 1.0, task.dim))
    for user in range(3):
        weighed = layout.ravel(layout._of_weights(params, user, SAMPLES))
        rows = layout.ravel(layout._of_rows(params, user, SAMPLES))
        np.testing.assert_allclose(weighed, rows, rtol=2e-5, atol=1e-7)


def test_rows_by_products_are_the_drawn_rows(monkeypatch):
    rng = np.random.default_rng(0)
    large = rng.normal(size=(3, 7, 4)) * 10.0 ** rng.integers(-20, 20, (3, 7, 4))
    layout = softmax(large).layout
    monkeypatch.setattr(type(layout), "_on", lambda self, params, rows: rows)
    for user in range(3):
        products, rows = (
            layout._of_products(None, user, SAMPLES),
            layout._of_rows(None, user, SAMPLES),
        )
        jax.tree.map(np.testing.assert_array_equal, products, rows)
        assert [x.dtype for x in rows] == ["float32", "int32"]


def test_samples_that_were_not_drawn_do_not_count_even_if_infinite():
    problem = regression()
    far = problem.replace(targets=problem.targets.at[:, 2].set(jnp.inf))
    model = jnp.arange(4.0)
    weighed = far._of_weights(model, 1, SAMPLES)
    np.testing.assert_array_equal(weighed, problem._of_weights(model, 1, SAMPLES))
    assert not np.isfinite(far._of_weights(model, 1, SAMPLES.at[0].set(2))).any()


def test_cross_entropy_by_one_hot_labels_is_that_by_numbers():
    from jaxota.tasks.labelled import _one_hot_cross_entropy

    logits, labels = jax.random.normal(jax.random.key(0), (9, 4)), jnp.arange(9) % 4
    loss = jo.tasks.classification.__defaults__[0]
    np.testing.assert_allclose(
        _one_hot_cross_entropy(logits, labels), loss(logits, labels), rtol=1e-6
    )


def test_a_convolution_by_sums_is_that_by_products():
    from jaxota.tasks import models

    k_kernel, k_images, k_slope = jax.random.split(jax.random.key(0), 3)
    kernel, slope = jax.random.normal(k_kernel, (18, 4)), jax.random.normal(k_slope, (4, 5, 3, 2))
    shifted = list(jax.random.normal(k_images, (9, 2, 5, 3, 2)))
    ways = models._sum_of_images, models._product_of_patches
    sums, products = (jax.vjp(way, kernel, shifted) for way in ways)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(sums[0], products[0], **tolerance)
    for ours, theirs in zip(*(jax.tree.leaves(v[1](slope)) for v in (sums, products)), strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerance)


def test_a_small_convolution_is_a_sum_on_tpu():
    def products(channels, platform):
        module = jo.tasks.CNN(3, channels=channels)
        x = jnp.zeros((2, 8, 8))
        params = jax.eval_shape(module.init, jax.random.key(0), x)
        program = jax.export.export(jax.jit(module.apply), platforms=[platform])
        return program(params, x).mlir_module().count("stablehlo.dot_general")

    assert products((4,), "tpu") == 1 and products((4,), "cpu") == 2  # one is of the dense layer
    assert products((64,), "tpu") == 2  # for the matrix unit


def test_each_platform_has_its_branch():
    """TPUs compare the drawn numbers with all samples; CPUs gather."""
    problem = regression()
    gradient = jax.jit(lambda model: problem.gradient(model, 1, SAMPLES))

    def lowered(platform):
        return jax.export.export(gradient, platforms=[platform])(jnp.zeros(4)).mlir_module()

    assert "stablehlo.compare" in lowered("tpu") and "stablehlo.gather" not in lowered("tpu")
    for platform in ("cpu", "cuda"):
        assert "stablehlo.gather" in lowered(platform), platform


def test_the_precision_of_networks_is_that_of_jax():
    """By default the device's, which is bfloat16 on TPU; regression always asks for float32."""
    task = softmax()
    params = task.layout.unravel(jnp.zeros(task.dim))

    def lowered():
        gradient = jax.jit(lambda params: task.layout.gradient(params, 1, SAMPLES))
        return jax.export.export(gradient, platforms=["tpu"])(params).mlir_module()

    assert lowered().count("[HIGHEST") == 1  # the product that takes the drawn rows
    with jax.default_matmul_precision("highest"):
        assert lowered().count("[HIGHEST") > 1 and "DEFAULT" not in lowered()
    problem = regression()
    gradient = jax.jit(lambda model: problem.gradient(model, 1, SAMPLES))
    text = jax.export.export(gradient, platforms=["tpu"])(jnp.zeros(4)).mlir_module()
    assert text.count("HIGHEST") >= 2 and "DEFAULT" not in text


# jo.lower, for the devices here.


def lower(task, algorithm=None, channel=None, **options):
    algorithm = algorithm or jo.cotaf(1e-2, 2, 2)
    return jo.lower(0, algorithm, channel or jo.Channel(), task, 3, 4, **options)


def shapes(history):
    return [leaf.shape for leaf in jax.tree.leaves(history)], history.every


def test_lowered_programs_are_those_that_simulate_and_sweep_run(task):
    algorithm, channel = jo.cobaaf(1e-2, 2, 2), jo.Channel(snr_db=jnp.array([0.0, 10.0]))
    history = jax.eval_shape(lambda: jo.simulate(0, algorithm, jo.Channel(), task, 3, 4))
    assert shapes(lower(task, algorithm).out_info) == shapes(history)
    assert lower(task, algorithm, channel).out_info.gap.shape == (2, 4, 3)
    swept = jo.cobaaf(jnp.array([1e-3, 1e-2]), 2, 2)  # calibrated in every setting
    assert lower(task, swept).out_info.gap.shape == (2, 4, 3)
    again = lower(task, algorithm, devices=jax.local_devices())
    assert shapes(again.out_info) == shapes(history)
    assert again.compile().memory_analysis().output_size_in_bytes > 0


def test_a_bad_argument_of_lower_is_one_line(task):
    with pytest.raises(InputError, match="rounds must be"):
        jo.lower(0, jo.cotaf(1e-2, 2, 2), jo.Channel(), task, 0, 4)
    with pytest.raises(TypeError, match="snr"):
        jo.lower(0, jo.cotaf(1e-2, 2, 2), jo.Channel(), task, 3, 4, snr=1)


# The compilers.

HOST = ("infeed", "outfeed", "send", "recv", "send-done", "recv-done")


def cases():
    """Pairs of a name and arguments of `jo.lower`: every algorithm, task and kind of channel."""
    from test_contract import ALGORITHMS
    from test_extend import UniformForcing

    task = jo.tasks.synthetic_regression(0)
    for name, algorithm in ALGORITHMS.items():
        yield f"regression, {name}", (algorithm, jo.Channel(), task)
    antennas = jo.Channel(fading=jo.rayleigh(answer=UniformForcing(), antennas=2))
    rng = np.random.default_rng(0)
    x, y = rng.random((4, 30, 8, 8)), rng.integers(0, 10, (4, 30))
    networks = {"softmax": jo.tasks.SoftmaxRegression(10), "CNN": jo.tasks.CNN(10, channels=(4, 8))}
    for name in ("cotaf", "cobaaf"):
        algorithm = ALGORITHMS[name]
        yield f"fading with antennas, {name}", (algorithm, antennas, task)
        for label, module in networks.items():
            images = jo.tasks.classification(module, (x, y), (x[0], y[0]))
            yield f"{label}, {name}", (algorithm, jo.Channel(), images)
    channel = jo.Channel(snr_db=jnp.array([0.0, 10.0]))
    yield "sweep over snr_db", (ALGORITHMS["cobaaf"], channel, task)
    rates = ALGORITHMS["cobaaf"].replace(local=jo.ControlVariateSGD(jnp.array([1e-3, 1e-2]), 2, 2))
    yield "sweep with calibrations", (rates, jo.Channel(), task)


def compile_all(name):
    """Compile all cases for a target and print what was found, a line of JSON each."""
    jax.config.update("jax_compilation_cache_dir", None)
    devices = targets.devices(targets.parse(name))
    for case, setup in cases():
        done = jo.lower(0, *setup, 3, 256, calibration_trials=4, devices=devices).compile()
        print(json.dumps([case, facts(done.as_text(), done.memory_analysis())]), flush=True)


def facts(text, memory):
    """Return what is wrong with a program, if anything, and the bytes of its temporaries."""
    run = list(hlo.uses(hlo.parse(text)))
    innermost = [use.op for use in run if [trips for _, trips in use.loops][-2:] == [3, 2]]
    return {
        "float64": "f64[" in text,
        "host": [use.op.name for use in run if use.op.opcode in HOST or "callback" in use.op.rest],
        "gathers": [op.name for op in innermost if "gather" in op.name],
        "steps": len(innermost),
        "temporaries": memory.temp_size_in_bytes,
    }


@pytest.mark.slow
@pytest.mark.parametrize("target", ["v5e", "v5e:2x2", "h100"])
def test_every_program_compiles_for(target):
    try:
        targets.require(targets.parse(target))
    except InputError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory() as folder:
        setting = os.environ | targets.environment(targets.parse(target), Path(folder))
        command = [sys.executable, __file__, target]
        done = subprocess.run(command, env=setting, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert list(found) == [name for name, _ in cases()]
    for name, about in found.items():
        assert not about["float64"] and not about["host"], (name, about)
        # 256 trials of 20 users with 10 parameters and 2 samples, or of a small network.
        assert about["temporaries"] < (2**29 if "CNN" in name else 2**26), (name, about)
        if target != "h100" and name.startswith("regression"):
            assert about["steps"] > 0 and not about["gathers"], (name, about)


if __name__ == "__main__":
    compile_all(sys.argv[1])
