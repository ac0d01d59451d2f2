"""What each stage of a round offers: protocols for parts of your own.

A part is a class decorated with `@jo.part` that has these members; nothing need be inherited. Its
fields are declared with `jo.traced()` if they multiply, and with `jo.static()` if they count or
choose. It may also offer `check(path, setting)`, called before anything runs, to raise
`jo.InputError` where the algorithm, channel and task of `setting` do not go with it.

Everything is written for one trial, without batch axes, and must be pure: `jax.vmap` runs trials
and settings, `jax.lax.scan` rounds. Memory is any pytree of arrays, the same shapes in every round,
`()` for none; of a user's memory every array begins with the axis [user].

`jaxota.theory` asks a little more of what it is to speak of: `step_size` and `batch` of the local
rule, `floors` (h_min and ρ_min) of the answer to fading, and `spread(moments, count)` of the
estimator, the prior variance of the average of `count` users.
"""

from typing import Any, Protocol

from jaxota.channel import Block, Channel
from jaxota.compress import Side
from jaxota.fading import Link
from jaxota.local import Work
from jaxota.server import Aggregate
from jaxota.types import Array, State


class LocalRule(Protocol):
    """At each user: K steps, what is sent of them, what is remembered. `SGD`, `Controlled`."""

    controlled: bool  # whether it sends a second block, the controls
    steps: int  # K
    draws: int  # the most samples that a user draws at once
    reach: Array  # [] how far gradients of norm 1 carry an update, Kη

    def start(self, key, problem, model: Array) -> tuple[Any, Any]:
        """Before round 1: the broadcast control [d], or (), and the users' memory [user, …]."""

    def __call__(self, k_batch, k_control, problem, state: State) -> Work:
        """One round of all users from `state`, of which they hear what is broadcast."""

    def remember(self, before, after, heard: Array):
        """The users' memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""


class Compressor(Protocol):
    """At each user: what goes on the air in place of a vector. `Uncompressed`."""

    white: bool  # whether what is decoded carries the channel's noise on each coordinate, no more

    def start(self, users: int, dim: int):
        """Memory [user, …] before round 1."""

    def report(self, values: Array, memory) -> dict[str, Array]:
        """Coded scalars [user] for the server."""

    def encode(self, values: Array, memory, side: Side) -> tuple[Array, Any]:
        """`values` [user, d] → what is sent [user, s], and what is to be remembered."""

    def decode(self, received: Array, deviation: Array, link: Link, side: Side) -> Array:
        """The average [d] from what was received [s], noise of that `deviation` included."""

    def remember(self, before, after, heard: Array):
        """Memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""


class Precoder(Protocol):
    """At each user: the gain. `Offline`, `Online`, `Constant`, `Bounded`."""

    needs: tuple[str, ...]  # fields of `Moments` that it reads of the plan

    def energy(self, block: Block) -> Array:
        """The ‖·‖² that spends the whole budget, [] for all users or [user]."""


class Fades(Protocol):
    """In the air: the links of a round. `Fading`, made of a law and an answer to it."""

    def start(self, key, users: int):
        """Memory before round 1."""

    def links(self, keys, amplitudes: Array, memory, noise: Array) -> tuple[Link, Link, Any]:
        """The links of both blocks and memory; `amplitudes` [user], `noise` d·sw2/P."""


class Law(Protocol):
    """In the air: a law of fading. `Rayleigh`, `Rician`, `Nakagami` of `jaxota.fading`."""

    def start(self, key, shape: tuple[int, ...]):
        """Memory before round 1, for gains [2, *shape]."""

    def draw(self, key, fresh: Array, memory) -> tuple[Array, Any]:
        """Gains [2, *shape] of a round from circular Gaussians `fresh`, and memory."""


class Answer(Protocol):
    """At each user: what it does with what it knows of its channel. `Inversion`."""

    def __call__(self, block: int, gains: Array, estimates: Array, noise: Array) -> Link:
        """The link of block 0 (model) or 1 (controls), true and known gains [2, antenna, user];
        `noise` is d·sw2/P."""


class Noise(Protocol):
    """In the air: the law of the noise. `Gaussian`."""

    gaussian: bool  # estimators that reckon with Gaussian noise refuse others

    def draw(self, key, shape) -> Array:
        """Independent draws of variance 1."""


class Medium(Protocol):
    """How an algorithm's users reach the server: over the channel (`Air`), or not (`Wired`)."""

    def __call__(self, channel: Channel) -> Any:
        """What takes the channel's place."""


class Estimator(Protocol):
    """At the server: the average from the noisy one. `Identity`, `MMSE`, `JamesStein`, …"""

    needs: tuple[str, ...]  # fields of `Moments` that it reads of the plan

    def start(self, dim: int):
        """Memory of one block before round 1; see `no_memory`."""

    def __call__(self, received: Array, deviation: Array, block: Block, link: Link, memory):
        """The estimate [d], `block.origin` included, and memory."""


class Server(Protocol):
    """At the server: the next model. `Adopt`, `Optimizer`."""

    def start(self, model: Array):
        """Memory before round 1."""

    def answer(self, memory, reports: dict[str, Array], noise: Array, link: Link):
        """What users hear before they send; `noise` is sw2/P."""

    def __call__(self, seen: Aggregate, state: State) -> tuple[Array, Any]:
        """The next broadcast model [d], and memory."""

    def output(self, model: Array, memory) -> Array:
        """The model [d] that is scored and handed out."""
