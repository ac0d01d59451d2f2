"""The region of models that an algorithm visits, and what it meets there."""

import functools

import jax
import jax.numpy as jnp

from jaxota.calibration import measure as measure_plan
from jaxota.rounds import in_chunks, one_trial
from jaxota.types import Array, given, part


@part
class Region:
    """What trials met on their way, round by round: the models they broadcast, and where users
    ended up from there."""

    smoothness: Array  # [] β
    strong_convexity: Array  # [] μ
    variance: Array  # [trial, round] the largest E‖g_i − ∇f_i‖² of any user
    second: Array  # [trial, round] the largest E‖g_i‖²
    own: Array  # [trial, round] mean_i ‖∇f_i‖² at the broadcast model
    common: Array  # [trial, round] ‖∇F‖² there
    distance: Array  # [trial, round] ‖θ̂ − θ*‖²
    lag: Array  # [trial, round] Σ_i ‖c_i − ∇f_i(θ*)‖²
    energy: Array  # [trial, round, user] ‖Δ_i‖²
    control_energy: Array  # [trial, round, user] ‖c_i‖² as computed in that round, or ()
    power: Array  # [trial, round] max_i ‖x_i‖²/P of the model block
    heard: Array  # [trial, round] number of users
    gap: Array  # [trial, round] F(θ̄^r) − F*, of the weighted average after that round


def visit(
    options, samples: int, key, trials, algorithm, channel, task, plan, initial, calibrated_from=()
):
    """To be compiled: the region that these trials visit, and the plan they used.

    `samples` is the most that any user holds; a plan that is missing is measured from the models
    `calibrated_from` [trial, d], or from those that the task draws.
    """
    if algorithm.needs and not given(plan):
        plan = measure_plan(options, key, algorithm, task, calibrated_from)
    problem = task.problem(0)
    reveal = functools.partial(_met, algorithm.local, problem, jnp.arange(samples))
    moments = (algorithm.moments(plan),)

    def trial(t):
        start = initial[t] if given(initial) else initial
        run = key, t, (algorithm,), channel, problem, moments, start, options.rounds
        return one_trial(*run, reveal)[1][0]

    seen = in_chunks(trial, trials, options.chunk)
    return Region(*curvature(problem), **seen), plan


def _met(local, problem, each, r, before, info, after) -> dict[str, Array]:
    """What a region keeps of a round; `each` [sample] numbers the samples of the largest user."""
    ends = before.model[None, None] + jnp.stack([jnp.zeros_like(info.moved), info.moved])
    gradient, variance = jax.vmap(lambda x: _gradients(problem, local.batch, each, x))(ends)
    full, lag, control_energy = gradient[0], (), ()  # [start or end, user, …] of the former
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


def _gradients(problem, batch, each, models):
    """Of each user at its model [user, d]: ∇f_i [user, d], E‖g_i − ∇f_i‖² [user].

    `each` [sample] numbers the samples, as many as any user holds.
    """
    users = jnp.arange(problem.users)
    full = jax.vmap(problem.full_gradient)(models, users)
    if batch is None:
        return full, jnp.zeros(problem.users)

    def spread(model, user, mean):
        def squared(s):
            return jnp.sum((problem.gradient(model, user, s[None]) - mean) ** 2)

        inside = each < problem.counts[user]
        return jnp.mean(jax.vmap(squared)(each), where=inside) / batch

    return full, jax.vmap(spread)(models, users, full)


def curvature(problem):
    """β and μ of AS1 [], extremes over users of their Hessians' eigenvalues at the optimum."""
    users = jnp.arange(problem.users)
    hessians = jax.vmap(jax.jacfwd(problem.full_gradient), (None, 0))(problem.optimum, users)
    values = jnp.linalg.eigvalsh(hessians)  # [user, d]
    return values.max(), jnp.maximum(values.min(), 0.0)


def _square(values: Array) -> Array:
    """Squared norm along the last axis."""
    return jnp.sum(values**2, -1)
