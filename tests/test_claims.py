"""The paper's claims: statistics in plain NumPy, verdicts by hand, and the experiment."""

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest
import xarray
from scipy import stats as scipy_stats

import jaxota as jo

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "benchmarks" / "paper"
sys.path.insert(0, str(PAPER))
claim_parts, claims, claims_page, data_draws = map(
    importlib.import_module, ("claim_parts", "claims", "claims_page", "data_draws")
)


@pytest.mark.parametrize(("count", "of"), [(0, 5), (5, 5), (3, 5), (27, 50), (50, 50), (1, 50)])
@pytest.mark.parametrize("level", [0.95, claims.SIMULTANEOUS])
def test_interval_of_a_share_is_exact(count, of, level):
    """At either bound, a count as far away as this one has the probability (1 − level)/2."""
    found = jo.stats.share(count, of, level)
    tail = (1 - level) / 2
    if count > 0:
        assert scipy_stats.binom.sf(count - 1, of, found.low) == pytest.approx(tail, rel=1e-6)
    if count < of:
        assert scipy_stats.binom.cdf(count, of, found.high) == pytest.approx(tail, rel=1e-6)
    assert (found.low == 0) == (count == 0) and (found.high == 1) == (count == of)
    expected = scipy_stats.binomtest(count, of).proportion_ci(level, method="exact")
    assert found == (expected.low, expected.high, level)


@pytest.mark.parametrize("of", [5, 12, 50])
def test_intervals_of_shares_cover_at_every_share(of):
    """By summing the binomial law, for sentences that promise simultaneous coverage."""
    for level in (0.95, claims.SIMULTANEOUS):
        bounds = np.array([jo.stats.share(count, of, level)[:2] for count in range(of + 1)])
        for share in np.linspace(0.0, 1.0, 201):
            inside = (bounds[:, 0] <= share) & (share <= bounds[:, 1])
            chances = scipy_stats.binom.pmf(np.arange(of + 1), of, share)
            assert chances[inside].sum() >= level - 1e-9


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8, 20, 50])
def test_interval_of_a_median_is_the_shortest_that_covers(count):
    """By all 2^n ways, or binomial sums, in which values lie on either side of the median."""
    values = np.random.default_rng(count).permutation(np.arange(count, dtype=float))
    found = jo.stats.median(values, 0.95)
    below = scipy_stats.binom(count, 0.5)  # how many lie below the median

    def covers(k):  # from the k-th smallest to the k-th largest, counted from 1
        return sum(below.pmf(j) for j in range(k, count - k + 1))

    k = int(found.low) + 1
    assert found.high == count - k
    if count >= 6:
        assert covers(k) >= 0.95 > covers(k + 1) and found.level == 0.95
    else:
        assert k == 1 and found.level == pytest.approx(covers(k), abs=1e-12) and found.level < 0.95


def test_medians_are_covered_as_often_as_is_said():
    """Of a skewed law, within 4 standard errors, or more often as ranks are whole."""
    values = np.random.default_rng(0).exponential(size=(1000, 20))
    found = [jo.stats.median(row, 0.95) for row in values]
    covered = np.mean([low <= np.log(2) <= high for low, high, _ in found])
    assert abs(covered - 0.9586) < 4 * np.sqrt(0.05 / 1000)  # of ranks 6 and 15 of 20


def test_medians_with_infinite_effects():
    """Draws that diverged are as far away as can be, and keep their rank."""
    effects = np.array([0.5] * 8 + [np.inf] * 2)
    assert jo.stats.median(effects, 0.95)[:2] == (0.5, np.inf)


def _line(held, of, limit=1.0):
    """A line whose effect is 0.5 on so many draws, and 3 on the others."""
    part = claim_parts.Part("9", "one below the other", lambda _: None, limit=limit)
    effects = np.where(np.arange(of) < held, 0.5, 3.0)
    return claims.line(part, "offline", effects, 1.0, "none", 60, 1, 1, 0)


@pytest.mark.parametrize(
    ("held", "of", "verdict", "open_after_correction"),
    [
        (50, 50, "holds", False),
        (48, 50, "holds", False),  # 96 %
        (47, 50, "holds for most draws", False),  # 94 %
        (33, 50, "holds for most draws", True),  # [51 %, 79 %]
        (32, 50, "undecided", True),  # [49 %, 77 %]
        (25, 50, "undecided", True),
        (14, 50, "fails on most draws", True),  # [16 %, 42 %], with all lines [11 %, 51 %]
        (3, 50, "fails on most draws", False),
        (2, 50, "fails", False),
        (2, 2, "undecided", True),
        (5, 5, "undecided", True),  # [48 %, 100 %]
        (8, 8, "holds", True),  # [63 %, 100 %], with all lines [41 %, 100 %]
        (12, 12, "holds", False),  # with all lines [55 %, 100 %]
        (0, 5, "undecided", True),
        (0, 12, "fails", False),
    ],
)
def test_verdicts(held, of, verdict, open_after_correction):
    row = _line(held, of)
    assert (row["holds_on"], row["share"]) == (held, held / of)
    assert (row["verdict"], row["open"]) == (verdict, "yes" if open_after_correction else "no")
    assert row["median"] == (0.5 if held > of / 2 else 3.0 if held < of / 2 else 1.75)
    assert row["share_low"] <= held / of <= row["share_high"]


def test_a_verdict_that_the_correction_undoes_is_marked():
    frame = pandas.DataFrame([_line(*counts) for counts in ((8, 8), (2, 5), (50, 50))])
    assert [claims_page.verdict(row) for row in frame.itertuples()] == [
        "holds; undecided after correction †",
        "undecided",
        "holds",
    ]
    assert len(claims_page.legend(frame)) == 4 and "32 claims" in claims_page.legend(frame)[-1]
    assert len(claims_page.legend(frame[1:])) == 3  # no mark, no explanation


def test_all_lines_are_corrected_for():
    assert {part.claim for part in claim_parts.PARTS} == set("1234567")
    assert claim_parts.LINES == 2 * len(claim_parts.PARTS) == 32
    assert pytest.approx(0.05) == claim_parts.LINES * (1 - claims.SIMULTANEOUS)
    names = [part.name for part in claim_parts.PARTS]
    assert names == sorted(set(names))


GAPS = {
    "noisy FedAvg": (8.0, 0.8, 7.0),
    "COTAF": (4.0, 0.5, 5.0),
    "BAAF": (6.0, 0.6, 6.0),
    "COBAAF": (2.0, 0.03, 1.0),
    claim_parts.SCAFFOLD: (0.5, 0.01, 0.4),
}
ACCURACIES = {
    "noisy FedAvg": (0.80, 0.79),
    "COTAF": (0.85, 0.82),
    "BAAF": (0.86, 0.83),
    "COBAAF": (0.88, 0.87),
    claim_parts.FEDAVG: (0.89, 0.86),
    claim_parts.SCAFFOLD: (0.91, 0.88),
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
    (part,) = [part for part in claim_parts.PARTS if part.name == name]
    found = part.effects(_scores)
    np.testing.assert_allclose(found, [effect], rtol=1e-9)
    assert part.holds(found).tolist() == [holds]


def test_what_diverged_does_not_hold():
    def scores(figure, algorithm, score):
        lost = np.nan if score == "accuracy" else np.inf
        return np.array([lost, lost if algorithm == "COTAF" else 1.0])

    for name, held in (("1a", [False, True]), ("6a", [False, False])):
        (part,) = [part for part in claim_parts.PARTS if part.name == name]
        assert part.holds(part.effects(scores)).tolist() == held


def test_each_draw_has_noise_and_data_of_its_own():
    """And all algorithms the same noise on one draw."""
    over = data_draws.data_draws(jax.random.key(1), 3)
    key = jax.random.key(7)
    noise = [data_draws.NoisePerDraw(n).draw(key, (400,)) for n in range(3)]
    assert np.abs(np.corrcoef(noise) - np.eye(3)).max() < 4 / np.sqrt(400)
    np.testing.assert_array_equal(noise[1], data_draws.NoisePerDraw(1).draw(key, (400,)))
    (axis,) = over.axes
    data = [np.asarray(jax.random.key_data(k)).tolist() for k in axis.fields["task.key"]]
    assert len({tuple(each) for each in data}) == 3 and axis.fields["draw_number"] == (0, 1, 2)


def test_the_settings_are_those_of_the_figures():
    study = claims.figures_study("regression", ["fig1", "fig2", "fig3"], 0)
    figure = jo.figures.FIGURES["fig1"].study(0)
    assert study.algorithms.keys() >= figure.algorithms.keys() and study.trials == 20
    assert (study.rounds, study.task.users, study.channel.snr_db) == (60, 20, 10.0)
    first, second = study.over.axes
    assert first.fields == {"users": (20, 200, 20), "steps": (10, 10, 20)} and len(second) == 50
    assert [part.name for part in claims.chosen("1,2")] == ["1a", "1b", "2"]


def test_digits_stand_in_for_mnist_and_that_is_said(monkeypatch):
    sentence = "MNIST cannot be had: no net."
    monkeypatch.setattr(jo.tasks, "images_at_hand", lambda: ("digits", sentence))
    assert claims.chosen_images(claims.chosen("6"), None, None) == ({"dataset": "digits"}, sentence)
    assert claims.chosen_images(claims.chosen("1,2"), None, None) == ({}, "")
    options = claims.chosen_images(claims.chosen("7"), None, "here")
    assert options == ({"dataset": "mnist", "data_dir": "here"}, "")
    study = claims.figures_study("images", ["fig4", "fig5"], 0, dataset="digits")
    assert study.task.title == "8×8 digits" and len(study.over.axes[1]) == 12


@pytest.fixture
def small(monkeypatch):
    """The figures with few samples and rounds."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    full_size = claims.figures_study

    def few(kind, *arguments, **options):
        study = full_size(kind, *arguments, **options)
        smaller = {"samples": 20} if kind == "images" else {"samples": 10, "dim": 3}
        task = dataclasses.replace(study.task, **smaller)
        return study.replace(task=task, rounds=4, every=2, calibration_trials=2)

    monkeypatch.setattr(claims, "figures_study", few)


@pytest.mark.slow
def test_the_report_has_every_line(small, tmp_path):
    report = claims.claims(draws=3, trials=2, seed=4, dataset="digits")
    assert "seed 4" in report.caption
    # With 3 draws no verdict is decided, so that none needs a mark.
    assert "Undecided" in report.remarks[1] and set(report.csv.verdict) == {"undecided"}
    rows, data = report.csv, report.dataset
    assert len(rows) == 2 * (len(report.table) - 1) == 2 * claim_parts.LINES
    assert set(rows["round"]) == {2, 4} and "after 4 rounds" in report.remarks[0]
    assert set(rows.data) == {"synthetic regression", "8×8 digits"}
    rows.to_csv(tmp_path / "claims.csv", index=False)
    again = claims_page.read(tmp_path / "claims.csv")  # pages are made of the CSV alone
    assert report.markdown == claims_page.markdown(again)
    assert report.markdown.count("\n| (") == len(claim_parts.PARTS)
    assert data.effect.dims == ("part", "precoder", "draw") and data.effect.sizes["draw"] == 3
    gap = data.regression_gap.rename(regression_algorithm="a", regression_figure="f")
    for precoder, name in (("offline", "BAAF"), ("online", "BAAF, online")):
        other = name.replace("BAAF", "COTAF")
        for place, r in enumerate((2, 4)):
            ratio = gap.sel(a=name, f="fig1") / gap.sel(a=other, f="fig1")
            ratio = ratio.isel(regression_round=place).values
            own = rows[(rows.part == "1a") & (rows.precoder == precoder) & (rows["round"] == r)]
            (row,) = own.itertuples()
            assert row.holds_on == (ratio < 1).sum() and row.draws == 3
            assert row.median == pytest.approx(np.median(ratio), rel=1e-5)
        np.testing.assert_allclose(data.effect.sel(part="1a", precoder=precoder), ratio)
    last = claims_page.final(rows)
    powers = {r.precoder: r.power_ratio for r in last[last.part == "2"].itertuples()}
    assert powers["online"] == pytest.approx(1.0, abs=1e-4) != powers["offline"]
    report.figure().savefig(tmp_path / "claims.png")
    with jo.style.drawn_for("paper"):
        report.figure().savefig(tmp_path / "paper.png")


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_with_more_draws(small, tmp_path):
    def effects(draws):
        def run(study):
            return study.run(tmp_path / study.name, resume=True)

        return claims.claims(run, only="1,5", trials=2, draws=draws).dataset.effect

    few = effects(2)
    parts = tmp_path / "claims-regression" / "chunks"
    before = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    effects(2)  # nothing is left to do
    assert {path.name: path.stat().st_mtime_ns for path in parts.iterdir()} == before
    more = effects(4)
    np.testing.assert_allclose(more.isel(draw=slice(2)), few, rtol=1e-4)
    assert more.sizes["draw"] == 4


@pytest.mark.slow
def test_the_command_writes_all_files(tmp_path):
    words = ["run", str(PAPER / "claims.py"), "--set", "only=1", "--set", "draws=2"]
    command = [sys.executable, "-m", "jaxota", *words, "--trials", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Claim 1 of the paper, at the settings of its figures")
    assert {path.suffix for path in tmp_path.glob("claims.*")} == {".csv", ".md", ".nc", ".png"}
    data = xarray.load_dataset(tmp_path / "claims.nc", engine="h5netcdf")
    assert data.attrs["command"] == ("jaxota run claims.py --set only=1 --set draws=2 --trials 1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": "8"}, "only must be of 1, 2, 3, 4, 5, 6, 7, with commas, got '8'"),
        ({"only": "1;2"}, "only must be of 1"),
        ({"only": "1", "draws": 0}, "draws must be a whole number ≥ 1, got 0"),
        ({"only": "1", "trials": 0}, "trials must be a whole number ≥ 1, got 0"),
        ({"only": "1", "seed": -1}, "seed must be a whole number ≥ 0, got -1"),
        ({"only": "1", "dataset": "digits"}, "dataset is for claims on images"),
        ({"only": "6", "dataset": "imagenet"}, "dataset must be one of mnist"),
        ({"only": "6", "data_dir": "no/such"}, "data_dir"),
        ({"rounds": 3}, "rounds is not an option of claims"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(jo.InputError, match=words):
        claims.claims(**options)


@pytest.mark.parametrize(
    ("page", "made", "mark"),
    [
        ("README.md", claims_page.short, claims_page.SHORT),
        ("docs/claims.md", claims_page.markdown, claims_page.FULL),
        ("docs/claims.md", claims_page.by_round, claims_page.ROUNDS),
    ],
)
def test_pages_show_what_is_stored(page, made, mark):
    """Word for word: the table between its marks is made of docs/results/claims.csv."""
    shown = (ROOT / page).read_text(encoding="utf-8")
    frame = claims_page.read(ROOT / "docs" / "results" / "claims.csv")
    assert len(claims_page.final(frame)) == claim_parts.LINES
    assert claims_page.put(made(frame), mark, shown) == shown
    changed = frame.assign(holds_on=frame.holds_on + 1)
    assert claims_page.put(made(changed), mark, shown) != shown
    with pytest.raises(ValueError, match="there is no"):
        claims_page.put(made(frame), mark, "a page without marks")


def test_the_stored_verdicts_follow_from_the_stored_counts():
    for row in claims_page.read(ROOT / "docs" / "results" / "claims.csv").itertuples():
        expected = _line(row.holds_on, row.draws)
        for name in ("share_low", "share_high", "verdict", "open"):
            assert getattr(row, name) == expected[name]
