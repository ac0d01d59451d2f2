"""At each user: K local steps from the broadcast model, and what they change.

A local rule offers `start`, the controls before round 1, and a call, which runs one round of all
users and returns their updates θ_i − θ̂ and, if it has any, their new controls.
"""

import jax
import jax.numpy as jnp
import optax

from jaxota import _minibatches
from jaxota.types import Array, State, part, static, traced


@part
class SGD:
    """θ_i ← θ_i − η·u with u the minibatch gradient g_i(θ_i); eq. real_local_update.

    `optimizer` is an optax transformation of u before the factor η, its memory fresh each round:
    `optax.scale_by_adam()`, say, but not `optax.adam(lr)`, which already points downhill.
    """

    step_size: Array = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(None, at_least=1)
    optimizer: optax.GradientTransformation = static(optax.identity())

    controlled = False

    def start(self, key, problem, model):
        return (), ()

    def __call__(self, k_batch, k_control, problem, state: State):
        words = _minibatches.words(k_batch)

        def user(i):
            return _descend(self, words, problem, i, state.model, jnp.float32(0.0))

        return jax.vmap(user)(jnp.arange(problem.users)), ()  # [user, d]


@part
class Controlled:
    """SGD against drift: u = g_i(θ_i) − c_i + ĉ; eq. CoBAAF_real_local_update.

    `control_option=1` renews c_i with g_i at the broadcast model, over `control_batch` samples or
    the whole local set; 2 is SCAFFOLD's cheaper c_i − ĉ + (θ̂ − θ_i)/(Kη).
    """

    step_size: Array = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(None, at_least=1)
    control_batch: int | None = static(None, at_least=1)
    control_option: int = static(1, one_of=(1, 2))
    warm_start: bool = static(False, one_of=(False, True))
    optimizer: optax.GradientTransformation = static(optax.identity())

    controlled = True

    def start(self, key, problem, model):
        """The controls before round 1: ĉ [d] and c_i [user, d]."""
        if not self.warm_start:
            zeros = jnp.zeros((problem.users, problem.dim), "float32")
            return zeros[0], zeros
        controls = self._gradients(key, problem, model)
        return controls.mean(0), controls

    def __call__(self, k_batch, k_control, problem, state: State):
        words = _minibatches.words(k_batch)

        def user(i, control):
            return _descend(self, words, problem, i, state.model, state.control - control)

        updates = jax.vmap(user)(jnp.arange(problem.users), state.controls)  # [user, d]
        if self.control_option == 1:
            return updates, self._gradients(k_control, problem, state.model)
        drift = -updates / (self.steps * self.step_size)
        return updates, state.controls - state.control[None] + drift

    def _gradients(self, key, problem, model):
        """g_i(model) of every user [user, d]."""
        words = _minibatches.words(key)
        return jax.vmap(lambda i: _gradient(problem, words, i, i, self.control_batch, model))(
            jnp.arange(problem.users)
        )


def _gradient(problem, words, user, stream, batch, model):
    """g_i(model) [d]: over `batch` samples drawn with replacement, or over the whole local set."""
    if batch is None:
        return problem.full_gradient(model, user)
    return problem.gradient(
        model, user, _minibatches.indices(words, stream, batch, problem.counts[user])
    )


def _descend(local, words, problem, user, model, correction):
    """One user's θ_i − θ̂ [d] after K steps: the difference is carried, to keep its digits."""

    def step(carry, k):
        update, memory = carry
        stream = user * local.steps + k
        gradient = _gradient(problem, words, user, stream, local.batch, model + update)
        direction, memory = local.optimizer.update(gradient + correction, memory, model + update)
        return (update - local.step_size * direction, memory), None

    carry = jnp.zeros_like(model), local.optimizer.init(model)
    return jax.lax.scan(step, carry, jnp.arange(local.steps))[0][0]
