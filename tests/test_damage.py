"""Whatever happens to a file of a store: right numbers or one line, and --resume mends it."""

import itertools
import json
import random
import shutil

import numpy as np
import pytest
from agree import assert_same_bits
from small_study import small

import jaxota as jo
from jaxota._core import capacity
from jaxota.cli import main as cli
from jaxota.study import sealed, store
from jaxota.study.executor import StudyJob, drive, open_sink

pytestmark = pytest.mark.slow  # many

CASES = 440


def flip(path, chance, others):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def change(path, chance, others):
    """Several bytes in a row."""
    content = bytearray(path.read_bytes())
    first = chance.randrange(len(content))
    content[first : first + 8] = chance.randbytes(8)
    path.write_bytes(content)


def truncate(path, chance, others):
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def extend(path, chance, others):
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randrange(1, 40)))


def empty(path, chance, others):
    path.write_bytes(b"")


def delete(path, chance, others):
    path.unlink()


def swap(path, chance, others):
    """With another file, of its kind or not."""
    other = chance.choice(others)
    contents = path.read_bytes(), other.read_bytes()
    path.write_bytes(contents[1])
    other.write_bytes(contents[0])


def folder(path, chance, others):
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGES = flip, flip, change, truncate, extend, empty, delete, swap, folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store of 6 chunks and 2 plans, its job, and the right numbers."""
    out = tmp_path_factory.mktemp("finished") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "rows_at_once", lambda *_: 3)
        job = StudyJob(small.replace(trials=7))
        sink = open_sink(job, out)
        drive(job, sink)
        yield out, job, sink.dataset()


def read_faults(out, whole):
    """What is wrong with reading: a number that is not right, or an error that is no line."""
    try:
        data = jo.open(out)
    except jo.InputError as error:
        named = "damaged" in str(error) or "holds no store" in str(error)
        return [] if named and "\n" not in str(error) else [f"it says {error}"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    if not data.coords.equals(whole.coords) or data.sizes != whole.sizes:
        return ["other labels"]
    there = data.participants.notnull().all(["algorithm", "round"]).values  # [snr_db, trial]
    sizes = [3, 3, 1] * 2
    faults = [] if there.sum() in _sums(sizes, data.attrs["chunks_done"]) else ["other chunks"]
    for name in whole:
        mine, right = data[name].values, whole[name].values
        if not np.array_equal(mine[:, there], right[:, there], equal_nan=True):
            faults.append(f"{name} is not right")
        if not np.isnan(mine[:, ~there]).all():
            faults.append(f"{name} shows what is not there")
    return faults


def _sums(sizes, count):
    return {sum(chosen) for chosen in itertools.combinations(sizes, count)}


def fuzz(finished, scratch, cases, seed=0):
    """The faults of so many cases, by what was done."""
    original, job, whole = finished
    chance, faults, done = random.Random(seed), [], set()
    for number in range(cases):
        out = shutil.copytree(original, scratch / str(number))
        # study.json is one file of nine, and the one with most to lose.
        paths = sorted(path for path in out.rglob("*") if path.is_file())
        many = paths + 3 * [out / "study.json"]
        said = []
        for _ in range(chance.choice((1, 1, 1, 2))):
            path, damage = chance.choice(many), chance.choice(DAMAGES)
            others = [other for other in paths if other.is_file() and other != path]
            if path.is_file() and path.stat().st_size:
                damage(path, chance, others)
                said.append(f"{damage.__name__} {path.relative_to(out)}")
                done.add((damage.__name__, path.relative_to(out).parts[0]))
        wrong = read_faults(out, whole)
        if number % 110 == 0 and cli.main(["show", str(out)]) not in (0, 2):
            wrong.append("show")
        job._programs._plans.clear()  # so that stored ones are read
        try:
            sink = open_sink(job, out, resume=True)
            drive(job, sink)
            assert_same_bits(sink.dataset(), whole)
            assert_same_bits(jo.open(out), whole)
        except Exception as error:
            wrong.append(f"--resume: {type(error).__name__}: {error}")
        faults += [f"{number}: {', '.join(said)}: {line}" for line in wrong]
        shutil.rmtree(out)
    return faults, done


def test_no_damage_gives_a_wrong_number_and_all_is_mended(finished, tmp_path, capsys):
    faults, done = fuzz(finished, tmp_path, CASES)
    assert not faults, "\n".join(faults[:20])
    assert len(done) == 8 * 3  # every damage of study.json, chunks and plans


def test_the_fuzz_finds_a_hole(finished, tmp_path, monkeypatch, capsys):
    """A checksum less, and numbers or labels are wrong; a check less, and --resume fails."""
    with monkeypatch.context() as patch:
        patch.setattr(store, "_digest", lambda _: "0")
        patch.setattr(store, "_read_metadata", _without_checksum)
        assert fuzz(finished, tmp_path, 60)[0]
    with monkeypatch.context() as patch:
        patch.setattr(sealed.hashlib, "sha256", lambda _: _Nothing())
        assert fuzz(finished, tmp_path, 60)[0]


class _Nothing:
    def digest(self):
        return b""


def _without_checksum(folder):
    return json.loads((folder / "study.json").read_text())
