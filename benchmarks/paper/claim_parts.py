"""The claims that the paper makes about its figures, as data.

A claim has one or several parts. The effect of a part is one number per data draw, computed from
final scores (means over trials at the last round) at the settings of the figures.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

# Our readings of "within a minor gap" and "close to": the largest ratio of gaps, the largest share
# of noisy FedAvg's distance, and the largest loss of accuracy in percentage points.
NEAR_RATIO, NEAR_SHARE, NEAR_POINTS = 2.0, 0.1, 2.0
PRECODERS = "offline", "online"
SCAFFOLD, FEDAVG = "SCAFFOLD (noise-free)", "FedAvg (noise-free)"


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a claim.

    Attributes:
        name: the number of the claim, and a letter where the claim has several parts.
        words: the part in words.
        effect: computes the effect [draw] from `scores(figure, algorithm, score)` [draw].
        unit: "ratio" or "difference" of gaps, or "points" of accuracy, in %.
        limit: the part holds on draws with points above it, or a ratio or difference below it.
    """

    name: str
    words: str
    effect: Callable
    unit: str = "ratio"
    limit: float = 1.0

    @property
    def claim(self) -> str:
        return self.name[0]

    @property
    def sources(self) -> list[tuple[str, str]]:
        """The (figure, algorithm) pairs whose scores the effect reads."""
        read = {}

        def scores(figure, algorithm, score):
            read[figure, algorithm] = None
            return np.ones(1)

        with np.errstate(all="ignore"):
            self.effect(scores)
        return list(read)

    @property
    def figure(self) -> str:
        """The figure that the part is about: the last one that it reads."""
        return max(figure for figure, _ in self.sources)

    def effects(self, scores) -> np.ndarray:
        """Effect [draw]; where all that is compared diverged, as far from the claim as possible."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            effect = self.effect(scores)
        return np.where(np.isnan(effect), -np.inf if self.unit == "points" else np.inf, effect)

    def holds(self, effects: np.ndarray) -> np.ndarray:
        """Whether the part holds [draw]."""
        return effects > self.limit if self.unit == "points" else effects < self.limit


def _ratio(figure, one, other):
    return lambda scores: scores(figure, one, "gap") / scores(figure, other, "gap")


def _difference(figure, one, other):
    return lambda scores: scores(figure, one, "gap") - scores(figure, other, "gap")


def _points(figure, one, other):
    def effect(scores):
        return 100 * (scores(figure, one, "accuracy") - scores(figure, other, "accuracy"))

    return effect


def _over(one, other):
    return lambda scores: one(scores) / other(scores)


def _minus(one, other):
    return lambda scores: one(scores) - other(scores)


_NEAR = "fig1", "COBAAF", SCAFFOLD
_NEAR_200 = "fig2", "COBAAF", SCAFFOLD
_LEAD = _points("fig5", "COBAAF", "COTAF")
_PART_OF_DISTANCE = _over(_difference(*_NEAR), _difference("fig1", "noisy FedAvg", SCAFFOLD))

_RATIOS = (
    ("1a", "BAAF below COTAF", _ratio("fig1", "BAAF", "COTAF"), 1.0),
    ("1b", "COTAF below noisy FedAvg", _ratio("fig1", "COTAF", "noisy FedAvg"), 1.0),
    ("2", "COBAAF below BAAF", _ratio("fig1", "COBAAF", "BAAF"), 1.0),
    ("3a", "COBAAF near SCAFFOLD, to its gap", _ratio(*_NEAR), NEAR_RATIO),
    ("3b", "COBAAF near SCAFFOLD, to noisy FedAvg's distance", _PART_OF_DISTANCE, NEAR_SHARE),
    ("4a", "N = 200: nearer, as a ratio of gaps", _over(_ratio(*_NEAR_200), _ratio(*_NEAR)), 1.0),
    (
        *("5a", "K = 20 helps COBAAF"),
        lambda scores: scores("fig3", "COBAAF", "gap") / scores("fig1", "COBAAF", "gap"),
        1.0,
    ),
    (
        *("5b", "K = 20 widens its lead over COTAF"),
        _over(_ratio("fig3", "COBAAF", "COTAF"), _ratio("fig1", "COBAAF", "COTAF")),
        1.0,
    ),
)
_DIFFERENCES = (
    (
        *("4b", "N = 200: nearer, as a difference of gaps"),
        _minus(_difference(*_NEAR_200), _difference(*_NEAR)),
        0.0,
    ),
)
_ACCURACIES = (
    ("6a", "balanced: BAAF above COTAF", _points("fig4", "BAAF", "COTAF"), 0.0),
    ("6b", "balanced: COTAF above noisy FedAvg", _points("fig4", "COTAF", "noisy FedAvg"), 0.0),
    ("6c", "balanced: BAAF close to FedAvg", _points("fig4", "BAAF", FEDAVG), -NEAR_POINTS),
    ("7a", "imbalanced: COBAAF above COTAF", _LEAD, 0.0),
    (
        *("7b", "by more than BAAF in the balanced case"),
        _minus(_LEAD, _points("fig4", "BAAF", "COTAF")),
        0.0,
    ),
    (
        *("7c", "by more than COBAAF in the balanced case"),
        _minus(_LEAD, _points("fig4", "COBAAF", "COTAF")),
        0.0,
    ),
    (
        *("7d", "imbalanced: COBAAF close to SCAFFOLD"),
        _points("fig5", "COBAAF", SCAFFOLD),
        -NEAR_POINTS,
    ),
)
PARTS = sorted(
    (
        Part(name, words, effect, unit, limit)
        for unit, rows in (
            ("ratio", _RATIOS),
            ("difference", _DIFFERENCES),
            ("points", _ACCURACIES),
        )
        for name, words, effect, limit in rows
    ),
    key=lambda part: part.name,
)
LINES = len(PARTS) * len(PRECODERS)  # tested at once, however few of them a run asks for
