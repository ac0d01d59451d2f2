"""Recorded channels: a NumPy twin of whole trajectories, the answers, and the tools' shapes."""

import jax
import numpy as np
import pytest
import reference

import jaxota as jo

KEY = jax.random.key(0)
ROUNDS, SNAPSHOTS, USERS = 5, 3, 4


def _recording(antennas=3, seed=0):
    """[snapshot, antenna, user]: a line of sight and some scattering."""
    rng = np.random.default_rng(seed)
    scatter = rng.standard_normal((2, SNAPSHOTS, antennas, USERS))
    return 0.5 + 0.6 * (scatter[0] + 1j * scatter[1])


def _inversion(h, values):
    h = h[0]
    heard = np.abs(h) > 0.3
    return values[heard].mean(0), heard.sum()


def _phase_only(h, values):
    return (np.abs(h[0])[:, None] * values).mean(0), USERS


def _optimal(h, values):
    """Without noise, inversion to the weakest."""
    return values.mean(0), USERS


def _blind(h, values):
    gain = (h.sum(1).conj() @ h).real / len(h)
    return (gain[:, None] * values).mean(0), USERS


ANSWERS = {
    "inversion": (jo.Inversion(), _inversion, 1),
    "phase only": (jo.PhaseOnly(), _phase_only, 1),
    "optimal power": (jo.OptimalPower(), _optimal, 1),
    "forcing": (jo.UniformForcing(), _optimal, 3),
    "blind": (jo.Blind(), _blind, 3),
}


def _twin(arrays, start, gains, received, rate, steps):
    """Gradient steps of all users, and what the server makes of them, round by round."""
    features, targets = arrays
    model, heard, models = start.astype(float), [], []
    for r in range(ROUNDS):
        updates = []
        for a, b in zip(features, targets, strict=True):
            theta = model.copy()
            for _ in range(steps):
                theta = theta - rate * reference.gradient(None, a, b, theta, None)
            updates.append(theta - model)
        average, count = received(gains[r % SNAPSHOTS], np.array(updates))
        model = model + average
        heard.append(count)
        models.append(model)
    return np.array(models), heard


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_trajectories_are_those_of_a_numpy_twin(task, arrays, name):
    answer, received, antennas = ANSWERS[name]
    gains = _recording(antennas)
    start = np.random.default_rng(1).standard_normal((2, task.dim)).astype("f4")
    channel = jo.Channel(snr_db=np.inf, fading=jo.recorded(gains, answer))
    algorithm = jo.cotaf(1e-2, 2, precode=jo.Online())
    history = jo.simulate(KEY, algorithm, channel, task, ROUNDS, 2, initial=start)
    for trial in range(2):
        models, heard = _twin(arrays, start[trial], gains, received, 1e-2, 2)
        scale = np.abs(models).max()
        np.testing.assert_allclose(history.model[trial], models[-1], rtol=0, atol=2e-5 * scale)
        np.testing.assert_array_equal(history.participants[trial], heard)


def _played(each, rounds=4, trials=50):
    """Snapshots [trial, round] that were played, by their gains, which are their numbers."""
    gains = np.arange(1.0, SNAPSHOTS + 1)[:, None] * np.ones((1, USERS))
    fading = jax.tree.map(jax.numpy.float32, jo.recorded(gains, each=each, csi_error=0.0))

    def one(key):
        k_start, k_rounds = jax.random.split(key)

        def step(memory, keys):
            h, _, memory = fading.draw(keys, jax.numpy.ones(USERS), memory)
            return memory, h

        keys = jax.random.split(k_rounds, (rounds, 2))
        return jax.lax.scan(step, fading.start(k_start, USERS), keys)[1]

    h = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(KEY, trials)))
    assert (h[:, :, 1] == 0).all() and (h[:, :, 0, 0] == h[:, :, 0, 1]).all()  # real, both blocks
    assert (h[:, :, 0, 0, 0] == h[:, :, 0, 0, 0, :1]).all()
    return h[:, :, 0, 0, 0, 0]


def test_the_order_of_snapshots():
    np.testing.assert_array_equal(_played("round"), np.tile([1, 2, 3, 1], (50, 1)))
    kept = _played("trial")
    assert (kept == kept[:, :1]).all() and set(kept[:, 0]) == {1, 2, 3}
    drawn = _played("draw", trials=400)
    shares = [(drawn == n).mean() for n in (1, 2, 3)]
    np.testing.assert_allclose(shares, 1 / 3, atol=4 * np.sqrt(2 / 9 / drawn.size))
    assert (drawn[:, 0] != drawn[:, 1]).any()


def test_recordings_are_swept_and_have_csi_errors(task):
    fading = jo.recorded(_recording(1)[:, 0], csi_error=[0.0, 0.2])
    algorithm = jo.cotaf(1e-2, 1, precode=jo.Online())
    history = jo.sweep(KEY, algorithm, jo.Channel(snr_db=np.inf, fading=fading), task, 3, 2)
    assert (history.error[0] < 1e-6 * history.error[1]).all()


BAD = {
    "gains must be [snapshot, antenna, user], [": {"gains": np.ones((2, 3, 4, 5, 6))},
    "gains must be [snapshot, antenna, user], ": {"gains": np.ones((0, 3, 4))},
    "gains must be complex numbers, got": {"gains": "x"},
    "gains must be finite": {"gains": np.full((2, 4), np.nan)},
    "channel.fading.law.gains must be of 1 antennas": {"gains": np.ones((2, 5))},
    "channel.fading.law.each must be": {"gains": np.ones((2, 4)), "each": "day"},
    "channel.fading.answer must combine 3 antennas": {"gains": np.ones((2, 3, 4))},
}


@pytest.mark.parametrize("words", BAD)
def test_bad_recordings_are_one_line(task, words):
    with pytest.raises(jo.InputError) as caught:
        channel = jo.Channel(fading=jo.recorded(**BAD[words]))
        jo.simulate(KEY, jo.cotaf(1e-2, 1), channel, task, 1, 1)
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


def test_recordings_have_no_exact_curve(task):
    channel = jo.Channel(fading=jo.recorded(np.ones((2, 4))))
    with pytest.raises(jo.InputError, match=r"^channel\.fading must"):
        jo.exact(jo.cotaf(1e-2, 1), channel, task, 1)
