"""What the engine must know of a flax module and of a loss."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.core
import flax.errors
import flax.linen as nn
import jax

from jaxota._core import inputs as _validate
from jaxota.errors import InputError
from jaxota.tasks import _blocks


@functools.cache
def activations(module: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers the module computes of one sample."""
    sample = jax.ShapeDtypeStruct((1, *shape), "float32")
    return _blocks.computed(module.apply, _variables(module, shape), sample)


def hashable(module: nn.Module) -> nn.Module:
    """`module` with tuples for the lists in its fields, so that it can choose a program."""
    module = _frozen(module)
    try:
        hash(module)
    except TypeError as error:
        raise InputError(
            "module must have fields that can be hashed, such as tuples: "
            f"{_validate.first_line(error)}"
        ) from None
    return module


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return flax.core.FrozenDict({k: _frozen(v) for k, v in value.items()})
    if isinstance(value, nn.Module):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        mine = {k: getattr(value, k) for k in fields if k not in ("name", "parent")}
        return value.clone(**{k: _frozen(v) for k, v in mine.items()})
    return value


def _variables(module: nn.Module, shape: tuple[int, ...]) -> Any:
    """The shapes of all that the module's `init` gives for samples of this shape."""
    sample = jax.ShapeDtypeStruct((3, *shape), "float32")
    return jax.eval_shape(module.init, jax.eval_shape(lambda: jax.random.key(0)), sample)


def wants_one_hot(loss: Callable[..., Any], classes: int) -> bool:
    """Whether `loss` takes labels as rows of 0 and 1 [sample, classes], not as numbers [sample]."""
    count = classes + 1
    logits = jax.ShapeDtypeStruct((count, classes), "float32")
    reasons = []
    for one_hot in (False, True):
        shape, type_ = (count, *([classes] * one_hot)), "float32" if one_hot else "int32"
        try:
            shape = jax.eval_shape(loss, logits, jax.ShapeDtypeStruct(shape, type_)).shape
        except Exception as error:
            reasons.append(_validate.first_line(error))
            continue
        if shape == (count,) or (one_hot and shape == (count, classes)):
            return one_hot
        reasons.append(f"it gives shape {list(shape)} for {count} samples")
    raise InputError(
        "loss must give one number a sample from logits and labels, such as "
        f"optax.softmax_cross_entropy_with_integer_labels: {reasons[0]}"
    )


def classes(module: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of the module's outputs, after a look at what kind of module it is."""
    if not isinstance(module, nn.Module):
        raise InputError(
            "module must be a flax.linen module such as jo.tasks.CNN(classes=10) (of one of nnx, "
            f"flax.nnx.bridge.to_linen makes one), got {_validate.shown(module)}"
        )
    samples = jax.ShapeDtypeStruct((3, *shape), "float32")
    try:
        variables = _variables(module, shape)
    except Exception as error:
        raise InputError(
            f"module must take a batch of samples of shape {list(shape)}: "
            f"{_validate.first_line(error)}"
        ) from None
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
    found = getattr(logits, "shape", None)
    if found is None or len(found) != 2 or found[0] != 3 or found[1] < 2:
        got = "no array" if found is None else f"shape {list(found)} for 3 samples"
        raise InputError(f"module must return logits [sample, classes ≥ 2], got {got}")
    types = {str(leaf.dtype) for leaf in jax.tree.leaves((variables, logits))}
    if types != {"float32"}:
        raise InputError(f"module must have parameters and logits in float32, got {sorted(types)}")
    return found[1]
