"""What every algorithm over every channel owes: one contract, tested for all of them."""

import importlib

import jax
import numpy as np
import pytest
from jax import export

import jaxota as jo
from jaxota import entry

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
ALGORITHMS = {
    "fedavg": jo.fedavg(**LOCAL),
    "scaffold": jo.scaffold(**LOCAL),
    "noisy_fedavg": jo.noisy_fedavg(**LOCAL),
    "cotaf": jo.cotaf(**LOCAL),
    "baaf": jo.baaf(**LOCAL),
    "cobaaf": jo.cobaaf(**LOCAL),
    "cobaaf, other parts": jo.cobaaf(
        **LOCAL,
        control_batch=2,
        warm_start=True,
        precode=jo.Online(),
        estimate=jo.JamesStein(),
    ),
    "cobaaf, option 2": jo.cobaaf(**LOCAL, control_option=2, estimate=jo.PooledMMSE()),
}
CHANNELS = {
    "ideal": jo.Channel(snr_db=np.inf),
    "noisy": jo.Channel(snr_db=-10.0, snr_per="symbol", power=2.0, control_power=0.5),
}
ROUNDS, TRIALS = 3, 2
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
each_channel = pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)


def _program(algorithm, channel, task):
    arguments, options = entry.experiment(
        jax.random.key(0), algorithm, channel, task, ROUNDS, TRIALS, calibration_trials=3
    )
    program = importlib.import_module("jaxota.simulate")._program
    return program, arguments, options


@each_algorithm
@each_channel
def test_runs_repeatably_with_every_field_in_its_shape(task, algorithm, channel):
    history, again = (
        jo.simulate(
            jax.random.key(0), algorithm, channel, task, ROUNDS, TRIALS, calibration_trials=3
        )
        for _ in range(2)
    )
    controlled = algorithm.local.controlled
    for name in ("loss", "gap", "power", "error", "participants"):
        assert getattr(history, name).shape == (TRIALS, ROUNDS), name
    for name in ("control_power", "control_error"):
        value = getattr(history, name)
        assert value.shape == (TRIALS, ROUNDS) if controlled else value == (), name
    assert history.accuracy == () and history.user_power == ()
    assert history.model.shape == history.average.shape == (TRIALS, task.dim)
    for first, second in zip(jax.tree.leaves(history), jax.tree.leaves(again), strict=True):
        assert np.isfinite(first).all() and first.dtype == np.float32
        np.testing.assert_array_equal(first, second)
    assert (history.participants == task.users).all()
    assert (history.gap >= 0).all()
    data = history.to_xarray()
    assert set(data.gap.dims) == {"trial", "evaluation"}
    assert set(data.data_vars) == {
        name for name in vars(history) if not isinstance(getattr(history, name), tuple | dict | int)
    }


@each_algorithm
@each_channel
def test_exports_for_cpu_cuda_and_tpu(algorithm, channel):
    """Calibration and run together, data drawn inside: free of parts that one platform lacks."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), 3, 5, 2)
    program, arguments, options = _program(algorithm, channel, task)
    exported = export.export(program, platforms=("cpu", "cuda", "tpu"))(**arguments, **options)
    assert set(exported.platforms) == {"cpu", "cuda", "tpu"}


@each_algorithm
@each_channel
def test_nothing_calls_back_to_python(task, algorithm, channel):
    program, arguments, options = _program(algorithm, channel, task)
    assert "callback" not in program.lower(**arguments, **options).as_text()
