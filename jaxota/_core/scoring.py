"""Scores of a round: those of the task, of every user, and a user's own metrics."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxota._core import inputs, stage_checks
from jaxota._core.arguments import Kept
from jaxota._core.part import PerUser, Scalar, Vector, Vectors
from jaxota.errors import InputError
from jaxota.tasks.problem import Problem

Scores: TypeAlias = tuple[dict[str, Scalar], dict[str, PerUser]]  # of the model, and of users


def scorer(problem: Problem, kept: Kept) -> Callable[[Vector, Vectors], Scores]:
    """Return a function of the model [d] and the users' models [user, d] that scores a round."""
    checked = stage_checks.checked_problem(problem)

    def scores(model: Vector, models: Vectors) -> Scores:
        found = dict(checked.score(model))
        for name, metric in kept.metrics:
            if name in found:
                raise InputError(f"metrics must not name {name!r}, which is a score of the task")
            found[name] = _number(name, metric(model, models, problem))
        by_user = checked.user_scores(model) if kept.user_scores else {}
        if kept.user_scores and not by_user:
            raise InputError("user_scores must be False for this task, which has none of users")
        return found, by_user

    return scores


def _number(name: str, value: Any) -> Scalar:
    if not inputs.is_real(value, flags=True) or np.shape(value) != ():
        got = inputs.shown(value)
        raise InputError(f"metrics[{name!r}] must return one number, got {got}")
    return jnp.asarray(value, "float32")
