"""Where does the time go on images of MNIST's size: steps, scores, calibration, layout?

    python benchmarks/throughput/mnist.py [--short] [--out DIR]

fig4's BAAF (softmax regression, 10 users of 600 samples, 5 steps, batch 20) and the CNN, on random
images. "As vectors" is the same run with the users' models held as flat vectors in their steps.
"""

import bench
import jax
import numpy as np

import jaxota as jo
from jaxota._core import devices as _devices
from jaxota.stages import local
from jaxota.tasks.empirical_risk import Empirical

USERS, STEPS, BATCH = 10, 5, 20


def task(module, samples):
    rng = np.random.default_rng(0)
    x = rng.random((USERS, samples, 28, 28), np.float32)
    y = rng.integers(0, 10, (USERS, samples))
    return jo.tasks.classification(module, (x, y), (x.reshape(-1, 28, 28)[:2000], y.ravel()[:2000]))


@jo.part
class Flat:
    """A task whose problem offers no layout."""

    task: Empirical

    def __getattr__(self, name):
        if name == "layout" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.task, name)

    def problem(self, trial):
        return self

    def head(self):
        return Flat(self.task.head())


def runs(name, module, samples, make, trials, rounds):
    """By what is left out or changed, a run, and how many user-steps it takes."""
    whole, key = task(module, samples), jax.random.key(1)
    algorithm, channel = make(1e-2, STEPS, BATCH), jo.Channel(10.0)
    plan = jo.calibrate(key, algorithm, whole, rounds, 2)

    def run(task=whole, every=rounds):
        history = jo.simulate(key, algorithm, channel, task, rounds, trials, plan=plan, every=every)
        return jax.block_until_ready(history)

    count = USERS * STEPS * trials * rounds
    return {
        f"{name}": (run, count),
        f"{name}, scored in every round": (lambda: run(every=1), count),
        f"{name}, as vectors": (lambda: run(Flat(whole)), count),
        f"{name}, calibration": (
            lambda: jax.block_until_ready(jo.calibrate(key, algorithm, whole, rounds, trials)),
            count,
        ),
    }


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    _devices.virtual()
    assert isinstance(local.layout_of(Flat(task(jo.tasks.MLP(10), 2))), local.FlatLayout)
    kinds = {
        "softmax": (jo.tasks.SoftmaxRegression(10), 600, jo.baaf, 16, 20),
        "CNN": (jo.tasks.CNN(10), 100, jo.baaf, 4, 2 if given.short else 4),
    }
    both = [runs(name, *kind) for name, kind in kinds.items()]
    each = both[0] | both[1]
    repeats = 3 if given.short else 7
    seconds = bench.medians({name: run for name, (run, _) in each.items()}, repeats)
    rates = {name: count / seconds[name] for name, (_, count) in each.items()}
    rows = [(name, f"{rate:.2e}") for name, rate in rates.items()]
    facts = bench.machine() | bench.accelerator()
    bench.said(f"{question} Medians of {repeats}", facts, ("", "user-steps/s"), rows)

    def bars(axes):
        axes.barh(list(rates)[::-1], list(rates.values())[::-1], color="#0072B2")
        axes.set_xscale("log")
        axes.set_xlabel("user-steps per second")

    bench.kept(given.out, "mnist", {"machine": facts, "rates": rates}, bars)


if __name__ == "__main__":
    main()
