"""Curves with confidence bands, ready for a two-column paper."""

import dataclasses

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

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
    return panels({"": histories}, metric, title, log)


def panels(
    groups: dict[str, dict], metric: str = "gap", title: str = "", log: bool | None = None
) -> Figure:
    """`curves`, once for each group of histories, side by side on one scale."""
    log = metric != "accuracy" if log is None else log
    bands = {name: _bands(histories, metric) for name, histories in groups.items()}
    every = [pair for group in bands.values() for pair in group.values()]
    floor = _floor([band for _, band in every]) if log else -np.inf
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_width(len(groups)), 2.7), dpi=300, layout="constrained")
        row = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
        for axes, (name, group) in zip(row, bands.items(), strict=True):
            for number, (label, (rounds, band)) in enumerate(group.items()):
                _curve(axes, number, label, rounds, band, floor)
            _finish(axes, "communication round $r$", name)
            axes.set_xlim(left=0, right=1.01 * max(rounds[-1] for rounds, _ in every))
        _scale(row[0], metric, log, floor)
        _entitle(figure, row, title)
    return figure


def finals(values, histories: dict[str, list], metric: str, label: str, title: str = "") -> Figure:
    """The last score against a swept value: one curve a name, one history a value, with bands."""
    log = metric != "accuracy"
    bands = {name: _lasts(runs, metric) for name, runs in histories.items()}
    floor = _floor(list(bands.values())) if log else -np.inf
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_width(1), 2.7), dpi=300, layout="constrained")
        axes = figure.add_subplot()
        for number, (name, band) in enumerate(bands.items()):
            _curve(axes, number, name, np.asarray(values), band, floor, every=1)
        _finish(axes, label, "")
        _scale(axes, metric, log, floor)
        axes.set_ylabel(f"final {_LABELS.get(metric, metric)}")
        _entitle(figure, [axes], title)
    return figure


@dataclasses.dataclass(frozen=True)
class BoundPanel:
    """A bound and the simulation it is of, against R, for several data draws."""

    rounds: np.ndarray  # [R]
    gap: stats.Interval  # [draw, R]
    draw: int  # the one that is shown in full
    bound: np.ndarray  # [draw, R]
    terms: dict[str, np.ndarray]  # of that draw's bound, [R] each
    applies: np.ndarray  # [draw, R] whether the conditions hold
    violated: np.ndarray  # [draw, R] whether they do and the gap lies above


def bounds(panels: dict[str, BoundPanel], title: str = "") -> Figure:
    """For each panel the bound and the simulated gap above, the share of the bound's terms below.

    Markers are hollow, and the shares pale, where the theorem's conditions are not met.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_width(2), 4.0), dpi=300, layout="constrained")
        grid = {"height_ratios": (3, 2)}
        top, bottom = figure.subplots(
            2, len(panels), squeeze=False, sharex="col", sharey="row", gridspec_kw=grid
        )
        for axes, shares, (name, panel) in zip(top, bottom, panels.items(), strict=True):
            _bound_panel(axes, panel)
            _shares(shares, panel)
            _finish(axes, "", name)
            _finish(shares, "rounds $R$", "")
        top[0].set_ylabel(r"$E[F(\bar{\theta}^R)] - F(\theta^{\star})$")
        bottom[0].set_ylabel("share of the bound")
        curves = top[0].get_legend_handles_labels()
        terms = bottom[0].get_legend_handles_labels()
        figure.legend(
            curves[0] + terms[0], curves[1] + terms[1], loc="outside lower center", ncols=4
        )
        figure.suptitle(title, fontsize=8)
    return figure


def _bound_panel(axes, panel: BoundPanel) -> None:
    draw, met, rounds = panel.draw, panel.applies[panel.draw], panel.rounds
    axes.set_xscale("log")
    axes.set_yscale("log")
    for other in range(len(panel.bound)):
        if other != draw:
            axes.plot(rounds, panel.gap.mean[other], color=_COLOURS[0], lw=0.5, alpha=0.5)
    pairs = ("simulation", panel.gap.mean[draw]), ("bound", panel.bound[draw])
    for number, (label, values) in enumerate(pairs):
        style = {"color": _COLOURS[number], "marker": _MARKERS[number]}
        axes.plot(rounds, values, label=label, linestyle=_DASHES[number], **style)
        axes.plot(rounds[~met], values[~met], linestyle="", markerfacecolor="w", **style)
    means, low, high = (getattr(panel.gap, k)[draw] for k in ("mean", "low", "high"))
    low = np.maximum(low, means / 10)  # a band that reaches zero
    axes.fill_between(rounds, low, high, color=_COLOURS[0], alpha=0.2, linewidth=0)
    hollow = {"color": "0.3", "markerfacecolor": "w", "marker": "o", "linestyle": ""}
    axes.plot([], [], label="conditions not met", **hollow)
    cross = {"color": "k", "marker": "x", "linestyle": "", "markersize": 6, "zorder": 3}
    above = panel.violated[draw]
    axes.plot(rounds[above], means[above], label="above the bound", **cross)


def _shares(axes, panel: BoundPanel) -> None:
    """A stacked bar for each R, pale where the conditions are not met."""
    total, bottom = sum(panel.terms.values()), np.zeros(len(panel.rounds))
    width = 0.3 * panel.rounds  # the same on a logarithmic axis
    met = panel.applies[panel.draw]
    colours = (*_COLOURS[2:4], *_COLOURS[5:7], "#999999")
    for (label, values), colour in zip(panel.terms.items(), colours, strict=True):
        bars = axes.bar(panel.rounds, values / total, width, bottom, color=colour)
        axes.fill_between([], [], color=colour, label=label)  # for the legend, in full colour
        for bar, full in zip(bars, met, strict=True):
            bar.set_alpha(1.0 if full else 0.35)
        bottom += values / total
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1)
    axes.set_xlim(panel.rounds[0] / 1.5, panel.rounds[-1] * 1.5)
    _plain_ticks(axes, panel.rounds)


@dataclasses.dataclass(frozen=True)
class RateCurve:
    """What the channel adds to a gap against something swept, and the slopes that go with it."""

    values: np.ndarray  # [point] what is swept
    floor: stats.Interval  # [point]
    slope: float  # of log floor on log values, fitted
    error: float  # its standard error
    promised: float  # the theorem's


def rates(panels: dict[str, dict[str, RateCurve]], title: str = "") -> Figure:
    """For each panel, one swept quantity, floors on log axes with the theorem's slopes, dotted."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_width(2), 2.9), dpi=300, layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
        floor = _floor([c.floor for panel in panels.values() for c in panel.values()])
        for axes, (label, panel) in zip(row, panels.items(), strict=True):
            lines = []
            for name, curve in panel.items():
                number = names.index(name)
                _curve(axes, number, name, curve.values, curve.floor, floor, every=1)
                ratio = curve.values / curve.values[0]
                guide = curve.floor.mean[0] * ratio**curve.promised
                axes.plot(curve.values, guide, "-", color=_COLOURS[number], lw=0.5, alpha=0.8)
                lines.append(f"{name}: {curve.slope:.2f} (theorem {curve.promised:.2f})")
            _finish(axes, label, "slopes\n" + "\n".join(lines))
            axes.title.set_fontsize(6.5)
            axes.set_xscale("log")
            _plain_ticks(axes, next(iter(panel.values())).values)
        row[-1].plot([], [], "-", color="0.4", lw=0.5, label="slope of the theorem")
        row[0].set_yscale("log")
        row[0].set_ylim(bottom=floor)
        row[0].set_ylabel("gap that the channel adds")
        figure.legend(*_legend(row), loc="outside lower center", ncols=5, handlelength=3.2)
        figure.suptitle(title, fontsize=8)
    return figure


def _plain_ticks(axes, values) -> None:
    """The swept values themselves as ticks, in plain numbers."""
    axes.set_xticks(values, [f"{v:g}" for v in values], minor=False)
    axes.set_xticks([], minor=True)


def _legend(row):
    """Handles and labels of all panels, each label once."""
    found = {}
    for axes in row:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _width(columns: int) -> float:
    """One column of a paper in inches, or all of both."""
    return 3.5 if columns == 1 else 7.16


def _bands(histories: dict, metric: str) -> dict:
    """Of each history the rounds at which it was scored, and the interval there."""
    bands = {}
    for label, history in histories.items():
        values = getattr(history, metric, None)
        if values is None or np.ndim(values) != 2:
            raise ValueError(
                f"metric must be one that {label!r} has as [trial, evaluation], got {metric!r}"
            )
        bands[label] = history.every * (1 + np.arange(values.shape[1])), stats.interval(values)
    return bands


def _lasts(histories: list, metric: str) -> stats.Interval:
    """The intervals of the last scores, one a history, side by side."""
    each = [stats.interval(np.asarray(getattr(h, metric))[:, -1]) for h in histories]
    mean, low, high = (np.array([getattr(i, k) for i in each]) for k in ("mean", "low", "high"))
    return stats.Interval(mean, low, high, sum(i.used for i in each), sum(i.trials for i in each))


def _finish(axes, label: str, name: str) -> None:
    axes.set_xlabel(label)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if name:
        axes.set_title(name, fontsize=8)


def _scale(axes, metric: str, log: bool, floor: float) -> None:
    axes.set_ylabel(_LABELS.get(metric, metric))
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=floor)
        low, high = axes.get_ylim()
        if high < 30 * low:  # so short an axis is read in plain numbers
            for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                axis_formatter(LogFormatter(minor_thresholds=(2, 1)))


def _entitle(figure, row, title: str) -> None:
    """Title and legend: inside a single panel, around several."""
    if len(row) == 1:
        row[0].legend(frameon=True, framealpha=0.9, borderpad=0.4, handlelength=3.2)
        row[0].set_title(title, fontsize=7)
    else:
        curves = row[0].get_legend_handles_labels()
        figure.legend(*curves, loc="outside lower center", ncols=4, handlelength=3.2)
        figure.suptitle(title, fontsize=8)


def _curve(axes, number, label, rounds, band, floor, every=None) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    if band.diverged:
        label = f"{label} ({band.diverged} of {band.trials} diverged)"
    axes.plot(
        rounds,
        band.mean,
        color=colour,
        linestyle=_DASHES[number % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)],
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


def _floor(bands: list) -> float:
    """Where a logarithmic axis ends: below every mean and every band that stays above zero."""
    means = np.concatenate([band.mean for band in bands])
    lows = np.concatenate([band.low for band in bands])
    means, lows = means[means > 0], lows[lows > 0]
    if not means.size:
        return 1e-12
    # A band that barely clears zero must not stretch the axis over empty decades.
    least = max(lows.min(initial=means.min()), means.min() / 10)
    return float(min(least, means.min()) / 1.5)
