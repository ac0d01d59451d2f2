"""The directive `picture`: commands of jaxota, and the picture that they draw.

    ```{picture} out/fig1.png
    jaxota run fig1 --trials 20 --out out
    ```

The commands run once, in a folder of their own below `build/pictures`, and again when they change.
A path below `benchmarks/` is that of the checkout. If `picture_run` is off, as in the tests, a
blank image stands in for the picture.
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
CHECKOUT = Path(__file__).parents[2]


def made(commands: list[str], picture: str, root: Path) -> Path:
    """Run the commands unless that was done before; returns the path of their picture."""
    folder = root / hashlib.sha256("\n".join(commands).encode()).hexdigest()[:12]
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for command in commands:
            log.info("picture: %s", command)
            words = shlex.split(command)[1:]
            words = [str(CHECKOUT / x) if x.startswith("benchmarks/") else x for x in words]
            run = [sys.executable, "-m", "jaxota", *words]
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
            size = {"width": f"{imagesize.get(path)[0] // 2}px"}  # pictures have 300 dots per inch
        shown = nodes.literal_block("\n".join(commands), "\n".join(commands), language="sh")
        image = nodes.image(
            uri=f"/{path.relative_to(root)}", alt=self.options.get("alt", ""), **size
        )
        return [shown, image]


def setup(app):
    app.add_config_value("picture_run", True, "env", bool)
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True}
