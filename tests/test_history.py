"""Histories: scores by any name, files that give back every bit, one rule for what diverged."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import jaxota as jo
from jaxota import plots
from jaxota._core.stage_checks import check_scores
from jaxota.history import DIMENSIONS

KEY = jax.random.key(0)
LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}


@pytest.fixture(scope="module")
def history(task):
    run = jo.simulate(KEY, jo.scaffold(**LOCAL), jo.Channel(), task, 4, 3, every=2, user_power=True)
    return jax.device_get(run)


@pytest.fixture(scope="module")
def swept():
    """Numbers, random keys and whole arrays in step."""
    draw = jo.tasks.synthetic_regression(jax.random.split(KEY, 2), 3, 5, 2)
    gains = jnp.array([[1.0, 2.0, 0.5], [0.1, 0.2, 0.3]])
    channel = jo.Channel(snr_db=[3.0, np.inf], gains=gains, fading=jo.rayleigh())
    return jo.sweep(KEY, jo.fedavg(**LOCAL), channel, draw, 3, 2)


def _assert_same_bits(loaded, kept):
    assert jax.tree.structure(loaded) == jax.tree.structure(kept)
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(kept), strict=True):
        if jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            assert jax.random.key_impl(a) == jax.random.key_impl(b)
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_scores_keep_their_short_names(history):
    np.testing.assert_array_equal(history.gap, history.scores["gap"])
    np.testing.assert_array_equal(history.loss, history.scores["loss"])
    assert set(DIMENSIONS) == {f.name for f in dataclasses.fields(history)} - {
        "scores", "user_scores", "average_scores", "settings", "grid", "every", "done", "state"
    }  # fmt: skip


def test_files_give_back_every_bit(history, tmp_path):
    """Odd NaNs and infinities too; what is absent stays so; the file is labelled."""
    model = history.model.copy()
    model.view(np.uint32)[0, :3] = 0x7FC00123, 0xFFC00000, 0x7F800000
    odd = history.replace(model=model, scores=history.scores | {"top 5": -history.gap})
    odd.save(tmp_path / "run.nc")
    loaded = jo.History.load(tmp_path / "run.nc")
    _assert_same_bits(loaded, odd)
    assert loaded.every == 2 and loaded.settings == {}
    assert loaded.user_power.shape == (3, 4, 4)
    xarray.testing.assert_identical(loaded.to_xarray(), odd.to_xarray())
    with xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as file:
        assert file["top 5"].dims == ("trial", "evaluation")
        np.testing.assert_array_equal(file["evaluation"], [2, 4])
    plain = history.replace(user_power=None, user_control_power=None, control_power=None)
    plain.save(tmp_path / "run.nc")  # in place of the other
    _assert_same_bits(jo.History.load(str(tmp_path / "run.nc")), plain)
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]


def test_scores_and_ledgers_share_their_rounds(task):
    run = jo.simulate(KEY, jo.fedavg(**LOCAL), jo.Channel(), task, 3, 2)
    data = run.to_xarray()
    assert data.gap.dims == data.energy.dims == ("trial", "round") and "evaluation" not in data.dims
    np.testing.assert_array_equal(data.gap.sel(round=3), run.gap[:, 2])


def test_a_history_says_what_was_run(history, swept, tmp_path):
    """Every setting and the versions, also from a file; a changed history says nothing of it."""
    task = jo.tasks.synthetic_regression(0, users=2, samples=5, dim=2)
    run = jo.simulate(5, jo.fedavg(**LOCAL), jo.Channel(snr_db=7.0), task, 3, 2)
    said = json.loads(run.to_xarray().attrs["description"])
    assert said["channel"]["snr_db"] == 7.0 and said["task"]["users"] == 2
    assert said["algorithm"]["local"]["step_size"] == 0.01 and said["key"] == {"key": [0, 5]}
    assert (said["rounds"], said["trials"], said["every"]) == (3, 2, 1)
    assert said["jaxota"] == jo.__version__ and said["jax"] == jax.__version__
    run.save(tmp_path / "run.nc")
    assert json.loads(jo.History.load(tmp_path / "run.nc").to_xarray().attrs["description"]) == said
    assert "description" in swept.to_xarray().attrs
    assert "description" not in run.replace(done=1).to_xarray().attrs
    grid = jo.sweep(5, jo.fedavg(**LOCAL), jo.Channel(), task, 3, 2, over=jo.grid(snr_db=[0, 9]))
    assert json.loads(grid.to_xarray().attrs["description"])["task"]["users"] == 2
    assert repr(grid).splitlines()[:2] == [
        "History: 2 snr_db × 2 trials × 3 rounds",
        "  snr_db: 0, 9",
    ]


def test_the_summary_of_a_history_is_a_few_lines(history, adrift, swept):
    last = f"{np.mean(history.gap[:, -1], dtype=float):.4g}"
    assert repr(history).splitlines() == [
        "History: 3 trials × 4 rounds",
        f"  last gap, mean over trials: {last}",
        f"  last loss, mean over trials: {np.mean(history.loss[:, -1], dtype=float):.4g}",
        f"  results: {', '.join(history._results())}",
    ]
    assert f"last gap, mean over trials: {adrift.gap[2, -1]:.4g}\n" in repr(adrift)
    assert "  diverged: 2 of 3 trials\n" in repr(adrift)
    assert repr(swept).startswith("History: 2 setting × 2 trials × 3 rounds\n  snr_db: 3, inf\n")
    assert "traced" not in repr(history)
    seen = []
    jax.jit(lambda h: seen.append(repr(h)) or h.gap)(history)
    assert seen == ["History(gap, loss)"]


def test_files_keep_the_scores_of_the_average(history, swept, tmp_path):
    """Which a study asks for; a score that is called like one is not taken for it."""
    scored = history.replace(average_scores={"gap": history.gap[:, -1], "loss": history.loss[:, 0]})
    data = scored.to_xarray()
    assert data.average_gap.dims == ("trial",)
    np.testing.assert_array_equal(data.average_gap, history.gap[:, -1])
    scored.save(tmp_path / "run.nc")
    _assert_same_bits(jo.History.load(tmp_path / "run.nc"), scored)
    settings = swept.replace(average_scores={"gap": swept.gap[..., 0]})
    assert settings.to_xarray().average_gap.dims == ("setting", "trial")
    settings.save(tmp_path / "run.nc")
    _assert_same_bits(jo.History.load(tmp_path / "run.nc"), settings)
    alike = history.replace(scores=history.scores | {"average_gap": history.gap})
    alike.save(tmp_path / "run.nc")
    _assert_same_bits(jo.History.load(tmp_path / "run.nc"), alike)


def test_files_keep_what_was_swept(swept, tmp_path):
    assert list(swept.settings) == ["snr_db", "gains", "key"]
    swept.save(tmp_path / "swept.nc")
    loaded = jo.History.load(tmp_path / "swept.nc")
    _assert_same_bits(loaded, swept)
    assert list(loaded.settings) == list(swept.settings)
    again = jax.random.bits(loaded.settings["key"][1])
    assert again == jax.random.bits(swept.settings["key"][1])
    with xarray.open_dataset(tmp_path / "swept.nc", engine="h5netcdf") as file:
        np.testing.assert_array_equal(file["snr_db"], [3.0, np.inf])
        assert "snr_db" in file.coords and file["gains"].dims == ("setting", "gains_1")
    other = swept.replace(settings={"key": jax.random.split(jax.random.key(3, impl="rbg"), 2)})
    other.save(tmp_path / "swept.nc")
    _assert_same_bits(jo.History.load(tmp_path / "swept.nc"), other)


def test_a_setting_is_never_taken_for_a_score():
    """A score that has the name of a swept field: the field is shown with its full path."""
    from jaxota.sweeping import _short_names

    settings = {"channel.snr_db": 1, "channel.power": 2, "task.key": 3}
    assert list(_short_names(settings, {"power", "snr_db"})) == [
        "channel.snr_db",
        "channel.power",
        "key",
    ]


@pytest.mark.parametrize("damage", ["nothing there", "cut", "flipped", "text", "folder", "foreign"])
def test_damaged_and_foreign_files_are_one_clear_line(history, tmp_path, damage):
    path = tmp_path / "run.nc"
    history.save(path)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    if damage == "flipped":  # one bit of one number
        where = content.index(history.model.tobytes())
        content[where + 5] ^= 1
        path.write_bytes(content)
    if damage == "text":
        path.write_text("algorithm,round")
    if damage == "foreign":
        history.to_xarray().to_netcdf(path, engine="h5netcdf")
    if damage in ("nothing there", "folder"):
        path.unlink()
    if damage == "folder":
        path.mkdir()
    with pytest.raises(jo.InputError, match="is not a history that") as caught:
        jo.History.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["power", "model", "control_error", "trial", "round", "setting", "user", "diverged"]
)
def test_scores_do_not_take_the_names_of_other_results(name):
    with pytest.raises(jo.InputError, match=f"task must not name a score '{name}'"):
        check_scores(["loss", name])


@pytest.mark.parametrize("name", ["", " ", "a/b", 3, None])
def test_scores_have_names(name):
    with pytest.raises(jo.InputError, match="task must name a score by words without /"):
        check_scores([name])


@pytest.fixture
def adrift(history):
    """Trial 0 has a finite gap and another score that is not; of trial 1 the model is not."""
    model, loss = history.model.copy(), history.loss.copy()
    loss[0, 0], model[1, 2] = np.inf, np.nan
    return history.replace(model=model, scores=history.scores | {"loss": loss})


def test_figures_and_tables_leave_out_the_same_trials(history, adrift):
    runs = xarray.concat([history.to_xarray(), adrift.to_xarray()], "algorithm")
    description = {"channel": {"snr_db": 10.0, "snr_per": "vector"}, "rounds": 4, "swept": []}
    description |= {"task": {}, "algorithms": {}}
    attributes = {
        "study": "both", "metric": "gap", "scores": ["gap", "loss"], "reference": "COTAF",
        "axes": [], "keep": "trials", "every": 2, "description": json.dumps(description),
    }  # fmt: skip
    data = runs.assign_coords(algorithm=["COTAF", "BAAF"]).assign_attrs(attributes)
    report = jo.study_report(data)
    assert adrift.diverged.tolist() == [True, True, False]
    kept = np.asarray(history.gap[2], np.float64)

    lines = {line.get_label(): line.get_ydata() for line in report.figure().axes[0].lines}
    np.testing.assert_allclose(lines["BAAF (2 of 3 diverged)"], kept)
    np.testing.assert_allclose(lines["COTAF"], np.mean(history.gap, 0), rtol=1e-6)
    last = plots.finals([1.0], {"BAAF": [adrift]}, "gap", "x").axes[0].lines[0]
    assert last.get_label() == "BAAF (2 of 3 diverged)"
    np.testing.assert_allclose(last.get_ydata(), kept[-1:])
    curve = plots.curves({"BAAF": adrift}).axes[0].lines[0]
    np.testing.assert_allclose(curve.get_ydata(), kept)

    rows = report.csv[report.csv.algorithm == "BAAF"]
    np.testing.assert_allclose(rows[rows.metric == "gap"]["mean"], kept, rtol=1e-8)
    assert rows[rows.metric == "diverged"]["mean"].tolist() == [2]
    assert report.table[2][1] == f"{kept[-1]:.4g}"
    assert "BAAF: 2 of 3 trials diverged" in "\n".join(report.remarks)


def test_any_score_or_result_has_its_name(history):
    np.testing.assert_array_equal(history["gap"], history.gap)
    np.testing.assert_array_equal(history["power"], history.power)
    assert history.replace(scores={"top 5": history.gap})["top 5"] is history.gap
    for name in ("accuracy", "settings", 0, None):
        with pytest.raises(jo.InputError, match=r"history has no .*: choose from gap, loss, power"):
            history[name]
    with pytest.raises(jo.InputError, match="history has no 'user_power': choose from"):
        history.replace(user_power=None)["user_power"]


@pytest.mark.parametrize("name", ["gap", "loss", "accuracy"])
def test_a_score_that_a_task_lacks_names_those_it_has(history, name):
    other = history.replace(scores={"top 5": history.gap, "recall": history.gap})
    assert not hasattr(other, name)
    with pytest.raises(AttributeError, match=f"no {name}: the task's scores are top 5, recall"):
        getattr(other, name)


def test_a_history_is_drawn(history):
    axes = history.plot().axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.mean(history.gap, 0), rtol=1e-5)
    assert "gap" in axes.get_ylabel()
    assert history.plot("power").axes[0].get_ylabel() == "power"
    scored = history.replace(scores={"loss": history.loss, "accuracy": history.gap})
    assert plots.curves(scored).axes[0].get_ylabel() == "test accuracy"
    with pytest.raises(jo.InputError, match="metric must be one that"):
        history.plot("speed")
