"""Image datasets kept and read by tensorflow-datasets (tfds), without TensorFlow.

Looked for in this order: prepared by tfds in the folder; the published files in the folder, which
are prepared once, in the cache folder; the same files from the internet.
"""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import importlib.util
import io
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from jaxota._core import files as _files
from jaxota._core import inputs as _validate
from jaxota.cli import process
from jaxota.errors import InputError
from jaxota.tasks.images import published

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
    folder, cache = _folder(data_dir), process.cache_folder() / "datasets"
    home = cache / "-".join(filter(None, (dataset, config, "published")))
    place, files = _prepared(folder, dataset, config), dict[str, bytes]()
    if place is None:
        files = published.find(folder, dataset, config) or {}
        if files:
            _refuse_others(tfds, folder, dataset, files)
            home = cache / "-".join(filter(None, (dataset, config, _fingerprint(files))))
        else:
            place = _prepared(home, dataset, config)
            files = {} if place else _fetched(tfds, folder, cache, dataset, config)
    if place is None:
        splits = published.parse(dataset, config, files)
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
            f"{process.CACHE}"
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
        names = sum(published.names(dataset, config).values(), ())
        wanted = ", ".join(f"{name}.gz" for name in names)
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
        return published.find(copies, dataset, config) or {}


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
