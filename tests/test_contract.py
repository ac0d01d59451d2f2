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
    "rayleigh": jo.Channel(fading=jo.rayleigh(csi_error=0.01, correlation=0.5)),
    "rician": jo.Channel(fading=jo.rician(2.0), gains=[0.5, 1.0, 2.0, 1.0]),
    "nakagami": jo.Channel(fading=jo.nakagami(1.5)),
    "participants": jo.Channel(participants=2),
}
ROUNDS, TRIALS = 3, 2
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
each_channel = pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)


@pytest.fixture(scope="module")
def plan(task):
    return jo.calibrate(jax.random.key(0), jo.cobaaf(**LOCAL), task, ROUNDS, 3)


@each_algorithm
@each_channel
def test_runs_repeatably_with_every_field_in_its_shape(task, plan, algorithm, channel):
    history, again = (
        jo.simulate(jax.random.key(0), algorithm, channel, task, ROUNDS, TRIALS, plan=plan)
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
    assert (history.participants <= task.users).all()
    assert (history.gap >= 0).all()
    data = history.to_xarray()
    assert set(data.gap.dims) == {"trial", "evaluation"}
    assert set(data.data_vars) == {
        name for name in vars(history) if not isinstance(getattr(history, name), tuple | dict | int)
    }


@each_algorithm
@each_channel
def test_exports_for_cpu_cuda_and_tpu(algorithm, channel):
    """Calibration and run together, data drawn inside: nothing that one platform lacks, and no
    call back to Python."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), 4, 5, 2)
    arguments, options = entry.experiment(
        jax.random.key(0), algorithm, channel, task, ROUNDS, TRIALS, calibration_trials=3
    )
    program = importlib.import_module("jaxota.simulate")._program
    exported = export.export(program, platforms=("cpu", "cuda", "tpu"))(**arguments, **options)
    assert set(exported.platforms) == {"cpu", "cuda", "tpu"}
    assert "callback" not in exported.mlir_module()
