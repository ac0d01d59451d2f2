"""Print size and shape of a checkout's package: `python docs/house.py [--root FOLDER ...]`."""

import argparse
import ast
import contextlib
import importlib
import io
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import tokenize
import tomllib
from pathlib import Path

RIDDLES = ("What", "Of", "Those", "It", "By")
FIG1 = "fig1 --trials 2 --rounds 3 --out out"
PATHS = {  # commands in turn; only the last one is followed
    "simulate": ["simulate"],
    "run fig1": [f"run {FIG1}"],
    "sweep": [f"sweep {FIG1} --set snr_db=0,10"],
    "report": [f"run {FIG1}", "report out"],
}


def text_facts(root: Path) -> dict[str, str]:
    """Count what can be read without running anything."""
    paths = sorted((root / "jaxota").rglob("*.py"))
    names = [".".join(p.relative_to(root).with_suffix("").parts) for p in paths]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    trees = {n.removesuffix(".__init__"): ast.parse(t) for n, t in zip(names, texts, strict=True)}
    importers: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                # `from jaxota.x import y` imports the module y if there is one, else x.
                start = node.module if isinstance(node, ast.ImportFrom) else ""
                full = [f"{start}.{alias.name}".lstrip(".") for alias in node.names]
                for imported in {path if path in trees else start for path in full}:
                    importers.get(imported, set()).add(name)
    lines = sum(text.count("\n") for text in texts)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [n for tree in trees.values() for n in ast.walk(tree) if isinstance(n, kinds)]
    docstrings = [text for text in map(ast.get_docstring, nodes) if text]
    riddles = sum(text.split()[0].rstrip(",:") in RIDDLES for text in docstrings)
    tokens = [t for text in texts for t in tokenize.generate_tokens(io.StringIO(text).readline)]
    comments = sum(token.type == tokenize.COMMENT for token in tokens)
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    with tempfile.TemporaryDirectory() as folder:
        wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, str(root)]
        subprocess.run(wheel, check=True)
        (size,) = [p.stat().st_size for p in Path(folder).iterdir()]
    return {
        "files": f"{len(paths)}",
        "lines": f"{lines:,}",
        "modules with one importer": f"{sum(len(by) == 1 for by in importers.values())}",
        f"docstrings that begin with {'/'.join(RIDDLES)}": f"{riddles} of {len(docstrings):,}",
        "comments per 1,000 lines": f"{1000 * comments / lines:.0f}",
        "dependencies": f"{len(project['dependencies'])}",
        "wheel": f"{size / 1000:.0f} kB",
    }


def follow(root: Path, command: str) -> tuple[int, int, int]:
    """Run a command in this process; return files, their lines, and calls between files."""
    import jaxota

    for module in pkgutil.walk_packages(jaxota.__path__, "jaxota."):  # importing does not count
        importlib.import_module(module.name)
    inside, files, switches = str(root / "jaxota") + os.sep, set(), 0

    def look(frame, event, _):
        nonlocal switches
        file, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and file.startswith(inside):
            files.add(file)
            # The nearest caller in jaxota, past JAX's own frames.
            while caller is not None and not caller.f_code.co_filename.startswith(inside):
                caller = caller.f_back
            switches += caller is not None and caller.f_code.co_filename != file

    sys.argv = ["jaxota", *command.split()]
    threading.setprofile(look)
    sys.setprofile(look)
    if command == "simulate":
        task = jaxota.tasks.synthetic_regression(importlib.import_module("jax").random.key(0))
        jaxota.simulate(task.key, jaxota.cobaaf(1e-2, 5, 10), jaxota.Channel(), task, 3, 2)
    else:
        with contextlib.suppress(SystemExit):
            importlib.import_module("jaxota.__main__").main()
    sys.setprofile(None)
    return len(files), sum(Path(file).read_text("utf-8").count("\n") for file in files), switches


def facts(root: Path) -> dict[str, str]:
    """Return the numbers of one checkout, each path followed in a process of its own."""
    column = text_facts(root)
    environment = os.environ | {"PYTHONPATH": str(root), "JAXOTA_CACHE": "off"}
    for name, (*before, last) in PATHS.items():
        commands = [["-m", "jaxota", *command.split()] for command in before]
        commands += [[str(Path(__file__).resolve()), "--root", str(root), "--follow", last]]
        with tempfile.TemporaryDirectory() as folder:
            place = {"cwd": folder, "env": environment, "text": True}
            runs = [subprocess.check_output([sys.executable, *c], **place) for c in commands]
        files, lines, switches = map(int, runs[-1].splitlines()[-1].split())
        column[f"`{name}`: files (lines)"] = f"{files} ({lines:,})"
        column[f"`{name}`: calls between files"] = f"{switches:,}"
    return column


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=lambda path: Path(path).resolve(), action="append")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    roots = options.root or [Path(__file__).resolve().parent.parent]
    if options.follow:
        print(*follow(roots[0], options.follow))
    else:
        columns = [facts(root) for root in roots]
        print("| |", " | ".join(root.name for root in roots), "|")
        print("|---" * (len(roots) + 1) + "|")
        for row in columns[0]:
            print(f"| {row} |", " | ".join(column[row] for column in columns), "|")
