"""Plans: what they hold, and how they are kept."""

import gc
import hashlib
import types

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota import calibration
from jaxota._core.arguments import experiment

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}


@pytest.fixture(scope="module")
def plan(task):
    return jo.calibrate(jax.random.key(0), jo.cobaaf(**LOCAL), task, rounds=3, trials=5)


def test_shapes_of_a_plan(plan, task):
    for name, value in vars(plan).items():
        per_user = name.startswith(("model_", "control_m", "control_v", "update_m", "update_v"))
        assert value.shape == ((3, task.users) if per_user else (3,)), name
        assert np.isfinite(value).all()


def test_plain_algorithms_have_no_controls_to_plan(task):
    plan = jo.calibrate(jax.random.key(0), jo.baaf(**LOCAL), task, rounds=3, trials=5)
    for name, value in vars(plan).items():
        assert (value is None) if "control" in name else (len(value) == 3), name


def test_a_plan_survives_a_file(plan, task, tmp_path):
    plain = jo.calibrate(jax.random.key(0), jo.baaf(**LOCAL), task, rounds=3, trials=5)
    listed = jo.Plan((1.0, 2.0), [[0.0], [1.0]], [[1.0], [1.0]])
    for kept in (plan, plain, listed):
        kept.save(tmp_path / "plan.npz")
        read = jo.Plan.load(tmp_path / "plan.npz")
        for name, value in vars(kept).items():
            np.testing.assert_array_equal(getattr(read, name), value)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.npz"]


def test_a_file_that_is_not_a_plan_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a plan")
    np.savez(tmp_path / "other.npz", something=np.ones(3))
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object))
    (tmp_path / "empty.npz").touch()
    for name in ("text", "other.npz", "pickled.npy", "missing.npz", "empty.npz"):
        with pytest.raises(jo.InputError, match="not a plan"):
            jo.Plan.load(tmp_path / name)


def test_a_plan_with_flipped_bytes_is_refused(tmp_path):
    """In the method of compression, which makes zipfile say NotImplementedError."""
    jo.Plan(np.ones(2), np.ones((2, 3)), np.ones((2, 3))).save(tmp_path / "plan.npz")
    stored = bytearray((tmp_path / "plan.npz").read_bytes())
    entry = stored.index(b"PK\x01\x02")
    for place in (8, entry + 10):
        stored[place] = 99
    (tmp_path / "plan.npz").write_bytes(stored)
    with pytest.raises(jo.InputError, match="is not a plan that"):
        jo.Plan.load(tmp_path / "plan.npz")


@pytest.mark.slow
def test_calibration_has_random_numbers_of_its_own():
    """On samples that are all alike, with the same key, calibration and run part only by θ^0."""
    features = np.repeat(np.eye(2)[None, :1], 5, 1)  # [1, 5, 2]: a fifth of it is the same task
    task = jo.tasks.regression(features, np.ones((1, 5)))
    key, algorithm = jax.random.key(0), jo.fedavg(**LOCAL)
    plan = jo.calibrate(key, algorithm, task, rounds=1, trials=3)
    history = jo.simulate(key, algorithm, jo.Channel(), task, 1, 3)
    assert not np.isclose(np.mean(history.model), plan.average_mean[0], rtol=1e-3)
    start = np.ones((3, 2), np.float32)
    plan = jo.calibrate(key, algorithm, task, rounds=1, trials=3, initial=start)
    history = jo.simulate(key, algorithm, jo.Channel(), task, 1, 3, initial=start)
    assert np.isclose(np.mean(history.model), plan.average_mean[0], rtol=1e-5)


@pytest.mark.slow
def test_algorithms_with_one_local_rule_share_a_cached_plan(task, monkeypatch):
    """COTAF, BAAF and other SNRs; not another step size, key or other data."""
    monkeypatch.setattr(calibration, "_cache", {})
    asked = []
    program = calibration._program
    monkeypatch.setattr(
        calibration, "_program", lambda *a, **k: asked.append(1) or program(*a, **k)
    )

    def run(make=jo.cotaf, step_size=1e-2, snr_db=10.0, key=0, task=task):
        experiment = jax.random.key(key), make(step_size, 2, 3), jo.Channel(snr_db), task
        return jo.simulate(*experiment, rounds=3, trials=2, calibration_trials=4)

    first = run()
    run(snr_db=0.0), run(jo.baaf)
    jo.sweep(jax.random.key(0), jo.cotaf(1e-2, 2, 3), jo.Channel([0.0, 5.0]), task, 3, 2,
             calibration_trials=4)  # fmt: skip
    assert len(asked) == 1
    other = task.replace(targets=task.targets + 1.0)
    run(step_size=2e-2), run(key=1), run(task=other)
    assert len(asked) == 4
    plan = jo.calibrate(jax.random.key(0), jo.cotaf(1e-2, 2, 3), task, 3, 4)
    given = jo.simulate(
        jax.random.key(0), jo.cotaf(1e-2, 2, 3), jo.Channel(10.0), task, 3, 2, plan=plan
    )
    np.testing.assert_array_equal(first.gap, given.gap)


@pytest.mark.slow
def test_plans_under_jit_are_not_cached(task, monkeypatch):
    """With nothing traced among the arguments, too."""
    monkeypatch.setattr(calibration, "_cache", {})

    def run():
        experiment = jax.random.key(0), jo.cotaf(1e-2, 2, 3), jo.Channel(10.0), task
        return jo.simulate(*experiment, rounds=3, trials=2, calibration_trials=4).gap

    inside = jax.jit(run)()
    assert not calibration._cache
    np.testing.assert_allclose(inside, run(), rtol=1e-4)
    assert len(calibration._cache) == 1


def test_the_cache_of_plans_is_bounded(task, monkeypatch):
    monkeypatch.setattr(calibration, "_cache", {})
    monkeypatch.setattr(calibration, "_program", lambda *_, **__: "a plan")
    monkeypatch.setattr(calibration, "_CACHE_SIZE", 3)
    for number in range(5):
        run = jax.random.key(number), jo.cotaf(1e-2, 2, 3), jo.Channel(), task, 3, 2
        arguments, options = experiment(*run)
        asked = (arguments[name] for name in ("key", "algorithm", "task", "plan"))
        assert calibration.cached_plan(options, *asked) == "a plan"
    assert len(calibration._cache) == 3


def test_a_large_task_is_read_once_for_all_calls(monkeypatch):
    """Arrays of NumPy, which may change, are read at every call."""
    hashed = []

    class Counting:
        def __init__(self, about):
            self.real = hashlib.blake2b(about)

        def update(self, data):
            hashed.append(data.nbytes)
            self.real.update(data)

        def digest(self):
            return self.real.digest()

    def call(task):
        """Bytes that were hashed, and whether a plan was measured."""
        before = len(calibration._cache)
        hashed.clear()
        jo.simulate(0, jo.cotaf(1e-2, 1, 1), jo.Channel(), task, 2, 2, calibration_trials=2)
        return sum(hashed), len(calibration._cache) - before

    monkeypatch.setattr(calibration, "_cache", {})
    monkeypatch.setattr(calibration, "hashlib", types.SimpleNamespace(blake2b=Counting))
    features = np.random.default_rng(0).standard_normal((2, 1000, 150)).astype("float32")
    task = jo.tasks.regression(features, features[..., 0])
    size = task.features.nbytes
    assert size > calibration._LARGE and isinstance(task.features, jax.Array)
    first, measured = call(task)
    assert first > size and measured
    again, measured = call(task)
    assert again == first - size and not measured

    mine = task.replace(features=np.array(task.features))
    assert call(mine) == (first, 0)  # the same numbers, the same plan
    mine.features[0] *= 2
    assert call(mine) == (first, 1)

    known = id(task.features)
    assert known in calibration._digests
    del task, mine
    gc.collect()
    assert known not in calibration._digests
