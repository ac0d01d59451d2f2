"""One look for all pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from jaxota.stats import Interval

# Okabe and Ito's palette, safe for colour-blind readers; each colour has its own dash and marker,
# so that curves also stay apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = "os^Dv*P"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "mathtext.fontset": "cm",
}
LOGARITHMIC = ("gap", "loss")
LABELS = {
    "gap": r"optimality gap $F(\hat{\theta}) - F(\theta^{\star})$",
    "loss": r"loss $F(\hat{\theta})$",
    "accuracy": "test accuracy",
}


def width(columns: int) -> float:
    """One column of a paper in inches, or all of both."""
    return 3.5 if columns == 1 else 7.16


def finish(axes: Axes, label: str, name: str) -> None:
    axes.set_xlabel(label)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if name:
        axes.set_title(name, fontsize=8)


def curve(
    axes: Axes,
    number: int,
    label: str,
    rounds: np.ndarray,
    band: Interval,
    floor: float,
    every: int | None = None,
) -> None:
    colour = COLOURS[number % len(COLOURS)]
    if band.diverged:
        label = f"{label} ({band.diverged} of {band.trials} diverged)"
    axes.plot(
        rounds,
        band.mean,
        color=colour,
        linestyle=DASHES[number % len(DASHES)],
        marker=MARKERS[number % len(MARKERS)],
        markevery=every or (number * len(rounds) // 50, max(1, len(rounds) // 8)),
        label=label,
    )
    axes.fill_between(
        rounds,
        np.maximum(band.low, floor),
        np.maximum(band.high, floor),
        color=colour,
        alpha=0.2,
        linewidth=0,
    )
    clipped = rounds[band.low < floor]
    if clipped.size:
        edge = np.full(clipped.size, floor)
        axes.plot(clipped, edge, "v", color=colour, clip_on=False, markersize=3, in_layout=False)


def floor_of(bands: list[Interval]) -> float:
    """Where a logarithmic axis ends: below every mean and every band that stays above zero."""
    means = np.concatenate([band.mean for band in bands])
    lows = np.concatenate([band.low for band in bands])
    means, lows = means[means > 0], lows[lows > 0]
    if not means.size:
        return 1e-12
    # A band that barely clears zero must not stretch the axis over empty decades.
    least = max(lows.min(initial=means.min()), means.min() / 10)
    return float(min(least, means.min()) / 1.5)


def scale(axes: Axes, metric: str, log: bool, floor: float) -> None:
    axes.set_ylabel(LABELS.get(metric, metric))
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=floor)
        low, high = axes.get_ylim()
        if high < 30 * low:  # so short an axis is read in plain numbers
            for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                axis_formatter(LogFormatter(minor_thresholds=(2, 1)))


def entitle(figure: Figure, row: Sequence[Axes], title: str) -> None:
    """The title above, the legend below all panels, where it covers no curve."""
    labelled = row[0].get_legend_handles_labels()
    columns = 2 if len(row) == 1 else 4
    figure.legend(*labelled, loc="outside lower center", ncols=columns, handlelength=3.2)
    figure.suptitle(title, fontsize=7 if len(row) == 1 else 8)
