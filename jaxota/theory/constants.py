"""The numbers that the theorems are functions of."""

from jaxota.types import Array, part, traced


@part
class Constants:
    """The numbers that Theorems 1, 2 and 3 are made of. Squared letters are held squared.

    `measure` says where they come from. σ² and M² are of the models met at one step size in so many
    rounds, σ_θ and σ_c of those gains; the theorems' conditions say where they are asked for more.
    Of constants made by hand, `()` in the last two, whoever made them vouches.
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
    step_size: Array = traced((), above=0.0)  # η of the runs that were measured
    rounds: Array = traced((), at_least=1.0)  # R of these
