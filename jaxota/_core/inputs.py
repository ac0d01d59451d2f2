"""Checks and casts of the values that users give: one line names the field and what it may be.

Values are checked by kind (`whole`, `key`, `number`, …) and parts field by field, against their
declarations (`cast_fields`). In a user's own `jit` or `vmap` numbers are traced, and only their
shapes are known: there the checks become part of the program, and invalid numbers yield NaN.
"""

import contextlib
import contextvars
import dataclasses
import functools
import numbers
import operator
import os
import pathlib
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxota._core.part import TINY, Bounds, canonical
from jaxota.errors import InputError

if TYPE_CHECKING:
    import optax

    from jaxota._core.arguments import Setting

T = TypeVar("T")
MOST = 2**31 - 1  # counts are int32 on a device


def shown(value: Any) -> str:
    """Return `value` in a few words on one line, for a message."""
    try:
        words = " ".join(repr(value).split())
    except Exception:  # a faulty __repr__, or an int with more digits than Python writes
        words = "too many digits" if isinstance(value, int) else f"one of {type(value).__name__}"
    return words if len(words) <= 60 else words[:57] + "..."


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def whole(name: str, value: Any, at_least: int, at_most: int | None = MOST) -> int:
    """Return `value` as an int within these bounds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < at_least:
        raise InputError(f"{name} must be a whole number ≥ {at_least}, got {shown(value)}")
    if at_most is not None and int(value) > at_most:
        raise InputError(f"{name} must be a whole number ≤ {at_most}, got {shown(value)}")
    return int(value)


def seed(value: Any, name: str = "seed") -> int:
    """Return a seed that a random key and NumPy both take."""
    return whole(name, value, 0, at_most=2**32 - 1)


def key(path: str, value: Any, axes: int = 0) -> Any:
    """Return a typed random key, or an array of keys with up to `axes` axes.

    Users give a typed key, a raw uint32 key, or an int n, which means `jax.random.key(n)`.
    """
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return jax.random.key(seed(value, path))
    if isinstance(value, (jax.Array, np.ndarray)):
        if value.dtype == jnp.uint32 and value.shape[-1:] == (2,):
            value = jax.random.wrap_key_data(jnp.asarray(value), impl="threefry2x32")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.ndim <= axes:
            return value
    raise InputError(
        f"{path} must be a random key such as jax.random.key(0), or a seed such as 0, "
        f"got {shown(value)}"
    )


def words(name: str, value: Any) -> str:
    """Return `value`, a text to be read by people, which files can hold."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be words, got {shown(value)}")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{name} must be text without NUL that UTF-8 can hold, got {shown(value)}")
    return value


def name(field: str, value: Any) -> str:
    """Return `value`, the name of files: words that are no path."""
    if not re.fullmatch(r"[\w(][\w .,+=()-]*", words(field, value)) or len(value.encode()) > 200:
        raise InputError(
            f"{field} must be a name for files, of letters, digits, spaces and any of "
            f"-_.,+=(), at most 200 bytes, got {shown(value)}"
        )
    return value


def path(name: str, value: Any) -> pathlib.Path:
    """Return `value` as a path."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"{name} must be a path, got {shown(value)}")
    return pathlib.Path(value)


def chosen(path: str, value: Any, one_of: tuple[Any, ...]) -> Any:
    """Return the allowed value that `value` equals, of its own type."""
    plain = value.item() if isinstance(value, np.generic) else value
    for one in one_of:
        # True == 1 in Python, but a flag is no number here.
        alike = isinstance(plain, type(one)) and isinstance(plain, bool) == isinstance(one, bool)
        if alike and plain == one:
            return one
    raise InputError(f"{path} must be {' or '.join(map(repr, one_of))}, got {shown(value)}")


def number(
    name: str,
    value: Any,
    at_least: float | None = None,
    above: float | None = None,
    infinite: bool = False,
) -> jax.Array:
    """Return `value` as an array of numbers in these bounds; traced ones outside become NaN."""
    array, bounds = as_array(name, value), Bounds(above, at_least, None, infinite)
    if not array.size:
        raise InputError(f"{name} must hold at least one number, got none")
    if is_traced(array):
        return jnp.where(bounds.hold(array), array, jnp.nan)
    require(name, array, bounds)
    return array


def as_array(name: str, value: Any, dtype: str = "float32") -> jax.Array:
    """Return `value`, real numbers, as an array."""
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            value = float(value)
        elif not is_real(value):
            raise TypeError
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
            return jnp.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number or an array, got {shown(value)}") from None


def real(name: str, value: Any) -> np.ndarray:
    """Return `value`, real numbers or flags, as a NumPy array of its own type."""
    try:
        array = np.asarray(value)
        if not is_real(array, flags=True):
            raise TypeError
    except Exception:  # ragged lists, random keys, tracers
        raise InputError(f"{name} must be an array of real numbers, got {shown(value)}") from None
    return array


def is_real(value: Any, flags: bool = False) -> bool:
    """Return whether `value` holds real numbers, or `flags` if these are allowed."""
    if not hasattr(value, "dtype"):
        if is_traced(value):
            return True
        try:
            value = np.asarray(value)
        except Exception:  # a ragged list
            return False
    kinds = (jnp.floating, jnp.integer, jnp.bool_) if flags else (jnp.floating, jnp.integer)
    return any(jnp.issubdtype(value.dtype, kind) for kind in kinds)


def is_traced(*values: Any) -> bool:
    """Return whether any of the values belongs to a program that JAX is tracing."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def require(path: str, array: jax.Array, bounds: Bounds, hint: str = "") -> None:
    """Raise InputError unless all numbers are within `bounds`; see `check_traced`."""
    if is_traced(array):
        check_traced(bounds.hold(array))
        return
    host = np.asarray(array)
    good = bounds.hold(host)
    if not good.all():
        allowed, bad = str(bounds), host[~good].flat[0]
        if bounds.above == 0.0 and 0 < bad < TINY:
            allowed = f"≥ {TINY:.2g}, the least that a device tells from 0"
        raise InputError(f"{path} must be {allowed}, got {bad:g}{hint}")


def _require_whole(path: str, value: Any) -> None:
    """Raise InputError unless `value` holds whole numbers that fit an int32."""
    if is_traced(as_array(path, value)):
        return
    host = np.asarray(value, np.float64)
    bad = host[(host != np.round(host)) | (np.abs(host) > MOST)]
    if bad.size:
        most = f" and no more than {MOST}" if abs(bad.flat[0]) > MOST else ""
        raise InputError(f"{path} must be whole{most}, got {bad.flat[0]:g}")


# Traced values: `simulate` and its kin collect the checks of traced numbers while they enter, and
# make all results NaN in the program where one of them fails.
_checks: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar("checks", default=None)


@contextlib.contextmanager
def traced_checks() -> Iterator[list[Any]]:
    """Collect the checks of traced numbers made in this block, for `nan_unless`."""
    checks: list[Any] = []
    token = _checks.set(checks)
    try:
        yield checks
    finally:
        _checks.reset(token)


def check_traced(good: Bool[Array, "*shape"]) -> None:
    """Add the condition that all of `good` is true to the checks that are being collected."""
    checks = _checks.get()
    if checks is not None:
        checks.append(good.all())


def nan_unless(checks: list[Any], values: T) -> T:
    """Return `values`, with NaN everywhere if one of the `checks` fails."""
    if not checks:
        return values
    good = functools.reduce(operator.and_, checks)
    return jax.tree.map(lambda x: jnp.where(good, x, jnp.nan), values)


def cast_fields(part: T, path: str, cast_inner: Callable[[Any, str], Any] | None = None) -> T:
    """Return `part` with its traced fields as arrays; InputError at the first invalid value.

    `cast_inner` does so for the parts inside, by default this function.
    """
    value_of: Any = part
    if not _is_part(part):
        name = path.rpartition(".")[2]
        raise InputError(
            f"{path} must be declared: `{name}: float = jo.traced(...)` in its class if it "
            "multiplies, `jo.static(...)` if it counts or chooses; or hold a part, "
            f"got {shown(part)}"
        )
    changes = {}
    for field in dataclasses.fields(value_of):
        value, place, rules = getattr(part, field.name), f"{path}.{field.name}", field.metadata
        if value is None and field.default is None:
            continue
        if rules.get("static"):
            changes[field.name] = _cast_static(place, value, **rules)
        elif _is_part(value) or "rank" not in rules:
            changes[field.name] = (cast_inner or cast_fields)(value, place)
            if hasattr(value, "at_round"):
                _check_schedule(place, changes[field.name], rules)
        elif value is None:
            raise InputError(f"{place} must be given, got None")
        else:
            changes[field.name] = _cast_traced(place, value, **rules)
    return dataclasses.replace(value_of, **changes)


def check_together(part: Any, path: str, setting: "Setting") -> None:
    """Let `part` and all parts inside check that they go with the others of the `setting`."""
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if _is_part(value):
            check_together(value, f"{path}.{field.name}", setting)
    if hasattr(part, "check"):
        part.check(path, setting)


def extra_axes(part: Any, name: str) -> dict[str, int]:
    """Map the path of every traced field to its axes beyond the declared ones: 1 if it is swept."""
    if part is None:
        return {}
    extra: dict[str, int] = {}
    for field in dataclasses.fields(part):
        value, path = getattr(part, field.name), f"{name}.{field.name}"
        if field.metadata.get("static"):
            continue
        if _is_part(value):
            extra |= extra_axes(value, path)
        elif "rank" in field.metadata and value is not None:
            extra[path] = _rank(value) - field.metadata["rank"]
    return extra


def _is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _rank(value: Any) -> int:
    try:
        return np.ndim(value)
    except ValueError:  # a ragged list, which is refused later
        return 1


def _cast_static(path: str, value: Any, at_least: Any = None, one_of: Any = None, **_: Any) -> Any:
    if one_of is not None:
        return chosen(path, value, one_of)
    if at_least is not None:
        return whole(path, value, at_least)
    return canonical(value)


def _check_schedule(path: str, schedule: Any, rules: Any) -> None:
    """Raise InputError unless the field takes a schedule, and allows all of its numbers."""
    if not rules.get("by_round"):
        raise InputError(f"{path} must be one number for all rounds, got a schedule")
    require(path, schedule.values, rules["bounds"])


def _cast_traced(
    path: str, value: Any, rank: int, dtype: str, bounds: Bounds, by_round: bool = False
) -> Any:
    if dtype == "key":
        return key(path, value, axes=1)
    rules = bounds, dtype
    known = _valid.get(id(value)) == rules
    if dtype == "int32" and not known:
        _require_whole(path, value)
    array = as_array(path, value, dtype)
    if not rank <= array.ndim <= rank + 1:
        shape = "a number" if rank == 0 else f"an array of {rank} axes"
        raise InputError(
            f"{path} must be {shape}, or one axis more to sweep, got shape {array.shape}"
        )
    if not known:
        require(path, array, bounds)
    if array is value and not known and not is_traced(array):
        _mark_valid(array, rules)  # a jax array never changes: one check is enough
    return array


_valid: dict[int, tuple[Bounds, str]] = {}  # identity of a jax array → the rules that it meets


def _mark_valid(array: Any, rules: tuple[Bounds, str]) -> None:
    """Remember that `array` meets `rules`, until the array is gone."""
    _valid[id(array)] = rules
    weakref.finalize(array, _valid.pop, id(array), None)


def vouch(part: T, *names: str) -> T:
    """Return `part`, its arrays of these `names` marked as checked where they came from."""
    value_of: Any = part
    for field in dataclasses.fields(value_of):
        value = getattr(part, field.name)
        if field.name in names and value is not None:
            _mark_valid(value, (field.metadata["bounds"], field.metadata["dtype"]))
    return part


def check_direction(
    path: str, optimizer: "optax.GradientTransformation", dim: int, downhill: bool = False
) -> None:
    """Raise InputError unless `optimizer` is an optax transformation that points the right way.

    That is along the gradient [d], or against it if the transformation makes the step (`downhill`).
    """
    import optax  # slow to import, and not every command needs it

    like = "optax.sgd(1.0)" if downhill else "optax.scale_by_adam()"
    if not isinstance(optimizer, optax.GradientTransformation):
        raise InputError(
            f"{path} must be an optax transformation such as {like}, got {shown(optimizer)}"
        )
    if _holds_array(optimizer, dim):
        hint = "jo.ReplaceModel(rate=[…])" if downhill else "step_size=[…]"
        raise InputError(
            f"{path} must hold numbers, not arrays, which a sweep would not see inside an optax "
            f"transformation: sweep {hint}, or transformations by jo.axis(…)"
        )
    try:
        along = _first_update(optimizer, dim)
    except Exception as error:
        raise InputError(
            f"{path} must answer a gradient float32[{dim}] by one like it: {first_line(error)}"
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


def _holds_array(value: Any, dim: int) -> bool:
    """Return whether an optax transformation was made with a list or an array for a number.

    Arrays [d] do not count: they are one number for each coordinate of the model.
    """
    if isinstance(value, tuple):
        return any(_holds_array(each, dim) for each in value)
    if isinstance(value, types.FunctionType):
        library = value.__module__.startswith("optax.") and "schedule" not in value.__module__
        cells = value.__closure__ or ()
        return library and any(_holds_array(cell.cell_contents, dim) for cell in cells)
    numbers_alone = isinstance(value, list) and all(isinstance(x, numbers.Real) for x in value)
    array = isinstance(value, jax.Array | np.ndarray) and value.shape not in ((), (dim,))
    return numbers_alone or array


@functools.lru_cache(maxsize=64)
def _first_update(optimizer: "optax.GradientTransformation", dim: int) -> float:
    """Return the inner product of a random gradient and the first update to it."""
    with jax.ensure_compile_time_eval():
        # NumPy where possible: each JAX operation is a program to compile or to load.
        probe = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
        gradient, model = jnp.asarray(probe), jnp.asarray(np.zeros(dim, np.float32))
        update = np.asarray(optimizer.update(gradient, optimizer.init(model), model)[0])
    if (update.shape, update.dtype) != (probe.shape, probe.dtype):
        raise ValueError(f"got {update.dtype}{list(update.shape)}")
    if not np.isfinite(update).all():
        raise ValueError("got NaN or inf")
    return float(np.vdot(probe, update))
