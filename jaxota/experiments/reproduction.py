"""What `jaxota run reproduction` runs: the paper's figures under what the paper leaves open.

Choices of numbers are swept in full; choices of structure are variants of the algorithms, side by
side in one program: the eight of an orthogonal array, and each choice by itself, so that settings
of few changes are among those that are run.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from jaxota import _validate
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.estimate import MMSE, PooledMMSE, ReportedMMSE
from jaxota.experiments import designs, draws
from jaxota.experiments.claims import FEDAVG, PARTS, SCAFFOLD, Part
from jaxota.experiments.figures import EXPERIMENTS
from jaxota.precode import Offline, Online
from jaxota.studies.descriptions import describe, versions
from jaxota.studies.grids import Axis, Grid
from jaxota.studies.job import StudyJob
from jaxota.studies.spaces import Space, Variable
from jaxota.studies.study import Study
from jaxota.studies.work import Pieces
from jaxota.tasks.images.known import Images

PRECODED = "COTAF", "BAAF", "COBAAF"
BAYESIAN = "BAAF", "COBAAF"
CONTROLLED = "COBAAF", SCAFFOLD
ALL = "noisy FedAvg", *PRECODED, SCAFFOLD, FEDAVG
SNR_DB = 10.0


@dataclasses.dataclass(frozen=True)
class Choice:
    """Something that the paper leaves open.

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


def trials_of(family: Family, trials: int) -> int:
    """On images, where a trial takes so much longer, a quarter of them."""
    return trials if family.name == "regression" else max(1, trials // 4)


def study(family: Family, figure: str, seed: int, trials: int, images: Images) -> Study:
    """A figure at all settings: axes are choices of numbers, then the draws of `jaxota claims`."""
    experiment = EXPERIMENTS[figure]
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    (channel,) = experiment.channels.values()
    task: Any = experiment.task(k_data)
    if experiment.on_images:
        task = dataclasses.replace(task, dataset=images.dataset, data_dir=images.data_dir)
    dim = (task.build() if experiment.on_images else task).dim
    snr_db = {"vector": SNR_DB, "symbol": SNR_DB + 10 * math.log10(dim)}
    axes = [
        Axis(c.field, {c.field: tuple(snr_db.get(v, v) for v in c.values)}, c.levels)
        for c in family.of_numbers
    ]
    algorithms = family.algorithms(figure)
    return Study(
        algorithms,
        channel.replace(noise=draws.Renewed(), control_power=channel.power),
        task,
        family.rounds,
        trials_of(family, trials),
        over=Grid((*axes, draws.axis(k_data, family.draws))),
        key=k_trials,
        every=family.every,
        calibration_trials=family.calibration_trials,
        metric=experiment.metric,
        name=figure,
    )


def job(seed: int, trials: int, images: Images) -> Pieces:
    """What the driver runs: a chunk is a figure on one data draw."""
    seed, trials = _validate.seed(seed), _validate.whole("trials", trials, 1)
    if images.init_scale:
        raise InputError("--init-scale is not for reproduction, which sets it")
    figures = [(figure, family) for family in FAMILIES.values() for figure in family.figures]
    labels = list(dict.fromkeys(k for figure, f in figures for k in f.algorithms(figure)))
    sizes = {
        "figure": len(figures),
        "draw": max(f.draws for f in FAMILIES.values()),
        "algorithm": len(labels),
        "setting": max(2 ** len(f.of_numbers) for f in FAMILIES.values()),
        "evaluation": max(f.rounds // f.every for f in FAMILIES.values()),
    }
    each = "figure", "draw", "algorithm", "setting"
    coords = {"figure": ("figure", [figure for figure, _ in figures])}
    variables = {"score": (*each, "evaluation"), "power_ratio": each}
    return Pieces(
        "reproduction",
        Space(
            sizes,
            {"figure": 1, "draw": 1},
            {name: Variable(dims, "float64") for name, dims in variables.items()},
            coords | {"algorithm": ("algorithm", labels)},
        ),
        {
            "experiment": "reproduction",
            "seed": seed,
            "trials": trials,
            "dataset": images.dataset,
            "families": describe(FAMILIES),
            "algorithms": {figure: describe(f.algorithms(figure)) for figure, f in figures},
            **versions(),
        },
        _Chunks(seed, trials, images, labels, figures),
        steps=sum(_steps(f, figure, trials) for figure, f in figures),
    )


@dataclasses.dataclass
class _Chunks:
    """What is found of a figure on one data draw, by the chunk's number."""

    seed: int
    trials: int
    images: Images
    labels: list[str]
    figures: list[tuple[str, Family]]
    _made: tuple[str, Any] = ("", None)

    def __call__(self, number: int) -> dict[str, np.ndarray]:
        """Scores [algorithm, setting, evaluation], and power ratios [algorithm, setting]."""
        place, draw = divmod(number, max(family.draws for _, family in self.figures))
        figure, family = self.figures[place]
        if draw >= family.draws:
            return {}
        found = _found(self._job(figure, family), draw)
        rows = [self.labels.index(label) for label in family.algorithms(figure)]
        whole = {}
        for name, values in found.items():
            whole[name] = np.full((len(self.labels), *values.shape[1:]), np.nan)
            whole[name][rows] = values
        return whole

    def _job(self, figure: str, family: Family) -> StudyJob:
        """The figure's study, of which programs and data stay until another figure's turn."""
        if self._made[0] != figure:
            self._made = "", None
            mine = StudyJob(study(family, figure, self.seed, self.trials, self.images))
            sizes = mine.settings.swept_sizes
            mine.cut_as({**sizes, "draw": 1, "trial": mine.study.trials})
            self._made = figure, mine
        return self._made[1]


def _found(mine: StudyJob, draw: int) -> dict[str, np.ndarray]:
    """Means over trials of one draw; where one diverged a gap is infinite, an accuracy NaN."""
    full, metric = mine.space, mine.study.metric
    *axes, _ = mine.settings.axes
    lead = len(mine.study.algorithms), *map(len, axes)
    score = np.full((*lead, full.sizes["evaluation"]), np.nan)
    power = np.full(lead, np.nan)
    for number in range(full.count):
        region = full.region(number)
        if region["draw"].start != draw:
            continue
        arrays = mine.compute(number, lambda *_, **__: None)
        place = slice(None), *(region[axis.name] for axis in axes)
        score[place] = _mean(arrays[metric])
        power[place] = np.fmax(_mean(arrays["power"]), _mean(arrays["control_power"])).max(-1)
    lost = np.nan if metric == "accuracy" else np.inf
    score = np.where(np.isfinite(score), score, lost)
    count = len(mine.study.algorithms), -1
    return {"score": score.reshape(*count, score.shape[-1]), "power_ratio": power.reshape(count)}


def _mean(values: np.ndarray) -> np.ndarray:
    """Over the trials of the one draw of [algorithm, setting…, draw, trial, …]."""
    return values[..., 0, :, :].astype(np.float64).mean(-2)


def _steps(family: Family, figure: str, trials: int) -> float:
    """Local steps of users, without those of calibration."""
    algorithms = family.algorithms(figure)
    users = EXPERIMENTS[figure].task(jax.random.key(0)).users
    runs = 2 ** len(family.of_numbers) * family.draws * trials_of(family, trials)
    return float(sum(a.local.steps for a in algorithms.values()) * users * runs * family.rounds)
