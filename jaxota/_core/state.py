"""Values that cross the rounds of a trial: the state, the round's records, and the plan."""

import dataclasses
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from jaxota._core import files, inputs
from jaxota._core.part import Memory, Path, Scalar, Traced, Vector, part, static, traced
from jaxota.errors import InputError


@part
class State:
    """State of one trial between two rounds. The memory of a stage that has none is `None`.

    Attributes:
        model: [d] the broadcast model.
        control: [d] the estimate of the control block, broadcast too; `None` without controls.
        local: [user, …] memory of the local rule.
        compress: [user, …] memory of the compressor, one for each block.
        estimate: memory of the estimator, one for each block.
        server: memory of the server's rule.
        average: [d] weighted average of the models so far, eq. final_output.
        weight: [] total weight behind `average`, in units of the newest model's.
        fading: memory of the fading.
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
class Checkpoint:
    """The states of all trials after some rounds, from which `simulate(..., state=...)` continues.

    Attributes:
        leaves: arrays [trial, …], in the order of the leaves of the algorithm's state.
        rounds: the rounds that were run.
    """

    leaves: tuple[Array, ...]
    rounds: int = static(at_least=1)

    replace = dataclasses.replace


class Resumed(NamedTuple):
    """States from which a program continues after a number of rounds that it does not know."""

    leaves: tuple[Array, ...]
    done: Int[Array, ""]


@part
class Ledger:
    """Cost and error of one block in one round."""

    energy: Float[Array, "user"]  # ‖·‖² of the values sent, before the gain
    power: Float[Array, "user"]  # ‖x_i‖²/P
    reports: Scalar  # coded scalars that each user reported beside the block
    deviation: Scalar  # √ν, the standard deviation of the noise on the average
    error: Scalar | None  # ‖estimate − true average‖², None where no average is estimated
    uses: Scalar  # real symbols on the air, one after another
    spent: Scalar  # Σ_i ‖x_i‖², all users' energy


@part
class Info:
    """Record of one round, for histories and calibration."""

    moved: Float[Array, "user d"]  # θ_i − θ̂, times the user's weight
    controls: Float[Array, "user d"] | None  # c_i, the values of the control block
    blocks: tuple[Ledger, ...]  # of the model block and, if there is one, of the control block
    output: Vector  # the model that is scored
    heard: Num[Array, "user"]  # 1 for users who were heard
    models: Float[Array, "user d"]  # θ_i
    members: Int[Array, "user"] | None = None  # the cohort whom [user] counts, None for all users

    replace = dataclasses.replace

    def of_all(self, values: Float[Array, "user"], users: int) -> Float[Array, "all"]:
        """Return values of the cohort as those of all users, 0 for the others."""
        if self.members is None:
            return values
        return jnp.zeros(users).at[self.members].set(values)


@part
class Moments:
    """Statistics of one block in the plan, by round: rows for the precoder and the estimator."""

    energy: Float[Array, "*round"]  # max_i E‖value_i‖²
    peak: Float[Array, "*round"] | None  # the largest energy of all rounds, repeated
    mean: Float[Array, "*round user"]  # prior mean of each user's θ_i or c_i
    var: Float[Array, "*round user"]  # prior variance
    average_mean: Float[Array, "*round"] | None  # prior mean of the average over users
    average_var: Float[Array, "*round"] | None
    sent_mean: Float[Array, "*round user"] | None = None  # prior mean of each user's Δ_i or c_i
    sent_var: Float[Array, "*round user"] | None = None

    def of(self, members: Int[Array, "user"]) -> "Moments":
        """Return one round's row of these users alone."""
        return jax.tree.map(lambda x: x[members] if x.ndim else x, self)


ByRound: TypeAlias = Traced[Float[Array, "round"]]
ByUser: TypeAlias = Traced[Float[Array, "round user"]]
MaybeByRound: TypeAlias = Traced[Float[Array, "round"] | None]
MaybeByUser: TypeAlias = Traced[Float[Array, "round user"] | None]


@part
class Plan:
    """Statistics by round from an offline, noise-free run, which users and server know beforehand.

    Attributes:
        update_energy: [round] max_i E‖Δ_i‖², which scales the precoder.
        model_mean, model_var: [round, user] the estimators' prior of each user's θ_i, over
            coordinates and trials.
        control_energy, control_mean, control_var: the same of controls, for algorithms that have
            them.
        average_mean, average_var: [round] the prior of the average itself, for `PooledMMSE` alone.
        average_control_mean, average_control_var: [round] that of the average of controls.
        update_mean, update_var: [round, user] the prior of each user's Δ_i, for `UpdateMMSE` alone.

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
    update_mean: MaybeByUser = traced(default=None, rank=2)
    update_var: MaybeByUser = traced(default=None, rank=2, at_least=0.0, infinite=True)

    replace = dataclasses.replace

    def save(self, path: Path) -> None:
        """Write the plan to `path`, an .npz file."""
        path = inputs.path("path", path)
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:  # absent, or missing
                fields[field.name] = inputs.real(f"plan.{field.name}", value)
        with files.replacing(path) as (draft,), open(draft, "wb") as file:
            np.savez(file, **fields)

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """Read a plan that `save` wrote."""
        path = inputs.path("path", path)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                return cls(**{k: inputs.real(k, v) for k, v in stored.items()})
        except Exception as error:  # a damaged file can cause any kind
            raise InputError(
                f"plan: {path} is not a plan that Plan.save wrote ({inputs.first_line(error)})"
            ) from None


# Names that stages give to statistics of a block → fields of the plan, for both blocks.
PLANNED = {
    "energy": ("update_energy", "control_energy"),
    "mean": ("model_mean", "control_mean"),
    "var": ("model_var", "control_var"),
    "average_mean": ("average_mean", "average_control_mean"),
    "average_var": ("average_var", "average_control_var"),
    "sent_mean": ("update_mean", "control_mean"),
    "sent_var": ("update_var", "control_var"),
}
