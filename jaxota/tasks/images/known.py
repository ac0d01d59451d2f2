"""The sets of images by their names, and a task on any of them: what an experiment names."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtyping import PRNGKeyArray

from jaxota.errors import InputError
from jaxota.tasks.partitions import Partition, iid

if TYPE_CHECKING:
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
    from jaxota.tasks.images import storage  # slow to import, needed here alone

    try:
        storage.load("mnist")
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
        from jaxota.tasks.images import datasets  # slow to import, needed here alone

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
        task = getattr(datasets, self.dataset)
        return task(self.key, module=self.module(known.classes), **options)

    @property
    def _known(self) -> Dataset:
        if self.dataset not in DATASETS:
            raise InputError(f"dataset must be one of {', '.join(DATASETS)}, got {self.dataset!r}")
        return DATASETS[self.dataset]
