"""Estimators against their own theory, and at their limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_within

import jaxota as jo
from jaxota._core.state import Moments
from jaxota.stages.answers import ideal_link
from jaxota.stages.channel import Block, Channel, superpose

USERS, DIM, COUNT = 5, 7, 4000


def _block(values, moments=None, origin=None):
    origin = jnp.zeros(values.shape[-1]) if origin is None else origin
    one, energies = jnp.float32(1.0), (values**2).sum(-1)
    return Block(values, origin[None] + values, origin, one, one, moments, energies=energies)


@functools.partial(jax.jit, static_argnums=0)
def _estimate(estimator, received, deviation, block, link):
    """The estimate of an estimator without memory."""
    estimate, memory = estimator(received, deviation, block, link, estimator.start(received.size))
    assert memory is None
    return estimate


def _moments(mean, var, average_mean=None, average_var=None, origin=0.0):
    """A row of the plan; users send what they hold, less `origin`."""
    one = jnp.float32(1.0)
    return Moments(one, one, mean, var, average_mean, average_var, mean - origin, var)


MEANS, SHAPE = np.linspace(-4.0, 2.0, USERS, dtype="f4"), np.linspace(0.5, 2.0, USERS, dtype="f4")


@functools.partial(jax.jit, static_argnums=0)
def _squared_errors(estimator, snr_db, scale):
    mean, var = jnp.asarray(MEANS), scale * SHAPE
    moments = _moments(mean, var, mean.mean(), var.sum() / USERS**2, origin=0.5)
    origin, energy = jnp.full(DIM, 0.5), jnp.float32(2.5)

    def squared_error(key):
        k_users, k_noise = jax.random.split(key)
        held = mean[:, None] + jnp.sqrt(var)[:, None] * jax.random.normal(k_users, (USERS, DIM))
        block, link = _block(held - origin[None], moments, origin), ideal_link(USERS)
        noise = Channel(snr_db=snr_db).noise_variance(DIM)
        received, deviation, _ = superpose(k_noise, block, energy, noise, link)
        estimate = _estimate(estimator, received, deviation, block, link)
        return jnp.mean((estimate - held.mean(0)) ** 2)

    return jax.vmap(squared_error)(jax.random.split(jax.random.key(0), COUNT))


@pytest.mark.parametrize("estimator", [jo.MMSE(), jo.UpdateMMSE(), jo.PooledMMSE()])
def test_mean_squared_error_is_proposition_1(estimator):
    """Users independent N(μ_i, σ_i²): MSE = ν s²/(s² + ν) per coordinate, for model and noise."""
    for snr_db in (-10.0, 0.0, 15.0):
        for scale in (0.1, 3.0):
            errors = _squared_errors(estimator, jnp.float32(snr_db), jnp.float32(scale))
            nu = 10 ** (-snr_db / 10) * 2.5 / USERS**2
            spread = scale * SHAPE.sum() / USERS**2
            assert_within(errors, nu * spread / (spread + nu))


def test_reported_moments_are_those_of_the_users():
    """ReportedMMSE is MMSE with a plan that holds each user's own moments of this round."""
    values = jax.random.normal(jax.random.key(0), (USERS, DIM))
    origin, received = jnp.full(DIM, 2.0), jnp.ones(DIM)
    held = np.asarray(values) + 2.0
    moments = _moments(jnp.asarray(held.mean(1)), jnp.asarray(held.var(1)))
    link, deviation = ideal_link(USERS), jnp.float32(0.5)
    reported = _estimate(jo.ReportedMMSE(), received, deviation, _block(values, None, origin), link)
    planned = _estimate(jo.MMSE(), received, deviation, _block(values, moments, origin), link)
    np.testing.assert_allclose(reported, planned, rtol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        *(jo.Identity(), jo.MMSE(), jo.UpdateMMSE(), jo.ReportedMMSE()),
        *(jo.PooledMMSE(), jo.JamesStein()),
    ],
)
def test_without_noise_every_estimator_is_the_identity(estimator):
    received = np.random.default_rng(0).standard_normal(DIM).astype("f4")
    for spread in (0.0, 1.0, np.inf):
        zero, each = np.zeros(USERS, "f4"), np.full(USERS, spread, "f4")
        moments = _moments(zero, each, zero[0], each[0])
        block = _block(jnp.zeros((USERS, DIM)), moments)
        estimate = _estimate(estimator, received, jnp.float32(0.0), block, ideal_link(USERS))
        np.testing.assert_array_equal(estimate, received)


def test_prior_on_updates_moves_with_the_broadcast_model():
    """UpdateMMSE is MMSE of the update alone; of controls, whose origin is 0, it is MMSE."""
    received, deviation, link = jnp.arange(7.0), jnp.float32(2.0), ideal_link(USERS)
    moments = _moments(jnp.asarray(MEANS), jnp.asarray(SHAPE))
    values = jnp.zeros((USERS, DIM))
    control = _estimate(jo.MMSE(), received, deviation, _block(values, moments), link)
    for origin in (0.0, 3.0):
        block = _block(values, moments, jnp.full(DIM, origin))
        own = _estimate(jo.UpdateMMSE(), received, deviation, block, link)
        np.testing.assert_allclose(own, origin + control, rtol=1e-6)


@pytest.mark.parametrize("estimator", [jo.MMSE(), jo.UpdateMMSE(), jo.PooledMMSE()])
def test_limits_of_the_prior(estimator):
    """A flat prior leaves what was received; a point prior ignores it."""
    received, deviation, link = jnp.arange(7.0), jnp.float32(2.0), ideal_link(USERS)
    three = jnp.full(USERS, 3.0)
    for spread, expected in ((jnp.inf, np.arange(7.0)), (0.0, np.full(7, 3.0))):
        moments = _moments(three, jnp.full(USERS, spread), three[0], jnp.float32(spread))
        block = _block(jnp.zeros((USERS, DIM)), moments)
        np.testing.assert_array_equal(
            _estimate(estimator, received, deviation, block, link), expected
        )


@jax.jit
def _james_stein_errors(truth, deviation):
    keys = jax.random.split(jax.random.key(0), COUNT)
    block, link = _block(jnp.zeros((USERS, len(truth)))), ideal_link(USERS)

    def error(key):
        received = truth + deviation * jax.random.normal(key, truth.shape)
        estimate = _estimate(jo.JamesStein(), received, deviation, block, link)
        return jnp.sum((estimate - truth) ** 2), jnp.sum((received - truth) ** 2)

    return jax.vmap(error)(keys)


@pytest.mark.parametrize("size", [0.0, 1.0, 3.0, 30.0])
def test_james_stein_is_never_worse_than_the_identity(size):
    truth = np.full(8, size / np.sqrt(8.0), "f4")
    shrunk, plain = map(np.asarray, _james_stein_errors(truth, jnp.float32(1.0)))
    difference = shrunk - plain
    assert difference.mean() <= 4 * difference.std(ddof=1) / np.sqrt(COUNT)
    if size <= 3.0:
        assert difference.mean() < -4 * difference.std(ddof=1) / np.sqrt(COUNT)


def test_james_stein_formula():
    received, deviation = jnp.array([1.0, -2.0, 2.0]), jnp.float32(np.sqrt(4.5))
    block, link = _block(jnp.zeros((USERS, 3)), None, jnp.full(3, 10.0)), ideal_link(USERS)
    estimate = _estimate(jo.JamesStein(), received, deviation, block, link)
    np.testing.assert_allclose(estimate, 10 + 0.5 * received, rtol=1e-6)  # 1 − (3−2)·4.5/9
    flat = _estimate(jo.JamesStein(), received, jnp.float32(100.0), block, link)
    np.testing.assert_array_equal(flat, jnp.full(3, 10.0))  # the positive part
    nothing = _estimate(jo.JamesStein(), jnp.zeros(3), deviation, block, link)
    np.testing.assert_array_equal(nothing, jnp.full(3, 10.0))
    block = _block(jnp.zeros((USERS, 2)))  # two coordinates are not shrunk
    np.testing.assert_array_equal(
        _estimate(jo.JamesStein(), received[:2], deviation, block, link), received[:2]
    )


OWN, SHARED, NOISE = 1.5, 0.9, 0.4


@jax.jit
def _pooled_errors(heard):
    """Squared errors of the average of users heard; any two users have the same covariance."""
    mean, noise = jnp.asarray(MEANS), jnp.float32(NOISE)
    whole = (OWN + (USERS - 1) * SHARED) / USERS
    moments = _moments(mean, jnp.full(USERS, OWN), mean.mean(), jnp.float32(whole))
    link = ideal_link(USERS).replace(heard=heard)

    def squared_error(key):
        k_common, k_users, k_noise = jax.random.split(key, 3)
        common = np.sqrt(SHARED) * jax.random.normal(k_common, (1, DIM))
        held = mean[:, None] + common
        held += np.sqrt(OWN - SHARED) * jax.random.normal(k_users, (USERS, DIM))
        block = _block(held, moments)
        received, deviation, _ = superpose(k_noise, block, jnp.float32(1.0), noise, link)
        estimate = _estimate(jo.PooledMMSE(), received, deviation, block, link)
        return jnp.mean((estimate - link.mean(held)) ** 2)

    return jax.vmap(squared_error)(jax.random.split(jax.random.key(0), COUNT))


@pytest.mark.parametrize("count", [1, 2, 4, USERS])
def test_pooled_moments_depend_on_who_is_heard(count):
    """The error over each S is that of its own s².

    With the average of all users' variance in its place it would be far larger.
    """
    errors = _pooled_errors(np.float32(np.arange(USERS) < count))
    spread, nu = (OWN + (count - 1) * SHARED) / count, NOISE / count**2
    assert_within(errors, nu * spread / (spread + nu))


@pytest.mark.slow
def test_pooled_is_close_to_mmse_with_few_of_many_users():
    """2 of 20 users, in BAAF: paired errors of the two estimators."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), users=20, samples=100, dim=10)
    run = {}
    for estimate in (jo.MMSE(), jo.PooledMMSE()):
        algorithm = jo.baaf(1e-2, 10, 10, precode=jo.Online(), estimate=estimate)
        channel = jo.Channel(snr_db=0.0, participants=2)
        run[estimate] = jo.simulate(
            jax.random.key(1), algorithm, channel, task, 10, 100, calibration_trials=20
        )
    independent, pooled = (np.asarray(h.error).mean(1) for h in run.values())
    difference = pooled - 1.2 * independent  # without regard to who is heard: 3.3 times
    assert difference.mean() < -4 * difference.std(ddof=1) / np.sqrt(len(difference))


def test_estimators_for_gaussian_noise_refuse_others(task):
    @jo.part
    class Laplace:
        gaussian = False

        def draw(self, key, shape):
            return jax.random.laplace(key, shape) / np.sqrt(2)

    channel = jo.Channel(noise=Laplace())
    priors = jo.MMSE(), jo.UpdateMMSE(), jo.ReportedMMSE(), jo.PooledMMSE()
    for estimate in (*priors, jo.JamesStein()):
        with pytest.raises(jo.InputError, match=r"jo.Identity\(\) over Laplace noise"):
            jo.simulate(jax.random.key(0), jo.baaf(1e-2, 2, estimate=estimate), channel, task, 1, 1)
