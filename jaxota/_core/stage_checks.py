"""Checks of stages: on entry that they offer their protocol, while tracing what they return.

Stages may be a user's own. What does not fit raises one line that names the field or method, what
it must be, and the protocol to read. Compiled programs hold nothing of these checks. This module
knows protocols by name, as the stages import it.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxota._core.inputs import is_real, shown, whole
from jaxota._core.part import Memory, Scalar
from jaxota._core.state import Moments
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, LABELS

if TYPE_CHECKING:
    from jaxota.tasks.problem import Problem, Task

# Every stage: its path, the name of its protocol, and an example for messages.
STAGES = {
    "algorithm.local": ("LocalRule", "jo.SGD(...)"),
    "algorithm.precode": ("Precoder", "jo.Online()"),
    "algorithm.estimate": ("Estimator", "jo.MMSE()"),
    "algorithm.compress": ("Compressor", "jo.Uncompressed()"),
    "algorithm.server": ("Server", "jo.ReplaceModel(), or an optax optimiser"),
    "algorithm.medium": ("Medium", "jo.OverTheAir()"),
    "channel.noise": ("Noise", "jo.Gaussian()"),
    "channel.fading": ("Fades", "jo.rayleigh()"),
    "channel.fading.law": ("Law", "that of jo.rayleigh()"),
    "channel.fading.answer": ("Answer", "jo.Inversion()"),
    "task": ("Task", "jo.tasks.synthetic_regression(...)"),
}
PLANNED = tuple(f.name for f in dataclasses.fields(Moments) if f.name != "peak")


# --- On entry: is it a part, and does it offer what its stage asks? ---


def is_part(path: str, value: Any, protocol: str, like: str) -> None:
    """Raise InputError unless `value` is a part."""
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
    """Raise InputError unless `value` has the members of `protocol`, of the right kind."""
    kind = protocol.__name__
    members = {k: v for k, v in vars(protocol).items() if k[0] != "_" or k == "__call__"}
    values = {name: getattr(value, name, _MISSING) for name in members}  # once: it may compute
    missing = [name for name in members if values[name] is _MISSING]
    if missing:
        lacks = f"got {shown(value)}, which lacks {', '.join(missing)}"
        _refuse(f"{path} must be one such as {like}, {lacks}", kind)
    for name, member in members.items():
        if isinstance(member, property):
            wanted = getattr(member.fget, "__annotations__", {})["return"]
            _check_value(f"{path}.{name}", values[name], wanted, kind)
        elif (type(value), kind) not in _fitting:
            _, *arguments = inspect.signature(member).parameters
            _check_signature(f"{path}.{name}", values[name], arguments, kind)
    if hasattr(value, "check"):
        _check_signature(f"{path}.check", value.check, ["path", "setting"], kind)
    _fitting.add((type(value), kind))


_MISSING = object()
_fitting = set[tuple[type, str]]()  # classes and protocols whose signatures were checked before


def _check_value(path: str, value: Any, kind: Any, protocol: str) -> None:
    if inspect.ismethod(value):
        _refuse(f"{path} must be a value, got a method: put @property before it", protocol)
    if kind is bool and not isinstance(value, bool | np.bool_):
        _refuse(f"{path} must be True or False, got {shown(value)}", protocol)
    if kind is int:
        whole(path, value, 1)
    if kind is Scalar and not is_real(value, flags=True):
        _refuse(f"{path} must be a number, got {shown(value)}", protocol)
    if kind == tuple[str, ...]:
        is_tuple = isinstance(value, tuple | list)
        bad = [name for name in (value if is_tuple else [value]) if name not in PLANNED]
        if bad or not is_tuple:
            allowed = f"must be a tuple of {', '.join(PLANNED)}, such as ('mean', 'var') or ()"
            _refuse(f"{path} {allowed}, got {shown(bad[0] if is_tuple else value)}", protocol)


def _check_signature(path: str, method: Any, arguments: list[str], protocol: str) -> None:
    wanted = f"{path} must be a method that takes ({', '.join(arguments)})"
    if not callable(method):
        _refuse(f"{wanted}, got {shown(method)}", protocol)
    try:
        signature = inspect.signature(method)
    except ValueError:  # a callable that does not tell
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        _refuse(f"{wanted}, got one that takes {signature}", protocol)


def _refuse(message: str, protocol: str) -> NoReturn:
    raise InputError(f"{message}; see jo.stages.{protocol}")


# --- While tracing: does a method return what its protocol says? ---

# What each method must return, as a message says it, and at once the rule: [axes] is an array of
# this shape, in which `user` and `d` have the problem's sizes and other names any size; [shape] is
# asked for by the call. Methods that are not listed may return anything.
LINK = "a jo.Link of heard, gain, amplification [user] and floor []"
UPDATE = "a jo.LocalUpdate of arrays [user, d]"
RETURNS = {
    "LocalRule": {"start": "(control [d], memory)", "__call__": UPDATE, "remember": "memory"},
    "Compressor": {
        "start": "memory",
        "report": "a dict of arrays [user]",
        "encode": "(values [user, s], memory)",
        "decode": "an average [d]",
        "remember": "memory",
    },
    "Precoder": {"energy": "an energy, [] or [user]"},
    "Fades": {"start": "memory", "links": "(link, link, memory)"},
    "Law": {"start": "memory", "draw": "(gains [shape], memory)"},
    "Answer": {"__call__": LINK},
    "Noise": {"draw": "draws of the shape [shape]"},
    "Medium": {"__call__": "a carrier"},
    "Carrier": {"start": "memory", "links": "(link, link, memory)"},
    "Estimator": {"start": "memory", "__call__": "(estimate [d], memory)"},
    "Server": {"start": "memory", "__call__": "(model [d], memory)", "output": "a model [d]"},
    "Problem": {"init": "a model [d]", "score": "a dict of numbers"},
}
# Number of the argument that holds the memory before the call. The memory after it is like it;
# that of `encode` may be anything, as `remember` makes memory of it.
BEFORE = {
    **{"LocalRule.remember": 0, "Compressor.remember": 0, "Estimator.__call__": 4},
    **{"Server.__call__": 1, "Law.draw": 2, "Fades.links": 2, "Carrier.links": 1},
}


class Checked:
    """A stage in its place: the results of its methods are checked by `RETURNS`."""

    def __init__(self, part: Any, path: str, protocol: str, problem: Any) -> None:
        self.part, self.path, self.protocol, self.problem = part, path, protocol, problem

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.part, name)
        if name not in RETURNS[self.protocol]:
            return member
        return lambda *arguments: Call(self, name, arguments).result(member(*arguments))

    def __call__(self, *arguments: Any) -> Any:
        return self.__getattr__("__call__")(*arguments)


class Call(NamedTuple):
    """One call of a stage's method: checks its result, and casts numbers to float32."""

    stage: Checked
    method: str
    arguments: tuple[Any, ...] = ()

    def result(self, value: Any) -> Any:
        wanted = RETURNS[self.stage.protocol][self.method]
        if self.method == "draw":
            shape = getattr(self.arguments[1], "shape", self.arguments[1])
            wanted = wanted.replace("[shape]", str(list(shape)))
        if self.stage.protocol == "LocalRule" and not self.stage.controlled:
            wanted = wanted.replace("control [d]", "None")
        if not wanted.startswith("("):
            return self.item(value, wanted, wanted)
        items = re.split(r", (?![^\[]*\])", wanted[1:-1])  # at the commas outside of brackets
        if not isinstance(value, tuple | list) or len(value) != len(items):
            self.refuse(value, wanted)
        return tuple(self.item(v, item, wanted) for v, item in zip(value, items, strict=True))

    def item(self, value: Any, item: str, wanted: str) -> Any:
        """Return one `item` of the result; the message says all that is `wanted`."""
        if item == "memory":
            return self.memory(value)
        if item in ("link", LINK):
            axes = {"heard": "[user]", "gain": "[user]", "amplification": "[user]", "floor": "[]"}
            return self.fields(value, LINK, axes)
        if item == UPDATE:
            return self.update(value)
        if item == "a carrier":
            return _carrier(f"{self.stage.path}(...)", value, self.stage.problem)
        if item.startswith("a dict"):
            return self.named(value, item)
        if item == "None" and value is None:
            return None
        return self.array(value, item, wanted)

    def array(self, value: Any, axes: str, wanted: str) -> Array:
        """Return `value` as float32 if it has one of the shapes in the text `axes`."""
        known = {"user": self.stage.problem.users, "d": self.stage.problem.dim}
        shapes = [shape.split(", ") if shape else [] for shape in re.findall(r"\[(.*?)\]", axes)]
        sizes = {name: known[name] for shape in shapes for name in shape if name in known}
        real = is_real(value, flags=True)
        if not real or not any(_fits(np.shape(value), shape, sizes) for shape in shapes):
            self.refuse(value, wanted, **sizes)
        return jnp.asarray(value, "float32")

    def named(self, value: Any, wanted: str) -> dict[str, Array]:
        if not isinstance(value, dict):
            self.refuse(value, wanted)
        axes = "[user]" if "[user]" in wanted else "[]"
        return {name: self.array(array, axes, wanted) for name, array in value.items()}

    def fields(self, value: Any, wanted: str, axes: dict[str, str]) -> Any:
        """Return `value`, a part with arrays of these `axes` in its fields."""
        if not all(hasattr(value, name) for name in (*axes, "replace")):
            self.refuse(value, wanted)
        arrays = {k: self.array(getattr(value, k), shape, wanted) for k, shape in axes.items()}
        return value.replace(**arrays)

    def update(self, value: Any) -> Any:
        names, controlled = ("update", "controls", "moved"), self.stage.controlled
        if not all(hasattr(value, name) for name in (*names, "memory", "reports")):
            self.refuse(value, UPDATE)
        if controlled != (value.controls is not None):
            which = "with" if controlled else "without"
            self.refuse(value, f"a jo.LocalUpdate {which} controls")
        axes = {k: "[user, d]" for k in names if k == "update" or getattr(value, k) is not None}
        reports = self.named(dict(value.reports or {}), "a dict of arrays [user]")
        return self.fields(value, UPDATE, axes).replace(reports=reports)

    def memory(self, value: Any) -> Memory:
        """Return memory: alike before and after a call; before round 1 any pytree of arrays."""
        before = BEFORE.get(f"{self.stage.protocol}.{self.method}")
        if before is not None:
            memory = self.arguments[before]
            memory = memory.server if self.stage.protocol == "Server" else memory
            return self.alike(value, memory, "memory as `start` does")
        return jax.tree.map(self.first_memory, value) if self.method == "start" else value

    def first_memory(self, leaf: Any) -> Array:
        """Return an array of the memory before round 1; those of users begin with their axis."""
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            self.refuse(leaf, "memory, a pytree of arrays")
        users = self.stage.problem.users
        if self.stage.protocol in ("LocalRule", "Compressor") and array.shape[:1] != (users,):
            self.refuse(leaf, "memory, arrays [user, …]", user=users)
        return array.astype("float32") if _is_float(array) else array

    def alike(self, value: Any, model: Any, wanted: str) -> Any:
        """Return `value`, a pytree of the structure, shapes and types of `model`."""
        pairs = zip(jax.tree.leaves(value), jax.tree.leaves(model), strict=False)
        structures: list[Any] = [jax.tree.structure(tree) for tree in (value, model)]
        if structures[0] != structures[1] or not all(_same_type(new, old) for new, old in pairs):
            self.refuse(value, f"{wanted}, {shown(_shapes(model))}")
        return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), value, model)

    def refuse(self, got: Any, wanted: str, **sizes: int) -> NoReturn:
        method = "" if self.method == "__call__" else f".{self.method}"
        where = "".join(f", {name} = {size}" for name, size in sizes.items())
        words = f"{self.stage.path}{method}(...) must return {wanted}{where}"
        _refuse(f"{words}, got {shown(_shapes(got))}", self.stage.protocol)


def checked(value: Any, path: str, problem: "Problem") -> Any:
    """Return `value`, an algorithm or a channel, with all of its stages checked."""
    changes = {}
    for field in dataclasses.fields(value):
        stage = f"{path}.{field.name}"
        if stage in STAGES:
            changes[field.name] = checked(getattr(value, field.name), stage, problem)
    value = value.replace(**changes) if changes else value
    return Checked(value, path, STAGES[path][0], problem) if path in STAGES else value


def problem(task: "Task", trial: Any) -> "Problem":
    """Return the task's problem of this trial."""
    return _fitting_problem("task.problem(...)", task.problem(trial), task)


def calibration_problem(task: "Task", trial: Any) -> "Problem":
    """Return the part of the trial's problem that is for calibration."""
    return _fitting_problem("task.problem(...).head()", problem(task, trial).head(), task)


def _fitting_problem(path: str, value: "Problem", task: "Task") -> "Problem":
    from jaxota.tasks.problem import Problem

    offers(path, value, Problem, "those of jo.tasks")
    for name in ("users", "dim"):
        wanted, got = getattr(task, name), getattr(value, name)
        if wanted != got:
            raise InputError(f"{path}.{name} must be that of the task, {wanted}, got {got}")
    return value


def checked_problem(problem: Any) -> Any:
    """Return `problem` with its initial model and its scores checked."""
    return Checked(problem, "task.problem(...)", "Problem", problem)


def gradient(method: str, value: Any, model: Any) -> Any:
    """Return `value`, the gradient at `model` that a `method` of the problem returned."""
    return Call(checked_problem(None), method).alike(value, model, "a gradient")


def check_scores(names: Iterable[str], by: str = "task") -> None:
    """Raise InputError at the first score without a name, or with that of another result."""
    for name in names:
        if not isinstance(name, str) or not name.strip() or "/" in name:
            raise InputError(f"{by} must name a score by words without /, got {name!r}")
        if name in DIMENSIONS or name in LABELS:
            taken = "as results and tables have that name: choose another"
            raise InputError(f"{by} must not name a score {name!r}, {taken}")


def _carrier(path: str, value: Any, problem: "Problem") -> Checked:
    from jaxota.stages import Carrier

    offers(path, value, Carrier, "the channel itself")
    return Checked(value, path, "Carrier", problem)


class Unplanned(NamedTuple):
    """Stands for the plan's row where no stage declared a need of one; reading it is an error."""

    def __getattr__(self, name: str) -> Any:
        if name not in (*PLANNED, "peak"):
            raise AttributeError(name)
        need = "energy" if name == "peak" else name
        raise InputError(
            f"block.moments.{name} must be asked for: `needs = ({need!r},)` in the class of the "
            "precoder or estimator that reads it"
        )


def _fits(shape: tuple[int, ...], axes: list[str], sizes: dict[str, int]) -> bool:
    """Return whether each axis has its size: a number in the text, a known one, or else any."""
    wanted = [int(axis) if axis.isdigit() else sizes.get(axis) for axis in axes]
    pairs = zip(wanted, shape, strict=False)
    return len(wanted) == len(shape) and all(size in (None, actual) for size, actual in pairs)


def _is_float(value: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))


def _same_type(new: Any, old: Any) -> bool:
    """Return whether shapes are equal, and types too or both floating-point."""
    try:
        same = jnp.result_type(new) == jnp.result_type(old) or (_is_float(new) and _is_float(old))
        return same and jnp.shape(new) == jnp.shape(old)
    except (TypeError, ValueError):
        return False


class _Shape:
    """Shape and type of an array in a message, such as float32[3,4]."""

    def __init__(self, array: Any) -> None:
        self.text = f"{array.dtype}{list(array.shape)}".replace(" ", "")

    def __repr__(self) -> str:
        return self.text


def _shapes(value: Any) -> Any:
    return jax.tree.map(lambda x: _Shape(x) if hasattr(x, "dtype") else x, value)
