"""Figures, studies and experiments by name or from a file, run here, in parts or on a cluster."""

import argparse
import ast
import contextlib
import dataclasses
import functools
import shlex
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota._core import files, inputs
from jaxota.cli import process
from jaxota.errors import InputError
from jaxota.figures import FIGURES, Figure
from jaxota.reports import Experiment, Report, counted, study_report
from jaxota.study.grid import parse_grid
from jaxota.study.study import Study

OPTIONS = ("trials", "rounds", "snr_db", "snr_per", "dataset", "data_dir", "init_scale")
SECONDS = 10  # for a scheduler to answer
_MODULES = "jaxota_study_"  # prefix of the names of users' files as modules


def load(target: str) -> Figure | Study | Experiment:
    """Return what is called `target`: the name of a figure, or FILE.py[:NAME]."""
    place, _, name = target.partition(":")
    if place.endswith(".py"):
        return _from_file(Path(place), name)
    if target in FIGURES:
        return FIGURES[target]
    others = [file for file in experiments_in_checkout() if f"/{target}." in file]
    hint = f", or run {others[0]}" if others else ""
    raise InputError(f"unknown experiment {target!r}: choose from {', '.join(FIGURES)}{hint}")


def _from_file(path: Path, name: str) -> Study | Experiment:
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
    return chosen if chosen.name != "study" else dataclasses.replace(chosen, name=name)


def experiments_in_checkout() -> dict[str, str]:
    """Return the experiments in the files of a checkout's benchmarks, and their titles.

    Files are parsed and not run; without a checkout there are none.
    """
    root, titles = Path(__file__).parents[2], {}
    checkout = (root / "pyproject.toml").exists()
    for path in sorted(root.glob("benchmarks/[pw]*/*.py")) if checkout else ():
        found = [
            (node.name, call.args[0].value)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
            for call in node.decorator_list
            if isinstance(call, ast.Call)
            and ast.unparse(call.func) == "jo.experiment"
            and isinstance(call.args[0], ast.Constant)
        ]
        for name, title in found:
            file = path.relative_to(root).as_posix()
            titles[file if len(found) == 1 else f"{file}:{name}"] = str(title)
    return titles


def run(
    chosen: Figure | Study | Experiment, runner: "Runner", arguments: argparse.Namespace
) -> tuple[Report, int | None]:
    """Run what was loaded with the options that were typed; return its report and its seed."""
    if isinstance(chosen, Experiment):
        options = _experiment_options(chosen, arguments)
        if "dataset" in chosen.options:
            process.silence_downloads()
        report = chosen(runner, **options)
        remarks, seed = [], options.get("seed", chosen.options.get("seed"))
    else:
        if arguments.set:
            raise InputError("--set is for experiments from a file: jaxota sweep sweeps fields")
        study, words = _configured(chosen, arguments)
        seed = words.get("seed")
        report = study_report(runner(study), **words)
        diverged = sorted(runner.uncalibrated)
        remarks = [f"{k}: its calibration diverged, and every trial with it." for k in diverged]
    taken = f"{runner.compiling:.1f} s compiling, {runner.running:.1f} s running"
    remarks = [*report.remarks, *remarks, taken]
    return dataclasses.replace(report, remarks=remarks), seed


def _typed(arguments: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    return {k: v for k in names if (v := getattr(arguments, k)) is not None}


def _configured(
    chosen: Figure | Study, arguments: argparse.Namespace
) -> tuple[Study, dict[str, Any]]:
    """Return a study with the options that were typed, and the words of its report."""
    options = _typed(arguments, OPTIONS)
    if isinstance(chosen, Figure):
        figure, seed = chosen.configured(**options), arguments.seed or 0
        if figure.on_images:
            process.silence_downloads()
        words = {"title": figure.title, "snr": figure.snr, "draw": figure.draw, "seed": seed}
        return figure.study(seed), words
    for option in options.keys() - {"trials", "rounds"}:
        name = option.replace("_", "-")
        raise InputError(f"--{name} is not for a study from a file: use --set {option}=...")
    if arguments.seed is not None:
        options["key"] = arguments.seed
    return chosen.replace(**options), {"seed": arguments.seed}


def _experiment_options(experiment: Experiment, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of an experiment that were typed, as flags or by --set."""
    known = f"choose from {', '.join(experiment.options)}" if experiment.options else "it has none"
    options = _typed(arguments, (*OPTIONS, "seed"))
    for option in options:
        if option not in experiment.options:
            flag = option.replace("_", "-")
            raise InputError(f"--{flag} is not an option of {experiment.name}: {known}")
    for word in arguments.set:
        name, equals, text = word.partition("=")
        if not equals or name not in experiment.options:
            raise InputError(f"--set {word} is not an option of {experiment.name}: {known}")
        options[name] = _parsed(name, text, experiment.options[name])
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


def swept_study(arguments: argparse.Namespace) -> Study:
    """Return the study of `jaxota sweep`: a figure's or a file's, over the grid that was typed."""
    chosen = load(arguments.study)
    if isinstance(chosen, Experiment):
        raise InputError(f"{chosen.name} is an experiment, not a study: jaxota run runs it")
    study, _ = _configured(chosen, arguments)
    if arguments.algorithms is not None:
        study = study.replace(algorithms=_chosen(study.algorithms, arguments.algorithms))
        if study.reference not in study.algorithms:
            study = study.replace(reference=next(iter(study.algorithms)))
    study = study.replace(over=study.over * parse_grid(arguments.set))
    return study if arguments.keep is None else study.replace(keep=arguments.keep)


def _chosen(algorithms: dict[str, Any], words: str) -> dict[str, Any]:
    """Return the named algorithms; what is in brackets in a label need not be typed."""
    short = {label.split(" (")[0].lower(): label for label in algorithms}
    chosen = {}
    for name in map(str.strip, words.split(",")):
        label = name if name in algorithms else short.get(name.lower())
        if label is None:
            known = ", ".join(algorithms)
            raise InputError(f"--algorithms must be of {known}, with commas, got {name!r}")
        chosen[label] = algorithms[label]
    return chosen


def command_line(arguments: argparse.Namespace) -> str:
    """Return what to type for the same results; the folders of data and files are left out."""
    typed = vars(arguments)
    place, _, name = typed.get("experiment", typed.get("study", "")).partition(":")
    words = ["jaxota", "run" if "experiment" in typed else "sweep"]
    words.append(":".join(filter(None, (Path(place).name, name))))
    words += [word for setting in arguments.set for word in ("--set", setting)]
    for name in (*OPTIONS, "seed", "algorithms", "keep"):
        value = typed.get(name)
        if value not in (None, "") and name != "data_dir" and (name, value) != ("seed", 0):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


class Incomplete(Exception):
    """Chunks of a study are missing that other shards are to compute."""


@dataclasses.dataclass
class Runner:
    """Run studies chunk by chunk, in memory or by way of stores: the `run` of an experiment.

    Attributes:
        out: the folder of the results; a store is OUT/NAME.parts.
        progress: called as `progress(what, done, of, steps)`.
        command: what to type for the same results, kept in a store.
        in_parts: whether finished chunks are kept in a store.
        memory: bytes that a chunk may take.
        shard: (I, n): compute every n-th chunk from the I-th on.
        executor: computes the chunks in the place of this process.
        before: chunks that the last store held already.
        compiling, running: seconds that all studies took.
        uncalibrated: algorithms of which a calibration diverged.
    """

    out: Path
    progress: Callable[..., None]
    command: str = ""
    in_parts: bool = False
    memory: int | None = None
    shard: tuple[int, int] = (0, 1)
    executor: Any = None
    before: int = 0
    compiling: float = 0.0
    running: float = 0.0
    uncalibrated: set[str] = dataclasses.field(default_factory=set)

    def __call__(self, study: Study) -> Any:
        """Run a study and return its dataset; `Incomplete` while other shards have work to do."""
        from jaxota.study.executor import StudyJob  # what only lists figures need not load it

        store = self.out / f"{study.name}.parts" if self.in_parts else None
        process.kept = functools.partial(interrupted, self.out, store)
        self.progress("reading the data")
        job = StudyJob(study, self.memory)
        sink = self.drive(job, store, resume=store is not None)
        self.uncalibrated |= job.uncalibrated
        if sink.missing():
            raise Incomplete(resumable(store))
        return sink.dataset()

    def drive(self, job: Any, store: Path | None, resume: bool) -> Any:
        """Compute the missing chunks of a study's job; returns what keeps them."""
        from jaxota.study import executor

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


def interrupted(out: Path, store: Path | None = None) -> str:
    """Say what an interruption leaves, for `process.kept`."""
    if store is not None and (store / "study.json").exists():
        return resumable(store)
    if out in {path.parent for path in files.placed}:
        return f"when the results had been written to {out}"
    return "nothing was written"


def resumable(store: Path | None) -> str:
    """Say how many chunks a store holds, and how to continue."""
    chunks = len(list((store / "commits").glob("*.json"))) if store else 0
    kept = f"{counted(chunks, 'finished chunk')} {'is' if chunks == 1 else 'are'} kept"
    return f"{kept} in {store}: the same command with --resume goes on"


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
    process.keep_programs()
    return work(number)
