"""The labelled arrays that hold a study's results, and how they are cut into chunks."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxota._core import capacity, devices
from jaxota._core.capacity import format_bytes
from jaxota.errors import InputError
from jaxota.history import DIMENSIONS
from jaxota.study.compile import Programs
from jaxota.study.resolve import Group, Settings

NOT_AVERAGED = ("model", "average")  # results whose mean over trials nobody reads


@dataclasses.dataclass(frozen=True)
class Layout:
    """Shapes, labels and chunks of all results.

    Attributes:
        sizes: the size of each dimension.
        blocks: the size of a block along each dimension that is cut, in the order of numbering. The
            last one is "trial", or "block" where moments of each block of trials are kept.
        dims: the dimensions of each result, which include all that are cut.
        coords: the dimension and the labels of each coordinate.
        trials, trials_per_block: of a setting, and of a chunk; the last chunk may have fewer.
    """

    sizes: dict[str, int]
    blocks: dict[str, int]
    dims: dict[str, tuple[str, ...]]
    coords: dict[str, tuple[str, Any]]
    trials: int
    trials_per_block: int

    @property
    def dtype(self) -> str:
        """The type of all results."""
        return "float64" if "block" in self.blocks else "float32"

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
        numbers = sum(math.prod(self.sizes[d] for d in dims) for dims in self.dims.values())
        return numbers * np.dtype(self.dtype).itemsize

    def labels(self, dim: str) -> list[Any]:
        """Return the labels along a dimension."""
        return np.asarray(self.coords[dim][1]).tolist()

    def index(self, number: int) -> dict[str, int]:
        """Return the place of a chunk, counted in blocks."""
        place = np.unravel_index(number, self.counts)
        return dict(zip(self.blocks, map(int, place), strict=True))

    def label(self, number: int) -> str:
        """Return the place of a chunk in words, such as "0.2.1"."""
        return ".".join(map(str, self.index(number).values()))

    def region(self, number: int) -> dict[str, slice]:
        """Return the slice of each dimension that a chunk fills."""
        return {
            d: slice(i * self.blocks[d], min((i + 1) * self.blocks[d], self.sizes[d]))
            for d, i in self.index(number).items()
        }

    def trials_of(self, number: int) -> tuple[int, int]:
        """Return the trials of a chunk, from and to."""
        *_, block = self.index(number).values()
        first = block * self.trials_per_block
        return first, min(first + self.trials_per_block, self.trials)

    def shapes(self, number: int | None = None) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all results, or of those of a chunk."""
        region = {} if number is None else self.region(number)
        sizes = self.sizes | {d: s.stop - s.start for d, s in region.items()}
        return {name: tuple(sizes[d] for d in dims) for name, dims in self.dims.items()}

    def empty(self, number: int | None = None) -> dict[str, np.ndarray]:
        """Return arrays of NaN for all results, or for those of a chunk."""
        shapes = self.shapes(number).items()
        return {name: np.full(shape, np.nan, self.dtype) for name, shape in shapes}

    def put(self, number: int, values: Mapping[str, np.ndarray], into: Mapping[str, Any]) -> None:
        """Write the results of a chunk into arrays of all results.

        Models may be shorter than the longest of the study, whose rest stays NaN.
        """
        for name, target in self.get(number, into).items():
            if name in values:
                target[tuple(map(slice, values[name].shape))] = values[name]

    def get(self, number: int, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the results of a chunk from arrays of all results."""
        region = self.region(number)
        return {
            name: array[tuple(region.get(d, slice(None)) for d in self.dims[name])]
            for name, array in values.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return plain data from which `from_json` makes the layout again."""
        labels = {k: [dim, np.asarray(v).tolist()] for k, (dim, v) in self.coords.items()}
        return vars(self) | {"coords": labels}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Layout":
        """Return the layout of `as_json`; ValueError if it does not fit together."""
        dims = {name: tuple(d) for name, d in fields["dims"].items()}
        coords = {name: (dim, labels) for name, (dim, labels) in fields["coords"].items()}
        layout = cls(**fields | {"dims": dims, "coords": coords})
        sizes, blocks = layout.sizes, layout.blocks
        for count in (*sizes.values(), *blocks.values(), layout.trials, layout.trials_per_block):
            if type(count) is not int or count < 1:
                raise ValueError(f"a size is {count!r}")
        for name, (dim, labels) in coords.items():
            if len(labels) != sizes[dim]:
                raise ValueError(f"{name} has {len(labels)} labels, not {sizes[dim]}")
        if not all(set(blocks) <= set(d) <= set(sizes) for d in dims.values()):
            raise ValueError("a result has other dimensions than the study")
        return layout


def study_layout(
    settings: Settings, blocks: dict[str, int], stored: Layout | None = None
) -> Layout:
    """Lay out the results of a study: of every trial, or their moments over each block of trials.

    `blocks` has the size of a block along each axis of traced numbers, and along "trial". The
    points of each axis are in the order of the `stored` layout, new ones last.
    """
    study, axes, results = settings.study, settings.axes, _result_dims(settings)
    every = math.gcd(study.every, study.rounds)
    # An axis of structures has a program for each point, and so chunks of its own.
    blocks = dict.fromkeys((axis.name for axis in axes), 1) | blocks
    trials = study.trials, blocks["trial"]
    cut, count = "trial", study.trials
    if study.keep == "mean":
        results = moment_dims(results, settings.scores)
        cut, count = "block", math.ceil(study.trials / blocks.pop("trial"))
        blocks["block"] = 1
    sizes = {
        "algorithm": len(study.algorithms),
        **{axis.name: len(axis) for axis in axes},
        cut: count,
        "evaluation": study.rounds // every,
        "round": study.rounds,
        "parameter": max(group.parts["task"].dim for group in settings.groups.values()),
    }
    coords: dict[str, tuple[str, Any]] = {"algorithm": ("algorithm", list(study.algorithms))}
    for axis in axes:
        places = axis.positions(stored.labels(axis.name)) if stored else []
        places += [i for i in range(len(axis)) if i not in places]
        for name, values in axis.coordinates.items():
            coords[name] = axis.name, [values[i] for i in places]
    coords["round"] = "round", 1 + np.arange(study.rounds)
    coords["evaluation"] = "evaluation", every * (1 + np.arange(study.rounds // every))
    lead = ("algorithm", *(axis.name for axis in axes), cut)
    dims = {name: (*lead, *rest) for name, rest in results.items()}
    return Layout(sizes, blocks, dims, coords, *trials)


def _result_dims(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return the names of the results of a trial, and their dimensions besides those cut."""
    scores = settings.scores
    algorithms = [a for group in settings.groups.values() for a in group.parts["algorithms"]]
    controlled = any(algorithm.local.controlled for algorithm in algorithms)
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(scores, ("evaluation",))
    for name, (_, *rest) in DIMENSIONS.items():
        if "user" not in rest and name != "last_round" and (controlled or "control" not in name):
            dims[name] = tuple(rest)
    return dims | {f"average_{score}": () for score in scores}


def moment_dims(
    results: dict[str, tuple[str, ...]], scores: list[str]
) -> dict[str, tuple[str, ...]]:
    """Return the names of the moments of results, and their dimensions besides those cut."""
    dims: dict[str, tuple[str, ...]] = {}
    for name, rest in results.items():
        if name not in NOT_AVERAGED:
            compared = name.removeprefix("average_") in scores  # with the reference
            for kind in ("", "_difference") if compared else ("",):
                dims |= {f"{name}{kind}_{moment}": rest for moment in ("mean", "m2")}
    return dims | dict.fromkeys(("trials", "used", "pairs"), ())


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
            if name.removeprefix("average_") in scores:
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


def labelled(layout: Layout, arrays: dict[str, np.ndarray], attributes: dict[str, Any]) -> Any:
    """Return results as the `xarray.Dataset` that a user gets, with blocks of trials merged."""
    import xarray  # slow to import

    variables = {name: (layout.dims[name], values) for name, values in arrays.items()}
    dataset = xarray.Dataset(variables, layout.coords)
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


def choose_blocks(settings: Settings, programs: Programs, budget: int | None) -> dict[str, int]:
    """Choose the size of a block along each axis of traced numbers, and along "trial".

    A chunk is a moment's work within the budget in bytes, or what devices or machine have to spare.
    """
    sizes = settings.traced_sizes | {"trial": settings.study.trials}
    device = capacity.device_memory()
    spare = int(0.8 * device) if device else capacity.machine_memory() // 4
    room = spare if budget is None else budget
    group = max(settings.groups.values(), key=_bytes_per_row)
    parts, rows = group.parts, math.prod(sizes.values())
    work = group.options.rounds, rows, group.options.cohort
    moment = capacity.rows_at_once(parts["algorithms"], parts["task"], *work)
    blocks = _blocks(sizes, min(moment, max(1, room // _bytes_per_row(group))))
    smallest = dict.fromkeys(sizes, 1) | {"trial": min(sizes["trial"], len(devices.target()))}

    def measured(blocks: dict[str, int]) -> int:
        *rows, trials = blocks.values()
        return programs.block(group, math.prod(rows), trials).memory

    for _ in range(3):
        taken = measured(blocks)
        if taken <= room:
            return blocks
        least = measured(smallest)
        if least > room:
            raise InputError(
                f"memory must be at least {format_bytes(least)}, which one trial on each device "
                f"takes here, got {format_bytes(room)}"
            )
        # Memory is about linear in rows: the line through the smallest size gives one that fits.
        few, many = math.prod(smallest.values()), math.prod(blocks.values())
        slope = max(1.0, (taken - least) / max(1, many - few))
        fitting = few + int(0.95 * (room - least) / slope)
        blocks = _blocks(sizes, max(few, min(fitting, many - 1)))
    return smallest


def _blocks(sizes: dict[str, int], rows: int) -> dict[str, int]:
    """Return blocks of at most `rows` rows: trials, the last, first, as they share their data."""
    blocks = {}
    for name, size in reversed(sizes.items()):
        # As many pieces as it takes, all about as large as each other.
        blocks[name] = math.ceil(size / math.ceil(size / rows))
        rows = max(1, rows // blocks[name])
    return {name: blocks[name] for name in sizes}


def _bytes_per_row(group: Group) -> int:
    """Estimate the bytes of a setting's trial, to find the largest group and a size to try."""
    parts: Any = group.parts
    options = group.options
    sizes = options.rounds, options.cohort
    return capacity.bytes_per_trial(parts["algorithms"], parts["task"], *sizes)
