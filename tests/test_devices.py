"""Several devices do what one does, and nobody is made to have them."""

import json
import os
import subprocess
import sys
import textwrap
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo
from jaxota._core import capacity, devices
from jaxota._core.devices import Spread, in_chunks, on_devices, spread

HERE = types.SimpleNamespace(process_index=0)
COUNTS = [(8, 100, 1), (8, 8, 1), (8, 5, 1), (8, 1, 10), (8, 3, 7), (8, 2, 1), (1, 5, 5), (6, 4, 9)]


@pytest.mark.parametrize(("devices", "trials", "settings"), COUNTS)
def test_the_spread_minimises_the_largest_load(devices, trials, settings, monkeypatch):
    monkeypatch.setattr("jaxota._core.devices.target", lambda: [HERE] * devices)
    chosen = spread(trials, settings)
    assert chosen.devices <= devices and chosen.settings <= settings and chosen.trials <= trials

    def longest(over):
        return -(-settings // over.settings) * -(-trials // over.trials)

    ways = [Spread(s, t) for s in range(1, devices + 1) for t in range(1, devices // s + 1)]
    assert longest(chosen) == min(map(longest, ways))


def test_trials_are_preferred_to_settings(monkeypatch):
    """As they share their data."""
    monkeypatch.setattr(devices, "target", lambda: [HERE] * 8)
    assert spread(16, 16) == (1, 8) and spread(1, 16) == (8, 1) and spread(2, 16) == (4, 2)
    assert spread(16) == (1, 8) and spread(1) == (1, 1)


@pytest.mark.parametrize(("trials", "settings"), [(16, 16), (1, 16), (2, 16), (5, 1), (1, 1)])
def test_every_process_takes_part(trials, settings, monkeypatch):
    """Also where there is not enough work for all: a program must run in all processes."""
    here, there = (types.SimpleNamespace(process_index=n) for n in range(2))
    monkeypatch.setattr(devices, "target", lambda: [here] * 4 + [there] * 4)
    assert devices.processes() == 2 and spread(trials, settings).devices == 8


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_chunks_give_every_trial_once(chunk):
    """What does not divide is padded, and dropped again."""
    found = in_chunks(lambda t: {"square": t * t, "row": jnp.full(2, t)}, jnp.arange(7), chunk)
    np.testing.assert_array_equal(found["square"], np.arange(7) ** 2)
    assert found["row"].shape == (7, 2)


def test_settings_are_an_axis_before_trials():
    values, trials = [jnp.array([1.0, 2.0]), jnp.float32(10.0)], jnp.arange(3)

    def product(values, trials):
        return values[0] * values[1] * trials

    found = on_devices(product, Spread(), values, (0, None), trials)
    np.testing.assert_array_equal(found, [[0, 10, 20], [0, 20, 40]])
    one = on_devices(product, Spread(), [values[0][:1], values[1]], (0, None), trials)
    np.testing.assert_array_equal(one, [[0, 10, 20]])
    none = on_devices(product, Spread(), [values[0][1], values[1]], (None, None), trials)
    np.testing.assert_array_equal(none, [0, 20, 40])


def test_eigenvalues_are_those_of_numpy():
    half = np.random.default_rng(0).standard_normal((5, 4, 4)).astype(np.float32)
    matrices = half @ half.transpose(0, 2, 1)
    expected = np.linalg.eigvalsh(matrices)
    values = devices.eigenvalues(jnp.asarray(matrices))
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5)
    values, vectors = jax.vmap(devices.eigh)(jnp.asarray(matrices))
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5)
    again = np.einsum("nij,nj,nkj->nik", vectors, values, vectors)
    np.testing.assert_allclose(again, matrices, rtol=1e-3, atol=1e-3)


EIGHT_DEVICES = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
# What is run on one device here, and on eight in a process of its own.
ALL = """
import jax, jax.numpy as jnp, numpy as np, jaxota as jo
from jaxota._core import devices

KEY = jax.random.key(0)
TASK = jo.tasks.synthetic_regression(jax.random.key(1), 3, 6, 2)
RULE = jo.cobaaf(1e-2, 2, 2)

def everything():
    found = {}
    channel = jo.Channel(snr_db=5.0)
    run = jo.simulate(KEY, RULE, channel, TASK, 3, 11, calibration_trials=5)
    found |= {"simulate.model": run.model, "simulate.gap": run.gap}
    swept = channel.replace(snr_db=[0.0, 5.0, 9.0])
    swept = jo.sweep(KEY, RULE, swept, TASK, 3, 3, calibration_trials=5)
    found |= {"sweep.model": swept.model, "sweep.gap": swept.gap}
    plan = jo.calibrate(KEY, RULE, TASK, 3, 11)
    found |= {f"plan.{name}": value for name, value in vars(plan).items() if np.size(value)}
    # What some devices left, others take.
    again = jo.simulate(KEY, RULE, channel, TASK, 3, 3, plan=plan, initial=run.model[:3])
    found |= {"again.model": again.model, "again.gap": again.gap}
    study = jo.Study({"COBAAF": RULE}, channel, TASK, 3, 5, jo.grid(snr_db=[0.0, 5.0, 9.0]), KEY,
                     calibration_trials=5)
    data = study.run()
    found |= {"study.model": data.model.values, "study.gap": data.gap.values}
    return {name: np.asarray(value) for name, value in found.items()}
"""
EIGHT = """
import sys, json
exec(open(sys.argv[1]).read())
assert jax.local_device_count() == 8
np.savez(sys.argv[2], **everything())

# Someone's own program says itself where it runs: nothing in it is dealt out.
def last(snr_db):
    channel = jo.Channel(snr_db=snr_db)
    return jo.simulate(KEY, RULE, channel, TASK, 3, 8, calibration_trials=5).gap[:, -1]

words = str(jax.make_jaxpr(last)(5.0))
own = jax.jit(jax.vmap(last))(jnp.array([0.0, 5.0]))
ours = str(jax.make_jaxpr(lambda t: devices.on_devices(
    lambda v, t: t, devices.spread(8), [], (), t))(jnp.arange(8)))

print(json.dumps({"own": own.tolist(), "dealt out": "shard_map" in words,
                  "ours": "shard_map" in ours}))
"""


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """What eight virtual devices found, and what their process said."""
    folder = tmp_path_factory.mktemp("devices")
    (folder / "all.py").write_text(ALL)
    command = [sys.executable, "-c", EIGHT, str(folder / "all.py"), str(folder / "found.npz")]
    run = subprocess.run(
        command,
        env=os.environ | {"XLA_FLAGS": EIGHT_DEVICES},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    with np.load(folder / "found.npz") as found:
        return dict(found), json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
def test_eight_devices_give_the_results_of_one(eight):
    """11 trials, 3 settings of 3 or 5 trials, 5 and 11 calibrations: nothing divides by eight."""
    found, _ = eight
    assert jax.local_device_count() == 1
    space = {}
    exec(ALL, space)
    expected = space["everything"]()
    assert found.keys() == expected.keys() and found["simulate.gap"].shape == (11, 3)
    for name, values in expected.items():
        assert found[name].shape == values.shape, name
        scale = 1e-5 * np.abs(values).max()
        np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=scale, err_msg=name)


@pytest.mark.slow
def test_a_users_own_program_is_not_spread_over_devices(eight):
    found, told = eight
    assert told["ours"] and not told["dealt out"]
    assert np.shape(told["own"]) == (2, 8)
    np.testing.assert_allclose(told["own"][1], found["simulate.gap"][:8, -1], rtol=1e-3)


def _python(code, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=kept | environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.slow
def test_eigenvalues_on_several_devices_do_not_deadlock():
    """Data drawn anew in each trial: with the batches of LAPACK, all devices wait for ever."""
    code = """
        import jax, jaxota as jo
        task = jo.tasks.synthetic_regression(jax.random.key(1), 20, 50, 30, redraw=True)
        for seed in range(8):  # not every time
            key, rule = jax.random.key(seed), jo.fedavg(1e-3, 1, 2)
            run = jax.block_until_ready(jo.simulate(key, rule, jo.Channel(), task, 2, 64))
        print(jax.local_device_count(), run.gap.shape, bool(run.diverged.any()))
    """
    assert _python(code, XLA_FLAGS=EIGHT_DEVICES) == "8 (64, 2) False"


def test_importing_does_not_configure_jax():
    """Neither JAX's settings nor its devices, nor Python's; a study is run without any of it."""
    code = """
        import gc, os, signal, sys, warnings
        import jax
        def world():
            return (dict(jax.config.values), dict(os.environ), gc.get_threshold(),
                    signal.getsignal(signal.SIGINT), list(sys.path), list(warnings.filters))
        before = world()
        import jaxota as jo
        import jaxota.cli.main, jaxota.cli.run
        for name in dir(jo):
            getattr(jo, name)
        after = world()
        names = "config", "environ", "gc", "signal", "path", "warnings"
        print([n for n, a, b in zip(names, before, after) if a != b], jax.device_count())
    """
    assert _python(code) == "[] 1"


@pytest.mark.parametrize(
    ("environment", "count"),
    [({}, 3), ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, 2),
     ({"JAX_NUM_CPU_DEVICES": "4"}, 4)],
)  # fmt: skip
def test_the_command_makes_devices_unless_jax_is_configured(environment, count):
    code = """
        import jax
        from jaxota._core import devices
        devices.virtual(3)
        print(jax.device_count())
    """
    assert _python(code, **environment) == str(count)


def test_devices_stay_once_jax_has_started():
    jnp.ones(1)
    devices.virtual(5)
    assert jax.local_device_count() == 1


def test_the_limit_of_a_cgroup_counts(tmp_path, monkeypatch):
    """Of either version, of the process's own group or of one around it; not more than there is."""
    proc, root = tmp_path / "proc", tmp_path / "sys"
    proc.write_text("4:memory:/jobs/one\n3:cpu:/jobs\n0::/slice/two\n")
    for place, limit in {
        "memory/jobs/one/memory.limit_in_bytes": "9223372036854771712",
        "memory/jobs/memory.limit_in_bytes": "7000000",
        "slice/two/memory.max": "max",
        "slice/memory.max": "6000000",
        "memory.max": "8000000",
    }.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    files = list(capacity._limit_files(proc, root))
    assert not list(capacity._limit_files(tmp_path / "none", root))
    assert len(files) == 6 and {path.exists() for path in files} == {True, False}
    monkeypatch.setattr(capacity, "_limit_files", lambda: iter(files))
    capacity.machine_memory.cache_clear()
    try:
        assert capacity.machine_memory() == 6000000
        with pytest.raises(jo.InputError, match="this machine has 6 MB"):
            capacity.refuse_memory("trials", "all of it", 6000001)
        monkeypatch.setattr(capacity, "_limit_files", lambda: iter(()))
        capacity.machine_memory.cache_clear()
        assert capacity.machine_memory() > 6000000
    finally:
        capacity.machine_memory.cache_clear()


@pytest.mark.parametrize(
    ("platform", "count", "processes", "line"),
    [
        ("cpu", 1, 1, "1 CPU device"),
        ("cpu", 4, 2, "4 CPU devices, of 2 processes"),
        ("gpu", 1, 1, "1 GPU: NVIDIA H100"),
        ("tpu", 8, 1, "8 TPUs: NVIDIA H100"),
        ("other", 2, 1, "2 others: NVIDIA H100"),
    ],
)
def test_devices_are_one_line(platform, count, processes, line, monkeypatch):
    device = types.SimpleNamespace(platform=platform, device_kind="NVIDIA H100")
    monkeypatch.setattr(jax, "devices", lambda: [device] * count)
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    monkeypatch.setattr(devices, "_SIGNS", {})
    assert jo.devices() == line


def test_hardware_that_is_not_used_is_found_by_its_file_or_variable(monkeypatch, tmp_path):
    monkeypatch.setitem(jax.config.values, "jax_platforms", "")
    monkeypatch.setattr(devices, "_SIGNS", {("TPU", "tpu"): (str(tmp_path / "accel0"), "A_TPU")})
    assert devices.unused_hardware() is None
    (tmp_path / "accel0").touch()
    assert "NOT on the TPU" in jo.devices() and "pip install 'jaxota[tpu]'" in jo.devices()
    (tmp_path / "accel0").unlink()
    monkeypatch.setenv("A_TPU", "v5e")
    assert "NOT on the TPU" in jo.devices()
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert devices.unused_hardware() is None
