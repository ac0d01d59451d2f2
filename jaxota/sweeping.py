"""`sweep`: many settings of one experiment at once, as arrays in step or as a product."""

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxota._core import inputs
from jaxota._core.arguments import Options, Workload, experiment, refuse_large
from jaxota._core.capacity import trials_at_once
from jaxota._core.devices import spread
from jaxota._core.part import Numbers, Seed, suggest_keywords
from jaxota._core.progress import asked
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import cached_plan
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History
from jaxota.simulation import PARTS, SETUP, program
from jaxota.stages.channel import Channel
from jaxota.study.grid import Grid
from jaxota.study.study import Study
from jaxota.tasks.problem import Task


@suggest_keywords
def sweep(
    key: Seed,
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
    heard: bool = False,
    user_scores: bool = False,
    metrics: dict[str, Callable[..., Any]] | None = None,
    progress: bool = False,
) -> History:
    """Run `simulate` for every setting: each traced field with one more axis than usual is swept.

    Several such arrays go in step, so they must have one length. All settings share trial t's
    random numbers. The result has a leading axis [setting]; `settings` holds the swept values.

    Args:
        over: a product instead of arrays, `jo.grid(snr_db=[0, 10], users=[20, 200])`, also over
            fields that count or choose; `to_xarray` has a dimension for each. For sweeps that
            do not fit into memory, or of several algorithms, see `Study`.

    The other arguments are those of `simulate`; with `over` there are no plan, no initial models
    and no further results. Inside your own `jax.jit` one invalid setting makes all results NaN.
    """
    setup = key, algorithm, channel, task, rounds, trials
    inputs.chosen("progress", progress, (False, True))
    if not isinstance(over, Grid):
        raise InputError(f"over must be a jo.grid(...), got {inputs.shown(over)}")
    kept: dict[str, Any] = {"user_power": user_power, "heard": heard, "metrics": metrics}
    kept["user_scores"] = user_scores
    if over.axes:
        refused = {"plan": plan, "initial": initial, **{k: v or None for k, v in kept.items()}}
        for name, value in refused.items():
            if value is not None:
                raise InputError(f"{name} must not be given with `over`: use arrays in step")
        return _product(over, every, calibration_trials, progress, *setup)
    with inputs.traced_checks() as checks:
        arguments, options = experiment(*setup, plan, initial, every, calibration_trials, **kept)
    with asked("sweep", progress):
        if not swept_fields(arguments, "algorithm", "task"):
            # One plan serves all settings: it does not depend on the channel.
            arguments["plan"] = cached_plan(options, **arguments)
        options, axes, settings = over_settings(options, arguments)
        history = program(options, axes=axes, **arguments)
    history = inputs.nan_unless(checks, history)
    settings = _short_names(settings, {*DIMENSIONS, *history.scores})
    counts = {"rounds": options.rounds, "trials": trials, "every": every}
    given = {"calibration_trials": calibration_trials, "plan": plan, "initial": initial}
    ran = {k: arguments[k] for k in SETUP} | counts | given
    return history.replace(settings=settings)._of(**ran)


def swept_fields(arguments: dict[str, Any], *parts: str) -> list[str]:
    """Return the paths of the fields of these arguments that hold arrays to sweep over."""
    extra = {name: inputs.extra_axes(arguments[name], name) for name in parts}
    return [path for paths in extra.values() for path, more in paths.items() if more]


def over_settings(
    options: Options, arguments: dict[str, Any]
) -> tuple[Options, tuple[int | None, ...], dict[str, Array]]:
    """Return the options, the axes of the parts' leaves, and the swept fields of a sweep."""
    extra = {name: inputs.extra_axes(arguments[name], name) for name in PARTS}
    axes = {path: 0 if more else None for paths in extra.values() for path, more in paths.items()}
    values = jax.tree.leaves([arguments[name] for name in PARTS])
    settings = {p: v for (p, axis), v in zip(axes.items(), values, strict=True) if axis == 0}
    count, trials = _length(settings), len(arguments["trials"])
    algorithm, task = arguments["algorithm"], arguments["task"]
    counts = options.rounds, trials, options.calibration_trials
    workload = Workload(*counts, options.kept, count, cohort=options.cohort)
    refuse_large(algorithm, task, workload)
    over = options.over if inputs.is_traced(arguments) else spread(trials, count)
    chunk = trials_at_once((algorithm,), task, over, count, options.rounds, options.cohort)
    return options._replace(chunk=chunk, over=over), tuple(axes.values()), settings


def _product(
    over: Grid, every: int, calibration_trials: int, progress: bool, key: Seed, *setup: Any
) -> History:
    """Return the history of a study of one algorithm; `setup` is as in `sweep`."""
    algorithm, channel, task, rounds, trials = setup
    rounds, every = inputs.whole("rounds", rounds, 1), inputs.whole("every", every, 1)
    if rounds % every:
        raise InputError(f"every must divide rounds = {rounds} with `over`, got {every}")
    options: dict[str, Any] = {"every": every, "calibration_trials": calibration_trials}
    key = inputs.key("key", key)
    study = Study({"": algorithm}, channel, task, rounds, trials, over=over, key=key, **options)
    return swept_history(study.run(progress=progress))


def _length(settings: dict[str, Array]) -> int:
    """Return the number of settings, the one length of all swept arrays."""
    lengths = {path: len(value) for path, value in settings.items()}
    if not lengths:
        raise InputError(
            "sweep needs an array in place of a number, such as "
            "jo.Channel(snr_db=jnp.arange(0.0, 20.0, 5.0))"
        )
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise InputError(f"swept fields go in step and must be of one length ≥ 1, got {lengths}")
    return next(iter(lengths.values()))


def _short_names(settings: dict[str, Array], results: set[str]) -> dict[str, Array]:
    """Name settings by their fields where that is unique: channel.snr_db is snr_db.

    Names of results stay apart: `channel.power` is the budget, `power` what users spend.
    """
    settings = {path.removesuffix(".values"): v for path, v in settings.items()}  # of schedules
    short = [path.rsplit(".", 1)[1] for path in settings]
    return {
        name if short.count(name) == 1 and name not in results else path: value
        for name, (path, value) in zip(short, settings.items(), strict=True)
    }


def history(dataset: Any, **place: Any) -> History:
    """Return the history of one algorithm in one setting, both given by labels."""
    selected = dataset.sel(place)

    def values(name: str) -> Any:
        """Return None for what was never written: an algorithm without controls has none."""
        if name not in selected:
            return None
        array = np.asarray(selected[name].values)
        return None if "control" in name and np.isnan(array).all() else array

    scores: dict[str, Any] = {k: np.asarray(selected[k].values) for k in dataset.attrs["scores"]}
    averages = {name: values(f"average_{name}") for name in scores}
    rest = {name: values(name) for name in DIMENSIONS}
    return History(scores, **rest, average_scores=averages, every=int(dataset.attrs["every"]))


def swept_history(dataset: Any) -> History:
    """Return the history of a study's only algorithm in all settings: [setting, trial, …]."""
    names = dataset.attrs["axes"]
    sizes = {name: dataset.sizes[name] for name in names}
    product = history(dataset.transpose("algorithm", *names, ...).isel(algorithm=0))
    # Models of several lengths are no array: the shorter ones end in NaN, in all trials.
    absent = np.asarray(np.isnan(np.asarray(product.model)).all(-2))  # [axes…, parameter]
    if (absent[..., -1] & ~absent[..., 0]).any():
        product = product.replace(model=None, average=None)
    flat = jax.tree.map(lambda x: np.reshape(x, (-1, *np.shape(x)[len(names) :])), product)
    settings = {}
    for name, labels in dataset.coords.items():
        if labels.dims and labels.dims[0] in names and name != "setting":
            others = {k: size for k, size in sizes.items() if k != labels.dims[0]}
            repeated = labels.drop_vars(labels.coords).expand_dims(others).transpose(*names)
            settings[str(name)] = repeated.values.ravel()
    whole = flat.replace(settings=settings, grid=tuple(sizes.items()))
    return whole._of(**json.loads(dataset.attrs["description"]))
