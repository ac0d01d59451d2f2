"""One HTML file of what was run, to send: it holds all it shows, and loads nothing."""

import base64
import csv
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

import jaxota
from jaxota import style
from jaxota._core import files as _files
from jaxota.cli import report, run
from jaxota.errors import InputError
from jaxota.study.store import STUDY, Store

NAME = "report.html"


def write(folder: Path) -> tuple[Path, list[str]]:
    """The page of a folder, in it; and the names of files that are not in the page."""
    here, others = found(folder)
    words = page(here)
    path = folder / NAME
    with _files.replacing(path) as (draft,):
        draft.write_text(words, encoding="utf-8")
    return path, others


def page(found: "list[Section]") -> str:
    """A whole page."""
    here = resources.files("jaxota.cli")
    style, script = ((here / f"page.{k}").read_text(encoding="utf-8") for k in ("css", "js"))
    names = ", ".join(section.name for section in found)
    links = [f'<a href="#s{n}">{escape(s.name)}</a>' for n, s in enumerate(found)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">
<title>{escape(names)} – jaxota</title>
<style>{style}</style>
</head>
<body>
<h1>{escape(names)}</h1>
<p class="caption">Over-the-air federated learning, simulated with jaxota.</p>
{f"<nav>{chr(10).join(links)}</nav>" if len(found) > 1 else ""}
{chr(10).join(_section(n, s, len(found) > 1) for n, s in enumerate(found))}
<footer>Made by <code>jaxota report</code>, jaxota {escape(jaxota.__version__)}.
This file holds all that it shows, and loads nothing.</footer>
<script>{script}</script>
</body>
</html>
"""


def _policy(style: str, script: str) -> str:
    """What a browser may load and run: nothing but these."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (style, script)]
    allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return f"default-src 'none'; img-src data:; style-src {allowed[0]}; script-src {allowed[1]}"


def _section(number: int, section: "Section", several: bool) -> str:
    parts = [
        f"<h2>{escape(section.name)}</h2>" if several else "",
        f'<p class="caption">{escape(section.caption)}</p>',
        f"<pre><code>{escape(section.command)}</code></pre>" if section.command else "",
        _curves(number, section.curves) if section.curves else "",
        f'<img src="{section.picture}" alt="{escape(section.caption)}">' if section.picture else "",
        _table(section.table) if section.table else "",
        _list(section.remarks),
        _settings(section),
        _numbers(section.numbers),
    ]
    return f'<section id="s{number}">{chr(10).join(filter(None, parts))}</section>'


def _curves(number: int, curves: dict[str, Any]) -> str:
    note = f'<p class="caption">{escape(curves["note"])}</p>' if curves["note"] else ""
    # Inside a script nothing is escaped but the sign that could end it.
    words = json.dumps(curves, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<div class="chart" data-source="d{number}"></div>{note}'
        f'<script type="application/json" id="d{number}">{words}</script>'
    )


def _table(rows: list[list[str]], kind: str = "") -> str:
    """Header first; columns of numbers are set to the right."""
    header, *body = rows
    right = [
        bool(body) and all(_numeric(row[n]) for row in body if n < len(row))
        for n in range(len(header))
    ]
    lines = [_row("th", header, right), *(_row("td", row, right) for row in body)]
    return f'<div class="wide"><table{kind}>{"".join(lines)}</table></div>'


def _row(tag: str, cells: Iterable[Any], right: list[bool]) -> str:
    words = [
        f"<{tag}{' class=number' if number else ''}>{escape(str(cell))}</{tag}>"
        for cell, number in zip(cells, right, strict=False)
    ]
    return f"<tr>{''.join(words)}</tr>"


def _numeric(cell: Any) -> bool:
    words = str(cell).strip()
    return words == "–" or words[:1].isdigit() or (words[:1] in "+-−" and words[1:2].isdigit())


def _list(lines: list[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="remarks">{items}</ul>' if lines else ""


def _settings(section: "Section") -> str:
    rows = [["setting", "value"]]
    for name, value in section.settings.items():
        if name == "algorithms" and isinstance(value, dict):
            rows += [[label, said(part)] for label, part in value.items()]
        elif name not in (*section.versions, "experiment", "order", "axes") and value != []:
            rows.append([name.replace("_", " "), said(value)])
    rows += [[f"version of {name}", version] for name, version in section.versions.items()]
    table = _table(rows, ' class="settings"')
    return f"<details><summary>Settings and versions</summary>{table}</details>"


def said(value: Any) -> str:
    """What a description says, as a person would write it: SGD(step_size=0.01, steps=10)."""
    if isinstance(value, dict) and "is" in value:
        held = {k: v for k, v in value.items() if k not in ("is", "code") and not _absent(v)}
        fields = ", ".join(f"{k}={said(v)}" for k, v in held.items())
        return f"{value['is']}({fields})" if fields else str(value["is"])
    if isinstance(value, dict) and "function" in value:
        return str(value["function"]).replace("<locals>.", "").replace("_src.", "")
    if isinstance(value, dict) and value.keys() == {"key"}:
        return said(value["key"])
    if isinstance(value, dict):
        return ", ".join(f"{k} {said(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(said, value)) if len(value) != 1 else said(value[0])
    return str(value)


def _absent(value: Any) -> bool:
    """What a part leaves out, and the optimiser that changes nothing."""
    still = isinstance(value, list) and "optax._src.base.identity." in json.dumps(value)
    return value == [] or still


def _numbers(rows: list[list[Any]]) -> str:
    count = len(rows) - 1
    shown = f", the first {SHOWN}" if count > SHOWN else ""
    table = _table([[str(cell) for cell in row] for row in rows[: 1 + SHOWN]])
    return f"<details><summary>Numbers: {count:,} rows{shown}</summary>{table}</details>"


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
        cube = curves(rows, str(told.get("metric", "")))
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
        curves=cube,
        picture="" if cube else _picture(path),
        settings={k: v for k, v in plain.items() if k not in report.VERSIONS} | description,
        versions={k: str(plain[k]) for k in report.VERSIONS if k in plain},
    )


def _of_store(folder: Path) -> Section:
    from jaxota.cli.sweeps import Sweep

    sweep, spec = Sweep.opened(folder, None), Store.opened(folder).told["spec"]
    rows = list(sweep.rows())
    cube = curves(rows, sweep.metric)
    lost = [] if cube else ["There are too many settings for a page to draw their curves."]
    return Section(
        name=sweep.name,
        caption=sweep.caption(),
        command=run.command(spec) if spec else "",
        table=report.cells(sweep.table()),
        remarks=[*sweep.remarks(), *lost],
        numbers=rows,
        curves=cube,
        picture="" if cube else _picture(folder / f"{sweep.name}.nc"),
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


MOST = 60_000  # points of a page, each a mean and its interval
LABELS = {
    "gap": "optimality gap F(θ̂) − F(θ*)",
    "loss": "loss F(θ̂)",
    "accuracy": "test accuracy",
    "power_ratio": "power ratio max ‖x‖²/P",
    "snr_db": "SNR (dB)",
}
_NUMBERS = ("mean", "ci_low", "ci_high")
_DASHES = {"-": "", "--": "7 3", "-.": "8 3 2 3", ":": "2 3"}


def curves(rows: Iterable[list[Any]], metric: str) -> dict[str, Any] | None:
    """What `page.js` draws, `metric` first; None of rows that are no curves.

    Args:
        rows: header first: `algorithm`, what was swept, `round`, `metric`, and numbers.
    """
    header, *body = [[str(cell) for cell in row] for row in rows]
    if header[0] != "algorithm" or not {"round", "metric", *_NUMBERS} <= {*header}:
        return None
    names = header[: header.index("round")]
    column = {name: n for n, name in enumerate(header)}
    body = [row for row in body if row[column["metric"]] != "diverged"]  # a count, and no curve
    labels = [list(dict.fromkeys(row[n] for row in body)) for n in range(len(names))]
    metrics = sorted(dict.fromkeys(row[column["metric"]] for row in body), key=metric.__ne__)
    rounds = sorted({int(row[column["round"]]) for row in body})
    if not body or math.prod(map(len, labels)) > MOST:
        return None
    found = _filled(body, column, [*labels, [str(r) for r in rounds]], metrics)
    series = math.prod(map(len, labels))
    kept = _spread(len(rounds), MOST // (series * (1 + len(metrics))))
    dims = [_dim(name, values) for name, values in zip(names, labels, strict=True)]
    told = [_told(name, found[name][..., kept]) for name in metrics]
    if "power_ratio" in column:
        told.append(_told("power_ratio", found["power_ratio"][..., kept]))
    numeric = [n for n, dim in enumerate(dims) if dim["numeric"] and len(dim["values"]) > 1]
    return {
        "dims": dims,
        "note": f"{len(kept)} of {len(rounds)} rounds." if len(kept) < len(rounds) else "",
        "against": max(numeric, key=lambda n: len(labels[n]), default=len(dims)),  # first
        "rounds": [rounds[n] for n in kept],
        "metrics": told,
        "looks": [_look(look) for look in style.looks(labels[0]).values()],
        "palette": [_look(look) for look in style.looks(map(str, range(20))).values()],
    }


def _filled(
    body: list[list[str]], column: dict[str, int], labels: list[list[str]], metrics: list[str]
) -> dict[str, np.ndarray]:
    """By metric [number, algorithm, axes…, round]; what has no row is NaN."""
    places = [{label: n for n, label in enumerate(values)} for values in labels]
    shape = (len(_NUMBERS), *map(len, labels))
    found = {name: np.full(shape, np.nan) for name in (*metrics, "power_ratio")}
    for row in body:
        at: Any = tuple(place[cell] for place, cell in zip(places, row, strict=False))
        found[row[column["metric"]]][:, *at] = [float(row[column[k]]) for k in _NUMBERS]
        if "power_ratio" in column:
            found["power_ratio"][0, *at] = float(row[column["power_ratio"]])
    return found


def _spread(count: int, most: int) -> list[int]:
    """Up to `most` of `count` numbers, the last among them."""
    every = -(-count // max(1, most))
    return list(range((count - 1) % every, count, every))


def _dim(name: str, values: list[str]) -> dict[str, Any]:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    numeric = bool(numbers) and all(map(math.isfinite, numbers))
    return {"name": name, "label": _label(name), "values": values, "numeric": numeric}


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def _told(name: str, found: np.ndarray) -> dict[str, Any]:
    """A metric in numbers of as many digits as a screen shows."""
    flat = [
        [float(f"{x:.5g}") if math.isfinite(x) else None for x in values.ravel()]
        for values in found
    ]
    return {
        "name": name.replace("_", " "),
        "label": _label(name),
        "log": name in (*style.LOGARITHMIC, "power_ratio"),
        **dict(zip(("mean", "low", "high"), flat, strict=True)),
    }


def _look(look: style.Look) -> dict[str, str]:
    """As SVG has it; black is the colour of the letters, on a dark page, too."""
    dash = (
        _DASHES[look.dash] if look.dash in _DASHES else " ".join(f"{2 * x:g}" for x in look.dash[1])
    )
    colour = "currentColor" if look.colour == "#000000" else look.colour
    return {"colour": colour, "dash": dash, "marker": look.marker}
