"""Fading: laws against closed forms, truncated inversion against its formulas and its twin."""

import functools

import jax
import numpy as np
import pytest
import reference
from agree import assert_equal, assert_within
from scipy import stats

import jaxota as jo
from jaxota import simulation
from jaxota._core import capacity

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
# Without calibration, where that is not the question: half as much to compile.
BARE = LOCAL | {"precode": jo.Online(), "estimate": jo.Identity()}
LAWS = {
    "rayleigh": jo.rayleigh(),
    "rician": jo.rician(3.0),
    "rician, K = 0": jo.rician(0.0),
    "nakagami": jo.nakagami(2.5),
    "nakagami, m = 1/2": jo.nakagami(0.5),
}
each_law = pytest.mark.parametrize("fading", LAWS.values(), ids=LAWS)


ROUNDS, TRIALS = 6, 300


def _draws(fading, seed=0, mean=1.0):
    """True and estimated gains [round, block, user] at the antenna, of consecutive rounds."""
    fading = jax.tree.map(np.float32, fading)
    pairs = _drawn(jax.random.key(seed), fading, np.full(20_000, mean, "f4"))
    return (
        np.asarray(x[:, 0], complex)[:, :, 0] + 1j * np.asarray(x[:, 1])[:, :, 0] for x in pairs
    )


@jax.jit
def _drawn(key, fading, amplitudes):
    k_start, k_rounds = jax.random.split(key)

    def step(memory, keys):
        gains, estimates, memory = fading.draw(keys, amplitudes, memory)
        return memory, (gains, estimates)

    keys = jax.random.split(k_rounds, (4, 2))
    return jax.lax.scan(step, fading.start(k_start, len(amplitudes)), keys)[1]


def _survival(name):
    """P(h > t) in closed form."""
    if name in ("rayleigh", "rician, K = 0"):
        return lambda t: np.exp(-(t**2))
    if name == "rician":  # h²·2(K+1) is noncentral χ² with 2 degrees of freedom: Marcum's Q
        return lambda t: stats.ncx2.sf(2 * 4.0 * t**2, 2, 2 * 3.0)
    m = 2.5 if name == "nakagami" else 0.5
    return lambda t: stats.gamma.sf(t**2, m, scale=1 / m)


@pytest.mark.parametrize("name", LAWS)
def test_gains_follow_their_law(name):
    gains, _ = _draws(LAWS[name])
    for block in gains[0]:
        h = np.abs(block)
        assert_within(h**2, 1.0)  # E[h²] = 1
        for threshold in (0.1, 0.3, 0.8, 1.5):
            share = _survival(name)(threshold)
            allowed = 4 * np.sqrt(share * (1 - share) / h.size)
            assert abs((h > threshold).mean() - share) <= allowed
        scattered = block - (np.sqrt(0.75) if name == "rician" else 0.0)
        for part in (scattered.real, scattered.imag):
            assert_within(part, 0.0)
    crossed = gains[0, 0] * np.conj(gains[0, 1] - gains[0, 1].mean())
    assert_within(crossed.real, 0.0)  # the blocks fade independently
    assert_within(crossed.imag, 0.0)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("law", ["rayleigh", "rician"])
def test_rounds_have_the_given_correlation(law, correlation):
    """Gauss-Markov: the scattered component's lag-1 correlation, and at lag 2 its square."""
    make = jo.rayleigh if law == "rayleigh" else functools.partial(jo.rician, 3.0)
    gains, _ = _draws(make(correlation=correlation))
    scatter = gains if law == "rayleigh" else 2.0 * (gains - np.sqrt(0.75))
    for lag in (1, 2):
        product = scatter[lag, 0] * np.conj(scatter[0, 0])
        assert_within(product.real, correlation**lag)
        assert_within(product.imag, 0.0)
    assert_within(np.abs(scatter[:, 0].T) ** 2, 1.0)  # stationary from the first round on


def test_csi_error_and_mean_gains():
    fading = jo.rayleigh(csi_error=0.2)
    gains, estimates = _draws(fading, mean=2.0)
    error = estimates - gains
    assert_within(np.abs(gains[0, 0]) ** 2, 4.0)
    for block in (0, 1):
        assert_within(np.abs(error[0, block]) ** 2, 0.2)
    assert_within((error[0, 0] * np.conj(error[0, 1])).real, 0.0)
    assert_within((error[0, 0] * np.conj(gains[0, 0])).real, 0.0)


def _run(algorithm, channel, task, start, rounds=ROUNDS, **options):
    """All runs have one size and record powers, so that they share their program."""
    return jo.simulate(
        jax.random.key(0),
        algorithm,
        channel,
        task,
        rounds,
        TRIALS,
        initial=start,
        user_power=True,
        **options,
    )


def _faded(fading, gains=(1.0, 1.0, 1.0, 1.0), **options):
    return jo.Channel(fading=fading, gains=np.asarray(gains), **options)


@pytest.mark.slow
@each_law
@pytest.mark.parametrize("make", [jo.cotaf, jo.cobaaf])
def test_participation_follows_the_law(task, start, fading, make):
    name = next(n for n, law in LAWS.items() if law is fading)
    history = _run(make(**BARE), _faded(fading), task, start)
    share = _survival(name)(0.3) ** (2 if make is jo.cobaaf else 1)
    assert_within(np.asarray(history.participants).mean(1) / task.users, share)


@pytest.mark.slow
def test_noise_given_the_participants(task, start):
    """The estimate of the partial average has variance sw2/(|S|² α h_min²), ρ_min on controls."""
    gain, snr_db, thresholds = 1.3, 4.0, {"threshold": 0.5, "control_threshold": 0.7}
    algorithm = jo.cobaaf(**LOCAL, precode=jo.Constant(gain), estimate=jo.Identity())
    channel = jo.Channel(snr_db=snr_db, fading=jo.rayleigh(**thresholds))
    history = _run(algorithm, channel, task, start)
    heard = np.asarray(history.participants)
    for block, name in (("error", "threshold"), ("control_error", "control_threshold")):
        error, floor = np.asarray(getattr(history, block)), thresholds[name]
        for size in range(1, task.users + 1):
            expected = 10 ** (-snr_db / 10) / (size**2 * gain**2 * floor**2)
            assert_within(error[heard == size] / task.dim, expected)
        assert (error[heard == 0] == 0).all() and (heard == 0).any()


@pytest.mark.slow
@each_law
@pytest.mark.parametrize("csi_error", [0.0, 0.3])
def test_online_keeps_the_budget_under_fading(task, start, fading, csi_error):
    fading = fading.replace(csi_error=csi_error)
    algorithm = jo.cobaaf(**LOCAL, precode=jo.Online())  # with a prior, and so with calibration
    channel = _faded(fading, [0.1, 1.0, 2.0, 5.0])
    history = _run(algorithm, channel, task, start, calibration_trials=10)
    for power in (history.user_power, history.user_control_power):
        assert (power <= 1 + 1e-5).all()
        assert (power > 0).any()


@pytest.mark.slow
def test_weak_users_are_heard_less(task, start):
    gains = np.array([0.05, 0.5, 1.0, 4.0])
    channel = _faded(jo.rayleigh(threshold=0.4), gains)
    history = _run(jo.cotaf(**BARE), channel, task, start)
    heard = (np.asarray(history.user_power) > 0).mean(1)  # [trial, user]
    assert_within(heard, np.exp(-(0.4**2) / gains))


def test_a_round_without_participants_changes_nothing(task, start):
    channel = _faded(jo.rayleigh(threshold=50.0, control_threshold=50.0))
    history = _run(jo.cobaaf(**BARE), channel, task, start)
    np.testing.assert_array_equal(history.model, start)
    assert (history.participants == 0).all() and (history.power == 0).all()
    assert (history.error == 0).all() and (history.control_error == 0).all()


@pytest.mark.slow
def test_full_participation_is_the_channel_without_fading(task, start):
    for algorithm in (jo.cotaf(**BARE), jo.cobaaf(**BARE)):
        plain = _run(algorithm, jo.Channel(), task, start)
        full = _run(algorithm, jo.Channel(participants=task.users), task, start)
        assert_equal(full, plain, task, start)


@pytest.mark.slow
def test_a_line_of_sight_is_the_channel_without_fading(task, start):
    """K → ∞ and threshold t < 1: everyone is heard, at an SNR lower by 20 log10 t."""
    for algorithm in (jo.cotaf(**BARE), jo.cobaaf(**BARE)):
        for k_factor in (np.inf, 1e12):
            fading = jo.rician(k_factor, threshold=0.5, control_threshold=0.5)
            sight = _run(algorithm, jo.Channel(snr_db=10.0, fading=fading), task, start)
            snr_db = 10.0 + 20 * np.log10(0.5)
            plain = _run(algorithm, jo.Channel(snr_db=snr_db), task, start)
            assert_equal(sight, plain, task, start)
            np.testing.assert_allclose(sight.power, 0.25 * plain.power, rtol=1e-4)


@pytest.mark.slow
def test_uniform_sets_of_exactly_s_users(task, start):
    channel = jo.Channel(participants=3)
    history = _run(jo.cotaf(**BARE), channel, task, start)
    assert (history.participants == 3).all()
    assert_within((np.asarray(history.user_power) > 0).mean(1), 3 / task.users)
    both = jo.Channel(participants=3, fading=jo.rayleigh(threshold=0.8))
    faded = _run(jo.cotaf(**BARE), both, task, start)
    assert_within(np.asarray(faded.participants).mean(1), 3 * np.exp(-0.64))


@pytest.mark.slow
def test_warm_start_under_partial_participation(arrays, task, start):
    """Whoever is heard first steps along ∇F(θ^0): c_i^0 and ĉ^0 were set by all users."""
    channel = jo.Channel(snr_db=np.inf, participants=1)
    algorithm = jo.cobaaf(1e-2, 1, warm_start=True, estimate=jo.Identity())
    history = _run(algorithm, channel, task, start, rounds=1)
    features, targets = arrays
    residual = np.einsum("nsd,td->tns", features, start) - targets
    gradient = 2 * np.einsum("tns,nsd->td", residual, features) / targets.size
    np.testing.assert_allclose(history.model, start - 1e-2 * gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_larger_csi_error_gives_a_larger_gap(task, start):
    """COTAF, by paired differences: the same fades, minibatches and noise at every csi_error."""
    errors = np.array([0.0, 0.03, 0.1, 0.3])
    fading = jo.rayleigh(csi_error=errors)
    history = jo.sweep(
        jax.random.key(0),
        jo.cotaf(**LOCAL),
        jo.Channel(snr_db=20.0, fading=fading),
        task,
        rounds=30,
        trials=300,
        calibration_trials=10,
    )
    last = np.asarray(history.gap)[:, :, 10:].mean(-1)  # [setting, trial]
    for worse, better in zip(last[1:], last[:-1], strict=True):
        difference = worse - better
        assert difference.mean() > 4 * difference.std(ddof=1) / np.sqrt(len(difference))


TWIN = {
    "rayleigh": (jo.rayleigh, {"threshold": 0.4, "control_threshold": 0.3}, {}),
    "rician, csi error": (
        jo.rician,
        {"k_factor": 2.0, "threshold": 0.3, "control_threshold": 0.4, "csi_error": 0.05},
        {},
    ),
    "nakagami, gains": (
        jo.nakagami,
        {"m": 2.0, "threshold": 0.4, "control_threshold": 0.3},
        {"gains": [0.3, 1.0, 1.0, 3.0]},
    ),
    "correlated, 3 of 4": (
        jo.rayleigh,
        {"threshold": 0.3, "control_threshold": 0.3, "correlation": 0.9},
        {"participants": 3},
    ),
    "participants": (None, None, {"participants": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm"),
    [(name, algorithm) for name in TWIN for algorithm in ("COTAF", "BAAF", "COBAAF")]
    + [("participants", "COBAAF, pooled")],
)
def test_twin_with_complex_arithmetic_agrees(arrays, task, start, name, algorithm):
    """Means over 300 trials of gaps, errors, powers and participants, within 4 standard errors."""
    make, fading, options = TWIN[name]
    controlled = algorithm.startswith("COBAAF")
    estimate = {"COTAF": "identity", "COBAAF, pooled": "pooled"}.get(algorithm, "mmse")
    local = LOCAL | {"controlled": controlled}
    plan = reference.calibrate(
        np.random.default_rng(2), *arrays, local=local, rounds=ROUNDS, trials=20, initial=start[:20]
    )
    law = make.__name__ if make else None
    twin = reference.simulate(
        np.random.default_rng(3),
        *arrays,
        local=local,
        precode=("offline",),
        estimate=estimate,
        channel={"snr_db": 5.0, "fading": make and fading | {"law": law}} | options,
        rounds=ROUNDS,
        trials=TRIALS,
        plan=plan,
        initial=start,
    )
    channel = jo.Channel(snr_db=5.0, **({"fading": make(**fading)} if make else {}), **options)
    ours = _run(
        {
            "COTAF": jo.cotaf(**LOCAL),
            "BAAF": jo.baaf(**LOCAL),
            "COBAAF": jo.cobaaf(**LOCAL),
            "COBAAF, pooled": jo.cobaaf(**LOCAL, estimate=jo.PooledMMSE()),
        }[algorithm],
        channel,
        task,
        start,
        plan=jo.Plan(**{k: v for k, v in plan.items() if v is not None}),
    )
    compared = ["gap", "error", "power", "participants"]
    if controlled:
        compared += ["control_error", "control_power"]
    for field in compared:
        values, expected = np.asarray(getattr(ours, field)), twin[field]
        same = np.isclose(values, expected, rtol=1e-4, atol=1e-9).all(0)  # what is not random
        assert_within(values[:, ~same], expected[:, ~same])


@pytest.mark.slow
def test_new_fading_numbers_do_not_retrace(task, start):
    """Neither in `simulate` nor in `sweep`."""
    options = {"rounds": ROUNDS, "trials": TRIALS, "initial": start, "user_power": True}
    sizes = []
    for k_factor, numbers in (
        (1.0, {}),
        (np.inf, {"threshold": 0.1, "csi_error": 0.2}),
        (2, {"control_threshold": 1, "correlation": 0.5}),
    ):
        channel = jo.Channel(fading=jo.rician(k_factor, **numbers))
        jo.simulate(jax.random.key(0), jo.cobaaf(**BARE), channel, task, **options)
        several = jo.Channel(fading=jo.rician([k_factor, 3.0], **numbers))
        jo.sweep(jax.random.key(0), jo.cobaaf(**BARE), several, task, **options)
        sizes.append(simulation.program._cache_size())
    assert sizes[0] > 0 and sizes == [sizes[0]] * 3


SWEPT = {
    "rayleigh": {
        "threshold": [0.2, 0.9],
        "csi_error": [0.0, 0.1],
        "correlation": [0.0, 0.8],
        "gains": [[1.0, 1.0, 1.0, 1.0], [0.1, 0.5, 1.0, 2.0]],
    },
    "rician": {"k_factor": [0.0, 9.0]},
    "nakagami": {"m": [0.5, 4.0]},
    "participants": {"participants": [1, 4]},
}


def _swept(name, values):
    if name == "participants":
        return jo.Channel(**values)
    gains = {"gains": values["gains"]} if "gains" in values else {}
    rest = {k: v for k, v in values.items() if k != "gains"}
    return jo.Channel(fading=getattr(jo, name)(**rest), **gains)


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_sweeps_over_fading_equal_simulations(task, start, name):
    """One number alone, and several in step, each of which matters."""
    options = {"rounds": ROUNDS, "trials": TRIALS, "initial": start, "user_power": True}
    algorithm, values = jo.cobaaf(**BARE), SWEPT[name]
    every = jo.sweep(jax.random.key(0), algorithm, _swept(name, values), task, **options)
    full = {"participants": "channel.participants"}
    assert set(every.settings) == {full.get(k, k) for k in values}
    for s in range(2):
        setting = jax.tree.map(lambda x, s=s: x[s], every.replace(settings={}))
        channel = _swept(name, {k: v[s] for k, v in values.items()})
        one = jo.simulate(jax.random.key(0), algorithm, channel, task, **options)
        assert_equal(setting, one, task, start)
        for other in values if len(values) > 1 else ():  # the other setting's number, or sweep's
            mixed = {k: v[1 - s if k == other else s] for k, v in values.items()}
            mixed = jo.simulate(jax.random.key(0), algorithm, _swept(name, mixed), task, **options)
            assert not np.allclose(mixed.model, one.model, rtol=1e-3)
    assert every.to_xarray().participants.dims[1:] == ("trial", "round")


@pytest.mark.slow
def test_correlation_reaches_the_rounds_of_a_run(task, start):
    """Who is heard in one round tends to be heard in the next: P(h_r > t, h_{r+1} > t)."""
    threshold, correlation = 0.8, 0.95
    fading = jo.rayleigh(threshold=threshold, correlation=correlation)
    history = _run(jo.cotaf(**BARE), _faded(fading), task, start)
    heard = np.asarray(history.user_power) > 0  # [trial, round, user]
    both = (heard[:, 1:] & heard[:, :-1]).mean(-1)  # [trial, pair of rounds]
    rng = np.random.default_rng(0)
    first, fresh = (rng.standard_normal((2, 400_000, 2)) @ [1, 1j]) / np.sqrt(2)
    second = correlation * first + np.sqrt(1 - correlation**2) * fresh
    expected = ((np.abs(first) > threshold) & (np.abs(second) > threshold)).mean()
    assert expected > 1.3 * np.exp(-2 * threshold**2)  # far from independent
    assert_within(both, expected)


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        (
            {"fading": jo.rayleigh(threshold=-0.1)},
            "channel.fading.answer.threshold must be finite and > 0",
        ),
        (
            {"fading": jo.rayleigh(threshold=0.0)},
            "channel.fading.answer.threshold must be finite and > 0",
        ),
        (
            {"fading": jo.rayleigh(control_threshold=np.nan)},
            "channel.fading.answer.control_threshold must be finite and > 0",
        ),
        ({"fading": jo.rician(-1.0)}, "channel.fading.law.k_factor must be ≥ 0, got -1"),
        ({"fading": jo.nakagami(0.2)}, "channel.fading.law.m must be finite and ≥ 0.5, got 0.2"),
        ({"fading": jo.rayleigh(csi_error=-1)}, "channel.fading.csi_error must be finite and ≥ 0"),
        (
            {"fading": jo.rayleigh(correlation=1.0)},
            "channel.fading.law.correlation must be finite and ≥ 0 and < 1, got 1",
        ),
        ({"fading": jo.rician(1.0, correlation=-0.1)}, "channel.fading.law.correlation must be"),
        ({"fading": "rayleigh"}, "channel.fading must be a part of its kind"),
        ({"fading": jo.Online()}, "channel.fading must be one such as jo.rayleigh()"),
        ({"participants": 5}, "channel.participants must lie in 1 … 4, the users, got 5"),
        ({"participants": 0}, "channel.participants must lie in 1 … 4, the users, got 0"),
        ({"participants": 2.5}, "channel.participants must be whole, got 2.5"),
        ({"gains": np.ones(4)}, "channel.gains need channel.fading"),
        (
            {"gains": np.ones(3), "fading": jo.rayleigh()},
            "channel.gains must have one entry for each of 4 users, got shape [3]",
        ),
        ({"gains": -np.ones(4), "fading": jo.rayleigh()}, "channel.gains must be finite and ≥ 0"),
    ],
)
def test_bad_fading_is_one_clear_line(task, channel, words):
    with pytest.raises(jo.InputError) as caught:
        jo.simulate(jax.random.key(0), jo.cotaf(**LOCAL), jo.Channel(**channel), task, 2, 2)
    assert str(caught.value).startswith(words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_correlated_nakagami_is_refused():
    assert jo.nakagami(2.0, correlation=np.float32(0.0)).law.m == 2.0
    with pytest.raises(jo.InputError, match="correlation must be 0 with Nakagami fading"):
        jo.nakagami(2.0, correlation=0.5)


@pytest.mark.parametrize("name", ["threshold", "control_threshold"])
def test_a_threshold_beside_an_answer_is_refused(name):
    for make in (
        jo.rayleigh,
        lambda **more: jo.rician(2.0, **more),
        lambda **more: jo.nakagami(2.0, **more),
    ):
        with pytest.raises(jo.InputError, match=f"^{name} must be given to the answer itself"):
            make(answer=jo.Inversion(), **{name: 0.5})
        answer = make(**{name: 0.5}).answer
        assert sorted([answer.threshold, answer.control_threshold]) == [0.3, 0.5]


def test_more_antennas_than_memory_are_refused(task, monkeypatch):
    @jo.part
    class Whatever:
        def __call__(self, block, gains, estimates, noise):
            raise NotImplementedError

    monkeypatch.setattr(capacity, "device_memory", lambda: None)
    monkeypatch.setattr(capacity, "machine_memory", lambda: 2**34)
    channel = jo.Channel(fading=jo.rayleigh(answer=Whatever(), antennas=10**9))
    with pytest.raises(jo.InputError, match=r"channel\.fading\.antennas must be smaller: gains of"):
        jo.simulate(jax.random.key(0), jo.cotaf(**BARE), channel, task, 2, 2)
