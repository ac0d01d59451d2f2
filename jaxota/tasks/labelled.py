"""Classification of labelled data by any flax module and any loss; the paper's section V-B."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.core
import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.part import Numbers, Scalar, canonical
from jaxota.errors import InputError
from jaxota.tasks import model_functions, sample_tables
from jaxota.tasks.empirical_risk import Empirical, empirical


# Dataclasses, not closures: those of equal modules are equal, and share one compiled program.
@dataclasses.dataclass(frozen=True)
class Start:
    """Draws a module's own initial parameters."""

    module: nn.Module
    shape: tuple[int, ...]  # of one sample

    def __call__(self, key: PRNGKeyArray) -> Any:
        return self.module.init(key, jnp.zeros((1, *self.shape)))["params"]


@dataclasses.dataclass(frozen=True)
class Loss:
    """Computes the loss [sample] of a module's logits, given labels as numbers or as one-hot."""

    module: nn.Module
    loss: Callable[..., Any]
    one_hot: bool
    classes: int

    def __call__(self, parameters: Any, batch: dict[str, Array]) -> Float[Array, "sample"]:
        logits = self.module.apply({"params": parameters}, batch["features"])
        labels = batch["labels"]
        if self.loss is canonical(optax.softmax_cross_entropy_with_integer_labels):
            # TPUs pick a class faster by a product than by an index.
            return jax.lax.platform_dependent(
                logits, labels, tpu=_one_hot_cross_entropy, default=self.loss
            )
        if not self.one_hot:
            return self.loss(logits, labels)
        losses = self.loss(logits, jax.nn.one_hot(batch["labels"], self.classes))
        return losses.sum(-1) if losses.ndim == 2 else losses


def _one_hot_cross_entropy(logits: Array, labels: Array) -> Float[Array, "sample"]:
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, logits.shape[-1]))


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Computes the share of test samples that a module labels correctly."""

    module: nn.Module

    def __call__(self, parameters: Any, test: dict[str, Array]) -> dict[str, Scalar]:
        def correct(test: dict[str, Array], weights: Float[Array, "sample"]) -> Scalar:
            logits: Any = self.module.apply({"params": parameters}, test["features"])
            return (weights * (jnp.argmax(logits, -1) == test["labels"])).sum()

        size = model_functions.block_size(_activations(self.module, test["features"].shape[1:]))
        weights = jnp.ones(test["labels"].shape, "float32")
        return {"accuracy": model_functions.total(correct, size, test, weights) / weights.size}


def classification(
    module: nn.Module,
    data: tuple[ArrayLike | Sequence[ArrayLike], ArrayLike | Sequence[ArrayLike]],
    test_data: tuple[ArrayLike, ArrayLike],
    loss: Callable[..., Any] = optax.softmax_cross_entropy_with_integer_labels,
    init_scale: Numbers = 0.0,
) -> Empirical:
    """Create a task that trains `module` on labelled data, scored by its accuracy on `test_data`.

    Args:
        module: a flax module (linen) from a batch of samples to logits [sample, classes].
        data: users' features [N, D, ...] and labels [N, D], or lists of [D_i, ...] and of [D_i].
        test_data: features [sample, ...] and labels [sample].
        loss: function of logits and labels that returns one number per sample, as optax has them.
            A loss that compares arrays of one shape gets one-hot labels, and is summed over
            classes.
        init_scale: N(0, init_scale²) is added to the module's own initial parameters in every
            trial.
    """
    features, labels = _pair("data", data)
    users = sample_tables.paired(features=features, labels=labels)
    test_features, test_labels = _pair("test_data", test_data)
    shape = inputs.real("features of test_data", test_features).shape[1:]
    module = _frozen(module)
    with model_functions.refusing("module must have fields that can be hashed, such as tuples"):
        hash(module)
    classes = _count_classes(module, shape)
    loss = canonical(loss)
    one_hot = _wants_one_hot(loss, classes)
    return empirical(
        Start(module, shape),
        Loss(module, loss, one_hot, classes),
        [
            _samples(f"data of user {user}", shape, classes, **samples)
            for user, samples in enumerate(users)
        ],
        Accuracy(module),
        _samples("test_data", shape, classes, test_features, test_labels),
        init_scale,
    )


def _pair(name: str, data: Any) -> Any:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InputError(f"{name} must be a pair (features, labels), got {inputs.shown(data)}")
    return data


def _samples(
    name: str, shape: tuple[int, ...], classes: int, features: Any, labels: Any
) -> dict[str, np.ndarray]:
    """Return features [D, *shape] in float32, and labels [D] in 0 … classes − 1 as integers."""
    features = sample_tables.as_float32(f"features of {name}", features)
    labels = inputs.real(f"labels of {name}", labels)
    if labels.ndim != 1 or features.shape != (len(labels), *shape):
        raise InputError(
            f"{name} must be features [D, ...] and labels [D], samples of the shape {list(shape)} "
            f"of the test samples, got shapes {list(features.shape)} and {list(labels.shape)}"
        )
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and inf are no whole numbers
        whole = labels.astype(np.int64)
    bad = labels[(whole != labels) | (whole < 0) | (whole >= classes)]
    if bad.size:
        raise InputError(
            f"labels of {name} must be whole numbers in 0 … {classes - 1}, the module's outputs, "
            f"got {bad[0]}"
        )
    return {"features": features, "labels": whole}


def _frozen(value: Any) -> Any:
    """Freeze the lists and dicts in a module's fields: a compiled program is found by its hash."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return flax.core.FrozenDict({k: _frozen(v) for k, v in value.items()})
    if isinstance(value, nn.Module):
        names = [f.name for f in dataclasses.fields(value) if f.init]
        names = [name for name in names if name not in ("name", "parent")]
        return value.clone(**{name: _frozen(getattr(value, name)) for name in names})
    return value


@functools.cache
def _activations(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Count the numbers that the module computes for one sample."""
    variables = {"params": model_functions.parameters(Start(module, shape))}
    sample = jax.ShapeDtypeStruct((1, *shape), "float32")
    return model_functions.count_computed(module.apply, variables, sample)


def _count_classes(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Check that the module is one that can be averaged; return its number of outputs."""
    if not isinstance(module, nn.Module):
        raise InputError(
            "module must be a flax.linen module such as jo.tasks.CNN(classes=10) (of one of nnx, "
            f"flax.nnx.bridge.to_linen makes one), got {inputs.shown(module)}"
        )
    samples = jax.ShapeDtypeStruct((3, *shape), "float32")
    with model_functions.refusing(f"module must take a batch of samples of shape {list(shape)}"):
        key = jax.eval_shape(lambda: jax.random.key(0))
        variables = jax.eval_shape(module.init, key, samples)
    others = sorted(set(variables) - {"params"})
    if others:
        raise InputError(
            f"module must hold nothing but parameters, which are what is averaged, got {others}: "
            "give one without batch statistics or other state"
        )
    if not jax.tree.leaves(variables):
        raise InputError("module must have parameters, got none")
    try:
        logits = jax.eval_shape(module.apply, variables, samples)
    except flax.errors.InvalidRngError:
        raise InputError(
            "module must compute the same each time, without random numbers: give one without "
            "dropout, or with deterministic=True"
        ) from None
    shape = getattr(logits, "shape", ())
    if len(shape) != 2 or shape[0] != 3 or shape[1] < 2:
        raise InputError(
            "module must return logits [sample, classes ≥ 2], got "
            f"{model_functions.described(logits)} for 3 samples"
        )
    types = {str(leaf.dtype) for leaf in jax.tree.leaves((variables, logits))}
    if types != {"float32"}:
        raise InputError(f"module must have parameters and logits in float32, got {sorted(types)}")
    return shape[1]


def _wants_one_hot(loss: Callable[..., Any], classes: int) -> bool:
    """Try whether `loss` takes labels as numbers [sample], else as one-hot [sample, classes]."""
    samples = classes + 1  # unlike `classes`, so that the two axes cannot be mistaken
    logits = jax.ShapeDtypeStruct((samples, classes), "float32")
    labels = jax.ShapeDtypeStruct((samples,), "int32")
    reasons = []
    for one_hot in (False, True):
        try:
            shape = jax.eval_shape(loss, logits, logits if one_hot else labels).shape
        except Exception as error:
            reasons.append(inputs.first_line(error))
            continue
        if shape == (samples,) or (one_hot and shape == logits.shape):
            return one_hot
        reasons.append(f"it gives shape {list(shape)} for {samples} samples")
    raise InputError(
        "loss must give one number a sample from logits and labels, such as "
        f"optax.softmax_cross_entropy_with_integer_labels: {reasons[0]}"
    )
