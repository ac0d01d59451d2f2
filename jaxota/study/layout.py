"""The labelled arrays that hold a study's results, and how they are cut into chunks."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxota._core import batching
from jaxota._core.batching import format_bytes
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS
from jaxota.study.resolve import Group, Settings

# Results whose mean over trials nobody reads: models, and every user's power.
NOT_AVERAGED = ("model", "average", "user_power", "user_control_power")


@dataclasses.dataclass(frozen=True)
class Variable:
    """Dimensions and type of one result."""

    dims: tuple[str, ...]
    dtype: str = "float32"


@dataclasses.dataclass(frozen=True)
class Layout:
    """Shapes, labels and chunks of all results.

    Attributes:
        sizes: the size of each dimension.
        blocks: the size of a block along each dimension that is cut, in the order of numbering.
        variables: the results by name; each has all dimensions that are cut.
        coords: the dimension and the labels of each coordinate.
        trial_blocks: where a dimension "block" stands for the trials: how many trials there are,
            and how many are in a block.
    """

    sizes: dict[str, int]
    blocks: dict[str, int]
    variables: dict[str, Variable]
    coords: dict[str, tuple[str, Any]] = dataclasses.field(default_factory=dict)
    trial_blocks: tuple[int, int] | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of blocks along each dimension that is cut."""
        return tuple(math.ceil(self.sizes[d] / b) for d, b in self.blocks.items())

    @property
    def count(self) -> int:
        """The number of chunks."""
        return math.prod(self.counts)

    @property
    def bytes(self) -> int:
        """The size of all results, uncompressed."""
        variables = self.variables.values()
        return sum(math.prod(self.shape(v)) * np.dtype(v.dtype).itemsize for v in variables)

    @property
    def trials(self) -> int:
        """The number of trials of each setting."""
        return self.trial_blocks[0] if self.trial_blocks else self.sizes.get("trial", 0)

    @property
    def trials_per_block(self) -> int:
        """The number of trials in a chunk; the last chunk may have fewer."""
        return self.trial_blocks[1] if self.trial_blocks else self.blocks["trial"]

    def labels(self, dim: str) -> list[Any]:
        """Return the labels along a dimension."""
        return np.asarray(self.coords[dim][1]).tolist()

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a result."""
        return tuple(self.sizes[d] for d in variable.dims)

    def chunk_shape(self, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a result in one chunk."""
        return tuple(self.blocks.get(d, self.sizes[d]) for d in variable.dims)

    def index(self, number: int) -> dict[str, int]:
        """Return the place of a chunk, counted in blocks."""
        place = np.unravel_index(number, self.counts) if self.blocks else ()
        return dict(zip(self.blocks, map(int, place), strict=True))

    def region(self, number: int) -> dict[str, slice]:
        """Return the slice of each dimension that a chunk fills."""
        return {
            d: slice(i * self.blocks[d], min((i + 1) * self.blocks[d], self.sizes[d]))
            for d, i in self.index(number).items()
        }

    def extent(self, number: int) -> dict[str, list[int]]:
        """Return the settings and trials of a chunk, from and to, which may grow with the study."""
        extent = {d: [s.start, s.stop] for d, s in self.region(number).items()}
        if self.trial_blocks:
            trials, size = self.trial_blocks
            first = extent["block"][0] * size
            extent["block"] = [first, min(first + size, trials)]
        return extent

    def label(self, number: int) -> str:
        """Return the name of a chunk, such as "0.2.1", which it keeps when dimensions grow."""
        return ".".join(map(str, self.index(number).values())) or "0"

    def where(self, variable: Variable, region: dict[str, slice]) -> tuple[slice, ...]:
        """Return the place of a region in a result's array."""
        return tuple(region.get(d, slice(None)) for d in variable.dims)

    def empty(self, region: dict[str, slice] | None = None) -> dict[str, np.ndarray]:
        """Return arrays of NaN for all results, or for those of a region."""
        sizes = self.sizes | {d: s.stop - s.start for d, s in (region or {}).items()}
        return {
            name: np.full([sizes[d] for d in v.dims], np.nan, v.dtype)
            for name, v in self.variables.items()
        }

    def dataset(self, arrays: dict[str, np.ndarray]) -> Any:
        """Return arrays with their labels, as an `xarray.Dataset`."""
        import xarray  # slow to import

        variables = {name: (v.dims, arrays[name]) for name, v in self.variables.items()}
        return xarray.Dataset(variables, self.coords)

    def as_json(self) -> dict[str, Any]:
        """Return plain data from which `from_json` makes the layout again."""
        fields = dataclasses.asdict(self)
        fields["coords"] = {k: [dim, np.asarray(v).tolist()] for k, (dim, v) in self.coords.items()}
        blocks = fields.pop("trial_blocks")
        fields["behind"] = {"block": blocks} if blocks else {}  # the name in stores of old
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Layout":
        """Return the layout that `as_json` was called on."""
        stored = fields["variables"].items()
        variables = {name: Variable(tuple(v["dims"]), v["dtype"]) for name, v in stored}
        coords = {k: (dim, labels) for k, (dim, labels) in fields["coords"].items()}
        trial_blocks = tuple(fields["behind"]["block"]) if fields["behind"] else None
        return cls(fields["sizes"], fields["blocks"], variables, coords, trial_blocks)


def study_layout(
    settings: Settings, blocks: dict[str, int], order: dict[str, list[int]] | None = None
) -> Layout:
    """Lay out the results of a study: of every trial, or their moments over each block of trials.

    `blocks` has the size of a block along each axis of traced numbers, and along "trial"; `order`
    the points of each axis, by number, as they are stored.
    """
    study, scores = settings.study, settings.scores
    names = [axis.name for axis in settings.axes]
    every = math.gcd(study.every, study.rounds)
    sizes = {
        "algorithm": len(study.algorithms),
        **{axis.name: len(axis) for axis in settings.axes},
        "trial": study.trials,
        "evaluation": study.rounds // every,
        "round": study.rounds,
        "parameter": max(group.parts["task"].dim for group in settings.groups.values()),
    }
    algorithms = [a for group in settings.groups.values() for a in group.parts["algorithms"]]
    controlled = any(algorithm.local.controlled for algorithm in algorithms)
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(scores, ("evaluation",))
    for name, (_, *rest) in DIMENSIONS.items():
        if not name.startswith("user_") and (controlled or "control" not in name):
            dims[name] = tuple(rest)
    dims |= {f"average_{score}": () for score in scores}
    lead = ("algorithm", *names, "trial")
    coords: dict[str, tuple[str, Any]] = {"algorithm": ("algorithm", list(study.algorithms))}
    for axis in settings.axes:
        places = order[axis.name] if order else range(len(axis))
        for name, values in axis.coordinates.items():
            coords[name] = axis.name, [values[i] for i in places]
    coords["round"] = "round", 1 + np.arange(study.rounds)
    coords["evaluation"] = "evaluation", every * (1 + np.arange(study.rounds // every))
    variables = {name: Variable((*lead, *rest)) for name, rest in dims.items()}
    # An axis of structures has a program for each point, and so chunks of its own.
    layout = Layout(sizes, dict.fromkeys(names, 1) | blocks, variables, coords)
    return layout if study.keep == "trials" else moments_layout(layout, scores)


def moments_layout(layout: Layout, scores: list[str]) -> Layout:
    """Replace the axis of trials by one of blocks, each with count, mean and squared deviations."""
    blocks = dict(layout.blocks)
    trials = layout.sizes["trial"], blocks.pop("trial")
    sizes = {k: v for k, v in layout.sizes.items() if k not in ("trial", "parameter")}
    variables = {}
    for name, variable in layout.variables.items():
        if name not in NOT_AVERAGED:
            dims = tuple("block" if d == "trial" else d for d in variable.dims)
            for kind in ("", "_difference") if is_score(name, scores) else ("",):
                for moment in ("mean", "m2"):
                    variables[f"{name}{kind}_{moment}"] = Variable(dims, "float64")
    counted = (*(d for d in sizes if d in ("algorithm", *blocks)), "block")
    variables |= {name: Variable(counted, "float64") for name in ("trials", "used", "pairs")}
    coords = {k: v for k, v in layout.coords.items() if v[0] in sizes}
    sizes["block"] = math.ceil(trials[0] / trials[1])
    return Layout(sizes, blocks | {"block": 1}, variables, coords, trials)


def is_score(name: str, scores: list[str]) -> bool:
    """Whether a result is a score of the last or of the average model."""
    return name.removeprefix("average_") in scores


def moments(
    results: list[dict[str, np.ndarray]], scores: list[str], reference: int
) -> list[dict[str, np.ndarray]]:
    """Reduce each algorithm's [setting, trial, …] of a chunk to moments [setting, 1, …] by name.

    Moments are counts, means and sums of squared deviations. Trials that diverged are left out;
    differences to the reference are of the trials in which neither diverged.
    """
    finite = [
        np.all([np.isfinite(values[name]).all(-1) for name in (*scores, "model")], 0)
        for values in results
    ]  # of each algorithm [setting, trial]
    reduced = []
    for own, used in zip(results, finite, strict=True):
        paired = used & finite[reference]
        counted = {"trials": np.ones_like(used), "used": used, "pairs": paired}
        found = {k: v.sum(1, keepdims=True, dtype=float) for k, v in counted.items()}
        for name, values in own.items():
            if name in NOT_AVERAGED:
                continue
            values = values.astype(np.float64)
            found |= _mean_and_m2(name, values, used)
            if is_score(name, scores):
                with np.errstate(invalid="ignore"):  # inf − inf, which is left out
                    difference = values - results[reference][name]
                found |= _mean_and_m2(f"{name}_difference", difference, paired)
        reduced.append(found)
    return reduced


def _mean_and_m2(name: str, values: np.ndarray, used: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean over the used trials, and the sum of squared deviations from it."""
    mask = used.reshape(*used.shape, *[1] * (values.ndim - used.ndim))
    count = mask.sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        total = np.where(mask, values, 0.0).sum(1, keepdims=True)
        mean = total / np.where(count > 0, count, np.nan)
        deviation = np.where(mask, values - mean, 0.0)
    return {f"{name}_mean": mean, f"{name}_m2": (deviation**2).sum(1, keepdims=True)}


def finish(dataset: Any, attributes: dict[str, Any]) -> Any:
    """Return the dataset that a user gets: with its attributes, and blocks of trials merged."""
    merged = merge_blocks(dataset) if attributes.get("keep") == "mean" else dataset
    return merged.assign_attrs(attributes)


def merge_blocks(dataset: Any) -> Any:
    """Merge the moments of all blocks that are there (Chan, Golub and LeVeque, 1983)."""
    used, pairs = dataset.used.fillna(0.0), dataset.pairs.fillna(0.0)
    merged = {k: dataset[k].sum("block") for k in ("trials", "used", "pairs")}
    for name in [str(k).removesuffix("_mean") for k in dataset if str(k).endswith("_mean")]:
        n = pairs if name.endswith("_difference") else used
        mean, total = dataset[f"{name}_mean"].fillna(0.0), n.sum("block")
        centre = (n * mean).sum("block") / total.where(total > 0)
        m2 = (dataset[f"{name}_m2"].fillna(0.0) + n * (mean - centre) ** 2).sum("block")
        absent = dataset[f"{name}_mean"].isnull().all("block")
        merged[f"{name}_mean"] = centre.where(~absent)
        merged[f"{name}_var"] = (m2 / (total - 1).where(total > 1)).where(~absent)
    return type(dataset)(merged, dataset.drop_vars("block", errors="ignore").coords, dataset.attrs)


def choose_blocks(
    settings: Settings, memory_of: Callable[[Group, int, int], int], budget: int | None
) -> dict[str, int]:
    """Choose the size of a block along each axis of traced numbers, and along "trial".

    A chunk is a moment's work within the budget in bytes, or what devices or machine have to spare.
    `memory_of` measures the program of a group for so many settings × trials.
    """
    sizes, trials = settings.traced_sizes, settings.study.trials
    device = batching.device_memory()
    spare = int(0.8 * device) if device else batching.machine_memory() // 4
    room = spare if budget is None else budget
    group = max(settings.groups.values(), key=_bytes_per_row)
    parts, rows = group.parts, math.prod(sizes.values()) * trials
    moment = batching.rows_at_once(parts["algorithms"], parts["task"], group.options.rounds, rows)
    blocks = _blocks(sizes, trials, min(moment, max(1, room // _bytes_per_row(group))))

    def measured(blocks: dict[str, int]) -> int:
        *rows, trials = blocks.values()
        return memory_of(group, math.prod(rows), trials)

    for _ in range(3):
        taken = measured(blocks)
        if taken <= room:
            return blocks
        # Memory is about linear in rows: the line through the smallest size gives one that fits.
        smallest = dict.fromkeys(sizes, 1) | {"trial": min(trials, jax.local_device_count())}
        least = measured(smallest)
        few, many = math.prod(smallest.values()), math.prod(blocks.values())
        if least > room or many <= few:
            break
        slope = max(1.0, (taken - least) / (many - few))
        fitting = few + int(0.95 * (room - least) / slope)
        blocks = _blocks(sizes, trials, max(few, min(fitting, many - 1)))
    else:
        least = measured(blocks)
    raise InputError(
        f"memory must be at least {format_bytes(least)}, which one trial on each device takes "
        f"here, got {format_bytes(room)}"
    )


def _blocks(sizes: dict[str, int], trials: int, rows: int) -> dict[str, int]:
    """Return blocks of at most `rows` rows: trials first, as they share their data."""
    blocks = {}
    for name, size in (("trial", trials), *reversed(sizes.items())):
        # As many pieces as it takes, all about as large as each other.
        blocks[name] = math.ceil(size / math.ceil(size / rows))
        rows = max(1, rows // blocks[name])
    return {name: blocks[name] for name in (*sizes, "trial")}


def _bytes_per_row(group: Group) -> int:
    """Estimate the bytes of a setting's trial, to find the largest group and a size to try."""
    parts: Any = group.parts
    return batching.bytes_per_trial(parts["algorithms"], parts["task"], group.options.rounds)
