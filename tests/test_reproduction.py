"""The design over the paper's open choices: by counting, effects by hand, and the experiment."""

import dataclasses
import importlib
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest

import jaxota as jo

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "paper"))
claims, design, effects, reproduction = map(
    importlib.import_module,
    ("claims", "reproduction_design", "reproduction_effects", "reproduction"),
)
claims_page, new_draws, readings = map(
    importlib.import_module, ("claims_page", "new_draws", "readings")
)
PARTS = importlib.import_module("claim_parts").PARTS
FAMILIES = list(design.FAMILIES.values())


def _choice(name, *columns, levels=("a", "b", "c")):
    levels = levels[: 2 + (len(columns) > 1)]
    return design.Choice(name, levels, tuple(range(len(levels))), columns)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_design_is_orthogonal(family):
    """Any two choices meet in all pairs of levels, as often as their levels occur."""
    levels = family.design
    assert levels.shape == (2**family.factors, len(family.choices)) and not levels[0].any()
    for one, other in itertools.combinations(range(levels.shape[1]), 2):
        pairs = np.zeros((levels[:, one].max() + 1, levels[:, other].max() + 1))
        np.add.at(pairs, (levels[:, one], levels[:, other]), 1)
        expected = np.outer(pairs.sum(1), pairs.sum(0)) / len(levels)
        np.testing.assert_array_equal(pairs, expected)
    for number, choice in enumerate(family.choices):
        counts = np.bincount(levels[:, number]) / len(levels)
        assert counts.tolist() == [1 / choice.tried] * choice.tried


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_words_are_what_is_confounded_in_the_numbers(family):
    """Brute force: products of the contrasts of all choices of a word, and of no other, sum up."""
    assert design.resolution(family.choices) == 4
    assert _confounded(family.choices, family.design, 3) == []
    told = design.words(family.choices, 4)
    assert told and _confounded(family.choices, family.design, 4) == told


def _confounded(choices, levels, length):
    """Sets of so many choices some product of whose contrasts does not sum to 0 over all runs."""
    contrasts = {
        choice.name: [(column == n) - np.mean(column == n) for n in range(1, column.max() + 1)]
        for choice, column in zip(choices, levels.T, strict=True)
    }
    return [
        names
        for names in itertools.combinations(contrasts, length)
        if any(
            abs(np.prod(vectors, axis=0).sum()) > 1e-9
            for vectors in itertools.product(*(contrasts[name] for name in names))
        )
    ]


def test_resolutions_of_known_designs():
    full = [_choice("A", 1), _choice("B", 2), _choice("C", 4)]
    assert design.resolution(full) == design.LONGEST_WORD + 1
    assert design.resolution([*full, _choice("D", 7)]) == 4  # I = ABCD
    assert design.resolution([*full, _choice("D", 3)]) == 3  # I = ABD
    assert design.resolution([*full, _choice("D", 4)]) == 2
    aliased = [*full, _choice("D", 3)]
    assert design.words(aliased, 3) == [("A", "B", "D")]
    assert _confounded(aliased, design.levels(aliased, 3), 3) == [("A", "B", "D")]
    three = [_choice("A", 1, 2), _choice("B", 4), _choice("C", 5)]  # A's second column is free
    assert design.words(three, 3) == _confounded(three, design.levels(three, 3), 3) != []
    assert design.levels(full, 3).tolist() == [[n & 1, n >> 1 & 1, n >> 2] for n in range(8)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_each_choice_by_itself_is_among_the_settings(family):
    rows = {tuple(point) for point in family.points.tolist()}
    assert len(rows) == len(family.points)
    np.testing.assert_array_equal(family.points[: len(family.design)], family.design)
    for number, choice in enumerate(family.choices):
        for level in range(1, choice.tried):
            alone = [0] * len(family.choices)
            alone[number] = level
            assert tuple(alone) in rows


def test_main_effects_are_recovered():
    """Of shares that are made of known effects: within intervals, as often as these say."""
    choices = [_choice("prior", 1, 2), _choice("batch", 4), _choice("SNR", 8), _choice("none", 16)]
    levels = design.levels(choices, 5)
    known = {("prior", "b"): 0.2, ("prior", "c"): -0.1, ("batch", "b"): 0.3, ("SNR", "b"): 0.0}
    known["none", "b"] = 0.0
    share = 0.4 + sum(
        change * (levels[:, [c.name for c in choices].index(name)] == "abc".index(level))
        for (name, level), change in known.items()
    )
    generator, covered, sure = np.random.default_rng(0), [], []
    for _ in range(300):
        held = generator.random((len(levels), 6)) < share[:, None]
        found = effects.main_effects(choices, levels, held)
        assert [effect[:2] for effect in found] == list(known)
        covered += [e.low <= known[e[:2]] <= e.high for e in found]
        sure += [e.decided for e in found if known[e[:2]] == 0]
    error = np.sqrt(0.05 * 0.95 / 300)  # of one effect; those of a run are not independent
    assert 0.95 - 4 * error < np.mean(covered) and np.mean(sure) < 0.05 + 4 * error
    exact = effects.main_effects(choices, levels, np.repeat(share[:, None], 3, 1))
    for effect in exact:
        assert effect.change == pytest.approx(known[effect[:2]], abs=1e-12)
    assert np.isnan(effects.main_effects(choices, levels, held[:, :1])[0].low)


def test_few_draws_that_agree_are_not_taken_for_certainty():
    choices = [_choice("A", 1), _choice("B", 2)]
    levels = design.levels(choices, 2)  # A's contrast is 1/2 on both draws, B's 1/2 or −1/2
    held = np.array([[0, 0], [1, 0], [0, 1], [0, 0]]) > 0
    held[1], held[2], held[3] = [True, True], [True, False], [True, False]
    a, b = effects.main_effects(choices, levels, held)
    assert a.change == pytest.approx(0.5) and a.high - a.low > 1 and not a.decided
    assert b.high - b.low >= a.high - a.low


POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 2], [1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("shares", "point", "found"),
    [
        ([[1, 1, 1, 1, 1, 1], [0, 0.6, 0.8, 0.8, 1, 1]], 2, True),  # fewest, widest, first
        ([[0.6, 1, 1, 1, 1, 1], [0.6, 1, 1, 1, 1, 1]], 0, True),  # ours, however narrow
        ([[0.5, 0.5, 0.5, 0.5, 0.5, 0.6], [1, 1, 1, 1, 1, 0.6]], 5, True),  # half is not enough
        ([[1, 0, 0, 0, 1, 1], [0, 1, 1, 0, 0.3, 0.5]], 0, False),  # one of two, fewest changes
        ([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], 4, False),
    ],
)
def test_the_setting_nearest_to_ours(shares, point, found):
    place = effects.nearest_to_ours(POINTS, np.array(shares, float))
    assert (place.point, place.appears) == (point, found)


def test_readings_of_the_same_words_stand_together():
    groups = [[part.name for part in some] for some in effects.readings(PARTS)]
    assert ["3a", "3b"] in groups and ["7b", "7c"] in groups and ["7d"] in groups
    assert sum(map(len, groups)) == len(PARTS)
    found = {part.name: part.figure for part in PARTS}
    by_claim = {"1": 1, "2": 1, "3": 1, "4": 2, "5": 3, "6": 4, "7": 5}
    assert found == {part.name: f"fig{by_claim[part.name[0]]}" for part in PARTS}


def test_where_a_part_holds_by_hand():
    """Of a family of two choices: BAAF below COTAF where gradients are of one sample."""
    family = dataclasses.replace(
        design.REGRESSION, choices=design.REGRESSION.choices[5:7], factors=3, draws=3
    )
    part = PARTS[0]
    values = np.full((len(family.points), 3), 2.0)
    values[family.points[:, 1] == 1] = [0.5, 0.5, 2.0]
    judged = effects.Judged(family, {"1a": values})
    assert judged.share_of_settings(part)[:2] == (4, 8)
    place = judged.place_of_part(part)
    assert place.appears and judged.words(place) == "batch 1"
    assert family.words(family.points[0]) == "ours"
    *_, batch = judged.main_effects(part)
    assert batch.choice == "batch" and batch.change == pytest.approx(2 / 3)
    nowhere = effects.Judged(family, {"1a": np.where(values < 1, 1.5, values)})
    place = nowhere.place_of_part(part)
    assert not place.appears and family.points[place.point, 1] == 1


def test_per_symbol_is_so_much_more_per_vector():
    """Swept as a number, so that both are one program: the noise is the same."""
    family = design.REGRESSION
    study = reproduction.figure_study(family, "fig1", 0, 2)
    (snr,) = [axis for axis in study.over.axes if axis.name == "SNR"]
    as_number = jo.Channel(snr_db=snr.fields["snr_db"][1]).noise_variance(10)
    as_word = jo.Channel(snr_db=10.0, snr_per="symbol").noise_variance(10)
    assert float(as_number) == pytest.approx(float(as_word), rel=1e-6)
    assert snr.fields["snr_db"][0] == 10.0
    assert study.channel.control_power == study.channel.power == 1.0


def test_variants_are_what_their_labels_say():
    family = design.REGRESSION
    found = family.algorithms("fig3")
    assert {label.split(",")[0] for label in found} == {"COTAF", "COBAAF"}
    plain = jo.figures.FIGURES["fig3"].algorithms
    assert repr(found["COTAF"]) == repr(plain["COTAF"])
    assert found["COBAAF"].local.steps == 20
    changed = found["COBAAF, prior updates, batch 1, control option II, warm start yes"]
    local = changed.local
    assert (local.batch, local.control_option, local.warm_start) == (1, 2, True)
    assert repr(changed.estimate) == repr(jo.UpdateMMSE())
    pooled = found["COBAAF, prior weights, pooled"]
    assert repr(pooled) == repr(plain["COBAAF"].replace(estimate=jo.PooledMMSE()))


def test_a_reading_may_have_levels_that_the_design_does_not_try():
    family = design.REGRESSION
    point = family.point(prior="updates", control_power="10 P", SNR="5 dB per vector", rounds="100")
    study = new_draws.point_study(family, point, "fig1", 0, 3, 4)
    setting, draws = study.over.axes
    assert setting.fields["snr_db"] == (5.0,) and setting.fields["control_power"] == (10.0,)
    assert setting.fields["data_spread"] == (0.1,) and study.rounds == 100
    assert draws.fields["draw_number"] == (1000, 1001, 1002, 1003)  # the design has 0 … 8
    assert "COBAAF, prior updates" in study.algorithms and len(study.algorithms) == 5
    assert family.place(point)["evaluation"] == 19 and tuple(point) not in set(
        map(tuple, family.points.tolist())
    )


def test_claims_together_by_hand():
    """Of (3a) and (3b) one is enough; all others must hold on the same draw."""
    names = [part.name for part in design.REGRESSION.parts]
    held = {name: np.array([True, True, True, False]) for name in names}
    held["3a"] = np.array([False, True, False, True])
    held["1a"] = np.array([True, True, False, True])
    held["5a"] = np.array([False, True, True, True])
    joint = new_draws.together(held, design.REGRESSION, ("fig1",))
    assert joint.tolist() == [True, True, False, False]
    every = new_draws.together(held, design.REGRESSION, design.REGRESSION.figures)
    assert every.tolist() == [False, True, False, False]
    assert new_draws.in_words(joint.sum(), 4) == "2 of 4 [7, 93] %"


def test_the_table_of_readings_by_hand():
    """Two readings of three draws; (3a) or (3b) is claim 3."""
    held = {part.name: np.ones((3, 20), bool) for part in design.REGRESSION.parts}
    held["3a"][:] = False
    held["1a"][1:] = False
    found = readings._by_words(held) | {
        name: new_draws.together(held, design.REGRESSION, figures)
        for name, figures in readings.JOINT.items()
    }
    assert list(found)[:7] == ["1a", "1b", "2", "3", "4", "5a", "5b"]
    head, *lines = readings.table(readings.rows(dict.fromkeys(list(readings.READINGS)[:2], found)))
    assert head[:3] == ["reading", "R", "1a"] and len(lines) == 2 * len(readings.ROUNDS)
    assert lines[0][1:9] == ["20", "1", "3", "3", "3", "3", "3", "3"]
    assert lines[0][9:] == ["1 of 3 [1, 91] %"] * 2
    readings.draw(dict.fromkeys(list(readings.READINGS)[:2], found))


def test_the_page_shows_the_stored_readings():
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    stored = pandas.read_csv(ROOT / "docs" / "results" / "readings.csv", dtype={"claim": str})
    shown = claims_page.page(*readings.table(stored))
    assert claims_page.put(shown, claims_page.READINGS, page) == page


def _few(family, *names, **fields):
    """The same of some of its choices, in short runs."""
    columns = {"SNR": (4,), "prior": (1, 2), "control option": (1,), "rounds": (2,)}
    columns["initial scale"] = columns["data spread"] = (8,)
    choices = {choice.name: choice for choice in family.choices}
    chosen = [dataclasses.replace(choices[name], columns=columns[name]) for name in names]
    chosen = [
        dataclasses.replace(c, values=(4, 2), levels=("4", "2")) if c.name == "rounds" else c
        for c in chosen
    ]
    sizes = {"factors": 4, "rounds": 4, "every": 2, "draws": 3, "calibration_trials": 2}
    return dataclasses.replace(family, choices=tuple(chosen), **(sizes | fields))


@pytest.fixture
def small(monkeypatch):
    """Few choices, samples and rounds."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    regression = _few(design.REGRESSION, "SNR", "data spread", "prior")
    images = _few(design.IMAGES, "SNR", "initial scale", "rounds", "control option", draws=2)
    for family in (regression, images):
        monkeypatch.setitem(design.FAMILIES, family.name, family)
    full_size = reproduction.figure_study

    def few(family, *arguments, **options):
        study = full_size(family, *arguments, **options)
        smaller = {"samples": 20} if options else {"users": 3, "samples": 10, "dim": 3}
        return study.replace(task=dataclasses.replace(study.task, **smaller))

    monkeypatch.setattr(reproduction, "figure_study", few)
    monkeypatch.setattr(reproduction, "NEW_DRAWS", {"regression": 3, "images": 2})
    one_setting = new_draws.point_study

    def fewer(*arguments, **options):
        study = one_setting(*arguments, **options)
        smaller = {"samples": 20} if options else {"users": 3, "samples": 10, "dim": 3}
        return study.replace(task=dataclasses.replace(study.task, **smaller))

    monkeypatch.setattr(new_draws, "point_study", fewer)


@pytest.mark.slow
def test_the_report(small, tmp_path):
    ran = []

    def run(study):
        ran.append(study.name)
        return study.run(tmp_path / study.name, resume=True)

    report = reproduction.reproduction(run, trials=2, seed=3, dataset="digits")
    assert [name for name in ran if "repro" in name] == [
        f"reproduction-fig{n}" for n in range(1, 6)
    ]
    words = " ".join(report.remarks)
    assert "seed 3" in report.caption and "8×8 digits" in report.caption
    assert all(f"fig{n} appears" in words for n in range(1, 6)) and "(7d)" in words
    assert len(report.table) == 1 + len(PARTS)
    assert "new draws" in words and len(report.csv) == 9 * (5 + 5) + 7 * (5 + 4)
    _follows_from_scores(report.dataset, report.csv)
    report.figure().savefig(tmp_path / "reproduction.png")
    with jo.style.drawn_for("paper"):
        report.figure().savefig(tmp_path / "paper.png")
    report.dataset.to_netcdf(tmp_path / "reproduction.nc", engine="h5netcdf")
    alone = reproduction.reproduction(run, trials=2, seed=3, only="regression")  # as stored
    assert set(alone.csv.part.str[0]) == set("12345") and "images" not in alone.caption
    alone.figure().savefig(tmp_path / "regression.png")


def _follows_from_scores(data, rows):
    """Shares and effects in the CSV are those of the scores kept, by way of labels alone."""
    last = data.fig1_score.isel(regression_evaluation=1)
    held = {}
    priors = "", ", prior weights, reported", ", prior weights, pooled", ", prior updates"
    for snr, prior in itertools.product(range(2), priors):
        gaps = [last.sel(fig1_algorithm=name) for name in (f"BAAF{prior}", "COTAF")]
        held[snr, prior] = (gaps[0] / gaps[1] < 1).isel(regression_SNR=snr).values.mean()
    mean = [np.mean([held[snr, prior] for prior in priors]) for snr in range(2)]
    first = rows[(rows.part == "1a") & (rows.quantity == "main effect")]
    found = {(row.choice, row.level): row.value for row in first.itertuples()}
    assert found["SNR", "10 dB per symbol"] == pytest.approx(mean[1] - mean[0], abs=1e-5)
    prior = np.mean([held[s, ", prior updates"] - held[s, ""] for s in range(2)])
    assert found["prior", "updates"] == pytest.approx(prior, abs=1e-5)
    # Noise-free references are the same at both SNRs, and at no other change.
    free = data.fig1_score.sel(fig1_algorithm="SCAFFOLD (noise-free)")
    free = free.isel(regression_draw=0, regression_evaluation=1).values  # [SNR, data spread]
    assert (free[0] == free[1]).all() and free[0, 0] != free[0, 1]
    free = data.fig4_score.sel(fig4_algorithm="FedAvg (noise-free)")
    free = free.isel(images_draw=0, images_evaluation=1).values  # [SNR, initial scale]
    assert (free[0] == free[1]).all() and free[0, 0] != free[0, 1]
    # Half of the rounds is read from the same run.
    points = data.images_level.to_pandas()
    early = np.flatnonzero((points[["SNR", "initial scale", "rounds"]] == [0, 0, 1]).all(axis=1))
    at = {"images_SNR": 0, "images_initial scale": 0, "images_evaluation": 0}
    lead = data.fig4_score.isel(at)
    lead = 100 * (lead.sel(fig4_algorithm="BAAF") - lead.sel(fig4_algorithm="COTAF"))
    kept = data.images_effect.sel(images_part="6a").isel(images_point=early)
    np.testing.assert_allclose(kept, np.broadcast_to(lead, kept.shape), rtol=1e-6)


def test_a_draw_is_that_of_the_claims():
    theirs = claims.figures_study("regression", ["fig1"], 5)
    ours = reproduction.figure_study(design.REGRESSION, "fig1", 5, 2)
    keys = [
        np.asarray([jax.random.key_data(k) for k in study.over.axes[-1].fields["task.key"][:6]])
        for study in (theirs, ours)
    ]
    np.testing.assert_array_equal(*keys)
    np.testing.assert_array_equal(*(jax.random.key_data(s.key) for s in (theirs, ours)))


def test_images_have_a_quarter_of_the_trials():
    for trials, expected in ((1, 1), (4, 1), (8, 2)):
        study = reproduction.figure_study(design.IMAGES, "fig4", 0, trials, dataset="digits")
        assert study.trials == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"init_scale": 0.1}, "init_scale is not an option of reproduction"),
        ({"only": "fig1"}, "only must be one of regression, images, got 'fig1'"),
        ({"rounds": 3}, "rounds is not an option of reproduction"),
        ({"trials": 0, "dataset": "digits"}, "trials must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(jo.InputError, match=words):
        reproduction.reproduction(**options)
