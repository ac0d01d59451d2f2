"""The command `jaxota`."""

import argparse
import atexit
import contextlib
import dataclasses
import functools
import gc
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota._core import files as _files
from jaxota.cli import process as _process
from jaxota.cli import progress as _terminal
from jaxota.cli import surroundings as _surroundings
from jaxota.cli import words as _words
from jaxota.errors import InputError


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 2 for bad input, 141 if nobody reads the output.

    Any other exception is a fault of ours, and shows where it happened (exit code 1). That a signal
    ends the process is for the process to see to.
    """
    try:
        code = _answer(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _process.hush()
    except (InputError, OSError) as error:
        with _process.ending:
            print(f"jaxota: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2


def _answer(argv: list[str] | None) -> int:
    try:
        arguments = _words.parser(**_answers()).parse_args(argv)
    except SystemExit:  # --help and --version have been answered
        return 0
    for name, value in vars(arguments).items():
        # Of `--name=--`, which argparse makes nothing of, and of a script gone wrong.
        if value == [[]] or (value == [] and name != "set") or "\0" in str(value):
            raise InputError(f"--{name.replace('_', '-')} must be given in words")
    _collect_seldom()
    return arguments.command(arguments)


def _answers() -> dict[str, Callable[[argparse.Namespace], int]]:
    return {
        "list": _list,
        "run": _run,
        "sweep": _sweep,
        "claims": _claims,
        "bench": _bench,
        "show": _show,
        "report": _report,
    }


def _collect_seldom() -> None:
    """Tracing leaves hundreds of thousands of objects that stay: to look through them for garbage,
    again and again and once more at the exit, would take a fifth of a short run.
    """
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)


def _list(arguments) -> int:
    from jaxota.figures import EXPERIMENTS, THEORY

    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name:12} {experiment.title}: {', '.join(experiment.algorithms)}")
    for theory in THEORY.values():
        print(f"{theory.name:12} {theory.title}")
    return 0


def _run_file(arguments) -> int:
    """Run an experiment of the user's own file."""
    from jaxota.cli import report as reports
    from jaxota.cli import runner, specs
    from jaxota.cli.report import attributes
    from jaxota.reports import Experiment, parsed

    spec = specs.of_sweep(arguments.experiment)
    pictures = reports.pictures(arguments.format, arguments.style)
    scale = _scale(arguments)
    _writable(arguments.out)
    _surroundings.prepare(True)
    chosen = specs.from_file(spec["file"], spec["source"], spec["name"])
    if not isinstance(chosen, Experiment):
        raise InputError(f"{chosen.name} is a study: jaxota sweep {arguments.experiment} runs it")
    options = _given(arguments)
    options |= {} if arguments.seed is None else {"seed": arguments.seed}
    for each in arguments.set:
        name, _, text = each.partition("=")
        if name not in chosen.options:
            known = ", ".join(chosen.options)
            raise InputError(f"--set {name} is not an option of {chosen.name}: choose from {known}")
        options[name] = parsed(name, text, chosen.options[name])
    spec |= {"run": True, "options": {k: v for k, v in options.items() if k != "seed"}}
    spec["seed"] = options.get("seed")
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(_working(chosen.name, arguments.out))
        executor = None
        if arguments.scheduler is not None:
            from jaxota.cli import cluster

            executor = stack.enter_context(cluster.executor(arguments.scheduler))
        run = runner.study_runner(
            arguments.out,
            progress,
            **scale,
            in_parts=_in_parts(arguments),
            executor=executor,
            spec=spec,
        )
        try:
            value = chosen(run, **options)
        except runner.Incomplete as store:
            how = _how_to_resume(Path(str(store)))
            print(f"{chosen.name}: chunks of other shards are missing: {how}")
            return 0
        described = attributes(value.name, options.get("seed", 0), value.caption)
        value = dataclasses.replace(value, dataset=value.dataset.assign_attrs(described))
        progress("writing")
        endings = ("csv", "nc") if value.markdown is None else ("csv", "nc", "md")
        outcome = runner.Shown(value)
        command = specs.command(spec)
        paths = reports.write(outcome, arguments.out, pictures, endings, command=command)
    return _tell(outcome, paths)


def _run(arguments) -> int:
    if arguments.experiment.partition(":")[0].endswith(".py"):
        return _run_file(arguments)
    if arguments.set:
        raise InputError("--set is for experiments of your own file: jaxota sweep sweeps fields")
    from jaxota.cli import report as reports
    from jaxota.cli import runner, specs
    from jaxota.study import compile as programs

    name, options = arguments.experiment, _given(arguments)
    pictures = reports.pictures(arguments.format, arguments.style)
    experiment = specs.known(name).configured(options)
    spec = {"run": True, "experiment": name, "options": options, "seed": arguments.seed or 0}
    scale = _scale(arguments)
    store = arguments.out / f"{name}.parts" if _in_parts(arguments) else None
    _writable(arguments.out)
    _surroundings.prepare(experiment.on_images)
    with (
        _working(name, arguments.out, store) as report,
        _executor(arguments, spec, store) as elsewhere,
    ):
        _terminal.load_ahead(programs.waiting)
        outcome = runner.run(
            experiment, spec["seed"], report, **scale, store=store, spec=spec, **elsewhere
        )
        if outcome is None:
            print(f"{name}: chunks of other shards are missing: {_how_to_resume(store)}")
            return 0
        report("writing")
        paths = reports.write(outcome, arguments.out, pictures, command=specs.command(spec))
    return _tell(outcome, paths)


def _claims(arguments) -> int:
    from jaxota._core import inputs as _validate
    from jaxota.cli import report as reports
    from jaxota.cli import runner
    from jaxota.experiments import claims_report, claims_runs

    out, seed = arguments.out, _validate.seed(arguments.seed)
    pictures = reports.pictures(arguments.format, arguments.style)
    parts = claims_runs.chosen(arguments.only)
    _writable(out)
    _surroundings.prepare(any(part.unit == "points" for part in parts))
    asked = arguments.draws, arguments.trials, arguments.dataset, arguments.data_dir
    every, said = claims_runs.runs(parts, *asked)
    pairs = []
    for runs in every:
        store = out / "claims.parts" / runs.name if arguments.resume else None
        with _working(f"claims on {runs.data}", out, store) as report:
            pairs.append((runs, runner.run(runs, seed, report, store=store)))
    outcome = claims_report.Claims.of(seed, parts, pairs, said)
    given = {k: getattr(arguments, k) for k in ("only", "draws", "trials", "seed", "dataset")}
    words = ["jaxota claims", *(f"--{k} {shlex.quote(str(v))}" for k, v in given.items() if v)]
    paths = reports.write(outcome, out, pictures, claims_report.DATA, command=" ".join(words))
    return _tell(outcome, paths)


def _sweep(arguments) -> int:
    from jaxota.cli import specs, sweeps

    given: dict[str, Any] = {"options": _given(arguments), "set": arguments.set}
    if arguments.seed is not None:
        given["seed"] = arguments.seed
    if arguments.algorithms is not None:
        given["algorithms"] = [name.strip() for name in arguments.algorithms.split(",")]
    spec = specs.of_sweep(arguments.study, **given, keep=arguments.keep)
    scale, limits = _scale(arguments), sweeps.limits(arguments.max_bytes, arguments.max_programs)
    _surroundings.prepare("experiment" in spec and specs.known(spec["experiment"]).on_images)
    name = Path(spec["file"]).stem if "file" in spec else arguments.study
    with _working(name, Path()) as report:
        job = specs.sweep_job(spec, scale.pop("memory"), limits.programs)
        out = arguments.out or Path("sweeps") / job.name
        sweeps.refuse_too_much(job, limits, out)
        if arguments.dry_run:
            lines = sweeps.dry_run(job, report)
    if arguments.dry_run:
        print("\n".join(lines))
        return 0
    with _working(job.name, out, out) as report, _executor(arguments, spec, out) as elsewhere:
        done = sweeps.run(job, out, arguments.resume, spec, report, **scale, **elsewhere)
    print(done)
    return 0


def _bench(arguments) -> int:
    from jaxota.cli import bench as _benches

    return _benches.run(arguments.out)


def _show(arguments) -> int:
    from jaxota.cli import report as reports
    from jaxota.cli import sweeps

    _process.kept = functools.partial(_kept, arguments.folder)
    pictures = reports.pictures(arguments.format, arguments.style)
    outcome = sweeps.Sweep.opened(arguments.folder, arguments.metric)
    return _tell(outcome, reports.write(outcome, arguments.folder, pictures, ("csv",)))


def _tell(outcome: Any, paths: list[Path]) -> int:
    """A report on screen, and where its files are."""
    _terminal.show(outcome.caption(), outcome.table(), *outcome.remarks())
    for path in paths:
        print(f"wrote {path}")
    return 0


def _report(arguments) -> int:
    from jaxota.cli import page

    _process.kept = functools.partial(_kept, arguments.folder)
    path, others = page.write(arguments.folder)
    for name in others:
        print(f"left out {arguments.folder / name}: it is not of `jaxota run`")
    print(f"wrote {path}")
    return 0


def _given(arguments) -> dict[str, Any]:
    """What of an experiment was asked to be otherwise."""
    from jaxota.cli.specs import OPTIONS

    return {k: v for k in OPTIONS if (v := getattr(arguments, k)) is not None}


def _scale(arguments) -> dict[str, Any]:
    """How much memory a chunk may take, and which chunks are to be done."""
    from jaxota.study.grid import parse_bytes, parse_shard

    memory = parse_bytes("--memory", arguments.memory) if arguments.memory is not None else None
    shard = parse_shard(arguments.shard) if arguments.shard is not None else (0, 1)
    return {"memory": memory, "shard": shard}


def _in_parts(arguments) -> bool:
    """Whether a run goes by way of a store."""
    return arguments.resume or arguments.shard is not None or arguments.scheduler is not None


@contextlib.contextmanager
def _working(name: str, out: Path, store: Path | None = None) -> Iterator[Callable[..., None]]:
    """Progress; an interruption will say what is kept, and how to go on."""
    _process.kept = functools.partial(_kept, out, store)
    with _terminal.progress(name) as report:
        yield report


def _kept(out: Path, store: Path | None = None) -> str:
    if store is not None and (store / "study.json").exists():
        return _how_to_resume(store)
    if out in {path.parent for path in _files.placed}:
        return f"when the results had been written to {out}"
    return "nothing was written"


def _how_to_resume(store: Path | None) -> str:
    kept = len(list((store / "commits").glob("*.json"))) if store else 0
    return f"{kept} finished chunks are kept in {store}: the same command with --resume goes on"


@contextlib.contextmanager
def _executor(arguments, spec: dict[str, Any], store: Path | None) -> Iterator[dict[str, Any]]:
    """What runs the chunks, if it is not this process."""
    if arguments.scheduler is None or store is None:
        yield {}
        return
    from jaxota.cli import cluster

    with cluster.executor(arguments.scheduler) as executor:
        yield {"executor": executor, "work": cluster.work(spec, store)}


def _writable(folder: Path) -> None:
    """Fail now rather than after the work if nothing can be written to `folder`; make nothing."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(
            f"--out {folder} must be a folder that can be written: {error.strerror}"
        ) from None
