"""Datasets: published files, and what tfds downloads or prepared, without TensorFlow."""

import gzip
import hashlib
import http.server
import io
import os
import socket
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota.tasks import image_files, images

KEY = jax.random.key(0)
MNIST = Path(os.environ.get(image_files.DATA, "/nonexistent"))
needs_mnist = pytest.mark.skipif(
    not (MNIST / "train-images-idx3-ubyte.gz").is_file(),
    reason=f"{image_files.DATA} does not name a folder with the four MNIST files",
)
on_mnist = [needs_mnist, pytest.mark.slow]


def _idx(array) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def _splits(shape=(28, 28), classes=10):
    rng = np.random.default_rng(0)
    return {
        split: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, classes, n))
        for split, n in (("train", 40), ("test", 9))
    }


def _idx_files(splits, config="") -> dict[str, bytes]:
    names = image_files.names("emnist" if config else "mnist", config)
    return {
        name: _idx(array)
        for split, arrays in splits.items()
        for name, array in zip(names[split], arrays, strict=True)
    }


def _write(folder, files, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(
            gzip.compress(content) if packed else content
        )
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, and no other place where data might lie."""
    monkeypatch.setenv("JAXOTA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.delenv(image_files.DATA, raising=False)
    return tmp_path / "cache"


def _prepare(folder, splits) -> Path:
    """Let tfds's own builder of MNIST write these arrays to `folder`, as array_record."""
    import tensorflow_datasets as tfds
    from PIL import Image
    from tensorflow_datasets.core import registered

    stock = tfds.builder_cls("mnist")

    def generate_examples(self, images, labels):
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            # As a PNG file: tfds needs TensorFlow to encode an array, but takes files as they are.
            png = io.BytesIO()
            Image.fromarray(image).save(png, "PNG")
            png.seek(0)
            yield number, {"image": png, "label": int(label)}

    def split_generators(self, manager):
        return {split: self._generate_examples(*arrays) for split, arrays in splits.items()}

    methods = {"_split_generators": split_generators, "_generate_examples": generate_examples}
    with registered.skip_registration():
        names = {"__module__": __name__, "name": stock.name}
        builder = type(stock.__name__, (stock,), names | methods)
    builder(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder / "mnist" / "3.0.1"


def _sorted(images, labels):
    """Rows of label and pixels in one order, whatever order tfds keeps them in."""
    rows = np.concatenate([labels[:, None], images.reshape(len(labels), -1)], 1)
    return rows[np.lexsort(rows.T[::-1])]


def _assert_same(split, arrays):
    np.testing.assert_array_equal(_sorted(*split), _sorted(*arrays))


def test_every_known_set_is_a_function_of_its_name():
    for name in images.DATASETS:
        assert getattr(images, name) is getattr(jo.tasks, name)


def test_published_files_are_those_that_tfds_prepares(tmp_path, cache):
    """In the same order, so that users hold the same images; without TensorFlow, and no cache."""
    splits = _splits()
    folder = _write(tmp_path / "files", _idx_files(splits))
    published = image_files.load("mnist", "", folder)
    for split, arrays in zip(published, splits.values(), strict=True):
        _assert_same(split, arrays)
    assert not cache.exists()
    _prepare(tmp_path / "prepared", splits)
    prepared = image_files.load("mnist", "", tmp_path / "prepared")
    for ours, theirs in zip(published, prepared, strict=True):
        np.testing.assert_array_equal(ours.images, theirs.images)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        assert ours.labels.dtype == theirs.labels.dtype == int
    assert "tensorflow" not in sys.modules


def test_the_same_files_under_another_name_are_another_dataset(tmp_path, cache):
    splits = _splits()
    folder = _write(tmp_path / "files", _idx_files(splits))
    for name in ("mnist", "fashion_mnist"):
        _assert_same(image_files.load(name, "", folder)[0], splits["train"])


def test_published_files_need_no_tfds(tmp_path, cache, monkeypatch):
    splits = _splits()
    folder = _write(tmp_path / "files", _idx_files(splits))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    _assert_same(image_files.load("mnist", "", folder)[1], splits["test"])


def test_unpacked_files_and_the_environment_variable(tmp_path, cache, monkeypatch):
    splits = _splits()
    folder = _write(tmp_path / "files", _idx_files(splits), packed=False)
    monkeypatch.setenv(image_files.DATA, str(folder))
    _assert_same(image_files.load("fashion_mnist")[1], splits["test"])


def test_a_task_of_stored_images(tmp_path, cache):
    splits = _splits()
    folder = _write(tmp_path / "files", _idx_files(splits))
    task = jo.tasks.mnist(KEY, 4, 6, jo.tasks.quantity_skew(1.0), folder, init_scale=0.1)
    assert task.users == 4 and task.dim == 7850 and int(task.counts.sum()) == 24
    features = task.data["features"]
    assert features.min() >= 0 and 0.9 < features.max() <= 1
    images, labels = splits["train"]
    first = np.round(255 * np.asarray(task.numbers[0, 0])).astype(int)
    (where,) = np.flatnonzero((images.reshape(40, -1) == first).all(1))
    assert labels[where] == task.data["labels"][0, 0]
    with pytest.raises(jo.InputError, match="users · samples must be ≤ 40"):
        jo.tasks.mnist(KEY, 10, 600, data_dir=folder)


@pytest.mark.parametrize("place", ["loose", "gzip", "archive"])
def test_emnist_look_alike(tmp_path, cache, place):
    """As single files, as the unpacked archive, and inside the published zip."""
    splits = _splits(classes=47)
    files = _idx_files(splits, "balanced")
    folder = _write(tmp_path / "files" / ("gzip" if place == "gzip" else ""), files)
    if place == "archive":
        with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, f"gzip/{path.name}")
    folder = tmp_path if place == "archive" else tmp_path / "files"
    for split, arrays in zip(
        image_files.load("emnist", "balanced", folder), splits.values(), strict=True
    ):
        _assert_same(split, arrays)
    task = jo.tasks.emnist(KEY, 2, 5, data_dir=folder, module=jo.tasks.MLP(47, (3,)))
    assert task.loss.classes == 47
    with pytest.raises(jo.InputError, match="config must be 'balanced' or 'byclass' or"):
        jo.tasks.emnist(KEY, config="small")


@pytest.mark.parametrize("place", ["loose", "archive"])
def test_cifar10_look_alike(tmp_path, cache, place):
    splits = _splits((32, 32, 3))
    rows = {
        split: np.concatenate(
            [labels[:, None], images.transpose(0, 3, 1, 2).reshape(len(labels), -1)], 1
        ).astype(np.uint8)
        for split, (images, labels) in splits.items()
    }
    pieces = dict(
        zip(image_files.names("cifar10")["train"], np.split(rows["train"], 5), strict=True)
    )
    pieces["test_batch.bin"] = rows["test"]
    files = {name: piece.tobytes() for name, piece in pieces.items()}
    if place == "loose":
        _write(tmp_path / "cifar-10-batches-bin", files, packed=False)
    else:
        with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    for split, arrays in zip(
        image_files.load("cifar10", "", tmp_path), splits.values(), strict=True
    ):
        _assert_same(split, arrays)
    task = jo.tasks.cifar10(KEY, 2, 5, data_dir=tmp_path)
    assert task.data["features"].shape[2:] == (32, 32, 3) and task.dim == 3072 * 10 + 10


@pytest.mark.parametrize("fault", ["no archive", "truncated", "other files", "a folder"])
def test_a_damaged_archive_is_one_clear_line(tmp_path, cache, fault):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        member.type = tarfile.DIRTYPE if fault == "a folder" else tarfile.REGTYPE
        archive.addfile(member)
    if fault == "no archive":
        path.write_bytes(b"none")
    if fault == "truncated":
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.cifar10(KEY, 2, 5, data_dir=tmp_path)
    words = "is damaged (" if fault in ("no archive", "truncated") else "lacks "
    assert f"data_dir: {path} {words}" in str(caught.value) and "\n" not in str(caught.value)


def _damage(files, fault):
    images, labels = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
    content = gzip.compress(files[images])
    if fault == "truncated gzip":
        return {images: content[: len(content) // 2]}
    if fault == "flipped bit":
        middle = len(content) // 2
        return {images: content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]}
    if fault == "truncated":
        return {images: files[images][:-1]}
    if fault == "other kind":
        return {images: b"PK" + files[images]}
    if fault == "too few labels":
        return {labels: _idx(np.zeros(3))}
    if fault == "label":
        return {labels: _idx(np.full(9, 11))}
    if fault == "empty":
        return {labels: _idx(np.zeros(0)), "t10k-images-idx3-ubyte": _idx(np.zeros((0, 28, 28)))}
    return {images: _idx(np.zeros((40, 27, 28)))}  # "shape"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("truncated gzip", "train-images-idx3-ubyte is damaged"),
        ("flipped bit", "train-images-idx3-ubyte is damaged"),
        ("truncated", "train-images-idx3-ubyte is damaged: its header promises [40, 28, 28]"),
        ("other kind", "train-images-idx3-ubyte is not an IDX file of bytes with 3 axes"),
        ("too few labels", "t10k-images-idx3-ubyte must hold images of 28 × 28, and as many as"),
        ("label", "labels of mnist must lie in 0 … 9, got 11"),
        ("shape", "train-images-idx3-ubyte must hold images of 28 × 28"),
        ("empty", "t10k-images-idx3-ubyte must hold images of 28 × 28, and as many as"),
    ],
)
def test_damaged_files_are_one_clear_line_and_leave_nothing(tmp_path, cache, fault, words):
    files = _idx_files(_splits())
    folder = _write(tmp_path / "files", files | _damage(files, fault), packed=False)
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.mnist(KEY, 2, 5, data_dir=folder)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith("data_dir: ")
    assert not cache.exists()


def test_a_missing_file_is_named(tmp_path, cache):
    folder = _write(tmp_path / "files", _idx_files(_splits()))
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(jo.InputError, match=r"lacks t10k-labels-idx1-ubyte beside t10k-images"):
        jo.tasks.mnist(KEY, data_dir=folder)
    with pytest.raises(ValueError, match=r"data_dir: no such folder: .*nowhere"):
        jo.tasks.mnist(KEY, data_dir=tmp_path / "nowhere")


def test_what_only_tensorflow_reads_is_said(tmp_path, cache, capfd):
    info = _prepare(tmp_path, _splits()) / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    if "tensorflow" not in sys.modules:
        capfd.readouterr()  # bars
        with pytest.raises(jo.InputError, match="prepared as tfrecord, which needs tensorflow"):
            jo.tasks.mnist(KEY, data_dir=tmp_path)
        assert capfd.readouterr() == ("", "")  # tfds would go on at length


@pytest.mark.parametrize("fault", ["records", "no records", "info", "no features"])
def test_damaged_prepared_data_are_one_clear_line(tmp_path, cache, fault):
    prepared = _prepare(tmp_path, _splits())
    (records,) = prepared.glob("mnist-train*")
    info = prepared / "dataset_info.json"
    if fault == "records":
        records.write_bytes(records.read_bytes()[:100])
    elif fault == "no records":
        records.unlink()
    elif fault == "info":
        info.write_text(info.read_text()[:50])
    else:
        (prepared / "features.json").unlink()
    with pytest.raises(
        ValueError, match=r"data_dir: .*3\.0\.1 is damaged \(.*\): remove it"
    ) as caught:
        image_files.load("mnist", "", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnist", "train-images-idx3-ubyte.gz"),
        ("fashion_mnist", "t10k-labels-idx1-ubyte.gz"),
        ("emnist", "emnist-balanced-train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-binary.tar.gz"),
    ],
)
def test_offline_with_nothing_prepared_is_one_clear_line(cache, monkeypatch, tmp_path, name, file):
    monkeypatch.setattr(image_files, "_answers", lambda url: False)
    with pytest.raises(jo.InputError) as caught:
        getattr(jo.tasks, name)(KEY)
    words = str(caught.value)
    assert f"{name} is neither in {tmp_path / 'tfds'} nor can" in words and "\n" not in words
    assert file in words and "data_dir, --data-dir or JAXOTA_DATA" in words


@pytest.mark.parametrize("partition", [jo.tasks.iid, jo.tasks.dirichlet, "iid", None])
def test_what_is_no_partition_is_refused(partition):
    with pytest.raises(jo.InputError, match=r"partition must be one such as jo\.tasks\.iid\(\)"):
        jo.tasks.digits(KEY, partition=partition)


def test_a_silent_server_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(image_files, "PATIENCE", 0.3)
    with socket.socket() as silent:  # takes connections, never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        assert not image_files._answers(f"http://127.0.0.1:{silent.getsockname()[1]}/")
        assert time.monotonic() - start < 5


@pytest.fixture
def server(tmp_path):
    """A web server of the look-alike files, in place of the publisher's."""
    folder = _write(tmp_path / "web", _idx_files(_splits()))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.send_error(503) if self.path == "/busy" else super().do_HEAD()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()


def _publish(monkeypatch, server, dataset, sound=True):
    """Let tfds know the server's files as those of the dataset, with sound checksums or not."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import checksums
    from tensorflow_datasets.core.utils import Size

    folder, address = server
    infos = {
        f"{address}{path.name}": checksums.UrlInfo(
            size=Size(path.stat().st_size),
            checksum=hashlib.sha256(path.read_bytes() if sound else b"").hexdigest(),
            filename=path.name,
        )
        for path in sorted(folder.iterdir())[: None if sound else 1]  # no other is being fetched
    }
    monkeypatch.setattr(tfds.builder_cls(dataset), "url_infos", infos)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_downloads_are_kept_apart(server, cache, monkeypatch):
    """Two datasets, each fetched once."""
    for name in ("mnist", "fashion_mnist"):
        _publish(monkeypatch, server, name)
        _assert_same(image_files.load(name)[0], _splits()["train"])
    kept = cache / "datasets"
    assert {path.name for path in kept.iterdir()} == {"mnist", "fashion_mnist"}  # no draft is left
    assert (kept / "mnist").stat().st_mode & 0o055 == 0o055 & ~_umask()
    monkeypatch.setattr(image_files, "_fetch", None)
    for name in ("mnist", "fashion_mnist"):
        image_files.load(name)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_downloads_are_verified_by_tfds(server, cache, monkeypatch):
    _publish(monkeypatch, server, "mnist", sound=False)
    with pytest.raises(jo.InputError, match=r"mnist could not be fetched into .*: ") as caught:
        image_files.load("mnist")
    assert "\n" not in str(caught.value) and not cache.exists()


def test_a_cache_that_cannot_be_written_is_one_clear_line(server, cache, tmp_path, monkeypatch):
    _publish(monkeypatch, server, "mnist")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("JAXOTA_CACHE", str(tmp_path / "file"))
    with pytest.raises(jo.InputError, match=r"which JAXOTA_CACHE can move: .*Not a directory"):
        image_files.load("mnist")


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.parametrize("size", ["8k", "24k"])  # for nothing, and for some of the files
def test_a_full_disk_is_one_clear_line_and_leaves_nothing(size, server, cache, disk, monkeypatch):
    _publish(monkeypatch, server, "mnist")
    place, remount = disk(f"size={size}")
    monkeypatch.setenv("JAXOTA_CACHE", str(place))
    with pytest.raises(jo.InputError, match="No space left on device") as caught:
        image_files.load("mnist")
    assert "\n" not in str(caught.value) and list(place.iterdir()) == []
    remount("size=4M")
    image_files.load("mnist")


def test_a_server_in_trouble_is_not_waited_for(server):
    assert image_files._answers(server[1]) and not image_files._answers(f"{server[1]}busy")


def test_digits_come_with_scikit_learn():
    task = jo.tasks.digits(KEY)
    features, test = np.asarray(task.data["features"]), jax.device_get(task.test_data)
    assert features.shape == (10, 140, 8, 8, 1) and task.dim == 650
    assert test["labels"].shape == (359,) and set(test["labels"]) == set(range(10))
    assert features.min() == 0 and features.max() == 1
    seen = {row.tobytes() for row in features.reshape(-1, 64)}
    assert not seen & {row.tobytes() for row in test["features"].reshape(-1, 64)}


def test_a_seed_is_the_key_of_that_number():
    """Also to a partition of one's own, which is given a key."""
    by_seed, by_key = (jo.tasks.digits(key, users=3, samples=4) for key in (0, KEY))
    np.testing.assert_array_equal(by_seed.numbers, by_key.numbers)

    def first_by_key(key, labels, users, samples):
        assert jax.random.key_data(key).tolist() == [0, 0]
        return np.arange(users * samples).reshape(users, samples)

    assert jo.tasks.digits(0, users=3, samples=4, partition=first_by_key).users == 3


def test_missing_packages_are_named(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(jo.InputError, match=r"mnist needs .*: pip install 'jaxota\[datasets\]'"):
        jo.tasks.mnist(KEY)
    with pytest.raises(jo.InputError, match=r"digits needs scikit-learn: pip install"):
        jo.tasks.digits(KEY)


def test_checksums_are_those_of_tfds():
    import tensorflow_datasets as tfds

    for checksum, name in image_files.TRAIN_LABELS.items():
        known = {i.filename: i.checksum for i in tfds.builder_cls(name).url_infos.values()}
        assert known["train-labels-idx1-ubyte.gz"] == checksum
    configs = tfds.builder_cls("emnist").BUILDER_CONFIGS
    assert {config.name: config.class_number for config in configs} == image_files.EMNIST


class TestMNIST:
    """On the original files."""

    pytestmark = on_mnist

    def test_all_70000_images_are_read(self):
        for split, prefix in zip(
            image_files.load("mnist", "", MNIST), ("train", "t10k"), strict=True
        ):
            images, labels = (
                np.frombuffer(gzip.decompress((MNIST / f"{prefix}-{name}").read_bytes()), "u1")
                for name in ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
            )
            expected = zip(map(bytes, images[16:].reshape(-1, 784)), labels[8:], strict=True)
            read = zip(map(bytes, split.images), split.labels, strict=True)
            assert sorted(map(hash, read)) == sorted(map(hash, expected))

    def test_the_files_of_another_dataset_are_refused(self):
        with pytest.raises(jo.InputError, match=r"holds mnist, not fashion_mnist"):
            jo.tasks.fashion_mnist(KEY, data_dir=MNIST)

    def test_fedavg_reaches_what_it_should(self):
        """Noise-free, fig4's settings: 0.85 ± 0.015 after 100 rounds."""
        task = jo.tasks.mnist(KEY, data_dir=MNIST)
        run = jo.simulate(
            jax.random.key(1), jo.fedavg(1e-2, 5, 20), jo.Channel(), task, 100, 1, every=100
        )
        assert abs(np.mean(run.accuracy[:, -1]) - 0.85) < 0.015

    def test_centralised_training_reaches_what_the_literature_gives(self):
        """Softmax regression on all 60,000 images: about 0.92."""
        task = jo.tasks.mnist(KEY, 1, 60_000, data_dir=MNIST)
        run = jo.simulate(
            jax.random.key(1), jo.fedavg(0.3, 600, 100), jo.Channel(), task, 6, 1, every=6
        )
        assert 0.91 < run.accuracy[0, -1] < 0.93
