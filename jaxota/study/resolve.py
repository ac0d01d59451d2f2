"""The settings of a study: those of one structure are a group, and share a program."""

import dataclasses
import difflib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxota._core import arguments as _arguments
from jaxota._core import inputs
from jaxota._core import inputs as _validate
from jaxota.calibration import noise_free
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, LABELS, check_scores
from jaxota.study.grid import Axis, Grid, points
from jaxota.study.study import KEEP, Study


def field_paths(part: Any, path: str) -> dict[str, dataclasses.Field[Any] | None]:
    """Every field of a part and of the parts inside it, by its path; the part itself, too."""
    found: dict[str, dataclasses.Field[Any] | None] = {path: None}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            found |= field_paths(value, f"{path}.{field.name}")
            found[f"{path}.{field.name}"] = field
    return found


def find_field(name: str, known: dict[str, dataclasses.Field[Any] | None]) -> str:
    """The path that a name means; InputError with the nearest names, or with all it may mean."""
    meant = [path for path in known if path == name or path.endswith(f".{name}")]
    if name in meant or len(meant) == 1:
        return name if name in meant else meant[0]
    if meant:
        raise InputError(f"{name} must be spelled out, one of {', '.join(meant)}")
    short = sorted({path.rsplit(".", 1)[-1] for path, field in known.items() if field})
    near = difflib.get_close_matches(name.rsplit(".", 1)[-1], short, n=3, cutoff=0.5)
    raise InputError(
        f"no field is called {name}: "
        + (f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(short)}")
    )


def is_traced(field: dataclasses.Field[Any] | None) -> bool:
    """Whether new values are new numbers of one program: a traced field, not a part or a count."""
    return field is not None and "rank" in field.metadata


def has_field(part: Any, path: str) -> bool:
    """Whether a part has a field of this path; the first name of the path is the part's."""
    for name in path.split(".")[1:]:
        if not hasattr(part, name):
            return False
        part = getattr(part, name)
    return True


def set_field(part: Any, path: str, value: Any) -> Any:
    """`part` with a value at a path, None for a field's default if that is a part."""
    _, *names = path.split(".")
    if not names:
        return value
    inner = getattr(part, names[0])
    if len(names) > 1:
        return dataclasses.replace(part, **{names[0]: set_field(inner, ".".join(names), value)})
    default = next(f.default for f in dataclasses.fields(part) if f.name == names[0])
    if value is None and dataclasses.is_dataclass(default):
        value = default
    return dataclasses.replace(part, **{names[0]: value})


class Group(NamedTuple):
    """Settings that differ in numbers alone: `values` are the leaves of their parts."""

    options: _arguments.Options
    structure: Any  # of {"algorithms": (…), "channel": …, "task": …}
    values: list[Any]
    axes: tuple[int | None, ...]  # 0 where a leaf has a row for each of the group's settings
    rules: tuple[int, ...]  # of each algorithm the number of its calibration, -1 if it needs none

    @property
    def parts(self) -> dict[str, Any]:
        """Algorithms, channel and task, of all settings at once."""
        return jax.tree.unflatten(self.structure, self.values)

    def rows(self, chosen: np.ndarray) -> list[Any]:
        """The leaves of the settings of these numbers."""
        return [
            v[chosen] if axis == 0 else v for v, axis in zip(self.values, self.axes, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A study, checked and cast.

    Attributes:
        axes: what is swept, in the order of dimensions.
        swept: of each axis whether it is of numbers that one program takes.
        groups: by the indices along the other axes.
        scores: the names of all scores.
    """

    study: Study
    axes: tuple[Axis, ...]
    swept: tuple[bool, ...]
    groups: dict[tuple[int, ...], Group]
    scores: list[str]

    @property
    def swept_sizes(self) -> dict[str, int]:
        """The axes of numbers and their sizes."""
        return {a.name: len(a) for a, swept in zip(self.axes, self.swept, strict=True) if swept}

    @property
    def count(self) -> int:
        """How many settings there are."""
        return math.prod(len(axis) for axis in self.axes)

    @property
    def programs(self) -> int:
        """How many programs there are to compile, calibration aside."""
        return len({(g.structure, g.axes, *_shapes(g.values)) for g in self.groups.values()})


def enter(study: Study, most_programs: int | None = None) -> Settings:
    """A study's settings; InputError at the first thing that does not fit.

    Before any is made, more structures than `most_programs` are refused.
    """
    study = _checked(study)
    parts = {"channel": study.channel, "task": study.task}
    _arguments.refuse_swept(
        **{k: v for k, v in parts.items() if dataclasses.is_dataclass(v)},
        **{f"algorithms[{label!r}]": a for label, a in study.algorithms.items()},
    )
    known: dict[str, Any] = {}
    for algorithm in study.algorithms.values():
        known |= field_paths(algorithm, "algorithm")
    for name, part in parts.items():
        known |= field_paths(part, name)
    found = [{name: find_field(name, known) for name in axis.fields} for axis in study.over.axes]
    _refuse_senseless([path for of in found for path in of.values()])
    swept = tuple(
        all(is_traced(known[path]) for path in of.values())
        and all(_numeric(v) for values in axis.fields.values() for v in values)
        for axis, of in zip(study.over.axes, found, strict=True)
    )
    study = study.replace(over=_seeded(study.over, found, known))
    axes = tuple(zip(study.over.axes, found, strict=True))
    outer = [axis for axis, numbers in zip(axes, swept, strict=True) if not numbers]
    inner = [axis for axis, numbers in zip(axes, swept, strict=True) if numbers]
    _refuse_programs(study, [axis for axis, _ in outer], most_programs)
    groups = {
        place: _group(study, outer, inner, place) for place in points([len(a) for a, _ in outer])
    }
    # Of one group, as it takes a while, unless tasks as a whole are swept.
    few = list(groups.values())[: None if any("task" in of.values() for of in found) else 1]
    scores = list(dict.fromkeys(score for group in few for score in _scores(group)))
    study = study.replace(over=_spelled_out(study.over, found, scores))
    if study.metric and study.metric not in scores:
        raise InputError(
            f"metric must be one of the task's scores, {', '.join(scores)}, got {study.metric!r}"
        )
    return Settings(study, study.over.axes, swept, groups, scores)


def _spelled_out(over: Grid, found: list[dict[str, str]], scores: list[str]) -> Grid:
    """A field that has the name of a result goes by its path: `power` is a result."""
    taken = {*scores, *(f"average_{k}" for k in scores), *DIMENSIONS, *LABELS}

    def told(name: str, path: str) -> str:
        return path if name in taken else name

    axes = [
        dataclasses.replace(
            axis,
            name=told(axis.name, of[axis.name]) if axis.name in of else axis.name,
            fields={told(name, of[name]): values for name, values in axis.fields.items()},
        )
        for axis, of in zip(over.axes, found, strict=True)
    ]
    return Grid(tuple(axes))


def _seeded(over: Grid, found: list[dict[str, str]], known: dict[str, Any]) -> Grid:
    """Whole numbers in the place of random keys are seeds."""

    def values(path: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        field = known[path]
        if field is None or field.metadata.get("dtype") != "key":
            return given
        return tuple(jax.random.key(_validate.seed(v)) if isinstance(v, int) else v for v in given)

    axes = [
        dataclasses.replace(axis, fields={k: values(of[k], v) for k, v in axis.fields.items()})
        for axis, of in zip(over.axes, found, strict=True)
    ]
    return Grid(tuple(axes))


def _refuse_programs(study: Study, outer: list[Axis], most: int | None) -> None:
    """Numbers that count and words are a program each, whatever else is swept."""
    distinct = [
        axis
        for axis in outer
        if not any(dataclasses.is_dataclass(v) for values in axis.fields.values() for v in values)
    ]
    count = math.prod(len(axis) for axis in distinct)
    if most is not None and count > most:
        axes = " × ".join(f"{len(axis):,} {axis.name}" for axis in study.over.axes)
        raise InputError(f"{axes} would take {count:,} programs: more than --max-programs {most}")


def _refuse_senseless(paths: list[str]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{path} must be swept once, got it twice")
        if path == "algorithm":
            raise InputError("algorithm must not be swept: a study takes several by their labels")


def _checked(study: Study) -> Study:
    """The study itself, its choices and counts."""
    if not isinstance(study.over, Grid):
        raise InputError(f"over must be a jo.grid(...), got {_validate.shown(study.over)}")
    if not isinstance(study.algorithms, dict) or not study.algorithms:
        raise InputError("algorithms must be a dict of at least one algorithm by its label")
    for label, algorithm in study.algorithms.items():
        _validate.words("a label of algorithms", label)
        path = f"algorithms[{label!r}]" if label else "algorithm"
        _arguments.check_algorithm(path, algorithm)
    if isinstance(study.channel, type) or isinstance(study.task, type):
        raise InputError("channel and task must be made, such as jo.Channel(), got a class")
    if not isinstance(study.keep, str) or study.keep not in KEEP:
        raise InputError(f"keep must be {' or '.join(KEEP)}, got {_validate.shown(study.keep)}")
    for name in ("reference", "metric", "name"):
        _validate.words(name, getattr(study, name))
    reference = study.reference or next(iter(study.algorithms))
    if reference not in study.algorithms:
        raise InputError(
            f"reference must be one of the algorithms, {', '.join(study.algorithms)}, "
            f"got {reference!r}"
        )
    counts = {
        name: _validate.whole(name, getattr(study, name), 1)
        for name in ("rounds", "every", "calibration_trials")
    }
    counts["trials"] = _validate.whole("trials", study.trials, 1, None)
    is_seed = not isinstance(study.key, jax.Array | np.ndarray)
    key = _validate.seed(study.key) if is_seed else _validate.key("key", study.key)
    return study.replace(reference=reference, key=key, **counts)


def _numeric(value: Any) -> bool:
    return not dataclasses.is_dataclass(value) and value is not None and not isinstance(value, str)


def _group(study: Study, outer: Any, inner: Any, place: tuple[int, ...]) -> Group:
    """The settings at one place of the outer axes."""
    parts = {"channel": study.channel, "task": study.task}
    algorithms = dict(study.algorithms)
    flat = points([len(axis) for axis, _ in inner])
    chosen: list[Any] = [(axis, of, (i,)) for (axis, of), i in zip(outer, place, strict=True)]
    chosen += [(axis, of, [p[k] for p in flat]) for k, (axis, of) in enumerate(inner)]
    # A part before what is inside it, so that neither undoes the other.
    swept = [
        (of[name], name, axis.fields[name], numbers) for axis, of, numbers in chosen for name in of
    ]
    for path, name, every, numbers in sorted(swept, key=lambda each: each[0].count(".")):
        values = [every[i] for i in numbers]
        value = _stacked(name, values) if isinstance(numbers, list) else values[0]
        if dataclasses.is_dataclass(value):
            _arguments.refuse_swept(**{path: value})
        first = path.split(".")[0]
        holders = algorithms if first == "algorithm" else {first: parts[first]}
        able = {k: part for k, part in holders.items() if has_field(part, path)}
        if not able:
            raise InputError(f"{name} must be a field in every setting, and in one there is none")
        changed = {k: set_field(part, path, value) for k, part in able.items()}
        if first == "algorithm":
            algorithms |= changed
        else:
            parts |= changed
    task = parts["task"]
    parts["task"] = task.build() if hasattr(task, "build") else task
    return _entered(study, algorithms, **parts)


def _stacked(name: str, values: list[Any]) -> Any:
    """One row for each setting."""
    try:
        if any(hasattr(value, "dtype") for value in values):  # random keys are of JAX alone
            return jnp.stack([jnp.asarray(value) for value in values])
        return np.stack([np.asarray(value) for value in values])
    except (TypeError, ValueError):
        got = _validate.shown(values)
        raise InputError(f"{name} must hold numbers of one shape, got {got}") from None


def _entered(study: Study, algorithms: dict[str, Any], channel: Any, task: Any) -> Group:
    every = math.gcd(study.every, study.rounds)  # the last round is scored, whatever their number
    endless = (
        study.trials > _validate.MOST
    )  # more than can be numbered, and so more than can be kept
    asked = _arguments.Workload(
        study.rounds, study.trials, study.calibration_trials, all_in_memory=endless
    )
    entered = [
        _arguments.checked_setting(algorithm, channel, task, asked, every)
        for algorithm in algorithms.values()
    ]
    setting, options = entered[0]
    checked = tuple(each.algorithm for each, _ in entered)
    parts = {"algorithms": checked, "channel": setting.channel, "task": setting.task}
    extra = [
        inputs.extra_axes(part, name)
        for name, part in (
            *(("algorithm", algorithm) for algorithm in checked),
            *(("channel", parts["channel"]), ("task", parts["task"])),
        )
    ]
    axes = tuple(0 if more else None for each in extra for more in each.values())
    values, structure = jax.tree.flatten(parts)
    options = options._replace(average_scores=True)
    return Group(options, structure, values, axes, _rules(checked))


def _rules(algorithms: tuple[Any, ...]) -> tuple[int, ...]:
    """Of each algorithm the number of its rule: those alike without noise share a calibration."""
    rules = []
    for algorithm in algorithms:
        leaves, structure = jax.tree.flatten(noise_free(algorithm))
        rules.append((structure, *(np.asarray(leaf).tobytes() for leaf in leaves)))
    distinct = list(dict.fromkeys(r for r, a in zip(rules, algorithms, strict=True) if a.needs))
    return tuple(
        distinct.index(rule) if algorithm.needs else -1
        for rule, algorithm in zip(rules, algorithms, strict=True)
    )


def _scores(group: Group) -> list[str]:
    """The names of a task's scores."""
    task = group.parts["task"]
    leaves, structure = jax.tree.flatten(task)
    extra = inputs.extra_axes(task, "task").values()
    one = [v[0] if more else v for v, more in zip(leaves, extra, strict=True)]

    def score(leaves: list[Any]) -> dict[str, Any]:
        problem = jax.tree.unflatten(structure, leaves).problem(0)
        return problem.score(jnp.zeros(problem.dim, "float32"))

    names = list(jax.eval_shape(score, one))
    check_scores(names)
    for name in names:
        for other in (f"average_{name}", f"{name}_difference"):
            if other in names:
                raise InputError(
                    f"task must not name a score {other!r} beside {name!r}, as a study has that "
                    "name for another result"
                )
    return names


def _shapes(values: list[Any]) -> list[Any]:
    return [(jnp.shape(value), value.dtype) for value in values]
