"""What can be run by name: algorithms side by side, or theory beside simulation."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxota.algorithms import Algorithm
from jaxota.channel import Channel
from jaxota.errors import InputError
from jaxota.experiments.report import Report
from jaxota.tasks.images.known import Images


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

    def run(self, seed: int, report: Callable) -> Report:
        """Run it; `report(what, done, of)` hears how far it is."""
        from jaxota.experiments import runner  # what lists experiments need not load it

        return runner.run(self, seed, report)


_OF_IMAGES = ("dataset", "data_dir", "init_scale")


@dataclasses.dataclass(frozen=True)
class Study:
    """Theory beside simulation: what it shows decides its own task, channel and rounds."""

    name: str
    about: str
    measure: Callable  # (seed, trials if they are given, report) → report
    trials: int | None = None

    on_images = False

    @property
    def title(self) -> str:
        return self.about

    def configured(self, options: dict) -> "Study":
        """The same with other trials; it sets all else."""
        for option in (name for name in options if name != "trials"):
            name = option.replace("_", "-")
            raise InputError(f"--{name} is not for {self.name}, which sets it")
        return dataclasses.replace(self, **options)

    def run(self, seed: int, report: Callable) -> Report:
        """Run it; `report(what, done, of)` hears how far it is."""
        numbers = {} if self.trials is None else {"trials": self.trials}
        return self.measure(seed, report=report, **numbers)
