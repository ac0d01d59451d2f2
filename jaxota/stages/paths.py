"""At each user: K steps along a path that is corrected, and the plain gradients along it."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core.part import Memory, Scalar, Traced, Vector, part, static, traced
from jaxota._core.state import State
from jaxota.errors import InputError
from jaxota.stages.compress import norms
from jaxota.stages.local import SGD, LocalUpdate, minibatches, slope
from jaxota.tasks.problem import Problem, layout

Tree = Any  # of a model, as a problem's layout holds it


@part
class PathCorrectedSGD:
    """K steps along a path that is corrected as far as the server trusts ĥ; gradients are sent.

    Attributes:
        step_size: η, a number or an array to sweep over.
        steps: K, local steps a round.
        batch: samples that a user draws for each step; None for its whole local set.
        trusting: whether the path is corrected at all (1).
        striding: whether a user whose path expands takes shorter steps (4).
        gradients: whether −ηΣg is sent, the plain gradients along the path (3), or where it ended.

    It goes with a server that broadcasts `y` and `trust`, as `Innovations` does.
    """

    step_size: Traced[Scalar] = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(default=None, at_least=1)
    trusting: bool = static(default=True, one_of=(True, False))
    striding: bool = static(default=True, one_of=(True, False))
    gradients: bool = static(default=True, one_of=(True, False))

    controlled = plain = False
    draws, reach, replace = SGD.draws, SGD.reach, dataclasses.replace

    def start(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> tuple[None, dict[str, Array]]:
        """h_i = 0 [user, d]; q_i = 0 and a_i = 1 [user]; how many rounds there were [user]."""
        zeros = jnp.zeros(problem.users, "float32")
        slopes = jnp.zeros((problem.users, model.size), "float32")
        return None, {"slope": slopes, "growth": zeros, "stride": zeros + 1.0, "rounds": zeros}

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        server = state.server
        if not isinstance(server, dict) or not {"y", "trust"} <= server.keys():
            raise InputError(
                "algorithm.server must broadcast y and trust for this algorithm.local, as "
                "jo.Innovations() does"
            )
        there = -server["y"] / (self.steps * self.step_size)  # ĥ

        def user(i: Int[Array, ""], memory: dict[str, Array]) -> tuple[Vector, Vector, Memory]:
            bend = server["trust"] * (there - memory["slope"])  # (1)
            bend = bend if self.trusting else jnp.zeros_like(bend)
            total, moved, squares = self._path(
                k_batch, problem, i, state.model, bend, memory["stride"]
            )
            after = memory | {"slope": total / self.steps, "rounds": memory["rounds"] + 1.0}
            if self.striding and self.steps > 1:
                after |= _strides(squares, memory)
            return -self.step_size * total, moved, after

        sums, moved, memory = jax.vmap(user)(jnp.arange(problem.users), state.local)
        sent = sums if self.gradients else moved
        return LocalUpdate(sent, memory=memory, moved=moved, reports={"norm": norms(sent)})

    def _path(
        self,
        key: PRNGKeyArray,
        problem: Problem,
        user: Int[Array, ""],
        model: Vector,
        bend: Vector,
        stride: Scalar,
    ) -> tuple[Vector, Vector, Float[Array, "step"]]:
        """Σg [d], θ_i − θ̂ [d], and ‖u‖² of each step [step] (2)."""
        held = layout(problem)
        origin, bent = held.lay(model), held.lay(bend)
        pace = stride * self.step_size

        def step(carry: tuple[Tree, Tree], samples: Any) -> tuple[tuple[Tree, Tree], Scalar]:
            moved, total = carry
            here = jax.tree.map(jnp.add, origin, moved)
            g = slope(held, here, user, samples)
            u = jax.tree.map(jnp.add, g, bent)
            moved = jax.tree.map(lambda m, along: m - pace * along, moved, u)
            square = sum(jnp.sum(x**2) for x in jax.tree.leaves(u))
            return (moved, jax.tree.map(jnp.add, total, g)), jnp.asarray(square)

        draws = user * self.steps + jnp.arange(self.steps)
        samples = minibatches(problem, user, self.batch, key, draws)
        zero = jax.tree.map(jnp.zeros_like, origin)
        (moved, total), squares = jax.lax.scan(step, (zero, zero), samples, self.steps)
        return held.flat(total), held.flat(moved), squares

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """All of it is of a user's own path, heard or not."""
        return after


def _strides(squares: Float[Array, "step"], memory: dict[str, Array]) -> dict[str, Array]:
    """(4) A path that expands takes shorter steps."""
    half = squares.size // 2
    late, early = squares[-half:].sum(), squares[:half].sum()
    grown = jnp.where((late > 0) & (early > 0), jnp.log(late) - jnp.log(early), 0.0).clip(-5.0, 5.0)
    growth = jnp.where(memory["rounds"] == 0, grown, (memory["growth"] + grown) / 2)
    factor = jnp.exp(0.02 - jnp.maximum(growth - 0.25, 0.0))
    return {"growth": growth, "stride": (memory["stride"] * factor).clip(1e-4, 1.0)}
