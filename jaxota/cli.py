"""The command `jaxota`."""

import argparse
import contextlib
import hashlib
import os
import platform
import signal
import sys
import tempfile
from pathlib import Path

from jaxota.errors import InputError

CACHE = "JAXOTA_CACHE"


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 2 for bad input, 130 when interrupted.

    Any other exception is a fault of ours, and shows where it happened (exit code 1).
    """
    try:
        arguments = _parser().parse_args(argv)
        return arguments.command(arguments)
    except (InputError, OSError) as error:
        print(f"jaxota: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jaxota: interrupted, nothing was written", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise InputError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    from jaxota import __version__

    parser = _Parser(
        prog="jaxota",
        description="Over-the-air federated learning, simulated.",
        epilog="Compiled programs are kept in a per-user cache folder; "
        f"{CACHE}=off turns that off, {CACHE}=DIR moves it.",
    )
    parser.add_argument("--version", action="version", version=f"jaxota {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("list", help="what there is to run")
    command.set_defaults(command=_list)
    command = commands.add_parser(
        "run", help="run an experiment: a table, a picture, a CSV, a NetCDF"
    )
    command.set_defaults(command=_run)
    command.add_argument("experiment", help="a name that `jaxota list` shows")
    command.add_argument("--trials", type=int, metavar="N", help="Monte Carlo trials")
    command.add_argument("--rounds", type=int, metavar="N", help="communication rounds")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of data and trials (0)")
    command.add_argument("--snr-db", type=float, metavar="X", help="P/sw2 in dB")
    command.add_argument(
        "--snr-per", metavar="UNIT", help="vector or symbol: what the SNR's power P is spread over"
    )
    _add_images(command)
    command.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="folder to write to (figures)",
    )
    return parser


def _add_images(command) -> None:
    images = command.add_argument_group("for experiments on images")
    images.add_argument(
        "--dataset", metavar="NAME", help="mnist, fashion_mnist, emnist, cifar10 or digits"
    )
    images.add_argument(
        "--data-dir", metavar="DIR", help="folder with the data (that which JAXOTA_DATA names)"
    )
    images.add_argument(
        "--init-scale", type=float, metavar="S", help="N(0, S²) is added to the initial model (0)"
    )


def _list(arguments) -> int:
    from jaxota.experiments.figures import EXPERIMENTS, THEORY

    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name:8} {experiment.title}: {', '.join(experiment.algorithms)}")
    for theory in THEORY.values():
        print(f"{theory.name:8} {theory.title}")
    return 0


_OPTIONS = ("trials", "rounds", "snr_db", "snr_per", "dataset", "data_dir", "init_scale")


def _run(arguments) -> int:
    from jaxota.experiments import report as reports
    from jaxota.experiments.figures import EXPERIMENTS, THEORY

    name, known = arguments.experiment, EXPERIMENTS | THEORY
    if name not in known:
        raise InputError(f"unknown experiment {name!r}: choose from {', '.join(known)}")
    given = {k: v for k in _OPTIONS if (v := getattr(arguments, k)) is not None}
    experiment = known[name].configured(given)
    _writable(arguments.out)
    _use_cache()
    if experiment.on_images:
        _silence_tfds()
    with _remembering_interruption() as interrupted, _progress(name, interrupted) as report:
        outcome = experiment.run(arguments.seed, report)
        report("writing")
        paths = reports.write(outcome, arguments.out)
    _print(outcome.caption(), outcome.table(), *outcome.remarks())
    for path in paths:
        print(f"wrote {path}")
    return 0


def _print(caption: str, table, *remarks: str) -> None:
    from rich.console import Console

    print(caption)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    for line in remarks:
        print(line)


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


def _use_cache() -> None:
    """Keep compiled programs between runs, unless the environment says otherwise.

    Programs are kept apart by kind of processor, as a home folder may be shared by several.
    """
    import jax
    import platformdirs

    place = os.environ.get(CACHE) or platformdirs.user_cache_dir("jaxota")
    if place == "off":
        return
    try:
        described = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        kind = [line for line in described.splitlines() if line.startswith(("model name", "flags"))]
    except OSError:
        kind = [platform.processor()]
    name = hashlib.sha256("".join(kind).encode()).hexdigest()[:8]
    jax.config.update("jax_compilation_cache_dir", str(Path(place) / name))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # XLA:CPU reports two tuning hints of its own as missing from the processor, at length, for each
    # program that it reads from the cache; what is really wrong reaches us as an exception.
    jax.config.update("jax_logging_level", "CRITICAL")


def _silence_tfds() -> None:
    """Its bars would run through ours."""
    with contextlib.suppress(ImportError):
        import tensorflow_datasets

        tensorflow_datasets.disable_progress_bar()


@contextlib.contextmanager
def _progress(name: str, interrupted):
    """A bar that is gone when the work is done; nothing where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    with bar:
        task = bar.add_task(name, total=None)

        def report(what: str, done: int = 0, of: int | None = None) -> None:
            if interrupted():
                raise KeyboardInterrupt
            # Without a total the bar only shows that there is life.
            bar.update(task, description=f"{name}: {what}", completed=done, total=of)

        yield report


@contextlib.contextmanager
def _remembering_interruption():
    """Whether Ctrl-C was pressed: the exception it raises is lost inside a garbage collection."""
    pressed = []

    def note(signum, frame):
        pressed.append(signum)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    sys.exit(main())
