"""Small flax modules from images [sample, ...] to logits [sample, classes]."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core import inputs as _validate
from jaxota.errors import InputError


class SoftmaxRegression(nn.Module):
    """Logits linear in the pixels, with bias, from zero: the paper's model on MNIST.

    Attributes:
        classes: how many logits.
    """

    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x.reshape(len(x), -1)
        _validate.whole("classes", self.classes, 1)
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(x)


class MLP(nn.Module):
    """Layers of units with ReLU, then logits.

    Attributes:
        classes: how many logits.
        hidden: units of each layer.
    """

    classes: int
    hidden: tuple[int, ...] = (64,)

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x.reshape(len(x), -1)
        _validate.whole("classes", self.classes, 1)
        for units in _widths("hidden", self.hidden):
            x = nn.relu(nn.Dense(units)(x))
        return nn.Dense(self.classes)(x)


class CNN(nn.Module):
    """Stages of a 3×3 convolution, ReLU and 2×2 max-pooling, then logits.

    Attributes:
        classes: how many logits.
        channels: outputs of each stage's convolution.

    Images are [sample, height, width, channel]; [sample, height, width] is one channel.
    """

    classes: int
    channels: tuple[int, ...] = (8, 16)

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        _validate.whole("classes", self.classes, 1)
        _widths("channels", self.channels)
        x = x[..., None] if x.ndim == 3 else x
        if x.ndim != 4 or min(x.shape[1:3]) < 2 ** len(self.channels):
            raise InputError(
                f"{len(self.channels)} stages need images [height, width] or [height, width, "
                f"channel] of at least {2 ** len(self.channels)} pixels each way"
            )
        x = x.transpose(3, 1, 2, 0)
        for stage, features in enumerate(self.channels):
            x = _pooled(nn.relu(_Convolution(features, name=f"Dense_{stage}")(x)))
        x = x.transpose(1, 2, 0, 3).reshape(-1, x.shape[-1])  # [height · width · channel, sample]
        return nn.Dense(self.classes, name=f"Dense_{len(self.channels)}")(x.T)


def _widths(name: str, widths: Any) -> tuple[int, ...]:
    """Of each layer."""
    if not isinstance(widths, tuple | list):
        raise InputError(f"{name} must be a tuple of whole numbers, got {_validate.shown(widths)}")
    return tuple(_validate.whole(f"{name}[{n}]", width, 1) for n, width in enumerate(widths))


class _Convolution(nn.Module):
    """Of 3×3 pixels, zeros outside, as a product of matrices: [channel, height, width, sample].

    `nn.Conv`, each user and trial with weights of its own, becomes a grouped convolution, for which
    few processors have a fast routine. Samples stand last, so that whatever is shifted, compared or
    pooled lies together in memory.
    """

    features: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "channel height width sample"]
    ) -> Float[Array, "features height width sample"]:
        channels, height, width, samples = x.shape
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (9 * channels, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        around = jnp.concatenate(shifted).reshape(len(kernel), -1)
        found = _product(kernel, around) + bias[:, None]
        return found.reshape(self.features, height, width, samples)


@jax.custom_vjp
def _product(
    kernel: Float[Array, "k features"], around: Float[Array, "k pixel"]
) -> Float[Array, "features pixel"]:
    """kernelᵀ around. Its own gradient takes the kernel's with the longer factor first: the
    speed of the product of two wide matrices on CPU depends much on their order.
    """
    return kernel.T @ around


def _product_forward(kernel: Array, around: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(kernel, around), (kernel, around)


def _product_backward(both: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    kernel, around = both
    return around @ slope.T, kernel @ slope


_product.defvjp(_product_forward, _product_backward)


def _pooled(
    x: Float[Array, "channel height width sample"],
) -> Float[Array, "channel height//2 width//2 sample"]:
    """The largest of every 2×2 pixels; an odd last row or column is dropped, as flax does."""
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    rows = jnp.maximum(x[:, 0:height:2], x[:, 1:height:2])
    return jnp.maximum(rows[:, :, 0:width:2], rows[:, :, 1:width:2])
