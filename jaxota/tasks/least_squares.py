"""Least squares with a known optimum: f_i(θ) = ‖A_i θ − B_i‖²/D_i, the paper's section V-A."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import capacity, devices, inputs, prng
from jaxota._core.part import Numbers, PerUser, Scalar, Seed, Traced, Vector, part, static, traced
from jaxota.errors import InputError
from jaxota.tasks.sample_tables import as_float32, of_users, paired
from jaxota.tasks.weights import check_weights, times_weights

# On TPU, with up to so many samples per user, weighing all of them is cheaper than gathering the
# rows of a minibatch, by the compiler's own figures (docs/accelerators.md).
FEW_SAMPLES = 1600


@part
class Regression:
    """Least squares on given arrays, padded to the longest user; see `regression`."""

    features: Traced[Float[Array, "user sample d"]] = traced(rank=3)
    targets: Traced[Float[Array, "user sample"]] = traced(rank=2)
    counts: Traced[Int[Array, "user"]] = traced(rank=1, dtype="int32")  # samples without padding
    weights: Traced[PerUser | None] = traced(default=None, rank=1, at_least=0.0)  # see `weighted`

    replace = dataclasses.replace

    @property
    def users(self) -> int:
        return self.features.shape[-3]

    @property
    def dim(self) -> int:
        return self.features.shape[-1]

    def floats_per_trial(self, batch: int) -> int:
        return self.users * (self.features.shape[-2] + batch * (self.dim + 1))

    def problem(self, trial: Any) -> "Quadratic":
        return Quadratic.of(self.features, self.targets, self.counts, self.weights)

    def check(self, path: str, setting: Any) -> None:
        check_weights(path, self)


@part
class SyntheticRegression:
    """The paper's synthetic data, drawn inside the compiled program; see `synthetic_regression`."""

    key: Traced[PRNGKeyArray] = traced(dtype="key")
    data_spread: Traced[Scalar] = traced(at_least=0.0)
    model_spread: Traced[Scalar] = traced(at_least=0.0)
    users: int = static(at_least=1)
    samples: int = static(at_least=1)
    dim: int = static(at_least=1)
    redraw: bool = static(default=False, one_of=(False, True))
    rotate: bool = static(default=False, one_of=(False, True))
    weights: Traced[PerUser | None] = traced(default=None, rank=1, at_least=0.0)  # see `weighted`

    replace = dataclasses.replace

    def floats_per_trial(self, batch: int) -> int:
        # With `redraw` every trial holds data of its own, as drawn and as a table.
        rows = batch + 2 * self.samples if self.redraw else batch
        return self.users * (self.samples + rows * (self.dim + 1))

    def check(self, path: str, setting: Any) -> None:
        check_weights(path, self)
        rows = 2 * (1 + self.samples) * (1 + self.dim)  # as drawn, and as a table
        size = f"{self.users} × {self.samples} × {self.dim} numbers"
        taken = 4 * self.users * (rows + self.dim**2)
        capacity.refuse_memory(f"{path}.users × samples × dim", f"data of {size}", taken)

    def problem(self, trial: Any) -> "Quadratic":
        key = prng.fold_in(self.key, trial) if self.redraw else self.key
        # One draw for a_i, b_i, θ_i and A_i: every call of the generator costs compile time.
        shape = (self.users, 2 + (1 + self.samples) * self.dim)
        draw = jax.random.normal(key, shape, "float32")
        a = 1.0 + jnp.sqrt(self.data_spread) * draw[:, 0]
        b = -4.0 + jnp.sqrt(self.model_spread) * draw[:, 1]
        vectors = draw[:, 2:].reshape(self.users, 1 + self.samples, self.dim)
        weights = b[:, None] + vectors[:, 0]
        features = a[:, None, None] + vectors[:, 1:]
        targets = _dot("nsd,nd->ns", features, weights)
        if self.rotate:  # the weights with them, so that targets stay
            rotation = _random_rotation(prng.fold_in(key, 1), self.dim)
            features = _dot("nsd,de->nse", features, rotation)
        counts = jnp.full(self.users, self.samples, jnp.int32)
        return Quadratic.of(features, targets, counts, self.weights)


def _random_rotation(key: PRNGKeyArray, dim: int) -> Float[Array, "d d"]:
    """Draw an orthogonal matrix uniformly: eigenvectors of a Gaussian matrix, of random sign."""
    draw = jax.random.normal(key, (dim + 1, dim), "float32")
    vectors = devices.eigh(draw[:dim] + draw[:dim].T)[1]
    return vectors * jnp.sign(draw[dim])[None]


@part
class Quadratic:
    """The least squares problem of one trial, with everything its scores need computed once."""

    features: Float[Array, "user sample d"]  # padding is 0
    targets: Float[Array, "user sample"]
    counts: Int[Array, "user"]
    table: Float[Array, "user*sample d+1"]  # features and target: a minibatch is one gather
    hessians: Float[Array, "user d d"]  # of every f_i
    slopes: Float[Array, "user d"]  # −∇f_i(0)
    root: Float[Array, "d d"]  # square root of H, half the Hessian of F: gap = ‖root (θ − θ*)‖²
    optimum: Vector  # θ*
    least: Scalar  # F(θ*)
    strong_convexity: Scalar  # μ, the least eigenvalue of any user's Hessian
    weights: PerUser | None = None  # of the users in F

    @classmethod
    def of(
        cls,
        features: Float[Array, "user sample d"],
        targets: Float[Array, "user sample"],
        counts: Int[Array, "user"],
        weights: PerUser | None = None,
    ) -> "Quadratic":
        users, samples, dim = features.shape
        inside = jnp.arange(samples)[None] < counts[:, None]  # [user, sample]
        features, targets = features * inside[..., None], targets * inside
        share = 1.0 / counts.astype(jnp.float32)
        hessians = 2.0 * share[:, None, None] * _dot("nsd,nse->nde", features, features)
        slopes = 2.0 * share[:, None] * _dot("nsd,ns->nd", features, targets)
        hessian, slope = (times_weights(weights, x).mean(0) / 2.0 for x in (hessians, slopes))
        values, vectors = devices.eigh(hessian)
        # Eigenvalues of rounding size are 0: the optimum is then the one of least norm.
        values = jnp.where(values > dim * jnp.finfo(values.dtype).eps * values[-1], values, 0.0)
        inverse = jnp.where(values > 0, 1.0 / values, 0.0)
        optimum = _dot("de,e,fe,f->d", vectors, inverse, vectors, slope)
        residual = _dot("nsd,d->ns", features, optimum) - targets
        return cls(
            features=features,
            targets=targets,
            counts=counts,
            table=jnp.concatenate([features, targets[..., None]], -1).reshape(-1, dim + 1),
            hessians=hessians,
            slopes=slopes,
            root=jnp.sqrt(values)[:, None] * vectors.T,
            optimum=optimum,
            least=_dot("n,ns,ns->", times_weights(weights, share / users), residual, residual),
            strong_convexity=jnp.maximum(devices.eigenvalues(hessians).min(), 0.0),
            weights=weights,
        )

    @property
    def users(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        return self.features.shape[-1]

    def head(self) -> "Quadratic":
        samples = -(-self.features.shape[1] // 5)
        features, targets = self.features[:, :samples], self.targets[:, :samples]
        return Quadratic.of(features, targets, -(-self.counts // 5), self.weights)

    def init(self, key: PRNGKeyArray) -> Vector:
        return prng.normal(key, (self.dim,))

    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        if self.features.shape[1] > FEW_SAMPLES:
            return self._of_rows(model, user, samples)
        branches = {"tpu": self._of_weights, "default": self._of_rows}
        return jax.lax.platform_dependent(model, user, samples, **branches)

    def _of_weights(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        """Weigh all samples by how often each was drawn: TPUs gather short rows slowly."""
        drawn = (samples[:, None] == jnp.arange(self.features.shape[1])[None]).sum(0)
        features, targets = self.features[user], self.targets[user]
        residual = _dot("sd,d->s", features, model) - targets
        # Not a product alone: 0 · ∞ is NaN, and samples that were not drawn may be infinite.
        weighted = jnp.where(drawn > 0, drawn * residual, 0.0)
        return (2.0 / samples.size) * _dot("s,sd->d", weighted, features)

    def _of_rows(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        chosen = user * self.features.shape[1] + samples
        rows = self.table.at[chosen].get(mode="promise_in_bounds", wrap_negative_indices=False)
        features, targets = rows[:, :-1], rows[:, -1]
        # Products and sums, not matmuls: they are tiny, and batched over users and trials.
        residual = (features * model[None]).sum(-1) - targets
        return (2.0 / samples.size) * (residual[:, None] * features).sum(0)

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        if self.dim > 2 * self.features.shape[1]:  # two products with the data cost less than H_i
            residual = _dot("sd,d->s", self.features[user], model) - self.targets[user]
            share = 2.0 / self.counts[user].astype(jnp.float32)
            return share * _dot("s,sd->d", residual, self.features[user])
        hessian = self.hessians[user]
        small = self.dim <= 16  # products and sums, as in `gradient`
        product = (hessian * model[:, None]).sum(0) if small else _dot("de,e->d", hessian, model)
        return product - self.slopes[user]

    def score(self, model: Vector) -> dict[str, Scalar]:
        # A squared norm, not a difference of losses: it is never negative and exact near θ*.
        gap = jnp.sum(_dot("de,e->d", self.root, model - self.optimum) ** 2)
        return {"loss": self.least + gap, "gap": gap}

    def user_scores(self, model: Vector) -> dict[str, PerUser]:
        residual = _dot("nsd,d->ns", self.features, model) - self.targets  # padding is 0
        return {"loss": jnp.sum(residual**2, -1) / self.counts.astype(jnp.float32)}


def regression(
    features: Numbers | Sequence[ArrayLike], targets: Numbers | Sequence[ArrayLike]
) -> Regression:
    """Create a least squares task on your own data.

    Args:
        features: [N, D, d], or a list of one array [D_i, d] per user.
        targets: [N, D], or a list of one array [D_i] per user.
    """
    users = [
        {name: as_float32(f"{name} of user {user}", array) for name, array in held.items()}
        for user, held in enumerate(paired(features=features, targets=targets))
    ]
    columns, numbers, _, counts = of_users(users)
    if list(map(len, columns.shapes)) != [1, 0]:
        raise InputError(
            "features must have shape [D, d] and targets [D] for every user, got "
            f"{users[0]['features'].shape} and {users[0]['targets'].shape}"
        )
    inside = np.arange(numbers.shape[1])[None] < np.asarray(counts)[:, None]
    numbers = np.where(inside[..., None], numbers, np.float32(0))  # padding is 0
    most, largest = (np.finfo("float32").max / numbers.size) ** 0.5, np.abs(numbers).max()
    if largest > most:
        raise InputError(
            f"features and targets must be within ±{most:.1g}, as float32 does not hold sums of "
            f"their squares, got {largest:.2g}: scale the data"
        )
    held = columns.tree(numbers)
    task = Regression(jnp.asarray(held["features"]), jnp.asarray(held["targets"]), counts)
    return inputs.vouch(task, "features", "targets", "counts")


def synthetic_regression(
    key: Seed,
    users: int = 20,
    samples: int = 100,
    dim: int = 10,
    data_spread: Numbers = 0.1,
    model_spread: Numbers = 1.0,
    redraw: bool = False,
    rotate: bool = False,
) -> SyntheticRegression:
    """Create the paper's least squares task on synthetic data.

    User i's features are N(a_i, 1) with a_i ~ N(1, data_spread), its weights N(b_i, 1) with
    b_i ~ N(−4, model_spread).

    Args:
        key: random key, or seed, of the data.
        users: N.
        samples: D, the number of samples of each user.
        dim: d.
        data_spread, model_spread: variances; both can be swept.
        redraw: whether every trial draws data of its own.
        rotate: whether features and weights are rotated by a random orthogonal matrix, drawn with
            the data. Without it the vector of ones is close to every user's steepest direction.
    """
    key = inputs.key("key", key, axes=1)
    return SyntheticRegression(key, data_spread, model_spread, users, samples, dim, redraw, rotate)


def _dot(subscripts: str, *operands: Array) -> Array:
    # TPUs would multiply in bfloat16 by default.
    return jnp.einsum(subscripts, *operands, precision="highest")
