"""The door of `simulate`, `sweep` and `calibrate`: arguments are checked, cast and sized here."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxota import _validate
from jaxota.algorithms import Algorithm
from jaxota.channel import Channel, Still
from jaxota.errors import InputError
from jaxota.estimate import PooledMMSE
from jaxota.fading import Fading
from jaxota.types import Plan

MEMORY = 2**30  # bytes of working memory that the trials in flight may take


class Options(NamedTuple):
    """What shapes a program: new values are a new program."""

    rounds: int
    every: int
    calibration_trials: int
    user_power: bool
    chunk: int  # trials in flight at once


def experiment(
    key,
    algorithm,
    channel,
    task,
    rounds,
    trials,
    plan=None,
    initial=None,
    every=1,
    calibration_trials=100,
    user_power=False,
) -> tuple[dict, Options]:
    """Arguments (traced) and options (static) of the program for one experiment."""
    algorithm, task = _algorithm(algorithm), _task(task)
    rounds, trials = _validate.whole("rounds", rounds, 1), _validate.whole("trials", trials, 1)
    every = _validate.whole("every", every, 1)
    if every > rounds:
        raise InputError(f"every must be ≤ rounds = {rounds}, got {every}")
    calibration_trials = _validate.whole("calibration_trials", calibration_trials, 1)
    arguments = {
        "key": _validate.key("key", key),
        "trials": jnp.arange(trials),
        "algorithm": algorithm,
        "channel": _channel(channel, task),
        "task": task,
        "plan": _plan(plan, algorithm, task, rounds),
        "initial": _initial(initial, trials, task),
    }
    size = chunk(algorithm, task)
    return arguments, Options(rounds, every, calibration_trials, bool(user_power), size)


def calibration(key, algorithm, task, rounds, trials, initial) -> tuple[dict, Options]:
    """Arguments and options of the program that measures a plan."""
    algorithm, task = _algorithm(algorithm), _task(task)
    rounds, trials = _validate.whole("rounds", rounds, 1), _validate.whole("trials", trials, 1)
    arguments = {
        "key": _validate.key("key", key),
        "algorithm": algorithm,
        "task": task,
        "initial": _initial(initial, None, task),
    }
    return arguments, Options(rounds, 1, trials, False, chunk(algorithm, task))


def chunk(algorithm: Algorithm, task, settings: int = 1) -> int:
    """How many trials may be in flight at once."""
    batch = max(algorithm.local.batch or 1, getattr(algorithm.local, "control_batch", None) or 1)
    floats = 8 * task.users * task.dim + task.floats_per_trial(batch)
    return max(1, MEMORY // (4 * floats * settings))


def refuse_swept(**parts) -> None:
    """`simulate` and `calibrate` take one setting."""
    for name, part in parts.items():
        for path, extra in _validate.extra_axes(part, name).items():
            if extra:
                raise InputError(
                    f"{path} must be one value here, got an array; jo.sweep takes arrays"
                )


def _algorithm(algorithm) -> Algorithm:
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"algorithm must be one such as jo.cobaaf(...), got {_validate.shown(algorithm)}"
        )
    algorithm = _validate.prepared(algorithm, "algorithm")
    for name, method, like in (
        ("precode", "energy", "jo.Online()"),
        ("estimate", "__call__", "jo.MMSE()"),
    ):
        value = getattr(algorithm, name)
        if not hasattr(value, method):
            raise InputError(
                f"algorithm.{name} must be one such as {like}, got {_validate.shown(value)}"
            )
    local = algorithm.local
    if not isinstance(local.optimizer, optax.GradientTransformation):
        raise InputError(
            "algorithm.local.optimizer must be an optax transformation such as "
            f"optax.scale_by_adam(), got {_validate.shown(local.optimizer)}"
        )
    draws_control = local.controlled and (local.control_option == 1 or local.warm_start)
    if local.controlled and local.control_batch is not None and not draws_control:
        raise InputError(
            "algorithm.local.control_batch must be None with control_option=2, "
            "which takes no gradient of its own, unless warm_start=True"
        )
    return algorithm


def _channel(channel, task) -> Channel:
    if not isinstance(channel, Channel):
        raise InputError(f"channel must be a jo.Channel(...), got {_validate.shown(channel)}")
    channel = _validate.prepared(channel, "channel")
    if not isinstance(channel.fading, Fading | Still):
        raise InputError(
            "channel.fading must be one such as jo.rayleigh(), "
            f"got {_validate.shown(channel.fading)}"
        )
    if not isinstance(channel.gains, tuple):
        if isinstance(channel.fading, Still):
            raise InputError("channel.gains need channel.fading, such as jo.rayleigh()")
        if channel.gains.shape[-1] != task.users:
            raise InputError(
                f"channel.gains must have one entry for each of {task.users} users, "
                f"got shape {list(channel.gains.shape)}"
            )
    chosen = channel.participants
    if not isinstance(chosen, (tuple, jax.core.Tracer)):
        bad = np.asarray(chosen)[(np.asarray(chosen) < 1) | (np.asarray(chosen) > task.users)]
        if bad.size:
            raise InputError(
                f"channel.participants must lie in 1 … {task.users}, the users, got {bad.flat[0]}"
            )
    return channel


def _task(task):
    if not hasattr(task, "problem"):
        raise InputError(
            f"task must be one of jo.tasks, such as synthetic_regression(...), "
            f"got {_validate.shown(task)}"
        )
    return _validate.prepared(task, "task")


def _plan(plan, algorithm: Algorithm, task, rounds: int):
    """The fields of `plan` that `algorithm` uses, shapes checked; `()` if it uses none."""
    if plan is None or not algorithm.needs_plan:
        return ()
    if not isinstance(plan, Plan):
        raise InputError(f"plan must be a jo.Plan, got {_validate.shown(plan)}")
    controlled, pooled = algorithm.local.controlled, isinstance(algorithm.estimate, PooledMMSE)
    needed = ["update_energy", "model_mean", "model_var"]
    needed += ["average_mean", "average_var"] if pooled else []
    if controlled:
        needed += ["control_energy", "control_mean", "control_var"]
        needed += ["average_control_mean", "average_control_var"] if pooled else []
    else:
        plan = plan.replace(**{name: () for name in vars(plan) if "control" in name})
    for name, value in vars(plan).items():
        if np.size(value) and not isinstance(value, jax.core.Tracer) and np.isnan(value).any():
            raise InputError(f"plan.{name} holds NaN: its calibration diverged; lower step_size")
    plan = _validate.prepared(plan, "plan")
    for name in needed:
        value = getattr(plan, name)
        if isinstance(value, tuple):
            raise InputError(f"plan.{name} must be given for this algorithm: calibrate with it")
        shape = (
            (rounds, task.users)
            if name.startswith(("model", "control_m", "control_v"))
            else (rounds,)
        )
        if value.shape[-len(shape) :] != shape:
            raise InputError(
                f"plan.{name} must have shape {list(shape)} for rounds={rounds} and "
                f"users={task.users}, got {list(value.shape)}"
            )
    return plan


def _initial(initial, trials, task):
    """Models to start from [trial, d], or ()."""
    if initial is None:
        return ()
    try:
        initial = jnp.asarray(initial, "float32")
    except (TypeError, ValueError):
        raise InputError(f"initial must be an array, got {_validate.shown(initial)}") from None
    rows = len(initial) if trials is None and initial.ndim else trials
    if initial.shape != (rows, task.dim) or not rows:
        raise InputError(
            f"initial must have shape [trials, d] = [{rows or '≥ 1'}, {task.dim}], "
            f"got {list(initial.shape)}"
        )
    if not isinstance(initial, jax.core.Tracer) and not np.isfinite(initial).all():
        raise InputError("initial must be finite, got NaN or inf")
    return initial
