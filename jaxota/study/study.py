"""A study: algorithms side by side over a grid of settings, in many trials."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxtyping import PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.part import Path
from jaxota._core.progress import asked
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.study.grid import Grid

KEEP = ("trials", "mean")


@dataclasses.dataclass(frozen=True)
class Study:
    """Algorithms side by side, on the same random numbers, over a grid of settings.

    Attributes:
        algorithms: the algorithms by their labels.
        channel: a `jo.Channel(...)`; the grid replaces the fields that it sweeps.
        task: one of `jo.tasks`; the grid replaces the fields that it sweeps.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs of each setting.
        over: the settings to sweep, `jo.grid(...)`; by default only one.
        key: a random key, or a seed; trial t's random numbers depend on it and on t alone.
        every: the task is scored after rounds every, 2·every, …
        calibration_trials: runs that a calibration averages over, each about the work of a trial.
        keep: "trials" keeps every trajectory; "mean" keeps count, mean and variance of each
            setting, and those of paired differences to the reference.
        reference: the algorithm that the others are compared with; by default the first.
        metric: the score that tables and pictures show; by default the task's first.
        name: the name of the study, and of its files.
    """

    algorithms: dict[str, Algorithm]
    channel: Channel
    task: Any
    rounds: int
    trials: int
    over: Grid = Grid()
    key: PRNGKeyArray | int = 0
    every: int = 1
    calibration_trials: int = 100
    keep: str = "trials"
    reference: str = ""
    metric: str = ""
    name: str = "study"

    replace = dataclasses.replace

    def run(
        self,
        out: Path | None = None,
        *,
        resume: bool = False,
        memory: int | None = None,
        shard: tuple[int, int] = (0, 1),
        executor: Any = None,
        report: Any = lambda *_, **__: None,
        progress: bool = False,
    ) -> Any:
        """Run the study chunk by chunk; returns an `xarray.Dataset`.

        Args:
            out: a folder that keeps finished chunks, so that an interrupted run can be resumed and
                several processes can share the work; by default results stay in memory.
            resume: go on with the store in `out`, which may be given more trials or settings.
            memory: bytes that a chunk may take; by default what the devices have to spare.
            shard: (I, n): compute every n-th chunk only, from the I-th on, counted from 0.
            executor: runs the chunks instead of this process: anything with the `submit` of
                `concurrent.futures`, such as `dask.distributed.Client(...).get_executor()`. Its
                workers write to `out`.
            report: called with progress, as `report(stage, done, of, steps=…)`.
            progress: print progress on stderr, in the place of `report`.
        """
        # Imported here, as defining a study needs none of it.
        from jaxota.study.executor import StudyJob, drive, open_sink

        pair = isinstance(shard, tuple | list) and len(shard) == 2
        if not pair or not all(type(x) is int for x in shard) or not 0 <= shard[0] < shard[1]:
            raise InputError(
                f"shard must be (I, n) with I from 0 to n − 1, got {inputs.shown(shard)}"
            )
        if memory is not None:
            inputs.whole("memory", memory, 1, at_most=None)
        inputs.chosen("resume", resume, (False, True))
        folder = None if out is None else inputs.path("out", out)
        if executor is not None and not hasattr(executor, "submit"):
            raise InputError(f"executor must have `submit`, got {inputs.shown(executor)}")
        if not callable(report):
            raise InputError(f"report must be a function, got {inputs.shown(report)}")
        inputs.chosen("progress", progress, (False, True))
        with asked(self.name, progress) as shown:
            if shown is not None:
                shown("compiling")
            job = StudyJob(self, memory)
            sink = open_sink(job, folder, resume)
            drive(job, sink, shard=shard, executor=executor, report=shown or report)
        return sink.dataset()


def open(folder: Path, only: Sequence[str] | None = None) -> Any:
    """Open the results in a store, as an `xarray.Dataset` with settings and versions as attributes.

    Args:
        folder: the folder that a sweep, or `Study.run`, wrote to. It may still be written: chunks
            that are not there yet are NaN, and `chunks_done` of `chunks` says how many are. Files
            are checked: a chunk that was damaged is an `InputError`.
        only: names of the results to load, where all of them would not fit into memory. Means that
            `keep="mean"` stored are always loaded.
    """
    from jaxota.study.store import Store  # loads the simulator, which a study alone does not need

    if only is not None and not isinstance(only, list | tuple):
        raise InputError(f"only must be a list of names of results, got {inputs.shown(only)}")
    return Store(inputs.path("folder", folder)).dataset(only)
