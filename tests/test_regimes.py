"""The maps of who is best: what they are made of by hand, and the command."""

import csv
import os

import jax
import numpy as np
import pytest
import xarray

import jaxota as jo
from jaxota.cli import main as cli
from jaxota.experiments import regimes

KEY = jax.random.key(2)


def _gaps(**by_algorithm):
    """[algorithm, spreads, snr_db, draw] of one regime."""
    values = np.array(list(by_algorithm.values()), float)[:, None, None, :]
    dims = "algorithm", "spreads", "snr_db", "draw"
    return xarray.DataArray(values, dims=dims, coords={"algorithm": list(by_algorithm)})


def test_ratios_and_who_is_best_by_hand():
    lost = np.full(8, np.inf)
    gaps = _gaps(A=np.full(8, 10.0), B=np.arange(1.0, 9.0), C=np.where(np.arange(8) < 4, 1, 100.0))
    np.testing.assert_allclose(
        regimes.ratio(gaps, "A", "B")[0, 0], 1 - np.log10(np.arange(1.0, 9.0))
    )
    assert regimes.settled(regimes.ratio(gaps, "A", "B"))[0, 0]
    assert not regimes.settled(regimes.ratio(gaps, "A", "C"))[0, 0]
    first, sure = regimes.best(gaps, ["A", "B", "C"])
    assert first[0, 0] == 1 and sure[0, 0]
    first, sure = regimes.best(gaps, ["A", "C"])
    assert first[0, 0] == 0 and not sure[0, 0]  # medians 10 and 50.5
    gone = _gaps(A=lost, B=lost)
    assert (regimes.ratio(gone, "A", "B") == 0).all()
    first, sure = regimes.best(gone, ["A", "B"])
    assert first[0, 0] == -1 and not sure[0, 0]
    few = regimes.ratio(gaps, "A", "B")[..., :5]  # too few draws for an interval of 95 %
    assert not regimes.settled(few)[0, 0]


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
            KEY, jo.cobaaf(1e-2, 2, 2, precode=precode), channel, task, rounds=5, trials=3
        )

    halved = run(regimes.Halved(), jo.Channel(10.0))
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
def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    small = {"DRAWS": 6, "ROUNDS": 4, "CALIBRATION_TRIALS": 2, "SNR_DB": (0.0, 20.0), "USERS": 3}
    small |= {"MODEL_SPREADS": (0.0, 1.0), "DATA_SPREADS": (0.1, 1.0), "STEPS": 2}
    for name, value in small.items():
        monkeypatch.setattr(regimes, name, value)
    command = ["run", "regimes", "--trials", "2", "--seed", "3", "--out", str(tmp_path)]
    assert cli.main([*command, "--resume"]) == 0
    printed, errors = capsys.readouterr()
    assert errors == "" and "seed 3" in printed and "of 6 regimes" in printed
    assert "read at round 2, the others at round 4" in printed
    assert {f"regimes.{e}" for e in ("csv", "nc", "png")} < set(os.listdir(tmp_path))
    data = xarray.load_dataset(tmp_path / "regimes.nc", engine="h5netcdf")
    assert data.gap.shape == (5, 3, 2, 6)
    with open(tmp_path / "regimes.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5 * 3 * 2
    ratio = np.log10(data.gap.sel(algorithm="COTAF") / data.gap.sel(algorithm="BAAF"))
    assert float(rows[0]["value"]) == pytest.approx(float(ratio[0, 0].median()), abs=1e-4)
    assert rows[0]["quantity"] == "log10(COTAF/BAAF)" and rows[-1]["quantity"] == "best_equal"
    assert cli.main([*command, "--resume"]) == 0
    assert capsys.readouterr().out.startswith("regimes: final gaps")
