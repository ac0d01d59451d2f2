"""Classification of known images, dealt out to users by a partition."""

from typing import Any

import flax.linen as nn
import numpy as np
from jaxtyping import PRNGKeyArray

from jaxota._core import batching
from jaxota._core import inputs as _validate
from jaxota._core.part import Numbers, Path
from jaxota.errors import InputError
from jaxota.tasks import partitions
from jaxota.tasks.empirical_risk import Empirical
from jaxota.tasks.images import storage
from jaxota.tasks.labelled import classification
from jaxota.tasks.models import SoftmaxRegression
from jaxota.tasks.partitions import Partition, iid


def mnist(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: nn.Module | None = None,
) -> Empirical:
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
        key, storage.load("mnist", "", data_dir), users, samples, partition, init_scale, module
    )


def fashion_mnist(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: nn.Module | None = None,
) -> Empirical:
    """Articles of clothing, in all else like `mnist`, its file names included.

    The arguments are those of `mnist`.
    """
    splits = storage.load("fashion_mnist", "", data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def emnist(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: nn.Module | None = None,
    config: str = "balanced",
) -> Empirical:
    """Handwritten letters and digits, transposed as published, else like `mnist`.

    Args:
        config: "balanced" (47 classes), "byclass", "bymerge", "letters", "digits" or "mnist".

    The other arguments are those of `mnist`.
    """
    known = ("balanced", "byclass", "bymerge", "letters", "digits", "mnist")
    if not isinstance(config, str) or config not in known:
        raise InputError(f"config must be one of {', '.join(known)}, got {_validate.shown(config)}")
    splits = storage.load("emnist", config, data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def cifar10(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 600,
    partition: Partition = iid(),
    data_dir: Path | None = None,
    init_scale: Numbers = 0.0,
    module: nn.Module | None = None,
) -> Empirical:
    """Photographs of ten kinds of things, 32 × 32 pixels in three colours, else like `mnist`.

    The arguments are those of `mnist`.
    """
    splits = storage.load("cifar10", "", data_dir)
    return _task(key, splits, users, samples, partition, init_scale, module)


def digits(
    key: PRNGKeyArray,
    users: int = 10,
    samples: int = 140,
    partition: Partition = iid(),
    init_scale: Numbers = 0.0,
    module: nn.Module | None = None,
) -> Empirical:
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
    splits = [storage.Split(labels[part], images[part]) for part in (~test, test)]
    return _task(key, splits, users, samples, partition, init_scale, module)


def _task(
    key: PRNGKeyArray,
    splits: Any,
    users: int,
    samples: int,
    partition: Partition,
    init_scale: Numbers,
    module: nn.Module | None,
) -> Empirical:
    train, test = splits
    held = partitions.dealt(partition, key, train.labels, users, samples)
    size = np.size(test.images(np.arange(1)))
    count = sum(map(len, held))
    batching.refuse_memory("users · samples", f"{count} images of {size} numbers", 8 * count * size)
    if module is None:
        module = SoftmaxRegression(1 + int(max(train.labels.max(), test.labels.max())))
    return classification(
        module,
        ([train.images(indices) for indices in held], [train.labels[indices] for indices in held]),
        (test.images(np.arange(len(test.labels))), test.labels),
        init_scale=init_scale,
    )
