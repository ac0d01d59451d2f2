"""The algorithms: each is a choice of parts, one for each stage of a round."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxota._core.part import Numbers, part, suggest_keywords
from jaxota._core.schedule import StepSizes
from jaxota._core.state import PLANNED, Moments, Plan
from jaxota.stages.channel import ErrorFree, Medium, OverTheAir
from jaxota.stages.compress import Clipped, Compressor, Uncompressed
from jaxota.stages.dynamic import DynamicServer, DynamicSGD
from jaxota.stages.estimate import MMSE, Estimator, Identity
from jaxota.stages.local import SGD, ControlVariateSGD, LocalRule
from jaxota.stages.precode import Constant, Level, Offline, Online, Precoder
from jaxota.stages.server import ReplaceModel, Server, as_server
from jaxota.stages.wise import Innovations, PathCorrectedSGD


@part
class Algorithm:
    """A federated algorithm: one part for each stage of a round, apart from the channel.

    Attributes:
        local: the users' local steps: `SGD`, `Proximal`, `ControlVariateSGD`, `PathCorrectedSGD`.
        precode: the scaling to the power budget: `Offline`, `Online`, `Constant`, `Bounded`, …
        estimate: the server's estimate of the average: `Identity`, `MMSE`, `ReportedMMSE`,
            `PooledMMSE`, `UpdateMMSE`, `JamesStein`.
        compress: the users' encoding of their vectors: `Uncompressed`, `Centred`, `Clipped`.
        server: the server's step: `ReplaceModel` takes the estimate as the next model; an optax
            optimiser such as `optax.adam(0.1)` steps on the pseudo-gradient −(estimate − model).
        medium: the users' way to the server: the channel, `OverTheAir`, or error-free links,
            `ErrorFree`.
    """

    local: LocalRule
    precode: Precoder
    estimate: Estimator
    compress: Compressor = Uncompressed()
    server: Server = ReplaceModel()
    medium: Medium = OverTheAir()

    replace = dataclasses.replace

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of `Moments` that the algorithm reads from a plan."""
        return (*self.precode.needs, *self.estimate.needs)

    @property
    def cohorts(self) -> bool:
        """Whether users who are drawn to take part in a round may compute alone."""
        parts = (getattr(self, field.name) for field in dataclasses.fields(self))
        return all(getattr(part, "cohorts", False) for part in parts)

    def moments(self, plan: Plan | None, rounds: int, done: Any = 0) -> tuple[Moments, ...]:
        """Return the plan's moments of each block, by round; () where no plan is needed.

        The `rounds` rows begin after `done` rounds: a plan may be that of a longer run.
        """
        if plan is None or not self.needs:
            return ()
        blocks = tuple(_moments(plan, block) for block in range(1 + self.local.controlled))
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, done, rounds), blocks)


def _moments(plan: Plan, block: int) -> Moments:
    row = {name: getattr(plan, fields[block]) for name, fields in PLANNED.items()}
    energy = row["energy"]
    peak = jnp.full_like(energy, jnp.max(energy)) if energy is not None else None
    return Moments(peak=peak, **row)


@suggest_keywords
def fedavg(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    transform: optax.GradientTransformation = optax.identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = ReplaceModel(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """Federated averaging over error-free links: the reference without controls.

    The arguments are those of `SGD` and of `Algorithm`.
    """
    local = SGD(step_size, steps, batch, transform, epochs, clip=clip)
    # Without noise the gain cancels and the estimate is exact: any pair without a plan will do.
    return Algorithm(local, Online(), Identity(), compress, as_server(server), ErrorFree())


@suggest_keywords
def scaffold(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    control_batch: int | None = None,
    control_option: int = 1,
    warm_start: bool = False,
    transform: optax.GradientTransformation = optax.identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = ReplaceModel(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """SCAFFOLD, FedAvg with control variates, over error-free links: the reference with controls.

    The arguments are those of `ControlVariateSGD` and of `Algorithm`.
    """
    controls = control_batch, control_option, warm_start
    local = ControlVariateSGD(step_size, steps, batch, *controls, transform, epochs, clip=clip)
    return Algorithm(local, Online(), Identity(), compress, as_server(server), ErrorFree())


@suggest_keywords
def noisy_fedavg(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    transform: optax.GradientTransformation = optax.identity(),
    precode: Precoder = Constant(),
    estimate: Estimator = Identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = ReplaceModel(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """FedAvg over the air with one constant gain for all rounds.

    The arguments are those of `SGD` and of `Algorithm`.
    """
    local = SGD(step_size, steps, batch, transform, epochs, clip=clip)
    return Algorithm(local, precode, estimate, compress, as_server(server))


@suggest_keywords
def cotaf(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    transform: optax.GradientTransformation = optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = Identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = ReplaceModel(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """FedAvg over the air with time-varying precoding (Sery et al., 2021).

    The arguments are those of `SGD` and of `Algorithm`.
    """
    local = SGD(step_size, steps, batch, transform, epochs, clip=clip)
    return Algorithm(local, precode, estimate, compress, as_server(server))


@suggest_keywords
def baaf(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    transform: optax.GradientTransformation = optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = MMSE(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = ReplaceModel(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """COTAF with a Bayesian estimate of the average; the paper's Algorithm 1.

    The arguments are those of `SGD` and of `Algorithm`.
    """
    local = SGD(step_size, steps, batch, transform, epochs, clip=clip)
    return Algorithm(local, precode, estimate, compress, as_server(server))


@suggest_keywords
def cobaaf(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    control_batch: int | None = None,
    control_option: int = 1,
    warm_start: bool = False,
    transform: optax.GradientTransformation = optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = MMSE(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = ReplaceModel(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """BAAF with control variates on a second block; the paper's Algorithm 2.

    The arguments are those of `ControlVariateSGD` and of `Algorithm`.
    """
    controls = control_batch, control_option, warm_start
    local = ControlVariateSGD(step_size, steps, batch, *controls, transform, epochs, clip=clip)
    return Algorithm(local, precode, estimate, compress, as_server(server))


@suggest_keywords
def feddyn(
    step_size: StepSizes,
    steps: int | None = None,
    batch: int | None = None,
    penalty: Numbers = 0.1,
    precode: Precoder = Offline(),
    estimate: Estimator = Identity(),
    compress: Compressor = Uncompressed(),
    epochs: int | None = None,
    clip: Numbers | None = None,
) -> Algorithm:
    """FedDyn over the air: dynamic regularisation of users and server (Acar et al., 2021).

    The arguments are those of `DynamicSGD` and of `Algorithm`.
    """
    local = DynamicSGD(step_size, steps, batch, penalty, epochs, clip=clip)
    return Algorithm(local, precode, estimate, compress, DynamicServer(penalty))


@suggest_keywords
def wise(step_size: Numbers, steps: int, batch: int | None = None) -> Algorithm:
    """WISE, an aggregator without a plan: COTAF's channel uses, and three coded scalars per user.

    The arguments are those of `PathCorrectedSGD`; change parts with `replace`.
    """
    local = PathCorrectedSGD(step_size, steps, batch)
    return Algorithm(local, Level(), Identity(), Clipped(), Innovations())
