"""What the commands `bounds` and `rates` compute, say, show and write."""

import csv
import dataclasses
import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import jaxota as jo
from jaxota import figures, stats, theory
from jaxota._core import arguments as _arguments
from jaxota._core.devices import Spread
from jaxota.experiments import bounds, bounds_report, rates, rates_report, theory_plots
from jaxota.study import executor as driver
from jaxota.theory.measuring import summarise
from jaxota.theory.region import visit
from jaxota.theory.side_by_side import Beside, beside, first_of, well_conditioned

TRIALS = 6


def _constants(shape):
    ones = np.ones(shape, np.float32)
    numbers = {f.name: 1.0 for f in dataclasses.fields(theory.Constants) if f.default is not None}
    numbers |= {"smoothness": 1.5, "initial_distance": 50.0, "users": 8.0, "steps": 4.0}
    return theory.Constants(**{k: v * ones for k, v in numbers.items()})


@pytest.fixture(scope="module")
def result():
    """Gaps at a tenth of the bound, but twice the bound in draw 2 of the last case, largest R."""
    found = {}
    for case in bounds.CASES:
        shape = bounds.DRAWS, len(case.rounds)
        constants, every = _constants(shape), np.float32(case.rounds)
        bound = jax.jit(jax.vmap(jax.vmap(case.theorem), (0, None)))(constants, every)
        constants = constants.replace(step_size=bound.step_size, rounds=bound.rounds)
        spread = np.random.default_rng(0).uniform(0.9, 1.1, (*shape, TRIALS)).astype(np.float32)
        gap = 0.1 * np.asarray(bound.total)[..., None] * spread
        if case is bounds.CASES[-1]:
            gap[2, -1] *= 20
        found[case.label] = (
            case,
            Beside(gap, bound, constants, 0.5 * spread[..., 0], spread[..., 0]),
        )
    return bounds_report.Bounds(3, TRIALS, found)


def test_violations_are_found_and_said(result):
    *fine, last = result.found
    assert not any(result.violations(label).any() for label in fine)
    assert np.argwhere(result.violations(last)).tolist() == [[2, 2]]
    assert result.worst(last) == 2
    words = "\n".join(result.remarks())
    met = int(np.asarray(result.found[last][1].bound.applies).sum())
    assert words.count("VIOLATED") == 1
    assert f"{last}: Theorem 1 is VIOLATED at 1 of {met} (draw, R)" in words
    assert f"{result.found[last][0].cause}." in words and words.count("holds at all") == 3
    tried = dataclasses.replace(result, least={last: np.full((bounds.DRAWS, 3), 1.7)})
    assert "the best still leaves 1 of these above, by up to 1.7 times" in "\n".join(
        tried.remarks()
    )
    stream = io.StringIO()
    Console(file=stream, width=160).print(result.table())
    assert "not met: R ≥" in stream.getvalue() and "1 of 5" in stream.getvalue()


def test_nothing_is_said_to_hold_that_was_not_compared(result):
    """Where no R meets the conditions, and where trials diverged."""
    label = next(iter(result.found))
    case, found = result.found[label]
    never = found.replace(bound=found.bound.replace(least_rounds=found.bound.rounds + 1))
    gap = found.gap.copy()
    gap[..., 0] = np.nan
    for changed, words in (
        (never, f"{label}: no R meets the conditions of Theorem 1."),
        (found.replace(gap=gap), f"{label}: 1 of {TRIALS} trials diverged"),
    ):
        said = bounds_report.Bounds(0, TRIALS, {label: (case, changed)}).remarks()
        assert any(line.startswith(words) for line in said)
        assert changed is not never or not any("holds" in line for line in said)


def test_rows_and_dataset_hold_every_draw_and_r(result):
    head, *rows = list(result.rows())
    assert len(rows) == bounds.DRAWS * sum(len(case.rounds) for case in bounds.CASES)
    assert all(len(row) == len(head) for row in rows)
    stream = io.StringIO()
    csv.writer(stream).writerows([head, *rows])
    table = list(csv.DictReader(io.StringIO(stream.getvalue())))
    terms = sum(float(table[0][name]) for name in theory.TERMS)
    assert terms == pytest.approx(float(table[0]["bound"]), rel=1e-4)
    assert sum(row["violated"] == "True" for row in table) == 1
    head = [name for name in head if name.startswith("condition_")]
    bound = next(iter(result.found.values()))[1].bound
    assert head == [f"condition_{name}" for name in bound.conditions]
    assert all((row["applies"] == "True") == all(row[k] == "True" for k in head) for row in table)
    data = result.dataset()
    assert set(head) | {"constant_step_size", "constant_rounds"} <= set(data)
    last = bounds.CASES[-1]
    there = data.sel(algorithm=last.label, rounds=last.rounds[-1])
    assert there.gap.shape == (bounds.DRAWS, TRIALS) and there.violated.sum() == 1
    assert data.attrs["seed"] == 3 and "SNR per vector" in data.attrs["title"]


def test_figure_shows_bounds_conditions_and_shares(result, tmp_path):
    figure = result.figure()
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


def test_conditions_in_words(result):
    bound = theory.theorem_1(_constants(()), 1.0)
    loud = theory.theorem_1(_constants(()).replace(gradient_variance=1e9), 1e4)
    far = theory.theorem_1(_constants(()).replace(step_size=0.01, rounds=10.0), 1e4)
    for found, words in (
        (bound, "not met: R ≥"),
        (loud, "not met: step size, logarithm 0"),
        (far, "not met: constants of another step size, constants of far fewer rounds"),
    ):
        assert bounds_report._conditions(
            jax.tree.map(lambda x: x[None, None], found), 0, 0
        ).startswith(words)


def test_exponents_are_fitted():
    """A floor of 3·N^−2 with a tenth of noise: slope −2 within twice its interval."""
    values, rng = np.array([2.0, 4.0, 8.0, 16.0]), np.random.default_rng(0)
    samples = 3 * values**-2 * (1 + 0.1 * rng.standard_normal((50, 4)))
    curve = rates_report._curves({"x": (samples, values**-1.0)}, values)["x"]
    assert abs(curve.slope + 2) < 2 * curve.half_width and 0 < curve.half_width < 0.04
    each = np.log(samples) @ np.array([-1.5, -0.5, 0.5, 1.5]) / 5 / np.log(2)
    assert curve.slope == pytest.approx(each.mean())
    np.testing.assert_allclose(curve.floor.mean, np.exp(np.log(samples).mean(0)))
    assert curve.promised == pytest.approx(-1.0)


def test_a_floor_below_zero_has_no_exponent():
    values = np.array([2.0, 4.0])
    curves = rates_report._curves(
        {"x": (np.array([[1.0, -1.0], [2.0, 0.5]]), values**-1.0)}, values
    )
    assert not curves["x"].fitted
    result = rates_report.Rates(0, 2, {"users N": curves})
    assert "there is no exponent" in result.remarks()[0]
    stream = io.StringIO()
    Console(file=stream, width=160).print(result.table())
    assert "none" in stream.getvalue() and "x: none" in result.figure().axes[0].get_title()


@pytest.mark.slow
def test_noise_terms_are_those_of_the_statements():
    """In N: −2 for Theorem 1, and (2 + NK)/(KN²) for Theorem 2 with σ_θ = σ_c; in S likewise."""
    one, k = np.ones(1, np.float32), rates.STEPS
    for theorem, expected in (
        (theory.theorem_1, [n**-2.0 for n in (4, 16)]),
        (theory.theorem_2, [(2 + n * k) / (k * n**2) for n in (4, 16)]),
        (theory.theorem_3, [(2 + n * k) / (k * n**2) for n in (4, 16)]),
    ):
        found = [rates._noise_terms(theorem, n, n * one, one, one)[0] for n in (4, 16)]
        assert found[1] / found[0] == pytest.approx(expected[1] / expected[0], rel=1e-4)


def test_rates_are_said_shown_and_written(tmp_path):
    values = np.array([1.0, 10.0, 100.0])
    mean = 2 / values
    floor = stats.Interval(mean, 0.9 * mean, 1.1 * mean, 5, 5)
    curve = theory_plots.RateCurve(values, floor, -1.0, 0.01, -1.5)
    short = theory_plots.RateCurve(
        values[:2], stats.Interval(*(x[:2] for x in (mean, mean, mean)), 5, 5), *(-1, 0.1, -2)
    )
    result = rates_report.Rates(7, 5, {"users N": {"A": curve, "B": curve}, "SNR": {"A": short}})
    figure = result.figure()
    assert [axes.get_xlabel() for axes in figure.axes] == ["users N", "SNR"]
    assert "-1.00 (theorem -1.50)" in figure.axes[0].get_title()
    figure.savefig(tmp_path / "rates.png")
    head, *rows = result.rows()
    assert len(rows) == 8 and all(len(row) == len(head) for row in rows)
    data = result.dataset()
    assert np.isnan(data.floor.sel(against="SNR", algorithm="B")).all()
    assert data.exponent.sel(against="users N", algorithm="A") == -1
    stream = io.StringIO()
    Console(file=stream, width=160).print(result.table())
    assert "-1.00 ± 0.01" in stream.getvalue()
    assert any("for this seed nobody measured it" in line for line in result.remarks())


def test_bad_seeds_and_trials_are_refused():
    for job in (bounds.job, rates.job):
        with pytest.raises(jo.InputError, match="seed must be"):
            job(-1, 5)
        with pytest.raises(jo.InputError, match="trials must be a whole number ≥"):
            job(0, 0)


def _driven(job):
    """What a job finds, by way of arrays."""
    sink = driver.open_sink(job, None)
    driver.drive(job, sink)
    return sink.dataset()


def _said(report):
    stream = io.StringIO()
    Console(file=stream, width=160).print(report.table())
    return list(report.rows()), report.remarks(), stream.getvalue()


def test_bounds_survive_the_way_through_arrays(result, monkeypatch):
    """To the bit, from chunks of one case on one data draw; other step sizes where they must be."""
    others = []

    def made_up(theorem, key, algorithm, channel, task, rounds, trials, step_size=None):
        case, found = next(x for x in result.found.values() if x[0].algorithm is algorithm)
        whole = well_conditioned(result.seed, bounds.DRAWS, **case.task).features
        draw = [i for i in range(bounds.DRAWS) if np.array_equal(task.features, whole[i : i + 1])]
        others.extend([(case.label, *draw)] * (step_size is not None))
        assert len(draw) == 1 and (theorem, rounds, trials) == (case.theorem, case.rounds, TRIALS)
        return jax.tree.map(lambda x: np.asarray(x)[draw], found)

    monkeypatch.setattr(bounds, "beside", made_up)
    job = bounds.job(result.seed, TRIALS)
    assert job.layout().count == len(bounds.CASES) * bounds.DRAWS
    again = bounds_report.Bounds.of(result.seed, TRIALS, _driven(job))
    last = bounds.CASES[-1].label
    assert others == [(last, 2)] * len(bounds.OTHER_STEPS) and list(again.least) == [last]
    found = result.found[last][1]
    ratio = found.gap.mean(-1) / np.asarray(found.bound.total)
    np.testing.assert_array_equal(again.least[last][2], ratio[2])
    assert np.isnan(np.delete(again.least[last], 2, 0)).all()
    assert _said(dataclasses.replace(again, least={})) == _said(result)
    assert again.dataset().identical(result.dataset())
    for label, (_, found) in result.found.items():
        jax.tree.map(np.testing.assert_array_equal, again.found[label][1], found)
        assert again.found[label][1].bound.kept.dtype == bool


def test_rates_survive_the_way_through_arrays(monkeypatch):
    """To the bit; each point of a panel comes from the sweep that it belongs to."""
    calls = {}  # by users and whether some are heard: sweeps are asked for in any order

    def made_up(seed, trials, users, algorithms, snr_db, heard, rounds):
        assert (seed, trials) == (3, TRIALS)
        rng = np.random.default_rng([users, bool(heard)])
        shape = rates.DRAWS, len(snr_db)
        calls[users, bool(heard)] = {
            k: (rng.uniform(1, 2, shape), rng.uniform(1, 2, shape[1])) for k in algorithms
        }
        return calls[users, bool(heard)]

    monkeypatch.setattr(rates, "_floors", made_up)
    again = rates_report.Rates.of(3, TRIALS, _driven(rates.job(3, TRIALS)))
    few, some, many = (calls[users, False] for users in rates.SWEPT_USERS)
    heard = calls[rates.USERS, True]
    at = rates.SWEPT_SNR_DB.index(rates.SNR_DB)
    columns = (few, 0), (some, at), (many, 0)
    joined = {
        name: tuple(np.stack([found[name][k][..., j] for found, j in columns], -1) for k in (0, 1))
        for name in few
    }
    panels = {
        "users N": rates_report._curves(joined, rates.SWEPT_USERS),
        "SNR P/σ²": rates_report._curves(some, 10 ** (np.asarray(rates.SWEPT_SNR_DB) / 10)),
        "participants S of 16": rates_report._curves(heard, rates.SWEPT_HEARD),
    }
    expected = rates_report.Rates(3, TRIALS, panels)
    assert _said(again) == _said(expected) and again.dataset().identical(expected.dataset())


def test_jobs_are_described_alike_in_every_process():
    words = (
        "import json; from jaxota.experiments import bounds, rates; "
        "print(json.dumps([job(4, 3).description for job in (bounds.job, rates.job)]))"
    )
    there = _elsewhere(words, PYTHONHASHSEED="7")
    here = [job(4, 3).description for job in (bounds.job, rates.job)]
    assert there == json.loads(json.dumps(here)) == here


def _elsewhere(words, **environment):
    """The last line that a new process prints, from JSON."""
    run = [sys.executable, "-c", words]
    done = subprocess.run(run, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _small():
    """Of bounds what the chunks of two draws find, and both in one go; a sweep; constants."""
    case = dataclasses.replace(bounds.CASES[0], rounds=(3, 5, 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "CASES", (case,))
        patch.setattr(bounds, "DRAWS", 2)
        patch.setattr(rates, "DRAWS", 3)
        chunks = [bounds.job(1, 2).make(draw) for draw in range(2)]
        task, key = well_conditioned(1, 2), jax.random.key(1)
        setting = case.theorem, key, case.algorithm, case.channel, task, case.rounds, 2
        whole = beside(*setting)
        some = {"COBAAF": rates._algorithms(rates.REACH)["COBAAF"]}
        swept = rates._floors(1, 2, 4, some, (10.0,), (), 6)["COBAAF"]
    near = jo.baaf(step_size=0.01, steps=2), case.channel, first_of(task)
    return chunks, whole, swept, theory.measure(key, *near, rounds=4, trials=3)


@pytest.mark.slow
def test_chunks_of_draws_are_what_the_whole_gives():
    chunks, whole, *_ = _small()
    assert "least" not in chunks[0]
    for draw, chunk in enumerate(chunks):
        assert chunk["gap"].shape == (3, 2)
        for name in ("gap", "excess", "power"):
            np.testing.assert_allclose(chunk[name], getattr(whole, name)[draw], rtol=1e-5)
        for part in ("bound", "constants"):
            for name, values in vars(getattr(whole, part)).items():
                # G² is a difference of squared gradients.
                close = {"rtol": 1e-5, "atol": 1e-4 * (name == "dissimilarity")}
                np.testing.assert_allclose(chunk[f"{part}_{name}"], values[draw], **close)


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
    for mine, theirs in zip(jax.tree.leaves(_small()), _elsewhere(words), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def swept():
    """What `rates` runs by default: arguments of its `_floors`, one for each call."""
    calls = []

    def floors(*call):
        calls.append(call)
        *_, algorithms, snr_db, _, _ = call
        ones = np.ones((rates.DRAWS, len(snr_db))), np.ones(len(snr_db))
        return dict.fromkeys(algorithms, ones)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "_floors", floors)
        _driven(figures.THEORY["rates"].job(0))
    return calls


@functools.partial(jax.jit, static_argnames="options")
def _regions(options, key, trials, algorithm, channel, task):
    """Constants, and max_r max_i E‖Δ_i‖², of each data draw and channel [draw, setting]."""

    def one(task, channel):
        run = key, trials, algorithm, channel, task, None, None
        region, plan = visit(options, task.features.shape[1], *run)
        constants = summarise(region, plan, algorithm, channel, task, jnp.float32(options.rounds))
        return constants, region.energy.mean(0).max()

    over_channels = jax.vmap(one, (None, 0))
    return jax.vmap(over_channels, (0, None))(task, channel)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(rates.SWEPT_USERS) + 1))
def test_rates_are_measured_within_the_conditions(swept, number):
    """On the very draws and trials of the default seed: step size, R, logarithm, M, E‖Δ_i‖²."""
    seed, trials, users, algorithms, snr_db, heard, rounds = swept[number]
    task, key = well_conditioned(seed, rates.DRAWS, users=users), jax.random.key(seed)
    many = jnp.asarray(heard) if heard else None
    channel = jo.Channel(jnp.float32(snr_db), jnp.ones(len(snr_db)), participants=many)
    if users != rates.USERS:  # where steps are closest to their limit, and where noise is greatest
        algorithms = {name: algorithms[name] for name in ("BAAF", "COBAAF, identity")}
    for algorithm in algorithms.values():
        run = key, algorithm, channel, task, rounds, trials
        arguments, options = _arguments.experiment(*run, calibration_trials=20)
        del arguments["plan"], arguments["initial"]
        constants, energy = _regions(options._replace(over=Spread()), **arguments)
        local = algorithm.local
        theorem = theory.theorem_2 if local.controlled else theory.theorem_1
        theorem = theory.theorem_3 if heard else theorem
        ask = functools.partial(theorem, rounds=float(rounds), step_size=local.step_size)
        bound = jax.jit(jax.vmap(jax.vmap(ask)))(constants)
        assert bound.applies.shape == (rates.DRAWS, len(snr_db)) and bound.applies.all()
        np.testing.assert_allclose(constants.gradient_bound, rates.M**2, rtol=1e-5)
        assert (energy <= (local.steps * local.step_size * rates.M) ** 2).all()
        assert not heard or constants.participants.tolist() == [list(heard)] * rates.DRAWS


@pytest.mark.slow
def test_the_floor_of_mmse_is_mostly_bias():
    """Finding of `rates`: the average over trials of BAAF's last models at 10 dB has most of the
    gap that the channel adds; full gradients, so that the ideal channel's models are all one."""
    algorithm = rates._algorithms(rates.REACH)["BAAF"]
    channel = jo.Channel(jnp.float32([rates.SNR_DB, jnp.inf]))
    tasks, trials = well_conditioned(0, rates.DRAWS, users=rates.USERS), 50
    scored = jax.jit(lambda task, model: task.problem(0).score(model))
    for draw in range(rates.DRAWS):
        task = jax.tree.map(lambda x, k=draw: x[k], tasks)
        run = jax.random.key(0), algorithm, channel, task, rates.ROUNDS, trials
        history = jo.sweep(*run, calibration_trials=20)
        gap, ideal = history.gap[:, :, -1].mean(-1)
        of_average = scored(task, np.mean(history.model[0], 0))["gap"]
        assert of_average - ideal > 0.6 * (gap - ideal)


def test_well_conditioned_data_are():
    features = np.asarray(well_conditioned(0, 3).features, np.float64)
    hessians = 2 * np.einsum("gnsd,gnse->gnde", features, features) / features.shape[2]
    values = np.linalg.eigvalsh(hessians)
    assert values.min() >= 2 - 1e-3 and values.max() <= 3 + 1e-3
