"""Lines of the table of claims: shares of draws and medians with their intervals, and verdicts."""

import dataclasses
from typing import Any

import numpy as np

from jaxota import stats
from jaxota.experiments.claims import LINES, PRECODERS, Part
from jaxota.experiments.draws import Between, median_interval, wilson

LEVEL = 0.95
SIMULTANEOUS = 1 - (1 - LEVEL) / LINES  # Bonferroni: all lines at once are right with LEVEL
RULE = (
    f"Undecided: the {100 * LEVEL:.3g} % interval of the share of draws contains one half. Holds: "
    f"on at least {100 * LEVEL:.3g} % of the draws. Fails: on at most {100 - 100 * LEVEL:.3g} %."
)
CORRECTED = (
    f"† The verdict does not survive correction for testing all {LINES} claims at once "
    "(Bonferroni)."
)


@dataclasses.dataclass(frozen=True)
class Line:
    """A part of a claim under one precoder.

    Attributes:
        effects: [draw].
        power_ratio: the largest of the algorithms compared: mean over trials, largest of all
            rounds, median over draws.
    """

    part: Part
    precoder: str
    data: str
    trials: int
    calibration_trials: int
    effects: np.ndarray
    power_ratio: float

    @property
    def count(self) -> int:
        """The draws on which it holds."""
        return int(self.part.holds(self.effects).sum())

    @property
    def share(self) -> float:
        return self.count / len(self.effects)

    def share_interval(self, level: float) -> Between:
        return wilson(self.count, len(self.effects), level)

    def median_interval(self, level: float) -> Between:
        return median_interval(self.effects, level)

    @property
    def verdict(self) -> str:
        """One of `stats.VERDICTS`, from the interval of the share."""
        return stats.verdict(self.count, len(self.effects), LEVEL)

    @property
    def open(self) -> bool:
        """Whether the simultaneous interval of the share includes one half."""
        found = self.share_interval(SIMULTANEOUS)
        return found.low <= 0.5 <= found.high

    def row(self) -> dict[str, Any]:
        """Of the CSV."""
        numbers: dict[str, Any] = {"share": self.share}
        for name, level in (("", LEVEL), ("_simultaneous", SIMULTANEOUS)):
            within = self.share_interval(level)
            numbers |= {f"share_low{name}": within.low, f"share_high{name}": within.high}
        numbers["median"] = float(np.median(self.effects))
        for name, level in (("", LEVEL), ("_simultaneous", SIMULTANEOUS)):
            within = self.median_interval(level)
            numbers |= {f"median_low{name}": within.low, f"median_high{name}": within.high}
            numbers[f"median_level{name}"] = within.level
        numbers["power_ratio"] = self.power_ratio
        return {
            "part": self.part.name,
            "claim": self.part.words,
            "precoder": self.precoder,
            "data": self.data,
            "draws": len(self.effects),
            "trials": self.trials,
            "calibration_trials": self.calibration_trials,
            "unit": self.part.unit,
            "limit": self.part.limit,
            "holds_on": self.count,
            **{name: f"{value:.6g}" for name, value in numbers.items()},
            "verdict": self.verdict,
            "open": "yes" if self.open else "no",
        }


def lines(parts: list[Part], runs: Any, found: Any) -> list[Line]:
    """Those of the parts that these runs answer for; `found` is what `Runs.report` leaves."""
    mine = [part for part in parts if all(figure in runs.figures for figure, _ in part.read)]
    return [_line(part, precoder, runs, found) for part in mine for precoder in PRECODERS]


def _line(part: Part, precoder: str, runs: Any, found: Any) -> Line:
    labels = set(found.algorithm.values.tolist())

    def at(figure: str, algorithm: str, name: str) -> np.ndarray:
        precoded = f"{algorithm}, online"
        if precoder == "online" and precoded in labels:
            algorithm = precoded
        return found[name].sel(figure=figure, algorithm=algorithm).values

    powers = [float(np.median(at(*place, "power_ratio"))) for place in part.read]
    sizes = runs.trials, runs.calibration_trials
    return Line(part, precoder, runs.data, *sizes, part.on(at), max(powers))
