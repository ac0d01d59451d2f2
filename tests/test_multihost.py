"""Several processes, joined by `jax.distributed`, give the numbers of one."""

import contextlib
import os
import socket

import numpy as np
import pytest
from processes import finished, process

pytestmark = pytest.mark.slow

# Arguments: a folder, devices, the port of the first process, processes, and which of them this is.
SCRIPT = """
import sys
from pathlib import Path

import jax
import numpy as np

out, count, port, processes, number = Path(sys.argv[1]), *map(int, sys.argv[2:])
jax.config.update("jax_num_cpu_devices", count)
if processes > 1:
    jax.distributed.initialize(f"localhost:{port}", processes, number, initialization_timeout=60)

import jaxota as jo
from jaxota._core import capacity, devices
from jaxota.study.executor import StudyJob

capacity.rows_at_once = lambda *_: 2  # so that there are several chunks
computed, compute = [], StudyJob.compute
StudyJob.compute = lambda job, layout, number, *rest: (
    computed.append(number), compute(job, layout, number, *rest))[1]

rows = {}
def note(name, history):
    rows.update({f"{name}.gap": history.gap, f"{name}.model": history.model,
                 f"{name}.power": history.power})

print(jo.devices())
task = jo.tasks.synthetic_regression(0, users=3, samples=10, dim=3)
cotaf, channel, few = jo.cotaf(1e-2, 1, 2), jo.Channel(10.0), {"calibration_trials": 5}
note("simulate", jo.simulate(1, cotaf, channel, task, 2, 5, **few))
note("sweep", jo.sweep(1, cotaf, jo.Channel(np.arange(3.0)), task, 2, 1, **few))
plan = jo.calibrate(1, cotaf, task, 2, trials=3)
rows |= {f"plan.{name}": value for name, value in vars(plan).items() if value is not None}
if number == 0:  # results are a process's own: one alone may go on with them
    rows["mean"] = jax.numpy.mean(rows["simulate.gap"], 0)

over = jo.grid(snr_db=[0, 10])
note("grid", jo.sweep(1, cotaf, channel, task, 2, 4, over=over, **few))
rows["chunks.grid"] = np.sort(computed)
study = jo.Study({"a": cotaf}, channel, task, 2, 4, over=over, keep="mean", **few)
rows |= {f"memory.{k}": v.values for k, v in study.run().items()}
rows |= {f"store.{k}": v.values for k, v in study.run(out / "store").items()}
np.savez(out / f"{number}.npz", **{k: np.asarray(v) for k, v in rows.items()})
"""


@contextlib.contextmanager
def started(folder, devices, processes):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    folder.mkdir()
    clean = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    with contextlib.ExitStack() as stack:
        words = "-c", SCRIPT, folder, devices, port, processes
        yield [stack.enter_context(process(*words, n, env=clean)) for n in range(processes)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process with two devices found, and two processes that have one each."""
    top = tmp_path_factory.mktemp("multihost")
    found = {}
    with started(top / "one", 2, 1) as one, started(top / "two", 1, 2) as two:
        for name, started_ in {"one": one, "two": two}.items():
            ends = [finished(each) for each in started_]
            assert all(code == 0 for code, _, _ in ends), ends
            said = "2 CPU devices" + (", of 2 processes" if name == "two" else "")
            assert all(said in printed for _, printed, _ in ends), ends
            found[name] = [dict(np.load(top / name / f"{n}.npz")) for n in range(len(ends))]
    return found


def test_every_process_has_the_numbers_of_one(results):
    (one,), two = results["one"], results["two"]
    for other in two:
        for name in one.keys() - {"chunks.grid", "mean"}:
            scale = np.nanmax(np.abs(one[name]), initial=0.0)
            np.testing.assert_allclose(
                other[name], one[name], rtol=1e-5, atol=1e-6 * scale, err_msg=name
            )
            if name.split(".")[0] in ("simulate", "sweep", "plan"):  # one program
                np.testing.assert_array_equal(other[name], one[name], err_msg=name)


def test_processes_have_the_same_bits(results):
    first, second = results["two"]
    for name in second.keys() - {"chunks.grid"}:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_processes_share_the_chunks_of_a_study(results):
    (one,), two = results["one"], results["two"]
    shares = [each["chunks.grid"].tolist() for each in two]
    assert len(set(shares[0]) & set(shares[1])) == 0
    assert sorted(shares[0] + shares[1]) == one["chunks.grid"].tolist()
    assert min(map(len, shares)) > 0
