"""Progress of long work on stderr: one moving line on a terminal, a line now and then in a log."""

import contextlib
import contextvars
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxota._core import files
from jaxota.errors import visible

QUIET = 60.0  # seconds between two lines of a log
RUNNING = "running"  # the stage whose parts are counted, and whose rate is shown
# Reports the stages of `simulate` and `sweep` to whoever asked for their progress.
reporting: contextvars.ContextVar[Callable[..., None] | None]
reporting = contextvars.ContextVar("reporting", default=None)


@dataclasses.dataclass
class Meter:
    """Times of the stages of some work, how much of it is done, and what is left.

    Times are seconds of `time.monotonic`, which are arguments.
    """

    name: str
    begun: float
    stage: str = ""
    spent: dict[str, float] = dataclasses.field(default_factory=dict)  # of finished stages
    count: str = ""  # of the current stage, as in "3 of 12"
    rate: float | None = None  # user-steps a second, while running
    _since: float = 0.0  # when `spent` was brought up to date
    _first: tuple[float, int] | None = None  # when the first parts were done, and how many
    _left: tuple[float, float] | None = None  # the seconds left, and when that was estimated

    def update(
        self, now: float, stage: str, done: int = 0, of: int | None = None, steps: float = 0.0
    ) -> None:
        """Note that `done` of `of` parts of a stage, with so many user-steps, are done."""
        if self.stage:
            self.spent[self.stage] = self.spent.get(self.stage, 0.0) + now - self._since
        self.stage, self._since = stage, now
        self.count = f"{done} of {of}" if of and of > 1 else ""
        if stage != RUNNING or not of or not done:
            return
        taken = self.spent.get(RUNNING, 0.0)
        self.rate = steps / taken if steps and taken > 0 else None
        if self._first is None:
            # What comes before the first parts are done, such as compiling, is done once only.
            self._first = now, done
        elif done > self._first[1]:
            each = (now - self._first[0]) / (done - self._first[1])
            self._left = each * (of - done), now

    def left(self, now: float) -> float | None:
        """Estimate the seconds that are left: None where that is unknown, or took longer."""
        if self._left is None:
            return None
        seconds = self._left[0] - (now - self._left[1])
        return seconds if seconds >= 0.5 else None

    def words(self, now: float, width: int | None = None) -> str:
        """Say all of it in a line, of at most `width` characters if it is given."""
        left = self.left(now)
        more = [
            self.count,
            f"elapsed {clock(now - self.begun)}",
            "" if left is None else f"about {clock(left)} left",
            "" if self.rate is None or self.stage != RUNNING else f"{self.rate:.2g} user-steps/s",
        ]
        line = f"{self.name}: {self.stage}"
        for part in filter(None, more):
            if width is not None and len(line) + 3 + len(part) > width:
                break
            line += f" · {part}"
        return line

    def summary(self, now: float) -> str:
        """Say how long each stage took."""
        self.update(now, self.stage)
        return f"{self.name}: " + " · ".join(f"{k} {clock(v)}" for k, v in self.spent.items())


def clock(seconds: float) -> str:
    """Write seconds as minutes and seconds, and hours if there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def shown(name: str, quiet: float = QUIET) -> Iterator[Callable[..., None]]:
    """Show what is reported as `report(stage, done, of, steps)`; gone when the work is done."""
    with _line(Meter(visible(name), time.monotonic()), quiet) as report:
        yield report


@contextlib.contextmanager
def asked(name: str, progress: bool) -> Iterator[Callable[..., None] | None]:
    """Show the progress of a call that was given `progress=True`, and at its end its times."""
    if not progress:
        yield None
        return
    meter = Meter(name, time.monotonic())
    with _line(meter, quiet=10.0, first=True) as report:
        token = reporting.set(report)
        try:
            yield report
        finally:
            reporting.reset(token)
    print(meter.summary(time.monotonic()), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _line(meter: Meter, quiet: float, first: bool = False) -> Iterator[Callable[..., None]]:
    """Show a meter: in a log every `quiet` seconds, and if `first` when a stage is new."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    printed = meter.begun

    class Words(progress.ProgressColumn):
        def render(self, task: Any) -> Text:
            # Beside spinner and bar; rich would fold a line that is too long.
            words = meter.words(time.monotonic(), console.width - 14)
            return Text(words, no_wrap=True, overflow="ellipsis")

    columns = progress.SpinnerColumn(), progress.BarColumn(10), Words()
    silent = not console.is_terminal
    bar = progress.Progress(*columns, console=console, transient=True, disable=silent)
    with bar, files.undoing(bar.stop):  # which brings back the cursor
        task = bar.add_task("", total=None)

        def report(stage: str, done: int = 0, of: int | None = None, steps: float = 0.0) -> None:
            nonlocal printed
            now = time.monotonic()
            new = stage != meter.stage and stage not in meter.spent
            meter.update(now, stage, done, of, steps)
            bar.update(task, completed=done, total=of)  # without a total the bar only moves
            if silent and ((first and new) or now - printed > quiet):
                printed = now
                print(meter.words(now), file=sys.stderr, flush=True)

        yield report
