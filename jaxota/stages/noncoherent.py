"""Transmission without phases: votes and histograms, by the energy in bins or by coherent sums."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import prng
from jaxota._core.part import Memory, PerUser, Scalar, Traced, Vector, Vectors, part, static, traced
from jaxota.stages.answers import Link
from jaxota.stages.channel import Block, Carrier
from jaxota.stages.compress import Compressor, Received, SideInfo, Symbols, Uncompressed
from jaxota.stages.local import no_memory


@part
class EnergyCarrier:
    """A channel whose server measures the energy of each complex symbol.

    Attributes:
        channel: the channel, which fades and adds up.
    """

    channel: Any

    reals = 2  # real symbols in a symbol

    def __getattr__(self, name: str) -> Any:  # everything else is the channel's
        return getattr(self.channel, name)

    def carry(
        self,
        key: PRNGKeyArray,
        sent: Block,
        energy: Float[Array, "*user"],
        noise: Scalar | None,
        link: Link,
    ) -> tuple[Float[Array, "s"], Scalar, PerUser]:
        """Return (|Σ_i h_i e^{jφ} x_i + w|² − σ²)/n of each symbol, in units of full power."""
        users, count = sent.values.shape
        symbols, k_phase = link.by_symbol(count), prng.fold_in(key, 1)
        angles = 2.0 * jnp.pi * prng.uniform(k_phase, (users, count))
        scale = jnp.sqrt(jnp.min(energy) / energy)  # of users who spend less
        amplitude = symbols.heard * symbols.gain * sent.values
        amplitude = amplitude * jnp.broadcast_to(scale, (users,))[:, None]
        pair = jnp.stack([(amplitude * wave(angles)).sum(0) for wave in (jnp.cos, jnp.sin)])
        spread = jnp.zeros(count) if noise is None else noise * jnp.min(energy) / symbols.floor**2
        pair += jnp.sqrt(spread)[None] * self.channel.noise.draw(key, (2, count))
        number = link.count
        received = (jnp.sum(pair**2, 0) - 2.0 * spread) / number
        # The energy of noise alone has a standard deviation as large as its mean.
        deviation = 2.0 * jnp.mean(spread) / number
        spent = jnp.sum(symbols.heard * symbols.amplification * sent.values**2, 1)
        return received, deviation, jnp.where(spent == 0, 0.0, spent / energy)


@part
class EnergyDetection:
    """Users reach a server that measures energies: no phase is known, or corrected, by anyone.

    Every symbol is complex, with noise of variance sw2 on either part, and counts as two real ones.
    Users send at phases of their own, drawn anew for each symbol, and need no channel knowledge:
    under fading, `PhaseOnly()` stands for that. What is received of symbols 0 and 1 is on average
    the share of users who send 1. For `FrequencyShift` and `TypeBased`.
    """

    def __call__(self, channel: Carrier) -> EnergyCarrier:
        return EnergyCarrier(channel)


@part
class FrequencyShift:
    """Majority votes by frequency-shift keying, FSK-MV (Şahin, 2023).

    "Distributed learning over a wireless network with non-coherent majority vote computation". The
    sign of each coordinate switches on one of two symbols, and the server steps towards the one
    with more energy. Under Rayleigh fading k of N users win with probability (Ek + σ²)/(EN + 2σ²),
    E and σ² the energies of a symbol and of its noise: many users do not make a vote sure.

    Attributes:
        step: the length of the server's step on each coordinate.
    """

    step: Traced[Scalar] = traced(above=0.0)

    white = averages = False
    start, report, remember = no_memory, Compressor.report, Uncompressed.remember

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        bins = jnp.concatenate([values > 0, values < 0], 1)
        return bins.astype("float32"), memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        return self.step * jnp.sign(received[:dim] - received[dim:]), deviation


@part
class TypeBased:
    """Histograms of users' values: type-based multiple access (Mergen & Tong, 2006).

    "Type based estimation over multiaccess channels". Each coordinate has a symbol for each of a
    few levels, and a user switches on that of the level next to its value. The server receives the
    share of users at each level, and takes their mean or their median. Levels span the largest
    value, which users report.

    Attributes:
        levels: number of levels, and of symbols for each coordinate.
        of: "mean" or "median", of which the lower is taken between two.
    """

    levels: int = static(at_least=2)
    of: str = static(default="mean", one_of=("mean", "median"))

    white, replace = False, dataclasses.replace
    start, remember = no_memory, Uncompressed.remember

    @property
    def averages(self) -> bool:
        return self.of == "mean"

    def report(self, values: Vectors, memory: Memory) -> dict[str, PerUser]:
        return {"largest": jnp.abs(values).max(1)}

    def grid(self, side: SideInfo) -> Float[Array, "level"]:
        return side.reports["largest"].max() * jnp.linspace(-1.0, 1.0, self.levels)

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        away = jnp.abs(values[:, :, None] - self.grid(side)[None, None])
        nearest = jnp.argmin(away, 2)[:, :, None] == jnp.arange(self.levels)[None, None]
        return nearest.reshape(len(values), -1).astype("float32"), memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        shares, grid = received.reshape(dim, self.levels), self.grid(side)
        deviation = deviation * jnp.sqrt(jnp.sum(grid**2))
        if self.of == "mean":
            return shares @ grid, deviation
        below = jnp.cumsum(jnp.maximum(shares, 0.0), 1)  # noise makes negative shares
        half = 0.499999 * below[:, -1:]  # a half of all shares, less rounding
        return jnp.where(half[:, 0] > 0, grid[jnp.argmax(below >= half, 1)], 0.0), deviation
