"""The paper's claims: their statistics in plain NumPy, their verdicts by hand, and the command."""

import csv
import dataclasses
import os
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from scipy import stats as scipy_stats

import jaxota as jo
from jaxota import figures
from jaxota.cli import main as cli
from jaxota.experiments import claims, claims_lines, claims_page, claims_runs, draws
from jaxota.tasks import image_files

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("count", "of"), [(0, 5), (5, 5), (3, 5), (27, 50), (50, 50), (1, 50)])
@pytest.mark.parametrize("level", [0.95, claims_lines.SIMULTANEOUS])
def test_wilson_solves_its_equation(count, of, level):
    """The shares p at which |count/of − p| is z standard errors √(p(1 − p)/of)."""
    found = draws.wilson(count, of, level)
    z, share = scipy_stats.norm.ppf(0.5 + level / 2), count / of
    roots = np.sort(np.roots([1 + z**2 / of, -2 * share - z**2 / of, share**2]))
    np.testing.assert_allclose(found[:2], np.clip(roots, 0, 1), atol=1e-12)
    known = scipy_stats.binomtest(count, of).proportion_ci(level, method="wilson")
    np.testing.assert_allclose(found[:2], known, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8, 20, 50])
def test_the_medians_interval_is_the_shortest_that_covers(count):
    """By all 2^n ways, or binomial sums, in which values lie on either side of the median."""
    values = np.random.default_rng(count).permutation(np.arange(count, dtype=float))
    found = draws.median_interval(values, 0.95)
    below = scipy_stats.binom(count, 0.5)  # how many lie below the median

    def covers(k):  # from the k-th smallest to the k-th largest, counted from 1
        return sum(below.pmf(j) for j in range(k, count - k + 1))

    k = int(found.low) + 1
    assert found.high == count - k
    assert found.level == pytest.approx(covers(k), abs=1e-12)
    if count >= 6:
        assert covers(k) >= 0.95 > covers(k + 1)
    else:
        assert k == 1 and found.level < 0.95


def test_medians_are_covered_as_often_as_is_said():
    """Of a skewed law, within 4 standard errors, or more often as ranks are whole."""
    values = np.random.default_rng(0).exponential(size=(4000, 20))
    found = [draws.median_interval(row, 0.95) for row in values]
    covered = np.mean([low <= np.log(2) <= high for low, high, _ in found])
    assert found[0].level == pytest.approx(0.9586, abs=1e-4)
    assert abs(covered - found[0].level) < 4 * np.sqrt(0.05 / 4000)


def _line(held, of, limit=1.0):
    """A line whose effect is 0.5 on so many draws, and 3 on the others."""
    part = claims.Part("9", "one below the other", lambda _: None, limit=limit)
    effects = np.where(np.arange(of) < held, 0.5, 3.0)
    return claims_lines.Line(part, "offline", "none", 1, 1, effects, 1.0)


@pytest.mark.parametrize(
    ("held", "of", "verdict", "undecided"),
    [
        (50, 50, claims_lines.HOLDS, False),
        (48, 50, claims_lines.HOLDS, False),  # 96 %
        (47, 50, claims_lines.MOST, False),  # 94 %
        (33, 50, claims_lines.MOST, True),  # [52 %, 78 %], and all lines together [44 %, 83 %]
        (31, 50, claims_lines.NOT, True),  # [48 %, 74 %]
        (25, 50, claims_lines.NOT, True),
        (3, 50, claims_lines.NOT, False),
        (5, 5, claims_lines.HOLDS, True),  # [57 %, 100 %]
        (4, 5, claims_lines.NOT, True),
        (0, 5, claims_lines.NOT, True),
    ],
)
def test_verdicts(held, of, verdict, undecided):
    line = _line(held, of)
    assert (line.count, line.share) == (held, held / of)
    assert (line.verdict, line.open) == (verdict, undecided)
    row = line.row()
    assert row["median"] == ("0.5" if held > of / 2 else "3" if held < of / 2 else "1.75")
    assert row["holds_on"] == held and float(row["share_low"]) <= held / of


def test_all_lines_are_reckoned_with():
    assert {part.claim for part in claims.PARTS} == set(range(1, 8))
    assert claims.LINES == 2 * len(claims.PARTS) == 32
    assert pytest.approx(0.05) == claims.LINES * (1 - claims_lines.SIMULTANEOUS)
    names = [part.name for part in claims.PARTS]
    assert names == sorted(set(names))


GAPS = {
    "noisy FedAvg": (8.0, 0.8, 7.0),
    "COTAF": (4.0, 0.5, 5.0),
    "BAAF": (6.0, 0.6, 6.0),
    "COBAAF": (2.0, 0.03, 1.0),
    claims.SCAFFOLD: (0.5, 0.01, 0.4),
}
ACCURACIES = {
    "noisy FedAvg": (0.80, 0.79),
    "COTAF": (0.85, 0.82),
    "BAAF": (0.86, 0.83),
    "COBAAF": (0.88, 0.87),
    claims.FEDAVG: (0.89, 0.86),
    claims.SCAFFOLD: (0.91, 0.88),
}


def _scores(figure, algorithm, score):
    if score == "gap":
        return np.array([GAPS[algorithm][("fig1", "fig2", "fig3").index(figure)]])
    return np.array([ACCURACIES[algorithm][("fig4", "fig5").index(figure)]])


@pytest.mark.parametrize(
    ("name", "effect", "holds"),
    [
        ("1a", 6 / 4, False),
        ("1b", 4 / 8, True),
        ("2", 2 / 6, True),
        ("3a", 2 / 0.5, False),
        ("3b", 1.5 / 7.5, False),
        ("4a", 3 / 4, True),
        ("4b", 0.02 - 1.5, True),
        ("5a", 1 / 2, True),
        ("5b", 0.2 / 0.5, True),
        ("6a", 1.0, True),
        ("6b", 5.0, True),
        ("6c", -3.0, False),
        ("7a", 5.0, True),
        ("7b", 4.0, True),
        ("7c", 2.0, True),
        ("7d", -1.0, True),
    ],
)
def test_effects_are_what_the_claims_say(name, effect, holds):
    (part,) = [part for part in claims.PARTS if part.name == name]
    found = part.on(_scores)
    np.testing.assert_allclose(found, [effect], rtol=1e-9)
    assert part.holds(found).tolist() == [holds]


def test_what_diverged_does_not_hold():
    def scores(figure, algorithm, score):
        lost = np.nan if score == "accuracy" else np.inf
        return np.array([lost, lost if algorithm == "COTAF" else 1.0])

    for name, held in (("1a", [False, True]), ("6a", [False, False])):
        (part,) = [part for part in claims.PARTS if part.name == name]
        assert part.holds(part.on(scores)).tolist() == held


def test_each_draw_has_noise_and_data_of_its_own():
    """And all algorithms the same noise on one draw."""
    axis = draws.axis(jax.random.key(1), 3)
    key = jax.random.key(7)
    noise = [draws.Renewed(n).draw(key, (400,)) for n in axis.labels]
    assert np.abs(np.corrcoef(noise) - np.eye(3)).max() < 4 / np.sqrt(400)
    np.testing.assert_array_equal(noise[1], draws.Renewed(1).draw(key, (400,)))
    data = [np.asarray(jax.random.key_data(k)).tolist() for k in axis.fields["task.key"]]
    assert len({tuple(each) for each in data}) == 3


def test_the_settings_are_those_of_the_figures():
    runs, said = claims_runs.runs(claims_runs.chosen("1,2,3,4,5"))
    assert said == "" and [(r.name, r.draws, r.trials) for r in runs] == [("regression", 50, 20)]
    study = runs[0].study(0)
    figure = figures.EXPERIMENTS["fig1"]
    assert study.algorithms.keys() >= figure.algorithms.keys()
    assert (study.rounds, study.task.users, study.channel.snr_db) == (60, 20, 10.0)
    first, second = study.over.axes
    assert first.fields == {"users": (20, 200, 20), "steps": (10, 10, 20)} and len(second) == 50
    assert [r.figures for r in claims_runs.runs(claims_runs.chosen("1,2"))[0]] == [("fig1",)]


def test_digits_stand_in_for_mnist_and_that_is_said(monkeypatch):
    monkeypatch.setattr(
        image_files, "load", lambda *_: (_ for _ in ()).throw(jo.InputError("no net"))
    )
    (runs,), said = claims_runs.runs(claims_runs.chosen("6"))
    assert runs.data == "8×8 digits" and runs.draws == 5
    assert said.startswith("MNIST cannot be had") and said.endswith("no net.")
    monkeypatch.setattr(image_files, "load", lambda *_: ())
    (runs,), said = claims_runs.runs(claims_runs.chosen("7"))
    assert runs.data == "MNIST" and said == "" and runs.figures == ("fig4", "fig5")


@pytest.fixture
def small(monkeypatch):
    """Figures of few users and rounds."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.setattr(claims_runs, "CALIBRATION_TRIALS", {False: 2, True: 2})
    for name, experiment in figures.EXPERIMENTS.items():
        if not experiment.on_images:

            def task(key, users=6 if name == "fig2" else 3):
                return jo.tasks.synthetic_regression(key, users, 10, 3)

        else:
            task = dataclasses.replace(experiment.task, samples=20)
        changed = dataclasses.replace(experiment, task=task, rounds=4)
        monkeypatch.setitem(figures.EXPERIMENTS, name, changed)


def _rows(folder):
    with open(folder / "claims.csv", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_the_command_tells_every_line(small, tmp_path, capsys):
    command = ["claims", "--draws", "3", "--trials", "2", "--seed", "4", "--dataset", "digits"]
    assert cli.main([*command, "--out", str(tmp_path)]) == 0
    printed, errors = capsys.readouterr()
    assert "Traceback" not in errors and "seed 4" in printed and "Bonferroni" in printed
    assert sorted(os.listdir(tmp_path)) == [f"claims.{e}" for e in ("csv", "md", "nc", "png")]
    rows = _rows(tmp_path)
    assert len(rows) == claims.LINES
    assert {row["data"] for row in rows} == {"synthetic regression", "8×8 digits"}
    page = (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert page == claims_page.markdown(rows) and page.count("\n| (") == len(claims.PARTS)
    data = xarray.load_dataset(tmp_path / "claims.nc", engine="h5netcdf")
    assert data.effect.dims == ("part", "precoder", "draw") and data.effect.sizes["draw"] == 3
    assert data.attrs["command"] == f"jaxota {' '.join(command)}"
    gap = data.regression_gap.rename(regression_algorithm="a", regression_figure="f")
    for precoder, name in (("offline", "BAAF"), ("online", "BAAF, online")):
        other = name.replace("BAAF", "COTAF")
        ratio = gap.sel(a=name, f="fig1").values / gap.sel(a=other, f="fig1").values
        np.testing.assert_allclose(data.effect.sel(part="1a", precoder=precoder), ratio)
        (row,) = [r for r in rows if (r["part"], r["precoder"]) == ("1a", precoder)]
        assert int(row["holds_on"]) == (ratio < 1).sum() and row["draws"] == "3"
        assert float(row["median"]) == pytest.approx(np.median(ratio), rel=1e-5)
    powers = {r["precoder"]: float(r["power_ratio"]) for r in rows if r["part"] == "2"}
    assert powers["online"] == pytest.approx(1.0, abs=1e-4) != powers["offline"]


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_with_more_draws(small, tmp_path):
    command = ["claims", "--only", "1,5", "--trials", "2", "--out", str(tmp_path), "--resume"]
    assert cli.main([*command, "--draws", "2"]) == 0
    parts = tmp_path / "claims.parts" / "regression" / "commits"
    before = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    few = xarray.load_dataset(tmp_path / "claims.nc", engine="h5netcdf").effect
    assert cli.main([*command, "--draws", "2"]) == 0  # nothing is left to do
    assert {path.name: path.stat().st_mtime_ns for path in parts.iterdir()} == before
    assert cli.main([*command, "--draws", "4"]) == 0
    more = xarray.load_dataset(tmp_path / "claims.nc", engine="h5netcdf").effect
    np.testing.assert_allclose(more.isel(draw=slice(2)), few, rtol=1e-4)
    assert more.sizes["draw"] == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "8"], "--only must be of 1, 2, 3, 4, 5, 6, 7, with commas, got '8'"),
        (["--only", "1;2"], "--only must be of 1"),
        (["--only", "1", "--draws", "0"], "draws must be a whole number ≥ 1, got 0"),
        (["--only", "1", "--trials", "0"], "trials must be a whole number ≥ 1, got 0"),
        (["--only", "1", "--seed", "-1"], "seed must be a whole number ≥ 0, got -1"),
        (["--only", "1", "--dataset", "digits"], "--dataset is for claims on images"),
        (["--only", "6", "--dataset", "imagenet"], "dataset must be one of mnist"),
        (["--only", "6", "--data-dir", "no/such"], "data_dir: no such folder: no/such"),
        (["--out", "/dev/null/x"], "--out /dev/null/x must be a folder"),
    ],
)
def test_bad_words_are_one_line(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["claims", *options]) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and words in errors and errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("page", "told", "marks"),
    [
        ("README.md", claims_page.short, claims_page.SHORT),
        ("docs/claims.md", claims_page.markdown, claims_page.WHOLE),
    ],
)
def test_pages_show_what_is_stored(page, told, marks):
    """Word for word: the table between its marks is made of docs/results/claims.csv."""
    shown = (ROOT / page).read_text(encoding="utf-8")
    rows = claims_page.read(ROOT / "docs" / "results" / "claims.csv")
    assert len(rows) == claims.LINES
    assert claims_page.put(told(rows), marks, shown) == shown
    changed = [*rows[:-1], rows[-1] | {"holds_on": "77"}]
    assert claims_page.put(told(changed), marks, shown) != shown
    with pytest.raises(ValueError, match="there is no"):
        claims_page.put(told(rows), marks, "a page without marks")


def test_the_stored_verdicts_follow_from_the_stored_counts():
    for row in claims_page.read(ROOT / "docs" / "results" / "claims.csv"):
        count, of = int(row["holds_on"]), int(row["draws"])
        low, high, _ = draws.wilson(count, of, 0.95)
        assert row["share_low"] == f"{low:.6g}" and row["share_high"] == f"{high:.6g}"
        line = _line(count, of)
        assert (row["verdict"], row["open"]) == (line.verdict, "yes" if line.open else "no")
