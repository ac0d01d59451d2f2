"""Estimators, at the server: from the noisy average to an estimate of the average.

Without noise every estimator is the identity.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax.numpy as jnp

from jaxota._core.part import Memory, PerUser, Scalar, Vector, optional, part
from jaxota._core.state import Moments
from jaxota.errors import InputError
from jaxota.stages.answers import Link
from jaxota.stages.channel import Block
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


class Estimator(Protocol):
    """The server's estimate of the average, such as `Identity`, `MMSE` or `JamesStein`.

    An estimator that needs scalars from the users may count them in `reports`, for the ledger. One
    that is affine in what it receives may say so to `exact` by `affine(deviation, block, link)`.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of `Moments` that the estimator reads from the plan."""

    @optional
    def start(self, dim: int) -> Memory:
        """Return the memory of one block before round 1; by default none."""
        return None

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        """Return the estimate [d], `block.origin` included, and memory.

        `received` [d] is the average of the values plus noise of standard deviation √ν.
        """


class Affine(NamedTuple):
    """An estimate keep·origin + gain·received + offset, for `exact`."""

    keep: Scalar
    gain: Scalar
    offset: Scalar


def _flat_prior(self: object, moments: Moments, count: Scalar) -> Scalar:
    """Return an infinite variance: the `spread` of an estimator without a prior."""
    return jnp.float32(jnp.inf)


def _check_noise(self: object, path: str, setting: "Setting") -> None:
    """Refuse noise that is not white Gaussian: the `check` of an estimator derived for that."""
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


def _conditional_mean(
    self: Any, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
) -> tuple[Vector, Memory]:
    """Return E[x | x + noise] for x ~ N(mean, s²) of `self.prior`: the call of MMSE estimators."""
    return _shrunk(block.origin + received, deviation, *self.prior(block, link)), memory


def _shrunk(seen: Vector, deviation: Scalar, mean: Scalar, var: Scalar) -> Vector:
    """Return the conditional mean of a vector of prior N(mean, var), seen with noise."""
    gain = _shrinkage(deviation, var)
    # Where gain is 1, mean + (seen − mean) would lose digits of `seen`; where ν = s² = 0 the ratio
    # above is NaN.
    exact = (deviation == 0) | (gain == 1)
    return jnp.where(exact, seen, mean + gain * (seen - mean))


def _shrinkage(deviation: Scalar, var: Scalar) -> Scalar:
    """Return s²/(s² + ν)."""
    # As 1/(1 + ν/s²): right for s² = ∞ too, and ν itself, which may overflow, is not formed.
    return 1.0 / (1.0 + (deviation / jnp.sqrt(var)) ** 2)


def _affine_mean(self: Any, deviation: Scalar, block: Block, link: Link) -> Affine:
    """Return the conditional mean as an affine map."""
    mean, var = self.prior(block, link)
    gain = jnp.where(deviation == 0, 1.0, _shrinkage(deviation, var))
    return Affine(gain, gain, (1.0 - gain) * mean)


@part
class Identity:
    """The received average, as it is."""

    needs = ()
    cohorts = True
    start, spread = no_memory, _flat_prior

    def affine(self, deviation: Scalar, block: Block, link: Link) -> Affine:
        return Affine(jnp.float32(1.0), jnp.float32(1.0), jnp.float32(0.0))

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        return block.origin + received, memory


@part
class MMSE:
    """Conditional mean under the plan's prior, users independent; eq. MSE_Solution."""

    needs = ("mean", "var")
    cohorts = True
    start, check, __call__ = no_memory, _check_noise, _conditional_mean
    affine = _affine_mean

    def spread(self, moments: Moments, count: Scalar) -> Scalar:
        return moments.var.mean() / count

    def prior(self, block: Block, link: Link) -> tuple[Scalar, Scalar]:
        return _average_of_independent(block.moments.mean, block.moments.var, link)


@part
class UpdateMMSE:
    """MMSE with the plan's prior on the users' updates Δ_i in place of their weights θ_i.

    The estimate shrinks the received update to the prior's mean, and adds the broadcast model. The
    paper puts its prior on the weights; controls have the prior of `MMSE`.
    """

    needs = ("sent_mean", "sent_var")
    cohorts = True
    start, check = no_memory, _check_noise

    def spread(self, moments: Moments, count: Scalar) -> Scalar:
        assert moments.sent_var is not None  # it is among `needs`
        return moments.sent_var.mean() / count

    def prior(self, block: Block, link: Link) -> tuple[Scalar, Scalar]:
        mean, var = block.moments.sent_mean, block.moments.sent_var
        assert mean is not None and var is not None  # they are among `needs`
        return _average_of_independent(mean, var, link)

    def affine(self, deviation: Scalar, block: Block, link: Link) -> Affine:
        return _affine_mean(self, deviation, block, link)._replace(keep=jnp.float32(1.0))

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        update = _shrunk(received, deviation, *self.prior(block, link))
        return block.origin + update, memory


@part
class ReportedMMSE:
    """MMSE with moments that users measure on their own θ_i and c_i and report, coded."""

    needs = ()
    cohorts = True
    reports = 2  # the mean and the variance
    start, check, __call__ = no_memory, _check_noise, _conditional_mean
    spread = _flat_prior

    def prior(self, block: Block, link: Link) -> tuple[Scalar, Scalar]:
        return _average_of_independent(block.held.mean(-1), block.held.var(-1), link)


@part
class PooledMMSE:
    """MMSE with the plan's moments of the average itself, which include correlation of users.

    Of the covariances the plan holds only their sum, so any two users heard are taken to have the
    mean covariance: s² is the average's own variance where all N users are heard, and a user's own
    variance where that user alone is.
    """

    needs = ("mean", "var", "average_mean", "average_var")
    start, check, __call__ = no_memory, _check_noise, _conditional_mean
    affine = _affine_mean

    def spread(self, moments: Moments, count: Scalar) -> Scalar:
        return _average_of_correlated(moments, moments.var.mean(), count)

    def prior(self, block: Block, link: Link) -> tuple[Scalar, Scalar]:
        moments = block.moments
        assert moments.average_mean is not None  # it is among `needs`
        # Written as a difference: with all users heard it is exactly the average's own mean.
        mean = moments.average_mean + link.mean(moments.mean) - moments.mean.mean()
        return mean, _average_of_correlated(moments, link.mean(moments.var), link.count)


@part
class JamesStein:
    """Positive-part James-Stein shrinkage of the update (or control) to zero: no prior, no plan.

    For d ≥ 3 and Gaussian noise of known variance, its expected squared error is below that of
    `Identity`.
    """

    needs = ()
    cohorts = True
    start, spread, check = no_memory, _flat_prior, _check_noise

    def __call__(
        self, received: Vector, deviation: Scalar, block: Block, link: Link, memory: Memory
    ) -> tuple[Vector, Memory]:
        # Divided before it is squared: ν and ‖received‖² may each overflow where their ratio
        # does not.
        ratio = received / jnp.where(deviation > 0, deviation, 1.0)
        shrink = max(received.size - 2, 0) / jnp.sum(ratio**2)
        factor = jnp.maximum(0.0, 1.0 - shrink) if received.size > 2 else 1.0
        return block.origin + jnp.where(deviation > 0, factor, 1.0) * received, memory


def _average_of_independent(
    means: PerUser, variances: PerUser, link: Link
) -> tuple[Scalar, Scalar]:
    """Return mean and variance of the average of the users heard, taken to be independent."""
    return link.mean(means), link.mean(variances) / link.count


def _average_of_correlated(moments: Moments, own: Scalar, count: Scalar) -> Scalar:
    """Return the variance of the average of `count` users of mean variance `own`.

    Σ_ij C_ij = N²·s_N² gives the mean covariance C of two users; s² = (own + (n − 1)·C)/n.
    """
    users, of_all = moments.var.size, moments.average_var
    assert of_all is not None  # it is among `needs`
    covariance = (users * of_all - moments.var.mean()) / max(users - 1, 1)
    # Estimated covariances may be negative enough to make s² so.
    var = jnp.maximum((own + (count - 1.0) * covariance) / count, 0.0)
    # An infinite variance, a flat prior, would give ∞ − ∞ above.
    return jnp.where((count == users) | jnp.isinf(of_all), of_all, var)
