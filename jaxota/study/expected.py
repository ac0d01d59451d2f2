"""Exact curves of a study: beside the trials of a run, or over a grid in the place of trials."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxota import stats
from jaxota._core import inputs
from jaxota.calibration import calibrate
from jaxota.errors import InputError
from jaxota.expectation import exact
from jaxota.reports import ROWS, Report, counted
from jaxota.study.resolve import Group, resolve
from jaxota.study.study import Study

RESULTS: tuple[str, ...] = ("gap", "loss", "error", "deviation", "mean_power")
RESULTS += ("control_error", "control_deviation", "mean_control_power")


def expected(study: Study, measured: bool = False) -> tuple[Any, dict[str, str]]:
    """Compute the expected results of a study's algorithms in all of its settings.

    Args:
        study: the study; its trials do not matter.
        measured: take the plans that the study's own calibrations measure, where one plan serves
            all settings; by default, those of infinitely many calibration runs.

    Returns:
        An `xarray.Dataset` [algorithm, axes…, round], and for each algorithm that is not linear,
        whose results are NaN, the reason.
    """
    import xarray  # slow to import

    settings = resolve(study)
    axes, labels = settings.axes, list(study.algorithms)
    sizes = [len(axis) for axis in axes]
    outer = [n for n, axis in enumerate(axes) if not axis.traced]
    results = {k: np.full((len(labels), *sizes, study.rounds), np.nan) for k in RESULTS}
    refused: dict[str, str] = {}
    for place, group in settings.groups.items():
        for number, label in enumerate(labels):
            try:
                found = _of_group(settings.study, group, number, measured)
            except InputError as reason:
                refused[label] = str(reason)
                continue
            index: list[Any] = [slice(None)] * len(axes)
            for dimension, at in zip(outer, place, strict=True):
                index[dimension] = at
            for name, values in found.items():
                inner = [size for n, size in enumerate(sizes) if n not in outer]
                rows = np.broadcast_to(values, (int(np.prod(inner)), study.rounds))
                results[name][(number, *index)] = rows.reshape(*inner, study.rounds)
    names = [axis.name for axis in axes]
    coords: dict[str, Any] = {"algorithm": labels, "round": 1 + np.arange(study.rounds)}
    for axis in axes:
        coords |= {k: (axis.name, np.asarray(v)) for k, v in axis.coordinates.items()}
    there = {k: v for k, v in results.items() if not np.isnan(v).all()}
    dims = ("algorithm", *names, "round")
    return xarray.Dataset({k: (dims, v) for k, v in there.items()}, coords), refused


def _of_group(study: Study, group: Group, number: int, measured: bool) -> dict[str, np.ndarray]:
    """Return the results [round], or [setting, round], of one algorithm in a group."""
    algorithm, channel, task = (
        group.parts["algorithms"][number],
        group.parts["channel"],
        group.parts["task"],
    )
    swept = [any(inputs.extra_axes(each, "").values()) for each in (algorithm, task)]
    plan = None
    if measured and algorithm.needs and not any(swept):
        counts = study.rounds, study.calibration_trials
        plan = jax.device_get(calibrate(study.key, algorithm, task, *counts))
    found = exact(algorithm, channel, task, study.rounds, plan=plan)
    return {k: v for k in RESULTS if (v := getattr(found, k)) is not None}


def report_of_grid(study: Study) -> Report:
    """Report the expected results of a study in all of its settings, without any trial."""
    data, refused = expected(study)
    names = [name for name in data.dims if name != "round"]
    metric = study.metric if study.metric in data else "gap"
    last = data[metric].isel(round=-1).to_dataframe().reset_index().dropna(subset=[metric])
    rows = [[*names, f"expected {metric}"]]
    rows += [
        [*map(str, row[:-1]), f"{row[-1]:.6g}"] for row in last[[*names, metric]].values[:ROWS]
    ]
    remarks = [_refusal(label, reason) for label, reason in refused.items()]
    if len(last) > ROWS:
        remarks.append(f"The first {ROWS} of {len(last)} rows; the CSV has all.")
    frame = data.to_dataframe().reset_index().dropna(subset=[metric])
    return Report(
        name="exact",
        caption=f"{study.name}: expected {metric} after {counted(study.rounds, 'round')}, without "
        "trials; plans of infinitely many calibration runs",
        table=rows,
        remarks=remarks,
        dataset=data,
        csv=frame,
        figure=lambda: None,
        digits=12,
    )


def _refusal(label: str, reason: str) -> str:
    return f"{label} has no exact curve: {reason}"


def beside_trials(report: Report, study: Study, dataset: Any) -> Report:
    """Add exact curves to the report of a run: columns, rows of data, and lines in the figure.

    z is the difference of the trials' mean to the exact value, in standard errors.
    """
    data, refused = expected(study, measured=True)
    metric = stats.metric_of(dataset, None)
    if metric not in data:
        reasons = "; ".join(dict.fromkeys(refused.values()))
        raise InputError(f"--exact must have an algorithm with an exact {metric}: {reasons}")
    curve = data[metric].sel(round=dataset.evaluation.values).rename(round="evaluation")
    scores = stats.summary(dataset, metric)
    from scipy import special  # slow to import

    error = (scores.high - scores.low) / 2 / special.stdtrit(scores.used - 1, 0.975)
    z = (scores.mean - curve) / error
    axes = list(dataset.attrs["axes"])
    order = ["algorithm", *axes]
    lasts = [x.isel(evaluation=-1).transpose(*order).values.ravel() for x in (curve, z)]
    table = [[*row] for row in report.table]
    table[0][2 + len(axes) : 2 + len(axes)] = ["exact", "z"]
    for row, value, score in zip(table[1:], *lasts, strict=False):
        words = ("–", "–") if np.isnan(value) else (f"{value:.5g}", f"{score:+.1f}")
        row[2 + len(axes) : 2 + len(axes)] = words
    rows = {"exact": curve, "z": z}
    frame = report.csv.merge(_tidy(rows, order, metric), how="left", on=[*order, "round", "metric"])
    worst = float(np.abs(z).max())
    remarks = [
        f"exact: the expectation under the plan of these trials; z: their mean less that, in "
        f"standard errors; the largest |z| of all rounds is {worst:.1f}.",
        *(_refusal(label, reason) for label, reason in refused.items()),
    ]
    return dataclasses.replace(
        report,
        table=table,
        remarks=[*report.remarks, *remarks],
        csv=frame,
        dataset=report.dataset.assign(**{f"exact_{metric}": curve}),
        figure=lambda: _with_lines(report.figure(), curve, axes),
    )


def _tidy(columns: dict[str, Any], order: list[str], metric: str) -> Any:
    import xarray

    frame = xarray.Dataset(columns).to_dataframe(dim_order=[*order, "evaluation"]).reset_index()
    frame = frame.rename(columns={"evaluation": "round"}).assign(metric=metric)
    return frame[[*order, "round", "metric", *columns]].astype(dict.fromkeys(order, object))


def _with_lines(figure: Any, curve: Any, axes: list[str]) -> Any:
    """Draw the exact curves of the only setting over the bands, in black."""
    if axes:
        return figure
    import matplotlib

    from jaxota import style

    panel = figure.axes[0]
    with matplotlib.rc_context(style.rc_params()):
        for n, label in enumerate(curve.algorithm.values):
            values = curve.sel(algorithm=label).values
            name = "exact" if n == 0 else None
            look = {"color": "black", "linewidth": 0.7, "zorder": 3}
            panel.plot(curve.evaluation.values, values, label=name, **look)
        figure.legends[0].remove()
        entries = style.legend_entries([panel])
        figure.legend(*entries, loc="outside lower center", ncols=2, handlelength=3.2)
    return figure


def with_best(report: Report, study: Study) -> Report:
    """Add the best plan of the class of plain local SGD, tuned for this task, to a report."""
    from jaxota.theory.best import exact_best

    labels = [k for k, v in study.algorithms.items() if not v.local.controlled and v.needs]
    if study.over.axes or not labels:
        raise InputError(
            "--best must have one setting and an algorithm of plain local steps over the air"
        )
    group = next(iter(resolve(study).groups.values()))
    algorithms = dict(zip(study.algorithms, group.parts["algorithms"], strict=True))
    channel, task = group.parts["channel"], group.parts["task"]
    found = exact_best(algorithms[labels[0]], channel, task, study.rounds)
    gap = found.expected.gap
    lines = []
    for label, algorithm in algorithms.items():
        try:
            own = exact(algorithm, channel, task, study.rounds).gap[-1]
        except InputError:
            continue
        lines.append(f"{label} {own / gap[-1]:.3g}")
    remark = (
        f"Best plan found of its class: expected gap {gap[-1]:.4g} after "
        f"{counted(study.rounds, 'round')} "
        f"(L-BFGS after {found.evaluations} gradients, the last of norm {found.gradient:.2g}; at a "
        "local optimum it would be 0). "
        f"Expected gaps over it: {', '.join(lines)}. The class: plain local steps, one block a "
        "round at full peak power; step size and the server's affine map are free in every round, "
        "and tuned for this task."
    )

    def figure() -> Any:
        drawn = report.figure()
        panel, rounds = drawn.axes[0], 1 + np.arange(study.rounds)
        panel.plot(rounds, gap, color="grey", linestyle=(0, (2, 1)), linewidth=1.0)
        panel.annotate("best of its class", (rounds[-1], gap[-1]), ha="right", va="top", fontsize=6)
        low, high = panel.get_ylim()
        panel.set_ylim(min(low, gap.min() / 1.5), high)
        return drawn

    data = report.dataset.assign(best_gap=("round", gap))
    return dataclasses.replace(
        report, remarks=[*report.remarks, remark], figure=figure, dataset=data
    )
