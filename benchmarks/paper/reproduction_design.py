"""The choices that the paper leaves open, and the settings at which they are tried.

Choices of numbers are swept in full. Choices of structure (another program for each value) become
variants of the algorithms: the eight rows of an orthogonal array, and each choice alone, so that
settings with few changes are among those that run.

A fractional design has 2^m runs of m basic factors. A column of it is a set of factors, written as
the bits of a number: a run is at the upper level where an odd number of these factors are (Box and
Hunter, 1961). Different columns are orthogonal; the product of columns is their exclusive or.
"""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
from claim_parts import FEDAVG, PARTS, SCAFFOLD

import jaxota as jo

PRECODED = "COTAF", "BAAF", "COBAAF"
CONTROLLED = "COBAAF", SCAFFOLD
ALL = "noisy FedAvg", *PRECODED, SCAFFOLD, FEDAVG
LONGEST_WORD = 6  # longer words of a design are not looked for


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice that the paper leaves open.

    Attributes:
        name: the choice in words.
        levels: its levels in words, ours first.
        values: the value of each level.
        columns: one column of the design, or two for three levels.
        field: the field of the study that takes the values, for choices of numbers.
        touches: the algorithms that change with it, for choices of structure.
        part: the field of those algorithms, or of their local rule, that takes the values.
    """

    name: str
    levels: tuple[str, ...]
    values: tuple[Any, ...]
    columns: tuple[int, ...]
    field: str = ""
    touches: tuple[str, ...] = ()
    part: str = ""


def levels(choices, factors) -> np.ndarray:
    """Level of each choice in each of 2^factors runs [run, choice]; run 0 has all at level 0.

    Two columns have four combinations; the last counts as level 0 again. A choice of three levels
    has the first twice as often, and stays orthogonal to the others.
    """
    runs = np.arange(2**factors)
    table = []
    for choice in choices:
        odd = [np.bitwise_count(runs & column) % 2 for column in choice.columns]
        table.append(sum(2**place * bits for place, bits in enumerate(odd)) % 3)
    return np.stack(table, 1).astype(int)


def aliases(choices) -> dict[str, list[str]]:
    """Pairs of other choices whose interaction is confounded with each main effect."""
    pairs = list(itertools.combinations(choices, 2))
    return {
        choice.name: [
            f"{one.name} × {other.name}"
            for one, other in pairs
            if choice not in (one, other) and _form_word((choice, one, other))
        ]
        for choice in choices
    }


def resolution(choices) -> int:
    """Length of the design's shortest word: the fewest choices whose columns multiply to 1.

    At III main effects are apart from each other, at IV also from interactions of two choices.
    """
    for length in range(1, LONGEST_WORD + 1):
        if any(map(_form_word, itertools.combinations(choices, length))):
            return length
    return LONGEST_WORD + 1


def _form_word(choices) -> bool:
    """Whether columns of these choices, one of each, multiply to 1."""
    products = {0}
    for choice in choices:
        first, *second = choice.columns
        spanned = {first, *second, *(first ^ column for column in second)}
        products = {product ^ column for product in products for column in spanned}
    return 0 in products


@dataclasses.dataclass(frozen=True)
class Family:
    """Figures on one kind of data, with the choices that are open there and the size of the runs.

    Attributes:
        factors: basic factors of the design.
        shrink: the trials asked for are divided by it; a trial on images takes much longer.
    """

    name: str
    figures: tuple[str, ...]
    choices: tuple[Choice, ...]
    factors: int
    draws: int
    calibration_trials: int
    every: int
    rounds: int
    shrink: int = 1

    @property
    def number_choices(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.field]

    @property
    def parts(self) -> list:
        """The parts of claims about these figures."""
        return [part for part in PARTS if part.figure in self.figures]

    @functools.cached_property
    def design(self) -> np.ndarray:
        """Levels of all choices in the orthogonal design [run, choice]."""
        return levels(self.choices, self.factors)

    @functools.cached_property
    def points(self) -> np.ndarray:
        """All settings that are run [point, choice]: the design, then each structure alone."""
        structure = [number for number, choice in enumerate(self.choices) if choice.touches]
        points = self.design.tolist()
        for number in structure:
            for level in range(1, len(self.choices[number].levels)):
                rows = self.design.copy()
                rows[:, structure] = 0
                rows[:, number] = level
                points += [row for row in np.unique(rows, axis=0).tolist() if row not in points]
        return np.array(points)

    def changes(self, point, name=None) -> list[tuple[Choice, int]]:
        """Choices that are not ours at a setting, with their levels; those of an algorithm."""
        pairs = zip(self.choices, point, strict=True)
        return [(c, level) for c, level in pairs if level and (name is None or name in c.touches)]

    def words(self, point) -> str:
        """A setting in words: what differs from ours."""
        return ", ".join(f"{c.name} {c.levels[n]}" for c, n in self.changes(point)) or "ours"

    def label(self, name, point) -> str:
        """Label of an algorithm at a setting: its name, and the changes that touch it."""
        changed = [f"{c.name} {c.levels[n]}" for c, n in self.changes(point, name)]
        return ", ".join([name, *changed])

    def algorithms(self, figure) -> dict[str, jo.Algorithm]:
        """All variants of the algorithms that the claims read of a figure, by their labels."""
        known = {}
        for other in (*self.figures, figure):  # the figure's own come last, and win
            known |= jo.figures.FIGURES[other].algorithms
        read = {name for part in self.parts for where, name in part.sources if where == figure}
        return {
            self.label(name, point): self._changed(known[name], self.changes(point, name))
            for name in ALL
            if name in read
            for point in self.points
        }

    def _changed(self, algorithm, changes):
        fields = {choice.part: choice.values[level] for choice, level in changes}
        parts = {name: fields.pop(name) for name in ("estimate", "precode") if name in fields}
        return algorithm.replace(local=dataclasses.replace(algorithm.local, **fields), **parts)

    def place(self, point) -> dict[str, int]:
        """Indices of a setting along the swept axes, and of the evaluation where it is read."""
        at = dict(zip(self.choices, map(int, point), strict=True))
        rounds = next((c.values[n] for c, n in at.items() if c.name == "rounds"), self.rounds)
        return {
            **{choice.name: level for choice, level in at.items() if choice.field},
            "evaluation": rounds // self.every - 1,
        }


_PRIORS = jo.MMSE(), jo.ReportedMMSE(), jo.PooledMMSE()
_PRIOR = Choice(
    *("prior", ("plan", "reported", "pooled"), _PRIORS, (1, 2)),
    touches=("BAAF", "COBAAF"),
    part="estimate",
)
_SNR = Choice("SNR", ("per vector", "per symbol"), ("vector", "symbol"), (8,), "snr_db")
_PRECODERS = jo.Offline(), jo.Online()


def _number(name, field, values, column) -> Choice:
    return Choice(name, tuple(f"{value:g}" for value in values), values, (column,), field)


def _structure(name, labels, values, column, touches, part) -> Choice:
    return Choice(name, labels, values, (column,), touches=touches, part=part)


def _batch(first) -> Choice:
    return _structure("batch", (str(first), "1"), (first, 1), 4, ALL, "batch")


def _controls(option, warm) -> tuple[Choice, Choice]:
    """Option and start of the controls, in these columns."""
    return (
        _structure("control option", ("I", "II"), (1, 2), option, CONTROLLED, "control_option"),
        _structure("warm start", ("no", "yes"), (False, True), warm, CONTROLLED, "warm_start"),
    )


REGRESSION = Family(
    "regression",
    ("fig1", "fig2", "fig3"),
    (
        _SNR,
        _number("data spread", "data_spread", (0.1, 0.3), 16),
        _number("model spread", "model_spread", (1.0, 10.0), 32),
        Choice("control power", ("P", "10 P"), (1.0, 10.0), (64,), "control_power"),
        _PRIOR,
        _batch(10),
        _structure("precoder", ("offline", "online"), _PRECODERS, 5, PRECODED, "precode"),
        *_controls(6, 7),
    ),
    factors=7,
    draws=9,
    calibration_trials=10,
    every=5,
    rounds=60,
)
IMAGES = Family(
    "images",
    ("fig4", "fig5"),
    (
        _SNR,
        _number("initial scale", "init_scale", (0.0, 0.1), 16),
        _number("step size", "step_size", (0.01, 0.1), 32),
        Choice("rounds", ("100", "50"), (100, 50), (64,)),
        _PRIOR,
        _batch(20),
        *_controls(5, 6),
    ),
    factors=7,
    draws=3,
    calibration_trials=3,
    every=10,
    rounds=100,
    shrink=4,
)
FAMILIES = {family.name: family for family in (REGRESSION, IMAGES)}
