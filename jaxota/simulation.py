"""`simulate`: all trials of an experiment, calibration included, as one compiled program."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.arguments import Options, experiment, refuse_swept
from jaxota._core.devices import compiled, on_devices
from jaxota._core.part import Numbers, Seed, suggest_keywords
from jaxota._core.progress import asked
from jaxota._core.state import Checkpoint, Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import cached_plan, measure
from jaxota.history import History
from jaxota.rounds import run_all
from jaxota.stages.channel import Channel
from jaxota.stopping import Stop, check_stop, run_until
from jaxota.tasks.problem import Task


@suggest_keywords
def simulate(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    *,
    plan: Plan | None = None,
    initial: Numbers | None = None,
    every: int = 1,
    calibration_trials: int = 100,
    user_power: bool = False,
    heard: bool = False,
    user_scores: bool = False,
    metrics: dict[str, Callable[..., Any]] | None = None,
    state: Checkpoint | None = None,
    keep_state: bool = False,
    stop: Stop | None = None,
    progress: bool = False,
) -> History:
    """Run `algorithm` over `channel` on `task`: `trials` independent runs of `rounds` rounds.

    Args:
        key: a random key, or an int n for `jax.random.key(n)`; the random numbers of trial t depend
            on the key and on t alone.
        algorithm: one such as `jo.cobaaf(...)`.
        channel: a `jo.Channel(...)`.
        task: one of `jo.tasks`.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs.
        plan: the result of a calibration; by default it is measured, once for all algorithms that
            share what `calibrate` runs, and remembered.
        initial: [trial, d] models to start from; by default the task draws them, as calibration
            does: to calibrate from models of your own, give the plan of `calibrate(...,
            initial=...)`. Models alone do not continue a run: see `state`.
        every: the task is scored after rounds every, 2·every, …
        calibration_trials: runs that calibration averages over, where a plan is measured. Each is
            about the work of a trial, so that fewer of them, or a `plan`, save most of a short
            run's time.
        user_power: also keep every user's power ratio, [trial, round, user].
        heard: also keep who was heard, [trial, round, user].
        user_scores: also keep every user's own scores, [trial, evaluation, user]: `user_loss` is
            the loss f_i of the model on the user's samples.
        metrics: scores of your own by their names: functions of the model [d], the users' models
            [user, d] after their local steps (of the participants alone, where only they compute),
            and the problem, which return a number. Like the task's scores they are in
            `history.scores`. Define one once and use it often, and it is compiled once.
        state: the `state` of a history made with `keep_state=True`: continue that run for `rounds`
            more rounds, with its models, controls, memories and place in the plan. With the same
            key and parts, 60 + 60 rounds equal 120. A plan, if given, is that of all rounds.
        keep_state: also keep the last state of every trial, to continue from. The plan may then
            have more rounds than this run.
        stop: `jo.Stop("gap", 1e-3)`: a trial ends once a score has reached a target. Its later rows
            are NaN, `history.last_round` says where it ended, and all that was run is the same as
            without, to rounding. Trials run in small groups, block by block of rounds.
        progress: print on stderr what is compiled, measured and run, and how long each took.

    The first call compiles, which takes seconds to tens of seconds; a later call of the same
    process that changes numbers only does not (`jo.enable_cache()` keeps programs on disk).
    Invalid arguments raise `InputError` before anything is compiled. Inside your own `jax.jit` or
    `jax.vmap`, shapes, counts and choices do so too; invalid traced numbers (a step size below 0,
    more participants than users) make all results NaN. Everything is computed in float32, also
    where `jax_enable_x64` is set: the numbers are the same, but for what optax rounds otherwise.
    """
    setup = key, algorithm, channel, task, rounds, trials
    with inputs.traced_checks() as checks:
        begin = plan, initial, every, calibration_trials, state, keep_state
        kept: dict[str, Any] = {"user_power": user_power, "heard": heard, "metrics": metrics}
        kept["user_scores"] = user_scores
        arguments, options = experiment(*setup, *begin, **kept)
    refuse_swept(**{name: arguments[name] for name in PARTS})
    if stop is not None:
        stop = check_stop(stop, options, arguments)
    with asked("simulate", inputs.chosen("progress", progress, (False, True))):
        arguments["plan"] = cached_plan(options, **arguments)
        if stop is None:
            history = inputs.nan_unless(checks, program(options, **arguments))
        else:
            history = run_until(stop, options, program, arguments)
    counts = {"rounds": options.rounds, "trials": trials, "every": every}
    given = {"calibration_trials": calibration_trials, "plan": plan, "initial": initial}
    return history._of(**{k: arguments[k] for k in SETUP}, **counts, **given)


# The arguments of a program that a sweep may hold arrays in, in the order of jax's dictionaries.
PARTS = ("algorithm", "channel", "plan", "task")


SETUP = ("key", "algorithm", "channel", "task")  # what a history remembers


@functools.partial(compiled, static=("options", "axes"))
def program(
    options: Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    start: Any,
    axes: tuple[int | None, ...] | None = None,
    **parts: Any,
) -> History:
    """Run all trials, in every setting if there are several: `simulate` and `sweep`, compiled.

    `start` is as in `run_all`. `axes` says for each leaf of the parts whether it has a row for each
    setting, 0, or not, None.
    """
    leaves, structure = jax.tree.flatten(parts)

    def setting(values: list[Any], trials: Int[Array, "trial"]) -> History:
        key, start, *leaves = values
        parts = jax.tree.unflatten(structure, leaves)
        return run(options, key=key, trials=trials, start=start, **parts)

    axes = axes if axes is not None else (None,) * len(leaves)
    return on_devices(setting, options.over, [key, start, *leaves], (None, None, *axes), trials)


def run(options: Options, algorithm: Algorithm, plan: Plan | None, **others: Any) -> History:
    """Run one algorithm; `others` are the other arguments of `run_all`; to be compiled."""
    if algorithm.needs and plan is None:
        all_rounds = options._replace(rounds=options.done + options.rounds)
        plan = measure(all_rounds, others["key"], algorithm, others["task"], initial=None)
    return run_all(options, algorithms=(algorithm,), plans=(plan,), **others)[0]
