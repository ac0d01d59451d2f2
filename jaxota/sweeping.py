"""Many settings of one experiment at once: arrays in place of numbers, in step or as a product."""

import functools
from typing import Any

import jax
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import arguments as _arguments
from jaxota._core import inputs
from jaxota._core import inputs as _validate
from jaxota._core.batching import trials_at_once
from jaxota._core.devices import compiled, on_devices, spread, unspread
from jaxota._core.part import Numbers
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import remembered
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History
from jaxota.simulation import run
from jaxota.stages.channel import Channel
from jaxota.study import summary as results
from jaxota.study.grid import Grid
from jaxota.study.study import Study
from jaxota.tasks.problem import Task

_PARTS = ("algorithm", "channel", "task", "plan")


def sweep(
    key: PRNGKeyArray,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    *,
    over: Grid = Grid(),
    plan: Plan | None = None,
    initial: Numbers | None = None,
    every: int = 1,
    calibration_trials: int = 100,
    user_power: bool = False,
) -> History:
    """`simulate` for every setting: each traced field with one axis more than usual is swept.

    Several such arrays go in step, so they must be of one length. All settings share trial t's
    random numbers. The result has a leading axis [setting]; `settings` holds the swept values.

    Args:
        over: a product in the place of arrays, `jo.grid(snr_db=[0, 10], users=[20, 200])`, also
            over fields that count or choose; `to_xarray` has a dimension for each. For sweeps that
            do not fit into memory, or of several algorithms, see `Study`.

    The other arguments are those of `simulate`; with `over` there are no plan, initial models or
    power of users. Inside your own `jax.jit` one setting that is not allowed makes all results NaN.
    """
    experiment = key, algorithm, channel, task, rounds, trials
    if not isinstance(over, Grid):
        raise InputError(f"over must be a jo.grid(...), got {_validate.shown(over)}")
    if over.axes:
        _refuse_with_grid(plan=plan, initial=initial, user_power=user_power or None)
        return _product(over, *experiment, every, calibration_trials)
    with inputs.noted() as found:
        arguments, options = _arguments.experiment(
            *experiment, plan, initial, every, calibration_trials, user_power
        )
    parts = {name: arguments.pop(name) for name in _PARTS}
    if not any(any(inputs.extra_axes(parts[k], k).values()) for k in ("algorithm", "task")):
        measured = {name: parts[name] for name in ("algorithm", "task", "plan")}
        parts["plan"] = remembered(options, arguments["key"], **measured)
    values, structure = jax.tree.flatten(parts)
    extra: dict[str, int] = {}
    for name in sorted(_PARTS):  # the order in which jax flattens a dictionary
        extra |= inputs.extra_axes(parts[name], name)
    settings = {p: v for (p, axes), v in zip(extra.items(), values, strict=True) if axes}
    count = _count(settings)
    dealt = options.over if unspread(parts, arguments) else spread(trials, count)
    asked = _arguments.Asked(rounds, trials, calibration_trials, user_power, count)
    _arguments.refuse_large(parts["algorithm"], parts["task"], asked)
    chunk = trials_at_once((parts["algorithm"],), parts["task"], count * dealt.trials, rounds)
    options = options._replace(chunk=chunk, over=dealt)
    axes = tuple(0 if axes else None for axes in extra.values())
    history = inputs.or_nan(_program(options, structure, axes, values, **arguments), found)
    return history.replace(settings=_named(settings, {*DIMENSIONS, *history.scores}))


def _refuse_with_grid(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} must not be given with `over`: use arrays in step")


def _product(
    over: Grid,
    key: PRNGKeyArray,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    every: int,
    calibration_trials: int,
) -> History:
    """The history of a study of one algorithm."""
    rounds, every = _validate.whole("rounds", rounds, 1), _validate.whole("every", every, 1)
    if rounds % every:
        raise InputError(f"every must divide rounds = {rounds} with `over`, got {every}")
    options: dict[str, Any] = {"every": every, "calibration_trials": calibration_trials}
    key = _validate.key("key", key)
    study = Study({"": algorithm}, channel, task, rounds, trials, over=over, key=key, **options)
    return results.swept(study.run())


@functools.partial(compiled, static=("options", "structure", "axes"))
def _program(
    options: _arguments.Options,
    structure: jax.tree_util.PyTreeDef,
    axes: tuple[int | None, ...],
    values: list[Array],
    trials: Int[Array, "trial"],
    **arguments: Any,
) -> History:
    common = list(arguments.values())

    def setting(values: list[Any], trials: Int[Array, "trial"]) -> History:
        parts = jax.tree.unflatten(structure, values[len(common) :])
        named = dict(zip(arguments, values, strict=False))
        return run(options, trials=trials, **named, **parts)

    whole = *[None] * len(common), *axes
    return on_devices(setting, options.over, [*common, *values], whole, trials)


def _count(settings: dict[str, Array]) -> int:
    lengths = {path: len(value) for path, value in settings.items()}
    if not lengths:
        raise InputError(
            "sweep needs an array in place of a number, such as "
            "jo.Channel(snr_db=jnp.arange(0.0, 20.0, 5.0))"
        )
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise InputError(f"swept fields go in step and must be of one length ≥ 1, got {lengths}")
    return next(iter(lengths.values()))


def _named(settings: dict[str, Array], results: set[str]) -> dict[str, Array]:
    """Short names where they tell all: `channel.snr_db` is snr_db, `channel.power` is no result."""
    short = [path.rsplit(".", 1)[1] for path in settings]
    return {
        name if short.count(name) == 1 and name not in results else path: value
        for name, (path, value) in zip(short, settings.items(), strict=True)
    }
