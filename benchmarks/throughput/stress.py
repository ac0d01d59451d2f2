"""Does a sweep survive that its driver and its workers are killed, again and again?

    python benchmarks/throughput/stress.py [--kills 60] [--seed 0]

Small sweeps, here and on a Dask cluster of two workers, each into a store of its own. At random
moments the driver, or a worker, is killed (SIGKILL), a driver is started again with --resume and a
worker is replaced, until the sweep is whole. After each kill of a driver, and in the end: what has
a record is there to the bit, what has none is NaN, and no record was written a second time.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import jaxota as jo

STUDY = Path(__file__).parents[2] / "tests" / "small_study.py"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# One device everywhere, so that all processes run the same programs; 40 chunks of 3 trials.
ENVIRONMENT = os.environ | {"JAX_NUM_CPU_DEVICES": "1", "ROWS": "3"}


class Cluster:
    """A Dask scheduler and two workers."""

    def __init__(self, folder, stack):
        self.folder, self.stack, file = folder, stack, folder / "scheduler.json"
        where = "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file
        self._start("scheduler", *where, "--dashboard-address", ":0")
        while not file.exists():
            time.sleep(0.01)
        self.address = json.loads(file.read_text())["address"]
        self.workers = [self._worker(), self._worker()]

    def _start(self, *words):
        words = [sys.executable, "-m", "dask", *map(str, words)]
        started = subprocess.Popen(words, cwd=self.folder, env=ENVIRONMENT, **QUIET)
        self.stack.callback(_kill, started)
        return started

    def _worker(self):
        options = "--nthreads", 1, "--no-nanny", "--no-dashboard"
        return self._start("worker", self.address, *options)

    def kill_one(self, place):
        """Another takes its place."""
        _kill(self.workers[place])
        self.workers[place] = self._worker()


def _kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def driver(out, *words):
    command = [sys.executable, "-m", "jaxota", "sweep", STUDY, "--out", out, "--resume", *words]
    return subprocess.Popen(list(map(str, command)), env=ENVIRONMENT, **QUIET)


def records(out):
    """When each was written."""
    paths = [path for path in out.glob("commits/*.json") if not path.name.startswith(".")]
    return {path.name: path.stat().st_mtime_ns for path in paths}


def checked(out, whole, before):
    """Records, and that they are those from before and more, of the same bits as `whole`."""
    there = records(out)
    assert before.items() <= there.items(), "a finished chunk was lost, or done again"
    if not (out / "study.json").exists():
        assert not there
        return there
    data, then = jo.open(out), records(out)  # workers go on without their driver
    done = data.attrs["chunks_done"]
    assert len(there) <= done <= len(then), "a record without its chunk"
    place = data.participants.notnull().all(["algorithm", "round"]).values  # [snr_db, trial]
    assert place.sum() == 3 * done, "trials without a record, or not all of a chunk's"
    for name in whole:
        mine, expected = data[name].values, whole[name].values
        assert np.array_equal(mine[:, place], expected[:, place]), f"{name} differs"
        assert np.isnan(mine[:, ~place]).all(), f"{name} shows what is not finished"
    return there


def wait(started, out, chance):
    """Until a random moment of the start, or between any two records; whether it still runs."""
    if chance.random() < 0.2:
        until, count = time.monotonic() + chance.uniform(0, 3), 10**9
    else:
        until, count = time.monotonic() + 60, len(records(out)) + chance.randrange(1, 20)
    while started.poll() is None and time.monotonic() < until and len(records(out)) < count:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.03))
    return started.poll() is None


def disturbed(out, whole, chance, cluster):
    """A sweep until it is whole; how often its driver, and workers, were killed."""
    where = ("--scheduler", cluster.address) if cluster else ()
    killed, there = {"driver": 0, "worker": 0}, {}
    while True:
        started = driver(out, *where)
        while wait(started, out, chance) and sum(killed.values()) < 8:
            if cluster and chance.random() < 0.6:
                cluster.kill_one(chance.randrange(2))
                killed["worker"] += 1
                continue
            _kill(started)
            killed["driver"] += 1
            there = checked(out, whole, there)
            break
        code = started.wait()
        if code != -signal.SIGKILL:
            assert code == 0, f"a driver ended with {code}"
            there = checked(out, whole, there)
            assert len(there) == jo.open(out).attrs["chunks"]
            return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance, begun = random.Random(arguments.seed), time.monotonic()
    total, sweeps = {"driver": 0, "worker": 0}, 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        assert driver(folder / "whole").wait() == 0
        whole = jo.open(folder / "whole").load()
        cluster = Cluster(folder, stack)
        while sum(total.values()) < arguments.kills:
            killed = disturbed(folder / str(sweeps), whole, chance, cluster if sweeps % 2 else None)
            total = {what: total[what] + count for what, count in killed.items()}
            sweeps += 1
            words = ", ".join(f"{n} of {what}s" for what, n in killed.items())
            print(f"sweep {sweeps}, {'on a cluster' if cluster and not sweeps % 2 else 'here'}: "
                  f"{words}", flush=True)  # fmt: skip
    print(
        f"{sum(total.values())} kills ({total['driver']} of drivers, {total['worker']} of workers) "
        f"in {sweeps} sweeps of {whole.attrs['chunks']} chunks, {time.monotonic() - begun:.0f} s: "
        "nothing lost, nothing done twice, all equal to the undisturbed sweep to the bit"
    )


if __name__ == "__main__":
    main()
