"""A run that continues from a kept state equals one that was never interrupted."""

import jax
import numpy as np
import optax
import pytest

import jaxota as jo

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
MOMENTUM = {"transform": optax.scale_by_adam(), "keep_momentum": True}
RUN = {"calibration_trials": 4, "trials": 3}
FIRST, SECOND = 7, 6

ALGORITHMS = {
    "cotaf": jo.cotaf(**LOCAL),
    "noisy_fedavg": jo.noisy_fedavg(**LOCAL),
    "cobaaf": jo.cobaaf(**LOCAL, warm_start=True),
    "wise": jo.wise(**LOCAL),
    "adam": jo.cotaf(**LOCAL, precode=jo.Online(), server=optax.adam(0.1)),
    "scaffold": jo.scaffold(**LOCAL, control_option=2, server=optax.sgd(1.0, momentum=0.5)),
    "momentum": jo.cotaf(**LOCAL).replace(local=jo.SGD(**LOCAL, **MOMENTUM)),
    "both": jo.cobaaf(**LOCAL).replace(local=jo.ControlVariateSGD(**LOCAL, **MOMENTUM)),
}
CHANNELS = {
    "static": jo.Channel(),
    "correlated": jo.Channel(fading=jo.rayleigh(correlation=0.9), participants=3),
}


def run(task, name, rounds, channel="static", **options):
    return jo.simulate(
        0, ALGORITHMS[name], CHANNELS[channel], task, rounds, **RUN, keep_state=True, **options
    )


def assert_rest_is_the_same(whole, rest):
    """Compare all rows of `rest` with the last rows of `whole`, to the bit."""
    whole, rest = whole.to_xarray(), rest.to_xarray()
    assert rest.sizes["round"] == SECOND
    late = whole.sel({k: rest[k] for k in ("round", "evaluation") if k in rest.dims})
    assert set(late) == set(rest)
    for result in late:
        np.testing.assert_array_equal(late[result], rest[result], err_msg=result)


@pytest.mark.parametrize(
    ("name", "channel"),
    [(name, "static") for name in ALGORITHMS if name != "wise"]
    + [("wise", "correlated"), ("both", "correlated")],
)
def test_two_runs_in_turn_equal_one_to_the_bit(task, name, channel):
    whole = run(task, name, FIRST + SECOND, channel)
    first = run(task, name, FIRST, channel)
    assert first.state.rounds == FIRST
    rest = run(task, name, SECOND, channel, state=first.state)
    assert_rest_is_the_same(whole, rest)
    assert rest.state.rounds == whole.state.rounds == FIRST + SECOND
    for kept, wanted in zip(rest.state.leaves, whole.state.leaves, strict=True):
        np.testing.assert_array_equal(kept, wanted)


def test_initial_models_alone_lose_the_memory(task):
    """The state holds more than the models: controls, memories and the place in the plan."""
    whole, first = run(task, "cobaaf", FIRST + SECOND), run(task, "cobaaf", FIRST)
    restarted = run(task, "cobaaf", SECOND, initial=first.model)
    assert not np.allclose(restarted.model, whole.model)


def test_a_saved_history_continues(task, tmp_path):
    first = run(task, "adam", FIRST)
    first.save(tmp_path / "first.nc")
    loaded = jo.History.load(tmp_path / "first.nc")
    assert loaded.state.rounds == FIRST
    rest = run(task, "adam", SECOND, state=loaded.state)
    assert_rest_is_the_same(run(task, "adam", FIRST + SECOND), rest)
    rest.save(tmp_path / "rest.nc")
    again = jo.History.load(tmp_path / "rest.nc")
    assert again.done == FIRST and again.state.rounds == FIRST + SECOND


def test_one_plan_serves_both_runs(task):
    plan = jo.calibrate(0, ALGORITHMS["noisy_fedavg"], task, FIRST + SECOND, 4)
    whole = run(task, "noisy_fedavg", FIRST + SECOND, plan=plan)
    first = run(task, "noisy_fedavg", FIRST, plan=plan)
    rest = run(task, "noisy_fedavg", SECOND, plan=plan, state=first.state)
    assert_rest_is_the_same(whole, rest)


def test_a_run_without_request_keeps_no_state(task):
    history = jo.simulate(0, ALGORITHMS["cotaf"], CHANNELS["static"], task, FIRST, **RUN)
    assert history.state is None


def test_scores_are_counted_from_the_state(task):
    first = run(task, "cotaf", FIRST)
    rest = run(task, "cotaf", SECOND, state=first.state, every=3)
    assert list(rest.to_xarray()["evaluation"]) == [FIRST + 3, FIRST + 6]
    assert list(rest.to_xarray()["round"]) == list(range(FIRST + 1, FIRST + SECOND + 1))


def _bad(first, task):
    kept = first.state
    leaves = tuple(leaf[..., :2] if leaf.ndim > 1 else leaf for leaf in kept.leaves)
    plan = jo.calibrate(0, ALGORITHMS["cotaf"], task, FIRST, 4)
    return [
        ({"state": first}, "state must be the state of a history made with keep_state=True"),
        ({"state": kept, "initial": first.model}, "initial must be None with state"),
        ({"state": kept, "trials": 2}, "state must hold trials = 2"),
        ({"state": run(task, "adam", FIRST).state}, "state must be of the same algorithm"),
        ({"state": kept.replace(leaves=leaves)}, "state.model must be float32[6] in each trial"),
        ({"state": kept, "plan": plan}, f"plan.update_energy must have shape [{FIRST + SECOND}]"),
        ({"keep_state": 1}, "keep_state must be False or True"),
    ]


def test_states_that_do_not_fit_are_one_line(task):
    for options, line in _bad(run(task, "cotaf", FIRST), task):
        options = {**RUN, "keep_state": True, **options}
        with pytest.raises(jo.InputError) as error:
            jo.simulate(0, ALGORITHMS["cotaf"], CHANNELS["static"], task, SECOND, **options)
        assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_a_state_crosses_a_jit_of_the_users_own(task):
    first = run(task, "cotaf", FIRST)
    step = jax.jit(lambda state: run(task, "cotaf", SECOND, state=state).model)
    whole = run(task, "cotaf", FIRST + SECOND)
    np.testing.assert_allclose(step(first.state), whole.model, rtol=1e-5)
