"""How long does a store of 2,000 chunks take to write, read, grow, and to share while it is read?

Chunks hold random numbers in place of results, so that the time is that of the store alone. Times
are of all cores of the process, which others on the machine do not change; two drivers are timed
by the clock.

    python benchmarks/throughput/store.py [--chunks 2000]
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import jaxota as jo
from jaxota._core import capacity
from jaxota.study import executor
from jaxota.study.store import Store

TRIALS = 10  # of a chunk


def study(chunks):
    """Two algorithms, ten settings, 60 rounds, d = 10: about 60 kB a chunk."""
    numbers = np.random.default_rng(0)
    return jo.Study(
        {"COTAF": jo.cotaf(0.05, 2, 3), "COBAAF": jo.cobaaf(0.05, 2, 3)},
        jo.Channel(10.0),
        jo.tasks.regression(numbers.standard_normal((4, 15, 10)), numbers.standard_normal((4, 15))),
        rounds=60,
        trials=TRIALS * max(1, chunks // 10),
        over=jo.grid(snr_db=list(range(10))),
    )


def fake(job, layout, number, *_):
    """Numbers as random as results, from the seed of a chunk's place."""
    place = [*layout.index(number).values()]
    numbers = np.random.default_rng(place)
    shapes = {name: values.shape for name, values in layout.empty(number).items()}
    return {k: numbers.standard_normal(s, dtype="float32") for k, s in shapes.items()}


def drive(folder, chunks):
    """Fill the store, or what is left of it."""
    capacity.rows_at_once = lambda *_: TRIALS
    executor.StudyJob.compute = fake
    job = executor.StudyJob(study(chunks))
    sink = executor.open_sink(job, folder, resume=True)  # compiles a program, to learn its memory
    begun = time.process_time()
    executor.drive(job, sink)
    return time.process_time() - begun


def read(folder):
    begun = time.process_time()
    data = Store(folder).dataset().load()
    assert data.attrs["chunks_done"] == data.attrs["chunks"]
    return time.process_time() - begun


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=2000)
    chunks = parser.parse_args(argv).chunks
    fresh = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "one"
        seconds = drive(folder, chunks)
        print(f"write {chunks} chunks: {seconds:.1f} s, {1e3 * seconds / chunks:.1f} ms each")
        inside = [path.stat() for path in folder.rglob("*") if path.is_file()]
        size = sum(status.st_size for status in inside)
        numbers = Store(folder).layout.bytes
        print(f"{len(inside)} files, {size / 1e6:.1f} MB of {numbers / 1e6:.1f} MB of numbers")
        print(f"read them all: {min(read(folder) for _ in range(2)):.2f} s")
        print(f"grow by a tenth: {drive(folder, chunks + chunks // 10):.1f} s")
        two = Path(scratch) / "two"
        drivers = [fresh.Process(target=drive, args=(two, chunks)) for _ in range(2)]
        begun = time.perf_counter()
        for driver in drivers:
            driver.start()
        reads, longest = 0, 0.0
        while any(driver.is_alive() for driver in drivers):
            if (two / "study.json").exists():
                started = time.perf_counter()
                data = Store(two).dataset().load()
                longest, reads = max(longest, time.perf_counter() - started), reads + 1
                there = np.isfinite(data.gap).all(["algorithm", "evaluation"])
                assert there.sum() == TRIALS * data.attrs["chunks_done"]
            time.sleep(0.1)
        assert [driver.exitcode for driver in drivers] == [0, 0]
        print(f"two drivers: {time.perf_counter() - begun:.1f} s from their start to their end")
        print(f"{reads} readings meanwhile, the longest {longest:.2f} s; all of whole chunks")
        read(two)
    return 0


if __name__ == "__main__":
    sys.exit(main())
