"""The files of a report: pictures, CSV, NetCDF and Markdown, all of them or none."""

import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import jax

import jaxota
from jaxota._core import files
from jaxota.errors import InputError
from jaxota.reports import Report, study_report

FORMATS = ("png", "svg", "pdf")
STYLES = ("screen", "paper")
WORDS = ("command", "table", "remarks")  # attributes of a NetCDF that a page shows
VERSIONS = ("jaxota", "jax", "python")
ROWS = 200  # of a table that a file holds: an attribute has no room for more than 64 kB


class Pictures(NamedTuple):
    """The formats of the pictures, and whether they are for the screen or for a paper."""

    formats: tuple[str, ...] = ("png",)
    style: str = "screen"


def pictures(formats: str, style: str) -> Pictures:
    """Parse --format and --style."""
    words = tuple(dict.fromkeys(word.strip() for word in formats.split(",")))
    for word in words:
        if word not in FORMATS:
            raise InputError(f"--format must be of {', '.join(FORMATS)}, with commas, got {word!r}")
    if style not in STYLES:
        raise InputError(f"--style must be {' or '.join(STYLES)}, got {style!r}")
    return Pictures(words, style)


def of_store(folder: Path, metric: str | None) -> Report:
    """Report what a sweep left in a folder, finished or not."""
    from jaxota.study.store import Store  # loads zarr, which is slow

    store = Store(folder)
    if "scores" not in store.metadata["attributes"]:
        raise InputError(
            f"{folder} holds parts of `jaxota run {store.metadata['name']}`: "
            "--resume finishes it and shows them"
        )
    return study_report(store.dataset(), metric, sweep=True)


def write(
    report: Report,
    folder: Path,
    drawn: Pictures = Pictures(),
    data: tuple[str, ...] = ("csv", "nc"),
    command: str = "",
    seed: int | None = None,
) -> list[Path]:
    """Write a report to `folder`, all files or none, and return their names.

    Args:
        report: what is written.
        folder: made if it is missing.
        drawn: the pictures.
        data: the endings of the other files: csv, nc, md.
        command: what to type for the same results, kept in the NetCDF.
        seed: the seed of data and trials, likewise.
    """
    import matplotlib

    from jaxota import style  # loads matplotlib, which is slow

    # Whatever can fail is made before any file is opened.
    with style.drawn_for(drawn.style):
        figure, fonts = report.figure(), style.rc_params()
    dataset = _with_words(report, command, seed)
    number = None if report.digits is None else f"%.{report.digits}g"
    options = {"float_format": number, "na_rep": "nan", "lineterminator": "\r\n"}

    places = [folder / f"{report.name}.{ending}" for ending in (*drawn.formats, *data)]
    # Some fonts count when files are written.
    with files.replacing(*places) as drafts, matplotlib.rc_context(fonts):
        for place, draft in zip(places, drafts, strict=True):
            if place.suffix == ".csv":
                report.csv.to_csv(draft, index=False, encoding="utf-8", **options)
            elif place.suffix == ".nc":
                dataset.to_netcdf(draft, engine="h5netcdf")
            elif place.suffix == ".md":
                draft.write_text(report.markdown or "", encoding="utf-8")
            else:
                figure.savefig(draft)
    return places


def _with_words(report: Report, command: str, seed: int | None) -> Any:
    """Return the dataset with the words of the screen, so that they can be shown again."""
    versions = jaxota.__version__, jax.__version__, platform.python_version()
    table = json.dumps([list(map(str, row)) for row in report.table[: 1 + ROWS]])
    words = command, table, json.dumps(list(report.remarks))
    attributes: dict[str, Any] = {"title": report.caption, "experiment": report.name}
    attributes |= {} if seed is None else {"seed": seed}
    attributes |= dict(zip((*VERSIONS, *WORDS), (*versions, *words), strict=True))
    return report.dataset.assign_attrs(attributes)
