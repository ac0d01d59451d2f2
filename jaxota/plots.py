"""Curves with confidence bands, ready for a two-column paper."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxota import stats

# Okabe and Ito's palette, safe for colour-blind readers; each colour has its own dash and marker,
# so that curves also stay apart in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
_MARKERS = "os^Dv*P"
_STYLE = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "mathtext.fontset": "cm",
}
_LABELS = {
    "gap": r"optimality gap $F(\hat{\theta}) - F(\theta^{\star})$",
    "loss": r"loss $F(\hat{\theta})$",
    "accuracy": "test accuracy",
}


def curves(
    histories: dict, metric: str = "gap", title: str = "", log: bool | None = None
) -> Figure:
    """One curve a history, `metric` against the round: the mean over trials and its 95 % band.

    The axis is logarithmic unless the metric is an accuracy. There, a band that reaches zero runs
    off the lower edge, and a small triangle on that edge marks where.
    """
    log = metric != "accuracy" if log is None else log
    bands = {}
    for label, history in histories.items():
        values = getattr(history, metric, None)
        if not isinstance(metric, str) or values is None or np.ndim(values) != 2:
            raise ValueError(
                f"metric must be one that {label!r} has as [trial, evaluation], got {metric!r}"
            )
        bands[label] = history.every * (1 + np.arange(values.shape[1])), stats.interval(values)

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.5, 2.7), dpi=300, layout="constrained")
        axes = figure.add_subplot()
        floor = _floor(bands.values()) if log else -np.inf
        for number, (label, (rounds, band)) in enumerate(bands.items()):
            _curve(axes, number, label, rounds, band, floor)
        if log:
            axes.set_yscale("log")
            axes.set_ylim(bottom=floor)
        axes.set_xlabel("communication round $r$")
        axes.set_ylabel(_LABELS.get(metric, metric))
        axes.set_xlim(left=0, right=max(rounds[-1] for rounds, _ in bands.values()))
        axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
        axes.legend(frameon=True, framealpha=0.9, borderpad=0.4, handlelength=3.2)
        if title:
            axes.set_title(title, fontsize=7)
    return figure


def _curve(axes, number, label, rounds, band, floor) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    if band.diverged:
        label = f"{label} ({band.diverged} of {band.trials} diverged)"
    axes.plot(
        rounds,
        band.mean,
        color=colour,
        linestyle=_DASHES[number % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)],
        markevery=(number * len(rounds) // 50, max(1, len(rounds) // 8)),
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
    axes.plot(clipped, np.full(len(clipped), floor), "v", color=colour, clip_on=False, markersize=3)


def _floor(bands) -> float:
    """Where a logarithmic axis ends: below every mean and every band that stays above zero."""
    bands = list(bands)
    means = np.concatenate([band.mean for _, band in bands])
    lows = np.concatenate([band.low for _, band in bands])
    positive = np.concatenate([means[means > 0], lows[lows > 0]])
    if not positive.size:
        return 1e-12
    # A band that barely clears zero must not stretch the axis over empty decades.
    least = means[means > 0].min() if (means > 0).any() else positive.min()
    return float(max(positive.min(), least / 10) / 1.5)
