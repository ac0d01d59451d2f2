"""At the server: it follows the innovation, what it received beyond its model, by a gain.

The gain whitens innovations: at Kalman's gain, and at no other, successive ones are uncorrelated.
Numbers in brackets are the steps of WISE in docs/wise.md.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core.part import Memory, Scalar, Traced, Vector, part, traced
from jaxota._core.state import State
from jaxota.errors import InputError
from jaxota.stages.fading import Link
from jaxota.stages.server import Aggregate


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
