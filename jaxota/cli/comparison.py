"""Algorithms side by side: what an experiment gave, and how it is told and shown."""

import dataclasses
import json
from typing import Any

import numpy as np
from rich.table import Table

from jaxota import stats
from jaxota.cli.experiment import Experiment
from jaxota.cli.report import attributes
from jaxota.history import History
from jaxota.study import summary as results
from jaxota.study.executor import StudyJob


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What one experiment gave, and how long it took."""

    experiment: Experiment
    seed: int
    histories: dict[tuple[str, str], History]  # by (algorithm, setting)
    uncalibrated: set[str]  # algorithms whose calibration diverged
    compile_seconds: float
    run_seconds: float
    description: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the job

    @classmethod
    def of(cls, experiment: Experiment, job: StudyJob, dataset, seed: int, seconds: tuple):
        """A finished run, from its data set."""
        several = len(experiment.channels) > 1
        histories = {
            (algorithm, label): results.history(
                dataset, algorithm=algorithm, **({"setting": label} if several else {})
            )
            for algorithm in experiment.algorithms
            for label in experiment.channels
        }
        compiling, running = seconds
        return cls(
            *(experiment, seed, histories, job.uncalibrated, compiling, running), job.description
        )

    @property
    def name(self) -> str:
        return self.experiment.name

    def caption(self) -> str:
        """What was run, with the SNR's convention."""
        experiment = self.experiment
        return (
            f"{experiment.name}: {experiment.title}, {_snr(experiment)}; "
            f"{experiment.rounds} rounds, {experiment.trials} trials, seed {self.seed}"
        )

    def table(self) -> Table:
        """Algorithm, last score, power ratio, and the paired difference to the reference."""
        experiment, several = self.experiment, len(self.experiment.channels) > 1
        metric, reference = experiment.metric, experiment.reference
        grid = Table()
        grid.add_column("algorithm")
        if several:
            grid.add_column("setting")
        for heading in (f"final {metric}", "power ratio", f"difference to {reference}"):
            grid.add_column(heading, justify="right")
        for (algorithm, setting), history in self.histories.items():
            pair = history, self.histories[reference, setting]
            final, other = (stats.scores(h, metric)[:, -1] for h in pair)
            apart = plus_minus(stats.paired(final, other), "no pairs")
            grid.add_row(
                algorithm,
                *([setting] if several else []),
                plus_minus(stats.interval(final)),
                f"{_power_ratio(history).max():.3g}",
                "–" if algorithm == reference else apart,
            )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""
        trials = self.experiment.trials
        lines = [
            f"± is a 95 % interval over {trials} trials. Power ratio: max_i ‖x_i‖²/P of the larger "
            "block, mean over trials, largest of all rounds (up to 1 is within the budget)."
        ]
        if len(self.experiment.channels) > 1:
            lines[0] += " Differences are to the same setting."
        for label in sorted(self.uncalibrated):
            lines.append(f"{label}: its calibration diverged, and every trial with it.")
        for (algorithm, setting), history in self.histories.items():
            label = f"{algorithm}, {setting}" if setting else algorithm
            count = int(history.diverged.sum())
            if count:
                lines.append(
                    f"{label}: {count} of {trials} trials diverged, and are left out of the means."
                )
            silent = np.mean(np.asarray(history.participants) == 0)
            if silent > 0:
                lines.append(f"{label}: nobody transmitted in {silent:.1%} of rounds.")
        if trials == 1:
            lines.append("One trial has no interval: ask for more with --trials.")
        taken = f"{self.compile_seconds:.1f} s compiling, {self.run_seconds:.1f} s running"
        return [*lines, taken]

    def figure(self):
        """The experiment's own picture."""
        experiment = self.experiment
        title = f"{experiment.title}\n{_snr(experiment)}, {experiment.trials} trials"
        return experiment.draw(self, title)

    def rows(self):
        """The rows of the CSV, header first; with several settings there is a column for them.

        The metric `diverged` counts the trials that are left out of the means of that algorithm.
        """
        several = len(self.experiment.channels) > 1
        yield [
            "algorithm",
            *(["setting"] if several else []),
            *("round", "metric", "mean", "ci_low", "ci_high", "power_ratio"),
        ]
        for (algorithm, setting), history in self.histories.items():
            label = [algorithm, setting] if several else [algorithm]
            ratio = _power_ratio(history)[history.every - 1 :: history.every]
            rounds = history.every * (1 + np.arange(len(ratio)))
            for metric in history.scores:
                band = stats.interval(stats.scores(history, metric))
                columns = (rounds, band.mean, band.low, band.high, ratio)
                for r, *numbers in zip(*columns, strict=True):
                    yield [*label, r, metric, *(f"{value:.9g}" for value in numbers)]
            count = int(history.diverged.sum())
            yield [*label, rounds[-1], "diverged", count, count, count, f"{ratio[-1]:.9g}"]

    def dataset(self):
        """Everything, trial by trial, as one `xarray.Dataset` with a dimension `algorithm`.

        Several settings are a dimension, too.
        """
        import xarray  # slow to import, needed here alone

        def joined(parts: dict, name: str):
            labels = xarray.DataArray(list(parts), dims=name, name=name)
            return xarray.concat(list(parts.values()), dim=labels, data_vars="all", join="outer")

        experiment = self.experiment
        channel = next(iter(experiment.channels.values()))
        whole = {}
        for algorithm in experiment.algorithms:
            settings = {s: self.histories[algorithm, s].to_xarray() for s in experiment.channels}
            one = next(iter(settings.values()))
            whole[algorithm] = one if len(settings) == 1 else joined(settings, "setting")
        return joined(whole, "algorithm").assign_attrs(
            **attributes(experiment.name, self.seed, self.caption()),
            snr_db=float(channel.snr_db),
            snr_per=channel.snr_per,
            power=float(channel.power),
            metric=experiment.metric,
            description=json.dumps(self.description),
            **_of_images(experiment.task),
        )


def _of_images(task) -> dict:
    """What an experiment on images was told of its data."""
    return {k: getattr(task, k) for k in ("dataset", "init_scale") if hasattr(task, k)}


def _snr(experiment) -> str:
    channel = next(iter(experiment.channels.values()))  # all settings have one SNR
    return f"SNR {float(channel.snr_db):g} dB per {channel.snr_per}"


def _power_ratio(history) -> np.ndarray:
    """[round] mean over trials of the larger block's power ratio, without diverged trials."""
    power = np.asarray(history.power, np.float64)
    if history.control_power is not None:
        power = np.maximum(power, history.control_power)
    kept = power[~history.diverged]
    return kept.mean(0) if len(kept) else np.full(power.shape[1], np.nan)


def plus_minus(value: stats.Interval, nothing: str = "") -> str:
    """Mean ± half width in as many digits as the latter supports; a difference has `nothing` to
    say where no trial is left, and a sign.
    """
    sign = "+" if nothing else ""
    if not value.used:
        return nothing or "all diverged"
    if value.used == 1:
        return f"{value.mean:{sign}.4g}"
    digits = max(0, 1 - int(np.floor(np.log10(value.half_width)))) if value.half_width > 0 else 3
    if digits > 8 or abs(value.mean) >= 1e6:
        return f"{value.mean:{sign}.3g} ± {value.half_width:.2g}"
    return f"{value.mean:{sign}.{digits}f} ± {value.half_width:.{digits}f}"
