"""Values as users give them: cast, or one line that names the field and what it may be."""

import numbers
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxota.errors import InputError

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
