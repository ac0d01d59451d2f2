"""What the fuzz gives to every public function: a good call each, and by argument what is bad."""

import functools
import inspect
from typing import NamedTuple

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxota as jo
from jaxota import plots, stats, theory

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3


class Opaque:
    def __repr__(self):
        raise RuntimeError("no words for it")


# By kinds: what no argument of that kind can be.
WORDS = ["", "x", "1.0", b"1", ["a"], np.array(["1"]), {"a": 1}]
ODD = [object(), Opaque(), Opaque, len, lambda: 0, ..., np.datetime64(0, "s"), KEY, {1.0}]
ODD += [np.array([None]), np.array([{}], object), [[1.0, 2.0], [3.0]], [None], range]
COMPLEX = [1j, np.complex64(1), [1j], np.array([1j]), jnp.ones(2, complex)]
FLAGS = [True, np.True_, [True], np.array([False])]
NAN = [np.nan, np.inf, -np.inf, np.float32(np.nan), 1e39, jnp.float32(np.nan)]
HUGE = [10**30, 10**5000, 2**31, 2**63]
SHAPES = [[], [[]], np.ones((0, 3)), np.ones((7, 5)), np.ones((2, 2, 2, 2, 2)), [[1.0], [2.0]]]
NOT_NUMBERS = [None, *WORDS, *ODD, *COMPLEX, *FLAGS]
FEW_PARTS = [None, 3, 0.5, *WORDS, *ODD, 1j, np.ones(3), jo.Online, jo.Channel, jo.cobaaf]


class Kind(NamedTuple):
    junk: list
    made: st.SearchStrategy = st.text()  # what hypothesis makes up


def numbers(*more, made=()):
    odd = st.text() | st.binary() | st.complex_numbers() | st.lists(st.text(), min_size=1)
    return Kind(
        [*NOT_NUMBERS, *SHAPES, *more], functools.reduce(st.SearchStrategy.__or__, made, odd)
    )


BELOW = st.floats(max_value=-1e-3) | st.integers(max_value=-1)
FRACTIONS = st.floats().filter(lambda x: x != int(x) if np.isfinite(x) else True)
positive = numbers(*NAN, 0, -0.0, 0.0, -1, 1e-40, 1e-320, [0.1, 0.2], made=[BELOW])
at_least_0 = numbers(*NAN, -1, [0.1, 0.2], made=[BELOW])
count = numbers(*NAN, *HUGE, 0, -1, 1.0, 1.5, [3], np.ones(2), made=[BELOW, FRACTIONS])


def optional(kind):
    """The kind of an argument that may be absent: `None` is no junk."""
    return Kind([x for x in kind.junk if x is not None], kind.made)


some = optional(count)
flag = Kind([None, *WORDS, *ODD, *COMPLEX, 2, -1, 0.5, np.nan, np.ones(2), [True]])
part = Kind(FEW_PARTS)
functions = Kind([x for x in NOT_NUMBERS[1:] if not isinstance(x, dict)] + [{"a": 1}, {1: len}])
words = Kind([None, 3, 0.5, *ODD, *COMPLEX, b"x", ["a"], {}], st.integers() | st.floats())
key = Kind(
    [None, -1, 2**32, 1.5, *WORDS, *ODD[:-8], *COMPLEX, np.ones(2), jax.random.split(KEY), "0"]
)
array = Kind([*NOT_NUMBERS[1:], *SHAPES, np.full((2, 3), np.nan), *NAN], st.text() | st.floats())
path = Kind([None, 3, *ODD, *COMPLEX, b"x", "a\0b", ".", "nowhere/at/all", ["a"]])


class Row(NamedTuple):
    call: object
    good: dict
    bad: dict  # by the name of an argument its kind


TASK = jo.tasks.regression(RNG.standard_normal((3, 6, 2)), RNG.standard_normal((3, 6)))
LOCAL = {"step_size": 0.1, "steps": 2, "batch": 2}
RUN = {"key": KEY, "algorithm": jo.cobaaf(**LOCAL), "channel": jo.Channel(), "task": TASK}
RUN |= {"rounds": 2, "trials": 2}
SCORES = {"gap": RNG.uniform(1, 2, (4, 2)), "loss": RNG.uniform(1, 2, (4, 2))}
HISTORY = jo.History(SCORES, power=np.ones((4, 2)), model=np.ones((4, 2)))
PLAN = jo.Plan(*(np.ones(2), np.ones((2, 3)), np.ones((2, 3))) * 2)
SWEPT = jo.grid(snr_db=[0, 10])


def run(**parts):
    return jo.simulate(**RUN | parts)


def fields(cls, **kinds):
    """Those that are not named are positive numbers."""
    return {name: kinds.get(name, positive) for name in inspect.signature(cls).parameters}


def of_plan(**changes):
    plan = {
        "update_energy": np.ones(2),
        "model_mean": np.ones((2, 3)),
        "model_var": np.ones((2, 3)),
    }
    return run(algorithm=jo.baaf(**LOCAL), plan=jo.Plan(**plan | changes))


def rows():
    large = Kind([*count.junk, 10**9], count.made)  # more than the memory of `stopped`
    counts = dict.fromkeys(("rounds", "trials", "calibration_trials"), large)
    parts = dict.fromkeys(("algorithm", "channel", "task"), part)
    every = Kind([*count.junk, 3], count.made)
    plan = optional(part)
    options = {"plan": None, "initial": None, "every": 1, "calibration_trials": 3}
    both = {"key": key, **parts, **counts, "plan": plan, "initial": array, "every": every}
    both |= {**dict.fromkeys(("user_power", "heard", "user_scores"), flag), "metrics": functions}
    found = {
        "jo.simulate": Row(jo.simulate, RUN | options, both),
        "jo.sweep": Row(
            jo.sweep, RUN | options | {"channel": jo.Channel([1.0, 2.0])}, both | {"over": part}
        ),
        "jo.sweep over": Row(
            functools.partial(jo.sweep, over=SWEPT),
            RUN | {"calibration_trials": 3},
            {"key": key, **parts, **counts, "every": every, "plan": plan},
        ),
        "jo.lower": Row(
            jo.lower,
            RUN | {"devices": jax.devices(), "every": 1, "calibration_trials": 3},
            {k: both[k] for k in ("key", *parts, *counts, "every", "user_power")}
            | {"devices": Kind([x for x in FEW_PARTS if x is not None] + [[], [3]])},
        ),
        "jo.calibrate": Row(
            jo.calibrate,
            {k: v for k, v in RUN.items() if k != "channel"},
            {"key": key, "algorithm": part, "task": part, "rounds": large, "trials": large}
            | {"initial": array},
        ),
        "jo.exact": Row(
            jo.exact,
            {k: v for k, v in RUN.items() if k not in ("key", "trials")},
            {**parts, "rounds": large, "plan": plan},
        ),
        "jo.exact_plan": Row(
            jo.exact_plan,
            {k: RUN[k] for k in ("algorithm", "task", "rounds")},
            {"algorithm": part, "task": part, "rounds": large},
        ),
        "jo.exact_best": Row(
            jo.exact_best,
            {k: v for k, v in RUN.items() if k not in ("key", "trials")}
            | {"algorithm": jo.cotaf(1e-2, 2)},
            {**parts, "rounds": large, "iterations": count},
        ),
        "theory.measure": Row(
            theory.measure,
            RUN,
            {"key": key, **parts, "trials": count, "plan": plan, "initial": array}
            | {"rounds": Kind([x for x in count.junk if not _is(x, [3])], count.made)},
        ),
        "theory.effective_noise": Row(
            theory.effective_noise,
            {k: v for k, v in RUN.items() if k not in ("key", "trials")} | {"plan": PLAN},
            {**parts, "rounds": count, "plan": part},
        ),
        "jo.Channel": Row(
            lambda **k: run(channel=jo.Channel(**k)),
            {},
            fields(jo.Channel, fading=part, gains=array, noise=part, snr_per=flag)
            | {"snr_db": numbers(np.nan, -np.inf, -300, -1e39, [1.0, 2.0])}
            | {"participants": Kind([x for x in some.junk if not _is(x, 1.0)] + [4, 1e10])}
            | {"control_power": optional(positive)},
        ),
        "jo.Plan": Row(
            of_plan,
            {},
            {
                "update_energy": numbers(*NAN, np.ones(3), -np.ones(2)),
                "model_mean": numbers(*NAN, np.ones((2, 4)), np.ones(2)),
                "model_var": numbers(np.nan, -np.ones((2, 3)), np.ones((3, 3))),
            },
        ),
        "jo.Optimizer": Row(
            lambda optimizer: run(algorithm=jo.cotaf(**LOCAL, server=jo.Optimizer(optimizer))),
            {"optimizer": optax.sgd(1.0)},
            {"optimizer": Kind([*FEW_PARTS, optax.identity(), optax.sgd, *_transformations(-1.0)])},
        ),
        "jo.Algorithm": Row(
            lambda **k: run(algorithm=jo.Algorithm(**k)),
            {"local": jo.SGD(0.1, 2), "precode": jo.Online(), "estimate": jo.Identity()},
            fields(jo.Algorithm, **dict.fromkeys(inspect.signature(jo.Algorithm).parameters, part)),
        ),
    }
    rule = {"step_size": positive, "steps": large, "batch": some, "control_batch": some}
    rule |= {"epochs": some, "clip": optional(numbers(np.nan, 0, -1, [1.0, 2.0])), "last": words}
    rule |= {"keep_momentum": flag}
    rule |= {"control_option": Kind([*count.junk, 3]), "warm_start": flag, "mu": at_least_0}
    rule |= {"transform": Kind([*FEW_PARTS, optax.sgd(1.0), optax.sgd, *_transformations(1.0)])}
    stage = {"precode": part, "estimate": part, "compress": part, "server": part}
    every = jo.fedavg, jo.scaffold, jo.noisy_fedavg, jo.cotaf, jo.baaf, jo.cobaaf, jo.feddyn
    for make in (*every, jo.wise):
        call = functools.partial(lambda make, **k: run(algorithm=make(**k)), make)
        found[f"jo.{make.__name__}"] = Row(call, LOCAL, fields(make, **rule | stage))
    for cls in (jo.SGD, jo.Proximal, jo.ControlVariateSGD, jo.DynamicSGD):
        call = functools.partial(lambda cls, **k: run(algorithm=_with(local=cls(**k))), cls)
        found[f"jo.{cls.__name__}"] = Row(call, LOCAL, fields(cls, **rule))
    paths = dict.fromkeys(("trusting", "striding", "gradients", "coded"), flag)
    paths["longest"] = numbers(np.nan, 0, -1, [1.0, 2.0])
    for cls, other in (
        (jo.PathCorrectedSGD, lambda part: {"local": part}),
        (jo.Clipped, lambda part: {"compress": part}),
        (jo.Centred, lambda part: {"compress": part}),
        (jo.Innovations, lambda part: {"server": part}),
        (jo.Whitening, lambda part: {"server": jo.Innovations(part)}),
        (jo.Fixed, lambda part: {"server": jo.Innovations(part)}),
        (jo.Switching, lambda part: {"server": jo.Innovations(average=part)}),
    ):
        call = functools.partial(_wise, cls, other)
        good = LOCAL if cls is jo.PathCorrectedSGD else {}
        kinds = fields(cls, **rule | paths, gain=part, average=part, rest=part)
        kinds |= {name: at_least_0 for name in ("rate", "leak") if name in kinds}
        if cls is jo.Fixed:
            kinds["gain"] = positive
        found[f"jo.{cls.__name__}"] = Row(call, good, kinds)
    share = numbers(*NAN, -1, 0, 1.1, [0.1, 0.2])
    index, memory = numbers(*NAN, -1, 0, 2.1, [1.0, 2.0]), numbers(*NAN, -1, 1.0, [0.1, 0.2])
    method = {"share": share, "alpha": index, "beta1": memory, "beta2": memory}
    method |= dict.fromkeys(("symbols", "iterations", "count", "groups"), count)
    method |= {"levels": Kind([*count.junk, 1], count.made), "of": words}
    for cls, good, field in (
        (jo.TopK, {"share": 0.5}, "compress"),
        (jo.OneBit, {"step": 0.5}, "compress"),
        (jo.Directions, {"count": 2}, "compress"),
        (jo.FrequencyShift, {"step": 0.5}, "compress"),
        (jo.TypeBased, {"levels": 3}, "compress"),
        (jo.Projected, {"symbols": 2, "share": 0.5}, "compress"),
        (jo.GroupMedian, {"groups": 2}, "compress"),
        (jo.NormBounded, {"bound": 1.0}, "compress"),
        (jo.Adota, {"step_size": 0.5}, "server"),
        (jo.DynamicServer, {}, "server"),
    ):
        call = functools.partial(
            lambda cls, field, **k: run(algorithm=jo.cotaf(**LOCAL).replace(**{field: cls(**k)})),
            *(cls, field),
        )
        found[f"jo.{cls.__name__}"] = Row(call, good, fields(cls, **method))
    found["jo.Liars"] = Row(
        lambda **k: run(algorithm=jo.cotaf(**LOCAL, compress=jo.Liars(**k))),
        {"count": 1},
        {"count": numbers(*NAN, -1, 1.5), "factor": numbers(*NAN, [1.0, 2.0]), "rest": part},
    )
    found["jo.Strongest"] = Row(
        lambda **k: run(algorithm=jo.cotaf(**LOCAL, server=jo.Strongest(**k))),
        {"count": 1},
        {"count": numbers(*NAN, -1, 0, 1.5), "by": words, "rest": part},
    )
    found["jo.Stop"] = Row(
        lambda **k: run(stop=jo.Stop(**k)),
        {"metric": "gap", "target": 1.0},
        {"metric": words, "rising": optional(flag), "every": some}
        | {"target": Kind([None, np.nan, *WORDS, *ODD, *COMPLEX, [1.0]])},
    )
    found["jo.cell"] = Row(
        lambda **k: run(channel=jo.Channel(fading=jo.rayleigh(), gains=jo.cell(**k))),
        {"key": 0, "users": 3},
        fields(jo.cell, key=key, users=Kind([*count.junk, 4], count.made), redraw=flag)
        | {"exponent": at_least_0, "shadowing_db": at_least_0, "reference": optional(positive)},
    )
    found["jo.Stable"] = Row(_stable, {"alpha": 1.5}, {"alpha": index})
    for cls, good in ((jo.Constant, {"gain": 1.0}), (jo.Bounded, {"bound": 1.0})):
        call = functools.partial(lambda cls, **k: run(algorithm=_with(precode=cls(**k))), cls)
        kinds = {name: optional(positive) if name == "gain" else positive for name in good}
        found[f"jo.{cls.__name__}"] = Row(call, good, kinds)
    faded = {
        "csi_error": at_least_0,
        "antennas": count,
        "carriers": count,
        "answer": Kind(FEW_PARTS[1:]),
    }
    faded |= {"correlation": numbers(*NAN, -1, 1.0, 2.0, [0.1, 0.2]), "law": part}
    faded |= {"mean_gain": optional(positive), "combiner": words, "gains": array, "each": words}
    faded |= {"k_factor": numbers(np.nan, -1, [1.0, 2.0]), "m": numbers(*NAN, 0, 0.4)}
    for make, good in (
        *((jo.rayleigh, {}), (jo.rician, {"k_factor": 3.0}), (jo.nakagami, {"m": 2.0})),
        *((jo.Inversion, {}), (jo.Fading, {"law": jo.rayleigh().law})),
        (jo.recorded, {"gains": np.ones((2, 3))}),
        *((jo.PhaseOnly, {}), (jo.OptimalPower, {}), (jo.UniformForcing, {}), (jo.Blind, {})),
    ):
        call = functools.partial(_faded, make)
        absent = dict.fromkeys(("threshold", "control_threshold"), optional(positive))
        kinds = fields(make, **faded | ({} if make is jo.Inversion else absent))
        if make is jo.Fading:
            kinds["answer"] = part
        found[f"jo.{make.__name__}"] = Row(call, good, kinds)
    return found | of_tasks() | of_theory() | of_results() | of_files()


def _faded(make, **given):
    fading = make(**given)
    return run(
        channel=jo.Channel(
            fading=fading if hasattr(fading, "links") else jo.rayleigh(answer=fading)
        )
    )


def _stable(**given):
    return run(algorithm=jo.cotaf(**LOCAL), channel=jo.Channel(noise=jo.Stable(**given)))


def _wise(cls, other, **given):
    return run(algorithm=jo.wise(**LOCAL).replace(**other(cls(**given))))


def _with(**parts):
    return jo.cobaaf(**LOCAL).replace(**parts)


def _is(value, other):
    return type(value) is type(other) and value == other


def _is_int(value, at_least):
    return type(value) is int and value >= at_least


def _transformations(sign):
    """Those that answer a gradient by what is none."""
    shapes = (lambda g: sign * g[:1], lambda g: sign * g[None], lambda g: g.sum(), lambda g: None)
    answers = *shapes, lambda g: g * np.nan, lambda g: "x", lambda g: g.astype(int), lambda g: 1 / 0
    return [
        optax.GradientTransformation(lambda _: (), lambda g, s, p=None, f=f: (f(g), s))
        for f in answers
    ] + [optax.GradientTransformation(None, None), optax.GradientTransformation(len, len)]


def of_tasks():
    def synthetic(**given):
        return run(task=jo.tasks.synthetic_regression(**{"key": KEY} | given))

    def partitioned(make, **given):
        own = {k: given.pop(k) for k in list(given) if k in inspect.signature(make).parameters}
        return make(**own)(**{"key": KEY, "labels": LABELS, "users": 2, "samples": 4} | given)

    x, y = RNG.uniform(size=(3, 6, 2)), RNG.integers(0, 2, (3, 6))
    pairs = [(x, y[:2]), (x, y + 5), (x, -y - 1), (x * 1j, y), (x, y * 1j), (x, y + 0.5), (x[0], y)]
    pairs += [(x * np.nan, y), (x, y * np.nan), ([], []), (x, None), (None, y), (x,), x, ("x", "y")]
    pairs += [(x.astype(str), y), (x, y.astype(str)), (x.astype(object), y), (x * 1e39, y)]
    pairs += [(x[:, :0], y[:, :0]), ([x[0], "x"], [y[0], y[0]])]
    data = Kind([*FEW_PARTS, *pairs])
    test = Kind([*FEW_PARTS, *((a[0], b[0]) for a, b in pairs[1:4]), (x, y), (x[0, :, :1], y[0])])
    label = Kind([*NOT_NUMBERS, [], np.ones((2, 2)), 3])
    sizes = {"users": count, "samples": count, "key": key}
    deal = sizes | {"labels": label, "replace": flag, "per_user": count, "at_least": count}
    deal |= {"share": numbers(*NAN, -0.1, 1.1), "alpha": numbers(*NAN[:-2], 0, -1, 1e-320)}
    folder = Kind([3, *ODD, b"x", "a\0b", ["a"], "nowhere"])
    functions = Kind([*FEW_PARTS[1:], lambda k: 1 / 0, lambda k: (), lambda k: "x", jnp.ones])
    made = {
        "tasks.synthetic_regression": Row(
            synthetic,
            {},
            fields(jo.tasks.synthetic_regression, key=key, redraw=flag, rotate=flag)
            | dict.fromkeys(("users", "samples", "dim"), Kind([*count.junk, 10**9], count.made))
            | {"data_spread": at_least_0, "model_spread": at_least_0},
        ),
        "tasks.weighted": Row(
            lambda **k: run(task=jo.tasks.weighted(**k)),
            {"task": TASK},
            {"task": part, "weights": Kind([*NOT_NUMBERS[1:], *SHAPES, *NAN, -np.ones(3)])},
        ),
        "tasks.generated": Row(
            lambda **k: run(task=jo.tasks.generated(**k)),
            {"key": KEY, "users": 3, "init": _zeros, "loss": _loss_of_made, "data": _made},
            {"key": key, "users": count, "scored": some, "test_data": Kind([3, object()])}
            | {"init": functions, "loss": functions, "data": functions},
        ),
        "tasks.regression": Row(
            jo.tasks.regression,
            {"features": x, "targets": x[..., 0]},
            {
                "features": Kind([*array.junk, x * 1j, x.astype(str), x * np.nan, x[:2], x[0]]),
                "targets": Kind([*array.junk, y * 1j, y.astype(str), y * np.nan, y[:2], y[0]]),
            },
        ),
        "tasks.classification": Row(
            lambda **k: run(task=jo.tasks.classification(**k)),
            {"module": nn.Dense(2), "data": (x, y), "test_data": (x[0], y[0])},
            {
                "module": Kind([*FEW_PARTS, nn.Dense, nn.Dense(0), nn.Dense("x"), nn.Dropout(0.5)]),
                "data": data,
                "test_data": test,
                "loss": Kind([*FEW_PARTS, lambda a, b: a.sum(), lambda a: a, jnp.sin]),
                "init_scale": optional(at_least_0),
            },
        ),
        "tasks.empirical": Row(
            lambda **k: run(task=jo.tasks.empirical(**k)),
            {"init": _zeros, "loss": _loss, "data": x},
            {
                "init": Kind([None, *functions.junk, lambda k: jnp.zeros(2, int), lambda k: None]),
                "loss": Kind([None, *functions.junk, lambda p, x: x.sum(), lambda p, x: x]),
                "data": Kind(
                    [*array.junk, None, x * 1j, x.astype(str), {}, [x[0], None], [[x]], ()]
                ),
                "evaluate": Kind([*functions.junk, lambda p: 3, lambda p: {"loss": 1.0}]),
                "test_data": Kind([3, "x", x * 1j]),
                "init_scale": optional(at_least_0),
            },
        ),
        "tasks.digits": Row(
            lambda **k: run(task=jo.tasks.digits(**{"key": KEY} | k)),
            {"users": 2, "samples": 4},
            sizes
            | {
                "partition": Kind([*FEW_PARTS, jo.tasks.iid, *_partitions()]),
                "module": Kind([x for x in FEW_PARTS if x is not None]),
                "init_scale": optional(at_least_0),
            },
        ),
        "tasks.mnist": Row(functools.partial(jo.tasks.mnist, KEY), None, {"data_dir": folder}),
        "tasks.emnist": Row(functools.partial(jo.tasks.emnist, KEY), None, {"config": words}),
    }
    for name in ("iid", "label_skew", "dirichlet", "shards", "quantity_skew"):
        make = getattr(jo.tasks, name)
        good = {"share": 0.2, "alpha": 1.0, "per_user": 2}
        own = inspect.signature(make).parameters
        made[f"tasks.{name}"] = Row(
            functools.partial(partitioned, make),
            {k: v for k, v in good.items() if k in own},
            {k: v for k, v in deal.items() if k in own or k in ("key", "labels", *sizes)},
        )
    for cls in (jo.tasks.MLP, jo.tasks.CNN, jo.tasks.SoftmaxRegression):
        image = np.ones((2, 3, 4, 4)), np.zeros((2, 3), int)
        made[f"tasks.{cls.__name__}"] = Row(
            functools.partial(_of_module, cls, image),
            {"classes": 2},
            {"classes": Kind([*count.junk, 1, 10**9])}
            | {n: Kind([*NOT_NUMBERS[1:], 3, [0], [-1], [1.5]]) for n in ("hidden", "channels")
               if hasattr(cls, n)},
        )  # fmt: skip
    return made


def _of_module(cls, image, **given):
    return run(task=jo.tasks.classification(cls(**given), image, (image[0][0], image[1][0])))


def _zeros(key):
    return jnp.zeros(2)


def _made(key, user):
    return {"x": jax.random.normal(key, (4, 2), "float32")}


def _loss_of_made(parameters, batch):
    return batch["x"] @ parameters


def _loss(parameters, batch):
    return batch @ parameters


def _loss_of_labels(parameters, batch):
    return batch["labels"] * parameters[0]


def _partitions():
    """Somebody's own, with faults."""
    given = (None, 3, [], [[0]], [[0], [-1]], [[0], [10**6]], [[0], [0.5]], [[0], []], ["a", "b"])
    given += ([[0], [[1]]], [[0], None], np.zeros((2, 0), int), [[0], [1], [2]], [[True], [False]])
    functions = [lambda *_, x=x: x for x in given]
    return [*functions, lambda key: 0, lambda *_: 1 / 0]


def of_theory():
    numbers_ = dict.fromkeys(inspect.signature(theory.Constants).parameters, 2.0) | {"gap": [2.0]}
    constants = theory.Constants(**numbers_)
    bad = {"constants": part, "rounds": numbers(*NAN, 0, 0.5, made=[BELOW])}
    bad |= {"step_size": Kind([x for x in at_least_0.junk if x is not None])}
    good = {"constants": constants, "rounds": 100.0}
    loose = Kind([x for x in NOT_NUMBERS if x is not None] + [*NAN, -1])
    made = {
        "theory.step_size": Row(
            theory.step_size, good, {"constants": part, "rounds": bad["rounds"], "theorem": part}
        ),
        "theory.weights": Row(
            theory.weights,
            {"contraction": 0.1, "rounds": 3},
            {"contraction": at_least_0, "rounds": count},
        ),
        "theory.weighted_average": Row(
            theory.weighted_average,
            {"models": np.ones((3, 2)), "contraction": 0.1},
            {"models": Kind([*array.junk, None, np.ones((1, 2))]), "contraction": at_least_0},
        ),
        "theory.proposition_1": Row(
            theory.proposition_1,
            {"noise": 1.0, "gain": 1.0, "variances": np.ones(3)},
            {
                "noise": numbers(np.nan, -1),
                "gain": numbers(*NAN, 0, -1),
                "variances": Kind([*array.junk, None, 3.0, [-1.0]]),
                "threshold": numbers(*NAN, 0, -1),
            },
        ),
        "theory.Constants": Row(
            lambda **k: theory.theorem_3(theory.Constants(**numbers_ | k), 100.0),
            {},
            dict.fromkeys(numbers_, loose),
        ),
    }
    for theorem in (theory.theorem_1, theory.theorem_2, theory.theorem_3):
        made[f"theory.{theorem.__name__}"] = Row(theorem, good, bad)
    for row in made.values():  # an array in the place of a number is good here
        for kind in row.bad.values():
            kind.junk[:] = [x for x in kind.junk if not _is_good_array(x)]
    return made


def _is_good_array(value):
    try:
        found = np.asarray(value)
        return found.dtype.kind == "f" and found.size and (found > 0).all() and found.max() < 1e30
    except Exception:
        return False


def of_results():
    study = {"algorithms": {"one": jo.cobaaf(**LOCAL)}, "channel": jo.Channel(), "task": TASK}
    study |= {"rounds": 2, "trials": 2}
    given = ("out", "resume", "memory", "shard", "executor", "report")

    def studied(**changes):
        own = {k: changes.pop(k) for k in given if k in changes}
        return jo.Study(**study | changes).run(**own)

    def gridded(**over):
        task = jo.tasks.synthetic_regression(KEY)
        return jo.sweep(**RUN | {"task": task}, over=jo.grid(**over))

    named = Kind([*FEW_PARTS, {}, {"a": 3}, {"a": None}, {3: HISTORY}, HISTORY, [HISTORY]])
    algorithms = Kind([*FEW_PARTS, {}, {3: jo.fedavg(0.1, 1)}, {"a": 3}, {"a": jo.fedavg}])
    shards = Kind([None, 3, "x", (1, 1), (-1, 2), (0, 0), (0, 1, 2), ("0", "1"), (0.0, 1.0), *ODD])
    names = Kind([*words.junk, "speed"])
    many = dict.fromkeys(("rounds", "trials", "every", "calibration_trials"), count)
    values = Kind([*NOT_NUMBERS, 3.0, *(x for x in SHAPES[1:]), [np.nan, 1.0], []])
    trials = Kind([*NOT_NUMBERS[:-2], 3.0, np.float32(1)])
    level = numbers(*NAN, 0, 1, 95, -0.5)
    return {
        "jo.Study": Row(
            studied,
            {},
            {**many, "algorithms": algorithms, "channel": part, "task": part, "over": part}
            | {"key": Kind([None, -1, 1.5, 2**32, 10**30, *WORDS, *ODD[:-8], *COMPLEX, np.ones(2)])}
            | {"keep": names, "reference": names, "metric": names, "name": words}
            | {
                "resume": flag,
                "memory": Kind([x for x in some.junk if not _is_int(x, 2)]),
                "shard": shards,
                "report": Kind([None, 3, "x"]),
            }
            | {"out": Kind([3, *ODD, b"x", "a\0b", ["a"]]), "executor": Kind([3, "x", *ODD])},
        ),
        "jo.grid": Row(
            gridded,
            {"snr_db": [1, 2]},
            {
                "snr_db": Kind(
                    [
                        *(x for x in NOT_NUMBERS if not isinstance(x, dict)),
                        3.0,
                        [],
                        [np.nan],
                        [-np.inf],
                        [1j],
                        ["x"],
                        [[1]],
                    ]
                ),
                "steps": Kind([None, 3, "x", [0], [None], [1.5], [2, 2], ["x"], [[1]], [10**30]]),
                "fading": Kind([None, 3, [3], ["x"], [jo.Online()], [jo.rayleigh], jo.rayleigh()]),
                "speed": Kind([None, 3, [3]]),
                "key": Kind([None, 3, ["x"], [None], [1.5], [-1], [10**30]]),
                "participants": Kind([None, [0], [21], [1.5], [np.inf], [10**30], ["x"]]),
                "algorithm": Kind([[jo.fedavg(0.1, 1)]]),
            },
        ),
        "stats.interval": Row(
            stats.interval, {"values": np.ones((4, 2))}, {"values": trials, "level": level}
        ),
        "stats.paired": Row(
            stats.paired,
            {"values": np.ones((4, 2)), "reference": np.ones((4, 2))},
            {"values": trials, "reference": Kind([*trials.junk, np.ones(3)]), "level": level},
        ),
        "stats.share": Row(
            stats.share,
            {"count": 3, "of": 5, "level": 0.95},
            {"count": Kind([*NOT_NUMBERS, -1, 6, 1.5]), "of": Kind([*NOT_NUMBERS, -1, 0, 2, 5.5])}
            | {"level": Kind([*NOT_NUMBERS, *NAN, 0, 1, -1, 95])},
        ),
        "stats.verdict": Row(
            stats.verdict,
            {"count": 3, "of": 5, "level": 0.95},
            {"count": Kind([*NOT_NUMBERS, -1, 6, 1.5]), "of": Kind([*NOT_NUMBERS, -1, 0, 2, 5.5])}
            | {"level": Kind([*NOT_NUMBERS, *NAN, 0, 1, -1, 95])},
        ),
        "stats.median": Row(
            stats.median,
            {"values": [1.0, 2.0, 3.0], "level": 0.95},
            {"values": Kind([*NOT_NUMBERS[: -len(FLAGS)], []])}
            | {"level": Kind([*NOT_NUMBERS, *NAN, 0, 1, -1, 95])},
        ),
        "stats.scores": Row(
            stats.scores,
            {"history": HISTORY, "metric": "gap"},
            {"history": part, "metric": Kind([*names.junk, "model"])},
        ),
        "stats.time_to": Row(
            stats.time_to,
            {"history": HISTORY, "target": 0.5},
            {"history": part, "metric": Kind([3, "speed", "model"]), "rising": optional(flag)}
            | {"target": Kind([None, "x", [1.0], np.nan, 1j])}
            | {"against": Kind([None, 3, "rounds", "joules", ["round"]])},
        ),
        "plots.curves": Row(
            plots.curves,
            {"histories": {"one": HISTORY}},
            {"histories": Kind([x for x in named.junk if x is not HISTORY])}
            | {"metric": optional(names), "title": words, "log": optional(flag)}
            | {"against": Kind([None, 3, "rounds", "joules", ["round"]])},
        ),
        "plots.panels": Row(
            plots.panels,
            {"groups": {"all": {"one": HISTORY}}},
            {"groups": Kind([*named.junk, {"a": {}}, {"a": {"b": 3}}]), "metric": optional(names)}
            | {"title": words, "log": optional(flag)},
        ),
        "plots.finals": Row(
            plots.finals,
            {
                "values": [1.0, 2.0],
                "histories": {"one": [HISTORY] * 2},
                "metric": "gap",
                "label": "x",
            },
            {"values": values, "histories": Kind([*named.junk, {"a": [HISTORY]}]), "metric": names}
            | {"label": words, "title": words},
        ),
        "plots.partition": Row(
            plots.partition,
            {
                "task": jo.tasks.empirical(
                    _zeros, _loss_of_labels, {"labels": LABELS.reshape(3, 20)}
                )
            },
            {"task": Kind([*FEW_PARTS, TASK]), "title": words},
        ),
    }


def of_files():
    plan = jo.Plan(np.ones(2), np.ones((2, 3)), np.ones((2, 3)))
    return {
        "jo.Plan.load": Row(jo.Plan.load, None, {"path": path}),
        "jo.Plan.save": Row(plan.save, None, {"path": Kind(path.junk[:-3])}),
        "jo.Plan of": Row(
            lambda **k: plan.replace(**k).save("plan.npz"),
            None,
            {"model_mean": Kind(NOT_NUMBERS[: -len(FLAGS)])},
        ),
        "jo.History.load": Row(jo.History.load, None, {"path": path}),
        "jo.History.save": Row(HISTORY.save, None, {"path": Kind(path.junk[:-3])}),
        "jo.open": Row(jo.open, None, {"folder": path}),
    }


ROWS = rows()
