"""Means with intervals: the same whether trials or means were kept."""

import jax
import numpy as np
import pytest
import xarray

import jaxota as jo
from jaxota import stats
from jaxota.stats import diverged, metric_of, power_ratio, summary
from jaxota.sweeping import history

pytestmark = pytest.mark.slow  # most of it compiles

NOISY = jo.noisy_fedavg(1e-2, 2, 2, precode=jo.Constant(1.0))
# A step size of 1e12 leaves the finite numbers.
STUDY = jo.Study(
    {"FedAvg": jo.fedavg(1e-2, 2, 2), "noisy": NOISY},
    jo.Channel(),
    jo.tasks.synthetic_regression(jax.random.key(1), 3, 6, 2),
    rounds=4,
    trials=5,
    every=2,
    over=jo.grid(snr_db=[0, 10], step_size=[1e-2, 1e12]),
    metric="loss",
)


@pytest.fixture(scope="module")
def trials():
    return STUDY.run()


@pytest.fixture(scope="module")
def kept():
    return STUDY.replace(keep="mean").run()


@pytest.mark.parametrize("difference", [False, True])
@pytest.mark.parametrize("metric", ["gap", "loss"])
def test_kept_means_and_kept_trials_have_the_same_summary(trials, kept, metric, difference):
    one, other = (summary(data, metric, difference) for data in (trials, kept))
    for name in ("mean", "low", "high", "used", "trials"):
        a, b = (
            getattr(s, name).transpose("algorithm", "snr_db", "step_size", ...)
            for s in (one, other)
        )
        np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=name)
    assert one.used.sel(step_size=1e12).values.max() == 0  # it diverges
    np.testing.assert_array_equal(one.trials, np.full((2, 2, 2), 5))
    xarray.testing.assert_allclose(power_ratio(trials), power_ratio(kept))


def test_intervals_are_those_of_stats(trials):
    noisy = history(trials, algorithm="noisy", snr_db=10, step_size=0.01)
    other = history(trials, algorithm="FedAvg", snr_db=10, step_size=0.01)
    band = summary(trials, "gap").at(algorithm=1, snr_db=1, step_size=0)
    expected = stats.interval(stats.scores(noisy, "gap"))
    apart = summary(trials, "gap", difference=True).at(algorithm=1, snr_db=1, step_size=0)
    paired = stats.paired(stats.scores(noisy, "gap"), stats.scores(other, "gap"))
    for mine, theirs in ((band, expected), (apart, paired)):
        for name in ("mean", "low", "high"):
            np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=1e-6)
        assert (mine.used, mine.trials) == (theirs.used, theirs.trials) == (5, 5)


def test_the_difference_of_the_reference_to_itself_is_zero(trials):
    apart = summary(trials, "gap", difference=True)
    assert (apart.mean.sel(algorithm="FedAvg", step_size=0.01) == 0).all()


def test_diverged_agrees_with_histories(trials):
    found = diverged(trials)
    for name in ("FedAvg", "noisy"):
        for step in (0.01, 1e12):
            place = {"algorithm": name, "snr_db": 0, "step_size": step}
            one = history(trials, **place)
            np.testing.assert_array_equal(found.sel(place), one.diverged)
    assert found.any() and not found.all()


def test_one_coordinate_is_enough_to_diverge_and_a_shorter_model_is_not(trials):
    """Two trials, of three and of two parameters; of the second setting one has diverged."""
    shape = 1, 2, 2, 3  # algorithm, dim, trial, parameter
    model = np.ones(shape, np.float32)
    model[:, 0, :, 2] = np.nan  # shorter
    model[0, 1, 1, 0] = np.nan
    dims = "algorithm", "dim", "trial"
    data = xarray.Dataset(
        {
            "model": ((*dims, "parameter"), model),
            "gap": ((*dims, "evaluation"), np.ones((1, 2, 2, 1))),
        },
        attrs={"scores": ["gap"]},
    )
    np.testing.assert_array_equal(diverged(data)[0], [[False, False], [False, True]])
    model[:, 0] = np.nan  # all of a setting
    assert diverged(data)[0, 0].all()


def test_the_metric_defaults_to_the_studys(trials):
    assert metric_of(trials, None) == "loss" and metric_of(trials, "gap") == "gap"
    with pytest.raises(jo.InputError, match="metric must be one of gap, loss, got 'speed'"):
        metric_of(trials, "speed")


def test_power_ratio_is_that_of_the_larger_block():
    """Mean over trials of the larger of both blocks; where means were kept, the larger mean."""
    study = STUDY.replace(
        algorithms={"COBAAF": jo.cobaaf(1e-2, 2, 2), "COTAF": jo.cotaf(1e-2, 2, 2)},
        over=jo.grid(snr_db=[0]),
        calibration_trials=4,
    )
    data = study.run()
    larger = np.maximum(data.power, data.control_power).sel(algorithm="COBAAF").mean("trial")
    np.testing.assert_allclose(power_ratio(data).sel(algorithm="COBAAF"), larger, rtol=1e-6)
    alone = data.power.sel(algorithm="COTAF").mean("trial")
    np.testing.assert_allclose(power_ratio(data).sel(algorithm="COTAF"), alone, rtol=1e-6)
    kept = power_ratio(study.replace(keep="mean").run())
    assert (kept.sel(algorithm="COBAAF") <= larger * (1 + 1e-6)).all()
    np.testing.assert_allclose(kept.sel(algorithm="COTAF"), alone, rtol=1e-5)
