"""Run the Python and the commands that README and the pages show."""

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import jaxota as jo
from jaxota import theory
from jaxota.cli import main as cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
USING, COMMAND = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("using", "command")
)


def _blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _run(block, names, file):
    """Run a block as a script, and compare shapes with the comments that state them."""
    exec(compile(block, file, "exec"), names)
    shapes = re.findall(r"^(\S+\.shape)\s+# (\([\d, ]+\))", block, re.MULTILINE)
    for expression, shape in shapes:
        assert str(eval(expression, names)) == shape
    return len(shapes)


@pytest.mark.slow
def test_readme_example_prints_the_output_shown(capsys):
    (block,), (shown,) = _blocks("python"), _blocks("text")
    assert block.count("\n") <= 12
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    expected = [line.split() for line in shown.splitlines()]
    assert [line[0] for line in lines] == [line[0] for line in expected] and len(expected) == 4
    for printed, line in zip(lines, expected, strict=True):  # within the interval shown
        assert float(printed[1]) == pytest.approx(float(line[1]), abs=float(line[3]))


@pytest.mark.slow
def test_using_page_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}  # as a script has it
    blocks = _blocks("python", USING)
    assert len(blocks) >= 15
    for block in blocks:
        _run(block, names, "using.md")
    assert (tmp_path / "plan.npz").exists() and (tmp_path / "run.nc").exists()
    for picture in ("curves.png", "partition.png"):
        assert (tmp_path / picture).stat().st_size > 10_000
    assert names["difference"].mean.shape == (20,)
    bound, constants = names["bound"], names["constants"]
    control, step = bound.terms["control_noise"], theory.step_size(constants, 100, theory.theorem_2)
    assert f"# {float(bound.total):.2g} and {float(control):.2g}\n" in USING
    assert f"the proofs' choice, {float(step):.1e}".replace("e-0", "e-") in USING
    assert all(bound.conditions.values())
    bound = names["bound"]
    assert all(bound.conditions.values()) and len(bound.conditions) == 5
    assert f"{bound.total:.2g} and {bound.control_noise:.2g}" in USING


@pytest.mark.slow
def test_command_page_runs_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    commands = [
        shlex.split(line, comments=True)
        for block in _blocks("sh", COMMAND)
        for line in block.splitlines()
        if line.startswith("jaxota ")
    ]
    names = [command[1] for command in commands]
    assert names == ["list", "run", "run", "sweep", "show", "report"]
    for command in commands:
        assert cli.main(command[1:]) == 0
    assert {"fig1.png", "fig1.csv", "study.json", "chunks"} <= set(os.listdir(tmp_path / "sweep"))
    assert sorted(os.listdir(tmp_path / "out")) == [
        *(f"{name}.{ending}" for name in ("fig1", "fig5") for ending in ("csv", "nc", "png")),
        "report.html",
    ]


def test_readme_commands_are_make_targets():
    first = _blocks("sh")[0].split("\n")
    targets = [line.split()[1] for line in first if line.startswith("make")]
    assert targets == ["figures", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_pins_are_plain_names_and_versions():
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    by_python = r'(; python_version (<|>=) "3\.\d+")?'
    assert all(re.fullmatch(rf"[\w.-]+==[\w.+-]+{by_python}", line) for line in pinned)


@pytest.mark.slow
def test_scaling_page_runs_as_shown(tmp_path, monkeypatch):
    """Run its study and its commands in order, the tasks of its array, and a Dask cluster."""
    distributed = pytest.importorskip("distributed")
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    (study,) = _blocks("python", page)
    (tmp_path / "my_study.py").write_text(study, encoding="utf-8")
    lines = [line for block in _blocks("sh", page) for line in block.splitlines()]
    lines = [line for line in lines if line.startswith("jaxota ")]
    assert [line.split()[1] for line in lines] == ["sweep", "show", *["sweep"] * 5]
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    )
    with cluster:
        for line in lines:
            for task in range(4) if "SLURM" in line else (0,):
                command = line.replace("$SLURM_ARRAY_TASK_ID", str(task))
                command = command.replace("$SCHEDULER", cluster.scheduler_address)
                assert cli.main(shlex.split(command, comments=True)[1:]) == 0, command
    for folder, trials in (("sweep", 20), ("mine", 60), ("array", 20), ("clustered", 20)):
        data = jo.open(folder)
        assert data.sizes["trial"] == trials and not data.gap.isnull().any()
    alone = jo.open("mine").gap.isel(trial=slice(20))
    np.testing.assert_allclose(jo.open("clustered").gap, alone, rtol=1e-4)


@pytest.mark.slow
def test_throughput_page_runs_as_shown():
    page = (ROOT / "docs" / "throughput.md").read_text(encoding="utf-8")
    (block,) = _blocks("python", page)
    names = {"__name__": "__main__"}
    exec(compile(block, "throughput.md", "exec"), names)
    assert names["history"].gap.shape == (20, 20)
    assert np.isfinite(names["history"].gap).all()


@pytest.mark.slow
def test_parts_page_runs_as_shown():
    """Run one part of each stage; FedProx written there equals `jo.Proximal`."""
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    names, shapes = {"__name__": "__main__"}, 0
    for block in _blocks("python", page):
        shapes += _run(block, names, "parts.md")
        assert np.isfinite(names["history"].model).all() if "history" in names else not shapes
    assert shapes == 5
    own, ours = (history.model for history in names["histories"])
    np.testing.assert_allclose(own, ours, atol=1e-5)
    assert np.abs(ours[0] - ours[1]).max() > 1e-3
    stages = ("local", "compress", "precode", "estimate", "server", "medium", "noise", "fading")
    assert all(f"{name}=" in page for name in stages)
    assert "docs/parts.md" in README


@pytest.mark.slow
def test_wise_page_runs_as_shown():
    page = (ROOT / "docs" / "wise.md").read_text(encoding="utf-8")
    names = {"__name__": "__main__"}
    for block in _blocks("python", page):
        _run(block, names, "wise.md")
    wise, cotaf = (np.asarray(names[name].gap)[:, -1].mean() for name in ("wise", "cotaf"))
    assert wise < cotaf / 4  # "by far"
    assert "docs/wise.md" in README


def test_speed_tables_are_made_of_the_stored_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import put_speed

    results = json.loads(put_speed.RESULTS.read_text())
    for path in ("README.md", "docs/throughput.md"):
        page = (ROOT / path).read_text(encoding="utf-8")
        assert put_speed.filled(page, results) == page
        results["regression"][0]["rate"] *= 2
        assert put_speed.filled(page, results) != page
        results["regression"][0]["rate"] /= 2
    noise_free = dict(results["regression"][0], noisy=False, trials=1)
    words = put_speed.work_in_words(noise_free, results["regression"][0])
    assert words == "FedAvg without noise, 1 trial"


def test_throughput_tables_match_the_benchmark_results():
    """Find every row of the tables on the page and in README in the stored results."""
    folder = ROOT / "benchmarks" / "throughput" / "results"
    kept = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    rows = {(name, f"{ns:.1f}") for name, ns in kept["limits"]["nanoseconds"].items()}
    text = README + (ROOT / "docs" / "throughput.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (.+?) \|$", text.split("## Feature")[0], re.MULTILINE)
    tables = [tuple(cell.strip() for cell in row.split("|")) for row in shown]
    numbered = [row for row in tables if re.search(r"^[\d.]+(e[+-]\d+)?$", row[1])]
    assert len(numbered) >= len(rows)
    assert set(numbered) <= rows, set(numbered) - rows
