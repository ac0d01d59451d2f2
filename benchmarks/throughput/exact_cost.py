"""How does the cost of an exact curve grow in users, samples, parameters and rounds?

python benchmarks/throughput/exact_cost.py

Seconds of processor time of FedAvg and SCAFFOLD, compiled, at fig1's setting (K = 10, m = 10) with
one number changed at a time; the least of three runs.
"""

import time

import jaxota as jo

BASE = {"users": 20, "samples": 100, "dim": 10, "rounds": 60}
CHANGED = {"users": 80, "samples": 400, "rounds": 240, "dim": 40}
LOCAL = {"step_size": 1e-3, "steps": 10, "batch": 10}


def seconds(algorithm, rounds, **sizes):
    """Return the processor time of one curve; the first run compiles."""
    task, channel, times = jo.tasks.synthetic_regression(0, **sizes), jo.Channel(), []
    for _ in range(4):
        begun = time.process_time()
        jo.exact(algorithm, channel, task, rounds)
        times.append(time.process_time() - begun)
    return min(times[1:])


def main():
    """Print a table: what was changed, seconds of either algorithm, and their ratio to fig1."""
    algorithms = jo.fedavg(**LOCAL), jo.scaffold(**LOCAL)
    base = [seconds(algorithm, **BASE) for algorithm in algorithms]
    print(BASE, *(f"{x:.3f} s" for x in base), flush=True)
    for name, value in CHANGED.items():
        own = [seconds(algorithm, **BASE | {name: value}) for algorithm in algorithms]
        cells = (f"{x:.3f} s, × {x / first:.1f}" for x, first in zip(own, base, strict=True))
        print(f"{name} = {value}:", *cells, flush=True)


if __name__ == "__main__":
    main()
