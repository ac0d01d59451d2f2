"""Classification of well-known image datasets, distributed over users by a partition."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PRNGKeyArray

from jaxota._core import capacity, inputs
from jaxota._core.part import Numbers, Path, Seed
from jaxota.errors import InputError
from jaxota.tasks import image_files, partitions
from jaxota.tasks.partitions import Partition, iid

if TYPE_CHECKING:  # flax is slow to import, and naming an experiment does not need it
    import flax.linen as nn

    from jaxota.tasks.empirical_risk import Empirical


def mnist(
    key: Seed,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Create a task on MNIST: handwritten digits, 28 × 28 pixels between 0 and 1.

    The defaults are the paper's setting. The accuracy is that on all 10,000 test images.

    Args:
        key: random key, or seed, that decides who holds which of the 60,000 training images.
        users: N.
        samples: number of images per user; their mean if the partition makes users of unequal size.
        partition: which user holds which images, such as `jo.tasks.iid()`.
        data_dir: a folder that tensorflow-datasets prepared, or that holds the published files; by
            default the folder that JAXOTA_DATA names, or that of tfds. If the files are not there,
            they are downloaded.
        init_scale: N(0, init_scale²) is added to the module's own initial parameters.
        module: a flax module; by default softmax regression with bias, initially zero.
    """
    splits = image_files.load("mnist", data_dir=data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def fashion_mnist(
    key: Seed,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Create a task on Fashion-MNIST: articles of clothing, otherwise like `mnist`.

    The files have the same names as MNIST's. The arguments are those of `mnist`.
    """
    splits = image_files.load("fashion_mnist", data_dir=data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def emnist(
    key: Seed,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
    config: str = "balanced",
) -> "Empirical":
    """Create a task on EMNIST: handwritten letters and digits, transposed as published.

    The other arguments are those of `mnist`.

    Args:
        config: "balanced" (47 classes), "byclass", "bymerge", "letters", "digits" or "mnist".
    """
    inputs.chosen("config", config, tuple(image_files.EMNIST))
    splits = image_files.load("emnist", config, data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def cifar10(
    key: Seed,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Create a task on CIFAR-10: photographs of ten kinds, 32 × 32 pixels in three colours.

    The arguments are those of `mnist`.
    """
    splits = image_files.load("cifar10", data_dir=data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def digits(
    key: Seed,
    users: int = 10,
    samples: int = 140,
    partition: Partition = iid(),
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Create a task on the 8 × 8 digits that come with scikit-learn; every fifth is a test image.

    No files are needed. The arguments are those of `mnist`.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("digits needs scikit-learn: pip install 'jaxota[datasets]'") from None
    bunch = load_digits()
    images, labels = bunch.images[..., None] * np.float32(255 / 16), bunch.target
    test = np.arange(len(labels)) % 5 == 4
    splits = [image_files.Split(images[part], labels[part]) for part in (~test, test)]
    return _task(key, splits, users, samples, partition, init_scale, module)


def _task(
    key: Seed, splits: Any, users: int, samples: int, partition: Any, init_scale: Any, module: Any
) -> "Empirical":
    """Deal the training images to users; the arguments are those of `mnist`."""
    from jaxota.tasks.labelled import classification  # imports flax
    from jaxota.tasks.models import SoftmaxRegression

    train, test = splits
    indices = partitions.apply(partition, key, train.labels, users, samples)
    # Refused before any image becomes floats: a user may ask for more than fits.
    pixels, count = test.images[0].size, sum(map(len, indices))
    capacity.refuse_memory(
        "users · samples", f"{count} images of {pixels} numbers", 8 * count * pixels
    )
    if module is None:
        module = SoftmaxRegression(1 + int(max(train.labels.max(), test.labels.max())))
    white = np.float32(255)
    features = [train.images[held] / white for held in indices]
    labels = [train.labels[held] for held in indices]
    test_data = test.images / white, test.labels
    return classification(module, (features, labels), test_data, init_scale=init_scale)


DATASETS: dict[str, tuple[str, Callable[..., "Empirical"]]] = {
    "mnist": ("MNIST", mnist),
    "fashion_mnist": ("Fashion-MNIST", fashion_mnist),
    "emnist": ("EMNIST", emnist),
    "cifar10": ("CIFAR-10", cifar10),
    "digits": ("8×8 digits", digits),
}


@dataclasses.dataclass(frozen=True)
class Images:
    """Description of an image classification task, whose files are read only by `build`.

    Attributes:
        dataset: "mnist", "fashion_mnist", "emnist", "cifar10" or "digits".
        module: function of the number of classes that returns a flax module.
        partition: which user holds which images, such as `jo.tasks.iid()`.
        init_scale: N(0, init_scale²) is added to the module's own initial parameters.
        data_dir: folder of the files, as for `jo.tasks.mnist`.
        users: N.
        samples: number of images per user; None for the default of the dataset's function.
        key: random key that decides who holds which images.
    """

    dataset: str
    module: Callable[[int], Any]
    partition: Partition = iid()
    init_scale: float = 0.0
    # Where files lie is no part of what is computed, so a stored description leaves it out.
    data_dir: str | None = dataclasses.field(default=None, metadata={"told": False})
    users: int = 10
    samples: int | None = None
    key: PRNGKeyArray | None = None

    @property
    def title(self) -> str:
        """Name of the dataset, and the initial scale if there is one."""
        scale = f", initial scale {self.init_scale:g}" if self.init_scale else ""
        return self._known[0] + scale

    def __call__(self, key: PRNGKeyArray) -> "Images":
        """Return the same description with another key."""
        return dataclasses.replace(self, key=key)

    def build(self) -> "Empirical":
        """Read the files and create the task."""
        # None is left to the function's own default.
        names = "partition", "init_scale", "users", "samples", "data_dir"
        options = {k: getattr(self, k) for k in names if getattr(self, k) is not None}
        if self.dataset == "digits" and "data_dir" in options:
            raise InputError("data_dir must not be given for digits, which need no files")
        classes = image_files.EMNIST["balanced"] if self.dataset == "emnist" else 10
        return self._known[1](self.key, module=self.module(classes), **options)

    @property
    def _known(self) -> tuple[str, Callable[..., "Empirical"]]:
        """Title of the dataset, and the function that makes its task."""
        if self.dataset not in DATASETS:
            raise InputError(f"dataset must be one of {', '.join(DATASETS)}, got {self.dataset!r}")
        return DATASETS[self.dataset]


def images_at_hand() -> tuple[str, str]:
    """Return ("mnist", ""), or ("digits", a sentence that says why) where MNIST cannot be had."""
    try:
        image_files.load("mnist")
    except InputError as error:
        return "digits", f"MNIST cannot be had, and the 8×8 digits stand in for it: {error}."
    return "mnist", ""
