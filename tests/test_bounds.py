"""The experiments `bounds` and `rates` on the theorems: what they compute, say, draw and write."""

import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import jaxota as jo
from jaxota import theory

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "paper"))
bounds, rates = map(importlib.import_module, ("bounds", "rates"))
well_conditioned = importlib.import_module("well_conditioned").well_conditioned

TRIALS = 6
CASES = {case.label: case for case in bounds.CASES}


def _constants(shape):
    ones = np.ones(shape, np.float32)
    numbers = {f.name: 1.0 for f in dataclasses.fields(theory.Constants) if f.default is not None}
    numbers |= {"smoothness": 1.5, "initial_distance": 50.0, "users": 8.0, "steps": 4.0}
    return theory.Constants(**{k: v * ones for k, v in numbers.items()})


def _compared(case, factor=0.1):
    """Constants and bounds of runs whose gaps lie at so much of the bound, within a tenth."""
    rounds = np.float32(case.rounds)
    constants = _constants(rounds.shape)
    bound = jax.jit(jax.vmap(case.theorem))(constants, rounds)
    constants = constants.replace(step_size=bound.step_size, rounds=bound.rounds)
    spread = np.random.default_rng(0).uniform(0.9, 1.1, (len(rounds), TRIALS)).astype(np.float32)
    gap = np.asarray(factor * np.asarray(bound.total))[:, None] * spread
    ratios = {"update_ratio": 0.5 * spread[:, 0], "power_ratio": spread[:, 0]}
    return constants.replace(gap=gap, **ratios), bound


def _joined(case, *comparisons):
    """Comparisons on several data draws, as the experiment holds them."""
    draws = [bounds.to_dataset(case, *each) for each in comparisons]
    return xarray.concat(draws, "draw", data_vars="all")


@pytest.fixture(scope="module")
def results():
    """Gaps at a tenth of the bound, but twice the bound in draw 2 of the last case, largest R."""
    found = {k: _joined(case, *[_compared(case)] * bounds.DRAWS) for k, case in CASES.items()}
    *_, (label, case) = CASES.items()
    factor = np.array([0.1] * (len(case.rounds) - 1) + [2.0])
    draws = [_compared(case)] * bounds.DRAWS
    draws[2] = _compared(case, factor)
    found[label] = _joined(case, *draws)
    found[label].least_ratio[2, -1] = 1.7
    return found


def test_violations_are_found_and_said(results):
    *fine, last = results
    assert not any(results[label].violated.any() for label in fine)
    assert np.argwhere(results[last].violated.values).tolist() == [[2, 2]]
    assert bounds.worst_draw(results[last]) == 2
    words = "\n".join(bounds.remarks(CASES, results))
    met = int(results[last].applies.sum())
    assert words.count("VIOLATED") == 1
    assert f"{last}: Theorem 1 is VIOLATED at 1 of {met} (draw, R)" in words
    assert f"{CASES[last].cause}." in words and words.count("holds at all") == 3
    assert "the best still leaves 1 of these above, by up to 1.7 times" in words
    cells = bounds.table(results)
    assert any("not met: R ≥" in row[2] for row in cells) and cells[-1][-1] == "1 of 5"


def test_nothing_is_said_to_hold_that_was_not_compared(results):
    """Where no R meets the conditions, and where gaps are as large as their bounds."""
    label, case = next(iter(CASES.items()))
    constants, bound = _compared(case)
    never = bound.conditions | {"rounds": np.zeros_like(bound.conditions["rounds"])}
    never = bound.replace(conditions=never)
    said = bounds.remarks(CASES, {label: _joined(case, (constants, never))})
    assert f"{label}: no R meets the conditions of Theorem 1." in said
    assert not any("holds" in line for line in said)
    close = _joined(case, _compared(case, 1.0))
    applies = int(close.applies.sum())
    said = bounds.remarks(CASES, {label: close})
    expected = f"holds at 0 of {applies} (draw, R) that meet its conditions, undecided at {applies}"
    assert any(expected in line for line in said) and not any("VIOLATED" in x for x in said)


def test_rows_hold_every_draw_and_r(results):
    rows = bounds.rows(CASES, results)
    assert len(rows) == bounds.DRAWS * sum(len(case.rounds) for case in bounds.CASES)
    terms = rows[list(theory.TERMS)].sum(axis=1)
    np.testing.assert_allclose(terms, rows.bound, rtol=1e-4)
    assert rows.violated.sum() == 1
    conditions = [name for name in rows.columns if name.startswith("condition_")]
    _, bound = _compared(bounds.CASES[0])
    assert set(conditions) == {f"condition_{name}" for name in bound.conditions}
    assert (rows.applies == rows[conditions].all(axis=1)).all()
    assert rows.columns[:5].tolist() == ["algorithm", "theorem", "draw", "rounds", "gap"]


def test_figure_shows_bounds_conditions_and_shares(results, tmp_path):
    worst = {label: bounds.worst_draw(data) for label, data in results.items()}
    draw = functools.partial(bounds.bounds_plot.draw, CASES, results, worst)
    figure = draw()
    top, bottom = figure.axes[:4], figure.axes[4:]
    assert all(axes.get_xscale() == axes.get_yscale() == "log" for axes in top)
    crosses = [line for line in top[3].lines if line.get_marker() == "x"]
    assert [len(line.get_xdata()) for line in crosses] == [1]
    hollow = [x for x in top[0].lines if x.get_markerfacecolor() == "w" and len(x.get_xdata())]
    assert len(hollow) == 2  # of the simulation and of the bound
    heights = {}
    for bar in bottom[0].patches:
        heights[bar.get_x()] = heights.get(bar.get_x(), 0) + bar.get_height()
    np.testing.assert_allclose(list(heights.values()), 1.0, rtol=1e-5)
    figure.savefig(tmp_path / "bounds.png")
    with jo.style.drawn_for("paper"):
        draw().savefig(tmp_path / "paper.png")


def test_conditions_in_words():
    case = dataclasses.replace(bounds.CASES[0], rounds=(1,))

    def words(constants, rounds):
        bound = jax.tree.map(lambda x: x[None], theory.theorem_1(constants, rounds))
        one = np.ones(1)
        measured = _constants((1,)).replace(step_size=one, rounds=one)
        measured = measured.replace(gap=np.ones((1, 2)), update_ratio=one, power_ratio=one)
        return bounds.conditions(bounds.to_dataset(case, measured, bound).isel(rounds=0))

    assert words(_constants(()), 1.0).startswith("not met: R ≥")
    loud = _constants(()).replace(gradient_variance=1e9)
    assert words(loud, 1e4) == "not met: step size, logarithm 0"
    far = _constants(()).replace(step_size=0.01, rounds=10.0)
    unmet = "not met: constants of another step size, constants of far fewer rounds"
    assert words(far, 1e4) == unmet


@pytest.mark.slow
def test_bounds_report(monkeypatch, tmp_path):
    """One case on two draws; other step sizes are tried where a bound is exceeded."""
    case = dataclasses.replace(bounds.CASES[0], rounds=(12, 25))
    monkeypatch.setattr(bounds, "CASES", (case,))
    monkeypatch.setattr(bounds, "DRAWS", 2)
    report = bounds.bounds(trials=2, seed=3)
    assert "seed 3" in report.caption and "SNR per vector" in report.caption
    assert len(report.csv) == 4 and len(report.table) == 3
    assert report.dataset.gap.shape == (1, 2, 2, 2)
    assert {"constant_step_size", "constant_rounds"} <= set(report.dataset)
    assert np.isnan(report.dataset.least_ratio).all()
    report.dataset.to_netcdf(tmp_path / "bounds.nc", engine="h5netcdf")
    # A thousandth of the bound is exceeded, at every step size.
    monkeypatch.setattr(bounds, "OTHER_STEPS", (0.5,))
    monkeypatch.setattr(bounds, "ERRORS", 0)

    compare = bounds.compare

    def compared(*run):
        constants, bound = compare(*run)
        terms = {name: 1e-3 * value for name, value in bound.terms.items()}
        return constants, bound.replace(**terms)

    monkeypatch.setattr(bounds, "compare", compared)
    report = bounds.bounds(trials=2, seed=3)
    above = report.dataset.violated.values.astype(bool)
    least = report.dataset.least_ratio.values
    assert above.any() and (least[above] > 1).all()
    assert (least <= (report.dataset.gap_mean / report.dataset.bound).values + 1e-6)[above].all()


def _floors(samples, promised):
    """Floors [draw, point] of one algorithm, as `rates` holds them."""
    return xarray.Dataset(
        {
            "floor": (("algorithm", "draw", "point"), samples[None]),
            "noise_terms": (("algorithm", "point"), promised[None]),
        },
        {"algorithm": ["x"]},
    )


def test_exponents_are_fitted():
    """A floor of 3·N^−2 with a tenth of noise: slope −2 within twice its interval."""
    values, rng = np.array([2.0, 4.0, 8.0, 16.0]), np.random.default_rng(0)
    samples = 3 * values**-2 * (1 + 0.1 * rng.standard_normal((50, 4)))
    curve = rates.fitted(_floors(samples, values**-1.0), values).sel(algorithm="x")
    assert abs(curve.exponent + 2) < 2 * curve.exponent_half_width
    assert 0 < curve.exponent_half_width < 0.04
    each = np.log(samples) @ np.array([-1.5, -0.5, 0.5, 1.5]) / 5 / np.log(2)
    assert float(curve.exponent) == pytest.approx(each.mean())
    np.testing.assert_allclose(curve.floor, np.exp(np.log(samples).mean(0)))
    assert float(curve.theorem_exponent) == pytest.approx(-1.0)


def test_a_floor_below_zero_has_no_exponent():
    values = np.array([2.0, 4.0])
    samples = np.array([[1.0, -1.0], [2.0, 0.5]])
    report = rates.report({"users N": rates.fitted(_floors(samples, values**-1.0), values)}, 0, 2)
    assert "there is no exponent" in report.remarks[0]
    assert report.table[1][4] == "none" and "x: none" in report.figure().axes[0].get_title()


@pytest.mark.slow
def test_noise_terms_are_those_of_the_statements():
    """In N: −2 for Theorem 1, and (2 + NK)/(KN²) for Theorem 2 with σ_θ = σ_c; in S likewise."""
    one, k = np.ones(1, np.float32), rates.STEPS
    for theorem, expected in (
        (theory.theorem_1, [n**-2.0 for n in (4, 16)]),
        (theory.theorem_2, [(2 + n * k) / (k * n**2) for n in (4, 16)]),
        (theory.theorem_3, [(2 + n * k) / (k * n**2) for n in (4, 16)]),
    ):
        found = [rates.stated_terms(theorem, n, n * one, one, one)[0] for n in (4, 16)]
        assert found[1] / found[0] == pytest.approx(expected[1] / expected[0], rel=1e-4)


def test_rates_are_said_drawn_and_written(tmp_path):
    values = np.array([1.0, 10.0, 100.0])
    samples = np.outer([0.9, 1.0, 1.1], 2 / values)
    panel = rates.fitted(_floors(samples, values**-1.5), values)
    short = rates.fitted(_floors(samples[:, :2], values[:2] ** -2.0), values[:2])
    twins = [panel, panel.assign_coords(algorithm=["y"])]
    both = xarray.concat(twins, "algorithm", data_vars="minimal")
    report = rates.report({"users N": both, "SNR": short}, 7, 5)
    figure = report.figure()
    assert [axes.get_xlabel() for axes in figure.axes] == ["users N", "SNR"]
    assert "-1.00 (theorem -1.50)" in figure.axes[0].get_title()
    figure.savefig(tmp_path / "rates.png")
    assert len(report.csv) == 8 and report.csv.columns[0] == "against"
    data = report.dataset
    assert np.isnan(data.floor.sel(against="SNR", algorithm="y")).all()
    assert float(data.exponent.sel(against="users N", algorithm="x")) == pytest.approx(-1)
    assert report.table[1][4] == "-1.00 ± 0.00"
    assert any("for this seed it was not measured" in line for line in report.remarks)


@pytest.mark.slow
def test_rates_report(monkeypatch, tmp_path):
    small = {"SWEPT_USERS": (4, 8), "USERS": 4, "SWEPT_SNR_DB": (0.0, 10.0), "DRAWS": 2}
    small |= {"SWEPT_PARTICIPANTS": (2, 4), "ROUNDS": 10, "LONG": 10, "CALIBRATION_TRIALS": 3}
    for name, value in small.items():
        monkeypatch.setattr(rates, name, value)
    ran = []

    def run(study):
        ran.append(study.name)
        return study.run()

    report = rates.rates(run, trials=2)
    assert len(ran) == len(set(ran)) == 3  # a folder of its own for each study
    assert [row[:2] for row in report.table[1:3]] == [
        ["users N", "BAAF"],
        ["users N", "BAAF, identity"],
    ]
    assert len(report.csv) == (4 + 4 + 2) * 2
    assert list(report.dataset.against) == ["users N", "SNR P/σ²", "participants S of 4"]
    report.dataset.to_netcdf(tmp_path / "rates.nc", engine="h5netcdf")


def test_bad_seeds_and_trials_are_refused():
    for experiment in (bounds.bounds, rates.rates):
        with pytest.raises(jo.InputError, match="seed must be a whole number ≥ 0, got -1"):
            experiment(seed=-1, trials=5)
        with pytest.raises(jo.InputError, match="trials must be a whole number ≥"):
            experiment(trials=0)
        with pytest.raises(jo.InputError, match=f"rounds is not an option of {experiment.name}"):
            experiment(rounds=9)


def _small():
    """A case on one data draw, floors of a sweep, and constants."""
    case = dataclasses.replace(bounds.CASES[0], rounds=(3, 5, 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "DRAWS", 2)
        patch.setattr(rates, "DRAWS", 3)
        compared = bounds.compared(case, 1, 2)
        chosen = {"COBAAF": rates.algorithms(rates.REACH)["COBAAF"]}
        swept = rates.floors(lambda study: study.run(), 1, 2, chosen, 4, [{"snr_db": 10.0}], 6)
    near = jo.baaf(step_size=0.01, steps=2), case.channel, well_conditioned(1, 2)[0]
    constants = theory.measure(jax.random.key(1), *near, rounds=4, trials=3)
    names = ("gap", "bound", "step_size", "update_ratio", "power_ratio", "constant_model_noise")
    return [compared[name].values for name in names], swept.floor.values, constants


@pytest.mark.slow
def test_several_devices_give_what_one_gives():
    """Of which one has less to do than the others."""
    count = 1 if jax.local_device_count() > 1 else 2
    words = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import jax
jax.config.update("jax_num_cpu_devices", {count})
import numpy as np
import test_bounds
assert jax.local_device_count() == {count}
print(json.dumps([np.asarray(x).tolist() for x in jax.tree.leaves(test_bounds._small())]))
"""
    run = [sys.executable, "-c", words]
    done = subprocess.run(run, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout.splitlines()[-1])
    for here, other in zip(jax.tree.leaves(_small()), there, strict=True):
        np.testing.assert_allclose(here, other, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def swept():
    """The arguments of `floors` in a run of `rates` by default, one for each call."""
    calls = []

    def floors(run, *call):
        calls.append(call)
        _, _, chosen, _, channels, *_ = call
        ones = np.ones((len(chosen), rates.DRAWS, len(channels)))
        snr_db = "point", [channel["snr_db"] for channel in channels]
        return xarray.Dataset(
            {
                "floor": (("algorithm", "draw", "point"), ones),
                "noise_terms": (("algorithm", "point"), ones[:, 0]),
            },
            {"algorithm": list(chosen), "snr_db": snr_db},
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "floors", floors)
        rates.rates()
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(rates.SWEPT_USERS) + 1))
def test_rates_are_measured_within_the_conditions(swept, number):
    """On the very draws and trials of the default seed: step size, R, logarithm, M, E‖Δ_i‖²."""
    seed, trials, algorithms, users, channels, *rounds = swept[number]
    rounds = rounds[0] if rounds else rates.ROUNDS
    tasks = well_conditioned(seed, rates.DRAWS, users=users)
    snr_db = [channel["snr_db"] for channel in channels]
    heard = [channel["participants"] for channel in channels if "participants" in channel]
    many = jnp.asarray(heard) if heard else None
    channel = jo.Channel(jnp.float32(snr_db), jnp.ones(len(snr_db)), participants=many)
    if users != rates.USERS:  # where steps are closest to their limit, and where noise is greatest
        algorithms = {name: algorithms[name] for name in ("BAAF", "COBAAF, identity")}
    for algorithm in algorithms.values():
        local = algorithm.local
        theorem = rates.theorem_of(algorithm, channels[0])
        ask = functools.partial(theorem, rounds=float(rounds), step_size=local.step_size)
        for task in tasks:
            plan = None
            if algorithm.needs:
                plan = jo.calibrate(seed, algorithm, task, rounds, rates.CALIBRATION_TRIALS)
            constants = theory.measure(seed, algorithm, channel, task, rounds, trials, plan=plan)
            bound = jax.jit(jax.vmap(ask))(constants)
            assert bound.applies.shape == (len(snr_db),) and bound.applies.all()
            np.testing.assert_allclose(constants.gradient_bound, rates.M**2, rtol=1e-5)
            assert (constants.update_ratio <= 1).all()
            assert not heard or constants.participants.tolist() == heard


@pytest.mark.slow
def test_the_floor_of_mmse_is_mostly_bias():
    """Finding of `rates`: the average over trials of BAAF's last models at 10 dB has most of the
    gap that the channel adds; full gradients, so that the ideal channel's models are all one."""
    algorithm = rates.algorithms(rates.REACH)["BAAF"]
    channel = jo.Channel(jnp.float32([rates.SNR_DB, jnp.inf]))
    trials = 50
    scored = jax.jit(lambda task, model: task.problem(0).score(model))
    for task in well_conditioned(0, rates.DRAWS, users=rates.USERS):
        run = jax.random.key(0), algorithm, channel, task, rates.ROUNDS, trials
        history = jo.sweep(*run, calibration_trials=20)
        gap, ideal = history.gap[:, :, -1].mean(-1)
        of_average = scored(task, np.mean(history.model[0], 0))["gap"]
        assert of_average - ideal > 0.6 * (gap - ideal)


def test_well_conditioned_data_are():
    for task in well_conditioned(0, 3):
        features = np.asarray(task.features, np.float64)
        hessians = 2 * np.einsum("nsd,nse->nde", features, features) / features.shape[1]
        values = np.linalg.eigvalsh(hessians)
        assert values.min() >= 2 - 1e-3 and values.max() <= 3 + 1e-3
