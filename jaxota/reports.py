"""Reports: the outcome of a study or an experiment as a table, remarks, rows, data and a figure."""

import dataclasses
import inspect
import json
import math
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxota
from jaxota import stats
from jaxota._core import files, inputs
from jaxota.errors import InputError
from jaxota.history import LEDGERS

ROWS = 40  # of a table on the screen; the CSV has all
PANELS = 12  # of maps in a figure
NAMED = 8  # settings that remarks name one by one; of more, they give the number
STORED_ROWS = 200  # of a table that a file holds: an attribute has no room for more than 64 kB


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of an experiment, as the command shows and writes it.

    Attributes:
        name: the name of its files.
        caption: one line that says what was run.
        table: rows of cells for the screen, header first.
        remarks: sentences that a reader of the table needs.
        dataset: all results, an `xarray.Dataset`: NAME.nc.
        csv: tidy rows, a `pandas.DataFrame`: NAME.csv.
        figure: a function without arguments that draws a matplotlib figure: NAME.png.
        markdown: a page of text, or None: NAME.md.
        digits: significant digits of the numbers in NAME.csv; None for all.
    """

    name: str
    caption: str
    table: Sequence[Sequence[str]]
    remarks: Sequence[str]
    dataset: Any
    csv: Any
    figure: Callable[[], Any]
    markdown: str | None = None
    digits: int | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A function that runs studies and returns a `Report`; `experiment` makes one.

    Attributes:
        name: the name of the function.
        about: one line for tables and lists.
        function: called as `function(run, **options)`. `run(study)` runs a `Study` chunk by chunk
            and returns its `xarray.Dataset`.
    """

    name: str
    about: str
    function: Callable[..., Report]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options: the keyword parameters after `run`."""
        _, *parameters = inspect.signature(self.function).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    def __call__(self, run: Callable[[Any], Any] | None = None, **options: Any) -> Report:
        """Run the experiment here; a study runs in memory unless `run` is given.

        Args:
            run: runs a study and returns its dataset; by default `Study.run` without a folder.
            **options: values in place of the defaults.
        """
        check_options(self, options)
        return self.function(run or (lambda study: study.run()), **options)


def check_options(chosen: Any, options: Iterable[str]) -> None:
    """Raise InputError for an option that a figure or an experiment lacks."""
    known = f"choose from {', '.join(chosen.options)}" if chosen.options else "it has none"
    for name in options:
        if name not in chosen.options:
            raise InputError(f"{name} is not an option of {chosen.name}: {known}")


def experiment(about: str) -> Callable[[Callable[..., Report]], Experiment]:
    """Make an `Experiment` of a function, for `jaxota run FILE.py:NAME` and for Python.

    Args:
        about: one line that says which question the experiment answers.
    """
    if not isinstance(about, str):
        raise InputError(f"about must be a line of text, got {inputs.shown(about)}")

    def decorate(function: Callable[..., Report]) -> Experiment:
        return Experiment(function.__name__, about, function)

    return decorate


def study_report(
    dataset: Any,
    metric: str | None = None,
    *,
    title: str = "",
    snr: str = "",
    seed: int | None = None,
    draw: dict[str, Any] | None = None,
    sweep: bool = False,
) -> Report:
    """Report what a study left: algorithms side by side, in each setting, against the reference.

    Args:
        dataset: what `Study.run` returned, or `jo.open` opened.
        metric: the score of the table and the figure; by default the study's own.
        title: what was studied, in words; by default the axes and their sizes.
        snr: the SNR in words; by default as the study's channel has it.
        seed: the seed of data and trials, for the caption.
        draw: options of `jo.plots.study`, which draws the figure.
        sweep: whether the rows of the CSV count `used` and `trials`, ordered by metric; by default
            they are ordered by algorithm, and rows of a metric `diverged` count what is left out.
    """
    metric = stats.metric_of(dataset, metric)
    description = json.loads(dataset.attrs["description"])
    name, axes = inputs.name("study", dataset.attrs["study"]), list(dataset.attrs["axes"])
    snr = snr or _snr(description, axes)
    # A sweep's stored float32 powers are averaged as they are, those of a run in double precision.
    doubles = () if sweep else ("power", "control_power")
    powers = {k: dataset[k].astype("f8") for k in doubles if k in dataset}
    power = stats.power_ratio(dataset.assign(powers))
    scores = {score: stats.summary(dataset, score) for score in dataset.attrs["scores"]}
    frames = {score: _frame(dataset, each, power) for score, each in scores.items()}
    ledgers = {ledger: stats.spending(dataset, ledger) for ledger in LEDGERS}
    spent = {k: _frame(dataset, each, power) for k, each in ledgers.items() if each is not None}
    differences = _frame(dataset, stats.summary(dataset, metric, difference=True), power)
    finals, paired = (each.groupby("place").tail(1) for each in (frames[metric], differences))
    trials = counted(int(finals.trials.max()), "trial")

    def figure() -> Any:
        from jaxota import plots  # loads matplotlib, which is slow

        users = "" if title else _users_and_steps(description, dataset)
        heading = f"{title or name + users}\n{snr}, {trials}"
        return plots.study(dataset, metric, heading, **(draw or {}))

    done, chunks = (dataset.attrs.get(k) for k in ("chunks_done", "chunks"))
    sizes = " × ".join(f"{dataset.sizes[axis]} {axis}" for axis in axes) or "one setting"
    ending = "" if seed is None else f", seed {seed}"
    ending += "" if done == chunks else f", {done} of {counted(chunks, 'chunk')} so far"
    return Report(
        name=name,
        caption=f"{name}: {title or sizes}, {snr}; "
        f"{counted(description['rounds'], 'round')}, {trials}{ending}",
        table=_with_costs(_table(dataset, metric, finals, paired, power.max("round")), spent),
        remarks=_remarks(dataset, finals),
        dataset=_labelled(dataset, metric, description),
        csv=_rows(frames, spent, axes, sweep),
        figure=figure,
        digits=9,
    )


def _users_and_steps(description: dict[str, Any], dataset: Any) -> str:
    """Return N and K in words, where all settings and algorithms share them."""
    tasks, parts = description["task"], description["algorithms"].values()
    users = tasks.get("users") if isinstance(tasks, dict) else None
    steps = {(part.get("local") or {}).get("steps") for part in parts}
    words = {"users": ("N", users), "steps": ("K", steps.pop() if len(steps) == 1 else None)}
    shared = [f"{k} = {v}" for name, (k, v) in words.items() if v and name not in dataset.dims]
    return "".join(f", {word}" for word in shared)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def is_number(cell: object) -> bool:
    """Whether a cell of a table holds a number, perhaps with its interval, or stands for none."""
    words = str(cell).strip()
    none = words in ("–", "all diverged", "no pairs", "not there yet")
    return none or words[:1].isdigit() or (words[:1] in "+-−" and words[1:2].isdigit())


def _snr(description: dict[str, Any], axes: list[str]) -> str:
    channel = description["channel"]
    per = "" if "snr_per" in axes else f" per {channel['snr_per']}"
    if "snr_db" in axes or "channel" in description["swept"]:
        return f"SNR{per}"
    return f"SNR {float(channel['snr_db']):g} dB{per}"


def _frame(dataset: Any, scores: Any, power: Any) -> Any:
    """Return a summary as a `pandas.DataFrame`; `place` numbers the settings of all algorithms."""
    import xarray

    columns = {
        "mean": scores.mean,
        "ci_low": scores.low,
        "ci_high": scores.high,
        "power_ratio": power.sel(round=dataset.evaluation.values).rename(round="evaluation"),
        "used": scores.used.astype(int),
        "trials": scores.trials.astype(int),
    }
    order = ["algorithm", *dataset.attrs["axes"], "evaluation"]
    frame = xarray.Dataset(columns).to_dataframe(dim_order=order).reset_index()
    return frame.assign(place=frame.index // dataset.sizes["evaluation"])


def _table(dataset: Any, metric: str, finals: Any, paired: Any, power: Any) -> list[list[str]]:
    """Return a row for each algorithm and setting: last score, power ratio, paired difference."""
    axes, reference = ["algorithm", *dataset.attrs["axes"]], dataset.attrs["reference"]
    rows = [[*axes, f"final {metric}", "power ratio", f"difference to {reference}"]]
    labels = finals[axes].head(ROWS).values.tolist()
    ratios = power.transpose(*axes).values.ravel()
    each = zip(labels, finals.itertuples(), paired.itertuples(), ratios, strict=False)
    for words, final, difference, ratio in each:
        score = plus_minus(final) if final.trials else "not there yet"
        other = "–" if words[0] == reference else plus_minus(difference, "no pairs")
        rows.append([*map(str, words), score, f"{float(ratio):.3g}", other])
    return rows


def _with_costs(table: list[list[str]], spent: dict[str, Any]) -> list[list[str]]:
    """Return the table with the channel uses and the energy of a whole run at the end of a row."""
    for ledger, head in (("uses", "channel uses"), ("energy", "energy")):
        if ledger in spent:
            last = spent[ledger].groupby("place").tail(1)["mean"]
            cells = [head, *(f"{x:.4g}" if np.isfinite(x) else "–" for x in last)]
            table = [[*row, cell] for row, cell in zip(table, cells, strict=False)]
    return table


def plus_minus(row: Any, nothing: str = "") -> str:
    """Return mean ± half width of an interval, in the digits that the width supports.

    `nothing` are the words for no trial left; with them, the number is a difference and has a sign.
    """
    sign = "+" if nothing else ""
    mean, half = row.mean, (row.ci_high - row.ci_low) / 2
    if not row.used:
        return nothing or "all diverged"
    if row.used == 1:
        return f"{mean:{sign}.4g}"
    digits = max(0, 1 - int(np.floor(np.log10(half)))) if half > 0 else 3
    if digits > 8 or abs(mean) >= 1e6:
        return f"{mean:{sign}.3g} ± {half:.2g}"
    return f"{mean:{sign}.{digits}f} ± {half:.{digits}f}"


def _remarks(dataset: Any, finals: Any) -> list[str]:
    most = int(finals.trials.max())
    sizes = {a: dataset.sizes[a] for a in dataset.attrs["axes"] if dataset.sizes[a] > 1}
    lines = [
        f"± is a 95 % interval over {counted(most, 'trial')}; "
        "a power ratio above 1 exceeds the budget."
    ]
    if len(finals) > ROWS:
        lines.append(f"The first {ROWS} of {len(finals)} rows; the CSV has all.")
    if len(sizes) > 2:
        (y, x), places = map_axes(sizes, dataset.sizes["algorithm"])
        others = {name: size for name, size in sizes.items() if name not in (y, x)}
        settings = f"{len(places)} of {math.prod(others.values())} settings of {', '.join(others)}"
        lines.append(f"The figure maps {y} × {x}, {settings}.")
    lines += _exceptions(dataset, finals)
    if most == 1:
        lines.append("One trial has no interval: ask for more with --trials.")
    if dataset.attrs.get("chunks_done") != dataset.attrs.get("chunks"):
        lines.append("The sweep is not finished: what is missing is left out.")
    return lines


def _exceptions(dataset: Any, finals: Any) -> list[str]:
    """Name the algorithms and settings with trials that diverged, or rounds without a sender."""
    axes = ["algorithm", *dataset.attrs["axes"]]
    names = [", ".join(map(str, labels)) for labels in finals[axes].values.tolist()]
    gone, shares = finals.trials - finals.used, np.zeros(len(names))
    if dataset.attrs["keep"] == "trials":
        silent = (dataset.participants == 0).mean(("trial", "round"))
        shares = silent.transpose(*axes).values.ravel()
    lost, unheard = [], []
    for name, trials, count, share in zip(names, finals.trials, gone, shares, strict=True):
        if count:
            verb = "is" if count == 1 else "are"
            diverged = f"{name}: {count} of {counted(trials, 'trial')} diverged"
            lost.append(f"{diverged}, and {verb} left out of the means.")
        if share > 0:
            unheard.append(f"{name}: nobody transmitted in {share:.1%} of rounds.")
    if len(lost) > NAMED:
        lost = [f"{counted(gone.sum(), 'trial')} diverged, and are left out of the means."]
    if len(unheard) > NAMED:
        unheard = [f"In {len(unheard)} rows there are rounds in which nobody transmitted."]
    return lost + unheard


def map_axes(sizes: dict[str, int], algorithms: int) -> tuple[list[str], list[dict[str, int]]]:
    """Choose the two longest axes for maps, and the settings of the others that have room."""
    longest = sorted(sizes, key=lambda name: -sizes[name])[:2]
    others = [name for name in sizes if name not in longest]
    points = np.ndindex(*(sizes[name] for name in others))
    places = [dict(zip(others, map(int, point), strict=True)) for point in points]
    return [name for name in sizes if name in longest], places[: max(1, PANELS // algorithms)]


def _rows(frames: dict[str, Any], spent: dict[str, Any], axes: list[str], sweep: bool) -> Any:
    """Return tidy rows of all scores, and of what was spent so far: a `pandas.DataFrame`."""
    import pandas

    numbers = ["mean", "ci_low", "ci_high"]
    scored = [frame.assign(metric=metric) for metric, frame in frames.items()]
    columns = ["algorithm", *axes, "round", "metric", *numbers, "power_ratio"]
    costs = [frame.assign(metric=ledger) for ledger, frame in spent.items()]
    if sweep:
        rows, columns = pandas.concat(scored + costs), [*columns, "used", "trials"]
    else:
        last = scored[0].groupby("place").tail(1)
        count = (last.trials - last.used).astype(float)
        scored.append(last.assign(metric="diverged", **dict.fromkeys(numbers, count)))
        rows = pandas.concat(scored + costs).sort_values("place", kind="stable")
    rows = rows.rename(columns={"evaluation": "round"})[columns].reset_index(drop=True)
    return rows.astype(dict.fromkeys(["algorithm", *axes], object))


def _labelled(dataset: Any, metric: str, description: dict[str, Any]) -> Any:
    """Return the dataset with numbered trials and the settings that readers look for first."""
    numbered = {d: np.arange(dataset.sizes[d]) for d in ("trial", "parameter") if d in dataset.dims}
    fields = {k: description["channel"].get(k) for k in ("snr_db", "snr_per", "power")}
    if isinstance(task := description.get("task"), dict):
        fields |= {k: task.get(k) for k in ("dataset", "init_scale")}
    plain = {k: v for k, v in fields.items() if isinstance(v, str | int | float)}
    return dataset.assign_coords(numbered).assign_attrs(**plain, metric=metric)


def of_store(folder: Path, metric: str | None) -> Report:
    """Report what a sweep left in a folder, finished or not."""
    from jaxota.study.store import Store  # loads the simulator, which is slow

    store = Store(folder)
    try:
        return study_report(store.dataset(), metric, sweep=True)
    except InputError:
        raise
    except Exception as error:  # a study.json that jaxota did not write may hold anything
        reason = f"{type(error).__name__}: {inputs.first_line(error)}"
        raise InputError(f"{folder} cannot be shown, jaxota did not write it ({reason})") from None


def write(
    report: Report,
    folder: Path,
    formats: Sequence[str] = ("png",),
    drawn_for: str = "screen",
    data: Sequence[str] = ("csv", "nc"),
    **attributes: Any,
) -> list[Path]:
    """Write a report to `folder`, all files or none, and return their names.

    `formats` are those of the pictures, `drawn_for` is screen or paper, `data` are the endings of
    the other files, and `attributes` are what else the NetCDF says of the run.
    """
    import matplotlib

    from jaxota import style  # loads matplotlib, which is slow

    inputs.name("the name of a report", report.name)
    # Whatever can fail is made before any file is opened.
    with style.drawn_for(drawn_for):
        figure, fonts = report.figure(), style.rc_params()
    dataset = report.dataset.assign_attrs(_words(report) | attributes)
    number = None if report.digits is None else f"%.{report.digits}g"
    options = {"float_format": number, "na_rep": "nan", "lineterminator": "\r\n"}

    places = [folder / f"{report.name}.{ending}" for ending in (*formats, *data)]
    # Some fonts count when files are written; letters that they lack are drawn as boxes.
    with (
        files.replacing(*places) as drafts,
        matplotlib.rc_context(fonts),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        for place, draft in zip(places, drafts, strict=True):
            if place.suffix == ".csv":
                _guarded(report.csv).to_csv(draft, index=False, encoding="utf-8", **options)
            elif place.suffix == ".nc":
                dataset.to_netcdf(draft, engine="h5netcdf")
            elif place.suffix == ".md":
                draft.write_text(report.markdown or "", encoding="utf-8")
            else:
                figure.savefig(draft)
    return places


_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def _guarded(rows: Any) -> Any:
    """Return rows with a ' before each text that a spreadsheet would take for a formula."""

    def cell(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

    texts = {k: v for k, v in rows.items() if v.dtype.kind not in "biuf"}
    return rows.assign(**{str(k): np.array([*map(cell, v)], object) for k, v in texts.items()})


def unguarded(cell: str) -> str:
    """Return a cell as it was before it was guarded."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _words(report: Report) -> dict[str, Any]:
    """Return the words of the screen as attributes, so that they can be shown again."""
    return {
        "title": report.caption,
        "experiment": report.name,
        "jaxota": jaxota.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "table": json.dumps([list(map(str, row)) for row in report.table[: 1 + STORED_ROWS]]),
        "remarks": json.dumps(list(report.remarks)),
    }
