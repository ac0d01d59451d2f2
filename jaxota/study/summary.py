"""Means with intervals from a study's data set, whether it kept trials or means."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History
from jaxota.stats import Interval
from jaxota.study.layout import LEFT_OUT, Space, is_score


def of_block(
    arrays: dict[str, np.ndarray], full: Space, scores: list[str], reference: int, length: int
) -> dict[str, np.ndarray]:
    """Moments over the trials of a block, without those that diverged, as `space` has them.

    Models are so long; what is behind belongs to other blocks' longer ones.
    """
    dims = full.variables[scores[0]].dims
    axis = dims.index("trial")
    whole = [arrays[name] for name in scores] + [arrays["model"][..., :length]]
    finite = np.all([np.isfinite(x).all(-1) for x in whole], 0)  # [algorithm, setting…, trial]
    both = finite & finite[reference][None]
    found = {
        "trials": np.full(finite.shape[:-1], finite.shape[-1], float),
        "used": finite.sum(-1).astype(float),
        "pairs": both.sum(-1).astype(float),
    }
    for name, values in arrays.items():
        if name in LEFT_OUT:
            continue
        values = values.astype(np.float64)
        found |= _moments(f"{name}_", values, finite, axis)
        if is_score(name, scores):
            with np.errstate(invalid="ignore"):
                apart = values - values[reference][None]
            found |= _moments(f"{name}_difference_", apart, both, axis)
    # The axis of blocks stands where that of trials did: last but one, or last.
    counts = {k: v[..., None] for k, v in found.items() if k in ("trials", "used", "pairs")}
    return {k: np.expand_dims(v, axis) for k, v in found.items() if k not in counts} | counts


def _moments(prefix: str, values: np.ndarray, used: np.ndarray, axis: int) -> dict[str, np.ndarray]:
    """Mean and sum of squared deviations over the trials used: two passes."""
    mask = used.reshape(*used.shape, *[1] * (values.ndim - used.ndim))
    count = mask.sum(axis)
    with np.errstate(invalid="ignore"):
        mean = np.where(mask, values, 0.0).sum(axis) / np.where(count > 0, count, np.nan)
        apart = np.where(mask, values - np.expand_dims(mean, axis), 0.0)
    return {f"{prefix}mean": mean, f"{prefix}m2": (apart**2).sum(axis)}


def merged(dataset: Any) -> Any:
    """One mean and variance for all blocks that are there (Chan, Golub and LeVeque, 1983)."""
    counts = {"": dataset.used.fillna(0.0), "difference_": dataset.pairs.fillna(0.0)}
    found = {k: dataset[k].sum("block") for k in ("trials", "used", "pairs")}
    names = [str(k).removesuffix("_mean") for k in dataset if str(k).endswith("_mean")]
    for name in names:
        kind = "difference_" if name.endswith("_difference") else ""
        n, mean = counts[kind], dataset[f"{name}_mean"].fillna(0.0)
        total = n.sum("block")
        centre = (n * mean).sum("block") / total.where(total > 0)
        m2 = (dataset[f"{name}_m2"].fillna(0.0) + n * (mean - centre) ** 2).sum("block")
        absent = dataset[f"{name}_mean"].isnull().all("block")
        found[f"{name}_mean"] = centre.where(~absent)
        found[f"{name}_var"] = (m2 / (total - 1).where(total > 1)).where(~absent)
    kept = {k: v for k, v in dataset.coords.items() if k != "block"}
    return dataset.__class__(found, kept, dataset.attrs)


def finished(dataset: Any, attributes: dict[str, Any]) -> Any:
    """What a user is given of all blocks together."""
    whole = merged(dataset) if attributes.get("keep") == "mean" else dataset
    return whole.assign_attrs(attributes)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Means over trials and their 95 % intervals: data arrays [algorithm, axes…, evaluation].

    Attributes:
        used, trials: [algorithm, axes…] those that are in the mean, and all that are there.
    """

    mean: Any
    low: Any
    high: Any
    used: Any
    trials: Any

    def at(self, **place: Any) -> Interval:
        """The interval at one place, which is selected by numbers: [evaluation]."""
        curve = [np.asarray(x.isel(place).values) for x in (self.mean, self.low, self.high)]
        counts = [int(x.isel(place)) for x in (self.used, self.trials)]
        return Interval(curve[0], curve[1], curve[2], counts[0], counts[1])


def metric_of(dataset: Any, asked: str | None) -> str:
    """The score that was asked for, or the study's own."""
    scores = list(dataset.attrs["scores"])
    if asked is not None and asked not in scores:
        raise InputError(f"--metric must be one of {', '.join(scores)}, got {asked!r}")
    return asked or dataset.attrs["metric"]


def summary(dataset: Any, metric: str, difference: bool = False) -> Summary:
    """Of a score, or of the paired difference to the reference."""
    if dataset.attrs["keep"] == "mean":
        kind = f"{metric}_difference" if difference else metric
        used = dataset.pairs if difference else dataset.used
        mean, var = dataset[f"{kind}_mean"], dataset[f"{kind}_var"]
        return _with_interval(mean, var, used, dataset.trials)
    there = dataset.participants.notnull().any("round")
    used = there & ~diverged(dataset)
    values = dataset[metric].astype("float64")
    if difference:
        reference = dataset.attrs["reference"]
        used = used & used.sel(algorithm=reference, drop=True)
        values = values - values.sel(algorithm=reference, drop=True)
    values = values.where(used)
    mean, var = values.mean("trial"), values.var("trial", ddof=1)
    return _with_interval(mean, var, used.sum("trial"), there.sum("trial"))


def power_ratio(dataset: Any) -> Any:
    """[algorithm, axes…, round] mean over trials of the larger block's ‖x_i‖²/P.

    Where means were kept, the larger of both means.
    """
    names = [k for k in ("power", "control_power") if k in dataset or f"{k}_mean" in dataset]
    if dataset.attrs["keep"] == "mean":
        parts = [dataset[f"{name}_mean"] for name in names]
        return parts[0] if len(parts) == 1 else np.fmax(parts[0], parts[1])
    used = ~diverged(dataset)
    both = [dataset[name].where(used) for name in names]
    whole = both[0] if len(both) == 1 else np.fmax(both[0], both[1])
    return whole.mean("trial")


def diverged(dataset: Any) -> Any:
    """[algorithm, axes…, trial] whether a trial left the finite numbers, as `History.diverged`."""
    # A model shorter than the longest of the study ends in NaN, as all of its setting do.
    absent = dataset.model.isnull()
    behind = absent.all(("algorithm", "trial")) & ~absent.all(("algorithm", "trial", "parameter"))
    bad = (~np.isfinite(dataset.model) & ~behind).any("parameter")
    for score in dataset.attrs["scores"]:
        bad = bad | ~np.isfinite(dataset[score]).all("evaluation")
    return bad


def _with_interval(mean: Any, var: Any, used: Any, trials: Any) -> Summary:
    from scipy import special  # slow to import, needed here alone

    enough = used.where(used > 1)
    half = special.stdtrit(enough - 1, 0.975) * np.sqrt(var / enough)
    return Summary(mean, mean - half, mean + half, used, trials)


def history(dataset: Any, **place: Any) -> History:
    """The history of one algorithm in one setting, which `place` selects by labels."""
    at = dataset.sel(place)

    def values(name: str) -> Any:
        """() where it was never written: an algorithm without controls has none."""
        if name not in at:
            return None
        found = np.asarray(at[name].values)
        return None if "control" in name and np.isnan(found).all() else found

    scores: dict[str, Any] = {name: np.asarray(at[name].values) for name in dataset.attrs["scores"]}
    averages = {name: values(f"average_{name}") for name in scores}
    rest = {name: values(name) for name in DIMENSIONS}
    return History(scores, **rest, average_scores=averages, every=int(dataset.attrs["every"]))


def swept(dataset: Any) -> History:
    """The history of a study's only algorithm in all settings: [setting, trial, …]."""
    names = dataset.attrs["axes"]
    sizes = {name: dataset.sizes[name] for name in names}
    found = history(dataset.transpose("algorithm", *names, ...).isel(algorithm=0))
    if _padded(found.model):  # models of several lengths are no array
        found = found.replace(model=None, average=None)
    flat = jax.tree.map(lambda x: np.reshape(x, (-1, *np.shape(x)[len(names) :])), found)
    settings = {}
    for name, labels in dataset.coords.items():
        if labels.dims and labels.dims[0] in names and name != "setting":
            others = {k: size for k, size in sizes.items() if k != labels.dims[0]}
            whole = labels.drop_vars(labels.coords).expand_dims(others).transpose(*names)
            settings[str(name)] = whole.values.ravel()
    return flat.replace(settings=settings, grid=tuple(sizes.items()))


def _padded(models: Any) -> bool:
    """Whether some settings' models end in what is none of theirs: NaN in all trials."""
    none = np.isnan(models).all(-2)  # [axes…, parameter]
    return bool((none[..., -1] & ~none[..., 0]).any())
