"""Any pytree of arrays as columns of two tables, one of float32 and one of int32, and back.

Data of any structure are thus two traced fields of a task, and a minibatch is at most two gathers.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxota._core import inputs
from jaxota.errors import InputError


class Columns(NamedTuple):
    """The columns that the leaves of a pytree take in the tables [..., column]."""

    structure: jax.tree_util.PyTreeDef
    shapes: tuple[tuple[int, ...], ...]  # of each leaf, without the axes that all leaves share
    types: tuple[str, ...]  # of each leaf: float32, int32 or bool

    @property
    def width(self) -> int:
        """Number of columns of both tables together."""
        return sum(map(math.prod, self.shapes))

    def places(self) -> Iterator[tuple[int, slice]]:
        """Yield for each leaf the number of its table (0 for float32), and its columns there."""
        ends = [0, 0]
        for shape, dtype in zip(self.shapes, self.types, strict=True):
            table = int(dtype != "float32")
            first, ends[table] = ends[table], ends[table] + math.prod(shape)
            yield table, slice(first, ends[table])

    def like(self, *axes: int) -> Any:
        """Return the pytree of the leaves' shapes [*axes, *shape]."""
        pairs = zip(self.shapes, self.types, strict=True)
        leaves = [jax.ShapeDtypeStruct((*axes, *shape), dtype) for shape, dtype in pairs]
        return jax.tree.unflatten(self.structure, leaves)

    def tree(self, *tables: Any) -> Any:
        """Return the pytree of arrays [..., *shape] that the tables [..., column] hold."""
        leaves = []
        columns = zip(self.places(), self.shapes, self.types, strict=True)
        for (table, place), shape, dtype in columns:
            rows = tables[table]
            leaf = rows[..., place].reshape(*rows.shape[:-1], *shape)
            leaves.append(leaf != 0 if dtype == "bool" else leaf)
        return jax.tree.unflatten(self.structure, leaves)

    def tables(self, users: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Return both tables [user, sample, column], given every user's leaves [D_i, *shape]."""
        widths = [0, 0]
        for table, place in self.places():
            widths[table] = place.stop
        axes = len(users), max(len(leaves[0]) for leaves in users)
        tables = np.empty((*axes, widths[0]), np.float32), np.empty((*axes, widths[1]), np.int32)
        for user, leaves in enumerate(users):
            for leaf, (table, place) in zip(leaves, self.places(), strict=True):
                rows = leaf.reshape(len(leaf), -1)
                tables[table][user, : len(leaf), place] = rows
                # A user is padded with a sample of its own: a sample of zeros may be 0/0 to a loss,
                # which a weight of 0 does not mend.
                tables[table][user, len(leaf) :, place] = rows[0]
        return tables


def of_users(data: Any) -> tuple[Columns, Any, Any, Int[Array, "user"]]:
    """Return columns, tables [user, sample, column] (None if empty) and counts [user] of `data`."""
    trees = data if isinstance(data, list) else _per_user(data)
    if not trees:
        raise InputError("data must hold at least one user, got none")
    structure, users = jax.tree.structure(trees[0]), list[list[np.ndarray]]()
    for user, tree in enumerate(trees):
        leaves, own = _arrays("data", tree, f" of user {user}")
        if own != structure:
            raise InputError(
                f"data of user {user} must be arrays in the structure of user 0, {structure}, got "
                f"{own}: a list is one entry a user, several arrays of a user are a tuple or a dict"
            )
        users.append(leaves)
        counts, shapes = zip(*((leaf.shape[:1], leaf.shape[1:]) for leaf in leaves), strict=True)
        expected = tuple(leaf.shape[1:] for leaf in users[0])
        if counts[0] == () or len(set(counts)) > 1 or shapes != expected:
            raise InputError(
                f"data of user {user} must be arrays [D_i, ...] of the same D_i samples, of shapes "
                f"{inputs.shown(expected)} as user 0 has, got shapes {_shapes(leaves)}"
            )
    types = tuple(
        np.result_type(*(leaf.dtype for leaf in leaves)).name.replace("float64", "float32")
        for leaves in zip(*users, strict=True)
    )
    columns = Columns(structure, expected, types)
    numbers, wholes = map(_present, columns.tables(users))
    return columns, numbers, wholes, jnp.array([len(leaves[0]) for leaves in users], jnp.int32)


def of_any(name: str, data: Any) -> tuple[Columns, Any, Any]:
    """Return columns and both tables [column] (None if empty) of any pytree of arrays."""
    leaves, structure = _arrays(name, data)
    shapes, types = zip(*((leaf.shape, leaf.dtype.name) for leaf in leaves), strict=True)
    columns = Columns(structure, shapes, types)
    tables = columns.tables([[leaf[None] for leaf in leaves]])  # one user, one sample
    numbers, wholes = (_present(table[0, 0]) for table in tables)
    return columns, numbers, wholes


def _present(table: np.ndarray) -> Array | None:
    return jnp.asarray(table) if table.size else None


def _per_user(data: Any) -> list[Any]:
    """Return one pytree per user, given a pytree of arrays [N, D, ...]."""
    leaves, structure = _arrays("data", data)
    if len({leaf.shape[:2] for leaf in leaves}) > 1 or min(leaf.ndim for leaf in leaves) < 2:
        raise InputError(
            "data must be arrays [N, D, ...] of the same N users and D samples, or a list of one "
            f"entry a user, got shapes {_shapes(leaves)}"
        )
    return [jax.tree.unflatten(structure, rows) for rows in zip(*leaves, strict=True)]


def _shapes(leaves: list[np.ndarray]) -> str:
    return inputs.shown([leaf.shape for leaf in leaves])


def _arrays(
    name: str, tree: Any, whose: str = ""
) -> tuple[list[np.ndarray], jax.tree_util.PyTreeDef]:
    """Return the arrays of a pytree, checked, and its structure."""
    leaves, structure = jax.tree.flatten_with_path(tree)
    if not leaves:
        raise InputError(f"{name}{whose} must hold at least one array, got {inputs.shown(tree)}")
    arrays = [_array(f"{name}{jax.tree_util.keystr(path)}{whose}", leaf) for path, leaf in leaves]
    return arrays, structure


def _array(name: str, value: Any) -> np.ndarray:
    """Return `value` as a finite array of float32, int32 or bool."""
    array = inputs.real(name, value)
    if array.size == 0:
        raise InputError(f"{name} must not be empty, got shape {list(array.shape)}")
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        if array.min() < -(2**31) or array.max() >= 2**31:
            raise InputError(f"{name} must fit into int32, got {array.min()} … {array.max()}")
        return array.astype(np.int32, copy=False)
    return as_float32(name, array)


def as_float32(name: str, value: Any) -> Float[np.ndarray, "*shape"]:
    """Return `value` as a finite array of float32."""
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are refused
        array = inputs.real(name, value).astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, got NaN or inf")
    return array


def paired(**arrays: Any) -> list[dict[str, Any]]:
    """Return one dict per user, given arrays, or lists of one array per user, by name."""
    both = " and ".join(arrays)
    try:
        lists = [list(values) for values in arrays.values()]
    except TypeError:
        raise InputError(f"{both} must be arrays, or lists of one array a user") from None
    counts = [len(values) for values in lists]
    if len(set(counts)) > 1 or not counts[0]:
        raise InputError(f"{both} must be of as many users, at least one, got {counts}")
    return [dict(zip(arrays, rows, strict=True)) for rows in zip(*lists, strict=True)]
