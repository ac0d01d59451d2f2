"""While a program is traced: what stages return, checked by shape and cast to float32.

What does not fit is one line that names the method, what it must return, and the protocol that
says more.
"""

from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxota._core.inputs import shown
from jaxota._core.offered import is_real
from jaxota._core.part import Memory
from jaxota.errors import InputError


class Method(NamedTuple):
    """A method of a stage, by its path, and the protocol that tells of it."""

    path: str
    protocol: str

    def refuse(self, wanted: str, got: Any, **sizes: int) -> NoReturn:
        where = "".join(f", {name} = {size}" for name, size in sizes.items())
        raise InputError(
            f"{self.path}(...) must return {wanted}{where}, got {shown(_brief(got))}; "
            f"see jo.stages.{self.protocol}"
        )

    def several(self, value: Any, wanted: str, count: int = 2) -> Any:
        """`value`, a tuple of so many."""
        if not isinstance(value, tuple | list) or len(value) != count:
            self.refuse(wanted, value)
        return value

    def array(self, value: Any, wanted: str, *shapes: tuple[int, ...], **sizes: int) -> Array:
        """`value` as float32, of one of these shapes."""
        if not is_real(value) or jnp.shape(value) not in shapes:
            self.refuse(wanted, value, **sizes)
        return jnp.asarray(value, "float32")

    def memory(self, value: Memory, users: int | None = None) -> Memory:
        """What is remembered before round 1: arrays, that begin with an axis of `users`."""

        def leaf(x: Any) -> Array:
            try:
                array = jnp.asarray(x)
            except (TypeError, ValueError):
                self.refuse("memory, a pytree of arrays", value)
            if users is not None and array.shape[:1] != (users,):
                self.refuse("memory, arrays [user, …]", value, user=users)
            return array.astype("float32") if _is_float(array) else array

        return jax.tree.map(leaf, value)

    def remembered(self, after: Memory, before: Memory) -> Memory:
        """What is remembered `after` a round, of the shapes that it had `before`."""
        return self.alike(after, before, "memory as `start` does")

    def alike(self, value: Any, model: Any, wanted: str) -> Any:
        """A pytree of the structure and shapes of `model`."""
        pairs = zip(jax.tree.leaves(value), jax.tree.leaves(model), strict=False)
        structures: list[Any] = [jax.tree.structure(each) for each in (value, model)]
        if structures[0] != structures[1] or not all(_follows(new, old) for new, old in pairs):
            self.refuse(f"{wanted}, {shown(_brief(model))}", value)
        return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), value, model)

    def reports(self, value: Any, users: int) -> dict[str, Array]:
        """Scalars [user] by their names."""
        wanted = "a dict of arrays [user]"
        if not isinstance(value, dict):
            self.refuse(wanted, value)
        return {k: self.array(v, wanted, (users,), user=users) for k, v in value.items()}

    def link(self, value: Any, users: int) -> Any:
        """A `Link`."""
        wanted = "a jo.Link of heard, gain, amplification [user] and floor []"
        names = ("heard", "gain", "amplification")
        if not all(hasattr(value, name) for name in (*names, "floor", "replace")):
            self.refuse(wanted, value)
        each = {k: self.array(getattr(value, k), wanted, (users,), user=users) for k in names}
        return value.replace(**each, floor=self.array(value.floor, wanted, ()))


def _is_float(value: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))


def _follows(new: Any, old: Any) -> bool:
    """Whether `new` has the shape of `old`, and its type, or both are of floating point."""
    try:
        same = jnp.result_type(new) == jnp.result_type(old) or (_is_float(new) and _is_float(old))
        return same and jnp.shape(new) == jnp.shape(old)
    except (TypeError, ValueError):
        return False


class _Brief:
    """An array in a message."""

    def __init__(self, array: Any) -> None:
        self.words = f"{array.dtype}{list(array.shape)}".replace(" ", "")

    def __repr__(self) -> str:
        return self.words


def _brief(value: Any) -> Any:
    return jax.tree.map(lambda x: _Brief(x) if hasattr(x, "dtype") else x, value)
