"""Data that a function makes when they are needed, for more users than memory holds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import inputs, prng
from jaxota._core.part import PerUser, Scalar, Seed, Traced, Vector, canonical, part, static, traced
from jaxota.errors import InputError
from jaxota.tasks import model_functions
from jaxota.tasks.empirical_risk import Empirical, no_scores
from jaxota.tasks.sample_tables import Columns, of_any
from jaxota.tasks.weights import check_weights


@part
class Generated:
    """A task whose users' samples are made in each round anew; see `generated`."""

    key: Traced[PRNGKeyArray] = traced(dtype="key")
    make: Callable[..., Any] = static()  # (key, user) → samples [sample, ...]
    users: int = static(at_least=1)
    start: Callable[..., Any] = static()  # the rest is as in `Empirical`
    loss: Callable[..., Any] = static()
    evaluate: Callable[..., Any] = static()
    columns: Columns = static()
    samples: int = static(at_least=1)  # the first of those that are made
    scored: int = static(at_least=1)  # the first users, whose loss is the score
    test_columns: Columns | None = static(default=None)
    test_numbers: Traced[Array | None] = traced(default=None, rank=1)
    test_wholes: Traced[Array | None] = traced(default=None, rank=1, dtype="int32")
    weights: Traced[PerUser | None] = traced(default=None, rank=1, at_least=0.0)

    replace = dataclasses.replace
    strong_convexity = 0.0

    @property
    def dim(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(model_functions.parameters(self.start)))

    @property
    def counts(self) -> Int[Array, "user"]:
        return jnp.full(self.users, self.samples, "int32")

    def problem(self, trial: Any) -> "Generated":
        return self

    def head(self) -> "Generated":
        return self.replace(samples=-(-self.samples // 5))

    def check(self, path: str, setting: Any) -> None:
        check_weights(path, self)
        if self.scored > self.users:
            raise InputError(f"{path}.scored must be ≤ users = {self.users}, got {self.scored}")

    def floats_per_trial(self, batch: int) -> int:
        per_sample = self.columns.width + 2 * self._activations
        made = self.samples * self.columns.width if batch else 0
        tested = model_functions.evaluation_size(self.start, self.evaluate, self.test_columns)
        scored = self._block * self.samples * per_sample
        return self.users * (batch * per_sample + made) + scored + tested

    def cohort(self, members: Int[Array, "user"]) -> Empirical:
        """Make the samples of these users."""

        def of_user(user: Int[Array, ""]) -> Any:
            return jax.tree.map(
                lambda x: x[: self.samples], self.make(prng.fold_in(self.key, user), user)
            )

        leaves = jax.tree.leaves(jax.vmap(of_user)(members))
        tables: tuple[list[Array], list[Array]] = ([], [])
        for (table, _), leaf in zip(self.columns.places(), leaves, strict=True):
            tables[table].append(leaf.reshape(len(members), self.samples, -1))
        made = zip(tables, ("float32", "int32"), strict=True)
        numbers, wholes = (jnp.concatenate(x, -1).astype(t) if x else None for x, t in made)
        counts = jnp.full(len(members), self.samples, "int32")
        functions = self.start, self.loss, self.evaluate
        return Empirical(counts, *functions, self.columns, None, numbers, wholes)

    def init(self, key: PRNGKeyArray) -> Vector:
        return model_functions.ravel(self.start(key))

    # Where all users compute, samples are made again for every step, and never kept.
    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        return self.cohort(jnp.asarray(user)[None]).gradient(model, 0, samples)

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        return self.cohort(jnp.asarray(user)[None]).full_gradient(model, 0)

    def score(self, model: Vector) -> dict[str, Scalar]:
        """Return F over the scored users as "loss", and the scores of `evaluate`."""
        parameters, block = model_functions.unravel(self.start, model), self._block

        def sums(first: Int[Array, ""]) -> tuple[Scalar, Scalar]:
            members = first + jnp.arange(block)
            made = self.cohort(jnp.minimum(members, self.scored - 1))
            losses = made.losses(parameters, made._rows).reshape(block, -1).mean(1)
            weights = jnp.ones(block) if self.weights is None else self.weights[members]
            weights = jnp.where(members < self.scored, weights, 0.0)
            return (weights * losses).sum(), weights.sum()

        total, weight = jax.lax.map(sums, jnp.arange(0, self.scored, block))
        loss = total.sum() / weight.sum()
        test = self.test_columns and self.test_columns.tree(self.test_numbers, self.test_wholes)
        others = self.evaluate(parameters, *([] if test is None else [test]))
        scores = {k: jnp.where(jnp.isfinite(loss), v, jnp.nan) for k, v in others.items()}
        return {"loss": loss} | scores

    @property
    def _activations(self) -> int:
        return model_functions.activations(self.start, self.loss, self.columns)

    @property
    def _block(self) -> int:
        """Number of users that are scored at once."""
        per_user = self.samples * (self.columns.width + self._activations)
        return min(self.scored, model_functions.block_size(per_user))


def generated(
    key: Seed,
    users: int,
    init: Callable[..., Any],
    loss: Callable[..., Any],
    data: Callable[..., Any],
    evaluate: Callable[..., Any] | None = None,
    test_data: Any = None,
    scored: int | None = None,
) -> Generated:
    """Create a task whose data a function makes when users compute, for very many users.

    Nothing of the users is stored: with `channel.participants`, the samples of a round's cohort are
    made at its beginning. Where all users compute, every step makes them again, which is slow.

    Args:
        key: random key, or seed, of the data.
        users: N.
        init: function of a random key that draws the parameters of a trial, as in `empirical`.
        loss: function of the parameters and a batch that returns one number per sample.
        data: function of a random key and the number of a user that makes the user's samples: a
            pytree of arrays [D, ...] of float32, int32 or bool, of the same shapes for all users.
        evaluate: function of the parameters (and of test_data, if given) that returns further
            scores: a dict of numbers by name.
        test_data: any pytree of arrays.
        scored: number of users, the first ones, over whom the loss is scored; None for all, which
            costs a pass over the data of N users.
    """
    key = inputs.key("key", key, axes=1)
    users = inputs.whole("users", users, 1)
    scored = users if scored is None else inputs.whole("scored", scored, 1)
    if evaluate is None:
        if test_data is not None:
            raise InputError("test_data must come with evaluate, which is called with them")
        evaluate = no_scores
    model_functions.check_functions(init=init, loss=loss, data=data, evaluate=evaluate)
    init, loss, data, evaluate = map(canonical, (init, loss, data, evaluate))
    model_functions.check_init(init)
    with model_functions.refusing("data must make samples of a random key and a user's number"):
        like = jax.eval_shape(data, jax.eval_shape(lambda: jax.random.key(0)), jnp.int32(0))
    columns, samples = _columns(like)
    model_functions.check_loss(init, loss, columns)
    test = (None, None, None) if test_data is None else of_any("test_data", test_data)
    model_functions.check_evaluate(init, evaluate, test[0])
    functions = data, users, init, loss, evaluate
    return Generated(key, *functions, columns, samples, scored, *test)


def _columns(like: Any) -> tuple[Columns, int]:
    """Return the columns of samples of these shapes, and how many there are."""
    leaves, structure = jax.tree.flatten(like)
    counts = {leaf.shape[:1] for leaf in leaves}
    types = tuple(str(leaf.dtype) for leaf in leaves)
    good = len(counts) == 1 and min(counts) > (0,) and {*types} <= {"float32", "int32", "bool"}
    if not good:
        got = ", ".join(map(model_functions.described, leaves)) or "none"
        raise InputError(
            f"data must make arrays [D, ...] of the same D samples in float32, int32 or bool, "
            f"got {got}"
        )
    columns = Columns(structure, tuple(leaf.shape[1:] for leaf in leaves), types)
    return columns, leaves[0].shape[0]
