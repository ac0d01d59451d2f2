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
