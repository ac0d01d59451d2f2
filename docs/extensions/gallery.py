"""The directive `picture`: commands, as they stand, and the picture that they make.

    ```{picture} out/fig1.png
    jaxota run fig1 --trials 20 --out out
    ```

Each runs once, in a folder of its own below `build/pictures`, and again when it is changed. With
`picture_run` off, as the tests have it, a blank takes its place.
"""

import hashlib
import shlex
import subprocess
import sys
from pathlib import Path

import imagesize
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

log = logging.getLogger(__name__)


def made(commands: list[str], picture: str, root: Path) -> Path:
    """The picture's path; it is made where there is none."""
    folder = root / hashlib.sha256("\n".join(commands).encode()).hexdigest()[:12]
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for command in commands:
            log.info("picture: %s", command)
            run = [sys.executable, "-m", "jaxota", *shlex.split(command)[1:]]
            done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{command}: {done.stderr}")
        (folder / "done").touch()
    return folder / picture


class Picture(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"alt": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        commands, root = list(self.content), Path(self.env.srcdir)
        path, size = root / "docs" / "_static" / "blank.svg", {}
        if self.config.picture_run:
            path = made(commands, self.arguments[0], root / "build" / "pictures")
            size = {"width": f"{imagesize.get(path)[0] // 2}px"}  # they have 300 dots an inch
        shown = nodes.literal_block("\n".join(commands), "\n".join(commands), language="sh")
        image = nodes.image(
            uri=f"/{path.relative_to(root)}", alt=self.options.get("alt", ""), **size
        )
        return [shown, image]


def setup(app):
    app.add_config_value("picture_run", True, "env", bool)
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True}
