"""Measure the theorems' constants on a task by running the algorithm.

The runs visit a region of models; `Region` holds the gradients met there, `Constants` their maxima.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxota._core import arguments, devices
from jaxota._core.arguments import Options
from jaxota._core.devices import Spread, compiled, in_chunks
from jaxota._core.part import Numbers, Scalar, Seed, Vector, part
from jaxota._core.state import Info, Moments, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.calibration import measure as measure_plan
from jaxota.errors import InputError
from jaxota.rounds import one_trial
from jaxota.stages.channel import Channel, noise_over
from jaxota.tasks.problem import Task
from jaxota.theory import noise
from jaxota.theory.statements import Constants

_TINY = np.finfo(np.float32).tiny


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


def measure(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int = 20,
    *,
    plan: Plan | None = None,
    initial: Numbers | None = None,
) -> Constants:
    """Measure the theorems' constants for `algorithm` over `channel` on `task` by running it.

    Maxima are over Θ, the region that the runs visit: every broadcast model, and every user's model
    after its K steps; the models in between are left out.

    Constants:
        smoothness, strong_convexity: the largest and least eigenvalue of any user's Hessian, exact;
            it is the same everywhere in least squares.
        gradient_variance: the largest E‖g_i − ∇f_i‖² in Θ, exact over the draw of a minibatch.
        gradient_bound: the largest E‖g_i‖² in Θ, but no less than the gains need. The proofs have
            gains 1/α ≤ (KηM)²/P and 1/β ≤ M²/P: calibration may have met larger updates than the
            runs, and `Bounded` has an M of its own.
        dissimilarity_factor, dissimilarity: B² is the slope, at least 1, of a least squares line of
            mean_i ‖∇f_i‖² on ‖∇F‖² over all broadcast models (less if that leaves G² = 0), and G²
            the least offset that makes AS3 true at each of them.
        initial_distance, control_distance: means over trials; the bounds are concave in them where
            their logarithms exceed 1.
        model_noise, control_noise: σ_θ and σ_c, the largest of all rounds with `participants`
            users, from the gains and prior variances of the plan (Online: from the gains of the
            run; without a prior: sw2). S users have s² = mean_i σ_i²/S, by Jensen no less than what
            sets of S users give on average. They are true of the run as far as the prior is:
            calibration's is of a noise-free run on a fifth of the data, with users taken as
            independent.
        participants: the least number of users heard in any round: S under AS4, N without fading.

    The other constants are choices of algorithm and channel, among them η and R of the runs.

    Args:
        key: random key, or seed, of the runs, as for `simulate`.
        algorithm, channel: one setting; the constants belong to its step size.
        task: a task that knows its optimum, as `jo.tasks.regression` does, with one set of data.
        rounds: R of each run; theorems should be evaluated for at most twice as many.
        trials: number of runs. Maxima over the region grow with it where initial models are random;
            for the constants of one start, give one `initial` in every row.
        plan: result of `jo.calibrate`; by default it is measured, as `simulate` does.
        initial: [trial, d] models to start from; by default the task draws them.
    """
    checked, options = arguments.experiment(
        key, algorithm, channel, task, rounds, trials, plan, initial
    )
    parts = {name: checked[name] for name in ("algorithm", "channel", "task")}
    arguments.refuse_swept(**parts, plan=checked["plan"])
    refuse_unknown(**parts)
    options = options._replace(over=Spread())  # on one device
    region, used = _visit(options, int(largest_count(parts["task"])), **checked)
    constants = summarise(region, used, **parts, rounds=jnp.float32(rounds))
    refuse_diverged(constants)
    return constants


def refuse_unknown(algorithm: Algorithm, channel: Channel, task: Any) -> None:
    """Refuse settings that the theorems say nothing about."""
    if getattr(task, "redraw", False):
        raise InputError("task.redraw must be False here: constants belong to one set of data")
    if not hasattr(jax.eval_shape(task.problem, 0), "optimum"):
        raise InputError(
            "task must know its optimum, as jo.tasks.regression does: d_0 is measured from it"
        )
    air = algorithm.medium(channel)
    variance, over = air.noise_variance(task.dim), noise_over(channel.power, air, task.dim)
    if variance is not None and over is not None and over > 0 and not _TINY <= variance < np.inf:
        raise InputError(
            f"channel.power must make sw2 = P·10^(−snr_db/10) at least {_TINY:.1e}, and finite in "
            f"float32, as σ_θ is of its size, got {float(channel.power):g}"
        )
    noise.check_parts(algorithm, channel)
    if not getattr(algorithm.local, "plain", False):
        raise InputError(
            "algorithm.local must step by gradients alone here: the theorems cover neither "
            "optimisers nor proximal terms"
        )


def refuse_diverged(constants: Constants) -> None:
    """Refuse constants that are not finite."""
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(constants)):
        raise InputError("algorithm.local.step_size must be lower here: the runs diverged")


@jax.jit
def largest_count(task: Task) -> Int[Array, ""]:
    """Return the number of samples of the user that holds most."""
    return task.problem(0).counts.max()


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

    `samples` is the `largest_count` of the task. A plan that is needed but None is measured from
    the models `calibrated_from`, by default the task's own.
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
    control_distance, control_energy = None, None
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
    problem: Any, batch: int | None, samples: Int[Array, "sample"], models: Float[Array, "user d"]
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


_visit = compiled(visit, static=("options", "samples"))


@jax.jit
def summarise(
    region: Region,
    plan: Plan | None,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: Scalar,
) -> Constants:
    """Compute the constants of a region's first `rounds` rounds; `rounds` is traced."""
    inside = jnp.arange(region.gap.shape[-1])[None] < rounds  # [1, round]
    heard = jnp.maximum(jnp.where(inside, region.participants, jnp.inf).min(), 1.0)
    slope, offset = _line(region.gradient, region.user_gradients, inside)
    bound = jnp.max(region.gradient_square, where=inside, initial=0.0)
    sigmas, control_distance = [jnp.float32(0.0)] * 2, jnp.float32(0.0)
    moments: tuple[Moments | None, ...] = algorithm.moments(plan) or (None, None)
    for block, energies in enumerate((region.energy, region.control_energy)):
        if energies is not None:
            run = moments[block], energies, heard, inside
            sigmas[block], needed = noise.largest(algorithm, channel, task.dim, block, *run)
            bound = jnp.maximum(bound, needed)
    if region.control_distance is not None:
        control_distance = region.control_distance[:, 0].mean()
    local: Any = algorithm.local  # see `check_parts`
    fading: Any = channel.fading
    floor, control_floor = map(jnp.float32, fading.floors)
    return Constants(
        smoothness=region.smoothness,
        strong_convexity=region.strong_convexity,
        gradient_variance=jnp.max(region.gradient_variance, where=inside, initial=0.0),
        gradient_bound=bound,
        dissimilarity=offset,
        dissimilarity_factor=slope,
        initial_distance=region.distance[:, 0].mean(),
        control_distance=control_distance,
        model_noise=sigmas[0],
        control_noise=sigmas[1],
        users=jnp.float32(task.users),
        steps=jnp.float32(local.steps),
        dim=jnp.float32(task.dim),
        participants=heard,
        power=channel.power,
        control_power=channel.control_budget,
        threshold=floor,
        control_threshold=control_floor,
        step_size=local.step_size,
        rounds=jnp.float32(rounds),
    )


def _line(
    x: Float[Array, "trial round"], y: Float[Array, "trial round"], inside: Bool[Array, "1 round"]
) -> tuple[Scalar, Scalar]:
    """Return B² ≥ 1 and G² ≥ 0 with y ≤ G² + B²·x: a least squares slope, the least offset."""
    mean_x, mean_y = x.mean(where=inside), y.mean(where=inside)
    moment = jnp.mean((x - mean_x) * (y - mean_y), where=inside)
    spread = jnp.mean((x - mean_x) ** 2, where=inside)
    # With the slope max y/x, G² = 0 is enough: a larger slope would only loosen the bound.
    largest = jnp.max(jnp.where(x > 0, y / x, jnp.inf), where=inside, initial=1.0)
    slope = jnp.clip(jnp.where(spread > 0, moment / spread, 1.0), 1.0, largest)
    return slope, jnp.max(y - slope * x, where=inside, initial=0.0)
