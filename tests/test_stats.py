"""Intervals cover what they should, and say what they leave out."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

import jaxota as jo
from jaxota import stats


def test_interval_is_students():
    values = np.random.default_rng(0).standard_normal((12, 3))
    band = stats.interval(values)
    low, high = scipy_stats.t.interval(
        0.95, 11, loc=values.mean(0), scale=scipy_stats.sem(values, 0)
    )
    np.testing.assert_allclose(band.mean, values.mean(0))
    np.testing.assert_allclose(band.low, low)
    np.testing.assert_allclose(band.high, high)


def test_coverage():
    """95 % of 4000 intervals from 5 trials each hold the mean, within 4 standard errors."""
    values = np.random.default_rng(0).standard_normal((5, 4000))
    band = stats.interval(values)
    covered = np.mean((band.low <= 0) & (band.high >= 0))
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000)


def test_pairing_cancels_what_is_shared():
    rng = np.random.default_rng(0)
    shared = 100 * rng.standard_normal(50)
    first, second = shared + 1 + 0.1 * rng.standard_normal(50), shared
    difference = stats.paired(first, second)
    assert difference.low < 1 < difference.high
    assert difference.half_width < stats.interval(first).half_width / 100


def test_diverged_trials_are_left_out_whole_and_counted():
    values = np.ones((5, 3))
    values[1, 2], values[3, 0] = np.nan, np.inf
    band = stats.interval(values)
    assert (band.used, band.trials, band.diverged) == (3, 5, 2)
    np.testing.assert_array_equal(band.mean, 1)
    other = np.zeros((5, 3))
    other[0, 0] = np.nan
    assert stats.paired(values, other).used == 2
    assert stats.paired(values, other).trials == 5


def test_too_few_trials_have_no_interval():
    one = stats.interval(np.ones((1, 2)))
    assert (one.mean == 1).all() and np.isnan(one.low).all()
    none = stats.interval(np.full((3, 2), np.nan))
    assert np.isnan(none.mean).all() and none.used == 0


@pytest.mark.parametrize("level", [95, 0, 1, np.nan, "0.9", None])
def test_a_level_is_a_probability(level):
    with pytest.raises(jo.InputError, match="level must lie between 0 and 1, got"):
        stats.interval(np.ones((3, 2)), level)


def test_unequal_shapes_are_refused():
    with pytest.raises(jo.InputError, match="reference must have the shape of values"):
        stats.paired(np.ones(3), np.ones(4))
