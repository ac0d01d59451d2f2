"""What the theorems call constants, measured on a task by running the algorithm."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import _arguments
from jaxota.calibration import measure as measure_plan
from jaxota.channel import Block, Still
from jaxota.errors import InputError
from jaxota.estimate import MMSE, PooledMMSE
from jaxota.precode import Bounded, ErrorFree, Online
from jaxota.rounds import in_chunks, one_trial
from jaxota.types import Array, part, traced


@part
class Constants:
    """The numbers that Theorems 1, 2 and 3 are made of. Squared letters are held squared.

    The last eight are choices of algorithm and channel; `measure` says where the rest come from.
    """

    smoothness: Array = traced(above=0.0)  # β of AS1
    strong_convexity: Array = traced(at_least=0.0)  # μ of AS1
    gradient_variance: Array = traced(at_least=0.0)  # σ² of AS2
    gradient_bound: Array = traced(at_least=0.0)  # M² of AS2
    dissimilarity: Array = traced(at_least=0.0)  # G² of AS3
    dissimilarity_factor: Array = traced(at_least=1.0)  # B² of AS3
    initial_distance: Array = traced(at_least=0.0)  # d_0 = ‖θ^0 − θ*‖²
    control_distance: Array = traced(at_least=0.0)  # Σ_i ‖c_i^0 − ∇f_i(θ*)‖², in Theorem 3's D̃²
    model_noise: Array = traced(at_least=0.0)  # σ_θ = max_r sw2/(1 + ν/s²), per coordinate
    control_noise: Array = traced(at_least=0.0)  # σ_c, the same of the control block
    users: Array = traced(at_least=1.0)  # N
    steps: Array = traced(at_least=1.0)  # K
    dim: Array = traced(at_least=1.0)  # d
    participants: Array = traced(at_least=1.0)  # S of AS4
    power: Array = traced(1.0, above=0.0)  # P
    control_power: Array = traced(1.0, above=0.0)  # P of the control block
    threshold: Array = traced(1.0, above=0.0)  # h_min
    control_threshold: Array = traced(1.0, above=0.0)  # ρ_min


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
    control_energy: Array  # [trial, round, user] ‖c_i‖², or ()
    power: Array  # [trial, round] max_i ‖x_i‖²/P of the model block
    heard: Array  # [trial, round] number of users
    gap: Array  # [trial, round] F(θ̄^r) − F*, of the weighted average after that round


def measure(
    task, algorithm, channel, key, rounds: int, trials: int = 20, plan=None, initial=None
) -> Constants:
    """The theorems' constants for `algorithm` over `channel` on `task`, from `trials` runs.

    Θ is the region these runs visit: every broadcast model, and every user's model after its K
    steps; those between are left out. `plan` and `initial` are those of `simulate`; by default both
    are drawn as it does. Maxima over Θ grow with `trials` where the initial models are random:
    for constants of one start, give one `initial` in every row.

    smoothness, strong_convexity: the largest and least eigenvalue of any user's Hessian, exact; it
        is the same everywhere in least squares.
    gradient_variance: largest E‖g_i − ∇f_i‖² in Θ, exact over the draw of a minibatch.
    gradient_bound: largest E‖g_i‖² in Θ, and no less than the gains need, which in the proofs are
        1/α ≤ (KηM)²/P and 1/β ≤ M²/P: calibration may have met larger updates than the runs.
    dissimilarity_factor, dissimilarity: B² is the slope, at least 1, of a least squares line of
        mean_i ‖∇f_i‖² on ‖∇F‖² over all broadcast models (less if that leaves G² = 0), and G² the
        least that makes AS3 true of each of them.
    initial_distance, control_distance: means over trials; the bounds are concave in them where
        their logarithms exceed 1.
    model_noise, control_noise: σ_θ and σ_c, largest of all rounds with `participants` users, from
        the gains and prior variances of the plan (Online: from the gains of the run; with no prior:
        sw2). S users have s² = mean_i σ_i²/S, by Jensen no less than what sets of S users give on
        average. They are true of the run as far as the prior is: calibration's is of a noise-free
        run on a fifth of the data, users taken as independent.
    participants: least number heard in any round: S under AS4, N with no fading.
    """
    arguments, options = _arguments.experiment(
        key, algorithm, channel, task, rounds, trials, plan, initial
    )
    _arguments.refuse_swept(**{k: arguments[k] for k in ("algorithm", "channel", "task", "plan")})
    if getattr(task, "redraw", False):
        raise InputError("task.redraw must be False here: constants belong to one set of data")
    if not hasattr(jax.eval_shape(task.problem, 0), "optimum"):
        raise InputError(
            "task must know its optimum, as jo.tasks.regression does: d_0 is measured from it"
        )
    samples = int(np.max(_counts(arguments["task"])))
    region, plan = _visit(options, samples, **arguments)
    parts = arguments["algorithm"], arguments["channel"], arguments["task"]
    constants = summarise(region, plan, *parts, jnp.float32(rounds))
    if not all(np.isfinite(x) for x in jax.tree.leaves(constants)):
        raise InputError("algorithm.local.step_size must be lower here: the runs diverged")
    return constants


@jax.jit
def _counts(task) -> Array:
    return task.problem(0).counts


def visit(
    options, samples: int, key, trials, algorithm, channel, task, plan, initial, calibrated_from=()
):
    """To be compiled: the region that these trials visit, and the plan they used.

    `samples` is the most that any user holds; a plan that is missing is measured from the models
    `calibrated_from` [trial, d], or from those that the task draws.
    """
    if isinstance(plan, tuple) and algorithm.needs_plan:
        plan = measure_plan(options, key, algorithm, task, calibrated_from)
    moments = ()
    if algorithm.needs_plan:
        controlled = algorithm.local.controlled
        moments = plan.model_moments, plan.control_moments if controlled else ()
    problem, batch = task.problem(0), algorithm.local.batch
    users = jnp.arange(problem.users)
    at_optimum = jax.vmap(problem.full_gradient, (None, 0))(problem.optimum, users)

    def gradients(models):
        """Of each user at its model [user, d]: ∇f_i [user, d], E‖g_i − ∇f_i‖² [user]."""
        full = jax.vmap(problem.full_gradient)(models, users)
        if batch is None:
            return full, jnp.zeros(problem.users)
        each = jnp.arange(samples)

        def spread(model, user, mean):
            def squared(s):
                return jnp.sum((problem.gradient(model, user, s[None]) - mean) ** 2)

            inside = each < problem.counts[user]
            return jnp.mean(jax.vmap(squared)(each), where=inside) / batch

        return full, jax.vmap(spread)(models, users, full)

    def reveal(r, before, info, after):
        ends = before.model[None, None] + jnp.stack([jnp.zeros_like(info.update), info.update])
        gradient, variance = jax.vmap(gradients)(ends)  # [start or end, user, …]
        full = gradient[0]
        lag = ()
        if algorithm.local.controlled:
            lag = jnp.sum((before.controls - at_optimum) ** 2)
        return {
            "variance": variance.max(),
            "second": (_square(gradient) + variance).max(),
            "own": _square(full).mean(),
            "common": _square(full.mean(0)),
            "distance": _square(before.model - problem.optimum),
            "lag": lag,
            "energy": _square(info.update),
            "control_energy": jax.tree.map(_square, info.controls),
            "power": info.power.max(),
            "heard": info.participants,
            "gap": problem.score(after.average)["gap"],
        }

    def trial(t):
        start = initial if isinstance(initial, tuple) else initial[t]
        rows = (moments,)
        return one_trial(
            key, t, (algorithm,), channel, problem, rows, start, options.rounds, reveal
        )[1][0]

    seen = in_chunks(trial, trials, options.chunk)
    return Region(*curvature(problem), **seen), plan


def curvature(problem):
    """β and μ of AS1 [], extremes over users of their Hessians' eigenvalues at the optimum."""
    users = jnp.arange(problem.users)
    hessians = jax.vmap(jax.jacfwd(problem.full_gradient), (None, 0))(problem.optimum, users)
    values = jnp.linalg.eigvalsh(hessians)  # [user, d]
    return values.max(), jnp.maximum(values.min(), 0.0)


_visit = jax.jit(visit, static_argnames=("options", "samples"))


@jax.jit
def summarise(region: Region, plan, algorithm, channel, task, rounds) -> Constants:
    """The constants of a region's first `rounds` rounds; `rounds` is traced."""
    inside = jnp.arange(region.gap.shape[-1])[None] < rounds  # [1, round]
    heard = jnp.where(inside, region.heard, jnp.inf).min()
    heard = jnp.maximum(heard, 1.0)
    slope, offset = _line(region.common, region.own, inside)
    faded = not isinstance(channel.fading, Still)
    floor, control_floor = (
        (channel.fading.threshold, channel.fading.control_threshold) if faded else (1.0, 1.0)
    )
    local = algorithm.local
    model_block, control_block = noise_blocks(plan, algorithm, channel)
    model_block = model_block.replace(values=region.energy.max(-1))
    at = (algorithm, channel, task.dim)
    sigma = largest_noise(*at, model_block, heard, floor, inside)
    bound = jnp.max(region.second, where=inside, initial=0.0)
    bound = jnp.maximum(bound, _needed(algorithm, model_block, inside))
    control_sigma, lag = jnp.float32(0.0), jnp.float32(0.0)
    if local.controlled:
        control_block = control_block.replace(values=region.control_energy.max(-1))
        control_sigma = largest_noise(*at, control_block, heard, control_floor, inside)
        bound = jnp.maximum(bound, _needed(algorithm, control_block, inside))
        lag = region.lag[:, 0].mean()
    return Constants(
        smoothness=region.smoothness,
        strong_convexity=region.strong_convexity,
        gradient_variance=jnp.max(region.variance, where=inside, initial=0.0),
        gradient_bound=bound,
        dissimilarity=offset,
        dissimilarity_factor=slope,
        initial_distance=region.distance[:, 0].mean(),
        control_distance=lag,
        model_noise=sigma,
        control_noise=control_sigma,
        users=jnp.float32(task.users),
        steps=jnp.float32(local.steps),
        dim=jnp.float32(task.dim),
        participants=heard,
        power=channel.power,
        control_power=channel.control_budget,
        threshold=jnp.float32(floor),
        control_threshold=jnp.float32(control_floor),
    )


def noise_after(noise, received, spread) -> Array:
    """σ_θ = sw2/(1 + ν/s²): what the MMSE estimate leaves of sw2. ν = `received`, s² = `spread`."""
    ratio = jnp.where(received > 0, received / spread, 0.0)
    return jnp.where(jnp.isinf(spread), noise, noise / (1.0 + ratio))


def noise_blocks(plan, algorithm, channel) -> tuple[Block, Block]:
    """Both blocks with the plan's moments of all rounds, as a precoder reads them; no values."""
    local = algorithm.local
    model = plan.model_moments if algorithm.needs_plan else ()
    control = plan.control_moments if algorithm.needs_plan and local.controlled else ()
    reach, unit = local.steps * local.step_size, jnp.float32(1.0)
    return (
        Block((), (), channel.power, reach, model),
        Block((), (), channel.control_budget, unit, control),
    )


def largest_noise(algorithm, channel, dim: int, block: Block, heard, floor, inside) -> Array:
    """max_r σ_θ^r of one block; `block.values` are the run's max_i ‖value_i‖² [trial, round]."""
    if isinstance(algorithm.precode, ErrorFree):
        return jnp.float32(0.0)
    noise = channel.noise_variance(dim)
    received = noise / block.power * _energy(algorithm, block) / (heard * floor) ** 2
    spread = jnp.full((1, 1), jnp.inf)
    if isinstance(algorithm.estimate, MMSE):
        spread = (block.moments.var.mean(-1) / heard)[None]
    elif isinstance(algorithm.estimate, PooledMMSE):
        spread = block.moments.average_var[None]
    sigma = noise_after(noise, received, spread)
    return jnp.max(jnp.where(inside, sigma, 0.0))


def _energy(algorithm, block: Block) -> Array:
    """P/α of every round [trial or 1, round or 1]."""
    if isinstance(algorithm.precode, Online):
        return block.values
    return jnp.atleast_2d(algorithm.precode.energy(block))


def _needed(algorithm, block: Block, inside) -> Array:
    """The least M² by which the proofs' 1/α ≤ (KηM)²/P (1/β ≤ M²/P) is true of the gains.

    Bounded gains are so by their own M.
    """
    if isinstance(algorithm.precode, (ErrorFree, Bounded)):
        return jnp.float32(0.0)
    return jnp.max(jnp.where(inside, _energy(algorithm, block), 0.0)) / block.reach**2


def _line(x: Array, y: Array, inside: Array):
    """B² ≥ 1 and G² ≥ 0 of y ≤ G² + B²·x: a least squares slope, then the least offset."""
    mean_x, mean_y = x.mean(where=inside), y.mean(where=inside)
    moment = jnp.mean((x - mean_x) * (y - mean_y), where=inside)
    spread = jnp.mean((x - mean_x) ** 2, where=inside)
    enough = jnp.max(jnp.where(x > 0, y / x, jnp.inf), where=inside, initial=1.0)  # with G² = 0
    slope = jnp.clip(jnp.where(spread > 0, moment / spread, 1.0), 1.0, enough)
    return slope, jnp.max(y - slope * x, where=inside, initial=0.0)


def _square(values: Array) -> Array:
    """Squared norm along the last axis."""
    return jnp.sum(values**2, -1)
