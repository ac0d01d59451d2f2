"""Values that are typed on the command line: grids of settings, bytes, shards."""

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

import jaxota
from jaxota.errors import InputError
from jaxota.study.grid import Grid, grid

_WORDS = {"none": None, "inf": math.inf, "nan": math.nan, "true": True, "false": False}
MOST = 100_000  # values of one range


def parse_grid(settings: list[str], own: Mapping[str, Any] = {}) -> Grid:
    """Return the product of all `--set NAME=VALUES`; `own` are the names of a study's file."""
    product = Grid()
    for setting in settings:
        name, equals, values = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set must be NAME=VALUES, such as snr_db=-10:20:5, got {setting!r}")
        product *= grid(**{name.strip(): parse_values(name.strip(), values.strip(), own)})
    return product


def parse_values(name: str, text: str, own: Mapping[str, Any] = {}) -> list[Any]:
    """Parse `first:last:step`, the last included, or a list of numbers, words and parts.

    A part is made by its name, public or of the study's `own` file, and plain numbers:
    `rayleigh(0.3)`, `Online()`, `iid`.
    """
    if ":" in text and "(" not in text:
        return _parse_range(name, text)
    try:
        tree = ast.parse(f"({text},)", mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    if not isinstance(tree, ast.Tuple) or not text:
        raise InputError(
            f"--set {name} must be values such as 1,2,3 or first:last:step, got {text!r}"
        )
    return [_parse_value(name, node, own) for node in tree.elts]


def _parse_range(name: str, text: str) -> list[Any]:
    try:
        first, last, *more = map(float, text.split(":"))
        (step,) = more or [1.0]
    except ValueError:
        raise InputError(f"--set {name} must be first:last:step in numbers, got {text!r}") from None
    if step == 0 or (last - first) * step < 0:
        raise InputError(f"--set {name} must step from first to last, got {text!r}, which is empty")
    steps = (last - first) / step * (1 + 1e-9) + 1e-9  # 0:0.3:0.1 holds 0.3
    if not steps < MOST:
        raise InputError(f"--set {name} must hold at most {MOST} values, got {text!r}")
    values = [first + i * step for i in range(math.floor(steps) + 1)]
    whole = not any(letter in text for letter in ".eE")
    return [int(value) if whole else round(value, 12) for value in values]


def _parse_value(name: str, node: ast.AST, own: Mapping[str, Any]) -> Any:
    """Return a number, a word, or a part that is made by its name."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _parse_value(name, node.operand, own)
        if isinstance(value, int | float):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Name):
        if node.id.lower() in _WORDS:
            return _WORDS[node.id.lower()]
        if not _named(node.id, own):
            return node.id
        node = ast.Call(node, [], [])  # a part by its name alone
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        make = _named(node.func.id, own)
        if make:
            try:
                values = [_parse_value(name, value, own) for value in node.args]
                keywords = [k for k in node.keywords if k.arg]
                options = {str(k.arg): _parse_value(name, k.value, own) for k in keywords}
                return make(*values, **options)
            except TypeError as error:
                part = ast.unparse(node)
                raise InputError(f"--set {name}: {part} cannot be made: {error}") from None
    raise InputError(f"--set {name} must hold numbers, words or parts, got {ast.unparse(node)!r}")


def _named(name: str, own: Mapping[str, Any]) -> Any:
    """Return the function or class of a name, the file's own or public: no others are called."""
    from jaxota import tasks

    made = own.get(name)
    if callable(made) and not name.startswith("_"):
        return made
    for module in (jaxota, tasks):
        if name in dir(module) and not name.startswith("_") and callable(getattr(module, name)):
            return getattr(module, name)
    return None


def parse_bytes(option: str, text: str) -> int:
    """Parse a number of bytes: 4G, 500M, 2GiB."""
    number = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    match = re.fullmatch(rf"{number}\s*(?:([kKMGT])(i?))?B?", text.strip())
    count = 0.0
    if match:
        scale = 1024 if match[3] else 1000
        count = float(match[1]) * scale ** " KMGT".index((match[2] or " ").upper())
    if not 1 <= count < 2**62:
        raise InputError(f"{option} must be a number of bytes such as 500M or 4G, got {text!r}")
    return int(count)


def parse_shard(text: str) -> tuple[int, int]:
    """Parse I/N: every N-th chunk, from the I-th on, counted from 0."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    place, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not place < count:
        raise InputError(f"--shard must be I/N with I from 0 to N − 1, such as 0/4, got {text!r}")
    return place, count
