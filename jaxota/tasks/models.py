"""Small flax modules from images [sample, ...] to logits [sample, classes]."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota.errors import InputError


class SoftmaxRegression(nn.Module):
    """Logits linear in the pixels, with bias, from zero: the paper's model on MNIST.

    classes: how many logits.
    """

    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x.reshape(len(x), -1)
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(x)


class MLP(nn.Module):
    """Layers of units with ReLU, then logits.

    classes: how many logits.
    hidden: units of each layer.
    """

    classes: int
    hidden: tuple[int, ...] = (64,)

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x.reshape(len(x), -1)
        for units in self.hidden:
            x = nn.relu(nn.Dense(units)(x))
        return nn.Dense(self.classes)(x)


class CNN(nn.Module):
    """Stages of a 3×3 convolution, ReLU and 2×2 max-pooling, then logits.

    classes: how many logits.
    channels: outputs of each stage's convolution.

    Images are [sample, height, width, channel]; [sample, height, width] is one channel.
    """

    classes: int
    channels: tuple[int, ...] = (8, 16)

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x[..., None] if x.ndim == 3 else x
        if x.ndim != 4 or min(x.shape[1:3]) < 2 ** len(self.channels):
            raise InputError(
                f"{len(self.channels)} stages need images [height, width] or [height, width, "
                f"channel] of at least {2 ** len(self.channels)} pixels each way"
            )
        for features in self.channels:
            x = nn.relu(nn.Dense(features)(_neighbourhoods(x)))
            x = _pooled(x)
        return nn.Dense(self.classes)(x.reshape(len(x), -1))


def _neighbourhoods(
    x: Float[Array, "sample height width channel"],
) -> Float[Array, "sample height width 9*channel"]:
    """Of every pixel the 3×3 pixels around it, zeros outside.

    A dense layer of these is a convolution. `nn.Conv`, each user and trial with weights of its own,
    becomes a grouped convolution, for which few processors have a fast routine.
    """
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, -1)


def _pooled(
    x: Float[Array, "sample height width channel"],
) -> Float[Array, "sample height//2 width//2 channel"]:
    """The largest of every 2×2 pixels; an odd last row or column is dropped, as flax does.

    By reshaping, since the gradient of `nn.max_pool` is slow on CPU.
    """
    height, width = x.shape[1] // 2, x.shape[2] // 2
    x = x[:, : 2 * height, : 2 * width]
    return x.reshape(len(x), height, 2, width, 2, -1).max((2, 4))
