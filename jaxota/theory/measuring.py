"""Measure the theorems' constants on a task by running the algorithm."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxota._core import arguments
from jaxota._core.devices import Spread, compiled
from jaxota._core.part import Numbers, Scalar, Seed
from jaxota._core.state import Moments, Plan
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.channel import Channel, noise_over
from jaxota.tasks.problem import Task
from jaxota.theory import noise
from jaxota.theory.constants import Constants
from jaxota.theory.region import Region, visit

_TINY = np.finfo(np.float32).tiny


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
    region, used = _visit(options, largest_count(parts["task"]), **checked)
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


def largest_count(task: Task) -> int:
    """Return the number of samples of the user that holds most."""
    return int(np.max(_counts(task)))


@jax.jit
def _counts(task: Task) -> Int[Array, "user"]:
    return task.problem(0).counts


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
