"""Curves with confidence bands and maps of who holds what, ready for a two-column paper."""

from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxota import stats, style
from jaxota._core import inputs as _validate
from jaxota._core.part import Numbers
from jaxota.errors import InputError
from jaxota.history import History


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
