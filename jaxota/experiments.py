"""The paper's figures, as data, and how to run one."""

import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import checks, entry, tasks
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, noisy_fedavg, scaffold
from jaxota.channel import Channel
from jaxota.simulate import measure_all, run_all
from jaxota.types import History

IN_FLIGHT = 4000  # users of all trials that run between two signs of progress


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Algorithms that are compared on one task over one channel."""

    name: str
    title: str
    task: Callable  # key → task
    algorithms: dict[str, Algorithm]  # by the label of their curve
    rounds: int = 60
    trials: int = 100
    channel: Channel = Channel(snr_db=10.0, snr_per="vector", power=1.0)
    metric: str = "gap"
    reference: str = "COTAF"  # what the others are compared with, trial by trial


@dataclasses.dataclass(frozen=True)
class Results:
    """What one experiment gave, and how long it took."""

    experiment: Experiment
    seed: int
    histories: dict[str, History]
    compile_seconds: float
    run_seconds: float


def _regression(name: str, title: str, users: int, steps: int) -> Experiment:
    local = {"step_size": 1e-2, "steps": steps, "batch": 10}
    return Experiment(
        name,
        title,
        task=lambda key: tasks.synthetic_regression(key, users, 100, 10, 0.1, 1.0),
        algorithms={
            "noisy FedAvg": noisy_fedavg(**local),
            "COTAF": cotaf(**local),
            "BAAF": baaf(**local),
            "COBAAF": cobaaf(**local),
            "SCAFFOLD (noise-free)": scaffold(**local),
        },
    )


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        _regression("fig1", "synthetic regression, N = 20 users, K = 10 local steps", 20, 10),
        _regression("fig2", "synthetic regression, N = 200 users, K = 10 local steps", 200, 10),
        _regression("fig3", "synthetic regression, N = 20 users, K = 20 local steps", 20, 20),
    )
}


_STATIC = ("rules", "rounds", "every", "calibration_trials", "user_power", "chunk")
_measure_all = jax.jit(measure_all, static_argnames=_STATIC)
_run_all = jax.jit(run_all, static_argnames=_STATIC)


def run(experiment: Experiment, seed: int = 0, report=lambda *_: None) -> Results:
    """Run `experiment`; `report(what, trials)` hears how far it is.

    The data come from a key of their own, so that they stay the same for other trials.
    """
    seed = checks.whole("seed", seed, 0)
    trials = checks.whole("trials", experiment.trials, 1)
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    task = experiment.task(k_data)
    pieces = -(-trials // max(1, IN_FLIGHT // task.users))
    size = -(-trials // pieces)
    entered = [
        entry.experiment(k_trials, algorithm, experiment.channel, task, experiment.rounds, size)
        for algorithm in experiment.algorithms.values()
    ]
    arguments, options = entered[0]
    algorithms = arguments["algorithms"] = tuple(each.pop("algorithm") for each, _ in entered)
    options["chunk"] = max(1, min(each["chunk"] for _, each in entered) // len(entered))
    options["rules"] = _rules(algorithms)
    del arguments["plan"]

    report("compiling", 0)
    start = time.perf_counter()
    calibration = {k: arguments[k] for k in ("key", "algorithms", "task", "initial")}
    measure = _measure_all.lower(**calibration, **options).compile()
    plans = jax.eval_shape(functools.partial(_measure_all, **options), **calibration)
    simulate = _run_all.lower(**arguments, plans=plans, **options).compile()

    ready = time.perf_counter()
    report("calibrating", 0)
    plans, done = measure(**calibration), []
    for first in range(0, trials, size):
        report("running", first)
        arguments["trials"] = jnp.arange(first, first + size)
        done.append(jax.device_get(simulate(**arguments, plans=plans)))
    end = time.perf_counter()
    joined = jax.tree.map(lambda *pieces: np.concatenate(pieces)[:trials], *done)
    histories = dict(zip(experiment.algorithms, joined, strict=True))
    return Results(experiment, seed, histories, ready - start, end - ready)


def _rules(algorithms) -> tuple[int, ...]:
    """A number for each algorithm's local rule: equal rules share one calibration."""
    rules = []
    for algorithm in algorithms:
        leaves, structure = jax.tree.flatten(algorithm.local)
        rules.append((structure, *map(float, leaves)))
    distinct = list(dict.fromkeys(rules))
    return tuple(map(distinct.index, rules))
