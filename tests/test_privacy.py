"""The privacy ledger: what a run spends, its ε, and what it refuses."""

import jax
import numpy as np
import pytest
from scipy import optimize, stats

import jaxota as jo
from jaxota import privacy

KEY = jax.random.key(0)
BOUND, GAIN = 0.3, 2.0
PRIVATE = jo.noisy_fedavg(0.05, 2, precode=jo.Constant(GAIN), compress=jo.NormBounded(BOUND))
CHANNEL = jo.Channel(snr_db=-3.0, fading=jo.rayleigh(threshold=0.8))


def test_vectors_are_scaled_down_to_the_bound():
    values = np.float32([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    sent, _ = jo.NormBounded(1.0).encode(jax.numpy.asarray(values), None, jo.SideInfo())
    np.testing.assert_allclose(sent, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-6)


@pytest.fixture(scope="module")
def history(task):
    return jo.simulate(KEY, PRIVATE, CHANNEL, task, rounds=5, trials=40)


def test_what_a_run_spends(history):
    """ρ = Σ (Δ/√ν)²/2; with a constant gain Δ/√ν depends on neither N nor data."""
    assert 0 < np.mean(history.participants) < 4
    removed = privacy.spent(history, PRIVATE, CHANNEL, "removed")
    sw2, heard = 10**0.3, np.asarray(history.participants) > 0
    each = np.where(heard, (BOUND * GAIN * 0.8 / np.sqrt(sw2)) ** 2 / 2, 0.0)
    np.testing.assert_allclose(removed, np.cumsum(each, 1), rtol=1e-4)
    replaced = privacy.spent(history, PRIVATE, CHANNEL)
    np.testing.assert_allclose(replaced, 4 * removed, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.02, 0.5])
def test_epsilon_is_the_gaussian_mechanism_s(rho):
    """Its exact ε, rounded up by at most 2e-3, and no more than Liu and Simeone's closed form."""
    pytest.importorskip("dp_accounting")
    delta, mu = 0.01, np.sqrt(2 * rho)

    def excess(e):
        tail = stats.norm.cdf(mu / 2 - e / mu) - np.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)
        return tail - delta

    exact = optimize.brentq(excess, 0.0, 50.0)
    (found,) = privacy.epsilon([rho], delta)
    assert exact - 1e-6 <= found <= exact + 2e-3
    c = 1.849  # √π·C·exp(C²) = 1/δ
    assert abs(np.sqrt(np.pi) * c * np.exp(c**2) - 1 / delta) < 0.2
    assert found <= rho + 2 * c * np.sqrt(rho)


def test_nothing_and_everything():
    pytest.importorskip("dp_accounting")
    np.testing.assert_array_equal(privacy.epsilon([[0.0, np.inf]], 0.1), [[0.0, np.inf]])
    for bad in (0.0, 1.0, -1.0):
        with pytest.raises(jo.InputError, match="delta must lie between 0 and 1"):
            privacy.epsilon(1.0, bad)


REFUSED = {
    "compress must be": (PRIVATE.replace(compress=jo.Uncompressed()), CHANNEL),
    "precode must choose": (PRIVATE.replace(precode=jo.Online()), CHANNEL),
    "precode must": (PRIVATE.replace(precode=jo.Constant()), CHANNEL),
    "must need no plan": (PRIVATE.replace(estimate=jo.MMSE()), CHANNEL),
    "no control block": (PRIVATE.replace(local=jo.ControlVariateSGD(0.1, 1)), CHANNEL),
    "over Gaussian noise": (PRIVATE.replace(medium=jo.ErrorFree()), CHANNEL),
    "Gaussian noise for privacy": (PRIVATE, jo.Channel(noise=jo.Laplace())),
    "inverted exactly": (PRIVATE, jo.Channel(fading=jo.rayleigh(csi_error=0.1))),
    "inverted exactly for": (PRIVATE, jo.Channel(fading=jo.rayleigh(answer=jo.PhaseOnly()))),
}


@pytest.mark.parametrize("words", REFUSED)
def test_epsilon_is_refused_where_data_show_otherwise(history, words):
    with pytest.raises(jo.InputError, match=words):
        privacy.spent(history, *REFUSED[words])


def test_reports_are_refused(history):
    loud = history.replace(reports=np.ones_like(history.reports))
    with pytest.raises(jo.InputError, match="no coded reports"):
        privacy.spent(loud, PRIVATE, CHANNEL)
    with pytest.raises(jo.InputError, match="change must be"):
        privacy.spent(history, PRIVATE, CHANNEL, "added")
