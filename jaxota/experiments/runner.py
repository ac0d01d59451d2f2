"""Run an experiment: its algorithms and settings side by side, trial by trial."""

import dataclasses
import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import _arguments, _validate
from jaxota.calibration import observe, pool
from jaxota.experiments.figures import Experiment
from jaxota.history import History
from jaxota.simulation import run_all

# What may run between two signs of progress: users of all trials and settings, and products.
IN_FLIGHT = 4000
PRODUCTS = 2e10


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
    """Run `experiment`; `report(what, done, of)` hears how far it is.

    The data come from a key of their own, so that they stay the same for other trials. Algorithms
    and settings run side by side, one program for all channels of a kind; calibration, which no
    channel touches, is a program before them.
    """
    seed = _validate.seed(seed)
    rounds = _validate.whole("rounds", experiment.rounds, 1)
    trials = _validate.whole("trials", experiment.trials, 1)
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    report("reading the data")
    # The last round is scored, whatever their number.
    task, every = experiment.task(k_data), math.gcd(experiment.every, rounds)
    entered = [
        _arguments.experiment(k_trials, algorithm, channel, task, rounds, trials, every=every)
        for algorithm in experiment.algorithms.values()
        for channel in experiment.channels.values()
    ]
    settings = len(experiment.channels)
    arguments, options = entered[0]
    kinds = _kinds([each["channel"] for each, _ in entered[:settings]])
    algorithms = tuple(each["algorithm"] for each, _ in entered[::settings])
    options = options._replace(chunk=max(1, min(o.chunk for _, o in entered) // len(entered)))
    common = {"key": k_trials, "task": arguments["task"]}
    rules = _rules(algorithms)
    planned = {r: a for r, a in zip(rules, algorithms, strict=True) if a.needs_plan}
    calibration = {"algorithms": tuple(planned.values()), **common}

    report("compiling")
    start = time.perf_counter()
    few = _piece(calibration, rounds, options.calibration_trials)
    lowered = _observe_all.lower(options, trials=jnp.arange(few), **calibration)
    observe, plans = lowered.compile(), jax.eval_shape(_pooled, lowered.out_info)
    common |= {"algorithms": algorithms}
    size = _piece(common, rounds, trials, settings)
    plans = _by_rule(planned, plans, rules)
    programs = [
        _run_settings.lower(options, kind, trials=jnp.arange(size), plans=plans, **common).compile()
        for _, kind in kinds
    ]

    ready = time.perf_counter()
    seen = _in_pieces(
        lambda numbers: observe(trials=numbers, **calibration),
        *(options.calibration_trials, few, 0, functools.partial(report, "calibrating")),
    )
    pooled = _pooled(seen)
    plans = _by_rule(planned, pooled, rules)
    joined = _in_pieces(
        lambda numbers: [
            program(kind, trials=numbers, plans=plans, **common)
            for program, (_, kind) in zip(programs, kinds, strict=True)
        ],
        *(trials, size, 1, functools.partial(report, "running")),
    )
    end = time.perf_counter()
    adrift = {
        label
        for label, plan in zip(experiment.algorithms, plans, strict=True)
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(plan))
    }
    histories = _by_label(experiment, kinds, joined)
    return Results(experiment, seed, histories, adrift, ready - start, end - ready)


def _piece(arguments: dict, rounds: int, trials: int, settings: int = 1) -> int:
    """How many trials to run at a time: pieces of one size, none of which takes long."""
    task = arguments["task"]
    local = [algorithm.local for algorithm in arguments["algorithms"]]
    samples = sum(rule.steps * (rule.batch or 1) for rule in local) or 1
    users = task.users * settings
    products = users * samples * task.dim * rounds
    pieces = -(-trials // max(1, int(min(IN_FLIGHT // users, PRODUCTS // products))))
    return -(-trials // pieces)


def _in_pieces(program, trials: int, size: int, axis: int, report):
    """What `program` gives of the numbers of all trials, `size` at a time, joined along `axis`."""
    done = []
    for first in range(0, trials, size):
        report(first, trials)
        done.append(jax.device_get(program(jnp.arange(first, first + size))))
    joined = jax.tree.map(lambda *pieces: np.concatenate(pieces, axis), *done)
    return jax.tree.map(lambda x: x[(slice(None),) * axis + (slice(trials),)], joined)


@functools.partial(jax.jit, static_argnames="options")
def _observe_all(options, trials, algorithms, **arguments):
    """The moments of the calibration of each algorithm."""
    return tuple(
        observe(options, trials=trials, algorithm=algorithm, initial=(), **arguments)
        for algorithm in algorithms
    )


@jax.jit
def _pooled(seen) -> tuple:
    return tuple(pool(*moments) for moments in seen)


def _by_rule(planned: dict, plans: tuple, rules) -> tuple:
    """Each algorithm's plan, that of its local rule; `()` where the rule has none."""
    plans = dict(zip(planned, plans, strict=True))
    return tuple(plans.get(rule, ()) for rule in rules)


@functools.partial(jax.jit, static_argnames="options")
def _run_settings(options, channels, **arguments):
    """Every algorithm over each of the stacked channels: a tuple of `History`, [setting, …]."""
    run = functools.partial(run_all, options, initial=(), **arguments)
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
