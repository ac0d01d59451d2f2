"""Frequency-selective fading: links of subcarriers, and AirFL-Mem's memory of the unheard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from agree import assert_within
from scipy import special

import jaxota as jo
from jaxota.stages.answers import ideal_link
from jaxota.stages.channel import superpose

KEY = jax.random.key(0)
USERS, DIM, CARRIERS, THRESHOLD = 4, 6, 4, 0.8


def _links(fading, trials, users=USERS):
    """Model links of independent rounds, [trial, …]."""
    fading = jax.tree.map(jnp.float32, fading)

    def one(key):
        k_start, *keys = jax.random.split(key, 3)
        memory = fading.start(k_start, users)
        return fading.links(keys, jnp.ones(users), memory, jnp.float32([0.1, 0.1]))[0]

    return jax.jit(jax.vmap(one))(jax.random.split(KEY, trials))


@pytest.fixture(scope="module")
def links():
    return _links(jo.rayleigh(THRESHOLD, carriers=CARRIERS), 2000)


def test_each_carrier_is_truncated_by_itself(links):
    """Chance exp(−t²) on each; power t²·E1(t²); who is heard on any has a link."""
    heard = np.asarray(links.carriers.heard)
    assert heard.shape == (2000, USERS, CARRIERS)
    assert_within(heard.mean((1, 2)), np.exp(-(THRESHOLD**2)))
    power = heard * np.asarray(links.carriers.amplification)
    assert_within(power.mean((1, 2)), THRESHOLD**2 * special.exp1(THRESHOLD**2))
    np.testing.assert_array_equal(links.heard, heard.max(2))
    symbols = jax.vmap(lambda link: link.by_symbol(DIM))(links)
    assert symbols.heard.shape == (2000, USERS, DIM) and symbols.floor.shape == (2000, DIM)
    np.testing.assert_array_equal(symbols.heard[:, :, 4:], heard[:, :, :2])  # in turn


class _Block:
    def __init__(self, values):
        self.values, self.energies = values, (values**2).sum(1)


@pytest.mark.parametrize("energy", ["common", "of users"])
def test_noise_and_power_of_symbols(links, energy):
    """Errors have the stated mean square; a symbol that nobody sends on brings nothing."""
    rng = np.random.default_rng(0)
    values = jnp.asarray(rng.standard_normal((USERS, DIM)), "float32")
    energies = jnp.full(USERS, 9.0) if energy == "of users" else jnp.float32(9.0)
    memory = jo.Unheard()

    def one(key, link):
        run = key, _Block(values), energies
        clean, none, _ = superpose(*run, jnp.float32(0.0), link)
        noisy, deviation, power = superpose(*run, jnp.float32(0.5), link)
        side = jo.SideInfo()
        clean_sum, _ = memory.decode(clean, none, link, side, DIM)
        noisy_sum, after = memory.decode(noisy, deviation, link, side, DIM)
        errors = jnp.stack([noisy - clean, noisy_sum - clean_sum])
        return clean, none, errors, jnp.stack([deviation, after]), power

    keys = jax.random.split(jax.random.key(1), 2000)
    clean, none, errors, deviations, power = jax.jit(jax.vmap(one))(keys, links)
    heard = np.asarray(jax.vmap(lambda link: link.by_symbol(DIM).heard)(links)) > 0
    count = heard.sum(1)
    expected = np.where(heard, values, 0).sum(1) / np.maximum(count, 1)
    np.testing.assert_allclose(clean, expected, atol=1e-5)
    assert (none == 0).all() and (np.asarray(errors)[:, 0][count == 0] == 0).all()
    assert (count == 0).any()
    noise = np.where(count > 0, 0.5 * 9 / (np.maximum(count, 1) * THRESHOLD) ** 2, 0).mean(1)
    np.testing.assert_allclose(np.asarray(deviations)[:, 0] ** 2, noise, rtol=1e-4)
    for kind in (0, 1):  # the average, and the sum over all users that AirFL-Mem takes
        square = (np.asarray(errors)[:, kind] ** 2).mean(1)
        assert_within(square - np.asarray(deviations)[:, kind] ** 2, 0.0)
    symbols = jax.vmap(lambda link: link.by_symbol(DIM))(links)
    spent = (np.asarray(symbols.heard * symbols.amplification) * np.asarray(values) ** 2).sum(2) / 9
    np.testing.assert_allclose(power, spent, rtol=1e-4)


def _recording(rounds, seed=0):
    """[snapshot, carrier, antenna, user]."""
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, rounds, CARRIERS, 1, USERS)) / np.sqrt(2)
    return parts[0] + 1j * parts[1]


def _twin(arrays, model, gains, keeps):
    """Two gradient steps of all users, truncated inversion on each carrier; memory or not."""
    features, targets = arrays
    memory, total, arrived = np.zeros((USERS, DIM)), 0.0, 0.0
    for h in gains:
        values = []
        for a, b in zip(features, targets, strict=True):
            theta = model.copy()
            for _ in range(2):
                theta = theta - 1e-2 * reference.gradient(None, a, b, theta, None)
            values.append(theta - model)
        total = total + np.sum(values, 0)
        values = np.array(values) + memory * keeps
        moved = np.zeros(DIM)
        for j in range(DIM):
            heard = np.abs(h[j % CARRIERS, 0]) > THRESHOLD
            own = values[heard, j].sum()
            arrived_j = own / USERS if keeps else own / max(heard.sum(), 1)
            moved[j] = arrived_j
            memory[:, j] = np.where(heard, 0.0, values[:, j])
        model, arrived = model + moved, arrived + USERS * moved
    return model, total, arrived + memory.sum(0)


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, True])
def test_trajectories_are_those_of_a_numpy_twin(task, arrays, keeps):
    gains = _recording(7)
    start = np.random.default_rng(2).standard_normal((1, DIM)).astype("f4")
    fading = jo.recorded(gains, jo.Inversion(THRESHOLD))
    compress = jo.Unheard() if keeps else jo.Uncompressed()
    algorithm = jo.cotaf(1e-2, 2, precode=jo.Online(), compress=compress)
    history = jo.simulate(
        KEY, algorithm, jo.Channel(snr_db=np.inf, fading=fading), task, 7, 1, initial=start
    )
    model, total, accounted = _twin(arrays, start[0].astype(float), gains, keeps)
    np.testing.assert_allclose(history.model[0], model, atol=2e-5 * np.abs(model).max())
    if keeps:  # Σ_r N·received + what is still remembered = Σ_r Σ_i v_i
        np.testing.assert_allclose(accounted, total, rtol=1e-10)
        assert history.error is None
    else:
        assert np.abs(np.asarray(history.error)).max() < 1e-8  # of each symbol's own average


def test_nothing_is_lost():
    """Σ_r N·decoded_r + Σ_i m_i = Σ_r Σ_i v_i, with flat links, too."""
    memory, part = jnp.zeros((3, 5)), jo.Unheard()
    sent = total = 0.0
    rng = np.random.default_rng(1)
    for _ in range(6):
        values = jnp.asarray(rng.standard_normal((3, 5)), "float32")
        heard = jnp.asarray(rng.random(3) < 0.5, "float32")
        link = ideal_link(3).replace(heard=heard)
        symbols, after = part.encode(values, memory, jo.SideInfo())
        received, _ = part.decode(link.mean(symbols), jnp.float32(1.0), link, jo.SideInfo(), 5)
        memory = part.remember(memory, after, link.by_symbol(5).heard)
        sent, total = sent + 3 * received, total + values.sum(0)
    np.testing.assert_allclose(sent + memory.sum(0), total, atol=1e-5)


@pytest.mark.slow
def test_memory_lowers_the_floor_of_truncation(task):
    """Users differ, and some are silent on each symbol: without memory models wander."""
    fading = jo.rayleigh(THRESHOLD, carriers=CARRIERS)
    channel, gaps = jo.Channel(snr_db=np.inf, fading=fading), {}
    for name, part in (("none", jo.Uncompressed()), ("memory", jo.Unheard())):
        algorithm = jo.cotaf(1e-2, 2, precode=jo.Online(), compress=part)
        history = jo.simulate(KEY, algorithm, channel, task, 150, 20)
        gaps[name] = np.asarray(history.gap)[:, 75:].mean(1)
    lowered = gaps["none"] - 1.5 * gaps["memory"]  # of the same trials
    assert lowered.mean() > 4 * lowered.std(ddof=1) / np.sqrt(20)


@pytest.mark.slow
def test_equal_carriers_are_flat_fading(task):
    gains = _recording(3)[:, :1]
    runs = []
    for recording in (gains[:, 0], np.repeat(gains, 3, 1)):
        channel = jo.Channel(snr_db=20.0, fading=jo.recorded(recording, jo.Inversion(0.1)))
        algorithm = jo.cotaf(1e-2, 2, precode=jo.Online())
        runs.append(jo.simulate(KEY, algorithm, channel, task, 3, 2, user_power=True))
    flat, selective = runs
    for name in ("model", "deviation", "user_power", "participants", "gap"):
        np.testing.assert_allclose(getattr(selective, name), getattr(flat, name), rtol=1e-4)


def test_what_needs_flat_fading_is_refused(task):
    channel = jo.Channel(fading=jo.rayleigh(carriers=3))
    with pytest.raises(jo.InputError, match=r"^channel\.fading must"):
        jo.exact(jo.cotaf(1e-2, 1), channel, task, 1)
    with pytest.raises(jo.InputError, match=r"^channel\.fading must have `floors`"):
        jo.theory.measure(KEY, jo.cotaf(1e-2, 1), channel, task, 1, 1)
