"""The settings that a study sweeps: axes, their product, and how the command spells them."""

import ast
import dataclasses
import itertools
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jaxota
from jaxota._core import inputs as _validate
from jaxota.errors import InputError

_NO_LISTS = str, bytes, set, frozenset, type  # the order of a set is nobody's choice
Values: TypeAlias = Sequence[Any] | Mapping[str, Any] | np.ndarray | jax.Array


@dataclasses.dataclass(frozen=True)
class Axis:
    """A dimension of settings.

    Attributes:
        name: of the dimension: the field's, or "setting" where several fields go in step.
        fields: by the name of each field its values.
        labels: what each value is called.
    """

    name: str
    fields: dict[str, tuple[Any, ...]]
    labels: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def coordinates(self) -> dict[str, tuple[Any, ...]]:
        """What labels it: its own labels, and the values of fields in step where they are plain."""
        if tuple(self.fields) == (self.name,):
            return {self.name: self.labels}
        plain = {k: v for k, v in self.fields.items() if all(map(_is_plain, v))}
        return {self.name: self.labels, **plain}


@dataclasses.dataclass(frozen=True)
class Grid:
    """The product of axes.

    Attributes:
        axes: in the order of the dimensions of what comes out.
    """

    axes: tuple[Axis, ...] = ()

    def __mul__(self, other: "Grid") -> "Grid":
        _refuse_twice([axis.name for axis in (*self.axes, *other.axes)])
        return Grid((*self.axes, *other.axes))

    def followed(self, labels: dict[str, list[Any]]) -> "Grid":
        """The same with the values of each axis in the order of these labels, others behind.

        InputError where a label is not there any more.
        """
        return Grid(tuple(_followed(axis, labels[axis.name]) for axis in self.axes))


def grid(*in_step: Mapping[str, Values], **fields: Values) -> Grid:
    """The product of what is swept, for `sweep` and `Study`.

    Args:
        in_step: of several fields, as a dict, their values in step: one axis, called "setting".
        fields: by the name of a field its values, one axis each. A name is that of a field of
            algorithm, channel or task, such as `snr_db`, or, where that is not enough, its path,
            such as `**{"channel.power": [1, 2]}`. Values are numbers, whole parts, or a dict of
            them by their labels. Numbers that count (`users`, `steps`) are swept like those that
            multiply.
    """
    several = [_in_step(group, number) for number, group in enumerate(in_step)]
    axes = [*several, *(_axis(name, values) for name, values in fields.items())]
    _refuse_twice([axis.name for axis in axes])
    return Grid(tuple(axes))


def axis(name: str, fields: Mapping[str, Values], labels: Sequence[Any] | None = None) -> Grid:
    """One axis of several fields that change together, with a name of its own.

    Args:
        name: the name of the dimension of the results.
        fields: the values of each field, all of one length.
        labels: what the points of the axis are called; by default their numbers, from 0 on.

    Multiply it by other grids: `jo.axis("draw", {"task.key": keys}) * jo.grid(snr_db=[0, 10])`.
    """
    together = _in_step(fields, 0)
    chosen = together.labels if labels is None else tuple(labels)
    if len(chosen) != len(together) or len(set(chosen)) < len(chosen):
        raise InputError(
            f"labels must be {len(together)} different ones, as many as {name} has points, "
            f"got {_validate.shown(labels)}"
        )
    return Grid((Axis(name, together.fields, chosen),))


def _axis(name: str, values: Values) -> Axis:
    each, labels = _values(name, values)
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{name} must not hold a value twice, got {twice!r} again")
    return Axis(name, {name: each}, labels)


def _in_step(group: Mapping[str, Values], number: int) -> Axis:
    if not isinstance(group, Mapping) or not group:
        raise InputError(
            f"fields in step must be a dict of values by their names, got {_validate.shown(group)}"
        )
    fields = {name: _values(name, values)[0] for name, values in group.items()}
    lengths = {name: len(values) for name, values in fields.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"fields in step must be of one length, got {lengths}")
    name = "setting" if number == 0 else f"setting_{number + 1}"
    return Axis(name, fields, tuple(range(next(iter(lengths.values())))))


def _values(name: str, values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values of an axis, and their labels."""
    if isinstance(values, Mapping):
        each, labels = tuple(values.values()), tuple(map(str, values))
    elif not hasattr(values, "__len__") or isinstance(values, _NO_LISTS) or _is_one(values):
        raise InputError(
            f"{name} must be a list of values to sweep over, got {_validate.shown(values)}"
        )
    else:
        each = tuple(values)
        labels = tuple(_label(value, number) for number, value in enumerate(each))
    if not each:
        raise InputError(f"{name} must hold at least one value, got none")
    return each, labels


def _is_one(values: Any) -> bool:
    """Whether it is an array without axes, or a lone part."""
    return getattr(values, "ndim", 1) == 0 or dataclasses.is_dataclass(values)


def _label(value: Any, number: int) -> Any:
    """What a value is called: a number by itself, a part by how it is written."""
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if _is_scalar(value):
        # As short as it was meant: 0.1 and float32's 0.1 are one label.
        with np.errstate(over="ignore"):
            return float(np.format_float_positional(np.float32(value))) + 0.0
    if dataclasses.is_dataclass(value):
        return shown(value)
    return number  # of an array, or of a random key


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    """Whether it is one real number."""
    if isinstance(value, numbers.Real):
        return True
    kinds = jnp.floating, jnp.integer
    real = hasattr(value, "dtype") and any(jnp.issubdtype(value.dtype, kind) for kind in kinds)
    return real and value.ndim == 0


def shown(part: Any) -> str:
    """A part as one writes it: its class and what differs from the default."""
    words = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value) and type(value) is not type(field.default):
            words.append(shown(value))
        elif dataclasses.is_dataclass(value):
            inside = shown(value)
            words += [inside] if not inside.endswith("()") else []
        elif np.size(value) == 1 and value != field.default:
            number = value if isinstance(value, str | bool | int) else f"{float(value):g}"
            words.append(f"{field.name}={number}")
    if len(words) == 1 and "=" not in words[0].split("(")[0]:
        return words[0]  # of a part that only holds another: that
    return f"{type(part).__name__}({', '.join(words)})"


def _followed(axis: Axis, labels: list[Any]) -> Axis:
    for label in labels:
        if label not in axis.labels:
            raise InputError(f"{axis.name} holds {label!r} in the store, and not here")
    order = sorted(
        range(len(axis)),
        key=lambda i: labels.index(axis.labels[i]) if axis.labels[i] in labels else len(labels) + i,
    )
    fields = {name: tuple(values[i] for i in order) for name, values in axis.fields.items()}
    return Axis(axis.name, fields, tuple(axis.labels[i] for i in order))


def _refuse_twice(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} must be swept once, got it twice")


def points(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """All indices of a product, the last one fastest."""
    return list(itertools.product(*map(range, sizes)))


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
