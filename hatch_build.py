"""Make the description for a package index: the README without pictures and relative links."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Set `readme` of the project's metadata."""

    def update(self, metadata: dict) -> None:
        """Add the text of the README, in which every link leads somewhere."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": portable(text)}


def portable(readme: str) -> str:
    """Drop pictures, and links to files of the repository, which an index does not hold."""
    without = re.sub(r"!\[[^\]]*\]\((?!https://)[^)]*\)\n*", "", readme)
    return re.sub(r"\[([^\]]*)\]\((?!https://)[^)]*\)", r"\1", without)
