"""A study: algorithms side by side over a grid of settings, in many trials."""

import dataclasses
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from jaxota._core import inputs as _validate
from jaxota._core.part import Path
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.study.grid import Grid

KEEP = ("trials", "mean")


@dataclasses.dataclass(frozen=True)
class Study:
    """Algorithms side by side, on the same random numbers, over a grid of settings.

    Attributes:
        algorithms: by their labels.
        channel: a `jo.Channel(...)`, of which what the grid sweeps is replaced.
        task: one of `jo.tasks`, likewise.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs of each setting.
        over: what is swept, `jo.grid(...)`; by default nothing.
        key: a random key, or a seed; trial t's random numbers depend on it and on t alone.
        every: the task is scored after rounds every, 2·every, …
        calibration_trials: runs that a calibration averages over, each about the work of a trial.
        keep: "trials", every trajectory, or "mean", of each setting count, mean and variance, and
            those of paired differences to the reference.
        reference: the algorithm that the others are compared with; by default the first.
        metric: the score that tables and pictures are of; by default the task's first.
        name: of the study, and of its files.
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
    ) -> Any:
        """Run it, chunk by chunk; returns an `xarray.Dataset`.

        Args:
            out: a folder that keeps finished chunks, so that an interrupted run can go on, and
                several processes share the work; by default all is held in memory.
            resume: go on with what `out` holds. A store may also be given more trials or settings.
            memory: bytes that a chunk may take; by default what the devices have to spare.
            shard: (I, n): do every n-th chunk only, from the I-th on, counted from 0.
            executor: runs the chunks in the place of this process: anything with the `submit` of
                `concurrent.futures`, such as `dask.distributed.Client(...).get_executor()`.
            report: hears how far it is, as `report(what, done, of)`.
        """
        # It loads what a study as such does not need.
        from jaxota.study.executor import StudyJob, drive, sink, work

        _check_shard(shard)
        if memory is not None:
            _validate.whole("memory", memory, 1, at_most=None)
        _validate.chosen("resume", resume, (False, True))
        folder = None if out is None else _validate.path("out", out)
        if executor is not None and not hasattr(executor, "submit"):
            raise InputError(f"executor must have `submit`, got {_validate.shown(executor)}")
        if not callable(report):
            raise InputError(f"report must be a function, got {_validate.shown(report)}")
        sent = work(self, folder) if executor is not None and folder is not None else None
        job = StudyJob(self, memory=memory)
        kept = sink(job, folder, resume)
        drive(job, kept, shard=shard, executor=executor, work=sent, report=report)
        return kept.dataset()

    @property
    def random_key(self) -> PRNGKeyArray:
        """`key`, made from a seed if it is one."""
        return jax.random.key(self.key) if isinstance(self.key, int) else self.key


def _check_shard(shard: Any) -> None:
    pair = isinstance(shard, tuple | list) and len(shard) == 2
    if not pair or not all(type(x) is int for x in shard) or not 0 <= shard[0] < shard[1]:
        raise InputError(
            f"shard must be (I, n) with I from 0 to n − 1, got {_validate.shown(shard)}"
        )
