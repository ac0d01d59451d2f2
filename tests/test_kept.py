"""Results on request: who was heard, every user's scores, metrics of one's own; pandas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo
from jaxota.simulation import program

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
RUN = {"rounds": 4, "trials": 3, "calibration_trials": 4}
ALL = {"user_power": True, "heard": True, "user_scores": True}
CHANNEL = jo.Channel(participants=2)


def drift(model, models, problem):
    """Mean squared distance of the users' models from their mean."""
    return jnp.mean(jnp.sum((models - models.mean(0)[None]) ** 2, -1))


def distance(model, models, problem):
    return jnp.sum((model - problem.optimum) ** 2)


METRICS = {"drift": drift, "distance": distance}


def run(task, **options):
    return jo.simulate(0, jo.cobaaf(**LOCAL), CHANNEL, task, **RUN | options)


@pytest.fixture(scope="module")
def history(task):
    return run(task, **ALL, metrics=METRICS)


def test_what_is_kept_changes_nothing_else(task, history):
    plain = run(task)
    for name in plain.to_xarray():
        np.testing.assert_array_equal(plain[name], history[name], err_msg=name)
    assert plain.heard is None and plain.user_scores == {}


def test_heard_are_those_who_spend_power(history, task):
    assert history.heard.shape == (3, 4, task.users)
    np.testing.assert_array_equal(history.heard, np.asarray(history.user_power) > 0)
    np.testing.assert_array_equal(history.heard.sum(-1), history.participants)


def test_the_mean_of_the_users_losses_is_the_loss(history, task):
    assert history["user_loss"].shape == (3, 4, task.users)
    np.testing.assert_allclose(history["user_loss"].mean(-1), history.loss, rtol=1e-5)


def test_users_losses_are_those_of_plain_numpy(arrays, task):
    features, targets = (x.astype("float64") for x in arrays)
    history = run(task, user_scores=True, every=4)
    residual = np.einsum("nsd,td->tns", features, np.asarray(history.model)) - targets[None]
    np.testing.assert_allclose(history["user_loss"][:, 0], (residual**2).mean(-1), rtol=1e-4)


def test_users_of_unequal_sizes_and_of_any_loss():
    draw = np.random.default_rng(0)
    sizes = 2, 5, 3
    data = [{"x": draw.normal(size=size).astype("float32")} for size in sizes]
    task = jo.tasks.empirical(
        lambda key: {"w": jnp.ones(())}, lambda p, batch: (p["w"] - batch["x"]) ** 2, data
    )
    history = jo.simulate(0, jo.fedavg(0.1, 2), jo.Channel(), task, 2, 2, user_scores=True)
    means = [np.mean((history.model[0, 0] - user["x"]) ** 2) for user in data]
    np.testing.assert_allclose(history["user_loss"][0, -1], means, rtol=1e-5)
    uneven = jo.tasks.regression([d["x"][:, None] for d in data], [d["x"] for d in data])
    history = jo.simulate(0, jo.fedavg(0.1, 2), jo.Channel(), uneven, 2, 2, user_scores=True)
    np.testing.assert_allclose(history["user_loss"].mean(-1), history.loss, rtol=1e-5)


def test_metrics_are_scores_like_any_other(task, history):
    """The distance is that of the last model; one round after a common model, drift is of Δ_i."""
    optimum = np.asarray(task.problem(0).optimum)
    wanted = ((np.asarray(history.model) - optimum) ** 2).sum(-1)
    np.testing.assert_allclose(history["distance"][:, -1], wanted, rtol=1e-5)
    assert (history["drift"] > 0).all()
    still = jo.fedavg(1e-12, 1)  # users stay together
    np.testing.assert_allclose(
        jo.simulate(0, still, jo.Channel(), task, **RUN, metrics=METRICS)["drift"], 0, atol=1e-9
    )
    jo.plots.curves(history, "drift")
    assert (jo.stats.time_to(history, 1e9, "distance") == 1).all()


def test_users_models_are_without_weights(task):
    """θ_i is where a user went, whatever its weight in the average."""
    weighted = jo.tasks.weighted(task, np.arange(1.0, 1.0 + task.users))
    first = {"rounds": 1, "initial": np.ones((3, task.dim)), "metrics": METRICS}
    np.testing.assert_allclose(run(weighted, **first)["drift"], run(task, **first)["drift"])


def test_a_metric_compiles_once_and_sweeps(task, history):
    compiled = program._cache_size()
    run(task, **ALL, metrics=METRICS)
    assert program._cache_size() == compiled
    swept = jo.sweep(
        0, jo.cobaaf(**LOCAL), CHANNEL.replace(snr_db=[10.0, 20.0]), task, **RUN, **ALL,
        metrics=METRICS,
    )  # fmt: skip
    for name in ("drift", "heard", "user_loss"):
        np.testing.assert_allclose(swept[name][0], history[name], rtol=1e-4)
    assert swept.to_xarray()["user_loss"].dims == ("snr_db", "trial", "round", "user")


def test_all_of_it_is_saved(history, tmp_path):
    history.save(tmp_path / "run.nc")
    loaded = jo.History.load(tmp_path / "run.nc")
    assert jax.tree.structure(loaded) == jax.tree.structure(history)
    for got, wanted in zip(jax.tree.leaves(loaded), jax.tree.leaves(history), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_pandas_has_a_row_for_every_round(task, history):
    frame = history.to_pandas()
    assert list(frame.columns[:2]) == ["trial", "round"] and len(frame) == 3 * 4
    assert {"gap", "drift", "power", "control_error", "energy"} <= {*frame.columns}
    assert not {"heard", "user_loss", "model", "user"} & {*frame.columns}
    table = frame.pivot(index="trial", columns="round", values="gap")
    np.testing.assert_array_equal(table, history.gap)
    assert list(table.columns) == [1, 2, 3, 4]
    sparse = run(task, every=3, rounds=4).to_pandas()
    assert sparse.set_index("round").gap.notna().groupby("round").all().tolist() == [
        False, False, True, False,
    ]  # fmt: skip


def test_pandas_names_what_was_swept(task):
    few = {"rounds": 2, "trials": 2}
    step = jo.sweep(0, jo.fedavg([1e-2, 2e-2], 1), jo.Channel(), task, **few)
    frame = step.to_pandas()
    np.testing.assert_allclose(frame.step_size.unique(), [1e-2, 2e-2], rtol=1e-6)
    np.testing.assert_array_equal(frame.gap.to_numpy().reshape(2, 2, 2), step.gap)
    grid = jo.sweep(
        0, jo.fedavg(1e-2, 1), jo.Channel(), task, **few,
        over=jo.grid(step_size=[1e-2, 2e-2], steps=[1, 2, 3]),
    )  # fmt: skip
    frame = grid.to_pandas()
    assert len(frame) == 2 * 3 * 2 * 2
    np.testing.assert_array_equal(frame.power.to_numpy().reshape(6, 2, 2), grid.power)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"heard": 1}, "heard must be False or True, got 1"),
        ({"user_scores": "yes"}, "user_scores must be False or True, got 'yes'"),
        ({"metrics": drift}, "metrics must be functions by their names, got <function"),
        ({"metrics": {"drift": 3}}, "metrics['drift'] must be a function, got 3"),
        ({"metrics": {"heard": drift}}, "metrics must not name a score 'heard'"),
        ({"metrics": {"gap": drift}}, "metrics must not name 'gap', which is a score of the task"),
        ({"metrics": {"d": lambda *_: jnp.ones(2)}}, "metrics['d'] must return one number, got"),
    ],
)
def test_bad_requests_are_one_line(task, options, line):
    with pytest.raises(jo.InputError) as error:
        run(task, **options)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
