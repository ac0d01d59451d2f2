"""Numbers that change from round to round: schedules, resolved to one number in each round."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxota._core import capacity, inputs
from jaxota._core.part import Numbers, Scalar, Traced, part, traced
from jaxota.errors import InputError

T = TypeVar("T")
Schedule: TypeAlias = Callable[[Any], Any]  # of the rounds done, 0 in the first round, as in optax


class StepSize:
    """Annotation of a traced number that may be a schedule, for type checkers; see `Traced`."""

    def __get__(self, part: object, kind: Any = None, /) -> Scalar:
        raise NotImplementedError

    def __set__(self, part: Any, value: "StepSizes", /) -> None:
        raise NotImplementedError


@part
class ByRound:
    """A number for each round, in the place of a traced number; see `by_round`.

    Attributes:
        values: [round] the numbers, as many as the run has rounds or more.
    """

    values: Traced[Float[Array, "round"]] = traced(rank=1)

    replace = dataclasses.replace

    def at_round(self, r: Int[Array, ""] | int) -> Float[Array, ""]:
        return self.values[r]


StepSizes: TypeAlias = Numbers | ByRound | Schedule  # as users write them


def by_round(values: Numbers) -> ByRound:
    """Give a number for each round: `jo.cotaf(step_size=jo.by_round([0.1, 0.05, ...]), ...)`.

    Args:
        values: [round], one for each round of the run or more; [setting, round] to sweep.
    """
    return ByRound(values)


def at_round(parts: T, r: Int[Array, ""] | int) -> T:
    """Return parts with every schedule replaced by its number after `r` rounds."""

    def resolved(value: Any) -> Any:
        return value.at_round(r) if _is_scheduled(value) else value

    return jax.tree.map(resolved, parts, is_leaf=_is_scheduled)


def all_rounds(value: Any) -> Any:
    """Return the numbers [round] of a schedule, or the number [] of all rounds."""
    return value.values if _is_scheduled(value) else value


def tabulated(value_of: Any, path: str, rounds: Any, done: int = 0) -> Any:
    """Return a part with functions of the round, in fields that allow them, as `ByRound`.

    They are evaluated once, before the program: other functions are other numbers, which compile
    nothing, and a constant one is the constant to the bit.
    """
    if not dataclasses.is_dataclass(value_of) or isinstance(value_of, type):
        return value_of  # refused later
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(value_of):
        value, place = getattr(value_of, field.name), f"{path}.{field.name}"
        if field.metadata.get("by_round") and callable(value):
            value = changes[field.name] = ByRound(_table(value, place, rounds, done))
        elif not field.metadata and dataclasses.is_dataclass(value):
            changes[field.name] = tabulated(value, place, rounds, done)
        if _is_scheduled(value):
            shape = inputs.as_array(place, value.values).shape
            wanted = done + inputs.whole("rounds", rounds, 1)
            if shape and shape[-1] < wanted:
                raise InputError(
                    f"{place} must have a number for each of {wanted} rounds, got {shape[-1]}"
                )
    return dataclasses.replace(value_of, **changes) if changes else value_of


def _table(schedule: Schedule, path: str, rounds: Any, done: int) -> Float[Array, "*setting round"]:
    """Evaluate a function of the round for all rounds; what it returns may be [setting]."""
    count = done + inputs.whole("rounds", rounds, 1)
    capacity.refuse_memory("rounds", f"a schedule of {count} rounds", 8 * count)
    try:
        try:
            return jax.vmap(schedule, out_axes=-1)(jnp.arange(count))
        except jax.errors.ConcretizationTypeError:  # it asks for the number: `if r < 30`
            return jnp.stack([jnp.asarray(schedule(r), "float32") for r in range(count)], -1)
    except Exception as error:
        raise InputError(
            f"{path} must be a number or a function of the round that returns one: "
            f"{inputs.first_line(error)}"
        ) from error


def _is_scheduled(value: Any) -> bool:
    return hasattr(value, "at_round")
