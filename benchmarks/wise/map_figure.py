"""The picture of a map: ratios by regime, and their course over the rounds."""

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from wise_map import REGIME

import jaxota as jo

style = jo.style
MAP_HEIGHT, COURSE_HEIGHT = 1.35, 1.7  # inches of a row


def draw(ratios, title: str) -> Figure:
    """Draw ratios [against, shape, spread, snr_db, draw, round].

    Above, the medians over draws after the last round: a row for each comparison, a map over SNR
    and spreads for each shape. Below, over the rounds, the median regime by SNR and 90 % of all.
    """
    course = ratios.median("draw")
    shapes, names = ratios["shape"].values, ratios.against.values
    with matplotlib.rc_context(style.rc_params()):
        across, wide = style.columns(len(shapes), 2), style.columns(len(names), 2)
        blocks = [shapes[n : n + across] for n in range(0, len(shapes), across)]
        rows = [(block, name) for block in blocks for name in names]
        heights = MAP_HEIGHT * len(rows), COURSE_HEIGHT * (len(names) // wide)
        size = style.width(2), 0.4 + sum(heights)
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        upper, lower = figure.subfigures(2, 1, height_ratios=heights)
        panels = upper.subplots(len(rows), across, sharex=True, sharey=True, squeeze=False)
        for row, (block, name) in zip(panels, rows, strict=True):
            for axes, shape in zip(row, block, strict=True):
                last = course.sel(against=name, shape=shape).isel(round=-1)
                image = _map(axes, last.transpose("spread", "snr_db"))
                if name == names[0]:
                    axes.set_title(shape, fontsize=7)
            row[0].set_ylabel(f"{name}\nspreads", fontsize=6)
        for axes in panels[-1]:
            axes.set_xlabel("SNR (dB)")
        upper.colorbar(image, ax=panels, pad=0.01).set_label("WISE / best")
        panels = lower.subplots(len(names) // wide, wide, sharey=True, squeeze=False)
        for axes, comparison in zip(panels.ravel(), course, strict=True):
            _course(axes, comparison)
        for axes in panels[:, 0]:
            axes.set_ylabel("WISE / best")
        entries, count = panels[0, 0].get_legend_handles_labels(), 3 if style.on_paper() else 7
        lower.legend(*entries, loc="outside lower center", ncols=count, fontsize=6)
        style.figure_title(figure, title)
    return figure


def _map(axes, values):
    """Draw ratios [spread, snr_db] with their numbers; those above 1 are framed."""
    norm = LogNorm(0.02, 50.0)
    # A ratio of 0, where all competitors diverged, has no colour on a logarithmic scale.
    image = style.heatmap(axes, values.clip(norm.vmin, norm.vmax), norm, "RdBu_r")
    for (y, x), value in np.ndenumerate(values.values):
        text = f"{value:.2f}".lstrip("0") if value < 1 else f"{value:.3g}"
        text = "<.01" if value < 0.01 else text
        colour = "black" if 0.1 < value < 10 else "white"
        axes.text(x, y, text, ha="center", va="center", fontsize=4.5, color=colour)
        if value > 1:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, lw=1.2))
    return image


def _course(axes, course) -> None:
    """Draw the median regime of each SNR over the rounds, and the range of 90 % of all regimes."""
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
    style.label_axes(axes, "round", course.against.item())
