"""`lower`: the program of an experiment for devices here or elsewhere, to be compiled and asked."""

from collections.abc import Sequence
from typing import Any

import jax

from jaxota._core import inputs
from jaxota._core.arguments import Options, calibration_options, experiment
from jaxota._core.devices import made_for
from jaxota._core.part import Seed, suggest_keywords
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import measure
from jaxota.errors import InputError
from jaxota.simulation import PARTS, program
from jaxota.stages.channel import Channel
from jaxota.sweeping import over_settings, swept_fields
from jaxota.tasks.problem import Task


@suggest_keywords
def lower(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    *,
    devices: Sequence[Any] | None = None,
    every: int = 1,
    calibration_trials: int = 100,
    user_power: bool = False,
) -> jax.stages.Lowered:
    """Lower the program that `simulate`, or with arrays `sweep`, would run, without running it.

    `lower(...).compile()` says what the program takes: `memory_analysis()`, `as_text()`. A plan
    that the algorithm needs is an argument of the program, as in `simulate`; its calibration is
    another program, and is measured inside this one only where a sweep calibrates every setting.

    Args:
        devices: the devices to lower for: some of those here, or those of a topology, such as
            `jax.experimental.topologies.get_topology_desc("v5e:2x2", "tpu").devices`, for which no
            hardware is needed. By default all local devices.

    The other arguments are those of `simulate`.
    """
    setup = key, algorithm, channel, task, rounds, trials
    if devices is not None:
        _require_devices(devices)
    with made_for(devices):
        arguments, options = experiment(
            *setup, every=every, calibration_trials=calibration_trials, user_power=user_power
        )
        if not swept_fields(arguments, "algorithm", "task"):
            arguments["plan"] = _plan_shapes(options, arguments)
        axes = None
        if swept_fields(arguments, *PARTS):
            options, axes, _ = over_settings(options, arguments)
        if devices is None:
            return program.lower(options, axes=axes, **arguments)
        return program.lower_elsewhere(options, arguments, axes=axes)


def _require_devices(devices: Any) -> None:
    """Refuse all but a sequence of devices of one kind."""
    given = devices if isinstance(devices, Sequence) else []
    kinds = {getattr(device, "device_kind", None) for device in given}
    if len(kinds) != 1 or None in kinds:
        wanted = "None, or devices of one kind, such as jax.devices()"
        raise InputError(f"devices must be {wanted}, got {inputs.shown(devices)}")


def _plan_shapes(options: Options, arguments: dict[str, Any]) -> Plan | None:
    """Return the shapes of the plan that the algorithm needs, or None."""
    if not arguments["algorithm"].needs:
        return None
    parts = {name: arguments[name] for name in ("key", "algorithm", "task")}
    # On one device: the shapes are the same.
    options = calibration_options(options, parts)._replace(over=type(options.over)())
    return jax.eval_shape(lambda named: measure(options, **named, initial=None), parts)
