"""The region of models that the runs of an algorithm visit, and the gradients met there."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import devices
from jaxota._core.arguments import Options
from jaxota._core.devices import in_chunks
from jaxota._core.part import Scalar, Vector, part
from jaxota._core.state import Info, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.calibration import measure as measure_plan
from jaxota.rounds import one_trial
from jaxota.stages.channel import Channel
from jaxota.tasks.problem import Task


@part
class Region:
    """Statistics of every round of every trial, at the broadcast model and after users' steps."""

    smoothness: Scalar  # β
    strong_convexity: Scalar  # μ
    gradient_variance: Float[Array, "trial round"]  # the largest E‖g_i − ∇f_i‖² of any user
    gradient_square: Float[Array, "trial round"]  # the largest E‖g_i‖²
    user_gradients: Float[Array, "trial round"]  # mean_i ‖∇f_i‖² at the broadcast model
    gradient: Float[Array, "trial round"]  # ‖∇F‖² at the broadcast model
    distance: Float[Array, "trial round"]  # ‖θ̂ − θ*‖²
    control_distance: Float[Array, "trial round"] | None  # Σ_i ‖c_i − ∇f_i(θ*)‖²
    energy: Float[Array, "trial round user"]  # ‖Δ_i‖²
    control_energy: Float[Array, "trial round user"] | None  # ‖c_i‖² of that round
    power: Float[Array, "trial round"]  # max_i ‖x_i‖²/P of the model block
    participants: Float[Array, "trial round"]  # number of users heard
    gap: Float[Array, "trial round"]  # F(θ̄^r) − F* of the weighted average after that round


def visit(
    options: Options,
    samples: int,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    plan: Plan | None,
    initial: Float[Array, "trial d"] | None,
    calibrated_from: Float[Array, "start d"] | None = None,
) -> tuple[Region, Plan | None]:
    """Run the trials; return the region that they visit, and the plan that they used.

    Args:
        options: shapes of the program, which is to be compiled.
        samples: number of samples of the user that holds most.
        key, trials, algorithm, channel, task, initial: as for `simulate`.
        plan: measured here if it is None and the algorithm needs one.
        calibrated_from: models from which calibration starts; by default the task draws them.
    """
    if algorithm.needs and plan is None:
        plan = measure_plan(options, key, algorithm, task, calibrated_from)
    problem = task.problem(0)
    reveal = functools.partial(_statistics, algorithm.local, problem, jnp.arange(samples))
    moments = (algorithm.moments(plan),)

    def trial(t: Int[Array, ""]) -> Any:
        start = initial[t] if initial is not None else initial
        run = key, t, (algorithm,), channel, problem, moments, start, options.rounds
        return one_trial(*run, reveal)[1][0]

    statistics = in_chunks(trial, trials, options.chunk)
    return Region(*curvature(problem), **statistics), plan


def _statistics(
    local: Any,
    problem: Any,
    samples: Int[Array, "sample"],
    r: Int[Array, ""],
    before: State,
    info: Info,
    after: State,
) -> dict[str, Any]:
    """Return one round's fields of a `Region`; `samples` are 0, 1, … of the largest user."""
    ends = before.model[None, None] + jnp.stack([jnp.zeros_like(info.moved), info.moved])
    gradient, variance = jax.vmap(lambda x: _gradients(problem, local.batch, samples, x))(ends)
    control_distance: Any = None
    control_energy: Any = None
    broadcast = gradient[0]  # [user, d], those at the broadcast model
    if local.controlled:
        users = jnp.arange(problem.users)
        at_optimum = jax.vmap(problem.full_gradient, (None, 0))(problem.optimum, users)
        control_distance = jnp.sum((before.local - at_optimum) ** 2)
        control_energy = info.blocks[1].energy
    return {
        "gradient_variance": variance.max(),
        "gradient_square": (_square(gradient) + variance).max(),
        "user_gradients": _square(broadcast).mean(),
        "gradient": _square(broadcast.mean(0)),
        "distance": _square(before.model - problem.optimum),
        "control_distance": control_distance,
        "energy": info.blocks[0].energy,
        "control_energy": control_energy,
        "power": info.blocks[0].power.max(),
        "participants": info.participants,
        "gap": problem.score(after.average)["gap"],
    }


def _gradients(
    problem: Any,
    batch: int | None,
    samples: Int[Array, "sample"],
    models: Float[Array, "user d"],
) -> tuple[Float[Array, "user d"], Float[Array, "user"]]:
    """Return every user's ∇f_i and E‖g_i − ∇f_i‖² at its model."""
    users = jnp.arange(problem.users)
    full = jax.vmap(problem.full_gradient)(models, users)
    if batch is None:
        return full, jnp.zeros(problem.users)

    def variance(model: Vector, user: Int[Array, ""], mean: Vector) -> Scalar:
        def squared(s: Int[Array, ""]) -> Scalar:
            return jnp.sum((problem.gradient(model, user, s[None]) - mean) ** 2)

        # Samples of a minibatch are independent, so its variance is that of one over its size.
        inside = samples < problem.counts[user]
        return jnp.mean(jax.vmap(squared)(samples), where=inside) / batch

    return full, jax.vmap(variance)(models, users, full)


def curvature(problem: Any) -> tuple[Scalar, Scalar]:
    """Return β and μ of AS1, the extreme eigenvalues of users' Hessians at the optimum."""
    users = jnp.arange(problem.users)
    hessians = jax.vmap(jax.jacfwd(problem.full_gradient), (None, 0))(problem.optimum, users)
    values = devices.eigenvalues(hessians)  # [user, d]
    return values.max(), jnp.maximum(values.min(), 0.0)


def _square(values: Float[Array, "*shape d"]) -> Float[Array, "*shape"]:
    """Return the squared norm along the last axis."""
    return jnp.sum(values**2, -1)
