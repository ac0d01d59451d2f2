"""Momentum of the users' optimisers, kept from round to round."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxota as jo

ETA, BETA, ROUNDS, RUN = 1e-2, 0.7, 5, {"trials": 2, "calibration_trials": 4}
TRACE = {"transform": optax.trace(BETA), "keep_momentum": True}


def run(task, local, channel=jo.Channel(), make=jo.fedavg, rounds=ROUNDS, **options):
    algorithm = make(ETA, 1).replace(local=local)
    return jo.simulate(0, algorithm, channel, task, rounds, **RUN, **options)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("keep", [False, True])
def test_rounds_are_those_of_a_plain_loop(task, arrays, start, steps, keep):
    """NumPy twin: every user has a momentum of its own, which outlives the round or does not."""
    features, targets = (x.astype("float64") for x in arrays)
    local = jo.SGD(ETA, steps, transform=optax.trace(BETA), keep_momentum=keep)
    got = run(task, local, initial=start[:2]).model
    for trial, model in enumerate(start[:2].astype("float64")):
        momenta = np.zeros((len(features), model.size))
        for _ in range(ROUNDS):
            thetas, momenta = np.repeat(model[None], len(features), 0), momenta * keep
            for _ in range(steps):
                residual = np.einsum("nsd,nd->ns", features, thetas) - targets
                gradients = 2 * np.einsum("nsd,ns->nd", features, residual) / targets.shape[1]
                momenta = BETA * momenta + gradients
                thetas = thetas - ETA * momenta
            model = thetas.mean(0)
        np.testing.assert_allclose(got[trial], model, rtol=1e-4, atol=1e-5)


def test_momentum_at_the_users_is_that_of_the_server_at_one_full_step(task):
    """The step is linear: the mean of the users' momenta is the momentum of the mean gradient."""
    users = run(task, jo.SGD(ETA, 1, **TRACE))
    algorithm = jo.fedavg(ETA, 1, server=optax.sgd(1.0, momentum=BETA))
    server = jo.simulate(0, algorithm, jo.Channel(), task, ROUNDS, **RUN)
    np.testing.assert_allclose(users.gap, server.gap, rtol=1e-4)


def test_users_who_are_not_heard_keep_their_old_momentum(task):
    channel = jo.Channel(participants=1)
    local = jo.SGD(ETA, 2, **TRACE)
    history = run(task, local, channel, jo.cotaf, 1, keep_state=True)
    momenta = next(x for x in history.state.leaves if x.shape == (2, task.users, task.dim))
    assert (np.abs(momenta).sum(-1) > 0).sum(1).tolist() == [1, 1]


@pytest.mark.parametrize("option", [1, 2])
def test_controls_go_beside_momenta(task, option):
    """Without heavy balls the kept state changes nothing: of trace(0) to the bit."""
    rule = {"control_option": option, "transform": optax.trace(0.0)}
    kept = run(task, jo.ControlVariateSGD(ETA, 2, 2, **rule, keep_momentum=True), make=jo.cobaaf)
    fresh = run(task, jo.ControlVariateSGD(ETA, 2, 2, **rule), make=jo.cobaaf)
    for got, wanted in zip(jax.tree.leaves(kept), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_array_equal(got, wanted)
    moving = run(task, jo.ControlVariateSGD(ETA, 2, 2, **TRACE), make=jo.cobaaf)
    assert not np.allclose(moving.gap, kept.gap)


def test_counters_of_optax_are_kept_too(task):
    """Adam's bias correction counts the steps of all rounds: one user alone is plain Adam."""
    alone = jo.tasks.regression(task.features[:1], task.targets[:1])
    adam = {"transform": optax.scale_by_adam(), "keep_momentum": True}
    history = run(alone, jo.SGD(ETA, 3, **adam), initial=jnp.ones((2, task.dim)))
    problem, model, optimizer = alone.problem(0), jnp.ones(task.dim), optax.adam(ETA)
    state = optimizer.init(model)
    for _ in range(3 * ROUNDS):
        step, state = optimizer.update(problem.full_gradient(model, 0), state)
        model = model + step
    np.testing.assert_allclose(history.model[0], model, rtol=1e-4)


@pytest.mark.parametrize("rule", [jo.SGD, jo.ControlVariateSGD])
@pytest.mark.parametrize(
    ("choice", "line"),
    [(True, "must be False without a transform to keep it"), (1, "must be False or True, got 1")],
)
def test_nothing_to_keep_is_one_line(task, rule, choice, line):
    with pytest.raises(jo.InputError) as error:
        run(task, rule(ETA, 2, keep_momentum=choice))
    assert str(error.value) == f"algorithm.local.keep_momentum {line}"
