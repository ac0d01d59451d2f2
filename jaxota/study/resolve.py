"""A study's grid resolved to parts: settings of one structure form a group and share a program."""

import dataclasses
import difflib
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxota._core import arguments, inputs, stage_checks
from jaxota.calibration import noise_free
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, LABELS
from jaxota.study.grid import Axis, Grid, points
from jaxota.study.study import KEEP, Study


class Group(NamedTuple):
    """Settings that differ in traced numbers alone.

    Attributes:
        options: rounds and other static counts.
        structure: the tree of {"algorithms": (…), "channel": …, "task": …}.
        values: the leaves of that tree.
        axes: 0 for each leaf that has a row for each setting, None for the others.
        rules: the number of each algorithm's calibration, -1 if it needs none.
    """

    options: arguments.Options
    structure: Any
    values: list[Any]
    axes: tuple[int | None, ...]
    rules: tuple[int, ...]

    @property
    def parts(self) -> dict[str, Any]:
        """Algorithms, channel and task, of all settings at once."""
        return jax.tree.unflatten(self.structure, self.values)

    def rows(self, numbers: int | np.ndarray) -> list[Any]:
        """Return the leaves of one setting, or of several, by their numbers in the group."""
        return [
            v[numbers] if axis == 0 else v for v, axis in zip(self.values, self.axes, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A study, checked, and its settings by groups.

    Attributes:
        study: the study, whose axes have names of their own.
        axes: the axes of the grid.
        traced: whether each axis holds traced numbers alone, which one program takes.
        groups: the groups by their places on the other axes.
        scores: the names of all scores.
    """

    study: Study
    axes: tuple[Axis, ...]
    traced: tuple[bool, ...]
    groups: dict[tuple[int, ...], Group]
    scores: list[str]

    @property
    def traced_sizes(self) -> dict[str, int]:
        """The axes of traced numbers and their sizes."""
        return {a.name: len(a) for a, traced in zip(self.axes, self.traced, strict=True) if traced}

    @property
    def count(self) -> int:
        """The number of settings."""
        return math.prod(len(axis) for axis in self.axes)

    @property
    def programs(self) -> int:
        """The number of programs to compile, not counting calibrations."""
        groups = self.groups.values()
        shapes = ([(jnp.shape(v), v.dtype) for v in group.values] for group in groups)
        return len({(g.structure, g.axes, *s) for g, s in zip(groups, shapes, strict=True)})


class _Swept(NamedTuple):
    """An axis, the paths of its fields, and whether it holds traced numbers alone."""

    axis: Axis
    paths: dict[str, str]
    traced: bool


def resolve(study: Study, max_programs: int | None = None) -> Settings:
    """Check a study and build its settings; InputError at the first thing that does not fit.

    More structures than `max_programs` are refused before any is built.
    """
    study = _check_study(study)
    roots: list[tuple[str, Any]] = [("algorithm", a) for a in study.algorithms.values()]
    roots += [("channel", study.channel), ("task", study.task)]
    parts = {name: part for name, part in roots[-2:] if dataclasses.is_dataclass(part)}
    parts |= {f"algorithms[{label!r}]": a for label, a in study.algorithms.items()}
    arguments.refuse_swept(**parts)
    known: dict[str, Any] = {}
    for name, part in roots:
        known |= field_paths(part, name)
    swept = [_resolve_axis(axis, known) for axis in study.over.axes]
    paths = [path for each in swept for path in each.paths.values()]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{path} must be swept once, got it twice")
        if path == "algorithm":
            raise InputError("algorithm must not be swept: a study takes several by their labels")
    untraced = [each.axis for each in swept if not each.traced]
    _refuse_programs(study, untraced, max_programs)
    places = points([len(axis) for axis in untraced])
    groups = {place: _group(study, swept, place) for place in places}
    # Only tasks that are swept as a whole can differ in their scores, which take a while to trace.
    scored = list(groups.values())[: None if "task" in paths else 1]
    scores = list(dict.fromkeys(score for group in scored for score in _scores(group)))
    if study.metric and study.metric not in scores:
        raise InputError(
            f"metric must be one of the task's scores, {', '.join(scores)}, got {study.metric!r}"
        )
    axes = tuple(_rename(each, scores) for each in swept)
    study = study.replace(over=Grid(axes))
    return Settings(study, axes, tuple(each.traced for each in swept), groups, scores)


def _check_study(study: Study) -> Study:
    """Check the study's own choices and counts; its parts are checked group by group."""
    if not isinstance(study.over, Grid):
        raise InputError(f"over must be a jo.grid(...), got {inputs.shown(study.over)}")
    if not isinstance(study.algorithms, dict) or not study.algorithms:
        raise InputError("algorithms must be a dict of at least one algorithm by its label")
    for label, algorithm in study.algorithms.items():
        inputs.words("a label of algorithms", label)
        path = f"algorithms[{label!r}]" if label else "algorithm"
        arguments.check_algorithm(path, algorithm)
    if isinstance(study.channel, type) or isinstance(study.task, type):
        raise InputError("channel and task must be made, such as jo.Channel(), got a class")
    if not isinstance(study.keep, str) or study.keep not in KEEP:
        raise InputError(f"keep must be {' or '.join(KEEP)}, got {inputs.shown(study.keep)}")
    for name in ("reference", "metric", "name"):
        inputs.words(name, getattr(study, name))
    reference = study.reference or next(iter(study.algorithms))
    if reference not in study.algorithms:
        raise InputError(
            f"reference must be one of the algorithms, {', '.join(study.algorithms)}, "
            f"got {reference!r}"
        )
    names = "rounds", "every", "calibration_trials"
    counts = {name: inputs.whole(name, getattr(study, name), 1) for name in names}
    counts["trials"] = inputs.whole("trials", study.trials, 1, None)
    is_seed = not isinstance(study.key, jax.Array | np.ndarray)
    key = inputs.seed(study.key) if is_seed else inputs.key("key", study.key)
    return study.replace(reference=reference, key=key, **counts)


def _resolve_axis(axis: Axis, known: dict[str, Any]) -> _Swept:
    """Find the fields of an axis; integers in the place of random keys are seeds."""
    paths = {name: find_field(name, known) for name in axis.fields}
    fields = dict(axis.fields)
    for name, path in paths.items():
        if known[path] is not None and known[path].metadata.get("dtype") == "key":
            seeds = (
                jax.random.key(inputs.seed(v)) if isinstance(v, int) else v for v in fields[name]
            )
            fields[name] = tuple(seeds)
    values = [value for of_field in fields.values() for value in of_field]
    numeric = not any(
        v is None or isinstance(v, str) or dataclasses.is_dataclass(v) for v in values
    )
    traced = numeric and all(is_traced(known[path]) for path in paths.values())
    return _Swept(dataclasses.replace(axis, fields=fields), paths, traced)


def _rename(swept: _Swept, scores: list[str]) -> Axis:
    """Name a field by its path where a result has its name, such as `power`."""
    taken = {*scores, *(f"average_{score}" for score in scores), *DIMENSIONS, *LABELS}
    axis, paths, _ = swept
    names = {name: path if name in taken else name for name, path in paths.items()}
    fields = {names[name]: values for name, values in axis.fields.items()}
    return dataclasses.replace(axis, name=names.get(axis.name, axis.name), fields=fields)


def _refuse_programs(study: Study, untraced: list[Axis], most: int | None) -> None:
    """Refuse more programs than `most`: each integer or word is one, whatever else is swept."""
    count = math.prod(
        len(axis)
        for axis in untraced
        if not any(dataclasses.is_dataclass(v) for values in axis.fields.values() for v in values)
    )
    if most is not None and count > most:
        axes = " × ".join(f"{len(axis):,} {axis.name}" for axis in study.over.axes)
        raise InputError(f"{axes} would take {count:,} programs: more than --max-programs {most}")


def _group(study: Study, swept: list[_Swept], place: tuple[int, ...]) -> Group:
    """Build the group at one place on the untraced axes, with all settings of the traced ones."""
    parts: dict[tuple[str, str], Any] = {("algorithm", k): a for k, a in study.algorithms.items()}
    parts |= {("channel", ""): study.channel, ("task", ""): study.task}
    # A part is set before the fields inside it, so that neither undoes the other.
    for path, name, value in sorted(_changes(swept, place), key=lambda c: c[0].count(".")):
        if dataclasses.is_dataclass(value):
            arguments.refuse_swept(**{path: value})
        root = path.split(".")[0]
        holders = [key for key, part in parts.items() if key[0] == root and has_field(part, path)]
        if not holders:
            raise InputError(f"{name} must be a field in every setting, and in one there is none")
        parts |= {key: set_field(parts[key], path, value) for key in holders}
    *algorithms, channel, task = parts.values()
    built = task.build() if hasattr(task, "build") else task
    return _check_group(study, algorithms, channel, built)


def _changes(swept: list[_Swept], place: tuple[int, ...]) -> list[tuple[str, str, Any]]:
    """Return path, name and value of each swept field; traced ones have a row for each setting."""
    inner = points([len(each.axis) for each in swept if each.traced])
    outer, column = iter(place), itertools.count()
    changes = []
    for axis, paths, traced in swept:
        at = next(column if traced else outer)
        for name, path in paths.items():
            values = axis.fields[name]
            stacked = _stack(name, [values[point[at]] for point in inner]) if traced else values[at]
            changes.append((path, name, stacked))
    return changes


def _stack(name: str, values: list[Any]) -> Any:
    try:
        if any(hasattr(value, "dtype") for value in values):  # random keys are no NumPy arrays
            return jnp.stack([jnp.asarray(value) for value in values])
        return np.stack([np.asarray(value) for value in values])
    except (TypeError, ValueError):
        shown = inputs.shown(values)
        raise InputError(f"{name} must hold numbers of one shape, got {shown}") from None


def _check_group(study: Study, algorithms: list[Any], channel: Any, task: Any) -> Group:
    every = math.gcd(study.every, study.rounds)  # so that the last round is scored, too
    # Results go to a store chunk by chunk; more trials than an int32 counts fit nowhere.
    endless = study.trials > inputs.MOST
    counts = study.rounds, study.trials, study.calibration_trials
    workload = arguments.Workload(*counts, all_in_memory=endless)
    checked = [arguments.checked_setting(a, channel, task, workload, every) for a in algorithms]
    setting, options = checked[0]
    algorithms = [each.algorithm for each, _ in checked]
    named = [("algorithm", algorithm) for algorithm in algorithms]
    named += [("channel", setting.channel), ("task", setting.task)]
    extra = [axes for name, part in named for axes in inputs.extra_axes(part, name).values()]
    values, structure = jax.tree.flatten(
        {"algorithms": tuple(algorithms), "channel": setting.channel, "task": setting.task}
    )
    axes = tuple(0 if swept else None for swept in extra)
    options = options._replace(average_scores=True)
    return Group(options, structure, values, axes, _rules(algorithms))


def _rules(algorithms: list[Any]) -> tuple[int, ...]:
    """Number the calibrations: algorithms that are alike without noise share one."""
    rules: dict[Any, int] = {}
    numbers = []
    for algorithm in algorithms:
        leaves, structure = jax.tree.flatten(noise_free(algorithm))
        rule = structure, *(np.asarray(leaf).tobytes() for leaf in leaves)
        numbers.append(rules.setdefault(rule, len(rules)) if algorithm.needs else -1)
    return tuple(numbers)


def _scores(group: Group) -> list[str]:
    """Return the names of the task's scores."""

    def score(task: Any) -> dict[str, Any]:
        problem = task.problem(0)
        return problem.score(jnp.zeros(problem.dim, "float32"))

    task = jax.tree.unflatten(group.structure, group.rows(0))["task"]
    names = list(jax.eval_shape(score, task))
    stage_checks.check_scores(names)
    pairs = [(n, other) for n in names for other in (f"average_{n}", f"{n}_difference")]
    for name, other in pairs:
        if other in names:
            raise InputError(
                f"task must not name a score {other!r} beside {name!r}, as a study has that name "
                "for another result"
            )
    return names


def field_paths(part: Any, path: str) -> dict[str, dataclasses.Field[Any] | None]:
    """Return every field of a part, and of the parts inside it, by its path; None for the part."""
    paths: dict[str, dataclasses.Field[Any] | None] = {path: None}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            paths |= field_paths(getattr(part, field.name), f"{path}.{field.name}")
            paths[f"{path}.{field.name}"] = field
    return paths


def find_field(name: str, known: dict[str, dataclasses.Field[Any] | None]) -> str:
    """Return the path of a field; InputError with the nearest names, or with all candidates."""
    candidates = [path for path in known if path == name or path.endswith(f".{name}")]
    if name in candidates:
        return name
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise InputError(f"{name} must be spelled out, one of {', '.join(candidates)}")
    short = sorted({path.rsplit(".", 1)[-1] for path, field in known.items() if field})
    near = difflib.get_close_matches(name.rsplit(".", 1)[-1], short, n=3, cutoff=0.5)
    raise InputError(
        f"no field is called {name}: "
        + (f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(short)}")
    )


def is_traced(field: dataclasses.Field[Any] | None) -> bool:
    """Whether new values of a field are new numbers of the same program."""
    return field is not None and "rank" in field.metadata


def has_field(part: Any, path: str) -> bool:
    """Whether a part has the field at a path, whose first name is the part's own."""
    for name in path.split(".")[1:]:
        if not hasattr(part, name):
            return False
        part = getattr(part, name)
    return True


def set_field(part: Any, path: str, value: Any) -> Any:
    """Return the part with another value at a path; None is the default where that is a part."""
    _, *names = path.split(".")
    if not names:
        return value
    if len(names) > 1:
        value = set_field(getattr(part, names[0]), ".".join(names), value)
    elif value is None:
        default = next(f.default for f in dataclasses.fields(part) if f.name == names[0])
        value = default if dataclasses.is_dataclass(default) else None
    return dataclasses.replace(part, **{names[0]: value})
