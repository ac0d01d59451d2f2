"""The picture of `reproduction`: main effects on the claims, and figures at two settings."""

import textwrap

import matplotlib
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

import jaxota as jo

DRAWN = "fig1", "fig4", "fig5"  # the claims read all curves of these
TITLE = (
    "Main effects on the claims: change of the share of data draws on which a part holds, with a "
    "number where its 95 % interval excludes 0; at the left, the share of settings"
)


def draw(judged, scores, found):
    """Draw main effects [part, level] of each family above, and curves of three figures below."""
    paper = jo.style.on_paper()
    with matplotlib.rc_context(jo.style.rc_params()):
        size = (jo.style.width(1), 9.4) if paper else (jo.style.width(2), 6.9)
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=(1, 1.1 if paper else 1.15))
        heights = [len(each.family.parts) for each in judged.values()]
        count = len(judged)
        shape = {"nrows": count, "height_ratios": heights} if paper else {"ncols": count}
        panels = above.subplots(**shape, squeeze=False).ravel()
        for axes, each in zip(panels, judged.values(), strict=True):
            image = _draw_effects(axes, each)
        bar = above.colorbar(image, ax=list(panels), pad=0.01, aspect=30)
        bar.set_label("change of the share of draws (%)")
        above.suptitle(textwrap.fill(TITLE, 64 if paper else 110), fontsize=7)
        _draw_figures(below, judged, scores, found, paper)
    return figure


def _draw_effects(axes, judged):
    """Main effects in % [part, level]."""
    parts = judged.family.parts
    effects = [judged.main_effects(part) for part in parts]
    values = np.array([[100 * effect.change for effect in row] for row in effects])
    image = axes.imshow(values, cmap="PuOr", norm=Normalize(-100, 100), aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        if effects[y][x].decided:
            look = {"fontsize": 5, "color": "white" if abs(value) > 60 else "black"}
            text = f"{value:+.0f}".replace("-", "−")
            axes.text(x, y, text, ha="center", va="center", **look)
    labels = []
    for part in parts:
        count, settings, _ = judged.share_of_settings(part)
        labels.append(f"({part.name}) {100 * count / settings:.0f} %")
    axes.set_yticks(range(len(parts)), labels, fontsize=6)
    names = [f"{effect.choice} {effect.level}" for effect in effects[0]]
    turned = {"rotation": 50, "ha": "right", "rotation_mode": "anchor", "fontsize": 6}
    axes.set_xticks(range(len(names)), names, **turned)
    axes.tick_params(length=0)
    axes.set_title(judged.family.name, fontsize=7)
    return image


def _draw_figures(below, judged, scores, found, paper):
    """A pair of panels for each figure, on one vertical scale: ours, and the chosen setting."""
    drawn = [name for name in DRAWN if name in scores]
    shape = (len(drawn), 2) if paper else (2, len(drawn))
    grid = below.subplots(*shape, sharey="row" if paper else "col", squeeze=False)
    grid = grid if paper else grid.T
    for pair, name in zip(grid, drawn, strict=True):
        (own,) = [each for each in judged.values() if name in each.family.figures]
        place = own.place_of_figure(name)
        _draw_curves(pair[0], own.family, scores[name], name, 0, f"{name}, ours")
        title = _title(name, own.words(place), found[name]["jointly"])
        _draw_curves(pair[1], own.family, scores[name], name, place.point, title)
        for axes in pair if paper else pair[1:]:
            axes.set_xlabel("round", fontsize=7)
        label = jo.style.LABELS[jo.figures.FIGURES[name].metric].split(" $")[0]
        for axes in pair[:1] if paper else pair:
            axes.set_ylabel(label, fontsize=7)
    handles, labels = jo.style.legend_entries(grid.ravel())
    across = 3 if paper else 6
    below.legend(handles, labels, loc="outside lower center", ncols=across, handlelength=2.6)


def _title(name, setting, joint):
    """The setting that the design chose, and on how many new draws all claims hold there."""
    tail = f"all claims: {int(joint.sum())} of {len(joint)} new draws"
    return "\n".join([*textwrap.wrap(f"{name} at {setting}", 34), tail])


def _draw_curves(axes, family, scores, figure, number, title):
    """Median over draws of each algorithm with its interval; what diverged counts as worst."""
    point, known = family.points[number], jo.figures.FIGURES[figure]
    at = family.place(point)
    count = at["evaluation"] + 1
    at["evaluation"] = slice(count)
    rounds = family.every * (1 + np.arange(count))
    log = known.metric in jo.style.LOGARITHMIC
    bands = {}
    for name in known.algorithms:
        values = scores.sel(algorithm=family.label(name, point)).isel(at)
        bands[name] = _band(values.transpose("draw", "evaluation").values, np.inf if log else 0.0)
    floor = jo.style.log_floor(list(bands.values())) if log else 0.0
    for name, look in jo.style.looks(known.algorithms).items():
        label = name.removesuffix(" (noise-free)")
        jo.style.curve(axes, look, label, rounds, bands[name], floor)
    if log:
        axes.set_yscale("log")
    elif axes.get_ylim()[1] > 1:
        axes.set_ylim(top=1.0)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    axes.set_title(title, fontsize=6)


def _band(values, worst):
    """Median and its interval over draws [evaluation] of values [draw, evaluation]."""
    values = np.where(np.isfinite(values), values, worst)
    ends = np.array([jo.stats.median(column)[:2] for column in values.T])
    return jo.stats.Interval(np.median(values, 0), *ends.T, len(values), len(values))
