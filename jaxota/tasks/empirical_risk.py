"""Any loss of any parameters on any arrays: F(θ) is the mean over users of their mean loss."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs, prng
from jaxota._core.devices import platform
from jaxota._core.part import (
    Numbers,
    PerUser,
    Scalar,
    Traced,
    Vector,
    canonical,
    part,
    static,
    traced,
)
from jaxota.errors import InputError
from jaxota.tasks import model_functions
from jaxota.tasks.sample_tables import Columns, of_any, of_users
from jaxota.tasks.weights import check_weights, times_weights

# TPUs gather rows slowly (docs/accelerators.md). There, a minibatch gradient weighs all samples of
# a user if they compute at most WEIGHED times the numbers that the rows hold; else the rows are
# products with the samples of a user, if these are at most MULTIPLIED numbers.
WEIGHED, MULTIPLIED = 8, 2**17


@part
class Empirical:
    """Users' samples, padded to the longest user, as columns of two tables; see `empirical`.

    The task is its own problem: a trial draws nothing but its initial model.
    """

    counts: Traced[Int[Array, "user"]] = traced(rank=1, dtype="int32")  # samples without padding
    start: Callable[..., Any] = static()  # key → parameters
    loss: Callable[..., Any] = static()  # (parameters, batch) → [sample]
    evaluate: Callable[..., Any] = static()  # (parameters, test data if any) → dict of numbers
    columns: Columns = static()  # of the samples
    test_columns: Columns | None = static()  # of the test data
    # All floats of the samples, then all their whole numbers; the same for the test data.
    numbers: Traced[Float[Array, "user sample column"] | None] = traced(default=None, rank=3)
    wholes: Traced[Int[Array, "user sample column"] | None] = traced(
        default=None, rank=3, dtype="int32"
    )
    test_numbers: Traced[Float[Array, "column"] | None] = traced(default=None, rank=1)
    test_wholes: Traced[Int[Array, "column"] | None] = traced(default=None, rank=1, dtype="int32")
    init_scale: Traced[Scalar | None] = traced(default=None, at_least=0.0)
    weights: Traced[PerUser | None] = traced(default=None, rank=1, at_least=0.0)  # see `weighted`

    replace = dataclasses.replace
    strong_convexity = 0.0  # unknown: the average of a run is then the plain mean

    @property
    def users(self) -> int:
        return self._size[0]

    @property
    def dim(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(model_functions.parameters(self.start)))

    @property
    def data(self) -> Any:
        """The samples in their own structure: a pytree of arrays [user, sample, ...]."""
        return self.columns.tree(self.numbers, self.wholes)

    @property
    def test_data(self) -> Any:
        """The test data in their own structure, or None."""
        return self.test_columns and self.test_columns.tree(self.test_numbers, self.test_wholes)

    def problem(self, trial: Any) -> "Empirical":
        return self

    def check(self, path: str, setting: Any) -> None:
        check_weights(path, self)

    def floats_per_trial(self, batch: int) -> int:
        per_sample = model_functions.activations(self.start, self.loss, self.columns)
        scored = max(self.users, min(self.users * self._size[1], self._block))
        tested = model_functions.evaluation_size(self.start, self.evaluate, self.test_columns)
        # Twice: a gradient takes about as much again as the loss that it is of.
        in_steps = self.users * batch * (self.columns.width + 2 * per_sample)
        return in_steps + 2 * scored * per_sample + tested

    def head(self) -> "Empirical":
        samples = -(-self._size[1] // 5)
        numbers, wholes = jax.tree.map(lambda x: x[:, :samples], (self.numbers, self.wholes))
        return self.replace(numbers=numbers, wholes=wholes, counts=-(-self.counts // 5))

    def init(self, key: PRNGKeyArray) -> Vector:
        if self.init_scale is None:
            return model_functions.ravel(self.start(key))
        k_start, k_noise = jax.random.split(key)
        start = model_functions.ravel(self.start(k_start))
        return start + self.init_scale * prng.normal(k_noise, start.shape)

    @property
    def layout(self) -> "Parameters":
        return Parameters(self)

    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        return self.layout.ravel(self.layout.gradient(self.layout.unravel(model), user, samples))

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        return self.layout.ravel(self.layout.full_gradient(self.layout.unravel(model), user))

    def score(self, model: Vector) -> dict[str, Scalar]:
        """Return F over the users' own samples as "loss", and the scores of `evaluate`."""
        inside = jnp.arange(self._size[1])[None] < self.counts[:, None]
        share = times_weights(self.weights, 1.0 / (self.users * self.counts.astype("float32")))
        weights = jnp.where(inside, share[:, None], 0.0).reshape(-1)

        def weighted(rows: Any, weights: Float[Array, "sample"]) -> Scalar:
            return (weights * self.losses(parameters, rows)).sum()

        parameters = model_functions.unravel(self.start, model)
        loss = model_functions.total(weighted, self._block, self._rows, weights)
        test = (self.test_data,) if self.test_columns else ()
        others = self.evaluate(parameters, *test)
        # A diverged model has no accuracy, but argmax of NaN logits would give it one.
        finite = jnp.isfinite(loss)
        scores = {k: jnp.where(finite, jnp.float32(v), jnp.nan) for k, v in others.items()}
        return {"loss": loss} | scores

    def user_scores(self, model: Vector) -> dict[str, PerUser]:
        """Return each f_i as "loss"."""
        inside = jnp.arange(self._size[1])[None] < self.counts[:, None]
        share = jnp.where(inside, 1.0 / self.counts[:, None].astype("float32"), 0.0).reshape(-1)
        owner = jnp.repeat(jnp.arange(self.users), self._size[1])
        parameters = model_functions.unravel(self.start, model)

        def by_user(rows: Any, share: Float[Array, "sample"]) -> PerUser:
            rows, owner = rows
            # Not share·loss where the share is 0: a padded sample may have any loss.
            losses = jnp.where(share > 0, share * self.losses(parameters, rows), 0.0)
            return jax.ops.segment_sum(losses, owner, self.users)

        return {"loss": model_functions.total(by_user, self._block, (self._rows, owner), share)}

    @property
    def _size(self) -> tuple[int, int]:
        """Number of users, and of samples of the longest of them."""
        table: Any = self.numbers if self.numbers is not None else self.wholes
        return table.shape[-3:-1]

    @property
    def _rows(self) -> Any:
        """Both tables as [user · sample, column]."""
        return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), (self.numbers, self.wholes))

    @property
    def _block(self) -> int:
        """Number of samples that are evaluated at once."""
        per_sample = model_functions.activations(self.start, self.loss, self.columns)
        return model_functions.block_size(per_sample)

    def losses(self, parameters: Any, rows: Any) -> Float[Array, "sample"]:
        """Return the loss of each of these rows of both tables."""
        return self.loss(parameters, self.columns.tree(*rows))


class Parameters(NamedTuple):
    """The layout of a model during users' steps: its parameters, some of them transposed."""

    task: Empirical

    def unravel(self, model: Vector) -> Any:
        return self._transpose(model_functions.unravel(self.task.start, model))

    def ravel(self, params: Any) -> Vector:
        return model_functions.ravel(self._transpose(params))

    def gradient(self, params: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        task = self.task
        computed = task._size[1] * model_functions.activations(task.start, task.loss, task.columns)
        if computed <= WEIGHED * samples.size * task.columns.width:
            on_tpu = self._of_weights
        elif task._size[1] * task.columns.width <= MULTIPLIED:
            on_tpu = self._of_products
        else:
            return self._of_rows(params, user, samples)
        branches = {"tpu": on_tpu, "default": self._of_rows}
        return jax.lax.platform_dependent(params, user, samples, **branches)

    def _of_weights(self, params: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        """Weigh all samples by how often each was drawn: TPUs gather rows slowly."""
        drawn = (samples[:, None] == jnp.arange(self.task._size[1])[None]).sum(0)
        own = jax.tree.map(lambda x: x[user], (self.task.numbers, self.task.wholes))

        def loss(params: Any) -> Scalar:
            losses = self.task.losses(self._transpose(params), own)
            return jnp.where(drawn > 0, drawn * losses, 0.0).sum() / samples.size

        return jax.grad(loss)(params)

    def _of_rows(self, params: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        rows = user * self.task._size[1] + samples
        batch = jax.tree.map(
            lambda x: x.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False),
            self.task._rows,
        )
        return self._on(params, batch)

    def _of_products(self, params: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        """Take rows by products with zeros and ones, which are exact in float32."""
        drawn = samples[:, None] == jnp.arange(self.task._size[1])[None]

        def rows(table: Array | None) -> Array | None:
            if table is None:
                return None
            if table.dtype == jnp.int32:
                return jnp.where(drawn[..., None], table[user][None], 0).sum(1)
            ones = drawn.astype(table.dtype)
            return jnp.einsum("bs,sc->bc", ones, table[user], precision="highest")

        return self._on(params, (rows(self.task.numbers), rows(self.task.wholes)))

    def _on(self, params: Any, rows: Any) -> Any:
        """Return the gradient of the mean loss on rows of both tables."""
        return jax.grad(lambda p: self.task.losses(self._transpose(p), rows).mean())(params)

    def full_gradient(self, params: Any, user: Any) -> Any:
        task = self.task
        share = 1.0 / task.counts[user].astype("float32")
        weights = jnp.where(jnp.arange(task._size[1]) < task.counts[user], share, 0.0)

        def gradient(rows: Any, weights: Float[Array, "sample"]) -> Any:
            return jax.grad(lambda p: (weights * task.losses(self._transpose(p), rows)).sum())(
                params
            )

        size = max(1, task._block // task.users)  # all users evaluate a block at once
        own = jax.tree.map(lambda x: x[user], (task.numbers, task.wholes))
        return model_functions.total(gradient, size, own, weights)

    def _transpose(self, params: Any) -> Any:
        # GPUs and TPUs have layouts of their own, which a transposition only disturbs.
        return model_functions.transpose(self.task.start, params) if platform() == "cpu" else params


def empirical(
    init: Callable[..., Any],
    loss: Callable[..., Any],
    data: Any,
    evaluate: Callable[..., Any] | None = None,
    test_data: Any = None,
    init_scale: Numbers | None = None,
) -> Empirical:
    """Create a task that minimises the mean over users of the mean `loss` of their samples.

    The objective is scored as "loss". Functions choose the compiled program: define one once and
    use it often, and it is compiled once.

    Args:
        init: function of a random key that draws the parameters of a trial: any pytree of float32
            arrays.
        loss: function of the parameters and a batch that returns one number per sample; a batch has
            the structure of the data, with arrays [sample, ...].
        data: a pytree of arrays [N, D, ...], or a list of one pytree of arrays [D_i, ...] per user.
            Floats become float32, whole numbers int32.
        evaluate: function of the parameters (and of test_data, if given) that returns further
            scores: a dict of numbers by name.
        test_data: any pytree of arrays. Arrays that `evaluate` closes over instead become constants
            of the program.
        init_scale: N(0, init_scale²) is added to the initial parameters, if given.
    """
    if evaluate is None:
        if test_data is not None:
            raise InputError("test_data must come with evaluate, which is called with them")
        evaluate = no_scores
    model_functions.check_functions(init=init, loss=loss, evaluate=evaluate)
    init, loss, evaluate = map(canonical, (init, loss, evaluate))
    model_functions.check_init(init)
    columns, numbers, wholes, counts = of_users(data)
    model_functions.check_loss(init, loss, columns)
    test = (None, None, None) if test_data is None else of_any("test_data", test_data)
    test_columns, test_numbers, test_wholes = test
    model_functions.check_evaluate(init, evaluate, test_columns)
    functions, tables = (init, loss, evaluate), (numbers, wholes, test_numbers, test_wholes)
    task = Empirical(counts, *functions, columns, test_columns, *tables, init_scale=init_scale)
    # These arrays were checked above: large ones are not checked again by every run.
    return inputs.vouch(task, "counts", "numbers", "wholes", "test_numbers", "test_wholes")


def no_scores(parameters: Any) -> dict[str, Scalar]:
    """Evaluate nothing besides the loss."""
    return {}
