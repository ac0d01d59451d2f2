"""A store in one process: damage, leftovers, growth, and stores of other studies."""

import dataclasses
import hashlib
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import cloudpickle
import jax
import numpy as np
import optax
import pytest
from agree import assert_same_bits, assert_same_numbers
from small_study import small

import jaxota as jo
from jaxota._core import capacity
from jaxota._core.part import describe, difference
from jaxota.cli import main as cli
from jaxota.study import compile as compile_
from jaxota.study import sealed
from jaxota.study import store as stores
from jaxota.study.executor import StudyJob, _unpickled_job, compute_in_worker
from jaxota.study.store import Store

STUDY = small.replace(trials=7)  # 2 settings × chunks of 3, 3 and 1 trials
CHUNKS = 6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("store"),
]  # one worker: what was swept is shared


@pytest.fixture(autouse=True)
def chunks_of_three(monkeypatch):
    monkeypatch.setattr(capacity, "rows_at_once", lambda *_: 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished store, to be copied, and what the study gives in memory."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "rows_at_once", lambda *_: 3)
        STUDY.run(folder)
        return folder, STUDY.run()


@pytest.fixture(scope="module")
def whole(finished):
    return finished[1]


@pytest.fixture
def out(finished, tmp_path):
    """A finished store."""
    return shutil.copytree(finished[0], tmp_path / "out")


@pytest.fixture
def computed(monkeypatch):
    """The labels of the chunks that were computed."""
    labels, compute = [], StudyJob.compute

    def noted(job, layout, number, *rest):
        labels.append(layout.label(number))
        return compute(job, layout, number, *rest)

    monkeypatch.setattr(StudyJob, "compute", noted)
    return labels


def listing(folder):
    """All that is in a folder, when it was written, and what it holds; not the lock."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in (folder, *folder.rglob("*"))
        if path.name != ".lock"
    }


def test_a_store_holds_the_same_bits_as_memory(out, whole):
    data = jo.open(out)
    assert_same_bits(data, whole)
    assert data.attrs["chunks"] == data.attrs["chunks_done"] == CHUNKS
    assert data.attrs | whole.attrs == data.attrs


def chunk(out, label="1.0"):
    """The file of a chunk."""
    store = Store(out)
    labels = [store.layout.label(n) for n in range(store.layout.count)]
    return out / "chunks" / store.names[labels.index(label)]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def empty(path):
    path.write_bytes(b"")


def folder(path):
    path.unlink()
    (path / "inside").mkdir(parents=True)


def swap(path):
    """A chunk, whole, at the place of another."""
    shutil.copy(chunk(path.parents[1], "0.0"), path)


@pytest.mark.parametrize("damage", [flip, truncate, empty, folder, swap])
def test_a_damaged_chunk_is_named_and_computed_again(out, whole, computed, capsys, damage):
    damage(chunk(out))
    with pytest.raises(jo.InputError, match=r"out: chunk 1\.0 is damaged: --resume computes it"):
        jo.open(out)
    assert cli.main(["show", str(out)]) == 2
    assert re.fullmatch(r"jaxota: .*chunk 1\.0 is damaged.*\n", capsys.readouterr().err)
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert computed == ["1.0"]
    assert_same_bits(jo.open(out), whole)


@pytest.mark.parametrize("lost", ["chunks", "study.json", "plans"])
def test_whatever_is_lost_is_made_again(out, whole, computed, lost):
    """A store without its study.json is one as long as its chunks are there: they are not lost."""
    shutil.rmtree(out / lost) if (out / lost).is_dir() else (out / lost).unlink()
    if lost == "study.json":
        with pytest.raises(jo.InputError, match=r"holds no store"):
            jo.open(out)
        with pytest.raises(jo.InputError, match=r"holds other files"):
            STUDY.run(out)
    if lost == "chunks":
        assert jo.open(out).attrs["chunks_done"] == 0
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert len(computed) == (CHUNKS if lost == "chunks" else 0)


def test_leftovers_of_a_kill_are_removed(out, whole, computed):
    leftovers = [
        out / "chunks" / ".jaxota-abc" / "0123",
        out / "plans" / ".jaxota-abc" / "0123",
        out / ".jaxota-abc" / "study.json",
    ]
    before = listing(out)
    for path in leftovers:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half of")
        (path.parent / ".lock").touch()  # nobody holds it any more
    assert_same_bits(jo.open(out), whole)  # it does not show, either
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert not any(path.exists() for path in leftovers) and not computed
    after = listing(out)
    assert {k: v for k, (_, v) in before.items()} == {k: v for k, (_, v) in after.items()}


def test_missing_chunks_are_nan(tmp_path, whole):
    """Chunks of another shard, and one that was lost."""
    out = tmp_path / "out"
    STUDY.run(out, shard=(0, 2))
    data = jo.open(out)
    assert (data.attrs["chunks_done"], data.attrs["chunks"]) == (3, CHUNKS)
    chunk(out, "0.0").unlink()
    data = jo.open(out)
    assert data.attrs["chunks_done"] == 2
    for name in data:
        # [algorithm, snr_db, trial, …]: of the chunks 0, 2 and 4 two are left, 0.2 and 1.1.
        there = np.zeros((2, 7), bool)
        there[0, 6:] = there[1, 3:6] = True
        values, expected = data[name].values, whole[name].values
        assert np.isnan(values[:, ~there]).all(), name
        np.testing.assert_array_equal(values[:, there], expected[:, there])


class Loud:
    """Says so when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_nothing_is_unpickled(out, whole, tmp_path):
    marker = tmp_path / "unpickled"
    for path in (chunk(out, "1.2"), *(out / "plans").iterdir()):
        path.write_bytes(pickle.dumps(Loud(marker)))
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert not marker.exists()
    for source in Path(jo.__file__).parent.rglob("*.py"):
        if source.name != "executor.py":  # what a process sends to its own workers
            reads = r"import pickle|from (cloud)?pickle|pickle\.loads?\(|allow_pickle=True"
            assert not re.search(reads, source.read_text()), source


def other_values(path, store):
    """A plan that is whole, of the right form, and has other numbers."""
    about = {"study": store.metadata["hash"], "plan": "another"}
    arrays = {"update_energy": np.full(4, 9.0, "f4"), "model_mean": np.zeros((4, 4), "f4")}
    sealed.write(path, about, arrays | {"model_var": np.ones((4, 4), "f4")})


def npz(path, store):
    with open(path, "wb") as file:
        np.savez(file, update_energy=np.full(4, 9.0, "f4"))


def unknown_key(path, store):
    sealed.write(path, {"study": store.metadata["hash"], "plan": path.name}, {"x": np.ones(2)})


@pytest.mark.parametrize("damage", [other_values, npz, unknown_key, lambda path, _: folder(path)])
def test_a_damaged_plan_is_measured_again(out, whole, damage):
    plans = sorted((out / "plans").iterdir())
    assert len(plans) == 2  # of each algorithm
    before = [path.read_bytes() for path in plans]
    for path in plans:
        damage(path, Store(out))
    chunk(out, "1.2").unlink()
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert [path.read_bytes() for path in plans] == before


def test_stored_calibrations_are_not_measured_again(out, whole, monkeypatch):
    chunk(out, "1.2").unlink()
    measured = lambda *_: pytest.fail("it was measured again")  # noqa: E731
    monkeypatch.setattr(compile_.Programs, "calibrate", measured)
    assert_same_bits(STUDY.run(out, resume=True), whole)


def test_resuming_a_finished_store_changes_nothing(out, whole, computed):
    before = listing(out)
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert listing(out) == before and not computed


@pytest.mark.parametrize("keep", ["trials", "mean"])
def test_more_trials_and_settings_compute_only_what_is_missing(tmp_path, computed, keep):
    """To the bit, as the chunks are cut as they were."""
    out, study = tmp_path / "out", STUDY.replace(keep=keep)
    study.run(out)
    larger = study.replace(trials=10, over=jo.grid(snr_db=[5.0, 0.0, 10.0]))
    # What is there keeps its place: new labels come last.
    fresh = larger.replace(over=jo.grid(snr_db=[0.0, 10.0, 5.0])).run()
    written = {p.name: p.stat().st_mtime_ns for p in (out / "chunks").iterdir()}
    short = {chunk(out, "0.2").name, chunk(out, "1.2").name}
    computed.clear()
    data = larger.run(out, resume=True)
    # A chunk of one trial has become one of three.
    assert sorted(computed) == ["0.2", "0.3", "1.2", "1.3", "2.0", "2.1", "2.2", "2.3"]
    for name in written.keys() - short:
        assert (out / "chunks" / name).stat().st_mtime_ns == written[name]
    assert {path.name for path in (out / "chunks").iterdir()} == {*Store(out).names}
    assert list(data.snr_db.values) == [0.0, 10.0, 5.0]
    assert_same_bits(data, fresh)
    assert_same_bits(jo.open(out), fresh)
    computed.clear()
    study.replace(trials=10, over=jo.grid(snr_db=[10.0, 5.0, 0.0])).run(out, resume=True)
    assert not computed


def test_larger_models_come_beside_smaller_ones(tmp_path, computed):
    out = tmp_path / "out"
    task = jo.tasks.synthetic_regression(jax.random.key(0), users=4, samples=15, dim=3)
    study = STUDY.replace(task=task, trials=3, over=jo.grid(dim=[3]))
    study.run(out)
    larger = study.replace(over=jo.grid(dim=[3, 6]))
    computed.clear()
    data = larger.run(out, resume=True)
    assert computed == ["1.0"]
    assert_same_numbers(data, larger.run())


def test_a_chunk_of_a_store_that_grows_meanwhile_is_never_another(out, whole):
    """Two drivers: one grows the store while the other has chosen its chunks."""
    job = StudyJob(STUDY)
    lost = [chunk(out, label) for label in ("0.2", "1.1")]  # of 1 trial, and of 3
    for path in lost:
        path.unlink()
    driver, words = Store(out), cloudpickle.dumps(job.study)
    names = [driver.names[n] for n in driver.missing()]
    assert names == [path.name for path in lost]
    larger = STUDY.replace(trials=10, over=jo.grid(snr_db=[0.0, 10.0, 5.0]))
    Store.create(out, StudyJob(larger), resume=True)
    for name in names:
        compute_in_worker(words, str(out), name)
    # The short chunk has become a longer one, which the other driver computes.
    assert [path.exists() for path in lost] == [False, True]
    driver.write(2, job.compute(driver.layout, 2))  # and in this process
    data = jo.open(out)
    there = data.gap.notnull().all(["algorithm", "evaluation"]).values
    assert there.sum() == 4 * 3  # 0.0, 0.1, 1.0, 1.1
    assert there[:2, :6].all()
    np.testing.assert_array_equal(data.gap.values[:, :2, :6], whole.gap.values[:, :, :6])
    assert_same_bits(larger.run(out, resume=True), larger.run())


def scaled(factor):
    """A researcher's own optimizer."""
    return optax.stateless(lambda updates, _: jax.tree.map(lambda u: factor * u, updates))


OWN = STUDY.replace(
    trials=3,
    algorithms={
        "own": jo.noisy_fedavg(0.05, 2, 3, transform=scaled(0.5)),
        "COTAF": jo.cotaf(0.05, 2, 3),
    },
    over=jo.grid({"snr_db": [0.0, 10.0], "power": [1.0, 2.0]}),
    reference="own",
)
CHANGES = {
    "rounds": ({"rounds": 5}, r"rounds is 4 there and 5 here"),
    "channel": ({"channel": jo.Channel(10.0, control_power=2.0)}, r"channel\.control_power is"),
    "function": (
        {"algorithms": OWN.algorithms | {"own": jo.noisy_fedavg(0.05, 2, 3, scaled(0.25))}},
        r"algorithms\.own\.local\.transform",
    ),
    "order": (
        {"algorithms": dict(reversed(OWN.algorithms.items()))},
        r'order is \["own", "COTAF"\] there and',
    ),
    "key": ({"key": 1}, r"key"),
    "keep": ({"keep": "mean"}, r'keep is "trials" there and "mean" here'),
    "fewer trials": ({"trials": 2}, r"holds 3 trials: trials must be at least as many, got 2"),
    "fewer settings": ({"over": jo.grid({"snr_db": [0.0], "power": [1.0]})}, r"setting"),
    "other settings": (
        {"over": jo.grid({"snr_db": [0.0, 10.0], "power": [1.0, 3.0]})},
        r"holds another setting 1: \S*power is 2\.0 there and 3\.0 here",
    ),
    "other axes": ({"over": jo.grid(snr_db=[0.0, 10.0], power=[1.0, 2.0])}, r"axes"),
}


def within(name):
    """Of an order of each process's own, as jitted functions have addresses of their own."""
    return name in {"a", "b", "c", "d"}


def test_code_is_described_alike_in_every_process():
    words = f"""
import json, jax, jax.numpy as jnp
from jaxota._core.part import describe
{inspect.getsource(within)}
print(json.dumps(describe([jax.jit(within), jnp.tanh])))
"""
    told = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", words],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        told.add(done.stdout)
    assert len(told) == 1


def test_changed_code_of_a_part_changes_its_description():
    def made(method):
        return dataclasses.make_dataclass("Mine", [("width", int, 3)], namespace={"go": method})()

    same = [made(lambda self, x: 2 * x), made(lambda self, x: 2 * x)]
    assert describe(same[0]) == describe(same[1])
    assert difference(describe(made(lambda self, x: 3 * x)), describe(same[0])).startswith("code")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "out"
    OWN.run(out)
    return out


@pytest.mark.parametrize("change", CHANGES)
def test_the_store_of_another_study_is_refused_and_left_alone(own, computed, change):
    changed, words = CHANGES[change]
    before = listing(own)
    with pytest.raises(jo.InputError, match=words) as raised:
        OWN.replace(**changed).run(own, resume=True)
    assert "\n" not in str(raised.value)
    assert listing(own) == before and not computed


def test_another_part_of_the_same_label_is_refused(tmp_path):
    out, study = tmp_path / "out", OWN.replace(trials=1)
    weak, strong = (study.replace(over=jo.grid(fading={"mine": jo.rician(k)})) for k in (1.0, 9.0))
    weak.run(out)
    with pytest.raises(
        jo.InputError, match=r"holds another fading mine: \S+ is 1\.0 there and 9\.0 here"
    ):
        strong.run(out, resume=True)


@pytest.mark.parametrize("package", [jax, jo])
def test_the_store_of_another_version_is_refused(own, monkeypatch, package):
    """Here, and by a worker; reading it needs no version."""
    before, job = listing(own), StudyJob(OWN)
    _unpickled_job.cache_clear()
    monkeypatch.setattr(package, "__version__", "0.0.1")
    words = package.__name__ + r' is "[\d.]+" there and "0\.0\.1" here'
    with pytest.raises(jo.InputError, match=words):
        OWN.run(own, resume=True)
    with pytest.raises(jo.InputError, match=f"another study than a worker has: {words}"):
        compute_in_worker(cloudpickle.dumps(job.study), str(own), Store(own).names[0])
    assert listing(own) == before
    jo.open(own)


@pytest.mark.parametrize("year", [1975, 2100])
def test_the_clock_does_not_matter(out, whole, computed, year):
    """Files of the future, as where a clock was set back, and very old ones."""
    seconds = (year - 1970) * 365 * 86400
    for path in out.rglob("*"):
        os.utime(path, (seconds, seconds))
    chunk(out).unlink()
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert computed == ["1.0"]
    assert_same_bits(jo.open(out), whole)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_read_only_store_is_shown(finished, whole, disk, capsys):
    folder, remount = disk("size=2m")
    out = shutil.copytree(finished[0], folder / "out")
    remount("size=2m,ro")
    assert_same_bits(jo.open(out), whole)
    assert cli.main(["show", str(out)]) == cli.main(["report", str(out)]) == 2
    printed, errors = capsys.readouterr()
    assert "final gap" in printed and "wrote" not in printed
    assert errors.count("Read-only file system") == errors.count("\n") == 2
    with pytest.raises(jo.InputError, match="must be a folder that can be written"):
        STUDY.run(out, resume=True)


def test_folders_with_other_content_are_left_alone(own, tmp_path, computed):
    before = listing(own)
    with pytest.raises(jo.InputError, match=r"holds a store already: go on with it by --resume"):
        OWN.run(own)
    assert listing(own) == before
    foreign = tmp_path / "mine"
    (foreign / "plans").mkdir(parents=True)
    (foreign / "thesis.tex").write_text("all of it")
    before = listing(foreign)
    for resume in (False, True):
        with pytest.raises(jo.InputError, match=r"must be a new or an empty folder"):
            OWN.run(foreign, resume=resume)
    assert listing(foreign) == before and not (foreign / ".lock").exists() and not computed


def killed(*_):
    raise KeyboardInterrupt


def test_a_store_killed_while_growing_can_be_read_and_resumed(out, whole, monkeypatch):
    larger = STUDY.replace(trials=10, over=jo.grid(snr_db=[0.0, 10.0, 5.0]))
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_digest", killed)
        with pytest.raises(KeyboardInterrupt):
            larger.run(out, resume=True)
    assert_same_bits(jo.open(out), whole)
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert_same_bits(larger.run(out, resume=True), larger.run())


def relabel(told):
    told["space"]["coords"]["snr_db"][1] = [10.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [
        relabel,
        lambda told: told["description"].update(rounds=5),
        lambda told: told["attributes"].update(metric="loss"),
        lambda told: told.update(name="other"),
        lambda told: told.pop("sha256"),
        lambda told: told.clear(),
        None,
    ],
)
def test_a_changed_study_json_is_damaged_and_mended(out, whole, computed, capsys, change):
    """Whatever of it: also labels, which a look at the numbers alone would not reveal."""
    before = (out / "study.json").read_bytes()
    told = json.loads(before)
    if change:
        change(told)
    (out / "study.json").write_text(json.dumps(told) if change else '{"half')
    with pytest.raises(jo.InputError, match=r"study\.json is damaged: --resume writes it again"):
        jo.open(out)
    assert cli.main(["show", str(out)]) == cli.main(["report", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert (out / "study.json").read_bytes() == before and not computed


def resealed(out, change):
    """A study.json with a right checksum, as of somebody who knows how."""
    told = json.loads((out / "study.json").read_text())
    told.pop("sha256")
    change(told)
    (out / "study.json").write_text(json.dumps({"sha256": stores._digest(told), **told}))


def absurd(told):
    told["space"]["sizes"]["evaluation"] = 10**12
    told["space"]["coords"].pop("evaluation")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (absurd, r"B of results, and this machine has .* of memory: open some of them"),
        (relabel, r"holds? .*chunks so far|damaged"),
        (
            lambda told: told["space"]["sizes"].update(trial=-1),
            r"does not fit together: a size is -1",
        ),
        (lambda told: told["space"].pop("blocks"), r"does not fit together: .*'blocks'"),
        (lambda told: told.pop("meanings"), r"does not fit together: 'meanings'"),
        (
            lambda told: told.update(name="../../evil"),
            r"must be a name for files.*got '../../evil'",
        ),
        (lambda told: told.update(format="jaxota.Store 3"), r"of another form, 'jaxota.Store 3'"),
        (lambda told: told.update(attributes=3), r"does not fit together"),
        (lambda told: told.pop("description"), r"does not fit together: 'description'"),
        (lambda told: told["attributes"].pop("axes"), r"cannot be shown"),
        (lambda told: told["attributes"].update(study="../../evil"), r"must be a name for files"),
        (lambda told: told["description"].update(channel=3), r"cannot be shown"),
    ],
)
def test_a_store_that_was_made_up_is_one_line(out, capsys, change, words):
    resealed(out, change)
    inside = {*out.parent.rglob("*")}
    code = cli.main(["show", str(out)])
    printed, errors = capsys.readouterr()
    if change is relabel:  # then no chunk is of these settings
        assert code == 0 and "0 of 6 chunks so far" in printed
        return
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert re.search(words, errors), errors
    assert {*out.parent.rglob("*")} == inside


def test_a_chunk_that_declares_too_much_is_damaged(out, whole):
    path, big = chunk(out), {"gap": ["<f4", [10**6, 10**6]]}
    about = json.dumps({"chunk": path.name, "arrays": big}).encode() + b"\n"
    content = about + zlib.compress(bytes(10**6), 9)
    path.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(jo.InputError, match=r"chunk 1\.0 is damaged"):
        jo.open(out)
    for arrays in ({"gap": np.zeros((9, 9, 9, 9), "f4")}, {"gap": np.zeros(3)}, {"x": np.zeros(3)}):
        sealed.write(path, {"chunk": path.name}, arrays)
        with pytest.raises(jo.InputError, match=r"chunk 1\.0 is damaged"):
            jo.open(out)
    assert_same_bits(STUDY.run(out, resume=True), whole)


def test_a_store_of_the_older_form_is_one_line(tmp_path):
    (tmp_path / "data.zarr").mkdir()
    (tmp_path / "study.json").write_text(json.dumps({"format": "jaxota.Store 1", "hash": "0"}))
    for act in (lambda: jo.open(tmp_path), lambda: STUDY.run(tmp_path, resume=True)):
        with pytest.raises(jo.InputError, match=r"older form, in Zarr.*: sweep again into another"):
            act()


def test_some_results_alone_are_read(out, whole):
    data = jo.open(out, only=["gap"])
    assert list(data) == ["gap"]
    np.testing.assert_array_equal(data.gap, whole.gap)
    with pytest.raises(jo.InputError, match=r"only must be 'gap' or 'loss' or .*, got 'gain'"):
        jo.open(out, only=["gain"])
    for junk in ("gap", 3, {"gap"}):
        with pytest.raises(jo.InputError, match=r"only must be a list of names of results"):
            jo.open(out, only=junk)


def test_a_chunk_can_be_read_by_hand(out, whole):
    """As docs/trust.md shows: by the standard library and NumPy."""
    page = (Path(__file__).parents[1] / "docs" / "trust.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    space = {}
    exec(snippet, space)
    about, arrays = space["read_chunk"](chunk(out))
    assert about["labels"] == {"algorithm": ["COTAF", "noisy FedAvg"], "snr_db": [10.0]}
    assert about["trials"] == [0, 3] and arrays.keys() == set(whole)
    for name, values in arrays.items():
        np.testing.assert_array_equal(values[:, 0], whole[name].values[:, 1, :3])


def test_a_chunk_written_twice_keeps_the_first(out, whole):
    """The second may be of fewer devices, whose last places differ."""
    store = Store(out)
    arrays = {name: np.zeros_like(v) for name, v in store.layout.empty(0).items()}
    before = listing(out)
    store.write(0, arrays)
    assert listing(out) == before
    assert_same_bits(jo.open(out), whole)
