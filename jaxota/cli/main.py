"""The command `jaxota`: its arguments and its commands, which import what is slow when called."""

import argparse
import difflib
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from jaxota._core import cache, files
from jaxota.cli import process
from jaxota.errors import InputError, visible

FORMATS = ("png", "svg", "pdf")


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    The code is 0, 2 for bad input, or 141 if nobody reads the output. Any other exception is a
    fault of ours, and shows where it happened (exit code 1). `process` answers signals.
    """
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return process.hush()
    except (InputError, OSError) as error:
        with process.ending:
            process.say(f"jaxota: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2


def _run(argv: list[str]) -> int:
    if argv[:1] == ["claims"]:
        raise InputError("claims is now an experiment: jaxota run benchmarks/paper/claims.py")
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:  # --help and --version have been answered
        return 0
    for name, value in vars(arguments).items():
        # From `--name=--`, which argparse makes nothing of, and from a script gone wrong.
        if value == [[]] or (value == [] and name != "set") or "\0" in str(value):
            raise InputError(f"--{name.replace('_', '-')} must be given in words")
    with process.replacing_damaged_programs():
        return arguments.command(arguments)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split("=")[0].split(" ")[0]
        near = difflib.get_close_matches(unknown, _options(self), n=1)
        message += f": did you mean {near[0]}?" if near else ""
        raise InputError(f"{message} (see {self.prog} --help)")


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a parser and of its commands."""
    commands = [a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    parsers = [parser, *(each for choices in commands for each in choices.values())]
    return sorted({name for each in parsers for name in each._option_string_actions})


def parser() -> argparse.ArgumentParser:
    """Build the parser; `command` of what it parses is the function that answers."""
    from jaxota import __version__

    top = _Parser(
        prog="jaxota",
        description="Simulate over-the-air federated learning.",
        epilog="Compiled programs are kept in a per-user cache folder; "
        f"{cache.CACHE}=off turns that off, {cache.CACHE}=DIR moves it.",
    )
    top.add_argument("--version", action="version", version=f"jaxota {__version__}")
    verbs = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, help: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=help)
        verb.set_defaults(command=globals()[f"{name}_"])
        return verb

    add("list", "show the figures and experiments that can be run")

    verb = add("run", "run a figure or an experiment: a table, a picture, a CSV, a NetCDF")
    verb.add_argument("experiment", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    _add(verb, "--set NAME=VALUE", "set an option of an experiment from a file", **_REPEATED)
    _add_settings(verb)
    _add(verb, "--out DIR", "folder to write to (figures)", type=Path, default=Path("figures"))
    _add(verb, "--resume", "keep finished chunks in DIR/NAME.parts, and reuse those there")
    _add(verb, "--exact", "draw exact curves through the trials' bands (regression figures)")
    _add(verb, "--best", "compare with the best plan of a class, tuned for the task")
    _add_pictures(verb)

    verb = add("sweep", "run a figure or your own study over a grid of settings")
    verb.add_argument("study", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    swept = "sweep a field: first:last:step, or values with commas; several make a product"
    _add(verb, "--set NAME=VALUES", swept, **_REPEATED)
    _add(verb, "--keep WHAT", "keep all trials (trials) or moments (mean)")
    _add(verb, "--max-bytes SIZE", "refuse more bytes of results (20G)", default="20G")
    _add(verb, "--max-programs N", "refuse more programs (100)", type=int, default=100)
    _add(verb, "--exact", "compute expected results in the place of trials, without a store")
    _add(verb, "--dry-run", "print how large the sweep is and how long it takes, and stop")
    _add_settings(verb)
    _add(verb, "--out DIR", "folder of the store (sweeps/NAME)", type=Path)
    _add(verb, "--resume", "continue the store in DIR, or add settings and trials to it")

    verb = add("show", "show what a sweep left: a table, a picture, a CSV")
    verb.add_argument("folder", type=Path, help="the --out of a sweep, finished or not")
    _add(verb, "--metric NAME", "the score to show")
    _add_pictures(verb)

    verb = add("report", "write one HTML file of what runs or a sweep left: DIR/report.html")
    verb.add_argument("folder", type=Path, help="the --out of `run` or `sweep`")

    verb = add("compile", "predict memory and time of a figure or study on a TPU or GPU")
    verb.add_argument("experiment", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    where = "v5e, v5e:2x2, v6e, h100, h100:8, t4, or here (here)"
    verb.add_argument("--for", help=where, metavar="CHIPS", dest="target", default="here")
    _add(verb, "--trials N", "Monte Carlo trials", type=int)
    _add(verb, "--rounds N", "communication rounds", type=int)

    verb = add("bench", "measure the throughput here, beside the alternatives")
    _add(verb, "--out DIR", "write JSON and pictures there", type=Path)
    return top


_REPEATED: dict[str, Any] = {"action": "append", "default": []}


def _add(verb: Any, option: str, help: str, **more: Any) -> None:
    """Add `--name METAVAR`, or a flag `--name`."""
    name, _, metavar = option.partition(" ")
    more |= {"metavar": metavar} if metavar else {"action": "store_true"}
    verb.add_argument(name, help=help, **more)


def _add_pictures(verb: argparse.ArgumentParser) -> None:
    formats: dict[str, Any] = {"type": _formats, "default": "png"}
    _add(verb, "--format A,B", "pictures to write: png, svg, pdf (png)", **formats)
    styles: dict[str, Any] = {"choices": ("screen", "paper"), "default": "screen"}
    _add(verb, "--style STYLE", "screen, or paper: 3.5 inches, one column (screen)", **styles)


def _formats(words: str) -> list[str]:
    formats = [word.strip() for word in words.split(",")]
    for each in formats:
        if each not in FORMATS:
            wanted = f"must be of {', '.join(FORMATS)}, with commas"
            raise argparse.ArgumentTypeError(f"{wanted}, got {each!r}")
    return list(dict.fromkeys(formats))


def _add_settings(verb: argparse.ArgumentParser) -> None:
    _add(verb, "--trials N", "Monte Carlo trials", type=int)
    _add(verb, "--rounds N", "communication rounds", type=int)
    _add(verb, "--algorithms A,B", "run these algorithms, of the study or such as WISE")
    _add(verb, "--seed S", "seed of the data and the trials (0)", type=int)
    _add(verb, "--snr-db X", "the SNR P/sw2 in dB", type=float)
    _add(verb, "--snr-per UNIT", "vector or symbol: what the SNR's power P is spread over")
    images = verb.add_argument_group("for experiments on images")
    _add(images, "--dataset NAME", "mnist, fashion_mnist, emnist, cifar10 or digits")
    _add(images, "--data-dir DIR", "folder with the data (by default JAXOTA_DATA)")
    _add(images, "--init-scale S", "add N(0, S²) to the initial model (0)", type=float)
    scale = verb.add_argument_group("at scale")
    _add(scale, "--memory SIZE", "memory of a chunk, such as 4G")
    _add(scale, "--shard I/N", "run every N-th chunk from the I-th, from 0")
    _add(scale, "--scheduler ADDRESS", "run the chunks on a Dask cluster")


def list_(arguments: argparse.Namespace) -> int:
    """Print the figures, a checkout's experiments, the field's methods, and the devices here."""
    from jaxota._core.devices import devices
    from jaxota.cli import run
    from jaxota.cli.methods import METHODS
    from jaxota.figures import FIGURES

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for figure in FIGURES.values():
        head = f"{figure.name:8}{figure.takes:>6}  "
        line = f"{head}{figure.title}: {', '.join(figure.algorithms)}"
        print(process.folded(line, width, len(head)))
    for file, title in run.experiments_in_checkout().items():
        print(process.folded(f"{file}  {title}", width, 16))
    print("times on two cores, compilation included")
    print("methods, see docs/methods.md:")
    for name, line in METHODS.items():
        print(f"  {name:12} {line}")
    process.start_jax()
    print(f"runs on {devices()}")
    return 0


def run_(arguments: argparse.Namespace) -> int:
    """Run a figure, a study or an experiment; show its report and write its files."""
    from jaxota import reports
    from jaxota.cli import run

    memory, shard = _scale(arguments)
    process.out = out = arguments.out
    if reason := files.unwritable(out):  # now rather than after the work
        raise InputError(f"--out {out} must be a folder that can be written: {reason}")
    process.prepare()  # before a user's file runs, which may use JAX
    chosen = run.load(arguments.experiment)
    in_parts = arguments.resume or arguments.shard is not None or arguments.scheduler is not None
    with (
        process.progress(chosen.name) as tell,
        run.cluster(arguments.scheduler) as executor,
    ):
        run.load_ahead()
        command = run.command_line(arguments)
        runner = run.Runner(out, tell, command, in_parts, memory, shard, executor)
        try:
            options = run.typed_options(chosen, arguments, arguments.set)
            result = run.run(chosen, runner, options, arguments.exact, arguments.best)
        except run.Incomplete as how:
            process.say(f"{chosen.name}: chunks of other shards are missing: {how}")
            return 0
        tell("writing")
        endings = ("csv", "nc") if result.markdown is None else ("csv", "nc", "md")
        seed = options.get("seed", chosen.options.get("seed"))
        kept = {"command": command} | ({} if seed is None else {"seed": seed})
        written = reports.write(result, out, arguments.format, arguments.style, endings, **kept)
    show(result)
    wrote(written)
    return 0


def sweep_(arguments: argparse.Namespace) -> int:
    """Run a study over a grid into a store."""
    from jaxota import reports
    from jaxota.cli import run
    from jaxota.cli.typed import parse_bytes
    from jaxota.study.executor import StudyJob

    memory, shard = _scale(arguments)
    if (programs := arguments.max_programs) < 1:
        raise InputError(f"--max-programs must be a whole number ≥ 1, got {programs}")
    limit = parse_bytes("--max-bytes", arguments.max_bytes)
    name = Path(arguments.study.partition(":")[0]).stem
    process.prepare()
    with process.progress(name) as tell:
        study = run.swept_study(arguments)
        if arguments.exact:
            tell("computing expectations")
            return _sweep_exactly(study, arguments.out or Path("sweeps") / study.name)
        job = StudyJob(study, memory, programs)
        out = arguments.out or Path("sweeps") / study.name
        run.refuse_too_much(job, limit, programs, out)
        if arguments.dry_run:
            process.say(*run.dry_run(job, tell))
            return 0
    process.store = out
    if sys.stderr.isatty():
        process.say(f"{study.name}: {run.size(job)}", file=sys.stderr)
    with process.progress(study.name) as tell, run.cluster(arguments.scheduler) as executor:
        command = run.command_line(arguments)
        runner = run.Runner(out, tell, command, shard=shard, executor=executor)
        sink = runner.drive(job, out, arguments.resume or shard[1] > 1)
    chunks = sink.layout.count
    done = chunks - len(sink.missing())
    before = f", {runner.before} of them from before" if runner.before else ""
    rest = f", all of them: jaxota show {out}, or jo.open({str(out)!r})"
    verb = "is" if chunks == 1 else "are"
    rest = "; other shards, or --resume, do the rest" if done < chunks else rest
    count = f"{done} of {reports.counted(chunks, 'chunk')} {verb}"
    process.say(f"{study.name}: {count} in {out}{before}{rest}")
    return 0


def _sweep_exactly(study: Any, out: Path) -> int:
    """Write the expected results of a study over its grid, as exact.csv and exact.nc."""
    from jaxota import reports
    from jaxota.study.expected import report_of_grid

    process.out = out
    result = report_of_grid(study)
    show(result)
    wrote(reports.write(result, out, formats=(), data=("csv", "nc")))
    return 0


def show_(arguments: argparse.Namespace) -> int:
    """Show what a sweep left, finished or not; write its picture and CSV beside it."""
    from jaxota import reports

    process.out = arguments.folder
    result = reports.of_store(arguments.folder, arguments.metric)
    show(result)  # also where nothing can be written
    wrote(reports.write(result, arguments.folder, arguments.format, arguments.style, ("csv",)))
    return 0


def report_(arguments: argparse.Namespace) -> int:
    """Write the HTML page of a folder."""
    from jaxota.cli import page

    process.out = arguments.folder
    path, others = page.write(arguments.folder)
    for name in others:
        process.say(f"left out {arguments.folder / name}: it is not of `jaxota run`")
    wrote([path])
    return 0


def wrote(paths: list[Path]) -> None:
    """Say where files are."""
    process.say(*(f"wrote {path}" for path in paths))


def show(report: Any) -> None:
    """Print a report, its table between its caption and its remarks."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # cells are no markup

    from jaxota.reports import is_number

    console = Console(width=None if sys.stdout.isatty() else 150)
    header, *rows = ([visible(str(cell)) for cell in row] for row in report.table)
    numbers = [all(map(is_number, cells)) for cells in zip(*rows, strict=True)]
    shown = _fitting(header, rows, numbers, console.width if sys.stdout.isatty() else None)
    grid = Table()
    for heading, number in zip(header[:shown], numbers, strict=False):
        grid.add_column(Text(heading), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        grid.add_row(*map(Text, row[:shown]))
    with console.capture() as drawn:  # by itself it would answer for a closed pipe
        console.print(grid)
    process.say(report.caption)
    print(drawn.get().rstrip("\n"))
    left_out = ", ".join(head.replace("\n", " ") for head in header[shown:])
    narrow = [f"No room here for {left_out}: see the CSV."] if left_out else []
    process.say(*report.remarks, *narrow)


def _fitting(
    header: list[str], rows: list[list[str]], numbers: list[bool], width: int | None
) -> int:
    """Fold headings between words where a table is too wide; return how many columns have room."""
    if width is None:
        return len(header)
    cells = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    if sum(max(n, len(head)) + 3 for n, head in zip(cells, header, strict=True)) < width:
        return len(header)
    longest = [max(map(len, " ".join(column).split())) for column in zip(*rows, strict=True)]
    needed, room = [], width - 1
    for place, number in enumerate(numbers):
        word = max(map(len, header[place].split()), default=0)
        needed.append(max(word, cells[place] if number else longest[place]) + 3)
        header[place] = "\n".join(header[place].split(" ")) if number else header[place]
    return max(1, sum(sum(needed[: n + 1]) <= room for n in range(len(needed))))


def compile_(arguments: argparse.Namespace) -> int:
    """Compile each algorithm of a figure or study, and print what it would take."""
    from jaxota.cli import compile

    counts = {k: v for k in ("trials", "rounds") if (v := getattr(arguments, k)) is not None}
    with process.progress(arguments.experiment) as tell:
        table = compile.report(arguments.experiment, counts, arguments.target, tell)
    show(table)
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
    from jaxota.cli.typed import parse_bytes, parse_shard

    memory = parse_bytes("--memory", arguments.memory) if arguments.memory is not None else None
    return memory, parse_shard(arguments.shard) if arguments.shard is not None else (0, 1)
