"""Run an experiment: its algorithms and settings side by side, trial by trial."""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import checks, entry
from jaxota.experiments import Experiment
from jaxota.simulate import measure_all, run_all
from jaxota.types import History

IN_FLIGHT = 4000  # users of all trials and settings that run between two signs of progress


@dataclasses.dataclass(frozen=True)
class Results:
    """What one experiment gave, and how long it took."""

    experiment: Experiment
    seed: int
    histories: dict[tuple[str, str], History]  # by (algorithm, setting)
    uncalibrated: set[str]  # algorithms whose calibration diverged
    compile_seconds: float
    run_seconds: float


def run(experiment: Experiment, seed: int = 0, report=lambda *_: None) -> Results:
    """Run `experiment`; `report(what, trials)` hears how far it is.

    The data come from a key of their own, so that they stay the same for other trials. Algorithms
    and settings run side by side, one program for all channels of a kind; calibration, which no
    channel touches, is a program before them.
    """
    seed = checks.whole("seed", seed, 0)
    if seed >= 2**32:
        raise ValueError(f"seed must be < 2**32, got {seed}")
    trials = checks.whole("trials", experiment.trials, 1)
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    task = experiment.task(k_data)
    settings = len(experiment.channels)
    pieces = -(-trials // max(1, IN_FLIGHT // (task.users * settings)))
    size = -(-trials // pieces)
    entered = [
        entry.experiment(k_trials, algorithm, channel, task, experiment.rounds, size)
        for algorithm in experiment.algorithms.values()
        for channel in experiment.channels.values()
    ]
    arguments, options = entered[0]
    channels = [each["channel"] for each, _ in entered[:settings]]
    algorithms = tuple(each["algorithm"] for each, _ in entered[::settings])
    options = options._replace(chunk=max(1, min(o.chunk for _, o in entered) // len(entered)))
    rules, kinds = _rules(algorithms), _kinds(channels)
    common = {"key": k_trials, "algorithms": algorithms, "task": arguments["task"]}

    report("compiling", 0)
    start = time.perf_counter()
    lowered = _measure_all.lower(options, rules, **common)
    measure, plans = lowered.compile(), lowered.out_info
    numbers = arguments["trials"]
    programs = [
        _run_settings.lower(options, rules, kind, trials=numbers, plans=plans, **common).compile()
        for _, kind in kinds
    ]

    ready = time.perf_counter()
    report("calibrating", 0)
    plans, done = measure(**common), []
    for first in range(0, trials, size):
        report("running", first)
        numbers = jnp.arange(first, first + size)
        done.append(
            [
                jax.device_get(program(kind, trials=numbers, plans=plans, **common))
                for program, (_, kind) in zip(programs, kinds, strict=True)
            ]
        )
    end = time.perf_counter()
    joined = jax.tree.map(lambda *parts: np.concatenate(parts, 1)[:, :trials], *done)
    histories = _by_label(experiment, kinds, joined)
    sound = [all(np.isfinite(x).all() for x in jax.tree.leaves(plan)) for plan in plans]
    adrift = {
        label
        for label, algorithm, rule in zip(experiment.algorithms, algorithms, rules, strict=True)
        if algorithm.needs_plan and not sound[rule]
    }
    return Results(experiment, seed, histories, adrift, ready - start, end - ready)


_measure_all = jax.jit(measure_all, static_argnames=("options", "rules"))


@functools.partial(jax.jit, static_argnames=("options", "rules"))
def _run_settings(options, rules, channels, **arguments):
    """Every algorithm over each of the stacked channels: a tuple of `History`, [setting, …]."""
    run = functools.partial(run_all, options, rules, initial=(), **arguments)
    if len(channels.snr_db) == 1:  # spare the tracing of an axis that is not one
        only = jax.tree.map(lambda x: x[0], channels)
        return jax.tree.map(lambda x: x[None], run(channel=only))
    return jax.vmap(lambda channel: run(channel=channel))(channels)


def _kinds(channels) -> list:
    """Channels of one structure, stacked, with their numbers: ([number, …], channel [setting])."""
    structures = [jax.tree.structure(channel) for channel in channels]
    kinds = []
    for kind in dict.fromkeys(structures):
        numbers = [n for n, structure in enumerate(structures) if structure == kind]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *(channels[n] for n in numbers))
        kinds.append((numbers, stacked))
    return kinds


def _by_label(experiment: Experiment, kinds: list, joined: list) -> dict:
    """Histories by (algorithm, setting), settings in the order of the experiment."""
    found = {}
    for (numbers, _), per_algorithm in zip(kinds, joined, strict=True):
        for a, history in enumerate(per_algorithm):
            for position, number in enumerate(numbers):
                found[a, number] = jax.tree.map(lambda x, p=position: x[p], history)
    return {
        (algorithm, setting): found[a, c]
        for a, algorithm in enumerate(experiment.algorithms)
        for c, setting in enumerate(experiment.channels)
    }


def _rules(algorithms) -> tuple[int, ...]:
    """A number for each algorithm's local rule: equal rules share one calibration."""
    rules = []
    for algorithm in algorithms:
        leaves, structure = jax.tree.flatten(algorithm.local)
        rules.append((structure, *map(float, leaves)))
    distinct = list(dict.fromkeys(rules))
    return tuple(map(distinct.index, rules))
