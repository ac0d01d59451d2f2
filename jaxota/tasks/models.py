"""Small flax modules from images [sample, ...] to logits [sample, classes]."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxota._core import inputs
from jaxota.errors import InputError


class SoftmaxRegression(nn.Module):
    """Logits linear in the pixels, with bias, initially zero: the paper's model on MNIST.

    Attributes:
        classes: number of logits.
    """

    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x.reshape(len(x), -1)
        inputs.whole("classes", self.classes, 1)
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(x)


class MLP(nn.Module):
    """Dense layers with ReLU, then logits.

    Attributes:
        classes: number of logits.
        hidden: number of units of each hidden layer.
    """

    classes: int
    hidden: tuple[int, ...] = (64,)

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        x = x.reshape(len(x), -1)
        inputs.whole("classes", self.classes, 1)
        for units in _widths("hidden", self.hidden):
            x = nn.relu(nn.Dense(units)(x))
        return nn.Dense(self.classes)(x)


class CNN(nn.Module):
    """Stages of a 3×3 convolution, ReLU and 2×2 max-pooling, then logits.

    Images are [sample, height, width, channel]; [sample, height, width] is one channel.

    Attributes:
        classes: number of logits.
        channels: number of output channels of each stage.
    """

    classes: int
    channels: tuple[int, ...] = (8, 16)

    @nn.compact
    def __call__(self, x: Float[Array, "sample *shape"]) -> Float[Array, "sample classes"]:
        inputs.whole("classes", self.classes, 1)
        _widths("channels", self.channels)
        x = x[..., None] if x.ndim == 3 else x
        if x.ndim != 4 or min(x.shape[1:3]) < 2 ** len(self.channels):
            raise InputError(
                f"{len(self.channels)} stages need images [height, width] or [height, width, "
                f"channel] of at least {2 ** len(self.channels)} pixels each way"
            )
        # Samples last: whatever is shifted, compared or pooled is then contiguous in memory.
        x = x.transpose(3, 1, 2, 0)
        for stage, features in enumerate(self.channels):
            x = _pooled(nn.relu(_Convolution(features, name=f"Dense_{stage}")(x)))
        x = x.transpose(1, 2, 0, 3).reshape(-1, x.shape[-1])  # [height · width · channel, sample]
        return nn.Dense(self.classes, name=f"Dense_{len(self.channels)}")(x.T)


def _widths(name: str, widths: Any) -> tuple[int, ...]:
    """Check the widths of a module's layers."""
    if not isinstance(widths, tuple | list):
        raise InputError(f"{name} must be a tuple of whole numbers, got {inputs.shown(widths)}")
    return tuple(inputs.whole(f"{name}[{n}]", width, 1) for n, width in enumerate(widths))


# A convolution whose kernel has at most so many numbers is a sum of images on TPU, a larger one a
# product, which the matrix unit is for (docs/accelerators.md).
SUMMED = 512


class _Convolution(nn.Module):
    """A 3×3 convolution with zero padding, as a product of matrices, or on TPU as a sum.

    Every user and trial has weights of its own, for which `nn.Conv` becomes a grouped convolution;
    few processors have a fast routine for that.
    """

    features: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "channel height width sample"]
    ) -> Float[Array, "features height width sample"]:
        channels, height, width, _ = x.shape
        size = 9 * channels, self.features
        kernel = self.param("kernel", nn.initializers.lecun_normal(), size)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        if kernel.size <= SUMMED:
            branches = {"tpu": _sum_of_images, "default": _product_of_patches}
            convolved = jax.lax.platform_dependent(kernel, shifted, **branches)
        else:
            convolved = _product_of_patches(kernel, shifted)
        return convolved + bias[:, None, None, None]


def _product_of_patches(
    kernel: Float[Array, "k features"], shifted: list[Float[Array, "channel height width sample"]]
) -> Float[Array, "features height width sample"]:
    patches = jnp.concatenate(shifted).reshape(len(kernel), -1)
    return _product(kernel, patches).reshape(-1, *shifted[0].shape[1:])


def _sum_of_images(
    kernel: Float[Array, "k features"], shifted: list[Float[Array, "channel height width sample"]]
) -> Float[Array, "features height width sample"]:
    """Add up the images times their weights: TPUs then put the trials last, which fill its lanes.

    A product of so few rows would leave the matrix unit empty, and its operands be copied for it.
    """
    images = [image for each in shifted for image in each]
    weighed = (k[:, None, None, None] * x[None] for k, x in zip(kernel, images, strict=True))
    return functools.reduce(jnp.add, weighed)


@jax.custom_vjp
def _product(
    kernel: Float[Array, "k features"], patches: Float[Array, "k pixel"]
) -> Float[Array, "features pixel"]:
    """Compute kernelᵀ patches, with a gradient that puts the longer factor first.

    On CPU the speed of the product of two wide matrices depends much on their order.
    """
    return kernel.T @ patches


def _product_forward(kernel: Array, patches: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(kernel, patches), (kernel, patches)


def _product_backward(factors: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    kernel, patches = factors
    return patches @ slope.T, kernel @ slope


_product.defvjp(_product_forward, _product_backward)


def _pooled(
    x: Float[Array, "channel height width sample"],
) -> Float[Array, "channel height//2 width//2 sample"]:
    """Take the maximum of every 2×2 pixels; an odd last row or column is dropped, as in flax."""
    channels, height, width, samples = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    # Pairs from a reshape, not slices of every other row: those abort the compiler for TPUs.
    pairs = x.reshape(channels, height // 2, 2, -1, samples)
    rows = jnp.maximum(pairs[:, :, 0], pairs[:, :, 1])
    pairs = rows.reshape(channels, height // 2, width // 2, 2, samples)
    return jnp.maximum(pairs[:, :, :, 0], pairs[:, :, :, 1])
