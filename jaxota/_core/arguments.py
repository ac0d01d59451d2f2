"""Entry of `simulate`, `sweep` and `calibrate`: arguments checked, cast and sized."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core import capacity, inputs, stage_checks
from jaxota._core.capacity import trials_at_once
from jaxota._core.devices import Spread, gathered, spread
from jaxota._core.part import Bounds, Numbers, Seed, canonical
from jaxota._core.schedule import tabulated
from jaxota._core.state import PLANNED, Checkpoint, Plan
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.batches import in_steps
from jaxota.stages.channel import Channel
from jaxota.stages.server import as_server
from jaxota.tasks.problem import Task


class Kept(NamedTuple):
    """Results that a history holds on request alone."""

    user_power: bool = False
    heard: bool = False
    user_scores: bool = False
    metrics: tuple[tuple[str, Callable[..., Any]], ...] = ()  # functions by their names


class Options(NamedTuple):
    """Options that shape a program: new values compile a new one."""

    rounds: int
    every: int
    calibration_trials: int
    kept: Kept
    chunk: int  # trials in flight at once, on each device
    over: Spread = Spread()  # devices
    average_scores: bool = False  # whether the weighted average is scored, too
    done: int = 0  # rounds before the first one, where a run continues
    keep_state: bool = False
    cohort: int | None = None  # users who compute in a round, where they are drawn; None for all
    total: int = 0  # rounds of the whole run, where this program is a block of it


class Setting(NamedTuple):
    """The parts of one run, which may check themselves against each other."""

    algorithm: Algorithm
    channel: Channel
    task: Task


class Workload(NamedTuple):
    """Amount of work that a call asks for, to be refused if it does not fit into memory."""

    rounds: int
    trials: int
    calibration_trials: int
    kept: Kept = Kept()
    settings: int = 1
    calibrated: bool = True  # whether a plan is measured, where the algorithm needs one
    calibration_name: str = "calibration_trials"  # the argument's name in messages
    all_in_memory: bool = True  # whether the results of all trials are in memory at once
    done: int = 0  # rounds before the first one
    cohort: int | None = None  # as in `Options`


def experiment(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    plan: Plan | None = None,
    initial: Numbers | None = None,
    every: int = 1,
    calibration_trials: int = 100,
    state: Checkpoint | None = None,
    keep_state: bool = False,
    **kept: Any,
) -> tuple[dict[str, Any], Options]:
    """Return the arguments (traced) and options (static) of the program of one experiment.

    `kept` are fields of `Kept`, as users give them.
    """
    kept_results = _kept(**kept)
    keep_state = inputs.chosen("keep_state", keep_state, (False, True))
    leaves, done = _state(state, initial, trials)
    counts = rounds, trials, calibration_trials
    workload = Workload(*counts, kept_results, calibrated=plan is None, done=done)
    setting, options = checked_setting(algorithm, channel, task, workload, every)
    options = options._replace(done=done, keep_state=keep_state)
    arguments = {
        "key": inputs.key("key", key),
        "trials": jnp.arange(trials, dtype="int32"),
        **setting._asdict(),
        "plan": _plan(plan, setting, done + options.rounds, keep_state),
        "start": _initial(initial, trials, setting.task) if leaves is None else leaves,
    }
    return arguments, _on_devices(options, arguments, trials)


def calibration(
    key: Seed,
    algorithm: Algorithm,
    task: Task,
    rounds: int,
    trials: int,
    initial: Numbers | None,
) -> tuple[dict[str, Any], Options]:
    """Return the arguments and options of the program that measures a plan."""
    workload = Workload(rounds, 1, trials, calibration_name="trials", all_in_memory=False)
    setting, options = checked_setting(algorithm, Channel(), task, workload, every=1)
    arguments = {
        "key": inputs.key("key", key),
        "algorithm": setting.algorithm,
        "task": setting.task,
        "initial": _initial(initial, None, setting.task),
    }
    return arguments, calibration_options(options, arguments)


def calibration_options(options: Options, arguments: dict[str, Any]) -> Options:
    """Return the options of the program that measures the plan for a run with `options`."""
    rounds = options.done + options.rounds
    options = Options(rounds, 1, options.calibration_trials, Kept(), options.chunk)
    return _on_devices(options, arguments, options.calibration_trials)


def _on_devices(options: Options, arguments: dict[str, Any], trials: int) -> Options:
    """Return the options with the devices that share the trials, and how many run at once."""
    # A user's own program says itself where it runs: nothing in it is spread over devices.
    over = Spread() if inputs.is_traced(arguments) else spread(trials)
    parts = (arguments["algorithm"],), arguments["task"]
    chunk = trials_at_once(*parts, over, rounds=options.rounds, cohort=options.cohort)
    return options._replace(over=over, chunk=chunk)


def checked_setting(
    algorithm: Algorithm, channel: Channel, task: Task, workload: Workload, every: int
) -> tuple[Setting, Options]:
    """Return checked parts and counts; nothing is allocated, so that nothing can be too large."""
    check_algorithm("algorithm", algorithm)
    if not isinstance(channel, Channel):
        raise InputError(f"channel must be a jo.Channel(...), got {inputs.shown(channel)}")
    algorithm = algorithm.replace(server=as_server(algorithm.server))
    algorithm = tabulated(algorithm, "algorithm", workload.rounds, workload.done)
    if hasattr(algorithm.local, "epochs"):
        algorithm = algorithm.replace(local=in_steps(algorithm.local, "algorithm.local", task))
    parts: dict[str, Any] = {"algorithm": algorithm, "channel": channel, "task": task}
    setting = Setting(**{k: stage_checks.cast_stage(part, k) for k, part in parts.items()})
    inputs.whole("task.floats_per_trial(...)", setting.task.floats_per_trial(1), 0, None)
    inputs.check_together(setting.task, "task", setting)
    names = "rounds", "trials", workload.calibration_name
    counts = list(zip(names, workload[:3], strict=True))
    for name, count in counts:
        inputs.whole(name, count, 1, at_most=None)
    # Memory before the limit of int32: the line about memory says more.
    # Metrics see the models of all users.
    alone = not workload.kept.metrics
    cohort = setting.channel.cohort_size(setting.task.users) if alone else None
    refuse_large(setting.algorithm, setting.task, workload._replace(cohort=cohort))
    rounds, _, calibration_trials = (inputs.whole(name, count, 1) for name, count in counts)
    every = inputs.whole("every", every, 1)
    if every > rounds:
        raise InputError(f"every must be ≤ rounds = {rounds}, got {every}")
    for name in ("channel", "algorithm"):  # last: to try an optimiser takes a model's memory
        inputs.check_together(getattr(setting, name), name, setting)
    options = Options(rounds, every, calibration_trials, workload.kept, chunk=1)
    return setting, options._replace(cohort=cohort)


def refuse_large(algorithm: Algorithm, task: Task, workload: Workload) -> None:
    """Raise InputError if results, a calibration or a single trial do not fit into memory."""
    blocks, rounds = 1 + bool(algorithm.local.controlled), workload.rounds
    # Numbers of a round in a history: one score, participants, ledgers, and those of blocks.
    kept = workload.kept
    by_user = kept.user_power * blocks + kept.heard + kept.user_scores
    numbers = 5 + 4 * blocks + len(kept.metrics) + by_user * task.users
    result = 4 * (rounds * numbers + 2 * task.dim)
    running = capacity.bytes_per_trial((algorithm,), task, rounds, workload.cohort)
    length = f"of {inputs.shown(rounds)} rounds"
    one = running + workload.settings * result
    capacity.refuse_memory("rounds, or users × steps × batch,", f"one trial {length}", one)
    if workload.all_in_memory:
        results = workload.settings * workload.trials * result
        settings = f" in {workload.settings} settings" if workload.settings > 1 else ""
        trials = f"{inputs.shown(workload.trials)} trials {length}{settings}"
        capacity.refuse_memory("trials", trials, running + results)
    if workload.calibrated and algorithm.needs:
        moments = 4 * blocks * rounds * (3 * task.users + 2)
        runs = f"{inputs.shown(workload.calibration_trials)} runs {length}"
        size = running + workload.calibration_trials * moments
        capacity.refuse_memory(workload.calibration_name, runs, size)


def refuse_swept(**parts: Any) -> None:
    """Raise InputError if a part holds an array to sweep over, for calls that take one setting."""
    for name, part in parts.items():
        for path, extra in inputs.extra_axes(part, name).items():
            if extra:
                raise InputError(
                    f"{path} must be one value here, got an array; jo.sweep takes arrays"
                )


def check_algorithm(path: str, algorithm: Any) -> None:
    """Raise InputError unless `algorithm` is an Algorithm."""
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"{path} must be one such as jo.cobaaf(...), got {inputs.shown(algorithm)}"
        )


def _kept(metrics: dict[str, Callable[..., Any]] | None = None, **flags: bool) -> Kept:
    """Return what a history is to keep on request, checked."""
    flags = {name: inputs.chosen(name, flag, (False, True)) for name, flag in flags.items()}
    if not isinstance(metrics, dict | None):
        raise InputError(f"metrics must be functions by their names, got {inputs.shown(metrics)}")
    stage_checks.check_scores(metrics or {}, by="metrics")
    for name, metric in (metrics or {}).items():
        if not callable(metric):
            raise InputError(f"metrics[{name!r}] must be a function, got {inputs.shown(metric)}")
    return Kept(**flags, metrics=tuple((k, canonical(f)) for k, f in (metrics or {}).items()))


def _plan(plan: Plan | None, setting: Setting, rounds: int, longer: bool) -> Plan | None:
    """Return the fields of `plan` that the algorithm uses, checked; `None` if it uses none.

    It has `rounds` rows, or more if it may be `longer`, as that of a run that is to be continued.
    """
    algorithm, users = setting.algorithm, setting.task.users
    if plan is None or not algorithm.needs:
        return None
    if not isinstance(plan, Plan):
        raise InputError(f"plan must be a jo.Plan, got {inputs.shown(plan)}")
    if not algorithm.local.controlled:
        plan = plan.replace(**{name: None for name in vars(plan) if "control" in name})
    for name, value in vars(plan).items():
        if value is not None:
            array = inputs.as_array(f"plan.{name}", value)
            diverged = ": its calibration diverged; lower step_size"
            inputs.require(f"plan.{name}", array, Bounds(infinite=True), diverged)
    plan = inputs.cast_fields(plan, "plan")
    for need in dict.fromkeys(algorithm.needs):
        by_user = (users,) if need in ("mean", "var", "sent_mean", "sent_var") else ()
        for name in PLANNED[need][: 1 + algorithm.local.controlled]:
            value = getattr(plan, name)
            if value is None:
                raise InputError(f"plan.{name} must be given for this algorithm: calibrate with it")
            rows, *others = value.shape[-1 - len(by_user) :]
            if rows < rounds or (rows > rounds and not longer) or tuple(others) != by_user:
                raise InputError(
                    f"plan.{name} must have shape {[rounds, *by_user]} for rounds={rounds} and "
                    f"users={users}, got {list(value.shape)}"
                )
    return gathered(plan)


def _state(
    state: Checkpoint | None, initial: Numbers | None, trials: int
) -> tuple[tuple[Array, ...] | None, int]:
    """Return the leaves of a state to continue from, None without one, and its rounds."""
    if state is None:
        return None, 0
    if not isinstance(state, Checkpoint):
        raise InputError(
            f"state must be the state of a history made with keep_state=True, "
            f"got {inputs.shown(state)}"
        )
    if initial is not None:
        raise InputError("initial must be None with state, which holds the models to start from")
    leaves = tuple(map(jnp.asarray, state.leaves))
    for leaf in leaves:
        if leaf.shape[:1] != (trials,):
            raise InputError(f"state must hold trials = {trials}, got {leaf.shape[:1]}")
    return gathered(leaves), inputs.whole("state.rounds", state.rounds, 1)


def _initial(
    initial: Numbers | None, trials: int | None, task: Task
) -> Float[Array, "trial d"] | None:
    """Return the models to start from, as many as there are `trials`, or any number."""
    if initial is None:
        return None
    models = inputs.as_array("initial", initial)
    rows = len(models) if trials is None and models.ndim else trials
    if models.shape != (rows, task.dim) or not rows:
        raise InputError(
            f"initial must have shape [trials, d] = [{rows or '≥ 1'}, {task.dim}], "
            f"got {list(models.shape)}"
        )
    inputs.require("initial", models, Bounds())
    return gathered(models)
