"""Each algorithm pushed to an extreme becomes another."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agree import assert_equal

import jaxota as jo
from jaxota._core import prng

LOCAL = {"step_size": 1e-2, "steps": 3, "batch": 3}
ROUNDS, TRIALS = 6, 5
PRECODERS = [jo.Offline(), jo.Online(), jo.Constant(), jo.Constant(1.0), jo.Bounded(50.0)]
ESTIMATORS = [jo.PooledMMSE(), jo.MMSE(), jo.ReportedMMSE(), jo.JamesStein(), jo.Identity()]


def _run(algorithm, task, start, channel=jo.Channel(snr_db=np.inf), **options):
    return jo.simulate(
        jax.random.key(0),
        algorithm,
        channel,
        task,
        ROUNDS,
        TRIALS,
        initial=start[:TRIALS],
        calibration_trials=10,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("make", [jo.noisy_fedavg, jo.cotaf, jo.baaf])
def test_plain_algorithms_are_fedavg_over_the_ideal_channel(task, start, make):
    assert_equal(
        _run(make(**LOCAL), task, start),
        _run(jo.fedavg(**LOCAL), task, start),
        task,
        start[:TRIALS],
    )


@pytest.mark.slow
def test_cobaaf_is_scaffold_over_the_ideal_channel(task, start):
    for options in ({}, {"control_option": 2}, {"warm_start": True, "control_batch": 4}):
        noisy = _run(jo.cobaaf(**LOCAL, **options), task, start)
        assert_equal(
            noisy, _run(jo.scaffold(**LOCAL, **options), task, start), task, start[:TRIALS]
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precode", "estimate"),
    list(zip(PRECODERS, ESTIMATORS, strict=True)),
    ids=lambda part: type(part).__name__,
)
def test_parts_make_no_difference_over_the_ideal_channel(task, start, precode, estimate):
    noisy = _run(jo.cobaaf(**LOCAL, precode=precode, estimate=estimate), task, start)
    assert_equal(noisy, _run(jo.scaffold(**LOCAL), task, start), task, start[:TRIALS])
    assert (noisy.error <= 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("make", [jo.fedavg, jo.scaffold])
def test_references_ignore_the_channel(task, start, make):
    harsh = jo.Channel(snr_db=-20.0, fading=jo.rayleigh(threshold=2.0), participants=1)
    ideal, noisy = (_run(make(**LOCAL), task, start, c) for c in (jo.Channel(snr_db=np.inf), harsh))
    np.testing.assert_array_equal(ideal.model, noisy.model)
    assert (noisy.power == 0).all()
    assert (noisy.participants == task.users).all()
    assert (noisy.error <= 1e-9).all()


@pytest.mark.slow
def test_a_flat_prior_makes_baaf_cotaf(task, start):
    plan = jo.calibrate(jax.random.key(0), jo.cotaf(**LOCAL), task, ROUNDS, 10)
    flat = plan.replace(model_var=np.full((ROUNDS, task.users), np.inf))
    channel = jo.Channel(snr_db=5.0)
    baaf = _run(jo.baaf(**LOCAL), task, start, channel, plan=flat)
    cotaf = _run(jo.cotaf(**LOCAL), task, start, channel, plan=plan)
    assert_equal(baaf, cotaf, task, start[:TRIALS])


@pytest.mark.slow
def test_one_user_is_plain_sgd(arrays, start):
    """The model walks through K·R minibatch steps of one data set, as a loop in NumPy does."""
    features, targets = (x[:1] for x in arrays)
    task = jo.tasks.regression(features, targets)
    history = _run(jo.fedavg(**LOCAL), task, start)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3 + 7 * ROUNDS)
    model = start[0].astype(np.float64)
    for r in range(ROUNDS):
        for k in range(LOCAL["steps"]):
            samples = prng.minibatch_indices(prng.words(keys[3 + 7 * r]), k, LOCAL["batch"], 15)
            a, b = features[0][samples], targets[0][samples]
            model -= LOCAL["step_size"] * 2 * a.T @ (a @ model - b) / len(b)
    np.testing.assert_allclose(history.model[0], model, atol=1e-5 * np.abs(model).max(), rtol=0)


def test_one_step_of_full_gradients_is_gradient_descent(arrays, task, start):
    features, targets = arrays
    history = _run(jo.fedavg(1e-2, 1), task, start)
    model = start[:TRIALS].astype(np.float64)
    for _ in range(ROUNDS):
        residual = np.einsum("nsd,td->tns", features, model) - targets
        gradient = 2 * np.einsum("tns,nsd->td", residual, features) / targets.size
        model -= 1e-2 * gradient
    np.testing.assert_allclose(history.model, model, atol=1e-5 * np.abs(model).max(), rtol=0)


@pytest.mark.slow
def test_identical_users_make_scaffold_fedavg(arrays, start):
    """Without heterogeneity full-gradient controls cancel, after the first round's zero ĉ too."""
    same = [np.repeat(x[:1], 3, 0) for x in arrays]
    task = jo.tasks.regression(*same)
    fedavg, scaffold = (_run(make(1e-2, 3), task, start) for make in (jo.fedavg, jo.scaffold))
    assert_equal(scaffold, fedavg, task, start[:TRIALS])


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 3])
def test_a_proximal_term_of_zero_is_plain_sgd(task, start, batch):
    """μ = 0 is plain SGD to the bit, over the air too; and one step never meets its pull."""
    channel, quiet = jo.Channel(snr_db=3.0), jo.Channel(snr_db=np.inf)
    for steps, mu, over in ((3, 0.0, channel), (3, 0.0, quiet), (1, 7.0, quiet)):
        plain = jo.cotaf(1e-2, steps, batch, precode=jo.Online())
        proximal = plain.replace(local=jo.Proximal(1e-2, steps, batch, mu))
        runs = [_run(algorithm, task, start, over).model for algorithm in (plain, proximal)]
        np.testing.assert_array_equal(*runs)


@pytest.mark.slow
def test_a_strong_proximal_pull_undoes_all_but_the_last_step(task, start):
    """ημ = 1: before each step users are back at θ̂ − ηg, so that K steps carry no further."""
    pulled = jo.fedavg(1e-2, 3).replace(local=jo.Proximal(1e-2, 3, mu=100.0))
    short, long = (
        _run(algorithm, task, start) for algorithm in (jo.fedavg(1e-2, 1), jo.fedavg(1e-2, 3))
    )
    moved = [np.abs(x.model - start[:TRIALS]).mean() for x in (short, _run(pulled, task, start))]
    assert moved[1] < 1.1 * moved[0] < 0.9 * np.abs(long.model - start[:TRIALS]).mean()


@pytest.mark.slow
def test_warm_start_is_a_first_round_of_controls(task, start):
    """With c_i^0 = ∇f_i(θ^0), K = 1 SCAFFOLD is gradient descent from the first round on."""
    warm = _run(jo.scaffold(1e-2, 1, warm_start=True), task, start)
    assert_equal(warm, _run(jo.fedavg(1e-2, 1), task, start), task, start[:TRIALS])
    many = _run(jo.scaffold(1e-2, 5, warm_start=True), task, start)
    cold = _run(jo.scaffold(1e-2, 5), task, start)
    assert (many.gap[:, 0] != cold.gap[:, 0]).all()


@pytest.mark.slow
def test_optimizer_transforms_the_direction_before_the_step_size(task, start):
    """Scaling by 2 in optax is twice the step size; momentum starts afresh each round."""
    doubled = _run(jo.cobaaf(**LOCAL, transform=optax.scale(2.0)), task, start)
    larger = _run(jo.cobaaf(2e-2, 3, 3), task, start)
    np.testing.assert_allclose(doubled.model, larger.model, rtol=1e-5)
    with_memory = _run(jo.fedavg(1e-2, 1, 3, transform=optax.trace(0.9)), task, start)
    without = _run(jo.fedavg(1e-2, 1, 3), task, start)
    np.testing.assert_allclose(with_memory.model, without.model, rtol=1e-5)
    longer = _run(jo.fedavg(1e-2, 3, 3, transform=optax.trace(0.9)), task, start)
    assert not np.allclose(longer.model, _run(jo.fedavg(1e-2, 3, 3), task, start).model)


@pytest.mark.slow
def test_algorithms_share_their_random_numbers(task, start):
    """In round 1 plain and controlled algorithms send the same updates through the same noise."""
    channel = jo.Channel(snr_db=3.0)
    options = {"precode": jo.Online(), "estimate": jo.Identity()}
    plain = _run(jo.cotaf(**LOCAL, **options), task, start, channel)
    controlled = _run(jo.cobaaf(**LOCAL, **options), task, start, channel)
    np.testing.assert_allclose(plain.gap[:, 0], controlled.gap[:, 0], rtol=1e-5)
    louder = _run(jo.cotaf(**LOCAL, **options), task, start, jo.Channel(snr_db=13.0))
    np.testing.assert_allclose(plain.error[:, 0], 10 * louder.error[:, 0], rtol=1e-3)


def test_replace_exchanges_one_part():
    algorithm = jo.baaf(1e-2, 2).replace(precode=jo.Online())
    assert isinstance(algorithm.precode, jo.Online)
    assert jnp.float32(algorithm.local.step_size) == jnp.float32(1e-2)
