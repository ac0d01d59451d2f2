"""The arguments of `simulate`, `sweep` and `calibrate`: checked, cast and sized before they run."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota import stages
from jaxota._core import batching, inputs, stage_checks
from jaxota._core import batching as _chunks
from jaxota._core import inputs as _validate
from jaxota._core.batching import trials_at_once
from jaxota._core.devices import Spread, gathered, spread, unspread
from jaxota._core.part import Numbers
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.stages.server import as_server
from jaxota.tasks.problem import Task


class Options(NamedTuple):
    """What shapes a program: new values are a new program."""

    rounds: int
    every: int
    calibration_trials: int
    user_power: bool
    chunk: int  # trials in flight at once, on each device
    over: Spread = Spread()  # devices
    average_scores: bool = False  # whether the weighted average is scored, too


class Setting(NamedTuple):
    """What goes together in a run, for parts to check themselves against."""

    algorithm: Algorithm
    channel: Channel
    task: Task


def experiment(
    key: PRNGKeyArray,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    plan: Plan | None = None,
    initial: Numbers | None = None,
    every: int = 1,
    calibration_trials: int = 100,
    user_power: bool = False,
) -> tuple[dict[str, Any], Options]:
    """Arguments (traced) and options (static) of the program for one experiment."""
    user_power = _validate.chosen("user_power", user_power, (False, True))
    asked = Asked(rounds, trials, calibration_trials, user_power, measured=plan is None)
    setting, options = entered(algorithm, channel, task, asked, every)
    arguments = {
        "key": _validate.key("key", key),
        "trials": jnp.arange(trials, dtype="int32"),
        **setting._asdict(),
        "plan": _plan(plan, setting, options.rounds),
        "initial": _initial(initial, trials, setting.task),
    }
    over = Spread() if unspread(arguments) else spread(trials)
    chunk = trials_at_once((setting.algorithm,), setting.task, over.devices, options.rounds)
    return arguments, options._replace(chunk=chunk, over=over)


def entered(
    algorithm: Algorithm, channel: Channel, task: Task, asked: "Asked", every: int
) -> tuple[Setting, Options]:
    """Parts and counts, checked: nothing is made, so that nothing can be too large to be made."""
    setting = _setting(algorithm, channel, task)
    inputs.consult(setting.task, "task", setting)
    names = "rounds", "trials", asked.called
    counts = list(zip(names, asked[:3], strict=True))
    for name, count in counts:
        _validate.whole(name, count, 1, at_most=None)
    refuse_large(setting.algorithm, setting.task, asked)
    rounds, _, runs = (_validate.whole(name, count, 1) for name, count in counts)
    every = _validate.whole("every", every, 1)
    if every > rounds:
        raise InputError(f"every must be ≤ rounds = {rounds}, got {every}")
    for name in ("channel", "algorithm"):  # last: to try an optimiser takes a model's memory
        inputs.consult(getattr(setting, name), name, setting)
    return setting, Options(rounds, every, runs, asked.user_power, chunk=1)


class Asked(NamedTuple):
    """How much is asked for."""

    rounds: int
    trials: int
    calibration_trials: int
    user_power: bool = False
    settings: int = 1
    measured: bool = True  # whether a plan is, where the algorithm needs one
    called: str = "calibration_trials"  # what it calls these
    kept: bool = True  # whether all results are in memory at once


def refuse_large(algorithm: Algorithm, task: Task, asked: Asked) -> None:
    """InputError where results, a calibration or a single trial take more memory than there is."""
    blocks, rounds = 1 + bool(algorithm.local.controlled), asked.rounds
    ledger = 3 + 4 * blocks + asked.user_power * blocks * task.users  # a round's, with one score
    result = 4 * (rounds * ledger + 2 * task.dim)
    running = _chunks.bytes_per_trial((algorithm,), task, rounds)
    long = f"of {_validate.shown(rounds)} rounds"
    batching.refuse(
        "rounds, or users × steps × batch,", f"one trial {long}", running + asked.settings * result
    )
    if asked.kept:
        results = asked.settings * asked.trials * result
        over = f" in {asked.settings} settings" if asked.settings > 1 else ""
        many = f"{_validate.shown(asked.trials)} trials {long}{over}"
        batching.refuse("trials", many, running + results)
    if asked.measured and algorithm.needs:
        moments = 4 * blocks * rounds * (3 * task.users + 2)
        many = f"{_validate.shown(asked.calibration_trials)} runs {long}"
        batching.refuse(asked.called, many, running + asked.calibration_trials * moments)


def calibration(
    key: PRNGKeyArray,
    algorithm: Algorithm,
    task: Task,
    rounds: int,
    trials: int,
    initial: Numbers | None,
) -> tuple[dict[str, Any], Options]:
    """Arguments and options of the program that measures a plan."""
    asked = Asked(rounds, 1, trials, called="trials", kept=False)
    setting, options = entered(algorithm, Channel(), task, asked, every=1)
    arguments = {
        "key": _validate.key("key", key),
        "algorithm": setting.algorithm,
        "task": setting.task,
        "initial": _initial(initial, None, setting.task),
    }
    if unspread(arguments):
        chunk = trials_at_once((setting.algorithm,), setting.task, 1, options.rounds)
        return arguments, options._replace(chunk=chunk)
    return arguments, of_calibration(options, setting.algorithm, setting.task)


def of_calibration(options: Options, algorithm: Algorithm, task: Task) -> Options:
    """The options of the program that measures the plan of an experiment of these `options`."""
    trials = options.calibration_trials
    over = spread(trials)
    chunk = trials_at_once((algorithm,), task, over.devices, options.rounds)
    return Options(options.rounds, 1, trials, False, chunk, over)


def refuse_swept(**parts: Any) -> None:
    """`simulate` and `calibrate` take one setting."""
    for name, part in parts.items():
        for path, extra in inputs.extra_axes(part, name).items():
            if extra:
                raise InputError(
                    f"{path} must be one value here, got an array; jo.sweep takes arrays"
                )


_STAGES = {
    "algorithm.local": (stages.LocalRule, "jo.SGD(...)"),
    "algorithm.precode": (stages.Precoder, "jo.Online()"),
    "algorithm.estimate": (stages.Estimator, "jo.MMSE()"),
    "algorithm.compress": (stages.Compressor, "jo.Uncompressed()"),
    "algorithm.server": (stages.Server, "jo.ReplaceModel(), or an optax optimiser"),
    "algorithm.medium": (stages.Medium, "jo.OverTheAir()"),
    "channel.noise": (stages.Noise, "jo.Gaussian()"),
    "channel.fading": (stages.Fades, "jo.rayleigh()"),
    "channel.fading.law": (stages.Law, "that of jo.rayleigh()"),
    "channel.fading.answer": (stages.Answer, "jo.Inversion()"),
    "task": (Task, "jo.tasks.synthetic_regression(...)"),
}


def check_algorithm(path: str, algorithm: Any) -> None:
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"{path} must be one such as jo.cobaaf(...), got {_validate.shown(algorithm)}"
        )


def _setting(algorithm: Algorithm, channel: Channel, task: Task) -> Setting:
    """Each part by itself."""
    check_algorithm("algorithm", algorithm)
    if not isinstance(channel, Channel):
        raise InputError(f"channel must be a jo.Channel(...), got {_validate.shown(channel)}")
    algorithm = algorithm.replace(server=as_server(algorithm.server))
    parts: dict[str, Any] = {"algorithm": algorithm, "channel": channel, "task": task}
    for stage in _stages(parts):
        stage_checks.is_part(*stage)
    parts = {name: inputs.prepared(part, name) for name, part in parts.items()}
    for stage in _stages(parts):
        stage_checks.offers(*stage)
    _validate.whole("task.floats_per_trial(...)", parts["task"].floats_per_trial(1), 0, None)
    return Setting(**parts)


def _stages(parts: dict[str, Any]) -> list[tuple[str, Any, type, str]]:
    """Path and value of every stage that there is, its protocol, and an example of its kind."""
    found: list[tuple[str, Any, type, str]] = []
    for path, (protocol, like) in _STAGES.items():
        holder, *names = path.split(".")
        value = functools.reduce(lambda part, name: getattr(part, name, None), names, parts[holder])
        if path.count(".") < 2 or value is not None:  # no fading has neither law nor answer
            found.append((path, value, protocol, like))
    return found


# Of what the plan holds of a block, by the names that stages ask for: fields of both blocks.
_PLANNED = {
    "energy": ("update_energy", "control_energy"),
    "mean": ("model_mean", "control_mean"),
    "var": ("model_var", "control_var"),
    "average_mean": ("average_mean", "average_control_mean"),
    "average_var": ("average_var", "average_control_var"),
}


def _plan(plan: Plan | None, setting: Setting, rounds: int) -> Plan | None:
    """What the algorithm uses of `plan`, shapes checked; `None` if it uses none."""
    algorithm, users = setting.algorithm, setting.task.users
    if plan is None or not algorithm.needs:
        return None
    if not isinstance(plan, Plan):
        raise InputError(f"plan must be a jo.Plan, got {_validate.shown(plan)}")
    if not algorithm.local.controlled:
        plan = plan.replace(**{name: None for name in vars(plan) if "control" in name})
    _refuse_diverged(plan)
    plan = inputs.prepared(plan, "plan")
    for need in dict.fromkeys(algorithm.needs):
        for name in _PLANNED[need][: 1 + algorithm.local.controlled]:
            value = getattr(plan, name)
            if value is None:
                raise InputError(f"plan.{name} must be given for this algorithm: calibrate with it")
            shape = (rounds, users) if need in ("mean", "var") else (rounds,)
            if value.shape[-len(shape) :] != shape:
                raise InputError(
                    f"plan.{name} must have shape {list(shape)} for rounds={rounds} and "
                    f"users={users}, got {list(value.shape)}"
                )
    return gathered(plan)


def _refuse_diverged(plan: Plan) -> None:
    for name, value in vars(plan).items():
        if value is None:
            continue
        array = _validate.as_array(f"plan.{name}", value)
        line = f"plan.{name} holds NaN: its calibration diverged; lower step_size"
        if isinstance(array, jax.core.Tracer):
            inputs.check(~jnp.isnan(array))
        elif np.isnan(array).any():
            raise InputError(line)


def _initial(
    initial: Numbers | None, trials: int | None, task: Task
) -> Float[Array, "trial d"] | None:
    """Models to start from, or ()."""
    if initial is None:
        return None
    models = _validate.as_array("initial", initial)
    rows = len(models) if trials is None and models.ndim else trials
    if models.shape != (rows, task.dim) or not rows:
        raise InputError(
            f"initial must have shape [trials, d] = [{rows or '≥ 1'}, {task.dim}], "
            f"got {list(models.shape)}"
        )
    if isinstance(models, jax.core.Tracer):
        inputs.check(jnp.isfinite(models))
    elif not np.isfinite(models).all():
        raise InputError("initial must be finite, got NaN or inf")
    return gathered(models)
