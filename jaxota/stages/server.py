"""Servers: from the estimate of the average to the next model.

A server may have memory, may answer the users' coded reports before they send, and may hand out
another model than it broadcasts. `Innovations`, which does all three, is in `jaxota.stages.wise`.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxota._core import inputs
from jaxota._core.part import (
    Memory,
    PerUser,
    Scalar,
    Traced,
    Vector,
    optional,
    part,
    static,
    traced,
)
from jaxota._core.state import State
from jaxota.stages.answers import Link
from jaxota.stages.compress import SideInfo
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


# For `exact`: a server may have `affine(memory)`, which returns its step on any one coordinate, and
# the memory after it. The matrix maps (model, memory…, estimate, 1) to (model, memory…). What it
# remembers starts at 0. None instead says that its step is not affine.
AffineStep: TypeAlias = tuple[Float[Array, "out in"], Memory]


@part
class Aggregate:
    """The server's knowledge of one block after a round.

    Attributes:
        estimate: [d] the estimated average of the users' values, `Block.origin` included.
        deviation: [] √ν, the standard deviation of the noise on the received average.
        link: the block's path from the users.
        side: coded side information.
    """

    estimate: Vector
    deviation: Scalar
    link: Link
    side: SideInfo

    replace = dataclasses.replace


class Server(Protocol):
    """The server's step to the next model, such as `ReplaceModel` or `Optimizer`.

    A server with `norms = True` finds every user's ‖v_i‖ among the reports, as "norm".
    """

    @optional
    def start(self, model: Vector) -> Memory:
        """Return the memory before round 1; by default none."""
        return None

    @optional
    def answer(self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link) -> Any:
        """Return the answer to the users' `reports` [user] before they send; `noise` is sw2/P."""
        return None

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        """Return the next broadcast model [d] and memory, from the model block's `aggregate`."""

    @optional
    def choose(
        self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link
    ) -> PerUser | None:
        """Return 1 for users who are to send, else 0, [user]; by default None for all.

        It is called before `answer`. Users whom the channel silences stay silent.
        """
        return None

    @optional
    def output(self, model: Vector, memory: Memory) -> Vector:
        """Return the model [d] that is scored and handed out; by default the broadcast one."""
        return model


@part
class ReplaceModel:
    """The estimate becomes the next model, or the model moves towards it by a rate.

    Attributes:
        rate: the step's length, 1 at the estimate; None for 1.
    """

    rate: Traced[Scalar | None] = traced(default=None, above=0.0)

    start, answer, output = no_memory, Server.answer, Server.output
    choose = Server.choose
    cohorts = True

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        if self.rate is None:
            return aggregate.estimate, state.server
        return state.model + self.rate * (aggregate.estimate - state.model), state.server

    def affine(self, memory: Memory) -> AffineStep:
        rate = jnp.float32(1.0) if self.rate is None else self.rate
        return jnp.stack([1.0 - rate, rate, jnp.float32(0.0)])[None], memory


@part
class Optimizer:
    """An optax step on the pseudo-gradient −(estimate − model); Reddi et al., 2021.

    Attributes:
        optimizer: a transformation that points downhill, as `optax.adam(0.1)` does;
            `optax.sgd(1.0)` equals `ReplaceModel` up to rounding.
    """

    optimizer: optax.GradientTransformation = static()

    cohorts = True
    answer, choose, output = Server.answer, Server.choose, Server.output

    def start(self, model: Vector) -> Memory:
        return self.optimizer.init(model)

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        # optax minimises: a gradient points away from where users want the model to go.
        pseudo_gradient = state.model - aggregate.estimate
        step, memory = self.optimizer.update(pseudo_gradient, state.server, state.model)
        return optax.apply_updates(state.model, step), memory

    def affine(self, memory: Memory) -> AffineStep | None:
        return _linearized(self.optimizer, memory) if _is_affine(self.optimizer) else None

    def check(self, path: str, setting: "Setting") -> None:
        inputs.check_direction(path, self.optimizer, setting.task.dim, downhill=True)


@part
class Strongest:
    """Only the best users send: device scheduling by channel or by norm (Amiri et al., 2021).

    "Update aware device scheduling for federated learning at the wireless edge". Of the users whom
    the channel lets through, those with the largest |h_i| or the largest reported ‖v_i‖ send.

    Attributes:
        count: the number of users who send.
        by: "channel" or "norm".
        rest: the server's step.
    """

    count: Traced[Int[Array, ""]] = traced(at_least=1, dtype="int32")
    by: str = static(default="channel", one_of=("channel", "norm"))
    rest: Server = ReplaceModel()

    @property
    def cohorts(self) -> bool:
        return getattr(self.rest, "cohorts", False)

    @property
    def norms(self) -> bool:
        return self.by == "norm"

    def choose(
        self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link
    ) -> PerUser:
        # |h_i| up to a common factor, whether users invert their channels or not.
        strength = link.gain / jnp.sqrt(link.amplification)
        strength = reports["norm"] if self.norms else strength
        order = jnp.argsort(jnp.where(link.heard > 0, -strength, jnp.inf))
        ranks = jnp.zeros(order.size, "int32").at[order].set(jnp.arange(order.size))
        return (ranks < self.count).astype("float32")

    def start(self, model: Vector) -> Memory:
        return self.rest.start(model)

    def answer(self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link) -> Any:
        return self.rest.answer(memory, reports, noise, link)

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        return self.rest(aggregate, state)

    def output(self, model: Vector, memory: Memory) -> Vector:
        return self.rest.output(model, memory)


@part
class Adota:
    """An adaptive server for interference with heavy tails: ADOTA (Wang et al., 2024).

    "Adaptive federated learning over the air". With the pseudo-gradient y = model − estimate:
    m ← β1·m + (1 − β1)·y, v ← β2·v + (1 − β2)·|m|^α, and the model moves by −η·m/(v^{1/α} + ε). For
    β1 = 0 and α = 2 this is RMSProp.

    Attributes:
        step_size: η.
        alpha: α, the tail index of the interference, such as that of `Stable`.
        beta1: β1, the memory of the momentum.
        beta2: β2, the memory of the scale.
        epsilon: ε.
    """

    step_size: Traced[Scalar] = traced(above=0.0)
    alpha: Traced[Scalar] = traced(default=1.5, above=0.0, at_most=2.0)
    beta1: Traced[Scalar] = traced(default=0.9, at_least=0.0, below=1.0)
    beta2: Traced[Scalar] = traced(default=0.99, at_least=0.0, below=1.0)
    epsilon: Traced[Scalar] = traced(default=1e-8, above=0.0)

    cohorts = True
    answer, choose, output = Server.answer, Server.choose, Server.output

    def start(self, model: Vector) -> tuple[Vector, Vector]:
        return jnp.zeros_like(model), jnp.zeros_like(model)

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, Memory]:
        momentum, scale = state.server
        y = state.model - aggregate.estimate
        momentum = self.beta1 * momentum + (1.0 - self.beta1) * y
        scale = self.beta2 * scale + (1.0 - self.beta2) * jnp.abs(momentum) ** self.alpha
        step = momentum / (scale ** (1.0 / self.alpha) + self.epsilon)
        return state.model - self.step_size * step, (momentum, scale)


def as_server(server: Server | optax.GradientTransformation) -> Server:
    """Return a server as it is, and an optax transformation as an `Optimizer`."""
    return Optimizer(server) if isinstance(server, optax.GradientTransformation) else server


def _moves(
    optimizer: optax.GradientTransformation, memory: Memory, x: Float[Array, "in d"]
) -> tuple[Float[Array, "out d"], Memory]:
    """Step from x = (model, memory…, estimate); arrays of a memory that are not [d] are fixed."""
    model, *held, estimate = x
    leaves, structure = jax.tree.flatten(memory)
    values = iter(held)
    moving = [leaf.shape == model.shape for leaf in leaves]
    given = [next(values) if own else leaf for leaf, own in zip(leaves, moving, strict=True)]
    step, after = optimizer.update(model - estimate, jax.tree.unflatten(structure, given), model)
    kept = [leaf for leaf, own in zip(jax.tree.leaves(after), moving, strict=True) if own]
    return jnp.stack([model + step, *kept]), after


def _linearized(optimizer: optax.GradientTransformation, memory: Memory) -> AffineStep:
    """Return the step on one coordinate, linearized at 0, and the memory after it."""

    def moved(x: Float[Array, "in"]) -> tuple[Float[Array, "out"], Memory]:
        y, after = _moves(optimizer, memory, x[:, None])
        return y[:, 0], after

    zeros = jnp.zeros(2 + sum(leaf.shape == (1,) for leaf in jax.tree.leaves(memory)))
    jacobian, after = jax.jacfwd(moved, has_aux=True)(zeros)
    return jnp.concatenate([jacobian, moved(zeros)[0][:, None]], 1), after


@functools.lru_cache(maxsize=64)
def _is_affine(optimizer: optax.GradientTransformation) -> bool:
    """Whether the step is affine and the same for all coordinates, from points of many sizes."""
    with jax.ensure_compile_time_eval():
        matrix, _ = _linearized(optimizer, optimizer.init(jnp.zeros(1)))
        memory = optimizer.init(jnp.zeros(3))
        normal = np.random.default_rng(0).standard_normal((matrix.shape[1] - 1, 3))
        for scale in (1e-8, 1e-4, 1.0, 1e4, 1e8):
            step, _ = _moves(optimizer, memory, jnp.asarray(scale * normal))
            expected = np.asarray(matrix) @ np.concatenate([scale * normal, np.ones((1, 3))])
            if not np.allclose(step, expected, rtol=1e-4, atol=1e-5 * scale):
                return False
        return all(not np.any(leaf) for leaf in jax.tree.leaves(memory) if leaf.shape == (3,))
