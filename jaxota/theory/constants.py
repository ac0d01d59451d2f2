"""The numbers that the theorems are functions of."""

import dataclasses
from typing import Any

import numpy as np

from jaxota._core.part import Scalar, Traced, part, traced
from jaxota.errors import InputError


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
        step_size, rounds: η and R of the measured runs, or None.
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
