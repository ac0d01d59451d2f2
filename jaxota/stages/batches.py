"""Samples of local steps: minibatches with replacement, epochs without, and gradients on them."""

from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import inputs, prng, stage_checks
from jaxota._core.part import Vector
from jaxota.errors import InputError
from jaxota.tasks.problem import Layout, Problem, number_of

T = TypeVar("T")
Params: TypeAlias = Any  # a model in the layout of its problem, a pytree of arrays


class FlatLayout:
    """The layout of a problem that has none of its own: the vector itself."""

    def __init__(self, problem: Problem) -> None:
        self.gradient, self.full_gradient = problem.gradient, problem.full_gradient

    def unravel(self, model: Vector) -> Vector:
        return model

    def ravel(self, params: Vector) -> Vector:
        return params


def layout_of(problem: Problem) -> Layout:
    """Return the problem's own layout, or the flat one."""
    return getattr(problem, "layout", FlatLayout(problem))


def minibatch_gradient(
    problem: Problem, model: Vector, user: Any, batch: int | None, key: PRNGKeyArray, draw: Any
) -> Vector:
    """Return g_i(model) [d] of one user, over samples drawn with replacement or over all it has.

    Args:
        model: [d] where the gradient is taken.
        draw: the number of this draw under `key`; every user and step needs its own.

    The other arguments are those of `minibatches`.
    """
    samples = minibatches(problem, user, batch, key, jnp.asarray(draw)[None])
    return gradient_on(
        FlatLayout(problem), model, user, samples[0] if samples is not None else None
    )


def minibatches(
    problem: Problem, user: Any, batch: int | None, key: PRNGKeyArray, draws: Int[Array, "draw"]
) -> Int[Array, "draw batch"] | None:
    """Draw the sample indices [draw, batch] of several draws of one user, for `problem.gradient`.

    Args:
        problem: the problem of a trial.
        user: the index i of the user.
        batch: number of samples; for None, the whole local set, nothing is drawn and None returned.
        key: the random key of the round.
        draws: the numbers of the draws under `key`; every user and step needs its own.

    Draw the samples of a round before its steps and scan over them: drawing inside the loop costs
    several times as much.
    """
    if batch is None:
        return None
    # Hashed from counters, so that any draw can be made alone.
    return prng.minibatch_indices(prng.words(key), draws, batch, problem.counts[user])


def gradient_on(
    layout: Layout, params: Params, user: Any, samples: Int[Array, "batch"] | None
) -> Params:
    """Return a user's gradient on `samples`, on all samples for None, checked to be like params."""
    if samples is not None:
        method, gradient = "gradient", layout.gradient(params, user, samples)
    else:
        method, gradient = "full_gradient", layout.full_gradient(params, user)
    # While tracing: a gradient of a wrong shape could broadcast silently.
    return stage_checks.gradient(method, gradient, params)


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
    streams = number_of(problem, user) * local.epochs + jnp.arange(local.epochs)
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
