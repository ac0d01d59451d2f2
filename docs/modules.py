"""Print the modules of jaxota, one line each; `--write` puts the list into CONTRIBUTING.md."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
LIST = re.compile(r"(?<=<!-- modules: begin -->\n).*(?=<!-- modules: end -->)", re.DOTALL)


def modules() -> str:
    """Return a block of text: name and first docstring line of each module, by package."""
    package = ROOT / "jaxota"
    lines = {}
    for path in package.rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        name = path.relative_to(package).with_suffix("").as_posix().removesuffix("__init__")
        lines[name or "__init__"] = docstring.partition("\n")[0]
    names = sorted(lines, key=lambda name: ("/" in name, name))  # modules before packages
    width = max(map(len, names)) + 2
    return "\n".join(["```text", *(f"{name:{width}}{lines[name]}" for name in names), "```", ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(LIST.sub(lambda _: modules(), page), encoding="utf-8")
    else:
        print(modules(), end="")
