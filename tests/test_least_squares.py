"""The regression task against NumPy in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from agree import assert_within

import jaxota as jo
from jaxota.tasks import least_squares

# One program each, whatever the data.
_scores = jax.jit(lambda task, models: jax.vmap(task.problem(0).score)(models))
_gradient = jax.jit(lambda task, *where: task.problem(0).gradient(*where))
_full_gradient = jax.jit(lambda task, *where: task.problem(0).full_gradient(*where))
_optimum = jax.jit(lambda task: task.problem(0).optimum)
_drawn = jax.jit(lambda task, trial: task.problem(trial))


def test_optimum_gap_and_loss(arrays, task, start):
    best, curvature = reference.optimum(*arrays)
    np.testing.assert_allclose(_optimum(task), best, rtol=1e-4, atol=1e-5)
    score = _scores(task, start)
    away = start - best
    gap = np.einsum("td,de,te->t", away, curvature, away)
    np.testing.assert_allclose(score["gap"], gap, rtol=1e-4)
    loss = [reference.loss_of(*arrays, model) for model in start]
    np.testing.assert_allclose(score["loss"], loss, rtol=1e-4)
    assert set(score) == {"loss", "gap"}


def test_gap_is_never_negative_near_the_optimum(task):
    best = np.asarray(_optimum(task))
    near = best + 1e-6 * np.random.default_rng(0).standard_normal((1000, task.dim), np.float32)
    gap = np.asarray(_scores(task, np.concatenate([best[None], near]))["gap"])
    assert (gap >= 0).all() and gap[0] == 0


def test_gradients(arrays, task, start):
    features, targets = arrays
    samples = np.array([3, 3, 14, 0])
    for user in range(task.users):
        a, b, model = features[user], targets[user], start[user]
        full = 2 * a.T @ (a @ model - b) / len(b)
        np.testing.assert_allclose(_full_gradient(task, model, user), full, rtol=1e-4)
        a, b = a[samples], b[samples]
        some = 2 * a.T @ (a @ model - b) / len(b)
        np.testing.assert_allclose(_gradient(task, model, user, samples), some, rtol=1e-4)


def test_full_gradient_is_the_gradient_of_the_loss(arrays, task, start):
    per_user = np.stack([_full_gradient(task, start[0], i) for i in range(task.users)])
    slope = jax.jit(jax.grad(lambda m, task: task.problem(0).score(m)["loss"]))(start[0], task)
    np.testing.assert_allclose(slope, per_user.mean(0), rtol=1e-3)


def test_strong_convexity(arrays, task):
    expected = reference.strong_convexity(arrays[0])
    found = jax.jit(lambda task: task.problem(0).strong_convexity)(task)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_head_is_the_first_fifth(arrays, task, start):
    features, targets = arrays
    expected = jo.tasks.regression(features[:, :3], targets[:, :3])

    @jax.jit
    def found(task, model):
        head = task.problem(0).head()
        return head.counts, head.full_gradient(model, 1)

    counts, gradient = found(task, start[0])
    assert (counts == 3).all()
    np.testing.assert_allclose(gradient, _full_gradient(expected, start[0], 1))


def test_users_of_unequal_size(arrays, start):
    """Padding enters neither gradients nor losses, and F is the unweighted mean of the f_i."""
    features, targets = arrays
    sizes = (15, 4, 9, 1)
    ragged = [f[:n] for f, n in zip(features, sizes, strict=True)]
    ragged_targets = [t[:n] for t, n in zip(targets, sizes, strict=True)]
    task = jo.tasks.regression(ragged, ragged_targets)
    model, losses = start[0], []
    for user, (a, b) in enumerate(zip(ragged, ragged_targets, strict=True)):
        full = 2 * a.T @ (a @ model - b) / len(b)
        np.testing.assert_allclose(_full_gradient(task, model, user), full, rtol=1e-4, atol=1e-4)
        losses.append(np.mean((a @ model - b) ** 2))
    np.testing.assert_allclose(_scores(task, start)["loss"][0], np.mean(losses), rtol=1e-4)
    counts = jax.jit(lambda task: task.problem(0).head().counts)(task)
    np.testing.assert_array_equal(counts, [3, 1, 2, 1])
    history = jo.simulate(
        jax.random.key(0), jo.fedavg(1e-2, 2, batch=8), jo.Channel(), task, rounds=3, trials=2
    )
    assert np.isfinite(history.gap).all()


def test_more_parameters_than_samples_has_an_optimum_all_the_same():
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((2, 3, 12)), rng.standard_normal((2, 3))
    task = jo.tasks.regression(features, targets)

    @jax.jit
    def found(task):
        problem = task.problem(0)
        return problem.score(problem.optimum)["loss"], problem.strong_convexity

    loss, strong_convexity = found(task)
    assert loss < 1e-6 and strong_convexity < 1e-4


def test_synthetic_data_have_the_stated_moments():
    """a_i ~ N(1, data_spread) from the rows, b_i ~ N(−4, model_spread) from the weights."""
    users, dim = 4000, 3
    task = jo.tasks.synthetic_regression(
        jax.random.key(0), users, 8, dim, data_spread=0.5, model_spread=2.0
    )
    problem = _drawn(task, 0)
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


@pytest.mark.slow
def test_data_are_drawn_once_or_per_trial():
    """Trial t of a redrawn task runs on its own data, which are those of `problem(t)`."""
    draw = functools.partial(jo.tasks.synthetic_regression, jax.random.key(0), 2, 4, 3)
    once, anew = draw(redraw=False), draw(redraw=True)
    assert np.array_equal(*(_drawn(once, t).features for t in range(2)))
    assert not np.equal(*(_drawn(anew, t).features for t in range(2))).any()
    run = functools.partial(jo.simulate, jax.random.key(1), jo.fedavg(1e-2, 2), jo.Channel())
    start = np.ones((2, 3), np.float32)
    redrawn = run(anew, 2, 2, initial=start)
    for t in range(2):
        problem = _drawn(anew, t)
        alone = run(jo.tasks.regression(problem.features, problem.targets), 2, 2, initial=start)
        np.testing.assert_allclose(redrawn.gap[t], alone.gap[t], rtol=1e-4)


@pytest.mark.parametrize(
    ("features", "targets", "words"),
    [
        (np.ones((2, 0, 3)), np.ones((2, 0)), "data['features'] of user 0 must not be empty"),
        (
            np.ones((2, 4, 3)),
            np.ones((2, 5)),
            "data of user 0 must be arrays [D_i, ...] of the same D_i samples",
        ),
        (np.ones((2, 4, 3)), np.ones((3, 4)), "features and targets must be of as many users"),
        (np.ones((2, 4)), np.ones((2, 4)), "features must have shape [D, d] and targets [D]"),
        ([np.ones((4, 3)), np.ones((4, 2))], np.ones((2, 4)), "data of user 1 must be arrays"),
        (np.full((2, 4, 3), np.nan), np.ones((2, 4)), "features of user 0 must be finite"),
        (np.ones((2, 4, 3)), np.full((2, 4), np.inf), "targets of user 0 must be finite"),
        (5, 3, "features and targets must be arrays, or lists of one array a user"),
        (
            [[[1.0], [2.0, 3.0]]],
            [[1.0, 2.0]],
            "features of user 0 must be an array of real numbers",
        ),
        ([], [], "features and targets must be of as many users, at least one"),
        (
            [np.ones((4, 3)), np.ones((0, 3))],
            [np.ones(4), np.ones(0)],
            "data['features'] of user 1 must not be empty",
        ),
    ],
)
def test_bad_data_are_one_clear_line(features, targets, words):
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.regression(features, targets)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [5, 16, 17, 25])
def test_full_gradients_of_few_and_of_many_coordinates(dim):
    """By Hessians, and by samples where these are fewer; users of unequal size."""
    rng = np.random.default_rng(dim)
    users = [rng.standard_normal((count, dim)) for count in (12, 7)]
    targets = [rng.standard_normal(len(user)) for user in users]
    model = rng.standard_normal(dim)
    task = jo.tasks.regression(users, targets)
    for user, (a, b) in enumerate(zip(users, targets, strict=True)):
        expected = 2 / len(a) * a.T @ (a @ model - b)
        np.testing.assert_allclose(
            _full_gradient(task, model.astype(np.float32), user), expected, rtol=1e-4, atol=1e-5
        )


def test_a_seed_is_the_key_of_that_number():
    by_seed, by_key = (
        jo.tasks.synthetic_regression(key, 2, 3, 2) for key in (7, jax.random.key(7))
    )
    np.testing.assert_array_equal(_drawn(by_seed, 0).features, _drawn(by_key, 0).features)


@pytest.mark.parametrize("name", ["features", "targets"])
def test_data_whose_squares_overflow_are_refused(arrays, name):
    """Their gaps would be NaN from the first round on, and look like divergence."""
    data = dict(zip(("features", "targets"), arrays, strict=True))
    with pytest.raises(jo.InputError, match=r"features and targets must be within ±\S+, .*scale"):
        jo.tasks.regression(**data | {name: 1e20 * data[name]})
    task = jo.tasks.regression(**data | {name: 1e15 * data[name]})
    assert np.isfinite(task.problem(0).score(jnp.zeros(6))["gap"])


@jo.part
class Turned:
    """Gaussian noise, rotated."""

    rotation: jax.Array = jo.traced(rank=2)
    gaussian = True

    def draw(self, key, shape):
        return self.rotation @ jax.random.normal(key, shape, "float32")


@pytest.mark.slow
def test_rotated_features_change_nothing_for_cotaf():
    """Gaps are equal to rounding if the initial models and the noise are rotated, too."""
    plain = jo.tasks.synthetic_regression(5, users=4, samples=12, dim=6)
    rotated = plain.replace(rotate=True)
    before, after = (np.asarray(_drawn(task, 0).features, "f8") for task in (plain, rotated))
    rotation = np.linalg.lstsq(before.reshape(-1, 6), after.reshape(-1, 6), rcond=None)[0]
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(6), atol=1e-5)
    assert np.abs(rotation - np.eye(6)).max() > 0.3
    np.testing.assert_array_equal(_drawn(plain, 0).targets, _drawn(rotated, 0).targets)
    algorithm = jo.cotaf(1e-2, 3, 4, precode=jo.Online())
    first = np.random.default_rng(1).standard_normal((3, 6))
    gaps = []
    for task, turn in ((plain, np.eye(6)), (rotated, rotation.T)):
        channel = jo.Channel(10.0, noise=Turned(np.float32(turn)))
        run = {"channel": channel, "task": task, "rounds": 8, "trials": 3}
        gaps.append(jo.simulate(2, algorithm, **run, initial=first @ turn.T).gap)
    np.testing.assert_allclose(*gaps, rtol=2e-4)


def test_rotations_are_drawn_with_the_data():
    """Uniformly, so that entries have mean 0 and variance 1/d; anew for every draw."""
    draw = jax.jit(jax.vmap(lambda key: least_squares._random_rotation(key, 4)))
    rotations = np.asarray(draw(jax.random.split(jax.random.key(0), 2000)))
    eye = np.broadcast_to(np.eye(4), rotations.shape)
    np.testing.assert_allclose(rotations @ rotations.swapaxes(1, 2), eye, atol=1e-5)
    entries = rotations.reshape(2000, 16)
    assert_within(entries, 0.0)
    assert_within(entries**2, 0.25)
    assert_within(np.linalg.det(rotations)[:, None], 0.0)
    assert_within(entries[:, 0] * entries[:, 5], 0.0)
