"""Anyone's parameters, loss, data and scores: the same numbers as the tasks they generalise."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo
from jaxota import plots, reports
from jaxota.history import LEDGERS
from jaxota.simulation import program
from jaxota.tasks import model_functions

KEY = jax.random.key(0)
DIM, SIZES = 3, (5, 2, 1)
_gradient_of = jax.jit(lambda task, *where: task.gradient(*where))
_evaluated = jax.jit(lambda task, model, user: (task.score(model), task.full_gradient(model, user)))


def _zeros(key):
    return {"weights": jnp.zeros(DIM), "bias": jnp.zeros(())}


def _drawn(key):
    return jax.random.normal(key, (6,), "float32")  # as `regression` draws its models, d = 6


def _squares(model, batch):
    features, targets = batch
    return ((features * model[None]).sum(-1) - targets) ** 2


def _margins(parameters, batch):
    return batch["x"] @ parameters["weights"] + parameters["bias"]


def _logistic(parameters, batch):
    """The loss [sample] of labels that are truth values."""
    return jax.nn.softplus(jnp.where(batch["y"], -1.0, 1.0) * _margins(parameters, batch))


def _measured(parameters, test):
    """Any numbers: of test data, of parameters, a count."""
    right = (_margins(parameters, test) > 0) == test["y"]
    return {
        "test error": 1.0 - right.mean(),
        "norm": jnp.sqrt((parameters["weights"] ** 2).sum()),
        "right": right.sum(),
    }


def _user(rng, size):
    return {"x": rng.standard_normal((size, DIM)), "y": rng.random(size) < 0.5}


@pytest.fixture(scope="module")
def users():
    rng = np.random.default_rng(0)
    return [_user(rng, size) for size in SIZES], _user(rng, 7)


@pytest.fixture(scope="module")
def logistic(users):
    data, test = users
    return jo.tasks.empirical(_zeros, _logistic, data, _measured, test)


def _gradient(model, user):
    """By hand in float64; the bias comes first in the vector of parameters."""
    bias, weights = model[0], model[1:]
    sign = np.where(user["y"], -1.0, 1.0)
    slope = sign / (1.0 + np.exp(-sign * (user["x"] @ weights + bias))) / len(sign)
    return np.concatenate([[slope.sum()], user["x"].T @ slope])


@pytest.mark.slow
def test_least_squares_is_a_case_of_it(arrays, task):
    """Minibatches, full gradients, calibration, noise: the run of `regression`."""
    same = jo.tasks.empirical(_drawn, _squares, arrays)
    assert (same.users, same.dim) == (task.users, task.dim)
    algorithm = jo.scaffold(1e-2, 3, 2)
    for parts in ((algorithm, jo.Channel()), (jo.baaf(1e-2, 2, 2), jo.Channel(snr_db=0.0))):
        ours, theirs = (jo.simulate(KEY, *parts, t, 4, 3) for t in (same, task))
        scale = np.abs(theirs.model).max()
        np.testing.assert_allclose(ours.model, theirs.model, rtol=0, atol=1e-5 * scale)
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-3)
        assert not hasattr(ours, "gap") and list(ours.scores) == ["loss"]


def test_logistic_regression_agrees_with_a_numpy_loop(users, logistic):
    """FedAvg with full gradients, users of unequal size, a dict of parameters and of scores."""
    data, test = users
    assert (logistic.users, logistic.dim) == (3, 1 + DIM)
    run = jo.simulate(KEY, jo.fedavg(0.5, 2), jo.Channel(), logistic, 3, 1)
    model = np.zeros(1 + DIM)
    for r in range(3):
        local = [model] * 3
        for _ in range(2):
            local = [m - 0.5 * _gradient(m, user) for m, user in zip(local, data, strict=True)]
        model = np.mean(local, 0)
        right = ((test["x"] @ model[1:] + model[0] > 0) == test["y"]).sum()
        np.testing.assert_allclose(run.scores["right"][0, r], right)
        np.testing.assert_allclose(run.scores["test error"][0, r], 1 - right / 7, atol=1e-6)
        np.testing.assert_allclose(run.scores["norm"][0, r], np.linalg.norm(model[1:]), rtol=1e-4)
    np.testing.assert_allclose(run.model[0], model, atol=1e-5)
    losses = [
        np.log1p(np.exp(np.where(u["y"], -1, 1) * (u["x"] @ model[1:] + model[0]))).mean()
        for u in data
    ]
    np.testing.assert_allclose(run.loss[0, -1], np.mean(losses), rtol=1e-4)


def test_minibatches_are_those_that_were_asked_for(users, logistic):
    model = np.random.default_rng(2).standard_normal(1 + DIM)
    for user, held in enumerate(users[0]):
        chosen = np.array([0, SIZES[user] - 1, 0])
        some = {k: v[chosen] for k, v in held.items()}
        found = _gradient_of(logistic, model, user, chosen)
        np.testing.assert_allclose(found, _gradient(model, some), atol=1e-5)


def test_padding_is_never_seen_and_is_of_the_users_own(users, logistic):
    outside = np.arange(5)[None] >= np.array(SIZES)[:, None]
    x, y = logistic.data["x"], logistic.data["y"]
    assert y.dtype == bool and x.dtype == jnp.float32
    np.testing.assert_array_equal(x[2], np.repeat(x[2, :1], 5, 0))
    np.testing.assert_allclose(x[1, :2], users[0][1]["x"], rtol=1e-6)
    other = logistic.replace(
        numbers=np.where(outside[..., None], np.float32(np.nan), logistic.numbers),
        wholes=np.where(outside[..., None], 1 - logistic.wholes, logistic.wholes),
    )
    model, steps = np.ones(1 + DIM), np.arange(2)
    for user in range(3):
        pair = [_gradient_of(t, model, user, steps % SIZES[user]) for t in (logistic, other)]
        np.testing.assert_array_equal(*pair)
    far = logistic.replace(numbers=np.where(outside[..., None], np.float32(9), logistic.numbers))
    (score, gradient), (far_score, far_gradient) = (
        _evaluated(t, model, 1) for t in (logistic, far)
    )
    np.testing.assert_array_equal(far_gradient, gradient)
    assert far_score["loss"] == score["loss"]
    np.testing.assert_array_equal(logistic.head().counts, [1, 1, 1])
    assert logistic.head().data["x"].shape == (3, 1, DIM)


def test_evaluation_in_blocks_changes_nothing(logistic, monkeypatch):
    model = np.linspace(-1.0, 1.0, 1 + DIM)

    def evaluated():
        return jax.jit(lambda t, m: (t.score(m), t.full_gradient(m, 0)))(logistic, model)

    whole = evaluated()
    each = model_functions.activations(logistic.start, logistic.loss, logistic.columns)
    monkeypatch.setattr(model_functions, "BLOCK", 6 * each)
    assert logistic._block == 6  # of 15 samples in all; 2 of each user's 5
    for a, b in zip(jax.tree.leaves(evaluated()), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_what_loops_and_calls_compute_is_counted():
    """For a gradient every turn of a loop is kept; else its turns share their room."""
    x = jax.ShapeDtypeStruct((10,), "float32")

    def looped(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(c) * 2.0, None), x, length=7)[0]

    called = jax.jit(lambda x: (jnp.sin(x) * 2.0).reshape(2, 5))
    assert (
        model_functions.count_computed(looped, x) == 20
        and model_functions.count_computed(looped, x, kept=True) == 140
    )
    assert model_functions.count_computed(called, x) == 20
    either = model_functions.count_computed(lambda x: jax.lax.cond(True, jnp.sin, jnp.cos, x), x)
    assert either == 20
    # Branches by platform compute the same: only the default one counts.
    ways = {"tpu": lambda x: jnp.sin(jnp.cos(x)), "default": jnp.sin}
    assert model_functions.count_computed(lambda x: jax.lax.platform_dependent(x, **ways), x) == 10
    assert model_functions.count_computed(lambda x: x, x) == 0
    # What all trials have in common, here the cosine, takes its room once.
    assert (
        model_functions.count_computed(lambda x, y: jnp.sin(x) + jnp.cos(y), x, shared=(x,)) == 20
    )


def test_memory_grows_with_what_is_evaluated(users, logistic):
    data, test = users
    wide = jax.tree.map(lambda x: np.repeat(x, 100, 0), test)
    larger = jo.tasks.empirical(_zeros, _logistic, data, _measured, wide)
    assert larger.floats_per_trial(2) > logistic.floats_per_trial(2) + 600
    assert logistic.floats_per_trial(200) > logistic.floats_per_trial(2)


def test_a_diverged_model_has_no_scores(logistic):
    scores, _ = _evaluated(logistic, np.full(1 + DIM, np.nan), 0)
    assert all(np.isnan(value) for value in scores.values()) and len(scores) == 4


def test_scores_of_any_name_reach_everything(logistic, tmp_path):
    """History, xarray, files, curves, the CSV and the table of an experiment."""
    algorithms = {"COTAF": jo.cotaf(0.1, 2, 2), "FedAvg": jo.fedavg(0.1, 2, 2)}
    channel = jo.Channel(snr_db=20.0)
    study = jo.Study(
        algorithms, channel, logistic, 4, 3, every=2, metric="test error", name="scored"
    )
    history = jo.simulate(KEY, algorithms["COTAF"], channel, logistic, 4, 3, every=2)
    assert set(history.scores) == {"loss", "test error", "norm", "right"}
    assert history.to_xarray()["test error"].dims == ("trial", "evaluation")
    history.save(tmp_path / "run.nc")
    loaded = jo.History.load(tmp_path / "run.nc")
    np.testing.assert_array_equal(loaded.scores["norm"], history.scores["norm"])
    axes = plots.curves({"COTAF": loaded}, "norm").axes[0]
    assert axes.get_yscale() == "linear" and axes.get_ylabel() == "norm"
    results = jo.study_report(study.run())
    reports.write(results, tmp_path)
    with open(tmp_path / "scored.csv", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["algorithm"] == "COTAF"]
    assert {row["metric"] for row in rows} == {*history.scores, *LEDGERS, "diverged"}
    means = [float(row["mean"]) for row in rows if row["metric"] == "norm"]
    norms = results.dataset.norm.sel(algorithm="COTAF")
    np.testing.assert_allclose(means, norms.mean("trial"), rtol=1e-6)
    assert "final test error" in results.table[0]


def _table(key):
    return 0.1 * jax.random.normal(key, (4, 4), "float32")


def _next_token(table, tokens):
    logits = table[tokens[:, :-1]]  # [sample, token, 4]
    found = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
    return -found.sum((1, 2))


def test_tokens_are_whole_numbers_and_stay_so():
    """A bigram model: nothing but int32, a bare array, a bare parameter."""
    tokens = np.random.default_rng(0).integers(0, 4, (2, 3, 6))
    task = jo.tasks.empirical(_table, _next_token, tokens)
    assert task.numbers is None and task.data.dtype == jnp.int32
    np.testing.assert_array_equal(task.data, tokens)
    run = jo.simulate(KEY, jo.fedavg(0.5, 2, 2), jo.Channel(), task, 4, 2)
    assert (run.loss[:, -1] < run.loss[:, 0]).all() and task.dim == 16


@pytest.mark.slow
def test_new_numbers_share_a_program_and_initial_scales_sweep(users):
    data, test = users
    before = program._cache_size()
    for factor in (1.0, 2.0):
        scaled = [user | {"x": factor * user["x"]} for user in data]
        task = jo.tasks.empirical(_zeros, _logistic, scaled, _measured, test, init_scale=factor)
        jo.simulate(KEY, jo.fedavg(0.1 * factor, 1, 2), jo.Channel(), task, 2, 2)
    assert program._cache_size() == before + 1
    swept = task.replace(init_scale=jnp.array([0.0, 1.0]))
    run = jo.sweep(KEY, jo.fedavg(0.1, 1, 2), jo.Channel(), swept, 2, 2)
    assert list(run.settings) == ["init_scale"] and run.scores["norm"].shape == (2, 2, 2)
    assert (run.scores["norm"][0] != run.scores["norm"][1]).all()


def test_partitions_of_labels_of_ones_own_are_drawn(users):
    data = [{"features": u["x"], "labels": u["y"].astype(int)} for u in users[0]]
    task = jo.tasks.empirical(_zeros, lambda p, b: b["features"].sum(-1), data)
    held = plots.partition(task).axes[0].images[0].get_array()
    np.testing.assert_array_equal(held.sum(0), SIZES)


GOOD = {"x": np.ones((2, 4, DIM)), "y": np.ones((2, 4), bool)}
ONE = {"x": np.ones((4, DIM)), "y": np.ones(4, bool)}


class _Unhashable:
    __hash__ = None

    def __call__(self, *_):
        return {}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"init": 3}, "init must be a function, got 3"),
        ({"init": _Unhashable()}, "init must be a function that can be hashed"),
        ({"init": lambda: 0}, "init must give parameters of a random key: "),
        ({"init": lambda key: {}}, "init must give at least one parameter, got none"),
        (
            {"init": lambda key: {"n": jnp.zeros(2, int)}},
            "init must give parameters in float32, got ['int32']",
        ),
        ({"loss": None}, "loss must be a function, got None"),
        (
            {"loss": lambda p, b: b["z"]},
            "loss must take the parameters and a batch of samples like the data: 'z'",
        ),
        (
            {"loss": lambda p, b: _logistic(p, b).mean()},
            "loss must give one number in float32 a sample, without a mean over samples, got "
            "float32[] for 2 samples",
        ),
        ({"loss": lambda p, b: b["x"]}, "got float32[2, 3] for 2 samples"),
        ({"loss": lambda p, b: b["y"]}, "got bool[2] for 2 samples"),
        ({"loss": lambda p, b: (b["x"], 1)}, "got no array"),
        ({"evaluate": 3}, "evaluate must be a function"),
        ({"evaluate": lambda p: 3.0}, "evaluate must give a dict of numbers by their names, got"),
        ({"evaluate": lambda p: {"a": p["weights"]}}, "evaluate must give one number as 'a', got"),
        ({"evaluate": lambda p: {"a": p}}, "evaluate must give one number as 'a', got no array"),
        ({"evaluate": lambda p: {"a": 1j}}, "evaluate must give one number as 'a', got complex64"),
        ({"evaluate": lambda p: {"power": 1.0}}, "evaluate must not name a score 'power'"),
        ({"evaluate": lambda p: {"trial": 1.0}}, "evaluate must not name a score 'trial'"),
        ({"evaluate": lambda p: {"a/b": 1.0}}, "evaluate must name a score by words without /"),
        ({"evaluate": lambda p: {"loss": 1.0}}, "evaluate must not give 'loss'"),
        (
            {"evaluate": lambda p: {}, "test_data": [1.0]},
            "evaluate must give a dict of numbers of the parameters and test_data: ",
        ),
        ({"test_data": [1.0]}, "test_data must come with evaluate"),
        ({"evaluate": _measured, "test_data": {}}, "test_data must hold at least one array"),
        ({"evaluate": _measured, "test_data": [np.nan]}, "test_data[0] must be finite, got NaN"),
        ({"data": []}, "data must hold at least one user, got none"),
        ({"data": {}}, "data must hold at least one array, got {}"),
        ({"data": np.ones(3)}, "data must be arrays [N, D, ...] of the same N users"),
        ({"data": GOOD | {"y": np.ones((2, 3))}}, "data must be arrays [N, D, ...] of the same"),
        ({"data": GOOD | {"x": np.ones((2, 0, 3))}}, "data['x'] must not be empty, got shape [2,"),
        ({"data": GOOD | {"x": GOOD["x"] * np.nan}}, "data['x'] must be finite, got NaN or inf"),
        ({"data": GOOD | {"x": GOOD["x"] * 1e300}}, "data['x'] must be finite, got NaN or inf"),
        ({"data": GOOD | {"x": GOOD["x"] * 1j}}, "data['x'] must be an array of real numbers"),
        ({"data": GOOD | {"x": "cat"}}, "data['x'] must be an array of real numbers, got 'cat'"),
        ({"data": GOOD | {"x": KEY}}, "data['x'] must be an array of real numbers"),
        (
            {"data": GOOD | {"y": np.full((2, 4), 2**40)}},
            "data['y'] must fit into int32, got 1099511627776",
        ),
        (
            {"data": [ONE, ONE | {"x": np.ones((4, 2))}]},
            "of shapes ((3,), ()) as user 0 has, got shapes [(4, 2), (4,)]",
        ),
        (
            {"data": [ONE, ONE | {"x": np.ones((3, 3))}]},
            "data of user 1 must be arrays [D_i, ...] of the same D_i samples",
        ),
        (
            {"data": [ONE, {"x": ONE["x"]}]},
            "a list is one entry a user, several arrays of a user are a tuple or a dict",
        ),
        ({"data": [{}]}, "data of user 0 must hold at least one array, got {}"),
        ({"data": [ONE | {"x": 3.0}]}, "data of user 0 must be arrays [D_i, ...] of the same"),
        (
            {"data": [ONE, ONE | {"x": ONE["x"] * np.inf}]},
            "data['x'] of user 1 must be finite, got NaN or inf",
        ),
    ],
)
def test_bad_arguments_are_one_clear_line(changed, words):
    with pytest.raises(jo.InputError) as caught:
        jo.tasks.empirical(**{"init": _zeros, "loss": _logistic, "data": GOOD} | changed)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_bad_initial_scale_is_named_on_entry(logistic):
    with pytest.raises(jo.InputError, match=r"task.init_scale must be finite and ≥ 0, got -1"):
        bad = logistic.replace(init_scale=-1.0)
        jo.simulate(KEY, jo.fedavg(0.1, 1), jo.Channel(), bad, 1, 1)


def test_a_task_of_ones_own_is_held_to_the_names_too(logistic):
    bad = logistic.replace(evaluate=lambda *_: {"participants": 1.0})
    with pytest.raises(jo.InputError, match="task must not name a score 'participants'"):
        jo.simulate(KEY, jo.fedavg(0.1, 1), jo.Channel(), bad, 1, 1)
