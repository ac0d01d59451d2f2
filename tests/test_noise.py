"""Noise with heavy tails, and the server that is made for it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agree import assert_within
from test_coarse import linear, steps

import jaxota as jo

KEY = jax.random.key(0)


@pytest.mark.parametrize("alpha", [0.8, 1.0, 1.5, 2.0])
def test_stable_noise_has_its_characteristic_function(alpha):
    """E cos(tX) = exp(−|γt|^α) with γ² = 1/2, and E sin(tX) = 0."""
    x = np.asarray(jo.Stable(jnp.float32(alpha)).draw(KEY, (50_000,)), np.float64)
    t = np.array([0.2, 1.0, 3.0])
    assert_within(np.cos(x[:, None] * t), np.exp(-(np.abs(t / np.sqrt(2)) ** alpha)))
    assert_within(np.sin(x[:, None] * t), 0.0)


def test_stable_noise_of_index_two_is_gaussian():
    """The same numbers, up to rounding."""
    shape = (100, 100)
    gauss = jo.Gaussian().draw(KEY, shape)
    np.testing.assert_allclose(jo.Stable(jnp.float32(2.0)).draw(KEY, shape), gauss, atol=1e-4)


def test_laplace_noise():
    """Variance 1, E|x| = 1/√2, E x⁴ = 6, independent numbers."""
    x = np.asarray(jo.Laplace().draw(KEY, (50_000, 2)), np.float64)
    for values, mean in ((x, 0), (np.abs(x), 0.5**0.5), (x**2, 1), (x**4, 6), (x.prod(1), 0)):
        assert_within(values, mean)


SLOPES = np.array([[1.0, -2.0, 0.5], [0.5, 1.0, -1.0]])
SERVERS = {
    "as received": jo.ReplaceModel(),
    "ADOTA": jo.Adota(0.1, 1.5, 0.8, 0.9),
    "RMSProp": optax.rmsprop(0.1, decay=0.9, eps=1e-8, eps_in_sqrt=False),
    "limit": jo.Adota(0.1, 2.0, 0.0, 0.9),
    "Adam": optax.adam(0.1, b1=0.0, b2=0.9),
    "AGMA": optax.sgd(1.0, momentum=0.7, nesterov=True),
}


@pytest.fixture(scope="module")
def heavy():
    """Runs over α-stable noise on gradients that know no model, so that noise is shared."""
    channel = jo.Channel(snr_db=0.0, noise=jo.Stable(1.5))
    run = functools.partial(jo.simulate, KEY, task=linear(SLOPES), rounds=8, trials=4)
    rule = {"step_size": 0.1, "steps": 1, "precode": jo.Constant(2.0)}
    return {
        k: steps(run(jo.cotaf(**rule, server=server), channel)) for k, server in SERVERS.items()
    }


@pytest.mark.slow
def test_adota_matches_numpy(heavy):
    momentum = scale = np.zeros((4, 3))
    by_round = (np.moveaxis(heavy[name], 1, 0) for name in ("as received", "ADOTA"))
    for received, moved in zip(*by_round, strict=True):
        momentum = 0.8 * momentum - 0.2 * received
        scale = 0.9 * scale + 0.1 * np.abs(momentum) ** 1.5
        expected = -0.1 * momentum / (scale ** (1 / 1.5) + 1e-8)
        np.testing.assert_allclose(moved, expected, atol=2e-5)


@pytest.mark.slow
def test_adota_becomes_rmsprop(heavy):
    """With β1 = 0 and α = 2, without bias correction: not Adam."""
    np.testing.assert_allclose(heavy["limit"], heavy["RMSProp"], atol=1e-5)
    assert np.abs(heavy["limit"] - heavy["Adam"]).max() > 0.01


@pytest.mark.slow
def test_agma_is_nesterov_at_the_look_ahead_point():
    """Momentum at the server, against x ← y − ηg(y), y ← x + β(x − x_before) on a quadratic."""
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((2, 6, 3)), rng.standard_normal((2, 6))
    task, start = jo.tasks.regression(features, targets), rng.standard_normal((1, 3))
    history = jo.simulate(
        KEY,
        jo.cotaf(0.05, 1, precode=jo.Online(), server=SERVERS["AGMA"]),
        jo.Channel(snr_db=np.inf),
        task,
        rounds=12,
        trials=1,
        initial=start,
    )
    x = y = start[0]
    for _ in range(12):
        slope = 2 * np.einsum("nsd,ns->d", features, features @ y - targets) / 12
        before, x = x, y - 0.05 * slope
        y = x + 0.7 * (x - before)
    np.testing.assert_allclose(history.model[0], y, rtol=1e-4)


def test_heavy_tails_are_refused_where_moments_are_needed(task):
    rare = jo.Channel(noise=jo.Stable(1.5))
    with pytest.raises(jo.InputError, match=r"channel\.noise must have a finite variance"):
        jo.exact(jo.cotaf(0.01, 1, precode=jo.Constant(1.0)), rare, task, rounds=1)
    with pytest.raises(jo.InputError, match="over Stable noise: MMSE is for Gaussian noise alone"):
        jo.simulate(KEY, jo.baaf(0.1, 1), rare, task, 1, 1)
