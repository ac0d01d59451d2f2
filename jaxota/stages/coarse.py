"""Compressors that send fewer or coarser numbers: the largest ones, signs, random projections."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core import prng
from jaxota._core.part import (
    Memory,
    PerUser,
    Scalar,
    Traced,
    Vector,
    Vectors,
    part,
    static,
    traced,
)
from jaxota.errors import InputError
from jaxota.stages.answers import Link
from jaxota.stages.compress import Compressor, Received, SideInfo, Symbols, Uncompressed
from jaxota.stages.local import no_memory

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


@part
class TopK:
    """Only the largest coordinates are sent, with error feedback (Stich et al., 2018).

    "Sparsified SGD with memory". Users choose coordinates of their own, so that the air still
    carries d symbols; the power goes to fewer of them. A user who was not heard keeps all it had.

    Attributes:
        share: the share of the d coordinates that a user sends, rounded to a number k of at least
            one; 1 is no compression.
    """

    share: Traced[Scalar] = traced(above=0.0, at_most=1.0)

    white = True
    report, decode = Compressor.report, Uncompressed.decode

    def start(self, users: int, dim: int) -> Memory:
        return jnp.zeros((users, dim), "float32")

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        total = values + memory
        # By ranks and not by a threshold: equal coordinates would all pass it.
        ranks = jnp.argsort(jnp.argsort(-jnp.abs(total), -1), -1)
        sent = jnp.where(
            ranks < jnp.maximum(jnp.round(self.share * values.shape[1]), 1), total, 0.0
        )
        return sent, (sent, total)

    def remember(self, before: Memory, after: Memory, heard: PerUser) -> Memory:
        sent, total = after
        return total - jnp.where(heard[:, None] > 0, sent, 0.0)


@part
class OneBit:
    """Users vote by signs, the server follows the majority: OBDA (Zhu et al., 2021).

    "One-bit over-the-air aggregation for communication-efficient federated edge learning". The
    server takes the sign of each coordinate that it receives. A coordinate that is exactly 0 casts
    no vote.

    Attributes:
        step: the length of the server's step on each coordinate.
    """

    step: Traced[Scalar] = traced(above=0.0)

    white = averages = False
    cohorts = True
    start, report, remember = no_memory, Compressor.report, Uncompressed.remember

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        return jnp.sign(values), memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        return self.step * jnp.sign(received), deviation


@part
class Directions:
    """Projections on random directions that users and server share, as in zeroth-order methods.

    Users send uᵀΔ_i for each of a few Gaussian directions u, drawn anew in each round, and the
    server returns Σ u·(mean uᵀΔ_i)/count, whose expectation is the mean update. With one step along
    the full gradient, uᵀΔ_i is the limit of the loss differences that FedZO sends (Fang et al.,
    2022, "Communication-efficient stochastic zeroth-order optimization for federated learning").

    Attributes:
        count: number of directions, which is the number of symbols.
    """

    count: int = static(at_least=1)

    white = False
    cohorts = True
    start, report, remember = no_memory, Compressor.report, Uncompressed.remember

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        return values @ projection(side, self.count, values.shape[1]).T, memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        return received @ projection(side, self.count, dim), deviation


@part
class Projected:
    """Sparse updates in few symbols, recovered by message passing: A-DSGD (Amiri & Gündüz, 2020).

    "Machine learning at the wireless edge: distributed stochastic gradient descent over-the-air".
    A user's largest coordinates, with error feedback, are projected by a random matrix that all
    share, drawn anew in each round. One more symbol carries the scale: with `FullPower` every user
    spends the whole budget, and the server receives the average weighted by the users' gains √α_i.

    Attributes:
        symbols: number of symbols, the one for the scale included.
        share: the share of the d coordinates that a user keeps, as of `TopK`.
        scale: the size of the symbol for the scale, in the units of updates; the paper's is 1.
        threshold: factor of the residual's deviation in the server's soft threshold.
        iterations: of approximate message passing.
    """

    symbols: int = static(at_least=2)
    share: Traced[Scalar] = traced(above=0.0, at_most=1.0)
    scale: Traced[Scalar] = traced(default=1.0, above=0.0)
    threshold: Traced[Scalar] = traced(default=1.5, above=0.0)
    iterations: int = static(default=20, at_least=1)

    white, replace = False, dataclasses.replace
    start, report, remember = TopK.start, Compressor.report, TopK.remember

    def encode(self, values: Vectors, memory: Memory, side: SideInfo) -> tuple[Symbols, Memory]:
        sparse, memory = TopK.encode(self, values, memory, side)  # type: ignore[arg-type]
        projected = sparse @ projection(side, self.symbols - 1, values.shape[1]).T
        scale = jnp.broadcast_to(self.scale, (len(values), 1))
        return jnp.concatenate([projected, scale], 1), memory

    def decode(
        self, received: Received, deviation: Scalar, link: Link, side: SideInfo, dim: int
    ) -> tuple[Vector, Scalar]:
        # The server knows the users' gains by this one noisy symbol alone.
        scale = jnp.where(received[-1] == 0, 1.0, received[-1])  # 0 where nobody is heard
        received = received[:-1] * (self.scale / scale)
        matrix = projection(side, self.symbols - 1, dim)
        return message_passing(received, matrix, self.threshold, self.iterations)

    def check(self, path: str, setting: "Setting") -> None:
        if self.symbols > setting.task.dim + 1:
            raise InputError(
                f"{path}.symbols must be at most {setting.task.dim + 1}, one more than the model's "
                f"parameters, got {self.symbols}"
            )


def projection(side: SideInfo, symbols: int, dim: int) -> Float[Array, "s d"]:
    """Return the round's shared random matrix [s, d], of independent entries N(0, 1/s)."""
    assert side.key is not None  # a round's side information has one
    return prng.normal(side.key, (symbols, dim)) / math.sqrt(symbols)


def message_passing(
    received: Received, matrix: Float[Array, "s d"], threshold: Scalar, iterations: int
) -> tuple[Vector, Scalar]:
    """Recover a sparse x from matrix·x + noise by approximate message passing.

    Donoho, Maleki and Montanari, 2009: "Message-passing algorithms for compressed sensing".

    Args:
        received: [s] noisy projections.
        matrix: [s, d] with independent entries N(0, 1/s).
        threshold: factor of the residual's deviation in the soft threshold.
        iterations: number of iterations.

    Returns:
        x [d], and the deviation [] of the noise that the last threshold removed.
    """
    symbols, dim = matrix.shape

    def step(carry: tuple[Vector, Any], _: None) -> tuple[tuple[Vector, Any], Scalar]:
        x, residual = carry
        deviation = jnp.sqrt(jnp.mean(residual**2))
        seen = x + residual @ matrix
        x = jnp.sign(seen) * jnp.maximum(jnp.abs(seen) - threshold * deviation, 0.0)
        # Onsager's term: without it, errors of iterations add up, and this is plain thresholding.
        memory = residual * (jnp.sum(x != 0) / symbols)
        return (x, received - matrix @ x + memory), deviation

    start = jnp.zeros(dim, "float32"), received
    (x, _), deviations = jax.lax.scan(step, start, None, iterations)
    return x, deviations[-1]
