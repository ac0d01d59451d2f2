"""Errors that a user can correct; every other exception is a fault of jaxota."""

import difflib
import re
from collections.abc import Callable
from typing import Any

import lazy_loader


class InputError(ValueError):
    """An argument is not allowed: one line that names it, and what it may be."""


# Characters that control a terminal, reorder a line or are half of one.
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return `text` with escapes such as \x1b in place of characters that are not to be seen."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], Any], Any]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub lists its names.

    Each name is loaded when it is first used. The error for an unknown one tells the nearest.
    """
    load, names_of_package, names = lazy_loader.attach_stub(package, file)
    public, by_lower = frozenset(names), {name.lower(): name for name in names}

    def get(name: str) -> Any:
        if name in public:
            return load(name)
        # Not for private names: the import system and inspect look for several that are absent.
        lower = "" if name.startswith("_") else name.lower()
        near = difflib.get_close_matches(lower, by_lower, n=1)
        hint = f": did you mean {by_lower[near[0]]}?" if near else ""
        raise AttributeError(f"{package} has no {name}{hint}")

    return get, names_of_package, names
