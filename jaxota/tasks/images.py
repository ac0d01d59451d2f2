"""The sets of images by their names, and a task on any of them: what an experiment names."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from jaxota._core import batching
from jaxota._core import inputs as _validate
from jaxota._core.part import Numbers, Path
from jaxota.errors import InputError
from jaxota.tasks import image_files, partitions
from jaxota.tasks.partitions import Partition, iid

if TYPE_CHECKING:
    import flax.linen as nn

    from jaxota.tasks.empirical_risk import Empirical


class Dataset(NamedTuple):
    """A set of images, that of the function of its name in `datasets`."""

    title: str
    classes: int = 10
    files: bool = True  # whether it is read from files, which a folder may hold


DATASETS = {
    "mnist": Dataset("MNIST"),
    "fashion_mnist": Dataset("Fashion-MNIST"),
    "emnist": Dataset("EMNIST", classes=47),
    "cifar10": Dataset("CIFAR-10"),
    "digits": Dataset("8×8 digits", files=False),
}


def at_hand() -> tuple[str, str]:
    """The name of MNIST, or, where it is not to be had, that of the digits and why."""
    try:
        image_files.load("mnist")
    except InputError as error:
        return "digits", f"MNIST is not to be had, and the 8×8 digits stand in its place: {error}."
    return "mnist", ""


@dataclasses.dataclass(frozen=True)
class Images:
    """A task of classifying images, dealt out to users when it is built."""

    dataset: str
    module: Callable[[int], Any]  # number of classes → flax module
    partition: Partition = iid()
    init_scale: float = 0.0
    data_dir: str | None = dataclasses.field(default=None, metadata={"told": False})
    users: int = 10
    samples: int | None = None  # of each user; None for as many as the data set's own task has
    key: PRNGKeyArray | None = None  # that deals them out

    @property
    def title(self) -> str:
        scale = f", initial scale {self.init_scale:g}" if self.init_scale else ""
        return self._known.title + scale

    def __call__(self, key: PRNGKeyArray) -> "Images":
        """The same, dealt out by this key."""
        return dataclasses.replace(self, key=key)

    def build(self) -> "Empirical":
        """The task itself."""
        known = self._known
        options: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("partition", "init_scale", "users", "samples")
            if getattr(self, name) is not None
        }
        if known.files:
            options["data_dir"] = self.data_dir
        elif self.data_dir is not None:
            raise InputError(f"data_dir must not be given for {self.dataset}, which need no files")
        task = globals()[self.dataset]
        return task(self.key, module=self.module(known.classes), **options)

    @property
    def _known(self) -> Dataset:
        if self.dataset not in DATASETS:
            raise InputError(f"dataset must be one of {', '.join(DATASETS)}, got {self.dataset!r}")
        return DATASETS[self.dataset]


def mnist(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Handwritten digits, 28 × 28 pixels between 0 and 1; by default the paper's setting.

    Args:
        key: draws who holds which of the 60,000 training images; the score is over all 10,000 test
            images.
        users: N.
        samples: each user's, or their mean where the partition makes users of unequal size.
        partition: who holds which, one such as `jo.tasks.iid()`.
        data_dir: a folder in which tensorflow-datasets prepared the data, or that holds the
            published files; by default the one that JAXOTA_DATA names, or tfds's own. Otherwise
            they are fetched.
        init_scale: N(0, init_scale²) is added to the module's own initial parameters (0 by
            default).
        module: a flax module; by default softmax regression with bias.
    """
    return _task(
        key, image_files.load("mnist", "", data_dir), users, samples, partition, init_scale, module
    )


def fashion_mnist(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Articles of clothing, in all else like `mnist`, its file names included.

    The arguments are those of `mnist`.
    """
    splits = image_files.load("fashion_mnist", "", data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def emnist(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
    config: str = "balanced",
) -> "Empirical":
    """Handwritten letters and digits, transposed as published, else like `mnist`.

    Args:
        config: "balanced" (47 classes), "byclass", "bymerge", "letters", "digits" or "mnist".

    The other arguments are those of `mnist`.
    """
    known = ("balanced", "byclass", "bymerge", "letters", "digits", "mnist")
    if not isinstance(config, str) or config not in known:
        raise InputError(f"config must be one of {', '.join(known)}, got {_validate.shown(config)}")
    splits = image_files.load("emnist", config, data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def cifar10(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """Photographs of ten kinds of things, 32 × 32 pixels in three colours, else like `mnist`.

    The arguments are those of `mnist`.
    """
    splits = image_files.load("cifar10", "", data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def digits(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 140,
    partition: Partition = iid(),
    init_scale: Numbers = 0.0,
    module: "nn.Module | None" = None,
) -> "Empirical":
    """The 8 × 8 digits that come with scikit-learn: every fifth image is for the test (359).

    The arguments are those of `mnist`.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("digits needs scikit-learn: pip install 'jaxota[datasets]'") from None
    bunch = load_digits()
    images, labels = bunch.images[..., None] * np.float32(255 / 16), bunch.target
    test = np.arange(len(labels)) % 5 == 4
    splits = [image_files.Split(labels[part], images[part]) for part in (~test, test)]
    return _task(key, splits, users, samples, partition, init_scale, module)


def _task(
    key: PRNGKeyArray,
    splits: Any,
    users: int,
    samples: int,
    partition: Partition,
    init_scale: Numbers,
    module: "nn.Module | None",
) -> "Empirical":
    from jaxota.tasks.labelled import classification  # flax is slow to import
    from jaxota.tasks.models import SoftmaxRegression

    train, test = splits
    held = partitions.dealt(partition, key, train.labels, users, samples)
    size = np.size(test.images(np.arange(1)))
    count = sum(map(len, held))
    batching.refuse("users · samples", f"{count} images of {size} numbers", 8 * count * size)
    if module is None:
        module = SoftmaxRegression(1 + int(max(train.labels.max(), test.labels.max())))
    return classification(
        module,
        ([train.images(indices) for indices in held], [train.labels[indices] for indices in held]),
        (test.images(np.arange(len(test.labels))), test.labels),
        init_scale=init_scale,
    )
