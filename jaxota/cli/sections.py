"""What a folder holds of experiments, as the sections of a page."""

import base64
import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

from jaxota.cli import cubes, report, specs
from jaxota.errors import InputError
from jaxota.study.store import STUDY, Store

SHOWN = 20  # rows of numbers
_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment, or one sweep."""

    name: str
    caption: str
    command: str  # that makes it again, "" if it was none
    table: list[list[str]]  # header first
    remarks: list[str]
    numbers: list[list[Any]]  # all rows, header first
    curves: dict[str, Any] | None  # for `page.js`
    picture: str  # where there are no curves: its data, as an address
    settings: dict[str, Any]
    versions: dict[str, str]


def found(folder: Path) -> tuple[list[Section], list[str]]:
    """What a run or a sweep left in a folder, and the names of files that are of nothing known."""
    if (folder / STUDY).exists():
        return [_of_store(folder)], []
    if not folder.is_dir():
        raise InputError(f"{folder} must be a folder with results: there is none")
    paths = sorted(folder.glob("*.nc"))
    told = {path: _attributes(path) for path in paths}
    ours = [path for path in paths if {"experiment", "title"} <= told[path].keys()]
    if not ours:
        raise InputError(
            f"{folder} holds no results: neither NAME.nc of `jaxota run NAME --out {folder}`, nor "
            f"{STUDY} of `jaxota sweep`"
        )
    others = [path.name for path in paths if path not in ours]
    return [_of_run(path, told[path]) for path in ours], others


def _attributes(path: Path) -> dict[str, Any]:
    """What a NetCDF says of itself."""
    import xarray  # slow to import

    try:
        with xarray.open_dataset(path, engine="h5netcdf") as data:
            plain = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in data.attrs.items()}
            return {str(k): v for k, v in plain.items()}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _of_run(path: Path, told: dict[str, Any]) -> Section:
    try:
        with open(path.with_suffix(".csv"), newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
        curves = cubes.curves(rows, str(told.get("metric", "")))
        table, remarks, description = (
            json.loads(told.get(name, empty))
            for name, empty in (("table", "[]"), ("remarks", "[]"), ("description", "{}"))
        )
    except FileNotFoundError:
        raise InputError(f"{path.with_suffix('.csv')} is missing: run it again") from None
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{path.with_suffix('.csv')} cannot be read: {error}") from None
    plain = {k: v for k, v in told.items() if k not in (*report.TOLD, "title", "description")}
    return Section(
        name=str(told["experiment"]),
        caption=str(told["title"]),
        command=str(told.get("command", "")),
        table=table,
        remarks=remarks,
        numbers=rows,
        curves=curves,
        picture="" if curves else _picture(path),
        settings={k: v for k, v in plain.items() if k not in report.VERSIONS} | description,
        versions={k: str(plain[k]) for k in report.VERSIONS if k in plain},
    )


def _of_store(folder: Path) -> Section:
    from jaxota.cli.sweeps import Sweep

    sweep, spec = Sweep.opened(folder, None), Store.opened(folder).told["spec"]
    rows = list(sweep.rows())
    curves = cubes.curves(rows, sweep.metric)
    lost = [] if curves else ["There are too many settings for a page to draw their curves."]
    return Section(
        name=sweep.name,
        caption=sweep.caption(),
        command=specs.command(spec) if spec else "",
        table=report.cells(sweep.table()),
        remarks=[*sweep.remarks(), *lost],
        numbers=rows,
        curves=curves,
        picture="" if curves else _picture(folder / f"{sweep.name}.nc"),
        settings=sweep.description,
        versions={k: sweep.description[k] for k in report.VERSIONS if k in sweep.description},
    )


def _picture(path: Path) -> str:
    """The newest picture that a page can show."""
    there = [path.with_suffix(ending) for ending in _TYPES if path.with_suffix(ending).exists()]
    if not there:
        return ""
    newest = max(there, key=lambda each: each.stat().st_mtime)
    content = base64.b64encode(newest.read_bytes()).decode("ascii")
    return f"data:{_TYPES[newest.suffix]};base64,{content}"
