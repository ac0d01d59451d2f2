"""What can be run by name: algorithms side by side, or theory beside simulation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxota._core import inputs as _validate
from jaxota.algorithms import Algorithm
from jaxota.cli.report import Report
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.study.grid import Axis, Grid
from jaxota.study.study import Study
from jaxota.tasks.images import Images, images_at_hand


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Algorithms that are compared on one task over one channel, or over several settings of it."""

    name: str
    about: str  # the title, with the name of the data for {dataset}
    task: Callable  # key → task
    algorithms: dict[str, Algorithm]  # by the label of their curve
    channels: dict[str, Channel]  # by the label of their setting, "" if there is but one
    draw: Callable  # (comparison, title) → figure
    rounds: int = 60
    trials: int = 100
    every: int = 1  # rounds from one score to the next
    metric: str = "gap"
    reference: str = "COTAF"  # what the others are compared with, trial by trial

    @property
    def title(self) -> str:
        return self.about.format(dataset=getattr(self.task, "title", ""))

    @property
    def on_images(self) -> bool:
        return isinstance(self.task, Images)

    def configured(self, options: dict) -> "Experiment":
        """The same with other trials, rounds, SNR or, if it is on images, data."""
        numbers, channel, images = (
            {k: v for k, v in options.items() if k in names}
            for names in (("trials", "rounds"), ("snr_db", "snr_per"), _OF_IMAGES)
        )
        task: Any = self.task
        if images and not self.on_images:
            option = next(iter(images)).replace("_", "-")
            raise InputError(f"--{option} is for experiments on images, which {self.name} is not")
        if images:
            task = dataclasses.replace(task, **images)
        channels = {label: c.replace(**channel) for label, c in self.channels.items()}
        return dataclasses.replace(self, channels=channels, task=task, **numbers)

    def study(self, seed: int = 0, **options: Any) -> Study:
        """Build this experiment's study.

        The data come from a key of their own, so that they stay the same for other trials.

        Args:
            seed: seed of the data and of the trials.
            **options: trials, rounds, snr_db, snr_per, dataset, data_dir or init_scale.
        """
        if options:
            return self.configured(options).study(seed)
        k_data, k_trials = jax.random.split(jax.random.key(_validate.seed(seed)))
        if not self.channels:
            raise InputError("channels must hold at least one channel, got none")
        labels, channels = tuple(self.channels), tuple(self.channels.values())
        setting = (Axis("setting", {"channel": channels}, labels),) if len(labels) > 1 else ()
        return Study(
            self.algorithms,
            channels[0],
            self.task(k_data),
            _validate.whole("rounds", self.rounds, 1),
            _validate.whole("trials", self.trials, 1, None),
            over=Grid(setting),
            key=k_trials,
            every=self.every,
            reference=self.reference,
            metric=self.metric,
            name=self.name,
        )

    def job(self, seed: int, memory: int | None = None) -> Any:
        """What the driver runs."""
        from jaxota.study.executor import StudyJob  # what lists experiments need not load it

        return StudyJob(self.study(seed), memory)

    def report(self, job: Any, dataset: Any, seed: int, seconds: tuple) -> Report:
        """What is told and shown of a finished run, which took so long to compile, and to run."""
        from jaxota.cli.comparison import Comparison

        return Comparison.of(self, job, dataset, seed, seconds)


_OF_IMAGES = ("dataset", "data_dir", "init_scale")


@dataclasses.dataclass(frozen=True)
class Theory:
    """Theory beside simulation: what it shows decides its own task, channel and rounds."""

    name: str
    about: str
    load: Callable  # → what makes its job of (seed, trials), and its report of these and a dataset
    trials: int
    images: Images | None = None  # where it is on images, these: they go to its job and report, too

    @property
    def on_images(self) -> bool:
        return self.images is not None

    @property
    def title(self) -> str:
        return self.about

    def configured(self, options: dict) -> "Theory":
        """The same with other trials or images; it sets all else."""
        allowed = ("trials", *(_OF_IMAGES if self.images else ()))
        for option in (name for name in options if name not in allowed):
            name = option.replace("_", "-")
            raise InputError(f"--{name} is not for {self.name}, which sets it")
        numbers = {k: v for k, v in options.items() if k == "trials"}
        if self.images is not None:
            chosen = {k: v for k, v in options.items() if k in _OF_IMAGES}
            numbers["images"] = dataclasses.replace(self.images, **chosen)
        return dataclasses.replace(self, **numbers)

    def job(self, seed: int, memory: int | None = None) -> Any:
        """What the driver runs; its chunks are small, whatever the memory."""
        make, _ = self.load()
        return make(seed, self.trials, *self._at_hand)

    def report(self, job: Any, dataset: Any, seed: int, seconds: tuple) -> Report:
        """What is told and shown of a finished run."""
        _, show = self.load()
        return show(seed, self.trials, dataset, *self._at_hand)

    @functools.cached_property
    def _at_hand(self) -> list[Images]:
        """The images, by default those that are to be had."""
        if self.images is None:
            return []
        name = self.images.dataset or images_at_hand()[0]
        return [dataclasses.replace(self.images, dataset=name)]
