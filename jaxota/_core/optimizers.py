"""Where an optax transformation points: with the gradient, or downhill."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxota._core import inputs as _validate
from jaxota.errors import InputError


def check_direction(
    path: str, optimizer: optax.GradientTransformation, dim: int, downhill: bool = False
) -> None:
    """Refuse what is no transformation, and one that answers a gradient by pointing the wrong way:
    with it, or, where it makes the step itself (`downhill`), against it.
    """
    like = "optax.sgd(1.0)" if downhill else "optax.scale_by_adam()"
    if not isinstance(optimizer, optax.GradientTransformation):
        raise InputError(
            f"{path} must be an optax transformation such as {like}, "
            f"got {_validate.shown(optimizer)}"
        )
    try:
        along = _asked(path, optimizer, dim)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} must take a gradient [d] and a model [d]: {_validate.first_line(error)}"
        ) from error
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


def _asked(path: str, optimizer: optax.GradientTransformation, dim: int) -> float:
    """`_along`, of an answer that is an update."""
    try:
        shape, kind, along = _along(optimizer, dim)
    except TypeError:  # not hashable: asked anew each time
        shape, kind, along = _along.__wrapped__(optimizer, dim)
    if (shape, kind) != ((dim,), "float32"):
        raise InputError(
            f"{path} must answer a gradient float32[{dim}] by one of that shape, "
            f"got {kind}{list(shape)}"
        )
    if not np.isfinite(along):
        raise InputError(f"{path} must answer a gradient by finite numbers, got NaN or inf")
    return along


@functools.lru_cache(maxsize=64)
def _along(optimizer: optax.GradientTransformation, dim: int) -> tuple[tuple[int, ...], str, float]:
    """Of the transformation's first answer to a probe gradient shape, type, and their product."""
    with jax.ensure_compile_time_eval():
        # On the host but for the answer: each operation is a program to compile or to load.
        probe = np.random.default_rng(0).standard_normal(dim).astype(np.float32)
        gradient, model = jnp.asarray(probe), jnp.asarray(np.zeros(dim, np.float32))
        answer, _ = optimizer.update(gradient, optimizer.init(model), model)
        answer = jnp.asarray(answer)
        same = answer.shape == probe.shape
        along = float(np.vdot(probe, np.asarray(answer))) if same else 0.0
        return answer.shape, answer.dtype.name, along
