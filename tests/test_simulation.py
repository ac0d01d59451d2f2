"""One program for all numbers, the same numbers for all programs."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agree import assert_equal

import jaxota as jo
from jaxota._core import arguments, capacity, devices
from jaxota._core.capacity import trials_at_once

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
COUNTED = 5


def run(algorithm, channel, task, key=jax.random.key(0), rounds=4, **options):
    return jo.simulate(key, algorithm, channel, task, rounds, calibration_trials=8, **options)


@pytest.fixture
def traces(monkeypatch):
    """Grows by one whenever an experiment is traced; of COUNTED rounds, as no other test has."""
    module, seen = importlib.import_module("jaxota.simulation"), []
    original = module.run_all

    def counted(*args, **options):
        seen.append(1)
        return original(*args, **options)

    monkeypatch.setattr(module, "run_all", counted)
    return seen


@pytest.mark.slow
def test_new_numbers_do_not_retrace(task, traces):
    plan = jo.calibrate(jax.random.key(0), jo.cobaaf(**LOCAL), task, COUNTED, 5)
    twice = plan.replace(update_energy=np.asarray(plan.update_energy) * 2)
    count = functools.partial(run, task=task, rounds=COUNTED, trials=3)
    numbers = [
        ({}, {}, plan),
        ({"step_size": 2e-2}, {}, plan),
        ({"step_size": np.float32(0.01)}, {"snr_db": 10}, plan),
        ({}, {"snr_db": 10.0, "power": 3}, plan),
        ({}, {"snr_db": np.float64(-4), "power": jnp.float32(2.0)}, twice),
        ({"transform": optax.identity()}, {"snr_db": np.inf}, twice),
    ]
    for local, channel, plan in numbers:
        count(jo.cobaaf(**LOCAL | local), jo.Channel(**channel), plan=plan)
    other_data = task.replace(features=task.features + 1.0)
    count(jo.cobaaf(**LOCAL), jo.Channel(), task=other_data, plan=plan)
    count(jo.cobaaf(**LOCAL, precode=jo.Offline()), jo.Channel(), plan=plan)
    assert len(traces) == 1
    count(jo.cobaaf(**LOCAL, precode=jo.Online()), jo.Channel(), plan=plan)
    assert len(traces) == 2


@pytest.mark.slow
def test_equal_optimizers_share_a_program_and_others_do_not(task, traces):
    def descend(optimizer):
        algorithm = jo.fedavg(**LOCAL, transform=optimizer)
        return run(algorithm, jo.Channel(), task, rounds=COUNTED, trials=2)

    first = descend(optax.chain(optax.clip(5.0), optax.trace(0.9)))
    again = descend(optax.chain(optax.clip(5.0), optax.trace(0.9)))
    assert len(traces) == 1
    np.testing.assert_array_equal(first.model, again.model)
    other = descend(optax.chain(optax.clip(5.0), optax.trace(0.5)))
    assert len(traces) == 2
    assert not np.allclose(first.model, other.model)


@pytest.mark.slow
def test_a_users_own_transformation_is_never_taken_for_another(task):
    """Two closures of one code over different state must not share a program."""

    def make(factor):
        holder = [factor]
        return optax.GradientTransformation(
            lambda params: (), lambda u, state, params=None: (u * holder[0], state)
        )

    one, two = (
        run(jo.fedavg(**LOCAL, transform=make(f)), jo.Channel(), task, trials=2) for f in (1.0, 2.0)
    )
    assert not np.allclose(one.model, two.model)


def test_same_key_same_bits_other_key_other_bits(task):
    first, again = (run(jo.cobaaf(**LOCAL), jo.Channel(), task, trials=3) for _ in range(2))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    other = run(jo.cobaaf(**LOCAL), jo.Channel(), task, trials=3, key=jax.random.key(1))
    assert not (first.model == other.model).any()
    assert len(np.unique(first.gap)) == first.gap.size  # trials differ, too


def test_old_style_keys_are_taken(task):
    new = run(jo.fedavg(**LOCAL), jo.Channel(), task, trials=2)
    old = jo.simulate(
        jax.random.PRNGKey(0),
        *(jo.fedavg(**LOCAL), jo.Channel(), task, 4, 2),
        calibration_trials=8,
    )
    np.testing.assert_array_equal(new.model, old.model)


@pytest.mark.slow
def test_a_trial_does_not_depend_on_the_others(task, start, monkeypatch):
    """However many run beside it, and however they are cut into chunks."""
    algorithm = jo.cobaaf(**LOCAL)
    plan = jo.calibrate(jax.random.key(0), algorithm, task, 4, 8)
    many = run(algorithm, jo.Channel(), task, trials=7, plan=plan, initial=start[:7])
    few = run(algorithm, jo.Channel(), task, trials=2, plan=plan, initial=start[:2])
    assert_equal(few, jax.tree.map(lambda x: x[:2], many), task, start[:2])
    monkeypatch.setattr(arguments, "trials_at_once", lambda *_, **__: 3)
    chunked = run(algorithm, jo.Channel(), task, trials=7, plan=plan, initial=start[:7])
    assert_equal(chunked, many, task, start[:7])


def test_memory_in_flight_is_bounded(task, monkeypatch):
    """The number of trials at once falls with the size of the model and of the batch."""
    monkeypatch.setattr(capacity, "CACHE", capacity.MEMORY)
    big = jo.tasks.synthetic_regression(jax.random.key(0), users=100, samples=100, dim=1000)
    few, many = (trials_at_once([jo.cotaf(1e-2, 1, b)], big) for b in (1, 1000))
    assert 1 <= many < few < trials_at_once([jo.cotaf(1e-2, 1, 1)], task)
    assert trials_at_once([jo.cotaf(1e-2, 1, 1)], big, settings=10) <= few // 10 + 1
    long = trials_at_once([jo.cotaf(1e-2, 1, 1)], task, rounds=10**6)  # their keys are 112 MB each
    assert long == 9 and trials_at_once([jo.cotaf(1e-2, 1, 1)], task, rounds=10**9) == 1
    assert trials_at_once([jo.cotaf(1e-2, 1, 1)] * 2, big) <= few // 2 + 1


def test_trials_in_flight_fit_the_cache(monkeypatch):
    """On CPU; an accelerator takes what fits into its memory."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), users=4, samples=50, dim=10)
    algorithm = jo.cotaf(1e-2, 10, 5)
    held = 4 * 4 * (5 * 11 + 4 * 10)  # bytes of all users' rows, and of four vectors each
    assert trials_at_once([algorithm], task) == capacity.CACHE // held
    assert trials_at_once([algorithm] * 3, task) == capacity.CACHE // held  # one after the other
    assert trials_at_once([algorithm], task, settings=7) == capacity.CACHE // (7 * held)
    four = devices.Spread(1, 4)  # on one machine, so that they share its cache
    assert trials_at_once([algorithm], task, four) == capacity.CACHE // (4 * held)


@pytest.mark.parametrize(("platform", "cache"), [("gpu", None), ("tpu", capacity.VECTOR_MEMORY)])
def test_accelerators_do_not_share_their_memory(platform, cache, monkeypatch):
    """As many trials run on each of 8 devices as on one, within a share of its memory."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), users=4, samples=50, dim=10)
    algorithm = jo.cotaf(1e-2, 10, 5)
    monkeypatch.setattr(devices, "platform", lambda: platform)
    monkeypatch.setattr(capacity, "device_memory", lambda: 80 * 10**9)
    most = int(80e9 / 32) // capacity.bytes_per_trial([algorithm], task)
    if cache:
        most = min(most, cache // (4 * 4 * (5 * 11 + 4 * 10)))
    assert trials_at_once([algorithm], task) == most
    assert trials_at_once([algorithm], task, devices.Spread(1, 8)) == most
    halved = trials_at_once([algorithm], task, devices.Spread(4, 2), settings=8)
    assert abs(halved - most // 2) <= 1


@pytest.mark.slow
def test_calibrate_gives_the_plan_that_simulate_measures(task):
    algorithm = jo.cobaaf(**LOCAL)
    plan = jo.calibrate(jax.random.key(0), algorithm, task, rounds=4, trials=8)
    given = run(algorithm, jo.Channel(), task, trials=3, plan=plan)
    measured = run(algorithm, jo.Channel(), task, trials=3)
    np.testing.assert_allclose(given.model, measured.model, rtol=1e-5)


@pytest.mark.slow
def test_initial_models_leave_calibration_alone(task, start):
    """Trial 0 stays itself whatever the others start from, though nobody gave a plan."""
    far = np.concatenate([start[:1], 1e3 * start[1:3]])
    alone = run(jo.baaf(**LOCAL), jo.Channel(), task, trials=1, initial=start[:1])
    beside = run(jo.baaf(**LOCAL), jo.Channel(), task, trials=3, initial=far)
    np.testing.assert_allclose(alone.gap[0], beside.gap[0], rtol=1e-4)


@pytest.mark.slow
def test_calibration_from_given_models(task):
    """At the optimum of identical users nothing moves but minibatch noise: little energy."""
    best = np.asarray(task.problem(0).optimum)[None]
    near = jo.calibrate(jax.random.key(0), jo.cotaf(**LOCAL), task, 1, 8, initial=best)
    drawn = jo.calibrate(jax.random.key(0), jo.cotaf(**LOCAL), task, 1, 8)
    assert near.update_energy[0] < drawn.update_energy[0] / 2


@pytest.mark.slow
def test_every_thins_the_scores_alone(task):
    full = run(jo.cotaf(**LOCAL), jo.Channel(), task, trials=3)
    thin = run(jo.cotaf(**LOCAL), jo.Channel(), task, trials=3, every=3)
    assert thin.gap.shape == (3, 1) and thin.power.shape == (3, 4)
    np.testing.assert_allclose(thin.gap, full.gap[:, 2:3], rtol=1e-5)
    np.testing.assert_array_equal(thin.to_xarray().evaluation, [3])


def test_weighted_average_does_not_overflow():
    """μη̃ = 1.5: weights 4^{r−1} up to 4^500 = 10^301, where models are θ* + (−1/2)^r (θ^0 − θ*)."""
    features = np.sqrt(1.5) * np.eye(3)[None]
    optimum = np.array([1.0, 2.0, 3.0])
    task = jo.tasks.regression(features, features @ optimum)
    start = np.zeros((1, 3), np.float32)
    for rounds in (1, 5, 500):
        history = jo.simulate(
            jax.random.key(0), jo.fedavg(1.5, 1), jo.Channel(), task, rounds, 1, initial=start
        )
        weights = 0.25 ** np.arange(rounds, -1, -1.0)  # in units of the newest
        factor = np.sum(weights * (-0.5) ** np.arange(rounds + 1.0)) / weights.sum()
        np.testing.assert_allclose(history.average[0], (1 - factor) * optimum, rtol=1e-5)


def test_plain_mean_without_strong_convexity():
    """One sample a user of two parameters: μ = 0, and the average counts every model alike."""
    rng = np.random.default_rng(0)
    task = jo.tasks.regression(rng.standard_normal((2, 1, 2)), rng.standard_normal((2, 1)))
    start = np.ones((1, 2), np.float32)
    models = [start[0]]
    for rounds in (1, 2, 3):
        history = jo.simulate(
            jax.random.key(0), jo.fedavg(0.1, 1), jo.Channel(), task, rounds, 1, initial=start
        )
        models.append(np.asarray(history.model[0]))
    np.testing.assert_allclose(history.average[0], np.mean(models, 0), rtol=1e-4)


@pytest.mark.slow
def test_a_diverging_run_is_kept_and_counted(task):
    history = run(jo.cotaf(step_size=1e3, steps=5), jo.Channel(), task, trials=3)
    assert not np.isfinite(history.model).all()
    assert history.diverged.tolist() == [True] * 3
    healthy = run(jo.cotaf(**LOCAL), jo.Channel(), task, trials=3)
    assert not healthy.diverged.any()


@pytest.mark.slow
def test_under_jit_invalid_numbers_give_nan(task):
    """Where an exception cannot be: of one setting of a vmap it is that setting's alone."""
    good = {"step_size": 0.01, "power": 1.0, "threshold": 0.3, "participants": 2, "level": 0.0}

    @jax.jit
    def last(step_size, power, threshold, participants, level):
        fading = jo.rayleigh(threshold)
        channel = jo.Channel(power=power, participants=participants, fading=fading)
        algorithm = jo.cotaf(step_size, 2, 2, precode=jo.Online())
        start = jnp.full((2, task.dim), level)
        history = jo.simulate(jax.random.key(0), algorithm, channel, task, 2, 2, initial=start)
        return jnp.concatenate([history.gap[:, -1], history.participants[:, -1]])

    assert np.isfinite(last(**good)).all()
    for name, bad in (
        *(("step_size", -0.1), ("step_size", np.inf), ("power", 0.0), ("threshold", -1.0)),
        *(("participants", 99), ("participants", 0), ("level", np.nan)),
    ):
        assert np.isnan(last(**good | {name: bad})).all(), name
    steps = jnp.array([0.01, -0.01])
    several = jax.vmap(lambda step_size: last(**good | {"step_size": step_size}))(steps)
    assert np.isfinite(several[0]).all() and np.isnan(several[1]).all()


@pytest.mark.slow
def test_64_bits_are_the_same_float32(task):
    fading = jo.rician(2.0, csi_error=0.1, correlation=0.5)
    channel = jo.Channel(np.float64(5.0), fading=fading, participants=3)

    def run():
        return jo.simulate(
            jax.random.key(0), jo.cobaaf(**LOCAL), channel, task, 3, 2, calibration_trials=4
        )

    def swept():
        return jo.sweep(
            *(jax.random.key(0), jo.cotaf(**LOCAL), channel, task, 2, 2),
            over=jo.grid(snr_db=[0, 10]),
            calibration_trials=4,
        )

    usual = run(), swept()
    jax.config.update("jax_enable_x64", True)
    try:
        wide = run(), swept()
    finally:
        jax.config.update("jax_enable_x64", False)
    for one, other in zip(usual, wide, strict=True):
        np.testing.assert_array_equal(one.settings.get("snr_db"), other.settings.get("snr_db"))
    usual, wide = ([h.replace(settings={}) for h in each] for each in (usual, wide))
    for one, other in zip(jax.tree.leaves(usual), jax.tree.leaves(wide), strict=True):
        assert other.dtype == np.float32
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_simulate_works_under_jit_vmap_and_grad(task):
    """Inside someone's own jit and vmap: a gap as a function of the SNR, and of the key."""

    @jax.jit
    def last_gap(snr_db, key):
        return jo.simulate(
            key, jo.cotaf(**LOCAL), jo.Channel(snr_db=snr_db), task, 3, 2, calibration_trials=4
        ).gap[:, -1]

    keys = jax.random.split(jax.random.key(0), 3)
    gaps = jax.vmap(lambda k: last_gap(5.0, k))(keys)
    assert gaps.shape == (3, 2) and np.isfinite(gaps).all()
    alone = jo.simulate(
        keys[1], jo.cotaf(**LOCAL), jo.Channel(snr_db=5.0), task, 3, 2, calibration_trials=4
    )
    np.testing.assert_allclose(gaps[1], alone.gap[:, -1], rtol=1e-4)
