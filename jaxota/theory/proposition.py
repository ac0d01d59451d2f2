"""Proposition 1: what the MMSE estimate leaves of the channel's noise."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxota._core import inputs as _validate
from jaxota._core.part import Numbers, part
from jaxota.errors import InputError
from jaxota.theory.constants import together


@part
class Error:
    """Mean squared errors per coordinate of two estimates of an average.

    Attributes:
        mmse: the conditional mean's, Proposition 1: ν·s²/(s² + ν).
        identity: of what was received, as it is: ν.
        sigma: σ_θ (or σ_c) = mmse·|S|²·α·h_min².
    """

    mmse: Float[Array, "*shape"]
    identity: Float[Array, "*shape"]
    sigma: Float[Array, "*shape"]


def proposition_1(
    noise: ArrayLike, gain: ArrayLike, variances: Numbers, threshold: ArrayLike = 1.0
) -> Error:
    """Errors of estimating the average of the users heard; Prop. 1 and its like for controls.

    Args:
        noise: sw2, the channel's noise variance per coordinate.
        gain: α of the model block, or β of the control block.
        variances: [user] prior variances σ_i² (or v_i²) of those heard, S^r; from 0 to ∞.
        threshold: h_min (or ρ_min) under fading.

    ν = sw2/(|S|²·α·h_min²), s² = Σ_i σ_i²/|S|²: the main text; the appendix's var = s²/N² + sw2 and
    μ/N are slips. Holds when the prior is true: coordinates and users independent and Gaussian.
    """
    variances = _validate.number("variances", variances, 0.0, infinite=True)
    if variances.ndim != 1 or not variances.size:
        raise InputError(f"variances must have shape [users heard], got {list(variances.shape)}")
    noise, count = _validate.number("noise", noise, 0.0, infinite=True), variances.size
    gain, threshold = (
        _validate.number(name, value, above=0.0)
        for name, value in (("gain", gain), ("threshold", threshold))
    )
    together(noise=noise, gain=gain, threshold=threshold)
    received = noise / gain / (count * threshold) ** 2
    spread = variances.mean() / count
    mmse = 1.0 / (1.0 / received + 1.0 / spread)  # exact for 0 and ∞ in either place
    loud = spread * gain * (count * threshold) ** 2  # where the noise has no end
    sigma = jnp.where(jnp.isinf(noise), loud, noise_after(noise, received, spread))
    return Error(mmse, received, sigma)


def noise_after(noise: Array, received: Array, spread: Array) -> Array:
    """σ_θ = sw2/(1 + ν/s²): what the MMSE estimate leaves of sw2. ν = `received`, s² = `spread`."""
    ratio = jnp.where(received > 0, received / spread, 0.0)
    return jnp.where(jnp.isinf(spread), noise, noise / (1.0 + ratio))
