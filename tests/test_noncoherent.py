"""Votes and histograms without phases: FSK majority vote and type-based multiple access."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_within

import jaxota as jo
from jaxota.stages.answers import ideal_link

KEY = jax.random.key(0)
USERS, DIM, TRIALS = 5, 40, 1500


class _Block:
    def __init__(self, values):
        self.values, self.energies = values, (values**2).sum(1)


@functools.partial(jax.jit, static_argnums=0)
def _received(fades, values, energy, noise):
    """Shares [trial, symbol] that a server of energies receives, their deviation, and power."""
    fading = jax.tree.map(jnp.float32, jo.rayleigh(answer=jo.PhaseOnly()))
    carrier = jo.EnergyDetection()(jo.Channel())

    def one(key):
        keys = jax.random.split(key, 3)
        link = ideal_link(USERS)
        if fades:
            memory = fading.start(keys[2], USERS)
            link = fading.links(keys[:2], jnp.ones(USERS), memory, jnp.zeros(2))[0]
        return carrier.carry(key, _Block(values), energy, noise, link)

    return jax.vmap(one)(jax.random.split(KEY, TRIALS))


def _votes(plus):
    """Bins of `plus` votes for and the others against, on every coordinate."""
    votes = jnp.where(jnp.arange(USERS) < plus, 1.0, -1.0)[:, None] * jnp.ones((1, DIM))
    return jo.FrequencyShift(0.1).encode(votes, None, jo.SideInfo())[0]


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("plus", [1, 3, 5])
def test_chances_of_votes(plus, noise):
    """P(+) = (E·k + σ²)/(E·N + 2σ²) with E = 1/d of the budget, and σ² = 2·sw2."""
    received, *_ = _received(True, _votes(plus), jnp.float32(DIM), jnp.float32(noise))
    facts = jnp.float32(0.0), ideal_link(USERS), jo.SideInfo(), DIM
    step = jax.vmap(lambda each: jo.FrequencyShift(jnp.float32(0.1)).decode(each, *facts)[0])
    # Coordinates share a fade: only trials are independent.
    share = (np.asarray(step(received)) > 0).mean(1)
    expected = (plus / DIM + 2 * noise) / (USERS / DIM + 4 * noise)
    if expected == 1.0:
        assert (share == 1.0).all()
    else:
        assert_within(share, expected)


@pytest.mark.parametrize("fades", [False, True])
def test_energies_are_unbiased(fades):
    """On average the share of users who send; as E[(|r|² − σ²)/n] is, for users of less power."""
    noise = jnp.float32(0.02)
    received, deviation, power = _received(fades, _votes(3), jnp.float32(DIM), noise)
    assert_within(np.asarray(received)[:, :DIM].mean(1), 3 / USERS)
    assert_within(np.asarray(received)[:, DIM:].mean(1), 2 / USERS)
    np.testing.assert_allclose(power, 1.0, rtol=1e-5)
    np.testing.assert_allclose(deviation, 2 * 0.02 * DIM / USERS, rtol=1e-5)
    weak = jnp.float32([1.0, 1.0, 4.0, 1.0, 1.0]) * DIM  # the third user at half the amplitude
    received, _, power = _received(fades, _votes(3), weak, noise)
    assert_within(np.asarray(received)[:, :DIM].mean(1), 2.25 / USERS)
    np.testing.assert_allclose(power[:, 2], 0.25, rtol=1e-5)


def test_noise_alone():
    """|w|² − σ² has mean 0, and the stated standard deviation."""
    nothing, noise = jnp.zeros((USERS, DIM)), jnp.float32(0.5)
    received, deviation, power = _received(False, nothing, jnp.float32(3.0), noise)
    assert_within(np.asarray(received).mean(1), 0.0)
    assert_within((np.asarray(received) ** 2).mean(1) - np.asarray(deviation) ** 2, 0.0)
    assert (power == 0).all()


def _histogram(values, levels, of="mean", noise=0.0, seed=0):
    """The decoded vector, the deviation on it, and values at their levels [user, d]."""
    part = jo.TypeBased(levels, of)
    side = jo.SideInfo(reports=part.report(values, None))
    bins, _ = part.encode(values, None, side)
    shares = bins.mean(0) + noise * jax.random.normal(jax.random.key(seed), bins.shape[1:])
    decoded, deviation = part.decode(
        shares, jnp.float32(noise), ideal_link(USERS), side, values.shape[1]
    )
    grid = np.asarray(part.grid(side))
    return decoded, deviation, grid[np.abs(np.asarray(values)[:, :, None] - grid).argmin(2)]


@pytest.mark.parametrize("levels", [2, 9])
def test_histograms_give_mean_and_median(levels):
    values = jnp.asarray(np.random.default_rng(0).standard_normal((5, 7)), "float32")
    mean, _, levelled = _histogram(values, levels)
    np.testing.assert_allclose(mean, levelled.mean(0), atol=1e-5)
    largest = np.abs(values).max()
    assert (np.abs(mean - values.mean(0)) <= largest / (levels - 1) + 1e-6).all()
    median, _, levelled = _histogram(values, levels, "median")
    np.testing.assert_allclose(median, np.median(levelled, 0), atol=1e-6)
    liar = values.at[0].set(largest)  # one user of five moves the median little, the mean a lot
    median, _, levelled = _histogram(liar, levels, "median")
    np.testing.assert_allclose(median, np.median(levelled, 0), atol=1e-6)
    even, _, levelled = _histogram(values[:4], levels, "median")
    np.testing.assert_allclose(even, np.sort(levelled, 0)[1], atol=1e-6)


def test_noise_on_means_of_histograms():
    values = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3000)), "float32")
    mean, deviation, levelled = _histogram(values, 6, noise=0.1)
    error = np.asarray(mean) - levelled.mean(0)
    assert_within(error, 0.0)
    assert_within(error**2, float(deviation) ** 2)


SLOPES = np.array([[1.0, -2.0, 0.5], [0.5, 1.0, 2.0], [-3.0, -1.0, 1.5]])


def _start(key):
    return jnp.zeros(3)


def _loss(model, batch):
    return ((batch - model[None]) ** 2).sum(-1) / 2


@functools.cache
def _bowls(users):
    """Loss ‖θ − c_i‖²/2 of each user."""
    return jo.tasks.empirical(_start, _loss, SLOPES[:users, None].astype("f4"))


def _moved(task, compress, medium, rounds=4):
    algorithm = jo.cotaf(0.1, 1, precode=jo.Online(), compress=compress).replace(medium=medium)
    history = jo.simulate(KEY, algorithm, jo.Channel(snr_db=np.inf), task, rounds, 1)
    return history


@pytest.mark.slow
def test_one_user_without_noise_is_sign_descent():
    history = _moved(_bowls(1), jo.FrequencyShift(0.25), jo.EnergyDetection())
    model = np.zeros(3)
    for _ in range(4):
        model = model + 0.25 * np.sign(SLOPES[0] - model)
    np.testing.assert_allclose(history.model[0], model, atol=1e-6)
    assert history.error is None
    assert (np.asarray(history.uses) == 2 * 2 * 3).all()  # two complex symbols a coordinate


@pytest.mark.slow
@pytest.mark.parametrize("of", ["mean", "median"])
def test_histograms_descend_as_numpy_does(of):
    history = _moved(_bowls(3), jo.TypeBased(9, of), jo.OverTheAir())
    model = np.zeros(3)
    for _ in range(4):
        updates = 0.1 * (SLOPES - model)
        grid = np.abs(updates).max() * np.linspace(-1, 1, 9)
        levelled = grid[np.abs(updates[:, :, None] - grid).argmin(2)]
        model = model + (levelled.mean(0) if of == "mean" else np.median(levelled, 0))
    np.testing.assert_allclose(history.model[0], model, atol=1e-5)
    assert (history.error is None) == (of == "median")
