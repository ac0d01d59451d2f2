"""Local epochs: users pass over their own samples in random order, each a number of times."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import inputs, prng, stage_checks
from jaxota.errors import InputError
from jaxota.tasks.problem import Layout, Problem

T = TypeVar("T")


class Steps:
    """Annotation of K, which `epochs` may set, for type checkers; see `Traced`."""

    def __get__(self, part: object, kind: Any = None, /) -> int:
        raise NotImplementedError

    def __set__(self, part: Any, value: int | None, /) -> None:
        raise NotImplementedError


def in_steps(local: T, path: str, task: Any) -> T:
    """Return a local rule with `epochs` and the most `steps` that a user of the task takes in them.

    With batch=None an epoch is one step along the full gradient, and nothing else is left of it.
    """
    rule: Any = local
    if rule.epochs is None:
        if rule.steps is None:
            raise InputError(f"{path}.steps must be given, or epochs, got None")
        return rule
    epochs = inputs.whole(f"{path}.epochs", rule.epochs, 1)
    if rule.batch is None:
        most = epochs
    else:
        task = stage_checks.cast_stage(task, "task")
        counts = getattr(task, "counts", None)
        counts = counts if counts is not None else task.problem(0).counts
        if inputs.is_traced(counts):
            raise InputError(f"{path}.epochs must be steps in a program of your own: give steps")
        batch = inputs.whole(f"{path}.batch", rule.batch, 1)
        most = epochs * int(-(-np.max(counts) // batch))
    if rule.steps not in (None, most):
        raise InputError(f"{path}.epochs must be None where steps is given: choose one of them")
    return rule.replace(steps=most, epochs=None if rule.batch is None else epochs)


def user_steps(local: Any, problem: Problem) -> Int[Array, "user"] | int:
    """Return K_i, the steps that each user takes, or K where all take the same."""
    if local.epochs is None:
        return local.steps
    return local.epochs * _batches(local, problem.counts)


def _batches(local: Any, count: Any) -> Any:
    """Return the batches of an epoch; a user with less than a batch takes what it has."""
    if local.last == "dropped":
        return jnp.maximum(count // local.batch, 1)
    return -(-count // local.batch)


def visits(
    local: Any, problem: Problem, user: Any, key: PRNGKeyArray
) -> tuple[Int[Array, "step batch"], Int[Array, "step"]]:
    """Return the samples of one user's steps in a round, and how many of each batch count.

    The first of a batch fills it up where it is short. Steps past the user's last one count 0.
    """
    size, count = local.batch, problem.counts[user]
    longest = local.steps // local.epochs * size  # no user has more samples
    streams = user * local.epochs + jnp.arange(local.epochs)
    order = prng.permutations(prng.words(key), streams, longest, count)  # [epoch, sample]
    steps, batches = jnp.arange(local.steps), _batches(local, count)
    epoch, first = steps // batches, steps % batches * size
    place = first[:, None] + jnp.arange(size)[None]
    place = jnp.where(place < count, place, first[:, None])
    samples = order[jnp.minimum(epoch, local.epochs - 1)[:, None], place]
    return samples, jnp.where(epoch < local.epochs, jnp.clip(count - first, 0, size), 0)


def short_gradient(
    layout: Layout, params: Any, user: Any, samples: Int[Array, "batch"], count: Any, gradient: Any
) -> Any:
    """Return the mean gradient of the first `count` samples from that of the filled batch.

    The batch is filled up with its first sample, whose gradient is taken off again.
    """
    filled, first = samples.size - count, layout.gradient(params, user, samples[:1])
    return jax.tree.map(
        lambda g, f: jnp.where(filled == 0, g, (samples.size * g - filled * f) / count),
        gradient,
        first,
    )
