"""FedDyn: its fixed point, its invariant, and a loop in NumPy."""

import functools

import jax
import numpy as np
import pytest

import jaxota as jo

KEY = jax.random.key(0)
QUIET = jo.Channel(snr_db=np.inf)
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((2, 8, 3)) * np.array([1.0, 2.0])[:, None, None]
TARGETS = np.einsum("nsd,nd->ns", FEATURES, RNG.standard_normal((2, 3)) * 3)
TASK = jo.tasks.regression(FEATURES, TARGETS)  # Hessians and optima of the users differ

pytestmark = pytest.mark.slow


def test_feddyn_settles_at_the_optimum_whatever_the_heterogeneity():
    """Local problems solved, no noise: F's optimum; FedAvg of as many steps stays away from it."""
    run = functools.partial(jo.simulate, KEY, channel=QUIET, task=TASK, rounds=100, trials=2)
    dynamic = run(jo.feddyn(0.02, 200, penalty=2.0, precode=jo.Online()))
    plain = run(jo.cotaf(0.02, 200, precode=jo.Online()))
    best = np.asarray(TASK.problem(0).optimum)
    np.testing.assert_allclose(dynamic.model, np.stack([best] * 2), atol=1e-3)
    assert (np.asarray(plain.gap)[:, -1] > 100 * np.asarray(dynamic.gap)[:, -1]).all()


def test_the_server_holds_the_mean_of_what_users_hold():
    """h = mean_i m_i over all users, also where one of two is heard in a round."""
    algorithm = jo.feddyn(0.02, 5, penalty=0.5, precode=jo.Online())
    for participants in (1, 2):
        channel = QUIET.replace(participants=participants)
        history = jo.simulate(KEY, algorithm, channel, TASK, 7, 2, keep_state=True)
        assert (history.participants == participants).all()
        _, memory, server, *_ = history.state.leaves  # after the model [trial, d]
        assert memory.shape == (2, 2, 3) and np.abs(server).max() > 0.1
        np.testing.assert_allclose(server, memory.mean(1), atol=1e-5)


def test_feddyn_matches_numpy():
    """All users, whole gradients; both penalties of a sweep."""
    penalties, start = [0.5, 2.0], np.array([[1.0, -1.0, 0.5]])
    algorithm = jo.feddyn(0.02, 4, penalty=penalties, precode=jo.Online())
    history = jo.sweep(KEY, algorithm, QUIET, TASK, rounds=6, trials=1, initial=start)
    for n, a in enumerate(penalties):
        model, memory, h = start[0], np.zeros((2, 3)), 0.0
        for _ in range(6):
            moved = np.zeros((2, 3))
            for _ in range(4):
                error = np.einsum("nsd,nd->ns", FEATURES, model + moved) - TARGETS
                slope = np.einsum("nsd,ns->nd", FEATURES, error) / 4
                moved = moved - 0.02 * (slope - memory + a * moved)
            memory, h = memory - a * moved, h - a * moved.mean(0)
            model = model + moved.mean(0) - h / a
        np.testing.assert_allclose(history.model[n, 0], model, rtol=1e-4)
