"""The nouns: parts of a simulation are frozen pytree values, declared field by field.

*If it multiplies, it is traced; if it counts or chooses, it is static.* Each field says which,
and what values it may hold, so that checks, casts and sweeps need no second list of fields.
"""

import dataclasses
import zipfile
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import _files
from jaxota.errors import InputError

Array = Any  # a jax or NumPy array, or a number that becomes one on entry


def part(cls):
    """A frozen dataclass that is a pytree: traced fields are leaves, static ones are structure.

    Not by `jax.tree_util.register_dataclass`: up to jax 0.10 at least, the structures that it makes
    compare equal whatever their classes, and `jit` then runs one part's program for another.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    cls.replace = dataclasses.replace
    fields = dataclasses.fields(cls)
    structure = [field.name for field in fields if field.metadata.get("static")]
    leaves = [field.name for field in fields if field.name not in structure]

    def flatten(value):
        return [getattr(value, k) for k in leaves], (cls, *(getattr(value, k) for k in structure))

    def flatten_with_keys(value):
        children, aux = flatten(value)
        return list(zip(map(jax.tree_util.GetAttrKey, leaves), children, strict=True)), aux

    def unflatten(aux, children):
        value = object.__new__(cls)
        value.__dict__.update(zip(leaves, children, strict=True))
        value.__dict__.update(zip(structure, aux[1:], strict=True))
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def static(default=dataclasses.MISSING, *, at_least=None, one_of=None):
    """A field that counts or chooses: a new value is a new program."""
    allowed = {"at_least": at_least, "one_of": one_of}
    return dataclasses.field(default=default, metadata={"static": True, **allowed})


def traced(
    default=dataclasses.MISSING,
    *,
    rank=0,
    above=None,
    at_least=None,
    below=None,
    infinite=False,
    dtype="float32",
):
    """A field that multiplies: an array of `rank` axes, or one more to sweep over settings.

    `above`, `at_least` and `below` bound its values; `infinite` admits +inf; `()` is absent.
    """
    allowed = {"above": above, "at_least": at_least, "below": below, "infinite": infinite}
    return dataclasses.field(default=default, metadata={"rank": rank, "dtype": dtype, **allowed})


def given(value) -> bool:
    """Whether a value is there: `()` is what is absent."""
    return not (isinstance(value, tuple) and value == ())


@part
class State:
    """What survives a round of one trial. What a stage does not remember is `()`."""

    model: Array  # [d] the broadcast model
    control: Array  # [d] the estimate of the control block, broadcast too, or ()
    local: Any  # [user, …] what the local rule remembers
    compress: tuple  # [user, …] what the compressor remembers of each block
    estimate: tuple  # what the estimator remembers of each block
    server: Any  # what the server's rule remembers
    average: Array  # [d] weighted average of the models so far, eq. final_output
    weight: Array  # [] total weight behind `average`, in units of the newest model's
    fading: Any  # what the fading remembers


@part
class Ledger:
    """What one block cost and lost in a round."""

    energy: Array  # [user] ‖·‖² of what it carries, before the gain
    power: Array  # [user] ‖x_i‖²/P
    deviation: Array  # [] √ν, the standard deviation of the noise on the average
    error: Array  # [] ‖estimate − true average‖²


@part
class Info:
    """What a round reveals."""

    moved: Array  # [user, d] θ_i − θ̂, where users went
    controls: Array  # [user, d] c_i, what the control block carries, or ()
    blocks: tuple[Ledger, ...]  # of the model block and, if there is one, of the control block
    output: Array  # [d] the model that is scored
    participants: Array  # [] number of users heard


@part
class Moments:
    """What the plan knows of one block, by round: rows for the precoder and the estimator."""

    energy: Array  # [round] max_i E‖value_i‖²
    peak: Array  # [round] the largest energy of all rounds, repeated
    mean: Array  # [round, user] prior mean of what each user holds
    var: Array  # [round, user] prior variance
    average_mean: Array  # [round] prior mean of the average, or ()
    average_var: Array  # [round]


@part
class Plan:
    """What an offline, noise-free run tells the users and the server beforehand, by round.

    Energies scale the precoder, means and variances (over coordinates and trials) are the
    estimators' prior. The `control_` fields serve controlled algorithms alone, the `average_`
    fields `PooledMMSE` alone; `()` where absent.
    """

    update_energy: Array = traced(rank=1, at_least=0.0)  # [round]
    model_mean: Array = traced(rank=2)  # [round, user]
    model_var: Array = traced(rank=2, at_least=0.0, infinite=True)
    control_energy: Array = traced((), rank=1, at_least=0.0)
    control_mean: Array = traced((), rank=2)
    control_var: Array = traced((), rank=2, at_least=0.0, infinite=True)
    average_mean: Array = traced((), rank=1)  # [round]
    average_var: Array = traced((), rank=1, at_least=0.0, infinite=True)
    average_control_mean: Array = traced((), rank=1)
    average_control_var: Array = traced((), rank=1, at_least=0.0, infinite=True)

    def moments(self, controlled: bool) -> tuple["Moments", ...]:
        """What it knows of each block, of the control block if the algorithm has one."""
        model = self.update_energy, self.model_mean, self.model_var
        model = _moments(*model, self.average_mean, self.average_var)
        if not controlled:
            return (model,)
        control = self.control_energy, self.control_mean, self.control_var
        return model, _moments(*control, self.average_control_mean, self.average_control_var)

    def save(self, path) -> None:
        """Write the plan to `path`, an .npz file."""
        fields = {k: v for k, v in vars(self).items() if np.size(v)}
        with _files.replacing(path) as (part_path,), open(part_path, "wb") as file:
            np.savez(file, **fields)

    @classmethod
    def load(cls, path) -> "Plan":
        """Read a plan that `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                return cls(**stored)
        except (OSError, ValueError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise InputError(f"plan: {path} is not a plan that Plan.save wrote ({error})") from None


def _moments(energy, mean, var, average_mean, average_var) -> Moments:
    return Moments(
        energy=energy,
        peak=jnp.full_like(energy, jnp.max(energy)) if given(energy) else (),
        mean=mean,
        var=var,
        average_mean=average_mean,
        average_var=average_var,
    )
