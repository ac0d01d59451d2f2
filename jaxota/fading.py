"""Block fading: what the air does to each user's signal in a round, and who is heard after it.

Every law draws complex gains h e^{jφ} with E[h²] = 1, fresh each round, for the model block and
independently for the control block. Users know an estimate ĥ of theirs; those above the threshold
invert it and transmit, the paper's section IV-D. Complex numbers are kept as pairs of real ones,
[2, …], which every platform computes alike.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxota.errors import InputError
from jaxota.types import Array, part, traced


@part
class Rayleigh:
    """Scattering alone: h e^{jφ} ~ CN(0, 1)."""

    correlation: Array = traced(0.0, at_least=0.0, below=1.0)

    def start(self, key, users: int) -> Array:
        """The scattered component before round 1 [2, block, user], stationary."""
        return _circular(key, (2, 2, users))

    def draw(self, key, fresh: Array, memory: Array):
        """This round's gains [2, block, user] and what the next round remembers."""
        rho = self.correlation
        scatter = rho * memory + jnp.sqrt(1.0 - rho**2) * fresh
        return scatter, scatter


@part
class Rician:
    """A line of sight of power K/(K+1) and scattering of power 1/(K+1)."""

    k_factor: Array = traced(at_least=0.0, infinite=True)
    correlation: Array = traced(0.0, at_least=0.0, below=1.0)

    start = Rayleigh.start

    def draw(self, key, fresh: Array, memory: Array):
        scatter, memory = Rayleigh.draw(self, key, fresh, memory)
        sight = jnp.sqrt(1.0 / (1.0 + 1.0 / self.k_factor))  # exact for K = 0 and K = ∞ too
        return (scatter / jnp.sqrt(1.0 + self.k_factor)).at[0].add(sight), memory


@part
class Nakagami:
    """h² ~ Gamma(m, 1/m), uniform phase; independent between rounds."""

    m: Array = traced(at_least=0.5)

    def start(self, key, users: int):
        return ()

    def draw(self, key, fresh: Array, memory):
        power = jax.random.gamma(key, self.m, fresh.shape[1:], "float32") / self.m
        return fresh * jnp.sqrt(power / jnp.sum(fresh**2, 0))[None], ()


@part
class Fading:
    """A law of fading, and how users answer it: truncated inversion of what they know of it."""

    law: Rayleigh | Rician | Nakagami
    threshold: Array = traced(0.3, above=0.0)
    control_threshold: Array = traced(0.3, above=0.0)
    csi_error: Array = traced(0.0, at_least=0.0)

    def start(self, key, users: int):
        return self.law.start(key, users)

    def draw(self, keys, amplitudes: Array, memory):
        """True and estimated gains [2, block, user] of a round, scaled by `amplitudes` [user]."""
        k_normal, k_law = keys
        fresh = _circular(k_normal, (4, 2, amplitudes.size))
        gains, memory = self.law.draw(k_law, fresh[:2], memory)
        gains = amplitudes[None, None] * gains
        return gains, gains + jnp.sqrt(self.csi_error) * fresh[2:], memory


def rayleigh(threshold=0.3, control_threshold=0.3, csi_error=0.0, correlation=0.0) -> Fading:
    """Rayleigh fading: h is heard above `threshold` with probability exp(−threshold²)."""
    return Fading(Rayleigh(correlation), threshold, control_threshold, csi_error)


def rician(
    k_factor, threshold=0.3, control_threshold=0.3, csi_error=0.0, correlation=0.0
) -> Fading:
    """Rician fading with linear K-factor: 0 is Rayleigh, infinity is no fading."""
    return Fading(Rician(k_factor, correlation), threshold, control_threshold, csi_error)


def nakagami(m, threshold=0.3, control_threshold=0.3, csi_error=0.0, correlation=0.0) -> Fading:
    """Nakagami-m fading: m = 1 is Rayleigh. It has no correlation between rounds."""
    if np.any(np.asarray(correlation) != 0):
        raise InputError(f"correlation must be 0 with Nakagami fading, got {correlation!r}")
    return Fading(Nakagami(m), threshold, control_threshold, csi_error)


def _circular(key, shape) -> Array:
    """Circular complex Gaussians of variance 1: each of their two parts has variance 1/2."""
    return jax.random.normal(key, shape, "float32") * jnp.float32(0.5**0.5)
