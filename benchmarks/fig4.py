"""Where do the time and the memory of fig4 go?

    python benchmarks/fig4.py [--data-dir DIR] [--trials 20] [--rounds 100]

Phases as the command runs them, and what scoring adds: the same run, scored once at its end.
"""

import argparse
import dataclasses
import os
import resource
import time

import jax

from jaxota.experiments import runner
from jaxota.experiments.figures import EXPERIMENTS


def phases(experiment) -> dict[str, float]:
    """Seconds that each phase of a run takes."""
    marks = []

    def report(what, done=0, of=None, steps=0.0):
        marks.append((what, time.perf_counter()))

    runner.run(experiment, report=report)
    ends = [start for _, start in marks[1:]] + [time.perf_counter()]
    seconds = dict.fromkeys((what for what, _ in marks), 0.0)
    for (what, start), end in zip(marks, ends, strict=True):
        seconds[what] += end - start
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    experiment = EXPERIMENTS["fig4"]
    task = dataclasses.replace(experiment.task, data_dir=options.data_dir)
    numbers = {"trials": options.trials, "rounds": options.rounds}
    experiment = dataclasses.replace(experiment, task=task, **numbers)
    scored_once = dataclasses.replace(experiment, every=experiment.rounds)
    print(
        f"{os.cpu_count()} cores, jax {jax.__version__} on {jax.devices()[0].platform}, {numbers}"
    )
    seconds, once = phases(experiment), phases(scored_once)
    for what, taken in seconds.items():
        print(f"{what:18}{taken:8.1f} s")
    scoring = seconds["running"] - once["running"]
    print(f"of running, {scoring:.1f} s are scoring every {experiment.every} rounds")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()
