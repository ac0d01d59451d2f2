"""Studies of methods tune on some draws and show others; their privacy is the ledger's."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import xarray

import jaxota as jo

FOLDER = Path(__file__).parent.parent / "benchmarks" / "methods"


def _load(name):
    spec = importlib.util.spec_from_file_location(f"methods_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_zoo_tunes_on_design_draws_and_shows_the_others():
    """The best on design draws is shown, however bad elsewhere; rounds fit the channel uses."""
    zoo = _load("zoo")
    rates, draws, rounds = len(zoo.STEP_SIZES), len(zoo.DESIGN) + 2, zoo.ROUNDS
    dims = ("algorithm", "local.step_size", "own", "draw", "evaluation")
    gap = np.full((1, rates, 3, draws, rounds), 5.0)
    gap[0, 2, 1, : len(zoo.DESIGN)] = 1.0  # chosen
    gap[0, 2, 1, len(zoo.DESIGN) :] = 7.0  # shown
    gap[0, 0, 0, len(zoo.DESIGN) :] = 0.1  # the best where nobody may look
    gap[0, 1, 1, 0, -1], gap[0, 1, 1] = np.nan, 0.5
    ledger = xarray.DataArray(np.full(gap.shape, 20.0), dims=(*dims[:-1], "round"))
    used = np.full(gap.shape[:-1], 4)
    used[0, 1, 1, 0] = 3  # a trial diverged
    data = xarray.Dataset(
        {"gap_mean": (dims, gap), "uses_mean": ledger, "energy_mean": ledger, "trials": 4}
        | {"used": (dims[:-1], used)},
        coords={"algorithm": ["OBDA"], "local.step_size": list(zoo.STEP_SIZES)},
    )
    found = zoo.tuned(data)["OBDA"]
    assert found["step size"] == zoo.STEP_SIZES[2]
    assert found["own number"] == f"step {zoo.OWN['compress.step'][1]:g}"
    assert found["gap"].shape == (2, zoo.USES // 20) and (found["gap"] == 7.0).all()
    row = zoo.in_numbers(found)
    assert row["gap"] == 7.0 and row["rounds"] == 30 and row["energy"] == 600.0


@pytest.mark.slow
def test_what_the_privacy_study_says_is_spent_is_the_ledger_s(task):
    study = _load("privacy")
    level, bound = study.POINTS[5]
    private = jo.noisy_fedavg(
        *(1e-2, 2), precode=jo.Constant(level / bound), compress=jo.NormBounded(bound)
    )
    channel = jo.Channel(snr_db=10.0)
    history = jo.simulate(0, private, channel, task, rounds=3, trials=2)
    expected = np.cumsum(study.spent_by_round(level))[:3]
    spent = jo.privacy.spent(history, private, channel)
    np.testing.assert_allclose(spent, [expected] * 2, rtol=1e-4)
