"""Recorded channels: complex gains from a ray tracer, a channel model or a measurement."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.part import Memory, Numbers, Traced, part, static, traced
from jaxota.errors import InputError
from jaxota.stages.answers import Answer, Gains, Inversion
from jaxota.stages.fading import Fading

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting

EACH = ("round", "trial", "draw")


@part
class Recorded:
    """Gains of a recording in the place of a law; both blocks of a round have the same.

    Attributes:
        gains: [snapshot, 2, antenna, user] real and imaginary parts; with subcarriers, the antennas
            of one come after those of the other.
        each: see `recorded`.
    """

    gains: Traced[Float[Array, "snapshot 2 antenna user"]] = traced(rank=4)
    each: str = static(default="round", one_of=EACH)

    def start(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Memory:
        """Return the number of the first round's snapshot."""
        if self.each == "trial":
            return jax.random.randint(key, (), 0, len(self.gains), "int32")
        return jnp.int32(0)

    def draw(self, key: PRNGKeyArray, fresh: Gains, memory: Memory) -> tuple[Gains, Memory]:
        if self.each == "draw":
            memory = jax.random.randint(key, (), 0, len(self.gains), "int32")
        now = jax.lax.dynamic_index_in_dim(self.gains, memory, keepdims=False)
        after = memory + 1 if self.each == "round" else memory
        # After the last snapshot the recording begins again.
        return jnp.broadcast_to(now[:, None], fresh.shape), after % len(self.gains)

    def check(self, path: str, setting: "Setting") -> None:
        fading: Any = setting.channel.fading  # the `Fading` that holds this law
        rows, users = np.shape(self.gains)[-2:]
        if (rows, users) != (fading.carriers * fading.antennas, setting.task.users):
            raise InputError(
                f"{path}.gains must be of {fading.antennas} antennas and {setting.task.users} "
                f"users, got {rows // fading.carriers} and {users}"
            )


def recorded(
    gains: Any, answer: Answer = Inversion(), csi_error: Numbers = 0.0, each: str = "round"
) -> Fading:
    """Fading as recorded, for `jo.Channel(fading=...)`.

    The SNR is that of a gain of 1: divide by the root mean square of |h| to keep its meaning.

    Args:
        gains: [snapshot, antenna, user] or [snapshot, user] complex gains; of subcarriers
            [snapshot, carrier, antenna, user].
        answer: what users and server make of them, truncated inversion by default.
        csi_error: variance of the error of channel estimates.
        each: "round" plays the recording in every trial, a snapshot in each round, and from the
            beginning again after the last; "trial" draws a snapshot for each trial, which keeps it;
            "draw" draws one in each round.
    """
    try:
        values = np.asarray(gains).astype("complex128")
    except (TypeError, ValueError):
        raise InputError(f"gains must be complex numbers, got {inputs.shown(gains)}") from None
    shape = np.shape(values)
    if len(shape) not in (2, 3, 4) or not values.size:
        raise InputError(
            "gains must be [snapshot, antenna, user], [snapshot, user] or "
            f"[snapshot, carrier, antenna, user], got shape {list(shape)}"
        )
    carriers, antennas = (1, 1, *shape[1:-1])[-2:]
    values = values.reshape(shape[0], carriers * antennas, shape[-1])
    pairs = np.stack([values.real, values.imag], 1)
    if not (np.abs(pairs) < np.finfo("f4").max).all():
        raise InputError("gains must be finite")
    return Fading(Recorded(pairs.astype("f4"), each), answer, csi_error, antennas, carriers)
