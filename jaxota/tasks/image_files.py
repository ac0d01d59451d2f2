"""Image datasets: find, verify and read their files, with tensorflow-datasets but no TensorFlow.

A dataset is looked for in this order: prepared by tensorflow-datasets (tfds) in the folder; the
published files in the folder, or downloaded before; the published files from the internet, through
tfds. Published are IDX files (MNIST, Fashion-MNIST, EMNIST) and CIFAR-10's binary batches; each
file may lie there as it is, gzipped, or inside the published archive.
"""

import contextlib
import functools
import gzip
import hashlib
import importlib.util
import io
import math
import os
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from jaxota._core import cache, files, inputs
from jaxota.errors import InputError

DATA = "JAXOTA_DATA"  # names the folder to look in if no data_dir is given
PATIENCE = 5.0  # seconds that a server has to answer
# Number of classes of each config of EMNIST.
EMNIST = {"balanced": 47, "byclass": 62, "bymerge": 47, "letters": 37, "digits": 10, "mnist": 10}
_ARCHIVES = {  # names of the archive, and of a file inside
    "cifar10": ("cifar-10-binary.tar.gz", "cifar-10-batches-bin/{}"),
    "emnist": ("gzip.zip", "gzip/{}.gz"),
}
# SHA-256 of the published train-labels-idx1-ubyte.gz: all files of these two have the same names.
TRAIN_LABELS = {
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c": "mnist",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845": "fashion_mnist",
}


class Split(NamedTuple):
    """The training or test part of a dataset, in the order in which tfds keeps it."""

    images: UInt8[np.ndarray, "sample height width channel"]
    labels: Int[np.ndarray, "sample"]


def load(dataset: str, config: str = "", data_dir: Any = None) -> tuple[Split, Split]:
    """Return the training and test samples of the dataset that tfds knows by this name."""
    folder = _folder(data_dir)
    prepared = _prepared(folder, dataset, config)
    if prepared is not None:
        return _read_prepared(
            dataset, prepared, (prepared / "dataset_info.json").stat().st_mtime_ns
        )
    downloads = cache.cache_folder() / "datasets" / dataset
    published = find(folder, dataset, config) or find(downloads, dataset, config)
    if not published:
        _fetch(dataset, config, folder, downloads)
        published = find(downloads, dataset, config)
    train_labels = hashlib.sha256(published.get("train-labels-idx1-ubyte", b"")).hexdigest()
    held = TRAIN_LABELS.get(train_labels, dataset)
    if held != dataset:
        raise InputError(f"data_dir: {folder} holds {held}, not {dataset}")
    train, test = (
        _read_published(dataset, config, split, {name: published[name] for name in parts})
        for split, parts in names(dataset, config).items()
    )
    return train, test


def _folder(data_dir: Any) -> Path:
    """Return the folder to look in: data_dir, that of JAXOTA_DATA, or tfds's own."""
    if data_dir is not None:
        inputs.path("data_dir", data_dir)
    named = data_dir or os.environ.get(DATA)
    if not named:
        return Path(os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets")
    with contextlib.suppress(TypeError, OSError, RuntimeError):
        folder = Path(named).expanduser()
        if folder.is_dir():
            return folder
    raise InputError(f"{'data_dir' if data_dir else DATA}: no such folder: {named}")


# Published files


def names(dataset: str, config: str = "") -> dict[str, tuple[str, ...]]:
    """Return the names of the files of each split, images before labels."""
    if dataset == "cifar10":
        batches = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
        return {"train": batches, "test": ("test_batch.bin",)}
    prefixes = {"train": "train", "test": "t10k"}
    if dataset == "emnist":
        prefixes = {split: f"emnist-{config}-{split}" for split in ("train", "test")}
    return {
        split: tuple(f"{prefix}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
        for split, prefix in prefixes.items()
    }


def find(folder: Path, dataset: str, config: str = "") -> dict[str, bytes]:
    """Return the contents of the dataset's files in a folder by name; none if none is there."""
    wanted = sum(names(dataset, config).values(), ())
    archive, member = _ARCHIVES.get(dataset, ("", "{}"))
    contents = {}
    for name in wanted:
        # The last one is there if the archive was unpacked.
        places = folder / name, folder / f"{name}.gz", folder / member.format(name)
        path = next(filter(Path.is_file, places), None)
        if path is not None:
            contents[name] = path.read_bytes()
    if not contents and (folder / archive).is_file():
        return _unpacked(folder / archive, {name: member.format(name) for name in wanted})
    missing = [name for name in wanted if name not in contents]
    if contents and missing:
        raise InputError(f"data_dir: {folder} lacks {', '.join(missing)} beside {min(contents)}")
    return contents


def _unpacked(path: Path, members: dict[str, str]) -> dict[str, bytes]:
    """Return the contents of these members of an archive, by their names outside."""
    try:
        with _refusing_damage(path):
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    return {name: archive.read(member) for name, member in members.items()}
            with tarfile.open(path) as tape:
                opened: dict[str, Any] = {n: tape.extractfile(m) for n, m in members.items()}
                return {name: member.read() for name, member in opened.items()}
    except (KeyError, AttributeError):  # no such member, or one that is no file
        raise InputError(f"data_dir: {path} lacks {', '.join(members.values())}") from None


@contextlib.contextmanager
def _refusing_damage(file: Path | str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        reason = inputs.first_line(error).rstrip(":")
        raise InputError(f"data_dir: {file} is damaged ({reason}): fetch it again") from None


def _read_published(dataset: str, config: str, split: str, contents: dict[str, bytes]) -> Split:
    """Read the files of one split, given by name."""
    for name, content in contents.items():
        if content[:2] == b"\x1f\x8b":  # the first bytes of every gzip file
            with _refusing_damage(name):
                contents[name] = gzip.decompress(content)
    images, labels = _read_cifar(contents) if dataset == "cifar10" else _read_idx(contents)
    classes = EMNIST.get(config, 10)
    if labels.max() >= classes:
        raise InputError(
            f"data_dir: labels of {dataset} must lie in 0 … {classes - 1}, got {labels.max()}"
        )
    # tfds orders samples by this hash of their numbers: who holds which image is then the same
    # whether the files are prepared or published.
    hashes = [hashlib.md5(f"{split}{number}".encode()).digest() for number in range(len(labels))]
    order = sorted(range(len(labels)), key=hashes.__getitem__)
    return Split(images[order], labels[order].astype(int))


def _read_idx(contents: dict[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Read a file of images and one of labels."""
    images_name, labels_name = contents
    images = _idx_array(images_name, contents[images_name], 3)
    labels = _idx_array(labels_name, contents[labels_name], 1)
    if len(images) != len(labels) or images.shape[1:] != (28, 28) or not len(labels):
        raise InputError(
            f"data_dir: {images_name} must hold images of 28 × 28, and as many as {labels_name} "
            f"has labels, {len(labels)} and at least one, got {list(images.shape)}"
        )
    return images[..., None], labels


def _idx_array(name: str, content: bytes, axes: int) -> np.ndarray:
    """Read an IDX array of bytes: two zeros, type 8, the number of axes, the length of each."""
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


def _read_cifar(contents: dict[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Read CIFAR-10's records of one label and 3 × 32 × 32 pixels."""
    record = 1 + 3 * 32 * 32
    for name, content in contents.items():
        if not content or len(content) % record:
            raise InputError(
                f"data_dir: {name} is damaged: {len(content)} bytes are not whole records of "
                f"{record}; fetch it again"
            )
    rows = np.frombuffer(b"".join(contents.values()), np.uint8).reshape(-1, record)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


# tensorflow-datasets


def _tfds(dataset: str) -> Any:
    try:
        import PIL  # noqa: F401
        import tensorflow_datasets
    except ImportError as error:
        raise InputError(f"{dataset} needs {error.name}: pip install 'jaxota[datasets]'") from None
    return tensorflow_datasets


def _fetch(dataset: str, config: str, folder: Path, downloads: Path) -> None:
    """Download the published files, completely or not at all; tfds verifies their checksums."""
    tfds = _tfds(dataset)
    urls = tfds.builder_cls(dataset).url_infos
    first = next(iter(urls))
    if not _answers(first):
        wanted = [f"{name}.gz" for name in sum(names(dataset, config).values(), ())]
        wanted = [_ARCHIVES[dataset][0]] if dataset == "cifar10" else wanted
        raise InputError(
            f"{dataset} is neither in {folder} nor can {first.split('/')[2]} be reached: put "
            f"{', '.join(wanted)} into a folder and name it with data_dir, --data-dir or {DATA}"
        )
    try:
        with files.drafting(downloads.parent) as draft:
            manager = tfds.download.DownloadManager(
                download_dir=draft / "tfds",
                dataset_name=dataset,
                url_infos=urls,
                force_checksums_validation=True,
            )
            paths = manager.download({info.filename: url for url, info in urls.items()})
            (draft / dataset).mkdir()
            for name, path in paths.items():  # tfds gives them names of its own
                os.replace(path, draft / dataset / name)
            with contextlib.suppress(OSError):  # another process was faster
                (draft / dataset).rename(downloads)
    except Exception as error:  # of tfds, requests or the file system, often of many lines
        raise InputError(
            f"{dataset} could not be fetched into {downloads.parent}, which {cache.CACHE} can "
            f"move: {inputs.first_line(error)}"
        ) from None


def _answers(url: str) -> bool:
    """Return whether a server answers within seconds: tfds itself would try for minutes."""
    import requests

    answers: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(requests.RequestException):
            answers.append(requests.head(url, timeout=PATIENCE).status_code < 500)

    # In a thread, because a name server may hang beyond the timeout of the request.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return any(answers)


def _prepared(folder: Path, dataset: str, config: str) -> Path | None:
    """Return the folder of the newest version that tfds prepared in `folder`."""
    versions = [path.parent for path in (folder / dataset / config).glob("*.*.*/dataset_info.json")]

    def version(path: Path) -> tuple[int, ...]:
        return tuple(int(part) if part.isdigit() else -1 for part in path.name.split("."))

    return max(versions, key=version, default=None)


@functools.lru_cache(maxsize=2)  # it takes seconds, and `stamp` tells versions apart
def _read_prepared(dataset: str, prepared: Path, stamp: int) -> tuple[Split, Split]:
    tfds = _tfds(dataset)
    try:
        builder = tfds.builder_from_directory(prepared)
        # Checked here, because tfds explains a missing package on a whole page.
        kind = builder.info.file_format.value
        needed = "array_record" if kind == "array_record" else "tensorflow"
        if importlib.util.find_spec(needed) is None:
            raise InputError(
                f"data_dir: {prepared} was prepared as {kind}, which needs {needed} to be read: "
                "install it, or give a folder with the published files"
            )
        return _read_split(tfds, builder, "train"), _read_split(tfds, builder, "test")
    except InputError:
        raise
    except Exception as error:  # of tfds, protobuf or array_record, often of many lines
        raise InputError(
            f"data_dir: {prepared} is damaged ({inputs.first_line(error)}): remove it"
        ) from None


def _read_split(tfds: Any, builder: Any, split: str) -> Split:
    if builder.info.file_format is not tfds.core.FileFormat.ARRAY_RECORD:
        arrays = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
        return Split(np.asarray(arrays["image"]), np.asarray(arrays["label"]))
    from PIL import Image

    decoders = {"image": tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split=split, decoders=decoders)
    records = source.__getitems__(range(len(source)))
    images = np.stack([np.asarray(Image.open(io.BytesIO(record["image"]))) for record in records])
    images = images[..., None] if images.ndim == 3 else images
    return Split(images, np.array([record["label"] for record in records]))
