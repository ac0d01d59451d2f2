"""Users' weights in the objective: F(θ) = Σ_i w_i f_i(θ) / N, with weights of mean 1."""

import dataclasses
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jaxota._core import inputs
from jaxota._core.part import Numbers, PerUser
from jaxota.errors import InputError

T = TypeVar("T")


def weighted(task: T, weights: Numbers | str = "samples") -> T:
    """Weight the users of a task: the objective is F = Σ_i w_i f_i / Σ_i w_i.

    Users send w_i·Δ_i, so that the superposed average is the weighted one; powers, priors, errors
    and scores follow. Where only some users are heard, the average over them is unbiased: scheme II
    of Li et al., 2020, "On the convergence of FedAvg on non-IID data".

    Args:
        task: one of `jo.tasks`.
        weights: "samples" for the number of samples of each user, or [user] numbers ≥ 0, which are
            divided by their mean; [setting, user] to sweep.
    """
    made: Any = task.build() if hasattr(task, "build") else task
    is_part = dataclasses.is_dataclass(made) and not isinstance(made, type)
    if not is_part or not any(f.name == "weights" for f in dataclasses.fields(made)):
        raise InputError(f"task must have a field `weights`, got {inputs.shown(made)}")
    if isinstance(weights, str):
        inputs.chosen("weights", weights, ("samples",))
        held = made.counts if hasattr(made, "counts") else made.problem(0).counts
        return made.replace(weights=np.asarray(held, "float32"))
    return made.replace(weights=weights)


def check_weights(path: str, task: Any) -> None:
    """Raise InputError unless the weights of a task are one for each user, and not all 0."""
    if task.weights is None:
        return
    shape, users = task.weights.shape, task.users
    if shape[-1] != users:
        raise InputError(f"{path}.weights must be one for each of {users} users, got {shape[-1]}")
    positive = task.weights.sum(-1) > 0
    if inputs.is_traced(positive):
        inputs.check_traced(positive)
    elif not positive.all():
        raise InputError(f"{path}.weights must have a sum > 0, got 0")


def times_weights(weights: PerUser | None, values: Any) -> Any:
    """Return w_i·value_i of values [user, …], w_i over its mean; the values where one is None."""
    return times(relative(weights), values)


def relative(weights: PerUser | None) -> PerUser | None:
    """Return w_i over its mean; None for None."""
    return None if weights is None else weights / jnp.mean(weights)


def times(factors: PerUser | None, values: Any) -> Any:
    """Return factor_i·value_i of values [user, …]; the values where one is None."""
    if factors is None or values is None:
        return values
    return factors.reshape(-1, *[1] * (values.ndim - 1)) * values
