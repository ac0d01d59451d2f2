"""The package against its NumPy twin: exactly without noise, in the mean with it."""

import functools

import jax
import numpy as np
import optax
import pytest
import reference
from agree import assert_within

import jaxota as jo

STEPS, BATCH, STEP_SIZE = 3, 3, 1e-2
TRIALS = 300
PLAIN = {"step_size": STEP_SIZE, "steps": STEPS, "batch": BATCH, "controlled": False}
CONTROLLED = PLAIN | {"controlled": True}
PRECODERS = {
    "errorfree": None,
    "offline": jo.Offline(),
    "online": jo.Online(),
    "constant": jo.Constant(),
    "gain": jo.Constant(0.7),
    "bounded": jo.Bounded(40.0),
}
ESTIMATORS = {
    "identity": jo.Identity(),
    "mmse": jo.MMSE(),
    "reported": jo.ReportedMMSE(),
    "pooled": jo.PooledMMSE(),
    "updates": jo.UpdateMMSE(),
    "james_stein": jo.JamesStein(),
}
TWIN_PRECODERS = {
    "constant": ("constant", None),
    "gain": ("constant", 0.7),
    "bounded": ("bounded", 40.0),
}


def _algorithm(local, precode, estimate, **extra):
    options = {k: v for k, v in local.items() if k not in ("controlled", "transform", "mu")} | extra
    if "mu" in local:
        plain = {k: v for k, v in local.items() if k != "mu"}
        held = jo.Proximal(**options, mu=local["mu"])
        return _algorithm(plain, precode, estimate).replace(local=held)
    if precode == "errorfree":
        return (jo.scaffold if local["controlled"] else jo.fedavg)(**options)
    make = jo.cobaaf if local["controlled"] else jo.cotaf
    return make(**options, precode=PRECODERS[precode], estimate=ESTIMATORS[estimate])


def _twin(arrays, local, precode, estimate, channel, **options):
    return reference.simulate(
        np.random.default_rng(5),
        *arrays,
        local=local,
        precode=TWIN_PRECODERS.get(precode, (precode,)),
        estimate=estimate,
        channel=channel,
        **options,
    )


def _momentum():
    """optax.trace(0.5), in plain Python."""
    memory = 0.0

    def transform(direction):
        nonlocal memory
        memory = direction + 0.5 * memory
        return memory

    return transform


EXACT = {
    "fedavg": (PLAIN, {}),
    "fedprox": (PLAIN | {"mu": 30.0}, {}),
    "scaffold": (CONTROLLED, {}),
    "scaffold, option 2": (CONTROLLED | {"control_option": 2}, {}),
    "scaffold, warm": (CONTROLLED | {"warm_start": True}, {}),
    "fedavg, momentum": (PLAIN | {"transform": _momentum}, {"transform": optax.trace(0.5)}),
    "scaffold, momentum": (CONTROLLED | {"transform": _momentum}, {"transform": optax.trace(0.5)}),
}


@pytest.mark.parametrize("name", EXACT)
def test_noise_free_full_gradient_trajectories_are_equal(arrays, task, start, name):
    """30 rounds: models within 1e-5·max|θ|, gaps within 1e-3·(gap + 1e-3·initial gap)."""
    local, extra = EXACT[name]
    local, start = local | {"batch": None}, start[:4]
    options = {"rounds": 30, "trials": 4, "initial": start}
    ours = jo.simulate(
        jax.random.key(0),
        _algorithm(local, "errorfree", "identity", **extra),
        jo.Channel(),
        task,
        **options,
    )
    twin = _twin(arrays, local, "errorfree", "identity", {"snr_db": np.inf}, **options)
    for name in ("model", "average"):
        scale = np.abs(twin[name]).max()
        np.testing.assert_allclose(getattr(ours, name), twin[name], rtol=0, atol=1e-5 * scale)
    best, curvature = reference.optimum(*arrays)
    start_gap = np.einsum("td,de,te->t", start - best, curvature, start - best)[:, None]
    allowed = 1e-3 * (twin["gap"] + 1e-3 * start_gap)
    assert (np.abs(ours.gap - twin["gap"]) <= allowed).all()
    np.testing.assert_allclose(ours.loss, twin["loss"], rtol=1e-3)


def test_noise_free_full_gradient_calibration_is_equal(arrays, task, start):
    """From the same models both measure the same plan."""
    local = CONTROLLED | {"batch": None}
    ours = jo.calibrate(
        jax.random.key(0),
        _algorithm(local, "offline", "mmse"),
        task,
        rounds=5,
        trials=6,
        initial=start[:6],
    )
    twin = reference.calibrate(
        np.random.default_rng(0), *arrays, local=local, rounds=5, trials=6, initial=start[:6]
    )
    for name, expected in twin.items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            getattr(ours, name), expected, rtol=1e-3, atol=1e-5 * scale, err_msg=name
        )


MEAN = {
    "fedavg": (PLAIN, "errorfree", "identity", {}),
    "scaffold": (CONTROLLED, "errorfree", "identity", {}),
    "noisy FedAvg": (PLAIN, "constant", "identity", {}),
    "COTAF": (PLAIN, "offline", "identity", {}),
    "COTAF, proximal": (PLAIN | {"mu": 30.0}, "online", "identity", {}),
    "BAAF": (PLAIN, "offline", "mmse", {}),
    "COBAAF": (CONTROLLED, "offline", "mmse", {}),
    "COBAAF, online, reported": (CONTROLLED, "online", "reported", {}),
    "COBAAF, pooled": (CONTROLLED, "offline", "pooled", {}),
    "COBAAF, prior on updates": (CONTROLLED, "offline", "updates", {"control_power": 2.0}),
    "COBAAF, bounded, James-Stein": (CONTROLLED, "bounded", "james_stein", {}),
    "BAAF, given gain, per symbol": (PLAIN, "gain", "reported", {"snr_per": "symbol"}),
    "COBAAF, constant, budgets apart": (
        CONTROLLED,
        "constant",
        "mmse",
        {"power": 2.0, "control_power": 0.3},
    ),
    "COBAAF, control batch": (CONTROLLED | {"control_batch": 5}, "offline", "mmse", {}),
    "COBAAF, option 2": (CONTROLLED | {"control_option": 2}, "online", "identity", {}),
    "COBAAF, warm": (
        CONTROLLED | {"warm_start": True, "control_batch": 2},
        "online",
        "identity",
        {},
    ),
}


@pytest.fixture(scope="module")
def plans(arrays):
    """One plan for both sides, plain and controlled, so that only what follows is compared."""
    measure = functools.partial(reference.calibrate, rounds=8, trials=30)
    return [measure(np.random.default_rng(7), *arrays, local=x) for x in (PLAIN, CONTROLLED)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MEAN)
def test_means_agree_under_noise_and_minibatches(arrays, task, start, plans, name):
    """Gaps, losses, errors, powers: means over 300 trials within 4 computed standard errors."""
    local, precode, estimate, channel = MEAN[name]
    channel = {"snr_db": 3.0} | channel
    plan = plans[local["controlled"]]
    options = {"rounds": 8, "trials": TRIALS, "initial": start}
    ours = jo.simulate(
        jax.random.key(3),
        _algorithm(local, precode, estimate),
        jo.Channel(**channel),
        task,
        plan=jo.Plan(**{k: v for k, v in plan.items() if v is not None}),
        **options,
    )
    twin = _twin(arrays, local, precode, estimate, channel, plan=plan, **options)
    compared = ["gap", "loss", "error", "power"]
    if local["controlled"]:
        compared += ["control_error", "control_power"]
    for name in compared:
        values, expected = np.asarray(getattr(ours, name)), twin[name]
        same = np.isclose(values, expected, rtol=1e-4, atol=1e-9).all(0)  # what is not random
        assert_within(values[:, ~same], expected[:, ~same])
    np.testing.assert_array_equal(ours.participants, twin["participants"])
    assert_within(ours.average, twin["average"])


@pytest.mark.slow
def test_own_calibrations_agree_in_the_mean(arrays, task):
    """Plans measured on minibatches by both sides: means over repeated calibrations."""
    local, algorithm = CONTROLLED, _algorithm(CONTROLLED, "offline", "mmse")
    ours = [
        jo.calibrate(jax.random.key(seed), algorithm, task, rounds=4, trials=12)
        for seed in range(40)
    ]
    twin = [
        reference.calibrate(np.random.default_rng(seed), *arrays, local=local, rounds=4, trials=12)
        for seed in range(25)
    ]
    for name in twin[0]:
        values = np.stack([getattr(plan, name) for plan in ours])
        assert_within(values, np.stack([plan[name] for plan in twin]))
