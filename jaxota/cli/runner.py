"""Run an experiment by the driver, in memory or by way of a store."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxota.cli.report import Report
from jaxota.reports import Report as ReportValue
from jaxota.study import executor as driver
from jaxota.study.executor import StudyJob
from jaxota.study.study import Study


def run(
    experiment: Any,
    seed: int = 0,
    report: Callable[..., None] = lambda *_, **__: None,
    *,
    memory: int | None = None,
    store: Path | None = None,
    shard: tuple[int, int] = (0, 1),
    spec: Any = None,
    executor: Any = None,
    work: Callable[[int], Any] | None = None,
) -> Report | None:
    """Run `experiment`; `report(what, done, of, steps)` hears how far it is.

    With a `store`, chunks that are there are not computed again, and finished ones are kept.
    Returns None while chunks are missing that other processes are to do.
    """
    report("reading the data")
    job = experiment.job(seed, memory)
    report("compiling")
    start = time.perf_counter()
    sink = driver.sink(job, store, resume=store is not None, spec=spec)
    ready = time.perf_counter()
    driver.drive(job, sink, shard=shard, executor=executor, work=work, report=report)
    if sink.missing():
        return None
    seconds = ready - start, time.perf_counter() - ready
    return experiment.report(job, sink.dataset(), seed, seconds)


class Incomplete(Exception):
    """Chunks of a study are missing that other shards are to compute."""


def study_runner(
    out: Path,
    progress: Callable[..., None],
    *,
    memory: int | None,
    shard: tuple[int, int],
    in_parts: bool,
    executor: Any = None,
    spec: Any = None,
) -> Callable[[Study], Any]:
    """The `run` of an experiment: runs a study, in memory or by way of DIR/STUDY.parts."""

    def run(study: Study) -> Any:
        progress("reading the data")
        job = StudyJob(study, memory)
        store = out / f"{study.name}.parts" if in_parts else None
        work = driver.work(study, store) if executor is not None and store else None
        progress("compiling")
        sink = driver.sink(job, store, resume=store is not None, spec=spec)
        driver.drive(job, sink, shard=shard, executor=executor, work=work, report=progress)
        if sink.missing():
            raise Incomplete(str(store))
        return sink.dataset()

    return run


class Shown:
    """A `Report` value as the writers of files ask for it."""

    def __init__(self, report: ReportValue) -> None:
        self.report, self.name = report, report.name

    def caption(self) -> str:
        return self.report.caption

    def table(self) -> Any:
        from rich.table import Table

        header, *rows = self.report.table
        grid = Table()
        for heading in header:
            grid.add_column(heading)
        for row in rows:
            grid.add_row(*map(str, row))
        return grid

    def remarks(self) -> list[str]:
        return list(self.report.remarks)

    def figure(self) -> Any:
        return self.report.figure()

    def rows(self) -> Any:
        frame = self.report.csv
        yield list(frame.columns)
        yield from frame.values.tolist()

    def dataset(self) -> Any:
        return self.report.dataset

    def markdown(self) -> str | None:
        return self.report.markdown
