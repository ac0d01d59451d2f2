"""Step sizes by round: a constant schedule is the constant, and schedules are those of the plan."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxota as jo
from jaxota.simulation import program

ROUNDS, RUN = 6, {"trials": 3, "calibration_trials": 4}
DECAY = [2e-2 / (1 + r) for r in range(ROUNDS)]
RULES = {
    "sgd": lambda eta: jo.cotaf(eta, 2, 2),
    "bounded": lambda eta: jo.cotaf(eta, 2, 2, precode=jo.Bounded(30.0)),
    "proximal": lambda eta: jo.cotaf(eta, 2, 2).replace(local=jo.Proximal(eta, 2, 2, mu=0.1)),
    "controls": lambda eta: jo.cobaaf(eta, 2, 2),
    "option 2": lambda eta: jo.cobaaf(eta, 2, 2, control_option=2),
    "adam": lambda eta: jo.cotaf(eta, 2, 2, transform=optax.scale_by_adam()),
}


def run(task, algorithm, rounds=ROUNDS, **options):
    return jo.simulate(0, algorithm, jo.Channel(), task, rounds, **RUN, **options)


def assert_same(one, other):
    for got, wanted in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "schedule", [lambda r: 1e-2, jo.by_round([1e-2] * (ROUNDS + 1)), optax.constant_schedule(1e-2)]
)
def test_a_constant_schedule_is_the_constant_to_the_bit(task, rule, schedule):
    assert_same(run(task, RULES[rule](schedule)), run(task, RULES[rule](1e-2)))


def test_rounds_of_a_schedule_are_runs_of_one_round_each(task):
    """Round r takes the step size of r: FedAvg with η_r, one round after the other."""
    whole = run(task, jo.fedavg(jo.by_round(DECAY), 2, None))
    model = None
    for eta in DECAY:
        model = run(task, jo.fedavg(eta, 2, None), 1, initial=model).model
    np.testing.assert_allclose(whole.model, model, rtol=2e-6)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda r: 2e-2 / (1 + r),
        lambda r: 2e-2 if r == 0 else DECAY[int(r)],  # asks for the number of the round
        optax.piecewise_interpolate_schedule("linear", 2e-2, {1: 0.5, 2: 2 / 3}),
    ],
)
def test_functions_of_the_round_are_evaluated_beforehand(task, schedule):
    rounds = 3
    wanted = run(task, jo.cotaf(jo.by_round(DECAY), 2, 2), rounds)
    compiled = program._cache_size()
    got = run(task, jo.cotaf(schedule, 2, 2), rounds)
    np.testing.assert_allclose(got.gap, wanted.gap, rtol=1e-5)
    assert program._cache_size() <= compiled + 1  # by the length of the table alone


def test_schedules_sweep_and_are_named_by_their_field(task):
    table = jnp.asarray([DECAY, DECAY[::-1]])
    swept = jo.sweep(0, jo.cotaf(jo.by_round(table), 2, 2), jo.Channel(), task, ROUNDS, **RUN)
    assert list(swept.settings) == ["step_size"]
    for setting, values in enumerate(table):
        alone = run(task, jo.cotaf(jo.by_round(values), 2, 2))
        np.testing.assert_allclose(swept.gap[setting], alone.gap, rtol=1e-5)
    first = jnp.asarray([2e-2, 1e-2])
    by_function = jo.sweep(
        0, jo.cotaf(lambda r: first / (1 + r), 2, 2), jo.Channel(), task, ROUNDS, **RUN
    )
    np.testing.assert_allclose(by_function.gap[0], swept.gap[0], rtol=1e-5)


def test_a_run_that_continues_keeps_its_place_in_the_schedule(task):
    algorithm = jo.cobaaf(lambda r: 2e-2 / (1 + r), 2, 2)
    whole = run(task, algorithm, 6)
    first = run(task, algorithm, 4, keep_state=True)
    rest = run(task, algorithm, 2, state=first.state)
    np.testing.assert_array_equal(rest.gap, whole.gap[:, 4:])


@pytest.mark.parametrize("rule", ["sgd", "bounded", "proximal", "controls"])
def test_exact_curves_know_schedules(rule):
    task = jo.tasks.synthetic_regression(1, users=4, samples=10, dim=3)
    channel = jo.Channel(snr_db=5.0)
    algorithm = RULES[rule](jo.by_round(DECAY))
    expected = jo.exact(algorithm, channel, task, ROUNDS)
    plan = jo.exact_plan(algorithm, task, ROUNDS)
    gap = np.asarray(jo.simulate(0, algorithm, channel, task, ROUNDS, 2000, plan=plan).gap)
    error = gap.std(0, ddof=1) / np.sqrt(len(gap))
    assert (np.abs(gap.mean(0) - expected.gap) < 4 * error).all()


def test_a_study_takes_schedules(task):
    schedules = {
        "decay": jo.cotaf(lambda r: 2e-2 / (1 + r), 2, 2),
        "constant": jo.cotaf(1e-2, 2, 2),
    }
    study = jo.Study(schedules, jo.Channel(), task, ROUNDS, 3, calibration_trials=4)
    alone = run(task, schedules["decay"])
    gap = study.run()["gap"].sel(algorithm="decay").values
    np.testing.assert_allclose(gap.reshape(3, ROUNDS), alone.gap, rtol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "line"),
    [
        (jo.cotaf(jo.by_round(DECAY[:3]), 2, 2), "must have a number for each of 6 rounds, got 3"),
        (jo.cotaf(lambda r: 3.0 - r, 2, 2), "algorithm.local.step_size must be finite and > 0"),
        (jo.cotaf(lambda r: r.missing, 2, 2), "must be a number or a function of the round"),
        (jo.cotaf(jo.by_round([[[1.0] * 6]]), 2, 2), "step_size.values must be an array of 1 axes"),
        (jo.wise(jo.by_round(DECAY), 2, 2), "must be one number for all rounds, got a schedule"),
    ],
)
def test_bad_schedules_are_one_line(task, algorithm, line):
    with pytest.raises(jo.InputError) as error:
        run(task, algorithm)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_the_theorems_refuse_schedules(task):
    with pytest.raises(jo.InputError, match="one number for all rounds, as in the theorems"):
        jo.theory.measure(0, jo.cotaf(jo.by_round(DECAY), 2, 2), jo.Channel(), task, ROUNDS, 2)
