"""Tidy rows as labelled curves that a page draws."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxota import style

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
