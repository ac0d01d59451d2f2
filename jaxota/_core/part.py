"""The nouns: parts of a simulation are frozen pytree values, declared field by field.

*If it multiplies, it is traced; if it counts or chooses, it is static.* Each field says which,
and what values it may hold, so that checks, casts and sweeps need no second list of fields.
"""

import dataclasses
import functools
import os
import types
from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar, dataclass_transform

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

T = TypeVar("T")
Memory: TypeAlias = Any  # any pytree of arrays, of the same shapes in every round; `None` for none
Numbers: TypeAlias = ArrayLike | Sequence[float]  # given by users: numbers, lists, NumPy, jax
Scalar: TypeAlias = Float[Array, ""]
Vector: TypeAlias = Float[Array, "d"]  # a model, or what has its shape
PerUser: TypeAlias = Float[Array, "user"]
Vectors: TypeAlias = Float[Array, "user d"]  # one vector for each user
Path: TypeAlias = str | os.PathLike[str]


class Traced(Generic[T]):
    """Annotates a traced field: it takes `Numbers`, and in the engine, after entry, it is a T.

    For type checkers alone: they read of a descriptor what a part is made with and what it holds.
    """

    def __get__(self, part: object, kind: Any = None, /) -> T:
        raise NotImplementedError

    def __set__(self, part: Any, value: Numbers | T, /) -> None:
        raise NotImplementedError


def static(
    default: Any = dataclasses.MISSING,
    *,
    at_least: int | None = None,
    one_of: tuple[Any, ...] | None = None,
) -> Any:
    """A field that counts or chooses: a new value is a new program.

    Args:
        default: its value where none is given; checkers know it if it is named, `default=...`.
        at_least: the least whole number allowed.
        one_of: all values allowed.
    """
    allowed = {"at_least": at_least, "one_of": one_of}
    return dataclasses.field(default=default, metadata={"static": True, **allowed})


def traced(
    default: Any = dataclasses.MISSING,
    *,
    rank: int = 0,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    infinite: bool = False,
    dtype: str = "float32",
) -> Any:
    """A field that multiplies: an array of `rank` axes, or one more to sweep over settings.

    Args:
        default: its value where none is given, `None` if it may be absent; checkers know it if it
            is named, `default=...`.
        rank: how many axes it has.
        above, at_least, below: bounds of its values.
        infinite: whether +inf is allowed.
        dtype: "float32", "int32", or "key" for a random key.
    """
    allowed = {"above": above, "at_least": at_least, "below": below, "infinite": infinite}
    return dataclasses.field(default=default, metadata={"rank": rank, "dtype": dtype, **allowed})


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(traced, static, dataclasses.field)
)
def part(cls: type[T]) -> type[T]:
    """A frozen dataclass that is a pytree: traced fields are leaves, static ones are structure.

    Args:
        cls: a class with fields declared by `traced()` and `static()`, or that are parts
            themselves.

    Its `replace(**changes)` is `dataclasses.replace`; a class that says `replace =
    dataclasses.replace` lets type checkers know, too.
    """
    # Not by `jax.tree_util.register_dataclass`: up to jax 0.10 at least, the structures it makes
    # compare equal whatever their classes, and `jit` then runs one part's program for another.
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    made.replace = dataclasses.replace
    fields = dataclasses.fields(made)
    structure = [field.name for field in fields if field.metadata.get("static")]
    leaves = [field.name for field in fields if field.name not in structure]

    def flatten(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(value, k) for k in leaves], (made, *(getattr(value, k) for k in structure))

    def flatten_with_keys(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, aux = flatten(value)
        return list(zip(map(jax.tree_util.GetAttrKey, leaves), children, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        value = object.__new__(made)
        value.__dict__.update(zip(leaves, children, strict=True))
        value.__dict__.update(zip(structure, aux[1:], strict=True))
        return value

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


def canonical(value: T) -> T:
    """Of the last values seen the first that was built as `value` was.

    An optax transformation made twice is two closures, which compare by identity and would be
    two programs; of those that one library function made from equal arguments, one is used.
    """
    seen = _Seen(_fingerprint(value, ()), value)
    try:
        return _first(seen)
    except TypeError:  # something unhashable inside: identity decides
        return value


class _Seen:
    def __init__(self, print_: Any, value: Any) -> None:
        self.print_, self.value = print_, value

    def __hash__(self) -> int:
        return hash(self.print_)

    def __eq__(self, other: Any) -> bool:
        return self.print_ == other.print_


@functools.lru_cache(maxsize=256)  # forgotten ones are compiled again, and do no harm
def _first(seen: _Seen) -> Any:
    return seen.value


_LIBRARIES = ("optax", "jax", "functools")


def _fingerprint(value: Any, inside: tuple[int, ...]) -> tuple[Any, ...]:
    """What a value was built from; functions of other modules may read globals: themselves.

    `inside` are the identities of the values that this one was met in: a closure may hold itself.
    """
    if id(value) in inside:
        return ("again", inside.index(id(value)))
    met = functools.partial(_fingerprint, inside=(*inside, id(value)))
    if isinstance(value, tuple):
        return (type(value), *map(met, value))
    if isinstance(value, dict):
        return (dict, *((k, met(v)) for k, v in value.items()))
    if isinstance(value, functools.partial):
        return (functools.partial, *map(met, (value.func, value.args, value.keywords)))
    if isinstance(value, types.FunctionType) and _of_a_library(value):
        cells = tuple(met(_held(cell)) for cell in value.__closure__ or ())
        return (value.__code__, cells, met((value.__defaults__ or (), value.__kwdefaults__ or {})))
    return (type(value), value)


def _of_a_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] in _LIBRARIES


def _held(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return ()
