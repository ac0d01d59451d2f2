"""How much a program computes at once, and sums over many samples in blocks that bound it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, Float

BLOCK = 2**21  # numbers inside a model that one evaluation may hold at once


def at_once(each: int) -> int:
    """Samples that are evaluated at once, if each takes so many numbers."""
    return max(1, BLOCK // max(1, each))


def total(
    function: Callable[..., Any], size: int, arrays: Any, weights: Float[Array, "sample"]
) -> Any:
    """The sum over blocks of `size` samples of what `function(arrays, weights)` gives for each.

    `arrays` is a pytree of [sample, ...]. The last block is filled with its last sample, at a
    weight of 0.
    """
    count = len(weights)
    if count <= size:
        return function(arrays, weights)
    blocks = -(-count // size)
    size = -(-count // blocks)

    def split(array: Array, mode: str) -> Array:
        padding = [(0, blocks * size - count)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, padding, mode).reshape(blocks, size, *array.shape[1:])

    result, _ = jax.lax.scan(
        lambda sums, block: (jax.tree.map(jnp.add, sums, function(*block)), None),
        jax.tree.map(jnp.zeros_like, jax.eval_shape(function, arrays, weights)),
        (jax.tree.map(lambda x: split(x, "edge"), arrays), split(weights, "constant")),
    )
    return result


def computed(
    function: Callable[..., Any], *arguments: Any, shared: Sequence[Any] = (), kept: bool = False
) -> int:
    """How many numbers `function` computes of arguments of these shapes.

    What follows from the last ones, the `shared`, alone is not counted: all trials have it in
    common. What a loop computes is counted once, or, if it is `kept` for a gradient, every turn.
    """
    program = jax.make_jaxpr(function)(*arguments, *shared).jaxpr
    return _computed(program, program.invars[: len(jax.tree.leaves(arguments))], kept)


def _computed(jaxpr: Any, variables: Iterable[Any], kept: bool) -> int:
    numbers, varying = 0, set(variables)
    for eqn in jaxpr.eqns:
        if varying.isdisjoint(var for var in eqn.invars if not isinstance(var, Literal)):
            continue
        varying |= set(eqn.outvars)
        if eqn.primitive.name in ("reshape", "squeeze"):  # the same numbers again
            continue
        turns = eqn.params.get("length", 1) if kept and eqn.primitive.name == "scan" else 1
        inside = sum(_computed(inner, inner.invars, kept) for inner in _inner(eqn.params))
        numbers += max(turns * inside, sum(getattr(var.aval, "size", 0) for var in eqn.outvars))
    return numbers


def _inner(parameters: dict[str, Any]) -> Iterator[Any]:
    """The programs that a step of a program consists of."""
    for value in parameters.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                yield each
