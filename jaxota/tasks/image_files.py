"""Image datasets kept and read by tensorflow-datasets (tfds), without TensorFlow.

Looked for in this order: prepared by tfds in the folder; the published files in the folder, which
are prepared once, in the cache folder; the same files from the internet.
"""

import contextlib
import dataclasses
import errno
import functools
import gzip
import hashlib
import importlib.util
import io
import math
import os
import shutil
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from jaxota._core import files as _files
from jaxota._core import inputs as _validate
from jaxota._core.inputs import first_line
from jaxota.cli import cache as _cache
from jaxota.errors import InputError

DATA = "JAXOTA_DATA"  # names the folder where no data_dir is given
PATIENCE = 5.0  # seconds that a server has to answer


@dataclasses.dataclass(frozen=True)
class Split:
    """One part of a dataset; images are decoded when they are asked for."""

    labels: Int[np.ndarray, "sample"]
    pixels: UInt8[np.ndarray, "sample height width channel"] | list[bytes]  # or a PNG each

    def images(
        self, indices: Int[np.ndarray, "*shape"]
    ) -> Float[np.ndarray, "*shape height width channel"]:
        """Pixels between 0 and 1 of the samples `indices`."""
        indices = np.asarray(indices)
        if not isinstance(self.pixels, list):
            return self.pixels[indices] / np.float32(255)
        from PIL import Image

        images = np.stack(
            [np.asarray(Image.open(io.BytesIO(self.pixels[n]))) for n in indices.reshape(-1)]
        )
        images = images[..., None] if images.ndim == 3 else images
        return images.reshape(*indices.shape, *images.shape[1:]) / np.float32(255)


def load(dataset: str, config: str = "", data_dir: Any = None) -> tuple[Split, Split]:
    """The training and test samples of a dataset that tfds knows by this name."""
    try:
        import PIL  # noqa: F401
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise InputError(f"{dataset} needs {error.name}: pip install 'jaxota[datasets]'") from None
    folder, cache = _folder(data_dir), _cache.folder() / "datasets"
    home = cache / "-".join(filter(None, (dataset, config, "published")))
    place, files = _prepared(folder, dataset, config), dict[str, bytes]()
    if place is None:
        files = find(folder, dataset, config) or {}
        if files:
            _refuse_others(tfds, folder, dataset, files)
            home = cache / "-".join(filter(None, (dataset, config, _fingerprint(files))))
        else:
            place = _prepared(home, dataset, config)
            files = {} if place else _fetched(tfds, folder, cache, dataset, config)
    if place is None:
        splits = parse(dataset, config, files)
        if importlib.util.find_spec("array_record") is None:  # there are systems without it
            train, test = (Split(labels, images) for images, labels in splits.values())
            return train, test
        place = _prepared(home, dataset, config)
        place = place or _prepare(tfds, home, dataset, config, splits)
    return _read(place, (place / "dataset_info.json").stat().st_mtime_ns)


def _folder(data_dir: Any) -> Path:
    """Where to look: the folder that was named, or tfds's own."""
    if data_dir is not None:
        _validate.path("data_dir", data_dir)
    named = data_dir or os.environ.get(DATA)
    if not named:
        return Path(os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets")
    name = "data_dir" if data_dir else DATA
    try:
        folder = Path(named).expanduser()
        known = folder.is_dir()
    except (TypeError, OSError, RuntimeError):
        known = False
    if not known:
        raise InputError(f"{name} must be a folder, got {named}, which is none")
    return folder


def _prepared(folder: Path, dataset: str, config: str) -> Path | None:
    """The newest version that tfds prepared in the folder."""
    versions = (folder / dataset / config).glob("*.*.*/dataset_info.json")
    newest = sorted(versions, key=lambda path: _version(path.parent.name))
    return newest[-1].parent if newest else None


def _version(name: str) -> tuple:
    return tuple(int(part) if part.isdigit() else -1 for part in name.split("."))


def _fingerprint(files: dict[str, bytes]) -> str:
    content = hashlib.sha256()
    for name in sorted(files):
        content.update(files[name])
    return content.hexdigest()[:16]


def _refuse_others(tfds: Any, folder: Path, dataset: str, files: dict[str, bytes]) -> None:
    """Fashion-MNIST's files have the names of MNIST's: tfds's checksums tell them apart."""
    held = {hashlib.sha256(content).hexdigest() for content in files.values()}
    for other in {"mnist", "fashion_mnist"} - {dataset}:
        if held & {info.checksum for info in tfds.builder_cls(other).url_infos.values()}:
            raise InputError(f"data_dir: {folder} holds {other}, not {dataset}")


def _prepare(tfds: Any, place: Path, dataset: str, config: str, splits: dict[str, Any]) -> Path:
    """Let tfds write the published arrays to `place`, whole or not at all."""
    with _unwritable(place.parent), _files.drafting(place.parent) as folder:
        draft = folder / place.name
        builder = _builder(tfds, dataset, splits)(
            data_dir=draft, config=config or None, file_format="array_record"
        )
        classes = builder.info.features["label"].num_classes
        for _, labels in splits.values():
            if labels.max() >= classes:
                raise InputError(
                    f"data_dir: labels of {dataset} must lie in 0 … {classes - 1}, "
                    f"got {labels.max()}"
                )
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare()  # it tells of a folder that will not last
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(place)
    found = _prepared(place, dataset, config)
    if found is None:
        raise InputError(f"{place} could not be replaced: remove it, or move it with JAXOTA_CACHE")
    return found


@contextlib.contextmanager
def _unwritable(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{folder} must be a folder that can be written ({_reason(error)}): name another with "
            f"{_cache.CACHE}"
        ) from None


def _reason(error: Exception) -> str:
    """What the system said, which tfds and array_record wrap in words and paths of their own."""
    words = [os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)]
    said = [each for each in words if each in str(error)]
    return said[0] if said else getattr(error, "strerror", None) or _validate.first_line(error)


def _builder(tfds: Any, dataset: str, splits: dict[str, Any]) -> Any:
    """Tfds's own builder of the dataset, handed the arrays of the published files."""
    from tensorflow_datasets.core import registered

    stock = tfds.builder_cls(dataset)

    def split_generators(self: Any, manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(split, *arrays) for split, arrays in splits.items()}

    def generate_examples(self: Any, split: str, images: Any, labels: Any) -> Iterator[Any]:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            record = {"image": _png(image), "label": int(label)}
            yield number, record | ({"id": f"{split}_{number:05d}"} if dataset == "cifar10" else {})

    methods = {"_split_generators": split_generators, "_generate_examples": generate_examples}
    with registered.skip_registration():
        return type(
            stock.__name__, (stock,), {"__module__": __name__, "name": stock.name, **methods}
        )


def _png(image: np.ndarray) -> io.BytesIO:
    """Tfds encodes arrays by TensorFlow alone, but takes files as they are."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "PNG")
    file.seek(0)
    return file


def _fetched(tfds: Any, folder: Path, cache: Path, dataset: str, config: str) -> dict[str, bytes]:
    """The published files from the internet, checksums verified by tfds."""
    urls = tfds.builder_cls(dataset).url_infos
    first = next(iter(urls))
    if not _answers(first):
        wanted = ", ".join(f"{name}.gz" for name in sum(names(dataset, config).values(), ()))
        if dataset == "cifar10":
            wanted = "cifar-10-binary.tar.gz"
        raise InputError(
            f"{dataset} is neither in {folder} nor can {first.split('/')[2]} be reached: put "
            f"{wanted} into a folder and name it with data_dir, --data-dir or {DATA}"
        )
    with _unwritable(cache):
        cache.mkdir(parents=True, exist_ok=True)
    manager = tfds.download.DownloadManager(
        download_dir=cache / "downloads",
        dataset_name=dataset,
        url_infos=urls,
        force_checksums_validation=True,
    )
    try:
        paths = manager.download({info.filename: url for url, info in urls.items()})
    except Exception as error:  # of tfds, requests or the file system, and of many lines
        raise InputError(f"{dataset} could not be fetched: {_validate.first_line(error)}") from None
    with tempfile.TemporaryDirectory() as copies:
        for name, path in paths.items():
            shutil.copy(path, Path(copies) / name)
        return find(copies, dataset, config) or {}


def _answers(url: str) -> bool:
    """Whether a server serves, within seconds: tfds itself would try for minutes."""
    import requests

    answers: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(requests.RequestException):
            answers.append(requests.head(url, timeout=PATIENCE).status_code < 500)

    thread = threading.Thread(target=ask, daemon=True)  # a name server may hang beyond the timeout
    thread.start()
    thread.join(PATIENCE)
    return any(answers)


@functools.lru_cache(maxsize=2)  # the PNGs of MNIST are 17 MB, and take seconds to read
def _read(place: Path, stamp: int) -> tuple[Split, Split]:
    """Both splits as tfds holds them in `place`; `stamp` tells one version of it from another."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(place)
        _refuse_format(builder.info.file_format, place)
        return _read_split(tfds, builder, "train"), _read_split(tfds, builder, "test")
    except InputError:
        raise
    except Exception as error:  # of tfds, protobuf or array_record, and of many lines
        raise InputError(
            f"data_dir: {place} is damaged ({_validate.first_line(error)}): remove it"
        ) from None


def _refuse_format(format: Any, place: Path) -> None:
    """What tfds says of a missing package is a page long."""
    needed = "array_record" if format.value == "array_record" else "tensorflow"
    if importlib.util.find_spec(needed) is None:
        raise InputError(
            f"data_dir: {place} was prepared as {format.value}, which needs {needed} to be read: "
            "install it, or give a folder with the published files"
        )


def _read_split(tfds: Any, builder: Any, split: str) -> Split:
    if builder.info.file_format is not tfds.core.FileFormat.ARRAY_RECORD:
        whole = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
        return Split(np.asarray(whole["label"]), np.asarray(whole["image"]))
    decoders = {"image": tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split=split, decoders=decoders)
    records = source.__getitems__(range(len(source)))
    labels = np.array([record["label"] for record in records])
    return Split(labels, [record["image"] for record in records])


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
