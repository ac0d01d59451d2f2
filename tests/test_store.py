"""A store in one process: damage, leftovers, growth, and stores of other studies."""

import dataclasses
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from agree import assert_same_bits, assert_same_numbers
from small_study import small

import jaxota as jo
from jaxota._core import devices as _devices
from jaxota._core.part import describe, difference
from jaxota.cli import main as cli
from jaxota.study import compile as compile_
from jaxota.study import store as stores
from jaxota.study.executor import StudyJob
from jaxota.study.store import Store

STUDY = small.replace(trials=7)  # 2 settings × chunks of 3, 3 and 1 trials
CHUNKS = 6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("store"),
]  # one worker: what was swept is shared


@pytest.fixture(autouse=True)
def chunks_of_three(monkeypatch):
    monkeypatch.setattr(_devices, "rows_at_once", lambda *_: 3)


@pytest.fixture(scope="module")
def whole():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_devices, "rows_at_once", lambda *_: 3)
        return STUDY.run()


@pytest.fixture
def out(tmp_path):
    """A finished store."""
    STUDY.run(tmp_path / "out")
    return tmp_path / "out"


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


def flip(out):
    path = out / "data.zarr" / "gap" / "c" / "0" / "1" / "0" / "0"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def remove(out):
    (out / "data.zarr" / "model" / "c" / "0" / "1" / "0" / "0").unlink()


def truncate(out):
    record = out / "commits" / "1.0.json"
    record.write_bytes(record.read_bytes()[:-20])


def empty(out):
    (out / "commits" / "1.0.json").write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, remove, truncate, empty])
def test_a_damaged_chunk_is_named_and_computed_again(out, whole, computed, capsys, damage):
    damage(out)
    with pytest.raises(jo.InputError, match=r"out: chunk 1\.0 is damaged: --resume computes it"):
        jo.open(out)
    assert cli.main(["show", str(out)]) == 2
    assert re.fullmatch(r"jaxota: .*chunk 1\.0 is damaged.*\n", capsys.readouterr().err)
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert computed == ["1.0"]
    assert_same_bits(jo.open(out), whole)


def test_leftovers_of_a_kill_are_removed(out, whole, computed):
    leftovers = [
        out / "data.zarr" / "gap" / "c" / "0" / "1" / "0" / "0.6f1f.partial",
        out / "data.zarr" / "gap" / "zarr.6f1f.partial",
        out / "commits" / ".jaxota-abc" / "1.0.json",
        out / "plans" / ".jaxota-abc" / "0123.npz",
        out / ".jaxota-abc" / "study.json",
    ]
    before = listing(out)
    for path in leftovers:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half of")
    assert_same_bits(jo.open(out), whole)  # it does not show, either
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert not any(path.exists() for path in leftovers) and not computed
    after = listing(out)
    assert {k: v for k, (_, v) in before.items()} == {k: v for k, (_, v) in after.items()}


def test_a_folder_killed_before_study_json_is_made_anew(out, whole):
    (out / "study.json").unlink()
    with pytest.raises(jo.InputError, match=r"holds no store"):
        jo.open(out)
    with pytest.raises(jo.InputError, match=r"holds other files"):  # finished chunks stay
        STUDY.run(out, resume=True)
    shutil.rmtree(out / "plans")
    for path in (out / "commits").iterdir():
        path.unlink()
    assert_same_bits(STUDY.run(out, resume=True), whole)


def test_missing_chunks_are_nan(tmp_path, whole):
    """Chunks of another shard, and one whose files are there, but not its record."""
    out = tmp_path / "out"
    STUDY.run(out, shard=(0, 2))
    data = jo.open(out)
    assert (data.attrs["chunks_done"], data.attrs["chunks"]) == (3, CHUNKS)
    (out / "commits" / "0.0.json").unlink()
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


@pytest.mark.parametrize("how", ["array", "file"])
def test_nothing_is_unpickled(out, whole, tmp_path, how):
    marker = tmp_path / "unpickled"
    plans = list((out / "plans").iterdir())
    assert len(plans) == 2  # of each algorithm
    for plan in plans:
        if how == "array":
            content = np.empty((), object)
            content[()] = Loud(marker)
            with open(plan, "wb") as file:
                np.savez(file, **{"0.update_energy": content})
        else:
            plan.write_bytes(pickle.dumps(Loud(marker)))
    (out / "commits" / "1.2.json").unlink()
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert not marker.exists()
    for plan in plans:
        with np.load(plan, allow_pickle=False) as stored:  # measured anew, and kept
            assert "0.update_energy" in stored
    for source in Path(jo.__file__).parent.rglob("*.py"):
        if source.name != "executor.py":  # what a process sends to its own workers
            reads = r"import pickle|from (cloud)?pickle|pickle\.loads?\(|allow_pickle=True"
            assert not re.search(reads, source.read_text()), source


def test_stored_calibrations_are_not_measured_again(out, whole, monkeypatch):
    (out / "commits" / "1.2.json").unlink()
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
    written = {p.name: p.stat().st_mtime_ns for p in (out / "commits").iterdir()}
    computed.clear()
    data = larger.run(out, resume=True)
    # A chunk of one trial has become one of three.
    assert sorted(computed) == ["0.2", "0.3", "1.2", "1.3", "2.0", "2.1", "2.2", "2.3"]
    for name in written.keys() - {"0.2.json", "1.2.json"}:
        assert (out / "commits" / name).stat().st_mtime_ns == written[name]
    assert list(data.snr_db.values) == [0.0, 10.0, 5.0]
    assert_same_bits(data, fresh)
    assert_same_bits(jo.open(out), fresh)
    computed.clear()
    study.replace(trials=10, over=jo.grid(snr_db=[10.0, 5.0, 0.0])).run(out, resume=True)
    assert not computed


def test_all_files_of_larger_models_are_checked(tmp_path, computed):
    """A model's chunk is more than one file where a new setting has more parameters."""
    out = tmp_path / "out"
    task = jo.tasks.synthetic_regression(jax.random.key(0), users=4, samples=15, dim=3)
    study = STUDY.replace(task=task, trials=3, over=jo.grid(dim=[3]))
    study.run(out)
    larger = study.replace(over=jo.grid(dim=[3, 6]))
    data = larger.run(out, resume=True)
    assert_same_numbers(data, larger.run())
    files = sorted((out / "data.zarr" / "model" / "c" / "0" / "1").rglob("*"))
    last = [path for path in files if path.is_file()][-1]
    last.unlink()
    computed.clear()
    with pytest.raises(jo.InputError, match=r"chunk 1\.0 is damaged"):
        jo.open(out)
    assert_same_bits(larger.run(out, resume=True), data)
    assert computed == ["1.0"]


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


def test_the_store_of_another_version_is_refused(own, monkeypatch):
    before = listing(own)
    monkeypatch.setattr(jax, "__version__", "0.0.1")
    with pytest.raises(jo.InputError, match=r'jax is "[\d.]+" there and "0\.0\.1" here'):
        OWN.run(own, resume=True)
    assert listing(own) == before


def test_folders_with_other_content_are_left_alone(own, tmp_path, computed):
    before = listing(own)
    with pytest.raises(jo.InputError, match=r"holds a store already: go on with it by --resume"):
        OWN.run(own)
    assert listing(own) == before
    foreign = tmp_path / "mine"
    (foreign / "data.zarr").mkdir(parents=True)
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
        patch.setattr(stores, "_write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            larger.run(out, resume=True)
    assert_same_bits(jo.open(out), whole)
    assert_same_bits(STUDY.run(out, resume=True), whole)
    assert_same_bits(larger.run(out, resume=True), larger.run())


def test_a_damaged_study_json_is_one_line(out):
    told = json.loads((out / "study.json").read_text())
    told["description"]["rounds"] = 5
    (out / "study.json").write_text(json.dumps(told))
    with pytest.raises(jo.InputError, match=r"study\.json is damaged"):
        jo.open(out)
    (out / "study.json").write_bytes(b'{"half')
    with pytest.raises(jo.InputError, match=r"study\.json cannot be read"):
        STUDY.run(out, resume=True)


def test_a_chunk_written_twice_keeps_the_first(out, whole):
    """The second may be of fewer devices, whose last places differ."""
    store = Store(out)
    arrays = {name: np.zeros_like(v) for name, v in store.layout.empty(0).items()}
    before = listing(out)
    store.write(0, arrays)
    assert listing(out) == before
    assert_same_bits(jo.open(out), whole)
