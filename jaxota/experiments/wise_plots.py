"""The picture of a map: ratios regime by regime, and their course over the rounds."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxota import _style
from jaxota.experiments.wise import REGIME, Map


def maps(ratios: dict[str, Any], regimes: Map, title: str) -> Figure:
    """A row of maps for each of the `ratios` [shape, spread, snr_db, draw, round], and below, over
    the rounds, the median and the range of nine tenths of the regimes."""
    rows, columns = len(ratios), len(regimes.shapes)
    with matplotlib.rc_context(_style.STYLE):
        size = _style.width(2), 1.35 * rows + 2.0
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.35 * rows, 1.6))
        above, below = parts
        grid = above.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, shape in zip(grid[0], regimes.shapes, strict=True):
            axes.set_title(shape.words(), fontsize=7)
        for row, (name, each) in zip(grid, ratios.items(), strict=True):
            middle = each.isel(round=-1).median("draw")
            for number, axes in enumerate(row):
                image = _map(axes, middle.isel(shape=number))
            row[0].set_ylabel(f"{name}\nspreads", fontsize=6)
            row[0].set_yticks(
                range(len(regimes.spreads)), [f"{a:g}, {b:g}" for a, b in regimes.spreads]
            )
        for axes in grid[-1]:
            axes.set_xticks(range(len(regimes.snr_db)), [f"{x:g}" for x in regimes.snr_db])
            axes.set_xlabel("SNR (dB)")
        bar = above.colorbar(image, ax=grid, pad=0.01)
        bar.set_label("WISE / best")
        for axes, (name, each) in zip(
            below.subplots(1, rows, sharey=True), ratios.items(), strict=True
        ):
            _course(axes, name, each)
        below.axes[0].legend(fontsize=5, ncols=2, loc="lower left", handlelength=2.5)
        below.axes[0].set_ylabel("WISE / best")
        figure.suptitle(title, fontsize=8)
    return figure


def _map(axes: Axes, middle: Any) -> Any:
    here = middle.transpose("spread", "snr_db").values
    norm = LogNorm(0.02, 50.0)
    image = axes.imshow(here, norm=norm, cmap="RdBu_r", aspect="auto", origin="lower")
    for (y, x), value in np.ndenumerate(here):
        colour = "black" if 0.1 < value < 10 else "white"
        axes.text(x, y, _short(value), ha="center", va="center", fontsize=4.5, color=colour)
        if value > 1:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, lw=1.2))
    return image


def _short(value: float) -> str:
    if value < 0.01:
        return "<.01"
    return f"{value:.2f}".lstrip("0") if value < 0.995 else f"{value:.3g}"


def _course(axes: Axes, name: str, ratios: Any) -> None:
    """Over the rounds, by SNR: the median regime, and of all regimes the range of nine tenths."""
    course = ratios.median("draw")
    rounds = course["round"].values
    low, high = (course.quantile(q, REGIME).values for q in (0.05, 0.95))
    axes.fill_between(rounds, low, high, color="0.85", lw=0, label="90 % of regimes")
    for number, snr in enumerate(course.snr_db.values):
        middle = course.sel(snr_db=snr).median(["shape", "spread"]).values
        colour, dash = (look[number % len(look)] for look in (_style.COLOURS, _style.DASHES))
        axes.plot(rounds, middle, color=colour, ls=dash, lw=1.0, label=f"{snr:g} dB")
    axes.axhline(1.0, color="black", lw=0.6)
    axes.set_yscale("log")
    _style.finish(axes, "round", f"against {name}")
