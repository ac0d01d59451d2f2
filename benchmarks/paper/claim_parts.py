"""What the paper claims of its figures, as data, and the runs that answer for it.

A claim is told part by part. The effect of a part is one number for each data draw, from means over
trials at the last round; the settings are those of the figures.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

# What "within a minor gap" and "close to" are taken to mean: at most so many times the gap, at most
# such a part of noisy FedAvg's distance, at most so many points of accuracy below.
NEAR_GAP, NEAR_PART, NEAR_POINTS = 2.0, 0.1, 2.0
PRECODERS = "offline", "online"
SCAFFOLD, FEDAVG = "SCAFFOLD (noise-free)", "FedAvg (noise-free)"

Scores: TypeAlias = Callable[[str, str, str], np.ndarray]  # (figure, algorithm, score) → [draw]
Effect: TypeAlias = Callable[[Scores], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that a claim says.

    Attributes:
        name: the number of its claim, and a letter where there are several parts.
        effect: what it is judged by [draw], of final scores.
        unit: of the effect: "ratio", "difference" of gaps, or "points" of accuracy, in %.
        limit: it holds on draws with a ratio or a difference below this, or with points above it.
    """

    name: str
    words: str
    effect: Effect
    unit: str = "ratio"
    limit: float = 1.0

    @property
    def claim(self) -> int:
        return int(self.name[0])

    @property
    def read(self) -> list[tuple[str, str]]:
        """The figures and algorithms whose scores it reads."""
        asked: dict[tuple[str, str], None] = {}

        def scores(figure: str, algorithm: str, score: str) -> np.ndarray:
            asked[figure, algorithm] = None
            return np.ones(1)

        with np.errstate(all="ignore"):
            self.effect(scores)
        return list(asked)

    def on(self, scores: Scores) -> np.ndarray:
        """The effect [draw]; where it is not defined, as all that it compares diverged, it is as
        far from the claim as can be.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = self.effect(scores)
        return np.where(np.isnan(found), -np.inf if self.unit == "points" else np.inf, found)

    def holds(self, effect: np.ndarray) -> np.ndarray:
        """On which draws it does [draw]."""
        return effect > self.limit if self.unit == "points" else effect < self.limit


def _ratio(figure: str, one: str, other: str) -> Effect:
    return lambda scores: scores(figure, one, "gap") / scores(figure, other, "gap")


def _difference(figure: str, one: str, other: str) -> Effect:
    return lambda scores: scores(figure, one, "gap") - scores(figure, other, "gap")


def _points(figure: str, one: str, other: str) -> Effect:
    return lambda scores: (
        100 * (scores(figure, one, "accuracy") - scores(figure, other, "accuracy"))
    )


def _over(one: Effect, other: Effect) -> Effect:
    return lambda scores: one(scores) / other(scores)


def _minus(one: Effect, other: Effect) -> Effect:
    return lambda scores: one(scores) - other(scores)


_NEAR = "fig1", "COBAAF", SCAFFOLD
_NEAR_200 = "fig2", "COBAAF", SCAFFOLD
_LEAD = _points("fig5", "COBAAF", "COTAF")

PARTS = (
    Part("1a", "BAAF below COTAF", _ratio("fig1", "BAAF", "COTAF")),
    Part("1b", "COTAF below noisy FedAvg", _ratio("fig1", "COTAF", "noisy FedAvg")),
    Part("2", "COBAAF below BAAF", _ratio("fig1", "COBAAF", "BAAF")),
    Part("3a", "COBAAF near SCAFFOLD, to its gap", _ratio(*_NEAR), limit=NEAR_GAP),
    Part(
        "3b",
        "COBAAF near SCAFFOLD, to noisy FedAvg's distance",
        _over(_difference(*_NEAR), _difference("fig1", "noisy FedAvg", SCAFFOLD)),
        limit=NEAR_PART,
    ),
    Part("4a", "N = 200: nearer, as a ratio of gaps", _over(_ratio(*_NEAR_200), _ratio(*_NEAR))),
    Part(
        "4b",
        "N = 200: nearer, as a difference of gaps",
        _minus(_difference(*_NEAR_200), _difference(*_NEAR)),
        "difference",
        0.0,
    ),
    Part(
        "5a",
        "K = 20 helps COBAAF",
        lambda scores: scores("fig3", "COBAAF", "gap") / scores("fig1", "COBAAF", "gap"),
    ),
    Part(
        "5b",
        "K = 20 widens its lead over COTAF",
        _over(_ratio("fig3", "COBAAF", "COTAF"), _ratio("fig1", "COBAAF", "COTAF")),
    ),
    Part("6a", "balanced: BAAF above COTAF", _points("fig4", "BAAF", "COTAF"), "points", 0.0),
    Part(
        "6b",
        "balanced: COTAF above noisy FedAvg",
        _points("fig4", "COTAF", "noisy FedAvg"),
        "points",
        0.0,
    ),
    Part(
        "6c",
        "balanced: BAAF close to FedAvg",
        _points("fig4", "BAAF", FEDAVG),
        "points",
        -NEAR_POINTS,
    ),
    Part("7a", "imbalanced: COBAAF above COTAF", _LEAD, "points", 0.0),
    Part(
        "7b",
        "by more than BAAF in the balanced case",
        _minus(_LEAD, _points("fig4", "BAAF", "COTAF")),
        "points",
        0.0,
    ),
    Part(
        "7c",
        "by more than COBAAF in the balanced case",
        _minus(_LEAD, _points("fig4", "COBAAF", "COTAF")),
        "points",
        0.0,
    ),
    Part(
        "7d",
        "imbalanced: COBAAF close to SCAFFOLD",
        _points("fig5", "COBAAF", SCAFFOLD),
        "points",
        -NEAR_POINTS,
    ),
)
LINES = len(PARTS) * len(PRECODERS)  # that are judged at once, whichever of them are asked for
