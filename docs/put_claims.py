"""Put the results of benchmarks/paper into docs/results, docs/claims.md and README.md.

python docs/put_claims.py DIR    # the folder that claims.py and readings.py wrote to
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "paper"))

import claims_page  # noqa: E402 (found by the line above)
import pandas  # noqa: E402
import readings  # noqa: E402

NAMES = "claims.csv", "claims.png", "readings.csv", "readings.png"
OTHERS = "regimes.png", "reproduction.png"  # copied where they are


def main(folder: Path) -> None:
    frame = claims_page.read(folder / "claims.csv")
    read = pandas.read_csv(folder / "readings.csv", dtype={"claim": str})
    readme, page = ROOT / "README.md", ROOT / "docs" / "claims.md"
    # All pages are made before one is written: a missing mark must change nothing.
    short = claims_page.put(claims_page.short(frame), claims_page.SHORT, readme.read_text("utf-8"))
    full = claims_page.put(claims_page.markdown(frame), claims_page.FULL, page.read_text("utf-8"))
    full = claims_page.put(claims_page.by_round(frame), claims_page.ROUNDS, full)
    table = claims_page.page(*readings.table(read))
    full = claims_page.put(table, claims_page.READINGS, full)
    readme.write_text(short, encoding="utf-8")
    page.write_text(full, encoding="utf-8")
    for name in (*NAMES, *(name for name in OTHERS if (folder / name).exists())):
        shutil.copyfile(folder / name, ROOT / "docs" / "results" / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
