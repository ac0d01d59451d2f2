"""Any pytree of arrays as columns of two tables, one of float32 and one of int32, and back.

Data of any structure are thus two traced fields of a task, and a minibatch is at most two gathers.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

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

    def empty(self, *axes: int) -> tuple[np.ndarray, np.ndarray]:
        """Allocate both tables [*axes, column]."""
        widths = [0, 0]
        for table, place in self.places():
            widths[table] = place.stop
        return np.empty((*axes, widths[0]), np.float32), np.empty((*axes, widths[1]), np.int32)

    def tree(self, *tables: Any) -> Any:
        """Return the pytree of arrays [..., *shape] that the tables [..., column] hold."""
        leaves = []
        columns = zip(self.places(), self.shapes, self.types, strict=True)
        for (table, place), shape, dtype in columns:
            rows = tables[table]
            leaf = rows[..., place].reshape(*rows.shape[:-1], *shape)
            leaves.append(leaf != 0 if dtype == "bool" else leaf)
        return jax.tree.unflatten(self.structure, leaves)


def of_users(data: Any) -> tuple[Columns, Any, Any, Int[Array, "user"]]:
    """Return columns, tables [user, sample, column] (None if empty) and counts [user] of `data`."""
    trees = _per_user(data)
    structure = jax.tree.structure(trees[0])
    users = [_samples(user, tree, structure) for user, tree in enumerate(trees)]
    for user, leaves in enumerate(users):
        for (name, leaf), (_, first) in zip(leaves, users[0], strict=True):
            if leaf.shape[1:] != first.shape[1:]:
                raise InputError(
                    f"{name} of user {user} must have samples of shape {list(first.shape[1:])}, as "
                    f"user 0 has, got {list(leaf.shape[1:])}"
                )
    types = tuple(
        np.result_type(*(leaf.dtype for _, leaf in leaves)).name.replace("float64", "float32")
        for leaves in zip(*users, strict=True)
    )
    columns = Columns(structure, tuple(leaf.shape[1:] for _, leaf in users[0]), types)
    counts = np.array([len(leaves[0][1]) for leaves in users], np.int32)
    tables = columns.empty(len(users), counts.max())
    for user, leaves in enumerate(users):
        for (_, leaf), (table, place) in zip(leaves, columns.places(), strict=True):
            rows = leaf.reshape(len(leaf), -1)
            tables[table][user, : len(leaf), place] = rows
            # A user is padded with a sample of its own: a sample of zeros may be 0/0 to a loss,
            # which a weight of 0 does not mend.
            tables[table][user, len(leaf) :, place] = rows[0]
    return columns, _present(tables[0]), _present(tables[1]), jnp.asarray(counts)


def of_any(name: str, data: Any) -> tuple[Columns, Any, Any]:
    """Return columns and both tables [column] (None if empty) of any pytree of arrays."""
    leaves, structure = _named_leaves(name, data)
    if not leaves:
        raise InputError(f"{name} must hold at least one array, got {inputs.shown(data)}")
    arrays = [_array(*leaf) for leaf in leaves]
    shapes, types = zip(*((array.shape, array.dtype.name) for array in arrays), strict=True)
    columns = Columns(structure, shapes, types)
    tables = columns.empty()
    for array, (table, place) in zip(arrays, columns.places(), strict=True):
        tables[table][place] = array.reshape(-1)
    return columns, _present(tables[0]), _present(tables[1])


def _present(table: np.ndarray) -> Array | None:
    return jnp.asarray(table) if table.size else None


def _named_leaves(name: str, tree: Any) -> tuple[list[tuple[str, Any]], jax.tree_util.PyTreeDef]:
    """Return the leaves with their names, as `data['x']`, and the structure."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves], structure


def _per_user(data: Any) -> list[Any]:
    """Return one pytree per user."""
    if isinstance(data, list):
        if not data:
            raise InputError("data must hold at least one user, got none")
        return data
    leaves, structure = _named_leaves("data", data)
    arrays = [_array(*leaf) for leaf in leaves]
    sizes = {array.shape[:2] for array in arrays}
    if not arrays or len(sizes) > 1 or min(array.ndim for array in arrays) < 2:
        shapes = [list(array.shape) for array in arrays]
        raise InputError(
            "data must be arrays [N, D, ...] of the same N users and D samples, or a list of one "
            f"entry a user, got shapes {inputs.shown(shapes)}"
        )
    return [jax.tree.unflatten(structure, rows) for rows in zip(*arrays, strict=True)]


def _samples(
    user: int, tree: Any, structure: jax.tree_util.PyTreeDef
) -> list[tuple[str, np.ndarray]]:
    """Return one user's checked arrays [D_i, ...] with their names."""
    leaves, own = _named_leaves("data", tree)
    if own != structure or not leaves:
        raise InputError(
            f"data of user {user} must be arrays in the structure of user 0, {structure}, got "
            f"{own}: a list is one entry a user, several arrays of a user are a tuple or a dict"
        )
    arrays = [(name, _array(f"{name} of user {user}", leaf)) for name, leaf in leaves]
    shapes = [array.shape for _, array in arrays]
    if not all(shapes) or len({shape[0] for shape in shapes}) > 1 or shapes[0][0] == 0:
        raise InputError(
            f"data of user {user} must be arrays [D_i, ...] of the same D_i ≥ 1 samples, got "
            f"shapes {inputs.shown(list(map(list, shapes)))}"
        )
    return arrays


def _array(name: str, value: Any) -> np.ndarray:
    """Return `value` as a finite array of float32, int32 or bool."""
    try:
        array = np.asarray(value)
    except Exception:  # ragged lists, random keys, tracers
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{name} must be an array of real numbers, got {inputs.shown(value)}")
    if array.size == 0:
        raise InputError(f"{name} must not be empty, got shape {list(array.shape)}")
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        if array.min() < -(2**31) or array.max() >= 2**31:
            raise InputError(f"{name} must fit into int32, got {array.min()} … {array.max()}")
        return array.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are refused
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, got NaN or inf")
    return array
