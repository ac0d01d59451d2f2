"""On entry: every part is checked against its declaration, and its numbers cast to arrays.

Tracers pass: inside someone's own `jit` or `vmap` only shapes are known, and `_inside` sees to the
rest.
"""

import dataclasses
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxota._core import inputs as _validate
from jaxota._core import inside as _inside
from jaxota._core.canonical import canonical
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

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
        f"got {_validate.shown(value)}"
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
        return _validate.chosen(path, value, one_of)
    if at_least is not None:
        return _validate.whole(path, value, at_least)
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
        return _validate.key(path, value, axes=1)
    allowed = above, at_least, below, infinite, dtype
    if dtype == "int32" and _known.get(id(value)) != allowed:
        _validate.refuse_fractions(path, value)
    array = _validate.as_array(path, value, dtype)
    if not rank <= array.ndim <= rank + 1:
        shape = "a number" if rank == 0 else f"an array of {rank} axes"
        raise InputError(
            f"{path} must be {shape}, or one axis more to sweep, got shape {array.shape}"
        )
    if isinstance(array, jax.core.Tracer):
        if dtype != "int32":
            _inside.check(_validate.kept(jnp, array, above, at_least, below, infinite)[1])
        return array
    if _known.get(id(array)) == allowed:
        return array
    if dtype != "int32":
        _validate.refuse_outside(path, np.asarray(array), above, at_least, below, infinite)
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
