"""A sweep: how large it is, running it, and what is told and shown of what it left."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxota._core.batching import format_bytes
from jaxota.cli.comparison import plus_minus
from jaxota.errors import InputError
from jaxota.stats import Interval
from jaxota.study import executor as driver
from jaxota.study.executor import StudyJob
from jaxota.study.grid import parse_bytes
from jaxota.study.store import Store
from jaxota.study.summary import Summary, metric_of, power_ratio, summary

ROWS = 40  # of a table; the CSV has all


class Limits(NamedTuple):
    """What a user is willing to start."""

    bytes: int
    programs: int


def limits(most_bytes: str, most_programs: int) -> Limits:
    """From what was typed."""
    if most_programs < 1:
        raise InputError(f"--max-programs must be a whole number ≥ 1, got {most_programs}")
    return Limits(parse_bytes("--max-bytes", most_bytes), most_programs)


def size(job: StudyJob) -> str:
    """Settings × trials × bytes, in a line."""
    study, settings = job.study, job.settings
    axes = " × ".join(f"{len(axis)} {axis.name}" for axis in settings.axes) or "1 setting"
    curves = settings.count * study.trials * len(study.algorithms)
    return (
        f"{axes} = {settings.count:,} settings × {study.trials:,} trials × "
        f"{len(study.algorithms)} algorithms = {curves:,} curves of {study.rounds} rounds, "
        f"{format_bytes(job.bytes)} of results (keep {study.keep}), {settings.programs} programs"
    )


def refuse_too_much(job: StudyJob, most: Limits, out: Path) -> None:
    """InputError where a sweep is larger than the user, or the disk, has room for."""
    programs = job.settings.programs
    if programs > most.programs:
        raise InputError(f"{size(job)}: more than --max-programs {most.programs}")
    if job.bytes > most.bytes:
        raise InputError(
            f"{size(job)}: more than --max-bytes {format_bytes(most.bytes)}; --keep mean needs less"
        )
    driver.refuse_full(job, out)


def dry_run(job: StudyJob, report: Callable[..., None]) -> list[str]:
    """How large a sweep is, and about how long it takes, from one of its chunks; keeps nothing."""
    report("compiling")
    compiling, chunks = _timed(lambda: job.space.count)
    report("measuring one chunk")
    first, again = (_timed(lambda: job.compute(0, lambda *_: None))[0] for _ in range(2))
    calibrating = max(0.0, first - again) * job.calibrations
    running = again * job.steps / job.steps_of(0)
    compiling *= job.settings.programs
    return [
        f"{job.name}: {size(job)}",
        f"{chunks:,} chunks of about {again:.2g} s, {format_bytes(job.bytes / chunks)} each",
        f"about {in_time(compiling + calibrating + running)} on this machine: "
        f"{in_time(compiling)} compiling, {in_time(calibrating)} for {job.calibrations} "
        f"calibrations, {in_time(running)} running ({job.steps / running:.2g} user-steps/s, from "
        "one chunk of the first structure)",
    ]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def in_time(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"


def run(
    job: StudyJob,
    out: Path,
    resume: bool,
    spec: dict[str, Any],
    report: Callable[..., None],
    *,
    shard: tuple[int, int],
    executor: Any = None,
    work: Callable[[int], Any] | None = None,
) -> str:
    """Run a sweep into its store; returns what to say of it."""
    report("compiling")
    sink = driver.sink(job, out, resume or shard[1] > 1, spec)
    before = job.space.count - len(sink.missing())
    driver.drive(job, sink, shard=shard, executor=executor, work=work, report=report)
    left = len(sink.missing())
    done = job.space.count - left
    words = f"{job.name}: {done} of {job.space.count} chunks are in {out}"
    if before:
        words += f", {before} of them from before"
    if left:
        return f"{words}; other shards, or --resume, do the rest"
    return f"{words}, all of them: jaxota show {out}, or jo.open({str(out)!r})"


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a sweep left, finished or not."""

    name: str
    metric: str
    data: Any  # the data set
    description: dict[str, Any]

    @classmethod
    def opened(cls, folder: Path, metric: str | None) -> "Sweep":
        """What is in a folder; a run's parts are shown like a sweep."""
        store = Store.opened(Path(folder))
        if "scores" not in store.told["attributes"]:
            raise InputError(
                f"{folder} holds parts of `jaxota run {store.told['name']}`: "
                "--resume finishes it and shows them"
            )
        data = store.dataset()
        told = store.told
        return cls(told["name"], metric_of(data, metric), data, told["description"])

    @property
    def _axes(self) -> list[str]:
        return list(self.data.attrs["axes"])

    def _summary(self, difference: bool = False) -> Summary:
        return summary(self.data, self.metric, difference)

    def _complete(self) -> bool:
        return self.data.attrs["chunks_done"] == self.data.attrs["chunks"]

    def caption(self) -> str:
        """What was swept, with the SNR's convention."""
        sizes = [f"{self.data.sizes[name]} {name}" for name in self._axes]
        done = (
            ""
            if self._complete()
            else (
                f", {self.data.attrs['chunks_done']} of {self.data.attrs['chunks']} chunks so far"
            )
        )
        trials = int(self._summary().trials.max())
        return (
            f"{self.name}: {' × '.join(sizes) or 'one setting'}, "
            f"{_snr(self.description, self._axes)}; {self.description['rounds']} rounds, "
            f"up to {trials:,} trials{done}"
        )

    def table(self):
        """Algorithm, setting, last score, power ratio, and the paired difference."""
        from rich.table import Table

        grid = Table()
        for heading in ("algorithm", *self._axes):
            grid.add_column(heading)
        reference = self.data.attrs["reference"]
        for heading in (f"final {self.metric}", "power ratio", f"difference to {reference}"):
            grid.add_column(heading, justify="right")
        for _, cells in zip(range(ROWS), self._rows(), strict=False):
            grid.add_row(*cells)
        return grid

    def _rows(self) -> Iterator[list[str]]:
        found, apart = self._summary(), self._summary(difference=True)
        power = power_ratio(self.data).max("round")
        reference = self.data.attrs["reference"]
        for place, labels in self._places(found):
            final, other = (_final(s.at(**place)) for s in (found, apart))
            yield [
                *map(str, labels),
                plus_minus(final) if final.trials else "not there yet",
                f"{float(power.isel(place)):.3g}",
                "–" if labels[0] == reference else plus_minus(other, "no pairs"),
            ]

    def _places(self, found: Summary) -> Iterator[tuple[dict[str, int], list[Any]]]:
        """Every algorithm in every setting: by numbers, and by labels."""
        names = ["algorithm", *self._axes]
        sizes = [found.mean.sizes[name] for name in names]
        for point in np.ndindex(*sizes):
            labels = [found.mean[name].values[i] for name, i in zip(names, point, strict=True)]
            yield dict(zip(names, map(int, point), strict=True)), labels

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""
        from jaxota.cli import sweep_plots

        found = self._summary()
        lines = [
            "± is a 95 % interval over trials. Power ratio: max_i ‖x_i‖²/P of the larger block, "
            "mean over trials, largest of all rounds (up to 1 is within the budget)."
        ]
        count = int(
            found.mean.sizes["algorithm"] * np.prod([self.data.sizes[a] for a in self._axes])
        )
        if count > ROWS:
            lines.append(f"The first {ROWS} of {count} rows; the CSV has all.")
        long = [name for name in self._axes if self.data.sizes[name] > 1]
        if len(long) > 2:
            two, places = sweep_plots.shown_axes(found, long)
            others = [name for name in long if name not in two]
            of = int(np.prod([self.data.sizes[name] for name in others]))
            lines.append(
                f"The picture maps {two[0]} × {two[1]}, {len(places)} of {of} "
                f"settings of {', '.join(others)}."
            )
        lost = int((found.trials - found.used).sum())
        if lost:
            lines.append(f"{lost:,} trials diverged, and are left out of the means.")
        if not self._complete():
            lines.append("The sweep is not finished: what is missing is left out.")
        return lines

    def figure(self):
        """Curves, final scores against one swept field, or maps over two."""
        from jaxota.cli import sweep_plots

        title = f"{self.name}, {_snr(self.description, self._axes)}"
        return sweep_plots.draw(self._summary(), self._axes, self.metric, title)

    def rows(self):
        """The rows of the CSV, header first."""
        yield [
            *("algorithm", *self._axes, "round", "metric", "mean", "ci_low", "ci_high"),
            *("power_ratio", "used", "trials"),
        ]
        power = power_ratio(self.data)
        rounds = self.data.evaluation.values
        for metric in self.data.attrs["scores"]:
            found = summary(self.data, metric)
            for place, labels in self._places(found):
                band = found.at(**place)
                ratios = power.isel(place).sel(round=rounds).values
                for r, *numbers in zip(rounds, band.mean, band.low, band.high, ratios, strict=True):
                    words = [f"{value:.9g}" for value in numbers]
                    yield [*labels, r, metric, *words, band.used, band.trials]

    def dataset(self):
        """What the store holds."""
        return self.data


def _final(band: Interval) -> Interval:
    return Interval(band.mean[-1], band.low[-1], band.high[-1], band.used, band.trials)


def _snr(description: dict[str, Any], axes: list[str]) -> str:
    channel = description["channel"]
    per = "" if "snr_per" in axes else f" per {channel['snr_per']}"
    if "snr_db" in axes or "channel" in description["swept"]:
        return f"SNR{per}"
    return f"SNR {channel['snr_db']} dB{per}"
