"""One HTML file of what was run, to send: it holds all it shows, and loads nothing."""

import base64
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import jaxota
from jaxota import reports, style
from jaxota._core import files
from jaxota.errors import InputError
from jaxota.reports import is_number
from jaxota.study.store import STUDY, Store

NAME = "report.html"
SHOWN = 20  # rows of numbers
MOST = 60_000  # points of a page, each a mean and its interval
LABELS = {
    "gap": "optimality gap F(θ̂) − F(θ*)",
    "loss": "loss F(θ̂)",
    "accuracy": "test accuracy",
    "power_ratio": "power ratio max ‖x‖²/P",
    "snr_db": "SNR (dB)",
}
# Attributes of a dataset that its table of settings does not repeat.
_HIDDEN = {"title", "description", "experiment", "study", "scores", "axes", "order", "chunks"}
_HIDDEN |= {"chunks_done", *reports.WORDS, *reports.VERSIONS}
_NUMBERS = ("mean", "ci_low", "ci_high")
_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
_DASHES = {"-": "", "--": "7 3", "-.": "8 3 2 3", ":": "2 3"}


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment, or one sweep.

    Attributes:
        name, caption, table, remarks: as in a `Report`.
        command: what to type for the same results, or "".
        rows: all numbers, as in the CSV.
        curves: what `page.js` draws, or None.
        picture: in the place of curves, an address that holds an image, or "".
        settings: all parameters, and the versions of packages.
    """

    name: str
    caption: str
    command: str
    table: list[list[str]]
    remarks: list[str]
    rows: pandas.DataFrame
    curves: dict[str, Any] | None
    picture: str
    settings: dict[str, Any]


def write(folder: Path) -> tuple[Path, list[str]]:
    """Write the page of a folder into it; also return the names of files that it leaves out."""
    sections, others = read(folder)
    words = page(sections)
    with files.replacing(folder / NAME) as (draft,):
        draft.write_text(words, encoding="utf-8")
    return folder / NAME, others


def read(folder: Path) -> tuple[list[Section], list[str]]:
    """Read what runs or a sweep left in a folder, and the names of files that are neither's."""
    if (folder / STUDY).exists():
        return [_of_store(folder)], []
    if not folder.is_dir():
        raise InputError(f"{folder} must be a folder with results: there is none")
    attributes = {path: _attributes(path) for path in sorted(folder.glob("*.nc"))}
    runs = {path: a for path, a in attributes.items() if {"experiment", "title"} <= a.keys()}
    if not runs:
        raise InputError(
            f"{folder} holds no results: neither NAME.nc of `jaxota run NAME --out {folder}`, nor "
            f"{STUDY} of `jaxota sweep`"
        )
    others = [path.name for path in attributes if path not in runs]
    return [_of_run(path, found) for path, found in runs.items()], others


def _attributes(path: Path) -> dict[str, Any]:
    """Read the attributes of a NetCDF file as plain values."""
    import xarray  # slow to import

    try:
        with xarray.open_dataset(path, engine="h5netcdf") as data:
            stored = data.attrs.items()
            return {str(k): v.tolist() if hasattr(v, "tolist") else v for k, v in stored}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _of_run(path: Path, attributes: dict[str, Any]) -> Section:
    try:
        rows = _read_rows(path.with_suffix(".csv"))
        drawn = curves(rows, str(attributes.get("metric", "")))
        table, remarks, description = (
            json.loads(attributes.get(name, empty))
            for name, empty in (("table", "[]"), ("remarks", "[]"), ("description", "{}"))
        )
    except FileNotFoundError:
        raise InputError(f"{path.with_suffix('.csv')} is missing: run it again") from None
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{path.with_suffix('.csv')} cannot be read: {error}") from None
    return Section(
        name=str(attributes["experiment"]),
        caption=str(attributes["title"]),
        command=str(attributes.get("command", "")),
        table=table,
        remarks=remarks,
        rows=rows,
        curves=drawn,
        picture="" if drawn else _picture(path),
        settings=attributes | description,
    )


def _read_rows(path: Path) -> pandas.DataFrame:
    """Read a CSV: labels, which stand before the round, as words, and numbers as numbers."""
    header = list(pandas.read_csv(path, nrows=0, encoding="utf-8").columns)
    words = header[: header.index("round")] if _has_curves(header) else header
    numbers = {name: ["nan"] for name in header if name not in (*words, "metric")}
    rows = pandas.read_csv(
        path, dtype=dict.fromkeys(words, str), keep_default_na=False, na_values=numbers
    )
    if rows[words].isna().any(axis=None) or (_has_curves(header) and rows["round"].isna().any()):
        raise ValueError("a row is too short")
    return rows


def _of_store(folder: Path) -> Section:
    found = reports.of_store(folder, None)
    command = Store.open(folder).metadata["spec"]
    drawn = curves(found.csv, found.dataset.attrs["metric"])
    lost = [] if drawn else ["There are too many settings for a page to draw their curves."]
    return Section(
        name=found.name,
        caption=found.caption,
        command=command if isinstance(command, str) else "",
        table=[list(row) for row in found.table],
        remarks=[*found.remarks, *lost],
        rows=found.csv,
        curves=drawn,
        picture="" if drawn else _picture(folder / f"{found.name}.nc"),
        settings=json.loads(found.dataset.attrs["description"]),
    )


def _picture(path: Path) -> str:
    """Return the newest picture that a page can show, as an address that holds it."""
    pictures = [path.with_suffix(end) for end in _TYPES if path.with_suffix(end).exists()]
    newest = max(pictures, key=lambda picture: picture.stat().st_mtime, default=None)
    if newest is None:
        return ""
    content = base64.b64encode(newest.read_bytes()).decode("ascii")
    return f"data:{_TYPES[newest.suffix]};base64,{content}"


def _has_curves(columns: Iterable[str]) -> bool:
    first, *others = columns
    return first == "algorithm" and {"round", "metric", *_NUMBERS} <= {*others}


def curves(rows: pandas.DataFrame, metric: str) -> dict[str, Any] | None:
    """Return what `page.js` draws, `metric` first; None of rows that are no curves, or too many.

    Args:
        rows: columns `algorithm`, what was swept, `round`, `metric`, and numbers.
        metric: the name of the score to show first.
    """
    if not _has_curves(rows.columns):
        return None
    names = list(rows.columns[: rows.columns.get_loc("round")])
    rows = rows[rows.metric != "diverged"]  # a count, and no curve
    values = [rows[name].unique() for name in names]
    labels = [list(map(str, labels)) for labels in values]
    series = math.prod(map(len, labels))
    if rows.empty or series > MOST:
        return None
    metrics = sorted(rows.metric.unique(), key=metric.__ne__)
    rounds = np.sort(rows["round"].unique()).astype(int)
    most = max(1, MOST // (series * (1 + len(metrics))))
    every = -(-len(rounds) // most)
    kept = rounds[(len(rounds) - 1) % every :: every]  # the last round among them
    # [metric, algorithm, axes…, round]; what has no row is NaN.
    cube = rows.set_index(["metric", *names, "round"])
    index = pandas.MultiIndex.from_product([*values, kept])
    drawn = [_metric(name, cube.loc[name].reindex(index), _NUMBERS) for name in metrics]
    if "power_ratio" in rows:
        ratio = cube.loc[metrics[0]].reindex(index).assign(none=np.nan)
        drawn.append(_metric("power_ratio", ratio, ("power_ratio", "none", "none")))
    dims = list(map(_dim, names, labels))
    numeric = [n for n, dim in enumerate(dims) if dim["numeric"] and len(dim["values"]) > 1]
    return {
        "dims": dims,
        "note": f"{len(kept)} of {len(rounds)} rounds." if len(kept) < len(rounds) else "",
        "against": max(numeric, key=lambda n: len(labels[n]), default=len(dims)),  # first
        "rounds": kept.tolist(),
        "metrics": drawn,
        "looks": [_look(look) for look in style.looks(labels[0]).values()],
        "palette": [_look(look) for look in style.looks(map(str, range(20))).values()],
    }


def _dim(name: str, values: list[str]) -> dict[str, Any]:
    numbers = pandas.to_numeric(pandas.Series(values), errors="coerce")
    numeric = bool(np.isfinite(numbers).all())
    return {"name": name, "label": _label(name), "values": values, "numeric": numeric}


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def _metric(name: str, frame: pandas.DataFrame, columns: tuple[str, ...]) -> dict[str, Any]:
    """Write columns of a metric in numbers of as many digits as a screen shows."""
    drawn = {
        key: [float(f"{x:.5g}") if math.isfinite(x) else None for x in frame[column].astype(float)]
        for key, column in zip(("mean", "low", "high"), columns, strict=True)
    }
    log = name in (*style.LOGARITHMIC, "power_ratio")
    return {"name": name.replace("_", " "), "label": _label(name), "log": log, **drawn}


def _look(look: style.Look) -> dict[str, str]:
    """Return SVG attributes; black follows the colour of the text, on a dark page, too."""
    named = look.dash in _DASHES
    dash = _DASHES[look.dash] if named else " ".join(f"{2 * x:g}" for x in look.dash[1])
    colour = "currentColor" if look.colour == "#000000" else look.colour
    return {"colour": colour, "dash": dash, "marker": look.marker}


def page(sections: list[Section]) -> str:
    """Return the HTML of a whole page."""
    folder = resources.files("jaxota.cli")
    css, script = ((folder / f"page.{k}").read_text(encoding="utf-8") for k in ("css", "js"))
    names = ", ".join(section.name for section in sections)
    links = [f'<a href="#s{n}">{escape(s.name)}</a>' for n, s in enumerate(sections)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_policy(css, script)}">
<title>{escape(names)} – jaxota</title>
<style>{css}</style>
</head>
<body>
<h1>{escape(names)}</h1>
<p class="caption">Over-the-air federated learning, simulated with jaxota.</p>
{f"<nav>{chr(10).join(links)}</nav>" if len(sections) > 1 else ""}
{chr(10).join(_section(n, s, len(sections) > 1) for n, s in enumerate(sections))}
<footer>Made by <code>jaxota report</code>, jaxota {escape(jaxota.__version__)}.
This file holds all that it shows, and loads nothing.</footer>
<script>{script}</script>
</body>
</html>
"""


def _policy(css: str, script: str) -> str:
    """Return a policy by which a browser loads and runs nothing but these two."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (css, script)]
    allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return f"default-src 'none'; img-src data:; style-src {allowed[0]}; script-src {allowed[1]}"


def _section(number: int, section: Section, several: bool) -> str:
    remarks = "".join(f"<li>{escape(line)}</li>" for line in section.remarks)
    parts = [
        f"<h2>{escape(section.name)}</h2>" if several else "",
        f'<p class="caption">{escape(section.caption)}</p>',
        f"<pre><code>{escape(section.command)}</code></pre>" if section.command else "",
        _curves(number, section.curves) if section.curves else "",
        f'<img src="{section.picture}" alt="{escape(section.caption)}">' if section.picture else "",
        _table(section.table) if section.table else "",
        f'<ul class="remarks">{remarks}</ul>' if remarks else "",
        _settings(section),
        _numbers(section.rows),
    ]
    return f'<section id="s{number}">{chr(10).join(filter(None, parts))}</section>'


def _curves(number: int, drawn: dict[str, Any]) -> str:
    note = f'<p class="caption">{escape(drawn["note"])}</p>' if drawn["note"] else ""
    # Inside a script nothing is escaped but the sign that could end it.
    words = json.dumps(drawn, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<div class="chart" data-source="d{number}"></div>{note}'
        f'<script type="application/json" id="d{number}">{words}</script>'
    )


def _table(rows: list[list[str]], kind: str = "") -> str:
    """Write a table, header first; columns of numbers are set to the right."""
    header, *body = rows
    columns = [[row[n] for row in body if n < len(row)] for n in range(len(header))]
    right = [" class=number" if body and all(map(is_number, cells)) else "" for cells in columns]
    lines = []
    for tag, row in (("th", header), *(("td", row) for row in body)):
        cells = zip(row, right, strict=False)
        lines.append("".join(f"<{tag}{look}>{escape(str(c))}</{tag}>" for c, look in cells))
    words = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table{kind}>{words}</table></div>'


def _settings(section: Section) -> str:
    rows = [["setting", "value"]]
    for name, value in section.settings.items():
        if name == "algorithms" and isinstance(value, dict):
            rows += [[label, in_words(part)] for label, part in value.items()]
        elif name not in _HIDDEN and value != []:
            rows.append([name.replace("_", " "), in_words(value)])
    versions = {k: section.settings[k] for k in reports.VERSIONS if k in section.settings}
    rows += [[f"version of {name}", str(version)] for name, version in versions.items()]
    table = _table(rows, ' class="settings"')
    return f"<details><summary>Settings and versions</summary>{table}</details>"


def in_words(value: Any) -> str:
    """Write a described value as a person would: SGD(step_size=0.01, steps=10)."""
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    if not isinstance(value, dict):
        return str(value)
    if "is" in value:
        fields = {k: v for k, v in value.items() if k not in ("is", "code") and not _absent(v)}
        words = ", ".join(f"{k}={in_words(v)}" for k, v in fields.items())
        return f"{value['is']}({words})" if words else str(value["is"])
    if "function" in value:
        return str(value["function"]).replace("<locals>.", "").replace("_src.", "")
    if value.keys() == {"key"}:
        return in_words(value["key"])
    return ", ".join(f"{k} {in_words(v)}" for k, v in value.items())


def _absent(value: Any) -> bool:
    """Whether a part leaves a field out: an empty list, or the optimiser that changes nothing."""
    still = isinstance(value, list) and "optax._src.base.identity." in json.dumps(value)
    return value == [] or still


def _numbers(rows: pandas.DataFrame) -> str:
    shown = f", the first {SHOWN}" if len(rows) > SHOWN else ""
    cells = [
        [f"{cell:.9g}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows.head(SHOWN).values.tolist()
    ]
    table = _table([list(map(str, rows.columns)), *cells])
    return f"<details><summary>Numbers: {len(rows):,} rows{shown}</summary>{table}</details>"
