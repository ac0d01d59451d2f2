"""What a person sees while the command works."""

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxota.cli import process as _process

QUIET = 60.0  # seconds between two lines where there is no terminal


@contextlib.contextmanager
def progress(name: str) -> Iterator[Callable[..., None]]:
    """A bar that is gone when the work is done; in a log, a line now and then."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    bar = Progress(
        *columns, *times, console=console, transient=True, disable=not console.is_terminal
    )
    begun: dict[str, float] = {}
    told = time.monotonic()

    with bar, _process.undoing(bar.stop):  # which brings back the cursor
        task = bar.add_task(name, total=None)

        def report(what: str, done: int = 0, of: int | None = None, steps: float = 0.0) -> None:
            nonlocal told
            now = time.monotonic()
            if what not in begun:
                begun[what] = now
                bar.reset(task, total=of)
            taken = now - begun[what]
            rate = f", {steps / taken:.2g} user-steps/s" if steps and taken > 0 else ""
            # Without a total the bar only shows that there is life.
            bar.update(task, description=f"{name}: {what}{rate}", completed=done, total=of)
            if bar.disable and now - told > QUIET:
                told = now
                count = f" {done} of {of}" if of else ""
                print(f"{name}: {what}{count}{rate}", file=sys.stderr, flush=True)

        yield report


def load_ahead(when: threading.Event) -> None:
    """Import in a thread what shows results; whoever needs it sooner imports it as usual."""
    threading.Thread(target=_load, args=(when,), daemon=True).start()


def _load(when: threading.Event) -> None:
    when.wait()
    for name in ("xarray", "h5netcdf", "jaxota.plots", "matplotlib.backends.backend_agg"):
        with contextlib.suppress(ImportError):  # raised anew where it is missed
            importlib.import_module(name)


def show(caption: str, table: Any, *remarks: str) -> None:
    """A table between its caption and what is to be known of it."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 150)
    with console.capture() as drawn:  # by itself it would answer for a closed pipe
        console.print(table)
    print(caption, drawn.get().rstrip("\n"), *remarks, sep="\n")
