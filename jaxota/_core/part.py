"""Parts: frozen dataclasses that are JAX pytrees, each field declared as traced or static.

*If it multiplies, it is traced; if it counts or chooses, it is static.* The declaration also holds
the values that a field allows, so that checks, casts and sweeps need no second list of fields.
"""

import dataclasses
import difflib
import functools
import hashlib
import inspect
import itertools
import json
import os
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
# Any pytree of arrays, of the same shapes in every round; None for none.
Memory: TypeAlias = Annotated[Any, "memory"]
Numbers: TypeAlias = ArrayLike | Sequence[float]  # as users write them: numbers, lists, arrays
Seed: TypeAlias = PRNGKeyArray | int  # a random key, or n for jax.random.key(n)
Scalar: TypeAlias = Float[Array, ""]
Vector: TypeAlias = Float[Array, "d"]  # a model, or a vector of its shape
PerUser: TypeAlias = Float[Array, "user"]
Vectors: TypeAlias = Float[Array, "user d"]  # one vector for each user
Path: TypeAlias = str | os.PathLike[str]

TINY = float(np.finfo(np.float32).tiny)  # devices flush smaller numbers to 0
MANY = 32  # numbers; longer arrays are described by their shape and a digest


class Traced(Generic[T]):
    """Annotation of a traced field: users give `Numbers`, the engine reads a T.

    For type checkers alone, which take both types from the signatures of a descriptor.
    """

    def __get__(self, part: object, kind: Any = None, /) -> T:
        raise NotImplementedError

    def __set__(self, part: Any, value: Numbers | T, /) -> None:
        raise NotImplementedError


class Bounds(NamedTuple):
    """Range of the numbers that a traced field allows; NaN is never allowed."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    infinite: bool = False
    at_most: float | None = None

    def __str__(self) -> str:
        limits = {">": self.above, "≥": self.at_least, "<": self.below, "≤": self.at_most}
        words = [] if self.infinite else ["finite"]
        words += [f"{sign} {limit:g}" for sign, limit in limits.items() if limit is not None]
        return " and ".join(words) or "a number"

    def hold(self, values: Any) -> Any:
        """Return an array of flags: which `values`, a NumPy array or a traced one, are allowed."""
        xp: Any = jnp if isinstance(values, jax.Array) else np
        good = ~xp.isnan(values) if self.infinite else xp.isfinite(values)
        if self.above is not None:
            good &= values >= TINY if self.above == 0.0 else values > self.above
        if self.at_least is not None:
            good &= values >= self.at_least
        if self.below is not None:
            good &= values < self.below
        if self.at_most is not None:
            good &= values <= self.at_most
        return good


def static(
    default: Any = dataclasses.MISSING,
    *,
    at_least: int | None = None,
    one_of: tuple[Any, ...] | None = None,
) -> Any:
    """Declare a field that counts or chooses: each new value compiles a new program.

    Args:
        default: the field's default value; type checkers see it if it is named, `default=...`.
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
    at_most: float | None = None,
    infinite: bool = False,
    dtype: str = "float32",
    by_round: bool = False,
) -> Any:
    """Declare a field that multiplies: an array of `rank` axes, or one more to sweep over settings.

    Args:
        default: the field's default value, `None` if it may be absent; type checkers see it if it
            is named, `default=...`.
        rank: number of axes.
        above, at_least, below, at_most: bounds of the values.
        infinite: whether +inf is allowed.
        dtype: "float32", "int32", or "key" for a random key.
        by_round: whether a schedule may take the place of the number: the part then sees the
            number of the round.
    """
    bounds = Bounds(above, at_least, below, infinite, at_most)
    metadata = {"rank": rank, "dtype": dtype, "bounds": bounds, "by_round": by_round}
    return dataclasses.field(default=default, metadata=metadata)


def optional(member: T) -> T:
    """Mark a protocol's method that parts may leave out: its own body then takes its place."""
    member.optional = True  # type: ignore[attr-defined]
    return member


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(traced, static, dataclasses.field)
)
def part(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree: traced fields are leaves, static ones structure.

    Args:
        cls: a class with fields declared by `traced()` and `static()`, or that are parts
            themselves.

    Its `replace(**changes)` is `dataclasses.replace`; a class that says `replace =
    dataclasses.replace` lets type checkers know, too.
    """
    # Not by `jax.tree_util.register_dataclass`: up to jax 0.10 at least, the structures it makes
    # compare equal whatever their classes, and `jit` then runs one part's program for another
    # (tests/test_jax.py shows it). Our structures hold the class itself.
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    made.__init__ = suggest_keywords(made.__init__, made.__name__)
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
        # Not by __init__: JAX also unflattens placeholders, which are no values of the fields.
        value = object.__new__(made)
        value.__dict__.update(zip(leaves, children, strict=True))
        value.__dict__.update(zip(structure, aux[1:], strict=True))
        return value

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


# Keywords of other libraries and papers → ours; names that merely look alike need no entry.
_SYNONYMS = {
    **dict.fromkeys(("lr", "learning_rate", "eta", "alpha"), "step_size"),
    **dict.fromkeys(("iterations", "k"), "steps"),
    **dict.fromkeys(("local_epochs", "num_epochs"), "epochs"),
    **dict.fromkeys(("max_norm", "clip_norm", "max_grad_norm"), "clip"),
    **dict.fromkeys(("clients", "num_clients", "n_clients", "workers", "devices"), "users"),
    **dict.fromkeys(("optimizer", "optimiser"), "transform"),
    **dict.fromkeys(("runs", "repeats", "monte_carlo"), "trials"),
    **dict.fromkeys(("rng", "seed", "prng_key"), "key"),
    **dict.fromkeys(("dimension", "num_features", "d"), "dim"),
    **dict.fromkeys(("init", "x0", "params"), "initial"),
    **dict.fromkeys(("estimator", "decoder"), "estimate"),
    **dict.fromkeys(("eval_every", "log_every"), "every"),
    "snr": "snr_db",
}


def suggest_keywords(function: F, name: str | None = None) -> F:
    """Decorate `function` so that an unknown keyword raises a TypeError that names the right one.

    Args:
        function: a function, or the `__init__` of a class.
        name: the name in the message, the function's own by default.
    """
    parameters = inspect.signature(function).parameters
    known = [p for p, kind in parameters.items() if p != "self" and kind.kind != kind.VAR_KEYWORD]

    @functools.wraps(function)  # `inspect.signature` reads the original through it
    def checked(*args: Any, **keywords: Any) -> Any:
        for keyword in keywords:
            if keyword not in known:
                raise TypeError(f"{name or function.__name__}() {_unknown(keyword, known)}")
        return function(*args, **keywords)

    return checked  # type: ignore[return-value]


def _unknown(keyword: str, known: list[str]) -> str:
    word = keyword.lower()
    alike = [_SYNONYMS[word]] if _SYNONYMS.get(word) in known else []
    alike += difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {alike[0]}?" if alike else f"it takes {', '.join(known) or 'none'}"
    return f"has no argument {keyword}: {hint}"


def canonical(value: T) -> T:
    """Return the first of the recent values that was built as `value` was.

    An optax transformation made twice is two closures, which compare by identity and would be
    two programs; of those that one library function made from equal arguments, one is used.
    """
    try:
        alike = _alike(_fingerprint(value, ()))
    except TypeError:  # something unhashable inside: identity decides
        return value
    if not alike:
        alike.append(value)
    return alike[0]


@functools.lru_cache(maxsize=256)  # a forgotten value is compiled again, and does no harm
def _alike(fingerprint: tuple[Any, ...]) -> list[Any]:
    """Return the list of the first value with this fingerprint, empty at first."""
    return []


_LIBRARIES = ("optax", "jax", "functools")


def _fingerprint(value: Any, parents: tuple[int, ...]) -> tuple[Any, ...]:
    """Describe how `value` was built: code, closures and arguments of a library's functions.

    Functions of other modules may read globals, and stand for themselves. `parents` are the
    identities of the values that hold this one: a closure may hold itself.
    """
    if id(value) in parents:
        return ("again", parents.index(id(value)))
    inner = functools.partial(_fingerprint, parents=(*parents, id(value)))
    if isinstance(value, tuple):
        return (type(value), *map(inner, value))
    if isinstance(value, dict):
        return (dict, *((k, inner(v)) for k, v in value.items()))
    if isinstance(value, functools.partial):
        return (functools.partial, *map(inner, (value.func, value.args, value.keywords)))
    if isinstance(value, types.FunctionType) and _is_library(value):
        cells = tuple(inner(_contents(cell)) for cell in value.__closure__ or ())
        defaults = inner((value.__defaults__ or (), value.__kwdefaults__ or {}))
        return (value.__code__, cells, defaults)
    return (type(value), value)


def _is_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] in _LIBRARIES


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a cell that is not filled yet
        return None


def describe(value: Any) -> Any:
    """Describe a value as JSON can hold it: parts by their fields, arrays and code by a digest.

    Values that are built alike are described alike, in every process.
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if f.metadata.get("told", True)]
        values = {f.name: describe(getattr(value, f.name)) for f in fields}
        return {"is": type(value).__qualname__, **_class_code(type(value)), **values}
    if isinstance(value, dict):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return {"key": describe(jax.random.key_data(value))}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _describe_array(np.asarray(value))
    if isinstance(value, tuple | list):
        return [describe(v) for v in value]
    return _describe_object(value)


def _describe_array(value: np.ndarray) -> Any:
    if value.size <= MANY and value.dtype.kind in "biuf":
        if value.dtype.kind == "f":  # in as few digits as tell float32 numbers apart
            value = np.vectorize(lambda x: float(str(np.float32(x))), otypes=[float])(value)
        return describe(value.tolist())
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    return {"shape": list(value.shape), "sha256": digest}


def _describe_object(value: Any) -> Any:
    """Describe a function by its name, code and closure, and anything else by its repr."""
    if isinstance(value, functools.partial):
        return {"partial": [describe(v) for v in (value.func, value.args, value.keywords)]}
    if isinstance(value, types.MethodType):
        return {"method": describe(value.__func__), "of": describe(value.__self__)}
    if isinstance(value, types.FunctionType):
        cells = map(_contents, value.__closure__ or ())
        closure = ["itself" if content is value else describe(content) for content in cells]
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return {
            "function": f"{value.__module__}.{value.__qualname__}",
            "code": _code_digest(value.__code__),
            **({"holds": closure} if closure else {}),
            **({"defaults": describe(defaults)} if defaults else {}),
        }
    if isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
        return describe(value.__wrapped__)  # a jitted function, whose repr holds an address
    if isinstance(value, type) or repr(value) == object.__repr__(value):
        return {"is": getattr(value, "__qualname__", type(value).__qualname__)}
    return " ".join(repr(value).split())


def _class_code(cls: type) -> dict[str, str]:
    """Return a digest of a user's class; the package's own classes go by its version."""
    if cls.__module__.partition(".")[0] == "jaxota":
        return {}
    digest = hashlib.sha256()
    for name, member in sorted(vars(cls).items()):
        function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
        if isinstance(function, types.FunctionType):
            digest.update(f"{name} {_code_digest(function.__code__)} ".encode())
    return {"code": digest.hexdigest()[:16]}


def _code_digest(code: types.CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # its order differs from process to process
            constant = sorted(map(repr, constant))
        nested = isinstance(constant, types.CodeType)
        digest.update((_code_digest(constant) if nested else repr(constant)).encode())
    digest.update(" ".join(code.co_names).encode())
    return digest.hexdigest()[:16]


def fingerprint(description: Any) -> str:
    """Return a digest of a description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]


def difference(here: Any, there: Any, path: str = "") -> str | None:
    """Say where two descriptions first differ; None if they do not."""
    if isinstance(here, dict) and isinstance(there, dict):
        names = [*sorted(here.keys() ^ there.keys()), *here]  # first what one of them lacks
        places = ((here.get(k), there.get(k), f"{path}.{k}" if path else k) for k in names)
        return next(filter(None, itertools.starmap(difference, places)), None)
    if here == there:
        return None
    return f"{path} is {_short(there)} there and {_short(here)} here"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("is") or value.get("function") or "other data")
    text = json.dumps(value, ensure_ascii=False) if value is not None else "not set"
    return text if len(text) <= 60 else text[:57] + "..."
