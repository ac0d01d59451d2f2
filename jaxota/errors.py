"""Errors that a user can correct; every other exception is a fault of jaxota."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """An argument is not allowed: one line that names it, and what it may be."""


def unknown_name(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a `name` that `module` lacks, with the nearest of the known names."""
    by_lower = {each.lower(): each for each in known}
    # Not for private names: the import system and inspect look for several that are absent.
    near = [] if name.startswith("_") else difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f": did you mean {by_lower[near[0]]}?" if near else ""
    return AttributeError(f"{module} has no {name}{hint}")
