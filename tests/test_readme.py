"""What the README shows is run: its Python in order, its commands as they stand."""

import os
import re
import shlex
from pathlib import Path

import pytest

from jaxota import cli, theory

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_python_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}  # as a script has it
    blocks = _blocks("python")
    assert len(blocks) == 8
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
        for expression, shape in re.findall(
            r"^(\S+\.shape)\s+# (\([\d, ]+\))", block, re.MULTILINE
        ):
            assert str(eval(expression, names)) == shape
    for picture in ("curves.png", "partition.png"):
        assert (tmp_path / picture).stat().st_size > 10_000
    assert names["difference"].mean.shape == (20,)
    bound, constants = names["bound"], names["constants"]
    control, step = bound.terms["control_noise"], theory.step_size(constants, 100, theory.theorem_2)
    assert f"# {float(bound.total):.2g} and {float(control):.2g}\n" in README
    assert f"the proofs' choice, {float(step):.1e}".replace("e-0", "e-") in README
    assert all(bound.conditions.values())
    bound = names["bound"]
    assert all(bound.conditions.values()) and len(bound.conditions) == 5
    assert f"{bound.total:.2g} and {bound.control_noise:.2g}" in README


@pytest.mark.slow
def test_commands_run_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    commands = [
        shlex.split(line, comments=True)
        for block in _blocks("sh")
        for line in block.splitlines()
        if line.startswith("jaxota ")
    ]
    assert [command[1] for command in commands] == ["list", "run", "run"]
    for command in commands:
        assert cli.main(command[1:]) == 0
    assert sorted(os.listdir(tmp_path / "out")) == [
        f"{name}.{ending}" for name in ("fig1", "fig5") for ending in ("csv", "nc", "png")
    ]


def test_make_knows_the_two_commands():
    first = _blocks("sh")[0].split("\n")
    targets = [line.split()[1] for line in first if line.startswith("make")]
    assert targets == ["figures", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_pins_are_plain_names_and_versions():
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+-]+", line) for line in pinned)
