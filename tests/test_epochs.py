"""Local epochs: every sample once in each, users with more samples take more; and clipping."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxota as jo
from jaxota.stages.batches import in_steps, visits

ROUNDS, ETA, RUN = 3, 1e-2, {"trials": 2, "calibration_trials": 4}
SIZES = 7, 3, 5


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    features = [draw.normal(size=(size, 2)).astype("float32") for size in SIZES]
    return features, [draw.normal(size=size).astype("float32") for size in SIZES]


def run(task, algorithm, channel=jo.Channel(), **options):
    return jo.simulate(0, algorithm, channel, task, ROUNDS, **RUN, **options)


def assert_same(one, other):
    for got, wanted in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("make", [jo.cotaf, jo.cobaaf, jo.fedavg])
@pytest.mark.parametrize("epochs", [1, 3])
def test_epochs_of_full_batches_are_full_gradient_steps_to_the_bit(data, make, epochs):
    task = jo.tasks.regression(*data)
    assert_same(run(task, make(ETA, epochs=epochs)), run(task, make(ETA, epochs)))


@pytest.mark.parametrize("make", [jo.cotaf, jo.cobaaf])
def test_one_batch_of_all_samples_is_the_full_gradient(data, make):
    task = jo.tasks.regression(*data)
    whole = run(task, make(ETA, 2))
    for batch in (7, 10):  # also one that is larger than any user's set
        np.testing.assert_allclose(
            run(task, make(ETA, None, batch, epochs=2)).gap, whole.gap, rtol=1e-4
        )


@pytest.mark.parametrize("last", ["short", "dropped"])
def test_every_sample_is_visited_once_in_each_epoch(data, last):
    task = jo.tasks.regression(*data)
    local = in_steps(jo.SGD(ETA, None, 2, epochs=3, last=last), "local", task)
    assert local.steps == 3 * 4
    problem, orders = task.problem(0), set()
    for user, size in enumerate(SIZES):
        samples, counts = map(np.asarray, visits(local, problem, user, jax.random.key(1)))
        batches = -(-size // 2) if last == "short" else size // 2
        assert (counts[: 3 * batches] > 0).all() and (counts[3 * batches :] == 0).all()
        for epoch in range(3):
            rows = slice(epoch * batches, (epoch + 1) * batches)
            pairs = zip(samples[rows], counts[rows], strict=True)
            seen = [int(s) for batch, count in pairs for s in batch[:count]]
            whole = size if last == "short" else 2 * batches
            assert len(set(seen)) == len(seen) == whole and max(seen) < size
            orders.add(tuple(seen))
    assert len(orders) > 6  # orders differ between users and epochs


def test_all_orders_are_equally_likely():
    from jaxota._core import prng

    keys = jax.random.split(jax.random.key(0), 6000)
    draw = jax.vmap(lambda k: prng.permutations(prng.words(k), jnp.arange(1), 5, jnp.int32(3)))
    orders = np.asarray(draw(keys))[:, 0]
    assert (orders[:, 3:] == [3, 4]).all()
    counts = np.unique(orders[:, :3], axis=0, return_counts=True)[1]
    assert len(counts) == 6 and (np.abs(counts - 1000) < 4 * np.sqrt(1000 * 5 / 6)).all()


@pytest.mark.parametrize("option", [None, 1, 2])
@pytest.mark.parametrize("last", ["short", "dropped"])
def test_a_round_is_that_of_a_plain_loop(data, option, last):
    """NumPy twin: each user passes over its own samples, and takes K_i steps."""
    task, key = jo.tasks.regression(*data), jax.random.key(3)
    rule = {"epochs": 2, "last": last}
    if option is None:
        local = jo.SGD(ETA, None, 2, **rule)
    else:
        local = jo.ControlVariateSGD(ETA, None, 2, None, option, **rule)
    local, problem = in_steps(local, "local", task), task.problem(0)
    model, shift = np.asarray([0.5, -1.0]), np.asarray([0.1, 0.2])
    controls = np.arange(6.0).reshape(3, 2) / 10
    state = jo.State(
        jnp.float32(model),
        jnp.float32(shift),
        jnp.float32(controls),
        (),
        (),
        None,
        None,
        None,
        None,
    )
    update = local(key, key, problem, state)
    for user, (features, targets) in enumerate(zip(*data, strict=True)):
        samples, counts = map(np.asarray, visits(local, problem, user, key))
        theta, steps = model.copy(), 0
        for rows, count in zip(samples, counts, strict=True):
            if count:
                a, b = features[rows[:count]], targets[rows[:count]]
                gradient = 2 * a.T @ (a @ theta - b) / count
                correction = 0.0 if option is None else shift - controls[user]
                theta, steps = theta - ETA * (gradient + correction), steps + 1
        np.testing.assert_allclose(update.update[user], theta - model, rtol=1e-4, atol=1e-6)
        if option == 2:
            wanted = controls[user] - shift + (model - theta) / (steps * ETA)
            np.testing.assert_allclose(update.controls[user], wanted, rtol=1e-3, atol=1e-4)


def test_epochs_run_with_schedules_images_and_in_studies():
    task = jo.tasks.digits(0, users=3, samples=15)
    algorithm = jo.cotaf(jo.by_round([0.1] * ROUNDS), batch=4, epochs=2)
    history = run(task, algorithm)
    assert np.isfinite(history.loss).all()
    study = jo.Study({"a": algorithm}, jo.Channel(), task, ROUNDS, 2, calibration_trials=4)
    got = study.run()["loss"].values.reshape(2, ROUNDS)
    np.testing.assert_allclose(got, history.loss, rtol=1e-5)


@pytest.mark.parametrize("make", [jo.cotaf, jo.cobaaf])
def test_an_infinite_clip_is_none_to_the_bit(data, make):
    task = jo.tasks.regression(*data)
    assert_same(run(task, make(ETA, 2, 2, clip=np.inf)), run(task, make(ETA, 2, 2)))


def test_clipping_is_that_of_optax_and_keeps_the_bound(data):
    task = jo.tasks.regression(*data)
    largest = 0.5
    ours = run(task, jo.fedavg(ETA, 3, 2, clip=largest))
    theirs = run(task, jo.fedavg(ETA, 3, 2, transform=optax.clip_by_global_norm(largest)))
    np.testing.assert_allclose(ours.gap, theirs.gap, rtol=1e-5)
    bounded = run(task, jo.cotaf(ETA, 3, 2, clip=largest, precode=jo.Bounded(largest)))
    assert bounded.power.max() <= 1.0 + 1e-6
    swept = jo.sweep(
        0, jo.fedavg(ETA, 3, 2, clip=[largest, np.inf]), jo.Channel(), task, ROUNDS, **RUN
    )
    np.testing.assert_allclose(swept.gap[0], ours.gap, rtol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "line"),
    [
        (jo.cotaf(ETA, 3, 2, epochs=2), "algorithm.local.epochs must be None where steps is given"),
        (jo.cotaf(ETA), "algorithm.local.steps must be given, or epochs, got None"),
        (jo.cotaf(ETA, epochs=0), "algorithm.local.epochs must be a whole number ≥ 1, got 0"),
        (jo.cotaf(ETA, batch=0, epochs=1), "algorithm.local.batch must be a whole number ≥ 1"),
        (jo.cotaf(ETA, 2, clip=0.0), "algorithm.local.clip must be > 0, got 0"),
        (
            jo.cotaf(ETA, 2).replace(local=jo.SGD(ETA, 2, last="kept")),
            "algorithm.local.last must be 'short' or 'dropped', got 'kept'",
        ),
    ],
)
def test_bad_protocols_are_one_line(data, algorithm, line):
    with pytest.raises(jo.InputError) as error:
        run(jo.tasks.regression(*data), algorithm)
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("choice", [{"batch": 2, "epochs": 1}, {"steps": 2, "clip": 1.0}])
def test_exact_curves_and_theorems_refuse_what_is_not_linear(data, choice):
    task, algorithm = jo.tasks.regression(*data), jo.cotaf(ETA, **choice)
    with pytest.raises(jo.InputError, match="linear steps"):
        jo.exact(algorithm, jo.Channel(), task, ROUNDS)
    with pytest.raises(jo.InputError, match=r"algorithm\.local"):
        jo.theory.measure(0, algorithm, jo.Channel(), task, ROUNDS, 2)
