"""Put the results of benchmarks/throughput/against.py into README.md and docs/throughput.md.

python docs/put_speed.py
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for folder in ("paper", "throughput"):
    sys.path.insert(0, str(ROOT / "benchmarks" / folder))

from against import work_in_words  # noqa: E402 (found by the lines above)
from claims_page import put  # noqa: E402

RESULTS = ROOT / "benchmarks" / "throughput" / "results" / "against.json"


def table(facts: list[dict[str, Any]]) -> str:
    """Rates of a contest as Markdown, the fastest first."""
    ours = facts[0]
    lines = ["| | work | user-steps/s | jaxota is × faster |", "|---|---|---|---|"]
    # A row that is kept from an earlier run has the ratio of that run; rates of two runs on a
    # shared machine, or on two machines, cannot be compared.
    pairs = [(each.get("times", ours["rate"] / each["rate"]), each) for each in facts]
    for times, each in sorted(pairs, key=lambda pair: pair[0]):
        name, rate = each["name"], f"{each['rate']:.1e}"
        if "times" in each:
            name, rate = f"{name} †", "–"
        lines.append(f"| {name} | {work_in_words(each, ours)} | {rate} | {times:.2g} |")
    if any("times" in each for each in facts):
        lines += ["", "† From an earlier run; the ratio is to jaxota's rate in that run."]
    return "\n".join(lines) + "\n"


def untimed(facts: list[dict[str, Any]]) -> str:
    """Seconds of jaxota's first call, and its share of the rate of plain C."""
    ours = facts[0]
    words = (
        f"Not timed: compiling and calibrating. jaxota's first call takes {ours['first']:.1f} s, "
        f"of which calibration takes {ours['calibration_s']:.1f} s, both with their compilation.\n"
    )
    for each in facts:
        if each["name"] == "plain C":
            share = 100 * ours["rate"] / each["rate"]
            words += f"jaxota reaches {share:.0f} % of the rate of plain C in the same run.\n"
    return words


def filled(page: str, results: dict[str, Any]) -> str:
    """Return a page with the tables of all contests between their marks."""
    for kind, facts in results.items():
        if kind != "machine" and f"<!-- {kind}: begin -->" in page:
            text = table(facts)
            if kind == "regression":
                text += "\n" + untimed(facts)
            page = put(text, kind, page)
    return page


def main() -> None:
    results = json.loads(RESULTS.read_text())
    for path in (ROOT / "README.md", ROOT / "docs" / "throughput.md"):
        path.write_text(filled(path.read_text("utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
