"""Servers: from the estimate of the average to the next model.

A server may have memory, may answer the users' coded reports before they send, and may hand out
another model than it broadcasts. `Innovations`, which does all three, is in `jaxota.stages.wise`.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import optax

from jaxota._core import inputs
from jaxota._core.part import Memory, PerUser, Scalar, Vector, part, static
from jaxota._core.state import State
from jaxota.stages.compress import SideInfo
from jaxota.stages.fading import Link
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


@part
class Aggregate:
    """The server's knowledge of one block after a round.

    Attributes:
        estimate: [d] the estimated average of the users' values, `Block.origin` included.
        deviation: [] √ν, the standard deviation of the noise on the received average.
        link: the block's path from the users.
        side: coded side information.
    """

    estimate: Vector
    deviation: Scalar
    link: Link
    side: SideInfo

    replace = dataclasses.replace


class Server(Protocol):
    """The server's step to the next model, such as `ReplaceModel` or `Optimizer`."""

    def start(self, model: Vector) -> Memory:
        """Return the memory before round 1."""

    def answer(self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link) -> Any:
        """Return the answer to the users' `reports` [user] before they send; `noise` is sw2/P."""

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        """Return the next broadcast model [d] and memory, from the model block's `aggregate`."""

    def output(self, model: Vector, memory: Memory) -> Vector:
        """Return the model [d] that is scored and handed out."""


@part
class ReplaceModel:
    """The estimate becomes the next model."""

    keeps_estimate = True  # for `exact`
    start = no_memory

    def answer(self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link) -> Any:
        return None

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        return aggregate.estimate, state.server

    def output(self, model: Vector, memory: Memory) -> Vector:
        return model


@part
class Optimizer:
    """An optax step on the pseudo-gradient −(estimate − model); Reddi et al., 2021.

    Attributes:
        optimizer: a transformation that points downhill, as `optax.adam(0.1)` does;
            `optax.sgd(1.0)` equals `ReplaceModel` up to rounding.
    """

    optimizer: optax.GradientTransformation = static()

    answer, output = ReplaceModel.answer, ReplaceModel.output

    def start(self, model: Vector) -> Memory:
        return self.optimizer.init(model)

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        # optax minimises: a gradient points away from where users want the model to go.
        pseudo_gradient = state.model - aggregate.estimate
        step, memory = self.optimizer.update(pseudo_gradient, state.server, state.model)
        return optax.apply_updates(state.model, step), memory

    def check(self, path: str, setting: "Setting") -> None:
        inputs.check_direction(path, self.optimizer, setting.task.dim, downhill=True)


def as_server(server: Server | optax.GradientTransformation) -> Server:
    """Return a server as it is, and an optax transformation as an `Optimizer`."""
    return Optimizer(server) if isinstance(server, optax.GradientTransformation) else server
