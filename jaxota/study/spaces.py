"""A labelled space of results, cut into blocks: what a job fills, chunk by chunk."""

import dataclasses
import math
from typing import Any

import numpy as np


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
