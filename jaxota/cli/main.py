"""The command `jaxota`: its arguments and its entry point."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from jaxota.cli import commands, process
from jaxota.errors import InputError


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
            print(f"jaxota: {' '.join(str(error).splitlines())}", file=sys.stderr)
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
        raise InputError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """Build the parser; `command` of what it parses is the function that answers."""
    from jaxota import __version__

    top = _Parser(
        prog="jaxota",
        description="Simulate over-the-air federated learning.",
        epilog="Compiled programs are kept in a per-user cache folder; "
        f"{process.CACHE}=off turns that off, {process.CACHE}=DIR moves it.",
    )
    top.add_argument("--version", action="version", version=f"jaxota {__version__}")
    verbs = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, help: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=help)
        verb.set_defaults(command=getattr(commands, f"{name}_"))
        return verb

    add("list", "show the figures and experiments that can be run")

    verb = add("run", "run a figure or an experiment: a table, a picture, a CSV, a NetCDF")
    verb.add_argument("experiment", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    _add_set(verb, "NAME=VALUE", "set an option of an experiment from a file")
    _add_settings(verb)
    _add_out(verb, Path("figures"), "folder to write to (figures)")
    _add_flag(verb, "--resume", "keep finished chunks in DIR/NAME.parts, and reuse those there")
    _add_pictures(verb)

    verb = add("sweep", "run a figure or your own study over a grid of settings")
    verb.add_argument("study", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    _add_set(
        verb,
        "NAME=VALUES",
        "sweep a field: first:last:step, or values with commas; several make a product",
    )
    verb.add_argument("--algorithms", metavar="A,B", help="run only these algorithms of the study")
    verb.add_argument("--keep", metavar="WHAT", help="keep all trials (trials) or moments (mean)")
    verb.add_argument(
        "--max-bytes", default="20G", metavar="SIZE", help="refuse more bytes of results (20G)"
    )
    verb.add_argument(
        "--max-programs", type=int, default=100, metavar="N", help="refuse more programs (100)"
    )
    _add_flag(verb, "--dry-run", "print how large the sweep is and how long it takes, and stop")
    _add_settings(verb)
    _add_out(verb, None, "folder of the store (sweeps/NAME)")
    _add_flag(verb, "--resume", "continue the store in DIR, or add settings and trials to it")

    verb = add("show", "show what a sweep left: a table, a picture, a CSV")
    verb.add_argument("folder", type=Path, help="the --out of a sweep, finished or not")
    verb.add_argument("--metric", metavar="NAME", help="the score to show")
    _add_pictures(verb)

    verb = add("report", "write one HTML file of what runs or a sweep left: DIR/report.html")
    verb.add_argument("folder", type=Path, help="the --out of `run` or `sweep`")

    verb = add("bench", "measure the throughput here, beside the alternatives")
    verb.add_argument("--out", type=Path, metavar="DIR", help="write JSON and pictures there")
    return top


def _add_flag(verb: argparse.ArgumentParser, name: str, help: str) -> None:
    verb.add_argument(name, action="store_true", help=help)


def _add_set(verb: argparse.ArgumentParser, metavar: str, help: str) -> None:
    verb.add_argument("--set", action="append", default=[], metavar=metavar, help=help)


def _add_out(verb: argparse.ArgumentParser, default: Path | None, help: str) -> None:
    verb.add_argument("--out", type=Path, default=default, metavar="DIR", help=help)


def _add_pictures(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--format", default="png", metavar="A,B", help="pictures to write: png, svg, pdf (png)"
    )
    verb.add_argument(
        "--style",
        default="screen",
        metavar="STYLE",
        help="screen, or paper: 3.5 inches, one column (screen)",
    )


def _add_settings(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--trials", type=int, metavar="N", help="Monte Carlo trials")
    verb.add_argument("--rounds", type=int, metavar="N", help="communication rounds")
    verb.add_argument("--seed", type=int, metavar="S", help="seed of the data and the trials (0)")
    verb.add_argument("--snr-db", type=float, metavar="X", help="the SNR P/sw2 in dB")
    verb.add_argument(
        "--snr-per", metavar="UNIT", help="vector or symbol: what the SNR's power P is spread over"
    )
    images = verb.add_argument_group("for experiments on images")
    images.add_argument(
        "--dataset", metavar="NAME", help="mnist, fashion_mnist, emnist, cifar10 or digits"
    )
    images.add_argument(
        "--data-dir", metavar="DIR", help="folder with the data (by default JAXOTA_DATA)"
    )
    images.add_argument(
        "--init-scale", type=float, metavar="S", help="add N(0, S²) to the initial model (0)"
    )
    scale = verb.add_argument_group("at scale")
    scale.add_argument("--memory", metavar="SIZE", help="memory of a chunk, such as 4G")
    scale.add_argument("--shard", metavar="I/N", help="run every N-th chunk from the I-th, from 0")
    scale.add_argument("--scheduler", metavar="ADDRESS", help="run the chunks on a Dask cluster")
