"""Run a study chunk by chunk: here, or by an executor whose workers write into a store.

A chunk is a pure function of the study, the layout of its results and a number, so that any process
may compute it, at any time.
"""

import concurrent.futures
import contextlib
import functools
import json
import math
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxota
from jaxota._core import capacity, devices
from jaxota._core.capacity import format_bytes, machine_memory
from jaxota._core.part import describe, difference
from jaxota._core.progress import RUNNING
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History
from jaxota.study.compile import CALLS, Programs
from jaxota.study.layout import Layout, choose_blocks, labelled, moments, study_layout
from jaxota.study.resolve import resolve
from jaxota.study.store import CHUNKS, Store
from jaxota.study.study import Study

_devices = threading.RLock()  # a chunk uses all devices of its process
_calls = threading.BoundedSemaphore(CALLS)


class StudyJob:
    """A study, checked, whose chunks can be computed, with what was compiled and calibrated for it.

    A chunk may take `memory` bytes, by default what the devices have to spare.
    """

    def __init__(
        self, study: Study, memory: int | None = None, max_programs: int | None = None
    ) -> None:
        self.settings = resolve(study, max_programs)
        self.study = self.settings.study
        self._memory = memory
        self._programs = Programs(self.study.key)

    @devices.locally()
    def layout(self, stored: Layout | None = None) -> Layout:
        """Lay out the results as they are stored, new settings last; or choose chunks that fit."""
        if stored is None:
            blocks = choose_blocks(self.settings, self._programs, self._memory)
        else:
            blocks = {name: stored.blocks[name] for name in self.settings.traced_sizes}
            blocks["trial"] = stored.trials_per_block
        return study_layout(self.settings, blocks, stored)

    @property
    def bytes(self) -> int:
        """The size of the results, before chunks are chosen; an estimate where means are kept."""
        blocks = dict.fromkeys(self.settings.traced_sizes, 1)
        blocks["trial"] = max(1, self.study.trials // capacity.FEW)
        return study_layout(self.settings, blocks).bytes

    @property
    def steps(self) -> float:
        """The users' local steps in the whole study."""
        rows = math.prod(self.settings.traced_sizes.values()) * self.study.trials
        return float(sum(group.steps for group in self.settings.groups.values()) * rows)

    def steps_of(self, layout: Layout, number: int) -> float:
        """Return the users' local steps in one chunk."""
        group, rows = self._rows(layout, number)
        first, last = layout.trials_of(number)
        return float(group.steps * len(rows) * (last - first))

    @property
    def calibrations(self) -> int:
        """The number of different calibrations that the settings need."""
        rows = range(math.prod(self.settings.traced_sizes.values()))
        return self._programs.calibrations(self.settings.groups.values(), rows)

    @property
    def uncalibrated(self) -> set[str]:
        """The algorithms of which a calibration diverged, of those measured or read so far."""
        labels = list(self.study.algorithms)
        return {labels[number] for number in self._programs.diverged}

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """Everything that decides the numbers, as plain data, but for the points of the grid."""
        study, axes = self.study, self.settings.axes
        counts = ("rounds", "every", "calibration_trials", "keep", "reference")
        return {
            "algorithms": {label: describe(a) for label, a in study.algorithms.items()},
            "order": list(study.algorithms),
            "channel": describe(study.channel),
            "task": describe(study.task),
            "key": describe(study.key),
            "axes": [axis.name for axis in axes],
            "swept": [name for axis in axes for name in axis.fields],
            **{name: getattr(study, name) for name in counts},
            "jaxota": jaxota.__version__,
            "jax": jax.__version__,
        }

    def meanings(self, layout: Layout) -> dict[str, list[Any]]:
        """Return what the labels of each axis stand for, as plain data."""
        return {
            axis.name: [
                {name: describe(values[i]) for name, values in axis.fields.items()}
                for i in axis.positions(layout.labels(axis.name))
            ]
            for axis in self.settings.axes
        }

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the dataset."""
        study, scores = self.study, self.settings.scores
        return {
            "study": study.name,
            "metric": study.metric or scores[0],
            "scores": scores,
            "reference": study.reference,
            "axes": [axis.name for axis in self.settings.axes],
            "keep": study.keep,
            "every": math.gcd(study.every, study.rounds),
        }

    @devices.locally()
    def compute(
        self,
        layout: Layout,
        number: int,
        report: Callable[..., None] = lambda *_: None,
        store: Store | None = None,
    ) -> dict[str, np.ndarray]:
        """Compute the results of a chunk; `store` keeps calibrations for other processes."""
        settings, study = self.settings, self.study
        group, rows = self._rows(layout, number)
        first, last = layout.trials_of(number)
        # The last block of an axis may be short: it is filled up, so that it is no other program.
        block = math.prod(layout.blocks[name] for name in settings.traced_sizes)
        filled = np.pad(rows, (0, block - len(rows)), mode="edge")
        trials = first + np.arange(layout.trials_per_block)
        with contextlib.ExitStack() as call:
            with _devices:
                call.enter_context(_calls)
                histories = self._programs.simulate(group, filled, trials, report, store)
                if devices.platform() == "cpu":  # whose devices share the cores: one at a time
                    histories = jax.device_get(histories)
            histories = jax.device_get(histories)  # meanwhile another thread queues the next call
        results = [_results(history, len(rows), last - first) for history in histories]
        if study.keep == "mean":
            reference = list(study.algorithms).index(study.reference)
            results = moments(results, settings.scores, reference)
        arrays = layout.empty(number)
        for place, by_name in enumerate(results):
            for name, values in by_name.items():
                target = arrays[name][place]  # [axes…, trial or block, …]
                values = values.reshape(target.shape[: len(settings.axes)] + values.shape[1:])
                # A model may be shorter than the longest of the study: the rest stays NaN.
                target[tuple(map(slice, values.shape))] = values
        return arrays

    @devices.locally()
    def threads(self, layout: Layout, number: int) -> int:
        """Return how many threads are to compute chunks like this one, and to write them.

        On CPU two take turns, as computing takes longer than writing. A GPU or TPU is faster than
        the compression of files: as many as there are cores, and memory for their results.
        """
        if devices.platform() == "cpu":
            return 2
        group, _ = self._rows(layout, number)
        block = math.prod(layout.blocks[name] for name in self.settings.traced_sizes)
        program = self._programs.block(group, block, layout.trials_per_block)
        size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(program.out_info))
        return max(2, min(len(os.sched_getaffinity(0)), machine_memory() // (4 * size)))

    def _rows(self, layout: Layout, number: int) -> tuple[Any, np.ndarray]:
        """Return the group of a chunk, and the numbers of its settings in that group."""
        settings, region = self.settings, layout.region(number)
        outer, inner = [], []
        for axis in settings.axes:
            places = axis.positions(layout.labels(axis.name)[region[axis.name]])
            inner.append(places) if axis.traced else outer.append(places[0])
        sizes = tuple(settings.traced_sizes.values())
        rows = np.ravel_multi_index(np.ix_(*inner), sizes).ravel() if sizes else np.zeros(1, int)
        return settings.groups[tuple(outer)], rows


def _results(history: History, rows: int, trials: int) -> dict[str, np.ndarray]:
    """Return the arrays of a history by the names of variables, without what filled up a block."""
    results = dict(history.scores) | {k: getattr(history, k) for k in DIMENSIONS}
    results |= {f"average_{k}": v for k, v in history.average_scores.items()}
    return {k: np.asarray(v)[:rows, :trials] for k, v in results.items() if v is not None}


class Memory:
    """The chunks of a study in the memory of this process; a `Store` has them in a folder."""

    def __init__(self, job: StudyJob) -> None:
        self.layout = job.layout()
        self._job, self._arrays = job, self.layout.empty()
        self._missing = set(range(self.layout.count))

    def missing(self) -> list[int]:
        """Return the numbers of the chunks that are missing."""
        return sorted(self._missing)

    def holds(self, number: int) -> bool:
        """Whether a chunk is there."""
        return number not in self._missing

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep a chunk."""
        self.layout.put(number, arrays, into=self._arrays)
        self._missing.discard(number)

    def exchange(self, owners: dict[int, int]) -> None:
        """Receive from the `owners`, numbers of processes, the chunks that each has computed."""
        differ = "processes chose chunks of several sizes: give `memory`, the same to all"
        multihost_utils.assert_equal(np.array([*self.layout.blocks.values()]), differ)
        # By bytes: JAX would round float64.
        by_process = {
            name: multihost_utils.process_allgather(values.view("uint8")).view(values.dtype)
            for name, values in self._arrays.items()
        }
        for number, owner in owners.items():
            self.write(
                number, self.layout.get(number, {k: v[owner] for k, v in by_process.items()})
            )

    def dataset(self) -> Any:
        """Return all results, as an `xarray.Dataset`."""
        attributes = self._job.attributes | {"description": json.dumps(self._job.description)}
        return labelled(self.layout, self._arrays, attributes)


def check_room(job: StudyJob, out: Path | None) -> None:
    """Raise InputError where the disk, or without a folder the memory, cannot hold the results."""
    if out is None:
        free = machine_memory()
        owner = f"this machine has {format_bytes(free)} of memory; or give a folder"
    else:
        folder = next(path for path in (out.resolve(), *out.resolve().parents) if path.exists())
        free = shutil.disk_usage(folder).free
        owner = f"{folder} has only {format_bytes(free)} free"
    begun = out is not None and (out / "study.json").exists()
    if job.bytes > free and not begun:
        raise InputError(
            f"trials or rounds must be smaller: the results would take {format_bytes(job.bytes)}, "
            f"and {owner}, or keep means"
        )


def open_sink(
    job: StudyJob, out: Path | None, resume: bool = False, spec: Any = None
) -> Memory | Store:
    """Open the place for a job's chunks: a store in the folder `out`, or memory.

    `spec` is plain data that the store keeps: the command that made it.
    """
    check_room(job, out)
    if out is None:
        if resume:
            raise InputError("resume must come with a folder that holds the store to go on with")
        return Memory(job)
    if jax.process_count() == 1:
        return Store.create(out, job, resume, spec)
    # The first of the processes makes the store, and the others open it.
    store, others = None, jax.process_index() > 0
    try:
        store = None if others else Store.create(out, job, resume, spec)
    finally:
        made = bool(multihost_utils.broadcast_one_to_all(np.int32(store is not None)))
    if not made:
        raise InputError(f"{out} could not be made by the first process, which says why")
    return store or Store.create(out, job, resume=True, spec=spec)


def drive(
    job: StudyJob,
    sink: Memory | Store,
    *,
    shard: tuple[int, int] = (0, 1),
    executor: Any = None,
    report: Callable[..., None] = lambda *_, **__: None,
) -> None:
    """Compute the chunks of a job that its sink lacks; arguments are those of `Study.run`."""
    place, shards = shard
    # Processes of `jax.distributed` share the chunks, and compute each on devices of their own.
    numbers = range(place, sink.layout.count, shards)
    owners = {number: turn % jax.process_count() for turn, number in enumerate(numbers)}
    pending = [n for n in sink.missing() if owners.get(n) == jax.process_index()]
    steps, done = job.steps / sink.layout.count, 0

    current = RUNNING

    def progress(stage: str = "", now: int = 0, of: int | None = None) -> None:
        """Report a stage; without one, that a chunk is done, whatever the next one is at."""
        nonlocal current
        current = stage or current
        if current == RUNNING:
            report(current, done, len(pending), steps=steps * done)
        elif stage:  # a calibration counts its own runs
            report(stage, now, of, steps=0.0)

    progress()
    with contextlib.ExitStack() as stack:
        if executor is None:
            # Threads take turns: while one writes a chunk, the devices compute the next.
            threads = job.threads(sink.layout, pending[0]) if pending else 1
            executor = stack.enter_context(concurrent.futures.ThreadPoolExecutor(threads))
            task: Callable[[Any], Any] = functools.partial(_compute, job, sink, progress)
            chunks: list[Any] = pending
        elif isinstance(sink, Memory):
            raise InputError("executor must come with a folder that all processes write to")
        else:
            task, chunks = _worker_task(job, sink), [sink.names[number] for number in pending]
        futures = [executor.submit(task, chunk) for chunk in chunks]
        # What has not begun is taken back on error.
        stack.callback(lambda: [future.cancel() for future in futures])
        for future in concurrent.futures.as_completed(futures):
            future.result()
            done += 1
            progress()
    if jax.process_count() > 1:
        if isinstance(sink, Memory):
            sink.exchange(owners)
        else:
            multihost_utils.sync_global_devices("the chunks of all processes are in the store")


def _compute(job: StudyJob, sink: Any, report: Callable[..., None], number: int) -> None:
    """Compute a chunk and keep it, unless another process was faster."""
    store = sink if isinstance(sink, Store) else None
    try:
        if not sink.holds(number):
            sink.write(number, job.compute(sink.layout, number, report, store))
    except OSError as error:
        kept = len(list((sink.folder / CHUNKS).glob("[!.]*")))
        raise InputError(
            f"chunk {sink.layout.label(number)} could not be written to {sink.folder}: "
            f"{error.strerror or error}; finished chunks ({kept}) are kept: make room, and go on "
            "with --resume"
        ) from None


def _worker_task(job: StudyJob, store: Store) -> Callable[[str], str]:
    """Return the function that workers call with the name of a chunk."""
    try:
        import cloudpickle  # optax transformations are closures, which pickle does not take
    except ImportError:
        raise InputError("executor needs cloudpickle: pip install 'jaxota[distributed]'") from None
    return functools.partial(
        compute_in_worker, cloudpickle.dumps(job.study), str(store.folder.resolve())
    )


def compute_in_worker(pickled: bytes, folder: str, name: str) -> str:
    """Compute a chunk of a pickled study, unless it is there, and write it to the store.

    The store may have grown since the driver chose its chunks, and another driver computes what is
    then the same chunk with more trials: a name that the store no longer has is left out.
    """
    with _devices:
        job, store = _unpickled_job(pickled), Store(Path(folder))
        differs = difference(job.description, store.metadata["description"])
    if differs:
        raise InputError(f"{folder} holds another study than a worker has: {differs}")
    if name in store.names:
        _compute(job, store, lambda *_: None, store.names.index(name))
    return name


@functools.lru_cache(maxsize=4)
def _unpickled_job(pickled: bytes) -> StudyJob:
    """Return the job of a study: made once in a process, as compiled programs are part of it."""
    return StudyJob(pickle.loads(pickled))
