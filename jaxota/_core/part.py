"""The nouns: parts of a simulation are frozen pytree values, declared field by field.

*If it multiplies, it is traced; if it counts or chooses, it is static.* Each field says which,
and what values it may hold, so that checks, casts and sweeps need no second list of fields.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from jaxota._core import files as _files
from jaxota._core import inputs as _validate
from jaxota.errors import InputError

T = TypeVar("T")
Memory: TypeAlias = Any  # any pytree of arrays, of the same shapes in every round; `None` for none
Numbers: TypeAlias = ArrayLike | Sequence[float]  # given by users: numbers, lists, NumPy, jax
Scalar: TypeAlias = Float[Array, ""]
Vector: TypeAlias = Float[Array, "d"]  # a model, or what has its shape
Path: TypeAlias = str | os.PathLike[str]


class Traced(Generic[T]):
    """Annotates a traced field: it takes `Numbers`, and in the engine, after entry, it is a T.

    For type checkers alone: they read of a descriptor what a part is made with and what it holds.
    """

    def __get__(self, part: object, kind: Any = None, /) -> T:
        raise NotImplementedError

    def __set__(self, part: Any, value: Numbers | T, /) -> None:
        raise NotImplementedError


def static(
    default: Any = dataclasses.MISSING,
    *,
    at_least: int | None = None,
    one_of: tuple[Any, ...] | None = None,
) -> Any:
    """A field that counts or chooses: a new value is a new program.

    Args:
        default: its value where none is given; checkers know it if it is named, `default=...`.
        at_least: the least whole number allowed.
        one_of: all values allowed.
    """
    allowed = {"at_least": at_least, "one_of": one_of}
    return dataclasses.field(default=default, metadata={"static": True, **allowed})


def traced(
    default: Any = dataclasses.MISSING,
    *,
    rank: int = 0,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    infinite: bool = False,
    dtype: str = "float32",
) -> Any:
    """A field that multiplies: an array of `rank` axes, or one more to sweep over settings.

    Args:
        default: its value where none is given, `None` if it may be absent; checkers know it if it
            is named, `default=...`.
        rank: how many axes it has.
        above, at_least, below: bounds of its values.
        infinite: whether +inf is allowed.
        dtype: "float32", "int32", or "key" for a random key.
    """
    allowed = {"above": above, "at_least": at_least, "below": below, "infinite": infinite}
    return dataclasses.field(default=default, metadata={"rank": rank, "dtype": dtype, **allowed})


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(traced, static, dataclasses.field)
)
def part(cls: type[T]) -> type[T]:
    """A frozen dataclass that is a pytree: traced fields are leaves, static ones are structure.

    Args:
        cls: a class with fields declared by `traced()` and `static()`, or that are parts
            themselves.

    Its `replace(**changes)` is `dataclasses.replace`; a class that says `replace =
    dataclasses.replace` lets type checkers know, too.
    """
    # Not by `jax.tree_util.register_dataclass`: up to jax 0.10 at least, the structures it makes
    # compare equal whatever their classes, and `jit` then runs one part's program for another.
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    made.replace = dataclasses.replace
    fields = dataclasses.fields(made)
    structure = [field.name for field in fields if field.metadata.get("static")]
    leaves = [field.name for field in fields if field.name not in structure]

    def flatten(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(value, k) for k in leaves], (made, *(getattr(value, k) for k in structure))

    def flatten_with_keys(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, aux = flatten(value)
        return list(zip(map(jax.tree_util.GetAttrKey, leaves), children, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        value = object.__new__(made)
        value.__dict__.update(zip(leaves, children, strict=True))
        value.__dict__.update(zip(structure, aux[1:], strict=True))
        return value

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


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
