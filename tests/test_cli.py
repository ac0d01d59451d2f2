"""The command, as a person runs it."""

import contextlib
import csv
import dataclasses
import functools
import io
import json
import math
import os
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from processes import without_devices

import jaxota as jo
from jaxota import figures
from jaxota._core import cache, capacity
from jaxota._core import devices as _devices
from jaxota.cli import main as cli
from jaxota.cli import process, run
from jaxota.study.executor import StudyJob

SMALL = ["run", "fig1", "--trials", "4", "--rounds", "3"]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The command with a small fig1 and no cache of its own."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")

    def run(*options):
        return cli.main([*SMALL, "--out", str(tmp_path / "out"), *options])

    run.out = tmp_path / "out"
    return run


@pytest.fixture
def few_calibrations(monkeypatch):
    """Plans of 5 runs, where an experiment would take 100 and the test asks for no plan."""
    monkeypatch.setattr(figures, "Study", functools.partial(jo.Study, calibration_trials=5))


@pytest.fixture(scope="module")
def fig1(tmp_path_factory):
    """The folder that a small fig1 wrote, and what it printed to both streams."""
    out, printed, errors = tmp_path_factory.mktemp("fig1") / "out", io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        patch.setenv("JAXOTA_CACHE", "off")
        assert cli.main([*SMALL, "--out", str(out)]) == 0
    return out, printed.getvalue(), errors.getvalue()


@pytest.mark.slow
def test_run_prints_a_table_and_writes_three_files(fig1):
    out, printed, errors = fig1
    assert without_devices(errors) == ""  # no progress where there is no terminal
    for words in (
        "noisy FedAvg", "COTAF", "BAAF", "COBAAF", "SCAFFOLD", "final gap", "power ratio",
        "difference to COTAF", "10 dB per vector", "4 trials", "s compiling", "s running",
    ):  # fmt: skip
        assert words in printed
    for ending in ("png", "csv", "nc"):
        assert f"wrote {out / 'fig1'}.{ending}" in printed
    assert sorted(os.listdir(out)) == ["fig1.csv", "fig1.nc", "fig1.png"]

    with open(out / "fig1.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == [
        "algorithm", "round", "metric", "mean", "ci_low", "ci_high", "power_ratio"
    ]  # fmt: skip
    data = xarray.load_dataset(out / "fig1.nc", engine="h5netcdf")
    assert data.gap.dims == ("algorithm", "trial", "evaluation")
    assert data.attrs["snr_per"] == "vector" and data.attrs["seed"] == 0
    assert data.attrs["command"] == "jaxota run fig1 --trials 4 --rounds 3"
    assert json.loads(data.attrs["table"])[0][:2] == ["algorithm", "final gap"]
    assert json.loads(data.attrs["description"])["algorithms"]["BAAF"]["local"]["steps"] == 10
    for row in rows:
        if row["metric"] == "gap":
            r = int(row["round"])
            of = data.sel(algorithm=row["algorithm"])
            assert float(row["mean"]) == pytest.approx(float(of.gap.sel(evaluation=r).mean()))
            power = np.fmax(of.power, of.control_power).sel(round=r)
            assert float(row["power_ratio"]) == pytest.approx(float(power.mean()))
            assert float(row["ci_low"]) <= float(row["mean"]) <= float(row["ci_high"])
    assert len([row for row in rows if row["metric"] == "gap"]) == 5 * 3


@pytest.mark.slow
def test_numbers_are_those_of_simulate(small):
    """The figure's one program gives what `simulate` gives with the same key, task and channel."""
    small("--snr-db", "3", "--seed", "5")
    data = xarray.load_dataset(small.out / "fig1.nc", engine="h5netcdf")
    k_data, k_trials = jax.random.split(jax.random.key(5))
    fig1 = figures.FIGURES["fig1"]
    for label in ("COBAAF", "noisy FedAvg"):
        alone = jo.simulate(
            k_trials,
            fig1.algorithms[label],
            jo.Channel(snr_db=3.0),
            fig1.task(k_data),
            rounds=3,
            trials=4,
        )
        np.testing.assert_allclose(data.gap.sel(algorithm=label), alone.gap, rtol=1e-3)


@pytest.mark.slow
def test_trials_in_pieces_are_the_same_trials(fig1, small, monkeypatch):
    whole = xarray.load_dataset(fig1[0] / "fig1.nc", engine="h5netcdf")
    monkeypatch.setattr(capacity, "rows_at_once", lambda *_: 3)
    numbers, compute = [], StudyJob.compute

    def counted(job, layout, number, *rest):
        numbers.append(number)
        return compute(job, layout, number, *rest)

    monkeypatch.setattr(StudyJob, "compute", counted)
    small()
    assert numbers == [0, 1]
    pieces = xarray.load_dataset(small.out / "fig1.nc", engine="h5netcdf")
    np.testing.assert_allclose(pieces.gap, whole.gap, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fading", "csi"])
def test_experiments_with_several_settings(name, tmp_path, capsys, monkeypatch, few_calibrations):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    assert cli.main(["run", name, "--trials", "3", "--rounds", "2", "--out", str(tmp_path)]) == 0
    settings = list(figures.FIGURES[name].fading)
    printed = capsys.readouterr().out
    assert all(setting in printed for setting in settings)
    data = xarray.load_dataset(tmp_path / f"{name}.nc", engine="h5netcdf")
    assert data.gap.dims == ("algorithm", "setting", "trial", "evaluation")
    assert data.setting.values.tolist() == settings
    with open(tmp_path / f"{name}.csv", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["metric"] == "gap"]
    assert len(rows) == 4 * len(settings) * 2
    for row in rows:
        of = data.sel(algorithm=row["algorithm"], setting=row["setting"])
        mean = of.gap.sel(evaluation=int(row["round"])).mean()
        assert float(row["mean"]) == pytest.approx(float(mean))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig4", "fig5", "cnn"])
def test_experiments_on_images(name, tmp_path, capsys, monkeypatch, few_calibrations):
    """On the digits that need no download: accuracy and loss, scored every few rounds."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    rounds = 2 if name == "cnn" else 5
    small = ["--trials", "2", "--rounds", str(rounds), "--init-scale", "0.1"]
    small += ["--snr-per", "symbol"]
    command = ["run", name, "--dataset", "digits", *small, "--out", str(tmp_path)]
    assert cli.main(command) == 0
    printed, errors = capsys.readouterr()
    assert without_devices(errors) == "" and "8×8 digits" in printed
    assert "SNR 10 dB per symbol" in printed
    assert "final accuracy" in printed and "difference to COTAF" in printed
    chosen = figures.FIGURES[name]
    assert all(label in printed for label in chosen.algorithms)
    data = xarray.load_dataset(tmp_path / f"{name}.nc", engine="h5netcdf")
    assert data.accuracy.dims == ("algorithm", "trial", "evaluation")
    assert data.attrs["snr_per"] == "symbol" and data.attrs["dataset"] == "digits"
    assert data.attrs["init_scale"] == 0.1 and "initial scale 0.1" in data.attrs["title"]
    every = math.gcd(chosen.every, rounds)  # so that the last round is scored
    scored = list(range(every, rounds + 1, every))
    assert data.evaluation.values.tolist() == scored
    with open(tmp_path / f"{name}.csv", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["metric"] == "accuracy"]
    assert [int(row["round"]) for row in rows] == scored * len(chosen.algorithms)
    for row in rows:
        mean = data.accuracy.sel(algorithm=row["algorithm"], evaluation=int(row["round"])).mean()
        assert float(row["mean"]) == pytest.approx(float(mean))


def test_figures_have_options_as_experiments_have():
    fig1, fig4 = figures.FIGURES["fig1"], figures.FIGURES["fig4"]
    assert list(fig1.options) == ["seed", "trials", "rounds", "algorithms", "snr_db", "snr_per"]
    assert fig4.options.keys() - fig1.options.keys() == {"dataset", "data_dir", "init_scale"}
    study = fig4.study(3, trials=2, rounds=7, snr_db=3.0, snr_per="symbol", dataset="digits")
    assert (study.trials, study.rounds, study.task.dataset) == (2, 7, "digits")
    assert (study.channel.snr_db, study.channel.snr_per) == (3.0, "symbol")
    assert study.every == 5 and study.metric == "accuracy"
    study = fig1.study(algorithms="WISE, scaffold")  # also one that the figure does not have
    assert list(study.algorithms) == ["WISE", "SCAFFOLD (noise-free)"] and study.reference == "WISE"
    assert repr(study.algorithms["WISE"]) == repr(jo.wise(1e-2, 10, 10))
    with pytest.raises(jo.InputError, match="speed is not an option of fig1: choose from seed, tr"):
        fig1.study(speed=2)


@pytest.mark.slow
def test_silence_is_said(small, capsys, monkeypatch, few_calibrations):
    """A threshold that no gain reaches: the table says that nobody transmitted."""
    deaf = jo.Channel(fading=jo.rayleigh(threshold=30.0))
    changed = dataclasses.replace(figures.FIGURES["fig1"], channel=deaf)
    monkeypatch.setitem(figures.FIGURES, "fig1", changed)
    assert small() == 0
    printed = capsys.readouterr().out
    assert "COTAF: nobody transmitted in 100.0% of rounds" in printed
    assert "SCAFFOLD (noise-free): nobody" not in printed


@pytest.mark.slow
def test_divergence_is_said(small, capsys, monkeypatch, few_calibrations):
    wild = {"COTAF": jo.cotaf(1e3, 2, 2), "BAAF": jo.baaf(1e-2, 2, 2)}
    changed = dataclasses.replace(figures.FIGURES["fig1"], algorithms=wild)
    monkeypatch.setitem(figures.FIGURES, "fig1", changed)
    assert small("--rounds", "20") == 0
    printed = capsys.readouterr().out
    assert "COTAF: 4 of 4 trials diverged" in printed and "BAAF:" not in printed
    assert "COTAF: its calibration diverged" in printed
    assert "all diverged" in printed and "no pairs" in printed
    with open(small.out / "fig1.csv", encoding="utf-8") as stream:
        counts = [r for r in csv.DictReader(stream) if r["metric"] == "diverged"]
    assert [(r["algorithm"], r["mean"]) for r in counts] == [("COTAF", "4"), ("BAAF", "0")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["run", "fig9"],
            "unknown experiment 'fig9': choose from fig1, fig2, fig3, fading, csi, fig4, fig5, cnn",
        ),
        (["run", "fig1", "--trials", "0"], "trials must be a whole number ≥ 1, got 0"),
        (["run", "fig1", "--rounds", "-1"], "rounds must be a whole number ≥ 1, got -1"),
        (["run", "fig1", "--trials", "many"], "argument --trials: invalid int value: 'many'"),
        (["run", "fig1", "--snr-db", "nan"], "channel.snr_db must be > -300, got nan"),
        (["run", "fig1", "--seed", "-1"], "seed must be a whole number ≥ 0, got -1"),
        (
            ["run", "fig1", "--seed", str(2**70)],
            f"seed must be a whole number ≤ 4294967295, got {2**70}",
        ),
        (["run", "fig1", "--out", "/dev/null/x"], "--out /dev/null/x must be a folder"),
        (
            ["run", "fig1", "--set", "steps=2"],
            "steps is not an option of fig1: choose from seed",
        ),
        (["run", "nothing.py"], "nothing.py cannot be read"),
        (["run", "fig1", "--dataset", "mnist"], "dataset is not an option of fig1: choose"),
        (["run", "fig1", "--init-scale", "1"], "init_scale is not an option of fig1: choose"),
        (["run", "fig4", "--dataset", "imagenet"], "dataset must be one of mnist, fashion_mnist"),
        (["run", "fig4", "--data-dir", "no/such"], "data_dir: no such folder: no/such"),
        (
            ["run", "cnn", "--data-dir", "."],
            "data_dir must not be given for digits, which need no files",
        ),
        (["run", "cnn", "--init-scale", "-1"], "task.init_scale must be finite and ≥ 0, got -1"),
        (["run", "fig1", "--snr-per", "bit"], "channel.snr_per must be 'vector' or 'symbol'"),
        (
            ["run", "fig1", "--format", "gif"],
            "--format: must be of png, svg, pdf, with commas",
        ),
        (["run", "fig1", "--format", "png,"], "with commas, got ''"),
        (
            ["run", "fig1", "--style", "poster"],
            "--style: invalid choice: 'poster' (choose from ",
        ),
        (
            ["show", "there", "--format", "jpg"],
            "--format: must be of png, svg, pdf, with commas",
        ),
        (["show", "there", "--style", ""], "--style: invalid choice: '' (choose from "),
        (["run"], "the following arguments are required: experiment"),
        (["dance"], "invalid choice: 'dance'"),
        (
            ["claims", "--only", "1"],
            "claims is now an experiment: jaxota run benchmarks/paper/claims.py",
        ),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(options, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXOTA_CACHE", "off")  # else it is kept by this process, for all tests
    assert cli.main(options) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and words in errors
    assert errors.startswith("jaxota: ") and errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # not even a folder


def test_list_and_version(capsys):
    assert cli.main(["list"]) == 0
    printed = capsys.readouterr().out
    *lines, devices = printed.splitlines()
    lines = lines[: lines.index("times on two cores, compilation included")]  # methods follow
    assert devices == f"runs on {jo.devices()}"
    assert [line.split()[0] for line in lines] == [
        "fig1", "fig2", "fig3", "fading", "csi", "fig4", "fig5", "cnn",
        *run.experiments_in_checkout(),
    ]  # fmt: skip
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxota {jo.__version__}\n"


def test_the_list_has_the_times_of_the_page(capsys):
    cli.main(["list"])
    page = (Path(__file__).parent.parent / "docs" / "command.md").read_text("utf-8")
    printed = capsys.readouterr().out
    for name, figure in figures.FIGURES.items():
        assert f"{name:8}{figure.takes:>6}  {figure.title}" in printed
        assert re.search(rf"^\| `{name}` .*\| {figure.takes} \|$", page, re.M)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["run", "fig1", "--trails", "3"], "--trails 3: did you mean --trials?"),
        (["sweep", "fig1", "--algorithm=x", "--dryrun"], "--dryrun: did you mean --dry-run?"),
        (["run", "fig1", "--zzz"], "unrecognized arguments: --zzz (see"),
    ],
)
def test_an_unknown_option_is_told_the_nearest_one(words, near, capsys):
    assert cli.main(words) == 2
    assert near in capsys.readouterr().err


TABLE = [
    ["algorithm", "final gap", "power ratio", "difference to COTAF", "energy"],
    ["SCAFFOLD (noise-free)", "190.1 ± 19.9", "0.964", "+178 ± 190", "7.461"],
]


@pytest.mark.parametrize(("width", "columns"), [(40, 3), (60, 4), (80, 5), (200, 5)])
def test_a_narrow_terminal_breaks_no_word(width, columns, monkeypatch, capsys):
    """A table drops whole columns, and says which; sentences are folded between words."""
    remark = "± is a 95 % interval over 100 trials; a power ratio above 1 exceeds the budget."
    report = jo.Report("x", "x: a caption", TABLE, [remark], None, None, None)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    cli.show(report)
    printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert max(map(len, printed.splitlines())) <= width
    words = set(re.sub(r"[┏┳┓┃┡╇┩│└┴┘━─]", " ", printed).split())
    everything = " ".join([*(" ".join(row[:columns]) for row in TABLE), remark]).split()
    assert set(everything) <= words
    left_out = ", ".join(TABLE[0][columns:])
    folded = " ".join(printed.split())
    assert (f"No room here for {left_out}: see the CSV." in folded) == (columns < 5)


def test_a_fault_of_ours_is_not_taken_for_bad_input(small, monkeypatch):
    """A ValueError from inside shows its traceback."""

    def fault(*_, **__):
        raise ValueError("an internal fault")

    monkeypatch.setattr(run, "run", fault)
    with pytest.raises(ValueError, match="an internal fault"):
        small()
    assert not small.out.exists()


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind(small, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xarray.Dataset, "to_netcdf", full)
    assert small() == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not small.out.exists()


MY_STUDY = """
import jax, jaxota as jo

TASK = jo.tasks.synthetic_regression(jax.random.key(1), 3, 6, 2)
NOISY = jo.noisy_fedavg(1e-2, 2, 2, precode=jo.Constant(1.0))
SMALL = jo.Study(
    {"FedAvg": jo.fedavg(1e-2, 2, 2), "noisy (gain 1)": NOISY}, jo.Channel(), TASK, 3, 4
)
OTHER = SMALL.replace(trials=2)
"""


MY_EXPERIMENT = """
import jaxota as jo, matplotlib.figure, pandas
from my_study import SMALL

@jo.experiment("Gaps of two algorithms")
def floors(run, seed: int = 0, trials: int = 3, scale: float = 1.0, label=None):
    data = run(SMALL.replace(trials=trials, key=seed, name="gaps"))
    gap = scale * data.gap.mean(("trial", "evaluation"))
    rows = pandas.DataFrame({"algorithm": gap.algorithm, "gap": gap})
    table = [["algorithm", "gap"], *([a, f"{g:.3g}"] for a, g in rows.values.tolist())]
    said = f"scale {scale}, label {label}"
    return jo.Report("floors", f"floors: {trials} trials", table, [said], data, rows,
                     matplotlib.figure.Figure, markdown="# Floors")
"""


@pytest.fixture
def sweep(monkeypatch, tmp_path):
    """The command for sweeps, in a folder with a study."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_study.py").write_text(MY_STUDY)
    (tmp_path / "experiment.py").write_text(MY_EXPERIMENT)
    (tmp_path / "no_study.py").write_text("x = 3")
    (tmp_path / "fails.py").write_text("x = 1 / 0")
    (tmp_path / "broken.py").write_text("x = (")
    (tmp_path / "bad_study.py").write_text(f"{MY_STUDY}\njo.grid(snr_db=[])")
    return lambda *options: cli.main(["sweep", *options])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["fig1", "--set", "snr=0:20:5"], "no field is called snr: did you mean snr_db"),
        (["fig1", "--set", "xyzzy=1"], "no field is called xyzzy: choose from batch"),
        (["fig1", "--set", "snr_db=20:0:5"], "--set snr_db must step from first to last, got"),
        (["fig1", "--set", "snr_db="], "--set snr_db must be values such as 1,2,3"),
        (["fig1", "--set", "snr_db=1:2:x"], "--set snr_db must be first:last:step in numbers"),
        (["fig1", "--set", "snr_db"], "--set must be NAME=VALUES"),
        (["fig1", "--set", "snr_db=1,1"], "snr_db must not hold a value twice, got 1 again"),
        (["fig1", "--set", "snr_db=much"], "channel.snr_db must be a number or an array"),
        (["fig1", "--set", "users=0,5"], "task.users must be a whole number ≥ 1, got 0"),
        (["fig1", "--set", "fading=Rayleigh"], "channel.fading must be a part of its kind"),
        (["fig1", "--set", "fading=rayleigh(x=1)"], "rayleigh(x=1) cannot be made"),
        (["fig1", "--set", "local=cobaaf"], "--set local: cobaaf() cannot be made"),
        (["fig1", "--set", "snr_db=0:20", "--max-bytes", "10k"], "more than --max-bytes 10 kB"),
        (["my_study.py:SMALL", "--set", "steps=1:4", "--max-programs", "3"], "--max-programs 3"),
        (["fig1", "--max-programs", "0"], "--max-programs must be a whole number ≥ 1, got 0"),
        (["fig1", "--max-bytes", "lots"], "--max-bytes must be a number of bytes such as 500M"),
        (["fig1", "--memory", "4X"], "--memory must be a number of bytes such as 500M or 4G, got"),
        (["my_study.py:SMALL", "--memory", "10"], "memory must be at least"),
        (["fig1", "--shard", "4/4"], "--shard must be I/N with I from 0 to N − 1"),
        (["fig1", "--keep", "some"], "keep must be 'trials' or 'mean', got 'some'"),
        (["fig1", "--algorithms", "COTAF,SGD"], "--algorithms must be of noisy FedAvg, COTAF"),
        (["fig1", "--trials", "0"], "trials must be a whole number ≥ 1, got 0"),
        (["fig1", "--seed", "-1"], "seed must be a whole number ≥ 0, got -1"),
        (["fig1", "--dataset", "mnist"], "dataset is not an option of fig1: choose"),
        (["fig9"], "unknown experiment 'fig9': choose from fig1"),
        (["experiment.py"], "floors is an experiment, not a study: jaxota run runs it"),
        (["missing.py:SMALL"], "missing.py cannot be read"),
        (["fails.py"], "fails: ZeroDivisionError: division by zero"),
        (["broken.py"], "fails: SyntaxError"),
        (["bad_study.py"], "snr_db must hold at least one value, got none"),
        (["no_study.py"], "no_study.py holds neither a jo.Study nor a jo.experiment"),
        (["my_study.py:LARGE"], "my_study.py holds no LARGE: choose from SMALL, OTHER"),
        (["my_study.py"], "holds SMALL, OTHER: choose one, as in my_study.py:SMALL"),
        (
            ["my_study.py:SMALL", "--snr-db", "3"],
            "snr_db is not an option of SMALL: choose",
        ),
        (["my_study.py:SMALL", "--out", "/dev/null/x"], "/dev/null/x must be a folder that can"),
        ([], "the following arguments are required: study"),
    ],
)
def test_bad_sweeps_are_one_line_and_exit_code_2(options, words, sweep, capsys, tmp_path):
    there = sorted(tmp_path.iterdir())
    assert sweep(*options) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and words in errors, errors
    assert errors.startswith("jaxota: ") and errors.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == there  # not even a folder


def test_a_dry_run_says_how_large_and_how_long_and_writes_nothing(sweep, capsys, tmp_path):
    there = sorted(tmp_path.iterdir())
    command = [
        "my_study.py:SMALL",
        "--set",
        "snr_db=0:20:10",
        "--set",
        "steps=1,2",
        "--trials",
        "5",
    ]
    assert sweep(*command, "--dry-run") == 0
    printed, errors = capsys.readouterr()
    assert without_devices(errors) == "" and sorted(tmp_path.iterdir()) == there
    first, second, third = printed.splitlines()
    assert first.startswith("SMALL: 3 snr_db × 2 steps = 6 settings × 5 trials × 2 algorithms = 60")
    assert "curves of 3 rounds" in first and first.endswith("of results (keep trials), 2 programs")
    assert second.startswith("2 chunks of about ") and second.endswith(" each")
    assert third.startswith("about ") and "compiling" in third and "0 calibrations" in third
    assert "user-steps/s" in third


def test_a_study_of_ones_own_is_swept_and_shown(sweep, capsys, tmp_path):
    """What the store holds is what `Study.run` gives; the picture and the CSV lie beside it."""
    sweeping = ["my_study.py:SMALL", "--set", "snr_db=0:20:10", "--set", "steps=1,2"]
    assert sweep(*sweeping) == 0
    printed, errors = capsys.readouterr()
    out = Path("sweeps") / "SMALL"
    told = f"all of them: jaxota show {out}, or jo.open({str(out)!r})\n"
    assert without_devices(errors) == ""
    assert printed == f"SMALL: 2 of 2 chunks are in {out}, {told}"
    space = {}
    exec(MY_STUDY, space)
    over = jo.grid(snr_db=[0, 10, 20], steps=[1, 2])
    expected = space["SMALL"].replace(over=over).run()
    data = jo.open(out)
    np.testing.assert_array_equal(data.snr_db, [0, 10, 20])
    np.testing.assert_allclose(data.gap, expected.gap, rtol=1e-3)

    assert cli.main(["show", str(out), "--metric", "loss"]) == 0
    printed, errors = capsys.readouterr()
    assert errors == "" and "SMALL: 3 snr_db × 2 steps" in printed and "final loss" in printed
    assert printed.count("noisy (gain 1)") == 6
    assert f"wrote {out / 'SMALL.png'}" in printed and f"wrote {out / 'SMALL.csv'}" in printed
    with open(out / "SMALL.csv", encoding="utf-8") as stream:
        assert len(list(csv.DictReader(stream))) == 2 * 6 * 3 * (2 + 3)  # two scores, three costs

    assert sweep(*sweeping) == 2  # again, without --resume
    assert "holds a store already: go on with it by --resume" in capsys.readouterr().err
    assert sweep(*sweeping, "--resume") == 0
    assert "2 of 2 chunks are in" in (printed := capsys.readouterr().out)
    assert "2 of them from before" in printed


def test_some_algorithms_means_and_seeds(sweep, capsys):
    command = ["my_study.py:OTHER", "--algorithms", "NOISY", "--keep", "mean", "--seed", "3"]
    assert sweep(*command, "--rounds", "2", "--out", "here") == 0
    data = jo.open("here")
    assert data.algorithm.values.tolist() == ["noisy (gain 1)"]
    assert data.attrs["keep"] == "mean" and data.attrs["reference"] == "noisy (gain 1)"
    assert data.sizes["evaluation"] == 2 and float(data.trials.max()) == 2
    space = {}
    exec(MY_STUDY, space)
    study = space["OTHER"].replace(key=3, rounds=2, algorithms={"a": space["NOISY"]}, keep="mean")
    np.testing.assert_allclose(data.gap_mean, study.run().gap_mean, rtol=1e-3)


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("nowhere", "nowhere holds no store: there is no study.json in it"),
        (".", ". holds no store: there is no study.json in it"),
    ],
)
def test_what_cannot_be_shown_is_one_line(folder, words, sweep, capsys, tmp_path):
    there = sorted(tmp_path.iterdir())
    assert cli.main(["show", folder]) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and words in errors and errors.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == there


def test_an_experiment_of_ones_own_is_run(sweep, capsys, tmp_path):
    """Its options are flags or --set, its chunks can be kept, its files are those of a figure."""
    options = ["--trials", "2", "--set", "scale=2", "--set", "label=x", "--out", "out"]
    assert cli.main(["run", "experiment.py", *options, "--resume"]) == 0
    printed, errors = capsys.readouterr()
    assert without_devices(errors) == ""
    assert "floors: 2 trials" in printed and "scale 2.0, label x" in printed
    written = ["floors.csv", "floors.md", "floors.nc", "floors.png", "gaps.parts"]
    assert sorted(os.listdir("out")) == written
    data = xarray.load_dataset("out/floors.nc", engine="h5netcdf")
    assert data.attrs["command"] == (
        "jaxota run experiment.py --set scale=2 --set label=x --trials 2"
    )
    assert data.attrs["seed"] == 0 and data.sizes["trial"] == 2
    assert json.loads(data.attrs["table"])[0] == ["algorithm", "gap"]
    assert cli.main(["report", "out"]) == 0  # without curves


def test_shards_of_an_experiment_come_together(sweep, capsys, monkeypatch):
    monkeypatch.setattr(capacity, "rows_at_once", lambda *_: 1)
    command = ["run", "experiment.py:floors", "--trials", "3", "--out", "out", "--shard"]
    assert cli.main([*command, "1/2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "floors: chunks of other shards are missing: 1 finished chunk is kept"
    )
    assert cli.main([*command, "0/2"]) == 0
    assert "floors: 3 trials" in capsys.readouterr().out


def test_a_study_in_a_file_is_run_and_reported_as_figures_are(sweep, capsys):
    assert cli.main(["run", "my_study.py:SMALL", "--seed", "3", "--out", "out"]) == 0
    printed, errors = capsys.readouterr()
    assert without_devices(errors) == ""
    assert "SMALL: one setting, SNR 10 dB per vector; 3 rounds, 4 trials" in printed
    assert "difference to FedAvg" in printed and "s compiling" in printed
    with open("out/SMALL.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * (2 * 3 + 1 + 3 * 3) and rows[6]["metric"] == "diverged"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rounds", "9"], "rounds is not an option of floors: choose from seed, trials, scale"),
        (["--dataset", "mnist"], "dataset is not an option of floors"),
        (["--set", "only=1"], "only is not an option of floors: choose from seed"),
        (["--set", "scale"], "--set must be NAME=VALUE, got 'scale'"),
        (["--set", "scale=much"], "--set scale must be of type float, got 'much'"),
        (["--trials", "0"], "trials must be a whole number ≥ 1, got 0"),
        (["--memory", "4X"], "--memory must be a number of bytes such as 500M or 4G, got"),
    ],
)
def test_options_that_an_experiment_does_not_have_are_refused(options, words, sweep, capsys):
    assert cli.main(["run", "experiment.py", *options, "--out", "out"]) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and words in errors and errors.count("\n") == 1
    assert not os.path.exists("out")


def test_bars_of_others_do_not_run_through_ours(monkeypatch):
    """tensorflow-datasets is silenced before it reads anything, and loaded for images alone."""
    silenced = []
    tfds = pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(tfds, "disable_progress_bar", lambda: silenced.append(1))
    monkeypatch.setattr(_devices, "virtual", lambda: None)
    monkeypatch.setattr(cache, "keep_programs", lambda: None)
    process.prepare()
    assert not silenced
    process.silence_downloads()
    assert silenced
