"""What `jaxota run reproduction` runs: the paper's figures under what the paper leaves open.

A figure is one study: its settings differ in numbers alone, and what differs in structure are
algorithms side by side, so that all of it is one program.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from jaxota._core import inputs as _validate
from jaxota.errors import InputError
from jaxota.experiments import draws
from jaxota.experiments.reproduction import FAMILIES, Family
from jaxota.figures import EXPERIMENTS
from jaxota.study.describe import describe, versions
from jaxota.study.executor import Pieces, StudyJob
from jaxota.study.grid import Axis, Grid
from jaxota.study.layout import Layout, Variable, study_layout
from jaxota.study.study import Study
from jaxota.tasks.images import Images

SNR_DB = 10.0


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
        Layout(
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
        found = _found(*self._job(figure, family), draw)
        rows = [self.labels.index(label) for label in family.algorithms(figure)]
        whole = {}
        for name, values in found.items():
            whole[name] = np.full((len(self.labels), *values.shape[1:]), np.nan)
            whole[name][rows] = values
        return whole

    def _job(self, figure: str, family: Family) -> tuple[StudyJob, Layout]:
        """The figure's study, of which programs and data stay until another figure's turn."""
        if self._made[0] != figure:
            self._made = "", None
            mine = StudyJob(study(family, figure, self.seed, self.trials, self.images))
            blocks = {**mine.settings.traced_sizes, "draw": 1, "trial": mine.study.trials}
            order = {axis.name: list(range(len(axis))) for axis in mine.settings.axes}
            self._made = figure, (mine, study_layout(mine.settings, blocks, order))
        return self._made[1]


def _found(mine: StudyJob, full: Layout, draw: int) -> dict[str, np.ndarray]:
    """Means over trials of one draw; where one diverged a gap is infinite, an accuracy NaN."""
    metric = mine.study.metric
    *axes, _ = mine.settings.axes
    lead = len(mine.study.algorithms), *map(len, axes)
    score = np.full((*lead, full.sizes["evaluation"]), np.nan)
    power = np.full(lead, np.nan)
    for number in range(full.count):
        region = full.region(number)
        if region["draw"].start != draw:
            continue
        arrays = mine.compute(full, number)
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
