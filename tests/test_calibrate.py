"""Plans: what they hold, and how they are kept."""

import jax
import numpy as np
import pytest

import jaxota as jo

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}


@pytest.fixture(scope="module")
def plan(task):
    return jo.calibrate(jax.random.key(0), jo.cobaaf(**LOCAL), task, rounds=3, trials=5)


def test_shapes(plan, task):
    for name, value in vars(plan).items():
        per_user = name.startswith(("model_", "control_m", "control_v"))
        assert value.shape == ((3, task.users) if per_user else (3,)), name
        assert np.isfinite(value).all()


def test_plain_algorithms_have_no_controls_to_plan(task):
    plan = jo.calibrate(jax.random.key(0), jo.baaf(**LOCAL), task, rounds=3, trials=5)
    for name, value in vars(plan).items():
        assert (value == ()) if "control" in name else (len(value) == 3), name


def test_a_plan_survives_a_file(plan, task, tmp_path):
    plain = jo.calibrate(jax.random.key(0), jo.baaf(**LOCAL), task, rounds=3, trials=5)
    for kept in (plan, plain):
        kept.save(tmp_path / "plan.npz")
        read = jo.Plan.load(tmp_path / "plan.npz")
        for name, value in vars(kept).items():
            np.testing.assert_array_equal(getattr(read, name), value)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.npz"]


def test_a_file_that_is_no_plan_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a plan")
    np.savez(tmp_path / "other.npz", something=np.ones(3))
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object))
    for name in ("text", "other.npz", "pickled.npy", "missing.npz"):
        with pytest.raises(ValueError, match="not a plan"):
            jo.Plan.load(tmp_path / name)


def test_plans_do_not_depend_on_the_number_of_trials_to_come(task):
    """Nor on the trials: they have a key of their own, and start from other models."""
    key, algorithm = jax.random.key(0), jo.fedavg(**LOCAL)
    plan = jo.calibrate(key, algorithm, task, rounds=1, trials=2)
    history = jo.simulate(key, algorithm, jo.Channel(), task, 1, 2)
    assert not np.isclose(np.mean(history.model), plan.average_mean[0], rtol=1e-4)
