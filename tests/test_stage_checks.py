"""A researcher's slips in parts of their own: each is one line that names field, fix and kind."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo

KEY = jax.random.key(0)
TASK = jo.tasks.synthetic_regression(KEY, users=3, samples=5, dim=4)
ONES = jo.Link(jnp.ones(3), jnp.ones(3), jnp.ones(3), jnp.float32(1.0))
# Of each stage its path, the name of its protocol, and a part that works.
STAGES = {
    "estimate": ("algorithm.estimate", "Estimator"),
    "precode": ("algorithm.precode", "Precoder"),
    "compress": ("algorithm.compress", "Compressor"),
    "server": ("algorithm.server", "Server"),
    "medium": ("algorithm.medium", "Medium"),
    "local": ("algorithm.local", "LocalRule"),
    "noise": ("channel.noise", "Noise"),
    "fading": ("channel.fading", "Fades"),
    "law": ("channel.fading.law", "Law"),
    "answer": ("channel.fading.answer", "Answer"),
    "task": ("task", "Task"),
}


def _zeros(users, dim):
    return jo.LocalUpdate(jnp.zeros((users, dim)))


PROBLEM = {
    "users": 3,
    "dim": 4,
    "counts": jnp.full(3, 5),
    "strong_convexity": 0.0,
    "init": lambda self, key: jnp.zeros(4),
    "gradient": lambda self, model, user, samples: model,
    "full_gradient": lambda self, model, user: model,
    "score": lambda self, model: {"size": jnp.sum(model**2)},
    "head": lambda self: self,
}
WORKING = {
    "estimate": {
        "needs": (),
        "start": lambda self, dim: None,
        "__call__": lambda self, received, deviation, block, link, memory: (received, memory),
    },
    "precode": {"needs": (), "energy": lambda self, block: jnp.max(block.energies)},
    "compress": {
        "white": True,
        "start": lambda self, users, dim: jnp.zeros(users),
        "report": lambda self, values, memory: {},
        "encode": lambda self, values, memory, side: (values, memory),
        "decode": lambda self, received, deviation, link, side, dim: (received, deviation),
        "remember": lambda self, before, after, heard: after,
    },
    "server": {
        "start": lambda self, model: None,
        "answer": lambda self, memory, reports, noise, link: None,
        "choose": lambda self, memory, reports, noise, link: None,
        "__call__": lambda self, seen, state: (seen.estimate, state.server),
        "output": lambda self, model, memory: model,
    },
    "medium": {"__call__": lambda self, channel: channel},
    "local": {
        "controlled": False,
        "steps": 2,
        "draws": 2,
        "reach": 0.02,
        "start": lambda self, key, problem, model: (None, None),
        "__call__": lambda self, key, other, problem, state: _zeros(problem.users, problem.dim),
        "remember": jo.if_heard,
    },
    "noise": {"gaussian": True, "draw": lambda self, key, shape: jnp.ones(shape)},
    "fading": {
        "start": lambda self, key, users: None,
        "links": lambda self, keys, amplitudes, memory, noise: (ONES, ONES, memory),
    },
    "law": {
        "start": lambda self, key, shape: None,
        "draw": lambda self, key, fresh, memory: (fresh, memory),
    },
    "answer": {"__call__": lambda self, block, gains, estimates, noise: ONES},
    "task": {
        "users": 3,
        "dim": 4,
        "problem": lambda self, trial: _made("Problem", PROBLEM)(),
        "floats_per_trial": lambda self, batch: 100,
    },
}

OPTIONAL = {
    "estimate": ("start",),
    "compress": ("start", "report", "remember"),
    "server": ("start", "answer", "choose", "output"),
    "local": ("start", "remember"),
    "fading": ("start",),
    "law": ("start",),
}


def _made(name, members, decorate=jo.part):
    return decorate(type(name, (), dict(members)))


def _own(stage, lacks=(), decorate=jo.part, **changes):
    members = WORKING[stage] | changes
    return _made("Mine", {k: v for k, v in members.items() if k not in lacks}, decorate)


def _run(stage, part):
    algorithm, channel, task = jo.cotaf(1e-2, 2, 2, precode=jo.Online()), jo.Channel(), TASK
    if stage == "task":
        task = part
    elif stage in ("noise", "fading"):
        channel = channel.replace(**{stage: part})
    elif stage in ("law", "answer"):
        fading = {"law": jo.Fading(part)} if stage == "law" else {}
        channel = jo.Channel(fading=fading.get("law", jo.rayleigh(answer=part)))
    else:
        algorithm = algorithm.replace(**{stage: part})
    options = {"rounds": 2, "trials": 2, "calibration_trials": 3}
    return jo.simulate(KEY, algorithm, channel, task, **options)


def _said(stage, part):
    with pytest.raises(jo.InputError) as caught:
        _run(stage, part)
    words, (path, protocol) = str(caught.value), STAGES[stage]
    assert words.startswith(path) and "\n" not in words, words
    return words, f"; see jo.stages.{protocol}"


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_the_working_parts_run(stage):
    assert _run(stage, _own(stage)()).model.shape == (2, 4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", OPTIONAL)
def test_members_that_may_be_left_out(stage):
    """Parts without them run as those do whose members do nothing."""
    bare, whole = (_run(stage, _own(stage, lacks)()) for lacks in (OPTIONAL[stage], ()))
    np.testing.assert_array_equal(bare.model, whole.model)


@pytest.mark.parametrize("stage", STAGES)
def test_missing_and_wrong_members_are_refused(stage):
    for name, member in WORKING[stage].items():
        if name not in OPTIONAL.get(stage, ()):
            words, see = _said(stage, _own(stage, lacks=(name,))())
            assert words.endswith(f"got Mine(), which lacks {name}{see}")
        if callable(member):
            words, see = _said(stage, _own(stage, **{name: 3})())
            assert f".{name} must be a method that takes (" in words and words.endswith(see)
            words, see = _said(stage, _own(stage, **{name: lambda self: ()})())
            assert words.endswith(f"got one that takes (){see}")
        else:
            words, see = _said(stage, _own(stage, **{name: lambda self, member=member: member})())
            assert words.endswith(f"must be a value, got a method: put @property before it{see}")
            words, see = _said(stage, _own(stage, **{name: None})())
            assert words.startswith(f"{STAGES[stage][0]}.{name} must be ") and "None" in words


@pytest.mark.parametrize("stage", STAGES)
def test_values_that_are_no_parts_are_refused(stage):
    kind, (path, _) = "must be a part of its kind, such as jo.", STAGES[stage]
    kind = kind.removesuffix("jo.") if stage == "law" else kind
    for decorate in (lambda cls: cls, dataclasses.dataclass):
        words, see = _said(stage, _own(stage, decorate=decorate)())
        assert words.startswith(f"{path} {kind}")
        assert words.endswith(f"a Mine, which is no part: put @jo.part before its class{see}")
    words, see = _said(stage, _own(stage))
    assert words.endswith(f"got the class Mine itself: write Mine(...){see}")
    words, see = _said(stage, "mine")
    assert words.startswith(f"{path} {kind}") and words.endswith(f"got 'mine'{see}")


@pytest.mark.parametrize("needs", ["energy", ("energi",), None, (1,)])
def test_needs_are_names_of_moments(needs):
    for stage in ("estimate", "precode"):
        words, see = _said(stage, _own(stage, needs=needs)())
        assert ".needs must be a tuple of energy, mean, var, average_mean, average_var" in words
        assert words.endswith(see)


@pytest.mark.parametrize("name", ["energy", "peak", "mean", "average_var"])
def test_moments_that_are_read_must_be_in_needs(name):
    own = _own("precode", energy=lambda self, block: getattr(block.moments, name).max())
    with pytest.raises(jo.InputError, match=rf"^block\.moments\.{name} must be asked for: `needs"):
        _run("precode", own())


# Of each method that returns arrays what it must return, as the message says it.
RETURNS = {
    ("estimate", "start"): "memory, a pytree of arrays",
    ("estimate", "__call__"): "(array [d], memory)",
    ("precode", "energy"): "array [] or [user]",
    ("compress", "start"): "memory, arrays [user, …]",
    ("compress", "report"): "a dict",
    ("compress", "encode"): "(array [user, s], memory)",
    ("compress", "decode"): "(array [d], array [])",
    ("compress", "remember"): "memory like that of `start`, float32[3]",
    ("server", "__call__"): "(array [d], memory)",
    ("server", "output"): "array [d]",
    ("server", "choose"): "array [user]",
    ("local", "start"): "(array [d] or None, memory)",
    ("local", "__call__"): "a jo.LocalUpdate",
    ("local", "remember"): "memory like that of `start`, None",
    ("noise", "draw"): "array [*shape], shape = (4,)",
    ("fading", "links"): "(a jo.Link, a jo.Link, memory)",
    ("law", "draw"): "(array [2, *shape], memory)",
    ("answer", "__call__"): "a jo.Link",
}


@pytest.mark.parametrize(("stage", "name"), RETURNS, ids=" ".join)
def test_wrong_results_of_methods_are_refused(stage, name):
    """None, an array of a wrong shape, a pair of them, a text."""
    for value in (None, np.ones(7), (np.ones(7), np.ones(7)), "seven"):
        arrays = stage == "estimate" and not isinstance(value, str)
        if name == "start" and stage != "local" and (arrays or value is None):
            continue  # any memory
        if (stage, name) == ("local", "remember") and value is None:
            continue  # the memory that `start` gave
        if name == "choose" and value is None:
            continue  # all users
        words, see = _said(stage, _own(stage, **{name: lambda self, *told, value=value: value})())
        path = STAGES[stage][0] + (f".{name}" if name != "__call__" else "")
        wanted = RETURNS[stage, name]
        if isinstance(value, str) and "start" in name and stage == "compress":
            wanted = "memory, a pytree of arrays"
        start = f"{path}(...) must return {wanted}"
        if isinstance(value, tuple) and wanted.startswith("(array"):  # a pair, as it should be
            start = f"{path}(...)[0] must be "
        assert words.startswith(start), words
        assert words.endswith(see)


def test_memory_keeps_its_shape_and_type():
    grows = _own("estimate", __call__=lambda self, x, *told: (x, jnp.zeros(5)))
    words, _ = _said("estimate", grows())
    assert "(...)[1] must be memory like that of `start`, None, got float32[5]" in words
    counts = {"start": lambda self, model: jnp.int32(0)}
    words, _ = _said("server", _own("server", **counts, __call__=lambda self, seen, state: (
        seen.estimate, state.server + 0.5))())  # fmt: skip
    assert "memory like that of `start`, int32[], got float32[]" in words


def test_a_local_update_has_the_right_arrays():
    for work, words in (
        (_zeros(2, 4), "local(...).update must be array [user, d], user = 3, d = 4, got float32["),
        (
            _zeros(3, 4).replace(controls=jnp.zeros((3, 4))),
            "controls must be None, as `cont",
        ),
        (_zeros(3, 4).replace(reports={"norm": jnp.zeros(2)}), "reports['norm'] must be array [us"),
    ):
        own = _own("local", __call__=lambda self, *told, work=work: work)
        assert words in _said("local", own())[0]
    own = _own("local", controlled=True)
    assert "start(...)[0] must be array [d], as `controlled` is True" in _said("local", own())[0]


def test_links_have_the_right_arrays():
    wrong = ONES.replace(gain=jnp.ones(2))
    words, _ = _said("answer", _own("answer", __call__=lambda self, *told: wrong)())
    assert words.startswith("channel.fading.answer(...).gain must be array [user], user = 3, got")


def test_a_medium_returns_a_carrier():
    words, _ = _said("medium", _own("medium", __call__=lambda self, channel: None)())
    assert "got None, which lacks power, control_budget" in words
    assert words.endswith("see jo.stages.Carrier")


@pytest.mark.parametrize("name", PROBLEM)
def test_wrong_members_of_a_problem_are_refused(name):
    for changed in ({name: None}, {name: lambda self, *told: None}):
        made = _made("Problem", PROBLEM | changed)()
        if callable(PROBLEM[name]) or changed[name] is not None:
            own = _own("task", problem=lambda self, trial, made=made: made)()
            algorithm = jo.cotaf(1e-2, 2, None if name == "full_gradient" else 2)
            with pytest.raises(jo.InputError, match=rf"^task\.problem\(\.\.\.\)\.{name}") as caught:
                jo.simulate(KEY, algorithm, jo.Channel(), own, rounds=2, trials=2)
            assert "\n" not in str(caught.value)


def test_a_field_without_declaration_is_refused():
    @jo.part
    class Named:
        mode: str = "fast"
        needs, start, __call__ = (), jo.no_memory, jo.Identity.__call__

    words, _ = _said("estimate", Named())
    assert words.startswith("algorithm.estimate.mode must be declared: `mode: float = jo.traced(")


def test_a_check_takes_path_and_setting():
    words, _ = _said("estimate", _own("estimate", check=lambda self: None)())
    assert "check must be a method that takes (path, setting), got one that takes ()" in words


@pytest.mark.slow
def test_float32_whatever_jax_prefers():
    """A part whose memory and values are float64 under `jax_enable_x64` runs in float32."""
    double = {
        "start": lambda self, users, dim: jnp.zeros((users, dim)),
        "encode": lambda self, values, memory, side: (values + memory, 0.5 * memory),
    }
    jax.config.update("jax_enable_x64", True)
    try:
        assert _own("compress", **double)().start(3, 4).dtype == jnp.float64
        history = _run("compress", _own("compress", **double)())
    finally:
        jax.config.update("jax_enable_x64", False)
    assert {x.dtype for x in jax.tree.leaves(history)} == {jnp.dtype("float32")}
