"""One HTML file of what was run, to send: it holds all it shows, and loads nothing."""

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import jaxota
from jaxota._core import files as _files
from jaxota.cli import sections
from jaxota.cli.sections import SHOWN, Section

NAME = "report.html"


def write(folder: Path) -> tuple[Path, list[str]]:
    """The page of a folder, in it; and the names of files that are not in the page."""
    found, others = sections.found(folder)
    words = page(found)
    path = folder / NAME
    with _files.replacing(path) as (draft,):
        draft.write_text(words, encoding="utf-8")
    return path, others


def page(found: list[Section]) -> str:
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


def _section(number: int, section: Section, several: bool) -> str:
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


def _settings(section: Section) -> str:
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
