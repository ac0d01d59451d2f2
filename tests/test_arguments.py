"""Bad input is one line that names the field and what is allowed."""

import functools
import gc
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxota as jo
from jaxota import simulation
from jaxota._core import arguments, capacity, inputs

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
GOOD = {"algorithm": jo.fedavg(**LOCAL), "channel": jo.Channel(), "rounds": 2, "trials": 2}


def _local(**changes):
    return {"algorithm": jo.cobaaf(**LOCAL | changes)}


def _plan(rounds, users, **changes):
    each = np.ones((rounds, users))
    fields = {"update_energy": np.ones(rounds), "model_mean": each, "model_var": each}
    return {"algorithm": jo.baaf(**LOCAL), "plan": jo.Plan(**fields | changes)}


def _answering(answer):
    return optax.GradientTransformation(lambda _: (), lambda g, s, p=None: (answer(g), s))


BAD = [
    (_local(steps=0), "algorithm.local.steps must be a whole number ≥ 1, got 0"),
    (_local(steps=2.5), "algorithm.local.steps must be a whole number ≥ 1, got 2.5"),
    (_local(steps=True), "algorithm.local.steps must be a whole number"),
    (_local(batch=0), "algorithm.local.batch must be a whole number ≥ 1"),
    (_local(control_batch=-1), "algorithm.local.control_batch must be a whole number ≥ 1"),
    (_local(control_option=3), "algorithm.local.control_option must be 1 or 2, got 3"),
    (_local(control_option=2, control_batch=4), "algorithm.local.control_batch must be None"),
    (_local(step_size=-0.1), "algorithm.local.step_size must be finite and > 0, got -0.1"),
    (_local(step_size=np.inf), "algorithm.local.step_size must be finite and > 0, got inf"),
    (_local(step_size="fast"), "algorithm.local.step_size must be a number or an array"),
    (_local(step_size=[0.1, 0.2]), "algorithm.local.step_size must be one value here"),
    (_local(precode=jo.Constant(-1.0)), "algorithm.precode.gain must be finite and > 0, got -1"),
    (_local(precode=jo.Bounded(0.0)), "algorithm.precode.bound must be finite and > 0, got 0"),
    (_local(precode="online"), "algorithm.precode must be a part of its kind, such as jo.Online()"),
    (_local(estimate=None), "algorithm.estimate must be a part of its kind, such as jo.MMSE()"),
    (_local(estimate=jo.JamesStein), "algorithm.estimate must be a part"),
    (_local(estimate=jo.Online()), "algorithm.estimate must be one such as jo.MMSE()"),
    (_local(precode=jo.MMSE()), "algorithm.precode must be one such as jo.Online()"),
    (_local(transform=optax.adam), "algorithm.local.transform must be an optax transformation"),
    (_local(transform=None), "algorithm.local.transform must be an optax transformation"),
    (
        {"algorithm": jo.fedavg(**LOCAL).replace(local=jo.Proximal(**LOCAL, mu=-1.0))},
        "algorithm.local.mu must be finite and ≥ 0, got -1",
    ),
    ({"algorithm": "cobaaf"}, "algorithm must be one such as jo.cobaaf(...)"),
    ({"algorithm": jo.cobaaf}, "algorithm must be one such as jo.cobaaf(...)"),
    ({"channel": jo.Channel(snr_db=np.nan)}, "channel.snr_db must be > -300, got nan"),
    ({"channel": jo.Channel(snr_db=-np.inf)}, "channel.snr_db must be > -300, got -inf"),
    ({"channel": jo.Channel(power=-1.0)}, "channel.power must be finite and > 0, got -1"),
    ({"channel": jo.Channel(control_power=0)}, "channel.control_power must be finite and > 0"),
    ({"channel": jo.Channel(snr_per="bit")}, "channel.snr_per must be 'vector' or 'symbol'"),
    ({"channel": 10.0}, "channel must be a jo.Channel(...)"),
    ({"rounds": 0}, "rounds must be a whole number ≥ 1, got 0"),
    ({"trials": -2}, "trials must be a whole number ≥ 1, got -2"),
    ({"trials": 2.0}, "trials must be a whole number ≥ 1, got 2.0"),
    ({"every": 3}, "every must be ≤ rounds = 2, got 3"),
    ({"every": 0}, "every must be a whole number ≥ 1"),
    ({"calibration_trials": 0}, "calibration_trials must be a whole number ≥ 1"),
    ({"key": 1.5}, "key must be a random key such as jax.random.key(0), or a seed such as 0"),
    ({"key": True}, "key must be a random key such as jax.random.key(0), or a seed such as 0"),
    ({"key": -1}, "key must be a whole number ≥ 0, got -1"),
    ({"key": 2**32}, "key must be a whole number ≤ 4294967295, got 4294967296"),
    ({"key": jax.random.split(jax.random.key(0))}, "key must be a random key"),
    ({"task": jo.tasks.synthetic_regression(0).replace(key=0.0)}, "task.key must be a random key"),
    ({"initial": "x"}, "initial must be a number or an array"),
    ({"initial": np.ones((2, 5))}, "initial must have shape [trials, d] = [2, 6], got [2, 5]"),
    ({"initial": np.ones(6)}, "initial must have shape [trials, d] = [2, 6], got [6]"),
    ({"initial": np.full((2, 6), np.nan)}, "initial must be finite"),
    (_plan(3, 4), "plan.update_energy must have shape [2] for rounds=2 and users=4, got [3]"),
    (_plan(1, 4), "plan.update_energy must have shape [2] for rounds=2 and users=4, got [1]"),
    (_plan(2, 5), "plan.model_mean must have shape [2, 4] for rounds=2 and users=4, got [2, 5]"),
    (
        _plan(2, 4, update_energy=np.array([1.0, -1.0])),
        "plan.update_energy must be finite and ≥ 0, got -1",
    ),
    (_plan(2, 4, update_energy=np.array([1.0, np.inf])), "plan.update_energy must be finite"),
    (
        _plan(2, 4, model_mean=np.full((2, 4), np.nan)),
        "plan.model_mean must be a number, got nan: its calibration diverged",
    ),
    (_plan(2, 4) | _local(), "plan.control_energy must be given for this algorithm"),
    (
        _plan(2, 4) | {"algorithm": jo.baaf(**LOCAL, estimate=jo.PooledMMSE())},
        "plan.average_mean must be given for this algorithm",
    ),
    ({"algorithm": jo.baaf(**LOCAL), "plan": {}}, "plan must be a jo.Plan"),
    (_plan(2, 4, update_energy="much"), "plan.update_energy must be a number or an array"),
    (_plan(2, 4, model_mean=[["a"]]), "plan.model_mean must be a number or an array"),
    ({"task": np.ones((2, 3))}, "task must be a part of its kind, such as jo.tasks.synthetic"),
    ({"task": type(jo.tasks.synthetic_regression(0))}, "task must be a part of its kind, such as"),
    (_local(steps=None), "algorithm.local.steps must be given, or epochs, got None"),
    (_local(step_size=True), "algorithm.local.step_size must be a number or an array, got True"),
    (_local(step_size=1j), "algorithm.local.step_size must be a number or an array, got 1j"),
    (_local(step_size=1e-40), "algorithm.local.step_size must be ≥ 1.2e-38, the least that a"),
    (_local(warm_start=np.ones(2)), "algorithm.local.warm_start must be False or True"),
    (_local(steps=10**5000), "algorithm.local.steps must be a whole number ≤ 2147483647, got too"),
    (_local(steps=10**9), "rounds, or users × steps × batch, must be smaller: one trial of 2 "),
    (_local(batch=10**9), "rounds, or users × steps × batch, must be smaller: one trial of 2 "),
    (
        {"channel": jo.Channel(participants=np.inf)},
        "channel.participants must be whole and no more than 2147483647, got inf",
    ),
    (
        {"trials": 10**11},
        "trials must be smaller: 100000000000 trials of 2 rounds would take 12 TB of "
        "memory, and this machine has 17.2 GB",
    ),
    ({"trials": 10**30}, "trials must be smaller: 1000000000000000000000000000000 trials of 2"),
    ({"rounds": 10**9}, "rounds, or users × steps × batch, must be smaller: one trial of 10000"),
    (
        {"algorithm": jo.cotaf(**LOCAL), "calibration_trials": 10**11},
        "calibration_trials must be smaller: 100000000000 runs of 2 rounds would take 11",
    ),
    ({"user_power": "yes"}, "user_power must be False or True, got 'yes'"),
    (_plan(2, 4, update_energy=np.array(["1", "2"])), "plan.update_energy must be a number or an"),
    (_local(transform=_answering(lambda g: g[:1])), "algorithm.local.transform must answer a grad"),
    (_local(transform=_answering(lambda g: g * np.nan)), "algorithm.local.transform must answer a"),
    (_local(transform=_answering(lambda g: 1 / 0)), "algorithm.local.transform must answer a grad"),
    (_local(server=_answering(lambda g: -g[None])), "algorithm.server must answer a gradient floa"),
    (_local(transform=optax.sgd(1.0)), "algorithm.local.transform must not point against the"),
    (_local(transform=optax.adam(1e-3)), "algorithm.local.transform must not point against the"),
    (_local(server=optax.scale_by_adam()), "algorithm.server must point downhill"),
    (_local(server=optax.identity()), "algorithm.server must point downhill"),
    (_local(server=3), "algorithm.server must be a part of its kind, such as jo.ReplaceModel()"),
    (
        _local(server=jo.MMSE()),
        "algorithm.server.__call__ must be a method that takes (aggregate, state)",
    ),
    (_local(compress=jo.Online()), "algorithm.compress must be one such as jo.Uncompressed()"),
    ({"channel": jo.Channel(noise=jo.Online())}, "channel.noise must be one such as jo.Gaussian()"),
    (
        {"channel": jo.Channel(fading=jo.rayleigh(answer=jo.Gaussian()))},
        "channel.fading.answer must be one such as jo.Inversion()",
    ),
    (
        {"channel": jo.Channel(fading=jo.Fading(jo.Online()))},
        "channel.fading.law must be one such as that of jo.rayleigh()",
    ),
    (
        {"channel": jo.Channel(fading=jo.rayleigh(antennas=2))},
        "channel.fading.answer must combine 2 antennas",
    ),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[words[:60] for _, words in BAD])
def test_bad_input_is_one_clear_line(task, changes, words, monkeypatch):
    monkeypatch.setattr(capacity, "device_memory", lambda: None)
    monkeypatch.setattr(capacity, "machine_memory", lambda: 2**34)
    call = {"key": jax.random.key(0), "task": task} | GOOD | changes
    with pytest.raises(jo.InputError) as caught:
        jo.simulate(**call)
    assert str(caught.value).startswith(words), str(caught.value)
    assert "\n" not in str(caught.value)


KEYWORDS = [
    (lambda: jo.cotaf(lr=0.1, steps=2), "cotaf", "lr", "did you mean step_size?"),
    (lambda: jo.cobaaf(learning_rate=0.1), "cobaaf", "learning_rate", "did you mean step_size?"),
    (lambda: jo.fedavg(0.1, local_steps=2), "fedavg", "local_steps", "did you mean steps?"),
    (lambda: jo.baaf(0.1, 2, batch_size=5), "baaf", "batch_size", "did you mean batch?"),
    (lambda: jo.Channel(snr=10), "Channel", "snr", "did you mean snr_db?"),
    (lambda: jo.Channel().replace(SNR=10), "Channel", "SNR", "did you mean snr_db?"),
    (lambda: jo.SGD(0.1, 2, eta=3), "SGD", "eta", "did you mean step_size?"),
    (lambda: jo.simulate(num_rounds=3), "simulate", "num_rounds", "did you mean rounds?"),
    (lambda: jo.sweep(seed=3), "sweep", "seed", "did you mean key?"),
    (lambda: jo.calibrate(runs=3), "calibrate", "runs", "did you mean trials?"),
    (lambda: jo.Constant(zzz=3), "Constant", "zzz", "it takes gain"),
    (lambda: jo.Online(zzz=3), "Online", "zzz", "it takes none"),
]


@pytest.mark.parametrize(("call", "name", "keyword", "hint"), KEYWORDS, ids=lambda x: str(x)[:15])
def test_an_unknown_keyword_is_told_the_right_one(call, name, keyword, hint):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == f"{name}() has no argument {keyword}: {hint}"


def test_signatures_are_those_of_the_definitions():
    assert list(inspect.signature(jo.cotaf).parameters)[:3] == ["step_size", "steps", "batch"]
    assert list(inspect.signature(jo.Constant).parameters) == ["gain"]
    assert inspect.signature(jo.simulate).parameters["plan"].kind.name == "KEYWORD_ONLY"


@pytest.mark.slow
def test_an_int_is_a_seed(task):
    """`simulate`, `sweep` and `calibrate` take n for `jax.random.key(n)`, and so does a task."""
    cotaf = jo.cotaf(**LOCAL)
    swept = jo.Channel(snr_db=[1.0, 2.0])
    for call in (
        lambda key: jo.simulate(key, cotaf, jo.Channel(), task, 2, 2, calibration_trials=3),
        lambda key: jo.sweep(key, cotaf, swept, task, 2, 2, calibration_trials=3),
        lambda key: jo.calibrate(key, cotaf, task, 2, 3),
        lambda key: jo.simulate(
            0, jo.fedavg(**LOCAL), jo.Channel(), jo.tasks.synthetic_regression(key, 3, 5, 2), 2, 2
        ),
    ):
        for seed in (7, np.int64(7)):
            pairs = zip(*map(jax.tree.leaves, (call(seed), call(jax.random.key(7)))), strict=True)
            assert all((one == other).all() for one, other in pairs)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_spread": -0.1}, "task.data_spread must be finite and ≥ 0, got -0.1"),
        ({"model_spread": np.nan}, "task.model_spread must be finite and ≥ 0, got nan"),
        ({"users": 0}, "task.users must be a whole number ≥ 1"),
        ({"users": None}, "task.users must be a whole number ≥ 1, got None"),
        ({"users": 10**9}, "task.users × samples × dim must be smaller: data of 1000000000 × 100"),
        ({"samples": 10**9}, "task.users × samples × dim must be smaller: data of 20 × 100000000"),
        ({"dim": 10**9}, "task.users × samples × dim must be smaller: data of 20 × 100 × 1000000"),
        ({"dim": 10**30}, "task.dim must be a whole number ≤ 2147483647, got 1000"),
        ({"samples": 0}, "task.samples must be a whole number ≥ 1"),
        ({"dim": 1.5}, "task.dim must be a whole number ≥ 1"),
    ],
)
def test_bad_synthetic_tasks(changes, words):
    task = jo.tasks.synthetic_regression(jax.random.key(0), **changes)
    for call in (
        lambda: jo.simulate(jax.random.key(0), GOOD["algorithm"], jo.Channel(), task, 2, 2),
        lambda: jo.calibrate(jax.random.key(0), GOOD["algorithm"], task, 2, 2),
        lambda: jo.sweep(jax.random.key(0), GOOD["algorithm"], jo.Channel([1, 2]), task, 2, 2),
    ):
        with pytest.raises(jo.InputError) as caught:
            call()
        assert str(caught.value).startswith(words), str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [{}, {"user_power": True}, {"heard": True}])
def test_memory_of_results_is_estimated_exactly(task, monkeypatch, kept):
    """But for the scores, of which one is counted, and what a trial takes while it runs."""
    said = []
    monkeypatch.setattr(capacity, "refuse_memory", lambda names, what, taken: said.append(taken))
    for algorithm in (jo.fedavg(**LOCAL), jo.scaffold(**LOCAL)):
        run = jax.random.key(0), algorithm, jo.Channel(), task, 3, 5
        values, options = arguments.experiment(*run, **kept)
        found = simulation.program.lower(options, **values).out_info
        taken = sum(4 * leaf.size for leaf in jax.tree.leaves(found))
        running = capacity.bytes_per_trial((algorithm,), task, 3)
        assert said[-1] - running == taken - 4 * found.gap.size


@pytest.mark.slow
def test_a_plan_that_is_not_needed_is_ignored(task):
    """An algorithm without controls takes a controlled plan; one without calibration any."""
    key = jax.random.key(0)
    plan = jo.calibrate(key, jo.cobaaf(**LOCAL), task, 2, 3)
    plain = plan.replace(control_energy=None, control_mean=None, control_var=None)
    run = functools.partial(jo.simulate, key, jo.baaf(**LOCAL), jo.Channel(), task, 2, 2)
    runs = [run(plan=p) for p in (plan, plain)]
    np.testing.assert_array_equal(runs[0].model, runs[1].model)
    jo.simulate(key, jo.fedavg(**LOCAL), jo.Channel(), task, 2, 2, plan=_plan(9, 9)["plan"])


def test_optimisers_are_tried_on_a_vector_of_the_models_length(task):
    """A transformation of one vector alone; weight decay and momentum point along the gradient."""
    mask, once = optax.scale(jnp.linspace(0.5, 1.0, task.dim)), arguments.Workload(1, 1, 1)
    for optimizer in (mask, optax.trace(0.9), optax.add_decayed_weights(0.1), optax.scale(0.0)):
        algorithm = jo.fedavg(**LOCAL, transform=optimizer)
        arguments.checked_setting(algorithm, jo.Channel(), task, once, 1)
    for server in (optax.sgd(1.0), optax.adam(0.1), optax.yogi(0.1), optax.sgd(0.1, 0.9)):
        algorithm = jo.cotaf(**LOCAL).replace(server=server)
        setting, _ = arguments.checked_setting(algorithm, jo.Channel(), task, once, 1)
        assert isinstance(setting.algorithm.server, jo.Optimizer)


@jo.part
class Shrink:
    """An estimator whose author forgot to declare its field."""

    factor: float

    needs = ()
    start = jo.no_memory

    def __call__(self, received, deviation, block, link, memory):
        return block.origin + self.factor * received, memory


def test_an_undeclared_field_is_told_how_to_declare_it(task):
    algorithm = jo.cotaf(**LOCAL, estimate=Shrink(0.5))
    with pytest.raises(jo.InputError, match=r"factor: float = jo.traced\(...\)` in its class"):
        jo.simulate(jax.random.key(0), algorithm, jo.Channel(), task, 1, 1)


def test_an_unknown_need_of_the_plan_is_refused(task):
    @jo.part
    class Median:
        needs = ("median",)
        start, __call__ = jo.no_memory, jo.MMSE.__call__

    with pytest.raises(
        jo.InputError,
        match=r"algorithm\.estimate\.needs must be a tuple of energy, .*, got 'median'",
    ):
        jo.simulate(
            jax.random.key(0), jo.baaf(**LOCAL, estimate=Median()), jo.Channel(), task, 1, 1
        )


def test_arrays_of_a_task_are_checked_once(arrays, monkeypatch):
    """Jax arrays never change: what was checked stays checked, until it is replaced."""
    looked, original = [], inputs.require

    def counted(path, host, *rest):
        looked.append(path)
        original(path, host, *rest)

    monkeypatch.setattr(inputs, "require", counted)
    task = jo.tasks.regression(*arrays)
    run = functools.partial(arguments.experiment, jax.random.key(0), jo.fedavg(**LOCAL))
    for _ in range(2):
        run(jo.Channel(), task, 1, 1)
    assert not [path for path in looked if path.startswith("task")]
    bad = task.replace(features=task.features.at[0, 0, 0].set(jnp.nan))
    with pytest.raises(jo.InputError, match=r"task\.features must be finite, got nan"):
        run(jo.Channel(), bad, 1, 1)
    known = len(inputs._valid)
    del task, bad
    gc.collect()
    assert len(inputs._valid) < known
