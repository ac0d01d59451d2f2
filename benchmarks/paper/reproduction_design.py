"""What the paper leaves open, as data: the choices of `jaxota run reproduction`, and its settings.

Choices of numbers are swept in full; choices of structure are variants of the algorithms: the eight
of an orthogonal array, and each choice by itself, so that settings of few changes are among those
that are run.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from jaxota.algorithms import Algorithm
from jaxota.experiments import designs
from jaxota.experiments.claims import FEDAVG, PARTS, SCAFFOLD, Part
from jaxota.figures import EXPERIMENTS
from jaxota.stages.estimate import MMSE, PooledMMSE, ReportedMMSE
from jaxota.stages.precode import Offline, Online

PRECODED = "COTAF", "BAAF", "COBAAF"
BAYESIAN = "BAAF", "COBAAF"
CONTROLLED = "COBAAF", SCAFFOLD
ALL = "noisy FedAvg", *PRECODED, SCAFFOLD, FEDAVG


@dataclasses.dataclass(frozen=True)
class Choice:
    """Something that the paper leaves open.

    Attributes:
        levels: in words, what we choose first.
        values: of each level.
        columns: of the design.
        field: of the study that takes the values, where they are numbers.
        touches: the algorithms that are another program for each value.
    """

    name: str
    levels: tuple[str, ...]
    values: tuple[Any, ...]
    columns: tuple[int, ...]
    field: str = ""
    touches: tuple[str, ...] = ()


_PRIOR = Choice(
    "prior", ("plan", "reported", "pooled"), (MMSE(), ReportedMMSE(), PooledMMSE()), (1, 2),
    touches=BAYESIAN,
)  # fmt: skip
_SNR = Choice("SNR", ("per vector", "per symbol"), ("vector", "symbol"), (8,), "snr_db")


def _option(column: int) -> Choice:
    return Choice("control option", ("I", "II"), (1, 2), (column,), touches=CONTROLLED)


def _warm(column: int) -> Choice:
    return Choice("warm start", ("no", "yes"), (False, True), (column,), touches=CONTROLLED)


@dataclasses.dataclass(frozen=True)
class Family:
    """Figures of one kind of data, and the choices that are open there."""

    name: str
    figures: tuple[str, ...]
    choices: tuple[Choice, ...]
    factors: int  # basic ones, of the design
    draws: int
    calibration_trials: int
    every: int
    rounds: int

    @property
    def of_numbers(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.field]

    @property
    def of_structure(self) -> list[Choice]:
        return [choice for choice in self.choices if choice.touches]

    @property
    def parts(self) -> list[Part]:
        """What the paper claims of these figures."""
        return [part for part in PARTS if figure_of(part) in self.figures]

    @functools.cached_property
    def design(self) -> np.ndarray:
        """The levels of all choices in the orthogonal design [run, choice]."""
        return designs.levels(self.choices, self.factors)

    @functools.cached_property
    def points(self) -> np.ndarray:
        """All settings that are run [point, choice]: the design, then what else there is."""
        place = [number for number, choice in enumerate(self.choices) if choice.touches]
        every = self.design.tolist()
        for which in place:
            for level in range(1, len(self.choices[which].levels)):
                rows = np.unique(self.design, axis=0)
                rows[:, place] = 0
                rows[:, which] = level
                every += [row for row in np.unique(rows, axis=0).tolist() if row not in every]
        return np.array(every)

    def label(self, name: str, point: np.ndarray) -> str:
        """What an algorithm is called at a setting: its name, and what of it is changed."""
        pairs = zip(self.choices, point, strict=True)
        words = [f"{c.name} {c.levels[at]}" for c, at in pairs if at and name in c.touches]
        return ", ".join([name, *words])

    def algorithms(self, figure: str) -> dict[str, Algorithm]:
        """All that the claims read of a figure, at all settings, by their labels."""
        known: dict[str, Algorithm] = {}
        for other in (*self.figures, figure):  # the figure's own come last, and stand
            known |= EXPERIMENTS[other].algorithms
        read = {name for part in self.parts for where, name in part.read if where == figure}
        return {
            self.label(name, point): self._changed(name, known[name], point)
            for name in ALL
            if name in read
            for point in self.points
        }

    def _changed(self, name: str, algorithm: Any, point: np.ndarray) -> Algorithm:
        pairs = zip(self.choices, point, strict=True)
        value = {c.name: c.values[at] for c, at in pairs if at and name in c.touches}
        fields = {"batch": "batch", "control option": "control_option", "warm start": "warm_start"}
        local = {fields[k]: v for k, v in value.items() if k in fields}
        parts = {"prior": "estimate", "precoder": "precode"}
        changed = {parts[k]: v for k, v in value.items() if k in parts}
        return algorithm.replace(local=dataclasses.replace(algorithm.local, **local), **changed)

    def setting(self, point: np.ndarray) -> int:
        """Where a setting lies in the product of the choices of numbers."""
        own = [at for c, at in zip(self.choices, point, strict=True) if c.field]
        return int(np.ravel_multi_index(own, [len(c.levels) for c in self.of_numbers]))

    def evaluation(self, point: np.ndarray) -> int:
        """Where along a curve a setting is read: at the last round, unless rounds are a choice."""
        at = {c.name: c.values[level] for c, level in zip(self.choices, point, strict=True)}
        return at.get("rounds", self.rounds) // self.every - 1


REGRESSION = Family(
    "regression",
    ("fig1", "fig2", "fig3"),
    (
        _SNR,
        Choice("data spread", ("0.1", "0.3"), (0.1, 0.3), (16,), "data_spread"),
        Choice("model spread", ("1", "10"), (1.0, 10.0), (32,), "model_spread"),
        Choice("control power", ("P", "10 P"), (1.0, 10.0), (64,), "control_power"),
        _PRIOR,
        Choice("batch", ("10", "1"), (10, 1), (4,), touches=ALL),
        Choice("precoder", ("offline", "online"), (Offline(), Online()), (5,), touches=PRECODED),
        _option(6),
        _warm(7),
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
        Choice("initial scale", ("0", "0.1"), (0.0, 0.1), (16,), "init_scale"),
        Choice("step size", ("0.01", "0.1"), (0.01, 0.1), (32,), "step_size"),
        Choice("rounds", ("100", "50"), (100, 50), (64,)),
        _PRIOR,
        Choice("batch", ("20", "1"), (20, 1), (4,), touches=ALL),
        _option(5),
        _warm(6),
    ),
    factors=7,
    draws=3,
    calibration_trials=3,
    every=10,
    rounds=100,
)
FAMILIES = {family.name: family for family in (REGRESSION, IMAGES)}


def figure_of(part: Part) -> str:
    """The figure that a part of a claim is of: of those that it reads, the last."""
    return max(figure for figure, _ in part.read)
