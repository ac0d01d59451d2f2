"""Does a sweep survive that its driver and its workers are killed, again and again?

    python benchmarks/throughput/stress.py [--kills 60] [--seed 0]

Small sweeps, here and on a Dask cluster of two workers, each into a store of its own. At random
moments, and while a chunk is being written, the driver or a worker is killed (SIGKILL), or the
driver is interrupted (SIGINT, SIGTERM, SIGHUP). A driver is started again with --resume and a
worker is replaced, until the sweep is whole. Meanwhile a reader opens the store over and over, and
another one runs `jaxota show`. After each end of a driver, at each reading and in the end: a chunk
that is there holds the right bits, what is not there is NaN, and no chunk was written a second
time.
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
import threading
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


# A driver that was started in the background of a script would not heed SIGINT.
HEEDING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxota.__main__ import main
main()
"""
SIGNALS = signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def driver(out, *words):
    command = [sys.executable, "-c", HEEDING, "sweep", STUDY, "--out", out, "--resume", *words]
    return subprocess.Popen(list(map(str, command)), env=ENVIRONMENT, **QUIET)


def chunks(out):
    """When each was written."""
    paths = [path for path in out.glob("chunks/*") if not path.name.startswith(".")]
    return {path.name: path.stat().st_mtime_ns for path in paths}


def checked(out, whole, before):
    """Chunks, and that they are those from before and more, of the same bits as `whole`."""
    there = chunks(out)
    assert before.items() <= there.items(), "a finished chunk was lost, or done again"
    if not (out / "study.json").exists():
        assert not there
        return there
    done = read(out, whole)
    assert len(there) <= done <= len(chunks(out)), "a chunk that does not count"
    return there


def read(out, whole):
    """Open a store that may be at work; the number of its chunks."""
    data = jo.open(out)
    done = data.attrs["chunks_done"]
    place = data.participants.notnull().all(["algorithm", "round"]).values  # [snr_db, trial]
    assert place.sum() == 3 * done, "trials without a record, or not all of a chunk's"
    for name in whole:
        mine, expected = data[name].values, whole[name].values
        assert np.array_equal(mine[:, place], expected[:, place]), f"{name} differs"
        assert np.isnan(mine[:, ~place]).all(), f"{name} shows what is not finished"
    return done


class Readers:
    """Two readers of a store, over and over: in this process, and by `jaxota show`."""

    def __init__(self, out, whole):
        self.counts, self.faults, self._stop = [0, 0], [], threading.Event()
        work = (self._open, self._show)
        self._threads = [threading.Thread(target=each, args=(out, whole)) for each in work]
        for thread in self._threads:
            thread.start()

    def _open(self, out, whole):
        while not self._stop.wait(0.05):
            if (out / "study.json").exists():
                try:
                    read(out, whole)
                except Exception as error:
                    self.faults.append(f"{type(error).__name__}: {error}")
                self.counts[0] += 1

    def _show(self, out, whole):
        while not self._stop.wait(6):  # it takes a few seconds by itself
            if (out / "study.json").exists():
                command = [sys.executable, "-m", "jaxota", "show", str(out)]
                done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
                if done.returncode or done.stderr:
                    self.faults.append(f"show: {done.returncode}: {done.stderr}")
                self.counts[1] += 1

    def end(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.faults, self.faults
        return self.counts


def wait(started, out, chance):
    """Until a random moment of the start, between two chunks, or inside one; whether it runs."""
    moment = chance.random()
    until, count = time.monotonic() + 60, len(chunks(out)) + chance.randrange(1, 9)
    if moment < 0.2:
        until, count = time.monotonic() + chance.uniform(0, 3), 10**9
    while started.poll() is None and time.monotonic() < until and len(chunks(out)) < count:
        time.sleep(0.001)
    if moment > 0.6:  # while a draft is there
        until = time.monotonic() + 1
        while started.poll() is None and time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):  # gone while it was looked at
                if any(out.glob("chunks/.jaxota-*/[!.]*")):
                    return True
    time.sleep(chance.uniform(0, 0.03))
    return started.poll() is None


def disturbed(out, whole, chance, cluster):
    """A sweep until it is whole; how often its driver, and workers, were killed."""
    where, ends = (
        ("--scheduler", cluster.address) if cluster else (),
        {0, *(code for s in SIGNALS for code in (-s, 128 + s))},
    )
    killed, there = {"driver": 0, "worker": 0}, {}
    while True:
        started = driver(out, *where)
        while wait(started, out, chance) and sum(killed.values()) < 12:
            if cluster and chance.random() < 0.6:
                cluster.kill_one(chance.randrange(2))
                killed["worker"] += 1
                continue
            started.send_signal(chance.choice(SIGNALS))
            started.wait()
            killed["driver"] += 1
            there = checked(out, whole, there)
            break
        code = started.wait()
        assert code in ends, f"a driver ended with {code}"
        if code == 0:
            there = checked(out, whole, there)
            assert len(there) == jo.open(out).attrs["chunks"]
            return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance, begun = random.Random(arguments.seed), time.monotonic()
    total, sweeps, readings = {"driver": 0, "worker": 0}, 0, [0, 0]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        assert driver(folder / "whole").wait() == 0
        whole = jo.open(folder / "whole").load()
        cluster = Cluster(folder, stack)
        while sum(total.values()) < arguments.kills:
            readers = Readers(folder / str(sweeps), whole)
            try:
                which = cluster if sweeps % 2 else None
                killed = disturbed(folder / str(sweeps), whole, chance, which)
            finally:
                readings = [n + m for n, m in zip(readings, readers.end(), strict=True)]
            total = {what: total[what] + count for what, count in killed.items()}
            sweeps += 1
            words = ", ".join(f"{n} of {what}s" for what, n in killed.items())
            print(f"sweep {sweeps}, {'on a cluster' if cluster and not sweeps % 2 else 'here'}: "
                  f"{words}", flush=True)  # fmt: skip
    print(
        f"{sum(total.values())} kills ({total['driver']} of drivers, {total['worker']} of workers) "
        f"in {sweeps} sweeps of {whole.attrs['chunks']} chunks, {time.monotonic() - begun:.0f} s: "
        "nothing lost, nothing done twice, all equal to the undisturbed sweep to the bit; "
        f"{readings[0]} readings and {readings[1]} of `jaxota show` meanwhile, all right"
    )


if __name__ == "__main__":
    main()
