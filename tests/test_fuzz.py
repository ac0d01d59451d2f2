"""Whatever is given to a public function that it cannot take: one line, and nothing else.

Each row of `fuzzed` is a good call, which stops where it would run, and by argument what it must
refuse: the junk of that kind, all of it, and what hypothesis makes up. Good values would compile,
and are not among them.
"""

import contextlib
import functools
import os
import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import sklearn.datasets
from fuzzed import HISTORY, ROWS, Kind, Opaque

import jaxota as jo
from jaxota import calibration, expectation, lowering, plots, simulation, stats, sweeping, theory
from jaxota._core import capacity, inputs
from jaxota.study import executor
from jaxota.theory import best as tuning
from jaxota.theory import measuring

pytestmark = pytest.mark.slow  # many, or processes


class Ran(Exception):
    """A call went so far that it would have run."""


PAIRS = [(name, argument) for name, row in ROWS.items() for argument in row.bad]
# What takes nothing that could be bad, is made by the package alone, or serves parts of one's own.
LEFT_OUT = "OverTheAir Gaussian ErrorFree Uncompressed Identity MMSE JamesStein PooledMMSE "
LEFT_OUT += "EnergyDetection Unheard "
LEFT_OUT += "ReportedMMSE UpdateMMSE ReplaceModel "
LEFT_OUT += "Offline Online MeanPower Level Last Block SideInfo Link LocalUpdate State "
LEFT_OUT += "FullPower Laplace "
LEFT_OUT += "History Checkpoint Expected Aggregate InputError "
LEFT_OUT += "Interval Between Error Images Report Experiment experiment study_report study "
# Like `study_report` and `plots.study`, these take the dataset that a study returned.
LEFT_OUT += "Summary summary metric_of power_ratio spending diverged "
LEFT_OUT += "map_axes axis "  # the grid that an axis makes is fuzzed as jo.grid
LEFT_OUT += "devices Bound if_heard no_memory minibatch_gradient minibatches part static traced "
LEFT_OUT += "ByRound by_round "  # any value of the round is a table, whose numbers are checked
LEFT_OUT += "Cell cell enable_cache "  # what `jo.cell` makes and draws, and a folder as others take
LEFT_OUT += "images_at_hand fashion_mnist cifar10"  # in all but their data as mnist


@pytest.fixture(autouse=True)
def stopped(monkeypatch, tmp_path):
    """Nothing runs, and the folder is empty."""

    def stop(*_, **__):
        raise Ran

    for module, name in ((simulation, "program"), (sweeping, "program"), (measuring, "_program")):
        monkeypatch.setattr(module, name, stop)
    for module in (simulation, sweeping):
        monkeypatch.setattr(module, "cached_plan", stop)
    for name in ("program", "measure"):
        monkeypatch.setattr(lowering, name, stop)
    monkeypatch.setattr(calibration, "_program", stop)
    for name in ("_program", "_plan_program"):
        monkeypatch.setattr(expectation, name, stop)
    monkeypatch.setattr(tuning, "_loss", stop)
    monkeypatch.setattr(capacity, "device_memory", lambda: None)
    monkeypatch.setattr(capacity, "machine_memory", lambda: 2**34)
    monkeypatch.setattr(executor, "choose_blocks", stop)
    kept = functools.cache(sklearn.datasets.load_digits)
    monkeypatch.setattr(sklearn.datasets, "load_digits", kept)
    monkeypatch.chdir(tmp_path)


def refuse(call, value):
    """One line, no warning, no file."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            call(value)
        except jo.InputError as error:
            line = str(error)
        except Ran:
            line = ""
        except Exception as error:
            raise AssertionError(f"{_shown(value)}: {type(error).__name__}: {error}") from error
        else:
            line = ""
    assert line, f"{_shown(value)} was taken"
    assert "\n" not in line and len(line) < 500, line
    assert not os.listdir(), f"{_shown(value)} left a file"


def _shown(value):
    return type(value).__name__ if isinstance(value, Opaque | int) else repr(value)[:200]


def fuzz(name, argument, examples=8):
    """Of an argument all junk, and what hypothesis makes up."""
    row = ROWS[name]
    kind = row.bad[argument]

    def call(value):
        return row.call(**(row.good or {}) | {argument: value})

    for value in kind.junk:
        refuse(call, value)

    @hypothesis.settings(
        derandomize=True, deadline=None, database=None, max_examples=examples,
        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(kind.made)
    def made_up(value):
        refuse(call, value)

    if kind.made is not Kind([]).made:
        made_up()


@pytest.mark.parametrize(("name", "argument"), PAIRS, ids=[f"{n}-{a}" for n, a in PAIRS])
def test_invalid_arguments_are_refused_in_one_line(name, argument):
    fuzz(name, argument)


@pytest.mark.parametrize("kind", [jo.Plan, jo.History])
def test_damaged_files_are_refused_in_one_line(kind):
    """A few bytes that are others: what is read is whole, or refused."""
    plan = jo.Plan(np.ones(2), np.ones((2, 3)), np.ones((2, 3)))
    (plan if kind is jo.Plan else HISTORY).save("saved")
    whole = np.fromfile("saved", np.uint8)
    flips = st.dictionaries(st.integers(0, len(whole) - 1), st.integers(1, 255), min_size=1)

    @hypothesis.settings(derandomize=True, deadline=None, database=None, max_examples=100)
    @hypothesis.given(flips | st.integers(0, len(whole) - 1))
    def damaged(change):
        bad = whole.copy() if isinstance(change, dict) else whole[:change]
        for place, flip in change.items() if isinstance(change, dict) else ():
            bad[place] ^= flip
        bad.tofile("damaged")
        try:
            kind.load("damaged")
        except jo.InputError as error:
            assert "\n" not in str(error)

    damaged()


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.good is not None])
def test_the_unchanged_call_is_valid(name):
    """Each row's call by itself is not refused: it would run, or does."""
    row = ROWS[name]
    with contextlib.suppress(Ran):
        row.call(**row.good)


def test_every_public_function_is_fuzzed():
    """Those that are left out take nothing from users, or only inside a program."""
    spaces = {"jo": jo, "tasks": jo.tasks, "theory": theory, "stats": stats, "plots": plots}
    public = {
        f"{place}.{name}"
        for place, space in spaces.items()
        for name in dir(space)
        if callable(getattr(space, name))
        and not name.startswith("_")
        and getattr(space, name).__module__.startswith("jaxota")
    }
    missing = {name for name in public - ROWS.keys() if name.split(".")[1] not in LEFT_OUT.split()}
    assert not missing


@pytest.mark.parametrize(
    ("module", "check", "name", "argument"),
    [
        (inputs, "require", "jo.Channel", "power"),
        (inputs, "_require_whole", "jo.Channel", "participants"),
        (capacity, "refuse_memory", "jo.simulate", "rounds"),
        (simulation, "refuse_swept", "jo.cotaf", "step_size"),
        (inputs, "check_together", "jo.Optimizer", "optimizer"),
    ],
)
def test_the_fuzz_notices_a_missing_check(monkeypatch, module, check, name, argument):
    """With a check taken away, what it refused is taken, and the fuzz says so."""
    fuzz(name, argument)
    monkeypatch.setattr(module, check, lambda *_, **__: None)
    with pytest.raises(AssertionError, match=r"was taken|Error: "):
        fuzz(name, argument)
