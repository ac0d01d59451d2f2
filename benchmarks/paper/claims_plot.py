"""The picture of the claims: of each part the share of draws, and the effect."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, PercentFormatter

from jaxota import style
from jaxota.experiments.claims import PRECODERS
from jaxota.experiments.claims_lines import LEVEL, SIMULTANEOUS, Line

LABELS = {
    "ratio": "ratio of final gaps",
    "difference": "difference of final gaps",
    "points": "difference of accuracy (points)",
}
APART = 0.18  # of the two precoders from the middle of their row
FAR = 5e3  # times the limit, beyond which a ratio is drawn on the edge


def draw(lines: list[Line]) -> Figure:
    """Rows are parts; blocks of rows are those whose effects are of one unit."""
    units = [unit for unit in LABELS if any(line.part.unit == unit for line in lines)]
    groups = [[line for line in lines if line.part.unit == unit] for unit in units]
    heights = [len(group) / 2 + 1.1 for group in groups]
    with matplotlib.rc_context(style.rc_params()):
        size = style.width(2), 0.7 + 0.26 * sum(heights)
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        grid = figure.subplots(
            len(groups), 2, squeeze=False, height_ratios=heights, width_ratios=(1, 1.3)
        )
        for row, group, unit in zip(grid, groups, units, strict=True):
            _shares(row[0], group)
            _effects(row[1], group, unit)
        grid[0][0].set_title("holds on, of all data draws", fontsize=8)
        grid[0][1].set_title("median effect; it holds where shaded", fontsize=8)
        handles = grid[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4)
        style.figure_title(
            figure,
            f"The paper's claims: intervals of {100 * LEVEL:.3g} % each (thick) and of "
            f"{100 * LEVEL:.3g} % for all lines together (thin); small dots are data draws",
        )
    return figure


def _rows(axes: Any, group: list[Line]) -> list[tuple[Line, float, str, str]]:
    """Of each line height, colour and marker; parts are named to the left, on paper in short."""
    parts = list(dict.fromkeys(line.part for line in group))
    axes.set_ylim(len(parts) - 0.5, -0.5)
    words = [f"({p.name})" if style.on_paper() else f"({p.name}) {p.words}" for p in parts]
    axes.set_yticks(range(len(parts)), words)
    axes.tick_params(axis="y", length=0)
    found = []
    for line in group:
        number = PRECODERS.index(line.precoder)
        height = parts.index(line.part) + (-APART, APART)[number]
        found.append((line, height, style.COLOURS[number], style.MARKERS[number]))
    return found


def _shares(axes: Any, group: list[Line]) -> None:
    for place, (line, y, colour, marker) in enumerate(_rows(axes, group)):
        label = f"{line.precoder} precoder" if place < len(PRECODERS) else None
        for level, width in ((SIMULTANEOUS, 0.6), (LEVEL, 1.8)):
            within = line.share_interval(level)
            axes.plot([within.low, within.high], [y, y], color=colour, lw=width)
        axes.plot([line.share], [y], marker, color=colour, ms=4, label=label)
    axes.axvline(0.5, color="black", lw=0.6, ls="--")
    axes.set_xlim(-0.03, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(True, axis="x", linewidth=0.4, alpha=0.5)


def _effects(axes: Any, group: list[Line], unit: str) -> None:
    log = unit == "ratio"
    inside = [line.effects[_drawable(line)] for line in group]
    every = np.concatenate([*inside, [line.part.limit for line in group]])
    if log:
        axes.set_xscale("log")
        low, high = every.min() / 1.5, every.max() * 1.5
    else:
        slack = 0.05 * float(np.ptp(every)) or 1.0
        low, high = every.min() - slack, every.max() + slack
    axes.set_xlim(low, high)
    for line, y, colour, marker in _rows(axes, group):
        values = np.clip(line.effects, low, high)
        axes.plot(values, np.full(len(values), y), ".", ms=2, color=colour, alpha=0.35, mew=0)
        for level, width in ((SIMULTANEOUS, 0.6), (LEVEL, 1.8)):
            within = line.median_interval(level)
            ends = np.clip([within.low, within.high], low, high)
            axes.plot(ends, [y, y], color=colour, lw=width)
        axes.plot([np.clip(np.median(values), low, high)], [y], marker, color=colour, ms=4)
        side = (line.part.limit, high) if unit == "points" else (low, line.part.limit)
        row = round(y)
        axes.fill_betweenx([row - 0.45, row + 0.45], *side, color="0.5", alpha=0.09, lw=0)
    axes.set_yticks([])
    axes.set_xlabel(LABELS[unit])
    axes.grid(True, axis="x", linewidth=0.4, alpha=0.5)
    if log and high < 30 * low:  # so short an axis is read in plain numbers
        axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10]))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _drawable(line: Line) -> np.ndarray:
    """Draws whose effect a picture has room for [draw]."""
    good = np.isfinite(line.effects)
    if line.part.unit != "ratio":
        return good
    return good & (line.effects > line.part.limit / FAR) & (line.effects < line.part.limit * FAR)
