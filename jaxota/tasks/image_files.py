"""Image datasets: find, verify and read their files, with tensorflow-datasets but no TensorFlow.

A dataset is looked for in this order: prepared by tensorflow-datasets (tfds) in the folder; the
published files in the folder, which tfds prepares once, in the cache; the published files from the
internet. Published are IDX files (MNIST, Fashion-MNIST, EMNIST) and CIFAR-10's binary batches; each
file may lie there as it is, gzipped, or inside the published archive.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from jaxota._core import files, inputs
from jaxota.cli import process
from jaxota.errors import InputError

DATA = "JAXOTA_DATA"  # names the folder to look in if no data_dir is given
PATIENCE = 5.0  # seconds that a server has to answer
_ARCHIVES = {"cifar10": "cifar-10-binary.tar.gz", "emnist": "gzip.zip"}


@dataclasses.dataclass(frozen=True)
class Split:
    """The training or test part of a dataset; images are decoded when they are asked for."""

    labels: Int[np.ndarray, "sample"]
    pixels: UInt8[np.ndarray, "sample height width channel"] | list[bytes]  # or one PNG each

    def images(
        self, indices: Int[np.ndarray, "*shape"]
    ) -> Float[np.ndarray, "*shape height width channel"]:
        """Return the pixels, between 0 and 1, of the samples `indices`."""
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
    """Return the training and test samples of the dataset that tfds knows by this name."""
    try:
        import PIL  # noqa: F401
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise InputError(f"{dataset} needs {error.name}: pip install 'jaxota[datasets]'") from None
    folder, store = _folder(data_dir), process.cache_folder() / "datasets"
    home = store / "-".join(filter(None, (dataset, config, "published")))
    prepared, published = _prepared(folder, dataset, config), dict[str, bytes]()
    if prepared is None:
        published = find(folder, dataset, config) or {}
        if published:
            _refuse_others(tfds, folder, dataset, published)
            content = b"".join(published[name] for name in sorted(published))
            fingerprint = hashlib.sha256(content).hexdigest()[:16]
            home = store / "-".join(filter(None, (dataset, config, fingerprint)))
        else:
            prepared = _prepared(home, dataset, config)
            published = {} if prepared else _fetched(tfds, folder, store, dataset, config)
    if prepared is None:
        splits = parse(dataset, config, published)
        if importlib.util.find_spec("array_record") is None:  # some systems have no such package
            train, test = (Split(labels, images) for images, labels in splits.values())
            return train, test
        prepared = _prepared(home, dataset, config)
        prepared = prepared or _prepare(tfds, home, dataset, config, splits)
    return _read(prepared, (prepared / "dataset_info.json").stat().st_mtime_ns)


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


def _prepared(folder: Path, dataset: str, config: str) -> Path | None:
    """Return the folder of the newest version that tfds prepared in `folder`."""
    versions = [path.parent for path in (folder / dataset / config).glob("*.*.*/dataset_info.json")]

    def version(path: Path) -> tuple[int, ...]:
        return tuple(int(part) if part.isdigit() else -1 for part in path.name.split("."))

    return max(versions, key=version, default=None)


def _refuse_others(tfds: Any, folder: Path, dataset: str, published: dict[str, bytes]) -> None:
    """Refuse MNIST for Fashion-MNIST: file names are the same, but tfds knows the checksums."""
    checksums = {hashlib.sha256(content).hexdigest() for content in published.values()}
    for other in {"mnist", "fashion_mnist"} - {dataset}:
        if checksums & {info.checksum for info in tfds.builder_cls(other).url_infos.values()}:
            raise InputError(f"data_dir: {folder} holds {other}, not {dataset}")


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


def find(folder: str | Path, dataset: str, config: str = "") -> dict[str, bytes] | None:
    """Return the contents of the dataset's files in a folder by name, or None if none is there."""
    folder, wanted = Path(folder), sum(names(dataset, config).values(), ())
    contents = {}
    for name in wanted:
        places = [folder / name, folder / f"{name}.gz"]
        if dataset in _ARCHIVES:
            places.append(folder / _member(dataset, name))  # the archive was unpacked here
        path = next(filter(Path.is_file, places), None)
        if path is not None:
            contents[name] = path.read_bytes()
    if not contents:
        return _packed(folder, dataset, wanted)
    missing = [name for name in wanted if name not in contents]
    if missing:
        raise InputError(f"data_dir: {folder} lacks {', '.join(missing)} beside {min(contents)}")
    return contents


def _member(dataset: str, name: str) -> str:
    """Return the path of a file inside the published archive."""
    return f"cifar-10-batches-bin/{name}" if dataset == "cifar10" else f"gzip/{name}.gz"


def _packed(folder: Path, dataset: str, wanted: tuple[str, ...]) -> dict[str, bytes] | None:
    """Return the files inside the published archive in `folder`, or None without an archive."""
    path = folder / _ARCHIVES.get(dataset, "")
    if not path.is_file():
        return None
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                return {name: archive.read(_member(dataset, name)) for name in wanted}
        with tarfile.open(path) as tape:
            members: dict[str, Any] = {n: tape.extractfile(_member(dataset, n)) for n in wanted}
            return {name: member.read() for name, member in members.items()}
    except (KeyError, AttributeError):  # no such member, or one that is no file
        raise InputError(f"data_dir: {path} lacks files of {dataset}") from None
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        reason = inputs.first_line(error).rstrip(":")
        raise InputError(f"data_dir: {path} is damaged ({reason}): fetch it again") from None


def parse(dataset: str, config: str, published: dict[str, bytes]) -> dict[str, tuple]:
    """Return images [sample, height, width, channel] and labels [sample] per split, as uint8."""
    read = _cifar if dataset == "cifar10" else _idx_pair
    return {
        split: read({name: _unzipped(name, published[name]) for name in parts})
        for split, parts in names(dataset, config).items()
    }


def _unzipped(name: str, content: bytes) -> bytes:
    if content[:2] != b"\x1f\x8b":  # the first bytes of every gzip file
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"data_dir: {name} is damaged ({error}); fetch it again") from None


def _idx(name: str, content: bytes, axes: int) -> np.ndarray:
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


def _idx_pair(contents: dict[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
    images_name, labels_name = contents
    images = _idx(images_name, contents[images_name], 3)
    labels = _idx(labels_name, contents[labels_name], 1)
    if len(images) != len(labels) or images.shape[1:] != (28, 28) or not len(labels):
        raise InputError(
            f"data_dir: {images_name} must hold images of 28 × 28, and as many as {labels_name} "
            f"has labels, {len(labels)} and at least one, got {list(images.shape)}"
        )
    return images[..., None], labels


def _cifar(contents: dict[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
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


def _fetched(tfds: Any, folder: Path, store: Path, dataset: str, config: str) -> dict[str, bytes]:
    """Download the published files; tfds verifies their checksums."""
    urls = tfds.builder_cls(dataset).url_infos
    first = next(iter(urls))
    if not _answers(first):
        wanted = [f"{name}.gz" for name in sum(names(dataset, config).values(), ())]
        wanted = [_ARCHIVES[dataset]] if dataset == "cifar10" else wanted
        raise InputError(
            f"{dataset} is neither in {folder} nor can {first.split('/')[2]} be reached: put "
            f"{', '.join(wanted)} into a folder and name it with data_dir, --data-dir or {DATA}"
        )
    with _unwritable(store):
        store.mkdir(parents=True, exist_ok=True)
    manager = tfds.download.DownloadManager(
        download_dir=store / "downloads",
        dataset_name=dataset,
        url_infos=urls,
        force_checksums_validation=True,
    )
    try:
        paths = manager.download({info.filename: url for url, info in urls.items()})
    except Exception as error:  # of tfds, requests or the file system, often of many lines
        raise InputError(f"{dataset} could not be fetched: {inputs.first_line(error)}") from None
    with tempfile.TemporaryDirectory() as copies:  # tfds keeps them under names of its own
        for name, path in paths.items():
            shutil.copy(path, Path(copies) / name)
        return find(copies, dataset, config) or {}


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


# Files that tfds prepared


def _prepare(tfds: Any, home: Path, dataset: str, config: str, splits: dict[str, Any]) -> Path:
    """Let tfds write the published arrays to `home`, completely or not at all."""
    with _unwritable(home.parent), files.drafting(home.parent) as folder:
        draft = folder / home.name
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
        with contextlib.redirect_stdout(io.StringIO()):  # it would print the name of the draft
            builder.download_and_prepare()
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(home)
    prepared = _prepared(home, dataset, config)
    if prepared is None:
        raise InputError(f"{home} could not be replaced: remove it, or move it with JAXOTA_CACHE")
    return prepared


def _builder(tfds: Any, dataset: str, splits: dict[str, Any]) -> Any:
    """Return tfds's own builder of the dataset, with the arrays in place of its downloads."""
    from PIL import Image
    from tensorflow_datasets.core import registered

    stock = tfds.builder_cls(dataset)

    def split_generators(self: Any, manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(split, *arrays) for split, arrays in splits.items()}

    def generate_examples(self: Any, split: str, images: Any, labels: Any) -> Iterator[Any]:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            # As a PNG file: tfds needs TensorFlow to encode an array, but takes files as they are.
            png = io.BytesIO()
            Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(png, "PNG")
            png.seek(0)
            record = {"image": png, "label": int(label)}
            yield number, record | ({"id": f"{split}_{number:05d}"} if dataset == "cifar10" else {})

    methods = {"_split_generators": split_generators, "_generate_examples": generate_examples}
    with registered.skip_registration():
        return type(
            stock.__name__, (stock,), {"__module__": __name__, "name": stock.name, **methods}
        )


@contextlib.contextmanager
def _unwritable(folder: Path) -> Iterator[None]:
    """Say in one line that the cache cannot be written."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # tfds and array_record wrap the system's reason in words and paths of their own.
        reasons = [os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)]
        reason = next((words for words in reasons if words in str(error)), None)
        reason = reason or getattr(error, "strerror", None) or inputs.first_line(error)
        raise InputError(
            f"{folder} must be a folder that can be written ({reason}): name another with "
            f"{process.CACHE}"
        ) from None


@functools.lru_cache(maxsize=2)  # the PNGs of MNIST are 17 MB, and take seconds to read
def _read(prepared: Path, stamp: int) -> tuple[Split, Split]:
    """Read both splits; `stamp` is part of the cache's key, so that a new version is read again."""
    import tensorflow_datasets as tfds

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
        return Split(np.asarray(arrays["label"]), np.asarray(arrays["image"]))
    decoders = {"image": tfds.decode.SkipDecoding()}
    source = builder.as_data_source(split=split, decoders=decoders)
    records = source.__getitems__(range(len(source)))
    labels = np.array([record["label"] for record in records])
    return Split(labels, [record["image"] for record in records])
