"""Curves with confidence bands, maps of sweeps and of who holds what, ready for a paper."""

from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Int
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxota import stats, style
from jaxota._core import inputs as _validate
from jaxota._core.part import Numbers
from jaxota.errors import InputError
from jaxota.history import History
from jaxota.stats import Interval
from jaxota.study.summaries import Summary


def curves(
    histories: dict[str, History], metric: str = "gap", title: str = "", log: bool | None = None
) -> Figure:
    """One curve a history, `metric` against the round: the mean over trials and its 95 % band.

    Args:
        histories: of `simulate`, by the names of their curves; a trial that diverged by
            `history.diverged` is left out, and counted.
        metric: any score, or a result [trial, round].
        title: above the figure.
        log: whether the axis is logarithmic; by default it is for a gap and a loss. There, a band
            that reaches zero runs off the lower edge, and a small triangle on that edge marks
            where.
    """
    return panels({"": _named("histories", histories)}, metric, title, log)


def panels(
    groups: dict[str, dict[str, History]],
    metric: str = "gap",
    title: str = "",
    log: bool | None = None,
) -> Figure:
    """`curves`, once for each group of histories, side by side on one scale.

    Args:
        groups: histories by their names, by the titles of their panels.

    The other arguments are those of `curves`.
    """
    _validate.words("metric", metric), _validate.words("title", title)
    if log is None:
        log = metric in style.LOGARITHMIC
    log = _validate.chosen("log", log, (False, True))
    bands = {
        name: _bands(_named("histories", histories), metric)
        for name, histories in _named("groups", groups).items()
    }
    every = [pair for group in bands.values() for pair in group.values()]
    floor = style.log_floor([band for _, band in every]) if log else -np.inf
    looks = style.looks(label for group in bands.values() for label in group)
    with matplotlib.rc_context(style.rc_params()):
        figure, row = style.subplots(len(groups), 3.0, sharex=True)
        for axes, (name, group) in zip(row, bands.items(), strict=True):
            for label, (rounds, band) in group.items():
                style.curve(axes, looks[label], label, rounds, band, floor)
            style.label_axes(axes, "communication round $r$", name)
            axes.set_xlim(left=0, right=1.01 * max(rounds[-1] for rounds, _ in every))
            style.scale_axis(axes, metric, log, floor)
        for axes in row:
            axes.label_outer()
        style.title_and_legend(figure, row, title)
    return figure


def finals(
    values: Numbers,
    histories: dict[str, list[History]],
    metric: str,
    label: str,
    title: str = "",
) -> Figure:
    """The last score against a swept value, with bands.

    Args:
        values: what was swept.
        histories: by the name of each curve its histories, one a value.
        metric: any score.
        label: what the values are, below the axis.
        title: above the figure.
    """
    for name, text in (("metric", metric), ("label", label), ("title", title)):
        _validate.words(name, text)
    swept = _validate.real("values", values)
    if swept.ndim != 1 or not np.isfinite(swept).all():
        raise InputError(f"values must be finite numbers [value], got {_validate.shown(values)}")
    log = metric in style.LOGARITHMIC
    bands = {
        name: _lasts(name, runs, metric, len(swept))
        for name, runs in _named("histories", histories).items()
    }
    floor = style.log_floor(list(bands.values())) if log else -np.inf
    looks = style.looks(bands)
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1), 3.0), dpi=300, layout="constrained")
        axes = figure.add_subplot()
        for name, band in bands.items():
            style.curve(axes, looks[name], name, swept, band, floor, every=1)
        style.label_axes(axes, label, "")
        style.scale_axis(axes, metric, log, floor)
        axes.set_ylabel(f"final {style.LABELS.get(metric, metric)}")
        style.title_and_legend(figure, [axes], title)
    return figure


def partition(task: Any, title: str = "") -> Figure:
    """How many samples of which label each user holds; users may be of unequal size.

    Args:
        task: one of classification, or another with whole numbers as `data["labels"]`.
        title: above the figure.
    """
    held = _held(task)
    _validate.words("title", title)
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1 if task.users <= 20 else 2), 2.7), dpi=300)
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        image = axes.imshow(held, cmap="Blues", vmin=0, aspect="auto", origin="lower")
        if held.size <= 200:  # beyond that, numbers do not fit into their cells
            for (label, user), count in np.ndenumerate(held):
                colour = "white" if count > 0.6 * held.max() else "black"
                axes.text(user, label, count, ha="center", va="center", fontsize=5, color=colour)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes.set_xlabel("user $i$")
        axes.set_ylabel("label")
        figure.colorbar(image, ax=axes, label="samples", pad=0.02)
        axes.set_title(title, fontsize=7)
    return figure


def _held(task: Any) -> Int[np.ndarray, "label user"]:
    """The number of samples, of data that are a dict with labels [user, sample]."""
    data = getattr(task, "data", None)
    labels = np.asarray(data["labels"]) if isinstance(data, dict) and "labels" in data else None
    if labels is None or labels.ndim != 2 or labels.dtype.kind != "i" or labels.min() < 0:
        raise InputError(
            "task must be one of classification, or another with whole numbers as data['labels']"
        )
    classes = max(getattr(task.loss, "classes", 0), 1 + labels.max())
    users = zip(labels, np.asarray(task.counts), strict=True)
    return np.stack([np.bincount(own[:count], minlength=classes) for own, count in users], 1)


def _bands(
    histories: dict[str, History], metric: str
) -> dict[str, tuple[Int[np.ndarray, "evaluation"], stats.Interval]]:
    """Of each history the rounds at which it was scored, and the interval there."""
    bands = {}
    for label, history in histories.items():
        values = stats.scores(history, metric, repr(label))
        every = history.every if metric in history.scores else 1
        bands[label] = every * (1 + np.arange(values.shape[1])), stats.interval(values)
    return bands


def _named(name: str, values: Any) -> dict[str, Any]:
    """At least one of something by names."""
    if not isinstance(values, dict) or not values:
        raise InputError(
            f"{name} must be a dict of at least one by its name, got {_validate.shown(values)}"
        )
    for label in values:
        _validate.words(f"a name of {name}", label)
    return values


def _lasts(label: str, histories: Any, metric: str, count: int) -> stats.Interval:
    """The intervals of the last scores, one a history, side by side."""
    if not isinstance(histories, list | tuple) or len(histories) != count:
        raise InputError(
            f"histories[{label!r}] must be a list of {count} histories, one a value, "
            f"got {_validate.shown(histories)}"
        )
    each = [stats.interval(stats.scores(h, metric, repr(label))[:, -1]) for h in histories]
    mean, low, high = (np.array([getattr(i, k) for i in each]) for k in ("mean", "low", "high"))
    return stats.Interval(mean, low, high, sum(i.used for i in each), sum(i.trials for i in each))


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
