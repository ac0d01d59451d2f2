"""The benchmarks ask one question each, compare like with like, and notice what has fallen."""

import contextlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxota.cli import main as cli

FOLDER = Path(__file__).parent.parent / "benchmarks" / "throughput"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.name != "bench.py")


@pytest.fixture
def against(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import against

    return against


@pytest.fixture
def small(against):
    """fig1's work with few trials."""
    work = against.work("regression")
    return work._replace(models=work.models[:30], rounds=2)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_one_question(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith('"""') and first.endswith("?"), first
    assert f"python benchmarks/throughput/{path.name}" in path.read_text()


HERE = (
    "numpy_batched",
    "numpy_processes",
    "numpy_loop",
    "numpy_gradients",
    "numpy_statistics",
    "plain_c",
    "ours",
)


@pytest.mark.slow
@pytest.mark.parametrize("script", [*HERE, "ours_full"])
def test_contenders_compute_the_same(against, small, script, tmp_path):
    if script == "plain_c" and not shutil.which("cc"):
        pytest.skip("there is no C compiler here")
    small.save(tmp_path / "work.npz")
    path = FOLDER / "contenders" / f"{script}.py"
    facts = json.loads(against.bench.child(path, tmp_path / "work.npz", 1).splitlines()[-1])
    contender = against.Contender(script, script, noisy=facts["noise"] is not None)
    assert contender.noisy == (script != "numpy_loop")
    against.check("regression", contender, facts, small, facts)
    assert len(facts["seconds"]) >= 1 and facts["user_steps"] % (20 * 10) == 0


@pytest.mark.parametrize("fault", ["models", "noise"])
def test_a_contender_that_computes_something_else_is_refused(against, small, fault):
    models, energy = against.reference(small, 2)[0][:2], against.reference(small, 1)[1]
    draws = np.random.default_rng(0).chisquare(10, energy.size) / 10
    noise = small.ratio * energy / 400 * draws
    right = {"checked": models.tolist(), "noise": noise.tolist()}
    contender = against.Contender("one", "one", noisy=True)
    against.check("regression", contender, right, small, right)
    key = "checked" if fault == "models" else "noise"
    wrong = right | {key: (1.5 * np.asarray(right[key])).tolist()}
    with pytest.raises(SystemExit, match=fault):
        against.check("regression", contender, wrong, small, right)


def test_work_survives_a_file(against, tmp_path):
    for kind in ("regression", "cnn"):
        work = against.work(kind)
        work.save(tmp_path / "work.npz")
        read = type(work).load(tmp_path / "work.npz")
        assert read.shapes == work.shapes
        for mine, other in zip(read[:-1], work[:-1], strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.slow
@pytest.mark.parametrize("share, code", [(1.0, 0), (0.75, 0), (0.65, 1)])
def test_a_ratio_that_has_fallen_fails(monkeypatch, capsys, share, code):
    monkeypatch.syspath_prepend(FOLDER)
    import check

    kept = json.loads(check.KEPT.read_text())
    found = dict.fromkeys(kept, 100.0) | {next(iter(kept)): share * next(iter(kept.values()))}
    monkeypatch.setattr(check, "ratios", lambda: found)
    monkeypatch.setattr(sys, "argv", ["check.py"])
    assert check.main() == code
    assert ("SLOWER" in capsys.readouterr().out) == bool(code)


def test_the_command_runs_the_short_ones(monkeypatch, tmp_path):
    ran = []

    class Started(contextlib.nullcontext):
        pid = None

        def __init__(self, command, start_new_session):
            super().__init__(self)
            ran.append(command)

        def wait(self):
            return len(ran) - 1

    monkeypatch.setattr("subprocess.Popen", Started)
    assert cli.main(["bench", "--out", str(tmp_path)]) == 1  # the second fails
    assert [Path(command[1]).name for command in ran] == ["against.py", "limits.py"]
    assert all(Path(command[1]).exists() and "--short" in command for command in ran)


def test_contenders_that_did_not_run_keep_the_ratio_of_their_run(against):
    before = [{"name": "jaxota", "rate": 10.0}, {"name": "FedJAX", "rate": 2.0}]
    before.append({"name": "of old", "rate": 1.0})  # no contender any more
    _, *contenders = against.CONTESTS["regression"]
    (row,) = against.kept_rows(before, [{"name": "jaxota", "rate": 30.0}], contenders)
    assert row == {"name": "FedJAX", "rate": 2.0, "times": 5.0}
    assert against.kept_rows([row], [{"name": "jaxota"}], contenders) == [row]  # once more
