"""Parts in plain words: what a store says of its study, compares, and is known by."""

import dataclasses
import functools
import hashlib
import inspect
import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxota

MANY = 32  # numbers; more are told by their shape and a digest


def describe(value: Any) -> Any:
    """A value as JSON has it: parts field by field, long arrays and code by a digest.

    The same in every process, so that values built alike are described alike.
    """
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = [f for f in dataclasses.fields(value) if f.metadata.get("told", True)]
        fields = {f.name: describe(getattr(value, f.name)) for f in told}
        return {"is": type(value).__qualname__, **_own_code(type(value)), **fields}
    if isinstance(value, dict):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return {"key": describe(jax.random.key_data(value))}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _array(np.asarray(value))
    if isinstance(value, tuple | list):
        return [describe(v) for v in value]
    return _code(value)


def _array(value: np.ndarray) -> Any:
    if value.size <= MANY and value.dtype.kind in "biuf":
        if value.dtype.kind == "f":  # as short as float32 tells them apart
            value = np.vectorize(lambda x: float(str(np.float32(x))), otypes=[float])(value)
        return describe(value.tolist())
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    return {"shape": list(value.shape), "sha256": digest}


def _code(value: Any) -> Any:
    """A function by its name, its code and what it holds; anything else by its words."""
    if isinstance(value, functools.partial):
        return {"partial": [describe(v) for v in (value.func, value.args, value.keywords)]}
    if isinstance(getattr(value, "__wrapped__", None), types.FunctionType) and not isinstance(
        value, types.FunctionType
    ):
        return describe(value.__wrapped__)  # jitted: its own words hold an address
    if isinstance(value, types.MethodType):
        return {"method": describe(value.__func__), "of": describe(value.__self__)}
    if isinstance(value, types.FunctionType):
        cells = [_held(cell, value) for cell in value.__closure__ or ()]
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        held = {"holds": cells} if cells else {}
        told = {"defaults": describe(defaults)} if defaults else {}
        name = f"{value.__module__}.{value.__qualname__}"
        return {"function": name, "code": _digest(value.__code__), **held, **told}
    if isinstance(value, type) or repr(value) == object.__repr__(value):
        return {"is": getattr(value, "__qualname__", type(value).__qualname__)}
    return " ".join(repr(value).split())


def _own_code(kind: type) -> dict[str, str]:
    """A digest of what a researcher's class does; the package's own go by its version."""
    if kind.__module__.partition(".")[0] == "jaxota":
        return {}
    digest = hashlib.sha256()
    for name, member in sorted(vars(kind).items()):
        inside = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
        if isinstance(inside, types.FunctionType):
            digest.update(f"{name} {_digest(inside.__code__)} ".encode())
    return {"code": digest.hexdigest()[:16]}


def _held(cell: types.CellType, holder: Any) -> Any:
    try:
        inside = cell.cell_contents
    except ValueError:  # nothing yet
        return None
    return "itself" if inside is holder else describe(inside)


def _digest(code: types.CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, frozenset):  # in an order of each process's own
            constant = sorted(map(repr, constant))
        words = _digest(constant) if isinstance(constant, types.CodeType) else repr(constant)
        digest.update(words.encode())
    digest.update(" ".join(code.co_names).encode())
    return digest.hexdigest()[:16]


def fingerprint(description: Any) -> str:
    """What a description is known by."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]


def difference(here: Any, there: Any, path: str = "") -> str | None:
    """The first place at which two descriptions differ, in words; None if they do not."""
    if isinstance(here, dict) and isinstance(there, dict) and here.keys() == there.keys():
        for name in here:
            found = difference(here[name], there[name], f"{path}.{name}" if path else name)
            if found:
                return found
        return None
    if isinstance(here, dict) and isinstance(there, dict) and here.keys() != there.keys():
        only = sorted(here.keys() ^ there.keys())[0]
        place = f"{path}.{only}" if path else only
        return f"{place} is {_short(there.get(only))} there and {_short(here.get(only))} here"
    return None if here == there else f"{path} is {_short(there)} there and {_short(here)} here"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("is") or value.get("function") or "other data")
    words = json.dumps(value, ensure_ascii=False) if value is not None else "not set"
    return words if len(words) <= 60 else words[:57] + "..."


def versions() -> dict[str, str]:
    """What computes the numbers."""
    return {"jaxota": jaxota.__version__, "jax": jax.__version__}
