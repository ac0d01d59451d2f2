"""Run an experiment by the driver, in memory or by way of a store."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxota.cli.report import Report
from jaxota.study import driver


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
