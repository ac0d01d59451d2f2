"""Precoders, at each user: the gain √α that scales a block to the power budget P.

Every precoder returns the *full-power energy* P/α, the ‖Δ‖² that spends the whole budget, for all
users or one for each. Neither α nor P is formed: α spans more orders of magnitude than float32 can
square.
"""

from typing import TYPE_CHECKING, Any, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core.part import PerUser, Scalar, Traced, part, traced
from jaxota.errors import InputError
from jaxota.stages.channel import Block
from jaxota.stages.compress import level_of

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


class Precoder(Protocol):
    """The choice of a block's gain, such as `Offline`, `Online` or `Constant`.

    A precoder that needs scalars from the users may count them in `reports`, for the ledger.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of `Moments` that the precoder reads from the plan."""

    def energy(self, block: Block) -> Float[Array, "*user"]:
        """Return the ‖·‖² that spends the whole budget, [] for all users or [user]."""


@part
class Offline:
    """α^r = P / max_i E‖Δ_i^r‖², the expectation from the plan; eq. precoder."""

    needs = ("energy",)
    cohorts = True

    def energy(self, block: Block) -> Scalar:
        return block.moments.energy


@part
class Online:
    """α^r = P / max_i ‖Δ_i^r‖², the realised maximum: no user ever exceeds the budget."""

    needs = ()
    reports = 1  # ‖Δ_i‖²

    def energy(self, block: Block) -> Scalar:
        return jnp.max(block.energies)


@part
class MeanPower:
    """α^r = P / mean_i ‖Δ_i^r‖²: users spend P on average, and some of them more."""

    needs = ()
    reports = 1  # ‖Δ_i‖²

    def energy(self, block: Block) -> Scalar:
        return jnp.mean(block.energies)


@part
class FullPower:
    """α_i = P/‖x_i‖², each user's own: everyone spends the whole budget in every round.

    The server receives the average weighted by √α_i. It must learn Σ√α_i from a symbol of the
    block, as `Projected` sends it.
    """

    needs = ()
    cohorts = True

    def energy(self, block: Block) -> PerUser:
        # A user with nothing to send weighs nothing.
        return jnp.where(block.energies > 0, block.energies, jnp.inf)

    def check(self, path: str, setting: "Setting") -> None:
        compress: Any = setting.algorithm.compress
        if not hasattr(getattr(compress, "rest", compress), "scale"):
            raise InputError(
                f"{path} must be one such as jo.Online() with {type(compress).__name__}: "
                "jo.FullPower() is for jo.Projected(...), whose blocks carry their scale"
            )


@part
class Constant:
    """x_i = gain·Δ_i in all rounds.

    Attributes:
        gain: √α; None for the largest gain that meets the budget in every round of the plan.
    """

    gain: Traced[Scalar | None] = traced(default=None, above=0.0)

    cohorts = True

    @property
    def needs(self) -> tuple[str, ...]:
        return () if self.gain is not None else ("energy",)

    @property
    def independent(self) -> bool:
        """Whether the gain is the same whatever the data, for `jaxota.privacy`."""
        return self.gain is not None

    def energy(self, block: Block) -> Scalar:
        if self.gain is None:
            assert block.moments.peak is not None  # `energy` is among `needs`
            return block.moments.peak
        # Roots first: gain² may under- or overflow float32.
        return (jnp.sqrt(block.power) / self.gain) ** 2


@part
class Bounded:
    """α = P/(KηM)² and β = P/M², from a known bound M on gradient norms.

    Attributes:
        bound: M.
    """

    bound: Traced[Scalar] = traced(above=0.0)

    needs, independent = (), True
    cohorts = True

    def energy(self, block: Block) -> Scalar:
        return (block.reach * self.bound) ** 2


@part
class Level:
    """√α = √P/τ: a vector as long as the server's level τ spends the whole budget."""

    needs = ()
    cohorts = True

    def energy(self, block: Block) -> Scalar:
        return level_of(block.side.answer) ** 2
