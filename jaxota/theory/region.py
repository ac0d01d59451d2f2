"""The region of models that an algorithm visits, and what it meets there."""

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
    """What trials met on their way, round by round: the models they broadcast, and where users
    ended up from there.
    """

    smoothness: Scalar  # β
    strong_convexity: Scalar  # μ
    variance: Float[Array, "trial round"]  # the largest E‖g_i − ∇f_i‖² of any user
    second: Float[Array, "trial round"]  # the largest E‖g_i‖²
    own: Float[Array, "trial round"]  # mean_i ‖∇f_i‖² at the broadcast model
    common: Float[Array, "trial round"]  # ‖∇F‖² there
    distance: Float[Array, "trial round"]  # ‖θ̂ − θ*‖²
    lag: Float[Array, "trial round"]  # Σ_i ‖c_i − ∇f_i(θ*)‖²
    energy: Float[Array, "trial round user"]  # ‖Δ_i‖²
    control_energy: Float[Array, "trial round user"] | None  # ‖c_i‖² of that round
    power: Float[Array, "trial round"]  # max_i ‖x_i‖²/P of the model block
    heard: Float[Array, "trial round"]  # number of users
    gap: Float[Array, "trial round"]  # F(θ̄^r) − F*, of the weighted average after that round


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
    calibrated_from: Float[Array, "trial d"] | None = None,
) -> tuple[Region, Plan | None]:
    """To be compiled: the region that these trials visit, and the plan they used.

    `samples` is the most that any user holds; a plan that is missing is measured from the models
    `calibrated_from`, or from those that the task draws.
    """
    if algorithm.needs and plan is None:
        plan = measure_plan(options, key, algorithm, task, calibrated_from)
    problem = task.problem(0)
    reveal = functools.partial(_met, algorithm.local, problem, jnp.arange(samples))
    moments = (algorithm.moments(plan),)

    def trial(t: Int[Array, ""]) -> Any:
        start = initial[t] if initial is not None else initial
        run = key, t, (algorithm,), channel, problem, moments, start, options.rounds
        return one_trial(*run, reveal)[1][0]

    seen = in_chunks(trial, trials, options.chunk)
    return Region(*curvature(problem), **seen), plan


def _met(
    local: Any,
    problem: Any,
    each: Int[Array, "sample"],
    r: Int[Array, ""],
    before: State,
    info: Info,
    after: State,
) -> dict[str, Any]:
    """What a region keeps of a round; `each` numbers the samples of the largest user."""
    ends = before.model[None, None] + jnp.stack([jnp.zeros_like(info.moved), info.moved])
    gradient, variance = jax.vmap(lambda x: _gradients(problem, local.batch, each, x))(ends)
    lag: Any = None
    control_energy: Any = None
    full = gradient[0]  # [start or end, user, …] of the former
    if local.controlled:
        users = jnp.arange(problem.users)
        at_optimum = jax.vmap(problem.full_gradient, (None, 0))(problem.optimum, users)
        lag = jnp.sum((before.local - at_optimum) ** 2)
        control_energy = info.blocks[1].energy
    return {
        "variance": variance.max(),
        "second": (_square(gradient) + variance).max(),
        "own": _square(full).mean(),
        "common": _square(full.mean(0)),
        "distance": _square(before.model - problem.optimum),
        "lag": lag,
        "energy": info.blocks[0].energy,
        "control_energy": control_energy,
        "power": info.blocks[0].power.max(),
        "heard": info.participants,
        "gap": problem.score(after.average)["gap"],
    }


def _gradients(
    problem: Any,
    batch: int | None,
    each: Int[Array, "sample"],
    models: Float[Array, "user d"],
) -> tuple[Float[Array, "user d"], Float[Array, "user"]]:
    """Of each user at its model: ∇f_i, E‖g_i − ∇f_i‖².

    `each` numbers the samples, as many as any user holds.
    """
    users = jnp.arange(problem.users)
    full = jax.vmap(problem.full_gradient)(models, users)
    if batch is None:
        return full, jnp.zeros(problem.users)

    def spread(model: Vector, user: Int[Array, ""], mean: Vector) -> Scalar:
        def squared(s: Int[Array, ""]) -> Scalar:
            return jnp.sum((problem.gradient(model, user, s[None]) - mean) ** 2)

        inside = each < problem.counts[user]
        return jnp.mean(jax.vmap(squared)(each), where=inside) / batch

    return full, jax.vmap(spread)(models, users, full)


def curvature(problem: Any) -> tuple[Scalar, Scalar]:
    """β and μ of AS1, extremes over users of their Hessians' eigenvalues at the optimum."""
    users = jnp.arange(problem.users)
    hessians = jax.vmap(jax.jacfwd(problem.full_gradient), (None, 0))(problem.optimum, users)
    values = devices.eigenvalues(hessians)  # [user, d]
    return values.max(), jnp.maximum(values.min(), 0.0)


def _square(values: Float[Array, "*shape d"]) -> Float[Array, "*shape"]:
    """Squared norm along the last axis."""
    return jnp.sum(values**2, -1)
