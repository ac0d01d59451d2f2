"""A theorem's bound beside runs of the algorithm that it is about."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import arguments, inputs
from jaxota._core.devices import compiled, on_devices, spread, trials_at_once
from jaxota._core.part import Numbers, Scalar, Seed, part
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.tasks.problem import Task
from jaxota.theory import measuring
from jaxota.theory.statements import Bound, Constants, check_theorem


@part
class Comparison:
    """A theorem's bound for several numbers of rounds R, beside runs of R rounds.

    Attributes:
        gap: [R, trial] F(θ̄^R) − F* of the runs.
        bound: [R] the theorem's right-hand side, from `constants`.
        constants: [R] measured on these very runs.
        excess: [R] max_r max_i E‖Δ_i‖²/(KηM)²; the proofs take it to be at most 1.
        power: [R] max_r E[max_i ‖x_i‖²]/P of the model block.
    """

    gap: Float[Array, "R trial"]
    bound: Bound
    constants: Constants
    excess: Float[Array, "R"]
    power: Float[Array, "R"]


def compare(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: Numbers,
    trials: int = 20,
    *,
    theorem: Callable[..., Bound],
    step_size: Numbers | None = None,
    calibration_trials: int = 20,
) -> Comparison:
    """Compare the bound of `theorem` with runs of `algorithm`, for each R in `rounds`.

    All trials, and calibration, start from θ^0 = 0: d_0 is then a number, and M² does not depend on
    random initial models. Each R is a run of its own at its own step size. The proofs' step size
    for R needs constants, which are first measured at the largest step size that the theorem
    allows; the bound then comes from the constants of the final run.

    Args:
        key: random key, or seed, of the runs, as for `simulate`.
        algorithm: its step size is replaced by `step_size`.
        channel: one setting.
        task: a task that knows its optimum, as `jo.tasks.regression` does, with one set of data.
        rounds: [R] numbers of rounds.
        trials: number of runs for each R.
        theorem: `theorem_1`, `theorem_2` or `theorem_3`.
        step_size: [R] or one number; by default the proofs' choice for each R.
        calibration_trials: number of runs that measure the plan.
    """
    check_theorem(theorem)
    ends = [inputs.whole("rounds", r, 1) for r in np.ravel(inputs.real("rounds", rounds)).tolist()]
    if not ends:
        raise InputError("rounds must hold at least one number of rounds, got none")
    if step_size is not None:
        step_size = inputs.number("step_size", step_size, above=0.0)
        if step_size.shape not in ((), (len(ends),)):
            raise InputError(
                f"step_size must be a number, or {len(ends)} of them, one for each of rounds, "
                f"got shape {list(step_size.shape)}"
            )
    checked, options = arguments.experiment(
        key, algorithm, channel, task, max(ends), trials, calibration_trials=calibration_trials
    )
    parts = {name: checked[name] for name in ("algorithm", "channel", "task")}
    arguments.refuse_swept(**parts)
    measuring.refuse_unknown(**parts)
    chunk = trials_at_once((parts["algorithm"],), parts["task"], len(ends))
    options = options._replace(chunk=chunk, over=spread(1, len(ends)))
    each, applied = jnp.asarray(ends, "float32"), _applied(theorem)
    drawn = {name: checked[name] for name in ("key", "trials")}
    samples = int(measuring.largest_count(parts["task"]))
    run = functools.partial(_runs, options, samples, rounds=each, **drawn, **parts)
    if step_size is None:
        largest = theorem(_known_before(**parts), 1.0).largest_step
        constants = run(step_size=jnp.broadcast_to(largest, each.shape))[0]
        constants = jax.device_get(constants)  # sharded arrays would compile another program
        step_size = applied(constants, each, None).step_size
    step_size = jnp.broadcast_to(step_size, each.shape)
    constants, gap, excess, power = jax.device_get(run(step_size=step_size))
    measuring.refuse_diverged(constants)
    bound = jax.device_get(applied(constants, each, step_size))
    return Comparison(gap, bound, constants, excess, power)


@functools.cache
def _applied(theorem: Callable[..., Bound]) -> Callable[..., Bound]:
    """`theorem` for arrays [R] of constants, rounds and step sizes."""
    return jax.jit(jax.vmap(theorem))


@functools.partial(compiled, static=("options", "samples"))
def _runs(
    options: arguments.Options,
    samples: int,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    step_size: Float[Array, "R"],
    rounds: Float[Array, "R"],
) -> tuple[Constants, Float[Array, "R trial"], Float[Array, "R"], Float[Array, "R"]]:
    """Constants, gaps, and ratios of energy and power for each R, in one program.

    Every run takes as many rounds as the largest R, so that R can be traced; it is read at its own.
    """

    def run(values: list[Any]) -> Any:
        step_size, stop = values
        rule: Any = algorithm.local  # one that has a step size
        local = rule.replace(step_size=step_size)
        stepped = algorithm.replace(local=local)
        zeros = jnp.zeros((len(trials), task.dim), "float32")
        region, plan = measuring.visit(
            options, samples, key, trials, stepped, channel, task, None, zeros, zeros
        )
        constants = measuring.summarise(region, plan, stepped, channel, task, stop)
        inside = jnp.arange(options.rounds) < stop
        most = (local.steps * step_size) ** 2 * constants.gradient_bound
        energy = region.energy.mean(0).max(-1)  # max_i E‖Δ_i‖² [round]
        excess = jnp.max(energy, where=inside, initial=0.0) / jnp.where(most > 0, most, 1.0)
        power = jnp.max(region.power.mean(0), where=inside, initial=0.0)
        return constants, region.gap[:, stop.astype("int32") - 1], excess, power

    return on_devices(run, options.over, [step_size, rounds], [0, 0])


@jax.jit
def _known_before(algorithm: Algorithm, channel: Channel, task: Task) -> Constants:
    """Constants that limit the step size, known before any run: β, μ, N, S and K.

    B² is 1; the other constants do not enter the largest step.
    """
    smoothness, strong_convexity = measuring.curvature(task.problem(0))
    one: Scalar = jnp.float32(1.0)
    users = jnp.float32(task.users)
    chosen = channel.participants
    return Constants(
        smoothness,
        strong_convexity,
        *(one, one, one, one, one, one, one, one),
        users=users,
        steps=jnp.float32(algorithm.local.steps),
        dim=jnp.float32(task.dim),
        participants=chosen.astype("float32") if chosen is not None else users,
    )
