"""Descriptions of parts as plain data, by which a store knows its study and tells differences."""

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

MANY = 32  # numbers; longer arrays are described by their shape and a digest


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
        closure = [_describe_cell(cell, value) for cell in value.__closure__ or ()]
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


def _describe_cell(cell: types.CellType, function: Any) -> Any:
    try:
        content = cell.cell_contents
    except ValueError:  # empty
        return None
    return "itself" if content is function else describe(content)


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
    if isinstance(here, dict) and isinstance(there, dict) and here.keys() == there.keys():
        found = (difference(here[k], there[k], f"{path}.{k}" if path else k) for k in here)
        return next(filter(None, found), None)
    if isinstance(here, dict) and isinstance(there, dict):
        name = min(here.keys() ^ there.keys())
        path, here, there = f"{path}.{name}" if path else name, here.get(name), there.get(name)
    elif here == there:
        return None
    return f"{path} is {_short(there)} there and {_short(here)} here"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("is") or value.get("function") or "other data")
    text = json.dumps(value, ensure_ascii=False) if value is not None else "not set"
    return text if len(text) <= 60 else text[:57] + "..."
