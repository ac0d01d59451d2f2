"""The runs that answer for the paper's claims: its figures, on many data draws."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxota._core import inputs as _validate
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.experiments import draws
from jaxota.experiments.claims import PARTS, Part
from jaxota.figures import EXPERIMENTS
from jaxota.stages.precode import Online
from jaxota.study.executor import StudyJob
from jaxota.study.grid import Axis, Grid
from jaxota.study.study import Study
from jaxota.study.summary import power_ratio
from jaxota.tasks.images import images_at_hand

# By whether it is on images: data draws, trials of each, and calibration trials.
DRAWS, TRIALS = {False: 50, True: 5}, {False: 20, True: 5}
CALIBRATION_TRIALS = {False: 20, True: 10}
PRECODED = "COTAF", "BAAF", "COBAAF"


@dataclasses.dataclass(frozen=True)
class Runs:
    """Figures on one kind of data, as something to run.

    Attributes:
        changed: fields of the task, by which other data are asked for.
    """

    figures: tuple[str, ...]
    draws: int
    trials: int
    changed: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def on_images(self) -> bool:
        return EXPERIMENTS[self.figures[0]].on_images

    @property
    def calibration_trials(self) -> int:
        return CALIBRATION_TRIALS[self.on_images]

    @property
    def name(self) -> str:
        return "images" if self.on_images else "regression"

    @property
    def data(self) -> str:
        """What the data are called."""
        if not self.on_images:
            return "synthetic regression"
        task: Any = EXPERIMENTS[self.figures[0]].task
        return dataclasses.replace(task, **self.changed).title

    def study(self, seed: int) -> Study:
        """All algorithms of the figures, with both precoders, on all draws."""
        figures = [EXPERIMENTS[name] for name in self.figures]
        k_data, k_trials = jax.random.split(jax.random.key(_validate.seed(seed)))
        first = figures[0]
        (channel,) = first.channels.values()
        algorithms: dict[str, Algorithm] = {}
        for figure in figures:
            algorithms |= {k: a for k, a in figure.algorithms.items() if k not in algorithms}
        algorithms |= {
            f"{k}, online": algorithms[k].replace(precode=Online())
            for k in PRECODED
            if k in algorithms
        }
        return Study(
            algorithms,
            channel.replace(noise=draws.Renewed()),
            dataclasses.replace(first.task(k_data), **self.changed),
            first.rounds,
            _validate.whole("trials", self.trials, 1),
            over=Grid((self._axis(), draws.axis(k_data, self.draws))),
            key=k_trials,
            every=first.rounds,
            calibration_trials=self.calibration_trials,
            keep="mean",
            reference="COTAF",
            metric=first.metric,
            name=f"claims-{self.name}",
        )

    def _axis(self) -> Axis:
        """The figures, by what sets them apart."""
        chosen = [EXPERIMENTS[name] for name in self.figures]
        if self.on_images:
            tasks: list[Any] = [figure.task for figure in chosen]
            return Axis("figure", {"partition": tuple(t.partition for t in tasks)}, self.figures)
        users = [figure.task(jax.random.key(0)).users for figure in chosen]
        steps = [figure.algorithms["COTAF"].local.steps for figure in chosen]
        return Axis("figure", {"users": tuple(users), "steps": tuple(steps)}, self.figures)

    def job(self, seed: int, memory: int | None = None) -> StudyJob:
        """What the driver runs."""
        return StudyJob(self.study(seed), memory)

    def report(self, job: Any, dataset: Any, seed: int, seconds: tuple) -> Any:
        """What is left of a run: last scores and `power_ratio` [algorithm, figure, draw].

        Where a trial diverged a gap or a loss is infinite, and an accuracy NaN.
        """
        import xarray  # slow to import

        found = {"power_ratio": power_ratio(dataset).max("round")}
        for score in job.settings.scores:
            last = dataset[f"{score}_mean"].isel(evaluation=-1, drop=True)
            whole = (dataset.used == dataset.trials) & np.isfinite(last)
            found[score] = last.where(whole, np.nan if score == "accuracy" else np.inf)
        plain = xarray.Dataset(found)
        extra = [name for name in plain.coords if name not in ("algorithm", "figure", "draw")]
        return plain.drop_vars(extra).load()


def chosen(only: str | None) -> list[Part]:
    """The parts of the claims that were asked for, `1,2,3`; by default of all."""
    every = [str(claim) for claim in dict.fromkeys(part.claim for part in PARTS)]
    asked = every if only is None else [word.strip() for word in only.split(",")]
    for word in asked:
        if word not in every:
            raise InputError(f"--only must be of {', '.join(every)}, with commas, got {word!r}")
    return [part for part in PARTS if str(part.claim) in asked]


def runs(
    parts: list[Part],
    draw_count: int | None = None,
    trials: int | None = None,
    dataset: str | None = None,
    data_dir: str | None = None,
) -> tuple[list[Runs], str]:
    """What parts of claims are judged by, and what is to be said of the data."""
    read = {figure for part in parts for figure, _ in part.read}
    said, found = "", []
    for images in (False, True):
        figures = tuple(k for k, e in EXPERIMENTS.items() if k in read and e.on_images == images)
        if images and not figures:
            for option, value in {"dataset": dataset, "data-dir": data_dir}.items():
                if value is not None:
                    raise InputError(f"--{option} is for claims on images, of which there are none")
        if not figures:
            continue
        count = _validate.whole("draws", DRAWS[images] if draw_count is None else draw_count, 1)
        each = _validate.whole("trials", TRIALS[images] if trials is None else trials, 1)
        changed: dict[str, Any] = {}
        if images:
            changed, said = _images(dataset, data_dir)
        found.append(Runs(figures, count, each, changed))
    return found, said


def _images(dataset: str | None, data_dir: str | None) -> tuple[dict[str, Any], str]:
    """The images that were asked for; by default MNIST, or the digits where it is not to be had."""
    if dataset is not None or data_dir is not None:
        return {"dataset": "mnist" if dataset is None else dataset, "data_dir": data_dir}, ""
    name, said = images_at_hand()
    return {"dataset": name}, said
