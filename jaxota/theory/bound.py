"""What a theorem says of R rounds, term by term."""

import dataclasses
import functools
import operator
from typing import TypeAlias

from jaxtyping import Array, Bool, Float

from jaxota._core.part import part

Values: TypeAlias = Float[Array, "*R"]  # one for each number of rounds that is asked about
Flags: TypeAlias = Bool[Array, "*R"]
TERMS = ("initial_distance", "gradient_variance", "model_noise", "control_noise", "dissimilarity")


@part
class Bound:
    """A theorem's right-hand side for R rounds, term by term, and whether it applies.

    Attributes:
        initial_distance: what remains of ‖θ^0 − θ*‖².
        gradient_variance: minibatches, σ².
        model_noise: the model block's channel noise, σ_θ.
        control_noise: the control block's, σ_c; 0 for Theorem 1.
        dissimilarity: users' gradients differ, G²; 0 for Theorems 2 and 3.
        rounds: R.
        step_size: η, the proofs' choice for this R, or the one that was asked about.
        largest_step: η must not exceed it.
        least_rounds: R must not fall below it.
        logarithm: log max{1, μ²R·d_0/c}, the factor of the noise terms.
        kept: whether no term that is not 0 was dropped by a logarithm of 0.
        same_step: whether the constants were measured at this η; made by hand, True.
        long_enough: whether they were measured over about so many rounds; made by hand, True.
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
    kept: Flags
    same_step: Flags
    long_enough: Flags

    replace = dataclasses.replace

    @property
    def terms(self) -> dict[str, Values]:
        """Each by its name."""
        return {name: getattr(self, name) for name in TERMS}

    @property
    def total(self) -> Values:
        """The bound itself, the sum of its terms."""
        return functools.reduce(operator.add, self.terms.values())

    @property
    def conditions(self) -> dict[str, Flags]:
        """Which conditions hold. The theorem's own are the first two; see the module for the third;
        the last two say whether the constants can be those of the run that the bound is asked for.

        step_size: 0 < η ≤ largest_step; rounds: R ≥ least_rounds; logarithm: it drops no term;
        measured_step_size: the constants' η is this one within 1 %; measured_rounds: R is at most
        twice the constants' own. Both hold of constants made by hand, which know neither.
        """
        return {
            "step_size": (self.step_size > 0) & (self.step_size <= self.largest_step * (1 + 1e-5)),
            "rounds": self.rounds >= self.least_rounds,
            "logarithm": self.kept,
            "measured_step_size": self.same_step,
            "measured_rounds": self.long_enough,
        }

    @property
    def applies(self) -> Flags:
        """Whether all conditions hold."""
        return functools.reduce(operator.and_, self.conditions.values())
