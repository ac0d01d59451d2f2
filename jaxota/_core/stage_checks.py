"""While a program is traced: every stage in its own place, and what it returns looked at.

A compiled program knows nothing of it. Each class here is named for the protocol of its stage.
"""

from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, PRNGKeyArray

from jaxota import stages
from jaxota._core import offered as _offered
from jaxota._core.part import Memory
from jaxota._core.returned import Method
from jaxota.errors import InputError
from jaxota.tasks.problem import Problem, Task


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
    _offered.offers(path, value, Problem, "those of jo.tasks")
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
        if name not in (*_offered.PLANNED, "peak"):
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
        _offered.offers(path, carrier, stages.Carrier, "the channel itself")
        return Carrier(carrier, path, self.problem)
