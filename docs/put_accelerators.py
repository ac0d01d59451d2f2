"""Put the results of benchmarks/throughput/accelerators.py into docs/accelerators.md.

python docs/put_accelerators.py
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for folder in ("paper", "throughput"):
    sys.path.insert(0, str(ROOT / "benchmarks" / folder))

from accelerators import LINES, SEVERAL, SPREAD, TITLES  # noqa: E402 (found by the lines above)
from claims_page import put  # noqa: E402

RESULTS = ROOT / "benchmarks" / "throughput" / "results" / "accelerators.json"
PAGE = ROOT / "docs" / "accelerators.md"


def rate(facts: dict[str, Any]) -> str:
    """User-steps per second of a line, or why there are none."""
    return f"{facts['rate']:.1e}" if "rate" in facts else facts.get("failure", "–")


def number(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,g}"


def table(results: dict[str, Any], chip: str) -> str:
    """Rates of all lines on a chip, before and after, as Markdown."""
    heading = "| | before | after | × | time | bound | temporaries | compiled in |"
    rows = [f"{TITLES[chip]}, user-steps/s:", "", heading, "|---|---|---|---|---|---|---|---|"]
    for name in LINES:
        if not any(name in lines.get(chip, {}) for lines in results.values()):
            continue
        before, after = (results[when].get(chip, {}).get(name, {}) for when in ("before", "after"))
        both = "rate" in before and "rate" in after
        cells = [rate(before), rate(after), f"{after['rate'] / before['rate']:.2g}" if both else ""]
        if "rate" in after:
            cells += [f"{number(1e3 * after['seconds'])} ms", after["bound"]]
            cells += [
                f"{number(after['temporaries'] / 1e6)} MB",
                f"{after['compile_seconds']:.0f} s",
            ]
        else:
            cells += [""] * 4
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def several(results: dict[str, Any]) -> str:
    """Time of one line on 1, 4 and 8 chips."""
    rows = ["| | 1 chip | 4 chips | 8 chips |", "|---|---|---|---|"]
    for chip, names in SEVERAL.items():
        found = [results["after"].get(name, {}).get(SPREAD, {}) for name in names]
        cells = [f"{number(1e3 * x['seconds'])} ms" if "seconds" in x else rate(x) for x in found]
        rows.append(f"| {TITLES[chip].partition(',')[0]} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def made(results: dict[str, Any]) -> str:
    """Which commits were compiled."""
    commits = {
        when: dict.fromkeys(x["commit"] for lines in chips.values() for x in lines.values())
        for when, chips in results.items()
    }
    words = (f"*{when}*: commit {', '.join(found)}" for when, found in commits.items())
    return "; ".join(words) + ".\n"


def filled(page: str, results: dict[str, Any]) -> str:
    """Return the page with all tables between their marks."""
    for chip in TITLES:
        page = put(table(results, chip), chip, page)
    return put(made(results), "commits", put(several(results), "several", page))


def main() -> None:
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(filled(PAGE.read_text("utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
