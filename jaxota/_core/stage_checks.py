"""While a program is traced: every stage in its own place, and what it returns looked at.

A compiled program knows nothing of it. Each class here is named for the protocol of its stage.
"""

import dataclasses
import inspect
from typing import Any, ClassVar, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxota import stages
from jaxota._core.inputs import shown, whole
from jaxota._core.part import Memory, Scalar
from jaxota._core.state import Moments
from jaxota.errors import InputError
from jaxota.tasks.problem import Problem, Task


PLANNED = tuple(f.name for f in dataclasses.fields(Moments) if f.name != "peak")


def is_part(path: str, value: Any, protocol: type, like: str) -> None:
    """Refuse what is no part at all."""
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
    """Refuse a `value` that lacks what a stage must offer, or offers it otherwise."""
    members = _members(protocol)
    held = {name: getattr(value, name, _MISSING) for name in members}  # asked once: it may compute
    missing = [name for name in members if held[name] is _MISSING]
    if missing:
        lacks = f"got {shown(value)}, which lacks {', '.join(missing)}"
        _refuse(f"{path} must be one such as {like}, {lacks}", protocol)
    for name, member in members.items():
        if isinstance(member, property):
            wanted = (member.fget.__annotations__ or {})["return"]
            _check_value(f"{path}.{name}", held[name], wanted, protocol)
    if (type(value), protocol) not in _fitting:
        for name, member in members.items():
            if not isinstance(member, property):
                _, *names = inspect.signature(member).parameters
                _check_call(f"{path}.{name}", held[name], names, protocol)
        if hasattr(value, "check"):
            _check_call(f"{path}.check", value.check, ["path", "setting"], protocol)
        _fitting.add((type(value), protocol))


_MISSING = object()
_fitting = set[tuple[type, type]]()  # classes whose methods were found to take what they are given


def _members(protocol: type) -> dict[str, Any]:
    return {k: v for k, v in vars(protocol).items() if not k.startswith("_") or k == "__call__"}


def _check_value(path: str, value: Any, wanted: Any, protocol: type) -> None:
    if inspect.ismethod(value):
        _refuse(f"{path} must be a value, got a method: put @property before it", protocol)
    if wanted is bool and not isinstance(value, bool | np.bool_):
        _refuse(f"{path} must be True or False, got {shown(value)}", protocol)
    if wanted is int:
        whole(path, value, 1)
    if wanted is Scalar and not is_real(value):
        _refuse(f"{path} must be a number, got {shown(value)}", protocol)
    if wanted == tuple[str, ...]:
        names = value if isinstance(value, tuple | list) else [value]
        bad = [name for name in names if name not in PLANNED]
        if bad or names is not value:
            words = f"must be a tuple of {', '.join(PLANNED)}, such as ('mean', 'var') or ()"
            _refuse(f"{path} {words}, got {shown(bad[0] if names is value else value)}", protocol)


def is_real(value: Any) -> bool:
    """Whether it is a number or an array of them, not complex."""
    try:
        kind = jnp.result_type(value)
    except (TypeError, ValueError):
        return False
    real = kind == jnp.bool_, jnp.issubdtype(kind, jnp.integer), jnp.issubdtype(kind, jnp.floating)
    return value is not None and any(real)


def _check_call(path: str, method: Any, names: list[str], protocol: type) -> None:
    taken = f"{path} must be a method that takes ({', '.join(names)})"
    if not callable(method):
        _refuse(f"{taken}, got {shown(method)}", protocol)
    try:
        signature = inspect.signature(method)
    except ValueError:  # a callable that does not tell
        return
    try:
        signature.bind(*names)
    except TypeError:
        _refuse(f"{taken}, got one that takes {signature}", protocol)


def _refuse(words: str, protocol: type) -> NoReturn:
    raise InputError(f"{words}; see jo.stages.{protocol.__name__}")


class Method(NamedTuple):
    """A method of a stage, by its path, and the protocol that tells of it."""

    path: str
    protocol: str

    def refuse(self, wanted: str, got: Any, **sizes: int) -> NoReturn:
        where = "".join(f", {name} = {size}" for name, size in sizes.items())
        raise InputError(
            f"{self.path}(...) must return {wanted}{where}, got {shown(_brief(got))}; "
            f"see jo.stages.{self.protocol}"
        )

    def several(self, value: Any, wanted: str, count: int = 2) -> Any:
        """`value`, a tuple of so many."""
        if not isinstance(value, tuple | list) or len(value) != count:
            self.refuse(wanted, value)
        return value

    def array(self, value: Any, wanted: str, *shapes: tuple[int, ...], **sizes: int) -> Array:
        """`value` as float32, of one of these shapes."""
        if not is_real(value) or jnp.shape(value) not in shapes:
            self.refuse(wanted, value, **sizes)
        return jnp.asarray(value, "float32")

    def memory(self, value: Memory, users: int | None = None) -> Memory:
        """What is remembered before round 1: arrays, that begin with an axis of `users`."""

        def leaf(x: Any) -> Array:
            try:
                array = jnp.asarray(x)
            except (TypeError, ValueError):
                self.refuse("memory, a pytree of arrays", value)
            if users is not None and array.shape[:1] != (users,):
                self.refuse("memory, arrays [user, …]", value, user=users)
            return array.astype("float32") if _is_float(array) else array

        return jax.tree.map(leaf, value)

    def remembered(self, after: Memory, before: Memory) -> Memory:
        """What is remembered `after` a round, of the shapes that it had `before`."""
        return self.alike(after, before, "memory as `start` does")

    def alike(self, value: Any, model: Any, wanted: str) -> Any:
        """A pytree of the structure and shapes of `model`."""
        pairs = zip(jax.tree.leaves(value), jax.tree.leaves(model), strict=False)
        structures: list[Any] = [jax.tree.structure(each) for each in (value, model)]
        if structures[0] != structures[1] or not all(_follows(new, old) for new, old in pairs):
            self.refuse(f"{wanted}, {shown(_brief(model))}", value)
        return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), value, model)

    def reports(self, value: Any, users: int) -> dict[str, Array]:
        """Scalars [user] by their names."""
        wanted = "a dict of arrays [user]"
        if not isinstance(value, dict):
            self.refuse(wanted, value)
        return {k: self.array(v, wanted, (users,), user=users) for k, v in value.items()}

    def link(self, value: Any, users: int) -> Any:
        """A `Link`."""
        wanted = "a jo.Link of heard, gain, amplification [user] and floor []"
        names = ("heard", "gain", "amplification")
        if not all(hasattr(value, name) for name in (*names, "floor", "replace")):
            self.refuse(wanted, value)
        each = {k: self.array(getattr(value, k), wanted, (users,), user=users) for k in names}
        return value.replace(**each, floor=self.array(value.floor, wanted, ()))


def _is_float(value: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))


def _follows(new: Any, old: Any) -> bool:
    """Whether `new` has the shape of `old`, and its type, or both are of floating point."""
    try:
        same = jnp.result_type(new) == jnp.result_type(old) or (_is_float(new) and _is_float(old))
        return same and jnp.shape(new) == jnp.shape(old)
    except (TypeError, ValueError):
        return False


class _Brief:
    """An array in a message."""

    def __init__(self, array: Any) -> None:
        self.words = f"{array.dtype}{list(array.shape)}".replace(" ", "")

    def __repr__(self) -> str:
        return self.words


def _brief(value: Any) -> Any:
    return jax.tree.map(lambda x: _Brief(x) if hasattr(x, "dtype") else x, value)


def algorithm(value: Any, problem: Problem) -> Any:
    """An algorithm whose stages are watched."""
    kinds = {
        "local": LocalRule,
        "precode": Precoder,
        "estimate": Estimator,
        "compress": Compressor,
        "server": Server,
        "medium": Medium,
    }
    parts = {k: kind(getattr(value, k), f"algorithm.{k}", problem) for k, kind in kinds.items()}
    return value.replace(**parts)


def channel(value: Any, problem: Problem) -> Any:
    """A channel whose fading is watched, its law and its answer, too."""
    fading = getattr(value, "fading", None)
    if fading is None:
        return value
    if hasattr(fading, "law"):
        law = Law(fading.law, "channel.fading.law", problem)
        answer = Answer(fading.answer, "channel.fading.answer", problem)
        fading = fading.replace(law=law, answer=answer)
    return value.replace(fading=Fades(fading, "channel.fading", problem))


def problem(task: Task, trial: Any) -> Problem:
    """What a task gives for a trial."""
    return _of_task("task.problem(...)", task.problem(trial), task)


def head(task: Task, trial: Any) -> Problem:
    """What of it is for calibration."""
    return _of_task("task.problem(...).head()", problem(task, trial).head(), task)


def _of_task(path: str, value: Problem, task: Task) -> Problem:
    offers(path, value, Problem, "those of jo.tasks")
    for name in ("users", "dim"):
        if getattr(value, name) != getattr(task, name):
            got = f"{getattr(task, name)}, got {getattr(value, name)}"
            raise InputError(f"{path}.{name} must be that of the task, {got}")
    return value


def first(problem: Problem, key: PRNGKeyArray) -> Array:
    """The model that a problem starts from."""
    method, dim = Method("task.problem(...).init", "Problem"), problem.dim
    return method.array(problem.init(key), "a model [d]", (dim,), d=dim)


def score(problem: Problem, model: Array) -> dict[str, Array]:
    """What a problem says of a model."""
    method, wanted = (
        Method("task.problem(...).score", "Problem"),
        "a dict of numbers",
    )
    scores = problem.score(model)
    if not isinstance(scores, dict):
        method.refuse(wanted, scores)
    return {name: method.array(value, wanted, ()) for name, value in scores.items()}


class Unplanned(NamedTuple):
    """In the place of the plan's row where nobody needs one: `None` that says so if it is read."""

    def __getattr__(self, name: str) -> Any:
        if name not in (*PLANNED, "peak"):
            raise AttributeError(name)
        need = "energy" if name == "peak" else name
        raise InputError(
            f"block.moments.{name} must be asked for: `needs = ({need!r},)` in the class of the "
            "precoder or estimator that reads it"
        )


class Watched:
    """A part, its methods' results looked at."""

    protocol: ClassVar[Any]

    def __init__(self, part: Any, path: str, problem: Problem) -> None:
        self.part, self.path, self.problem = part, path, problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)

    def method(self, name: str = "") -> Method:
        return Method(self.path + name, self.protocol.__name__)

    def vector(self, name: str, value: Any, wanted: str) -> Array:
        dim = self.problem.dim
        return self.method(name).array(value, wanted, (dim,), d=dim)


class LocalRule(Watched):
    protocol = stages.LocalRule

    def start(self, *told: Any) -> tuple[Any, Memory]:
        wanted = f"({'control [d]' if self.controlled else 'None'}, memory)"
        method = self.method(".start")
        control, memory = method.several(self.part.start(*told), wanted)
        if self.controlled:
            control = self.vector(".start", control, wanted)
        elif control is not None:
            method.refuse(wanted, (control, memory))
        return control, method.memory(memory, self.problem.users)

    def __call__(self, *told: Any) -> Any:
        work, method, names = self.part(*told), self.method(), ("update", "controls", "moved")
        if not all(hasattr(work, name) for name in (*names, "memory", "reports", "replace")):
            method.refuse("a jo.LocalUpdate", work)
        arrays = {k: getattr(work, k) for k in names if getattr(work, k) is not None}
        if self.controlled != ("controls" in arrays):
            method.refuse(
                f"a jo.LocalUpdate {'with' if self.controlled else 'without'} controls", work
            )
        sizes = {"user": self.problem.users, "d": self.problem.dim}
        wanted, shape = "a jo.LocalUpdate of arrays [user, d]", tuple(sizes.values())
        arrays = {k: method.array(v, wanted, shape, **sizes) for k, v in arrays.items()}
        return work.replace(
            **arrays, reports=method.reports(dict(work.reports or {}), sizes["user"])
        )

    def remember(self, before: Memory, after: Memory, heard: Array) -> Memory:
        return self.method(".remember").remembered(self.part.remember(before, after, heard), before)


class Compressor(Watched):
    protocol = stages.Compressor

    def start(self, users: int, dim: int) -> Memory:
        return self.method(".start").memory(self.part.start(users, dim), users)

    def report(self, *told: Any) -> dict[str, Array]:
        return self.method(".report").reports(self.part.report(*told), self.problem.users)

    def encode(self, *told: Any) -> tuple[Array, Memory]:
        method, wanted = self.method(".encode"), "(values [user, s], memory)"
        values, memory = method.several(self.part.encode(*told), wanted)
        shape = self.problem.users, *getattr(values, "shape", ())[1:2]
        return method.array(values, wanted, shape, user=self.problem.users), memory

    def decode(self, *told: Any) -> Array:
        return self.vector(".decode", self.part.decode(*told), "an average [d]")

    remember = LocalRule.remember


class Precoder(Watched):
    protocol = stages.Precoder

    def energy(self, block: Any) -> Array:
        value, users = self.part.energy(block), self.problem.users
        wanted = "an energy, [] or [user]"
        return self.method(".energy").array(value, wanted, (), (users,), user=users)


class Estimator(Watched):
    protocol = stages.Estimator

    def start(self, *told: Any) -> Memory:
        return self.method(".start").memory(self.part.start(*told))

    def __call__(self, *told: Any) -> tuple[Array, Memory]:
        method, wanted = self.method(), "(estimate [d], memory)"
        estimate, memory = method.several(self.part(*told), wanted)
        return self.vector("", estimate, wanted), method.remembered(memory, told[-1])


class Server(Watched):
    protocol = stages.Server

    start = Estimator.start

    def __call__(self, seen: Any, state: Any) -> tuple[Array, Memory]:
        method, wanted = self.method(), "(model [d], memory)"
        model, memory = method.several(self.part(seen, state), wanted)
        return self.vector("", model, wanted), method.remembered(memory, state.server)

    def output(self, *told: Any) -> Array:
        return self.vector(".output", self.part.output(*told), "a model [d]")


class Law(Watched):
    protocol = stages.Law

    start = Estimator.start

    def draw(self, key: PRNGKeyArray, fresh: Array, memory: Memory) -> tuple[Array, Memory]:
        method, wanted = self.method(".draw"), f"(gains {list(fresh.shape)}, memory)"
        gains, after = method.several(self.part.draw(key, fresh, memory), wanted)
        return method.array(gains, wanted, fresh.shape), method.remembered(after, memory)


class Answer(Watched):
    protocol = stages.Answer

    def __call__(self, *told: Any) -> Any:
        return self.method().link(self.part(*told), self.problem.users)


class Fades(Watched):
    protocol: ClassVar[Any] = stages.Fades

    start = Estimator.start

    def links(self, *told: Any) -> Any:
        return self._links(self.part.links(*told), memory=told[2])

    def _links(self, value: Any, memory: Memory) -> Any:
        method, users = self.method(".links"), self.problem.users
        model, control, after = method.several(value, "(link, link, memory)", count=3)
        after = method.remembered(after, memory)
        return method.link(model, users), method.link(control, users), after


class Noise(Watched):
    protocol = stages.Noise

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        wanted = f"draws of the shape {list(shape)}"
        return self.method(".draw").array(self.part.draw(key, shape), wanted, shape)


class Carrier(Fades):
    protocol: ClassVar[Any] = stages.Carrier

    @property
    def noise(self) -> Noise:
        return Noise(self.part.noise, "channel.noise", self.problem)

    def links(self, *told: Any) -> Any:
        return self._links(self.part.links(*told), memory=told[1])


class Medium(Watched):
    protocol = stages.Medium

    def __call__(self, channel: Any) -> Carrier:
        path, carrier = f"{self.path}(...)", self.part(channel)
        offers(path, carrier, stages.Carrier, "the channel itself")
        return Carrier(carrier, path, self.problem)
