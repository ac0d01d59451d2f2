"""At the server: from the noisy average to an estimate of the average.

An estimator sees what was received [d] (the average of the values, plus noise), the standard
deviation √ν of that noise, the block it came from, the link and what it remembers of the rounds
before (`start` is what it knows before the first). Without noise every estimator is the identity.
`needs` names what it reads of the plan, and `spread` is the prior variance s² it reckons with.
"""

from typing import TYPE_CHECKING, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core.part import Memory, Scalar, Vector, part
from jaxota._core.state import Moments
from jaxota.errors import InputError
from jaxota.stages.channel import Block, Link

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


class Estimator(Protocol):
    """At the server: the average from the noisy one. `Identity`, `MMSE`, `JamesStein`, …"""

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of `Moments` that it reads of the plan."""

    def start(self, dim: int) -> Memory:
        """Memory of one block before round 1; see `no_memory`."""

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        """The estimate [d], `block.origin` included, and memory."""


def no_memory(self: object, dim: int) -> Memory:
    """An estimator's `start`: it remembers nothing.

    Args:
        self: the estimator, as it is one of its methods.
        dim: d.
    """
    return None


def _any_average(self: object, moments: Moments, count: Scalar) -> Scalar:
    """The `spread` of an estimator without a prior."""
    return jnp.float32(jnp.inf)


def _gaussian_alone(self: object, path: str, setting: "Setting") -> None:
    """The `check` of an estimator whose formula is that of white Gaussian noise."""
    name, (algorithm, channel) = type(self).__name__, setting[:2]
    if not channel.noise.gaussian:
        raise InputError(
            f"{path} must be one such as jo.Identity() over {type(channel.noise).__name__} noise: "
            f"{name} is for Gaussian noise alone"
        )
    if not algorithm.compress.white:
        raise InputError(
            f"{path} must be one such as jo.Identity() with {type(algorithm.compress).__name__}, "
            f"which leaves no white noise: {name} is for such alone"
        )


@part
class Identity:
    """What was received, as it is."""

    needs = ()
    start, spread = no_memory, _any_average

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        return block.origin + received, memory


@part
class MMSE:
    """Conditional mean under the plan's prior, users independent; eq. MSE_Solution."""

    needs = ("mean", "var")
    start, check = no_memory, _gaussian_alone

    def spread(self, moments: Moments, count: Scalar) -> Scalar:
        return moments.var.mean() / count

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        mean, spread = _of_average(block.moments.mean, block.moments.var, link)
        return _conditional_mean(block.origin + received, deviation, mean, spread), memory


@part
class ReportedMMSE:
    """MMSE with the moments that users measure on their own θ_i and c_i and report, coded."""

    needs = ()
    reports = 2  # the mean and the variance
    start, spread, check = no_memory, _any_average, _gaussian_alone

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        mean, spread = _of_average(block.held.mean(-1), block.held.var(-1), link)
        return _conditional_mean(block.origin + received, deviation, mean, spread), memory


@part
class PooledMMSE:
    """MMSE with the plan's moments of the average itself: correlation between users is kept.

    Of the covariances the plan knows their sum alone, so that users heard take the mean one: with
    all of N users heard, s² is the average's own variance, with a single one that user's own.
    """

    needs = ("mean", "var", "average_mean", "average_var")
    start, check = no_memory, _gaussian_alone

    def spread(self, moments: Moments, count: Scalar) -> Scalar:
        return _of_some(moments, moments.var.mean(), count)

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        moments = block.moments
        assert moments.average_mean is not None  # it is among `needs`
        # Written as a difference: with everyone heard it is the average's own mean.
        mean = moments.average_mean + link.mean(moments.mean) - moments.mean.mean()
        spread = _of_some(moments, link.mean(moments.var), link.count)
        return _conditional_mean(block.origin + received, deviation, mean, spread), memory


@part
class JamesStein:
    """Positive-part shrinkage of the update (or control) to zero: no prior, no calibration."""

    needs = ()
    start, spread, check = no_memory, _any_average, _gaussian_alone

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        ratio = received / jnp.where(deviation > 0, deviation, 1.0)
        shrink = max(received.size - 2, 0) / jnp.sum(ratio**2)
        factor = jnp.maximum(0.0, 1.0 - shrink) if received.size > 2 else 1.0
        return block.origin + jnp.where(deviation > 0, factor, 1.0) * received, memory


def _of_average(
    means: Float[Array, "user"], variances: Float[Array, "user"], link: Link
) -> tuple[Scalar, Scalar]:
    """μ and s² of the average of independent users from their own moments."""
    return link.mean(means), link.mean(variances) / link.count


def _of_some(moments: Moments, own: Scalar, count: Scalar) -> Scalar:
    """s² of the average of `count` users of mean variance `own`, any two of them correlated alike.

    Σ_ij C_ij = N²·s_N² gives the mean covariance of two users, and (own + (n − 1)·C)/n is s².
    """
    users, whole = moments.var.size, moments.average_var
    assert whole is not None  # it is among `needs`
    shared = (users * whole - moments.var.mean()) / max(users - 1, 1)
    some = jnp.maximum((own + (count - 1.0) * shared) / count, 0.0)
    return jnp.where((count == users) | jnp.isinf(whole), whole, some)


def _conditional_mean(seen: Vector, deviation: Scalar, mean: Scalar, spread: Scalar) -> Vector:
    """E[x | x + noise = seen] for x ~ N(mean, spread), for ν of any size and s² from 0 to ∞."""
    gain = 1.0 / (1.0 + (deviation / jnp.sqrt(spread)) ** 2)
    exact = (deviation == 0) | (gain == 1)  # also where ν = s² = 0
    return jnp.where(exact, seen, mean + gain * (seen - mean))
