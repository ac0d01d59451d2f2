"""Reports of studies: table, remarks, rows and figure, of finished and unfinished sweeps."""

import csv
import json

import jax
import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure

import jaxota as jo
from jaxota import plots, reports, style
from jaxota.cli import run
from jaxota.history import LEDGERS
from jaxota.stats import summary
from jaxota.study import executor as driver
from jaxota.study.executor import StudyJob

NOISY = jo.noisy_fedavg(1e-2, 2, 2, precode=jo.Constant(1.0))
STUDY = jo.Study(
    {"FedAvg": jo.fedavg(1e-2, 2, 2), "noisy": NOISY},
    jo.Channel(),
    jo.tasks.synthetic_regression(jax.random.key(1), 3, 6, 2),
    rounds=4,
    trials=5,
    every=2,
    over=jo.grid(snr_db=[0, 10], steps=[1, 2]),
    name="small",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished sweep."""
    folder = tmp_path_factory.mktemp("sweep") / "small"
    STUDY.run(folder)
    return folder


def test_the_table_has_a_row_for_each_setting(folder):
    sweep = reports.of_store(folder, None)
    assert sweep.caption == ("small: 2 snr_db × 2 steps, SNR per vector; 4 rounds, 5 trials")
    header, *lines = sweep.table
    assert header == [
        "algorithm", "snr_db", "steps", "final gap", "power ratio", "difference to FedAvg",
        "channel uses", "energy",
    ]  # fmt: skip
    assert len(lines) == 2 * 2 * 2
    band = summary(jo.open(folder), "gap").at(algorithm=1, snr_db=1, steps=0)
    rows = {tuple(line[:3]): line for line in lines}
    final = rows["noisy", "10", "1"][3]
    mean, half = (float(word) for word in final.split("±"))
    assert mean == pytest.approx(band.mean[-1], rel=0.05)
    assert half == pytest.approx(band.half_width[-1], rel=0.1)
    assert rows["FedAvg", "10", "1"][5] == "–"
    assert rows["noisy", "10", "1"][5][0] in "+-"
    assert sweep.remarks == [
        "± is a 95 % interval over 5 trials; a power ratio above 1 exceeds the budget."
    ]


def test_files_hold_every_score_of_every_setting(folder, tmp_path):
    sweep = reports.of_store(folder, "loss")
    paths = reports.write(sweep, tmp_path, data=("csv",))
    assert [path.name for path in paths] == ["small.png", "small.csv"]
    with open(tmp_path / "small.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == [
        "algorithm", "snr_db", "steps", "round", "metric", "mean", "ci_low", "ci_high",
        "power_ratio", "used", "trials",
    ]  # fmt: skip
    rows, costs = ([row for row in rows if (row["metric"] in LEDGERS) == cost] for cost in (0, 1))
    assert len(rows) == 2 * 2 * 2 * 2 * 2  # algorithms, settings, rounds, scores
    assert len(costs) == 2 * 2 * 2 * 2 * len(LEDGERS)
    data = jo.open(folder)
    for row in rows:
        place = {
            "algorithm": row["algorithm"],
            "snr_db": int(row["snr_db"]),
            "steps": int(row["steps"]),
        }
        of = data.sel(place)
        values = of[row["metric"]].sel(evaluation=int(row["round"])).astype("float64")
        assert float(row["mean"]) == pytest.approx(float(values.mean()), rel=1e-6)
        assert float(row["ci_low"]) < float(row["mean"]) < float(row["ci_high"])
        power = of.power.sel(round=int(row["round"])).mean()
        assert float(row["power_ratio"]) == pytest.approx(float(power), rel=1e-5)
        assert row["used"] == row["trials"] == "5"
    assert sweep.figure().axes[0].get_title() == "FedAvg"


def test_an_unfinished_sweep_says_so(tmp_path):
    STUDY.run(tmp_path / "half", shard=(0, 2))
    sweep = reports.of_store(tmp_path / "half", None)
    assert sweep.caption.endswith("4 rounds, 5 trials, 1 of 2 chunks so far")
    assert sweep.remarks[-1] == "The sweep is not finished: what is missing is left out."
    assert [row[3] for row in sweep.table].count("not there yet") == 2 * 2
    reports.write(sweep, tmp_path / "half", data=("csv",))
    data = jo.open(tmp_path / "half")
    assert (data.attrs["chunks_done"], data.attrs["chunks"]) == (1, 2)
    assert np.isnan(data.gap.sel(steps=2)).all() and np.isfinite(data.gap.sel(steps=1)).all()


def test_nothing_done_yet_can_be_shown(tmp_path):
    job = StudyJob(STUDY.replace(keep="mean"))
    driver.open_sink(job, tmp_path / "none")
    sweep = reports.of_store(tmp_path / "none", None)
    assert "0 of 2 chunks so far" in sweep.caption and sweep.table[1][3] == "not there yet"
    reports.write(sweep, tmp_path / "none", data=("csv",))


def test_an_unknown_metric_and_another_folder_are_one_line(folder, tmp_path):
    for where, metric, words in (
        (folder, "speed", "metric must be one of gap, loss, got 'speed'"),
        (tmp_path, None, f"{tmp_path} holds no store: there is no study.json in it"),
    ):
        with pytest.raises(jo.InputError) as caught:
            reports.of_store(where, metric)
        assert words in str(caught.value) and "\n" not in str(caught.value)


def _made_up(axes, lost=0, rounds=3, trials=4):
    """A sweep over axes of these labels, of made-up numbers; of the first algorithm's first setting
    so many trials diverged."""
    rng, labels = np.random.default_rng(0), {"algorithm": ["A", "B"], **axes}
    lead, shape = [*labels, "trial"], [*map(len, labels.values()), trials]
    gap = np.exp(rng.standard_normal((*shape, rounds))).astype(np.float32)
    if lost:
        gap[(0,) * (1 + len(axes))][:lost] = np.inf
    data = xarray.Dataset(
        {
            "gap": ((*lead, "evaluation"), gap),
            "power": ((*lead, "round"), np.ones((*shape, rounds), np.float32)),
            "participants": ((*lead, "round"), np.ones((*shape, rounds), np.float32)),
            "model": ((*lead, "parameter"), np.ones((*shape, 2), np.float32)),
        },
        labels | {"evaluation": 1 + np.arange(rounds), "round": 1 + np.arange(rounds)},
        {
            "axes": list(axes), "scores": ["gap"], "metric": "gap", "reference": "A",
            "keep": "trials", "every": 1, "chunks": 1, "chunks_done": 1,
        },
    )  # fmt: skip
    channel = {"snr_db": 10.0, "snr_per": "symbol"}
    description = {"channel": channel, "rounds": rounds, "swept": [*axes], "task": {}}
    description["algorithms"] = {}
    data = data.assign_attrs(study="made", description=json.dumps(description))
    return jo.study_report(data, sweep=True)


def test_no_axis_is_curves():
    sweep = _made_up({})
    figure = sweep.figure()
    assert isinstance(figure, Figure) and figure.axes[0].get_yscale() == "log"
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(
        lines["B"].get_ydata(), sweep.dataset.gap[1].mean("trial"), rtol=1e-6
    )
    np.testing.assert_array_equal(lines["B"].get_xdata(), [1, 2, 3])
    assert sweep.caption.startswith("made: one setting, SNR 10 dB per symbol; 3 rounds")
    assert len(sweep.table) == 1 + 2


def test_one_axis_is_final_scores_against_it():
    sweep = _made_up({"snr_db": [10, -5, 0]})  # in any order
    axes = sweep.figure().axes[0]
    assert axes.get_xlabel() == "SNR (dB)" and axes.get_ylabel().startswith("final")
    line = next(line for line in axes.lines if line.get_label() == "A")
    np.testing.assert_array_equal(line.get_xdata(), [-5, 0, 10])
    expected = sweep.dataset.gap.isel(algorithm=0, evaluation=-1).mean("trial").sortby("snr_db")
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-6)


def test_every_point_is_inside_the_axes():
    """Gaps over three decades: the axis is scaled after what it shows."""
    gaps = np.array([100.0, 1.0, 0.1])
    for dim in ("snr_db", "evaluation"):
        shape = [len(gaps) if name == dim else 1 for name in ("algorithm", "snr_db", "evaluation")]
        data = _made_up({"snr_db": range(shape[1])}, rounds=shape[2]).dataset.isel(algorithm=[0])
        spread = np.array([0.9, 1.1, 0.9, 1.1])[:, None]
        values = gaps.reshape(*shape[:2], 1, shape[2]) * spread
        axes = plots.study(data.assign(gap=(data.gap.dims, values))).axes[0]
        low, high = axes.get_ylim()
        assert low < gaps.min() and gaps.max() < high


def test_one_axis_of_words_has_its_labels():
    sweep = _made_up({"fading": ["None", "Rayleigh()", "Rician(k_factor=3)"]})
    axes = sweep.figure().axes[0]
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == ["None", "Rayleigh", "Rician k factor\n= 3"] and axes.get_xlabel() == "fading"


def test_two_axes_are_maps():
    sweep = _made_up({"steps": [2, 1], "snr_db": [10, 0, 5]})
    figure = sweep.figure()
    maps = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in maps] == ["A", "B"]
    assert maps[0].get_xlabel() == "SNR (dB)" and maps[0].get_ylabel() == "local steps $K$"
    expected = sweep.dataset.gap.isel(evaluation=-1).mean("trial").sortby(["steps", "snr_db"])
    np.testing.assert_allclose(maps[1].images[0].get_array(), expected[1], rtol=1e-6)
    assert [tick.get_text() for tick in maps[0].get_xticklabels()] == ["0", "5", "10"]
    for axes in maps:  # one scale for both
        limits = float(expected.min()), float(expected.max())
        assert axes.images[0].get_clim() == pytest.approx(limits)


def test_two_axes_of_words_are_maps_too():
    sweep = _made_up({"fading": ["no", "yes", "much"], "precode": ["Online()", "Offline()"]})
    maps = [axes for axes in sweep.figure().axes if axes.images]
    words = [tick.get_text() for tick in maps[0].get_xticklabels()]
    assert words == ["no", "yes", "much"] and maps[0].get_ylabel() == "precode"


def test_three_axes_are_a_row_of_maps_for_each_value_of_the_shortest():
    sweep = _made_up({"snr_db": [0, 5, 10], "law": ["a", "b"], "steps": [1, 2, 3]})
    maps = [axes for axes in sweep.figure().axes if axes.images]
    titles = ["A\nlaw = a", "B\nlaw = a", "A\nlaw = b", "B\nlaw = b"]
    assert [axes.get_title() for axes in maps] == titles
    expected = sweep.dataset.gap.isel(evaluation=-1, algorithm=0, law=1).mean("trial")
    assert maps[2].images[0].get_array().shape == (3, 3)
    values = maps[2].images[0].get_array()
    np.testing.assert_allclose(np.sort(values, None), np.sort(expected.values, None), rtol=1e-6)
    x, y = (style.AXES[k] for k in ("steps", "snr_db"))
    assert {maps[2].get_xlabel(), maps[2].get_ylabel()} == {x, y}
    assert "The figure maps snr_db × steps, 2 of 2 settings of law." in sweep.remarks


def test_too_many_maps_and_rows_are_said_to_be_some():
    sweep = _made_up({"snr_db": range(8), "users": range(7), "steps": range(1, 8)})
    maps = [axes for axes in sweep.figure().axes if axes.images]
    assert len(maps) == reports.PANELS
    remarks = "\n".join(sweep.remarks)
    assert f"The first {reports.ROWS} of {2 * 8 * 7 * 7} rows; the CSV has all." in remarks
    assert "The figure maps snr_db × users, 6 of 7 settings of steps." in remarks
    assert len(sweep.table) == 1 + reports.ROWS and len(sweep.csv) == 2 * 8 * 7 * 7 * 3


def test_an_axis_of_one_value_is_told_and_not_drawn():
    sweep = _made_up({"snr_db": [0, 5], "steps": [3]})
    assert "2 snr_db × 1 steps" in sweep.caption
    assert sweep.figure().axes[0].get_xlabel() == "SNR (dB)"


def test_diverged_trials_are_counted_and_left_out():
    sweep = _made_up({"snr_db": [0, 5]}, lost=1)
    assert "A, 0: 1 of 4 trials diverged, and is left out of the means." in sweep.remarks
    first = sweep.csv.iloc[0]
    assert (first["used"], first["trials"]) == (3, 4) and np.isfinite(first["mean"])
    gone = _made_up({"snr_db": [0, 5]}, lost=4)
    assert gone.table[1][2] == "all diverged" and gone.table[3][4] == "no pairs"
    assert isinstance(gone.figure(), Figure)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.5, "0.5 s"), (60, "60 s"), (600, "10 min"), (36000, "10 h")]
)
def test_times_in_words(seconds, words):
    assert run.in_time(seconds) == words


def test_limits(tmp_path):
    job = StudyJob(STUDY)
    words = run.size(job)
    told = "2 snr_db × 2 steps = 4 settings", "5 trials", "2 algorithms = 40 curves of 4 rounds"
    assert all(part in words for part in (*told, "2 programs", "keep trials"))
    assert job.bytes == StudyJob(STUDY).layout().bytes
    run.refuse_too_much(job, 10**9, 2, tmp_path)
    for limits, told in (
        ((10**9, 1), "more than --max-programs 1"),
        ((10**3, 2), "more than --max-bytes 1 kB; --keep mean needs less"),
    ):
        with pytest.raises(jo.InputError, match=told):
            run.refuse_too_much(job, *limits, tmp_path)


def test_a_full_disk_is_seen_before_it_is_full(tmp_path, monkeypatch):
    class Full:
        free = 10

    monkeypatch.setattr(driver.shutil, "disk_usage", lambda _: Full)
    with pytest.raises(jo.InputError, match="has only 10 B free"):
        run.refuse_too_much(StudyJob(STUDY), 10**9, 9, tmp_path / "a" / "b")


@pytest.fixture
def partly_diverged():
    """Four trials of two algorithms; the second of BAAF's left the finite numbers in round 2."""
    data = _made_up({}, rounds=2).dataset.assign_coords(algorithm=["COTAF", "BAAF"])
    cotaf = [[9.0, 1.0], [9.0, 2.0], [9.0, 3.0], [9.0, 5.0]]
    baaf = [[9.0, 2.0], [1e30, np.inf], [9.0, 4.0], [9.0, 6.0]]
    data["gap"] = data.gap.dims, np.float32([cotaf, baaf])
    return jo.study_report(data.assign_attrs(reference="COTAF"))


def test_a_diverged_trial_is_counted_and_poisons_no_mean(partly_diverged):
    said = "BAAF: 1 of 4 trials diverged, and is left out of the means."
    assert said in partly_diverged.remarks
    rows = {row[0]: row for row in partly_diverged.table}
    assert rows["BAAF"][1] == "4.0 ± 5.0"  # the mean of 2, 4 and 6
    assert rows["BAAF"][3] == "+1.000 ± 0.000"  # paired with the same three trials of COTAF
    assert rows["COTAF"][1] == "2.8 ± 2.7"  # all four of its own


def test_the_csv_leaves_the_whole_trial_out(partly_diverged):
    rows = partly_diverged.csv
    gaps = rows[(rows.algorithm == "BAAF") & (rows.metric == "gap")].set_index("round")
    assert gaps["mean"][1] == 9.0 and gaps["mean"][2] == 4.0
    assert rows[rows.metric == "diverged"]["mean"].tolist() == [0, 1]


def test_many_diverged_settings_are_counted_and_not_named():
    report = _made_up({"snr_db": range(10)}, lost=1)
    data = report.dataset
    data["gap"] = data.gap.where(data.trial > 0, np.inf)
    remarks = jo.study_report(data).remarks
    assert "20 trials diverged, and are left out of the means." in remarks
