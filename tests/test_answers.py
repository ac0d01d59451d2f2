"""Answers to fading against the laws of their papers, their limits, and NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_within
from scipy import stats

import jaxota as jo

KEY = jax.random.key(0)
ANSWERS = {
    "phase only": jo.PhaseOnly(np.sqrt(np.pi) / 2),
    "optimal power": jo.OptimalPower(),
    "sum": jo.UniformForcing("sum"),
    "eigenvector": jo.UniformForcing("eigenvector"),
    "ascent": jo.UniformForcing(),
    "blind": jo.Blind(),
}
ONE_ANTENNA = ("phase only", "optimal power")
each_answer = pytest.mark.parametrize("name", ANSWERS)


def _complex(pairs):
    pairs = np.asarray(pairs, np.float64)
    return pairs[:, 0] + 1j * pairs[:, 1]


@jo.part
class _Fresh:
    """Rayleigh fading without memory."""

    def draw(self, key, fresh, memory):
        return fresh, memory


@functools.partial(jax.jit, static_argnums=(1, 2))
def _program(fading, users, trials, noise):
    def one(key):
        keys = jax.random.split(key, 2)
        gains, estimates, _ = fading.draw(keys, jnp.ones(users), None)
        return gains[:, 0], estimates[:, 0], fading.answer(0, gains[:, 0], estimates[:, 0], noise)

    return jax.vmap(one)(jax.random.split(KEY, trials))


def _drawn(answer, users, antennas=1, trials=4000, noise=0.1, csi_error=0.0):
    """True and estimated channels [trial, antenna, user], and links, of independent rounds."""
    fading = jo.Fading(_Fresh(), answer, csi_error, antennas)
    fading = jax.tree.map(jnp.float32, fading)
    gains, estimates, link = _program(fading, users, trials, np.float32(noise))
    return _complex(gains), _complex(estimates), jax.tree.map(np.asarray, link)


def test_phase_only_gains():
    """E gain = √π/2 and Var gain = 1 − π/4 under Rayleigh; with wrong phases, less."""
    mean = np.sqrt(np.pi) / 2
    *_, link = _drawn(jo.PhaseOnly(), 2)
    assert_within(link.gain, mean)
    assert_within((link.gain - mean) ** 2, 1 - np.pi / 4)
    assert (link.heard == 1).all() and (link.amplification == 1).all() and (link.floor == 1).all()
    *_, link = _drawn(jo.PhaseOnly(mean), 2)
    assert_within(link.gain, 1.0)
    np.testing.assert_allclose(link.floor, mean, rtol=1e-6)
    h, estimate, link = _drawn(jo.PhaseOnly(), 2, csi_error=0.3)
    expected = (h * estimate.conj()).real / np.abs(estimate)
    np.testing.assert_allclose(link.gain, expected[:, 0], rtol=1e-5, atol=1e-6)
    assert_within(link.gain, mean / np.sqrt(1.3))


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (jo.rayleigh().law, np.sqrt(np.pi) / 2),
        (jo.rician(3.0).law, stats.rice(np.sqrt(6.0)).mean() / np.sqrt(8.0)),
        (jo.rician(0.0).law, np.sqrt(np.pi) / 2),
        (jo.rician(1e6).law, 1.0),
        (jo.nakagami(2.5).law, stats.nakagami(2.5).mean()),
        (jo.nakagami(0.5).law, stats.nakagami(0.5).mean()),
    ],
)
def test_mean_moduli_of_laws(law, expected):
    np.testing.assert_allclose(jax.tree.map(jnp.float32, law).modulus(), expected, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fading",
    [
        jo.rayleigh(answer=ANSWERS["phase only"], csi_error=0.2),
        jo.nakagami(1.5, answer=jo.PhaseOnly()),
    ],
)
def test_phase_only_has_exact_curves(task, fading):
    algorithm = jo.cotaf(2e-2, 3, precode=jo.Constant(1.5))
    channel = jo.Channel(snr_db=3.0, fading=fading, gains=[0.5, 1.0, 2.0, 1.0])
    history = jo.simulate(KEY, algorithm, channel, task, rounds=4, trials=2000)
    exact = jo.exact(algorithm, channel, task, rounds=4)
    assert_within(history.gap, exact.gap)
    assert_within(history.error, exact.error)
    assert_within(history.mean_power, exact.mean_power)
    np.testing.assert_allclose(history.deviation, np.tile(exact.deviation, (2000, 1)), rtol=1e-5)


def _squared_error(a, level, noise):
    """MSE of the sum of values of variance 1, [trial]; users of |h| = a, [trial, user]."""
    return ((np.minimum(1.0, a / level) - 1.0) ** 2).sum(-1) + noise / level[..., 0] ** 2


@pytest.mark.parametrize("noise", [1e-3, 0.1, 3.0])
def test_optimal_power_is_optimal(noise):
    """No level on a fine grid is better: not inversion to the weakest, not full power."""
    h, _, link = _drawn(jo.OptimalPower(), 5, trials=300, noise=noise)
    a, level = np.abs(h[:, 0]), link.floor[:, None].astype(float)
    np.testing.assert_allclose(link.gain, np.minimum(1.0, a / level), rtol=1e-5)
    np.testing.assert_allclose(link.amplification, np.minimum(1.0, level / a) ** 2, rtol=1e-5)
    least = _squared_error(a, level, noise)
    grid = np.geomspace(1e-3, 1e3, 4000)
    others = [_squared_error(a, np.full_like(level, each), noise) for each in grid]
    best = np.min(others, 0)
    assert (least <= best * (1 + 1e-5)).all()
    np.testing.assert_allclose(least, best, rtol=5e-3)  # of the grid
    inversion = _squared_error(a, a.min(1, keepdims=True), noise)
    assert (least <= inversion * (1 + 1e-5)).all() and least.mean() < 0.95 * inversion.mean()


def test_limits_of_optimal_power():
    h, _, quiet = _drawn(jo.OptimalPower(), 5, trials=50, noise=0.0)
    np.testing.assert_allclose(quiet.gain, 1.0, rtol=1e-6)  # inversion without truncation
    np.testing.assert_allclose(quiet.floor, np.abs(h).min((1, 2)), rtol=1e-6)
    *_, loud = _drawn(jo.OptimalPower(), 5, trials=50, noise=1e6)
    assert (loud.amplification == 1).all()  # full power
    h, _, alone = _drawn(jo.OptimalPower(), 1, trials=50, noise=0.5)
    power = np.abs(h[:, 0]) ** 2
    np.testing.assert_allclose(alone.gain, power / (power + 0.5), rtol=1e-5)  # Wiener's filter


@pytest.mark.slow
def test_errors_of_optimal_power(task):
    """The error of independent values over a channel is the formula's, and below inversion's."""
    users, dim, noise, trials = 4, 50, 0.8, 2000
    a = np.abs(_drawn(jo.OptimalPower(), users, trials=trials, noise=noise)[0][:, 0])
    errors = {}
    for name, answer in (("optimal", jo.OptimalPower()), ("weakest", jo.UniformForcing())):
        *_, link = _drawn(answer, users, trials=trials, noise=noise)
        rng = np.random.default_rng(1)
        values = rng.standard_normal((trials, users, dim))
        # As the engine has it: deviation √(sw2·E/P)/(n·floor), with E = d and noise = d·sw2/P.
        deviation = np.sqrt(noise) / (users * link.floor[:, None])
        received = np.einsum("tu,tud->td", link.gain, values) / users
        received = received + deviation * rng.standard_normal((trials, dim))
        error = ((received - values.mean(1)) ** 2).mean(-1)
        law = _squared_error(a, link.floor[:, None], noise) / users**2
        assert_within(error / law, 1.0)
        errors[name] = np.median(law)
    assert errors["optimal"] < 0.9 * errors["weakest"]


def _numpy_combiner(name, h):
    """f [antenna] of channels h [antenna, user]."""
    if name == "sum":
        return h.sum(1) / np.linalg.norm(h.sum(1))
    if name == "eigenvector":
        return np.linalg.eigh(h @ h.conj().T)[1][:, -1]
    f, best = h.sum(1) / np.linalg.norm(h.sum(1)), None
    for t in range(1, 31):
        seen = np.abs(f.conj() @ h) ** 2
        if best is None or seen.min() > (np.abs(best.conj() @ h) ** 2).min():
            best = f
        weakest = h[:, seen.argmin()]
        slope = weakest * (weakest.conj() @ f)
        f = f + slope / np.linalg.norm(slope) / np.sqrt(t)
        f = f / np.linalg.norm(f)
    return best


@pytest.mark.parametrize("name", ["sum", "eigenvector", "ascent"])
@pytest.mark.parametrize("antennas", [1, 4])
def test_uniform_forcing(name, antennas):
    """All arrive at gain 1, none above the budget; MSE of the sum is sw2·max_i 1/|fᴴh_i|²."""
    h, _, link = _drawn(ANSWERS[name], 6, antennas, trials=100)
    np.testing.assert_allclose(link.gain, 1.0, rtol=2e-5)
    np.testing.assert_allclose(link.amplification.max(1), 1.0, rtol=1e-5)
    assert (link.heard == 1).all()
    each = [np.abs(_numpy_combiner(name, x).conj() @ x) for x in h]
    floor = np.array([x.min() for x in each])
    close = np.isclose(link.floor, floor, rtol=1e-3)
    # The ascent follows the weakest user: where two are as weak, rounding decides which. Where two
    # eigenvalues are nearly equal, power iteration stops between their vectors.
    assert close.all() if name == "sum" else close.mean() > 0.9
    expected = (floor[:, None] / np.array(each))[close] ** 2
    np.testing.assert_allclose(link.amplification[close], expected, rtol=5e-3, atol=1e-6)


def test_ascent_saves_the_weakest_user():
    """20 users and 4 antennas: the median noise is a fifth of the other combiners', or less."""
    noise = {}
    for name in ("sum", "eigenvector", "ascent"):
        *_, link = _drawn(ANSWERS[name], 20, 4, trials=400)
        noise[name] = 1 / link.floor.astype(float) ** 2
    assert (noise["ascent"] <= noise["sum"] * (1 + 1e-5)).all()  # it starts there
    assert np.median(noise["ascent"]) < np.median(noise["eigenvector"]) / 4
    assert np.median(noise["ascent"]) < np.median(noise["sum"]) / 5
    assert noise["ascent"].mean() < 1.5 * np.median(noise["ascent"])  # no deep fade among them


@pytest.mark.parametrize("name", ["sum", "eigenvector", "ascent"])
def test_limits_of_uniform_forcing(name):
    """One antenna with a floor is truncated inversion; one user, maximum ratio combining."""
    forced = jo.UniformForcing(name, threshold=0.6)
    h, _, link = _drawn(forced, 4, csi_error=0.1, trials=100)
    _, _, inverted = _drawn(jo.Inversion(0.6), 4, csi_error=0.1, trials=100)
    for field in ("heard", "floor"):
        np.testing.assert_array_equal(getattr(link, field), getattr(inverted, field))
    heard = inverted.heard > 0
    assert 0.3 < heard.mean() < 0.9
    for field in ("gain", "amplification"):
        ours, theirs = getattr(link, field), getattr(inverted, field)
        np.testing.assert_allclose(ours[heard], theirs[heard], rtol=1e-4, atol=1e-6)
    *_, link = _drawn(ANSWERS[name], 3)
    assert_within(link.floor.astype(float) ** 2, 1 / 3)  # the least of three exponentials
    h, _, link = _drawn(ANSWERS[name], 1, 4)
    power = (np.abs(h[:, :, 0]) ** 2).sum(1)
    np.testing.assert_allclose(link.floor**2, power, rtol=1e-4)
    assert_within(1 / link.floor.astype(float) ** 2, 1 / 3)  # E[1/‖h‖²] = 1/(A − 1)


@pytest.mark.parametrize(("users", "antennas"), [(1, 1), (3, 1), (3, 8), (6, 32)])
def test_blind_gains(users, antennas):
    """Relative variance 1/A of equal updates for every N; noise on the mean sw2/(N·A)."""
    h, _, link = _drawn(jo.Blind(), users, antennas)
    expected = (h.sum(2).conj()[:, :, None] * h).sum(1).real / antennas
    np.testing.assert_allclose(link.gain, expected, rtol=1e-3, atol=1e-5)
    total = link.gain.astype(float).mean(1)
    assert_within(total, 1.0)
    assert_within((total - 1.0) ** 2, 1 / antennas)
    # Of one user (N + 1)/(2A), of two 1/(2A): so the error of any values is known.
    away = link.gain.astype(float) - 1.0
    assert_within(away[:, 0] ** 2, (users + 1) / (2 * antennas))
    if users > 1:
        assert_within(away[:, 0] * away[:, 1], 1 / (2 * antennas))
    assert_within((users * link.floor.astype(float)) ** -2.0, 1 / (users * antennas))
    assert (link.amplification == 1).all() and (link.heard == 1).all()


def test_blind_with_wrong_channels():
    """The server's errors average out: the mean gain stays 1, noise grows by the errors' power."""
    *_, link = _drawn(jo.Blind(), 3, 4, csi_error=0.5)
    assert_within(link.gain, 1.0)
    assert_within((3 * link.floor.astype(float)) ** -2.0, 1.5 / 12)


@each_answer
def test_answers_over_laws(name):
    """Rician, Nakagami, errors, correlation and far users; strength as the channel has it."""
    antennas = 1 if name in ONE_ANTENNA else 3
    for fading in (
        jo.rician(2.0, csi_error=0.1, correlation=0.5, answer=ANSWERS[name], antennas=antennas),
        jo.nakagami(1.5, answer=ANSWERS[name], antennas=antennas),
    ):
        channel = jo.Channel(snr_db=3.0, fading=fading, gains=np.array([0.0, 1e-6, 1.0, 1e6]))
        channel = jax.tree.map(jnp.float32, channel)
        memory = channel.start(KEY, 4)
        links = channel.links(jax.random.split(KEY, 3), memory, 4, 10, False)[:2]
        for link in links:
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(link))
            assert (np.asarray(link.heard) == 1).all() and (link.amplification <= 1 + 1e-5).all()


def test_each_block_has_its_own_noise():
    """A tenth of the power on the control block is ten times the noise in σ² = d·sw2/P."""
    fading = jo.rayleigh(answer=jo.OptimalPower())
    keys = jax.random.split(KEY, 3)
    floors = {}
    for power, snr_db in ((1.0, 10.0), (0.1, 10.0), (1.0, 0.0)):
        channel = jo.Channel(snr_db=snr_db, control_power=power, fading=fading)
        channel = jax.tree.map(jnp.float32, channel)
        links = channel.links(keys, channel.start(KEY, 3), 3, 5, True)
        floors[power, snr_db] = [float(link.floor) for link in links[:2]]
    assert floors[1.0, 10.0][0] == floors[0.1, 10.0][0] != floors[1.0, 0.0][0]
    np.testing.assert_allclose(floors[0.1, 10.0][1], floors[1.0, 0.0][1], rtol=1e-5)


@pytest.mark.parametrize("name", ONE_ANTENNA)
def test_antennas_that_nobody_combines_are_refused(task, name):
    channel = jo.Channel(fading=jo.rayleigh(answer=ANSWERS[name], antennas=3))
    words = r"^channel\.fading\.answer must combine 3 antennas, which .* does not: give one"
    with pytest.raises(jo.InputError, match=words):
        jo.simulate(KEY, jo.cotaf(1e-2, 1), channel, task, 1, 1)
    with pytest.raises(jo.InputError, match="combiner must be"):
        fading = jo.rayleigh(answer=jo.UniformForcing("best"))
        jo.simulate(KEY, jo.cotaf(1e-2, 1), jo.Channel(fading=fading), task, 1, 1)


def test_what_has_no_exact_curve_is_refused(task):
    channel = jo.Channel(fading=jo.rayleigh(answer=jo.OptimalPower()))
    with pytest.raises(jo.InputError, match=r"^channel\.fading must"):
        jo.exact(jo.cotaf(1e-2, 1), channel, task, 1)
    with pytest.raises(jo.InputError, match=r"^channel\.fading must have `floors`"):
        jo.theory.measure(KEY, jo.cotaf(1e-2, 1), channel, task, 1, 1)
