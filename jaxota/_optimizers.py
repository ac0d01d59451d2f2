"""Where an optax transformation points: with the gradient, or downhill."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxota import _validate
from jaxota.errors import InputError


def check_direction(
    path: str, optimizer: optax.GradientTransformation, dim: int, downhill: bool = False
) -> None:
    """Refuse what is no transformation, and one that answers a gradient by pointing the wrong way:
    with it, or, where it makes the step itself (`downhill`), against it."""
    like = "optax.sgd(1.0)" if downhill else "optax.scale_by_adam()"
    if not isinstance(optimizer, optax.GradientTransformation):
        raise InputError(
            f"{path} must be an optax transformation such as {like}, "
            f"got {_validate.shown(optimizer)}"
        )
    try:
        along = _along(optimizer, dim)
    except TypeError:  # not hashable: asked anew each time
        along = _along.__wrapped__(optimizer, dim)
    if along < 0 and not downhill:
        raise InputError(
            f"{path} must not point against the gradient, as optax.sgd(…) and optax.adam(…) do: "
            "step_size makes the step; give the transformation alone, such as optax.identity() "
            f"or {like}"
        )
    if along > 0 and downhill:
        raise InputError(
            f"{path} must point downhill, as optax.sgd(…) and optax.adam(…) do, not along the "
            f"gradient, as optax.scale_by_…() alone do: give one such as {like}"
        )


@functools.lru_cache(maxsize=64)
def _along(optimizer: optax.GradientTransformation, dim: int) -> float:
    """The inner product of a probe gradient with the transformation's first answer to it."""
    with jax.ensure_compile_time_eval():
        # On the host but for the answer: each operation is a program to compile or to load.
        probe = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
        gradient, model = jnp.asarray(probe), jnp.asarray(np.zeros(dim, np.float32))
        answer, _ = optimizer.update(gradient, optimizer.init(model), model)
        return float(np.vdot(probe, np.asarray(answer)))
