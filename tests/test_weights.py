"""Weights of users: objective, scores, powers and priors follow; equal ones change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo

ROUNDS, RUN = 5, {"trials": 3, "calibration_trials": 4}
ETA, WEIGHTS = 1e-2, np.asarray([1.0, 3.0, 0.5, 0.0], "float32")
ALGORITHMS = {
    "fedavg": jo.fedavg(ETA, 2, 2),
    "cotaf": jo.cotaf(ETA, 2, 2),
    "baaf": jo.baaf(ETA, 2, 2),
    "bounded": jo.cotaf(ETA, 2, 2, precode=jo.Bounded(30.0)),
    "cobaaf": jo.cobaaf(ETA, 2, 2, warm_start=True),
    "pooled": jo.cobaaf(ETA, 2, 2, estimate=jo.PooledMMSE(), precode=jo.Online()),
}


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    features = draw.normal(size=(4, 6, 3)).astype("float32")
    return features, draw.normal(size=(4, 6)).astype("float32")


def run(task, algorithm, channel=jo.Channel(), **options):
    return jo.simulate(0, algorithm, channel, task, ROUNDS, **RUN, **options)


def assert_same(one, other):
    for got, wanted in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_samples_make_weights_nothing_to_the_bit(data, name):
    task = jo.tasks.regression(*data)
    assert_same(run(jo.tasks.weighted(task), ALGORITHMS[name]), run(task, ALGORITHMS[name]))


def test_images_with_equal_samples_are_unchanged():
    task = jo.tasks.digits(0, users=4, samples=20)
    algorithm = jo.cotaf(ETA, 2, 2)
    assert_same(run(jo.tasks.weighted(task), algorithm), run(task, algorithm))


def test_one_full_step_is_gradient_descent_on_the_weighted_objective(data):
    features, targets = (x.astype("float64") for x in data)
    task = jo.tasks.weighted(jo.tasks.regression(*data), WEIGHTS)
    start = np.ones((3, 3), "float32")
    history = run(task, jo.fedavg(ETA, 1), initial=start)
    shares, model = WEIGHTS / WEIGHTS.sum(), np.ones(3)
    losses = []
    for _ in range(ROUNDS):
        residual = np.einsum("nsd,d->ns", features, model) - targets
        model = model - ETA * np.einsum("n,ns,nsd->d", shares, residual, features) * 2 / 6
        residual = np.einsum("nsd,d->ns", features, model) - targets
        losses.append((shares[:, None] * residual**2 / 6).sum())
    np.testing.assert_allclose(history.model[0], model, rtol=1e-5)
    np.testing.assert_allclose(history.loss[0], losses, rtol=1e-5)
    rows = np.sqrt(shares)[:, None, None]
    best = np.linalg.lstsq(
        (rows * features).reshape(-1, 3), (rows[..., 0] * targets).ravel(), rcond=None
    )[1][0]
    np.testing.assert_allclose(history.gap[0], np.asarray(losses) - best / 6, rtol=1e-4)


@pytest.mark.parametrize("algorithm", [jo.fedavg(ETA, 2), jo.scaffold(ETA, 2, warm_start=True)])
def test_a_user_of_weight_0_might_as_well_be_absent(data, algorithm):
    features, targets = data
    whole = jo.tasks.weighted(jo.tasks.regression(*data), WEIGHTS)
    rest = jo.tasks.weighted(jo.tasks.regression(features[:3], targets[:3]), WEIGHTS[:3])
    np.testing.assert_allclose(run(whole, algorithm).gap, run(rest, algorithm).gap, rtol=2e-5)


def test_repeated_users_are_a_weight(data):
    """A user of weight 2 equals two users with its data, and samples weigh as their number."""
    features, targets = data
    twice = jo.tasks.regression(features[[0, 1, 1]], targets[[0, 1, 1]])
    once = jo.tasks.weighted(jo.tasks.regression(features[:2], targets[:2]), [1.0, 2.0])
    uneven = jo.tasks.regression(
        [features[0], np.concatenate([features[1]] * 2)],
        [targets[0], np.concatenate([targets[1]] * 2)],
    )
    histories = [run(t, jo.fedavg(ETA, 3)) for t in (twice, once, jo.tasks.weighted(uneven))]
    for history in histories[1:]:
        np.testing.assert_allclose(history.gap, histories[0].gap, rtol=2e-5)


@pytest.mark.parametrize("name", ["cotaf", "baaf", "cobaaf", "pooled"])
def test_without_noise_every_algorithm_is_its_reference(data, name):
    task, quiet = jo.tasks.weighted(jo.tasks.regression(*data), WEIGHTS), jo.Channel(snr_db=np.inf)
    algorithm = ALGORITHMS[name]
    reference = algorithm.replace(medium=jo.ErrorFree())
    got, wanted = run(task, algorithm, quiet), run(task, reference)
    np.testing.assert_allclose(got.gap, wanted.gap, rtol=1e-5)
    np.testing.assert_allclose(got.error, 0.0, atol=1e-9)  # the true average is the weighted one


def test_powers_and_plans_follow_what_is_sent(data):
    plain = jo.tasks.regression(*data)
    task = jo.tasks.weighted(plain, WEIGHTS)
    one = {"rounds": 1, "trials": 4}
    plans = [jo.calibrate(0, jo.cotaf(ETA, 2), t, **one) for t in (task, plain)]
    relative = WEIGHTS / WEIGHTS.mean()
    start = np.ones((3, 3), "float32")
    runs = [
        jo.simulate(
            0, jo.cotaf(ETA, 2, precode=jo.Constant(1.0)), jo.Channel(), t, 1, 3,
            user_power=True, initial=start,
        )
        for t in (task, plain)
    ]  # fmt: skip
    np.testing.assert_allclose(
        runs[0].user_power, relative[None, None] ** 2 * runs[1].user_power, rtol=1e-5
    )
    np.testing.assert_allclose(
        plans[0].update_mean, relative[None] * plans[1].update_mean, rtol=1e-4, atol=1e-7
    )
    online = run(task, jo.cotaf(ETA, 2, 2, precode=jo.Online()))
    np.testing.assert_allclose(online.power, 1.0, rtol=1e-5)
    bound = run(task, jo.cotaf(ETA, 2, precode=jo.Bounded(100.0)))
    assert bound.power.max() <= 1.0


def test_part_of_the_users_is_an_unbiased_sample(data):
    task = jo.tasks.weighted(jo.tasks.regression(*data), WEIGHTS)
    start = jnp.ones((4000, 3))
    options = {"rounds": 1, "trials": 4000, "initial": start}
    some = jo.cotaf(ETA, 2).replace(precode=jo.Online())
    channel = jo.Channel(snr_db=np.inf, participants=2)
    models = np.asarray(jo.simulate(0, some, channel, task, **options).model)
    wanted = np.asarray(jo.simulate(0, jo.fedavg(ETA, 2), channel, task, **options).model)[0]
    error = models.std(0, ddof=1) / np.sqrt(len(models))
    assert (np.abs(models.mean(0) - wanted) < 4 * error).all()


def test_weights_sweep(data):
    task = jo.tasks.regression(*data)
    table = np.stack([WEIGHTS, np.ones(4, "float32")])
    algorithm, channel = jo.cotaf(ETA, 2, 2), jo.Channel()
    swept = jo.sweep(0, algorithm, channel, jo.tasks.weighted(task, table), ROUNDS, **RUN)
    for row, weights in zip(swept.gap, table, strict=True):
        alone = run(jo.tasks.weighted(task, weights), algorithm)
        np.testing.assert_allclose(row, alone.gap, rtol=1e-4)


@pytest.mark.parametrize(
    ("weights", "line"),
    [
        ([1.0, 2.0], "task.weights must be one for each of 4 users, got 2"),
        ([1.0, -1.0, 1.0, 1.0], "task.weights must be finite and ≥ 0, got -1"),
        ([0.0] * 4, "task.weights must have a sum > 0, got 0"),
        ("users", "weights must be 'samples', got 'users'"),
    ],
)
def test_bad_weights_are_one_line(data, weights, line):
    with pytest.raises(jo.InputError) as error:
        run(jo.tasks.weighted(jo.tasks.regression(*data), weights), jo.cotaf(ETA, 2, 2))
    assert str(error.value) == line


def test_what_knows_no_weights_refuses_them(data):
    task = jo.tasks.weighted(jo.tasks.regression(*data), WEIGHTS)
    for refused in (
        lambda: jo.theory.measure(0, jo.cotaf(ETA, 2, 2), jo.Channel(), task, ROUNDS, 2),
        lambda: run(task, jo.wise(ETA, 2, 2)),
    ):
        with pytest.raises(jo.InputError, match=r"task\.weights must be None"):
            refused()
