"""Values as users give them: cast, or one line that names the field and what it may be."""

import contextlib
import contextvars
import dataclasses
import functools
import numbers
import operator
import os
import pathlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool

from jaxota._core.part import canonical
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

_TINY = float(np.finfo(np.float32).tiny)


def shown(value: Any) -> str:
    """A value in a few words on one line."""
    try:
        words = " ".join(repr(value).split())
    except Exception:  # of somebody's own class, or as Python writes no more digits
        words = "too many digits" if isinstance(value, int) else f"one of {type(value).__name__}"
    return words if len(words) <= 60 else words[:57] + "..."


MOST = 2**31 - 1  # what counts is an int32 on a device


def whole(name: str, value: Any, at_least: int, at_most: int | None = MOST) -> int:
    """`value` as an int."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < at_least:
        raise InputError(f"{name} must be a whole number ≥ {at_least}, got {shown(value)}")
    if at_most is not None and int(value) > at_most:
        raise InputError(f"{name} must be a whole number ≤ {at_most}, got {shown(value)}")
    return int(value)


def seed(value: Any) -> int:
    """A seed that a random key and NumPy both take."""
    value = whole("seed", value, 0, at_most=None)
    if value >= 2**32:
        raise InputError(f"seed must be < 2**32, got {shown(value)}")
    return value


def words(name: str, value: Any) -> str:
    """`value`, which is to be read by people."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be words, got {shown(value)}")
    return value


def path(name: str, value: Any) -> pathlib.Path:
    """`value` as a path."""
    told = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(told, str) or "\0" in told:
        raise InputError(f"{name} must be a path, got {shown(value)}")
    return pathlib.Path(value)


def number(
    name: str,
    value: Any,
    at_least: float | None = None,
    above: float | None = None,
    infinite: bool = False,
) -> jax.Array:
    """`value` as an array of numbers in these bounds; of what is traced bad ones are NaN."""
    array = as_array(name, value)
    if not array.size:
        raise InputError(f"{name} must hold at least one number, got none")
    if isinstance(array, jax.core.Tracer):
        good = kept(jnp, array, above, at_least, None, infinite)[1]
        return jnp.where(good, array, jnp.nan)
    refuse_outside(name, np.asarray(array), above, at_least, None, infinite)
    return array


def first_line(error: Exception) -> str:
    """What an error says in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def key(path: str, value: Any, axes: int = 0) -> Any:
    """A typed random key, or an array of keys with up to so many axes, from either kind."""
    if isinstance(value, (jax.Array, np.ndarray)):
        if value.dtype == jnp.uint32 and value.shape[-1:] == (2,):
            value = jax.random.wrap_key_data(jnp.asarray(value), impl="threefry2x32")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.ndim <= axes:
            return value
    raise InputError(f"{path} must be a random key such as jax.random.key(0), got {shown(value)}")


def chosen(path: str, value: Any, one_of: tuple[Any, ...]) -> Any:
    """That of the values allowed which `value` is."""
    plain = value.item() if isinstance(value, np.generic) else value
    for one in one_of:
        alike = isinstance(plain, type(one)) and isinstance(plain, bool) == isinstance(one, bool)
        if alike and plain == one:
            return one
    raise InputError(f"{path} must be {' or '.join(map(repr, one_of))}, got {shown(value)}")


def as_array(name: str, value: Any, dtype: str = "float32") -> jax.Array:
    """`value`, real numbers, as an array."""
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            value = float(value)
        elif not _is_real(value):
            raise TypeError
        with np.errstate(over="ignore"):  # what float32 does not hold is infinite
            return jnp.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number or an array, got {shown(value)}") from None


def _is_real(value: Any) -> bool:
    """Whether it is of real numbers, not of words, flags or what else arrays are made of."""
    if not hasattr(value, "dtype"):
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value)):
            return True  # in somebody's own program
        value = np.asarray(value)
    return any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer))


def real(name: str, value: Any) -> np.ndarray:
    """`value`, real numbers or flags, as an array on the host, in its own type."""
    try:
        array = np.asarray(value)
        if array.dtype != bool and not _is_real(array):
            raise TypeError
    except Exception:  # ragged lists, random keys, tracers
        raise InputError(f"{name} must be an array of real numbers, got {shown(value)}") from None
    return array


def refuse_fractions(path: str, value: Any) -> None:
    as_array(path, value)
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value)):
        return
    host = np.asarray(value, np.float64)
    bad = host[(host != np.round(host)) | (np.abs(host) > MOST)]
    if bad.size:
        most = f" and no more than {MOST}" if abs(bad.flat[0]) > MOST else ""
        raise InputError(f"{path} must be whole{most}, got {bad.flat[0]:g}")


def refuse_outside(
    path: str,
    host: np.ndarray,
    above: float | None,
    at_least: float | None,
    below: float | None,
    infinite: bool,
) -> None:
    words, good = kept(np, host, above, at_least, below, infinite)
    if not good.all():
        bad = host[~good].flat[0]
        if above == 0.0 and 0 < bad < _TINY:
            words = f"≥ {_TINY:.2g}, the least that a device tells from 0"
        raise InputError(f"{path} must be {words}, got {bad:g}")


def kept(
    xp: Any,
    values: Any,
    above: float | None,
    at_least: float | None,
    below: float | None,
    infinite: bool,
) -> tuple[str, Any]:
    """What values may be, in words, and which of them are, by NumPy or JAX."""
    words, good = list[str](), ~xp.isnan(values)
    if not infinite:
        words, good = ["finite"], good & xp.isfinite(values)
    if above is not None:
        least = values >= _TINY if above == 0.0 else values > above
        words, good = [*words, f"> {above:g}"], good & least
    if at_least is not None:
        words, good = [*words, f"≥ {at_least:g}"], good & (values >= at_least)
    if below is not None:
        words, good = [*words, f"< {below:g}"], good & (values < below)
    return " and ".join(words) or "a number", good


T = TypeVar("T")


def prepared(part: T, name: str) -> T:
    """`part` with its traced fields as arrays; InputError at the first value not allowed."""
    changes, held = {}, _as_dataclass(part)
    for field in dataclasses.fields(held):
        value, path = getattr(part, field.name), f"{name}.{field.name}"
        if field.metadata.get("static"):
            if value is not None or field.default is not None:
                changes[field.name] = _static(path, value, **field.metadata)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = prepared(value, path)
        elif "rank" not in field.metadata:
            _refuse_undeclared(path, field, value)
        elif value is not None:
            changes[field.name] = _traced(path, value, **field.metadata)
        elif field.default is not None:
            raise InputError(f"{path} must be given, got None")
    return dataclasses.replace(held, **changes)


def _as_dataclass(part: Any) -> Any:
    """`part`, of which type checkers know no more than its own name."""
    return part


def _refuse_undeclared(path: str, field: dataclasses.Field[Any], value: Any) -> None:
    """A field that is neither traced nor static must hold a part."""
    raise InputError(
        f"{path} must be declared: `{field.name}: float = jo.traced(...)` in its class if it "
        "multiplies, `jo.static(...)` if it counts or chooses; or hold a part, "
        f"got {shown(value)}"
    )


def consult(part: Any, path: str, setting: "Setting") -> None:
    """Let `part`, and every part inside it, check that it goes with the others of the `setting`."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            consult(value, f"{path}.{field.name}", setting)
    if hasattr(part, "check"):
        part.check(path, setting)


def extra_axes(part: Any, name: str) -> dict[str, int]:
    """Path of every traced field → its axes beyond the declared ones: 1 for a swept field."""
    if part is None:
        return {}
    extra: dict[str, int] = {}
    for field in dataclasses.fields(part):
        value, path = getattr(part, field.name), f"{name}.{field.name}"
        if field.metadata.get("static"):
            continue
        if dataclasses.is_dataclass(value):
            extra |= extra_axes(value, path)
        elif "rank" in field.metadata and value is not None:
            extra[path] = _axes(value) - field.metadata["rank"]
    return extra


def _axes(value: Any) -> int:
    """How many axes an array has, or a list, which need not be of one shape yet."""
    try:
        return np.ndim(value)
    except ValueError:
        return 1


def _static(path: str, value: Any, at_least: Any = None, one_of: Any = None, **_: Any) -> Any:
    if one_of is not None:
        return chosen(path, value, one_of)
    if at_least is not None:
        return whole(path, value, at_least)
    return canonical(value)


def _traced(
    path: str,
    value: Any,
    rank: int,
    above: float | None,
    at_least: float | None,
    below: float | None,
    infinite: bool,
    dtype: str,
) -> Any:
    if dtype == "key":
        return key(path, value, axes=1)
    allowed = above, at_least, below, infinite, dtype
    if dtype == "int32" and _known.get(id(value)) != allowed:
        refuse_fractions(path, value)
    array = as_array(path, value, dtype)
    if not rank <= array.ndim <= rank + 1:
        shape = "a number" if rank == 0 else f"an array of {rank} axes"
        raise InputError(
            f"{path} must be {shape}, or one axis more to sweep, got shape {array.shape}"
        )
    if isinstance(array, jax.core.Tracer):
        if dtype != "int32":
            check(kept(jnp, array, above, at_least, below, infinite)[1])
        return array
    if _known.get(id(array)) == allowed:
        return array
    if dtype != "int32":
        refuse_outside(path, np.asarray(array), above, at_least, below, infinite)
    if array is value:  # made by jax, and so never to change: once is enough
        _remember(array, allowed)
    return array


_known: dict[int, tuple[Any, ...]] = {}  # identity of a jax array → what it was found to keep to


def _remember(array: Any, allowed: tuple[Any, ...]) -> None:
    """Until the array is gone."""
    _known[id(array)] = allowed
    weakref.finalize(array, _known.pop, id(array), None)


def vouch(part: T, *names: str) -> T:
    """`part`, whose arrays of these `names` were checked where they came from: they are not looked
    at again.
    """
    for field in dataclasses.fields(_as_dataclass(part)):
        value, rules = getattr(part, field.name), field.metadata
        if field.name in names and value is not None:
            allowed = (rules[k] for k in ("above", "at_least", "below", "infinite", "dtype"))
            _remember(value, tuple(allowed))
    return part


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


def check_direction(
    path: str, optimizer: optax.GradientTransformation, dim: int, downhill: bool = False
) -> None:
    """Refuse what is no transformation, and one that answers a gradient by pointing the wrong way:
    with it, or, where it makes the step itself (`downhill`), against it.
    """
    like = "optax.sgd(1.0)" if downhill else "optax.scale_by_adam()"
    if not isinstance(optimizer, optax.GradientTransformation):
        raise InputError(
            f"{path} must be an optax transformation such as {like}, got {shown(optimizer)}"
        )
    try:
        along = _asked(path, optimizer, dim)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} must take a gradient [d] and a model [d]: {first_line(error)}"
        ) from error
    if along < 0 and not downhill:
        raise InputError(
            f"{path} must not point against the gradient, as optax.sgd(…) and optax.adam(…) do: "
            "step_size makes the step; give the transformation alone, such as optax.identity() "
            f"or {like}"
        )
    if along > 0 and downhill:
        raise InputError(
            f"{path} must point downhill, as optax.sgd(…) and optax.adam(…) do, not along the "
            f"gradient, as optax.scale_by_…() alone do: give one such as {like}"
        )


def _asked(path: str, optimizer: optax.GradientTransformation, dim: int) -> float:
    """`_along`, of an answer that is an update."""
    try:
        shape, kind, along = _along(optimizer, dim)
    except TypeError:  # not hashable: asked anew each time
        shape, kind, along = _along.__wrapped__(optimizer, dim)
    if (shape, kind) != ((dim,), "float32"):
        raise InputError(
            f"{path} must answer a gradient float32[{dim}] by one of that shape, "
            f"got {kind}{list(shape)}"
        )
    if not np.isfinite(along):
        raise InputError(f"{path} must answer a gradient by finite numbers, got NaN or inf")
    return along


@functools.lru_cache(maxsize=64)
def _along(optimizer: optax.GradientTransformation, dim: int) -> tuple[tuple[int, ...], str, float]:
    """Of the transformation's first answer to a probe gradient shape, type, and their product."""
    with jax.ensure_compile_time_eval():
        # On the host but for the answer: each operation is a program to compile or to load.
        probe = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
        gradient, model = jnp.asarray(probe), jnp.asarray(np.zeros(dim, np.float32))
        answer, _ = optimizer.update(gradient, optimizer.init(model), model)
        answer = jnp.asarray(answer)
        same = answer.shape == probe.shape
        along = float(np.vdot(probe, np.asarray(answer))) if same else 0.0
        return answer.shape, answer.dtype.name, along
