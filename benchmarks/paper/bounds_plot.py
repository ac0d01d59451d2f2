"""Bounds against R beside the simulated gaps, and the share of each term in the bound."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import jaxota as jo


def draw(cases, results, worst):
    """Draw gap and bound of each case above, the shares of the bound's terms below.

    Markers are hollow, and shares pale, where the theorem's conditions are not met.

    Args:
        cases: the cases by their labels.
        results: Datasets [draw, rounds, trial] by label.
        worst: the data draw that is drawn in full, by label.
    """
    first = next(iter(results.values()))
    title = (
        f"Bounds beside simulation; worst of {first.draw.size} data draws (others thin), "
        f"{first.trial.size} trials, 95 % bands, SNR per vector"
    )
    with matplotlib.rc_context(jo.style.rc_params()):
        across = jo.style.columns(len(results), 2)
        groups = -(-len(results) // across)
        size = jo.style.width(2), 1 + 3.0 * groups
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        heights = {"height_ratios": (3, 2) * groups}
        grid = figure.subplots(2 * groups, across, squeeze=False, sharey="row", gridspec_kw=heights)
        top, bottom = grid[::2].ravel(), grid[1::2].ravel()
        for axes, shares, (label, data) in zip(top, bottom, results.items(), strict=False):
            shares.sharex(axes)
            axes.tick_params(labelbottom=False)
            _draw_gap(axes, data, worst[label])
            _draw_terms(shares, data.isel(draw=worst[label]))
            case = cases[label]
            name = f"{label}\n{case.theorem_name}, {float(case.channel.snr_db):g} dB"
            jo.style.label_axes(axes, "", name)
            jo.style.label_axes(shares, "rounds $R$", "")
        for spare in (*top[len(results) :], *bottom[len(results) :]):
            spare.set_axis_off()
        for upper, lower in zip(top[::across], bottom[::across], strict=True):
            upper.set_ylabel(r"$E[F(\bar{\theta}^R)] - F(\theta^{\star})$")
            lower.set_ylabel("share of the bound")
        handles, labels = jo.style.legend_entries([top[0], bottom[0]])
        ncols = jo.style.columns(4, 2)
        figure.legend(handles, labels, loc="outside lower center", ncols=ncols)
        jo.style.figure_title(figure, title)
    return figure


def _draw_gap(axes, data, worst):
    """Mean gap and bound of the worst draw against R, and the gaps of the others."""
    rounds, shown = data.rounds.values, data.isel(draw=worst)
    met, above = shown.applies.values, shown.violated.values
    axes.set_xscale("log")
    axes.set_yscale("log")
    for other in data.drop_isel(draw=worst).gap_mean.transpose("draw", "rounds").values:
        axes.plot(rounds, other, color=jo.style.COLOURS[0], lw=0.5, alpha=0.5)
    mean = shown.gap_mean.values
    curves = {"simulation": mean, "bound": shown.bound.values}
    for number, (label, values) in enumerate(curves.items()):
        look = {"color": jo.style.COLOURS[number], "marker": jo.style.MARKERS[number]}
        axes.plot(rounds, values, label=label, linestyle=jo.style.DASHES[number], **look)
        axes.plot(rounds[~met], values[~met], linestyle="", markerfacecolor="w", **look)
    low = np.maximum(shown.ci_low.values, mean / 10)  # a band may reach zero
    band = {"color": jo.style.COLOURS[0], "alpha": 0.2, "linewidth": 0}
    axes.fill_between(rounds, low, shown.ci_high.values, **band)
    hollow = {"color": "0.3", "markerfacecolor": "w", "marker": "o", "linestyle": ""}
    axes.plot([], [], label="conditions not met", **hollow)
    cross = {"color": "k", "marker": "x", "linestyle": "", "markersize": 6, "zorder": 3}
    axes.plot(rounds[above], mean[above], label="above the bound", **cross)


def _draw_terms(axes, data):
    """A stacked bar of the bound's terms for each R."""
    rounds, bottom = data.rounds.values, np.zeros(data.rounds.size)
    colours = (*jo.style.COLOURS[2:4], *jo.style.COLOURS[5:7], "#999999")
    for name, colour in zip(jo.theory.TERMS, colours, strict=True):
        share = (data[name] / data.bound).values
        width = 0.3 * rounds  # equal widths on a logarithmic axis
        bars = axes.bar(rounds, share, width, bottom, color=colour)
        label = name.replace("_", " ")
        axes.fill_between([], [], color=colour, label=label)  # the legend shows full colours
        for bar, met in zip(bars, data.applies.values, strict=True):
            bar.set_alpha(1.0 if met else 0.35)
        bottom += share
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1)
    axes.set_xlim(rounds[0] / 1.5, rounds[-1] * 1.5)
    axes.set_xticks(rounds, [f"{r:g}" for r in rounds], minor=False)
    axes.set_xticks([], minor=True)
