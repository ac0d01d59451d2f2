"""Means over trials with intervals, from the results of a study that kept trials or means."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History
from jaxota.stats import Interval
from jaxota.study.layout import NOT_AVERAGED, is_score


def moments(
    results: list[dict[str, np.ndarray]], scores: list[str], reference: int
) -> list[dict[str, np.ndarray]]:
    """Reduce each algorithm's [setting, trial, …] of a chunk to moments [setting, 1, …] by name.

    Moments are counts, means and sums of squared deviations. Trials that diverged are left out;
    differences to the reference are of the trials in which neither diverged.
    """
    finite = [
        np.all([np.isfinite(values[name]).all(-1) for name in (*scores, "model")], 0)
        for values in results
    ]  # of each algorithm [setting, trial]
    reduced = []
    for own, used in zip(results, finite, strict=True):
        paired = used & finite[reference]
        counted = {"trials": np.ones_like(used), "used": used, "pairs": paired}
        found = {k: v.sum(1, keepdims=True, dtype=float) for k, v in counted.items()}
        for name, values in own.items():
            if name in NOT_AVERAGED:
                continue
            values = values.astype(np.float64)
            found |= _mean_and_m2(name, values, used)
            if is_score(name, scores):
                with np.errstate(invalid="ignore"):  # inf − inf, which is left out
                    difference = values - results[reference][name]
                found |= _mean_and_m2(f"{name}_difference", difference, paired)
        reduced.append(found)
    return reduced


def _mean_and_m2(name: str, values: np.ndarray, used: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean over the used trials, and the sum of squared deviations from it."""
    mask = used.reshape(*used.shape, *[1] * (values.ndim - used.ndim))
    count = mask.sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        total = np.where(mask, values, 0.0).sum(1, keepdims=True)
        mean = total / np.where(count > 0, count, np.nan)
        deviation = np.where(mask, values - mean, 0.0)
    return {f"{name}_mean": mean, f"{name}_m2": (deviation**2).sum(1, keepdims=True)}


def finish(dataset: Any, attributes: dict[str, Any]) -> Any:
    """Return the dataset that a user gets: with its attributes, and blocks of trials merged."""
    merged = merge_blocks(dataset) if attributes.get("keep") == "mean" else dataset
    return merged.assign_attrs(attributes)


def merge_blocks(dataset: Any) -> Any:
    """Merge the moments of all blocks that are there (Chan, Golub and LeVeque, 1983)."""
    used, pairs = dataset.used.fillna(0.0), dataset.pairs.fillna(0.0)
    merged = {k: dataset[k].sum("block") for k in ("trials", "used", "pairs")}
    for name in [str(k).removesuffix("_mean") for k in dataset if str(k).endswith("_mean")]:
        n = pairs if name.endswith("_difference") else used
        mean, total = dataset[f"{name}_mean"].fillna(0.0), n.sum("block")
        centre = (n * mean).sum("block") / total.where(total > 0)
        m2 = (dataset[f"{name}_m2"].fillna(0.0) + n * (mean - centre) ** 2).sum("block")
        absent = dataset[f"{name}_mean"].isnull().all("block")
        merged[f"{name}_mean"] = centre.where(~absent)
        merged[f"{name}_var"] = (m2 / (total - 1).where(total > 1)).where(~absent)
    return type(dataset)(merged, dataset.drop_vars("block", errors="ignore").coords, dataset.attrs)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Means over trials and their 95 % intervals: data arrays [algorithm, axes…, evaluation].

    Attributes:
        mean, low, high: the mean, and the ends of its interval.
        used, trials: [algorithm, axes…] trials in the mean, and all trials that are there.
    """

    mean: Any
    low: Any
    high: Any
    used: Any
    trials: Any

    def at(self, **place: Any) -> Interval:
        """Return the interval [evaluation] at a place that is given by numbers."""
        curves = (x.isel(place).values for x in (self.mean, self.low, self.high))
        return Interval(*curves, *(int(x.isel(place)) for x in (self.used, self.trials)))


def metric_of(dataset: Any, metric: str | None) -> str:
    """Return the metric, or the study's own for None; InputError if the task has no such score."""
    scores = list(dataset.attrs["scores"])
    if metric is not None and metric not in scores:
        raise InputError(f"--metric must be one of {', '.join(scores)}, got {metric!r}")
    return metric or dataset.attrs["metric"]


def summary(dataset: Any, metric: str, difference: bool = False) -> Summary:
    """Summarise a score, or its paired difference to the reference."""
    if dataset.attrs["keep"] == "mean":
        name = f"{metric}_difference" if difference else metric
        used = dataset.pairs if difference else dataset.used
        mean, var = dataset[f"{name}_mean"], dataset[f"{name}_var"]
        return _with_interval(mean, var, used, dataset.trials)
    present = dataset.participants.notnull().any("round")
    used = present & ~diverged(dataset)
    values = dataset[metric].astype("float64")
    if difference:
        reference = dataset.attrs["reference"]
        used = used & used.sel(algorithm=reference, drop=True)
        values = values - values.sel(algorithm=reference, drop=True)
    values = values.where(used)
    mean, var = values.mean("trial"), values.var("trial", ddof=1)
    return _with_interval(mean, var, used.sum("trial"), present.sum("trial"))


def _with_interval(mean: Any, var: Any, used: Any, trials: Any) -> Summary:
    from scipy import special  # slow to import, needed here alone

    enough = used.where(used > 1)
    half = special.stdtrit(enough - 1, 0.975) * np.sqrt(var / enough)
    return Summary(mean, mean - half, mean + half, used, trials)


def power_ratio(dataset: Any) -> Any:
    """Return [algorithm, axes…, round] the mean over trials of the larger block's ‖x_i‖²/P.

    Where means were kept, this is the larger of both means.
    """
    means = dataset.attrs["keep"] == "mean"
    names = ("power_mean", "control_power_mean") if means else ("power", "control_power")
    blocks = [dataset[name] for name in names if name in dataset]
    if not means:
        used = ~diverged(dataset)
        blocks = [block.where(used) for block in blocks]
    larger = functools.reduce(np.fmax, blocks)
    return larger if means else larger.mean("trial")


def diverged(dataset: Any) -> Any:
    """Return [algorithm, axes…, trial] whether a trial left the finite numbers."""
    # A model shorter than the longest of the study ends in NaN, in all trials of its setting.
    absent = dataset.model.isnull()
    padding = absent.all(("algorithm", "trial")) & ~absent.all(("algorithm", "trial", "parameter"))
    bad = (~np.isfinite(dataset.model) & ~padding).any("parameter")
    for score in dataset.attrs["scores"]:
        bad = bad | ~np.isfinite(dataset[score]).all("evaluation")
    return bad


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
    return flat.replace(settings=settings, grid=tuple(sizes.items()))
