"""How long does it take until a first result: tracing, lowering, compiling?

    python benchmarks/throughput/compile_time.py [--short] [--out DIR]

Every program in a process of its own, nothing cached; then `jaxota run fig1`, cold and warm.
"""

import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import bench


def programs():
    """By name, algorithm and task."""
    import jax
    import numpy as np

    import jaxota as jo

    rng = np.random.default_rng(0)
    x, y = rng.random((10, 60, 28, 28), np.float32), rng.integers(0, 10, (10, 60))

    def images(module):
        return jo.tasks.classification(module, (x, y), (x[0], y[0]))

    linear = jo.tasks.synthetic_regression(jax.random.key(0))
    local, online = (1e-2, 10, 10), jo.Online()
    return {
        "FedAvg, regression": (jo.fedavg(*local), linear),
        "COTAF, regression": (jo.cotaf(*local, precode=online), linear),
        "COBAAF, regression": (jo.cobaaf(*local, precode=online, estimate=jo.JamesStein()), linear),
        "COTAF, softmax": (
            jo.cotaf(*local, precode=online),
            images(jo.tasks.SoftmaxRegression(10)),
        ),
        "COTAF, CNN": (jo.cotaf(*local, precode=online), images(jo.tasks.CNN(10))),
    }


def measured(name):
    """Printed by a process of its own: seconds of tracing with lowering, and of compiling."""
    import jax

    import jaxota as jo
    from jaxota._core import arguments as _arguments
    from jaxota.simulation import program

    algorithm, task = programs()[name]
    run = jax.random.key(1), algorithm, jo.Channel(10.0), task, 20, 20
    arguments, options = _arguments.experiment(*run)
    marks = [time.perf_counter()]
    lowered = program.lower(options, **arguments)
    marks.append(time.perf_counter())
    lowered.compile()
    marks.append(time.perf_counter())
    print(json.dumps([b - a for a, b in itertools.pairwise(marks)]))


def figure(cache):
    """Seconds of `jaxota run fig1`: in all, and what it says of compiling."""
    os.environ["JAXOTA_CACHE"] = str(cache)
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        told = bench.child("-m", "jaxota", "run", "fig1", "--out", out)
        taken = time.perf_counter() - start
    compiling = re.search(r"([\d.]+) s compiling", told)
    return taken, float(compiling[1])


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    repeats, found, rows = 1 if given.short else 5, {}, []
    for name in programs():
        each = [json.loads(bench.child(__file__, name)) for _ in range(repeats)]
        lowering, compiling = (statistics.median(x) for x in zip(*each, strict=True))
        found[name] = {"lowering": lowering, "compiling": compiling}
        rows.append((name, f"{lowering:.2f}", f"{compiling:.2f}", ""))
    with tempfile.TemporaryDirectory() as folder:
        runs = {"jaxota run fig1, cold": "off", "jaxota run fig1, warm": Path(folder)}
        figure(Path(folder))  # fills the cache
        for name, cache in runs.items():
            each = [figure(cache) for _ in range(repeats)]
            taken, compiling = (statistics.median(x) for x in zip(*each, strict=True))
            found[name] = {"all": taken, "compiling": compiling}
            rows.append((name, "", f"{compiling:.2f}", f"{taken:.2f}"))
    header = "", "tracing and lowering, s", "compiling, s", "in all, s"
    bench.said(f"{question} Medians of {repeats}", bench.machine(), header, rows)

    def bars(axes):
        names = list(found)[::-1]
        compiling = [found[name]["compiling"] for name in names]
        before = [found[name].get("lowering", 0.0) for name in names]
        axes.barh(names, before, color="#56B4E9", label="tracing and lowering")
        axes.barh(names, compiling, left=before, color="#0072B2", label="compiling")
        axes.set_xlabel("seconds")
        axes.legend(fontsize=7)

    bench.kept(given.out, "compile_time", {"machine": bench.machine(), **found}, bars)


if __name__ == "__main__":
    if sys.argv[1:2] and "," in sys.argv[1]:
        measured(sys.argv[1])
    else:
        main()
