"""What each command of `jaxota` does; whatever is slow to import is imported where it is used."""

import argparse
import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota._core import files
from jaxota.cli import process, progress
from jaxota.errors import InputError


def list_(arguments: argparse.Namespace) -> int:
    """Print the figures, and in a checkout the experiments in its files."""
    from jaxota.cli import run
    from jaxota.figures import FIGURES

    for figure in FIGURES.values():
        print(f"{figure.name:12} {figure.title}: {', '.join(figure.algorithms)}")
    for file, title in run.experiments_in_checkout().items():
        print(f"{file:12} {title}")
    return 0


def run_(arguments: argparse.Namespace) -> int:
    """Run a figure, a study or an experiment; show its report and write its files."""
    from jaxota.cli import report, run
    from jaxota.study import compile

    pictures = report.pictures(arguments.format, arguments.style)
    memory, shard = _scale(arguments)
    process.refuse_unwritable(arguments.out)
    process.prepare()  # before a user's file runs, which may use JAX
    chosen = run.load(arguments.experiment)
    in_parts = arguments.resume or arguments.shard is not None or arguments.scheduler is not None
    with _working(chosen.name, arguments.out) as tell, run.cluster(arguments.scheduler) as executor:
        progress.load_ahead(compile.waiting)
        command = run.command_line(arguments)
        runner = run.Runner(arguments.out, tell, command, in_parts, memory, shard, executor)
        try:
            result, seed = run.run(chosen, runner, arguments)
        except run.Incomplete as how:
            print(f"{chosen.name}: chunks of other shards are missing: {how}")
            return 0
        tell("writing")
        endings = ("csv", "nc") if result.markdown is None else ("csv", "nc", "md")
        written = report.write(result, arguments.out, pictures, endings, command, seed)
    return _show(result, written)


def sweep_(arguments: argparse.Namespace) -> int:
    """Run a study over a grid into a store."""
    from jaxota.cli import run
    from jaxota.study.executor import StudyJob
    from jaxota.study.grid import parse_bytes

    memory, shard = _scale(arguments)
    if (programs := arguments.max_programs) < 1:
        raise InputError(f"--max-programs must be a whole number ≥ 1, got {programs}")
    limit = parse_bytes("--max-bytes", arguments.max_bytes)
    name = Path(arguments.study.partition(":")[0]).stem
    process.prepare()
    with _working(name, Path()) as tell:
        study = run.swept_study(arguments)
        job = StudyJob(study, memory, programs)
        out = arguments.out or Path("sweeps") / study.name
        refuse_too_much(job, limit, programs, out)
        if arguments.dry_run:
            print("\n".join(dry_run(job, tell)))
            return 0
    with _working(study.name, out, out) as tell, run.cluster(arguments.scheduler) as executor:
        command = run.command_line(arguments)
        runner = run.Runner(out, tell, command, shard=shard, executor=executor)
        sink = runner.drive(job, out, arguments.resume or shard[1] > 1)
    chunks = sink.layout.count
    done = chunks - len(sink.missing())
    before = f", {runner.before} of them from before" if runner.before else ""
    rest = f", all of them: jaxota show {out}, or jo.open({str(out)!r})"
    rest = "; other shards, or --resume, do the rest" if done < chunks else rest
    print(f"{study.name}: {done} of {chunks} chunks are in {out}{before}{rest}")
    return 0


def size(job: Any) -> str:
    """Say in a line how many settings, trials, curves, bytes and programs a sweep has."""
    from jaxota._core.devices import format_bytes
    from jaxota.reports import counted

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
    """InputError where a sweep is larger than the user, or the disk, has room for."""
    from jaxota._core.devices import format_bytes
    from jaxota.study.executor import check_room

    if job.settings.programs > programs:
        raise InputError(f"{size(job)}: more than --max-programs {programs}")
    if job.bytes > limit:
        allowed = f"--max-bytes {format_bytes(limit)}"
        raise InputError(f"{size(job)}: more than {allowed}; --keep mean needs less")
    check_room(job, out)


def dry_run(job: Any, tell: Callable[..., None]) -> list[str]:
    """Say how large a sweep is, and estimate its time from one of its chunks; keep nothing."""
    from jaxota._core.devices import format_bytes
    from jaxota.reports import counted

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


def show_(arguments: argparse.Namespace) -> int:
    """Show what a sweep left, finished or not; write its picture and CSV beside it."""
    from jaxota.cli import report, run

    process.kept = functools.partial(run.interrupted, arguments.folder)
    pictures = report.pictures(arguments.format, arguments.style)
    result = report.of_store(arguments.folder, arguments.metric)
    return _show(result, report.write(result, arguments.folder, pictures, ("csv",)))


def _show(result: Any, written: list[Path]) -> int:
    """Print a report, and where its files are."""
    progress.show(result)
    print(*(f"wrote {path}" for path in written), sep="\n")
    return 0


def report_(arguments: argparse.Namespace) -> int:
    """Write the HTML page of a folder."""
    from jaxota.cli import page, run

    process.kept = functools.partial(run.interrupted, arguments.folder)
    path, others = page.write(arguments.folder)
    for name in others:
        print(f"left out {arguments.folder / name}: it is not of `jaxota run`")
    print(f"wrote {path}")
    return 0


def bench_(arguments: argparse.Namespace) -> int:
    """Run the short benchmarks of a checkout, each in a process of its own."""
    folder = Path(__file__).parents[2] / "benchmarks" / "throughput"
    if not (folder / "against.py").exists():
        raise InputError(f"bench needs the benchmarks of a clone of jaxota, not found: {folder}")
    out = ["--out", str(arguments.out)] if arguments.out else []
    for script, *options in (["against.py", "--only", "regression,full"], ["limits.py"]):
        command = [sys.executable, str(folder / script), "--short", *options, *out]
        # In a session of its own it does not answer Ctrl-C, too; it ends with all that it started.
        with (
            subprocess.Popen(command, start_new_session=True) as child,
            files.undoing(functools.partial(os.killpg, child.pid, signal.SIGKILL)),
        ):
            if child.wait():
                return 1
    return 0


def _scale(arguments: argparse.Namespace) -> tuple[int | None, tuple[int, int]]:
    """Return how much memory a chunk may take, and which chunks are to be computed."""
    from jaxota.study.grid import parse_bytes, parse_shard

    memory = parse_bytes("--memory", arguments.memory) if arguments.memory is not None else None
    return memory, parse_shard(arguments.shard) if arguments.shard is not None else (0, 1)


@contextlib.contextmanager
def _working(name: str, out: Path, store: Path | None = None) -> Iterator[Callable[..., None]]:
    """Show progress; an interruption will say what is kept, and how to go on."""
    from jaxota.cli import run

    process.kept = functools.partial(run.interrupted, out, store)
    with progress.progress(name) as tell:
        yield tell
