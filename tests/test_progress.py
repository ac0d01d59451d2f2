"""Progress says how long work has taken, and how much is left only where that is known."""

import contextlib
import io
import re

import jax
import numpy as np
import pytest
import rich.console

import jaxota as jo
from jaxota._core import progress
from jaxota._core.progress import Meter, clock


def at(*reports, name="fig1"):
    """A meter that was given reports (now, stage, done, of, steps)."""
    meter = Meter(name, begun=0.0)
    for report in reports:
        meter.update(*report)
    return meter


def test_a_line_says_what_is_elapsed_and_what_is_left():
    meter = at((0, "compiling"), (10, "running", 0, 12), (12, "running", 1, 12, 4e6))
    assert meter.words(12) == "fig1: running · 1 of 12 · elapsed 0:12 · 2e+06 user-steps/s"
    meter.update(15, "running", 2, 12, 8e6)
    words = "fig1: running · 2 of 12 · elapsed 0:15 · about 0:30 left · 1.6e+06 user-steps/s"
    assert meter.words(15) == words
    assert "elapsed 0:25 · about 0:20 left" in meter.words(25)  # it counts down by itself


def test_nothing_is_estimated_before_it_is_known():
    compiled_first = (0, "compiling"), (60, "running", 0, 9)
    for reports in (compiled_first, (*compiled_first, (61, "running", 1, 9, 1.0))):
        assert at(*reports).left(61) is None and "left" not in at(*reports).words(61)
    once = at((0, "running", 0, 1), (100, "running", 1, 1, 5.0))
    assert once.left(100) is None and " of " not in once.words(100)


def test_estimates_leave_out_what_is_done_once():
    """A minute of compiling and calibrating, then two seconds for each of ten chunks."""
    before = (0, "compiling"), (40, "calibrating", 0, 100), (60, "running", 0, 10)
    meter = at(*before, *((60 + 2 * k, "running", k, 10, 1e3 * k) for k in range(1, 6)))
    assert meter.left(70) == pytest.approx(10.0)
    assert meter.rate == pytest.approx(500.0)  # of 10 s, not of 70


def test_the_rate_is_of_running_alone_where_calibrations_come_between():
    reports, now = [], 0.0
    for k in range(1, 5):
        reports += [(now, "calibrating", 0, 100), (now + 9, "running", k - 1, 8, 1e3 * (k - 1))]
        now += 10
        reports.append((now, "running", k, 8, 1e3 * k))
    meter = at(*reports)
    assert meter.rate == pytest.approx(1e3) and meter.left(now) == pytest.approx(40.0)
    assert meter.summary(now) == "fig1: calibrating 0:36 · running 0:04"


def test_no_estimate_is_negative_or_called_elapsed():
    draw = np.random.default_rng(0)
    for _ in range(200):
        meter, now, done, of = Meter("x", 0.0), 0.0, 0, int(draw.integers(1, 30))
        while done < of:
            now += draw.exponential(5)
            stage = draw.choice(["compiling", "calibrating", "running"])
            done += int(draw.integers(0, 3)) if stage == "running" else 0
            meter.update(now, str(stage), min(done, of), of, 10.0 * done)
            later = now + draw.exponential(20)
            left, words = meter.left(later), meter.words(later)
            assert left is None or left > 0
            assert f"elapsed {clock(later)}" in words
            labelled = re.findall(r"(\w+) [\d:]+(?: left)?(?= ·|$)", words)
            assert [w for w in labelled if w not in ("elapsed", "about", "of")] == []
            assert ("left" in words) == (left is not None)
        assert meter.left(now) is None  # nothing is left


@pytest.mark.parametrize("width", [20, 46, 66, 80, 200])
def test_a_narrow_line_drops_whole_parts(width):
    meter = at((0, "running", 0, 9), (5, "running", 1, 9, 1e6), (10, "running", 2, 9, 2e6))
    line, whole = meter.words(10, width), meter.words(10)
    assert whole.startswith(line) and len(line) <= max(width, len("fig1: running"))
    assert line == whole or whole[len(line) :].startswith(" · ")


def test_a_terminal_shows_one_line_that_is_true(monkeypatch):
    """At 80 columns, as rich draws it."""
    drawn = io.StringIO()
    console = rich.console.Console(file=drawn, force_terminal=True, width=80, height=10)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    seconds = iter([0.0, *[1.0] * 4, *[31.0] * 400])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds, 31.0))
    with progress.shown("fig1") as report:
        report("compiling")
        report("running", 1, 9, steps=1e6)
        report("running", 2, 9, steps=2e6)
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", drawn.getvalue()).replace("\r", "\n")
    for line in lines.split("\n"):
        assert len(line) <= 80
        assert re.search(r"[\d:]+ left", line) is None or "about" in line


@pytest.fixture(scope="module")
def small():
    task = jo.tasks.synthetic_regression(0, users=2, samples=10, dim=3)
    return {"channel": jo.Channel(), "task": task, "rounds": 2, "trials": 2}


def test_calls_print_their_stages_and_times(small):
    algorithm, plan = jo.cotaf(0.01, 2, 2), r"calibrating [\d:]+ · "
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        shown = jo.simulate(7, algorithm, calibration_trials=3, progress=True, **small)
        swept = small | {"channel": jo.Channel([0.0, 1.0])}
        jo.sweep(7, algorithm, calibration_trials=3, progress=True, **swept)
        study = jo.Study({"a": algorithm}, key=7, calibration_trials=3, **small)
        data = study.run(progress=True)
    silent = jo.simulate(7, algorithm, calibration_trials=3, **small)
    np.testing.assert_array_equal(shown.gap, silent.gap)
    np.testing.assert_allclose(data.gap.values.squeeze(), silent.gap, rtol=1e-5)
    for line in (
        r"simulate: compiling · elapsed 0:0\d",
        f"simulate: compiling [\\d:]+ · {plan}running [\\d:]+",
        r"sweep: compiling [\d:]+ · running [\d:]+",  # the plan is known
        r"study: .*calibrating [\d:]+.*",
    ):
        assert re.search(f"^{line}$", said.getvalue(), re.M), (line, said.getvalue())


def test_progress_compiles_nothing_twice(small, caplog):
    algorithm = jo.noisy_fedavg(0.011, 3, 2)
    with contextlib.redirect_stderr(io.StringIO()):
        jo.simulate(3, algorithm, progress=True, **small)
    with jax.log_compiles():
        jo.simulate(3, algorithm, **small)
        assert "jit(program)" not in caplog.text
        jo.simulate(3, jo.noisy_fedavg(0.011, 1, 2), **small)
        assert "jit(program)" in caplog.text


@pytest.mark.parametrize("call", [jo.simulate, jo.sweep])
def test_progress_is_yes_or_no(call, small):
    with pytest.raises(jo.InputError, match="progress must be"):
        call(0, jo.cotaf(0.01, 2, 2), progress="bar", **small)
