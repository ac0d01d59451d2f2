"""The choices that the paper leaves open, and the settings at which they are tried.

Choices of numbers are swept in full. Choices of structure (another program for each value) become
variants of the algorithms: the rows of an orthogonal array, and each choice alone, so that settings
with few changes are among those that run. The number of rounds costs nothing: it is where a run is
read. The designs are of resolution IV: no main effect is mixed with an interaction of two choices.

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

CONTROLLED = "COBAAF", SCAFFOLD
ALL = "noisy FedAvg", "COTAF", "BAAF", "COBAAF", SCAFFOLD, FEDAVG
LONGEST_WORD = 6  # longer words of a design are not looked for


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice that the paper leaves open.

    Attributes:
        name: the choice in words.
        levels: its levels in words, ours first; those beyond `tried` are for readings alone.
        values: the value of each level.
        columns: one column of the design, or two for three or four levels.
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

    @property
    def tried(self) -> int:
        """Number of levels in the design."""
        return min(len(self.levels), 2 ** len(self.columns))


def levels(choices, factors) -> np.ndarray:
    """Level of each choice in each of 2^factors runs [run, choice]; run 0 has all at level 0.

    Two columns have four combinations. Of a choice of three levels the last one counts as level 0
    again, which then occurs twice as often; the choice stays orthogonal to the others.
    """
    runs = np.arange(2**factors)
    table = []
    for choice in choices:
        odd = [np.bitwise_count(runs & column) % 2 for column in choice.columns]
        table.append(sum(2**place * bits for place, bits in enumerate(odd)) % choice.tried)
    return np.stack(table, 1).astype(int)


def words(choices, length) -> list[tuple[str, ...]]:
    """Words of the design: sets of so many choices whose columns multiply to 1.

    The effect of some choices of a word is confounded with the effect of its others: a word A·B·C·D
    confounds A with the interaction of B, C and D, and the interaction of A and B with that of C
    and D.
    """
    sets = itertools.combinations(choices, length)
    return [tuple(choice.name for choice in word) for word in sets if _form_word(word)]


def resolution(choices) -> int:
    """Length of the design's shortest word.

    At III main effects are apart from each other, at IV also from interactions of two choices.
    """
    lengths = range(1, LONGEST_WORD + 1)
    return next((n for n in lengths if words(choices, n)), LONGEST_WORD + 1)


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
            for level in range(1, self.choices[number].tried):
                rows = self.design.copy()
                rows[:, structure] = 0
                rows[:, number] = level
                points += [row for row in np.unique(rows, axis=0).tolist() if row not in points]
        return np.array(points)

    def point(self, **changes) -> np.ndarray:
        """The setting with these levels, by the names of choices with _ for spaces."""
        given = {name.replace("_", " "): level for name, level in changes.items()}
        return np.array([c.levels.index(given.get(c.name, c.levels[0])) for c in self.choices])

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

    def algorithms(self, figure, points=None) -> dict[str, jo.Algorithm]:
        """Variants of the algorithms that the claims read of a figure, by their labels.

        They are those of the settings `points`, by default of all.
        """
        known = {}
        for other in (*self.figures, figure):  # the figure's own come last, and win
            known |= jo.figures.FIGURES[other].algorithms
        read = {name for part in self.parts for where, name in part.sources if where == figure}
        return {
            self.label(name, point): self._changed(known[name], self.changes(point, name))
            for name in ALL
            if name in read
            for point in (self.points if points is None else points)
        }

    def _changed(self, algorithm, changes):
        fields = {choice.part: choice.values[level] for choice, level in changes}
        parts = {name: fields.pop(name) for name in ("estimate",) if name in fields}
        return algorithm.replace(local=dataclasses.replace(algorithm.local, **fields), **parts)

    def place(self, point) -> dict[str, int]:
        """Indices of a setting along the swept axes, and of the evaluation where it is read."""
        at = dict(zip(self.choices, map(int, point), strict=True))
        rounds = next((c.values[n] for c, n in at.items() if c.name == "rounds"), self.rounds)
        return {
            **{choice.name: level for choice, level in at.items() if choice.field},
            "evaluation": rounds // self.every - 1,
        }


_PRIORS = {
    "weights": jo.MMSE(),
    "weights, reported": jo.ReportedMMSE(),
    "weights, pooled": jo.PooledMMSE(),
    "updates": jo.UpdateMMSE(),
}
_PRIOR = Choice(
    *("prior", tuple(_PRIORS), tuple(_PRIORS.values()), (1, 2)),
    touches=("BAAF", "COBAAF"),
    part="estimate",
)


def _number(name, field, values, column) -> Choice:
    return Choice(name, tuple(f"{value:g}" for value in values), values, (column,), field)


def _structure(name, labels, values, column, touches, part) -> Choice:
    return Choice(name, labels, values, (column,), touches=touches, part=part)


def _snr(column) -> Choice:
    # The paper says 10 dB. A number in place of the convention, so that both are one program.
    words = "10 dB per vector", "10 dB per symbol", "5 dB per vector"
    return Choice("SNR", words, ("vector", "symbol", 5.0), (column,), "snr_db")


def _rounds(values, column) -> Choice:
    return Choice("rounds", tuple(map(str, values)), values, (column,))


def _batch(first) -> Choice:
    return _structure("batch", (str(first), "1"), (first, 1), 4, ALL, "batch")


_CONTROLS = (
    _structure("control option", ("I", "II"), (1, 2), 8, CONTROLLED, "control_option"),
    _structure("warm start", ("no", "yes"), (False, True), 1 ^ 4 ^ 8, CONTROLLED, "warm_start"),
)


REGRESSION = Family(
    "regression",
    ("fig1", "fig2", "fig3"),
    (
        _snr(16),
        _number("data spread", "data_spread", (0.1, 0.3), 32),
        _number("model spread", "model_spread", (1.0, 10.0), 64),
        Choice("control power", ("P", "10 P"), (1.0, 10.0), (128,), "control_power"),
        _rounds((60, 20, 100), 256),
        _PRIOR,
        _batch(10),
        *_CONTROLS,
    ),
    factors=9,
    draws=9,
    calibration_trials=10,
    every=5,
    rounds=60,
)
IMAGES = Family(
    "images",
    ("fig4", "fig5"),
    (
        _snr(16),
        _number("initial scale", "init_scale", (0.0, 0.1), 32),
        _number("step size", "step_size", (0.01, 0.1), 64),
        _rounds((100, 50), 128),
        _PRIOR,
        _batch(20),
        *_CONTROLS,
    ),
    factors=8,
    draws=3,
    calibration_trials=3,
    every=10,
    rounds=100,
    shrink=4,
)
FAMILIES = {family.name: family for family in (REGRESSION, IMAGES)}
