"""The server's step: optax optimisers of the pseudo-gradient; calibration goes the same way."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agree import assert_equal

import jaxota as jo

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
