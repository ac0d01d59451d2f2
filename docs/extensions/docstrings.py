"""Docstrings as they are written here, for autodoc.

Arguments and fields are a list of lines `name: what it is.`, or `name, other: …`, code stands in
single backticks, and stars and bars mean themselves. Sphinx is handed the same as reStructuredText:
a list of terms, links to what has a page of its own, and everything else escaped.
"""

import functools
import re

import jaxota

PACKAGES = ("", "tasks.", "theory.")
PLACES = (*PACKAGES, "stats.", "plots.", "stages.")


@functools.cache
def documented() -> set[str]:
    """Every public name, with its place."""
    found = set()
    for place in PLACES:
        module = functools.reduce(getattr, place.split(".")[:-1], jaxota)
        for name in dir(module):
            home = getattr(getattr(module, name), "__module__", None)
            if not name.startswith("_") and (place in PACKAGES or home == module.__name__):
                found.add(f"{place}{name}")
    return found


def code(text: str, place: str) -> str:
    """What stood in backticks: a link where it begins with a public name, else as it is."""
    name = re.match(r"(?:jo\.)?([\w.]*)", text)[1]
    for known in (f"{place}{name}", name, f"stages.{name}"):
        if known in documented() and known not in ("tasks", "theory", "stats", "plots", "stages"):
            return rf":py:obj:`{text} <jaxota.{known}>`"
    return f"``{text}``"


def escaped(text: str, place: str) -> str:
    """Text in which code is code, on one line, and no other mark means anything."""
    pieces = re.split(r"`([^`]+)`", text)
    pieces[::2] = [re.sub(r"([*|\\]|_\b(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
    # reStructuredText knows code by what surrounds it: a letter right after needs a stop.
    pieces[1::2] = [f"{code(' '.join(piece.split()), place)}\\ " for piece in pieces[1::2]]
    return "".join(pieces)


def listed(lines: list[str]) -> list[str]:
    """`name, other: what` with its indented lines as a list of terms, apart from what is around."""
    result, inside = [], False
    for line in lines:
        found = re.match(r"([a-z_][a-z_0-9]*(?:, [a-z_0-9]+)*): (\S.*)", line)
        if found:
            if not inside:
                result.append("")
            terms = ", ".join(f"``{name}``" for name in found[1].split(", "))
            said = re.sub(r"^(\w)\.", r"\1\.", found[2])  # `N.` would begin a numbered list
            result += [terms, f"    {said}"]
            inside = True
        else:
            if inside and line and not line.startswith(" "):
                result.append("")
            inside = inside and line.startswith(" ")
            result.append(line)
    return result


def process(app, what, name, thing, options, lines) -> None:
    """Called by autodoc with the lines of each docstring, to be changed in place."""
    place = next((p for p in PLACES[1:] if name.startswith(f"jaxota.{p}")), "")
    lines[:] = listed(escaped("\n".join(lines), place).split("\n"))


def plain(app, what, name, thing, options, signature, annotation):
    """Called by autodoc with each signature: functions among the defaults by what made them."""
    identity = r"(GradientTransformation\w*)?\((init=)?<function init_empty_state>, .*?update_fn>\)"
    return (re.sub(identity, "optax.identity()", signature), annotation) if signature else None


def setup(app):
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", plain)
    return {"parallel_read_safe": True}
