"""Laws of the channel's noise beside `Gaussian`: interference with heavier tails."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import prng
from jaxota._core.part import Scalar, Traced, part, traced


@part
class Laplace:
    """Laplace noise, of exponential tails and variance 1."""

    gaussian = False

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        # Half the squared radius of two normals is exponential; the difference of two is Laplace.
        normal = prng.normal(key, (4, *shape)) ** 2
        return (normal[0] + normal[1] - normal[2] - normal[3]) / jnp.sqrt(jnp.float32(8.0))


@part
class Stable:
    """Symmetric α-stable interference, of infinite variance for α < 2.

    The characteristic function of the noise on a coordinate is exp(−|γt|^α) with γ² = sw2/2, so
    that α = 2 is Gaussian noise of variance sw2. For α < 2 the variance is infinite: `snr_db` is
    P/(2γ²), and `history.deviation` is √2 times the scale of the noise on the average.

    Attributes:
        alpha: α, the tail index: |noise| exceeds x with probability of order x^−α.
    """

    alpha: Traced[Scalar] = traced(at_least=0.5, at_most=2.0)

    gaussian, finite_variance = False, False

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        # Chambers, Mallows and Stuck (1976), from angle and radius of a pair of normals. The first
        # ones are the numbers that `Gaussian` draws, and all that counts where α = 2.
        first, second = prng.normal(key, (2, *shape))
        exponential = 0.5 * (first**2 + second**2)
        angle = jnp.arctan2(first, jnp.abs(second))
        cosine = jnp.abs(second) / jnp.sqrt(2.0 * exponential)
        inverse = 1.0 / self.alpha
        tail = (jnp.cos((1.0 - self.alpha) * angle) / exponential) ** (inverse - 1.0)
        return jnp.sin(self.alpha * angle) / cosine**inverse * tail / jnp.sqrt(jnp.float32(2.0))
