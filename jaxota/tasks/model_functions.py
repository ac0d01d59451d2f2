"""What the engine must know of anyone's functions of parameters: sizes, and whether they fit."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array, Float

from jaxota._core import inputs as _validate
from jaxota._core.part import Vector
from jaxota.errors import InputError
from jaxota.history import check_scores
from jaxota.tasks.sample_tables import Columns

_REAL = (jnp.floating, jnp.integer, jnp.bool_)


@functools.lru_cache(maxsize=256)
def layout(start: Callable[..., Any]) -> tuple[int, Callable[[Vector], Any]]:
    """The number d of the parameters, and the way back to them from a vector."""
    leaves, structure = jax.tree.flatten(_parameters(start))
    ends = np.cumsum([leaf.size for leaf in leaves])

    def unravel(model: Vector) -> Any:
        pieces = jnp.split(model, ends[:-1])
        shaped = [p.reshape(leaf.shape) for p, leaf in zip(pieces, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped)

    return int(ends[-1]), unravel


@functools.lru_cache(maxsize=256)
def turned(start: Callable[..., Any]) -> tuple[bool, ...]:
    """Of each parameter, in the order of the vector, whether it is quicker held transposed.

    A dense layer's kernel, by flax's name for it, if it is long and narrow: in the products with
    it, which are small and many, the long axis is then the one that lies together in memory.
    """
    named, _ = jax.tree.flatten_with_path(_parameters(start))
    return tuple(
        jax.tree_util.keystr(path[-1:], simple=True) == "kernel"
        and leaf.ndim == 2
        and leaf.shape[0] >= 8 * leaf.shape[1]
        for path, leaf in named
    )


@functools.lru_cache(maxsize=256)
def activations(start: Callable[..., Any], loss: Callable[..., Any], columns: Columns) -> int:
    """How many numbers the loss of one sample takes, kept for its gradient."""
    return computed(loss, _parameters(start), _shapes(columns, 1), kept=True)


@functools.lru_cache(maxsize=256)
def evaluation(
    start: Callable[..., Any], evaluate: Callable[..., Any], test_columns: Columns | None
) -> int:
    """How many numbers `evaluate` computes of the parameters."""
    test = (_shapes(test_columns),) if test_columns else ()
    return computed(evaluate, _parameters(start), shared=test)


def ravel(parameters: Any) -> Vector:
    """All parameters in a row."""
    leaves = jax.tree.leaves(parameters)
    return jnp.concatenate([jnp.asarray(leaf, "float32").reshape(-1) for leaf in leaves])


def _parameters(start: Callable[..., Any]) -> Any:
    """The shapes of the parameters."""
    return jax.eval_shape(start, jax.eval_shape(lambda: jax.random.key(0)))


def _shapes(columns: Columns, *lead: int) -> Any:
    """The shapes of the arrays [*lead, ...] that stand in these columns."""
    each = zip(columns.shapes, columns.types, strict=True)
    leaves = [jax.ShapeDtypeStruct((*lead, *shape), type_) for shape, type_ in each]
    return jax.tree.unflatten(columns.structure, leaves)


def check(name: str, function: Any) -> None:
    if not callable(function):
        raise InputError(f"{name} must be a function, got {_validate.shown(function)}")
    try:
        hash(function)
    except TypeError as error:
        raise InputError(
            f"{name} must be a function that can be hashed, as it chooses the program: "
            f"{_validate.first_line(error)}"
        ) from None


def check_init(init: Callable[..., Any]) -> None:
    try:
        leaves = jax.tree.leaves(_parameters(init))
    except Exception as error:
        raise InputError(
            f"init must give parameters of a random key: {_validate.first_line(error)}"
        ) from error
    if sum(leaf.size for leaf in leaves) == 0:
        raise InputError("init must give at least one parameter, got none")
    types = {str(leaf.dtype) for leaf in leaves}
    if types != {"float32"}:
        raise InputError(f"init must give parameters in float32, got {sorted(types)}")


def check_loss(init: Callable[..., Any], loss: Callable[..., Any], columns: Columns) -> None:
    for samples in (2, 3):
        try:
            losses = jax.eval_shape(loss, _parameters(init), _shapes(columns, samples))
        except Exception as error:
            raise InputError(
                "loss must take the parameters and a batch of samples like the data: "
                f"{_validate.first_line(error)}"
            ) from error
        shape, type_ = getattr(losses, "shape", None), getattr(losses, "dtype", None)
        if shape != (samples,) or type_ != jnp.float32:
            got = "no array" if shape is None else f"{type_}{list(shape)} for {samples} samples"
            raise InputError(
                "loss must give one number in float32 a sample, without a mean over samples, "
                f"got {got}"
            )


def check_evaluate(
    init: Callable[..., Any], evaluate: Callable[..., Any], test_columns: Columns | None
) -> None:
    test = (_shapes(test_columns),) if test_columns else ()
    words = "the parameters and test_data" if test else "the parameters"
    try:
        scores = jax.eval_shape(evaluate, _parameters(init), *test)
    except Exception as error:
        raise InputError(
            f"evaluate must give a dict of numbers of {words}: {_validate.first_line(error)}"
        ) from error
    if not isinstance(scores, dict):
        raise InputError(f"evaluate must give a dict of numbers by their names, got {type(scores)}")
    for name, value in scores.items():
        shape, type_ = getattr(value, "shape", None), getattr(value, "dtype", object)
        if shape != () or not any(jnp.issubdtype(type_, kind) for kind in _REAL):
            got = "no number" if shape is None else f"{type_}{list(shape)}"
            raise InputError(f"evaluate must give one number as {name!r}, got {got}")
    check_scores(scores, by="evaluate")
    if "loss" in scores:
        raise InputError("evaluate must not give 'loss', which is that of the users' own samples")


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
