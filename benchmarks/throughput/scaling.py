"""What does a user-step cost as users, steps, dimensions, trials, rounds, settings, devices grow?

    python benchmarks/throughput/scaling.py [--short] [--out DIR]

fig1's COTAF with one of its numbers changed at a time. The cost of a user-step should not grow with
trials, rounds or settings once the machine is full.
"""

import json
import os
import sys

import bench

CORES = len(os.sched_getaffinity(0))
BASE = {"users": 20, "steps": 10, "dim": 10, "trials": 400, "rounds": 60, "settings": 1}
AXES = {
    "users": (5, 10, 20, 40, 80, 160),
    "steps": (1, 2, 5, 10, 20, 50),
    "dim": (2, 5, 10, 20, 50, 100),
    "trials": (1, 10, 50, 100, 200, 400, 800, 1600),
    "rounds": (10, 30, 60, 120, 240),
    "settings": (1, 2, 4, 7, 14),
}


def prepared(users, steps, dim, trials, rounds, settings):
    """A run, and how many user-steps it takes."""
    import jax
    import jax.numpy as jnp

    import jaxota as jo

    task = jo.tasks.synthetic_regression(jax.random.key(0), users, 100, dim)
    algorithm, key = jo.cotaf(1e-3, steps, 10), jax.random.key(1)
    plan = jo.calibrate(key, algorithm, task, rounds, 4)
    snr = jnp.linspace(-10.0, 20.0, settings) if settings > 1 else 10.0
    door = jo.sweep if settings > 1 else jo.simulate
    run = key, algorithm, jo.Channel(snr), task, rounds, trials
    count = users * steps * trials * rounds * settings
    return lambda: jax.block_until_ready(door(*run, plan=plan)), count


def measured(axis, repeats):
    """Printed by a process of its own: nanoseconds of a user-step by the value of one number."""
    runs, counts = {}, {}
    for value in AXES.get(axis, (None,)):
        numbers = BASE if value is None else BASE | {axis: value}
        runs[value], counts[value] = prepared(**numbers)
    seconds = bench.medians(runs, repeats)
    print(json.dumps({str(v): 1e9 * taken / counts[v] for v, taken in seconds.items()}))


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    repeats = 3 if given.short else 7
    found = {axis: json.loads(bench.child(__file__, axis, repeats, devices=CORES)) for axis in AXES}
    found["devices"] = {
        str(n): json.loads(bench.child(__file__, "devices", repeats, devices=n))["None"]
        for n in range(1, CORES + 1)
    }
    rows = [
        (axis, ", ".join(f"{value}: {cost:.0f}" for value, cost in costs.items()))
        for axis, costs in found.items()
    ]
    header = "changed", "nanoseconds of a user-step, all cores"
    bench.said(question, bench.machine() | BASE, header, rows)

    def curves(axes):
        for axis, costs in found.items():
            if axis != "devices":
                values = [float(value) / BASE[axis] for value in costs]
                if axis == "settings":
                    values = list(map(float, costs))
                axes.loglog(values, list(costs.values()), "o-", markersize=3, label=axis)
        axes.set_xlabel("times fig1's own number (settings: their number)")
        axes.set_ylabel("nanoseconds per user-step, all cores")
        axes.legend(fontsize=7)

    bench.kept(given.out, "scaling", {"machine": bench.machine(), **found}, curves)


if __name__ == "__main__":
    known = (*AXES, "devices")
    measured(sys.argv[1], int(sys.argv[2])) if sys.argv[1:2] and sys.argv[1] in known else main()
