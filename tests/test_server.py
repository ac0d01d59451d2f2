"""The server's step: optax optimisers of the pseudo-gradient; calibration goes the same way."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agree import assert_equal

import jaxota as jo
from jaxota._core import inputs

LOCAL = {"step_size": 1e-2, "steps": 3, "batch": 3}
ROUNDS, TRIALS = 6, 5


def _run(algorithm, task, start, channel=jo.Channel(), rounds=ROUNDS, **options):
    return jo.simulate(
        jax.random.key(0),
        algorithm,
        channel,
        task,
        rounds,
        TRIALS,
        initial=start[:TRIALS],
        calibration_trials=10,
        **options,
    )


@pytest.mark.slow
def test_server_sgd_of_rate_one_replaces_the_model(task, start):
    """To rounding, calibration included, with controls and without."""
    for make in (jo.baaf, jo.cobaaf):
        plain = _run(make(**LOCAL), task, start)
        assert_equal(
            _run(make(**LOCAL, server=optax.sgd(1.0)), task, start), plain, task, start[:5]
        )


OPTIMIZERS = {
    "FedAvgM": optax.sgd(0.7, momentum=0.9),
    "FedAdagrad": optax.adagrad(0.3),
    "FedAdam": optax.adam(0.1),
    "FedYogi": optax.yogi(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_full_step_is_the_optimizer_on_eta_times_the_gradient(arrays, task, start, name):
    """K = 1, full gradients, error-free links: optax itself, fed η·∇F, to rounding."""
    features, targets = map(jnp.float32, arrays)
    optimizer, eta = OPTIMIZERS[name], 1e-2
    run = _run(jo.fedavg(eta, 1, server=optimizer), task, start)

    @jax.jit
    def descend(model, memory):
        slope = jax.grad(lambda m: jnp.mean((features @ m - targets) ** 2))(model)
        step, memory = optimizer.update(eta * slope, memory, model)
        return optax.apply_updates(model, step), memory

    model = jnp.asarray(start[0])
    memory = jax.jit(optimizer.init)(model)
    for _ in range(ROUNDS):
        model, memory = descend(model, memory)
    np.testing.assert_allclose(run.model[0], model, rtol=0, atol=1e-5 * np.abs(model).max())


@pytest.mark.slow
def test_calibration_runs_with_the_same_server(task, start):
    """With a server that never moves, every round is calibrated as round 1."""
    still = jo.cotaf(**LOCAL, server=optax.sgd(0.0))
    plan = jo.calibrate(jax.random.key(0), still, task, ROUNDS, 200, initial=start[:1])
    energy = np.asarray(plan.update_energy)
    np.testing.assert_allclose(energy, energy[0], rtol=0.2)
    moving = jo.calibrate(
        jax.random.key(0), jo.cotaf(**LOCAL), task, ROUNDS, 200, initial=start[:1]
    )
    assert moving.update_energy[-1] < energy[-1] / 2


@pytest.mark.slow
def test_the_server_keeps_its_state_where_nobody_is_heard(task, start):
    """Neither the model nor the momentum changes."""
    deaf = jo.Channel(fading=jo.rayleigh(threshold=50.0, control_threshold=50.0))
    algorithm = jo.cotaf(**LOCAL, server=optax.sgd(1.0, momentum=0.9), precode=jo.Online())
    np.testing.assert_array_equal(_run(algorithm, task, start, deaf).model, start[:TRIALS])


@jo.part
class Half:
    """A server that broadcasts the estimate and hands out the mean of the last two models."""

    answer = jo.ReplaceModel.answer

    def start(self, model):
        return model

    def __call__(self, aggregate, state):
        return aggregate.estimate, state.model

    def output(self, model, memory):
        return (model + memory) / 2


def test_the_output_is_scored_not_the_broadcast_model(task, start):
    plain = [_run(jo.fedavg(**LOCAL), task, start, rounds=r) for r in (ROUNDS - 1, ROUNDS)]
    half = _run(jo.fedavg(**LOCAL, server=Half()), task, start)
    expected = (np.asarray(plain[0].model) + np.asarray(plain[1].model)) / 2
    np.testing.assert_allclose(half.model, expected, rtol=1e-5, atol=1e-5)
    gap = jax.jit(lambda task, m: jax.vmap(task.problem(0).score)(m))(task, expected)["gap"]
    np.testing.assert_allclose(half.gap[:, -1], gap, rtol=1e-3)


# Who sends


@pytest.mark.slow
def test_the_best_users_send(task):
    """Of the users whom fading lets through, those of the least power, or the longest updates."""
    fading, users = jo.rayleigh(threshold=0.4), task.users
    run = functools.partial(jo.simulate, jax.random.key(1), task=task, rounds=8, trials=20)
    quiet = jo.Channel(snr_db=np.inf, fading=fading)
    plain = run(jo.cotaf(**LOCAL, precode=jo.Online()), quiet)
    everyone = run(
        jo.cotaf(**LOCAL, precode=jo.Online(), server=jo.Strongest(users)), quiet, user_power=True
    )
    np.testing.assert_array_equal(everyone.model, plain.model)
    assert (plain.reports == 1).all() and (everyone.reports == 1).all()
    # Unequal norms would hide the channel in the powers: one constant gain, the same step for all.
    slopes = np.arange(1.0, 5.0)[:, None] * np.ones((1, 2))
    same = jo.tasks.empirical(_zeros, _inner, slopes[:, None] / slopes[:, None])
    algorithm = jo.cotaf(0.1, 1, precode=jo.Online(), server=jo.Strongest(2))
    best = run(algorithm, quiet, task=same, user_power=True)
    full = run(algorithm.replace(server=jo.ReplaceModel()), quiet, task=same, user_power=True)
    power, full_power = np.asarray(best.user_power), np.asarray(full.user_power)
    heard = full_power > 0
    np.testing.assert_array_equal(best.participants, np.minimum(2, heard.sum(-1)))
    least = np.sort(np.where(heard, full_power, np.inf), -1)[..., :2]
    wanted = np.isfinite(least).sum(-1)
    np.testing.assert_array_equal((power > 0).sum(-1), wanted)
    assert (power[power > 0] == full_power[power > 0]).all()
    assert (power.max(-1) <= least.max(-1)).all() and 0 < (wanted < 2).mean() < 1
    # By norm: users 3 and 4 whatever the channel, without fading.
    longest = algorithm.replace(server=jo.Strongest([1, 2], by="norm"))
    other = jo.tasks.empirical(_zeros, _inner, slopes[:, None])
    swept = jo.sweep(
        jax.random.key(1), longest, jo.Channel(snr_db=np.inf), other, 3, 2, user_power=True
    )
    sent = np.asarray(swept.user_power) > 0
    np.testing.assert_array_equal(sent[0], np.broadcast_to([0, 0, 0, 1], sent[0].shape))
    np.testing.assert_array_equal(sent[1], np.broadcast_to([0, 0, 1, 1], sent[1].shape))
    assert (swept.reports == 2).all()  # the precoder's, and the norm
    np.testing.assert_allclose(swept.model[1], np.full((2, 2), -0.1 * 3 * 3.5), rtol=1e-5)


def _zeros(key):
    return jnp.zeros(2)


def _inner(model, batch):
    return (batch * model[None]).sum(-1)


@pytest.mark.slow
def test_the_rate_of_the_plain_step_sweeps(task, start):
    """A rate is that of optax.sgd, rate 1 the estimate itself, and `exact` agrees."""
    run = functools.partial(
        jo.sweep, jax.random.key(0), task=task, rounds=ROUNDS, trials=TRIALS, initial=start[:TRIALS]
    )
    swept = run(
        jo.cotaf(**LOCAL, precode=jo.Online(), server=jo.ReplaceModel([0.5, 1.0])), jo.Channel()
    )
    for row, rate in enumerate((0.5, 1.0)):
        alone = _run(jo.cotaf(**LOCAL, precode=jo.Online(), server=optax.sgd(rate)), task, start)
        np.testing.assert_allclose(swept.model[row], alone.model, atol=1e-4)
    exact = [
        jo.exact(jo.cotaf(1e-2, 2, precode=jo.Constant(1.0), server=s), jo.Channel(), task, 4).gap
        for s in (jo.ReplaceModel(0.5), optax.sgd(0.5))
    ]
    np.testing.assert_allclose(*exact, rtol=1e-5)


@pytest.mark.parametrize("rates", [[0.1, 1.0], np.array([0.1, 1.0]), jnp.ones(3)])
def test_arrays_inside_optax_are_refused(task, start, rates):
    for path, more in (
        ("algorithm.server", {"server": optax.sgd(rates)}),
        ("algorithm.local.transform", {"transform": optax.scale(rates)}),
    ):
        with pytest.raises(jo.InputError, match=f"^{path} must hold numbers, not arrays"):
            _run(jo.cotaf(**LOCAL, **more), task, start)
    steps = optax.join_schedules([optax.constant_schedule(0.1), optax.constant_schedule(0.2)], [3])
    assert not inputs._holds_array(optax.sgd(steps), task.dim)
