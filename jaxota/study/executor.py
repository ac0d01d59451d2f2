"""The driver: whatever runs in chunks is run here, kept in memory or in a store."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import math
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxota._core import batching as _chunks
from jaxota._core.batching import format_bytes, machine_memory
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, History
from jaxota.study.compile import Calibrations, Keeper, Programs, simulate
from jaxota.study.describe import describe, difference, versions
from jaxota.study.layout import Space, Variable, cut, moments_space
from jaxota.study.resolve import enter
from jaxota.study.study import Study
from jaxota.study.summary import finished, of_block


class Job(Protocol):
    """What the driver runs: a labelled space that is filled chunk by chunk."""

    @property
    def name(self) -> str:
        """Of what is run, and so of its files."""

    @property
    def space(self) -> Space:
        """What is filled."""

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which a store of it may be given more."""

    @property
    def description(self) -> dict[str, Any]:
        """Everything that decides the numbers, in plain words; not what lies along `growing`."""

    @property
    def meanings(self) -> dict[str, list[Any]]:
        """What the labels of what is swept stand for, in plain words."""

    @property
    def attributes(self) -> dict[str, Any]:
        """What a reader of the results must know."""

    @property
    def bytes(self) -> int:
        """What the results take, known before anything is compiled."""

    @property
    def steps(self) -> float:
        """The local steps of users in all of it."""

    @property
    def blocks(self) -> dict[str, int]:
        """How it is cut."""

    def cut_as(self, blocks: dict[str, int]) -> None:
        """From now on it is cut into blocks of these sizes."""

    def follow(self, labels: dict[str, list[Any]]) -> None:
        """From now on what is swept is in the order of these labels, and what is new comes last."""

    def compute(
        self, number: int, report: Callable[..., None], plans: Keeper | None = None
    ) -> dict[str, np.ndarray]:
        """The chunk of a number; `plans` remembers calibrations."""


_devices = threading.Lock()  # one chunk has them all


@dataclasses.dataclass
class Pieces:
    """A job of chunks of its own making, which is always cut the same and never grows.

    Attributes:
        make: of the number of a chunk its results, by their names.
    """

    name: str
    space: Space
    description: dict[str, Any]
    make: Callable[[int], dict[str, Any]]
    steps: float = 0.0
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)

    growing: tuple[str, ...] = ()
    meanings: dict[str, list[Any]] = dataclasses.field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.space.bytes

    @property
    def blocks(self) -> dict[str, int]:
        return self.space.blocks

    def cut_as(self, blocks: dict[str, int]) -> None:
        pass

    def follow(self, labels: dict[str, list[Any]]) -> None:
        pass

    def compute(
        self, number: int, report: Callable[..., None], plans: Keeper | None = None
    ) -> dict[str, np.ndarray]:
        """What `make` gives, each in the first corner of its place: the rest stays NaN."""
        arrays = self.space.empty(self.space.region(number))
        with _devices:
            made = self.make(number)
        for name, values in made.items():
            target = arrays[name][(0,) * len(self.space.blocks)]
            target[tuple(map(slice, np.shape(values)))] = values
        return arrays


class StudyJob:
    """A `Study`, entered, cut and compiled as far as it is needed.

    Attributes:
        memory: bytes that a chunk may take; by default what the devices have to spare.
        most_programs: more are refused.
    """

    def __init__(
        self, study: Study, memory: int | None = None, most_programs: int | None = None
    ) -> None:
        self.settings = enter(study, most_programs)
        self.study = self.settings.study
        self._memory = memory
        self._programs = Programs(self.study.random_key)
        self._calibrations = Calibrations(self._programs)
        self._devices = threading.Lock()  # one chunk has them all

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def growing(self) -> tuple[str, ...]:
        trials = "block" if self.study.keep == "mean" else "trial"
        return (*(axis.name for axis in self.settings.axes), trials)

    @property
    def steps(self) -> float:
        each = [
            group.parts["task"].users * algorithm.local.steps
            for group in self.settings.groups.values()
            for algorithm in group.parts["algorithms"]
        ]
        inner = math.prod(self.settings.swept_sizes.values())
        return float(sum(each) * inner * self.study.trials * self.study.rounds)

    def steps_of(self, number: int) -> float:
        """The local steps of users in one chunk."""
        full = self._full
        group = self.settings.groups[self._place(full.region(number))]
        parts = group.parts
        each = sum(parts["task"].users * a.local.steps for a in parts["algorithms"])
        rows = math.prod(stop - start for start, stop in full.covers(number).values())
        return float(each * rows * self.study.rounds)

    @property
    def bytes(self) -> int:
        """What the results take, uncompressed; of means, by a cut of FEW blocks of trials."""
        if "blocks" in self.__dict__:
            return self.space.bytes
        few = dict.fromkeys(self.settings.swept_sizes, 1)
        trial = max(1, self.study.trials // _chunks.FEW)
        return self._kept(self._cut_into(few | {"trial": trial})).bytes

    @property
    def calibrations(self) -> int:
        """How many different ones the settings need."""
        rows = range(math.prod(self.settings.swept_sizes.values()))
        return self._calibrations.count(self.settings.groups.values(), rows)

    @functools.cached_property
    def blocks(self) -> dict[str, int]:
        """The size of a block along each axis of numbers, and along the trials."""
        return cut(self.settings, self._programs, self._memory)

    def cut_as(self, blocks: dict[str, int]) -> None:
        names = (*self.settings.swept_sizes, "trial")
        self.__dict__["blocks"] = {name: blocks[name] for name in names}
        self.__dict__.pop("_full", None)

    def follow(self, labels: dict[str, list[Any]]) -> None:
        over = self.study.over.followed(labels)
        if over != self.study.over:
            self.settings = enter(self.study.replace(over=over))
            self.study = self.settings.study
            self.__dict__.pop("_full", None)

    @functools.cached_property
    def _full(self) -> Space:
        """All results of all trials."""
        return self._cut_into(self.blocks)

    def _cut_into(self, blocks: dict[str, int]) -> Space:
        study, axes, scores = self.study, self.settings.axes, self.settings.scores
        every = math.gcd(study.every, study.rounds)
        lead = ("algorithm", *(axis.name for axis in axes), "trial")
        results: dict[str, tuple[str, ...]] = dict.fromkeys(scores, ("evaluation",))
        results |= {k: dims[1:] for k, dims in DIMENSIONS.items() if k in self._ledger}
        results |= dict.fromkeys((f"average_{k}" for k in scores), ())
        sizes = {
            "algorithm": len(study.algorithms),
            **{axis.name: len(axis) for axis in axes},
            "trial": study.trials,
            "evaluation": study.rounds // every,
            "round": study.rounds,
            "parameter": max(g.parts["task"].dim for g in self.settings.groups.values()),
        }
        blocks = dict.fromkeys((axis.name for axis in axes), 1) | blocks
        variables = {name: Variable((*lead, *dims)) for name, dims in results.items()}
        coords: dict[str, tuple[str, Any]] = {"algorithm": ("algorithm", list(study.algorithms))}
        for axis in axes:
            coords |= {k: (axis.name, list(v)) for k, v in axis.coordinates.items()}
        coords["round"] = "round", 1 + np.arange(study.rounds)
        coords["evaluation"] = "evaluation", every * (1 + np.arange(study.rounds // every))
        return Space(sizes, blocks, variables, coords)

    @property
    def _ledger(self) -> set[str]:
        """What there is beside the scores."""
        algorithms = [a for g in self.settings.groups.values() for a in g.parts["algorithms"]]
        controlled = any(algorithm.local.controlled for algorithm in algorithms)
        return {
            name
            for name in DIMENSIONS
            if not name.startswith("user_") and (controlled or "control" not in name)
        }

    @property
    def space(self) -> Space:
        return self._kept(self._full)

    def _kept(self, full: Space) -> Space:
        """What is kept of all results."""
        return full if self.study.keep == "trials" else moments_space(full, self.settings.scores)

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        study = self.study
        return {
            "algorithms": {label: describe(a) for label, a in study.algorithms.items()},
            "order": list(study.algorithms),
            "channel": describe(study.channel),
            "task": describe(study.task),
            "key": describe(study.random_key),
            "axes": [axis.name for axis in self.settings.axes],
            "swept": [name for axis in self.settings.axes for name in axis.fields],
            **{
                name: getattr(study, name)
                for name in ("rounds", "every", "calibration_trials", "keep", "reference")
            },
            **versions(),
        }

    @property
    def meanings(self) -> dict[str, list[Any]]:
        return {
            axis.name: [
                {name: describe(values[i]) for name, values in axis.fields.items()}
                for i in range(len(axis))
            ]
            for axis in self.settings.axes
        }

    def compute(
        self, number: int, report: Callable[..., None], plans: Keeper | None = None
    ) -> dict[str, np.ndarray]:
        full, settings = self._full, self.settings
        region = full.region(number)
        group = settings.groups[self._place(region)]
        rows, trials = self._rows(region), np.arange(region["trial"].start, region["trial"].stop)
        # The last block of an axis may be short: it is filled up, so that it is no other program.
        block = math.prod(self.blocks[name] for name in settings.swept_sizes)
        filled = np.pad(rows, (0, block - len(rows)), mode="edge").tolist()
        numbers = trials[0] + np.arange(self.blocks["trial"])
        with self._devices:
            each = {r: self._calibrations.plans(group, r, report, plans) for r in set(filled)}
            report("running")
            histories = simulate(
                self._programs, group, np.asarray(filled), numbers, [each[r] for r in filled]
            )
        arrays = full.empty(region)
        for place, history in enumerate(histories):
            for name, values in _results(history).items():
                mine = np.asarray(values)[: len(rows), : len(trials)]
                target = arrays[name][place]
                mine = mine.reshape(target.shape[: len(settings.axes)] + mine.shape[1:])
                target[tuple(map(slice, mine.shape))] = mine
        if self.study.keep == "mean":
            reference = list(self.study.algorithms).index(self.study.reference)
            length = group.parts["task"].dim
            arrays = of_block(arrays, full, settings.scores, reference, length)
        return arrays

    def _place(self, region: dict[str, slice]) -> tuple[int, ...]:
        """The group that a region lies in."""
        pairs = zip(self.settings.axes, self.settings.swept, strict=True)
        return tuple(region[axis.name].start for axis, inner in pairs if not inner)

    def _rows(self, region: dict[str, slice]) -> np.ndarray:
        """The numbers, in their group, of the settings of a region."""
        sizes = self.settings.swept_sizes
        if not sizes:
            return np.zeros(1, int)
        inner = [np.arange(region[name].start, region[name].stop) for name in sizes]
        return np.ravel_multi_index(np.ix_(*inner), tuple(sizes.values())).ravel()

    @property
    def uncalibrated(self) -> set[str]:
        """The algorithms of which a calibration diverged, of those measured or read here."""
        labels = list(self.study.algorithms)
        return {labels[number] for number in self._calibrations.adrift}

    @property
    def attributes(self) -> dict[str, Any]:
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


def _results(history: History) -> dict[str, Any]:
    """What a history holds, by the names of variables."""
    held = dict(history.scores) | {k: getattr(history, k) for k in DIMENSIONS}
    held |= {f"average_{k}": v for k, v in history.average_scores.items()}
    return {k: v for k, v in held.items() if v is not None}


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


_one_at_a_time = threading.Lock()  # a chunk uses all devices of its process


def fill(job: Job, folder: str, number: int) -> int:
    """Compute the chunk of a number, unless it is there, and write it to the store."""
    from jaxota.study.store import Store  # loads zarr, which is slow

    with _one_at_a_time:
        store = Store.opened(Path(folder))
        apart = difference(job.description, store.told["description"])
        if apart:
            raise InputError(f"{folder} holds another study than a worker has: {apart}")
        job.cut_as(store.told["blocks"])
        job.follow(store.told["labels"])
        if not store.holds(number):
            store.write(number, job.compute(number, lambda *_: None, store.plans))
    return number


def work(study: Study, folder: Path) -> Callable[[int], int]:
    """What an executor is given for each number of a study."""
    try:
        import cloudpickle  # optax transformations are closures, which pickle does not take
    except ImportError:
        raise InputError("executor needs cloudpickle: pip install 'jaxota[distributed]'") from None
    return functools.partial(_chunk, cloudpickle.dumps(study), str(folder.resolve()))


def _chunk(sent: bytes, folder: str, number: int) -> int:
    return fill(_job(sent), folder, number)


@functools.lru_cache(maxsize=4)
def _job(sent: bytes) -> StudyJob:
    """A study as it was sent: made once in a process, as programs are part of it."""
    return StudyJob(pickle.loads(sent))
