"""How much memory does a run take, and is it bounded as trials, settings and models grow?

    python benchmarks/throughput/memory.py [--short] [--out DIR]

What the compiled program of `simulate` or `sweep` says it takes while it runs, beside what its
results are: the first should stay where it is as trials and settings grow.
"""

import bench
import jax
import jax.numpy as jnp

import jaxota as jo
from jaxota import sweeping
from jaxota._core import arguments as _arguments
from jaxota._core.devices import virtual
from jaxota.simulation import program


def taken(users=20, dim=10, trials=400, batch=10, rounds=60):
    """Bytes at work, and of results."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), users, 100, dim)
    algorithm = jo.cotaf(1e-3, 10, batch, precode=jo.Online())
    run = jax.random.key(1), algorithm, jo.Channel(10.0), task, rounds, trials
    arguments, options = _arguments.experiment(*run)
    return _bytes(program.lower(options, **arguments))


def swept(settings):
    found = []
    program = sweeping.program

    def spy(*positional, **named):
        found.append(_bytes(program.lower(*positional, **named)))
        return program(*positional, **named)

    sweeping.program = spy
    task = jo.tasks.synthetic_regression(jax.random.key(0))
    algorithm = jo.cotaf(1e-3, 10, 10, precode=jo.Online())
    snrs = jnp.linspace(-10.0, 20.0, settings)
    jo.sweep(jax.random.key(1), algorithm, jo.Channel(snrs), task, 60, 100)
    sweeping.program = program
    return found[0]


def _bytes(lowered):
    told = lowered.compile().memory_analysis()
    return told.temp_size_in_bytes, told.output_size_in_bytes


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    virtual()
    many = (100, 1_000, 10_000) if given.short else (100, 1_000, 10_000, 100_000)
    found = {
        "trials": {n: taken(trials=n) for n in many},
        "d": {n: taken(dim=n) for n in (10, 100, 1000)},
        "users": {n: taken(users=n) for n in (20, 100, 500)},
        "batch": {n: taken(batch=n) for n in (10, 100, 1000)},
        "settings": {n: swept(n) for n in (2, 8, 32)},
    }
    rows = [
        (axis, value, f"{work / 2**20:.1f}", f"{results / 2**20:.1f}")
        for axis, each in found.items()
        for value, (work, results) in each.items()
    ]
    header = "fig1's COTAF, changed", "to", "MiB at work, a device", "MiB of results, a device"
    facts = bench.machine() | bench.accelerator()
    bench.said(question, facts, header, rows)

    def curves(axes):
        for axis, each in found.items():
            values = [value / next(iter(each)) for value in each]
            axes.loglog(values, [w / 2**20 for w, _ in each.values()], "o-", label=axis)
        axes.set_xlabel("times the first value")
        axes.set_ylabel("MiB at work on a device")
        axes.legend(fontsize=7)

    bench.kept(given.out, "memory", {"machine": facts, **found}, curves)


if __name__ == "__main__":
    main()
