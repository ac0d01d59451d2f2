"""What a package index would show of the project."""

import re
import sys
import tomllib
import types
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_readme_of_the_package_has_no_dead_ends(monkeypatch):
    interface = types.SimpleNamespace(MetadataHookInterface=object)  # hatchling only builds
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    monkeypatch.syspath_prepend(ROOT)
    from hatch_build import portable

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*)\)", readme)
    assert any(not link.startswith("https://") for link in links)
    shown = re.findall(r"\]\(([^)]*)\)", portable(readme))
    assert shown and all(link.startswith("https://") for link in shown)
    assert "![" not in portable(readme) and "Using jaxota" in portable(readme)


def test_all_is_for_users():
    """No linter, type checker or site builder is installed for somebody who only simulates."""
    extras = PROJECT["optional-dependencies"]
    (names,) = re.findall(r"\[(.*)\]", extras["all"][0])
    wanted = {re.split(r"[<>=\[]", need)[0] for name in names.split(",") for need in extras[name]}
    assert not wanted & {"ruff", "mypy", "pytest", "sphinx", "myst-nb"} and "nbclient" in wanted


def test_classifiers_name_the_versions_that_are_tested():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    versions = re.findall(r"python(3\.\d+)", makefile)
    for version in set(versions) & {"3.11", "3.12", "3.13"}:
        assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    assert "Typing :: Typed" in PROJECT["classifiers"]
