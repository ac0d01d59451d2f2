"""The table of the claims as Markdown, from its CSV alone, and its place in the pages."""

import itertools
import math
import re

import pandas
from claim_parts import LINES

HEADINGS = ("claim", "precoder", "holds on", "share of draws", "median effect", "power", "verdict")
# The marks of the tables in the pages.
FULL, SHORT, ROUNDS, READINGS = "claims", "claims in short", "claims by round", "readings"
SHOWN = {"regression": (5, 10, 20, 30, 60), "images": (10, 20, 50, 100)}  # rounds of that table
UNITS = {"ratio": "×", "difference": "Δ", "points": "pp"}
RULE = (
    "Holds: on at least 95 % of the draws. Fails: on at most 5 %. Undecided: the exact 95 % "
    "interval of the share of draws contains one half."
)
NOTATION = (
    f"[ ] is a 95 % interval, ( ) the same corrected for all {LINES} lines; of shares exact "
    "(Clopper and Pearson). A gap of a draw on which a trial diverged is ∞. Effects: × ratio of "
    "final gaps, Δ difference of gaps, pp percentage points of accuracy. Power up to 1 is within "
    "the budget."
)
CORRECTED = (
    f"† The verdict does not survive correction for testing all {LINES} claims at once "
    "(Bonferroni)."
)


def read(path):
    """Read a CSV of claims."""
    return pandas.read_csv(path, dtype={"part": str}, encoding="utf-8")


def final(frame):
    """Rows of the last round of their data."""
    return frame[frame["round"] == frame.groupby("data")["round"].transform("max")]


def table(frame):
    """Rows of cells, header first; the second line of a part does not repeat its name."""
    frame = final(frame)
    lines = [cells(row) for row in frame.itertuples()]
    for line, row in zip(lines, frame.itertuples(), strict=True):
        if row.precoder != "offline":
            line[0] = ""
    return [headings(frame), *lines]


def headings(frame):
    """Headings of the full table, with a column of expectations where there is one."""
    return [*HEADINGS, *(["in expectation"] if "expected" in frame else [])]


def cells(row):
    """Cells of one row, in the order of `headings`."""
    expected = getattr(row, "expected", None)
    more = [] if expected is None else ["–"]
    if more and not math.isnan(expected):
        half = 50 * (row.expected_high - row.expected_low)
        more = [f"{100 * expected:.1f} ± {half:.1f} %"]
    return [
        f"({row.part}) {row.claim}",
        row.precoder,
        f"{row.holds_on} of {row.draws}",
        f"{_with_intervals(row, 'share', _percent)} %",
        f"{_with_intervals(row, 'median', _number)} {UNITS[row.unit]}",
        f"{row.power_ratio:.3g}",
        verdict(row),
        *more,
    ]


def verdict(row):
    """The verdict, marked if it is undecided only after correction for all lines."""
    fragile = row.open == "yes" and row.verdict != "undecided"
    return f"{row.verdict}; undecided after correction †" if fragile else row.verdict


def legend(frame):
    """At most four lines that a reader of the table needs."""
    lines = [_sizes(frame), RULE, NOTATION]
    return [*lines, CORRECTED] if _any_mark(frame) else lines


def markdown(frame):
    """The full table, in which both precoders of a part share a row, and its legend."""
    rows, frame = [], final(frame)
    for _, pair in itertools.groupby(frame.itertuples(), lambda row: row.part):
        first, *columns = zip(*map(cells, pair), strict=True)
        rows.append([first[0], *map("<br>".join, columns)])
    return _page(headings(frame), rows, legend(frame))


def short(frame):
    """The short table: counts and verdicts only, a column for each precoder."""
    rows, frame = [], final(frame)
    for _, pair in itertools.groupby(frame.itertuples(), lambda row: row.part):
        pair = list(pair)
        counts = [f"{row.holds_on} of {row.draws}: {verdict(row)}" for row in pair]
        rows.append([cells(pair[0])[0], *counts])
    precoders = [f"{name} precoder" for name in dict.fromkeys(frame.precoder)]
    lines = [_sizes(frame), RULE, *([CORRECTED] if _any_mark(frame) else [])]
    return _page(["claim", *precoders], rows, lines)


def by_round(frame):
    """Tables of the number of draws on which each part holds, by round: offline, then online."""
    pages = []
    for kind, rounds in SHOWN.items():
        own = frame[frame["round"].isin(rounds) & ((frame.unit == "points") == (kind == "images"))]
        rows = []
        for (name, words), part in own.groupby(["part", "claim"], sort=False):
            counts = part.pivot(index="round", columns="precoder", values="holds_on")
            cells = [f"{row.offline}, {row.online}" for row in counts.itertuples()]
            rows.append([f"({name}) {words}", *cells])
        if rows:
            head = [f"of {own.draws.iloc[0]} draws", *(f"R = {r}" for r in rounds)]
            pages.append(page(head, *rows))
    return "\n".join(pages)


def put(text, mark, page):
    """Return `page` with `text` between the two comments of a mark."""
    begin, end = (f"<!-- {mark}: {word} -->" for word in ("begin", "end"))
    inside = f"{begin}\n{text}{end}"
    changed, count = re.subn(f"{begin}.*{end}", lambda _: inside, page, count=1, flags=re.DOTALL)
    if not count:
        raise ValueError(f"there is no {begin} … {end} in the page")
    return changed


def page(headings, *rows):
    """A table as Markdown, header first."""
    return _page(headings, rows, [])


def _page(headings, rows, lines):
    ruled = [headings, ["---"] * len(headings), *rows]
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in ruled)
    return "\n\n".join([drawn, *lines]) + "\n"


def _sizes(frame):
    """Data, draws, trials and seed, in one line."""
    words = []
    for data, rows in frame.groupby("data", sort=False):
        numbers = list(dict.fromkeys(name[0] for name in rows.part))
        row = rows.iloc[0]
        words.append(
            f"Claim{'s' * (len(numbers) > 1)} {', '.join(numbers)}: {data}, after {row['round']} "
            f"rounds, {row.draws} data draws × {row.trials} trials."
        )
    return f"{' '.join(words)} Seed {frame.seed.iloc[0]}."


def _any_mark(frame):
    return any("†" in verdict(row) for row in frame.itertuples())


def _with_intervals(row, name, shown):
    ends = [f"{name}_{end}{kind}" for kind in ("", "_simultaneous") for end in ("low", "high")]
    middle, *bounds = (shown(getattr(row, field)) for field in (name, *ends))
    return f"{middle} [{bounds[0]}, {bounds[1]}] ({bounds[2]}, {bounds[3]})"


def _percent(share):
    return f"{100 * share:.0f}"


def _number(value):
    if math.isnan(value):
        return "–"
    text = "∞" if math.isinf(value) else f"{abs(value):.3g}"
    return f"−{text}" if value < 0 else text
