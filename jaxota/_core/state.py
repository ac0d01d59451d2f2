"""What a trial carries from round to round, what a round reveals, and the plan."""

import dataclasses
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from jaxota._core import files as _files
from jaxota._core import inputs as _validate
from jaxota._core.part import Memory, Path, Scalar, Traced, Vector, part, traced
from jaxota.errors import InputError


@part
class State:
    """What survives a round of one trial. What a stage does not remember is `None`.

    Attributes:
        model: [d] the broadcast model.
        control: [d] the estimate of the control block, broadcast too, or ().
        local: [user, …] what the local rule remembers.
        compress: [user, …] what the compressor remembers of each block.
        estimate: what the estimator remembers of each block.
        server: what the server's rule remembers.
        average: [d] weighted average of the models so far, eq. final_output.
        weight: [] total weight behind `average`, in units of the newest model's.
        fading: what the fading remembers.
    """

    model: Vector
    control: Vector | None
    local: Memory
    compress: tuple[Memory, ...]
    estimate: tuple[Memory, ...]
    server: Memory
    average: Vector
    weight: Scalar
    fading: Memory

    replace = dataclasses.replace


@part
class Ledger:
    """What one block cost and lost in a round."""

    energy: Float[Array, "user"]  # ‖·‖² of what it carries, before the gain
    power: Float[Array, "user"]  # ‖x_i‖²/P
    reports: Scalar  # coded scalars that each user reported beside it
    deviation: Scalar  # √ν, the standard deviation of the noise on the average
    error: Scalar  # ‖estimate − true average‖²


@part
class Info:
    """What a round reveals."""

    moved: Float[Array, "user d"]  # θ_i − θ̂, where users went
    controls: Float[Array, "user d"] | None  # c_i, what the control block carries, or ()
    blocks: tuple[Ledger, ...]  # of the model block and, if there is one, of the control block
    output: Vector  # the model that is scored
    participants: Num[Array, ""]  # number of users heard


@part
class Moments:
    """What the plan knows of one block, by round: rows for the precoder and the estimator."""

    energy: Float[Array, "round"]  # max_i E‖value_i‖²
    peak: Float[Array, "round"] | None  # the largest energy of all rounds, repeated
    mean: Float[Array, "round user"]  # prior mean of what each user holds
    var: Float[Array, "round user"]  # prior variance
    average_mean: Float[Array, "round"] | None  # prior mean of the average, or ()
    average_var: Float[Array, "round"] | None


ByRound: TypeAlias = Traced[Float[Array, "round"]]
ByUser: TypeAlias = Traced[Float[Array, "round user"]]
MaybeByRound: TypeAlias = Traced[Float[Array, "round"] | None]
MaybeByUser: TypeAlias = Traced[Float[Array, "round user"] | None]


@part
class Plan:
    """What an offline, noise-free run tells the users and the server beforehand, by round.

    Attributes:
        update_energy: [round] max_i E‖Δ_i‖², which scales the precoder.
        model_mean, model_var: [round, user] the estimators' prior of what each user holds, over
            coordinates and trials.
        control_energy, control_mean, control_var: the same of controls, for algorithms that have
            them.
        average_mean, average_var: [round] the prior of the average itself, for `PooledMMSE` alone.
        average_control_mean, average_control_var: [round] that of the average of controls.

    All but the first three are `None` where absent.
    """

    update_energy: ByRound = traced(rank=1, at_least=0.0)
    model_mean: ByUser = traced(rank=2)
    model_var: ByUser = traced(rank=2, at_least=0.0, infinite=True)
    control_energy: MaybeByRound = traced(default=None, rank=1, at_least=0.0)
    control_mean: MaybeByUser = traced(default=None, rank=2)
    control_var: MaybeByUser = traced(default=None, rank=2, at_least=0.0, infinite=True)
    average_mean: MaybeByRound = traced(default=None, rank=1)
    average_var: MaybeByRound = traced(default=None, rank=1, at_least=0.0, infinite=True)
    average_control_mean: MaybeByRound = traced(default=None, rank=1)
    average_control_var: MaybeByRound = traced(default=None, rank=1, at_least=0.0, infinite=True)

    replace = dataclasses.replace

    def moments(self, controlled: bool) -> tuple["Moments", ...]:
        """What it knows of each block, of the control block if the algorithm has one."""
        block = self.update_energy, self.model_mean, self.model_var
        model = _moments(*block, self.average_mean, self.average_var)
        if not controlled:
            return (model,)
        control = self.control_energy, self.control_mean, self.control_var
        return model, _moments(*control, self.average_control_mean, self.average_control_var)

    def save(self, path: Path) -> None:
        """Write the plan to `path`, an .npz file."""
        path = _validate.path("path", path)
        fields: dict[str, Any] = {
            k: _validate.real(f"plan.{k}", v) for k, v in vars(self).items() if v is not None
        }
        with _files.replacing(path) as (part_path,), open(part_path, "wb") as file:
            np.savez(file, **fields)

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """Read a plan that `save` wrote."""
        path = _validate.path("path", path)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                return cls(**{k: _validate.real(k, v) for k, v in stored.items()})
        except Exception as error:  # of any kind that a damaged file can cause
            raise InputError(
                f"plan: {path} is not a plan that Plan.save wrote ({_validate.first_line(error)})"
            ) from None


def _moments(energy: Any, mean: Any, var: Any, average_mean: Any, average_var: Any) -> Moments:
    return Moments(
        energy=energy,
        peak=jnp.full_like(energy, jnp.max(energy)) if energy is not None else None,
        mean=mean,
        var=var,
        average_mean=average_mean,
        average_var=average_var,
    )
