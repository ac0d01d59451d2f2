"""The maps of the lowest gap: their ingredients by hand, and the experiment."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray

import jaxota as jo

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "paper"))
regimes = importlib.import_module("regimes")


def _gaps(**by_algorithm):
    """[algorithm, spreads, snr_db, draw] of one regime."""
    values = np.array(list(by_algorithm.values()), float)[:, None, None, :]
    dims = "algorithm", "spreads", "snr_db", "draw"
    return xarray.DataArray(values, dims=dims, coords={"algorithm": list(by_algorithm)})


def test_ratios_and_the_lowest_gap_by_hand():
    lost = np.full(8, np.inf)
    gaps = _gaps(A=np.full(8, 10.0), B=np.arange(1.0, 9.0), C=np.where(np.arange(8) < 4, 1, 100.0))
    np.testing.assert_allclose(
        regimes.log_ratio(gaps, "A", "B")[0, 0], 1 - np.log10(np.arange(1.0, 9.0))
    )
    assert regimes.decided(regimes.log_ratio(gaps, "A", "B"))[0, 0]
    assert not regimes.decided(regimes.log_ratio(gaps, "A", "C"))[0, 0]
    first, sure = regimes.lowest(gaps, ["A", "B", "C"])
    assert first[0, 0] == 1 and sure[0, 0]
    first, sure = regimes.lowest(gaps, ["A", "C"])
    assert first[0, 0] == 0 and not sure[0, 0]  # medians 10 and 50.5
    gone = _gaps(A=lost, B=lost)
    assert (regimes.log_ratio(gone, "A", "B") == 0).all()
    first, sure = regimes.lowest(gone, ["A", "B"])
    assert first[0, 0] == -1 and not sure[0, 0]
    few = regimes.log_ratio(gaps, "A", "B")[..., :5]  # too few draws for an interval of 95 %
    assert not regimes.decided(few)[0, 0]


def test_half_is_read_at_half_the_rounds_and_losses_are_infinite():
    names = ["COTAF", regimes.HALF]
    gap = np.array([[[4.0, 2.0], [5.0, 3.0]], [[9.0, 1.0], [8.0, 0.5]]])  # draw, evaluation
    used = np.array([[8, 7], [8, 8]])
    data = xarray.Dataset(
        {
            "gap_mean": (("algorithm", "draw", "evaluation"), gap),
            "used": (("algorithm", "draw"), used),
            "trials": (("algorithm", "draw"), np.full((2, 2), 8)),
        },
        {"algorithm": names},
    )
    np.testing.assert_array_equal(regimes.final_gaps(data), [[2.0, np.inf], [9.0, 8.0]])


@pytest.mark.slow
def test_half_the_budget_is_three_decibels(task):
    """Of both blocks, at the same noise: the same numbers as over a channel of 3 dB less."""

    def run(precode, channel):
        return jo.simulate(
            2, jo.cobaaf(1e-2, 2, 2, precode=precode), channel, task, rounds=5, trials=3
        )

    halved = run(regimes.HalfPower(), jo.Channel(10.0))
    less = run(jo.Online(), jo.Channel(10.0 - 10 * np.log10(2.0)))
    np.testing.assert_allclose(halved.gap, less.gap, rtol=1e-4)
    for power in (halved.power, halved.control_power):
        np.testing.assert_allclose(np.asarray(power)[:, 1:], 0.5, rtol=1e-5)


def test_both_maps_are_one_sweep():
    every = regimes.spreads()
    assert len(every) == len(set(every)) == 11
    assert {b for a, b in every if a == 0.1} >= set(regimes.MODEL_SPREADS)
    assert {a for a, b in every if b == 1.0} >= set(regimes.DATA_SPREADS)


@pytest.mark.slow
def test_the_report(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    small = {"DRAWS": 6, "ROUNDS": 4, "CALIBRATION_TRIALS": 2, "SNR_DB": (0.0, 20.0), "USERS": 3}
    small |= {"MODEL_SPREADS": (0.0, 1.0), "DATA_SPREADS": (0.1, 1.0), "STEPS": 2}
    for name, value in small.items():
        monkeypatch.setattr(regimes, name, value)
    report = regimes.regimes(trials=2, seed=3)
    words = " ".join(report.remarks)
    assert "seed 3" in report.caption and "of 6 regimes" in words
    assert "read at round 2, the others at round 4" in words
    assert report.dataset.gap.shape == (5, 3, 2, 6)
    gap, rows = report.dataset.gap, report.csv
    assert len(rows) == 5 * 3 * 2
    ratio = np.log10(gap.sel(algorithm="COTAF") / gap.sel(algorithm="BAAF"))
    assert rows.value[0] == pytest.approx(float(ratio[0, 0].median()), abs=1e-4)
    assert (rows.quantity[0], rows.quantity.iloc[-1]) == ("log10(COTAF/BAAF)", "best_equal")
    assert [row[0] for row in report.table[1:]] == [
        "as the paper counts",
        "equal channel uses and power",
    ]
    report.figure().savefig(tmp_path / "regimes.png")
    with jo.style.drawn_for("paper"):
        report.figure().savefig(tmp_path / "paper.png")


def test_options_of_other_experiments_are_refused():
    with pytest.raises(jo.InputError, match="rounds is not an option of regimes: choose from seed"):
        regimes.regimes(rounds=3)
    with pytest.raises(jo.InputError, match="trials must be a whole number ≥ 1, got 0"):
        regimes.regimes(trials=0)
