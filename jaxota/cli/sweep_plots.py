"""Pictures of a sweep: curves, final scores against one swept field, maps over two."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from jaxota import style
from jaxota.stats import Interval
from jaxota.study.summary import Summary

NAMES = {
    "snr_db": "SNR (dB)",
    "users": "users $N$",
    "steps": "local steps $K$",
    "step_size": r"step size $\eta$",
    "data_spread": "data spread",
    "model_spread": "model spread",
    "batch": "batch",
    "csi_error": "variance of the CSI error",
}
MOST_PANELS = 12


def draw(found: Summary, axes: list[str], metric: str, title: str) -> Figure:
    """The picture for as many axes as were swept."""
    long = [name for name in axes if found.mean.sizes[name] > 1]
    if not long:
        return _curves(found, metric, title)
    return (
        _finals(found, long[0], metric, title)
        if len(long) == 1
        else _maps(found, long, metric, title)
    )


def shown_axes(found: Summary, axes: list[str]) -> tuple[list[str], list[dict[str, int]]]:
    """The two axes of a map, those of most values, and the places of the others that are shown."""
    long = [name for name in axes if found.mean.sizes[name] > 1]
    two = sorted(long, key=lambda name: -found.mean.sizes[name])[:2]
    two = [name for name in long if name in two]
    others = [name for name in long if name not in two]
    sizes = [found.mean.sizes[name] for name in others]
    rows = max(1, MOST_PANELS // found.mean.sizes["algorithm"])
    places = [dict(zip(others, map(int, p), strict=True)) for p in np.ndindex(*sizes)]
    return two, places[:rows]


def _labels(found: Summary) -> list[str]:
    return [str(label) for label in found.mean.algorithm.values]


def _curves(found: Summary, metric: str, title: str) -> Figure:
    rounds = found.mean.evaluation.values
    only = {name: 0 for name in found.mean.dims if name not in ("algorithm", "evaluation")}
    bands = {label: found.at(algorithm=a, **only) for a, label in enumerate(_labels(found))}
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1), 3.0), dpi=300, layout="constrained")
        axes = figure.add_subplot()
        log = metric in style.LOGARITHMIC
        floor = style.log_floor(list(bands.values())) if log else -np.inf
        looks = style.looks(bands)
        for label, band in bands.items():
            style.curve(axes, looks[label], label, rounds, band, floor)
        style.label_axes(axes, "communication round $r$", "")
        style.scale_axis(axes, metric, log, floor)
        style.title_and_legend(figure, [axes], title)
    return figure


def _finals(found: Summary, name: str, metric: str, title: str) -> Figure:
    """The last score against what was swept, with bands."""
    last = _last(found)
    labels = last.mean[name].values
    numeric = labels.dtype.kind in "if"
    values = labels if numeric else np.arange(len(labels))
    order = np.argsort(values, kind="stable")
    only = {d: 0 for d in last.mean.dims if d not in ("algorithm", name)}
    bands = {
        label: _along(last, {"algorithm": a, **only}, order)
        for a, label in enumerate(_labels(found))
    }
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1), 3.0), dpi=300, layout="constrained")
        axes = figure.add_subplot()
        log = metric in style.LOGARITHMIC
        floor = style.log_floor(list(bands.values())) if log else -np.inf
        looks = style.looks(bands)
        for label, band in bands.items():
            style.curve(axes, looks[label], label, values[order], band, floor, every=1)
        style.label_axes(axes, NAMES.get(name, name), "")
        if not numeric:
            axes.set_xticks(values, [str(label) for label in labels], rotation=20, ha="right")
        style.scale_axis(axes, metric, log, floor)
        axes.set_ylabel(f"final {style.LABELS.get(metric, metric)}")
        style.title_and_legend(figure, [axes], title)
    return figure


def _maps(found: Summary, long: list[str], metric: str, title: str) -> Figure:
    """The final score of each algorithm over two axes, on one scale of colours."""
    (y, x), places = shown_axes(found, long)
    if found.mean.sizes[y] > found.mean.sizes[x]:
        y, x = x, y
    last, labels = _last(found).mean, _labels(found)
    only = {d: 0 for d in last.dims if d not in ("algorithm", *long)}
    last = last.isel(only).sortby([k for k in (x, y) if last[k].dtype.kind in "if"])
    values = last.transpose("algorithm", y, x, ...).values
    there = values[np.isfinite(values)]
    log = metric in style.LOGARITHMIC and there.size and there.min() > 0
    norm: Any = LogNorm() if log else matplotlib.colors.Normalize()
    norm.autoscale(there if there.size else np.array([0.0, 1.0]))
    with matplotlib.rc_context(style.rc_params()):
        cells = [(place, number) for place in places for number in range(len(labels))]
        across = style.columns(len(labels), 2)
        rows = -(-len(cells) // across)
        size = style.width(1 if len(labels) == 1 else 2), 0.9 + 1.9 * rows
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
        for axes, (place, number) in zip(grid.flat, cells, strict=False):
            here = last.isel(place).transpose("algorithm", y, x)
            image = axes.imshow(
                here.values[number], norm=norm, cmap="viridis", aspect="auto", origin="lower"
            )
            _tick(axes.xaxis, here[x].values)
            _tick(axes.yaxis, here[y].values)
            words = [f"{k} = {last[k].values[i]}" for k, i in place.items()]
            axes.set_title("\n".join([labels[number], *words]), fontsize=7)
        for axes in grid[:, 0]:
            axes.set_ylabel(NAMES.get(y, y))
        for axes in grid.flat[len(cells) - across : len(cells)]:  # those with nothing below
            axes.set_xlabel(NAMES.get(x, x))
            axes.tick_params(labelbottom=True)
        for axes in grid.flat[len(cells) :]:
            axes.set_axis_off()
        bar = figure.colorbar(image, ax=grid, pad=0.02)
        bar.set_label(f"final {style.LABELS.get(metric, metric)}")
        style.figure_title(figure, title)
    return figure


def _tick(axis: Any, labels: np.ndarray) -> None:
    """At most eight labels, at their cells."""
    chosen = np.arange(0, len(labels), -(-len(labels) // 8))
    words = [f"{x:g}" if np.issubdtype(type(x), np.number) else str(x) for x in labels[chosen]]
    axis.set_ticks(chosen, words)


def _last(found: Summary) -> Summary:
    """The last evaluation."""
    mean, low, high = (x.isel(evaluation=-1) for x in (found.mean, found.low, found.high))
    return Summary(mean, low, high, found.used, found.trials)


def _along(last: Summary, place: dict[str, int], order: np.ndarray) -> Interval:
    """An interval for each value of what was swept; trials left out are counted over all."""
    curves = [np.asarray(x.isel(place).values)[order] for x in (last.mean, last.low, last.high)]
    counts = [int(x.isel(place).sum()) for x in (last.used, last.trials)]
    return Interval(curves[0], curves[1], curves[2], counts[0], counts[1])
