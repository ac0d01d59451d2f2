"""The picture of the claims: by round, and after the last round with the effects."""

import math

import claim_parts
import claims_page
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, PercentFormatter

import jaxota as jo

LABELS = {
    "ratio": "ratio of final gaps",
    "difference": "difference of final gaps",
    "points": "difference of accuracy (percentage points)",
}
OFFSET = {"offline": -0.18, "online": 0.18}  # from the middle of a part's row
INTERVALS = {"_simultaneous": 0.6, "": 1.8}  # line widths
FAR = 5e3  # times the limit: ratios beyond are drawn at the edge


def draw(frame, effects):
    """Draw the shares by round above, and shares and effects after the last round below."""
    final = claims_page.final(frame)
    groups = {unit: final[final.unit == unit] for unit in LABELS if (final.unit == unit).any()}
    heights = [len(group) / 2 + 1.1 for group in groups.values()]
    claims = list(dict.fromkeys(name[0] for name in frame.part))
    across = jo.style.columns(min(len(claims), 4), 2)
    rows = math.ceil(len(claims) / across)
    sizes = 0.3 + 1.5 * rows, 0.7 + 0.26 * sum(heights)
    with matplotlib.rc_context(jo.style.rc_params()):
        size = jo.style.width(2), sum(sizes)
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=sizes)
        _draw_rounds(above, frame, claims, rows, across)
        grid = below.subplots(
            len(groups), 2, squeeze=False, height_ratios=heights, width_ratios=(1, 1.3)
        )
        for axes, (unit, group) in zip(grid, groups.items(), strict=True):
            _draw_shares(axes[0], group)
            _draw_effects(axes[1], group, effects, unit)
        grid[0][0].set_title("share of draws where it holds", fontsize=8)
        grid[0][1].set_title("median effect (it holds where shaded)", fontsize=8)
        handles = grid[0][0].get_legend_handles_labels()
        below.legend(*handles, loc="outside lower center", ncols=4)
        jo.style.figure_title(
            below,
            "After the last round. Thick: 95 % intervals; thin: corrected for all "
            f"{claim_parts.LINES} lines; dots: data draws",
        )
    return figure


def _draw_rounds(figure, frame, claims, rows, across):
    """Share of draws against the round, a panel for each claim and a line for each part."""
    grid = figure.subplots(rows, across, squeeze=False, sharey=True).ravel()
    for axes in grid[len(claims) :]:
        axes.set_axis_off()
    offline = frame[frame.precoder == "offline"]
    for axes, claim in zip(grid, claims, strict=False):
        parts = list(offline[offline.part.str[0] == claim].groupby("part"))
        for (name, part), look in zip(parts, jo.style.looks("abcd").values(), strict=False):
            ends = (
                100 * part[column].to_numpy() for column in ("share", "share_low", "share_high")
            )
            band = jo.stats.Interval(*ends, used=len(part), trials=len(part))
            rounds = part["round"].to_numpy()
            jo.style.curve(axes, look, f"({name})", rounds, band, -np.inf)
        axes.axhline(50, color="black", lw=0.6, ls="--")
        axes.set_ylim(-4, 104)
        axes.set_xlim(0, None)
        jo.style.label_axes(axes, "round $R$" if claim in claims[-across:] else "", "")
        axes.legend(loc="best", fontsize=6, handlelength=2.2)
    for axes in grid[::across]:
        axes.set_ylabel("share of draws (%)", fontsize=7)
    jo.style.figure_title(
        figure, "Share of data draws on which each claim holds, by round; offline precoder, 95 %"
    )


def _rows(axes, group):
    """Yield row, height, colour and marker of each line; name the parts at the left."""
    names = list(dict.fromkeys(group.part))
    axes.set_ylim(len(names) - 0.5, -0.5)
    words = dict(zip(group.part, group.claim, strict=True))
    short = jo.style.on_paper()  # a column of a paper has no room for words
    labels = [f"({name})" if short else f"({name}) {words[name]}" for name in names]
    axes.set_yticks(range(len(names)), labels)
    axes.tick_params(axis="y", length=0)
    for row in group.itertuples():
        number = list(OFFSET).index(row.precoder)
        height = names.index(row.part) + OFFSET[row.precoder]
        yield row, height, jo.style.COLOURS[number], jo.style.MARKERS[number]


def _draw_shares(axes, group):
    for place, (row, y, colour, marker) in enumerate(_rows(axes, group)):
        for kind, width in INTERVALS.items():
            ends = [getattr(row, f"share_{end}{kind}") for end in ("low", "high")]
            axes.plot(ends, [y, y], color=colour, lw=width)
        label = f"{row.precoder} precoder" if place < len(OFFSET) else None
        axes.plot([row.share], [y], marker, color=colour, ms=4, label=label, clip_on=False)
    axes.axvline(0.5, color="black", lw=0.6, ls="--")
    axes.set_xlim(-0.03, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(True, axis="x", linewidth=0.4, alpha=0.5)


def _draw_effects(axes, group, effects, unit):
    low, high = _limits(group, effects, unit)
    if unit == "ratio":
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    for row, y, colour, marker in _rows(axes, group):
        values = np.clip(effects[row.part, row.precoder], low, high)
        axes.plot(values, np.full(len(values), y), ".", ms=2, color=colour, alpha=0.35, mew=0)
        for kind, width in INTERVALS.items():
            ends = [getattr(row, f"median_{end}{kind}") for end in ("low", "high")]
            axes.plot(np.clip(ends, low, high), [y, y], color=colour, lw=width)
        axes.plot([np.median(values)], [y], marker, color=colour, ms=4)
        if row.precoder == "offline":  # once for both lines of a part
            side = (row.limit, high) if unit == "points" else (low, row.limit)
            middle = y - OFFSET["offline"]
            rows = [middle - 0.45, middle + 0.45]
            axes.fill_betweenx(rows, *side, color="0.5", alpha=0.18, lw=0)
    axes.set_yticks([])
    axes.set_xlabel(LABELS[unit])
    axes.grid(True, axis="x", linewidth=0.4, alpha=0.5)
    if unit == "ratio" and high < 30 * low:  # so short an axis is read in plain numbers
        axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10]))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _limits(group, effects, unit):
    """Ends of the axis: all effects that are finite and not too far, and all limits."""
    shown = [group.limit.to_numpy()]
    for row in group.itertuples():
        values = effects[row.part, row.precoder]
        near = np.isfinite(values)
        if unit == "ratio":
            near &= (values > row.limit / FAR) & (values < row.limit * FAR)
        shown.append(values[near])
    shown = np.concatenate(shown)
    if unit == "ratio":
        return shown.min() / 1.5, shown.max() * 1.5
    slack = 0.05 * float(np.ptp(shown)) or 1.0
    return shown.min() - slack, shown.max() + slack
