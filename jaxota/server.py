"""At the server: from the estimate of the average to the next model.

A server's rule may remember, may answer the users' coded reports before they send, and may keep
an output apart from the model it broadcasts: `output` is what is scored and handed out.
"""

from typing import Any

import optax

from jaxota import _optimizers
from jaxota.compress import Side
from jaxota.fading import Link
from jaxota.types import Array, State, part, static


@part
class Aggregate:
    """What the server holds of one block after a round."""

    estimate: Array  # [d] of the average of what was meant to be sent, its origin included
    deviation: Array  # [] √ν of the noise on the average
    link: Link
    side: Side


@part
class Adopt:
    """The estimate is the next model."""

    def start(self, model: Array):
        """What the server remembers before round 1."""
        return ()

    def answer(self, memory, reports: dict[str, Array], noise: Array, link: Link) -> Any:
        """What it tells the users who made these `reports` [user] before they send; `noise` is
        sw2/P."""
        return ()

    def __call__(self, seen: Aggregate, state: State):
        """The model [d] of the next round, and what the server remembers."""
        return seen.estimate, state.server

    def output(self, model: Array, memory) -> Array:
        """The model [d] that is scored."""
        return model


@part
class Optimizer:
    """An optax transformation makes the step from the pseudo-gradient −(estimate − model).

    Reddi et al. 2021; `optax.sgd(1.0)` is `Adopt`, to rounding.
    """

    optimizer: optax.GradientTransformation = static()

    answer, output = Adopt.answer, Adopt.output

    def start(self, model: Array):
        return self.optimizer.init(model)

    def __call__(self, seen: Aggregate, state: State):
        slope = state.model - seen.estimate
        step, memory = self.optimizer.update(slope, state.server, state.model)
        return optax.apply_updates(state.model, step), memory

    def check(self, path: str, setting) -> None:
        _optimizers.check_direction(path, self.optimizer, setting.task.dim, downhill=True)


def as_server(server):
    """A server's rule from itself or from an optax transformation."""
    return Optimizer(server) if isinstance(server, optax.GradientTransformation) else server
