"""On entry: every part is checked against its declaration, and its numbers cast to arrays.

A value that is not allowed is one line that names the field and what it may be. Tracers pass:
inside someone's own `jit` or `vmap` only shapes are known.
"""

import dataclasses
import functools
import numbers
import types

import jax
import jax.numpy as jnp
import numpy as np

from jaxota.errors import InputError


def prepared(part, name: str):
    """`part` with its traced fields as arrays; InputError at the first value not allowed."""
    changes = {}
    for field in dataclasses.fields(part):
        value, path = getattr(part, field.name), f"{name}.{field.name}"
        if field.metadata.get("static"):
            changes[field.name] = _static(path, value, **field.metadata)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = prepared(value, path)
        elif "rank" not in field.metadata:
            raise InputError(
                f"{path} must be a part of its kind, such as jo.Online() or jo.rayleigh(), "
                f"got {shown(value)}"
            )
        elif not (isinstance(value, tuple) and value == ()):
            changes[field.name] = _traced(path, value, **field.metadata)
        elif field.default != ():
            raise InputError(f"{path} must be given, got ()")
    return dataclasses.replace(part, **changes)


def extra_axes(part, name: str) -> dict[str, int]:
    """Path of every traced field → its axes beyond the declared ones: 1 for a swept field."""
    if isinstance(part, tuple):
        return {}
    extra = {}
    for field in dataclasses.fields(part):
        value, path = getattr(part, field.name), f"{name}.{field.name}"
        if dataclasses.is_dataclass(value):
            extra |= extra_axes(value, path)
        elif "rank" in field.metadata and not isinstance(value, tuple):
            extra[path] = jnp.ndim(value) - field.metadata["rank"]
    return extra


def shown(value) -> str:
    """A value in a few words on one line."""
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else words[:57] + "..."


def whole(name: str, value, at_least: int) -> int:
    """`value` as an int."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < at_least:
        raise InputError(f"{name} must be a whole number ≥ {at_least}, got {shown(value)}")
    return int(value)


def seed(value) -> int:
    """A seed that a random key and NumPy both take."""
    value = whole("seed", value, 0)
    if value >= 2**32:
        raise InputError(f"seed must be < 2**32, got {value}")
    return value


def first_line(error: Exception) -> str:
    """What an error says in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def key(path: str, value, axes: int = 0):
    """A typed random key, or an array of keys with up to so many axes, from either kind."""
    if isinstance(value, (jax.Array, np.ndarray)):
        if value.dtype == jnp.uint32 and value.shape[-1:] == (2,):
            value = jax.random.wrap_key_data(jnp.asarray(value), impl="threefry2x32")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.ndim <= axes:
            return value
    raise InputError(f"{path} must be a random key such as jax.random.key(0), got {shown(value)}")


def _static(path, value, at_least=None, one_of=None, **_):
    if one_of is not None:
        if value not in one_of:
            allowed = " or ".join(map(repr, one_of))
            raise InputError(f"{path} must be {allowed}, got {shown(value)}")
        return one_of[one_of.index(value)]
    if at_least is not None and value is not None:
        return whole(path, value, at_least)
    return canonical(value)


def _traced(path, value, rank, above, at_least, below, infinite, dtype):
    if dtype == "key":
        return key(path, value, axes=1)
    try:
        array = jnp.asarray(value, dtype)
    except (TypeError, ValueError):
        raise InputError(f"{path} must be a number or an array, got {shown(value)}") from None
    if not rank <= array.ndim <= rank + 1:
        shape = "a number" if rank == 0 else f"an array of {rank} axes"
        raise InputError(
            f"{path} must be {shape}, or one axis more to sweep, got shape {array.shape}"
        )
    if isinstance(array, jax.core.Tracer):
        return array
    if dtype == "int32":
        given, whole_ones = np.asarray(value, np.float64), np.asarray(array)
        if (given != whole_ones).any():
            bad = given[given != whole_ones].flat[0]
            raise InputError(f"{path} must be whole, got {bad:g}")
        return array
    host = np.asarray(array)
    allowed, good = [], ~np.isnan(host)
    if not infinite:
        allowed, good = ["finite"], good & np.isfinite(host)
    if above is not None:
        allowed, good = [*allowed, f"> {above:g}"], good & (host > above)
    if at_least is not None:
        allowed, good = [*allowed, f"≥ {at_least:g}"], good & (host >= at_least)
    if below is not None:
        allowed, good = [*allowed, f"< {below:g}"], good & (host < below)
    if not good.all():
        bad = host[~good].flat[0]
        raise InputError(f"{path} must be {' and '.join(allowed) or 'a number'}, got {bad:g}")
    return array


def canonical(value):
    """The first value seen that was built as `value` was.

    An optax transformation made twice is two closures, which compare by identity and would be
    two programs; of those that one library function made from equal arguments, one is used.
    """
    print_ = _fingerprint(value)
    try:
        return _first(_Seen(print_, value))
    except TypeError:  # something unhashable inside: identity decides
        return value


class _Seen:
    def __init__(self, print_, value):
        self.print_, self.value = print_, value

    def __hash__(self):
        return hash(self.print_)

    def __eq__(self, other):
        return self.print_ == other.print_


@functools.cache
def _first(seen: _Seen):
    return seen.value


_LIBRARIES = ("optax", "jax", "functools")


def _fingerprint(value):
    """What a value was built from; functions of other modules may read globals: themselves."""
    if isinstance(value, tuple):
        return (type(value), *map(_fingerprint, value))
    if isinstance(value, dict):
        return (dict, *((k, _fingerprint(v)) for k, v in value.items()))
    if isinstance(value, functools.partial):
        return (functools.partial, *map(_fingerprint, (value.func, value.args, value.keywords)))
    if isinstance(value, types.FunctionType) and value.__module__.split(".")[0] in _LIBRARIES:
        cells = tuple(_fingerprint(cell.cell_contents) for cell in value.__closure__ or ())
        defaults = _fingerprint((value.__defaults__ or (), value.__kwdefaults__ or {}))
        return (value.__code__, cells, defaults)
    return (type(value), value)
