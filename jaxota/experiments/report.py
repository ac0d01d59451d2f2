"""What is told and shown of anything that was run: one protocol for all of it."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import jax

import jaxota
from jaxota import _files

ENDINGS = ("png", "csv", "nc")


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


def paths(name: str, folder: Path, endings: tuple[str, ...] = ENDINGS) -> list[Path]:
    """The files of a report of this name."""
    return [folder / f"{name}.{ending}" for ending in endings]


def write(report: Report, folder: Path, endings: tuple[str, ...] = ENDINGS) -> list[Path]:
    """Write picture, CSV, NetCDF (and so on) to `folder`, all or none; returns their names."""
    places = paths(report.name, folder, endings)
    writers = {"png": _picture, "csv": _table, "nc": _netcdf, "md": _markdown}
    made = [writers[ending](report) for ending in endings]
    with _files.replacing(*places) as drafts:
        for save, draft in zip(made, drafts, strict=True):
            save(draft)
    return places


def _picture(report: Report):
    return report.figure().savefig


def _table(report: Report):
    rows = list(report.rows())

    def save(path: Path) -> None:
        with open(path, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)

    return save


def _netcdf(report: Report):
    dataset = report.dataset()
    return lambda path: dataset.to_netcdf(path, engine="h5netcdf")


def _markdown(report: Any):
    """Of a report that has a page, too."""
    page = report.markdown()
    return lambda path: path.write_text(page, encoding="utf-8")


def attributes(name: str, seed: int, title: str) -> dict:
    """What a dataset says of itself."""
    versions = {"jaxota": jaxota.__version__, "jax": jax.__version__}
    return {"title": title, "experiment": name, "seed": seed, **versions}
