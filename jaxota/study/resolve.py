"""A study's grid resolved to parts: settings of one structure form a group and share a program."""

import dataclasses
import difflib
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxota._core import arguments, inputs, stage_checks
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS, LABELS
from jaxota.study.grid import Axis, Grid
from jaxota.study.study import KEEP, Study


class Group(NamedTuple):
    """Settings that differ in traced numbers alone.

    Attributes:
        options: rounds and other static counts.
        parts: {"algorithms": (…), "channel": …, "task": …}, of all settings at once.
        axes: for each leaf of the parts, 0 if it has a row for each setting, else None.
    """

    options: arguments.Options
    parts: dict[str, Any]
    axes: tuple[int | None, ...]

    @property
    def steps(self) -> int:
        """The users' local steps of all algorithms in one trial of a setting."""
        steps = sum(algorithm.local.steps for algorithm in self.parts["algorithms"])
        return self.parts["task"].users * steps * self.options.rounds

    def rows(self, numbers: int | np.ndarray) -> dict[str, Any]:
        """Return the parts of one setting, or of several, by their numbers in the group."""
        leaves, structure = jax.tree.flatten(self.parts)
        pairs = zip(leaves, self.axes, strict=True)
        rows = [leaf[numbers] if axis == 0 else leaf for leaf, axis in pairs]
        return jax.tree.unflatten(structure, rows)


def shapes(values: Any) -> tuple[Any, ...]:
    """Return the structure of a tree with shapes and types of its leaves: programs differ by it."""
    leaves, structure = jax.tree.flatten(values)
    return structure, *((jnp.shape(leaf), leaf.dtype) for leaf in leaves)


@dataclasses.dataclass(frozen=True)
class Settings:
    """A study, checked, and its settings by groups.

    Attributes:
        study: the study, whose axes know their paths and have names of their own.
        groups: the groups by their places on the axes that are not traced.
        scores: the names of all scores.
    """

    study: Study
    groups: dict[tuple[int, ...], Group]
    scores: list[str]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the grid."""
        return self.study.over.axes

    @property
    def traced_sizes(self) -> dict[str, int]:
        """The axes of traced numbers and their sizes."""
        return {axis.name: len(axis) for axis in self.axes if axis.traced}

    @property
    def count(self) -> int:
        """The number of settings."""
        return math.prod(map(len, self.axes))

    @property
    def programs(self) -> int:
        """The number of programs to compile, not counting calibrations."""
        return len({(group.axes, *shapes(group.parts)) for group in self.groups.values()})


def resolve(study: Study, max_programs: int | None = None) -> Settings:
    """Check a study and build its settings; InputError at the first thing that does not fit.

    More structures than `max_programs` are refused before any is built.
    """
    study = _check_study(study)
    known: dict[str, Any] = {}
    for root, part in _parts(study):
        known |= field_paths(part, root)
    axes = [_resolve_axis(axis, known) for axis in study.over.axes]
    paths = [path for axis in axes for path in axis.paths]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{path} must be swept once, got it twice")
        if path == "algorithm":
            raise InputError("algorithm must not be swept: a study takes several by their labels")
    _refuse_programs(axes, max_programs)
    places = itertools.product(*(range(len(axis)) for axis in axes if not axis.traced))
    groups = {place: _group(study, axes, place) for place in places}
    # Only tasks that are swept as a whole can differ in their scores, which take a while to trace.
    scored = list(groups.values())[: None if "task" in paths else 1]
    scores = list(dict.fromkeys(score for group in scored for score in _scores(group)))
    if study.metric and study.metric not in scores:
        raise InputError(
            f"metric must be one of the task's scores, {', '.join(scores)}, got {study.metric!r}"
        )
    # A field is named by its path where a result has its name, such as `power`.
    taken = {*scores, *(f"average_{score}" for score in scores), *DIMENSIONS, *LABELS}
    axes = [axis.renamed(taken) for axis in axes]
    return Settings(study.replace(over=Grid(tuple(axes))), groups, scores)


def _parts(study: Study) -> list[tuple[str, Any]]:
    """Return the parts of a study, each with the first name of its fields' paths."""
    algorithms = [("algorithm", algorithm) for algorithm in study.algorithms.values()]
    return [*algorithms, ("channel", study.channel), ("task", study.task)]


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
        arguments.refuse_swept(**{path: algorithm})
    for name, part in (("channel", study.channel), ("task", study.task)):
        if isinstance(part, type):
            raise InputError(f"{name} must be made, as by {part.__name__}(...), got a class")
        if dataclasses.is_dataclass(part):
            arguments.refuse_swept(**{name: part})
    for name in ("reference", "metric"):
        inputs.words(name, getattr(study, name))
    inputs.name("name", study.name)
    for axis in study.over.axes:
        inputs.name("an axis of over", axis.name)
        for values in axis.coordinates.values():
            for label in filter(lambda value: isinstance(value, str), values):
                inputs.words(f"a label of {axis.name}", label)
    reference = study.reference or next(iter(study.algorithms))
    if reference not in study.algorithms:
        raise InputError(
            f"reference must be one of the algorithms, {', '.join(study.algorithms)}, "
            f"got {reference!r}"
        )
    names = "rounds", "every", "calibration_trials"
    return study.replace(
        **{name: inputs.whole(name, getattr(study, name), 1) for name in names},
        trials=inputs.whole("trials", study.trials, 1, None),
        keep=inputs.chosen("keep", study.keep, KEEP),
        key=inputs.key("key", study.key),
        reference=reference,
    )


def _resolve_axis(axis: Axis, known: dict[str, Any]) -> Axis:
    """Find the fields of an axis; integers in the place of random keys are seeds."""
    fields, paths = dict(axis.fields), tuple(find_field(name, known) for name in axis.fields)
    for (name, values), path in zip(axis.fields.items(), paths, strict=True):
        if known[path].get("dtype") == "key":
            seeds = (inputs.key(path, v) if isinstance(v, int) else v for v in values)
            fields[name] = tuple(seeds)
    numeric = not any(
        value is None or isinstance(value, str) or dataclasses.is_dataclass(value)
        for of_field in fields.values()
        for value in of_field
    )
    traced = numeric and all("rank" in known[path] for path in paths)
    return dataclasses.replace(axis, fields=fields, paths=paths, traced=traced)


def _refuse_programs(axes: list[Axis], most: int | None) -> None:
    """Refuse more programs than `most`: each integer or word is one, whatever else is swept."""
    count = math.prod(
        len(axis)
        for axis in axes
        if not axis.traced
        and not any(dataclasses.is_dataclass(v) for vs in axis.fields.values() for v in vs)
    )
    if most is not None and count > most:
        product = " × ".join(f"{len(axis):,} {axis.name}" for axis in axes)
        raise InputError(
            f"{product} would take {count:,} programs: more than --max-programs {most}"
        )


def _group(study: Study, axes: list[Axis], place: tuple[int, ...]) -> Group:
    """Build the group at one place on the untraced axes, with all settings of the traced ones."""
    traced = [axis for axis in axes if axis.traced]
    rows = np.meshgrid(*(np.arange(len(axis)) for axis in traced), indexing="ij")
    inner, outer = iter(rows), iter(place)
    changes = []
    for axis in axes:
        at: Any = next(inner).ravel() if axis.traced else next(outer)
        for path, (name, values) in zip(axis.paths, axis.fields.items(), strict=True):
            changes.append((path, name, (_stack(name, values) if axis.traced else values)[at]))
    parts = _parts(study)
    # A part is set before the fields inside it, so that neither undoes the other.
    for path, name, value in sorted(changes, key=lambda change: change[0].count(".")):
        if dataclasses.is_dataclass(value):
            arguments.refuse_swept(**{path: value})
        held = [path in field_paths(part, root) for root, part in parts]
        if not any(held):
            raise InputError(f"{name} must be a field in every setting, and in one there is none")
        parts = [
            (root, set_field(part, path, value) if has else part)
            for (root, part), has in zip(parts, held, strict=True)
        ]
    *algorithms, channel, task = (part for _, part in parts)
    return _check_group(
        study, algorithms, channel, task.build() if hasattr(task, "build") else task
    )


def _stack(name: str, values: tuple[Any, ...]) -> Any:
    try:
        if any(hasattr(value, "dtype") for value in values):  # random keys are no NumPy arrays
            return jnp.stack([jnp.asarray(value) for value in values])
        return np.stack([np.asarray(value) for value in values])
    except (TypeError, ValueError):
        shown = inputs.shown(list(values))
        raise InputError(f"{name} must hold numbers of one shape, got {shown}") from None


def _check_group(study: Study, algorithms: list[Any], channel: Any, task: Any) -> Group:
    every = math.gcd(study.every, study.rounds)  # so that the last round is scored, too
    # Results go to a store chunk by chunk; more trials than an int32 counts fit nowhere.
    endless = study.trials > inputs.MOST
    counts = study.rounds, study.trials, study.calibration_trials
    workload = arguments.Workload(*counts, all_in_memory=endless)
    checked = [arguments.checked_setting(a, channel, task, workload, every) for a in algorithms]
    (_, channel, task), options = checked[0]
    algorithms = [setting.algorithm for setting, _ in checked]
    axes = tuple(
        0 if swept else None
        for part in (*algorithms, channel, task)
        for swept in inputs.extra_axes(part, "part").values()
    )
    parts = {"algorithms": tuple(algorithms), "channel": channel, "task": task}
    return Group(options._replace(average_scores=True), parts, axes)


def _scores(group: Group) -> list[str]:
    """Return the names of the task's scores."""

    def score(task: Any) -> dict[str, Any]:
        problem = task.problem(0)
        return problem.score(jnp.zeros(problem.dim, "float32"))

    names = list(jax.eval_shape(score, group.rows(0)["task"]))
    stage_checks.check_scores(names)
    for name, other in ((n, o) for n in names for o in (f"average_{n}", f"{n}_difference")):
        if other in names:
            raise InputError(
                f"task must not name a score {other!r} beside {name!r}, as a study has that name "
                "for another result"
            )
    return names


def field_paths(part: Any, path: str) -> dict[str, Mapping[str, Any]]:
    """Return the metadata of a part's fields, and of those of parts inside it, by their paths.

    The part itself has its path, too, and none.
    """
    paths: dict[str, Mapping[str, Any]] = {path: {}}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            paths |= field_paths(getattr(part, field.name), f"{path}.{field.name}")
            paths[f"{path}.{field.name}"] = field.metadata
    return paths


def find_field(name: str, known: dict[str, Mapping[str, Any]]) -> str:
    """Return the path of a field; InputError with the nearest names, or with all candidates."""
    candidates = [path for path in known if path.endswith(f".{name}")]
    if name in known or len(candidates) == 1:
        return name if name in known else candidates[0]
    if candidates:
        raise InputError(f"{name} must be spelled out, one of {', '.join(candidates)}")
    short = sorted({path.rsplit(".", 1)[-1] for path in known if "." in path})
    near = difflib.get_close_matches(name.rsplit(".", 1)[-1], short, n=3, cutoff=0.5)
    raise InputError(
        f"no field is called {name}: "
        + (f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(short)}")
    )


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
