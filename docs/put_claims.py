"""Puts the results of `jaxota claims` where they are shown: docs/results, docs/claims.md, README.

python docs/put_claims.py DIR    # that claims wrote to
"""

import shutil
import sys
from pathlib import Path

from jaxota._core import files as _files
from jaxota.experiments import claims_page

ROOT = Path(__file__).resolve().parent.parent


def main(folder: Path) -> None:
    rows = claims_page.read(folder / "claims.csv")
    texts = {
        ROOT / "README.md": (claims_page.short(rows), claims_page.SHORT),
        ROOT / "docs" / "claims.md": (claims_page.markdown(rows), claims_page.WHOLE),
    }
    pages = [claims_page.put(*of, page.read_text(encoding="utf-8")) for page, of in texts.items()]
    names = "claims.csv", "claims.png"
    results = [ROOT / "docs" / "results" / name for name in names]
    with _files.replacing(*texts, *results) as drafts:
        for page, draft in zip(pages, drafts, strict=False):
            draft.write_text(page, encoding="utf-8")
        for name, draft in zip(names, drafts[len(pages) :], strict=True):
            shutil.copyfile(folder / name, draft)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
