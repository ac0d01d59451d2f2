"""What each stage of a round offers: protocols for parts of your own.

A part is a class decorated with `@jo.part` that has these members; nothing need be inherited.
`docs/parts.md` shows one of each kind. Its fields are declared with `jo.traced()` if they multiply,
and with `jo.static()` if they count or choose. It may also offer `check(path, setting)`, called
before anything runs, to raise `jo.InputError` where the algorithm, channel and task of `setting` do
not go with it.

Everything is written for one trial, without batch axes, and must be pure: `jax.vmap` runs trials
and settings, `jax.lax.scan` rounds. Memory is any pytree of arrays, the same shapes in every round,
`None` for none; of a user's memory every array begins with the axis [user].

A precoder or an estimator that stands on what users report over a coded link may say of how many
scalars, for the ledger: `reports = 1`, as `Online` does.

`jaxota.theory` asks a little more of what it is to speak of: `step_size` and `batch` of the local
rule, `floors` (h_min and ρ_min) of the answer to fading, and `spread(moments, count)` of the
estimator, the prior variance of the average of `count` users.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core.part import Memory, Scalar, Vector
from jaxota._core.state import State
from jaxota.stages.channel import Block
from jaxota.stages.compress import SideInfo
from jaxota.stages.fading import Link
from jaxota.stages.local import LocalUpdate
from jaxota.stages.server import Aggregate
from jaxota.tasks.problem import Problem as Problem
from jaxota.tasks.problem import Task as Task


class LocalRule(Protocol):
    """At each user: K steps, what is sent of them, what is remembered. `SGD`, `Proximal`, …"""

    @property
    def controlled(self) -> bool:
        """Whether it sends a second block, the controls."""

    @property
    def steps(self) -> int:
        """K."""

    @property
    def draws(self) -> int:
        """The most samples that a user draws at once."""

    @property
    def reach(self) -> Scalar:
        """How far gradients of norm 1 carry an update, Kη."""

    def start(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> tuple[Vector | None, Memory]:
        """Before round 1: the broadcast control [d], or (), and the users' memory [user, …]."""

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        """One round of all users from `state`, of which they hear what is broadcast."""

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """The users' memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""


class Compressor(Protocol):
    """At each user: what goes on the air in place of a vector. `Uncompressed`."""

    @property
    def white(self) -> bool:
        """Whether what is decoded carries the channel's noise on each coordinate, no more."""

    def start(self, users: int, dim: int) -> Memory:
        """Memory [user, …] before round 1."""

    def report(
        self, values: Float[Array, "user d"], memory: Memory
    ) -> dict[str, Float[Array, "user"]]:
        """Coded scalars [user] for the server."""

    def encode(
        self, values: Float[Array, "user d"], memory: Memory, side: SideInfo
    ) -> tuple[Float[Array, "user s"], Memory]:
        """`values` [user, d] → what is sent [user, s], and what is to be remembered."""

    def decode(
        self, received: Float[Array, "s"], deviation: Scalar, link: Link, side: SideInfo
    ) -> Vector:
        """The average [d] from what was received [s], noise of that `deviation` included."""

    def remember(self, before: Memory, after: Memory, heard: Float[Array, "user"]) -> Memory:
        """Memory [user, …] once it is known who was `heard` [user]; see `if_heard`."""


class Precoder(Protocol):
    """At each user: the gain. `Offline`, `Online`, `MeanPower`, `Constant`, `Bounded`, `Level`."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of `Moments` that it reads of the plan."""

    def energy(self, block: Block) -> Float[Array, "*user"]:
        """The ‖·‖² that spends the whole budget, [] for all users or [user]."""


class Fades(Protocol):
    """In the air: the links of a round. `Fading`, made of a law and an answer to it."""

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """Memory before round 1."""

    def links(
        self,
        keys: Sequence[PRNGKeyArray],
        amplitudes: Float[Array, "user"],
        memory: Memory,
        noise: Scalar,
    ) -> tuple[Link, Link, Memory]:
        """The links of both blocks and memory; `amplitudes` [user], `noise` d·sw2/P."""


class Law(Protocol):
    """In the air: a law of fading. `Rayleigh`, `Rician`, `Nakagami` of `jaxota.stages.fading`."""

    def start(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Memory:
        """Memory before round 1, for gains [2, *shape]."""

    def draw(
        self, key: PRNGKeyArray, fresh: Float[Array, "2 *shape"], memory: Memory
    ) -> tuple[Float[Array, "2 *shape"], Memory]:
        """Gains [2, *shape] of a round from circular Gaussians `fresh`, and memory."""


class Answer(Protocol):
    """At each user: what it does with what it knows of its channel. `Inversion`."""

    def __call__(
        self,
        block: int,
        gains: Float[Array, "2 antenna user"],
        estimates: Float[Array, "2 antenna user"],
        noise: Scalar,
    ) -> Link:
        """The link of block 0 (model) or 1 (controls), true and known gains [2, antenna, user];
        `noise` is d·sw2/P.
        """


class Noise(Protocol):
    """In the air: the law of the noise. `Gaussian`."""

    @property
    def gaussian(self) -> bool:
        """Whether it is Gaussian: estimators that reckon with such noise refuse others."""

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """Independent draws of variance 1."""


class Carrier(Protocol):
    """In the air, or in its place: what carries both blocks. `Channel`, `Ideal` of
    `jaxota.stages.channel`.
    """

    @property
    def power(self) -> Scalar | float:
        """P of the model block."""

    @property
    def control_budget(self) -> Scalar | float:
        """P of the control block."""

    @property
    def noise(self) -> Noise:
        """The law of its noise."""

    def noise_variance(self, dim: int) -> Scalar | None:
        """sw2, the variance of a coordinate of a block of `dim`; None if there is no noise at all.

        A carrier may also have `noise_ratio(dim)`, sw2/P of the model block, which is then asked
        in its place: sw2 itself may be too small or too large for float32.
        """

    def start(self, key: PRNGKeyArray, users: int) -> Memory:
        """Memory before round 1."""

    def links(
        self,
        keys: Sequence[PRNGKeyArray],
        memory: Memory,
        users: int,
        dim: int,
        controlled: bool,
    ) -> tuple[Link, Link, Memory]:
        """The links of both blocks and memory; `keys` [3], `controlled` if there are two blocks."""


class Medium(Protocol):
    """How users reach the server: over the channel (`OverTheAir`), or not (`ErrorFree`)."""

    def __call__(self, channel: Carrier) -> Carrier:
        """What takes the channel's place."""


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


class Server(Protocol):
    """At the server: the next model. `ReplaceModel`, `Optimizer`."""

    def start(self, model: Vector) -> Memory:
        """Memory before round 1."""

    def answer(
        self, memory: Memory, reports: dict[str, Float[Array, "user"]], noise: Scalar, link: Link
    ) -> Any:
        """What users hear before they send; `noise` is sw2/P."""

    def __call__(self, seen: Aggregate, state: State) -> tuple[Vector, Memory]:
        """The next broadcast model [d], and memory."""

    def output(self, model: Vector, memory: Memory) -> Vector:
        """The model [d] that is scored and handed out."""
