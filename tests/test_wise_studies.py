"""The studies of WISE in benchmarks/wise: draws kept apart, ratios by hand, and small runs."""

import ast
import csv
import functools
import os
import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import xarray
from processes import without_devices

import jaxota as jo
from jaxota.cli import main as cli

FOLDER = Path(__file__).parent.parent / "benchmarks" / "wise"
FILES = sorted(FOLDER.glob("*.py"))
KEY = jax.random.key(3)


@pytest.fixture(autouse=True)
def _files_import_each_other(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture
def small_maps(monkeypatch):
    """Maps of 4 and of 8 regimes, on 3 draws."""
    import wise_map

    small = {"DRAWS": 3, "EVERY": 3, "CALIBRATION_TRIALS": 2, "STEP_SIZES": (1e-3, 1e-2)}
    on = wise_map.Map({"N = 3, K = 2": (3, 2, 10, 10)}, [(0.1, 1.0), (1.0, 1.0)], [0.0, 20.0], 6)
    shapes = {"full gradients": (3, 2, 10, None), "d = 12": (2, 1, 12, 10)}
    for name, value in (small | {"MAP": on, "OFF_MAP": on._replace(shapes=shapes)}).items():
        monkeypatch.setattr(wise_map, name, value)
    monkeypatch.setenv("JAXOTA_CACHE", "off")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_studies_use_public_names_only(path):
    """Of jaxota they import the package alone, and no name that begins with an underscore."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("jaxota")
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            assert all(name == "jaxota" or not name.startswith("jaxota") for name in names)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")


def test_draws_of_a_test_are_none_that_choices_were_made_on():
    import design
    import wise_map

    seen = [set(wise_map.draws(seed)) for seed in range(5)]
    assert all(len(draws) == 16 and not draws & set(wise_map.DESIGN) for draws in seen)
    assert len(set.union(*seen)) == 5 * 16
    assert wise_map.draws(0) == list(range(1000, 1016))
    assert all(set(draws) <= set(wise_map.DESIGN) for draws in design.DRAWS.values())
    assert not set(design.DRAWS["choose"]) & set(design.DRAWS["confirm"])
    for seed in (2**32 - 1, -1):
        with pytest.raises(jo.InputError, match="seed must be < "):
            wise_map.draws(seed)


def test_ratios_are_to_the_best_competitor_without_divergence():
    """By hand: a baseline that diverged in a trial does not count, nor does WISE at other steps."""
    import maps
    import wise_map

    dims = "algorithm", "step_size", "draw"
    gap = np.array([[[4.0, 2.0], [9.0, 3.0]], [[8.0, 6.0], [0.0, 0.0]], [[5.0, 4.0], [2.0, 1.5]]])
    used = np.array([[8, 8], [8, 7], [8, 8]])
    average = np.array([[1.0, 1.0], [3.5, 0.5], [1.0, 9.0]])
    data = xarray.Dataset(
        {
            "gap_mean": ((*dims, "evaluation"), gap[:, :, None]),
            "average_gap_mean": (dims, average[:, :, None]),
            "used": (dims, used[:, :, None]),
            "trials": (dims, np.full((3, 2, 1), 8)),
        },
        {
            "algorithm": ["WISE", "A", "B"],
            "step_size": [wise_map.STEP_SIZE, 1.0],
            "evaluation": [5, 9],
        },
    )
    both = ["A", "B"]
    np.testing.assert_allclose(maps.ratio(data, both, False).values, [[4.0 / 5.0, 2.0 / 4.0]])
    np.testing.assert_allclose(maps.ratio(data, both, True).values, [[4.0 / 2.0, 2.0 / 1.0]])
    np.testing.assert_allclose(maps.ratio(data, ["A"], True).values, [[4.0 / 8.0, 2.0 / 3.5]])
    # On a second draw A has 1 at the same step size: its mean is 3.5 then, that of B is 4 still.
    second = data.copy(deep=True)
    second.gap_mean.loc[{"algorithm": "A", "step_size": wise_map.STEP_SIZE, "evaluation": 9}] = 1.0
    draws = xarray.concat([data, second], "draw")
    np.testing.assert_allclose(maps.ratio_of_means(draws, both, False), 2.0 / 3.5)
    np.testing.assert_allclose(maps.ratio_of_means(draws, ["A"], True), 2.0 / 3.5)
    np.testing.assert_allclose(maps.ratio_of_means(draws, both, True), 2.0 / 1.0)


def test_geometric_means_say_what_they_leave_out():
    import wise_map

    assert wise_map.stated_mean([0.5, 2.0, 1.0]) == "1"
    assert wise_map.stated_mean([0.0, 2.0, np.inf, 8.0]) == "4 (2 left out)"


@pytest.mark.slow
def test_competitors_are_what_they_are_called():
    """Adam and the cosine equal optax's, a large batch one step of SGD on as many samples."""
    import competitors

    task = jo.tasks.synthetic_regression(KEY, users=3, samples=8, dim=4)
    run = {"channel": jo.Channel(20.0), "task": task, "rounds": 6, "trials": 2}
    local = {"step_size": 1e-2, "steps": 2, "batch": 3}
    cotaf = functools.partial(jo.cotaf, precode=jo.Online())
    once = cotaf(2e-2, 1, 6)
    pairs = {
        "Adam": (competitors.Adam(6.0, 0.0, 0.3), optax.adam(0.3, b2=0.99, eps=1e-3)),
        "cosine": (competitors.Scheduled(6.0, 1.0), optax.sgd(optax.cosine_decay_schedule(1.0, 6))),
    }
    for mine, theirs in pairs.values():
        gaps = [
            jo.simulate(KEY, cotaf(**local, server=server), **run).gap for server in (mine, theirs)
        ]
        np.testing.assert_allclose(*gaps, rtol=1e-4)
    large = once.replace(local=competitors.LargeBatch(**local))
    gaps = [jo.simulate(KEY, each, **run).gap for each in (large, once)]
    np.testing.assert_array_equal(*gaps)
    tail = once.replace(server=competitors.TailAverage(4.0))
    models = [jo.simulate(KEY, once, **run | {"rounds": r}).model for r in (4, 5, 6)]
    found = jo.simulate(KEY, tail, **run).model
    np.testing.assert_allclose(found, np.mean(models, 0), rtol=1e-4, atol=1e-5)


def test_a_regime_is_undecided_where_the_interval_contains_one():
    import wise_map

    draws = np.arange(16)
    regimes = [0.5 + 0.02 * draws, 0.9 + 0.02 * draws, 1.5 + draws, np.full(16, np.inf)]
    dims = (*wise_map.REGIME, "draw")
    ratios = xarray.DataArray(np.reshape(regimes, (1, 2, 2, 16)), dims=dims)
    assert wise_map.undecided(ratios) == 1
    assert wise_map.undecided(ratios[..., :3]) == 4  # too few draws to tell anything


@pytest.mark.slow
def test_a_wrong_noise_variance_is_the_servers_belief_alone():
    """Factor 1 changes nothing; otherwise the same noise is drawn, and the level is another."""
    import ablation

    task = jo.tasks.synthetic_regression(KEY, users=10, samples=20, dim=6)
    run = functools.partial(
        jo.simulate, KEY, channel=jo.Channel(0.0), task=task, rounds=6, trials=3
    )
    wise = jo.wise(1e-2, 4, 4)
    right, wrong = (
        run(wise.replace(server=ablation.WrongNoise(wise.server, factor))) for factor in (1.0, 10.0)
    )
    np.testing.assert_array_equal(right.model, run(wise).model)
    # The believed noise has a part in τ: the larger it is, the lower the level, and the less noise.
    assert (wrong.deviation[:, 0] < right.deviation[:, 0]).all()
    assert (np.asarray(wrong.power) <= 1 + 1e-5).all()


def _run(file, name, out, capsys, *options):
    """Run an experiment by the command; returns what it printed, its dataset and its rows."""
    command = ["run", f"{FOLDER}/{file}", "--trials", "2", "--seed", "4", *options]
    assert cli.main([*command, "--out", str(out)]) == 0
    printed, errors = capsys.readouterr()
    assert "seed 4" in printed
    assert re.sub(rf"^{name}: .*\n", "", without_devices(errors), flags=re.M) == ""  # but progress
    assert sorted(os.listdir(out)) == [f"{name}.csv", f"{name}.nc", f"{name}.png"]
    with open(out / f"{name}.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return printed, xarray.load_dataset(out / f"{name}.nc", engine="h5netcdf"), rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "regimes", "words"),
    [
        ("wise", 4, ("best in hindsight", "Worst against same step size", "after 6")),
        ("offmap", 8, ("best in hindsight", "mean power on the model block", "WISE 0.")),
    ],
)
def test_maps_against_the_baselines(name, regimes, words, small_maps, tmp_path, capsys):
    printed, data, rows = _run(f"maps.py:{name}", name, tmp_path, capsys)
    assert all(word in printed for word in (*words, f"of {regimes}")), printed
    assert data.ratio.sizes["draw"] == 3 and len(rows) == 2 * regimes * 3 * 2
    same, best = (data.ratio.sel(against=x) for x in ("same step size", "best in hindsight"))
    assert (best >= same - 1e-6).all()
    assert float(rows[0]["ratio"]) == pytest.approx(float(data.ratio.values.flat[0]))
    assert {row["batch"] for row in rows} == ({"10"} if name == "wise" else {"all", "10"})


@pytest.mark.slow
def test_a_rotated_half(small_maps, tmp_path, capsys):
    options = "--set", "rotated=true", "--set", "draws=2"
    printed, data, _ = _run("maps.py:wise", "wise_rotated", tmp_path, capsys, *options)
    assert "features rotated" in printed and "2 new data draws" in printed
    assert data.ratio.sizes["draw"] == 2 and data.ratio_of_means.dims[0] == "against"


@pytest.mark.slow
def test_maps_against_rivals(small_maps, tmp_path, capsys):
    printed, data, rows = _run("maps.py:rivals", "rivals", tmp_path, capsys)
    groups = ["coded means", "minibatch SGD", "mean power P", "server optimisers"]
    assert all(word in printed for word in (*groups, "all", "of 4")), printed
    assert len(rows) == 6 * 4 * 3 * 2
    worst = data.ratio.sel(against=groups).max("against")
    np.testing.assert_array_equal(data.ratio.sel(against="all"), worst)


@pytest.mark.slow
def test_the_ablation(small_maps, tmp_path, capsys):
    printed, data, rows = _run("ablation.py", "ablation", tmp_path, capsys)
    words = "no correction", "nothing coded", "of 4", "gain 1", "σ² tenfold", "undecided", "rotated"
    assert all(word in printed for word in words), printed
    assert data.ratio.dims[0] == "algorithm" and len(rows) == 13 * 4
    assert float(rows[0]["ratio"]) == pytest.approx(float(data.ratio[0, 0, 0, 0]))


@pytest.mark.slow
def test_the_design_is_printed_for_both_purposes(small_maps, capsys):
    import design

    design.main(draws=2, trials=1)
    printed = capsys.readouterr().out
    for half in ("Rotated", "As they are"):
        for purpose in ("choose", "confirm"):
            assert f"{half}, draws to {purpose}" in printed
    assert printed.count("coded along the ones") == 4


@pytest.mark.slow
def test_images(tmp_path, capsys, monkeypatch):
    """On the digits, as there is no MNIST: the table's leads are those of the accuracies kept."""
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    at_hand = "digits", "There is no MNIST."
    monkeypatch.setattr(jo.tasks, "images_at_hand", lambda: at_hand, raising=False)
    small = "--rounds", "10", "--set", "deals=2"
    printed, data, rows = _run("images.py", "images", tmp_path, capsys, *small)
    assert "8×8 digits" in printed and "2 deals" in printed and at_hand[1] in printed
    last = data.accuracy.sel(partition="iid", snr_db=10.0).isel(round=-1)
    wise = last.sel(algorithm="WISE", step_size=0.01)
    for algorithm in ("COTAF", "BAAF", "COBAAF"):
        lead = float((wise - last.sel(algorithm=algorithm, step_size=0.01)).mean())
        assert re.search(rf"{re.escape(f'{lead:+.4f}')}\s+±", printed)
    assert len(rows) == 2 * 2 * 5 * 3 * 2
    first = data.accuracy.isel(partition=0, snr_db=0, algorithm=0, step_size=0, round=1)
    assert float(rows[1]["mean"]) == pytest.approx(float(first.mean()), rel=1e-5)


@pytest.mark.slow
def test_networks(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    small = "--rounds", "3", "--set", "deals=2", "--set", "dataset=digits", "--set", "model=mlp"
    printed, data, rows = _run("networks.py", "networks_mlp", tmp_path, capsys, *small)
    assert "MLP on 8×8 digits" in printed and "of 4" in printed and len(rows) == 3 * 2 * 2
    worst = float(data.accuracy.sel(algorithm="WISE").isel(round=-1).min())
    assert f"{worst:.4f}" in printed
