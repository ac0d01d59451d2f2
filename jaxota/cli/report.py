"""What is told and shown of anything that was run: one protocol for all of it."""

import csv
import functools
import json
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

import jaxota
from jaxota._core import files as _files
from jaxota.errors import InputError

FORMATS = ("png", "svg", "pdf")
STYLES = ("screen", "paper")
TOLD = ("command", "table", "remarks")  # what files hold for a page, in words
VERSIONS = ("jaxota", "jax", "python")
ROWS = 200  # of a table that a file holds: an attribute has no room for more than 64 kB


class Report(Protocol):
    """What a run leaves behind."""

    @property
    def name(self) -> str:
        """Of the experiment, and so of its files."""

    def caption(self) -> str:
        """What was run, in a line."""

    def table(self) -> Any:
        """A `rich` table for the screen."""

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""

    def figure(self) -> Any:
        """The picture."""

    def rows(self) -> Iterable[list]:
        """The rows of the CSV, header first."""

    def dataset(self) -> Any:
        """Everything, as an `xarray.Dataset`."""


class Pictures(NamedTuple):
    """Which pictures are written, and for whom they are drawn."""

    formats: tuple[str, ...] = ("png",)
    style: str = "screen"


def pictures(formats: str, style: str) -> Pictures:
    """From what was typed."""
    words = tuple(dict.fromkeys(word.strip() for word in formats.split(",")))
    for word in words:
        if word not in FORMATS:
            raise InputError(f"--format must be of {', '.join(FORMATS)}, with commas, got {word!r}")
    if style not in STYLES:
        raise InputError(f"--style must be {' or '.join(STYLES)}, got {style!r}")
    return Pictures(words, style)


def write(
    report: Report,
    folder: Path,
    drawn: Pictures = Pictures(),
    data: tuple[str, ...] = ("csv", "nc"),
    command: str = "",
) -> list[Path]:
    """Write pictures, CSV, NetCDF and so on to `folder`, all or none; returns their names.

    The NetCDF says which command makes it again.
    """
    writers: dict[str, Callable[..., Callable[[Path], Any]]]
    writers = {"csv": _table, "nc": functools.partial(_netcdf, command=command), "md": _markdown}
    made = [*_drawn(report, drawn), *(writers[ending](report) for ending in data)]
    places = [folder / f"{report.name}.{ending}" for ending in (*drawn.formats, *data)]
    with _files.replacing(*places) as drafts:
        for save, draft in zip(made, drafts, strict=True):
            save(draft)
    return places


def _drawn(report: Report, drawn: Pictures) -> list[Callable[[Path], Any]]:
    """One picture, in all formats."""
    from jaxota import style  # loads matplotlib, which is slow

    with style.drawn_for(drawn.style):
        figure = report.figure()
        return [functools.partial(_save, figure, style.rc_params()) for _ in drawn.formats]


def _save(figure: Any, fonts: dict[Any, Any], path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context(fonts):  # some of it counts when files are written
        figure.savefig(path)


def _table(report: Report):
    rows = list(report.rows())

    def save(path: Path) -> None:
        with open(path, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)

    return save


def _netcdf(report: Report, command: str):
    """The data set, with what the screen shows of it, so that it can be shown again."""
    words = json.dumps(cells(report.table())), json.dumps(report.remarks())
    told = dict(zip(TOLD, (command, *words), strict=True))
    dataset = report.dataset().assign_attrs(told)
    return lambda path: dataset.to_netcdf(path, engine="h5netcdf")


def cells(table: Any) -> list[list[str]]:
    """Of a `rich` table the words, header first."""
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)][: 1 + ROWS]


def _markdown(report: Any):
    """Of a report that has a page, too."""
    page = report.markdown()
    return lambda path: path.write_text(page, encoding="utf-8")


def attributes(name: str, seed: int, title: str) -> dict:
    """What a dataset says of itself."""
    versions = jaxota.__version__, jax.__version__, platform.python_version()
    told = dict(zip(VERSIONS, versions, strict=True))
    return {"title": title, "experiment": name, "seed": seed, **told}
