"""Inside somebody's own program numbers are not known yet: of bad ones the results are NaN."""

import contextlib
import contextvars
import functools
import operator
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

T = TypeVar("T")
_noted: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar("noted", default=None)


@contextlib.contextmanager
def noted() -> Iterator[list[Any]]:
    """What is checked in this block, to be asked by `or_nan`."""
    found: list[Any] = []
    before = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(before)


def check(good: Bool[Array, "*shape"]) -> None:
    """Note whether all of what is traced is `good`."""
    found = _noted.get()
    if found is not None:
        found.append(good.all())


def or_nan(values: T, found: list[Any]) -> T:
    """`values`, all of them NaN if something that was found is not good."""
    if not found:
        return values
    good = functools.reduce(operator.and_, found)
    return jax.tree.map(lambda x: jnp.where(good, x, jnp.nan), values)
