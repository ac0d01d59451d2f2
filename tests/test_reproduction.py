"""`jaxota run reproduction`: designs by counting, effects and settings by hand, and the command."""

import csv
import dataclasses
import itertools
import os

import jax
import numpy as np
import pytest
import xarray

import jaxota as jo
from jaxota import figures
from jaxota.cli import experiment
from jaxota.cli import main as cli
from jaxota.experiments import designs, reproduction, reproduction_runs
from jaxota.experiments.claims import PARTS
from jaxota.experiments.reproduction import Choice, Family
from jaxota.experiments.reproduction_effects import Judged, claims_of, main_effects, natural
from jaxota.study.describe import describe

FAMILIES = list(reproduction.FAMILIES.values())


def _choice(name, *columns, levels=("a", "b", "c")):
    levels = levels[: 2 + (len(columns) > 1)]
    return Choice(name, levels, tuple(range(len(levels))), columns)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_design_is_orthogonal(family):
    """Any two choices meet in all pairs of levels, as often as their levels occur."""
    design = family.design
    assert design.shape == (128, len(family.choices)) and not design[0].any()
    for one, other in itertools.combinations(range(design.shape[1]), 2):
        pairs = np.zeros((design[:, one].max() + 1, design[:, other].max() + 1))
        np.add.at(pairs, (design[:, one], design[:, other]), 1)
        expected = np.outer(pairs.sum(1), pairs.sum(0)) / len(design)
        np.testing.assert_array_equal(pairs, expected)
    for number, choice in enumerate(family.choices):
        counts = np.bincount(design[:, number]) / len(design)
        wanted = [0.5, 0.25, 0.25] if len(choice.levels) == 3 else [0.5, 0.5]
        assert counts.tolist() == wanted


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_clear_of_interactions_is_so_in_the_numbers(family):
    """The contrasts of a choice are orthogonal to products of two others' just where it is said."""
    told = designs.aliases(family.choices)
    contrasts = [
        np.stack([(column == level) - np.mean(column == level) for level in range(1, most + 1)])
        for column in family.design.T
        for most in [column.max()]
    ]
    assert designs.resolution(family.choices) == 3
    for place, choice in enumerate(family.choices):
        found = []
        for one, other in itertools.combinations(range(len(contrasts)), 2):
            products = contrasts[one][:, None] * contrasts[other][None]
            meets = np.abs(products.reshape(-1, 128) @ contrasts[place].T).max() > 1e-9
            if place not in (one, other) and meets:
                found.append(f"{family.choices[one].name} × {family.choices[other].name}")
        assert found == told[choice.name]
        assert not (choice.field and found)  # choices of numbers are clear


def test_resolutions_of_known_designs():
    full = [_choice("A", 1), _choice("B", 2), _choice("C", 4)]
    assert designs.resolution(full) == designs.LONGEST + 1
    assert designs.resolution([*full, _choice("D", 7)]) == 4  # I = ABCD
    assert designs.resolution([*full, _choice("D", 3)]) == 3  # I = ABD
    assert designs.resolution([*full, _choice("D", 4)]) == 2
    assert designs.aliases([*full, _choice("D", 3)])["A"] == ["B × D"]
    assert designs.levels(full, 3).tolist() == [[n & 1, n >> 1 & 1, n >> 2] for n in range(8)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_each_choice_by_itself_is_among_the_settings(family):
    rows = {tuple(point) for point in family.points.tolist()}
    assert len(rows) == len(family.points)
    np.testing.assert_array_equal(family.points[:128], family.design)
    for number, choice in enumerate(family.choices):
        for level in range(1, len(choice.levels)):
            alone = [0] * len(family.choices)
            alone[number] = level
            assert tuple(alone) in rows


def test_main_effects_are_recovered():
    """Of shares that are made of known effects: within intervals, as often as these say."""
    choices = [_choice("prior", 1, 2), _choice("batch", 4), _choice("SNR", 8), _choice("none", 16)]
    levels = designs.levels(choices, 5)
    known = {("prior", "b"): 0.2, ("prior", "c"): -0.1, ("batch", "b"): 0.3, ("SNR", "b"): 0.0}
    known["none", "b"] = 0.0
    share = 0.4 + sum(
        change * (levels[:, [c.name for c in choices].index(name)] == "abc".index(level))
        for (name, level), change in known.items()
    )
    generator, covered, sure = np.random.default_rng(0), [], []
    for _ in range(300):
        held = generator.random((len(levels), 6)) < share[:, None]
        found = main_effects(choices, levels, held)
        assert [effect[:2] for effect in found] == list(known)
        covered += [e.low <= known[e[:2]] <= e.high for e in found]
        sure += [e.sure for e in found if known[e[:2]] == 0]
    error = np.sqrt(0.05 * 0.95 / 300)  # of one effect; those of a run are not independent
    assert 0.95 - 4 * error < np.mean(covered) and np.mean(sure) < 0.05 + 4 * error
    exact = main_effects(choices, levels, np.repeat(share[:, None], 3, 1))
    for effect in exact:
        assert effect.change == pytest.approx(known[effect[:2]], abs=1e-12)
    assert np.isnan(main_effects(choices, levels, held[:, :1])[0].low)


def test_few_draws_that_agree_are_not_taken_for_certainty():
    choices = [_choice("A", 1), _choice("B", 2)]
    levels = designs.levels(choices, 2)  # A's contrast is 1/2 on both draws, B's 1/2 or −1/2
    held = np.array([[0, 0], [1, 0], [0, 1], [0, 0]]) > 0
    held[1], held[2], held[3] = [True, True], [True, False], [True, False]
    a, b = main_effects(choices, levels, held)
    assert a.change == pytest.approx(0.5) and a.high - a.low > 1 and not a.sure
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
def test_the_most_natural_setting(shares, point, found):
    assert natural(POINTS, np.array(shares, float)) == (point, found)


def test_readings_of_the_same_words_stand_together():
    groups = [[part.name for part in some] for some in claims_of(PARTS)]
    assert ["3a", "3b"] in groups and ["7b", "7c"] in groups and ["7d"] in groups
    assert sum(map(len, groups)) == len(PARTS)
    found = {part.name: reproduction.figure_of(part) for part in PARTS}
    by_claim = {"1": 1, "2": 1, "3": 1, "4": 2, "5": 3, "6": 4, "7": 5}
    assert found == {part.name: f"fig{by_claim[part.name[0]]}" for part in PARTS}


def test_where_a_part_holds_by_hand():
    """Of a family of two choices: BAAF below COTAF where gradients are of one sample."""
    family = dataclasses.replace(
        reproduction.REGRESSION, choices=reproduction.REGRESSION.choices[4:6], factors=3, draws=3
    )
    part = PARTS[0]
    effects = np.full((len(family.points), 3), 2.0)
    effects[family.points[:, 1] == 1] = [0.5, 0.5, 2.0]
    judged = Judged(family, {"1a": effects})
    assert judged.share(part)[:2] == (4, 8)
    place = judged.first(part)
    assert place.appears and judged.words(place.point) == "batch 1" and judged.words(0) == "ours"
    *_, batch = judged.main_effects(part)
    assert batch.choice == "batch" and batch.change == pytest.approx(2 / 3)
    nowhere = Judged(family, {"1a": np.where(effects < 1, 1.5, effects)}).first(part)
    assert not nowhere.appears and family.points[nowhere.point, 1] == 1


def test_per_symbol_is_so_much_more_per_vector():
    """Swept as a number, so that both are one program: the noise is the same."""
    family = reproduction.REGRESSION
    study = reproduction_runs.study(family, "fig1", 0, 2, None)
    (snr,) = [axis for axis in study.over.axes if axis.name == "snr_db"]
    as_number = jo.Channel(snr_db=snr.fields["snr_db"][1]).noise_variance(10)
    as_word = jo.Channel(snr_db=10.0, snr_per="symbol").noise_variance(10)
    assert float(as_number) == pytest.approx(float(as_word), rel=1e-6)
    assert snr.fields["snr_db"][0] == 10.0
    assert study.channel.control_power == study.channel.power == 1.0


def test_variants_are_what_their_labels_say():
    family = reproduction.REGRESSION
    found = family.algorithms("fig3")
    assert {label.split(",")[0] for label in found} == {"COTAF", "COBAAF"}
    plain = figures.EXPERIMENTS["fig3"].algorithms
    assert describe(found["COTAF"]) == describe(plain["COTAF"])
    assert found["COBAAF"].local.steps == 20
    changed = found["COBAAF, batch 1, precoder online, control option II, warm start yes"]
    local = changed.local
    assert (local.batch, local.control_option, local.warm_start) == (1, 2, True)
    assert describe((changed.precode, changed.estimate)) == describe((jo.Online(), jo.MMSE()))
    pooled = found["COBAAF, prior pooled"]
    assert describe(pooled) == describe(plain["COBAAF"].replace(estimate=jo.PooledMMSE()))


def _few(family: Family, *names: str, **fields) -> Family:
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
    """Few choices, users and rounds; the digits, as there is no MNIST."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.setattr(experiment, "images_at_hand", lambda: ("digits", ""))
    regression = _few(reproduction.REGRESSION, "SNR", "data spread", "prior")
    images = _few(reproduction.IMAGES, "SNR", "initial scale", "rounds", "control option", draws=2)
    for family in (regression, images):
        monkeypatch.setitem(reproduction.FAMILIES, family.name, family)
    for name, known in figures.EXPERIMENTS.items():
        if not known.on_images:

            def task(key, users=6 if name == "fig2" else 3):
                return jo.tasks.synthetic_regression(key, users, 10, 3)

        else:
            task = dataclasses.replace(known.task, samples=20)
        monkeypatch.setitem(figures.EXPERIMENTS, name, dataclasses.replace(known, task=task))


@pytest.mark.slow
def test_the_command(small, tmp_path, capsys):
    command = ["run", "reproduction", "--trials", "2", "--seed", "3", "--out", str(tmp_path)]
    assert cli.main([*command, "--resume"]) == 0
    printed, errors = capsys.readouterr()
    assert "Traceback" not in errors and "seed 3" in printed and "8×8 digits" in printed
    assert all(f"fig{n}" in printed for n in range(1, 6)) and "(7d)" in printed
    assert {f"reproduction.{e}" for e in ("csv", "nc", "png")} < set(os.listdir(tmp_path))
    data = xarray.load_dataset(tmp_path / "reproduction.nc", engine="h5netcdf")
    with open(tmp_path / "reproduction.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == (9 + 7) * (3 + 4)
    _as_kept(data, rows)
    parts = tmp_path / "reproduction.parts" / "commits"
    before = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    (parts / "1.1.json").unlink()  # as of a run that was killed
    assert cli.main([*command, "--resume"]) == 0
    after = {path.name: path.stat().st_mtime_ns for path in parts.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"1.1.json"}
    again = xarray.load_dataset(tmp_path / "reproduction.nc", engine="h5netcdf")
    np.testing.assert_array_equal(again.score, data.score)


def _as_kept(data, rows):
    """Shares and effects in the CSV are those of the scores kept, by way of labels alone."""
    last = data.score.sel(figure="fig1").isel(evaluation=1)  # [draw, algorithm, setting]
    held = {}
    for snr, prior in itertools.product(range(2), ("", ", prior reported", ", prior pooled")):
        both = slice(2 * snr, 2 * snr + 2)  # data spreads
        gaps = [last.sel(algorithm=name).isel(setting=both) for name in (f"BAAF{prior}", "COTAF")]
        held[snr, prior] = (gaps[0] / gaps[1] < 1).values.mean()
    mean = [
        (2 * held[snr, ""] + held[snr, ", prior reported"] + held[snr, ", prior pooled"]) / 4
        for snr in range(2)
    ]
    mine = {(r["quantity"], r["choice"], r["level"]): r for r in rows if r["part"] == "1a"}
    found = float(mine["main effect", "SNR", "per symbol"]["value"])
    assert found == pytest.approx(mean[1] - mean[0], abs=1e-5)
    prior = np.mean([held[s, ", prior pooled"] - held[s, ""] for s in range(2)])
    found = float(mine["main effect", "prior", "pooled"]["value"])
    assert found == pytest.approx(prior, abs=1e-5)
    # What is free of noise is the same at both SNRs, and no other number is.
    for figure, name in (("fig1", "SCAFFOLD (noise-free)"), ("fig4", "FedAvg (noise-free)")):
        free = data.score.sel(figure=figure, algorithm=name).isel(draw=0, evaluation=1)[:4]
        assert free[0] == free[2] != free[1] == free[3]
    # What is read at half the rounds is the same run.
    points = data.images_level.to_pandas()
    early = np.flatnonzero((points[["SNR", "initial scale", "rounds"]] == [0, 0, 1]).all(axis=1))
    lead = data.score.sel(figure="fig4").isel(setting=0, evaluation=0, draw=slice(2))
    lead = 100 * (lead.sel(algorithm="BAAF") - lead.sel(algorithm="COTAF"))
    mine = data.images_effect.sel(images_part="6a").isel(images_point=early)
    np.testing.assert_allclose(mine, np.broadcast_to(lead, mine.shape), rtol=1e-6)


def test_a_draw_is_that_of_the_claims():
    from jaxota.experiments import claims_runs

    (runs,), _ = claims_runs.runs(claims_runs.chosen("1"))
    theirs, mine = (
        runs.study(5),
        reproduction_runs.study(reproduction.REGRESSION, "fig1", 5, 2, None),
    )
    keys = [
        np.asarray([jax.random.key_data(k) for k in study.over.axes[-1].fields["task.key"][:6]])
        for study in (theirs, mine)
    ]
    np.testing.assert_array_equal(*keys)
    np.testing.assert_array_equal(*(jax.random.key_data(s.key) for s in (theirs, mine)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--init-scale", "0.1"], "--init-scale is not for reproduction, which sets it"),
        (["--rounds", "3"], "--rounds is not for reproduction, which sets it"),
        (["--trials", "0"], "trials must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_words_are_one_line(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    monkeypatch.setattr(experiment, "images_at_hand", lambda: ("digits", ""))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "reproduction", *options]) == 2
    printed, errors = capsys.readouterr()
    assert printed == "" and words in errors and errors.count("\n") == 1
