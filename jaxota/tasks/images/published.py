"""Datasets in the files in which their authors publish them: IDX (MNIST and its kin) and CIFAR-10.

Each file is looked for as it is, gzipped, and inside the published archive.
"""

import gzip
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxota._core.inputs import first_line
from jaxota.errors import InputError

Contents = list[tuple[str, bytes]]  # files by their names
_MNIST_FILES: dict[str, tuple[str, ...]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_CIFAR_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}


def names(dataset: str, config: str = "") -> dict[str, tuple[str, ...]]:
    """The files of each split, images before labels."""
    if dataset == "cifar10":
        return _CIFAR_FILES
    if dataset == "emnist":
        return {
            split: tuple(
                f"emnist-{config}-{split}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")
            )
            for split in ("train", "test")
        }
    return _MNIST_FILES


def find(place: str | Path, dataset: str, config: str = "") -> dict[str, bytes] | None:
    """The dataset's files in a folder, by name; None if there is none of them."""
    folder, wanted = Path(place), sum(names(dataset, config).values(), ())
    found = {}
    for name in wanted:
        for path in (folder / name, folder / f"{name}.gz", *_unpacked(folder, dataset, name)):
            if path.is_file():
                found[name] = path.read_bytes()
                break
    if not found:
        return _packed(folder, dataset, wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(f"data_dir: {folder} lacks {', '.join(missing)} beside {min(found)}")
    return found


def parse(dataset: str, config: str, files: dict[str, bytes]) -> dict[str, tuple]:
    """Images [sample, height, width, channel] and labels [sample] of each split, as uint8."""
    read = _cifar if dataset == "cifar10" else _idx_pair
    splits = {}
    for split, parts in names(dataset, config).items():
        contents = [(name, _unzipped(name, files[name])) for name in parts]
        splits[split] = read(contents)
    return splits


def _unpacked(folder: Path, dataset: str, name: str) -> list[Path]:
    """Where a file lies when the published archive was unpacked in `folder`."""
    if dataset == "cifar10":
        return [folder / "cifar-10-batches-bin" / name]
    return [folder / "gzip" / f"{name}.gz"] if dataset == "emnist" else []


def _packed(folder: Path, dataset: str, wanted: Iterable[str]) -> dict[str, bytes] | None:
    """The files inside the published archive in `folder`, if it is there."""
    archive = {"cifar10": "cifar-10-binary.tar.gz", "emnist": "gzip.zip"}.get(dataset)
    if archive is None or not (folder / archive).is_file():
        return None
    try:
        if archive.endswith(".zip"):
            with zipfile.ZipFile(folder / archive) as packed:
                return {name: packed.read(f"gzip/{name}.gz") for name in wanted}
        with tarfile.open(folder / archive) as tape:
            members: dict[str, Any] = {
                name: tape.extractfile(f"cifar-10-batches-bin/{name}") for name in wanted
            }
            return {name: member.read() for name, member in members.items()}
    except (KeyError, AttributeError):  # not there, or no file
        raise InputError(f"data_dir: {folder / archive} lacks files of {dataset}") from None
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(
            f"data_dir: {folder / archive} is damaged ({first_line(error).rstrip(':')}): fetch it "
            "again"
        ) from None


def _unzipped(name: str, content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"data_dir: {name} is damaged ({error}); fetch it again") from None


def _idx(name: str, content: bytes, axes: int) -> np.ndarray:
    """An IDX array of bytes: two zeros, type 8, the number of axes, the length of each."""
    start = 4 + 4 * axes
    if content[:4] != bytes((0, 0, 8, axes)) or len(content) < start:
        raise InputError(f"data_dir: {name} is not an IDX file of bytes with {axes} axes")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"data_dir: {name} is damaged: its header promises {list(shape)}, "
            f"{math.prod(shape)} bytes, but {len(content) - start} follow; fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _idx_pair(contents: Contents) -> tuple[np.ndarray, np.ndarray]:
    (images_name, first), (labels_name, second) = contents
    images, labels = _idx(images_name, first, 3), _idx(labels_name, second, 1)
    if len(images) != len(labels) or images.shape[1:] != (28, 28) or not len(labels):
        raise InputError(
            f"data_dir: {images_name} must hold images of 28 × 28, and as many as {labels_name} "
            f"has labels, {len(labels)} and at least one, got {list(images.shape)}"
        )
    return images[..., None], labels


def _cifar(contents: Contents) -> tuple[np.ndarray, np.ndarray]:
    """Records of one label and 3 × 32 × 32 pixels."""
    record = 1 + 3 * 32 * 32
    for name, content in contents:
        if not content or len(content) % record:
            raise InputError(
                f"data_dir: {name} is damaged: {len(content)} bytes are not whole records of "
                f"{record}; fetch it again"
            )
    rows = np.frombuffer(b"".join(content for _, content in contents), np.uint8).reshape(-1, record)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]
