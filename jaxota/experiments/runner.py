"""Run an experiment: its algorithms and settings side by side, trial by trial."""

import functools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import _arguments, _validate
from jaxota._chunks import trials_at_once, trials_between_reports
from jaxota.calibration import noise_free, observe, pool
from jaxota.errors import InputError
from jaxota.experiments.comparison import Comparison
from jaxota.experiments.experiment import Experiment
from jaxota.simulation import run_all


def run(experiment: Experiment, seed: int = 0, report=lambda *_: None) -> Comparison:
    """Run `experiment`; `report(what, done, of)` hears how far it is.

    The data come from a key of their own, so that they stay the same for other trials. Algorithms
    and settings run side by side, one program for all channels of a kind; calibration, which no
    channel touches, is a program before them.
    """
    seed = _validate.seed(seed)
    report("reading the data")
    entered = _enter(experiment, *jax.random.split(jax.random.key(seed)))
    report("compiling")
    start = time.perf_counter()
    calibrate, plans = _compiled_calibration(entered)
    simulate = _compiled_runs(entered, plans)
    ready = time.perf_counter()
    plans = calibrate(functools.partial(report, "calibrating"))
    joined = simulate(plans, functools.partial(report, "running"))
    end = time.perf_counter()
    adrift = {
        label
        for label, plan in zip(experiment.algorithms, plans, strict=True)
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(plan))
    }
    histories = _by_label(experiment, entered.kinds, joined)
    return Comparison(experiment, seed, histories, adrift, ready - start, end - ready)


class _Entered(NamedTuple):
    """An experiment, checked and cast."""

    options: _arguments.Options
    trials: int
    common: dict  # the key and the task
    algorithms: tuple
    rules: tuple  # a number for each algorithm's local rule
    kinds: list  # the channels, as `_kinds` stacks them


def _enter(experiment: Experiment, k_data, k_trials) -> _Entered:
    """The experiment's parts with their data; InputError at the first that does not fit."""
    rounds = _validate.whole("rounds", experiment.rounds, 1)
    trials = _validate.whole("trials", experiment.trials, 1)
    if experiment.reference not in experiment.algorithms:
        raise InputError(
            f"reference must be one of the algorithms, {', '.join(experiment.algorithms)}, "
            f"got {experiment.reference!r}"
        )
    if not experiment.channels:
        raise InputError("channels must hold at least one channel, got none")
    # The last round is scored, whatever their number.
    task, every = experiment.task(k_data), math.gcd(experiment.every, rounds)
    entered = [
        _arguments.experiment(k_trials, algorithm, channel, task, rounds, trials, every=every)
        for algorithm in experiment.algorithms.values()
        for channel in experiment.channels.values()
    ]
    for arguments, _ in entered:
        _arguments.refuse_swept(**{k: arguments[k] for k in ("algorithm", "channel", "task")})
    arguments, options = entered[0]
    _check_metric(experiment.metric, arguments["task"])
    settings = len(experiment.channels)
    algorithms = tuple(each["algorithm"] for each, _ in entered[::settings])
    return _Entered(
        options._replace(chunk=trials_at_once(algorithms, arguments["task"], settings)),
        trials,
        {"key": k_trials, "task": arguments["task"]},
        algorithms,
        _rules(algorithms),
        _kinds([each["channel"] for each, _ in entered[:settings]]),
    )


def _check_metric(metric: str, task) -> None:
    scores = jax.eval_shape(lambda: task.problem(0).score(jnp.zeros(task.dim)))
    if metric not in scores:
        raise InputError(
            f"metric must be one of the task's scores, {', '.join(scores)}, got {metric!r}"
        )


def _compiled_calibration(entered: _Entered):
    """A function that measures each algorithm's plan, `()` where it has none, and their shapes."""
    pairs = zip(entered.rules, entered.algorithms, strict=True)
    planned = {rule: algorithm for rule, algorithm in pairs if algorithm.needs}
    arguments = {"algorithms": tuple(planned.values()), **entered.common}
    trials = entered.options.calibration_trials
    work = entered.common["task"], 1, entered.options.rounds, trials
    size = trials_between_reports(arguments["algorithms"], *work)
    lowered = _observe_all.lower(entered.options, trials=jnp.arange(size), **arguments)
    program = lowered.compile()

    def calibrate(report) -> tuple:
        seen = _in_pieces(
            lambda numbers: program(trials=numbers, **arguments), trials, size, 0, report
        )
        return _by_rule(planned, _pooled(seen), entered.rules)

    shapes = jax.eval_shape(_pooled, lowered.out_info)
    return calibrate, _by_rule(planned, shapes, entered.rules)


def _compiled_runs(entered: _Entered, plans: tuple):
    """A function of the plans that runs all trials: for each kind of channel, its histories."""
    kinds, trials = entered.kinds, entered.trials
    common = {"algorithms": entered.algorithms, **entered.common}
    settings = sum(len(numbers) for numbers, _ in kinds)
    work = entered.common["task"], settings, entered.options.rounds, trials
    size = trials_between_reports(entered.algorithms, *work)
    first = {"trials": jnp.arange(size), "plans": plans}
    programs = [
        _run_settings.lower(entered.options, kind, **first, **common).compile() for _, kind in kinds
    ]

    def simulate(plans: tuple, report) -> list:
        def piece(numbers):
            return [
                program(kind, trials=numbers, plans=plans, **common)
                for program, (_, kind) in zip(programs, kinds, strict=True)
            ]

        return _in_pieces(piece, trials, size, 1, report)

    return simulate


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
    by_rule = dict(zip(planned, plans, strict=True))
    return tuple(by_rule.get(rule, ()) for rule in rules)


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
    structures: list[Any] = [jax.tree.structure(channel) for channel in channels]
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
    """A number for each algorithm without its noise: equal ones share one calibration."""
    rules = []
    for algorithm in algorithms:
        leaves, structure = jax.tree.flatten(noise_free(algorithm))
        rules.append((structure, *(np.asarray(leaf).tobytes() for leaf in leaves)))
    distinct = list(dict.fromkeys(rules))
    return tuple(map(distinct.index, rules))
