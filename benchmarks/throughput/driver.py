"""What does the driver, with its store, cost over bare calls of `simulate` for the same work?

    python benchmarks/throughput/driver.py

fig1's COTAF, as many trials in a call as in a chunk; compiling and calibration are not counted.
Both kinds run in turn.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import jax

import jaxota as jo
from jaxota._core import devices as _devices
from jaxota.study import executor as driver
from jaxota.study.executor import StudyJob

TURNS = 3


def main(trials: int) -> None:
    _devices.virtual()
    task = jo.tasks.synthetic_regression(jax.random.key(0))
    algorithm, channel, rounds = jo.cotaf(1e-2, 10, 10), jo.Channel(10.0), 60
    key = jax.random.key(1)
    study = jo.Study({"COTAF": algorithm}, channel, task, rounds, trials, key=key)
    jobs = {keep: StudyJob(study.replace(keep=keep)) for keep in ("trials", "mean")}
    layout = jobs["mean"].layout()
    chunks, size = layout.count, layout.trials_per_block
    plan = jo.calibrate(key, algorithm, task, rounds)

    def bare() -> None:
        for _ in range(chunks):
            history = jo.simulate(key, algorithm, channel, task, rounds, size, plan=plan)
            jax.device_get(history)

    def driven(keep: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            into = driver.open_sink(jobs[keep], Path(folder) / "store")
            driver.drive(jobs[keep], into)
            assert not into.missing()

    kinds = {"bare": bare, "trials": lambda: driven("trials"), "mean": lambda: driven("mean")}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    jo.simulate(key, algorithm, channel, task, rounds, size, plan=plan)
    for job in jobs.values():
        job.compute(job.layout(), 0)
    for _ in range(TURNS):
        for kind, run in kinds.items():
            start = time.perf_counter()
            run()
            seconds[kind].append(time.perf_counter() - start)
    each = {kind: statistics.median(times) for kind, times in seconds.items()}
    print(f"{jax.local_device_count()} devices, {trials} trials in {chunks} chunks of {size}")
    print(f"bare calls of simulate: {each['bare']:.1f} s (median of {TURNS})")
    for keep in ("trials", "mean"):
        over = each[keep] / each["bare"] - 1
        print(f"driver and store, keep {keep}: {each[keep]:.1f} s, {over:+.1%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
