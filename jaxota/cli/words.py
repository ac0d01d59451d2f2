"""The words of the command `jaxota`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from jaxota.cli import cache as _cache
from jaxota.errors import InputError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def parser(**answers: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    """The command's words; `answers` is what each of its commands is answered by."""
    from jaxota import __version__

    found = _Parser(
        prog="jaxota",
        description="Over-the-air federated learning, simulated.",
        epilog="Compiled programs are kept in a per-user cache folder; "
        f"{_cache.CACHE}=off turns that off, {_cache.CACHE}=DIR moves it.",
    )
    found.add_argument("--version", action="version", version=f"jaxota {__version__}")
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("list", help="what there is to run")
    command.set_defaults(command=answers["list"])
    command = commands.add_parser(
        "run", help="run an experiment: a table, a picture, a CSV, a NetCDF"
    )
    command.set_defaults(command=answers["run"])
    command.add_argument("experiment", help="a name that `jaxota list` shows, or FILE.py[:NAME]")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set an option of an experiment of your own file",
    )
    _add_common(command, "figures", "folder to write to (figures)")
    command.add_argument(
        "--resume",
        action="store_true",
        help="keep finished chunks in DIR/NAME.parts, and go on from those that are there",
    )
    _add_pictures(command)
    command = commands.add_parser("sweep", help="an experiment, or your study, over a grid")
    command.set_defaults(command=answers["sweep"])
    command.add_argument("study", help="a name that `jaxota list` shows, or my_study.py:NAME")
    _add_sweep(command)
    _add_common(command, None, "folder of the store (sweeps/NAME)")
    command.add_argument(
        "--resume", action="store_true", help="go on with the store, or give it more"
    )
    command = commands.add_parser("claims", help="how often the paper's claims hold, over data")
    command.set_defaults(command=answers["claims"])
    _add_claims(command)
    _add_pictures(command)
    command = commands.add_parser("bench", help="throughput here, beside the alternatives")
    command.set_defaults(command=answers["bench"])
    command.add_argument("--out", type=Path, metavar="DIR", help="write JSON and pictures there")
    command = commands.add_parser("show", help="what a sweep left: a table, a picture, a CSV")
    command.set_defaults(command=answers["show"])
    command.add_argument("folder", type=Path, help="that a sweep was given, perhaps still at work")
    command.add_argument("--metric", metavar="NAME", help="the score to show")
    _add_pictures(command)
    command = commands.add_parser(
        "report", help="what runs or a sweep left, as one HTML file to send: DIR/report.html"
    )
    command.set_defaults(command=answers["report"])
    command.add_argument("folder", type=Path, help="that `run` or `sweep` was given as --out")
    return found


def _add_pictures(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format", default="png", metavar="A,B", help="pictures to write: png, svg, pdf (png)"
    )
    command.add_argument(
        "--style",
        default="screen",
        metavar="STYLE",
        help="screen, or paper: 3.5 inches, one column (screen)",
    )


def _add_sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="sweep a field: first:last:step, or values with commas; several make a product",
    )
    command.add_argument("--algorithms", metavar="A,B", help="some of the study's")
    command.add_argument("--keep", metavar="WHAT", help="trials (all of them) or mean")
    command.add_argument("--max-bytes", default="20G", metavar="SIZE", help="of results (20G)")
    command.add_argument("--max-programs", type=int, default=100, metavar="N", help="(100)")
    command.add_argument(
        "--dry-run", action="store_true", help="say how large it is and how long it takes"
    )


def _add_claims(command: argparse.ArgumentParser) -> None:
    command.add_argument("--only", metavar="1,2,...", help="some of the claims 1 to 7 (all)")
    command.add_argument("--draws", type=int, metavar="N", help="of the data (50; 5 on images)")
    command.add_argument("--trials", type=int, metavar="N", help="of each draw (20; 5 on images)")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of data and trials (0)")
    _add_data(command.add_argument_group("for claims on images"))
    command.add_argument(
        "--out", type=Path, default=Path("figures"), metavar="DIR", help="to write to (figures)"
    )
    command.add_argument(
        "--resume",
        action="store_true",
        help="keep finished chunks in DIR/claims.parts, and go on from those that are there",
    )


def _add_data(images: Any) -> None:
    images.add_argument(
        "--dataset", metavar="NAME", help="mnist, fashion_mnist, emnist, cifar10 or digits"
    )
    images.add_argument(
        "--data-dir", metavar="DIR", help="folder with the data (that which JAXOTA_DATA names)"
    )


def _add_common(command: argparse.ArgumentParser, out: str | None, words: str) -> None:
    command.add_argument("--trials", type=int, metavar="N", help="Monte Carlo trials")
    command.add_argument("--rounds", type=int, metavar="N", help="communication rounds")
    command.add_argument("--seed", type=int, metavar="S", help="of data and trials (0)")
    command.add_argument("--snr-db", type=float, metavar="X", help="P/sw2 in dB")
    command.add_argument(
        "--snr-per", metavar="UNIT", help="vector or symbol: what the SNR's power P is spread over"
    )
    images = command.add_argument_group("for experiments on images")
    _add_data(images)
    images.add_argument(
        "--init-scale", type=float, metavar="S", help="N(0, S²) is added to the initial model (0)"
    )
    scale = command.add_argument_group("at scale")
    scale.add_argument("--memory", metavar="SIZE", help="a chunk may take, such as 4G")
    scale.add_argument("--shard", metavar="I/N", help="every N-th chunk from the I-th on, from 0")
    scale.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster to work there")
    command.add_argument(
        "--out", type=Path, default=Path(out) if out else None, metavar="DIR", help=words
    )
