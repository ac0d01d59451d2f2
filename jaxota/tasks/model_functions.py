"""Functions of parameters as users write them: checked, measured, and evaluated in blocks.

A model is one vector [d] outside the users' steps; `unravel` makes it the pytree of parameters that
these functions take. What depends on functions alone is cached: every trace asks for it again.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array, Float

from jaxota._core import inputs
from jaxota._core.part import Vector
from jaxota._core.stage_checks import check_scores
from jaxota.errors import InputError
from jaxota.tasks.sample_tables import Columns

BLOCK = 2**21  # numbers inside a model that one evaluation may hold at once


@functools.lru_cache(maxsize=256)
def parameters(start: Callable[..., Any]) -> Any:
    """Return the shapes of the parameters that `start` draws."""
    return jax.eval_shape(start, jax.eval_shape(lambda: jax.random.key(0)))


def unravel(start: Callable[..., Any], model: Vector) -> Any:
    """Return the vector [d] as parameters."""
    leaves, structure = jax.tree.flatten(parameters(start))
    ends = np.cumsum([leaf.size for leaf in leaves])
    pieces = zip(jnp.split(model, ends[:-1]), leaves, strict=True)
    return jax.tree.unflatten(structure, [piece.reshape(leaf.shape) for piece, leaf in pieces])


def ravel(params: Any) -> Vector:
    """Return all parameters as one vector."""
    leaves = jax.tree.leaves(params)
    return jnp.concatenate([jnp.asarray(leaf, "float32").reshape(-1) for leaf in leaves])


def transpose(start: Callable[..., Any], params: Any) -> Any:
    """Transpose long and narrow kernels of dense layers; done twice, it changes nothing.

    Steps are quicker so: the products with such a kernel (flax names it so) are small and many, and
    its long axis is then the contiguous one.
    """

    def turned(path: Any, own: jax.ShapeDtypeStruct, leaf: Array) -> Array:
        kernel = jax.tree_util.keystr(path[-1:], simple=True) == "kernel" and own.ndim == 2
        return leaf.T if kernel and own.shape[0] >= 8 * own.shape[1] else leaf

    return jax.tree.map_with_path(turned, parameters(start), params)


@functools.lru_cache(maxsize=256)
def activations(start: Callable[..., Any], loss: Callable[..., Any], columns: Columns) -> int:
    """Count the numbers that one sample's loss computes and keeps for its gradient."""
    return count_computed(loss, parameters(start), columns.like(1), kept=True)


@functools.lru_cache(maxsize=256)
def evaluation_size(
    start: Callable[..., Any], evaluate: Callable[..., Any], test_columns: Columns | None
) -> int:
    """Count the numbers that `evaluate` computes from the parameters."""
    test = (test_columns.like(),) if test_columns else ()
    return count_computed(evaluate, parameters(start), shared=test)


def count_computed(
    function: Callable[..., Any], *arguments: Any, shared: Sequence[Any] = (), kept: bool = False
) -> int:
    """Count the numbers that `function(*arguments, *shared)` computes, given arrays or shapes.

    All trials have the `shared` arguments in common: what follows from them alone is computed once,
    and not counted. If `kept`, every iteration of a loop counts, as a gradient keeps them all.
    """
    program = jax.make_jaxpr(function)(*arguments, *shared).jaxpr
    return _count(program, program.invars[: len(jax.tree.leaves(arguments))], kept)


def _count(jaxpr: Any, variables: Iterable[Any], kept: bool) -> int:
    numbers, varying = 0, set(variables)
    for eqn in jaxpr.eqns:
        if varying.isdisjoint(var for var in eqn.invars if not isinstance(var, Literal)):
            continue
        varying |= set(eqn.outvars)
        if eqn.primitive.name in ("reshape", "squeeze"):  # the same numbers again
            continue
        turns = eqn.params.get("length", 1) if kept and eqn.primitive.name == "scan" else 1
        # Of branches by platform the last, the default: the others compute the same in other ways.
        first = -1 if eqn.params.get("branches_platforms") else 0
        inside = sum(_count(i, i.invars, kept) for i in [*_inner(eqn.params)][first:])
        numbers += max(turns * inside, sum(getattr(var.aval, "size", 0) for var in eqn.outvars))
    return numbers


def _inner(parameters: dict[str, Any]) -> Iterator[Any]:
    """Yield the programs inside one equation: bodies of loops, branches, called functions."""
    for value in parameters.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            item = getattr(item, "jaxpr", item)
            if hasattr(item, "eqns"):
                yield item


def block_size(numbers: int) -> int:
    """Return how many samples are evaluated at once, if each computes this many numbers."""
    return max(1, BLOCK // max(1, numbers))


def total(
    function: Callable[..., Any], size: int, arrays: Any, weights: Float[Array, "sample"]
) -> Any:
    """Sum `function(arrays, weights)` over blocks of at most `size` samples.

    `arrays` is a pytree of [sample, ...]. The last block is padded with its last sample at weight
    0: a sample of zeros might be 0/0 to the function.
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


@contextlib.contextmanager
def refusing(rule: str) -> Iterator[None]:
    """Turn an error of a user's own function into one line: the broken rule and the reason."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{rule}: {inputs.first_line(error)}") from error


def check_functions(**functions: Any) -> None:
    """Refuse what is no function, or cannot be hashed to find its compiled program."""
    for name, function in functions.items():
        if not callable(function):
            raise InputError(f"{name} must be a function, got {inputs.shown(function)}")
        with refusing(f"{name} must be a function that can be hashed, as it chooses the program"):
            hash(function)


def check_init(init: Callable[..., Any]) -> None:
    """Refuse an `init` that does not give float32 parameters."""
    with refusing("init must give parameters of a random key"):
        leaves = jax.tree.leaves(parameters(init))
    if sum(leaf.size for leaf in leaves) == 0:
        raise InputError("init must give at least one parameter, got none")
    types = {str(leaf.dtype) for leaf in leaves}
    if types != {"float32"}:
        raise InputError(f"init must give parameters in float32, got {sorted(types)}")


def check_loss(init: Callable[..., Any], loss: Callable[..., Any], columns: Columns) -> None:
    """Refuse a `loss` that does not give one float32 number per sample."""
    for samples in (2, 3):  # two sizes: one might be that of another axis
        with refusing("loss must take the parameters and a batch of samples like the data"):
            losses = jax.eval_shape(loss, parameters(init), columns.like(samples))
        if described(losses) != f"float32[{samples}]":
            raise InputError(
                "loss must give one number in float32 a sample, without a mean over samples, "
                f"got {described(losses)} for {samples} samples"
            )


def described(value: Any) -> str:
    """Return the type and shape of an array in words."""
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "shape") else "no array"


def check_evaluate(
    init: Callable[..., Any], evaluate: Callable[..., Any], test_columns: Columns | None
) -> None:
    """Refuse an `evaluate` that does not give scores by their names."""
    test = (test_columns.like(),) if test_columns else ()
    arguments = "the parameters and test_data" if test else "the parameters"
    with refusing(f"evaluate must give a dict of numbers of {arguments}"):
        scores = jax.eval_shape(evaluate, parameters(init), *test)
    if not isinstance(scores, dict):
        raise InputError(f"evaluate must give a dict of numbers by their names, got {type(scores)}")
    for name, value in scores.items():
        if getattr(value, "shape", None) != () or not inputs.is_real(value, flags=True):
            raise InputError(f"evaluate must give one number as {name!r}, got {described(value)}")
    check_scores(scores, by="evaluate")
    if "loss" in scores:
        raise InputError("evaluate must not give 'loss', which is that of the users' own samples")
