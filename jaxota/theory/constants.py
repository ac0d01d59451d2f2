"""The numbers that the theorems are functions of."""

import dataclasses
from typing import Any

import numpy as np

from jaxota._core.part import Scalar, Traced, part, traced
from jaxota.errors import InputError


@part
class Constants:
    """The numbers that Theorems 1, 2 and 3 are made of. Squared letters are held squared.

    `measure` says where they come from. σ² and M² are of the models met at one step size in so many
    rounds, σ_θ and σ_c of those gains; the theorems' conditions say where they are asked for more.
    Of constants made by hand, `None` in the last two, whoever made them vouches.

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
        control_noise: σ_c, the same of the control block.
        users, steps, dim: N, K and d.
        participants: S of AS4.
        power, control_power: P, and P of the control block.
        threshold, control_threshold: h_min and ρ_min.
        step_size, rounds: η and R of the runs that were measured.
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

    replace = dataclasses.replace


def together(**arrays: Any) -> None:
    """Refuse arrays of shapes that do not go together."""
    try:
        np.broadcast_shapes(*(np.shape(array) for array in arrays.values() if array is not None))
    except ValueError:
        shapes = ", ".join(
            f"{name} {list(np.shape(x))}" for name, x in arrays.items() if x is not None
        )
        raise InputError(
            f"{next(iter(arrays))} must be of a shape that goes with {shapes}"
        ) from None
