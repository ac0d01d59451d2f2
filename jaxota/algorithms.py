"""The table: each algorithm is a choice of parts."""

import optax

from jaxota.estimate import MMSE, Identity, JamesStein, PooledMMSE, ReportedMMSE
from jaxota.local import SGD, Controlled
from jaxota.precode import Bounded, Constant, ErrorFree, Offline, Online
from jaxota.types import part

Precoder = Offline | Online | Constant | Bounded | ErrorFree
Estimator = Identity | MMSE | ReportedMMSE | PooledMMSE | JamesStein


@part
class Algorithm:
    """What users compute, how they scale it, and what the server makes of the sum."""

    local: SGD | Controlled
    precode: Precoder
    estimate: Estimator

    @property
    def needs_plan(self) -> bool:
        return self.precode.needs_plan or self.estimate.needs_plan


def fedavg(step_size, steps, batch=None, optimizer=optax.identity()) -> Algorithm:
    """Federated averaging over error-free links: the reference without controls."""
    return Algorithm(SGD(step_size, steps, batch, optimizer), ErrorFree(), Identity())


def scaffold(
    step_size,
    steps,
    batch=None,
    control_batch=None,
    control_option=1,
    warm_start=False,
    optimizer=optax.identity(),
) -> Algorithm:
    """FedAvg with control variates over error-free links: the reference with controls."""
    local = Controlled(
        step_size, steps, batch, control_batch, control_option, warm_start, optimizer
    )
    return Algorithm(local, ErrorFree(), Identity())


def noisy_fedavg(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    precode: Precoder = Constant(),
    estimate: Estimator = Identity(),
) -> Algorithm:
    """FedAvg over the air with one constant gain for all rounds."""
    return Algorithm(SGD(step_size, steps, batch, optimizer), precode, estimate)


def cotaf(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = Identity(),
) -> Algorithm:
    """FedAvg over the air with time-varying precoding (Sery et al., 2021)."""
    return Algorithm(SGD(step_size, steps, batch, optimizer), precode, estimate)


def baaf(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = MMSE(),
) -> Algorithm:
    """COTAF with a Bayesian estimate of the average; the paper's Algorithm 1."""
    return Algorithm(SGD(step_size, steps, batch, optimizer), precode, estimate)


def cobaaf(
    step_size,
    steps,
    batch=None,
    control_batch=None,
    control_option=1,
    warm_start=False,
    optimizer=optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = MMSE(),
) -> Algorithm:
    """BAAF with control variates on a second block; the paper's Algorithm 2."""
    reference = scaffold(
        step_size, steps, batch, control_batch, control_option, warm_start, optimizer
    )
    return reference.replace(precode=precode, estimate=estimate)
