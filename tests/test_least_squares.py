"""The regression task against NumPy in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from agree import assert_within

import jaxota as jo


def test_optimum_gap_and_loss(arrays, task, start):
    best, curvature = reference.optimum(*arrays)
    problem = task.problem(0)
    np.testing.assert_allclose(problem.optimum, best, rtol=1e-4, atol=1e-5)
    score = jax.vmap(problem.score)(start)
    away = start - best
    gap = np.einsum("td,de,te->t", away, curvature, away)
    np.testing.assert_allclose(score["gap"], gap, rtol=1e-4)
    loss = [reference.loss_of(*arrays, model) for model in start]
    np.testing.assert_allclose(score["loss"], loss, rtol=1e-4)
    assert set(score) == {"loss", "gap"}


def test_gap_is_never_negative_near_the_optimum(task):
    problem = task.problem(0)
    near = problem.optimum[None] + 1e-6 * jax.random.normal(jax.random.key(0), (1000, task.dim))
    assert (jax.vmap(problem.score)(near)["gap"] >= 0).all()
    assert problem.score(problem.optimum)["gap"] == 0


def test_gradients(arrays, task, start):
    features, targets = arrays
    problem, samples = task.problem(0), np.array([3, 3, 14, 0])
    for user in range(task.users):
        a, b, model = features[user], targets[user], start[user]
        full = 2 * a.T @ (a @ model - b) / len(b)
        np.testing.assert_allclose(problem.full_gradient(model, user), full, rtol=1e-4)
        a, b = a[samples], b[samples]
        some = 2 * a.T @ (a @ model - b) / len(b)
        np.testing.assert_allclose(problem.gradient(model, user, samples), some, rtol=1e-4)


def test_full_gradient_is_the_gradient_of_the_loss(arrays, task, start):
    problem = task.problem(0)
    per_user = jnp.stack([problem.full_gradient(start[0], i) for i in range(task.users)])
    np.testing.assert_allclose(
        jax.grad(lambda m: problem.score(m)["loss"])(start[0]), per_user.mean(0), rtol=1e-3
    )


def test_strong_convexity(arrays, task):
    expected = reference.strong_convexity(arrays[0])
    np.testing.assert_allclose(task.problem(0).strong_convexity, expected, rtol=1e-3)


def test_head_is_the_first_fifth(arrays, task, start):
    features, targets = arrays
    head, expected = task.problem(0).head(), jo.tasks.regression(features[:, :3], targets[:, :3])
    expected = expected.problem(0)
    assert (head.counts == 3).all()
    np.testing.assert_allclose(head.full_gradient(start[0], 1), expected.full_gradient(start[0], 1))


def test_users_of_unequal_size(arrays, start):
    """Padding enters neither gradients nor losses, and F is the unweighted mean of the f_i."""
    features, targets = arrays
    sizes = (15, 4, 9, 1)
    ragged = [f[:n] for f, n in zip(features, sizes, strict=True)]
    ragged_targets = [t[:n] for t, n in zip(targets, sizes, strict=True)]
    task = jo.tasks.regression(ragged, ragged_targets)
    problem, model = task.problem(0), start[0]
    losses = []
    for user, (a, b) in enumerate(zip(ragged, ragged_targets, strict=True)):
        full = 2 * a.T @ (a @ model - b) / len(b)
        np.testing.assert_allclose(problem.full_gradient(model, user), full, rtol=1e-4, atol=1e-4)
        losses.append(np.mean((a @ model - b) ** 2))
    np.testing.assert_allclose(problem.score(model)["loss"], np.mean(losses), rtol=1e-4)
    np.testing.assert_array_equal(problem.head().counts, [3, 1, 2, 1])
    history = jo.simulate(
        jax.random.key(0), jo.fedavg(1e-2, 2, batch=8), jo.Channel(), task, rounds=3, trials=2
    )
    assert np.isfinite(history.gap).all()


def test_more_parameters_than_samples_has_an_optimum_all_the_same():
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((2, 3, 12)), rng.standard_normal((2, 3))
    problem = jo.tasks.regression(features, targets).problem(0)
    assert problem.score(problem.optimum)["loss"] < 1e-6
    assert problem.strong_convexity < 1e-4


def test_synthetic_data_have_the_stated_moments():
    """a_i ~ N(1, data_spread) from the rows, b_i ~ N(−4, model_spread) from the weights."""
    users, dim = 4000, 3
    task = jo.tasks.synthetic_regression(
        jax.random.key(0), users, 8, dim, data_spread=0.5, model_spread=2.0
    )
    problem = task.problem(0)
    features = np.asarray(problem.features, np.float64)
    weights = np.stack(
        [
            np.linalg.lstsq(a, b, rcond=None)[0]
            for a, b in zip(features, np.asarray(problem.targets, np.float64), strict=True)
        ]
    )
    for values, mean, spread, size in (
        (features.reshape(users, -1), 1.0, 0.5, 8 * dim),
        (weights, -4.0, 2.0, dim),
    ):
        of_user = values.mean(1)
        assert_within(of_user, mean)
        assert_within((of_user - mean) ** 2, spread + 1 / size)
        assert_within(values.var(1, ddof=1), 1.0)


def test_data_are_drawn_once_or_per_trial():
    """Trial t of a redrawn task runs on its own data, which are those of `problem(t)`."""
    draw = functools.partial(jo.tasks.synthetic_regression, jax.random.key(0), 2, 4, 3)
    once, anew = draw(redraw=False), draw(redraw=True)
    assert (once.problem(0).features == once.problem(1).features).all()
    assert not (anew.problem(0).features == anew.problem(1).features).any()
    run = functools.partial(jo.simulate, jax.random.key(1), jo.fedavg(1e-2, 2), jo.Channel())
    start = np.ones((2, 3), np.float32)
    redrawn = run(anew, 2, 2, initial=start)
    for t in range(2):
        problem = anew.problem(t)
        alone = run(jo.tasks.regression(problem.features, problem.targets), 2, 2, initial=start)
        np.testing.assert_allclose(redrawn.gap[t], alone.gap[t], rtol=1e-4)


@pytest.mark.parametrize(
    ("features", "targets", "words"),
    [
        (np.ones((2, 0, 3)), np.ones((2, 0)), "features[0] must hold at least one sample"),
        (np.ones((2, 4, 3)), np.ones((2, 5)), "targets[0] must have shape [4]"),
        (np.ones((2, 4, 3)), np.ones((3, 4)), "targets must hold as many users as features"),
        (np.ones((2, 4)), np.ones((2, 4)), "features[0] must have shape [samples, d]"),
        ([np.ones((4, 3)), np.ones((4, 2))], np.ones((2, 4)), "features[1] must have shape"),
        (np.full((2, 4, 3), np.nan), np.ones((2, 4)), "features[0] must be finite"),
        (np.ones((2, 4, 3)), np.full((2, 4), np.inf), "targets[0] must be finite"),
        (5, 3, "features must be an array, or a list of one array a user"),
        ([[[1.0], [2.0, 3.0]]], [[1.0, 2.0]], "features must be an array, or a list"),
        ([], [], "features must hold at least one user"),
        ([np.ones((4, 3)), np.ones((0, 3))], [np.ones(4), np.ones(0)], "features[1] must hold"),
    ],
)
def test_bad_data_are_one_clear_line(features, targets, words):
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.regression(features, targets)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
