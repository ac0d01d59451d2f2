"""The studies in benchmarks/paper and benchmarks/wise are written as a user would write them."""

import ast
import sys
from pathlib import Path

import pytest

import jaxota as jo

ROOT = Path(__file__).parent.parent / "benchmarks"
FILES = sorted(path for room in ("paper", "wise") for path in (ROOT / room).glob("*.py"))
LIBRARIES = {"jax", "matplotlib", "numpy", "optax", "pandas", "scipy", "xarray"}


def _imports(tree):
    """Yield (module, name or None) of every import of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _chain(node):
    """The names of `jo.a.b`, outermost first, or nothing."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [*reversed(names)] if isinstance(node, ast.Name) and node.id == "jo" else []


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_import_jaxota_alone_reaches_everything(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    beside = {other.stem for other in path.parent.glob("*.py")}
    for module, name in _imports(tree):
        package = module.partition(".")[0]
        if package == "jaxota":
            # `from jaxota import stats` names what `jo.stats` does; submodules are private.
            assert module == "jaxota" and (name is None or hasattr(jo, name)), (module, name)
        else:
            known = package in LIBRARIES or package in beside or package in sys.stdlib_module_names
            assert known, module
    for node in ast.walk(tree):
        value = jo
        for name in _chain(node):
            assert not name.startswith("_"), f"jo…{name} is private"
            assert hasattr(value, name), f"jo has no {'.'.join(_chain(node))}"
            value = getattr(value, name)
            if not isinstance(value, type(sys)):  # attributes of objects are no names of modules
                break


def test_there_are_studies():
    names = {path.name for path in FILES}
    assert {"claims.py", "regimes.py", "reproduction.py", "bounds.py", "rates.py"} <= names
