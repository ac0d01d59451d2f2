"""The arguments of `simulate`, `sweep` and `calibrate`: checked, cast and sized before they run."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota import _offered, _validate, stages
from jaxota._chunks import trials_at_once
from jaxota._devices import Spread, gathered, spread, unspread
from jaxota.algorithms import Algorithm
from jaxota.channel import Channel
from jaxota.errors import InputError
from jaxota.problems import Task
from jaxota.server import as_server
from jaxota.types import Absent, Numbers, Plan, given


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
    setting = _setting(algorithm, channel, task)
    rounds, trials = _validate.whole("rounds", rounds, 1), _validate.whole("trials", trials, 1)
    every = _validate.whole("every", every, 1)
    if every > rounds:
        raise InputError(f"every must be ≤ rounds = {rounds}, got {every}")
    calibration_trials = _validate.whole("calibration_trials", calibration_trials, 1)
    arguments = {
        "key": _validate.key("key", key),
        "trials": jnp.arange(trials),
        **setting._asdict(),
        "plan": _plan(plan, setting, rounds),
        "initial": _initial(initial, trials, setting.task),
    }
    over = Spread() if unspread(arguments) else spread(trials)
    chunk = trials_at_once((setting.algorithm,), setting.task, over.devices)
    return arguments, Options(rounds, every, calibration_trials, bool(user_power), chunk, over)


def calibration(
    key: PRNGKeyArray,
    algorithm: Algorithm,
    task: Task,
    rounds: int,
    trials: int,
    initial: Numbers | None,
) -> tuple[dict[str, Any], Options]:
    """Arguments and options of the program that measures a plan."""
    setting = _setting(algorithm, Channel(), task)
    rounds, trials = _validate.whole("rounds", rounds, 1), _validate.whole("trials", trials, 1)
    arguments = {
        "key": _validate.key("key", key),
        "algorithm": setting.algorithm,
        "task": setting.task,
        "initial": _initial(initial, None, setting.task),
    }
    asked = Options(rounds, 1, trials, False, chunk=1)
    if unspread(arguments):
        chunk = trials_at_once((setting.algorithm,), setting.task)
        return arguments, asked._replace(chunk=chunk)
    return arguments, of_calibration(asked, setting.algorithm, setting.task)


def of_calibration(options: Options, algorithm: Algorithm, task: Task) -> Options:
    """The options of the program that measures the plan of an experiment of these `options`."""
    trials = options.calibration_trials
    over = spread(trials)
    chunk = trials_at_once((algorithm,), task, over.devices)
    return Options(options.rounds, 1, trials, False, chunk, over)


def refuse_swept(**parts: Any) -> None:
    """`simulate` and `calibrate` take one setting."""
    for name, part in parts.items():
        for path, extra in _validate.extra_axes(part, name).items():
            if extra:
                raise InputError(
                    f"{path} must be one value here, got an array; jo.sweep takes arrays"
                )


_STAGES = {
    "algorithm.local": (stages.LocalRule, "jo.SGD(...)"),
    "algorithm.precode": (stages.Precoder, "jo.Online()"),
    "algorithm.estimate": (stages.Estimator, "jo.MMSE()"),
    "algorithm.compress": (stages.Compressor, "jo.Uncompressed()"),
    "algorithm.server": (stages.Server, "jo.Adopt(), or an optax optimiser"),
    "algorithm.medium": (stages.Medium, "jo.Air()"),
    "channel.noise": (stages.Noise, "jo.Gaussian()"),
    "channel.fading": (stages.Fades, "jo.rayleigh()"),
    "channel.fading.law": (stages.Law, "that of jo.rayleigh()"),
    "channel.fading.answer": (stages.Answer, "jo.Inversion()"),
    "task": (Task, "jo.tasks.synthetic_regression(...)"),
}


def _setting(algorithm: Algorithm, channel: Channel, task: Task) -> Setting:
    """Each part by itself, then all of them together."""
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"algorithm must be one such as jo.cobaaf(...), got {_validate.shown(algorithm)}"
        )
    if not isinstance(channel, Channel):
        raise InputError(f"channel must be a jo.Channel(...), got {_validate.shown(channel)}")
    algorithm = algorithm.replace(server=as_server(algorithm.server))
    parts: dict[str, Any] = {"algorithm": algorithm, "channel": channel, "task": task}
    for stage in _stages(parts):
        _offered.is_part(*stage)
    parts = {name: _validate.prepared(part, name) for name, part in parts.items()}
    for stage in _stages(parts):
        _offered.offers(*stage)
    _validate.whole("task.floats_per_trial(...)", parts["task"].floats_per_trial(1), 0)
    setting = Setting(**parts)
    for name, part in parts.items():
        _validate.consult(part, name, setting)
    return setting


def _stages(parts: dict[str, Any]) -> list[tuple[str, Any, type, str]]:
    """Path and value of every stage that there is, its protocol, and an example of its kind."""
    found: list[tuple[str, Any, type, str]] = []
    for path, (protocol, like) in _STAGES.items():
        holder, *names = path.split(".")
        value = functools.reduce(lambda part, name: getattr(part, name, ()), names, parts[holder])
        if path.count(".") < 2 or given(value):  # no fading has neither law nor answer
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


def _plan(plan: Plan | None, setting: Setting, rounds: int) -> Plan | Absent:
    """What the algorithm uses of `plan`, shapes checked; `()` if it uses none."""
    algorithm, users = setting.algorithm, setting.task.users
    if plan is None or not algorithm.needs:
        return ()
    if not isinstance(plan, Plan):
        raise InputError(f"plan must be a jo.Plan, got {_validate.shown(plan)}")
    if not algorithm.local.controlled:
        plan = plan.replace(**{name: () for name in vars(plan) if "control" in name})
    _refuse_diverged(plan)
    plan = _validate.prepared(plan, "plan")
    for need in dict.fromkeys(algorithm.needs):
        for name in _PLANNED[need][: 1 + algorithm.local.controlled]:
            value = getattr(plan, name)
            if not given(value):
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
        array = _validate.as_array(f"plan.{name}", value)
        if not isinstance(array, jax.core.Tracer) and np.isnan(array).any():
            raise InputError(f"plan.{name} holds NaN: its calibration diverged; lower step_size")


def _initial(
    initial: Numbers | None, trials: int | None, task: Task
) -> Float[Array, "trial d"] | Absent:
    """Models to start from, or ()."""
    if initial is None:
        return ()
    models = _validate.as_array("initial", initial)
    rows = len(models) if trials is None and models.ndim else trials
    if models.shape != (rows, task.dim) or not rows:
        raise InputError(
            f"initial must have shape [trials, d] = [{rows or '≥ 1'}, {task.dim}], "
            f"got {list(models.shape)}"
        )
    if not isinstance(models, jax.core.Tracer) and not np.isfinite(models).all():
        raise InputError("initial must be finite, got NaN or inf")
    return gathered(models)
