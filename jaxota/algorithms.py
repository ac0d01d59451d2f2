"""The table: each algorithm is a choice of parts.

Wherever they appear, the arguments are these:

step_size: η, a number or an array to sweep over.
steps: K, local steps a round.
batch: samples that a user draws for each step; None for its whole local set.
control_batch: samples for the renewal of a control; None for the whole local set.
control_option: 1 renews controls with a gradient at the broadcast model, 2 by what users moved.
warm_start: whether controls start from gradients at the initial model instead of 0.
optimizer: an optax transformation of the local direction, before the factor η.
precode: how users scale to the power budget: `Offline`, `Online`, `Constant`, `Bounded`.
estimate: what the server makes of the noisy average: `Identity`, `MMSE`, `ReportedMMSE`,
    `PooledMMSE`, `JamesStein`.
compress: what users send in place of their vectors: `Uncompressed`.
server: how the server steps: `Adopt` takes the estimate as it is; an optax transformation such as
    `optax.adam(0.1)` is fed the pseudo-gradient −(estimate − model).
"""

import optax

from jaxota.channel import Air, Wired
from jaxota.compress import Uncompressed
from jaxota.estimate import MMSE, Identity
from jaxota.local import SGD, Controlled
from jaxota.precode import Constant, Offline, Online
from jaxota.server import Adopt, as_server
from jaxota.stages import Compressor, Estimator, LocalRule, Medium, Precoder, Server
from jaxota.types import Moments, Plan, part


@part
class Algorithm:
    """What users compute, what they send of it and how, and what the server makes of the sum."""

    local: LocalRule
    precode: Precoder
    estimate: Estimator
    compress: Compressor = Uncompressed()
    server: Server = Adopt()
    medium: Medium = Air()

    @property
    def needs(self) -> tuple[str, ...]:
        """What it reads of a plan."""
        return (*self.precode.needs, *self.estimate.needs)

    def moments(self, plan: Plan) -> tuple[Moments, ...]:
        """What it uses of the plan, block by block, to be scanned over rounds."""
        return plan.moments(self.local.controlled) if self.needs else ()


def fedavg(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = Adopt(),
) -> Algorithm:
    """Federated averaging over error-free links: the reference without controls."""
    local = SGD(step_size, steps, batch, optimizer)
    return Algorithm(local, Online(), Identity(), compress, as_server(server), Wired())


def scaffold(
    step_size,
    steps,
    batch=None,
    control_batch=None,
    control_option=1,
    warm_start=False,
    optimizer=optax.identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = Adopt(),
) -> Algorithm:
    """FedAvg with control variates over error-free links: the reference with controls."""
    local = Controlled(
        step_size, steps, batch, control_batch, control_option, warm_start, optimizer
    )
    return Algorithm(local, Online(), Identity(), compress, as_server(server), Wired())


def noisy_fedavg(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    precode: Precoder = Constant(),
    estimate: Estimator = Identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = Adopt(),
) -> Algorithm:
    """FedAvg over the air with one constant gain for all rounds."""
    reference = fedavg(step_size, steps, batch, optimizer, compress, server)
    return _over_the_air(reference, precode, estimate)


def cotaf(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = Identity(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = Adopt(),
) -> Algorithm:
    """FedAvg over the air with time-varying precoding (Sery et al., 2021)."""
    reference = fedavg(step_size, steps, batch, optimizer, compress, server)
    return _over_the_air(reference, precode, estimate)


def baaf(
    step_size,
    steps,
    batch=None,
    optimizer=optax.identity(),
    precode: Precoder = Offline(),
    estimate: Estimator = MMSE(),
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = Adopt(),
) -> Algorithm:
    """COTAF with a Bayesian estimate of the average; the paper's Algorithm 1."""
    reference = fedavg(step_size, steps, batch, optimizer, compress, server)
    return _over_the_air(reference, precode, estimate)


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
    compress: Compressor = Uncompressed(),
    server: Server | optax.GradientTransformation = Adopt(),
) -> Algorithm:
    """BAAF with control variates on a second block; the paper's Algorithm 2."""
    controls = control_batch, control_option, warm_start
    reference = scaffold(step_size, steps, batch, *controls, optimizer, compress, server)
    return _over_the_air(reference, precode, estimate)


def _over_the_air(reference: Algorithm, precode: Precoder, estimate: Estimator) -> Algorithm:
    return reference.replace(precode=precode, estimate=estimate, medium=Air())
