"""What "equal" and "within its interval" mean in these tests."""

import numpy as np
import reference


def assert_equal(history, other, task, start) -> None:
    """Models within 1e-5·max|θ|, gaps within 1e-3·(gap + 1e-3·initial gap)."""
    best, curvature = reference.optimum(task.features, task.targets)
    start_gap = np.einsum("td,de,te->t", start - best, curvature, start - best)[:, None]
    for model, expected in ((history.model, other.model), (history.average, other.average)):
        expected = np.asarray(expected)
        tolerance = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(model, expected, rtol=0, atol=tolerance)
    gap, expected = np.asarray(history.gap), np.asarray(other.gap)
    excess = np.abs(gap - expected) - 1e-3 * (expected + 1e-3 * start_gap)
    assert (excess <= 0).all(), f"gaps differ by {excess.max():g} more than allowed"


def standard_errors(values, expected) -> np.ndarray:
    """How many standard errors of its mean over the first axis `values` lies from `expected`.

    `expected` is a number, or an array of independent samples along its first axis.
    """
    values = np.asarray(values, np.float64)
    variance = values.var(0, ddof=1) / len(values)
    mean = np.asarray(expected, np.float64)
    if mean.ndim == values.ndim:
        variance = variance + mean.var(0, ddof=1) / len(mean)
        mean = mean.mean(0)
    return np.abs(values.mean(0) - mean) / np.sqrt(variance)


def assert_within(values, expected, errors: float = 4.0) -> None:
    """The mean of `values` is `expected` within 4 computed standard errors, in every column."""
    away = standard_errors(values, expected)
    assert np.all(away < errors), f"{np.max(away):.1f} standard errors away"


def assert_same_bits(data, other) -> None:
    """Two data sets hold the same variables and labels, and the same bits."""
    assert set(data.variables) == set(other.variables)
    for name in data.variables:
        mine, expected = data[name].values, other[name].values
        assert mine.dtype == expected.dtype and mine.shape == expected.shape, name
        np.testing.assert_array_equal(mine, expected, err_msg=str(name))  # NaN equals NaN


def assert_same_numbers(data, other) -> None:
    """Two data sets of trials, up to rounding in other programs.

    Models within 1e-5·max|θ|, all else within 1e-4 of itself and 1e-6 of its largest number.
    """
    assert set(data.variables) == set(other.variables)
    for name in data.data_vars:
        mine, expected = data[name].values, other[name].values
        largest, is_model = np.nanmax(np.abs(expected)), name in ("model", "average")
        rtol, atol = (0, 1e-5 * largest) if is_model else (1e-4, 1e-6 * largest)
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol, err_msg=str(name))
