"""On entry: whether a part is of its stage's kind, and offers what the stage asks of it.

What does not fit is one line that names the field, the fix, and the protocol that says more.
"""

import dataclasses
import inspect
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxota._core.inputs import shown, whole
from jaxota._core.part import Moments, Scalar
from jaxota.errors import InputError

PLANNED = tuple(f.name for f in dataclasses.fields(Moments) if f.name != "peak")


def is_part(path: str, value: Any, protocol: type, like: str) -> None:
    """Refuse what is no part at all."""
    if isinstance(value, type):
        got = f"the class {value.__name__} itself: write {value.__name__}(...)"
    elif dataclasses.is_dataclass(value) and not jax.tree_util.all_leaves([value]):
        return
    elif hasattr(value, "__dict__") and not inspect.isroutine(value):
        got = f"a {type(value).__name__}, which is no part: put @jo.part before its class"
    else:
        got = shown(value)
    _refuse(f"{path} must be a part of its kind, such as {like}, got {got}", protocol)


def offers(path: str, value: Any, protocol: type, like: str) -> None:
    """Refuse a `value` that lacks what a stage must offer, or offers it otherwise."""
    members = _members(protocol)
    held = {name: getattr(value, name, _MISSING) for name in members}  # asked once: it may compute
    missing = [name for name in members if held[name] is _MISSING]
    if missing:
        lacks = f"got {shown(value)}, which lacks {', '.join(missing)}"
        _refuse(f"{path} must be one such as {like}, {lacks}", protocol)
    for name, member in members.items():
        if isinstance(member, property):
            wanted = (member.fget.__annotations__ or {})["return"]
            _check_value(f"{path}.{name}", held[name], wanted, protocol)
    if (type(value), protocol) not in _fitting:
        for name, member in members.items():
            if not isinstance(member, property):
                _, *names = inspect.signature(member).parameters
                _check_call(f"{path}.{name}", held[name], names, protocol)
        if hasattr(value, "check"):
            _check_call(f"{path}.check", value.check, ["path", "setting"], protocol)
        _fitting.add((type(value), protocol))


_MISSING = object()
_fitting = set[tuple[type, type]]()  # classes whose methods were found to take what they are given


def _members(protocol: type) -> dict[str, Any]:
    return {k: v for k, v in vars(protocol).items() if not k.startswith("_") or k == "__call__"}


def _check_value(path: str, value: Any, wanted: Any, protocol: type) -> None:
    if inspect.ismethod(value):
        _refuse(f"{path} must be a value, got a method: put @property before it", protocol)
    if wanted is bool and not isinstance(value, bool | np.bool_):
        _refuse(f"{path} must be True or False, got {shown(value)}", protocol)
    if wanted is int:
        whole(path, value, 1)
    if wanted is Scalar and not is_real(value):
        _refuse(f"{path} must be a number, got {shown(value)}", protocol)
    if wanted == tuple[str, ...]:
        names = value if isinstance(value, tuple | list) else [value]
        bad = [name for name in names if name not in PLANNED]
        if bad or names is not value:
            words = f"must be a tuple of {', '.join(PLANNED)}, such as ('mean', 'var') or ()"
            _refuse(f"{path} {words}, got {shown(bad[0] if names is value else value)}", protocol)


def is_real(value: Any) -> bool:
    """Whether it is a number or an array of them, not complex."""
    try:
        kind = jnp.result_type(value)
    except (TypeError, ValueError):
        return False
    real = kind == jnp.bool_, jnp.issubdtype(kind, jnp.integer), jnp.issubdtype(kind, jnp.floating)
    return value is not None and any(real)


def _check_call(path: str, method: Any, names: list[str], protocol: type) -> None:
    taken = f"{path} must be a method that takes ({', '.join(names)})"
    if not callable(method):
        _refuse(f"{taken}, got {shown(method)}", protocol)
    try:
        signature = inspect.signature(method)
    except ValueError:  # a callable that does not tell
        return
    try:
        signature.bind(*names)
    except TypeError:
        _refuse(f"{taken}, got one that takes {signature}", protocol)


def _refuse(words: str, protocol: type) -> NoReturn:
    raise InputError(f"{words}; see jo.stages.{protocol.__name__}")
