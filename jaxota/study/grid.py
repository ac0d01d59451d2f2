"""The settings that a study sweeps: axes and their product."""

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxota._core import inputs
from jaxota.errors import InputError

_NO_LISTS = str, bytes, set, frozenset, type  # a set has no order
Values: TypeAlias = Sequence[Any] | Mapping[str, Any] | np.ndarray | jax.Array


@dataclasses.dataclass(frozen=True)
class Axis:
    """A dimension of settings.

    Attributes:
        name: the name of its field, or "setting" where several fields change together.
        fields: the values of each field.
        labels: the name of each point.
        paths: in a resolved study, the path of each field.
        traced: likewise, whether all values are numbers that one program takes.
    """

    name: str
    fields: dict[str, tuple[Any, ...]]
    labels: tuple[Any, ...]
    paths: tuple[str, ...] = ()
    traced: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def coordinates(self) -> dict[str, tuple[Any, ...]]:
        """The labels, and the values of fields that change together where they are plain."""
        coordinates = {self.name: self.labels}
        for name, values in self.fields.items():
            if all(isinstance(value, str) or _is_real(value) for value in values):
                coordinates.setdefault(name, values)
        return coordinates

    def renamed(self, taken: set[str]) -> "Axis":
        """Return the axis with the paths of the fields in place of names that are taken."""
        pairs = zip(self.fields, self.paths, strict=True)
        names = {name: path if name in taken else name for name, path in pairs}
        fields = {names[name]: values for name, values in self.fields.items()}
        return dataclasses.replace(self, name=names.get(self.name, self.name), fields=fields)

    def positions(self, labels: list[Any]) -> list[int]:
        """Return the places on the axis of these labels, which are as a store has them."""
        own = np.asarray(self.labels).tolist()  # a store holds labels of one type
        for label in labels:
            if label not in own:
                raise InputError(f"{self.name} holds {label!r} in the store, and not here")
        return [own.index(label) for label in labels]


@dataclasses.dataclass(frozen=True)
class Grid:
    """The product of axes.

    Attributes:
        axes: the axes, in the order of the dimensions of the results.
    """

    axes: tuple[Axis, ...] = ()

    def __mul__(self, other: "Grid") -> "Grid":
        taken = {axis.name for axis in self.axes}
        for axis in other.axes:
            if axis.name in taken:
                raise InputError(f"{axis.name} must be swept once, got it twice")
        return Grid((*self.axes, *other.axes))


def grid(*in_step: Mapping[str, Values], **fields: Values) -> Grid:
    """Return the Cartesian product of settings, for `sweep` and `Study`.

    Args:
        in_step: dicts of fields that change together: each is one axis, called "setting".
        fields: the values of each field, one axis each. A name is that of a field of algorithm,
            channel or task, such as `snr_db`, or, where that is ambiguous, its path, such as
            `**{"channel.power": [1, 2]}`. Values are numbers, parts, or a dict of them by their
            labels. Integers that set shapes (`users`, `steps`) can be swept like any number.
    """
    product = Grid()
    for number, group in enumerate(in_step, 1):
        product *= axis("setting" if number == 1 else f"setting_{number}", group)
    for name, values in fields.items():
        points, labels = _points(name, values)
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"{name} must not hold a value twice, got {label!r} again")
        product *= Grid((Axis(name, {name: points}, labels),))
    return product


def axis(name: str, fields: Mapping[str, Values], labels: Sequence[Any] | None = None) -> Grid:
    """Return one axis of several fields that change together, with a name of its own.

    Args:
        name: the name of the dimension of the results.
        fields: the values of each field, all of one length.
        labels: what the points of the axis are called; by default their numbers, from 0 on.

    Multiply it by other grids: `jo.axis("draw", {"task.key": keys}) * jo.grid(snr_db=[0, 10])`.
    """
    if not isinstance(fields, Mapping) or not fields:
        raise InputError(
            f"fields in step must be a dict of values by their names, got {inputs.shown(fields)}"
        )
    points = {field: _points(field, values)[0] for field, values in fields.items()}
    lengths = {field: len(values) for field, values in points.items()}
    count = next(iter(lengths.values()))
    if set(lengths.values()) != {count}:
        raise InputError(f"fields in step must be of one length, got {lengths}")
    chosen = tuple(range(count) if labels is None else labels)
    if len(chosen) != count or len(set(chosen)) < count:
        raise InputError(
            f"labels must be {count} different ones, as many as {name} has points, "
            f"got {inputs.shown(labels)}"
        )
    return Grid((Axis(name, points, chosen),))


def _points(name: str, values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the values of an axis, and their labels."""
    if isinstance(values, Mapping):
        points, labels = tuple(values.values()), tuple(map(str, values))
    elif (
        not hasattr(values, "__len__")
        or isinstance(values, _NO_LISTS)
        or getattr(values, "ndim", 1) == 0
        or dataclasses.is_dataclass(values)
    ):
        raise InputError(
            f"{name} must be a list of values to sweep over, got {inputs.shown(values)}"
        )
    else:
        points = tuple(values)
        labels = tuple(_label(value, number) for number, value in enumerate(points))
    if not points:
        raise InputError(f"{name} must hold at least one value, got none")
    return points, labels


def _label(value: Any, number: int) -> Any:
    """Return a number itself, a part as it is written, and the number of any other value."""
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if _is_real(value):
        # As short as it was meant: 0.1 and float32's 0.1 are one label.
        with np.errstate(over="ignore"):
            return float(np.format_float_positional(np.float32(value))) + 0.0
    return shown(value) if dataclasses.is_dataclass(value) else number


def _is_real(value: Any) -> bool:
    """Whether a value is one real number."""
    scalar = getattr(value, "ndim", None) == 0 and inputs.is_real(value)  # also bfloat16
    return scalar or isinstance(value, numbers.Real)


def shown(part: Any) -> str:
    """Return a part as one writes it: its class and what differs from the defaults."""
    words = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value):
            inside = shown(value)
            if type(value) is not type(field.default) or not inside.endswith("()"):
                words.append(inside)
        elif np.size(value) == 1 and value != field.default:
            plain = value is None or isinstance(value, str | bool | int)
            words.append(f"{field.name}={value if plain else f'{float(value):g}'}")
    if len(words) == 1 and "=" not in words[0].split("(")[0]:
        return words[0]  # a part that only holds another is called like that
    return f"{type(part).__name__}({', '.join(words)})"
