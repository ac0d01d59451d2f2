"""Histories: scores by any name, files that give back every bit, one rule for what diverged."""

import csv
import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from rich.console import Console

import jaxota as jo
from jaxota import figures, plots
from jaxota.cli import comparison, report
from jaxota.history import DIMENSIONS, check_scores

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
    assert history.accuracy is None
    assert set(DIMENSIONS) == {f.name for f in dataclasses.fields(history)} - {
        "scores", "average_scores", "settings", "grid", "every"
    }  # fmt: skip


def test_files_give_back_every_bit(history, tmp_path):
    """Odd NaNs and infinities too; what is absent stays so; the file is labelled."""
    model = history.model.copy()
    model.view(np.uint32)[0, :3] = 0x7FC00123, 0xFFC00000, 0x7F800000
    odd = history.replace(model=model, scores=history.scores | {"top 5": -history.gap})
    odd.save(tmp_path / "run.nc")
    loaded = jo.History.load(tmp_path / "run.nc")
    _assert_same_bits(loaded, odd)
    assert loaded.every == 2 and loaded.settings == {} and loaded.accuracy is None
    assert loaded.user_power.shape == (3, 4, 4)
    xarray.testing.assert_identical(loaded.to_xarray(), odd.to_xarray())
    with xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as file:
        assert file["top 5"].dims == ("trial", "evaluation")
        np.testing.assert_array_equal(file["evaluation"], [2, 4])
    plain = history.replace(user_power=None, user_control_power=None, control_power=None)
    plain.save(tmp_path / "run.nc")  # in place of the other
    _assert_same_bits(jo.History.load(str(tmp_path / "run.nc")), plain)
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]


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
    from jaxota.sweeping import _named

    settings = {"channel.snr_db": 1, "channel.power": 2, "task.key": 3}
    assert list(_named(settings, {"power", "snr_db"})) == ["channel.snr_db", "channel.power", "key"]


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


def test_figures_and_tables_leave_out_the_same_trials(history, adrift, tmp_path):
    experiment = dataclasses.replace(
        figures.EXPERIMENTS["fig1"],
        algorithms={"COTAF": jo.cotaf(**LOCAL), "BAAF": jo.baaf(**LOCAL)},
        rounds=4,
        trials=3,
    )
    histories = {("COTAF", ""): history, ("BAAF", ""): adrift}
    results = comparison.Comparison(experiment, 0, histories, set(), 1.0, 1.0)
    assert adrift.diverged.tolist() == [True, True, False]
    kept = np.asarray(history.gap[2], np.float64)

    axes = experiment.draw(results, "").axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(lines["BAAF (2 of 3 diverged)"], kept)
    np.testing.assert_allclose(lines["COTAF"], np.mean(history.gap, 0), rtol=1e-6)
    last = plots.finals([1.0], {"BAAF": [adrift]}, "gap", "x").axes[0].lines[0]
    assert last.get_label() == "BAAF (2 of 3 diverged)"
    np.testing.assert_allclose(last.get_ydata(), kept[-1:])

    report.write(results, tmp_path)
    with open(tmp_path / "fig1.csv", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["algorithm"] == "BAAF"]
    gaps = [float(row["mean"]) for row in rows if row["metric"] == "gap"]
    np.testing.assert_allclose(gaps, kept, rtol=1e-8)
    assert [row["mean"] for row in rows if row["metric"] == "diverged"] == ["2"]
    shown = io.StringIO()
    Console(width=120, file=shown).print(results.table())
    assert f"{kept[-1]:.4g}" in shown.getvalue()
    assert "BAAF: 2 of 3 trials diverged" in "\n".join(results.remarks())
