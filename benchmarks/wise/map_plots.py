"""The picture of a map: ratios regime by regime, and their course over the rounds."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxota import style
from jaxota.experiments.wise import REGIME, Map

HIGH, LOW = 1.35, 1.7  # inches: a row of maps, and a row of courses


def maps(ratios: dict[str, Any], regimes: Map, title: str) -> Figure:
    """A row of maps for each of the `ratios` [shape, spread, snr_db, draw, round], and below, over
    the rounds, the median by SNR and the range of nine tenths of the regimes.
    """
    with matplotlib.rc_context(style.rc_params()):
        across = style.columns(len(regimes.shapes), 2)
        numbers = list(range(len(regimes.shapes)))
        blocks = [numbers[n : n + across] for n in range(0, len(numbers), across)]
        places = [(block, name) for block in blocks for name in ratios]
        wide = style.columns(len(ratios), 2)
        heights = HIGH * len(places), LOW * (len(ratios) // wide)
        size = style.width(2), 0.4 + sum(heights)
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=heights)
        grid = parts[0].subplots(len(places), across, sharex=True, sharey=True, squeeze=False)
        for row, (block, name) in zip(grid, places, strict=True):
            middle = ratios[name].isel(round=-1).median("draw")
            for axes, number in zip(row, block, strict=True):
                image = _map(axes, middle.isel(shape=number))
                if name == next(iter(ratios)):
                    axes.set_title(regimes.shapes[number].words(), fontsize=7)
            row[0].set_ylabel(f"{name}\nspreads", fontsize=6)
            row[0].set_yticks(
                range(len(regimes.spreads)), [f"{a:g}, {b:g}" for a, b in regimes.spreads]
            )
        for axes in grid[-1]:
            axes.set_xticks(range(len(regimes.snr_db)), [f"{x:g}" for x in regimes.snr_db])
            axes.set_xlabel("SNR (dB)")
        parts[0].colorbar(image, ax=grid, pad=0.01).set_label("WISE / best")
        courses = parts[1].subplots(len(ratios) // wide, wide, sharey=True, squeeze=False)
        for axes, (name, each) in zip(courses.ravel(), ratios.items(), strict=True):
            _course(axes, name, each)
        for row in courses:
            row[0].set_ylabel("WISE / best")
        told = courses[0, 0].get_legend_handles_labels()
        columns = 3 if style.on_paper() else 7
        parts[1].legend(*told, loc="outside lower center", ncols=columns, fontsize=6)
        style.figure_title(figure, title)
    return figure


def _map(axes: Axes, middle: Any) -> Any:
    here = middle.transpose("spread", "snr_db").values
    norm = LogNorm(0.02, 50.0)
    within = np.clip(here, norm.vmin, norm.vmax)  # 0 is where all others diverged
    image = axes.imshow(within, norm=norm, cmap="RdBu_r", aspect="auto", origin="lower")
    for (y, x), value in np.ndenumerate(here):
        colour = "black" if 0.1 < value < 10 else "white"
        axes.text(x, y, _short(value), ha="center", va="center", fontsize=4.5, color=colour)
        if value > 1:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, lw=1.2))
    return image


def _short(value: float) -> str:
    if value < 0.01:
        return "<.01"
    return f"{value:.2f}".lstrip("0") if value < 1 else f"{value:.3g}"


def _course(axes: Axes, name: str, ratios: Any) -> None:
    course = ratios.median("draw")
    rounds = course["round"].values
    low, high = (course.quantile(q, REGIME).values for q in (0.05, 0.95))
    axes.fill_between(rounds, low, high, color="0.85", lw=0, label="90 % of regimes")
    for number, snr in enumerate(course.snr_db.values):
        middle = course.sel(snr_db=snr).median(["shape", "spread"]).values
        colour, dash = (look[number % len(look)] for look in (style.COLOURS, style.DASHES))
        axes.plot(rounds, middle, color=colour, ls=dash, lw=1.0, label=f"{snr:g} dB")
    axes.axhline(1.0, color="black", lw=0.6)
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(float(low.min()), 1e-3))
    style.label_axes(axes, "round", f"against {name}")
