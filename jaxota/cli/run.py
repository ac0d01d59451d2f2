"""Experiments and studies by name or from a file, run here or on a cluster."""

import contextlib
import dataclasses
import functools
import json
import shlex
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota._core import inputs as _validate
from jaxota.cli.report import Report
from jaxota.errors import InputError
from jaxota.reports import Experiment
from jaxota.reports import Report as ReportValue
from jaxota.study import driver, elsewhere
from jaxota.study.job import StudyJob
from jaxota.study.parsing import parse_grid
from jaxota.study.study import Study

OPTIONS = ("trials", "rounds", "snr_db", "snr_per", "dataset", "data_dir", "init_scale")


def known(name: str) -> Any:
    """The experiment of a name."""
    from jaxota.figures import EXPERIMENTS, THEORY

    every = EXPERIMENTS | THEORY
    if name not in every:
        raise InputError(f"unknown experiment {name!r}: choose from {', '.join(every)}")
    return every[name]


def of_sweep(asked: str, **given: Any) -> dict[str, Any]:
    """The spec of a sweep: of an experiment, or of a study in a file, `my_study.py:NAME`."""
    place, _, name = asked.partition(":")
    if not place.endswith(".py"):
        return {"experiment": asked, **given}
    try:
        source = Path(place).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place} cannot be read: {error}") from None
    return {"file": str(Path(place).resolve()), "source": source, "name": name, **given}


def experiment(spec: dict[str, Any]) -> Any:
    """The experiment that a spec names, as it was asked for."""
    return known(spec["experiment"]).configured(spec.get("options", {}))


def study(spec: dict[str, Any]) -> Study:
    """The study of a sweep."""
    options, seed = dict(spec.get("options", {})), spec.get("seed")
    if "source" in spec:
        base = from_file(spec["file"], spec["source"], spec["name"])
        if isinstance(base, Experiment):
            raise InputError(f"{base.name} is an experiment, not a study: jaxota run runs it")
        for option in options.keys() - {"trials", "rounds"}:
            name = option.replace("_", "-")
            raise InputError(f"--{name} is not for a study from a file: use --set {option}=...")
        base = base.replace(**options, **({} if seed is None else {"key": seed}))
    else:
        chosen = experiment(spec)
        if not hasattr(chosen, "study"):
            raise InputError(f"{chosen.name} sets what it sweeps itself: jaxota run {chosen.name}")
        base = chosen.study(seed or 0)
    if spec.get("algorithms"):
        base = base.replace(algorithms=_some(base.algorithms, spec["algorithms"]))
        if base.reference not in base.algorithms:
            base = base.replace(reference=next(iter(base.algorithms)))
    base = base.replace(over=base.over * parse_grid(spec.get("set", [])))
    keep = spec.get("keep")
    return base if keep is None else base.replace(keep=keep)


def sweep_job(
    spec: dict[str, Any], memory: int | None = None, most_programs: int | None = None
) -> StudyJob:
    """What the driver runs of a sweep; more programs than so many are refused."""
    return StudyJob(study(spec), memory, most_programs)


def job(spec: dict[str, Any], memory: int | None = None) -> Any:
    """What the driver runs of a sweep, or of an experiment."""
    if spec.get("run"):
        return experiment(spec).job(spec["seed"], memory)
    return sweep_job(spec, memory)


def command(spec: dict[str, Any]) -> str:
    """What is typed to have it made again; where data and a user's file lie is left out."""
    words = ["jaxota", "run" if spec.get("run") else "sweep"]
    if "source" in spec:
        words.append(":".join(filter(None, (Path(spec["file"]).name, spec["name"]))))
    else:
        words.append(spec["experiment"])
    options = {k: v for k, v in spec.get("options", {}).items() if k != "data_dir"}
    if spec.get("run") and "source" in spec:  # options that have no flag of their own are set
        sets = [f"{k}={v}" for k, v in options.items() if k not in OPTIONS]
        words += [word for each in sets for word in ("--set", each)]
        options = {k: v for k, v in options.items() if k in OPTIONS}
    several = ",".join(spec.get("algorithms") or ())
    given = {**options, "seed": spec.get("seed"), "algorithms": several, "keep": spec.get("keep")}
    words += [word for each in spec.get("set", []) for word in ("--set", each)]
    for name, value in given.items():
        if value not in (None, "") and (name, value) != ("seed", 0):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


@functools.lru_cache(maxsize=4)
def remembered(words: str) -> Any:
    """The job of a spec, given as JSON: made once in a process, as programs are part of it."""
    return job(json.loads(words))


def _some(algorithms: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Those of the given names; what is in brackets in a label need not be typed."""
    short = {label.split(" (")[0].lower(): label for label in algorithms}
    for name in names:
        if name not in algorithms and name.lower() not in short:
            raise InputError(
                f"--algorithms must be of {', '.join(algorithms)}, with commas, got {name!r}"
            )
    wanted = [name if name in algorithms else short[name.lower()] for name in names]
    return {label: algorithms[label] for label in dict.fromkeys(wanted)}


def from_file(path: str, source: str, name: str) -> Study | Experiment:
    """The study or experiment of a name in a user's file; without a name, the only one."""
    module = types.ModuleType(f"jaxota_study_{Path(path).stem}")  # none that is there already
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look for it there
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        exec(compile(source, path, "exec"), vars(module))
    except InputError:
        raise
    except Exception as error:
        line = _validate.first_line(error)
        raise InputError(f"{path} fails: {type(error).__name__}: {line}") from None
    own = {k: v for k, v in vars(module).items() if not k.startswith("_")}
    studies = {k: v for k, v in own.items() if isinstance(v, Study | Experiment)}
    if not name and len(studies) == 1:
        name = next(iter(studies))
    if name not in studies:
        there = (
            f"it holds {', '.join(studies)}"
            if studies
            else "it holds neither a jo.Study nor a jo.experiment"
        )
        raise InputError(f"{path} must hold a study {name or 'to run'}: {there}")
    found = studies[name]
    return found if found.name != "study" else dataclasses.replace(found, name=name)


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
        work = elsewhere.work(study, store) if executor is not None and store else None
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


SECONDS = 10  # that a scheduler has to answer


@contextlib.contextmanager
def executor(address: str) -> Iterator[Any]:
    """An executor of `concurrent.futures`' kind whose work is done by the cluster at `address`."""
    try:
        from distributed import CancelledError, Client, KilledWorker
    except ImportError:
        raise InputError("--scheduler needs dask: pip install 'jaxota[distributed]'") from None
    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"--scheduler {address} did not answer within {SECONDS} s: {reason}"
        ) from None
    with client:
        try:
            # A chunk whose worker died is done by another.
            yield client.get_executor(pure=False, retries=10)
        except KilledWorker as error:
            raise InputError(
                f"workers died at one chunk again and again ({_validate.first_line(error)}): "
                "a lower --memory may help, and --resume goes on"
            ) from None
        except CancelledError:
            raise InputError(f"--scheduler {address} went away: --resume goes on") from None


def chunk(words: str, folder: str, number: int) -> int:
    """Done by a worker: the chunk of a number, of the job that `words` specify, to the store.

    Nothing is sent back but the number.
    """
    _use_cores()
    from jaxota.cli import process as _cache
    from jaxota.cli import run as specs
    from jaxota.study import elsewhere

    _cache.keep_programs()
    return elsewhere.fill(specs.remembered(words), folder, number)


def work(spec: dict[str, Any], folder: Path) -> Callable[[int], int]:
    """What an executor is given for each number."""
    return functools.partial(chunk, json.dumps(spec), str(folder.resolve()))


def _use_cores() -> None:
    """On CPU, as many devices as the worker has threads, unless JAX was told or has begun."""
    from distributed import get_worker

    from jaxota._core.devices import virtual

    with contextlib.suppress(ValueError):  # no worker, but a thread of the driver's own
        virtual(get_worker().state.nthreads)
