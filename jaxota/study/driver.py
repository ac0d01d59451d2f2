"""The driver: whatever runs in chunks is run here, kept in memory or in a store."""

import concurrent.futures
import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxota._core.batching import format_bytes, machine_memory
from jaxota.errors import InputError
from jaxota.study.means import finished
from jaxota.study.work import Job


class Sink(Protocol):
    """What keeps the chunks of a job."""

    @property
    def plans(self) -> Any:
        """What keeps its calibrations, or None."""

    def missing(self) -> list[int]:
        """The numbers of the chunks that are not there, in the order in which to do them."""

    def holds(self, number: int) -> bool:
        """Whether a chunk is there."""

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep a chunk."""

    def dataset(self) -> Any:
        """What there is, as an `xarray.Dataset`."""


class Memory:
    """Chunks that are gone when the process is."""

    plans = None

    def __init__(self, job: Job) -> None:
        if job.bytes > machine_memory():
            raise InputError(
                f"trials or rounds must be smaller: the results would take {format_bytes(job.bytes)}, "
                f"and this machine has {format_bytes(machine_memory())} of memory; or give a folder to "
                "keep them in, or keep means"
            )
        self.job, self.space = job, job.space
        self._arrays = self.space.empty()
        self._missing = set(range(self.space.count))

    def missing(self) -> list[int]:
        return sorted(self._missing)

    def holds(self, number: int) -> bool:
        return number not in self._missing

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        region = self.space.region(number)
        for name, variable in self.space.variables.items():
            self._arrays[name][self.space.where(variable, region)] = arrays[name]
        self._missing.discard(number)

    def dataset(self) -> Any:
        told = {"description": json.dumps(self.job.description)}
        return finished(self.space.dataset(self._arrays), self.job.attributes | told)


def sink(
    job: Job, out: str | os.PathLike[str] | None, resume: bool = False, spec: Any = None
) -> Sink:
    """Where a job's chunks go: to a store in the folder `out`, or into memory.

    `spec` is kept in the store: how the job is made again, by other processes.
    """
    if out is None:
        if resume:
            raise InputError("resume must come with a folder that holds the store to go on with")
        return Memory(job)
    from jaxota.study.store import Store  # loads zarr, which is slow

    refuse_full(job, Path(out))
    return Store.entered(Path(out), job, resume, spec)


def refuse_full(job: Job, out: Path) -> None:
    """InputError where the disk has no room for a store that is not there yet."""
    there = out.resolve()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if job.bytes > free and not (out / "study.json").exists():
        raise InputError(
            f"trials or rounds must be smaller: the results would take {format_bytes(job.bytes)}, and "
            f"{there} has only {format_bytes(free)} free"
        )


def drive(
    job: Job,
    into: Sink,
    *,
    shard: tuple[int, int] = (0, 1),
    executor: Any = None,
    work: Callable[[int], Any] | None = None,
    report: Callable[..., None] = lambda *_, **__: None,
) -> None:
    """Do what is missing: here, or by an `executor`, which runs `work` of each number.

    `report(what, done, of, steps)` hears how far it is. Here, two threads take turns: while one
    chunk is put away, the devices compute the next.
    """
    place, shards = shard
    pending = [number for number in into.missing() if number % shards == place]
    each, done = job.steps / max(1, job.space.count), 0

    def tell() -> None:
        report("running", done, len(pending), steps=each * done)

    def do(number: int) -> None:
        """Here: a chunk, unless another process did it meanwhile."""

        def hear(what: str, done: int = 0, of: int | None = None) -> None:
            tell() if what == "running" else report(what, done, of, steps=0.0)

        if not into.holds(number):
            into.write(number, job.compute(number, hear, into.plans))

    tell()
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor, work = stack.enter_context(concurrent.futures.ThreadPoolExecutor(2)), do
        elif work is None:
            raise InputError("executor must come with a folder that all processes write to")
        for _ in _submitted(executor, work, pending):
            done += 1
            tell()


def _submitted(executor: Any, work: Callable[[int], Any], numbers: list[int]) -> Iterator[Any]:
    """What `work` gives of each number, as it is done; what is not begun is taken back on error."""
    futures = [executor.submit(work, number) for number in numbers]
    try:
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
