"""Sweeps in real processes: killed, interrupted, sharded, on a cluster, on a full disk."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from agree import assert_same_bits, assert_same_numbers
from processes import assert_one_line, begun, finished, process, wait_for, without_devices

import jaxota as jo

SMALL = Path(__file__).parent / "small_study.py"
CHUNKS = 40  # of 3 trials, 2 settings × 60 trials

pytestmark = pytest.mark.xdist_group("scale")  # one worker: they share what was swept


def environment(devices=1, trials=3):
    """Of a process with so many devices, whose chunks are of so many trials."""
    flags = os.environ["XLA_FLAGS"]
    if devices:
        flags += f" --xla_force_host_platform_device_count={devices}"
    return os.environ | {"XLA_FLAGS": flags, "ROWS": str(trials)}


def command(*words, **options):
    """`jaxota`, at work."""
    return begun(*words, env=environment(**options))


def sweep(out, *words, **options):
    return command("sweep", SMALL, "--out", out, *words, **options)


def swept(out, *words, **options):
    """What a sweep that nothing disturbs leaves."""
    with sweep(out, *words, **options) as started:
        code, _, errors = finished(started)
    assert (code, without_devices(errors)) == (0, "")
    return jo.open(out)


def records(out):
    return [path for path in out.glob("chunks/*") if not path.name.startswith(".")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a sweep on one device, in one go."""
    out = tmp_path_factory.mktemp("whole") / "out"
    data = swept(out)
    assert data.attrs["chunks_done"] == data.attrs["chunks"] == CHUNKS
    assert not any(data[name].isnull().any() for name in data)
    return data.load()


@pytest.mark.slow
def test_a_killed_sweep_resumes_to_the_same_bits(whole, tmp_path):
    """Also where the folder is open meanwhile: what is there, is there, and the rest is NaN."""
    out = tmp_path / "out"
    with sweep(out) as started:
        wait_for(lambda: records(out), started)
        started.send_signal(signal.SIGKILL)
        started.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in records(out)}
    assert 0 < len(kept) < CHUNKS
    data = jo.open(out)
    assert data.attrs["chunks_done"] == len(kept) and data.attrs["chunks"] == CHUNKS
    there = data.gap.notnull().all(["algorithm", "evaluation"]).values
    assert there.sum() == 3 * len(kept)
    np.testing.assert_array_equal(
        data.gap.values[:, there], whole.gap.values[:, there], err_msg="what is there"
    )
    assert_same_bits(swept(out, "--resume"), whole)
    assert all((out / "chunks" / k).stat().st_mtime_ns == v for k, v in kept.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"devices": 8}, {"trials": 7}, {"trials": 60}, {"devices": 8, "trials": 60}],
    ids=lambda options: ", ".join(f"{n} {what}" for what, n in options.items()),
)
def test_devices_and_chunk_sizes_change_no_number_beyond_rounding(whole, tmp_path, options):
    """Not to the bit: a device that runs 1 trial, or 60, is given another program than for 3.

    XLA adds up in another order there, and most numbers differ in their last place.
    """
    assert_same_numbers(swept(tmp_path / "out", **options), whole)


@pytest.mark.slow
def test_shards_make_one_store(whole, tmp_path):
    """To the bit, as a chunk is the same program in each process. All begin at once."""
    out = tmp_path / "out"
    with contextlib.ExitStack() as stack:
        shards = [stack.enter_context(sweep(out, "--shard", f"{i}/3")) for i in range(3)]
        ends = [finished(shard) for shard in shards]
    assert [(code, without_devices(errors)) for code, _, errors in ends] == [(0, "")] * 3
    assert any("all of them" in printed for _, printed, _ in ends)
    assert_same_bits(jo.open(out), whole)


@pytest.mark.slow
def test_two_drivers_of_one_store_lose_nothing_and_count_nothing_twice(whole, tmp_path):
    out = tmp_path / "out"
    with contextlib.ExitStack() as stack:
        words = "--resume", "--keep", "mean"
        drivers = [stack.enter_context(sweep(out, *words)) for _ in range(2)]
        ends = [finished(driver) for driver in drivers]
    assert [(code, without_devices(errors)) for code, _, errors in ends] == [(0, "")] * 2
    data = jo.open(out)
    assert len(records(out)) == CHUNKS
    for name in ("trials", "used", "pairs"):
        assert (data[name] == 60).all()
    exact = whole.gap.astype("float64")
    np.testing.assert_allclose(data.gap_mean, exact.mean("trial"), rtol=1e-12)
    np.testing.assert_allclose(data.gap_var, exact.var("trial", ddof=1), rtol=1e-9)


@pytest.mark.slow
def test_an_interruption_says_what_is_kept_and_how_to_resume(whole, tmp_path):
    out = tmp_path / "out"
    with sweep(out) as started:
        wait_for(lambda: records(out), started)
        started.send_signal(signal.SIGINT)
        code, printed, errors = finished(started)
    kept = len(records(out))
    assert (code, printed) == (130, "") and 0 < kept < CHUNKS
    chunks = "1 finished chunk is" if kept == 1 else f"{kept} finished chunks are"
    assert_one_line(without_devices(errors), "interrupted", f"{chunks} kept in {out}", "--resume")
    assert_same_bits(swept(out, "--resume"), whole)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_full_or_read_only_disk_keeps_finished_chunks(whole, disk):
    folder, remount = disk("size=100k")  # a few chunks of 8 kB
    out = folder / "out"
    with sweep(out) as started:
        code, _, errors = finished(started)
    kept = len(records(out))
    assert code == 2 and 0 < kept < CHUNKS
    words = out, "No space left", f"finished chunks ({kept}) are kept", "--resume"
    assert_one_line(without_devices(errors), *words)
    assert jo.open(out).attrs["chunks_done"] == kept

    remount("size=8m,ro")
    with sweep(out, "--resume") as started:
        code, _, errors = finished(started)
    assert code == 2
    assert_one_line(errors, out, "Read-only file system")
    assert jo.open(out).attrs["chunks_done"] == kept

    remount("size=8m,rw")
    data = swept(out, "--resume").load()
    assert_same_bits(data, whole)


@pytest.mark.slow
def test_a_killed_run_of_an_experiment_resumes_to_the_same_numbers(tmp_path):
    words = "run", "fig1", "--trials", 400, "--rounds", 2, "--memory", "2M"
    outs = tmp_path / "killed", tmp_path / "whole"
    with command(*words, "--out", outs[0], "--resume") as started:
        parts = outs[0] / "fig1.parts"
        wait_for(lambda: records(parts), started)
        started.send_signal(signal.SIGKILL)
        started.wait()
    study = json.loads((parts / "study.json").read_text())
    chunks = -(-400 // study["space"]["blocks"]["trial"])
    assert len(records(parts)) < chunks and not (outs[0] / "fig1.csv").exists()
    for out, resume in zip(outs, (["--resume"], []), strict=True):
        with command(*words, "--out", out, *resume) as started:
            code, _, errors = finished(started)
        assert (code, without_devices(errors)) == (0, "")
    csvs = [(out / "fig1.csv").read_text() for out in outs]
    assert csvs[0] == csvs[1]


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path):
    out, begun = tmp_path / "out", time.monotonic()
    with sweep(out, "--scheduler", "tcp://127.0.0.1:9") as started:
        code, printed, errors = finished(started)
    assert (code, printed) == (2, "") and time.monotonic() - begun < 30
    assert_one_line(errors, "--scheduler tcp://127.0.0.1:9 did not answer within 10 s")
    assert not out.exists()


class Cluster:
    """A Dask scheduler and workers of 2 threads each."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "scheduler.json"
        self.stack, self.workers = contextlib.ExitStack(), []
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._options = quiet | {"env": environment(devices=None), "cwd": folder}
        where = "--host", "127.0.0.1", "--port", "0", "--scheduler-file", self.file
        started = self._start("scheduler", *where, "--dashboard-address", ":0")
        # Dask makes the file before it writes to it.
        wait_for(lambda: self.file.exists() and self.file.read_text().endswith("}"), started)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, *words):
        return self.stack.enter_context(process("-m", "dask", *words, **self._options))

    def add_worker(self):
        options = "--nthreads", 2, "--no-nanny", "--no-dashboard"
        self.workers.append(self._start("worker", self.address, *options))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    with made.stack:
        made.add_worker()
        made.add_worker()
        yield made


@pytest.fixture(scope="module")
def whole_on_two(tmp_path_factory):
    """What `whole` is, on two devices."""
    return swept(tmp_path_factory.mktemp("two") / "out", devices=2).load()


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits(cluster, whole, whole_on_two, tmp_path):
    """As one process with as many devices as a worker has, whatever the driver has."""
    data = swept(tmp_path / "out", "--scheduler", cluster.address)
    assert_same_bits(data, whole_on_two)
    assert_same_numbers(data, whole)


@pytest.mark.slow
def test_the_chunk_of_a_killed_worker_is_computed_by_another(cluster, whole_on_two, tmp_path):
    out = tmp_path / "out"
    with sweep(out, "--scheduler", cluster.address) as started:
        wait_for(lambda: records(out), started)
        victim = cluster.workers.pop(0)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        assert len(records(out)) < CHUNKS
        code, _, errors = finished(started)
    cluster.add_worker()
    assert (code, without_devices(errors)) == (0, "")
    assert_same_bits(jo.open(out), whole_on_two)
