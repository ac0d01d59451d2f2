"""A theorem beside the simulation of the algorithm it is of, on several data draws at once."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import arguments as _arguments
from jaxota._core.batching import trials_at_once
from jaxota._core.devices import compiled, on_devices, spread
from jaxota._core.part import Numbers, Scalar, part
from jaxota.algorithms import Algorithm
from jaxota.stages.channel import Channel
from jaxota.tasks.least_squares import Regression
from jaxota.theory import statements as theory
from jaxota.theory.measuring import summarise
from jaxota.theory.region import curvature, visit

CALIBRATION_TRIALS = 20


@part
class Beside:
    """One theorem beside its simulation: for each data draw and each R, one run at its own step."""

    gap: Float[Array, "draw R trial"]  # F(θ̄^R) − F*
    bound: theory.Bound  # [draw, R]
    constants: theory.Constants  # [draw, R] measured on these very runs
    excess: Float[Array, "draw R"]  # max_r max_i E‖Δ_i‖²/(KηM)², in the proofs at most 1
    power: Float[Array, "draw R"]  # max_r E[max_i ‖x_i‖²]/P of the model block


def beside(
    theorem: Callable[..., theory.Bound],
    key: PRNGKeyArray,
    algorithm: Algorithm,
    channel: Channel,
    task: Regression,
    rounds: Numbers,
    trials: int,
    step_size: ArrayLike | None = None,
    calibration_trials: int = CALIBRATION_TRIALS,
) -> Beside:
    """`theorem` and the simulation of `algorithm`, for each R of `rounds`, on each data draw.

    Args:
        theorem: a function of `theory`.
        key, algorithm, channel, trials, calibration_trials: of the runs, as `simulate` takes them.
        task: a `jo.tasks.regression` whose arrays have a leading axis [draw].
        rounds: [R] in whole numbers.
        step_size: [draw, R], in the place of the proofs'.

    All trials and all of calibration start from θ^0 = 0, so that d_0 is a number and M² no matter
    of chance starts. Each R is a run of its own at the proofs' step size for that R, which comes
    from constants measured at the largest step allowed; the bound is computed from the constants
    of the run itself.
    """
    ends = np.asarray(rounds)
    longest = int(ends.max())
    arguments, options = _arguments.experiment(
        key, algorithm, channel, task, longest, trials, calibration_trials=calibration_trials
    )
    del arguments["plan"], arguments["initial"]
    samples, every = int(np.max(task.counts)), jnp.asarray(ends, "float32")
    settings = len(task.counts) * len(ends)
    chunk = trials_at_once((algorithm,), jax.tree.map(lambda x: x[0], task), settings)
    options = options._replace(chunk=chunk, over=spread(1, len(ends)))
    apply = _applied(theorem)
    run = functools.partial(_runs, options, samples, rounds=every, **arguments)
    if step_size is None:
        start = _coarse(arguments["algorithm"], arguments["channel"], arguments["task"])
        largest = jax.vmap(lambda c: theorem(c, 1.0).largest_step)(start)
        shape = len(task.counts), len(ends)
        constants = run(step_size=jnp.broadcast_to(largest[:, None], shape))[0]
        constants = jax.device_get(constants)  # dealt out, they would make for other programs
        step_size = apply(constants, every, None).step_size
    step_size = jnp.asarray(step_size, "float32")
    constants, gap, excess, power = jax.device_get(run(step_size=step_size))
    bound = jax.device_get(apply(constants, every, step_size))
    return Beside(gap, bound, constants, excess, power)


@functools.cache
def _applied(theorem: Callable[..., theory.Bound]) -> Callable[..., theory.Bound]:
    """`theorem` for [draw, R] of constants."""
    return jax.jit(jax.vmap(jax.vmap(theorem), (0, None, 0)))


@functools.partial(compiled, static=("options", "samples"))
def _runs(
    options: _arguments.Options,
    samples: int,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    channel: Channel,
    task: Regression,
    step_size: Float[Array, "draw R"],
    rounds: Float[Array, "R"],
) -> tuple[theory.Constants, Float[Array, "draw R trial"], Array, Array]:
    """For each data draw and R: constants, gaps [trial], energy and power ratios, one program.

    Runs go on for the largest R, and are read at their own.
    """

    def one(task: Regression, step_size: Scalar, stop: Scalar) -> Any:
        rule: Any = algorithm.local  # one that has a step size
        local = rule.replace(step_size=step_size)
        mine = algorithm.replace(local=local)
        zeros = jnp.zeros((len(trials), task.dim), "float32")
        run = key, trials, mine, channel, task, None, zeros
        region, plan = visit(options, samples, *run, calibrated_from=zeros)
        constants = summarise(region, plan, mine, channel, task, stop)
        inside = jnp.arange(options.rounds) < stop
        most = (local.steps * step_size) ** 2 * constants.gradient_bound
        energy = region.energy.mean(0).max(-1)  # max_i E‖Δ_i‖² [round]
        excess = jnp.max(energy, where=inside, initial=0.0) / jnp.where(most > 0, most, 1.0)
        power = jnp.max(region.power.mean(0), where=inside, initial=0.0)
        return constants, region.gap[:, stop.astype("int32") - 1], excess, power

    def end(values: list[Any]) -> Any:  # of each R, on all draws
        return jax.vmap(one, (0, 0, None))(task, *values)

    found = on_devices(end, options.over, [step_size.T, rounds], [0, 0])
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), found)


@jax.jit
def _coarse(algorithm: Algorithm, channel: Channel, task: Regression) -> theory.Constants:
    """Constants [draw] that limit the step: β, μ, N, S and K; B² is 1, the others stand idle."""

    def one(task: Regression) -> theory.Constants:
        smoothness, strong_convexity = curvature(task.problem(0))
        one, users = jnp.float32(1.0), jnp.float32(task.users)
        chosen = channel.participants
        return theory.Constants(
            smoothness,
            strong_convexity,
            *(one, one, one, one, one, one, one, one),
            users=users,
            steps=jnp.float32(algorithm.local.steps),
            dim=jnp.float32(task.dim),
            participants=chosen.astype("float32") if chosen is not None else users,
        )

    return jax.vmap(one)(task)
