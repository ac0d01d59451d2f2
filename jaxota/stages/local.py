"""At each user: K local steps from the broadcast model, and what they change.

A local rule offers `start`, what the server and the users hold before round 1; a call, which runs
one round of all users; and `remember`, what users keep of it once it is known who was heard.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs, prng
from jaxota._core.part import Memory, Scalar, Traced, Vector, canonical, part, static, traced
from jaxota._core.state import State
from jaxota.errors import InputError
from jaxota.tasks.problem import Layout, Problem, Vectors, layout

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


@part
class LocalUpdate:
    """What the users made of a round: what is to be sent, and apart from it where they went.

    Attributes:
        update: [user, d] what the model block carries.
        controls: [user, d] what the control block carries, or ().
        memory: [user, …] what users remember, if they are heard.
        moved: [user, d] θ_i − θ̂, `None` where it is what the model block carries.
        reports: [user] coded scalars for the server, by names.
    """

    update: Float[Array, "user d"]
    controls: Float[Array, "user d"] | None = None
    memory: Memory = None
    moved: Float[Array, "user d"] | None = None
    reports: dict[str, Float[Array, "user"]] | None = None

    replace = dataclasses.replace


class LocalRule(Protocol):
    """At each user: K steps, what is sent of them, what is remembered. `SGD`, `Proximal`, …"""

    @property
    def controlled(self) -> bool:
        """Whether it sends a second block, the controls."""

    @property
    def steps(self) -> int:
        """K."""

    @property
    def draws(self) -> int:
        """The most samples that a user draws at once."""

    @property
    def reach(self) -> Scalar:
        """How far gradients of norm 1 carry an update, Kη."""

    def start(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> tuple[Vector | None, Memory]:
        """Before round 1: the broadcast control [d], or (), and the users' memory [user, …]."""

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        """One round of all users from `state`, of which they hear what is broadcast."""

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """The users' memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""


def if_heard(self: object, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
    """A part's `remember`: `after` for users who were `heard`, `before` for the others.

    Args:
        self: the part, as it is one of its methods.
        before, after: [user, …] what users remembered before the round, and of it.
        heard: [user] 1 for users who were heard, else 0.
    """

    def chosen(new: Array, old: Array) -> Array:
        return jnp.where(heard.reshape(-1, *[1] * (new.ndim - 1)) > 0, new, old)

    return jax.tree.map(chosen, after, before)


@part
class SGD:
    """θ_i ← θ_i − η·u with u the minibatch gradient g_i(θ_i); eq. real_local_update.

    Attributes:
        step_size: η, a number or an array to sweep over.
        steps: K, local steps a round.
        batch: samples that a user draws for each step; None for its whole local set.
        transform: an optax transformation of u before the factor η, its memory fresh each round:
            `optax.scale_by_adam()`, say, but not `optax.adam(lr)`, which already points downhill.
    """

    step_size: Traced[Scalar] = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(default=None, at_least=1)
    transform: optax.GradientTransformation = static(default=optax.identity())

    controlled = False
    remember = if_heard
    replace = dataclasses.replace

    @property
    def plain(self) -> bool:
        """Whether steps are by (corrected) gradients alone, as the theorems have it."""
        return canonical(self.transform) is canonical(optax.identity())

    @property
    def draws(self) -> int:
        """The most samples that a user draws at once."""
        return self.batch or 1

    @property
    def reach(self) -> Scalar:
        """How far gradients of norm 1 carry the update, Kη."""
        return self.steps * self.step_size

    def start(self, key: PRNGKeyArray, problem: Problem, model: Vector) -> tuple[None, None]:
        """What the server's control is before round 1, and what users remember: nothing."""
        return None, None

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        def user(i: Int[Array, ""]) -> Vector:
            return _descend(self, k_batch, problem, i, state.model, jnp.zeros_like(state.model))

        return LocalUpdate(jax.vmap(user)(jnp.arange(problem.users)))

    def check(self, path: str, setting: "Setting") -> None:
        inputs.check_direction(f"{path}.transform", self.transform, setting.task.dim)


@part
class Proximal:
    """SGD that is pulled back: u = g_i(θ_i) + μ(θ_i − θ̂); FedProx (Li et al., 2020).

    Attributes:
        mu: μ, a number or an array to sweep over; 0 is `SGD`.

    The others are those of `SGD`; it takes no optimiser.
    """

    step_size: Traced[Scalar] = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(default=None, at_least=1)
    mu: Traced[Scalar] = traced(default=0.0, at_least=0.0)

    controlled, plain, transform = False, False, optax.identity()
    remember, replace = if_heard, dataclasses.replace
    draws, reach, start = SGD.draws, SGD.reach, SGD.start

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        def user(i: Int[Array, ""]) -> Vector:
            zero = jnp.zeros_like(state.model)
            return _descend(self, k_batch, problem, i, state.model, zero, self.mu)

        return LocalUpdate(jax.vmap(user)(jnp.arange(problem.users)))


@part
class ControlVariateSGD:
    """SGD against drift: u = g_i(θ_i) − c_i + ĉ; eq. CoBAAF_real_local_update.

    Attributes:
        control_batch: samples for the renewal of a control; None for the whole local set.
        control_option: 1 renews c_i with g_i at the broadcast model; 2 is SCAFFOLD's cheaper
            c_i − ĉ + (θ̂ − θ_i)/(Kη), by what users moved.
        warm_start: whether controls start from gradients at the initial model instead of 0.

    The others, `step_size` to `transform`, are those of `SGD`. Users remember their c_i.
    """

    step_size: Traced[Scalar] = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(default=None, at_least=1)
    control_batch: int | None = static(default=None, at_least=1)
    control_option: int = static(default=1, one_of=(1, 2))
    warm_start: bool = static(default=False, one_of=(False, True))
    transform: optax.GradientTransformation = static(default=optax.identity())

    controlled = True
    remember = if_heard
    replace = dataclasses.replace
    plain = SGD.plain

    @property
    def reach(self) -> Scalar:
        """How far gradients of norm 1 carry the update, Kη."""
        return self.steps * self.step_size

    @property
    def draws(self) -> int:
        """The most samples that a user draws at once."""
        return max(self.batch or 1, self.control_batch or 1)

    def start(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> tuple[Vector, Float[Array, "user d"]]:
        """The controls before round 1: ĉ and c_i."""
        if not self.warm_start:
            zeros = jnp.zeros((problem.users, problem.dim), "float32")
            return zeros[0], zeros
        controls = self._gradients(key, problem, model)
        return controls.mean(0), controls

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        broadcast = state.control
        assert broadcast is not None  # `start` made it

        def user(i: Int[Array, ""], control: Vector) -> Vector:
            return _descend(self, k_batch, problem, i, state.model, broadcast - control)

        updates = jax.vmap(user)(jnp.arange(problem.users), state.local)  # [user, d]
        if self.control_option == 1:
            controls = self._gradients(k_control, problem, state.model)
        else:
            drift = -updates / (self.steps * self.step_size)
            controls = state.local - broadcast[None] + drift
        return LocalUpdate(updates, controls, memory=controls)

    def check(self, path: str, setting: "Setting") -> None:
        inputs.check_direction(f"{path}.transform", self.transform, setting.task.dim)
        draws_control = self.control_option == 1 or self.warm_start
        if self.control_batch is not None and not draws_control:
            raise InputError(
                f"{path}.control_batch must be None with control_option=2, "
                "which takes no gradient of its own, unless warm_start=True"
            )

    def _gradients(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> Float[Array, "user d"]:
        """g_i(model) of every user."""

        def user(i: Int[Array, ""]) -> Vector:
            return minibatch_gradient(problem, model, i, self.control_batch, key, draw=i)

        return jax.vmap(user)(jnp.arange(problem.users))


def norms(values: Float[Array, "user d"]) -> Float[Array, "user"]:
    """‖·‖ of each user's vector."""
    return jnp.sqrt(jnp.sum(values**2, -1))


def minibatch_gradient(
    problem: Problem,
    model: Vector,
    user: Any,
    batch: int | None,
    key: PRNGKeyArray,
    draw: Any,
) -> Vector:
    """g_i(model) [d] of one user: over `batch` samples drawn with replacement, or over all it has.

    Args:
        problem: what the task gives for a trial.
        model: [d] where the gradient is taken.
        user: the number i of the user.
        batch: how many samples, None for the whole local set.
        key: of the round; user and step choose the samples by the number `draw` among its draws.
        draw: the number of this draw: each user and step has its own.
    """
    samples = minibatches(problem, user, batch, key, jnp.asarray(draw)[None])
    return slope(Vectors(problem), model, user, samples[0] if samples is not None else samples)


def minibatches(
    problem: Problem, user: Any, batch: int | None, key: PRNGKeyArray, draws: Int[Array, "draw"]
) -> Int[Array, "draw batch"] | None:
    """The samples [draw, batch] of several draws of one user, for `problem.gradient`.

    Args:
        problem: what the task gives for a trial.
        user: the number i of the user.
        batch: how many samples; None for the whole local set, for which nothing is drawn: None.
        key: of the round.
        draws: the numbers of the draws, as in `minibatch_gradient`: each user and step has its own.

    Draw a round's before its steps, and scan over them: inside the loop of the steps the drawing
    costs several times as much.
    """
    if batch is None:
        return None
    words = prng.words(key)
    return prng.indices(words, draws, batch, problem.counts[user])


def slope(held: Layout, model: Any, user: Any, samples: Int[Array, "batch"] | None) -> Any:
    """A user's gradient on these samples, or on all, held as the model is."""
    from jaxota._core.stage_checks import Method  # which reads the protocols of this stage

    if samples is not None:
        method, found = "gradient", held.gradient(model, user, samples)
    else:
        method, found = "full_gradient", held.full_gradient(model, user)
    return Method(f"task.problem(...).{method}", "Problem").alike(found, model, "a gradient")


def _descend(
    local: SGD | Proximal | ControlVariateSGD,
    key: PRNGKeyArray,
    problem: Problem,
    user: Int[Array, ""],
    model: Vector,
    correction: Vector,
    pull: Scalar | None = None,
) -> Vector:
    """One user's θ_i − θ̂ [d] after K steps: the difference is carried, to keep its digits."""
    # Somebody's optimiser may know coordinates by their place in the vector.
    known = canonical(local.transform) is canonical(optax.identity())
    held = layout(problem) if known else Vectors(problem)
    origin, correction = held.lay(model), held.lay(correction)

    def step(carry: tuple[Any, Memory], samples: Any) -> tuple[Any, None]:
        update, memory = carry
        here = jax.tree.map(jnp.add, origin, update)
        along = jax.tree.map(jnp.add, slope(held, here, user, samples), correction)
        direction, memory = local.transform.update(along, memory, here)
        moved = jax.tree.map(lambda u, v: u - local.step_size * v, update, direction)
        if pull is not None:  # apart from the step, which stays SGD's to the bit
            moved = jax.tree.map(lambda m, u: m - (local.step_size * pull) * u, moved, update)
        return (moved, memory), None

    draws = user * local.steps + jnp.arange(local.steps)
    samples = minibatches(problem, user, local.batch, key, draws)
    carry = jax.tree.map(jnp.zeros_like, origin), local.transform.init(origin)
    return held.flat(jax.lax.scan(step, carry, samples, local.steps)[0][0])
