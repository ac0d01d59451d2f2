"""Means with intervals from a study's data set, whether it kept trials or means."""

import dataclasses
from typing import Any

import numpy as np
from scipy import special

from jaxota.errors import InputError
from jaxota.stats import Interval


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
    enough = used.where(used > 1)
    half = special.stdtrit(enough - 1, 0.975) * np.sqrt(var / enough)
    return Summary(mean, mean - half, mean + half, used, trials)
