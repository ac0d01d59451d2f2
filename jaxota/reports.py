"""Experiments of one's own: a function that runs studies and returns a report."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jaxota._core import inputs
from jaxota.errors import InputError


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of an experiment, as the command shows and writes it.

    Attributes:
        name: the name of its files.
        caption: one line that says what was run.
        table: rows of cells for the screen, header first.
        remarks: sentences that a reader of the table needs.
        dataset: all results, an `xarray.Dataset`: NAME.nc.
        csv: tidy rows, a `pandas.DataFrame`: NAME.csv.
        figure: a function without arguments that draws a matplotlib figure: NAME.png.
        markdown: a page of text, or None: NAME.md.
    """

    name: str
    caption: str
    table: Sequence[Sequence[str]]
    remarks: Sequence[str]
    dataset: Any
    csv: Any
    figure: Callable[[], Any]
    markdown: str | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A function that runs studies and returns a `Report`; `experiment` makes one.

    Attributes:
        name: the name of the function.
        about: one line for `jaxota list` and for tables.
        function: called as `function(run, **options)`. `run(study)` runs a `Study` chunk by chunk
            and returns its `xarray.Dataset`.
    """

    name: str
    about: str
    function: Callable[..., Report]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options: the keyword parameters after `run`."""
        _, *parameters = inspect.signature(self.function).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    def __call__(self, run: Callable[[Any], Any] | None = None, **options: Any) -> Report:
        """Run the experiment here; a study runs in memory unless `run` is given.

        Args:
            run: runs a study and returns its dataset; by default `Study.run` without a folder.
            **options: values in place of the defaults.
        """
        for name in options:
            if name not in self.options:
                raise InputError(
                    f"{name} is not an option of {self.name}: choose from {', '.join(self.options)}"
                )
        return self.function(run or (lambda study: study.run()), **options)


def experiment(about: str) -> Callable[[Callable[..., Report]], Experiment]:
    """Make an `Experiment` of a function, for `jaxota run FILE.py:NAME` and for Python.

    Args:
        about: one line that says which question the experiment answers.
    """
    if not isinstance(about, str):
        raise InputError(f"about must be a line of text, got {inputs.shown(about)}")

    def decorate(function: Callable[..., Report]) -> Experiment:
        return Experiment(function.__name__, about, function)

    return decorate


def parsed(name: str, text: str, default: Any) -> Any:
    """The value of an option that was typed as `text`, of the type that its default has."""
    kinds: tuple[type, ...] = (int, float) if default is None else (type(default),)
    if isinstance(default, bool):
        return {"true": True, "false": False}[inputs.chosen(name, text.lower(), ("true", "false"))]
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    if default is None:
        return text
    raise InputError(f"--set {name} must be of type {kinds[0].__name__}, got {text!r}")
