"""FedDyn's local rule and server: dynamic regularisation (Acar et al., 2021).

"Federated learning based on dynamic regularization". Users minimise f_i(θ) − ⟨m_i, θ⟩ +
(a/2)‖θ − θ̂‖² and the server follows h = mean m_i, so that the point where all rest is the optimum
of F, whatever the users' data and however many local steps they take.
"""

import dataclasses

import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from jaxota._core.part import Memory, Scalar, Traced, Vector, part, static, traced
from jaxota._core.schedule import StepSize
from jaxota._core.state import State
from jaxota.stages.batches import Steps
from jaxota.stages.local import SGD, LocalUpdate, if_heard, local_steps
from jaxota.stages.server import Aggregate, Server
from jaxota.tasks.problem import Problem


@part
class DynamicSGD:
    """SGD along u = g_i(θ_i) − m_i + a(θ_i − θ̂), and then m_i ← m_i − a(θ_i − θ̂).

    Attributes:
        penalty: a, which must be the server's, too.

    The other fields are those of `SGD`; there is no `transform`. The users' memory is m_i.
    """

    step_size: StepSize = traced(above=0.0, by_round=True)
    steps: Steps = static(default=None, at_least=1)
    batch: int | None = static(default=None, at_least=1)
    penalty: Traced[Scalar] = traced(default=0.1, above=0.0)
    epochs: int | None = static(default=None, at_least=1)
    last: str = static(default="short", one_of=("short", "dropped"))
    clip: Traced[Scalar | None] = traced(default=None, above=0.0, infinite=True)

    controlled, plain, transform, keep_momentum = False, False, optax.identity(), False
    remember, replace = if_heard, dataclasses.replace
    draws, reach = SGD.draws, SGD.reach

    @property
    def mu(self) -> Scalar:
        """The pull to the broadcast model, as that of `Proximal`."""
        return self.penalty

    def start(self, key: PRNGKeyArray, problem: Problem, model: Vector) -> tuple[None, Memory]:
        return None, jnp.zeros((problem.users, problem.dim), "float32")

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        updates, _ = local_steps(self, k_batch, problem, state, None, -state.local)
        return LocalUpdate(updates, memory=state.local - self.penalty * updates)


@part
class DynamicServer:
    """h ← h − (a/N)·Σ_heard(θ_i − θ̂), and θ̂ ← mean_heard θ_i − h/a.

    Noise on the average adds up in h, as nobody corrects it there.

    Attributes:
        penalty: a, which must be that of the users.
    """

    penalty: Traced[Scalar] = traced(default=0.1, above=0.0)

    answer, choose, output = Server.answer, Server.choose, Server.output

    def start(self, model: Vector) -> Vector:
        return jnp.zeros_like(model)

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        # The mean over S^r, times |S^r|/N: those who were not heard keep their m_i.
        share = aggregate.link.heard.mean()
        memory = state.server - self.penalty * share * (aggregate.estimate - state.model)
        return aggregate.estimate - memory / self.penalty, memory
