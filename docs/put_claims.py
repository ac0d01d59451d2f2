"""Puts the results of `jaxota claims` where they are shown: docs/results, and the README's table.

python docs/put_claims.py DIR    # that claims wrote to
"""

import shutil
import sys
from pathlib import Path

from jaxota import _files
from jaxota.experiments import claims_page

ROOT = Path(__file__).resolve().parent.parent


def main(folder: Path) -> None:
    page = claims_page.put(
        claims_page.read(folder / "claims.csv"), (ROOT / "README.md").read_text(encoding="utf-8")
    )
    names = "claims.csv", "claims.png"
    with _files.replacing(*(ROOT / "docs" / "results" / name for name in names)) as drafts:
        for name, draft in zip(names, drafts, strict=True):
            shutil.copyfile(folder / name, draft)
    with _files.replacing(ROOT / "README.md") as (draft,):
        draft.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
