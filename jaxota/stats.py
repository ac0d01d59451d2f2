"""Means over trials with their confidence intervals, paired differences, and what is left out."""

import dataclasses

import numpy as np
from scipy import special

from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over trials with its two-sided Student-t confidence interval, per column.

    Trials that hold an inf or a NaN anywhere are left out, and counted: `used` of `trials` remain.
    With fewer than two the bounds are NaN, with none the mean too.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    used: int
    trials: int

    @property
    def half_width(self) -> np.ndarray:
        return (self.high - self.low) / 2

    @property
    def diverged(self) -> int:
        return self.trials - self.used


def interval(values, level: float = 0.95) -> Interval:
    """Mean and confidence interval over the first axis of `values` [trial, …]."""
    values = np.asarray(values, np.float64)
    trials = len(values)
    values = values[_finite(values)]
    used = len(values)
    nothing = np.full(values.shape[1:], np.nan)
    mean = values.mean(0) if used else nothing
    half = nothing
    if used > 1:
        quantile = special.stdtrit(used - 1, 0.5 + level / 2)
        half = quantile * values.std(0, ddof=1) / np.sqrt(used)
    return Interval(mean, mean - half, mean + half, used, trials)


def paired(values, reference, level: float = 0.95) -> Interval:
    """Mean of `values` − `reference`, trial by trial: the random numbers they share cancel."""
    values, reference = np.asarray(values, np.float64), np.asarray(reference, np.float64)
    if values.shape != reference.shape:
        raise InputError(
            f"reference must have the shape of values, {values.shape}, got {reference.shape}"
        )
    both = _finite(values) & _finite(reference)
    result = interval(values[both] - reference[both], level)
    return dataclasses.replace(result, trials=len(values))


def scores(history: History, metric: str, whose: str = "this history") -> np.ndarray:
    """A score [trial, evaluation], or a result [trial, round], NaN in all of a diverged trial.

    A trial that diverged anywhere, by `history.diverged`, is left out of every mean.
    """
    values = history.scores.get(metric)
    if values is None and DIMENSIONS.get(metric) == ("trial", "round"):
        values = getattr(history, metric)
    if values is None or np.ndim(values) != 2:
        raise InputError(
            f"metric must be one that {whose} has as [trial, evaluation], such as "
            f"{' or '.join(map(repr, history.scores))}, got {metric!r}"
        )
    return np.where(history.diverged[:, None], np.nan, np.asarray(values, np.float64))


def _finite(values: np.ndarray) -> np.ndarray:
    """[trial] whether all of a trial is finite."""
    return np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
