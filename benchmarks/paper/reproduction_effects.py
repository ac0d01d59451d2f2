"""What a design shows about the claims: where they hold, and which choices they depend on."""

import dataclasses
from typing import NamedTuple

import numpy as np
from reproduction_design import Family
from scipy import special

import jaxota as jo

LEVEL = 0.95
# Parts that read the same words of the paper: a figure appears if either of them holds.
READINGS = ("3a", "3b"), ("4a", "4b"), ("7b", "7c")


class MainEffect(NamedTuple):
    """Change of the share of draws on which a part holds, from our level to another."""

    choice: str
    level: str
    change: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


class Place(NamedTuple):
    """The setting where all claims of a figure hold on most draws, or else the nearest to it.

    Attributes:
        appears: whether all claims hold on most draws there.
        point: its number among the family's settings.
        held, claims: claims that hold on most draws there, and all claims.
        share: the smallest share of draws of these claims.
    """

    appears: bool
    point: int
    held: int
    claims: int
    share: float


def main_effects(choices, levels, held) -> list[MainEffect]:
    """Main effects of all levels but ours.

    The contrast is taken on each draw. Its interval is Student's over draws, with the variance of
    this contrast or the mean variance of all contrasts, whichever is larger: few draws may agree by
    chance.

    Args:
        choices: the choices of the design.
        levels: [run, choice].
        held: [run, draw] whether a part holds.
    """
    names, contrasts = [], []
    for number, choice in enumerate(choices):
        ours = held[levels[:, number] == 0].mean(0)
        for level in range(1, choice.tried):
            names.append((choice.name, choice.levels[level]))
            contrasts.append(held[levels[:, number] == level].mean(0) - ours)
    contrasts = np.array(contrasts)  # [effect, draw]
    draws = contrasts.shape[1]
    half = np.full(len(contrasts), np.nan)
    if draws > 1:
        variance = contrasts.var(1, ddof=1)
        error = np.sqrt(np.maximum(variance, variance.mean()) / draws)
        half = special.stdtrit(draws - 1, 0.5 + LEVEL / 2) * error
    means = contrasts.mean(1)
    rows = zip(names, means, means - half, means + half, strict=True)
    return [MainEffect(*name, *map(float, numbers)) for name, *numbers in rows]


def nearest_to_ours(points, shares) -> Place:
    """The setting with the fewest changes from ours at which all claims hold on most draws.

    Among equals the one with the largest of the claims' smallest shares, then the first. If the
    claims hold together nowhere, the choice is among the settings where most of them hold.

    Args:
        points: [point, choice] levels.
        shares: [claim, point] shares of draws.
    """
    held, smallest = (shares > 0.5).sum(0), shares.min(0)
    order = np.lexsort((-smallest, (points > 0).sum(1), -held))
    point = int(order[0])
    count, claims = int(held[point]), len(shares)
    return Place(count == claims, point, count, claims, float(smallest[point]))


@dataclasses.dataclass(frozen=True)
class Judged:
    """Effects of a family's parts at all of its settings.

    Attributes:
        effects: [point, draw] by the name of a part.
    """

    family: Family
    effects: dict[str, np.ndarray]

    @classmethod
    def from_scores(cls, family, scores) -> "Judged":
        """Compute the effects from scores [algorithm, choices…, evaluation, draw] by figure."""

        def reader(point):
            place = family.place(point)

            def read(figure, algorithm, _):
                label = family.label(algorithm, point)
                return scores[figure].sel(algorithm=label).isel(place).values

            return read

        readers = [reader(point) for point in family.points]
        return cls(
            family,
            {part.name: np.array([part.effects(r) for r in readers]) for part in family.parts},
        )

    def held(self, part) -> np.ndarray:
        """Whether a part holds [point, draw]."""
        return part.holds(self.effects[part.name])

    def shares(self, part) -> np.ndarray:
        """Share of draws on which a part holds [point]."""
        return self.held(part).mean(1)

    def share_of_settings(self, part):
        """Settings of the design where a part holds on most draws, all settings, and interval."""
        most = self.shares(part)[: len(self.family.design)] > 0.5
        count = int(most.sum())
        return count, len(most), jo.stats.share(count, len(most), LEVEL)

    def main_effects(self, part) -> list[MainEffect]:
        """Main effects over the settings of the design."""
        design = self.family.design
        return main_effects(self.family.choices, design, self.held(part)[: len(design)])

    def place_of_figure(self, figure) -> Place:
        """The setting where a figure appears, or the nearest to it."""
        claims = readings([part for part in self.family.parts if part.figure == figure])
        shares = [np.max([self.shares(part) for part in group], 0) for group in claims]
        return nearest_to_ours(self.family.points, np.array(shares))

    def place_of_part(self, part) -> Place:
        """The setting where a part holds on most draws, or else where its median is nearest."""
        shares = self.shares(part)
        place = nearest_to_ours(self.family.points, shares[None])
        if place.appears:
            return place
        middle = np.median(self.effects[part.name], 1)
        point = int(np.argmax(middle) if part.unit == "points" else np.argmin(middle))
        return place._replace(point=point, share=float(shares[point]))

    def words(self, place) -> str:
        """The setting of a place in words."""
        return self.family.words(self.family.points[place.point])


def readings(parts) -> list[list]:
    """Group parts that read the same words of the paper."""
    groups = {}
    for part in parts:
        same = next((names for names in READINGS if part.name in names), part.name)
        groups.setdefault(same, []).append(part)
    return list(groups.values())
