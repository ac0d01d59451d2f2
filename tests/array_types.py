"""The checker of annotations in the tests: conftest imports the modules that compute with it.

Only jaxtyping's array types are checked, their shapes and dtypes, of functions that take arrays.
Left out is what users give, which the package checks itself, with messages of its own: random keys,
fields of parts (`__init__`), and their properties, which have one axis more in a sweep.
"""

import types
import typing

import jaxtyping
from beartype import beartype


def checked(function):
    """`beartype` for the annotations of arrays of a function."""
    hints = {k: v for k, v in function.__annotations__.items() if _holds_arrays(v)}
    if function.__name__ == "__init__" or not hints.keys() - {"return"}:
        return function
    declared = function.__annotations__
    function.__annotations__ = dict.fromkeys(declared, typing.Any) | hints
    result = beartype(function)
    # The package reads the annotations of its protocols.
    function.__annotations__ = result.__annotations__ = declared
    return result


def _holds_arrays(hint):
    if hint == jaxtyping.PRNGKeyArray:
        return False
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    if typing.get_origin(hint) in (tuple, dict, typing.Union, types.UnionType):
        inner = [x for x in typing.get_args(hint) if x not in (..., str, type(None))]
        return bool(inner) and all(map(_holds_arrays, inner))
    return False
