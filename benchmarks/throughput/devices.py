"""How much faster are virtual CPU devices, one for each core, than one device on all cores?

    python benchmarks/throughput/devices.py

Each measurement is a process of its own, as a backend cannot change its devices; both kinds run in
turn. Compiling is not counted.
"""

import os
import statistics
import subprocess
import sys
import time

TURNS, REPEATS = 3, 5


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores; medians of {TURNS} processes × {REPEATS} runs, in turn")
    for name in WORKLOADS:
        seconds: dict[int, list[float]] = {1: [], cores: []}
        for _ in range(TURNS):
            for devices in seconds:
                seconds[devices] += _measured(name, devices)
        one, many = (statistics.median(each) for each in seconds.values())
        print(f"{name}: 1 device {one:.3f} s, {cores} devices {many:.3f} s: {one / many:.2f} ×")


def _measured(name: str, devices: int) -> list[float]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, __file__, name],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


def _figure():
    """fig1 as it is run: five algorithms side by side, 100 trials, and both calibrations."""
    from jaxota.figures import FIGURES
    from jaxota.study.executor import StudyJob

    study = FIGURES["fig1"].study(0)
    jobs = [StudyJob(study)]

    def run():
        """Compiled programs are handed on, plans are not."""
        job = StudyJob(study)
        job._programs._compiled |= jobs[0]._programs._compiled
        jobs[0] = job
        return job.compute(job.layout(), 0)

    return run


def _fig1():
    """fig1's COTAF: 20 users, 10 steps, batch 10, d = 10, 60 rounds, 400 trials, plan given."""
    import jax

    import jaxota as jo

    task = jo.tasks.synthetic_regression(jax.random.key(0))
    algorithm = jo.cotaf(1e-2, 10, 10)
    plan = jo.calibrate(jax.random.key(1), algorithm, task, 60)
    run = jax.random.key(1), algorithm, jo.Channel(10.0), task, 60, 400
    return lambda: jo.simulate(*run, plan=plan).gap


def _fig4():
    """fig4's BAAF on arrays of MNIST's shapes: 10 users, 5 steps, batch 20, 10 rounds, 8 trials."""
    import jax
    import numpy as np

    import jaxota as jo

    rng = np.random.default_rng(0)
    features = rng.random((10, 600, 28, 28), np.float32)
    labels = rng.integers(0, 10, (10, 600))
    test = features[0], labels[0]
    task = jo.tasks.classification(jo.tasks.SoftmaxRegression(10), (features, labels), test)
    algorithm = jo.baaf(1e-2, 5, 20)
    plan = jo.calibrate(jax.random.key(1), algorithm, task, 10, 8)
    run = jax.random.key(1), algorithm, jo.Channel(10.0), task, 10, 8
    return lambda: jo.simulate(*run, plan=plan, every=10).loss


WORKLOADS = {"fig1, the figure": _figure, "fig1, COTAF, 400 trials": _fig1, "fig4, BAAF": _fig4}


def _work(name: str) -> None:
    """Printed by a process of its own: the seconds of each run."""
    run = WORKLOADS[name]()
    import jax

    jax.block_until_ready(run())
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run())
        print(time.perf_counter() - start)


if __name__ == "__main__":
    _work(sys.argv[1]) if len(sys.argv) > 1 else main()
