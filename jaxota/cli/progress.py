"""The progress bar, and the table at the end."""

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from jaxota._core import files
from jaxota.reports import Report

QUIET = 60.0  # seconds between two lines where there is no terminal


@contextlib.contextmanager
def progress(name: str) -> Iterator[Callable[..., None]]:
    """Show a bar that is gone when the work is done; in a log, a line now and then."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    columns = rich.SpinnerColumn(), "{task.description}", rich.BarColumn()
    times = rich.MofNCompleteColumn(), rich.TimeElapsedColumn(), "left", rich.TimeRemainingColumn()
    silent = not console.is_terminal
    bar = rich.Progress(*columns, *times, console=console, transient=True, disable=silent)
    begun: dict[str, float] = {}
    printed = time.monotonic()

    with bar, files.undoing(bar.stop):  # which brings back the cursor
        task = bar.add_task(name, total=None)

        def report(what: str, done: int = 0, of: int | None = None, steps: float = 0.0) -> None:
            nonlocal printed
            now = time.monotonic()
            if what not in begun:
                begun[what] = now
                bar.reset(task, total=of)
            taken = now - begun[what]
            rate = f", {steps / taken:.2g} user-steps/s" if steps and taken > 0 else ""
            # Without a total the bar only moves.
            bar.update(task, description=f"{name}: {what}{rate}", completed=done, total=of)
            if bar.disable and now - printed > QUIET:
                printed = now
                count = f" {done} of {of}" if of else ""
                print(f"{name}: {what}{count}{rate}", file=sys.stderr, flush=True)

        yield report


def load_ahead(when: threading.Event) -> None:
    """Import what shows results in a thread; code that needs it sooner imports it as usual."""

    def load() -> None:
        when.wait()
        for name in ("xarray", "h5netcdf", "jaxota.plots", "matplotlib.backends.backend_agg"):
            with contextlib.suppress(ImportError):  # raised again where it is needed
                importlib.import_module(name)

    threading.Thread(target=load, daemon=True).start()


def show(report: Report) -> None:
    """Print a report: its table between its caption and its remarks."""
    from rich.console import Console
    from rich.table import Table

    header, *rows = report.table
    grid = Table()
    for heading, cells in zip(header, zip(*rows, strict=True), strict=True):
        grid.add_column(heading, justify="right" if all(map(is_number, cells)) else "left")
    for row in rows:
        grid.add_row(*map(str, row))
    console = Console(width=None if sys.stdout.isatty() else 150)
    with console.capture() as drawn:  # by itself it would answer for a closed pipe
        console.print(grid)
    print(report.caption, drawn.get().rstrip("\n"), *report.remarks, sep="\n")


def is_number(cell: object) -> bool:
    """Whether a cell of a table holds a number, perhaps with its interval, or stands for none."""
    words = str(cell).strip()
    none = words in ("–", "all diverged", "no pairs", "not there yet")
    return none or words[:1].isdigit() or (words[:1] in "+-−" and words[1:2].isdigit())
