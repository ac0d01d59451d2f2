"""A labelled space of results, cut into blocks: what a job fills, chunk by chunk."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from jaxota._core import batching
from jaxota._core import batching as _chunks
from jaxota._core.batching import format_bytes
from jaxota.errors import InputError
from jaxota.study.compile import Programs
from jaxota.study.resolve import Group, Settings


@dataclasses.dataclass(frozen=True)
class Variable:
    """One result: its dimensions, and what its numbers are."""

    dims: tuple[str, ...]
    dtype: str = "float32"


@dataclasses.dataclass(frozen=True)
class Space:
    """What a job fills.

    Attributes:
        sizes: of each dimension.
        blocks: of the dimensions that are cut, in this order, the size of a block.
        variables: results by their names; each has all dimensions that are cut.
        coords: by name, dimension and labels.
        behind: of a dimension of blocks what these are blocks of: how many in all, how many in
            each.
    """

    sizes: dict[str, int]
    blocks: dict[str, int]
    variables: dict[str, Variable]
    coords: dict[str, tuple[str, Any]] = dataclasses.field(default_factory=dict)
    behind: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many blocks there are along each dimension that is cut."""
        return tuple(math.ceil(self.sizes[d] / b) for d, b in self.blocks.items())

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return math.prod(self.counts)

    @property
    def bytes(self) -> int:
        """What all results take."""
        return sum(
            math.prod(self.shape(v)) * np.dtype(v.dtype).itemsize for v in self.variables.values()
        )

    def shape(self, variable: Variable) -> tuple[int, ...]:
        return tuple(self.sizes[d] for d in variable.dims)

    def chunks(self, variable: Variable) -> tuple[int, ...]:
        """How a variable is cut."""
        return tuple(self.blocks.get(d, self.sizes[d]) for d in variable.dims)

    def index(self, number: int) -> dict[str, int]:
        """Where the chunk of a number lies, counted in blocks."""
        place = np.unravel_index(number, self.counts) if self.blocks else ()
        return dict(zip(self.blocks, map(int, place), strict=True))

    def region(self, number: int) -> dict[str, slice]:
        """What the chunk of a number covers, of the dimensions that are cut."""
        return {
            d: slice(i * self.blocks[d], min((i + 1) * self.blocks[d], self.sizes[d]))
            for d, i in self.index(number).items()
        }

    def covers(self, number: int) -> dict[str, list[int]]:
        """What the chunk of a number is of, which changes when dimensions grow: from, to."""
        found = {d: [s.start, s.stop] for d, s in self.region(number).items()}
        for d, (size, block) in self.behind.items():
            first = found[d][0] * block
            found[d] = [first, min(first + block, size)]
        return found

    def label(self, number: int) -> str:
        """The name of a chunk, which stays its own when dimensions grow: "0.2.1"."""
        return ".".join(map(str, self.index(number).values())) or "0"

    def where(self, variable: Variable, region: dict[str, slice]) -> tuple[slice, ...]:
        """A region's place in a variable."""
        return tuple(region.get(d, slice(None)) for d in variable.dims)

    def empty(self, region: dict[str, slice] | None = None) -> dict[str, np.ndarray]:
        """Arrays for all results, or for those of a region, that hold nothing yet."""
        sizes = self.sizes | {d: s.stop - s.start for d, s in (region or {}).items()}
        return {
            name: np.full([sizes[d] for d in v.dims], np.nan, v.dtype)
            for name, v in self.variables.items()
        }

    def dataset(self, arrays: dict[str, np.ndarray]) -> Any:
        """Arrays, labelled, as an `xarray.Dataset`."""
        import xarray  # slow to import

        variables = {name: (v.dims, arrays[name]) for name, v in self.variables.items()}
        return xarray.Dataset(variables, self.coords)

    def as_json(self) -> dict[str, Any]:
        """The same in plain words."""
        coords = {k: [dim, np.asarray(v).tolist()] for k, (dim, v) in self.coords.items()}
        return dataclasses.asdict(self) | {"coords": coords}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Space":
        variables = {
            k: Variable(tuple(v["dims"]), v["dtype"]) for k, v in told["variables"].items()
        }
        pairs = {
            part: {k: tuple(v) for k, v in told[part].items()} for part in ("coords", "behind")
        }
        return cls(told["sizes"], told["blocks"], variables, **pairs)


def cut(settings: Settings, programs: Programs, budget: int | None) -> dict[str, int]:
    """The size of a block along each axis of numbers, and along the trials.

    A program says itself what it takes. Where that is more than the `budget`, it is asked at a
    smaller size, too, and the line through both gives the size that fits, which is checked again.
    """
    group = max(settings.groups.values(), key=_weight)
    sizes, trials = settings.swept_sizes, settings.study.trials
    parts = group.parts
    rows = math.prod(sizes.values()) * trials
    work = parts["algorithms"], parts["task"], settings.study.rounds, rows
    size = min(_chunks.rows_at_once(*work), max(1, _room(budget) // _weight(group)))
    blocks = _blocks(sizes, trials, size)
    for _ in range(3):
        taken = _measured(programs, group, blocks)
        if taken <= _room(budget):
            return blocks
        blocks = _fitting(programs, group, sizes, trials, blocks, taken, budget)
    raise InputError(_too_much(_measured(programs, group, blocks), budget))


def _fitting(
    programs: Programs,
    group: Group,
    sizes: dict[str, int],
    trials: int,
    blocks: dict[str, int],
    taken: int,
    budget: int | None,
) -> dict[str, int]:
    """Blocks on the line through what these take and what the smallest take."""
    smallest = dict.fromkeys(blocks, 1) | {"trial": min(trials, jax.local_device_count())}
    least = _measured(programs, group, smallest)
    few, many = math.prod(smallest.values()), math.prod(blocks.values())
    if least > _room(budget) or many <= few:
        raise InputError(_too_much(least, budget))
    slope = max(1.0, (taken - least) / (many - few))
    size = few + int(0.95 * (_room(budget) - least) / slope)
    return _blocks(sizes, trials, max(few, min(size, many - 1)))


def _measured(programs: Programs, group: Group, blocks: dict[str, int]) -> int:
    *settings, trials = blocks.values()
    return programs.block(group, math.prod(settings), trials).memory


def _blocks(sizes: dict[str, int], trials: int, rows: int) -> dict[str, int]:
    """Blocks of about so many rows: trials first, as they share their data, then settings."""
    pieces = math.ceil(trials / rows)
    blocks = {"trial": math.ceil(trials / pieces)}
    left = max(1, rows // blocks["trial"])
    for name, size in reversed(sizes.items()):
        pieces = math.ceil(size / left)
        blocks[name] = math.ceil(size / pieces)
        left = max(1, left // blocks[name])
    return {name: blocks[name] for name in (*sizes, "trial")}


def _weight(group: Group) -> int:
    """An estimate of what a row takes, to find the largest group and a size to begin with."""
    parts: Any = group.parts
    return _chunks.bytes_per_trial(parts["algorithms"], parts["task"], group.options.rounds)


def _room(budget: int | None) -> int:
    """The budget; without one, what the devices have, or a quarter of this machine's memory."""
    if budget is not None:
        return budget
    device = batching.device_memory()
    return int(0.8 * device) if device else batching.machine_memory() // 4


def _too_much(taken: int, budget: int | None) -> str:
    return (
        f"memory must be at least {format_bytes(taken)}, which one trial on each device takes here, "
        f"got {format_bytes(_room(budget))}"
    )


# What is added up over trials, and what is not: models, and every user's power.
LEFT_OUT = ("model", "average", "user_power", "user_control_power")


def moments_space(full: Space, scores: list[str]) -> Space:
    """Where the moments of a study's blocks are kept: an axis of blocks in the place of trials."""
    blocks = dict(full.blocks)
    pieces = -(-full.sizes["trial"] // blocks.pop("trial"))
    sizes = {k: v for k, v in full.sizes.items() if k not in ("trial", "parameter", "user")}
    variables: dict[str, Variable] = {}
    for name, variable in full.variables.items():
        if name in LEFT_OUT:
            continue
        dims = tuple("block" if d == "trial" else d for d in variable.dims)
        kinds = ["", "difference_"] if is_score(name, scores) else [""]
        for kind in kinds:
            variables |= {
                f"{name}_{kind}{what}": Variable(dims, "float64") for what in ("mean", "m2")
            }
    counted = (*(d for d in sizes if d in ("algorithm", *blocks)), "block")
    variables |= {name: Variable(counted, "float64") for name in ("trials", "used", "pairs")}
    coords = {k: v for k, v in full.coords.items() if v[0] in sizes}
    behind = {"block": (full.sizes["trial"], full.blocks["trial"])}
    return Space(sizes | {"block": pieces}, blocks | {"block": 1}, variables, coords, behind)


def is_score(name: str, scores: list[str]) -> bool:
    """Whether a result is a score, or that of the average model."""
    return name.removeprefix("average_") in scores
