"""Local rules, at each user: K steps from the broadcast model, and the update that is sent."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.devices import platform
from jaxota._core.part import (
    Memory,
    PerUser,
    Scalar,
    Traced,
    Vector,
    Vectors,
    canonical,
    optional,
    part,
    static,
    traced,
)
from jaxota._core.schedule import StepSize, all_rounds
from jaxota._core.state import State
from jaxota.errors import InputError
from jaxota.stages.batches import (
    FlatLayout,
    Params,
    Steps,
    gradient_on,
    layout_of,
    minibatch_gradient,
    minibatches,
    short_gradient,
    user_steps,
    visits,
)
from jaxota.tasks.problem import Layout, Problem, number_of
from jaxota.tasks.weights import times_weights

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

UNROLLED = 32  # local steps that a program for GPUs unrolls at most: more take long to compile


@part
class LocalUpdate:
    """The outcome of one round of local steps at all users.

    Attributes:
        update: [user, d] the values of the model block.
        controls: [user, d] the values of the control block, None where there is no such block.
        memory: [user, …] the users' new memory, which `LocalRule.remember` may discard.
        moved: [user, d] the model displacement θ_i − θ̂; None where it equals `update`.
        reports: [user] coded scalars for the server, by name.
    """

    update: Vectors
    controls: Vectors | None = None
    memory: Memory = None
    moved: Vectors | None = None
    reports: dict[str, PerUser] | None = None

    replace = dataclasses.replace


class LinearSteps(NamedTuple):
    """Steps along u = g_i(θ_i) + pull·(θ_i − θ̂), and with controls + ĉ − c_i, for `exact`.

    Attributes:
        step_size: η of all rounds, or [round].
        batch: samples of a minibatch, drawn with replacement; None for the whole local set.
        pull: factor of the displacement; None for none.
        warm_start: whether controls start from gradients at the initial model.
    """

    step_size: Array
    batch: int | None
    pull: Scalar | None = None
    warm_start: bool = False


class LocalRule(Protocol):
    """The local steps of all users, such as `SGD`, `Proximal` or `ControlVariateSGD`.

    A part of an algorithm has `cohorts = True` if nothing depends on users who are not heard, nor
    on a user's place among the others, and if users who are not heard keep their memory. Where all
    parts do, and `channel.participants` draws the users of a round, only these compute, and are all
    users that the parts see. Random draws of a user take its `number_of(problem, user)`.
    """

    @property
    def controlled(self) -> bool:
        """Whether users send a second block, the controls."""

    @property
    def steps(self) -> int:
        """K, the number of local steps per round."""

    @property
    def draws(self) -> int:
        """The largest number of samples that a user draws at once."""

    @property
    def reach(self) -> Scalar:
        """Kη, the norm of an update made of parallel gradients of norm 1; η is of the round."""

    @optional
    def start(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> tuple[Vector | None, Memory]:
        """Return the initial broadcast control [d], None without one, and memory [user, …]."""
        return None, None

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        """Run one round of all users, from the model and control that `state` broadcasts."""

    @optional
    def remember(self, before: Memory, after: Memory, heard: PerUser) -> Memory:
        """Return the memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""
        return if_heard(self, before, after, heard)


def if_heard(self: object, before: Memory, after: Memory, heard: PerUser) -> Memory:
    """Keep new memory for users who were heard, old memory for the others: a part's `remember`.

    Args:
        self: the part, as this function becomes one of its methods.
        before, after: [user, …] the users' memory before and after the round.
        heard: [user] 1 for users who were heard, else 0.
    """

    def select(new: Array, old: Array) -> Array:
        # `heard` as [user, 1, …], to broadcast against arrays of any rank.
        return jnp.where(heard.reshape(-1, *[1] * (new.ndim - 1)) > 0, new, old)

    return jax.tree.map(select, after, before)


def no_memory(self: object, *arguments: Any) -> None:
    """Return None: the `start` of any part without memory.

    Args:
        self: the part, as this function becomes one of its methods.
        arguments: those of its protocol's `start`.
    """


@part
class SGD:
    """Plain SGD: θ_i ← θ_i − η·u, u the minibatch gradient g_i(θ_i); eq. real_local_update.

    Attributes:
        step_size: η, a number, an array to sweep over, or a schedule: `jo.by_round(values)`, an
            optax schedule, or any function of the rounds done, 0 in the first round.
        steps: K, the number of local steps per round.
        batch: samples drawn per user and step; None for the whole local set.
        transform: an optax transformation of u before the factor η, its state fresh in each round:
            `optax.scale_by_adam()`, for example, but not `optax.adam(lr)`, which already points
            downhill.
        keep_momentum: whether users keep the transformation's state, such as its momentum, from
            round to round instead; a user who is not heard keeps its old one.
        epochs: passes over a user's own samples in random order, batch by batch, in place of
            `steps`: users with more samples take more steps.
        last: whether the last batch of an epoch is "short" or "dropped".
        clip: the largest norm of a gradient g_i, which is scaled down to it; None for any.
    """

    step_size: StepSize = traced(above=0.0, by_round=True)
    steps: Steps = static(default=None, at_least=1)
    batch: int | None = static(default=None, at_least=1)
    transform: optax.GradientTransformation = static(default=optax.identity())
    epochs: int | None = static(default=None, at_least=1)
    last: str = static(default="short", one_of=("short", "dropped"))
    clip: Traced[Scalar | None] = traced(default=None, above=0.0, infinite=True)
    keep_momentum: bool = static(default=False, one_of=(False, True))

    controlled, mu = False, None  # nothing pulls back to the broadcast model
    cohorts = True
    remember, replace = if_heard, dataclasses.replace

    @property
    def plain(self) -> bool:
        """Whether steps follow (corrected) gradients alone, as the theorems assume."""
        return _is_identity(self.transform) and _is_linear(self)

    @property
    def draws(self) -> int:
        return self.batch or 1

    @property
    def reach(self) -> Scalar:
        return self.steps * self.step_size

    def linear_steps(self) -> LinearSteps | None:
        return LinearSteps(all_rounds(self.step_size), self.batch) if self.plain else None

    def start(self, key: PRNGKeyArray, problem: Problem, model: Vector) -> tuple[None, Memory]:
        return None, _first_momenta(self, problem, model)

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        updates, momenta = local_steps(self, k_batch, problem, state, state.local)
        return LocalUpdate(updates, memory=momenta)

    def check(self, path: str, setting: "Setting") -> None:
        _check_transform(path, self, setting)


@part
class Proximal:
    """FedProx: SGD pulled back to the broadcast model, u = g_i(θ_i) + μ(θ_i − θ̂); Li et al., 2020.

    Attributes:
        mu: μ, a number or an array to sweep over; 0 is `SGD`.

    The other fields are those of `SGD`; there is no `transform`.
    """

    step_size: StepSize = traced(above=0.0, by_round=True)
    steps: Steps = static(default=None, at_least=1)
    batch: int | None = static(default=None, at_least=1)
    mu: Traced[Scalar] = traced(default=0.0, at_least=0.0)
    epochs: int | None = static(default=None, at_least=1)
    last: str = static(default="short", one_of=("short", "dropped"))
    clip: Traced[Scalar | None] = traced(default=None, above=0.0, infinite=True)

    controlled, plain, transform, keep_momentum = False, False, optax.identity(), False
    cohorts = True
    remember, replace = if_heard, dataclasses.replace
    draws, reach, start, __call__ = SGD.draws, SGD.reach, SGD.start, SGD.__call__

    def linear_steps(self) -> LinearSteps | None:
        steps = LinearSteps(all_rounds(self.step_size), self.batch, pull=self.mu)
        return steps if _is_linear(self) else None


@part
class ControlVariateSGD:
    """SGD with control variates, u = g_i(θ_i) − c_i + ĉ; eq. CoBAAF_real_local_update.

    Attributes:
        control_batch: samples drawn to renew a control; None for the whole local set.
        control_option: 1 renews c_i with g_i at the broadcast model; 2 is SCAFFOLD's cheaper
            c_i − ĉ + (θ̂ − θ_i)/(Kη), which takes no further gradient.
        warm_start: whether controls start from gradients at the initial model instead of 0.

    The other fields are those of `SGD`. The users' memory is their control c_i, and with
    `keep_momentum` a pair of it and the transformation's state.
    """

    step_size: StepSize = traced(above=0.0, by_round=True)
    steps: Steps = static(default=None, at_least=1)
    batch: int | None = static(default=None, at_least=1)
    control_batch: int | None = static(default=None, at_least=1)
    control_option: int = static(default=1, one_of=(1, 2))
    warm_start: bool = static(default=False, one_of=(False, True))
    transform: optax.GradientTransformation = static(default=optax.identity())
    epochs: int | None = static(default=None, at_least=1)
    last: str = static(default="short", one_of=("short", "dropped"))
    clip: Traced[Scalar | None] = traced(default=None, above=0.0, infinite=True)
    keep_momentum: bool = static(default=False, one_of=(False, True))

    controlled, mu = True, None
    cohorts = True
    remember, replace = if_heard, dataclasses.replace
    plain, reach = SGD.plain, SGD.reach

    @property
    def draws(self) -> int:
        return max(self.batch or 1, self.control_batch or 1)

    def linear_steps(self) -> LinearSteps | None:
        full = self.control_option == 1 and self.control_batch is None
        if not full or not _is_identity(self.transform) or not _is_linear(self):
            return None
        return LinearSteps(all_rounds(self.step_size), self.batch, warm_start=self.warm_start)

    def start(self, key: PRNGKeyArray, problem: Problem, model: Vector) -> tuple[Vector, Memory]:
        if self.warm_start:
            controls = self._gradients(key, problem, model)
        else:  # c_i = ĉ = 0: the first round is plain SGD
            controls = jnp.zeros((problem.users, problem.dim), "float32")
        sent = times_weights(getattr(problem, "weights", None), controls)
        # ĉ is the mean of the c_i of all users, free of noise.
        return sent.mean(0), self._memory(controls, _first_momenta(self, problem, model))

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        broadcast = state.control
        assert broadcast is not None  # `start` returns one
        own, momenta = state.local if self.keep_momentum else (state.local, None)
        shifts = broadcast[None] - own
        updates, momenta = local_steps(self, k_batch, problem, state, momenta, shifts)
        if self.control_option == 1:
            # On samples of their own, so that controls are independent of the noise in the steps.
            controls = self._gradients(k_control, problem, state.model)
        else:
            # −Δ_i/(Kη) is the mean direction of the K steps, correction included.
            steps = jnp.asarray(user_steps(self, problem)).reshape(-1, 1)  # K_i
            mean_direction = -updates / (steps * self.step_size)
            controls = own - broadcast[None] + mean_direction
        return LocalUpdate(updates, controls, memory=self._memory(controls, momenta))

    def _memory(self, controls: Vectors, momenta: Memory) -> Memory:
        return (controls, momenta) if self.keep_momentum else controls

    def check(self, path: str, setting: "Setting") -> None:
        _check_transform(path, self, setting)
        draws_control = self.control_option == 1 or self.warm_start
        if self.control_batch is not None and not draws_control:
            raise InputError(
                f"{path}.control_batch must be None with control_option=2, "
                "which takes no gradient of its own, unless warm_start=True"
            )

    def _gradients(self, key: PRNGKeyArray, problem: Problem, model: Vector) -> Vectors:
        """Return g_i(model) of every user."""

        def user(i: Int[Array, ""]) -> Vector:
            draw = number_of(problem, i)
            return minibatch_gradient(problem, model, i, self.control_batch, key, draw)

        return jax.vmap(user)(jnp.arange(problem.users))


def norms(values: Vectors) -> PerUser:
    """Return the norm ‖·‖ of each user's vector."""
    return jnp.sqrt(jnp.sum(values**2, -1))


def walk(
    local: Any,
    key: PRNGKeyArray,
    problem: Problem,
    layout: Layout,
    user: Int[Array, ""],
    model: Vector,
    memory: Memory,
    move: Callable[..., tuple[Params, Memory, Any]],
) -> tuple[Vector, Memory, Any]:
    """Take the K steps of one user; return θ_i − θ̂ [d], memory, and what was kept [step, …].

    `move(moved, params, gradient, memory)` returns the displacement after a step, memory, and what
    to keep of the step, all in the `layout`.
    """
    origin = layout.unravel(model)

    # The displacement is carried in place of θ_i: near convergence it is far smaller than the
    # model, and θ_i − θ̂ formed at the end would lose its digits.
    def step(carry: tuple[Params, Memory], samples: Any) -> tuple[tuple[Params, Memory], Any]:
        moved, memory = carry
        params = jax.tree.map(jnp.add, origin, moved)
        if epochs is None:
            gradient = gradient_on(layout, params, user, samples)
            moved, memory, kept = move(moved, params, gradient, memory)
            return (moved, memory), kept
        samples, count = samples
        gradient = gradient_on(layout, params, user, samples)
        gradient = short_gradient(layout, params, user, samples, count, gradient)
        *after, kept = move(moved, params, gradient, memory)
        # Past its last step a user stands still.
        return jax.tree.map(partial(jnp.where, count > 0), tuple(after), carry), kept

    epochs = getattr(local, "epochs", None)
    if epochs is None:
        # One number per user and step.
        draws = number_of(problem, user) * local.steps + jnp.arange(local.steps)
        samples: Any = minibatches(problem, user, local.batch, key, draws)
    else:
        samples = visits(local, problem, user, key)
    carry = jax.tree.map(jnp.zeros_like, origin), memory
    # On GPU a loop's body is launched kernel by kernel; unrolled, a round is one CUDA graph.
    unroll = local.steps if platform() == "gpu" and local.steps <= UNROLLED else 1
    (moved, memory), kept = jax.lax.scan(step, carry, samples, local.steps, unroll=unroll)
    return layout.ravel(moved), memory, kept


def local_steps(
    local: Any,
    key: PRNGKeyArray,
    problem: Problem,
    state: State,
    momenta: Memory,
    corrections: Vectors | None = None,
) -> tuple[Vectors, Memory]:
    """Take K steps by g_i + correction_i from kept `momenta`, fresh ones for None.

    Returns:
        The displacements θ_i − θ̂ [user, d], and momenta where they are kept.
    """
    # A user's own transformation may treat coordinates by their place in the vector.
    layout = layout_of(problem) if _is_identity(local.transform) else FlatLayout(problem)

    def user(i: Int[Array, ""], correction: Vector, momentum: Memory) -> tuple[Vector, Memory]:
        shift = layout.unravel(correction)

        def move(moved: Params, params: Params, gradient: Params, memory: Memory) -> Any:
            if local.clip is not None:
                gradient = _clipped(gradient, local.clip)
            gradient = jax.tree.map(jnp.add, gradient, shift)
            direction, memory = local.transform.update(gradient, memory, params)
            after = jax.tree.map(lambda m, u: m - local.step_size * u, moved, direction)
            if local.mu is not None:  # apart from the step, which stays equal to SGD's to the bit
                pull = local.step_size * local.mu
                after = jax.tree.map(lambda a, m: a - pull * m, after, moved)
            return after, memory, None

        if not local.keep_momentum:
            momentum = local.transform.init(layout.unravel(state.model))
        moved, after, _ = walk(local, key, problem, layout, i, state.model, momentum, move)
        return moved, after if local.keep_momentum else None

    users = jnp.arange(problem.users)
    if corrections is None:
        return jax.vmap(user, (0, None, 0))(users, jnp.zeros_like(state.model), momenta)
    return jax.vmap(user)(users, corrections, momenta)


def _first_momenta(local: Any, problem: Problem, model: Vector) -> Memory:
    """Return the transformation's first state for every user [user, …], None unless kept."""
    if not getattr(local, "keep_momentum", False):  # a part of one's own may take SGD's `start`
        return None

    def repeated(x: Any) -> Array:
        return jnp.broadcast_to(x, (problem.users, *jnp.shape(x)))

    return jax.tree.map(repeated, local.transform.init(model))


def _check_transform(path: str, local: Any, setting: "Setting") -> None:
    inputs.check_direction(f"{path}.transform", local.transform, setting.task.dim)
    if local.keep_momentum and _is_identity(local.transform):
        raise InputError(f"{path}.keep_momentum must be False without a transform to keep it")


def _clipped(gradient: Params, largest: Scalar) -> Params:
    """Scale a gradient down to the norm `largest`."""
    norm = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(gradient)))
    factor = jnp.where(norm > largest, largest / norm, 1.0)
    return jax.tree.map(lambda x: factor * x, gradient)


def _is_linear(local: Any) -> bool:
    return local.clip is None and local.epochs is None


def _is_identity(transform: optax.GradientTransformation) -> bool:
    # Two calls of optax.identity() differ as objects; `canonical` maps equal ones to one.
    return canonical(transform) is canonical(optax.identity())
