"""Figures, studies and experiments by name or from a file, run here, in parts or on a cluster."""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import re
import shlex
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from jaxota._core import cache, inputs
from jaxota._core.capacity import format_bytes
from jaxota.cli import process
from jaxota.cli.typed import parse_grid
from jaxota.errors import InputError
from jaxota.figures import FIGURES, Figure, choose
from jaxota.reports import Experiment, Report, check_options, counted, study_report
from jaxota.study import executor
from jaxota.study.compile import waiting
from jaxota.study.study import Study

OPTIONS = (
    *("trials", "rounds", "algorithms", "snr_db", "snr_per"),
    *("dataset", "data_dir", "init_scale", "seed"),
)
SECONDS = 10  # for a scheduler to answer
_EXPERIMENT = re.compile(r'^@jo\.experiment\("(.+)"\)\ndef (\w+)', re.MULTILINE)
_MODULES = "jaxota_study_"  # prefix of the names of users' files as modules


@dataclasses.dataclass(frozen=True)
class FileStudy:
    """A study from a file, under this name, with options and a report as a figure has them."""

    name: str
    given: Study
    options: ClassVar[dict[str, Any]] = dict.fromkeys(("seed", "trials", "rounds", "algorithms"))

    def study(self, **options: Any) -> Study:
        check_options(self, options)
        seed = {"key": options.pop("seed")} if "seed" in options else {}
        if (names := options.pop("algorithms", None)) is not None:
            options["algorithms"] = algorithms = choose(self.given.algorithms, names)
            if self.given.reference not in algorithms:
                options["reference"] = next(iter(algorithms))
        return self.given.replace(name=self.name, **seed, **options)

    def __call__(self, run: Callable[[Study], Any], **options: Any) -> Report:
        return study_report(run(self.study(**options)), seed=options.get("seed"))


Runnable: TypeAlias = Figure | FileStudy | Experiment


def load(target: str) -> Runnable:
    """Return what is called `target`: the name of a figure, or FILE.py[:NAME]."""
    place, _, name = target.partition(":")
    if place.endswith(".py"):
        return _from_file(Path(place), name)
    if target in FIGURES:
        return FIGURES[target]
    others = [file for file in experiments_in_checkout() if f"/{target}." in file]
    hint = f", or run {others[0]}" if others else ""
    raise InputError(f"unknown experiment {target!r}: choose from {', '.join(FIGURES)}{hint}")


def _from_file(path: Path, name: str) -> FileStudy | Experiment:
    """Run a user's file, and return its study or experiment `name`, or the only one."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    module = types.ModuleType(f"{_MODULES}{path.stem}")  # a name that no other module has
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # dataclasses look for it there
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        exec(compile(source, module.__file__, "exec"), vars(module))
    except InputError:
        raise
    except Exception as error:
        line = inputs.first_line(error)
        raise InputError(f"{path} fails: {type(error).__name__}: {line}") from None
    public = {k: v for k, v in vars(module).items() if not k.startswith("_")}
    studies = {k: v for k, v in public.items() if isinstance(v, Study | Experiment)}
    if not studies:
        raise InputError(f"{path} holds neither a jo.Study nor a jo.experiment")
    if not name:
        experiments = [k for k, v in studies.items() if isinstance(v, Experiment)]
        name, *others = experiments or studies  # an experiment may lie beside the studies it runs
        if others:
            raise InputError(f"{path} holds {', '.join(studies)}: choose one, as in {path}:{name}")
    if name not in studies:
        raise InputError(f"{path} holds no {name}: choose from {', '.join(studies)}")
    chosen = studies[name]
    if isinstance(chosen, Experiment):
        return chosen
    return FileStudy(name if chosen.name == "study" else chosen.name, chosen)


def experiments_in_checkout() -> dict[str, str]:
    """Return the experiments in the files of a checkout's benchmarks, and their titles.

    Files are searched and not run; without a checkout there are none.
    """
    root, titles = Path(__file__).parents[2], {}
    checkout = (root / "pyproject.toml").exists()
    for path in sorted(root.glob("benchmarks/[mpw]*/*.py")) if checkout else ():
        found = _EXPERIMENT.findall(path.read_text(encoding="utf-8"))
        for title, name in found:
            file = path.relative_to(root).as_posix()
            titles[file if len(found) == 1 else f"{file}:{name}"] = title
    return titles


def typed_options(
    chosen: Runnable, arguments: argparse.Namespace, settings: list[str]
) -> dict[str, Any]:
    """Return the options that were typed, as flags or as NAME=VALUE."""
    options = {k: v for k in OPTIONS if (v := getattr(arguments, k)) is not None}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set must be NAME=VALUE, got {setting!r}")
        options[name] = _parsed(name, text, chosen.options.get(name))
    return options


def _parsed(name: str, text: str, default: Any) -> Any:
    """Return the value of an option, of the type of its default; without one, a number if it is."""
    if isinstance(default, bool):
        return {"true": True, "false": False}[inputs.chosen(name, text.lower(), ("true", "false"))]
    for kind in (int, float) if default is None else (type(default),):
        with contextlib.suppress(ValueError):
            return kind(text)
    if default is None:
        return text
    raise InputError(f"--set {name} must be of type {type(default).__name__}, got {text!r}")


def run(
    chosen: Runnable,
    runner: "Runner",
    options: dict[str, Any],
    exact: bool = False,
    best: bool = False,
) -> Report:
    """Run what was loaded, and report it with the time that it took.

    `exact` adds exact curves to the report of a figure or a study, `best` a tuned plan.
    """
    if "dataset" in chosen.options:
        process.silence_downloads()
    if (exact or best) and isinstance(chosen, Experiment):
        flag = "--exact" if exact else "--best"
        raise InputError(f"{flag} is for figures and studies, and {chosen.name} is an experiment")
    report = chosen(runner, **options)
    if exact or best:
        from jaxota.study import expected

        study = chosen.study(**options)  # type: ignore[union-attr]
        runner.progress("computing expectations")
        if exact:
            report = expected.beside_trials(report, study, report.dataset)
        if best:
            report = expected.with_best(report, study)
    # An experiment may run several studies, and says itself what they left out.
    diverged = [] if isinstance(chosen, Experiment) else sorted(runner.uncalibrated)
    remarks = [f"{k}: its calibration diverged, and every trial with it." for k in diverged]
    taken = f"{runner.compiling:.1f} s compiling, {runner.running:.1f} s running"
    return dataclasses.replace(report, remarks=[*report.remarks, *remarks, taken])


def swept_study(arguments: argparse.Namespace) -> Study:
    """Return the study of `jaxota sweep`: a figure's or a file's, over the grid that was typed."""
    chosen = load(arguments.study)
    if isinstance(chosen, Experiment):
        raise InputError(f"{chosen.name} is an experiment, not a study: jaxota run runs it")
    study = chosen.study(**typed_options(chosen, arguments, []))
    # A study's file may hold parts of its own.
    file = sys.modules.get(f"{_MODULES}{Path(arguments.study.partition(':')[0]).stem}")
    own = vars(file) if isinstance(chosen, FileStudy) and file is not None else {}
    study = study.replace(over=study.over * parse_grid(arguments.set, own))
    return study if arguments.keep is None else study.replace(keep=arguments.keep)


def command_line(arguments: argparse.Namespace) -> str:
    """Return what to type for the same results; the folders of data and files are left out."""
    typed = vars(arguments)
    place, _, name = typed.get("experiment", typed.get("study", "")).partition(":")
    words = ["jaxota", "run" if "experiment" in typed else "sweep"]
    words.append(":".join(filter(None, (Path(place).name, name))))
    words += [word for setting in arguments.set for word in ("--set", setting)]
    for name in (*OPTIONS, "keep"):
        value = typed.get(name)
        if value not in (None, "") and name != "data_dir" and (name, value) != ("seed", 0):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


class Incomplete(Exception):
    """Chunks of a study are missing that other shards are to compute."""


@dataclasses.dataclass
class Runner:
    """Run studies chunk by chunk, in memory or by way of stores: the `run` of an experiment."""

    out: Path  # the folder of the results
    progress: Callable[..., None]  # called as `progress(what, done, of, steps)`
    command: str = ""  # what to type for the same results, kept in a store
    in_parts: bool = False  # whether finished chunks are kept, in the store OUT/NAME.parts
    memory: int | None = None  # bytes that a chunk may take
    shard: tuple[int, int] = (0, 1)  # (I, n): compute every n-th chunk from the I-th on
    executor: Any = None  # computes the chunks in the place of this process
    before: int = 0  # chunks that the last store held already
    compiling: float = 0.0  # seconds of all studies
    running: float = 0.0
    # Algorithms of which a calibration diverged.
    uncalibrated: set[str] = dataclasses.field(default_factory=set)

    def __call__(self, study: Study) -> Any:
        """Run a study and return its dataset; `Incomplete` while other shards have work to do."""
        store = self.out / f"{study.name}.parts" if self.in_parts else None
        process.store = store
        self.progress("reading the data")
        job = executor.StudyJob(study, self.memory)
        sink = self.drive(job, store, resume=store is not None)
        self.uncalibrated |= job.uncalibrated
        if store is not None and sink.missing():
            raise Incomplete(process.resumable(store))
        return sink.dataset()

    def drive(self, job: Any, store: Path | None, resume: bool) -> Any:
        """Compute the missing chunks of a study's job; returns what keeps them."""
        self.progress("compiling")
        begun = time.perf_counter()
        sink = executor.open_sink(job, store, resume, self.command)
        ready = time.perf_counter()
        self.before = sink.layout.count - len(sink.missing())
        options = {"shard": self.shard, "executor": self.executor, "report": self.progress}
        executor.drive(job, sink, **options)
        self.compiling += ready - begun
        self.running += time.perf_counter() - ready
        return sink


def size(job: Any) -> str:
    """Say in a line how many settings, trials, curves, bytes and programs a sweep has."""
    study, settings = job.study, job.settings
    axes = " × ".join(f"{len(axis)} {axis.name}" for axis in settings.axes) or "1 setting"
    curves = settings.count * study.trials * len(study.algorithms)
    return (
        f"{axes} = {counted(settings.count, 'setting')} × {counted(study.trials, 'trial')} × "
        f"{counted(len(study.algorithms), 'algorithm')} = {counted(curves, 'curve')} of "
        f"{counted(study.rounds, 'round')}, {format_bytes(job.bytes)} of results "
        f"(keep {study.keep}), {counted(settings.programs, 'program')}"
    )


def refuse_too_much(job: Any, limit: int, programs: int, out: Path) -> None:
    """Raise InputError where a sweep is larger than the user, or the disk, has room for."""
    if job.settings.programs > programs:
        raise InputError(f"{size(job)}: more than --max-programs {programs}")
    if job.bytes > limit:
        allowed = f"--max-bytes {format_bytes(limit)}"
        raise InputError(f"{size(job)}: more than {allowed}; --keep mean needs less")
    executor.check_room(job, out)


def dry_run(job: Any, tell: Callable[..., None]) -> list[str]:
    """Say how large a sweep is, and estimate its time from one of its chunks; keep nothing."""

    def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        begun = time.perf_counter()
        return work(*arguments), time.perf_counter() - begun

    tell("compiling")
    layout, seconds = timed(job.layout)
    compiling, chunks = seconds * job.settings.programs, layout.count
    tell("measuring one chunk")
    (_, first), (_, again) = (timed(job.compute, layout, 0) for _ in range(2))
    calibrating = max(0.0, first - again) * job.calibrations
    running = again * job.steps / job.steps_of(layout, 0)
    return [
        f"{job.study.name}: {size(job)}",
        f"{counted(chunks, 'chunk')} of about {again:.2g} s, "
        f"{format_bytes(layout.bytes / chunks)} each",
        f"about {in_time(compiling + calibrating + running)} on this machine: "
        f"{in_time(compiling)} compiling, {in_time(calibrating)} for "
        f"{counted(job.calibrations, 'calibration')}, {in_time(running)} running "
        f"({job.steps / running:.2g} user-steps/s, from one chunk of the first structure)",
    ]


def in_time(seconds: float) -> str:
    """Write a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"


def load_ahead() -> None:
    """Import what shows results while XLA compiles; code that needs it sooner does it itself."""

    def load() -> None:
        waiting.wait()
        for name in ("xarray", "h5netcdf", "jaxota.plots", "matplotlib.backends.backend_agg"):
            with contextlib.suppress(ImportError):  # raised again where it is needed
                importlib.import_module(name)

    threading.Thread(target=load, daemon=True).start()


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Give an executor of the Dask cluster at an address, or None without one."""
    if address is None:
        yield None
        return
    try:
        import cloudpickle
        from distributed import CancelledError, Client, KilledWorker
    except ImportError:
        raise InputError("--scheduler needs dask: pip install 'jaxota[distributed]'") from None
    for name, module in [*sys.modules.items()]:
        if name.startswith(_MODULES):  # workers cannot import a user's file
            cloudpickle.register_pickle_by_value(module)
    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = inputs.first_line(error)
        late = f"--scheduler {address} did not answer within {SECONDS} s: {reason}"
        raise InputError(late) from None
    process.announce(f"the workers of {address}")
    with client:
        try:
            # A chunk whose worker died is computed by another.
            pool = client.get_executor(pure=False, retries=10)
            submit = functools.partial(pool.submit, _on_worker, sys.path[0])
            yield types.SimpleNamespace(submit=submit)
        except KilledWorker as error:
            raise InputError(
                f"workers died at one chunk again and again ({inputs.first_line(error)}): "
                "a lower --memory may help, and --resume goes on"
            ) from None
        except CancelledError:
            raise InputError(f"--scheduler {address} went away: --resume goes on") from None


def _on_worker(folder: str, work: Callable[[int], int], number: int) -> int:
    """Compute a chunk on a worker that uses its cores and keeps its programs.

    In `folder` workers, too, find the modules that a user's file imports.
    """
    from distributed import get_worker

    from jaxota._core.devices import virtual

    if folder not in sys.path:
        sys.path.insert(0, folder)
    with contextlib.suppress(ValueError):  # no worker, but a thread of the driver's own
        virtual(get_worker().state.nthreads)  # on CPU as many devices, unless JAX has begun
    cache.keep_programs()
    return work(number)
