"""The two programs of a study, for each structure: a calibration, and a block of settings × trials.

Compiled when they are first needed, and asked for the memory they take before they run.
"""

import functools
import hashlib
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.arguments import Options
from jaxota._core.batching import trials_at_once, trials_between_reports
from jaxota._core.devices import compiled, everywhere, on_devices, spread
from jaxota._core.state import Plan
from jaxota.calibration import noise_free, observe, pool
from jaxota.history import History
from jaxota.simulation import run_all
from jaxota.study.describe import describe, fingerprint
from jaxota.study.resolve import Group

Plans = tuple[Plan, ...]  # one for each rule of a group


@functools.partial(compiled, static=("options", "structure", "axes"))
def _block(
    options: Options,
    structure: Any,
    axes: tuple[int | None, ...],
    values: list[Array],
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
) -> tuple[History, ...]:
    """Every algorithm in a block of settings × trials; [trial, …] where no leaf is swept."""

    def mine(values: list[Any], trials: Int[Array, "trial"]) -> tuple[History, ...]:
        key, *rest = values
        parts, plans = jax.tree.unflatten(structure, rest)
        return run_all(options, key, trials, **parts, plans=plans, initial=None)

    return on_devices(mine, options.over, [key, *values], (None, *axes), trials)


@functools.partial(compiled, static=("options", "structure", "rules"))
def _calibration(
    options: Options,
    structure: Any,
    rules: tuple[int, ...],
    values: list[Array],
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
) -> Any:
    """The moments of some calibration runs of each rule."""

    def moments(values: list[Any], key: PRNGKeyArray, trials: Int[Array, "trial"]) -> Any:
        parts = jax.tree.unflatten(structure, values)
        own = [parts["algorithms"][rules.index(rule)] for rule in range(1 + max(rules))]
        run = key, trials
        return tuple(observe(options, *run, a, parts["task"], initial=None) for a in own)

    return everywhere(moments, options.over)(values, key, trials)


@jax.jit
def pooled(moments: Any) -> Plans:
    """The plan of each rule."""
    return tuple(pool(*each) for each in moments)


# XLA compiles a program on one core, mostly: several programs compile side by side.
_COMPILERS = ThreadPoolExecutor(4)


waiting = threading.Event()  # for XLA, from now on: Python has time for other things


class Program:
    """A program that is being compiled."""

    def __init__(self, lowered: Any) -> None:
        self.out_info = lowered.out_info
        self._compiling = _COMPILERS.submit(lowered.compile)

    def __call__(self, *arguments: Any) -> Any:
        return self._compiling.result()(*arguments)

    @property
    def memory(self) -> int:
        """The bytes that it takes at most: of one device, or on CPU of all of them."""
        waiting.set()
        told = self._compiling.result().memory_analysis()
        taken = told.temp_size_in_bytes + told.argument_size_in_bytes + told.output_size_in_bytes
        return taken * (jax.local_device_count() if jax.default_backend() == "cpu" else 1)


class Programs:
    """What a study has compiled so far."""

    def __init__(self, key: PRNGKeyArray) -> None:
        self.key = key
        self._compiled: dict[Any, Program] = {}

    def block(self, group: Group, settings: int, trials: int) -> Program:
        """The program for a block of so many settings × trials."""
        options = _sized(group, settings, trials)
        values = group.rows(np.zeros(settings, int))
        swept = 0 in group.axes
        plans, axis = self._plan_shapes(group), 0 if swept else None
        if swept:
            add = functools.partial(_with_rows, settings)
            plans = jax.tree.map(add, plans)
        leaves, structure = jax.tree.flatten((group.parts, plans))
        axes = (*group.axes, *[axis] * (len(leaves) - len(group.values)))
        values = [*values, *leaves[len(group.values) :]]
        return self._compile(_block, (options, structure, axes), values, trials)

    def calibration(self, group: Group) -> tuple[Program, int]:
        """The program for some of the runs of one setting's calibration, and how many these are."""
        parts, total = group.parts, group.options.calibration_trials
        algorithms = [parts["algorithms"][group.rules.index(r)] for r in range(_rules(group))]
        work = parts["task"], 1, group.options.rounds, total
        size = trials_between_reports(algorithms, *work)
        structure = group.structure
        values = [
            v[0] if axis == 0 else v for v, axis in zip(group.values, group.axes, strict=True)
        ]
        options = _sized(group, 1, size)
        return self._compile(_calibration, (options, structure, group.rules), values, size), size

    def _plan_shapes(self, group: Group) -> tuple[Any, ...]:
        """Of each algorithm the shapes of its plan, `None` if it needs none."""
        if max(group.rules) < 0:
            return (None,) * len(group.rules)
        program, _ = self.calibration(group)
        return by_algorithm(group, jax.eval_shape(pooled, program.out_info))

    def _compile(
        self, function: Any, static: tuple[Any, ...], values: list[Any], size: int
    ) -> Program:
        shapes = tuple((jnp.shape(v), v.dtype) for v in values)
        name = function, static, shapes, size
        if name not in self._compiled:
            numbers = jax.ShapeDtypeStruct((size,), "int32")
            self._compiled[name] = Program(function.lower(*static, values, self.key, numbers))
        return self._compiled[name]


def by_algorithm(group: Group, plans: Any) -> tuple[Any, ...]:
    """Each algorithm's plan, that of its rule; `None` where it needs none."""
    return tuple(plans[rule] if rule >= 0 else None for rule in group.rules)


def _rules(group: Group) -> int:
    return 1 + max(group.rules)


def _sized(group: Group, settings: int, trials: int) -> Options:
    over = spread(trials, settings if 0 in group.axes else 1)
    copies = math.ceil(settings / over.settings) * over.devices
    work = group.parts["algorithms"], group.parts["task"], copies, group.options.rounds
    chunk = trials_at_once(*work)
    return group.options._replace(over=over, chunk=min(chunk, math.ceil(trials / over.trials)))


def _with_rows(settings: int, shape: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((settings, *shape.shape), shape.dtype)


def calibrate(programs: Programs, group: Group, row: int, report: Callable[..., None]) -> Plans:
    """The plans of one setting of a group, one for each rule."""
    program, size = programs.calibration(group)
    total = group.options.calibration_trials
    values = [v[row] if axis == 0 else v for v, axis in zip(group.values, group.axes, strict=True)]
    done = []
    for first in range(0, total, size):
        report("calibrating", first, total)
        numbers = jnp.arange(first, first + size, dtype="int32")
        done.append(jax.device_get(program(values, programs.key, numbers)))
    joined = jax.tree.map(lambda *pieces: np.concatenate(pieces)[:total], *done)
    return jax.device_get(pooled(joined))


def simulate(
    programs: Programs,
    group: Group,
    rows: np.ndarray,
    trials: np.ndarray,
    plans: list[Plans],
) -> tuple[History, ...]:
    """Every algorithm in the settings `rows` × `trials`, on the host: [setting, trial, …]."""
    program = programs.block(group, len(rows), len(trials))
    each = [by_algorithm(group, plan) for plan in plans]
    swept = 0 in group.axes
    stacked = jax.tree.map(lambda *x: np.stack(x) if swept else x[0], *each)
    values = [*group.rows(rows), *jax.tree.leaves(stacked)]
    found = program(values, programs.key, jnp.asarray(trials, "int32"))
    found = jax.device_get(jax.block_until_ready(found))
    return found if swept else jax.tree.map(lambda x: x[None], found)


def diverged(plans: Plans) -> list[bool]:
    """Of each rule whether its calibration left the finite numbers."""
    return [
        not all(np.isfinite(x).all() for x in jax.tree.leaves(plan)) if plan is not None else False
        for plan in plans
    ]


class Keeper(Protocol):
    """What remembers plans beyond a process, by their names."""

    def load(self, name: str) -> Plans | None:
        """Those of a name, if they are there."""

    def save(self, name: str, plans: Plans) -> Plans:
        """Keep them; returns those that are kept, should another process have been faster."""


class Calibrations:
    """The plans of a study's settings."""

    def __init__(self, compiled: Programs) -> None:
        self._programs = compiled
        self._known: dict[str, Plans] = {}
        self._signatures: dict[int, tuple[str, list[Any]]] = {}
        self.adrift: set[int] = set()  # numbers of the algorithms of which one diverged

    def plans(
        self, group: Group, row: int, report: Callable[..., None], keeper: Keeper | None
    ) -> Plans:
        """The plans of a setting, one for each rule of its group."""
        if max(group.rules) < 0:
            return ()
        name = self._name(group, row)
        if name not in self._known:
            found = keeper.load(name) if keeper else None
            if found is None:
                found = calibrate(self._programs, group, row, report)
                found = keeper.save(name, found) if keeper else found
            self._known[name] = found
            bad = diverged(found)
            self.adrift |= {n for n, rule in enumerate(group.rules) if rule >= 0 and bad[rule]}
        return self._known[name]

    def count(self, groups: Iterable[Group], rows: Iterable[int]) -> int:
        """How many different calibrations these settings need."""
        needing = [group for group in groups if max(group.rules) >= 0]
        return len({self._name(group, row) for group in needing for row in rows})

    def _name(self, group: Group, row: int) -> str:
        """What a setting's calibration is known by: all that it depends on, which is no channel."""
        if id(group) not in self._signatures:
            self._signatures[id(group)] = _signature(group, self._programs.key)
        common, swept = self._signatures[id(group)]
        digest = hashlib.sha256(common.encode())
        for values in swept:
            digest.update(values[row].tobytes())
        return digest.hexdigest()[:32]


def _signature(group: Group, key: Any) -> tuple[str, list[Any]]:
    """What all settings of a group share, and the values that each has its own of."""
    parts = group.parts
    needing = [
        noise_free(parts["algorithms"][group.rules.index(rule)])
        for rule in range(1 + max(group.rules))
    ]
    own, swept = [], []
    for name, part in (*(("algorithm", a) for a in needing), ("task", parts["task"])):
        leaves, structure = jax.tree.flatten(part)
        extra = inputs.extra_axes(part, name).values()
        swept += [_plain(v) for v, more in zip(leaves, extra, strict=True) if more]
        fixed = [0 if more else v for v, more in zip(leaves, extra, strict=True)]
        own.append(describe(jax.tree.unflatten(structure, fixed)))
    options = group.options
    return fingerprint([own, describe(key), options.rounds, options.calibration_trials]), swept


def _plain(values: Any) -> np.ndarray:
    """Numbers, of random keys, too."""
    if jax.numpy.issubdtype(values.dtype, jax.dtypes.prng_key):
        values = jax.random.key_data(values)
    return np.asarray(values)
