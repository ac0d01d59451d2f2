"""At the server: from the estimate of the average to the next model.

A server's rule may remember, may answer the users' coded reports before they send, and may keep
an output apart from the model it broadcasts: `output` is what is scored and handed out.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import optax
from jaxtyping import Array, Float

from jaxota._core import inputs
from jaxota._core.part import Memory, Scalar, Vector, part, static
from jaxota._core.state import State
from jaxota.stages.compress import SideInfo
from jaxota.stages.fading import Link

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


@part
class Aggregate:
    """What the server holds of one block after a round.

    Attributes:
        estimate: [d] of the average of what was meant to be sent, its origin included.
        deviation: [] √ν of the noise on the average.
        link: the block's path from the users.
        side: coded side information.
    """

    estimate: Vector
    deviation: Scalar
    link: Link
    side: SideInfo

    replace = dataclasses.replace


class Server(Protocol):
    """At the server: the next model. `ReplaceModel`, `Optimizer`."""

    def start(self, model: Vector) -> Memory:
        """Memory before round 1."""

    def answer(
        self, memory: Memory, reports: dict[str, Float[Array, "user"]], noise: Scalar, link: Link
    ) -> Any:
        """What users hear before they send; `noise` is sw2/P."""

    def __call__(self, seen: Aggregate, state: State) -> tuple[Vector, Memory]:
        """The next broadcast model [d], and memory."""

    def output(self, model: Vector, memory: Memory) -> Vector:
        """The model [d] that is scored and handed out."""


@part
class ReplaceModel:
    """The estimate is the next model."""

    def start(self, model: Vector) -> None:
        """What the server remembers before round 1."""
        return None

    def answer(
        self, memory: Memory, reports: dict[str, Float[Array, "user"]], noise: Scalar, link: Link
    ) -> Any:
        """What it tells the users who made these `reports` [user] before they send; `noise` is
        sw2/P.
        """
        return None

    def __call__(self, seen: Aggregate, state: State) -> tuple[Vector, Memory]:
        """The model of the next round, and what the server remembers."""
        return seen.estimate, state.server

    def output(self, model: Vector, memory: Memory) -> Vector:
        """The model that is scored."""
        return model


@part
class Optimizer:
    """An optax transformation makes the step from the pseudo-gradient −(estimate − model).

    Attributes:
        optimizer: the transformation, downhill as `optax.adam(0.1)` is: Reddi et al. 2021;
            `optax.sgd(1.0)` is `ReplaceModel`, to rounding.
    """

    optimizer: optax.GradientTransformation = static()

    answer, output = ReplaceModel.answer, ReplaceModel.output

    def start(self, model: Vector) -> Memory:
        return self.optimizer.init(model)

    def __call__(self, seen: Aggregate, state: State) -> tuple[Vector, Memory]:
        slope = state.model - seen.estimate
        step, memory = self.optimizer.update(slope, state.server, state.model)
        return optax.apply_updates(state.model, step), memory

    def check(self, path: str, setting: "Setting") -> None:
        inputs.check_direction(path, self.optimizer, setting.task.dim, downhill=True)


def as_server(server: Server | optax.GradientTransformation) -> Server:
    """A server's rule from itself or from an optax transformation."""
    return Optimizer(server) if isinstance(server, optax.GradientTransformation) else server
