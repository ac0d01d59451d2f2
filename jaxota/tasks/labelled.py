"""Any flax module and any loss on anyone's labelled arrays, the paper's section V-B."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from jaxota import _validate
from jaxota.errors import InputError
from jaxota.tasks import flax_modules
from jaxota.types import Array, part, static, traced

BLOCK = 2**21  # numbers inside the module that one evaluation may hold at once


@part
class Classification:
    """Users' labelled samples, padded to the longest user, and a test set; see `classification`.

    The task is its own problem: nothing is drawn anew per trial but the initial model.
    """

    features: Array = traced(rank=3)  # [user, sample, feature]
    labels: Array = traced(rank=2, dtype="int32")  # [user, sample]
    counts: Array = traced(rank=1, dtype="int32")  # [user] samples that are not padding
    test_features: Array = traced(rank=2)  # [sample, feature]
    test_labels: Array = traced(rank=1, dtype="int32")  # [sample]
    init_scale: Array = traced(at_least=0.0)
    module: nn.Module = static()
    loss: object = static()  # (logits [sample, classes], labels [sample]) → [sample]
    shape: tuple = static()  # of one sample, as the module sees it
    classes: int = static(at_least=1)

    strong_convexity = 0.0  # none is known: the average of a run is the plain mean

    @property
    def users(self) -> int:
        return self.features.shape[-3]

    @property
    def dim(self) -> int:
        return flax_modules.layout(self.module, self.shape)[0]

    def problem(self, trial) -> "Classification":
        return self

    def floats_per_trial(self, batch: int) -> int:
        each, pixels = flax_modules.activations(self.module, self.shape), math.prod(self.shape)
        own, tested = self.users * self.features.shape[-2], self.test_labels.shape[-1]
        evaluated = max(self.users, min(max(own, tested), BLOCK // each))  # samples at a time
        return self.users * batch * (pixels + 2 * each) + 2 * evaluated * each

    def head(self) -> "Classification":
        """The same users with the first fifth of their samples, rounded up."""
        samples = -(-self.features.shape[1] // 5)
        features, labels = self.features[:, :samples], self.labels[:, :samples]
        return self.replace(features=features, labels=labels, counts=-(-self.counts // 5))

    def init(self, key) -> Array:
        """The module's own initial parameters [d], plus N(0, init_scale²)."""
        k_own, k_more = jax.random.split(key)
        own = ravel_pytree(self.module.init(k_own, jnp.zeros((1, *self.shape)))["params"])[0]
        return own + self.init_scale * jax.random.normal(k_more, own.shape, "float32")

    def gradient(self, model, user, samples) -> Array:
        """The mean gradient [d] of the `samples` [batch] of one user."""
        rows = user * self.features.shape[1] + samples
        features, labels = (x.at[rows].get(mode="promise_in_bounds") for x in self._table)
        return jax.grad(lambda m: self._losses(m, features, labels).mean())(model)

    def full_gradient(self, model, user) -> Array:
        """∇f_i [d] over all samples of one user."""
        share = 1.0 / self.counts[user].astype("float32")
        weights = jnp.where(jnp.arange(self.labels.shape[1]) < self.counts[user], share, 0.0)

        def gradient(features, labels, weights):
            return jax.grad(lambda m: (weights * self._losses(m, features, labels)).sum())(model)

        size = max(1, self._block // self.users)  # all users take theirs at once
        return _in_blocks(gradient, size, self.features[user], self.labels[user], weights)

    def score(self, model) -> dict[str, Array]:
        """F over the users' own samples, and the share of test samples that are labelled right."""

        def loss(features, labels, weights):
            return (weights * self._losses(model, features, labels)).sum()

        def right(features, labels, weights):
            found = jnp.argmax(self._logits(model, features), -1)
            return (weights * (found == labels)).sum()

        inside = jnp.arange(self.labels.shape[1])[None] < self.counts[:, None]
        share = 1.0 / (self.users * self.counts.astype("float32"))
        own = (*self._table, jnp.where(inside, share[:, None], 0.0).reshape(-1))
        tested = self.test_features, self.test_labels, jnp.ones(self.test_labels.shape, "float32")
        loss = _in_blocks(loss, self._block, *own)
        accuracy = _in_blocks(right, self._block, *tested) / self.test_labels.size
        # The largest of logits that are NaN is the first: a diverged model has no accuracy.
        return {"loss": loss, "accuracy": jnp.where(jnp.isfinite(loss), accuracy, jnp.nan)}

    @property
    def _table(self):
        """All users' samples in a row: features [user · sample, feature] and labels."""
        return self.features.reshape(-1, self.features.shape[-1]), self.labels.reshape(-1)

    @property
    def _block(self) -> int:
        """Samples that are evaluated at once."""
        return max(1, BLOCK // flax_modules.activations(self.module, self.shape))

    def _logits(self, model, features) -> Array:
        parameters = flax_modules.layout(self.module, self.shape)[1](model)
        return self.module.apply({"params": parameters}, features.reshape(-1, *self.shape))

    def _losses(self, model, features, labels) -> Array:
        return self.loss(self._logits(model, features), labels)


def classification(
    module,
    data,
    test_data,
    loss=optax.softmax_cross_entropy_with_integer_labels,
    init_scale=0.0,
) -> Classification:
    """Train `module` on your labelled data; the score is the accuracy on `test_data`.

    module: a flax module (linen) from a batch of samples to logits [sample, classes].
    data: users' features [N, D, ...] and labels [N, D], or lists of [D_i, ...] and of [D_i].
    test_data: features [sample, ...] and labels [sample].
    loss: of logits and labels, one number a sample, such as optax has. One that compares arrays of
        one shape is given one-hot labels (0 and 1), and summed over classes.
    init_scale: N(0, init_scale²) is added to the module's own initial parameters, drawn per trial.
    """
    users = _users(*_pair("data", data))
    test_features, test_labels = _samples("test_data", *_pair("test_data", test_data))
    shape = test_features.shape[1:]
    module = flax_modules.hashable(module)
    classes = flax_modules.classes(module, shape)
    loss = flax_modules.per_sample(loss, classes)
    _check_labels("test_data", test_labels, classes)
    for user, (x, y) in enumerate(users):
        _check_labels(f"data of user {user}", y, classes)
        if x.shape[1:] != shape:
            raise InputError(
                f"data of user {user} must be of the shape {list(shape)} of the test samples, "
                f"got {list(x.shape[1:])}"
            )
    counts = np.array([len(y) for _, y in users], np.int32)
    features = np.zeros((len(users), counts.max(), math.prod(shape)), np.float32)
    labels = np.zeros((len(users), counts.max()), np.int32)
    for user, (x, y) in enumerate(users):
        # Padded with a sample of its own: weights of 0 do not help where a module makes 0/0 of 0.
        features[user], labels[user] = x[0].reshape(-1), y[0]
        features[user, : len(y)], labels[user, : len(y)] = x.reshape(len(y), -1), y
    arrays = features, labels, counts, test_features.reshape(len(test_labels), -1), test_labels
    return Classification(*map(jnp.asarray, arrays), init_scale, module, loss, shape, classes)


def _in_blocks(function, size: int, features, labels, weights):
    """The sum over blocks of `size` samples of what `function` gives for each.

    The last one is filled with its last sample, at a weight of 0.
    """
    arrays, count = (features, labels, weights), len(weights)
    if count <= size:
        return function(*arrays)
    blocks = -(-count // size)
    size = -(-count // blocks)

    def split(array):
        padding = [(0, blocks * size - count)] + [(0, 0)] * (array.ndim - 1)
        mode = "constant" if array is weights else "edge"
        return jnp.pad(array, padding, mode).reshape(blocks, size, *array.shape[1:])

    total, _ = jax.lax.scan(
        lambda total, block: (total + function(*block), None),
        jnp.zeros_like(jax.eval_shape(function, *arrays)),
        tuple(map(split, arrays)),
    )
    return total


def _pair(name: str, data):
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InputError(f"{name} must be a pair (features, labels), got {_validate.shown(data)}")
    return data


def _users(features, labels) -> list:
    """Features and labels of every user, checked."""
    try:
        features, labels = list(features), list(labels)
    except TypeError:
        raise InputError("data must be arrays [N, D, ...] and [N, D], or lists of them") from None
    if len(features) != len(labels) or not features:
        raise InputError(
            "data must hold features and labels of as many users, at least one, "
            f"got {len(features)} and {len(labels)}"
        )
    pairs = zip(features, labels, strict=True)
    return [_samples(f"data of user {user}", *pair) for user, pair in enumerate(pairs)]


def _samples(name: str, features, labels) -> tuple[np.ndarray, np.ndarray]:
    """One user's features [D, ...] in float32 and labels [D] in whole numbers."""
    try:
        if np.iscomplexobj(features):
            raise TypeError
        with np.errstate(invalid="ignore"):  # NaN is told apart below
            features, labels = np.asarray(features, np.float32), np.asarray(labels)
            whole = labels.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be real arrays, features [D, ...], labels [D]") from None
    if features.ndim < 2 or labels.ndim != 1 or len(labels) != len(features) or not features.size:
        raise InputError(
            f"{name} must be features [D, ...] and labels [D] of D ≥ 1 samples, "
            f"got shapes {list(features.shape)} and {list(labels.shape)}"
        )
    if not np.isfinite(features).all():
        raise InputError(f"features of {name} must be finite, got NaN or inf")
    if not (whole == labels).all():
        raise InputError(
            f"labels of {name} must be whole numbers, got {labels[whole != labels][0]}"
        )
    return features, whole


def _check_labels(name: str, labels, classes: int) -> None:
    bad = labels[(labels < 0) | (labels >= classes)]
    if bad.size:
        raise InputError(
            f"labels of {name} must lie in 0 … {classes - 1}, the module's outputs, got {bad[0]}"
        )
