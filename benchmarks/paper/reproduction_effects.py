"""What a design tells of claims: where each holds, what it turns on, and where a figure appears."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from jaxota.experiments.claims import Part, Scores
from jaxota.experiments.draws import Between, wilson
from jaxota.experiments.reproduction import Choice, Family, figure_of

LEVEL = 0.95
# Parts that are readings of the same words of the paper: either will do for its figure to appear.
READINGS = ("3a", "3b"), ("4a", "4b"), ("7b", "7c")


class MainEffect(NamedTuple):
    """By how much the share of draws on which a part holds changes from our choice to another."""

    choice: str
    level: str
    change: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


class Place(NamedTuple):
    """A setting for a figure: where it appears, or, if it does nowhere, the nearest to it."""

    figure: str
    appears: bool
    point: int
    held: int  # claims of the figure that hold there
    of: int
    margin: float  # the least share of draws of these claims


def main_effects(
    choices: Sequence[Choice], levels: np.ndarray, held: np.ndarray
) -> list[MainEffect]:
    """Of each level but our own, from levels [run, choice] and where a part holds [run, draw].

    A contrast is taken on each draw; its interval is Student's over draws, with the spread of that
    contrast or of the part's contrasts on average, whichever is larger: few draws may agree by
    chance.
    """
    names, contrasts = [], []
    for number, choice in enumerate(choices):
        ours = held[levels[:, number] == 0].mean(0)
        for level in range(1, len(choice.levels)):
            names.append((choice.name, choice.levels[level]))
            contrasts.append(held[levels[:, number] == level].mean(0) - ours)
    every = np.array(contrasts)  # [effect, draw]
    count = every.shape[1]
    half = np.full(len(every), np.nan)
    if count > 1:
        variance = every.var(1, ddof=1)
        spread = np.sqrt(np.maximum(variance, variance.mean()) / count)
        half = float(special.stdtrit(count - 1, 0.5 + LEVEL / 2)) * spread
    means = every.mean(1)
    found = zip(names, means, means - half, means + half, strict=True)
    return [MainEffect(*name, *map(float, numbers)) for name, *numbers in found]


def natural(points: np.ndarray, shares: np.ndarray) -> tuple[int, bool]:
    """The most natural setting, from levels [point, choice] and shares of draws [claim, point].

    Of those where all claims hold, the one of fewest changes; among equals that of the largest
    margin, the least of its claims' shares; then the first. Where they hold nowhere, of the
    settings of most claims, and not found.
    """
    changes, margin = (points > 0).sum(1), shares.min(0)
    kept = (shares > 0.5).sum(0)
    order = np.lexsort((-margin, changes, -kept))
    return int(order[0]), bool(kept[order[0]] == len(shares))


@dataclasses.dataclass(frozen=True)
class Judged:
    """A family's parts at all of its settings.

    Attributes:
        effects: by the name of a part [point, draw].
    """

    family: Family
    effects: dict[str, np.ndarray]

    @classmethod
    def of(cls, family: Family, dataset: Any) -> "Judged":
        """From the scores that the job found."""
        scores = dataset.score.transpose("figure", "algorithm", "setting", "evaluation", "draw")
        values = scores.values[..., : family.draws]
        rows, figures = (
            {str(k): n for n, k in enumerate(dataset[name].values)}
            for name in ("algorithm", "figure")
        )

        def reader(point: np.ndarray) -> Scores:
            at = family.setting(point), family.evaluation(point)

            def read(figure: str, algorithm: str, score: str) -> np.ndarray:
                return values[figures[figure], rows[family.label(algorithm, point)], *at]

            return read

        every = [reader(point) for point in family.points]
        parts = family.parts
        return cls(family, {p.name: np.array([p.on(read) for read in every]) for p in parts})

    def held(self, part: Part) -> np.ndarray:
        """Whether it holds [point, draw]."""
        return part.holds(self.effects[part.name])

    def shares(self, part: Part) -> np.ndarray:
        """Of draws on which it holds [point]."""
        return self.held(part).mean(1)

    def share(self, part: Part) -> tuple[int, int, Between]:
        """On how many settings of the design it holds, of how many, and Wilson's interval."""
        where = self.shares(part)[: len(self.family.design)] > 0.5
        return int(where.sum()), len(where), wilson(int(where.sum()), len(where), LEVEL)

    def main_effects(self, part: Part) -> list[MainEffect]:
        """Over the settings of the design."""
        design = self.family.design
        return main_effects(self.family.choices, design, self.held(part)[: len(design)])

    def place(self, figure: str) -> Place:
        """Where a figure appears."""
        claims = claims_of([part for part in self.family.parts if figure_of(part) == figure])
        shares = np.array([np.max([self.shares(part) for part in some], 0) for some in claims])
        point, appears = natural(self.family.points, shares)
        there = shares[:, point]
        return Place(figure, appears, point, int((there > 0.5).sum()), len(there), there.min())

    def first(self, part: Part) -> Place:
        """Where a part holds with the fewest changes, or, if nowhere, comes nearest."""
        point, holds = natural(self.family.points, self.shares(part)[None])
        if not holds:
            middle = np.median(self.effects[part.name], 1)
            point = int(np.argmax(middle) if part.unit == "points" else np.argmin(middle))
        return Place(figure_of(part), holds, point, int(holds), 1, self.shares(part)[point])

    def words(self, point: int) -> str:
        """A setting by what of it is not ours."""
        pairs = zip(self.family.choices, self.family.points[point], strict=True)
        return ", ".join(f"{c.name} {c.levels[at]}" for c, at in pairs if at) or "ours"


def claims_of(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts, those that are readings of the same words together."""
    groups: dict[Any, list[Part]] = {}
    for part in parts:
        same = next((names for names in READINGS if part.name in names), part.name)
        groups.setdefault(same, []).append(part)
    return list(groups.values())
