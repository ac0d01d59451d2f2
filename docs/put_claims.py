"""Put the results of benchmarks/paper/claims.py into docs/results, docs/claims.md and README.md.

python docs/put_claims.py DIR    # the folder that the claims were written to
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "paper"))

import claims_page  # noqa: E402 (found by the line above)


def main(folder: Path) -> None:
    frame = claims_page.read(folder / "claims.csv")
    tables = {
        ROOT / "README.md": (claims_page.short(frame), claims_page.SHORT),
        ROOT / "docs" / "claims.md": (claims_page.markdown(frame), claims_page.FULL),
    }
    # All pages are made before one is written: a missing mark must change nothing.
    pages = {path: claims_page.put(*own, path.read_text("utf-8")) for path, own in tables.items()}
    for path, page in pages.items():
        path.write_text(page, encoding="utf-8")
    for name in ("claims.csv", "claims.png"):
        shutil.copyfile(folder / name, ROOT / "docs" / "results" / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
