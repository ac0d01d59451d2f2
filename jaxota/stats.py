"""Means over trials with their confidence intervals, paired differences, and what is left out."""

import dataclasses
import functools
import numbers
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxota._core import inputs
from jaxota._core.part import Numbers
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, LEDGERS, History


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over trials with its two-sided Student-t confidence interval, per column.

    Attributes:
        mean: over the trials used.
        low, high: the bounds of the interval.
        used, trials: trials that hold an inf or a NaN anywhere are left out, and counted: `used` of
            `trials` remain. With fewer than two the bounds are NaN, with none the mean too.
    """

    mean: Float[np.ndarray, "*column"]
    low: Float[np.ndarray, "*column"]
    high: Float[np.ndarray, "*column"]
    used: int
    trials: int

    @property
    def half_width(self) -> Float[np.ndarray, "*column"]:
        """Half of what lies between the bounds."""
        return (self.high - self.low) / 2

    @property
    def diverged(self) -> int:
        """How many trials were left out."""
        return self.trials - self.used


def interval(values: Numbers, level: float = 0.95) -> Interval:
    """Mean and confidence interval over trials.

    Args:
        values: [trial, …].
        level: how often such an interval holds the mean, 0 … 1.
    """
    _check_level(level)
    every = _by_trial("values", values)
    kept = every[np.isfinite(every).all(axis=tuple(range(1, every.ndim)))]
    used = len(kept)
    half = np.full(kept.shape[1:], np.nan)
    mean = kept.mean(0) if used else half
    if used > 1:
        from scipy import special  # slow to import, needed here alone

        quantile = special.stdtrit(used - 1, 0.5 + level / 2)
        half = quantile * kept.std(0, ddof=1) / np.sqrt(used)
    return Interval(mean, mean - half, mean + half, used, len(every))


def _check_level(level: float) -> None:
    if not isinstance(level, numbers.Real) or not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {inputs.shown(level)}")


def paired(values: Numbers, reference: Numbers, level: float = 0.95) -> Interval:
    """Mean of `values` − `reference`, trial by trial: the random numbers they share cancel.

    Args:
        values, reference: [trial, …] of the same trials.
        level: as of `interval`.
    """
    own, other = _by_trial("values", values), _by_trial("reference", reference)
    if own.shape != other.shape:
        raise InputError(f"reference must have the shape of values, {own.shape}, got {other.shape}")
    with np.errstate(invalid="ignore"):  # inf − inf, which is left out as an inf is
        return interval(own - other, level)


class Between(NamedTuple):
    """An interval of a share or of a median.

    Attributes:
        low, high: the bounds of the interval.
        level: the probability with which such an interval holds the true value.
    """

    low: float
    high: float
    level: float


def share(count: int, of: int, level: float = 0.95) -> Between:
    """Exact interval of a share (Clopper and Pearson), from `count` successes in `of` tries.

    The interval holds the true share with at least the probability `level`, whatever the share and
    however few the tries, so that intervals can be corrected for their number (Bonferroni).

    Args:
        count: the number of successes.
        of: the number of independent tries.
        level: the confidence level, 0 … 1.
    """
    from scipy.stats import binomtest  # slow to import, needed here alone

    of = inputs.whole("of", of, 1)
    count = inputs.whole("count", count, 0, at_most=of)
    _check_level(level)
    bounds = binomtest(count, of).proportion_ci(level, method="exact")
    return Between(float(bounds.low), float(bounds.high), level)


def median(values: Numbers, level: float = 0.95) -> Between:
    """Interval of the median of any law, between two order statistics of independent draws.

    Args:
        values: [draw].
        level: the confidence level, 0 … 1. Too few draws do not reach it: the interval then spans
            all of them, and its own `level` says how much they reach.
    """
    from scipy.stats import quantile_test  # slow to import, needed here alone

    draws = inputs.real("values", values).astype(np.float64)
    if draws.ndim != 1 or not len(draws):
        raise InputError(f"values must have the axis [draw], got shape {list(draws.shape)}")
    _check_level(level)
    bounds = quantile_test(draws, p=0.5).confidence_interval(level)
    if np.isnan(bounds.low) or np.isnan(bounds.high):
        reached = 1.0 - 2.0 ** (1 - len(draws))  # neither all draws above the median nor all below
        return Between(float(draws.min()), float(draws.max()), reached)
    return Between(float(bounds.low), float(bounds.high), level)


VERDICTS = ("holds", "holds for most draws", "undecided", "fails on most draws", "fails")


def verdict(count: int, of: int, level: float = 0.95, nearly_all: float = 0.95) -> str:
    """Say in words on how many draws a statement holds: one of `VERDICTS`.

    Undecided: the exact interval of the share contains one half. Above one half the statement
    "holds for most draws", and "holds" if it does so on `nearly_all` of the draws seen; below one
    half it "fails on most draws", and "fails" if it does so on `nearly_all` of them.

    Args:
        count: the number of draws on which the statement holds.
        of: the number of draws.
        level: the confidence level of the share's interval.
        nearly_all: the share of draws from which on "most" is left out.
    """
    bounds = share(count, of, level)
    if bounds.low > 0.5:
        return VERDICTS[0] if count >= nearly_all * of else VERDICTS[1]
    if bounds.high < 0.5:
        return VERDICTS[4] if count <= (1 - nearly_all) * of else VERDICTS[3]
    return VERDICTS[2]


def scores(
    history: History, metric: str, whose: str = "this history"
) -> Float[np.ndarray, "trial evaluation"]:
    """A score [trial, evaluation], or a result [trial, round], NaN in all of a diverged trial.

    Args:
        history: of `simulate`.
        metric: the name of the score or of the result.
        whose: what the history is called where it has no such metric.

    A trial that diverged anywhere, by `history.diverged`, is left out of every mean.
    """
    if not isinstance(history, History):
        raise InputError(f"{whose} must be a jo.History of simulate, got {inputs.shown(history)}")
    values: Any = history.scores.get(metric) if isinstance(metric, str) else None
    if isinstance(metric, str) and DIMENSIONS.get(metric) == ("trial", "round"):
        values = getattr(history, metric)
    if np.ndim(values) != 2:
        raise InputError(
            f"metric must be one that {whose} has as [trial, evaluation], such as "
            f"{' or '.join(map(repr, history.scores))}, got {inputs.shown(metric)}"
        )
    return np.where(history.diverged[:, None], np.nan, np.asarray(values, np.float64))


def time_to(
    history: History,
    target: float,
    metric: str | None = None,
    against: str = "round",
    rising: bool | None = None,
) -> Float[np.ndarray, "trial"]:
    """Return what each trial spends until a score first reaches a target; inf if it never does.

    A trial that diverged never reaches it. Medians over trials stay meaningful where some are inf.

    Args:
        history: of `simulate`.
        target: the score to reach.
        metric: the name of a score; by default the gap, the accuracy, the loss or the first score.
        against: the cost: "round", "uses", "energy" or "reports".
        rising: whether the score must rise to the target; by default an accuracy must, and any
            other score must fall to it.
    """
    if not isinstance(history, History):
        raise InputError(f"history must be a jo.History, got {inputs.shown(history)}")
    inputs.chosen("against", against, ("round", *LEDGERS))
    if not isinstance(target, numbers.Real) or np.isnan(target):
        raise InputError(f"target must be a number, got {inputs.shown(target)}")
    if rising is not None:
        inputs.chosen("rising", rising, (False, True))
    usual = [k for k in ("gap", "accuracy", "loss") if k in history.scores]
    metric = next(iter((*usual, *history.scores))) if metric is None else metric
    values = scores(history, metric)
    rising = metric == "accuracy" if rising is None else rising
    reached = values >= target if rising else values <= target
    every = history.every if metric in history.scores else 1
    cost = history.done + every * (1.0 + np.arange(values.shape[1]))[None]
    if against != "round":
        cost = history.cumulative(against)[:, every - 1 :: every]
    return np.where(reached, cost, np.inf).min(1)


def _by_trial(name: str, values: Numbers) -> Float[np.ndarray, "trial *column"]:
    """In float64, [trial, …]."""
    array = inputs.real(name, values).astype(np.float64)
    if not array.ndim:
        raise InputError(f"{name} must have shape [trial, …], got {inputs.shown(values)}")
    return array


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
    """Return the metric, or the study's own for None; InputError if the task has no such score.

    Args:
        dataset: of `Study.run` or `jo.open`.
        metric: the name of a score.
    """
    scores = list(dataset.attrs["scores"])
    if metric is not None and metric not in scores:
        raise InputError(f"metric must be one of {', '.join(scores)}, got {metric!r}")
    return metric or dataset.attrs["metric"]


def summary(dataset: Any, metric: str, difference: bool = False) -> Summary:
    """Summarise a score over the trials of a study, whether these or means were kept.

    Args:
        dataset, metric: as of `metric_of`.
        difference: summarise the paired difference to the study's reference instead.
    """
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


def spending(dataset: Any, ledger: str) -> Summary | None:
    """Summarise what was spent up to each evaluation; None where a study holds no such ledger.

    Where means were kept, the intervals are NaN: rounds of one trial are not independent.

    Args:
        dataset: as of `metric_of`.
        ledger: "uses", "energy" or "reports".
    """
    means = dataset.attrs["keep"] == "mean"
    name = f"{ledger}_mean" if means else ledger
    if name not in dataset:
        return None
    values = dataset[name].astype("float64")
    if not means:
        present = dataset.participants.notnull().any("round")
        used = present & ~diverged(dataset)
        values = values.where(used)
    # Every row is finite or NaN as a whole, which a plain sum keeps.
    values = values.copy(data=values.values.cumsum(values.get_axis_num("round")))
    values = values.sel(round=dataset.evaluation.values).rename(round="evaluation")
    if means:
        return _with_interval(values, values * np.nan, dataset.used, dataset.trials)
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

    Args:
        dataset: as of `metric_of`.
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
    """Return [algorithm, axes…, trial] whether a trial left the finite numbers.

    Args:
        dataset: as of `metric_of`, of a study that kept trials.
    """
    # A model shorter than the longest of the study ends in NaN, in all trials of its setting.
    absent = dataset.model.isnull()
    padding = absent.all(("algorithm", "trial")) & ~absent.all(("algorithm", "trial", "parameter"))
    bad = (~np.isfinite(dataset.model) & ~padding).any("parameter")
    for score in dataset.attrs["scores"]:
        bad = bad | ~np.isfinite(dataset[score]).all("evaluation")
    return bad
