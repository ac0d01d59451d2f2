"""Bounds and rates of convergence beside the simulations that they speak of."""

import dataclasses

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxota import stats, style


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
    with matplotlib.rc_context(style.rc_params()):
        across = style.columns(len(panels), 2)
        groups = -(-len(panels) // across)
        size = style.width(2), 1 + 3.0 * groups
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        heights = {"height_ratios": (3, 2) * groups}
        grid = figure.subplots(2 * groups, across, squeeze=False, sharey="row", gridspec_kw=heights)
        top, bottom = grid[::2].ravel(), grid[1::2].ravel()
        for axes, shares, (name, panel) in zip(top, bottom, panels.items(), strict=False):
            shares.sharex(axes)
            axes.tick_params(labelbottom=False)
            _bound_panel(axes, panel)
            _shares(shares, panel)
            style.label_axes(axes, "", name)
            style.label_axes(shares, "rounds $R$", "")
        for spare in (*top[len(panels) :], *bottom[len(panels) :]):
            spare.set_axis_off()
        for upper, lower in zip(top[::across], bottom[::across], strict=True):
            upper.set_ylabel(r"$E[F(\bar{\theta}^R)] - F(\theta^{\star})$")
            lower.set_ylabel("share of the bound")
        curves = top[0].get_legend_handles_labels()
        terms = bottom[0].get_legend_handles_labels()
        figure.legend(
            curves[0] + terms[0],
            curves[1] + terms[1],
            loc="outside lower center",
            ncols=style.columns(4, 2),
        )
        style.figure_title(figure, title)
    return figure


def _bound_panel(axes, panel: BoundPanel) -> None:
    draw, met, rounds = panel.draw, panel.applies[panel.draw], panel.rounds
    axes.set_xscale("log")
    axes.set_yscale("log")
    for other in range(len(panel.bound)):
        if other != draw:
            axes.plot(rounds, panel.gap.mean[other], color=style.COLOURS[0], lw=0.5, alpha=0.5)
    pairs = ("simulation", panel.gap.mean[draw]), ("bound", panel.bound[draw])
    for number, (label, values) in enumerate(pairs):
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number]}
        axes.plot(rounds, values, label=label, linestyle=style.DASHES[number], **look)
        axes.plot(rounds[~met], values[~met], linestyle="", markerfacecolor="w", **look)
    means, low, high = (getattr(panel.gap, k)[draw] for k in ("mean", "low", "high"))
    low = np.maximum(low, means / 10)  # a band that reaches zero
    axes.fill_between(rounds, low, high, color=style.COLOURS[0], alpha=0.2, linewidth=0)
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
    colours = (*style.COLOURS[2:4], *style.COLOURS[5:7], "#999999")
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
    half_width: float  # of its 95 % interval
    promised: float  # the theorem's

    @property
    def fitted(self) -> bool:
        """Whether the floor of every draw is above 0, so that there is a slope."""
        return bool(np.isfinite(self.slope))


def rates(panels: dict[str, dict[str, RateCurve]], title: str = "") -> Figure:
    """For each panel, one swept quantity, floors on log axes with the theorem's slopes, dotted."""
    with matplotlib.rc_context(style.rc_params()):
        figure, row = style.subplots(len(panels), 2.9)
        looks = style.looks(name for panel in panels.values() for name in panel)
        floor = style.log_floor([c.floor for panel in panels.values() for c in panel.values()])
        for axes, (label, panel) in zip(row, panels.items(), strict=True):
            lines = []
            for name, curve in panel.items():
                style.curve(axes, looks[name], name, curve.values, curve.floor, floor, every=1)
                ratio = curve.values / curve.values[0]
                guide = curve.floor.mean[0] * ratio**curve.promised
                axes.plot(curve.values, guide, "-", color=looks[name].colour, lw=0.5, alpha=0.8)
                slope = f"{curve.slope:.2f}" if curve.fitted else "none"
                lines.append(f"{name}: {slope} (theorem {curve.promised:.2f})")
            style.label_axes(axes, label, "slopes\n" + "\n".join(lines))
            axes.title.set_fontsize(6.5)
            axes.set_xscale("log")
            _plain_ticks(axes, next(iter(panel.values())).values)
        row[-1].plot([], [], "-", color="0.4", lw=0.5, label="slope of the theorem")
        row[0].set_yscale("log")
        row[0].set_ylim(bottom=floor)
        for axes in row[:: style.columns(len(row), 1)]:
            axes.set_ylabel("gap that the channel adds")
        across = style.columns(5, 2)
        figure.legend(
            *style.legend_entries(row), loc="outside lower center", ncols=across, handlelength=3.2
        )
        style.figure_title(figure, title)
    return figure


def _plain_ticks(axes, values) -> None:
    """The swept values themselves as ticks, in plain numbers."""
    axes.set_xticks(values, [f"{v:g}" for v in values], minor=False)
    axes.set_xticks([], minor=True)
