"""Channel noise as the theorems count it: Proposition 1, and σ_θ and σ_c of an algorithm."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxota._core import arguments, inputs
from jaxota._core.part import Numbers, Scalar, part
from jaxota._core.state import Moments, Plan
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.stages.channel import Block, Channel, noise_over
from jaxota.tasks.problem import Task
from jaxota.theory.statements import check_shapes


@part
class Error:
    """Mean squared errors per coordinate of two estimates of an average.

    Attributes:
        mmse: that of the conditional mean, Proposition 1: ν·s²/(s² + ν).
        identity: that of the received values themselves: ν.
        sigma: σ_θ (or σ_c) = mmse·|S|²·α·h_min².
    """

    mmse: Float[Array, "*shape"]
    identity: Float[Array, "*shape"]
    sigma: Float[Array, "*shape"]


def proposition_1(
    noise: ArrayLike, gain: ArrayLike, variances: Numbers, threshold: ArrayLike = 1.0
) -> Error:
    """Compute the errors of estimating the average of the users heard; Prop. 1, also for controls.

    ν = sw2/(|S|²·α·h_min²) and s² = Σ_i σ_i²/|S|², as in the main text; the appendix's
    var = s²/N² + sw2 and μ/N are slips. It holds when the prior is true: coordinates and users
    independent and Gaussian.

    Args:
        noise: sw2, the channel's noise variance per coordinate.
        gain: α of the model block, or β of the control block.
        variances: [user] prior variances σ_i² (or v_i²) of the users heard, S^r; from 0 to ∞.
        threshold: h_min (or ρ_min) under fading.
    """
    variances = inputs.number("variances", variances, 0.0, infinite=True)
    if variances.ndim != 1 or not variances.size:
        raise InputError(f"variances must have shape [users heard], got {list(variances.shape)}")
    noise, count = inputs.number("noise", noise, 0.0, infinite=True), variances.size
    gain = inputs.number("gain", gain, above=0.0)
    threshold = inputs.number("threshold", threshold, above=0.0)
    check_shapes(noise=noise, gain=gain, threshold=threshold)
    received = noise / gain / (count * threshold) ** 2
    spread = variances.mean() / count
    mmse = 1.0 / (1.0 / received + 1.0 / spread)  # exact where either is 0 or ∞
    limit = spread * gain * (count * threshold) ** 2  # of σ for infinite noise
    sigma = jnp.where(jnp.isinf(noise), limit, noise_after(noise, received, spread))
    return Error(mmse, received, sigma)


def noise_after(noise: Array, received: Array, spread: Array) -> Array:
    """Return σ_θ = sw2/(1 + ν/s²), what MMSE leaves of sw2; ν = `received`, s² = `spread`."""
    ratio = jnp.where(received > 0, received / spread, 0.0)
    return jnp.where(jnp.isinf(spread), noise, noise / (1.0 + ratio))


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
    check_parts(algorithm, channel)
    if algorithm.needs and plan is None:
        raise InputError("plan must be given for this algorithm: jo.calibrate measures one")
    chosen = channel.participants
    heard = jnp.float32(chosen if chosen is not None else task.users)
    # NaN shows in 1/α if a precoder reads the energies of a run.
    unknown = jnp.full((1, rounds, task.users), jnp.nan)
    run = algorithm.moments(plan), unknown, heard, jnp.ones((1, 1), bool)
    sigmas = [jnp.float32(0.0)] * 2
    for block in range(1 + bool(algorithm.local.controlled)):
        sigma, bound = largest(algorithm, channel, task.dim, block, *run)
        sigmas[block] = jnp.where(jnp.isnan(bound), jnp.nan, sigma)
        if not inputs.is_traced(bound) and jnp.isnan(bound):
            raise InputError(
                "algorithm.precode must choose its gains before the run here, as jo.Offline() and "
                "jo.Bounded(M) do; theory.measure takes those of a run"
            )
    return sigmas[0], sigmas[1]


def check_parts(algorithm: Algorithm, channel: Channel) -> None:
    """Refuse parts without the attributes that the theorems need beyond the parts' protocols."""
    for path, part_, name in (
        ("algorithm.local", algorithm.local, "step_size"),
        ("algorithm.local", algorithm.local, "batch"),
        ("algorithm.estimate", algorithm.estimate, "spread"),
        ("channel.fading", channel.fading, "floors"),
    ):
        if not hasattr(part_, name):
            raise InputError(f"{path} must have `{name}`, of which the theorems speak")


def largest(
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
    fading: Any = channel.fading  # see `check_parts`
    estimator: Any = algorithm.estimate
    floor = fading.floors[block]
    absent: Any = None  # precoders read no values, only power, reach, moments and energies

    def one(moments: Any, energies: Float[Array, "user"]) -> tuple[Scalar, Scalar]:
        sent = Block(absent, absent, absent, power, reach, moments, energies=energies)
        energy = jnp.max(algorithm.precode.energy(sent))  # P/α
        received = over * energy / (heard * floor) ** 2
        spread = estimator.spread(moments, heard)
        return noise_after(noise, received, spread), energy / reach**2

    planned = moments[block] if moments else None
    by_round = jax.vmap(jax.vmap(one), (None, 0))(planned, energies)
    sigma, bound = (jnp.max(jnp.where(inside, x, 0.0)) for x in by_round)
    return sigma, bound
