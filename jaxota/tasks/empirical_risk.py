"""Any loss of any parameters on anyone's arrays: F(θ) = mean over users of their mean loss."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core import prng as _random
from jaxota._core.part import Numbers, Scalar, Traced, Vector, canonical, part, static, traced
from jaxota.errors import InputError
from jaxota.tasks import model_functions
from jaxota.tasks.sample_tables import Columns, of_any, of_users


@part
class Empirical:
    """Users' samples, padded to the longest user, as columns of two tables; see `empirical`.

    The task is its own problem: nothing is drawn anew per trial but the initial model.
    """

    counts: Traced[Int[Array, "user"]] = traced(rank=1, dtype="int32")  # what is not padding
    start: Callable[..., Any] = static()  # key → parameters
    loss: Callable[..., Any] = static()  # (parameters, batch) → [sample]
    evaluate: Callable[..., Any] = static()  # (parameters, test data if any) → dict of numbers
    columns: Columns = static()  # of the samples
    test_columns: Columns | None = static()  # of the test data, or ()
    # All samples' floats, then all their whole numbers; the same of the test data.
    numbers: Traced[Float[Array, "user sample column"] | None] = traced(default=None, rank=3)
    wholes: Traced[Int[Array, "user sample column"] | None] = traced(
        default=None, rank=3, dtype="int32"
    )
    test_numbers: Traced[Float[Array, "column"] | None] = traced(default=None, rank=1)
    test_wholes: Traced[Int[Array, "column"] | None] = traced(default=None, rank=1, dtype="int32")
    init_scale: Traced[Scalar | None] = traced(default=None, at_least=0.0)

    replace = dataclasses.replace
    strong_convexity = 0.0  # none is known: the average of a run is the plain mean

    @property
    def users(self) -> int:
        return self._size[0]

    @property
    def dim(self) -> int:
        return model_functions.layout(self.start)[0]

    @property
    def data(self) -> Any:
        """The samples as they were given: a pytree of arrays [user, sample, ...]."""
        return self.columns.tree(self.numbers, self.wholes)

    @property
    def test_data(self) -> Any:
        """The test data as they were given, or `None`."""
        return self.test_columns and self.test_columns.tree(self.test_numbers, self.test_wholes)

    def problem(self, trial: Any) -> "Empirical":
        return self

    def floats_per_trial(self, batch: int) -> int:
        each = model_functions.activations(self.start, self.loss, self.columns)
        evaluated = max(self.users, min(self.users * self._size[1], model_functions.at_once(each)))
        tested = model_functions.evaluation(self.start, self.evaluate, self.test_columns)
        in_steps = self.users * batch * (self.columns.width + 2 * each)
        return in_steps + 2 * evaluated * each + tested

    def head(self) -> "Empirical":
        """The same users with the first fifth of their samples, rounded up."""
        samples = -(-self._size[1] // 5)
        numbers, wholes = jax.tree.map(lambda x: x[:, :samples], (self.numbers, self.wholes))
        return self.replace(numbers=numbers, wholes=wholes, counts=-(-self.counts // 5))

    def init(self, key: PRNGKeyArray) -> Vector:
        """The initial parameters, plus N(0, init_scale²) where there is such a scale."""
        if self.init_scale is None:
            return model_functions.ravel(self.start(key))
        k_own, k_more = jax.random.split(key)
        own = model_functions.ravel(self.start(k_own))
        return own + self.init_scale * _random.normal(k_more, own.shape)

    @property
    def layout(self) -> "Parameters":
        return Parameters(self)

    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        """The mean gradient of the `samples` of one user."""
        return self.layout.flat(self.layout.gradient(self.layout.lay(model), user, samples))

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        """∇f_i over all samples of one user."""
        return self.layout.flat(self.layout.full_gradient(self.layout.lay(model), user))

    def score(self, model: Vector) -> dict[str, Scalar]:
        """F over the users' own samples as "loss", and what `evaluate` gives."""
        inside = jnp.arange(self._size[1])[None] < self.counts[:, None]
        share = 1.0 / (self.users * self.counts.astype("float32"))
        weights = jnp.where(inside, share[:, None], 0.0).reshape(-1)

        def losses(rows: Any, weights: Float[Array, "sample"]) -> Scalar:
            return (weights * self.losses(parameters, rows)).sum()

        parameters = model_functions.layout(self.start)[1](model)
        loss = model_functions.total(losses, self._block, self._rows, weights)
        test = (self.test_data,) if self.test_columns else ()
        others = self.evaluate(parameters, *test)
        # The largest of logits that are NaN is the first: a diverged model has no accuracy.
        sound = jnp.isfinite(loss)
        named = {k: jnp.where(sound, jnp.float32(v), jnp.nan) for k, v in others.items()}
        return {"loss": loss} | named

    @property
    def _size(self) -> tuple[int, int]:
        """Users, and the samples of the longest of them."""
        table: Any = self.numbers if self.numbers is not None else self.wholes
        return table.shape[-3:-1]

    @property
    def _rows(self) -> Any:
        """All users' samples in a row: both tables as [user · sample, column]."""
        return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), (self.numbers, self.wholes))

    @property
    def _block(self) -> int:
        """Samples that are evaluated at once."""
        return model_functions.at_once(
            model_functions.activations(self.start, self.loss, self.columns)
        )

    def losses(self, parameters: Any, rows: Any) -> Float[Array, "sample"]:
        """The loss of each of these rows of both tables."""
        return self.loss(parameters, self.columns.tree(*rows))


class Parameters(NamedTuple):
    """During a user's steps a model is its parameters, some of them transposed."""

    task: Empirical

    def lay(self, model: Vector) -> Any:
        return self._turn(model_functions.layout(self.task.start)[1](model))

    def flat(self, held: Any) -> Vector:
        return model_functions.ravel(self._turn(held))

    def gradient(self, held: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        chosen = user * self.task._size[1] + samples
        batch = jax.tree.map(lambda x: _take(x, chosen), self.task._rows)
        return jax.grad(lambda p: self.task.losses(self._turn(p), batch).mean())(held)

    def full_gradient(self, held: Any, user: Any) -> Any:
        task = self.task
        share = 1.0 / task.counts[user].astype("float32")
        weights = jnp.where(jnp.arange(task._size[1]) < task.counts[user], share, 0.0)

        def gradient(rows: Any, weights: Float[Array, "sample"]) -> Any:
            return jax.grad(lambda p: (weights * task.losses(self._turn(p), rows)).sum())(held)

        size = max(1, task._block // task.users)  # all users take theirs at once
        own = jax.tree.map(lambda x: x[user], (task.numbers, task.wholes))
        return model_functions.total(gradient, size, own, weights)

    def _turn(self, parameters: Any) -> Any:
        """There, and back again."""
        leaves, structure = jax.tree.flatten(parameters)
        turned = model_functions.turned(self.task.start)
        pairs = zip(leaves, turned, strict=True)
        return jax.tree.unflatten(structure, [x.T if turn else x for x, turn in pairs])


def _take(table: Array, rows: Int[Array, "row"]) -> Array:
    return table.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)


def empirical(
    init: Callable[..., Any],
    loss: Callable[..., Any],
    data: Any,
    evaluate: Callable[..., Any] | None = None,
    test_data: Any = None,
    init_scale: Numbers | None = None,
) -> Empirical:
    """Minimise the mean over users of the mean `loss` of their samples, scored as "loss".

    Args:
        init: of a random key, the parameters: any pytree of float32 arrays, drawn per trial.
        loss: of the parameters and a batch, one number a sample; a batch is as the data, [sample,
            ...].
        data: a pytree of arrays [N, D, ...], or a list of one pytree of arrays [D_i, ...] a user.
            Floats become float32, whole numbers int32.
        evaluate: of the parameters, further scores: a dict of numbers by their names. With
            test_data it is called with both.
        test_data: any pytree of arrays; those that `evaluate` closes over become part of the
            program.
        init_scale: N(0, init_scale²) is added to the initial parameters, if it is given.

    Functions choose the program: one that is defined once and used often is compiled once.
    """
    if evaluate is None:
        if test_data is not None:
            raise InputError("test_data must come with evaluate, which is called with them")
        evaluate = no_scores
    for name, function in (("init", init), ("loss", loss), ("evaluate", evaluate)):
        model_functions.check(name, function)
    init, loss, evaluate = map(canonical, (init, loss, evaluate))
    model_functions.check_init(init)
    columns, numbers, wholes, counts = of_users(data)
    model_functions.check_loss(init, loss, columns)
    test = (None, None, None) if test_data is None else of_any("test_data", test_data)
    model_functions.check_evaluate(init, evaluate, test[0])
    task = Empirical(
        counts=counts,
        start=init,
        loss=loss,
        evaluate=evaluate,
        columns=columns,
        test_columns=test[0],
        numbers=numbers,
        wholes=wholes,
        test_numbers=test[1],
        test_wholes=test[2],
        init_scale=init_scale,
    )
    tables = "numbers", "wholes", "test_numbers", "test_wholes"
    return inputs.vouch(task, "counts", *tables)


def no_scores(parameters: Any) -> dict[str, Scalar]:
    """What is evaluated besides the loss where nothing is asked for."""
    return {}
