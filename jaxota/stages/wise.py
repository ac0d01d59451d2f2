"""WISE's local rule and server: a path that is corrected, and innovations followed by a gain.

The gain whitens innovations: at Kalman's gain, and at no other, successive ones are uncorrelated.
Numbers in brackets are the steps of WISE in docs/wise.md.
"""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core.part import Memory, Scalar, Traced, Vector, part, static, traced
from jaxota._core.state import State
from jaxota.errors import InputError
from jaxota.stages.fading import Link
from jaxota.stages.local import SGD, LocalUpdate, minibatches, norms, slope
from jaxota.stages.server import Aggregate
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


class Gain(Protocol):
    """How far the server follows an innovation. `Whitening`, `Fixed`."""

    def start(self, model: Vector) -> Memory:
        """Memory before round 1."""

    def __call__(
        self, y: Vector, size: Scalar, noise: Scalar, memory: Memory
    ) -> tuple[Scalar, Memory]:
        """γ, of the innovation y [d], the mean ‖s_i‖ of what users meant to send, and dν."""


class Average(Protocol):
    """How far the output follows the model. `Switching`, `Last`."""

    def start(self, model: Vector) -> Memory:
        """Memory before round 1."""

    def __call__(self, y: Vector, ahead: Vector, memory: Memory) -> tuple[Scalar, Memory]:
        """δ, of the innovation y [d] and of how far the model is ahead of the output [d]."""


@part
class Whitening:
    """γ grows while innovations agree, and falls while they contradict each other (11–13).

    Attributes:
        rate: how fast, in its logarithm.
    """

    rate: Traced[Scalar] = traced(default=0.2, at_least=0.0)

    def start(self, model: Vector) -> dict[str, Array]:
        zero = jnp.zeros_like(model)
        return {"gain": jnp.float32(1.0), "trend": zero, "rounds": jnp.float32(0.0)}

    def __call__(
        self, y: Vector, size: Scalar, noise: Scalar, memory: Memory
    ) -> tuple[Scalar, dict[str, Array]]:
        first = jnp.sqrt(_share(size**2, noise, nothing=1.0))
        gain = jnp.where(memory["rounds"] == 0, first, memory["gain"])
        gain = (gain * jnp.exp(self.rate * alike(y, memory["trend"]))).clip(1e-3, 50.0)
        trend = 0.8 * memory["trend"] + 0.2 * y
        return gain, {"gain": gain, "trend": trend, "rounds": memory["rounds"] + 1.0}


@part
class Fixed:
    """One γ for all rounds.

    Attributes:
        gain: that one.
    """

    gain: Traced[Scalar] = traced(default=1.0, above=0.0)

    def start(self, model: Vector) -> None:
        return None

    def __call__(
        self, y: Vector, size: Scalar, noise: Scalar, memory: Memory
    ) -> tuple[Scalar, Memory]:
        return self.gain, memory


@part
class Switching:
    """An average that switches itself off while the model still travels (11, 14).

    Attributes:
        rate: how fast, in the logarithm of the share δ by which it follows.
    """

    rate: Traced[Scalar] = traced(default=0.2, at_least=0.0)

    def start(self, model: Vector) -> dict[str, Array]:
        return {"share": jnp.float32(0.5), "rounds": jnp.float32(0.0)}

    def __call__(self, y: Vector, ahead: Vector, memory: Memory) -> tuple[Scalar, dict[str, Array]]:
        rounds = memory["rounds"] + 1.0
        share = memory["share"] * jnp.exp(self.rate * (alike(y, ahead) - 0.5))
        share = share.clip(jnp.minimum(3.0 / (rounds + 2.0), 1.0), 1.0)
        return share, {"share": share, "rounds": rounds}


@part
class Last:
    """The output is the last model."""

    def start(self, model: Vector) -> None:
        return None

    def __call__(self, y: Vector, ahead: Vector, memory: Memory) -> tuple[Scalar, Memory]:
        return jnp.float32(1.0), memory


@part
class Innovations:
    """The server follows the innovation y, what it received beyond its model, by a gain.

    Attributes:
        gain: how far, `Whitening()`.
        average: how far the output follows, `Switching()`.

    It answers the level τ to `Clipped` (8), and broadcasts y and how far it is to be trusted, λ, to
    `PathCorrectedSGD` (10), which reports the norms that it needs.
    """

    gain: Gain = Whitening()
    average: Average = Switching()

    def start(self, model: Vector) -> dict[str, Any]:
        return {
            "y": jnp.zeros_like(model),
            "trust": jnp.float32(0.0),
            "output": model,
            "gain": self.gain.start(model),
            "average": self.average.start(model),
        }

    def answer(
        self, memory: Memory, reports: dict[str, Float[Array, "user"]], noise: Scalar, link: Link
    ) -> dict[str, Scalar]:
        """The level: of 20, that of the least cut and noise."""
        if "size" not in reports:
            return {}
        size, heard = reports["size"], link.heard > 0
        least, most = jnp.where(heard, size, jnp.inf).min(), jnp.where(heard, size, 0.0).max()
        levels = jnp.linspace(jnp.minimum(least, most), most, 20)
        cut = jax.vmap(lambda level: link.mean(jnp.maximum(size - level, 0.0)))(levels)
        spread = memory["y"].size * noise / (link.count * link.floor) ** 2
        return {"level": levels[jnp.argmin(cut**2 + spread * levels**2)]}

    def __call__(self, seen: Aggregate, state: State) -> tuple[Vector, dict[str, Any]]:
        old, y = state.server, seen.estimate - state.model
        if "norm" not in seen.side.reports:
            raise InputError(
                "algorithm.local must report norms to jo.Innovations, as jo.PathCorrectedSGD(...) "
                "does"
            )
        norms, noise = seen.side.reports["norm"], y.size * seen.deviation**2
        apart = seen.link.mean(norms**2) - jnp.maximum(jnp.sum(y**2) - noise, 0.0)
        gain, followed = self.gain(y, seen.link.mean(norms), noise, old["gain"])
        share, averaged = self.average(y, state.model - old["output"], old["average"])
        model = state.model + gain * y  # (15)
        return model, {
            "y": y,
            "trust": _share(jnp.maximum(apart, 0.0), noise, nothing=0.0),
            "output": old["output"] + share * (model - old["output"]),
            "gain": followed,
            "average": averaged,
        }

    def output(self, model: Vector, memory: Memory) -> Vector:
        return memory["output"]


def alike(a: Vector, b: Vector) -> Scalar:
    """Z = tanh(½√d·cos(a, b)), 0 where one of them is 0 (11)."""
    both = jnp.linalg.norm(a) * jnp.linalg.norm(b)
    cosine = jnp.where(both > 0, jnp.vdot(a, b) / jnp.where(both > 0, both, 1.0), 0.0)
    return jnp.tanh(0.5 * a.size**0.5 * cosine)


def _share(signal: Scalar, noise: Scalar, nothing: float) -> Scalar:
    """signal/(signal + noise), `nothing` where both are 0."""
    both = signal + noise
    return jnp.where(both > 0, signal / jnp.where(both > 0, both, 1.0), nothing)
