"""What is typed after `--set`, `--memory` and `--shard`, as values."""

import ast
import math
import re
from typing import Any

import jaxota
from jaxota.errors import InputError
from jaxota.study.grids import Grid, grid

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::({_NUMBER}))?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{u}i": 2 ** (10 * n) for n, u in enumerate("kMGT", 1)} | {"Ki": 2**10}
MOST = 100_000  # values of one range


def parse_grid(words: list[str]) -> Grid:
    """The product of all that was set: `name=values`, once for each axis."""
    whole = Grid()
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set must be NAME=VALUES, such as snr_db=-10:20:5, got {word!r}")
        whole = whole * grid(**{name.strip(): parse_values(name.strip(), values.strip())})
    return whole


def parse_values(name: str, text: str) -> list[Any]:
    """first:last:step, the last included, or a list: numbers, words, or parts as Python has them.

    A part is made by its public name and plain numbers: `rayleigh(0.3)`, `Online()`, `iid`.
    """
    if ":" in text and "(" not in text:
        return _range(name, text)
    try:
        tree = ast.parse(f"({text},)", mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    if not isinstance(tree, ast.Tuple) or not text:
        raise InputError(
            f"--set {name} must be values such as 1,2,3 or first:last:step, got {text!r}"
        )
    return [_value(name, each) for each in tree.elts]


def _range(name: str, text: str) -> list[Any]:
    match = _RANGE.fullmatch(text.replace(" ", ""))
    if not match:
        raise InputError(f"--set {name} must be first:last:step in numbers, got {text!r}")
    first, last, step = (float(x) if x else 1.0 for x in match.groups())
    if step == 0 or (last - first) * step < 0:
        raise InputError(f"--set {name} must step from first to last, got {text!r}, which is empty")
    between = (last - first) / step * (1 + 1e-9) + 1e-9
    if not between < MOST:
        raise InputError(f"--set {name} must hold at most {MOST} values, got {text!r}")
    count = math.floor(between) + 1
    whole = all(re.fullmatch(r"[+-]?\d+", x) for x in match.groups() if x)
    return [int(first + i * step) if whole else round(first + i * step, 12) for i in range(count)]


def _value(name: str, node: ast.AST) -> Any:
    """A number, a word, or a part made by its public name."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(name, node.operand)
        if isinstance(value, int | float):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Name):
        return _word(name, node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        make = _maker(node.func.id)
        if make is not None:
            return _made(name, make, node)
    raise InputError(f"--set {name} must hold numbers, words or parts, got {ast.unparse(node)!r}")


def _word(name: str, word: str) -> Any:
    if word.lower() in ("none", "inf", "nan", "true", "false"):
        known = {"none": None, "inf": math.inf, "nan": math.nan, "true": True, "false": False}
        return known[word.lower()]
    make = _maker(word)
    return _made(name, make, ast.Call(ast.Name(word), [], [])) if make is not None else word


def _maker(word: str) -> Any:
    """The public function or class of a name: no other can be called from here."""
    from jaxota import tasks

    for place, names in ((jaxota, dir(jaxota)), (tasks, dir(tasks))):
        if word in names and not word.startswith("_") and callable(getattr(place, word)):
            return getattr(place, word)
    return None


def _made(name: str, make: Any, node: ast.Call) -> Any:
    try:
        values = [_value(name, each) for each in node.args]
        options = {k.arg: _value(name, k.value) for k in node.keywords if k.arg}
        return make(*values, **options)
    except TypeError as error:
        raise InputError(f"--set {name}: {ast.unparse(node)} cannot be made: {error}") from None


def parse_bytes(option: str, text: str) -> int:
    """4G, 500M, 2GiB."""
    match = re.fullmatch(rf"({_NUMBER})\s*([kKMGT]i?|)B?", text.strip())
    count = float(match[1]) * _UNITS[match[2] if match[2] != "K" else "k"] if match else 0.0
    if not match or not 1 <= count < 2**62:
        raise InputError(f"{option} must be a number of bytes such as 500M or 4G, got {text!r}")
    return int(count)


def parse_shard(text: str) -> tuple[int, int]:
    """I/N: the I-th of N, from 0."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    place, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not place < of:
        raise InputError(f"--shard must be I/N with I from 0 to N − 1, such as 0/4, got {text!r}")
    return place, of
