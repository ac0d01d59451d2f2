"""Measure the theorems' constants on a task by running the algorithm; σ_θ and σ_c without a run."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxota._core import arguments, devices, inputs
from jaxota._core.arguments import Options
from jaxota._core.capacity import trials_at_once
from jaxota._core.devices import compiled, in_chunks, on_devices
from jaxota._core.part import Numbers, Scalar, Seed, Vector
from jaxota._core.state import Info, Moments, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.calibration import measure as measure_plan
from jaxota.errors import InputError
from jaxota.rounds import one_trial
from jaxota.stages.channel import Block, Channel, noise_over
from jaxota.tasks.problem import Task
from jaxota.theory.statements import Constants

_TINY = np.finfo(np.float32).tiny


def measure(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int | Numbers,
    trials: int = 20,
    *,
    plan: Plan | None = None,
    initial: Numbers | None = None,
) -> Constants:
    """Measure the theorems' constants for `algorithm` over `channel` on `task` by running it.

    Maxima are over Θ, the region that the runs visit: every broadcast model, and every user's model
    after its K steps; the models in between are left out. docs/theory.md says how each constant is
    measured. Those that are not are choices of algorithm and channel, or describe the runs.

    Args:
        key: random key, or seed, of the runs, as for `simulate`.
        algorithm, channel: the constants belong to the step size. An array [R] in place of a number
            is a setting for each of several `rounds`.
        task: a task that knows its optimum, as `jo.tasks.regression` does, with one set of data.
        rounds: R of each run; theorems should be evaluated for at most twice as many. An array [R]
            measures constants [R] in one program, in which all runs are as long as the longest.
        trials: number of runs. Maxima over the region grow with it where initial models are random;
            for the constants of one start, give one `initial` in every row.
        plan: result of `jo.calibrate` for the largest of `rounds`, or [R] of them; by default it is
            measured, as `simulate` does.
        initial: [trial, d] models to start from; by default the task draws them.
    """
    ends, most = _rounds(rounds)
    checked, options = arguments.experiment(
        key, algorithm, channel, task, most, trials, plan, initial
    )
    arguments.refuse_swept(task=checked["task"])
    parts = {name: checked.pop(name) for name in ("algorithm", "channel", "plan")}
    _refuse_unknown(parts["algorithm"], parts["channel"], checked["task"])
    swept = [n for name, value in parts.items() for n in inputs.extra_axes(value, name).values()]
    axes = tuple(0 if extra else None for extra in (*swept, ends.ndim))
    values, structure = jax.tree.flatten((*parts.values(), ends))
    lengths = {len(value) for value, axis in zip(values, axes, strict=True) if axis == 0}
    if len(lengths) > 1 or 0 in lengths:
        steps = "rounds and swept fields go in step and must be of one length ≥ 1"
        raise InputError(f"{steps}, got lengths {sorted(lengths)}")
    count = max(lengths, default=1)
    over, rule = devices.spread(1, count), (parts["algorithm"],)
    chunk = trials_at_once(rule, checked["task"], over, count, options.rounds)
    options = options._replace(chunk=chunk, over=over)
    samples = int(_largest_count(checked["task"]))
    constants = _program(options, samples, structure, axes, values, **checked)
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(constants)):
        raise InputError("algorithm.local.step_size must be lower here: the runs diverged")
    return devices.gathered(constants)


def effective_noise(
    algorithm: Algorithm, channel: Channel, task: Task, rounds: int, plan: Plan | None = None
) -> tuple[Scalar, Scalar]:
    """Compute σ_θ and σ_c, the channel noise that the theorems count, without any run.

    σ = max_r sw2/(1 + ν/s²) of the model block and of the control block (0 where the algorithm has
    none), for S users: `channel.participants`, or all of them. Gains must be known before the run;
    for gains that depend on it, as those of `jo.Online` do, and for fading that silences users,
    `theory.measure` takes both from runs.

    Args:
        algorithm, channel, task: one setting; under `jax.vmap` over numbers of it, many.
        rounds: R.
        plan: what `jo.calibrate` measured, for an algorithm that needs a plan.
    """
    checked, _ = arguments.experiment(
        jax.random.key(0), algorithm, channel, task, rounds, trials=1, plan=plan
    )
    algorithm, channel, plan = (checked[name] for name in ("algorithm", "channel", "plan"))
    arguments.refuse_swept(algorithm=algorithm, channel=channel, plan=plan)
    _check_parts(algorithm, channel, task)
    if algorithm.needs and plan is None:
        raise InputError("plan must be given for this algorithm: jo.calibrate measures one")
    chosen = channel.participants
    heard = jnp.float32(chosen if chosen is not None else task.users)
    # NaN shows in 1/α if a precoder reads the energies of a run.
    unknown = jnp.full((1, rounds, task.users), jnp.nan)
    run = algorithm.moments(plan, rounds), unknown, heard, jnp.ones((1, 1), bool)
    sigmas = [jnp.float32(0.0)] * 2
    for block in range(1 + bool(algorithm.local.controlled)):
        sigma, bound = largest_noise(algorithm, channel, task.dim, block, *run)
        sigmas[block] = jnp.where(jnp.isnan(bound), jnp.nan, sigma)
        if not inputs.is_traced(bound) and jnp.isnan(bound):
            raise InputError(
                "algorithm.precode must choose its gains before the run here, as jo.Offline() and "
                "jo.Bounded(M) do; theory.measure takes those of a run"
            )
    return sigmas[0], sigmas[1]


def _rounds(rounds: Any) -> tuple[Int[np.ndarray, "*R"], int]:
    """Return the numbers of rounds, one or several, and the largest."""
    ends = inputs.real("rounds", rounds)
    if ends.ndim > 1 or not ends.size:
        shape = f"got shape {list(ends.shape)}"
        raise InputError(f"rounds must be a whole number, or an array [R] of them, {shape}")
    return ends, max(inputs.whole("rounds", r, 1) for r in ends.ravel().tolist())


def _refuse_unknown(algorithm: Algorithm, channel: Channel, task: Any) -> None:
    """Refuse settings that the theorems say nothing about."""
    if getattr(task, "redraw", False):
        raise InputError("task.redraw must be False here: constants belong to one set of data")
    if not hasattr(jax.eval_shape(task.problem, 0), "optimum"):
        raise InputError(
            "task must know its optimum, as jo.tasks.regression does: d_0 is measured from it"
        )
    air = algorithm.medium(channel)
    variance, over = air.noise_variance(task.dim), noise_over(channel.power, air, task.dim)
    if variance is not None and over is not None:
        held = (over == 0) | ((variance >= _TINY) & (variance < np.inf))
        if not held.all():
            raise InputError(
                f"channel.power must make sw2 = P·10^(−snr_db/10) at least {_TINY:.1e}, and finite "
                f"in float32, as σ_θ is of its size, got {np.min(channel.power):g}"
            )
    _check_parts(algorithm, channel, task)
    if not getattr(algorithm.local, "plain", False):
        raise InputError(
            "algorithm.local must step by gradients alone here: the theorems cover neither "
            "optimisers nor proximal terms"
        )


def _check_parts(algorithm: Algorithm, channel: Channel, task: Task) -> None:
    """Refuse parts without the attributes that the theorems need beyond the parts' protocols."""
    for path, part_, name in (
        ("algorithm.local", algorithm.local, "step_size"),
        ("algorithm.local", algorithm.local, "batch"),
        ("algorithm.estimate", algorithm.estimate, "spread"),
        ("channel.fading", channel.fading, "floors"),
    ):
        if not hasattr(part_, name):
            raise InputError(f"{path} must have `{name}`, of which the theorems speak")
    if getattr(task, "weights", None) is not None:
        raise InputError("task.weights must be None: the theorems count all users the same")
    if hasattr(algorithm.local.step_size, "at_round"):  # type: ignore[attr-defined]
        raise InputError(
            "algorithm.local.step_size must be one number for all rounds, as in the theorems"
        )


@jax.jit
def _largest_count(task: Task) -> Int[Array, ""]:
    """Return the number of samples of the user that holds most."""
    return task.problem(0).counts.max()


@functools.partial(compiled, static=("options", "samples", "structure", "axes"))
def _program(
    options: Options,
    samples: int,
    structure: jax.tree_util.PyTreeDef,
    axes: tuple[int | None, ...],
    values: list[Array],
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    task: Task,
    start: Float[Array, "trial d"] | None,
) -> Constants:
    """Run the trials in every setting and compute the constants; `samples`: `_largest_count`."""
    problem = task.problem(0)

    def setting(values: list[Any]) -> Constants:
        algorithm, channel, plan, rounds = jax.tree.unflatten(structure, values)
        if algorithm.needs and plan is None:
            plan = measure_plan(options, key, algorithm, task, None)
        moments = algorithm.moments(plan, options.rounds)
        reveal = functools.partial(_statistics, algorithm.local, problem, jnp.arange(samples))

        def trial(t: Int[Array, ""]) -> dict[str, Any]:
            own = start[t] if start is not None else None
            run = key, t, (algorithm,), channel, problem, (moments,), own, options.rounds
            return one_trial(*run, reveal)[1][0]

        visited = in_chunks(trial, trials, options.chunk)
        return _constants(visited, algorithm, channel, problem, moments, rounds)

    return on_devices(setting, options.over, values, axes)


def _statistics(
    local: Any,
    problem: Any,
    samples: Int[Array, "sample"],
    r: Int[Array, ""],
    before: State,
    info: Info,
    after: State,
) -> dict[str, Any]:
    """Return one round's statistics, at the broadcast model and after users' steps.

    `samples` are 0, 1, … of the largest user.
    """
    ends = before.model[None, None] + jnp.stack([jnp.zeros_like(info.moved), info.moved])
    gradient, variance = jax.vmap(lambda x: _gradients(problem, local.batch, samples, x))(ends)
    control_distance = jnp.float32(0.0)
    broadcast = gradient[0]  # [user, d], those at the broadcast model
    if local.controlled:
        users = jnp.arange(problem.users)
        at_optimum = jax.vmap(problem.full_gradient, (None, 0))(problem.optimum, users)
        control_distance = jnp.sum((before.local - at_optimum) ** 2)
    return {
        "gradient_variance": variance.max(),  # the largest E‖g_i − ∇f_i‖² of any user
        "gradient_square": (_square(gradient) + variance).max(),  # the largest E‖g_i‖²
        "user_gradients": _square(broadcast).mean(),
        "gradient": _square(broadcast.mean(0)),
        "distance": _square(before.model - problem.optimum),
        "control_distance": control_distance,  # Σ_i ‖c_i − ∇f_i(θ*)‖²
        "energies": tuple(block.energy for block in info.blocks),  # ‖Δ_i‖² and ‖c_i‖² [user]
        "power": info.blocks[0].power.max(),
        "participants": info.heard.sum(),
        "gap": problem.score(after.average)["gap"],  # of the weighted average after the round
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


def _curvature(problem: Any) -> tuple[Scalar, Scalar]:
    """Return β and μ of AS1, the extreme eigenvalues of users' Hessians at the optimum."""
    users = jnp.arange(problem.users)
    hessians = jax.vmap(jax.jacfwd(problem.full_gradient), (None, 0))(problem.optimum, users)
    values = devices.eigenvalues(hessians)  # [user, d]
    return values.max(), jnp.maximum(values.min(), 0.0)


def _square(values: Float[Array, "*shape d"]) -> Float[Array, "*shape"]:
    """Return the squared norm along the last axis."""
    return jnp.sum(values**2, -1)


def _constants(
    visited: dict[str, Any],
    algorithm: Algorithm,
    channel: Channel,
    problem: Any,
    moments: tuple[Moments, ...],
    rounds: Scalar,
) -> Constants:
    """Compute the constants of the first `rounds` rounds from the statistics [trial, round]."""
    local: Any = algorithm.local  # see `_check_parts`
    fading: Any = channel.fading
    inside = jnp.arange(visited["gap"].shape[-1])[None] < rounds  # [1, round]
    largest = functools.partial(jnp.max, where=inside, initial=0.0)
    heard = jnp.maximum(jnp.where(inside, visited["participants"], jnp.inf).min(), 1.0)
    bound, sigmas = largest(visited["gradient_square"]), [jnp.float32(0.0)] * 2
    for block, energies in enumerate(visited["energies"]):
        run = moments, energies, heard, inside
        sigmas[block], needed = largest_noise(algorithm, channel, problem.dim, block, *run)
        bound = jnp.maximum(bound, needed)
    slope, offset = _line(visited["gradient"], visited["user_gradients"], inside)
    smoothness, strong_convexity = _curvature(problem)
    update = visited["energies"][0].mean(0, keepdims=True).max(-1)  # max_i E‖Δ_i‖² [1, round]
    stated = (local.steps * local.step_size) ** 2 * bound
    threshold, control_threshold = map(jnp.float32, fading.floors)
    return Constants(
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        gradient_variance=largest(visited["gradient_variance"]),
        gradient_bound=bound,
        dissimilarity=offset,
        dissimilarity_factor=slope,
        initial_distance=visited["distance"][:, 0].mean(),
        control_distance=visited["control_distance"][:, 0].mean(),
        model_noise=sigmas[0],
        control_noise=sigmas[1],
        users=jnp.float32(problem.users),
        steps=jnp.float32(local.steps),
        dim=jnp.float32(problem.dim),
        participants=heard,
        power=channel.power,
        control_power=channel.control_budget,
        threshold=threshold,
        control_threshold=control_threshold,
        step_size=local.step_size,
        rounds=jnp.float32(rounds),
        gap=visited["gap"][:, rounds - 1],
        update_ratio=largest(update) / jnp.where(stated > 0, stated, 1.0),
        power_ratio=largest(visited["power"].mean(0, keepdims=True)),
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


def largest_noise(
    algorithm: Algorithm,
    channel: Channel,
    dim: int,
    block: int,
    moments: tuple[Moments, ...],
    energies: Float[Array, "trial round user"],
    heard: Scalar,
    inside: Bool[Array, "1 round"],
) -> tuple[Scalar, Scalar]:
    """Return max_r σ^r of a block, and the least M² with 1/α ≤ (KηM)²/P (1/β ≤ M²/P) in all rounds.

    Block 0 is the model block, with σ_θ, and 1 the control block, with σ_c; `moments` are the
    plan's, `energies` the ‖·‖² that users sent in this block, and `inside` the rounds that count.
    """
    air, power = algorithm.medium(channel), (channel.power, channel.control_budget)[block]
    noise, over = air.noise_variance(dim), noise_over(power, air, dim)
    if noise is None or over is None:
        return jnp.float32(0.0), jnp.float32(0.0)
    reach = (algorithm.local.reach, jnp.float32(1.0))[block]
    fading: Any = channel.fading  # see `_check_parts`
    estimator: Any = algorithm.estimate
    floor = fading.floors[block]
    absent: Any = None  # precoders read no values, only power, reach, moments and energies

    def one(moments: Any, energies: Float[Array, "user"]) -> tuple[Scalar, Scalar]:
        sent = Block(absent, absent, absent, power, reach, moments, energies=energies)
        energy = jnp.max(algorithm.precode.energy(sent))  # P/α
        received = over * energy / (heard * floor) ** 2
        spread = estimator.spread(moments, heard)
        prior = (received > 0) & ~jnp.isinf(spread)
        ratio = jnp.where(prior, received / spread, 0.0)  # ν/s², 0 without noise or prior
        return noise / (1.0 + ratio), energy / reach**2

    planned = moments[block] if moments else None
    by_round = jax.vmap(jax.vmap(one), (None, 0))(planned, energies)
    sigma, bound = (jnp.max(jnp.where(inside, x, 0.0)) for x in by_round)
    return sigma, bound
