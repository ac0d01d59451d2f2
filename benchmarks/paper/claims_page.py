"""The tables of claims as Markdown, from the rows of a CSV alone, and their places in pages."""

import csv
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from jaxota.experiments.claims import LINES, NEAR_GAP, NEAR_PART, NEAR_POINTS
from jaxota.experiments.claims_lines import CORRECTED, LEVEL, RULE, SIMULTANEOUS

WHOLE, SHORT = "claims", "claims in short"  # what marks their places
HEADINGS = ("claim", "precoder", "holds on", "share of draws", "median effect", "power", "verdict")
MEANINGS = (
    "Effects are ratios of final optimality gaps, × (a claim says < 1, unless it says otherwise), "
    "differences of them, Δ (< 0), or differences of final test accuracy in percentage points, pp "
    f"(> 0). 3a holds below {NEAR_GAP:g}, 3b below {NEAR_PART:g}, 6c and 7d above "
    f"−{NEAR_POINTS:g} pp: what is minor or close is our choice, for 3b made "
    "after a first one, which noisy FedAvg met as well, had been seen to tell nothing. "
    "Algorithms are paired: one draw's data, initial models, minibatches and noise; so are K = 10 "
    "and 20, but for minibatches; N = 20 and 200 are other data, paired by number alone. Each draw "
    "has data and noise of its own; the initial models of its trials are those of every draw."
)
DOUBTS = (
    f"[ ] are {100 * LEVEL:.3g} % intervals over draws, each by itself: Wilson's of the share, and "
    "of the median one between order statistics, whatever the law. "
    f"The seven claims are {LINES} such lines, looked at together, so that one or two of their "
    f"intervals may well miss: ( ) are at {100 * SIMULTANEOUS:.4g} % each, with which the shares "
    f"of all lines, and likewise the medians, hold together at {100 * LEVEL:.3g} %."
)
POWER = (
    "Power: max_i ‖x_i‖²/P of the larger block, mean over trials, largest of all rounds and of the "
    "algorithms compared, median over draws (up to 1 is within the budget). noisy FedAvg has its "
    "constant gain, and the noise-free references are themselves, under both precoders."
)


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV of claims."""
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def cells(row: Mapping[str, str]) -> tuple[str, ...]:
    """What the table shows of a row, in the order of `HEADINGS`."""
    decided = row["verdict"] != "undecided"
    mark = "; undecided after correction †" if decided and row["open"] == "yes" else ""
    numbers = {k: float(row[k]) for k in row if k.startswith(("share", "median", "power"))}
    shares, medians = (
        f"{show(numbers[name])} [{show(numbers[f'{name}_low'])}, {show(numbers[f'{name}_high'])}] "
        f"({show(numbers[f'{name}_low_simultaneous'])}, "
        f"{show(numbers[f'{name}_high_simultaneous'])})"
        for name, show in (("share", _percent), ("median", _number))
    )
    unit = {"ratio": "×", "difference": "Δ", "points": "pp"}[row["unit"]]
    return (
        f"({row['part']}) {row['claim']}",
        row["precoder"],
        f"{row['holds_on']} of {row['draws']}",
        f"{shares} %",
        f"{medians} {unit}",
        f"{numbers['power_ratio']:.3g}",
        row["verdict"] + mark,
    )


def notes(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """What a reader of the table must know besides."""
    rows = list(rows)
    lines = [f"{_sizes(rows)}. {MEANINGS}", RULE, DOUBTS, CORRECTED]
    few = {
        (row["draws"], f"{100 * float(row['median_level']):.4g} %")
        for row in rows
        if float(row["median_level"]) < LEVEL
    }
    for count, level in sorted(few):
        lines.append(
            f"With {count} draws the widest interval of a median, from the least effect to the "
            f"largest, is of level {level}, and there is none at a higher one."
        )
    return [*lines, POWER]


def markdown(rows: Iterable[Mapping[str, str]]) -> str:
    """The table, in which the precoders of a part share a row, and its notes."""
    rows = list(rows)
    table: list[Iterable[str]] = [HEADINGS, ["---"] * len(HEADINGS)]
    for _, pair in itertools.groupby(rows, lambda row: row["part"]):
        (first, *columns) = zip(*map(cells, pair), strict=True)
        table.append([first[0], *map("<br>".join, columns)])
    drawn = "\n".join(f"| {' | '.join(each)} |" for each in table)
    return "\n\n".join([drawn, *notes(rows)]) + "\n"


def short(rows: Iterable[Mapping[str, str]]) -> str:
    """Of each part on how many draws it holds, and its verdict, under either precoder."""
    rows = list(rows)
    pairs = [list(pair) for _, pair in itertools.groupby(rows, lambda row: row["part"])]
    headings = ["claim", *(f"{row['precoder']} precoder" for row in pairs[0])]
    table: list[Iterable[str]] = [headings, ["---"] * len(headings)]
    for pair in pairs:
        told = [cells(row) for row in pair]
        table.append([told[0][0], *(f"{each[2]}: {each[-1]}" for each in told)])
    drawn = "\n".join(f"| {' | '.join(each)} |" for each in table)
    return f"{drawn}\n\n{_sizes(rows)}.\n\n{RULE}\n\n{CORRECTED}\n"


def put(text: str, marks: str, page: str) -> str:
    """A page with a text between its two marks."""
    begin, end = (f"<!-- {marks}: {word} -->" for word in ("begin", "end"))
    inside = f"{begin}\n{text}{end}"
    changed, count = re.subn(f"{begin}.*{end}", lambda _: inside, page, count=1, flags=re.DOTALL)
    if not count:
        raise ValueError(f"there is no {begin} … {end} in the page")
    return changed


def _sizes(rows: list[Mapping[str, str]]) -> str:
    found = dict.fromkeys(
        f"{_claims(rows, row['data'])}: {row['data']}, {row['draws']} independent data draws, "
        f"{row['trials']} trials each, plans of {row['calibration_trials']} calibration trials, "
        f"seed {row['seed']}"
        for row in rows
    )
    return "; ".join(found)


def _claims(rows: list[Mapping[str, str]], data: str) -> str:
    own = dict.fromkeys(row["part"][0] for row in rows if row["data"] == data)
    return f"Claims {', '.join(own)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _number(value: float) -> str:
    if value != value or abs(value) == float("inf"):
        return {True: "∞", False: "−∞"}.get(value > 0, "–")
    return f"{value:.3g}".replace("-", "−")
