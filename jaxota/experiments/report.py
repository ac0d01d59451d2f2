"""What is told and shown of anything that was run: one protocol for all of it."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import jax

import jaxota
from jaxota import _files


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


def write(report: Report, folder) -> list[Path]:
    """Write picture, CSV and NetCDF to `folder`, all or none; returns their names."""
    paths = [Path(folder) / f"{report.name}.{ending}" for ending in ("png", "csv", "nc")]
    figure, rows, dataset = report.figure(), report.rows(), report.dataset()
    Path(folder).mkdir(parents=True, exist_ok=True)
    with _files.replacing(*paths) as (png, table_file, nc):
        figure.savefig(png)
        with open(table_file, "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)
        dataset.to_netcdf(nc, engine="h5netcdf")
    return paths


def attributes(name: str, seed: int, title: str) -> dict:
    """What a dataset says of itself."""
    versions = {"jaxota": jaxota.__version__, "jax": jax.__version__}
    return {"title": title, "experiment": name, "seed": seed, **versions}
