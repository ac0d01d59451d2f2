"""What the driver runs: a labelled space of results that is filled chunk by chunk."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from jaxota.study.plans import Keeper
from jaxota.study.spaces import Space


class Job(Protocol):
    """What the driver runs: a labelled space that is filled chunk by chunk."""

    @property
    def name(self) -> str:
        """Of what is run, and so of its files."""

    @property
    def space(self) -> Space:
        """What is filled."""

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which a store of it may be given more."""

    @property
    def description(self) -> dict[str, Any]:
        """Everything that decides the numbers, in plain words; not what lies along `growing`."""

    @property
    def meanings(self) -> dict[str, list[Any]]:
        """What the labels of what is swept stand for, in plain words."""

    @property
    def attributes(self) -> dict[str, Any]:
        """What a reader of the results must know."""

    @property
    def bytes(self) -> int:
        """What the results take, known before anything is compiled."""

    @property
    def steps(self) -> float:
        """The local steps of users in all of it."""

    @property
    def blocks(self) -> dict[str, int]:
        """How it is cut."""

    def cut_as(self, blocks: dict[str, int]) -> None:
        """From now on it is cut into blocks of these sizes."""

    def follow(self, labels: dict[str, list[Any]]) -> None:
        """From now on what is swept is in the order of these labels, and what is new comes last."""

    def compute(
        self, number: int, report: Callable[..., None], plans: Keeper | None = None
    ) -> dict[str, np.ndarray]:
        """The chunk of a number; `plans` remembers calibrations."""


_devices = threading.Lock()  # one chunk has them all


@dataclasses.dataclass
class Pieces:
    """A job of chunks of its own making, which is always cut the same and never grows.

    Attributes:
        make: of the number of a chunk its results, by their names.
    """

    name: str
    space: Space
    description: dict[str, Any]
    make: Callable[[int], dict[str, Any]]
    steps: float = 0.0
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)

    growing: tuple[str, ...] = ()
    meanings: dict[str, list[Any]] = dataclasses.field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.space.bytes

    @property
    def blocks(self) -> dict[str, int]:
        return self.space.blocks

    def cut_as(self, blocks: dict[str, int]) -> None:
        pass

    def follow(self, labels: dict[str, list[Any]]) -> None:
        pass

    def compute(
        self, number: int, report: Callable[..., None], plans: Keeper | None = None
    ) -> dict[str, np.ndarray]:
        """What `make` gives, each in the first corner of its place: the rest stays NaN."""
        arrays = self.space.empty(self.space.region(number))
        with _devices:
            made = self.make(number)
        for name, values in made.items():
            target = arrays[name][(0,) * len(self.space.blocks)]
            target[tuple(map(slice, np.shape(values)))] = values
        return arrays
