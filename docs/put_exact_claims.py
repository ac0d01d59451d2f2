"""Put the results of `jaxota run benchmarks/paper/exact_claims.py --out FOLDER` into the docs.

python docs/put_exact_claims.py FOLDER
"""

import re
import shutil
import sys
from pathlib import Path

import pandas

DOCS = Path(__file__).parent
ROUNDS = (5, 10, 20, 30, 60)
TABLE = re.compile(r"(<!-- exact claims: begin -->\n).*?(<!-- exact claims: end -->)", re.S)


def table(frame: pandas.DataFrame) -> str:
    """Return the shares after some rounds as Markdown."""
    lines = ["| claim | " + " | ".join(f"R = {r}" for r in ROUNDS) + " |"]
    lines.append("|---" * (1 + len(ROUNDS)) + "|")
    for part, rows in frame.groupby("part", sort=False):
        own = rows.set_index("round").loc[list(ROUNDS)]
        cells = [
            f"{100 * one.share:.1f} ± {50 * (one.ci_high - one.ci_low):.1f}"
            for one in own.itertuples()
        ]
        lines.append(f"| ({part}) {own.words.iloc[0]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def put(frame: pandas.DataFrame, page: str) -> str:
    """Return the page with this table in its place."""
    return TABLE.sub(lambda match: match[1] + table(frame) + match[2], page)


if __name__ == "__main__":
    folder, page = Path(sys.argv[1]), DOCS / "exact.md"
    for ending in ("csv", "png"):
        shutil.copy(folder / f"exact_claims.{ending}", DOCS / "results")
    stored = pandas.read_csv(DOCS / "results" / "exact_claims.csv")
    page.write_text(put(stored, page.read_text(encoding="utf-8")), encoding="utf-8")
