"""Cohorts: where few users take part in a round, only these compute, and the numbers stay."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxota as jo
from jaxota import rounds
from jaxota._core import arguments, capacity

KEY, USERS, ROUNDS, TRIALS = jax.random.key(5), 8, 3, 2
LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 3}
SCALES = jnp.linspace(0.5, 2.0, USERS)
TASK = jo.tasks.synthetic_regression(jax.random.key(1), USERS, 10, 4)
FADING = jo.rayleigh(0.5, csi_error=0.05, correlation=0.5)
CHANNELS = {
    "drawn": jo.Channel(5.0, participants=3),
    "drawn and faded": jo.Channel(5.0, fading=FADING, gains=SCALES, participants=3),
}


@jo.part
class Halved:
    """A compressor whose users send half of what they have, and remember the other half."""

    white = cohorts = True
    decode, remember = jo.Uncompressed.decode, jo.stages.local.if_heard

    def start(self, users, dim):
        return jnp.zeros((users, dim))

    def encode(self, values, memory, side):
        total = values + memory
        return total / 2, total / 2


# Each runs on its cohort alone: precoders, estimators, memories of users, and servers.
ALONE = {
    "constant": jo.noisy_fedavg(**LOCAL),
    "offline": jo.cotaf(**LOCAL, clip=1.0),
    "bounded": jo.cotaf(**LOCAL, precode=jo.Bounded(30.0)),
    "MMSE": jo.cobaaf(**LOCAL),
    "on updates": jo.baaf(**LOCAL, estimate=jo.UpdateMMSE()),
    "reported": jo.cobaaf(**LOCAL, control_option=2, estimate=jo.ReportedMMSE()),
    "James-Stein": jo.cobaaf(**LOCAL, control_batch=2, warm_start=True, estimate=jo.JamesStein()),
    "epochs": jo.cotaf(1e-2, batch=4, epochs=1),
    "strongest": jo.cotaf(**LOCAL, server=jo.Strongest(2, "norm"), compress=jo.Centred()),
    "votes": jo.cotaf(**LOCAL, compress=jo.OneBit(0.01), server=jo.Adota(0.1)),
    "directions": jo.cotaf(**LOCAL, compress=jo.Directions(3)),
    "momentum": jo.cobaaf(**LOCAL).replace(
        local=jo.ControlVariateSGD(**LOCAL, transform=optax.trace(0.9), keep_momentum=True)
    ),
    "remainders": jo.cotaf(**LOCAL, compress=Halved()),
    "server": jo.Algorithm(
        jo.Proximal(**LOCAL, mu=0.1),
        jo.Offline(),
        jo.Identity(),
        server=jo.Optimizer(optax.adam(0.1)),
    ),
}
# Each asks all users for something, so that all compute.
TOGETHER = {
    "online": jo.cotaf(**LOCAL, precode=jo.Online()),
    "mean power": jo.cotaf(**LOCAL, precode=jo.MeanPower()),
    "pooled": jo.baaf(**LOCAL, estimate=jo.PooledMMSE()),
    "top-k": jo.cotaf(**LOCAL, compress=jo.TopK(0.5)),
    "WISE": jo.wise(**LOCAL),
    "error-free": jo.fedavg(**LOCAL),
}


@functools.cache
def _plan():
    """Any plan will do: its rows differ from user to user."""
    values = np.random.default_rng(0).uniform(0.5, 1.5, (7, ROUNDS, USERS)).astype("float32")
    names = "update_energy", "control_energy"
    energies = dict(zip(names, values[:2, :, 0], strict=True))
    by_user = "model_mean", "model_var", "control_mean", "control_var", "update_mean", "update_var"
    of_users = dict(zip(by_user, values[[2, 3, 4, 5, 6, 2]], strict=True))
    average = {f"average_{name}": values[0, :, 1] for name in ("mean", "var")}
    return jo.Plan(**energies, **of_users, **average)


def _run(algorithms, channel, task, cohort):
    """All algorithms in one program: histories, with powers of users and last states."""
    settings = [
        arguments.experiment(
            KEY, algorithm, channel, task, ROUNDS, TRIALS, _plan(), user_power=True, keep_state=True
        )
        for algorithm in algorithms.values()
    ]
    parts, options = settings[0]
    options = options._replace(cohort=cohort, chunk=TRIALS)

    @jax.jit
    def program(algorithms, plans, channel, task):
        run = KEY, parts["trials"], algorithms, channel, task, plans, None
        return rounds.run_all(options, *run)

    resolved = tuple(values["algorithm"] for values, _ in settings)
    plans = tuple(values["plan"] for values, _ in settings)
    histories = program(resolved, plans, parts["channel"], parts["task"])
    return dict(zip(algorithms, histories, strict=True))


def _assert_equal(own, all_users):
    for value, wanted in zip(jax.tree.leaves(own), jax.tree.leaves(all_users), strict=True):
        scale = np.abs(np.asarray(wanted, float)).max()
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANNELS)
def test_a_cohort_computes_what_all_users_compute(name):
    """Every rule that supports it, with its memory, powers and ledgers, to rounding."""
    task = TASK if name == "drawn" else jo.tasks.weighted(TASK, SCALES)
    of_cohort, of_all = (_run(ALONE, CHANNELS[name], task, size) for size in (3, None))
    for algorithm in ALONE:
        _assert_equal(of_cohort[algorithm], of_all[algorithm])


def test_rules_that_ask_all_users_say_so():
    assert all(algorithm.cohorts for algorithm in ALONE.values())
    assert not any(algorithm.cohorts for algorithm in TOGETHER.values())


def test_cohorts_of_nearly_one_size_share_a_program():
    sizes = {s: jo.Channel(participants=s).cohort_size(10**6) for s in (1, 2, 7, 10, 33, 1000)}
    assert sizes == {1: 1, 2: 2, 7: 7, 10: 10, 33: 40, 1000: 1024}
    assert jo.Channel().cohort_size(9) is None
    assert jo.Channel(participants=np.array([2, 5, 3])).cohort_size(9) == 5
    # A cohort of all is no cohort.
    assert [jo.Channel(participants=s).cohort_size(9) for s in (8, 9)] == [8, None]


def test_simulate_and_sweep_compute_cohorts(monkeypatch):
    """Their numbers are those of all users, and the memory that they ask for follows S."""
    algorithm, seen = jo.cotaf(**LOCAL, precode=jo.Constant(1.0)), []
    whole = rounds.one_round

    def spied(*values):
        seen.append(values[-1])
        return whole(*values)

    monkeypatch.setattr(rounds, "one_round", spied)
    run = KEY, algorithm, jo.Channel(participants=jnp.array([2, 3])), TASK, 2, 2
    swept = jo.sweep(*run)
    assert set(seen) == {3} and (swept.participants == jnp.array([2, 3])[:, None, None]).all()
    monkeypatch.setattr(jo.Channel, "cohort_size", lambda channel, users: None)
    _assert_equal(swept, jo.sweep(*run))
    many = jo.tasks.synthetic_regression(KEY, 10_000, 2, 1000)
    few, all_users = (capacity.bytes_per_trial((algorithm,), many, 1, s) for s in (10, None))
    assert few < 0.3 * all_users


def _init(key):
    return {"w": 0.1 * jax.random.normal(key, (4,))}


def _loss(parameters, batch):
    return batch["sign"] * (batch["x"] @ parameters["w"] - batch["label"]) ** 2


def _samples(key, user):
    x = jax.random.normal(key, (6, 4)) + user / USERS
    return {"x": x, "label": jnp.arange(6), "sign": x[:, 0] > -1.0}


@pytest.mark.parametrize("participants", [3, None])
def test_generated_data_are_those_of_stored_users(participants):
    """In cohorts and with all users, with weights, calibration and scores over several blocks."""
    generated = jo.tasks.generated(3, USERS, _init, _loss, _samples)
    keys = jax.vmap(lambda user: jax.random.fold_in(jax.random.key(3), user))(jnp.arange(USERS))
    samples = jax.tree.map(np.asarray, jax.vmap(_samples)(keys, jnp.arange(USERS)))
    stored = jo.tasks.empirical(_init, _loss, samples)
    channel = jo.Channel(participants=participants)
    run = jo.cotaf(1e-2, 2, 3), channel
    own, wanted = (
        jo.simulate(KEY, *run, jo.tasks.weighted(task, SCALES), 2, 2, calibration_trials=2)
        for task in (generated, stored)
    )
    _assert_equal(own, wanted)


def test_few_users_may_be_scored():
    model = jnp.arange(4.0)
    task = jo.tasks.generated(3, USERS, _init, _loss, _samples, scored=3)
    keys = jax.vmap(lambda user: jax.random.fold_in(jax.random.key(3), user))(jnp.arange(3))
    wanted = _loss({"w": model}, jax.vmap(_samples)(keys, jnp.arange(3))).mean()
    np.testing.assert_allclose(task.score(model)["loss"], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": lambda key, user: jnp.ones(())}, "data must make arrays"),
        ({"data": lambda key, user: jnp.ones((3, 4), "int8")}, "data must make arrays"),
        ({"data": lambda key: jnp.ones((3, 4))}, "data must make samples of a random key"),
        ({"scored": 9}, "task.scored must be ≤ users = 8, got 9"),
        ({"test_data": jnp.ones(3)}, "test_data must come with evaluate"),
    ],
)
def test_bad_functions_are_refused_in_a_line(change, message):
    functions = {"init": _init, "loss": _loss, "data": _samples} | change
    with pytest.raises(jo.InputError, match=message):
        task = jo.tasks.generated(3, USERS, **functions)
        jo.simulate(KEY, jo.fedavg(**LOCAL), jo.Channel(), task, 1, 1)
