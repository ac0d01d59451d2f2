"""The command `jaxota`: its arguments and its entry point."""

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

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
    _add(verb, "--set NAME=VALUE", "set an option of an experiment from a file", **_REPEATED)
    _add_settings(verb)
    _add(verb, "--out DIR", "folder to write to (figures)", type=Path, default=Path("figures"))
    _add(verb, "--resume", "keep finished chunks in DIR/NAME.parts, and reuse those there")
    _add_pictures(verb)

    verb = add("sweep", "run a figure or your own study over a grid of settings")
    verb.add_argument("study", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    swept = "sweep a field: first:last:step, or values with commas; several make a product"
    _add(verb, "--set NAME=VALUES", swept, **_REPEATED)
    _add(verb, "--algorithms A,B", "run only these algorithms of the study")
    _add(verb, "--keep WHAT", "keep all trials (trials) or moments (mean)")
    _add(verb, "--max-bytes SIZE", "refuse more bytes of results (20G)", default="20G")
    _add(verb, "--max-programs N", "refuse more programs (100)", type=int, default=100)
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
    _add(verb, "--format A,B", "pictures to write: png, svg, pdf (png)", default="png")
    styles = "screen, or paper: 3.5 inches, one column (screen)"
    _add(verb, "--style STYLE", styles, default="screen")


def _add_settings(verb: argparse.ArgumentParser) -> None:
    _add(verb, "--trials N", "Monte Carlo trials", type=int)
    _add(verb, "--rounds N", "communication rounds", type=int)
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
