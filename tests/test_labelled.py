"""Classification tasks against plain NumPy in float64, and what they refuse."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxota as jo
from jaxota._core import arguments as _arguments
from jaxota._core import capacity
from jaxota.simulation import program
from jaxota.tasks import model_functions

KEY = jax.random.key(0)
CLASSES, SHAPE, SIZES = 3, (2, 2), (7, 4, 1)
# One program each for tasks of one structure; not for tests that change how a task computes.
_score = jax.jit(lambda task, model: task.problem(0).score(model))
_full_gradient = jax.jit(lambda task, model, user: task.problem(0).full_gradient(model, user))
_some_gradient = jax.jit(lambda task, *where: task.problem(0).gradient(*where))


@pytest.fixture(scope="module")
def arrays():
    """Features [D_i, 2, 2] and labels [D_i] of three users of unequal size, and a test set."""
    return _drawn(SHAPE)


@pytest.fixture(scope="module")
def long_arrays():
    """The same with so many pixels that the kernel is held transposed."""
    return _drawn((4, 6))


def _drawn(shape):
    rng = np.random.default_rng(0)
    users = [(rng.random((n, *shape)), rng.integers(0, CLASSES, n)) for n in SIZES]
    return tuple(zip(*users, strict=True)), (rng.random((9, *shape)), rng.integers(0, CLASSES, 9))


@pytest.fixture(scope="module")
def task(arrays):
    return jo.tasks.classification(jo.tasks.SoftmaxRegression(CLASSES), *arrays)


@pytest.fixture(scope="module")
def model(task):
    return np.random.default_rng(1).standard_normal(task.dim)


def _logits(model, x):
    """Softmax regression: the bias comes first in the vector of parameters."""
    bias, kernel = model[:CLASSES], model[CLASSES:].reshape(-1, CLASSES)
    return x.reshape(len(x), -1) @ kernel + bias


def _probabilities(model, x):
    e = np.exp(_logits(model, x) - _logits(model, x).max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _loss(model, x, y):
    return -np.log(_probabilities(model, x)[np.arange(len(y)), y]).mean()


def _gradient(model, x, y):
    error = (_probabilities(model, x) - np.eye(CLASSES)[y]) / len(y)
    return np.concatenate([error.sum(0), (x.reshape(len(x), -1).T @ error).ravel()])


def test_softmax_regression_agrees_with_numpy(arrays, task, model):
    (features, labels), (x_test, y_test) = arrays
    problem = task.problem(0)
    assert task.dim == problem.dim == CLASSES * 5 and task.users == 3
    for user, (x, y) in enumerate(zip(features, labels, strict=True)):
        expected = _gradient(model, x, y)
        np.testing.assert_allclose(_full_gradient(task, model, user), expected, atol=1e-5)
        some = np.array([0, len(y) - 1, 0])
        expected = _gradient(model, x[some], y[some])
        np.testing.assert_allclose(_some_gradient(task, model, user, some), expected, atol=1e-5)
    score = _score(task, model)
    right = (_logits(model, x_test).argmax(1) == y_test).mean()
    loss = np.mean([_loss(model, x, y) for x, y in zip(features, labels, strict=True)])
    np.testing.assert_allclose(score["accuracy"], right, atol=1e-5)
    np.testing.assert_allclose(score["loss"], loss, atol=1e-5)
    assert set(score) == {"loss", "accuracy"}


def test_a_padded_user_is_the_user_itself(arrays, task, model):
    """Loss and gradients of a user among longer ones are those of its unpadded data alone."""
    (features, labels), test = arrays
    module = jo.tasks.SoftmaxRegression(CLASSES)
    for user in range(3):
        alone = jo.tasks.classification(module, (features[user][None], labels[user][None]), test)
        shared = task.replace(
            **{k: getattr(task, k)[user : user + 1] for k in ("numbers", "wholes", "counts")}
        )
        losses = [_score(t, model)["loss"] for t in (alone, shared)]
        np.testing.assert_allclose(*losses, rtol=1e-6)
        gradients = _full_gradient(alone, model, 0), _full_gradient(task, model, user)
        np.testing.assert_allclose(*gradients, atol=1e-6)


@pytest.mark.slow
def test_padding_is_never_seen(task):
    """Whatever the padding holds, nothing changes: neither minibatches nor scores touch it."""
    outside = np.arange(7)[None] >= np.array(SIZES)[:, None]
    other = task.replace(
        numbers=jnp.where(outside[..., None], 50.0, task.numbers),
        wholes=jnp.where(outside[..., None], 2, task.wholes),
    )
    for algorithm in (jo.scaffold(0.1, 3, batch=4), jo.scaffold(0.1, 3, control_batch=2)):
        runs = [
            jo.simulate(KEY, algorithm, jo.Channel(), t, rounds=3, trials=2) for t in (task, other)
        ]
        np.testing.assert_array_equal(runs[0].model, runs[1].model)
        np.testing.assert_array_equal(runs[0].loss, runs[1].loss)


class Normalised(nn.Module):
    """One that makes 0/0 of an empty image."""

    @nn.compact
    def __call__(self, x):
        x = x.reshape(len(x), -1)
        return nn.Dense(CLASSES)(x / jnp.linalg.norm(x, axis=1, keepdims=True))


def _numbers_of_a_sample(task):
    return model_functions.activations(task.start, task.loss, task.columns)


@pytest.mark.slow
def test_padding_is_no_empty_image(arrays, monkeypatch):
    """A module that bears no zeros sees none, neither among users of unequal size nor in blocks."""
    task = jo.tasks.classification(Normalised(), *arrays)
    monkeypatch.setattr(model_functions, "BLOCK", 4 * _numbers_of_a_sample(task))
    run = jo.simulate(KEY, jo.scaffold(0.1, 2), jo.Channel(), task, 2, 2)
    assert np.isfinite(run.model).all() and np.isfinite(run.loss).all()


def test_a_diverged_model_has_no_accuracy(task):
    bad = _score(task, np.full(task.dim, np.nan))
    assert np.isnan(bad["loss"]) and np.isnan(bad["accuracy"])
    assert _score(task, np.zeros(task.dim))["accuracy"] <= 1


def test_head_is_the_first_fifth(task, model, arrays):
    (features, labels), _ = arrays
    head = task.head()
    np.testing.assert_array_equal(head.counts, [2, 1, 1])
    expected = _gradient(model, features[0][:2], labels[0][:2])
    np.testing.assert_allclose(_full_gradient(head, model, 0), expected, atol=1e-5)


@pytest.mark.parametrize("controlled", [False, True])
def test_runs_agree_with_a_numpy_loop(long_arrays, controlled):
    """FedAvg and SCAFFOLD with full gradients, and their scores, with users of unequal size."""
    (features, labels), (x_test, y_test) = long_arrays
    task = jo.tasks.classification(jo.tasks.SoftmaxRegression(CLASSES), *long_arrays)
    assert task.layout.unravel(jnp.zeros(task.dim))["Dense_0"]["kernel"].shape == (CLASSES, 24)
    rounds, steps, eta = 3, 2, 0.5
    algorithm = (jo.scaffold if controlled else jo.fedavg)(eta, steps)
    run = jo.simulate(KEY, algorithm, jo.Channel(), task, rounds, trials=1)
    users = list(zip(features, labels, strict=True))
    model, server, controls = np.zeros(task.dim), 0.0, [0.0] * 3
    for r in range(rounds):
        local = [model] * 3
        for i, data in enumerate(users):
            for _ in range(steps):
                direction = _gradient(local[i], *data) - controls[i] + server
                local[i] = local[i] - eta * direction
        if controlled:
            controls = [_gradient(model, *data) for data in users]
            server = np.mean(controls, 0)
        model = np.mean(local, 0)
        loss = np.mean([_loss(model, *data) for data in users])
        np.testing.assert_allclose(run.loss[0, r], loss, atol=1e-5)
        accuracy = (_logits(model, x_test).argmax(1) == y_test).mean()
        np.testing.assert_allclose(run.accuracy[0, r], accuracy, atol=1e-6)
    np.testing.assert_allclose(run.model[0], model, atol=1e-5)


@pytest.mark.slow
def test_an_optimiser_sees_vectors_whatever_the_layout(long_arrays):
    """One that knows coordinates by their place: the biases stand first."""
    task = jo.tasks.classification(jo.tasks.SoftmaxRegression(CLASSES), *long_arrays)
    assert task.layout.unravel(jnp.zeros(task.dim))["Dense_0"]["kernel"].shape == (CLASSES, 24)
    biases = jnp.arange(task.dim) < CLASSES
    place = optax.stateless(lambda updates, params: jnp.where(biases, updates, 0.0))
    algorithm = jo.fedavg(0.1, 2, 2, transform=place)
    model = jo.simulate(KEY, algorithm, jo.Channel(), task, 2, 1).model[0]
    np.testing.assert_array_equal(model[CLASSES:], 0.0)
    assert jnp.all(model[:CLASSES] != 0.0)


def test_evaluation_in_blocks_changes_nothing(task, model, monkeypatch):
    """Six samples at once, two of each user's, the last ones padded: the numbers of one block."""

    def evaluated():
        return jax.jit(lambda t, m: (t.score(m), t.full_gradient(m, 0)))(task, model)

    whole = evaluated()
    monkeypatch.setattr(model_functions, "BLOCK", 6 * _numbers_of_a_sample(task))
    assert task._block == 6
    for got, expected in zip(jax.tree.leaves(evaluated()), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.slow
def test_memory_in_flight_is_bounded_by_its_estimate(monkeypatch):
    """What the compiled program of a CNN with full gradients takes, trial by trial."""
    users, rng = 20, np.random.default_rng(0)
    x, y = rng.random((users, 60, 20, 20), np.float32), rng.integers(0, 10, (users, 60))
    task = jo.tasks.classification(jo.tasks.CNN(10, (8,)), (x, y), (x[0], y[0]))
    algorithm = jo.scaffold(0.1, 2, 20)
    monkeypatch.setattr(capacity, "CACHE", capacity.MEMORY)  # both trials at once
    needed = []
    for trials in (1, 3):
        arguments, options = _arguments.experiment(KEY, algorithm, jo.Channel(), task, 2, trials)
        compiled = program.lower(options, **arguments).compile()
        needed.append(compiled.memory_analysis().temp_size_in_bytes)
    estimate = capacity.bytes_per_trial([algorithm], task)
    per_trial = (needed[1] - needed[0]) / 2
    assert estimate / 20 < per_trial < estimate


def test_initial_models_are_the_modules_own_plus_a_scale(arrays):
    mlp = jo.tasks.classification(jo.tasks.MLP(CLASSES, (4,)), *arrays)
    keys = jax.random.split(KEY, 400)
    initial = jax.jit(lambda task, keys: jax.vmap(task.init)(keys))
    own = initial(mlp, keys)
    assert own.shape == (400, 4 * 4 + 4 + 4 * CLASSES + CLASSES)
    assert len(np.unique(own[:, -1])) > 300 and np.abs(own[:, :4]).max() == 0  # biases start at 0
    wide = np.asarray(initial(mlp.replace(init_scale=2.0), keys)) - own
    np.testing.assert_allclose(wide.std(), 2.0, rtol=0.05)
    zero = jo.tasks.classification(jo.tasks.SoftmaxRegression(CLASSES), *arrays)
    assert (initial(zero, keys) == 0).all()


@pytest.mark.slow
def test_initial_scales_sweep(task):
    swept = task.replace(init_scale=jnp.array([0.0, 1.0]))
    algorithm = jo.cotaf(0.1, 1, 2, precode=jo.Online())
    run = jo.sweep(KEY, algorithm, jo.Channel(), swept, 2, 3)
    assert run.accuracy.shape == (2, 3, 2) and list(run.settings) == ["init_scale"]
    alone = jo.simulate(KEY, algorithm, jo.Channel(), task.replace(init_scale=1.0), 2, 3)
    np.testing.assert_allclose(run.model[1], alone.model, rtol=1e-5, atol=1e-6)
    assert run.to_xarray().accuracy.dims == ("init_scale", "trial", "round")


@pytest.mark.slow
def test_new_numbers_and_equal_modules_do_not_retrace(arrays):
    before = program._cache_size()
    for scale, eta in ((0.0, 0.1), (1.0, 0.2)):
        made_again = jo.tasks.classification(
            jo.tasks.MLP(CLASSES, (4,)), *arrays, optax.l2_loss, init_scale=scale
        )
        jo.simulate(KEY, jo.fedavg(eta, 1, 2), jo.Channel(), made_again, 2, 2)
    assert program._cache_size() == before + 1


def test_losses_of_optax(arrays, model):
    """Those of labels, those of one-hot rows, and those of each class, which are summed."""
    module = jo.tasks.SoftmaxRegression(CLASSES)

    def loss_of(loss):
        return float(_score(jo.tasks.classification(module, *arrays, loss), model)["loss"])

    labels = loss_of(optax.softmax_cross_entropy_with_integer_labels)
    assert loss_of(optax.softmax_cross_entropy) == pytest.approx(labels, rel=1e-5)
    (features, targets), _ = arrays
    squares = [
        ((_logits(model, x) - np.eye(CLASSES)[y]) ** 2).sum(1).mean()
        for x, y in zip(features, targets, strict=True)
    ]
    assert loss_of(optax.squared_error) == pytest.approx(np.mean(squares), rel=1e-5)
    binary = loss_of(optax.sigmoid_binary_cross_entropy)
    assert np.isfinite(binary) and binary != pytest.approx(labels)
    for loss in (lambda logits, labels: 0.0, lambda logits: logits, None):
        with pytest.raises(jo.InputError, match="loss must give one number a sample"):
            loss_of(loss)


def test_the_cnn_is_a_convolution():
    """Its layers agree with flax's own convolution and pooling, weights carried over."""

    class Plain(nn.Module):
        @nn.compact
        def __call__(self, x):
            for features in (4, 5):
                x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
            return nn.Dense(CLASSES)(x.reshape(len(x), -1))

    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 9, 8, 2), np.float32))
    plain = jax.jit(Plain().init)(jax.random.key(1), x)["params"]

    def carried_over(plain):
        convolutions = {
            f"Dense_{n}": {
                "kernel": plain[f"Conv_{n}"]["kernel"].reshape(-1, features),
                "bias": plain[f"Conv_{n}"]["bias"],
            }
            for n, features in enumerate((4, 5))
        }
        return convolutions | {"Dense_2": plain["Dense_0"]}

    def with_slope(module, parameters):
        def height(parameters):
            logits = module.apply({"params": parameters}, x)
            return (logits**2).sum(), logits

        return jax.jit(jax.grad(height, has_aux=True))(parameters)

    slope, logits = with_slope(jo.tasks.CNN(CLASSES, (4, 5)), carried_over(plain))
    expected_slope, expected = with_slope(Plain(), plain)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    chex.assert_trees_all_close(slope, carried_over(expected_slope), rtol=1e-4, atol=1e-4)
    flat = jax.eval_shape(jo.tasks.CNN(CLASSES, (4,)).init, KEY, x[..., 0])  # one channel
    assert flat["params"]["Dense_0"]["kernel"].shape == (9, 4)


@pytest.mark.slow
def test_modules_of_lists_are_as_good_as_of_tuples(arrays):
    """`nn.Sequential` is mostly given a list, which cannot be hashed; made twice, one program."""
    before = program._cache_size()
    for kind in (list, tuple):
        module = nn.Sequential(kind([_flat, nn.Dense(4), nn.relu, nn.Dense(CLASSES)]))
        task = jo.tasks.classification(module, *arrays)
        jo.simulate(KEY, jo.fedavg(0.1, 1, 2), jo.Channel(), task, 1, 1)
    assert program._cache_size() == before + 1
    assert jo.tasks.classification(jo.tasks.MLP(CLASSES, [4]), *arrays).dim == 4 * 5 + 5 * CLASSES

    class Held(nn.Module):
        weights: jax.Array

        @nn.compact
        def __call__(self, x):
            return nn.Dense(CLASSES)(x.reshape(len(x), -1) * self.weights)

    with pytest.raises(jo.InputError, match="module must have fields that can be hashed") as caught:
        jo.tasks.classification(Held(jnp.ones(4)), *arrays)
    assert "\n" not in str(caught.value)


def _flat(x):
    return x.reshape(len(x), -1)


def test_modules_of_nnx_come_through_flax_bridge(arrays, model):
    class Linear(nnx.Module):
        def __init__(self, rngs):
            self.dense = nnx.Linear(4, CLASSES, rngs=rngs)

        def __call__(self, x):
            return self.dense(x.reshape(len(x), -1))

    with pytest.raises(jo.InputError, match=r"flax\.nnx\.bridge\.to_linen makes one"):
        jo.tasks.classification(Linear(nnx.Rngs(0)), *arrays)
    task = jo.tasks.classification(nnx.bridge.to_linen(Linear), *arrays)
    expected = jo.tasks.classification(jo.tasks.SoftmaxRegression(CLASSES), *arrays)
    losses = [_score(t, model)["loss"] for t in (task, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


class Wrong(nn.Module):
    """A module of one fault."""

    fault: str

    @nn.compact
    def __call__(self, x):
        x = x.reshape(len(x), -1)
        if self.fault == "statistics":
            x = nn.BatchNorm(use_running_average=False)(x)
        if self.fault == "dropout":
            x = nn.Dropout(0.5, deterministic=False)(x)
        if self.fault == "bfloat16":
            return nn.Dense(CLASSES, param_dtype="bfloat16", dtype="bfloat16")(x)
        if self.fault == "parameters":
            return x
        if self.fault == "inside":
            x = x @ jnp.ones((9, 9))
        x = nn.Dense(1 if self.fault == "one" else CLASSES)(x)
        return {"shape": x.sum(0), "pair": (x, x)}.get(self.fault, x)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("statistics", "module must hold nothing but parameters"),
        ("dropout", "module must compute the same each time, without random numbers"),
        ("bfloat16", "module must have parameters and logits in float32"),
        ("parameters", "module must have parameters, got none"),
        ("inside", "module must take a batch of samples of shape [2, 2]"),
        ("shape", "module must return logits [sample, classes ≥ 2], got float32[3] for 3 samples"),
        ("one", "module must return logits [sample, classes ≥ 2], got float32[3, 1]"),
        ("pair", "module must return logits [sample, classes ≥ 2], got no array"),
    ],
)
def test_bad_modules_are_one_clear_line(arrays, fault, words):
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.classification(Wrong(fault), *arrays)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(4,), (3, 8), (8, 3, 1)])
def test_a_cnn_of_small_or_flat_images_is_one_clear_line(shape):
    x, y = np.ones((1, 3, *shape)), np.zeros((1, 3), int)
    with pytest.raises(
        jo.InputError, match=r"2 stages need images .* of at least 4 pixels each way"
    ):
        jo.tasks.classification(jo.tasks.CNN(2), (x, y), (x[0], y[0]))


X, Y = np.ones((2, 4, 2, 2)), np.ones((2, 4), int)
TEST = X[0], Y[0]


@pytest.mark.parametrize(
    ("data", "test", "words"),
    [
        (
            (X, Y + 2),
            TEST,
            "labels of data of user 0 must be whole numbers in 0 … 2, the module's outputs",
        ),
        ((X, Y), (X[0], Y[0] - 2), "labels of test_data must be whole numbers in 0 … 2"),
        ((X, Y + 0.5), TEST, "whole numbers in 0 … 2, the module's outputs, got 1.5"),
        ((X * np.nan, Y), TEST, "features of data of user 0 must be finite, got NaN or inf"),
        ((X, Y[:, :3]), TEST, "data of user 0 must be features [D, ...] and labels [D]"),
        ((X, Y[:1]), TEST, "features and labels must be of as many users"),
        ((X[:, :, :1], Y), TEST, "samples of the shape [2, 2] of the test samples, got shapes"),
        (([], []), TEST, "features and labels must be of as many users, at least one"),
        ((X[:, :0], Y[:, :0]), TEST, "data['features'] of user 0 must not be empty"),
        ((5, 3), TEST, "features and labels must be arrays, or lists of one array a user"),
        (X, TEST, "data must be a pair (features, labels)"),
        ((X, Y), None, "test_data must be a pair (features, labels)"),
        ((X, np.full((2, 4), "cat")), TEST, "labels of data of user 0 must be an array of real"),
        ((X * 1j, Y), TEST, "features of data of user 0 must be an array of real numbers"),
        ((X, Y * np.nan), TEST, "whole numbers in 0 … 2, the module's outputs, got nan"),
        ((X, Y + 2**40), TEST, "labels of data of user 0 must be whole numbers in 0 … 2"),
    ],
)
def test_bad_data_are_one_clear_line(data, test, words):
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.classification(jo.tasks.SoftmaxRegression(CLASSES), data, test)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_bad_initial_scale_is_named_on_entry(task):
    with pytest.raises(jo.InputError, match=r"task.init_scale must be finite and ≥ 0, got -1"):
        jo.simulate(KEY, jo.fedavg(0.1, 1), jo.Channel(), task.replace(init_scale=-1.0), 1, 1)
