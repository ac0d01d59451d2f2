"""The picture of `jaxota run reproduction`: what claims turn on, and figures at two settings."""

import dataclasses
import textwrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from jaxota import stats, style
from jaxota.experiments.reproduction_effects import Judged, Place
from jaxota.figures import EXPERIMENTS

DRAWN = "fig1", "fig4", "fig5"  # of which the claims read all curves
SHORT = {"SCAFFOLD (noise-free)": "SCAFFOLD", "FedAvg (noise-free)": "FedAvg"}


def draw(judged: dict[str, Judged], dataset: Any) -> Figure:
    """Above main effects [part, choice] of each family, below curves: ours, and where a figure
    appears or is nearest.
    """
    paper = style.on_paper()
    with matplotlib.rc_context(style.rc_params()):
        size = (style.width(1), 9.4) if paper else (style.width(2), 6.9)
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        ratios = (1, 1.1) if paper else (1, 1.15)
        halves: Any = figure.subfigures(2, 1, height_ratios=ratios)
        above, below = halves
        heights = [len(each.family.parts) for each in judged.values()]
        panels = (
            above.subplots(2, 1, squeeze=False, height_ratios=heights)
            if paper
            else above.subplots(1, 2, squeeze=False)
        ).ravel()
        for axes, each in zip(panels, judged.values(), strict=True):
            image = _effects(axes, each)
        bar = above.colorbar(image, ax=list(panels), pad=0.01, aspect=30)
        bar.set_label("change of the share of draws (%)")
        title = (
            "What claims turn on: change of the share of data draws on which a part holds, with a "
            "number where its 95 % interval leaves out 0; to the left, the share of settings"
        )
        above.suptitle(textwrap.fill(title, 64 if paper else 110), fontsize=7)
        _figures(below, judged, dataset, paper)
    return figure


def _effects(axes: Any, judged: Judged) -> Any:
    """Main effects in % [part, effect]."""
    parts = judged.family.parts
    found = [judged.main_effects(part) for part in parts]
    values = np.array([[100 * effect.change for effect in row] for row in found])
    image = axes.imshow(values, cmap="PuOr", norm=Normalize(-100, 100), aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        if found[y][x].sure:
            colour = "white" if abs(value) > 60 else "black"
            axes.text(
                x, y, f"{value:+.0f}".replace("-", "−"), ha="center", va="center", fontsize=5,
                color=colour,
            )  # fmt: skip
    counts = [judged.share(part)[:2] for part in parts]
    words = [f"({p.name}) {100 * n / of:.0f} %" for p, (n, of) in zip(parts, counts, strict=True)]
    axes.set_yticks(range(len(parts)), words, fontsize=6)
    names = [f"{effect.choice} {effect.level}" for effect in found[0]]
    axes.set_xticks(
        range(len(names)), names, rotation=50, ha="right", rotation_mode="anchor", fontsize=6
    )
    axes.tick_params(length=0)
    axes.set_title(judged.family.name, fontsize=7)
    return image


def _figures(below: Any, judged: dict[str, Judged], dataset: Any, paper: bool) -> None:
    """A pair of panels for each figure, on one vertical scale."""
    grid = below.subplots(3, 2, sharey="row") if paper else below.subplots(2, 3, sharey="col").T
    for pair, name in zip(grid, DRAWN, strict=True):
        (mine,) = [each for each in judged.values() if name in each.family.figures]
        place = mine.place(name)
        _curves(pair[0], mine, dataset, name, 0, f"{name}, ours")
        _curves(pair[1], mine, dataset, name, place.point, _title(mine, place))
        for axes in pair if paper else pair[1:]:
            axes.set_xlabel("round", fontsize=7)
        label = style.LABELS[EXPERIMENTS[name].metric].split(" $")[0]
        for axes in pair[:1] if paper else pair:
            axes.set_ylabel(label, fontsize=7)
    below.legend(
        *style.legend_entries(grid.ravel()), loc="outside lower center", ncols=3 if paper else 6,
        handlelength=2.6,
    )  # fmt: skip


def _title(judged: Judged, place: Place) -> str:
    """Where a figure appears, in lines that a panel has room for."""
    head = f"{place.figure} appears at"
    if not place.appears:
        head = f"{place.figure} nowhere; {place.held} of {place.of} claims at"
    words, lines = judged.words(place.point).split(", "), [head]
    for word in words:
        if len(lines) == 1 or len(lines[-1]) + len(word) > 26:
            lines.append(word)
        else:
            lines[-1] += f", {word}"
    return "\n".join(lines)


def _curves(axes: Any, judged: Judged, dataset: Any, figure: str, number: int, title: str) -> None:
    """Of each algorithm of a figure the mean over draws, of gaps the geometric one, with its 95 %
    band.
    """
    family = judged.family
    point, metric = family.points[number], EXPERIMENTS[figure].metric
    last, setting = 1 + family.evaluation(point), family.setting(point)
    rounds = family.every * (1 + np.arange(last))
    found = dataset.score.sel(figure=figure).isel(setting=setting, evaluation=slice(last))
    names, log = list(EXPERIMENTS[figure].algorithms), metric in style.LOGARITHMIC
    bands = {}
    for name in names:
        values = found.sel(algorithm=family.label(name, point)).transpose("draw", "evaluation")
        bands[name] = _band(values.values[: family.draws], log)
    floor = style.log_floor(list(bands.values())) if log else 0.0
    for name, look in style.looks(names).items():
        if bands[name].used:
            style.curve(axes, look, SHORT.get(name, name), rounds, bands[name], floor)
    if log:
        axes.set_yscale("log")
    elif axes.get_ylim()[1] > 1:
        axes.set_ylim(top=1.0)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    axes.set_title(title, fontsize=6)


def _band(values: np.ndarray, log: bool) -> stats.Interval:
    """Over draws, of values [draw, evaluation]; on a log axis of their logarithms."""
    if not log:
        return stats.interval(values)
    found = stats.interval(np.log10(np.maximum(values, 1e-30)))
    ends = {name: 10.0 ** getattr(found, name) for name in ("mean", "low", "high")}
    return dataclasses.replace(found, **ends)
