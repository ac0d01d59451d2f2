"""Curves with confidence bands, maps of sweeps and of label counts, ready for a paper."""

import dataclasses
import textwrap
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Int
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from jaxota import stats, style
from jaxota._core import inputs
from jaxota._core.part import Numbers
from jaxota.errors import InputError
from jaxota.history import LEDGERS, History
from jaxota.reports import map_axes
from jaxota.stages.geometry import Cell

Band = tuple[np.ndarray, stats.Interval]  # rounds or swept values, and the interval there


def curves(
    histories: dict[str, History] | History,
    metric: str | None = None,
    title: str = "",
    log: bool | None = None,
    against: str = "round",
) -> Figure:
    """Draw `metric` against the round, one curve a history: the mean over trials, its 95 % band.

    Args:
        histories: one history, or several by the names of their curves; a trial that diverged by
            `history.diverged` is left out, and counted.
        metric: any score, or a result [trial, round]; by default the gap, or else the accuracy, the
            loss or the first score that there is.
        title: above the figure.
        log: whether the axis is logarithmic; by default it is for a gap and a loss. There, a band
            that reaches zero runs off the lower edge, and a small triangle on that edge marks
            where.
        against: "round", or what was spent up to it: channel "uses", "energy", or "reports", the
            mean over trials.
    """
    if isinstance(histories, History):
        histories = {"mean over trials": histories}
    return panels({"": histories}, metric, title, log, against)


def panels(
    groups: dict[str, dict[str, History]],
    metric: str | None = None,
    title: str = "",
    log: bool | None = None,
    against: str = "round",
) -> Figure:
    """Draw `curves` once for each group of histories, side by side on one scale.

    Args:
        groups: histories by their names, by the titles of their panels.

    The other arguments are those of `curves`.
    """
    inputs.words("title", title)
    if log is not None:
        inputs.chosen("log", log, (False, True))
    for histories in _named("groups", groups).values():
        for history in _named("histories", histories).values():
            if metric is None and isinstance(history, History):
                usual = [k for k in ("gap", "accuracy", "loss") if k in history.scores]
                metric = next(iter((*usual, *history.scores)))
    inputs.words("metric", metric)
    inputs.chosen("against", against, ("round", *LEDGERS))
    bands = {
        name: {label: _band(h, metric, repr(label), against) for label, h in histories.items()}
        for name, histories in groups.items()
    }
    return _draw(bands, str(metric), title, log, style.SPENT[against])


def finals(
    values: Numbers,
    histories: dict[str, list[History]],
    metric: str,
    label: str,
    title: str = "",
) -> Figure:
    """Draw the last score against a swept value, with bands.

    Args:
        values: what was swept.
        histories: by the name of each curve its histories, one a value.
        metric: any score.
        label: what the values are, below the axis.
        title: above the figure.
    """
    for name, text in (("metric", metric), ("label", label), ("title", title)):
        inputs.words(name, text)
    swept = inputs.real("values", values)
    if swept.ndim != 1 or not np.isfinite(swept).all():
        raise InputError(f"values must be finite numbers [value], got {inputs.shown(values)}")
    bands = {}
    for name, runs in _named("histories", histories).items():
        if not isinstance(runs, list | tuple) or len(runs) != len(swept):
            wanted = f"a list of {len(swept)} histories, one a value"
            raise InputError(f"histories[{name!r}] must be {wanted}, got {inputs.shown(runs)}")
        bands[name] = _lasts(swept, [_band(history, metric, repr(name))[1] for history in runs])
    return _draw({"": bands}, metric, title, against=label)


def partition(task: Any, title: str = "") -> Figure:
    """Draw how many samples of which label each user holds; users may be of unequal size.

    Args:
        task: one of classification, or another with whole numbers as `data["labels"]`.
        title: above the figure.
    """
    counts = _label_counts(task)
    inputs.words("title", title)
    with matplotlib.rc_context(style.rc_params()):
        size = style.width(1 if task.users <= 20 else 2), 2.7
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(counts, cmap="Blues", vmin=0, aspect="auto", origin="lower")
        if counts.size <= 200:  # beyond that, numbers do not fit into their cells
            for (label, user), count in np.ndenumerate(counts):
                colour = "white" if count > 0.6 * counts.max() else "black"
                axes.text(user, label, count, ha="center", va="center", fontsize=5, color=colour)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes.set_xlabel("user $i$")
        axes.set_ylabel("label")
        figure.colorbar(image, ax=axes, label="samples", pad=0.02)
        axes.set_title(title, fontsize=7)
    return figure


def cell(placed: Cell, snr_db: Numbers | None = None, title: str = "") -> Figure:
    """Draw the users of a cell around the server, coloured by their mean gain or average SNR.

    Args:
        placed: `jo.cell(...)`; where trials redraw it, one more draw is shown.
        snr_db: that of the channel, to show average SNRs in the place of gains.
        title: above the figure.
    """
    if not isinstance(placed, Cell):
        raise InputError(f"placed must be a jo.cell(...), got {inputs.shown(placed)}")
    inputs.words("title", title)
    level = inputs.number("snr_db", 0.0 if snr_db is None else snr_db)
    if level.ndim or any(inputs.extra_axes(placed, "placed").values()):
        raise InputError("placed must be one cell, and snr_db one number, got an array to sweep")
    (x, y), values = np.asarray(placed.positions).T, np.asarray(placed.snr_db(level))
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1), 2.9), dpi=300, layout="constrained")
        axes = figure.add_subplot(aspect="equal")
        for radius in (float(placed.nearest), float(placed.radius)):
            axes.add_patch(Circle((0.0, 0.0), radius, fill=False, linewidth=0.5, color="0.6"))
        users = axes.scatter(x, y, c=values, s=12, cmap="viridis", label="user")
        axes.plot(0.0, 0.0, "k^", markersize=5, label="server")
        axes.set_xlabel("distance east of the server")
        axes.set_ylabel("distance north")
        label = "mean gain (dB)" if snr_db is None else "average SNR (dB)"
        figure.colorbar(users, ax=axes, label=label, pad=0.02)
        axes.legend(loc="upper right")
        axes.set_title(title, fontsize=7)
    return figure


def study(
    dataset: Any,
    metric: str | None = None,
    title: str = "",
    *,
    by_algorithm: bool = False,
    values: Numbers | None = None,
    label: str = "",
) -> Figure:
    """Draw a study: curves, last scores against the axis that it swept, or maps over two axes.

    Args:
        dataset: what `Study.run` returned, or `jo.open` opened.
        metric: a score of the study; by default its own.
        title: above the figure.
        by_algorithm: draw a panel for each algorithm, with a curve for each value of the only axis.
        values: the numbers that the labels of the only axis stand for.
        label: what the values are, below the axis.
    """
    metric = stats.metric_of(dataset, metric)
    scores, rounds = stats.summary(dataset, metric), dataset.evaluation.values
    algorithms = [str(name) for name in dataset.algorithm.values]
    long = [name for name in dataset.attrs["axes"] if dataset.sizes[name] > 1]
    if len(long) > 1:
        return _draw_maps(scores.mean.isel(evaluation=-1), long, metric, title)
    only = dict.fromkeys(dataset.attrs["axes"], 0)  # where an axis has one value
    settings = dataset[long[0]].values if long else np.zeros(1)
    places = [only | dict.fromkeys(long, number) for number in range(len(settings))]
    runs = {a: [scores.at(algorithm=n, **p) for p in places] for n, a in enumerate(algorithms)}
    if not long:
        return _draw({"": {a: (rounds, band) for a, (band,) in runs.items()}}, metric, title)
    names = [str(setting) for setting in settings]
    if by_algorithm:
        pairs = {a: zip(names, bands, strict=True) for a, bands in runs.items()}
        groups = {a: {name: (rounds, band) for name, band in pairs[a]} for a in runs}
        return _draw(groups, metric, title, looks=style.sequential(names))
    numbers = settings if values is None else np.asarray(values)
    ticks = None if numbers.dtype.kind in "if" else names
    swept = numbers if ticks is None else np.arange(len(names))
    lasts = {a: _lasts(swept, bands) for a, bands in runs.items()}
    label = label or style.axis_label(long[0])
    return _draw({"": lasts}, metric, title, against=label, ticks=ticks)


def _lasts(values: np.ndarray, bands: list[stats.Interval]) -> Band:
    """Return the ends of several curves as one over sorted values; trials are counted over all."""
    order = np.argsort(values, kind="stable")
    ends = [[np.ravel(x)[-1] for x in (band.mean, band.low, band.high)] for band in bands]
    mean, low, high = np.array(ends)[order].T
    counts = sum(band.used for band in bands), sum(band.trials for band in bands)
    return values[order], stats.Interval(mean, low, high, *counts)


def _draw(
    groups: dict[str, dict[str, Band]],
    metric: str,
    title: str,
    log: bool | None = None,
    spent: str = style.SPENT["round"],
    against: str | None = None,
    ticks: list[str] | None = None,
    looks: dict[str, style.Look] | None = None,
) -> Figure:
    """Draw bands against the round, in a panel for each group, or last scores `against` values.

    `spent` labels the axis of rounds, or of what was spent up to them; `ticks` are the words that
    values 0, 1, … stand for, which no line joins; `looks` are those of algorithms by default.
    """
    if metric == "accuracy":  # a share, which a symmetric interval may leave
        groups = {k: {a: _as_share(each) for a, each in v.items()} for k, v in groups.items()}
    log = metric in style.LOGARITHMIC if log is None else log
    every = [band for group in groups.values() for band in group.values()]
    floor = style.log_floor([band for _, band in every]) if log else -np.inf
    looks = looks or style.looks(label for group in groups.values() for label in group)
    with matplotlib.rc_context(style.rc_params()):
        figure, row = style.subplots(len(groups), 3.0, sharex=True)
        for axes, (name, group) in zip(row, groups.items(), strict=True):
            for place, (label, (x, band)) in enumerate(group.items()):
                if ticks is not None:  # side by side, so that no bar hides another
                    beside = x + 0.08 * (place - (len(group) - 1) / 2)
                    style.points(axes, looks[label], label, beside, band, floor)
                    continue
                markers = None if against is None else 1
                style.curve(axes, looks[label], label, x, band, floor, markers)
            style.scale_axis(axes, metric, log, floor)
            name = style.plain(name)
            if against is None:
                style.label_axes(axes, spent, name)
                axes.set_xlim(left=0, right=1.01 * max(rounds[-1] for rounds, _ in every))
            else:
                style.label_axes(axes, against, name)
                axes.set_ylabel(f"final {axes.get_ylabel()}")
            if ticks is not None:
                words = [textwrap.fill(style.tick_label(tick), 16) for tick in ticks]
                turned: Any = {"rotation": 20, "ha": "right"} if len(ticks) > 4 else {}
                axes.set_xticks(range(len(ticks)), words, **turned)
        for axes in row:
            axes.label_outer()
        style.title_and_legend(figure, row, title)
    return figure


def _as_share(curve: Band) -> Band:
    x, band = curve
    ends = {"low": np.clip(band.low, 0.0, 1.0), "high": np.clip(band.high, 0.0, 1.0)}
    return x, dataclasses.replace(band, **ends)


def _draw_maps(last: Any, long: list[str], metric: str, title: str) -> Figure:
    """Draw last scores [algorithm, axes…] over two axes, on one scale of colours."""
    (y, x), places = map_axes({name: last.sizes[name] for name in long}, last.sizes["algorithm"])
    if last.sizes[y] > last.sizes[x]:
        y, x = x, y
    last = last.isel({d: 0 for d in last.dims if d not in ("algorithm", *long)})
    last = last.sortby([k for k in (x, y) if last[k].dtype.kind in "if"])
    finite = last.values[np.isfinite(last.values)]
    log = metric in style.LOGARITHMIC and finite.size and finite.min() > 0
    norm: Any = LogNorm() if log else Normalize()
    ends = style.fence(finite, bool(log)) if finite.size else (0.0, 1.0)
    norm.autoscale(np.array(ends))
    beyond = finite.size and finite.max() > 1.001 * ends[1]
    labels = [str(label) for label in last.algorithm.values]
    cells = [(place, number) for place in places for number in range(len(labels))]
    with matplotlib.rc_context(style.rc_params()):
        across = style.columns(len(labels), 2)
        rows = -(-len(cells) // across)
        size = style.width(1 if len(labels) == 1 else 2), 0.9 + 1.9 * rows
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
        for axes, (place, number) in zip(grid.flat, cells, strict=False):
            panel = last.isel(place | {"algorithm": number}).transpose(y, x)
            image = style.heatmap(axes, panel, norm)
            if panel.size <= 64:  # beyond that, numbers do not fit into their cells
                style.print_values(axes, image)
            words = [f"{k} = {style.tick_label(str(last[k].values[i]))}" for k, i in place.items()]
            axes.set_title("\n".join([style.plain(labels[number]), *words]), fontsize=7)
        for axes in grid[:, 0]:
            axes.set_ylabel(style.axis_label(y))
        for axes in grid.flat[len(cells) - across : len(cells)]:  # those with nothing below
            axes.set_xlabel(style.axis_label(x))
            axes.tick_params(labelbottom=True)
        for axes in grid.flat[len(cells) :]:
            axes.set_axis_off()
        bar = figure.colorbar(image, ax=grid, pad=0.02, extend="max" if beyond else "neither")
        hatched = "" if finite.size == last.values.size else "\nhatched: diverged or not there"
        bar.set_label(f"final {style.LABELS.get(metric, style.plain(metric))}{hatched}")
        style.figure_title(figure, title)
    return figure


def _band(history: Any, metric: Any, whose: str, against: str = "round") -> Band:
    values = stats.scores(history, metric, whose)
    if np.isnan(values[~history.diverged]).any():
        raise InputError(
            f"{whose} must hold all rounds, but trials of it stopped early: jo.stats.time_to says "
            "what they spent"
        )
    every = history.every if metric in history.scores else 1
    x = history.done + every * (1 + np.arange(values.shape[1]))
    if against != "round":
        used = np.isfinite(values).all(1)  # the trials that `interval` uses
        spent = history.cumulative(against)[:, every - 1 :: every]
        x = spent[used if used.any() else slice(None)].mean(0)
        if not x[-1] > 0:
            raise InputError(f"against must be 'round' for {whose}, which spends no {against}")
    return x, stats.interval(values)


def _label_counts(task: Any) -> Int[np.ndarray, "label user"]:
    """Count the samples of each label that users hold, of data with labels [user, sample]."""
    data = getattr(task, "data", None)
    labels = np.asarray(data["labels"]) if isinstance(data, dict) and "labels" in data else None
    if labels is None or labels.ndim != 2 or labels.dtype.kind != "i" or labels.min() < 0:
        other = "another with whole numbers as data['labels']"
        raise InputError(f"task must be one of classification, or {other}")
    classes = max(getattr(task.loss, "classes", 0), 1 + labels.max())
    users = zip(labels, np.asarray(task.counts), strict=True)
    return np.stack([np.bincount(own[:count], minlength=classes) for own, count in users], 1)


def _named(name: str, values: Any) -> dict[str, Any]:
    """Require a dict of at least one value by a name."""
    if not isinstance(values, dict) or not values:
        shown = inputs.shown(values)
        raise InputError(f"{name} must be a dict of at least one by its name, got {shown}")
    for label in values:
        inputs.words(f"a name of {name}", label)
    return values
