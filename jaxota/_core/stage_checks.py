"""Checks of stages: on entry that they offer their protocol, while tracing what they return.

Stages may be a user's own. What does not fit raises one line that names the field or method, what
it must be, and the protocol to read. The protocols are the rule: their properties and methods, and
the annotations of what these return. Compiled programs hold nothing of these checks.
"""

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxota import stages  # whose modules import this one, too
from jaxota._core.inputs import cast_fields, is_real, shown, whole
from jaxota._core.part import Memory, Scalar
from jaxota._core.schedule import at_round
from jaxota._core.state import PLANNED, State
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
    "algorithm.compress.rest": ("Compressor", "jo.Uncompressed()"),
    "algorithm.server": ("Server", "jo.ReplaceModel(), or an optax optimiser"),
    "algorithm.server.rest": ("Server", "jo.ReplaceModel()"),
    "algorithm.medium": ("Medium", "jo.OverTheAir()"),
    "channel.noise": ("Noise", "jo.Gaussian()"),
    "channel.fading": ("Fades", "jo.rayleigh()"),
    "channel.fading.law": ("Law", "that of jo.rayleigh()"),
    "channel.fading.answer": ("Answer", "jo.Inversion()"),
    "task": ("Task", "jo.tasks.synthetic_regression(...)"),
}


# --- On entry: is it a part, and does it offer what its stage asks? ---


def cast_stage(part: Any, path: str) -> Any:
    """Return a part with its numbers as arrays; InputError where a stage does not fit its place."""
    protocol, like = STAGES.get(path, ("", ""))
    if protocol:
        _check_part(path, part, protocol, like)
    part = cast_fields(part, path, cast_stage)
    if protocol:
        offers(path, at_round(part, 0), getattr(stages, protocol), like)
    return part


def _check_part(path: str, value: Any, protocol: str, like: str) -> None:
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
    absent = [name for name in members if values[name] is _MISSING]
    missing = [name for name in absent if not hasattr(members[name], "optional")]
    if missing:
        lacks = f"got {shown(value)}, which lacks {', '.join(missing)}"
        _refuse(f"{path} must be one such as {like}, {lacks}", kind)
    for name, member in members.items():
        if values[name] is _MISSING:
            continue
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


class Checked:
    """A stage in its place: its methods must return what their protocol declares."""

    def __init__(self, part: Any, path: str, protocol: type, problem: Any) -> None:
        self.part, self.path, self.protocol, self.problem = part, path, protocol, problem

    def __getattr__(self, name: str) -> Any:
        declared: Any = vars(self.protocol).get(name)
        if hasattr(declared, "optional") and not hasattr(self.part, name):
            member = functools.partial(declared, self.part)  # the protocol's own body
        else:
            member = getattr(self.part, name)
        if not inspect.isfunction(declared):
            return member
        signature = inspect.signature(declared)
        path = self.path if name == "__call__" else f"{self.path}.{name}"

        def checked_call(*arguments: Any) -> Any:
            call = _Call(self, name, signature.bind(self, *arguments).arguments)
            return call.cast(f"{path}(...)", member(*arguments), signature.return_annotation)

        return checked_call

    def __call__(self, *arguments: Any) -> Any:
        return self.__getattr__("__call__")(*arguments)

    def of(self, problem: Any) -> "Checked":
        """Return the same stage beside another problem, such as that of a cohort."""
        return Checked(self.part, self.path, self.protocol, problem)


class _Call(NamedTuple):
    """One call of a stage's method: checks its result, and casts numbers to float32."""

    stage: Checked
    method: str
    given: dict[str, Any]  # arguments, by their names in the protocol

    def cast(self, path: str, value: Any, declared: Any) -> Any:
        """Return `value`, in the place `path` of the result, as the annotation `declared` says."""
        origin, inner = get_origin(declared), get_args(declared)
        if declared is Any:
            return value
        if declared is Memory:
            return self.memory(path, value)
        if origin is types.UnionType:
            return self.optional(path, value, inner[0])
        if origin is tuple and isinstance(value, tuple | list) and len(value) == len(inner):
            places = [f"{path}[{number}]" for number in range(len(inner))]
            return tuple(map(self.cast, places, value, inner))
        if origin is dict and isinstance(value, dict):
            return {k: self.cast(f"{path}[{k!r}]", v, inner[1]) for k, v in value.items()}
        if getattr(declared, "_is_protocol", False):
            offers(path, value, declared, "the channel itself")
            return Checked(value, path, declared, self.stage.problem)
        if dataclasses.is_dataclass(declared):
            kinds = {field.name: field.type for field in dataclasses.fields(declared)}
            if all(hasattr(value, name) for name in (*kinds, "replace")):
                values = {k: (f"{path}.{k}", getattr(value, k), kinds[k]) for k in kinds}
                return value.replace(**{k: self.cast(*values[k]) for k in kinds})
        if hasattr(declared, "dim_str") and self.fits(value, declared.dim_str):
            return jnp.asarray(value, "float32")
        return self.refuse(path, value, _words(declared))

    def optional(self, path: str, value: Any, declared: Any) -> Any:
        """Return `value`, which may be None; controls are given exactly if the rule has them."""
        if self.method == "start" or path.endswith(".controls"):
            controlled = self.stage.controlled
            if controlled != (value is not None):
                wanted = _words(declared) if controlled else "None"
                self.refuse(path, value, f"{wanted}, as `controlled` is {controlled}")
        return None if value is None else self.cast(path, value, declared)

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes of axes by name, and the *shape that a call of `draw` asks for."""
        problem, shape, fresh = self.stage.problem, self.given.get("shape"), self.given.get("fresh")
        shape = shape if fresh is None else fresh.shape[1:]
        return {"user": problem.users, "d": problem.dim, "shape": shape}

    def fits(self, value: Any, axes: str) -> bool:
        """Return whether real numbers have these axes: of sizes in the text, known, or else any."""
        if not is_real(value, flags=True):
            return False
        shape, sizes = np.shape(value), self.sizes
        if axes == "*user":  # one number for all users, or one for each
            return shape in ((), (sizes["user"],))
        axes = axes.replace("*shape", " ".join(map(str, sizes["shape"] or ())))
        wanted = [int(axis) if axis.isdigit() else sizes.get(axis) for axis in axes.split()]
        pairs = zip(wanted, shape, strict=False)
        return len(wanted) == len(shape) and all(size in (None, actual) for size, actual in pairs)

    def memory(self, path: str, value: Any) -> Memory:
        """Return memory: alike before and after a call; before round 1 any pytree of arrays."""
        of_users = hasattr(self.stage.protocol, "remember")  # at the end of a round
        if self.method == "start":
            return jax.tree.map(lambda leaf: self.first_memory(path, leaf, of_users), value)
        if of_users and self.method != "remember":
            return value  # anything, of which `remember` makes memory
        (before,) = (self.given[k] for k in ("before", "memory", "state") if k in self.given)
        before = before.server if isinstance(before, State) else before
        return _alike(path, value, before, "memory like that of `start`", self.stage.protocol)

    def first_memory(self, path: str, leaf: Any, of_users: bool) -> Array:
        """Return an array of the memory before round 1; those of users begin with their axis."""
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            self.refuse(path, leaf, "memory, a pytree of arrays")
        if of_users and array.shape[:1] != (self.stage.problem.users,):
            self.refuse(path, leaf, "memory, arrays [user, …]")
        return array.astype("float32") if _is_float(array) else array

    def refuse(self, path: str, got: Any, wanted: str) -> NoReturn:
        named = set(re.findall(r"\w+", wanted))
        sizes = (f", {name} = {size}" for name, size in self.sizes.items() if name in named)
        _refuse_result(path, got, wanted + "".join(sizes), self.stage.protocol)


def _refuse_result(path: str, got: Any, wanted: str, protocol: type) -> NoReturn:
    verb = "return" if path.endswith("(...)") else "be"
    _refuse(f"{path} must {verb} {wanted}, got {_shapes(got)}", protocol.__name__)


def _words(declared: Any) -> str:
    """Say what an annotation means."""
    if declared is Memory:
        return "memory"
    if get_origin(declared) is tuple:
        return f"({', '.join(map(_words, get_args(declared)))})"
    if get_origin(declared) is types.UnionType:
        return f"{_words(get_args(declared)[0])} or None"
    if hasattr(declared, "dim_str"):
        return f"array [{declared.dim_str.replace(' ', ', ')}]".replace("[*user]", "[] or [user]")
    return "a dict" if get_origin(declared) is dict else f"a jo.{declared.__name__}"


def _alike(path: str, value: Any, model: Any, wanted: str, protocol: type) -> Any:
    """Return `value`, a pytree of the structure, shapes and types of `model`."""

    def leaf(new: Any, old: Any) -> Array:
        same = jnp.result_type(new) == jnp.result_type(old) or (_is_float(new) and _is_float(old))
        if not same or jnp.shape(new) != jnp.shape(old):
            raise TypeError
        return jnp.asarray(new, jnp.result_type(old))

    structures: list[Any] = [jax.tree.structure(tree) for tree in (value, model)]
    try:
        if structures[0] == structures[1]:
            return jax.tree.map(leaf, value, model)
    except (TypeError, ValueError):  # also of leaves that are no numbers
        pass
    _refuse_result(path, value, f"{wanted}, {_shapes(model)}", protocol)


def _is_float(value: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))


def _shapes(value: Any) -> str:
    """Show a value in a few words, its arrays by type and shape, such as float32[3,4]."""

    def leaf(x: Any) -> Any:
        return f"{x.dtype}{list(x.shape)}".replace(" ", "") if hasattr(x, "dtype") else x

    return shown(jax.tree.map(leaf, value)).replace("'", "")


# --- The stages of a run, each in its place ---


def checked(value: Any, path: str, problem: "Problem") -> Any:
    """Return `value`, an algorithm or a channel, with all of its stages checked."""
    changes = {}
    for field in dataclasses.fields(value):
        stage = f"{path}.{field.name}"
        if stage in STAGES:
            changes[field.name] = checked(getattr(value, field.name), stage, problem)
    value = value.replace(**changes) if changes else value
    if path not in STAGES:
        return value
    return Checked(value, path, getattr(stages, STAGES[path][0]), problem)


def problem(task: "Task", trial: Any, calibration: bool = False) -> "Problem":
    """Return the task's problem of this trial, or the part of it that is for calibration."""
    found = task.problem(trial)
    _check_problem("task.problem(...)", found, task)
    if calibration:
        found = found.head()
        _check_problem("task.problem(...).head()", found, task)
    return found


def _check_problem(path: str, problem: "Problem", task: "Task") -> None:
    offers(path, problem, stages.Problem, "those of jo.tasks")
    for name in ("users", "dim"):
        wanted, got = getattr(task, name), getattr(problem, name)
        if wanted != got:
            raise InputError(f"{path}.{name} must be that of the task, {wanted}, got {got}")


def checked_problem(problem: Any) -> Any:
    """Return `problem` with its initial model and its scores checked."""
    return Checked(problem, "task.problem(...)", stages.Problem, problem)


def state(leaves: Any, like: State) -> State:
    """Return the state with these leaves, which must be those of a state `like` that of a run."""
    named, structure = jax.tree_util.tree_flatten_with_path(like)
    if len(leaves) != len(named):
        raise InputError(
            f"state must be of the same algorithm and channel: it holds {len(leaves)} arrays, and "
            f"theirs has {len(named)}"
        )
    for got, (path, want) in zip(leaves, named, strict=True):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            raise InputError(
                f"state{jax.tree_util.keystr(path)} must be {_shapes(want)} in each trial, as the "
                f"algorithm and the task have it, got {_shapes(got)}"
            )
    return jax.tree.unflatten(structure, leaves)


def gradient(method: str, value: Any, model: Any) -> Any:
    """Return `value`, the gradient at `model` that a `method` of the problem returned."""
    path = f"task.problem(...).{method}(...)"
    return _alike(path, value, model, "a gradient", stages.Problem)


def check_scores(names: Iterable[str], by: str = "task") -> None:
    """Raise InputError at the first score without a name, or with that of another result."""
    for name in names:
        if not isinstance(name, str) or not name.strip() or "/" in name:
            raise InputError(f"{by} must name a score by words without /, got {name!r}")
        if name in DIMENSIONS or name in LABELS:
            taken = "as results and tables have that name: choose another"
            raise InputError(f"{by} must not name a score {name!r}, {taken}")


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
