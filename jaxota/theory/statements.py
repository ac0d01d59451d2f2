"""The paper's statements: Theorems 1, 2 and 3 with their constants, Proposition 1, the weights.

The statements are implemented, not the proofs, with `max{1, ·}` inside every logarithm (Theorem 1
omits the 1); docs/theory.md says where the two differ, and where either fails.

σ_θ and σ_c are variances per coordinate, as σ_w² is, in spite of their names: with sw2 = σ_w²,
ν = sw2/(N²α) and s² = Σ_i σ_i²/N², σ_θ = sw2/(1 + ν/s²) ≤ sw2, and a coordinate's mean squared
error is σ_θ/(N²α). The factor d of the bounds counts the d coordinates.
"""

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxota._core import capacity, inputs
from jaxota._core.part import Numbers, Scalar, Traced, Vector, part, traced
from jaxota.errors import InputError

Values: TypeAlias = Float[Array, "*R"]  # one for each number of rounds
Flags: TypeAlias = Bool[Array, "*R"]
TERMS = ("initial_distance", "gradient_variance", "model_noise", "control_noise", "dissimilarity")
_STEP_TOLERANCE = 0.01  # step sizes that differ by less, relatively, count as the same
_ROUNDS_FACTOR = 2.0  # a bound may be evaluated for this many times the measured rounds


@part
class Constants:
    """The constants of Theorems 1, 2 and 3; constants that are written squared are stored squared.

    `measure` determines them from runs. σ² and M² then hold for the models visited at one step size
    in so many rounds, σ_θ and σ_c for the gains of these runs; the conditions of a `Bound` report
    where a theorem is evaluated beyond that. Constants chosen by hand leave step_size and rounds
    None, and are trusted.

    Attributes:
        smoothness: β of AS1.
        strong_convexity: μ of AS1.
        gradient_variance: σ² of AS2.
        gradient_bound: M² of AS2.
        dissimilarity: G² of AS3.
        dissimilarity_factor: B² of AS3.
        initial_distance: d_0 = ‖θ^0 − θ*‖².
        control_distance: Σ_i ‖c_i^0 − ∇f_i(θ*)‖², in Theorem 3's D̃².
        model_noise: σ_θ = max_r sw2/(1 + ν/s²), per coordinate.
        control_noise: σ_c, the same for the control block.
        users, steps, dim: N, K and d.
        participants: S of AS4.
        power, control_power: P, and P of the control block.
        threshold, control_threshold: h_min and ρ_min.
        step_size, rounds: η and R of the measured runs; None by hand, as the next ones.
        gap: [trial] F(θ̄^R) − F* of the measured runs, of their weighted average.
        update_ratio: max_r max_i E‖Δ_i‖²/(KηM)² of these runs; the proofs take it to be at most 1.
        power_ratio: max_r E[max_i ‖x_i‖²]/P of the model block in these runs.
    """

    smoothness: Traced[Scalar] = traced(above=0.0)
    strong_convexity: Traced[Scalar] = traced(at_least=0.0)
    gradient_variance: Traced[Scalar] = traced(at_least=0.0)
    gradient_bound: Traced[Scalar] = traced(at_least=0.0)
    dissimilarity: Traced[Scalar] = traced(at_least=0.0)
    dissimilarity_factor: Traced[Scalar] = traced(at_least=1.0)
    initial_distance: Traced[Scalar] = traced(at_least=0.0)
    control_distance: Traced[Scalar] = traced(at_least=0.0)
    model_noise: Traced[Scalar] = traced(at_least=0.0)
    control_noise: Traced[Scalar] = traced(at_least=0.0)
    users: Traced[Scalar] = traced(at_least=1.0)
    steps: Traced[Scalar] = traced(at_least=1.0)
    dim: Traced[Scalar] = traced(at_least=1.0)
    participants: Traced[Scalar] = traced(at_least=1.0)
    power: Traced[Scalar] = traced(default=1.0, above=0.0)
    control_power: Traced[Scalar] = traced(default=1.0, above=0.0)
    threshold: Traced[Scalar] = traced(default=1.0, above=0.0)
    control_threshold: Traced[Scalar] = traced(default=1.0, above=0.0)
    step_size: Traced[Scalar | None] = traced(default=None, above=0.0)
    rounds: Traced[Scalar | None] = traced(default=None, at_least=1.0)
    gap: Traced[Float[Array, "trial"] | None] = traced(default=None, rank=1, at_least=0.0)
    update_ratio: Traced[Scalar | None] = traced(default=None, at_least=0.0)
    power_ratio: Traced[Scalar | None] = traced(default=None, at_least=0.0)

    replace = dataclasses.replace


@part
class Bound:
    """The right-hand side of a theorem for R rounds, term by term, and whether it applies.

    Attributes:
        initial_distance: the term that is left of ‖θ^0 − θ*‖².
        gradient_variance: the term of minibatches, σ².
        model_noise: the term of noise on the model block, σ_θ.
        control_noise: the term of noise on the control block, σ_c; 0 for Theorem 1.
        dissimilarity: the term of differences between users' gradients, G²; 0 for Theorems 2 and 3.
        rounds: R.
        step_size: η, as given, or the proofs' choice for this R.
        largest_step: largest η for which the theorem holds.
        least_rounds: least R for which the theorem holds.
        logarithm: log max{1, μ²R·d_0/c}, the factor of the noise terms.
        conditions: by name whether each condition holds. The theorem's own are step_size
            (0 < η ≤ largest_step) and rounds (R ≥ least_rounds). With logarithm, no term that is
            not 0 is dropped, as a logarithm of 0 does. The constants can be those of a run at this
            η and R if measured_step_size (their η agrees within 1 %) and measured_rounds (R is at
            most twice theirs) hold; both always do for constants by hand.
    """

    initial_distance: Values
    gradient_variance: Values
    model_noise: Values
    control_noise: Values
    dissimilarity: Values
    rounds: Values
    step_size: Values
    largest_step: Values
    least_rounds: Values
    logarithm: Values
    conditions: dict[str, Flags]

    replace = dataclasses.replace

    @property
    def terms(self) -> dict[str, Values]:
        """The five terms by name."""
        return {name: getattr(self, name) for name in TERMS}

    @property
    def total(self) -> Values:
        """The bound itself, the sum of its terms."""
        return functools.reduce(operator.add, self.terms.values())

    @property
    def applies(self) -> Flags:
        """Whether all conditions hold."""
        return functools.reduce(operator.and_, self.conditions.values())


def theorem_1(constants: Constants, rounds: Numbers, step_size: Numbers | None = None) -> Bound:
    """Bound E[F(θ̄^R)] − F* of BAAF; eq. Th1.

    It needs η ≤ 1/(8βK(1+B²)) and R ≥ 8β(1+B²)/μ. The logarithm of the statement's last term,
    log²(μ²R·d_0/(βG²)), is of a quantity with a dimension; the lemma gives μ³R²·d_0/(βG²), which
    the step size here uses.

    Args:
        constants: from `measure`, or chosen by hand.
        rounds: R, a number or an array [R].
        step_size: η; by default the proofs' choice for each R.
    """
    c, r = _checked(constants, rounds)
    reach = 1.0 / (8.0 * c.smoothness * (1.0 + c.dissimilarity_factor))  # largest Kη
    variance = c.gradient_variance * (1.0 + c.users) / (c.steps * c.users)
    noise = c.dim * c.gradient_bound * (c.model_noise / c.power) / c.users**2
    terms = variance, noise, jnp.zeros_like(noise)
    least = 1.0 / (c.strong_convexity * reach)
    apart = c.smoothness * c.dissimilarity
    return _bound(c, r, 3.0, terms, c.initial_distance, reach, least, step_size, apart)


def theorem_2(constants: Constants, rounds: Numbers, step_size: Numbers | None = None) -> Bound:
    """Bound E[F(θ̄^R)] − F* of COBAAF when all users are heard; eq. Th2.

    It needs η ≤ 1/(8βK) and R ≥ 8β/μ.

    Args:
        constants, rounds, step_size: as of `theorem_1`.
    """
    c, r = _checked(constants, rounds)
    reach = 1.0 / (8.0 * c.smoothness)
    terms = _controlled(c, c.users, 1.0, 1.0)
    least = 1.0 / reach / c.strong_convexity
    return _bound(c, r, 2.0, terms, c.initial_distance, reach, least, step_size)


def theorem_3(constants: Constants, rounds: Numbers, step_size: Numbers | None = None) -> Bound:
    """Bound E[F(θ̄^R)] − F* of COBAAF when S of N users are heard, AS4; eq. Th3.

    It needs η ≤ min(1/(81βK), S/(15μNK)) and R ≥ max(162β/μ, 30N/S). Here σ̃ is σ with S, h_min and
    ρ_min in their places (see `proposition_1`), and the control noise is divided by ρ_min².

    Args:
        constants, rounds, step_size: as of `theorem_1`.
    """
    c, r = _checked(constants, rounds)
    heard, mu = c.participants, c.strong_convexity
    reach = jnp.minimum(1.0 / (81.0 * c.smoothness), heard / (15.0 * mu * c.users))
    start = c.initial_distance + c.control_distance / (2.0 * heard * c.smoothness**2)
    terms = _controlled(c, heard, c.threshold, c.control_threshold)
    return _bound(c, r, 1.0, terms, start, reach, 2.0 / reach / mu, step_size)


def step_size(
    constants: Constants, rounds: Numbers, theorem: Callable[..., Bound] = theorem_1
) -> Values:
    """Return η of the proofs for R rounds: Kη = min(η̃_max, 2·log(max{1, μ²R·d_0/c})/(μR)).

    The theorems say that a step size exists; this is the one by which their lemma proves it. c is
    the theorem's noise, c_1, c_3 or c_4; in Theorem 1 the smaller of μ²R·d_0/c_1 and μ³R²·d_0/c_2
    is in the logarithm.

    Args:
        constants, rounds: as of `theorem_1`.
        theorem: the theorem of the proof, `theorem_1`, `theorem_2` or `theorem_3`.
    """
    original = inspect.unwrap(theorem) if callable(theorem) else theorem  # without jax.jit
    if not any(original is known for known in (theorem_1, theorem_2, theorem_3)):
        raise InputError(
            f"theorem must be theorem_1, theorem_2 or theorem_3, got {inputs.shown(theorem)}"
        )
    return theorem(constants, rounds).step_size


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
    most = spread * gain * (count * threshold) ** 2  # σ for infinite noise
    # Exact where either is 0 or ∞.
    mmse, sigma = 1.0 / (1.0 / received + 1.0 / spread), 1.0 / (1.0 / noise + 1.0 / most)
    return Error(mmse, received, sigma)


def weights(contraction: Numbers, rounds: int) -> Float[Array, "R+1"]:
    """Return w_r/Σw for r = 1 … R+1, with w_r = (1 − contraction/2)^{1−r}; eq. final_output.

    Args:
        contraction: μ·Kη.
        rounds: R.
    """
    rounds = inputs.whole("rounds", rounds, 1)
    capacity.refuse_memory("rounds", f"{rounds} weights", 12 * rounds)
    shrinking = inputs.number("contraction", contraction, 0.0)
    if shrinking.ndim:
        raise InputError(f"contraction must be a number, got shape {list(shrinking.shape)}")
    # In units of the newest weight none exceeds 1: R = 10⁵ does not overflow.
    age = jnp.arange(rounds, -1, -1, dtype="float32")
    shrink = jnp.log1p(-jnp.minimum(shrinking / 2.0, 1.0))
    powers = jnp.where(age > 0, jnp.exp(age * shrink), 1.0)
    return powers / powers.sum()


def weighted_average(models: Numbers, contraction: Numbers) -> Vector:
    """Return θ̄^R; eq. final_output.

    Args:
        models: [R + 1, d] θ^0 … θ^R.
        contraction: μ·Kη.
    """
    rows = inputs.number("models", models)
    if rows.ndim != 2 or len(rows) < 2:
        raise InputError(f"models must have shape [R + 1, d], R ≥ 1, got {list(rows.shape)}")
    return jnp.einsum("r,rd->d", weights(contraction, len(rows) - 1), rows, precision="highest")


def _controlled(
    c: Constants, heard: Array, threshold: Array | float, control_threshold: Array | float
) -> tuple[Array, Array, Array]:
    """Return gradient variance, model noise and control noise, the three terms of c_3 and c_4."""
    variance = c.gradient_variance * (1.0 + heard) / (c.steps * heard)
    shared = c.dim * c.gradient_bound / (c.steps * heard**2)
    model = shared * (c.model_noise / c.power) / threshold**2
    control = shared * (c.control_noise / c.control_power) * (1.0 + heard * c.steps)
    return variance, model, control / control_threshold**2


def _bound(
    c: Constants,
    r: Values,
    leading: float,
    terms: tuple[Array, Array, Array],
    start: Array,
    reach: Array,
    least: Array,
    step_size: Numbers | None,
    apart: Array | float = 0.0,
) -> Bound:
    """Return leading·(terms/(μR)·log + μ·start·exp(−μ·reach·R/2)), which all theorems share.

    The terms are gradient variance, model noise and control noise. `reach` is the largest Kη,
    `least` the least R, and `apart` Theorem 1's βG².
    """
    mu, total = c.strong_convexity, functools.reduce(operator.add, terms)
    log, apart_log = (_log(mu**2 * r * start, x) for x in (total, apart))
    # G² limits the step where there is little noise.
    limits = _ratio(mu**2 * r * start, total), _ratio(mu**3 * r**2 * start, apart)
    chosen = jnp.minimum(reach, 2.0 * jnp.log(jnp.maximum(1.0, jnp.minimum(*limits))) / (mu * r))
    eta = chosen / c.steps if step_size is None else inputs.number("step_size", step_size, 0.0)
    check_shapes(step_size=eta, rounds=r)
    largest_step = reach / c.steps
    conditions: dict[str, Any] = {
        "step_size": (eta > 0) & (eta <= largest_step * (1 + 1e-5)),
        "rounds": r >= least,
        "logarithm": ((total == 0) | (log > 0)) & ((apart == 0) | (apart_log > 0)),
        "measured_step_size": True,
        "measured_rounds": True,
    }
    if c.step_size is not None:
        conditions["measured_step_size"] = jnp.abs(eta / c.step_size - 1.0) <= _STEP_TOLERANCE
    if c.rounds is not None:
        conditions["measured_rounds"] = r <= _ROUNDS_FACTOR * c.rounds
    zeros = jnp.zeros_like(chosen)  # broadcasts the others to the shape of all
    variance, model_noise, control_noise = (leading * x / (mu * r) * log for x in terms)
    return Bound(
        initial_distance=leading * mu * start * jnp.exp(-mu * r * reach / 2.0),
        gradient_variance=variance,
        model_noise=model_noise,
        control_noise=control_noise,
        dissimilarity=leading * apart / (mu * r) ** 2 * apart_log**2,
        rounds=r + zeros,
        step_size=eta + zeros,
        largest_step=largest_step + zeros,
        least_rounds=least + zeros,
        logarithm=log,
        conditions={name: (zeros == 0) & holds for name, holds in conditions.items()},
    )


def _ratio(top: Array, bottom: Array | float) -> Array:
    """Return top/bottom, infinite where bottom is 0."""
    return jnp.where(bottom > 0, top / jnp.where(bottom > 0, bottom, 1.0), jnp.inf)


def _log(top: Array, bottom: Array | float) -> Array:
    """Return log max{1, top/bottom}, finite where bottom is 0: it multiplies 0 there."""
    return jnp.log(jnp.maximum(1.0, top / jnp.where(bottom > 0, bottom, 1.0)))


def _checked(constants: Constants, rounds: Numbers) -> tuple[Constants, Values]:
    if not isinstance(constants, Constants):
        raise InputError(
            "constants must be a theory.Constants, such as theory.measure(...) returns, "
            f"got {inputs.shown(constants)}"
        )
    with inputs.traced_checks() as valid:  # under an outer jit, invalid values make the bound NaN
        constants = inputs.cast_fields(constants, "constants")
    mu = constants.strong_convexity
    if not isinstance(mu, jax.core.Tracer) and not np.all(np.asarray(mu) > 0):
        raise InputError(
            f"constants.strong_convexity must be > 0, got {np.min(mu):g}: the theorems are of "
            "strongly convex tasks; give every user at least d samples of full rank"
        )
    r = inputs.number("rounds", rounds, 1.0)
    numbers = constants.replace(gap=None)  # its axis is of trials
    check_shapes(rounds=r, **{f"constants.{k}": v for k, v in vars(numbers).items()})
    return constants, inputs.nan_unless(valid, r)


def check_shapes(**arrays: Any) -> None:
    """Refuse arrays whose shapes do not broadcast."""
    shapes = {name: np.shape(array) for name, array in arrays.items() if array is not None}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise InputError(
            f"{next(iter(arrays))} must be of a shape that goes with {listed}"
        ) from None
