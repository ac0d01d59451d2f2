"""The best plan of a class: step sizes and a server tuned by gradients through the recursion.

The class is federated averaging over the air with plain local SGD and one block a round, in which

- all users take K steps of size η_r on minibatches of m samples,
- the gain spends the whole peak power, α_r = P / max_i E‖Δ_i‖², expectations over the run itself,
- the server takes θ̂ ← keep_r·θ̂ + gain_r·(received average of updates) + offset_r·1.

COTAF and BAAF are in it, up to their gains, which rest on calibrations. COBAAF, which sends two
blocks, and WISE, which is not linear, are not. The search ends at a local
optimum, or before it.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxota._core import arguments, inputs
from jaxota._core.part import (
    Memory,
    Scalar,
    Traced,
    Vector,
    part,
    suggest_keywords,
    traced,
)
from jaxota._core.schedule import by_round
from jaxota._core.state import Plan, State
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.expectation import Expected, check_linear, double, exact, gaps, task_data
from jaxota.stages.channel import Channel
from jaxota.stages.estimate import Identity
from jaxota.stages.local import SGD
from jaxota.stages.precode import Constant, Offline
from jaxota.stages.server import Aggregate, ReplaceModel
from jaxota.tasks.problem import Task
from jaxota.theory import links
from jaxota.theory.recursion import run


@part
class AffineServer:
    """θ̂ ← keep_r·θ̂ + gain_r·(estimate − θ̂) + offset_r in round r; its memory is r.

    Attributes:
        keep, gain, offset: [round] the numbers of every round.
    """

    keep: Traced[Float[Array, "round"]] = traced(rank=1)
    gain: Traced[Float[Array, "round"]] = traced(rank=1)
    offset: Traced[Float[Array, "round"]] = traced(rank=1)

    answer, choose, output = ReplaceModel.answer, ReplaceModel.choose, ReplaceModel.output

    def start(self, model: Vector) -> Int[Array, ""]:
        return jnp.zeros((), "int32")

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        r = state.server
        moved = aggregate.estimate - state.model
        return self.keep[r] * state.model + self.gain[r] * moved + self.offset[r], r + 1

    def affine(self, memory: Memory) -> tuple[Float[Array, "1 3"], Memory]:
        keep, gain, offset = (x[memory] for x in (self.keep, self.gain, self.offset))
        return jnp.stack([keep - gain, gain, offset])[None], memory + 1


class Best(NamedTuple):
    """A tuned algorithm, the plan of its gains, its expectations, and how it was found.

    Attributes:
        algorithm, plan: for `simulate` and `exact`.
        expected: the expectations on the task that it was tuned for.
        gradient: norm of the gradient of log(gap) at the end, by the logarithms of the numbers.
        evaluations: gradients that were computed.
    """

    algorithm: Algorithm
    plan: Plan
    expected: Expected
    gradient: float
    evaluations: int


@suggest_keywords
def exact_best(
    algorithm: Algorithm, channel: Channel, task: Task, rounds: int, iterations: int = 150
) -> Best:
    """Tune step sizes and server of every round for the least expected gap after the last one.

    Args:
        algorithm: an algorithm of plain local SGD, whose steps, minibatches and step size are where
            the search begins.
        channel: a channel without fading.
        task: least squares, with one set of data for all trials.
        rounds: R, communication rounds.
        iterations: of L-BFGS, at most.
    """
    from scipy import optimize  # slow to import, and it changes the filters of warnings

    checked, _ = arguments.experiment(0, algorithm, channel, task, rounds, 1)
    iterations = inputs.whole("iterations", iterations, 1)
    algorithm, channel, task = (checked[name] for name in ("algorithm", "channel", "task"))
    arguments.refuse_swept(algorithm=algorithm, channel=channel, task=task)
    check_linear(algorithm, channel, task)
    local: Any = algorithm.local
    steps, ones = local.linear_steps(), np.ones(rounds)
    if local.controlled:
        raise InputError("algorithm.local must have no controls: the class that is tuned has none")
    local = SGD(jnp.float32(1.0), local.steps, steps.batch)
    check_linear(_made(local, ones, ones, ones, ones), channel, task)
    sizes = np.asarray(steps.step_size).reshape(-1)[:rounds] * ones
    x = np.concatenate([np.log(sizes), 0 * ones, ones, 0 * ones])
    with jax.enable_x64(True):
        found = optimize.minimize(
            lambda x: tuple(map(np.asarray, _loss(rounds, local, channel, task, x)[0])),
            x.astype(np.float64),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "maxcor": 30},
        )
        (_, slope), energies = _loss(rounds, local, channel, task, found.x)
    tuned = _numbers(found.x)
    zeros = np.zeros((rounds, task.users), np.float32)
    plan = Plan(np.asarray(energies, np.float32), zeros, zeros)
    result = _made(local, *(np.asarray(x, np.float32) for x in tuned))
    expected = exact(result, channel, task, rounds, plan=plan)
    return Best(result, plan, expected, float(np.linalg.norm(slope)), int(found.nfev))


def _numbers(x: Any) -> tuple[Any, ...]:
    """Return step sizes, keep, gain and offset [round] from the vector of the search."""
    sizes, gain, keep, offset = jnp.split(jnp.asarray(x), 4)
    return jnp.exp(sizes), keep, jnp.exp(gain), offset


def _made(local: SGD, sizes: Any, keep: Any, gain: Any, offset: Any) -> Algorithm:
    paced = SGD(by_round(sizes), local.steps, local.batch)
    return Algorithm(paced, Offline(), Identity(), server=AffineServer(keep, gain, offset))


@functools.partial(jax.jit, static_argnums=0)
def _loss(
    rounds: int, local: SGD, channel: Channel, task: Any, x: Float[Array, "x"]
) -> tuple[tuple[Scalar, Array], Float[Array, "round"]]:
    """Return the logarithm of the last gap with its gradient, and the energies of all rounds."""
    data, carrier = task_data(task.problem(0)), double(channel)

    def loss(x: Array) -> tuple[Scalar, Array]:
        algorithm = _made(local, *_numbers(x))
        # The energy is that of the run, whatever the precoder says.
        given = algorithm.replace(precode=Constant(jnp.ones(())))
        air, *_ = links.air(rounds, given, carrier, data, None, None)
        air = air._replace(links=(air.links[0]._replace(energy=None),))
        states, (record,) = run(rounds, algorithm, data, air)
        return jnp.log(gaps(data, states)[0][-1]), record.energy.max(1)

    (value, energies), slope = jax.value_and_grad(loss, has_aux=True)(x)
    return (value, slope), energies
