"""One HTML file of what was run, to send: it holds all it shows, and loads nothing."""

import base64
import dataclasses
import datetime
import hashlib
import io
import json
import math
import string
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import xarray

import jaxota
from jaxota import reports, style
from jaxota._core import files, inputs
from jaxota.errors import InputError
from jaxota.reports import Report, is_number
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
DEFINITIONS = {
    "gap": "F(θ̂) − F(θ*): loss of the model above the least loss there is; mean over trials",
    "loss": "F(θ̂): mean over users of their mean loss",
    "accuracy": "share of test samples that are labelled right",
    "power ratio": "max_i ‖x_i‖²/P of the larger block: mean over trials, largest of all rounds",
    "difference": "paired difference to the reference, trial by trial, in the same setting",
    "uses": "channel uses: real symbols on the air, summed over blocks and rounds",
    "energy": "Σ_i ‖x_i‖² of all users and blocks, summed over rounds",
    "reports": "coded scalars that each user reports beside its blocks, summed over rounds",
    "±": "95 % interval over trials",
}
MOST_BYTES = 5_000_000  # of a CSV inside a page
_VERSIONS = ("jaxota", "jax", "python")
# Attributes of a dataset that its table of settings does not repeat.
_HIDDEN = {"title", "description", "experiment", "study", "scores", "axes", "order", "chunks"}
_HIDDEN |= {"chunks_done", "command", "table", "remarks", *_VERSIONS}
_NUMBERS = ("mean", "ci_low", "ci_high")
_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
_DASHES = {"-": "", "--": "7 3", "-.": "8 3 2 3", ":": "2 3"}


def write(folder: Path) -> tuple[Path, list[str]]:
    """Write the page of a folder into it; also return the names of files that it leaves out."""
    found, others = read(folder)
    words = _page(folder, found)
    with files.replacing(folder / NAME) as (draft,):
        draft.write_text(words, encoding="utf-8")
    return folder / NAME, others


def read(folder: Path) -> tuple[list[Report], list[str]]:
    """Read what runs or a sweep left in a folder, and the names of files that are neither's.

    Of a dataset only attributes are read: settings, and `command`, what to type for the same.
    """
    if (folder / STUDY).exists():
        found, command = reports.of_store(folder, None), Store(folder).metadata["spec"]
        attributes = {k: found.dataset.attrs[k] for k in ("metric", "description")}
        attributes |= {"command": command} if isinstance(command, str) else {}
        return [dataclasses.replace(found, dataset=xarray.Dataset(attrs=attributes))], []
    if not folder.is_dir():
        raise InputError(f"{folder} must be a folder with results: there is none")
    attributes_of = {path: _attributes(path) for path in sorted(folder.glob("*.nc"))}
    runs = {path: a for path, a in attributes_of.items() if {"experiment", "title"} <= a.keys()}
    if not runs:
        raise InputError(
            f"{folder} holds no results: neither NAME.nc of `jaxota run NAME --out {folder}`, nor "
            f"{STUDY} of `jaxota sweep`"
        )
    others = [path.name for path in attributes_of if path not in runs]
    return [_run_report(path.with_suffix(".csv"), found) for path, found in runs.items()], others


def _attributes(path: Path) -> dict[str, Any]:
    """Read the attributes of a NetCDF file as plain values."""
    try:
        with xarray.open_dataset(path, engine="h5netcdf") as data:
            stored = data.attrs.items()
            return {str(k): v.tolist() if hasattr(v, "tolist") else v for k, v in stored}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _run_report(path: Path, attributes: dict[str, Any]) -> Report:
    """Read the report of a run from its CSV, and from the attributes of its NetCDF."""
    try:
        rows = _read_rows(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {inputs.first_line(error)}") from None
    stored: dict[str, Any] = {"table": [], "remarks": [], "description": {}}
    try:
        for name, nothing in stored.items():
            stored[name] = json.loads(attributes.get(name, json.dumps(nothing)))
            if type(stored[name]) is not type(nothing):
                raise TypeError(f"{name} is {inputs.shown(stored[name])}")
        table = [list(map(str, row)) for row in stored["table"]]
        if len(set(map(len, table))) > 1:
            raise ValueError("table has rows of several lengths")
        name = inputs.name("experiment", attributes["experiment"])
    except (ValueError, TypeError) as error:
        reason = inputs.first_line(error)
        raise InputError(
            f"{path.with_suffix('.nc')} is not what jaxota run wrote: {reason}"
        ) from None
    remarks, dataset = [*map(str, stored["remarks"])], xarray.Dataset(attrs=attributes)
    title = str(attributes["title"])
    return Report(name, title, table, remarks, dataset, rows, figure=lambda: None)


def _read_rows(path: Path) -> pandas.DataFrame:
    """Read a CSV: cells as words, but the rounds and numbers of curves."""
    rows = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    rows = rows.map(reports.unguarded)
    if not _has_curves(rows):
        return rows
    first = rows.columns.get_loc("round")
    if rows.duplicated([*rows.columns[: first + 1], "metric"]).any():
        raise ValueError("a row is there twice")
    numbers = rows.columns[first:].drop("metric")
    return rows.astype(dict.fromkeys(numbers, float)).astype({"round": int})


def _has_curves(rows: pandas.DataFrame) -> bool:
    first, *others = rows.columns
    return first == "algorithm" and {"round", "metric", *_NUMBERS} <= {*others}


def curves(rows: pandas.DataFrame, metric: str) -> dict[str, Any] | None:
    """Return what `page.js` draws, `metric` first; None of rows that are no curves, or too many."""
    if not _has_curves(rows):
        return None
    names = list(rows.columns[: rows.columns.get_loc("round")])
    rows = rows[rows.metric != "diverged"]  # a count, and no curve
    labels = {name: rows[name].unique() for name in names}
    series = math.prod(map(len, labels.values()))
    if rows.empty or series > MOST:
        return None
    metrics = sorted(rows.metric.unique(), key=metric.__ne__)
    rounds = np.sort(rows["round"].unique()).astype(int)
    most = max(1, MOST // (series * (1 + len(metrics))))
    every = -(-len(rounds) // most)
    kept = rounds[(len(rounds) - 1) % every :: every]  # the last round among them
    # [metric, algorithm, axes…, round]; what has no row is NaN.
    cube = rows.set_index(["metric", *names, "round"])
    index = pandas.MultiIndex.from_product([*labels.values(), kept])
    drawn = [_metric(name, cube.loc[name].reindex(index), _NUMBERS) for name in metrics]
    if "power_ratio" in rows:
        ratio = cube.loc[metrics[0]].reindex(index).assign(none=np.nan)
        drawn.append(_metric("power_ratio", ratio, ("power_ratio", "none", "none")))
    dims = [_dimension(name, list(map(str, values))) for name, values in labels.items()]
    numeric = [n for n, dim in enumerate(dims) if dim["numeric"] and len(dim["values"]) > 1]
    return {
        "dims": dims,
        "note": f"{len(kept)} of {len(rounds)} rounds." if len(kept) < len(rounds) else "",
        "against": max(numeric, key=lambda n: len(dims[n]["values"]), default=len(dims)),  # first
        "rounds": kept.tolist(),
        "metrics": drawn,
        "looks": [_look(look) for look in style.looks(dims[0]["values"]).values()],
        "palette": [_look(look) for look in style.looks(map(str, range(20))).values()],
    }


def _dimension(name: str, values: list[str]) -> dict[str, Any]:
    numbers = pandas.to_numeric(pandas.Series(values), errors="coerce")
    numeric = bool(np.isfinite(numbers).all())
    return {"name": name, "label": _label(name), "values": values, "numeric": numeric}


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def _metric(name: str, frame: pandas.DataFrame, columns: tuple[str, ...]) -> dict[str, Any]:
    """Write columns of a metric in numbers of as many digits as a screen shows."""
    drawn = {
        key: [float(f"{x:.5g}") if math.isfinite(x) else None for x in frame[column]]
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


def _page(folder: Path, found: list[Report]) -> str:
    """Return the HTML of a whole page."""
    ours = resources.files("jaxota.cli")
    frame, css, js = ((ours / f"page.{k}").read_text("utf-8") for k in ("html", "css", "js"))
    digests = [hashlib.sha256(text.encode()).digest() for text in (css, js)]
    css_hash, js_hash = (base64.b64encode(digest).decode() for digest in digests)
    links = [f'<a href="#s{n}">{escape(report.name)}</a>' for n, report in enumerate(found)]
    return string.Template(frame).substitute(
        css=css,
        css_hash=css_hash,
        js=js,
        js_hash=js_hash,
        names=escape(", ".join(report.name for report in found)),
        links="\n".join(links) if len(found) > 1 else "",
        sections="\n".join(_section(n, report, folder) for n, report in enumerate(found)),
        version=escape(jaxota.__version__),
        date=datetime.date.today().isoformat(),
    )


def _section(number: int, report: Report, folder: Path) -> str:
    """Write one run or sweep: its curves or its picture, its table, its settings, its numbers."""
    attributes, caption = report.dataset.attrs, escape(report.caption)
    drawn = curves(report.csv, str(attributes.get("metric", "")))
    remarks = list(report.remarks)
    parts = [f"<h2>{escape(report.name)}</h2>", f'<p class="caption">{caption}</p>']
    if command := attributes.get("command"):
        parts.append(f"<pre><code>{escape(str(command))}</code></pre>")
    settings = drawn and any(len(dim["values"]) > 1 for dim in drawn["dims"][1:])
    # Over several settings the report's own figure, such as a map, comes before the curves.
    if (settings or not drawn) and (picture := _picture(folder / report.name) or _drawn(report)):
        parts.append(f'<img src="{picture}" alt="{caption}">')
    if drawn:
        parts.append(_chart(number, drawn))
    if not drawn and _has_curves(report.csv):
        remarks.append("There are too many settings for a page to draw their curves.")
    if report.table:
        parts.append(_table(report.table))
    lines = "".join(f"<li>{escape(line)}</li>" for line in remarks)
    parts += [f'<ul class="remarks">{lines}</ul>', _definitions(report), _settings(attributes)]
    parts += [_numbers(report.csv), _download(report)]
    return f'<section id="s{number}">{chr(10).join(parts)}</section>'


def _chart(number: int, drawn: dict[str, Any]) -> str:
    note = f'<p class="caption">{escape(drawn["note"])}</p>' if drawn["note"] else ""
    # Inside a script nothing is escaped but the sign that could end it.
    words = json.dumps(drawn, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<div class="chart" data-source="d{number}"></div>{note}'
        f'<script type="application/json" id="d{number}">{words}</script>'
    )


def _picture(path: Path) -> str:
    """Return the newest picture of this name, as an address that holds it, or ""."""
    pictures = [file for end in _TYPES if (file := path.with_name(path.name + end)).exists()]
    newest = max(pictures, key=lambda file: file.stat().st_mtime, default=None)
    if newest is None:
        return ""
    content = base64.b64encode(newest.read_bytes()).decode("ascii")
    return f"data:{_TYPES[newest.suffix]};base64,{content}"


def _drawn(report: Report) -> str:
    """Draw a report's figure, if it has one: the report of a store does."""
    if (figure := report.figure()) is None:
        return ""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"


def _definitions(report: Report) -> str:
    """Explain the words that a table and its curves use."""
    used = " ".join([*map(str, report.table[:1]), *map(str, report.csv.get("metric", []))])
    rows = [["word", "meaning"], *([k, v] for k, v in DEFINITIONS.items() if k in used)]
    if len(rows) == 1:
        return ""
    table = _table(rows, ' class="settings"')
    return f"<details><summary>Definitions</summary>{table}</details>"


def _download(report: Report) -> str:
    """Put the whole CSV into the page, unless it would make it too large to send."""
    text = report.csv.to_csv(index=False).encode()
    name = escape(f"{report.name}.csv")
    if len(text) > MOST_BYTES:
        return f'<p class="caption">{name} is too large for this page: it lies beside it.</p>'
    held = f"data:text/csv;base64,{base64.b64encode(text).decode('ascii')}"
    link = f'<a download="{name}" href="{held}">Download {name}</a>'
    return f"<p>{link}, {len(report.csv):,} rows</p>"


def _table(rows: Sequence[Sequence[str]], kind: str = "") -> str:
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


def _settings(attributes: dict[str, Any]) -> str:
    settings = attributes | json.loads(attributes.get("description", "{}"))
    rows = [["setting", "value"]]
    for name, value in settings.items():
        if name == "algorithms" and isinstance(value, dict):
            rows += [[label, in_words(part)] for label, part in value.items()]
        elif name not in _HIDDEN and value != []:
            rows.append([name.replace("_", " "), in_words(value)])
    versions = [name for name in _VERSIONS if name in settings]
    rows += [[f"version of {name}", str(settings[name])] for name in versions]
    table = _table(rows, ' class="settings"')
    return f"<details><summary>Settings and versions</summary>{table}</details>"


def in_words(value: Any) -> str:
    """Write a described value as a person would: SGD(step_size=0.01, steps=10)."""
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    if not isinstance(value, dict):
        return str(value)
    if "is" in value:
        lists = {k: json.dumps(v) for k, v in value.items() if isinstance(v, list)}
        # What is left out: an empty list, and the optimiser that changes nothing.
        absent = {k for k, v in lists.items() if v == "[]" or "optax._src.base.identity." in v}
        shown = {k: v for k, v in value.items() if k not in {"is", "code", *absent}}
        words = ", ".join(f"{k}={in_words(v)}" for k, v in shown.items())
        return f"{value['is']}({words})" if words else str(value["is"])
    if "function" in value:
        return str(value["function"]).replace("<locals>.", "").replace("_src.", "")
    if value.keys() == {"key"}:
        return in_words(value["key"])
    return ", ".join(f"{k} {in_words(v)}" for k, v in value.items())


def _numbers(rows: pandas.DataFrame) -> str:
    shown = f", the first {SHOWN}" if len(rows) > SHOWN else ""
    cells = [
        [f"{cell:.9g}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows.head(SHOWN).values.tolist()
    ]
    table = _table([list(map(str, rows.columns)), *cells])
    return f"<details><summary>Numbers: {len(rows):,} rows{shown}</summary>{table}</details>"
