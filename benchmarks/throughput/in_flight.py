"""How many trials in flight are best here: how much may the users' steps hold at once?

    python benchmarks/throughput/in_flight.py [--short] [--out DIR]

The same trials, so many at a time, on one device for all cores and on a device for each. Marked is
what `simulate` chooses; `jaxota/_core/devices.py` holds the number of bytes that it chooses by.
"""

import json
import os
import sys

import bench

CORES = len(os.sched_getaffinity(0))


def workloads(name):
    """Algorithm, task, rounds, trials and the numbers in flight to try."""
    import jax
    import numpy as np

    import jaxota as jo

    if name == "fig1, COTAF":
        task = jo.tasks.synthetic_regression(jax.random.key(0))
        return (
            jo.cotaf(1e-2, 10, 10, precode=jo.Online()),
            task,
            60,
            400,
            (400, 200, 100, 50, 25, 12),
        )
    rng = np.random.default_rng(0)
    samples = 600 if name == "MNIST, softmax" else 100
    x, y = rng.random((10, samples, 28, 28), np.float32), rng.integers(0, 10, (10, samples))
    module = jo.tasks.SoftmaxRegression(10) if samples == 600 else jo.tasks.CNN(10)
    task = jo.tasks.classification(module, (x, y), (x[0], y[0]))
    algorithm = jo.cotaf(1e-2, 5, 20, precode=jo.Online())
    return algorithm, task, *((10, 16) if samples == 600 else (2, 4)), (16, 8, 4, 2, 1)


NAMES = "fig1, COTAF", "MNIST, softmax", "MNIST, CNN"


def measured(name, repeats):
    """Printed by a process of its own: the rate for each number in flight, and what is chosen."""
    import jax

    import jaxota as jo
    from jaxota._core import arguments as _arguments
    from jaxota._core import devices as _devices
    from jaxota.simulation import program

    algorithm, task, rounds, trials, sizes = workloads(name)
    run = jax.random.key(1), algorithm, jo.Channel(10.0), task, rounds, trials
    arguments, options = _arguments.experiment(*run, every=rounds)
    most = -(-trials // options.over.trials)

    def with_size(size):
        chosen = options._replace(chunk=size)
        return lambda: jax.block_until_ready(program(chosen, **arguments))

    seconds = bench.medians({s: with_size(s) for s in sizes if s <= most}, repeats)
    count = trials * rounds * task.users * algorithm.local.steps
    held = 4 * _devices._floats_per_step(algorithm, task) * options.over.devices
    print(json.dumps({
        "rates": {size: count / taken for size, taken in seconds.items()},
        "chosen": min(options.chunk, most),
        "bytes": held,
    }))  # fmt: skip


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    found, rows = {}, []
    for name in NAMES:
        for devices in (1, CORES):
            told = bench.child(__file__, name, 3 if given.short else 7, devices=devices)
            facts = found[f"{name}, {devices} device{'s' * (devices > 1)}"] = json.loads(told)
            for size, rate in facts["rates"].items():
                mark = "chosen" if int(size) == facts["chosen"] else ""
                held = int(size) * facts["bytes"] / 2**20
                rows.append((name, devices, size, f"{held:.1f}", f"{rate:.2e}", mark))
    header = "", "devices", "in flight on each", "MiB held in a step", "user-steps/s", ""
    bench.said(question, bench.machine(), header, rows)

    def curves(axes):
        for name, facts in found.items():
            held = [int(size) * facts["bytes"] / 2**20 for size in facts["rates"]]
            best = max(facts["rates"].values())
            shares = [rate / best for rate in facts["rates"].values()]
            axes.semilogx(held, shares, "o-", markersize=3, linewidth=1, label=name)
        axes.set_xlabel("MiB that all users' steps in flight hold")
        axes.set_ylabel("rate, as a share of the best")
        axes.set_ylim(0, 1.05)
        axes.legend(fontsize=6)

    bench.kept(given.out, "in_flight", {"machine": bench.machine(), **found}, curves)


if __name__ == "__main__":
    measured(sys.argv[1], int(sys.argv[2])) if sys.argv[1:2] and sys.argv[1] in NAMES else main()
