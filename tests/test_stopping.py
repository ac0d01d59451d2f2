"""Early stopping changes nothing but the work: to rounding, as with any other chunks of trials."""

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota import stopping
from jaxota.simulation import program

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
ROUNDS, TRIALS = 24, 11
CHANNEL = jo.Channel(fading=jo.rayleigh(correlation=0.9))
ALGORITHMS = {
    "cobaaf": jo.cobaaf(lambda r: 2e-2 / (1 + 0.1 * r), 2, 2),
    "wise": jo.wise(**LOCAL),
}


def run(task, algorithm=ALGORITHMS["cobaaf"], **options):
    options = {"every": 2, "calibration_trials": 4, "heard": True, "user_scores": True} | options
    return jo.simulate(0, algorithm, CHANNEL, task, ROUNDS, TRIALS, **options)


def target_of(history):
    """A gap that some trials reach soon, some late and some never."""
    return float(np.quantile(np.asarray(history.gap).min(1), 0.7))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_all_that_was_run_is_the_same(task, name):
    whole = run(task, ALGORITHMS[name])
    target = target_of(whole)
    early = run(task, ALGORITHMS[name], stop=jo.Stop("gap", target, every=4))
    last = np.asarray(early.last_round)
    # A trial ends at the first look after it reached the target.
    reached = jo.stats.time_to(whole, target)
    np.testing.assert_array_equal(last, np.minimum(np.ceil(reached / 4) * 4, ROUNDS))
    assert len(np.unique(last)) > 2
    whole, data = whole.to_xarray(), early.to_xarray()
    for result in set(whole) - {"model", "average"}:
        axis = data[result].dims[1]
        ran = data[axis].values[None] <= last[:, None]
        got, wanted = data[result].values[ran], whole[result].values[ran]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=result)
        assert np.isnan(data[result].values[~ran]).all()
    never = last == ROUNDS
    np.testing.assert_allclose(early.model[never], whole.model.values[never], rtol=1e-4)
    assert np.isfinite(early.model).all() and not early.diverged.any()
    for against in ("round", "uses", "energy"):
        expected = jo.stats.time_to(run(task, ALGORITHMS[name]), target, against=against)
        got = jo.stats.time_to(early, target, against=against)
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_trials_that_are_done_cost_nothing(task, monkeypatch):
    """Work is counted in trials times rounds: what is left, filled up to whole pieces."""
    whole, work = run(task), []

    def counted(options, **arguments):
        work.append((options.rounds, len(arguments["trials"])))
        return program(options, **arguments)

    monkeypatch.setattr("jaxota.simulation.program", counted)
    early = run(task, stop=jo.Stop("gap", target_of(whole), every=4))
    size = -(-TRIALS // stopping.PIECES)
    assert {trials for _, trials in work} == {size}
    left = [(np.asarray(early.last_round) >= r).sum() for r in range(4, ROUNDS + 1, 4)]
    assert len(work) == sum(-(-count // size) for count in left) < 6 * -(-TRIALS // size)


def test_blocks_share_their_programs(task):
    """The first block is a program, and all later ones are another."""
    stop = jo.Stop("gap", 0.0, every=4)
    run(task, stop=stop)
    compiled = program._cache_size()
    run(task, stop=jo.Stop("loss", 1e-3, every=4))
    assert program._cache_size() == compiled


def test_targets_may_rise_and_be_ones_own(task):
    size = {"norm": norm}
    whole = run(task, metrics=size)
    target = float(np.median(whole["norm"]))
    early = run(task, metrics=size, stop=jo.Stop("norm", target, rising=True))
    expected = jo.stats.time_to(whole, target, "norm", rising=True)
    np.testing.assert_array_equal(early.last_round, np.minimum(expected, ROUNDS))


def norm(model, models, problem):
    return (model**2).sum()


def test_a_run_that_continues_may_stop(task):
    first = jo.simulate(0, jo.wise(**LOCAL), CHANNEL, task, 8, TRIALS, every=2, keep_state=True)
    whole = run(task, jo.wise(**LOCAL))
    target = target_of(whole)
    options = {"every": 2, "state": first.state, "stop": jo.Stop("gap", target, every=4)}
    rest = jo.simulate(0, jo.wise(**LOCAL), CHANNEL, task, ROUNDS - 8, TRIALS, **options)
    ran = rest.to_xarray().evaluation.values[None] <= np.asarray(rest.last_round)[:, None]
    wanted = np.asarray(whole.gap)[:, 4:][ran]
    np.testing.assert_allclose(np.asarray(rest.gap)[ran], wanted, rtol=1e-4)


def test_a_stopped_history_is_saved_and_has_no_mean_curve(task, tmp_path):
    early = run(task, stop=jo.Stop("gap", target_of(run(task))))
    early.save(tmp_path / "early.nc")
    loaded = jo.History.load(tmp_path / "early.nc")
    for got, wanted in zip(jax.tree.leaves(loaded), jax.tree.leaves(early), strict=True):
        np.testing.assert_array_equal(got, wanted)
    with pytest.raises(jo.InputError, match="stopped early"):
        jo.plots.curves(early, "gap")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"stop": 1e-3}, 'stop must be one such as jo.Stop("gap", 1e-3), got 0.001'),
        ({"stop": jo.Stop("gaps", 1.0)}, "stop.metric must be 'gap' or 'loss', got 'gaps'"),
        ({"stop": jo.Stop("gap", "low")}, "stop.target must be a number, got 'low'"),
        ({"stop": jo.Stop("gap", 1.0, rising=1)}, "stop.rising must be False or True, got 1"),
        ({"stop": jo.Stop("gap", 1.0, every=3)}, "stop.every must be a multiple of every = 2"),
        ({"stop": jo.Stop("gap", 1.0), "keep_state": True}, "keep_state must be False with stop"),
    ],
)
def test_bad_stops_are_one_line(task, options, line):
    with pytest.raises(jo.InputError) as error:
        run(task, **options)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_a_program_of_ones_own_has_a_fixed_length(task):
    with pytest.raises(jo.InputError, match="stop must be None in a program of your own"):
        jax.jit(lambda key: run(task, ALGORITHMS["wise"], stop=jo.Stop("gap", key)).gap)(1.0)
    with pytest.raises(jo.InputError, match="stop must be None in a program of your own"):
        jax.jit(lambda x: jo.simulate(
            0, jo.wise(x, 2), CHANNEL, task, 2, 2, stop=jo.Stop("gap", 1.0)
        ).gap)(1e-2)  # fmt: skip
