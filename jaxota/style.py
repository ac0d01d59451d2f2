"""Colours, dashes, markers, fonts and sizes that all figures share."""

import contextlib
import contextvars
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogFormatter

from jaxota.errors import visible
from jaxota.stats import Interval

# Okabe and Ito's palette, safe for colour-blind readers; each colour has its own dash and marker,
# so that curves also stay apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = "os^Dv*P"
# Algorithms whose look is the same in every figure, by their names in lower case.
KNOWN = ("noisy fedavg", "cotaf", "baaf", "cobaaf", "scaffold", "fedavg", "wise")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    "mathtext.fontset": "cm",
}
PAPER: dict[Any, Any] = {  # letters as the text around has them, embedded as publishers ask
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8),
    "pdf.fonttype": 42,
}
LOGARITHMIC = ("gap", "loss")
LABELS = {
    "gap": r"optimality gap $F(\hat{\theta}) - F(\theta^{\star})$",
    "loss": r"loss $F(\hat{\theta})$",
    "accuracy": "test accuracy",
}
SPENT = {  # horizontal axes of curves
    "round": "communication round $r$",
    "uses": "channel uses (real symbols)",
    "energy": r"energy of all users $\sum_r \sum_i \|x_i^r\|^2$",
    "reports": "coded scalars per user",
}
AXES = {
    "snr_db": "SNR (dB)",
    "users": "users $N$",
    "steps": "local steps $K$",
    "step_size": r"step size $\eta$",
    "data_spread": "data spread",
    "model_spread": "model spread",
    "csi_error": "variance of the CSI error",
}


class Look(NamedTuple):
    """Number, colour, dash and marker of one curve."""

    number: int
    colour: str
    dash: Any  # a name, or (offset, lengths), as matplotlib has it
    marker: str


def _look(number: int) -> Look:
    """Return the look of a number; the second round of colours has other dashes and markers."""
    other = (number + 3 * (number // len(COLOURS))) % len(DASHES)  # not those of its neighbours
    return Look(number, COLOURS[number % len(COLOURS)], DASHES[other], MARKERS[other])


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Return the look of each curve: an algorithm's own, whatever else is in the figure.

    "COBAAF (online)" looks like COBAAF; beside COBAAF it has its colour, with other dashes. Other
    labels take the looks that are left, in order.
    """
    every = list(dict.fromkeys(labels))
    numbers: dict[str, int] = {}
    for label in sorted(every, key=lambda label: _known(label) != label.casefold()):
        if (name := _known(label)) in KNOWN:  # plain names take their looks first
            same = itertools.count(KNOWN.index(name), len(COLOURS))
            numbers[label] = next(n for n in same if n not in numbers.values())
    for label in every:
        if label not in numbers:
            numbers[label] = next(n for n in itertools.count() if n not in numbers.values())
    return {label: _look(numbers[label]) for label in every}


def sequential(labels: Iterable[str]) -> dict[str, Look]:
    """Return looks from dark to light for values in order, such as thresholds or SNRs."""
    every = list(dict.fromkeys(labels))
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(every)))
    return {
        label: _look(n)._replace(colour=to_hex(shade))
        for n, (label, shade) in enumerate(zip(every, shades, strict=True))
    }


def _known(label: str) -> str:
    """Return the name of an algorithm in a label: the words before brackets and commas."""
    return re.split(r" \(|, ", label)[0].replace("_", " ").casefold()


_paper = contextvars.ContextVar("_paper", default=False)


@contextlib.contextmanager
def drawn_for(style: str) -> Iterator[None]:
    """Draw figures inside the block for the screen, or for one column of a paper."""
    before = _paper.set(style == "paper")
    try:
        yield
    finally:
        _paper.reset(before)


def on_paper() -> bool:
    """Whether figures are drawn for one column of a paper."""
    return _paper.get()


def rc_params() -> dict[Any, Any]:
    """Return matplotlib's parameters for a figure."""
    return STYLE | PAPER if on_paper() else STYLE


def width(columns: int) -> float:
    """Return the inches of one column of a paper, or of two, which `paper` never takes."""
    return 3.5 if columns == 1 or on_paper() else 7.16


def columns(count: int, most: int) -> int:
    """Return how many of `count` panels stand side by side: all, or on paper up to `most`."""
    return min(count, most) if on_paper() else count


def subplots(count: int, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Make panels on one vertical scale: side by side, on paper below each other."""
    across = columns(count, 1)
    rows = count // across
    size = width(count), height if rows == 1 else 1 + rows * (height - 1)
    figure = Figure(figsize=size, dpi=300, layout="constrained")
    grid = figure.subplots(rows, across, sharey=True, squeeze=False, **shared)
    return figure, list(grid.ravel())


def plain(label: str) -> str:
    """Return a label as matplotlib shows it letter by letter: no formulas, no hidden entries."""
    label = visible(label)
    if len(label) > 60:  # a longer one would leave no room for the picture
        label = f"{label[:40]}…{label[-19:]}"
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label


def axis_label(name: str) -> str:
    """Return the words for a swept field."""
    return AXES.get(name, plain(name.replace("_", " ")))


def tick_label(label: str) -> str:
    """Return a value in words: the part `Fading(Rayleigh(), Inversion(threshold=0.1))` has none."""
    if re.fullmatch(r"[A-Z]\w*\(.*\)", label):
        label = re.sub(r"^\w+\((?=[A-Z])(.*)\)$", r"\1", label)  # what holds the parts is left out
        label = label.replace("()", "").replace("(", " ").replace(")", "").replace("_", " ")
        label = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label.replace("=", " = "))
    return plain(label)


def label_axes(axes: Axes, label: str, name: str) -> None:
    """Label the horizontal axis, draw a grid, and set a panel's name above it."""
    axes.set_xlabel(label)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if name:
        axes.set_title(name, fontsize=8)


def curve(
    axes: Axes,
    look: Look,
    label: str,
    rounds: np.ndarray,
    band: Interval,
    floor: float,
    every: int | None = None,
) -> None:
    """Draw a mean and its band; marks on the edge show where the band lies below `floor`.

    The legend counts trials that diverged. `floor` is the lower end of a logarithmic axis, or −inf,
    and `every` the points from one marker to the next; by default markers of curves alternate.
    """
    label = plain(label)
    if band.diverged:
        label = f"{label} ({band.diverged} of {band.trials} diverged)"
    first = look.number % len(COLOURS) * len(rounds) // 50  # markers of curves that meet stay apart
    (line,) = axes.plot(rounds, band.mean, color=look.colour, linestyle=look.dash, label=label)
    line.set(marker=look.marker, markevery=every or (first, max(1, len(rounds) // 8)))
    low, high = np.maximum(band.low, floor), np.maximum(band.high, floor)
    axes.fill_between(rounds, low, high, color=look.colour, alpha=0.2, linewidth=0)
    clipped = rounds[band.low < floor]
    if clipped.size:
        on_edge: dict[str, Any] = {"clip_on": False, "markersize": 3, "in_layout": False}
        axes.plot(clipped, np.full(clipped.size, floor), "v", color=look.colour, **on_edge)


def points(axes: Axes, look: Look, label: str, x: np.ndarray, band: Interval, floor: float) -> None:
    """Draw means of categories as points with bars for their intervals, without a line."""
    label = plain(label)
    if band.diverged:
        label = f"{label} ({band.diverged} of {band.trials} diverged)"
    ends = band.mean - np.maximum(band.low, floor), band.high - band.mean
    bars = np.nan_to_num(np.maximum(ends, 0.0), posinf=0.0)
    looks: dict[str, Any] = {"color": look.colour, "fmt": look.marker, "capsize": 2}
    axes.errorbar(x, band.mean, bars, label=label, elinewidth=1.0, **looks)


def heatmap(axes: Axes, values: Any, norm: Any = None, cmap: str = "viridis") -> Any:
    """Colour a cell for each of `values`, an `xarray.DataArray` [y, x], and return the image.

    Up to eight rows and columns are labelled, and cells without a finite value are hatched. `norm`
    is the scale of the colours; by default it is linear from the least to the largest value.
    """
    held = np.ma.masked_invalid(values.values)
    image = axes.imshow(held, norm=norm, cmap=cmap, aspect="auto", origin="lower")
    for y, x in np.argwhere(np.ma.getmaskarray(held)):
        hatched: dict[str, Any] = {"fill": False, "hatch": "/////", "edgecolor": "0.5"}
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0, **hatched))
    for axis, name in zip((axes.yaxis, axes.xaxis), values.dims, strict=True):
        coordinates = values[name].values
        chosen = range(0, len(coordinates), -(-len(coordinates) // 8))
        form = "{:g}" if coordinates.dtype.kind in "if" else "{}"
        axis.set_ticks(chosen, [tick_label(form.format(coordinates[n])) for n in chosen])
    return image


def print_values(axes: Axes, image: Any) -> None:
    """Print the value of every cell of a map, in the letters that its colour leaves readable."""
    held = image.get_array()
    for (y, x), value in np.ndenumerate(held.filled(np.nan)):
        if np.isfinite(value):
            red, green, blue, _ = image.to_rgba(value)
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 5}
            axes.text(x, y, f"{value:.3g}", color="white" if dark else "black", **words)


def fence(values: np.ndarray, log: bool) -> tuple[float, float]:
    """Return the ends of a scale of colours: of the values but for those far from all others."""
    scaled = np.log(values) if log else values
    low, middle, high = np.quantile(scaled, (0.25, 0.5, 0.75))
    most = high + 3.0 * (high - low) if high > low else np.inf
    if log:  # runs about to diverge may be many, and leave every decade behind
        most = min(most, middle + np.log(1e3))
    kept = scaled[scaled <= most]
    ends = kept.min(), kept.max()
    return tuple(float(np.exp(x) if log else x) for x in ends)  # type: ignore[return-value]


def log_floor(bands: list[Interval]) -> float:
    """Return the end of a logarithmic axis, below all means and all bands above zero."""
    means = np.concatenate([band.mean for band in bands])
    lows = np.concatenate([band.low for band in bands])
    means, lows = means[means > 0], lows[lows > 0]
    if not means.size:
        return 1e-12
    # A band that barely clears zero must not stretch the axis over empty decades.
    return float(max(lows.min(initial=means.min()), means.min() / 10) / 1.5)


def scale_axis(axes: Axes, metric: str, log: bool, floor: float) -> None:
    """Label and scale the vertical axis; a logarithmic one ends at `floor`."""
    axes.set_ylabel(LABELS.get(metric, plain(metric)))
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=floor)
        low, high = axes.get_ylim()
        if high < 30 * low:  # so short an axis is read in plain numbers
            axes.yaxis.set_major_formatter(LogFormatter(minor_thresholds=(2, 1)))
            axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 1)))


def title_and_legend(figure: Figure, row: Sequence[Axes], title: str) -> None:
    """Set the title above and the legend below all panels, where it covers no curve."""
    across = 2 if len(row) == 1 else columns(4, 2)
    figure.legend(*legend_entries(row), loc="outside lower center", ncols=across, handlelength=3.2)
    figure_title(figure, title, 7 if len(row) == 1 else 8)


def figure_title(figure: Figure, title: str, size: int = 8) -> None:
    """Set the title above; a paper has captions instead."""
    if on_paper():
        return
    figure.suptitle(title, fontsize=size)


def legend_entries(row: Sequence[Axes]) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of all panels, each label once."""
    entries: dict[str, Any] = {}
    for axes in row:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    return list(entries.values()), list(entries)
