"""The public surface: every name resolves, and its docstring explains every argument.

mypy checks this file too: annotations here must pass, as they would in a user's own program.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxota as jo
from jaxota import stages
from jaxota._core import stage_checks
from jaxota.stages.channel import Ideal
from jaxota.stages.fading import Nakagami, NoFading, Rayleigh, Rician

NAMESPACES = {"jo": jo, "tasks": jo.tasks, "theory": jo.theory, "stats": jo.stats}
NAMESPACES |= {"plots": jo.plots, "stages": jo.stages}
# Packages that show what their modules define; the others are modules themselves.
REEXPORTS = ("jaxota", "jaxota.tasks", "jaxota.theory", "jaxota.stages")
STUB = Path(jo.__file__).with_suffix(".pyi").read_text()


def public():
    """Every public function and class of the package by its name."""
    values = {}
    for place, module in NAMESPACES.items():
        for name in dir(module):
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            reexported = module.__name__ in REEXPORTS and home.startswith("jaxota")
            own = home == module.__name__ or reexported
            if not name.startswith("_") and callable(value) and own:
                values[f"{place}.{name}"] = value
    return values


PUBLIC = public()


def arguments(value) -> list[str]:
    """Parameters of a function, fields of a dataclass."""
    if not inspect.isclass(value):
        return list(inspect.signature(value).parameters)
    if not dataclasses.is_dataclass(value):
        return []
    return [f.name for f in dataclasses.fields(value) if f.name not in ("parent", "name")]


def explained(value) -> set[str]:
    """Names under `Args:` or `Attributes:` of a docstring, and, where it says that arguments are
    those of another function or class, the names that that one explains."""
    text = (inspect.getdoc(value) or "") + "\n"
    names = set()
    for section in re.findall(r"^(?:Args|Attributes):\n((?: {4}.*\n|\n)*)", text, re.M):
        for line in re.findall(r"^ {4}([a-z_][a-z_0-9, ]*): \S", section, re.M):
            names |= set(line.split(", "))
    for sentence in re.findall(r"those of (`\w+`(?:(?:,| and| and of) `\w+`)*)", text):
        for other in re.findall(r"`(\w+)`", sentence):
            place = sys.modules[value.__module__]
            names |= explained(getattr(place, other, None) or getattr(jo, other))
    for group, other in re.findall(r"^ *([a-z_, ]+): as of `(\w+)`", text, re.M):
        assert set(group.split(", ")) <= explained(getattr(sys.modules[value.__module__], other))
    return names


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_explained(name):
    value = PUBLIC[name]
    assert inspect.getdoc(value)
    missing = set(arguments(value)) - explained(value)
    assert not missing, f"{name} does not explain {sorted(missing)}"


def test_explained_arguments_are_read_from_their_section_alone():
    def one(x, y, z):
        """Words.

        z: not here.

        Args:
            x: a number, as in y: never.
                y: nor here.
        """

    assert explained(one) == {"x"}
    assert explained(jo.cobaaf) >= {"step_size", "batch", "warm_start", "precode", "server"}


def test_every_public_name_resolves():
    names = re.findall(r"import \w+ as (\w+)", STUB)
    assert len(names) > 40 and set(names) == set(dir(jo))
    for name in names:
        assert getattr(jo, name) is not None


def test_a_star_import_leaves_the_builtin_open_alone():
    names: dict[str, object] = {}
    exec("from jaxota import *", names)
    assert "open" not in names and names["simulate"] is jo.simulate
    assert callable(jo.open) and {*names} >= {*dir(jo)} - {"open"}


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (jo, "Rayleigh", "jaxota has no Rayleigh: did you mean rayleigh?"),
        (jo, "jamesstein", "jaxota has no jamesstein: did you mean JamesStein?"),
        (jo, "simulat", "jaxota has no simulat: did you mean simulate?"),
        (jo, "zzz", "jaxota has no zzz"),
        (jo, "__wrapped__", "jaxota has no __wrapped__"),
        (jo.tasks, "MNIST", "jaxota.tasks has no MNIST: did you mean mnist?"),
    ],
)
def test_an_unknown_name_is_told_the_nearest_one(module, name, message):
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == message


def test_experiments_are_named_without_what_is_slow_to_import():
    code = (
        "import sys, jaxota.cli.run, jaxota.figures;"
        "print({'flax', 'matplotlib', 'pandas', 'scipy.special', 'xarray'} & sys.modules.keys())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "set()", run.stderr


def test_functions_do_not_hide_modules():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("jaxota.simulate")
    for found in pkgutil.walk_packages(jo.__path__, "jaxota."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        parent, name = found.name.rsplit(".", 1)
        assert getattr(sys.modules[parent], name) is module, found.name


@pytest.mark.parametrize("function", [jo.simulate, jo.sweep, jo.calibrate, jo.theory.measure])
def test_options_are_named(function):
    parameters = list(inspect.signature(function).parameters.values())
    trials = [p.name for p in parameters].index("trials")
    assert parameters[trials + 1 :]
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[trials + 1 :])


def test_the_package_is_typed():
    assert (Path(jo.__file__).parent / "py.typed").is_file()


LOCAL: list[stages.LocalRule] = [jo.SGD(0.1, 1), jo.ControlVariateSGD(np.float32(0.1), 1)]
LOCAL += [jo.Proximal(0.1, 1, mu=[0.0, 0.5]), jo.PathCorrectedSGD(0.1, 1)]
LOCAL += [jo.DynamicSGD(0.1, 1, penalty=0.5)]
COMPRESSORS: list[stages.Compressor] = [jo.Uncompressed(), jo.Centred(jo.Clipped())]
COMPRESSORS += [jo.Clipped(leak=1.0), jo.TopK(0.1), jo.OneBit(0.1), jo.Directions(2)]
COMPRESSORS += [jo.Projected(5, share=0.2), jo.GroupMedian(2), jo.Liars(1)]
COMPRESSORS += [jo.NormBounded(1.0)]
COMPRESSORS += [jo.Unheard(), jo.FrequencyShift(0.1), jo.TypeBased(5)]
PRECODERS: list[stages.Precoder] = [jo.Offline(), jo.Online(), jo.Constant(), jo.Bounded(1.0)]
PRECODERS += [jo.Level(), jo.FullPower()]
FADING: list[stages.Fades] = [NoFading(), jo.rayleigh(), jo.rician(3.0), jo.nakagami(2.0)]
LAWS: list[stages.Law] = [Rayleigh(), Rician(3.0), Nakagami(2.0)]
NOISE: list[stages.Noise] = [jo.Gaussian(), jo.Laplace(), jo.Stable(1.5)]
ANSWERS: list[stages.Answer] = [jo.Inversion(), jo.PhaseOnly(), jo.OptimalPower()]
ANSWERS += [jo.UniformForcing(), jo.Blind()]
CARRIERS: list[stages.Carrier] = [jo.Channel(), Ideal()]
MEDIUMS: list[stages.Medium] = [jo.OverTheAir(), jo.ErrorFree(), jo.EnergyDetection()]
ESTIMATORS: list[stages.Estimator] = [jo.Identity(), jo.MMSE(), jo.ReportedMMSE()]
ESTIMATORS += [jo.PooledMMSE(), jo.UpdateMMSE(), jo.JamesStein()]
SERVERS: list[stages.Server] = [jo.ReplaceModel(), jo.Strongest(2), jo.Optimizer(optax.sgd(1.0))]
SERVERS += [
    jo.Adota(0.1),
    jo.DynamicServer(0.1),
    jo.Innovations(),
    jo.Innovations(jo.Fixed(0.5), jo.Last()),
]
TASKS: list[stages.Task] = [
    jo.tasks.synthetic_regression(jax.random.key(0)),
    jo.tasks.regression(np.ones((2, 5, 3)), [np.ones(5), np.ones(5)]),
    jo.tasks.empirical(lambda key: jnp.zeros(2), lambda p, x: x @ p, np.ones((2, 5, 2))),
]
PROBLEMS: list[stages.Problem] = [task.problem(0) for task in TASKS]
SHIPPED: list[tuple[type, Sequence[object]]] = [
    *((stages.LocalRule, LOCAL), (stages.Compressor, COMPRESSORS), (stages.Precoder, PRECODERS)),
    *((stages.Fades, FADING), (stages.Law, LAWS), (stages.Answer, ANSWERS), (stages.Noise, NOISE)),
    *((stages.Medium, MEDIUMS), (stages.Estimator, ESTIMATORS), (stages.Server, SERVERS)),
    *((stages.Carrier, CARRIERS), (stages.Task, TASKS), (stages.Problem, PROBLEMS)),
]


@pytest.mark.parametrize("protocol, parts", SHIPPED, ids=lambda x: getattr(x, "__name__", ""))
def test_shipped_parts_have_the_members_of_their_protocol(protocol, parts):
    members = [name for name in vars(protocol) if not name.startswith("_") or name == "__call__"]
    for part in parts:
        stage_checks.offers("part", part, protocol, "")
        for name in members:
            assert hasattr(part, name)
            if hasattr(getattr(protocol, name), "optional"):
                continue
            with pytest.raises(jo.InputError, match=f"which lacks.*{name}"):
                stage_checks.offers("part", object(), protocol, "")


def test_replace_is_typed():
    channel: jo.Channel = jo.Channel().replace(snr_db=3.0)
    plan: jo.Plan = jo.Plan(np.ones(2), np.ones((2, 3)), np.ones((2, 3))).replace(model_var=1.0)
    algorithm: jo.Algorithm = jo.cotaf([0.1, 0.2], 1).replace(precode=jo.Online())
    assert channel.snr_db == 3.0 and plan.model_var == 1.0
    assert isinstance(algorithm.precode, jo.Online)


def test_protocols_name_their_members():
    """`stage_checks.offers` reads them: of a member that is only annotated it would not know."""
    for name, protocol in vars(stages).items():
        if getattr(protocol, "_is_protocol", False) and protocol.__module__.startswith("jaxota"):
            assert not vars(protocol).get("__annotations__"), name
