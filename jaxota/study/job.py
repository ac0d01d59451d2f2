"""A study as a job: chunks, each a pure function of the study and its number."""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxota._core import batching as _chunks
from jaxota.history import DIMENSIONS, History
from jaxota.study import means, programs
from jaxota.study.cuts import cut
from jaxota.study.descriptions import describe, versions
from jaxota.study.plans import Calibrations, Keeper
from jaxota.study.programs import Programs
from jaxota.study.settings import enter
from jaxota.study.spaces import Space, Variable
from jaxota.study.study import Study


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
        return full if self.study.keep == "trials" else means.space(full, self.settings.scores)

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
            histories = programs.simulate(
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
            arrays = means.of_block(arrays, full, settings.scores, reference, length)
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
