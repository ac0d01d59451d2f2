"""A sweep equals one simulation a setting."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_equal

import jaxota as jo

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
OPTIONS = {"rounds": 4, "trials": 3, "calibration_trials": 8}
KEY = jax.random.key(0)


def _setting(history, s):
    return jax.tree.map(lambda x: x[s], history.replace(settings={}))


@pytest.mark.slow
def test_seven_snrs_equal_seven_simulations(task, start):
    snrs, algorithm = np.linspace(-10.0, 20.0, 7), jo.cobaaf(**LOCAL)
    options = OPTIONS | {"initial": start[:3]}
    swept = jo.sweep(KEY, algorithm, jo.Channel(snr_db=snrs), task, **options)
    assert swept.gap.shape == (7, 3, 4)
    for s, snr in enumerate(snrs):
        one = jo.simulate(KEY, algorithm, jo.Channel(snr_db=snr), task, **options)
        assert_equal(_setting(swept, s), one, task, start[:3])


@pytest.mark.slow
def test_the_pull_of_fedprox_is_swept(task, start):
    """Each setting its own simulation; new numbers are no new program, in a grid neither."""
    sweeping = importlib.import_module("jaxota.sweeping")
    options = OPTIONS | {"initial": start[:3]}
    fedprox = jo.cotaf(**LOCAL).replace(local=jo.Proximal(**LOCAL, mu=[0.0, 1.0, 40.0]))
    swept = jo.sweep(KEY, fedprox, jo.Channel(), task, **options)
    for s, mu in enumerate([0.0, 1.0, 40.0]):
        one = fedprox.replace(local=jo.Proximal(**LOCAL, mu=mu))
        one = jo.simulate(KEY, one, jo.Channel(), task, **options)
        assert_equal(_setting(swept, s), one, task, start[:3])
    programs = sweeping.program._cache_size()
    other = fedprox.replace(local=jo.Proximal(**LOCAL, mu=[2.0, 3.0, 5.0]))
    jo.sweep(KEY, other, jo.Channel(), task, **options)
    assert sweeping.program._cache_size() == programs
    lone = fedprox.replace(local=jo.Proximal(**LOCAL))
    data = jo.sweep(KEY, lone, jo.Channel(), task, **OPTIONS, over=jo.grid(mu=[0, 1])).to_xarray()
    assert data.mu.values.tolist() == [0.0, 1.0]


@pytest.mark.slow
def test_arrays_go_in_step(task, start):
    """Fields of algorithm, channel and precoder together, and the settings keep their names."""
    step_sizes, powers, gains = [0.01, 0.02], [1.0, 2.0], [0.5, 0.7]
    swept = jo.sweep(
        KEY,
        jo.noisy_fedavg(jnp.array(step_sizes), 2, 2, precode=jo.Constant(np.array(gains))),
        jo.Channel(power=powers, snr_db=5.0),
        task,
        **OPTIONS,
        initial=start[:3],
    )
    for s in range(2):
        algorithm = jo.noisy_fedavg(step_sizes[s], 2, 2, precode=jo.Constant(gains[s]))
        channel = jo.Channel(power=powers[s], snr_db=5.0)
        one = jo.simulate(KEY, algorithm, channel, task, **OPTIONS, initial=start[:3])
        assert_equal(_setting(swept, s), one, task, start[:3])
    assert {k: np.asarray(v).tolist() for k, v in swept.settings.items()} == {
        "step_size": np.float32(step_sizes).tolist(),
        "gain": np.float32(gains).tolist(),
        "channel.power": powers,  # in full: `power` is a result
    }
    assert swept.to_xarray().power.dims == ("setting", "trial", "round")


@pytest.mark.slow
def test_spreads_of_the_data_can_be_swept():
    draw = functools.partial(jo.tasks.synthetic_regression, KEY, 3, 6, 2)
    spreads = [0.0, 0.1, 0.25]
    swept = jo.sweep(KEY, jo.baaf(**LOCAL), jo.Channel(), draw(data_spread=spreads), **OPTIONS)
    for s, spread in enumerate(spreads):
        one = jo.simulate(KEY, jo.baaf(**LOCAL), jo.Channel(), draw(data_spread=spread), **OPTIONS)
        np.testing.assert_allclose(swept.gap[s], one.gap, rtol=1e-3)


@pytest.mark.slow
def test_whole_data_sets_and_plans_can_be_swept(arrays, task):
    """One axis more than usual is a sweep, for arrays too."""
    both = task.replace(features=jnp.stack([task.features, 2 * task.features]))
    plan = jo.calibrate(KEY, jo.baaf(**LOCAL), task, 4, 8)
    plans = plan.replace(model_var=jnp.stack([plan.model_var, 9 * plan.model_var]))
    swept = jo.sweep(KEY, jo.baaf(**LOCAL), jo.Channel(), both, **OPTIONS, plan=plans)
    second = jo.simulate(
        KEY,
        jo.baaf(**LOCAL),
        jo.Channel(),
        task.replace(features=2 * task.features),
        **OPTIONS,
        plan=plan.replace(model_var=9 * plan.model_var),
    )
    np.testing.assert_allclose(swept.model[1], second.model, rtol=1e-4)
    assert set(swept.settings) == {"features", "model_var"}
    assert "features" not in swept.to_xarray().coords  # too large to be a coordinate


@pytest.mark.slow
def test_draws_of_the_data_can_be_swept():
    """Keys in step: one setting a data set."""
    keys = jax.random.split(KEY, 2)
    draw = functools.partial(jo.tasks.synthetic_regression, users=3, samples=6, dim=2)
    swept = jo.sweep(KEY, jo.fedavg(**LOCAL), jo.Channel(), draw(keys), **OPTIONS)
    one = jo.simulate(KEY, jo.fedavg(**LOCAL), jo.Channel(), draw(keys[1]), **OPTIONS)
    np.testing.assert_allclose(swept.gap[1], one.gap, rtol=1e-3)
    assert "key" not in swept.to_xarray().coords


@pytest.mark.slow
def test_new_values_do_not_retrace(task):
    program = importlib.import_module("jaxota.sweeping").program
    before = program._cache_size()
    for snrs in ([0.0, 5.0, 10.0], [1, 2, 3], np.array([7.0, np.inf, -3.0])):
        jo.sweep(KEY, jo.cotaf(**LOCAL), jo.Channel(snr_db=snrs), task, **OPTIONS)
    assert program._cache_size() == before + 1


def test_results_are_labelled(task):
    snrs = [0.0, 10.0]
    history = jo.sweep(KEY, jo.cobaaf(**LOCAL), jo.Channel(snr_db=snrs), task, **OPTIONS)
    data = history.to_xarray()
    assert data.gap.dims == ("snr_db", "trial", "round")
    assert data.model.dims == ("snr_db", "trial", "parameter")
    np.testing.assert_array_equal(data.snr_db, snrs)
    np.testing.assert_array_equal(data["round"], [1, 2, 3, 4])
    quiet = data.sel(snr_db=10)
    np.testing.assert_array_equal(quiet.gap, history.gap[1])
    assert history.diverged.shape == (2, 3)


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        (jo.Channel(), "sweep needs an array"),
        (jo.Channel(snr_db=[1.0, 2.0], power=[1.0, 2.0, 3.0]), "must be of one length"),
        (jo.Channel(snr_db=[]), "must be of one length"),
        (jo.Channel(snr_db=[1.0, np.nan]), "channel.snr_db must be"),
        (jo.Channel(snr_db=[[1.0], [2.0]]), "channel.snr_db must be a number, or one axis more"),
    ],
)
def test_bad_sweeps_are_one_clear_line(task, channel, words):
    with pytest.raises(jo.InputError) as caught:
        jo.sweep(KEY, jo.fedavg(**LOCAL), channel, task, **OPTIONS)
    assert words in str(caught.value) and "\n" not in str(caught.value)
