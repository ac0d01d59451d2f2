"""A study's compiled programs, and the calibrations measured with them.

Each structure has two programs: a calibration, and a block of settings × trials. They are compiled
when they are first needed, and say how much memory they take before they run.
"""

import functools
import hashlib
import itertools
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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
from jaxota.study.resolve import Group, shapes

Plans = tuple[Plan, ...]  # one for each rule of a group

# XLA compiles a program on one core, mostly: several programs compile side by side.
_COMPILERS = ThreadPoolExecutor(4)
waiting = threading.Event()  # set once Python waits for XLA: a good time to import other things


@functools.partial(compiled, static=("options", "axes"))
def _block(
    options: Options,
    axes: tuple[int | None, ...],
    parts: dict[str, Any],
    plans: tuple[Plan | None, ...],
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
) -> tuple[History, ...]:
    """Run every algorithm in a block of settings × trials: [setting, trial, …].

    Each setting has plans of its own; `axes` says which of the parts' leaves it has.
    """
    leaves, structure = jax.tree.flatten((parts, plans))

    def run(values: list[Any], trials: Int[Array, "trial"]) -> tuple[History, ...]:
        key, *rest = values
        parts, plans = jax.tree.unflatten(structure, rest)
        return run_all(options, key, trials, **parts, plans=plans, initial=None)

    all_axes = None, *axes, *[0] * (len(leaves) - len(axes))
    histories = on_devices(run, options.over, [key, *leaves], all_axes, trials)
    return histories if 0 in all_axes else jax.tree.map(lambda x: x[None], histories)


@functools.partial(compiled, static=("options", "rules"))
def _calibration(
    options: Options,
    rules: tuple[int, ...],
    parts: dict[str, Any],
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
) -> Any:
    """Return the moments of some calibration runs of each rule."""

    def moments(parts: dict[str, Any], key: PRNGKeyArray, trials: Int[Array, "trial"]) -> Any:
        return tuple(
            observe(options, key, trials, algorithm, parts["task"], initial=None)
            for algorithm in _of_rules(rules, parts["algorithms"])
        )

    return everywhere(moments, options.over)(parts, key, trials)


@jax.jit
def _pooled(moments: Any) -> Plans:
    """Return the plan of each rule."""
    return tuple(pool(*each) for each in moments)


def _of_rules(rules: tuple[int, ...], algorithms: Any) -> list[Any]:
    """Return the first algorithm of each rule."""
    return [algorithms[rules.index(rule)] for rule in range(1 + max(rules))]


def _by_algorithm(group: Group, plans: Any) -> tuple[Any, ...]:
    """Return each algorithm's plan, or None where it needs none."""
    return tuple(plans[rule] if rule >= 0 else None for rule in group.rules)


class Program:
    """A program that is being compiled."""

    def __init__(self, lowered: Any) -> None:
        self.out_info = lowered.out_info
        self._compiling = _COMPILERS.submit(lowered.compile)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program, when it is ready, and return its results on the host."""
        return jax.device_get(self._compiling.result()(*arguments))

    @property
    def memory(self) -> int:
        """The bytes that it takes at most: on one device, or on CPU on all of them."""
        waiting.set()
        memory = self._compiling.result().memory_analysis()
        total = memory.temp_size_in_bytes + memory.argument_size_in_bytes
        total += memory.output_size_in_bytes
        return total * (jax.local_device_count() if jax.default_backend() == "cpu" else 1)


class Programs:
    """All programs that a study has compiled so far, and the plans measured with them.

    Attributes:
        key: the random key of the study.
        diverged: the numbers of the algorithms of which a plan is not finite.
    """

    def __init__(self, key: PRNGKeyArray) -> None:
        self.key = key
        self.diverged: set[int] = set()
        self._compiled: dict[Any, Program] = {}
        self._plans: dict[str, Plans] = {}
        self._signatures: dict[int, tuple[str, list[Any]]] = {}

    def block(self, group: Group, settings: int, trials: int) -> Program:
        """Return the program for a block of so many settings × trials."""
        moments = self._calibration(group)[0].out_info if max(group.rules) >= 0 else ()
        plans = jax.tree.map(
            lambda plan: jax.ShapeDtypeStruct((settings, *plan.shape), plan.dtype),
            _by_algorithm(group, jax.eval_shape(_pooled, moments)),
        )
        static = _with_size(group, settings, trials), group.axes
        return self._compile(_block, static, (group.rows(np.zeros(settings, int)), plans), trials)

    def _calibration(self, group: Group) -> tuple[Program, int]:
        """Return the program for some runs of a setting's calibration, and how many these are."""
        parts, options = group.parts, group.options
        algorithms = _of_rules(group.rules, parts["algorithms"])
        runs = trials_between_reports(
            algorithms, parts["task"], 1, options.rounds, options.calibration_trials
        )
        static = _with_size(group, 1, runs), group.rules
        return self._compile(_calibration, static, (group.rows(0),), runs), runs

    def _compile(
        self, function: Any, static: tuple[Any, ...], values: tuple[Any, ...], size: int
    ) -> Program:
        name = function, static, shapes(values), size
        if name not in self._compiled:
            trials = jax.ShapeDtypeStruct((size,), "int32")
            self._compiled[name] = Program(function.lower(*static, *values, self.key, trials))
        return self._compiled[name]

    def simulate(
        self, group: Group, rows: np.ndarray, trials: np.ndarray, plans: list[Plans]
    ) -> tuple[History, ...]:
        """Run every algorithm in the settings `rows` × `trials`: [setting, trial, …]."""
        program = self.block(group, len(rows), len(trials))
        by_setting = [_by_algorithm(group, plan) for plan in plans]
        stacked = jax.tree.map(lambda *settings: np.stack(settings), *by_setting)
        return program(group.rows(rows), stacked, self.key, jnp.asarray(trials, "int32"))

    def plans(self, group: Group, row: int, report: Callable[..., None], stored: Any) -> Plans:
        """Return the plans of a setting, one for each rule: known, stored, or measured now.

        Settings that differ in what a calibration does not depend on share theirs.
        """
        if max(group.rules) < 0:
            return ()
        name = self._name(group, row)
        if name not in self._plans:
            plans = stored.load(name) if stored else None
            if plans is None:
                plans = self.calibrate(group, row, report)
                plans = stored.save(name, plans) if stored else plans
            self._plans[name] = plans
            finite = [all(np.isfinite(x).all() for x in jax.tree.leaves(plan)) for plan in plans]
            self.diverged |= {n for n, r in enumerate(group.rules) if r >= 0 and not finite[r]}
        return self._plans[name]

    def calibrate(self, group: Group, row: int, report: Callable[..., None]) -> Plans:
        """Measure the plans of one setting of a group, one for each rule."""
        program, size = self._calibration(group)
        total, parts = group.options.calibration_trials, group.rows(row)
        moments = []
        for first in range(0, total, size):
            report("calibrating", first, total)
            trials = jnp.arange(first, first + size, dtype="int32")
            moments.append(program(parts, self.key, trials))
        joined = jax.tree.map(lambda *pieces: np.concatenate(pieces)[:total], *moments)
        return jax.device_get(_pooled(joined))

    def calibrations(self, groups: Iterable[Group], rows: Iterable[int]) -> int:
        """Return the number of different calibrations that these settings need."""
        calibrated = [group for group in groups if max(group.rules) >= 0]
        return len({self._name(group, row) for group in calibrated for row in rows})

    def _name(self, group: Group, row: int) -> str:
        """Return a digest of all that a calibration depends on, which the channel is not."""
        if id(group) not in self._signatures:
            self._signatures[id(group)] = _signature(group, self.key)
        common, swept = self._signatures[id(group)]
        digest = hashlib.sha256(common.encode())
        for values in swept:
            digest.update(values[row].tobytes())
        return digest.hexdigest()[:32]


def _with_size(group: Group, settings: int, trials: int) -> Options:
    """Return the group's options with the devices and the batch size for so many runs."""
    over = spread(trials, settings)
    copies = math.ceil(settings / over.settings) * over.devices
    parts = group.parts
    chunk = trials_at_once(parts["algorithms"], parts["task"], copies, group.options.rounds)
    return group.options._replace(over=over, chunk=min(chunk, math.ceil(trials / over.trials)))


def _signature(group: Group, key: Any) -> tuple[str, list[np.ndarray]]:
    """Return a fingerprint of what a group's settings share, and arrays of what they do not."""
    parts, options = group.parts, group.options
    calibrated = [*map(noise_free, _of_rules(group.rules, parts["algorithms"])), parts["task"]]
    extra = [axes for part in calibrated for axes in inputs.extra_axes(part, "part").values()]
    leaves, structure = jax.tree.flatten(calibrated)
    fixed = [0 if axes else leaf for leaf, axes in zip(leaves, extra, strict=True)]
    common = describe(jax.tree.unflatten(structure, fixed))
    swept = []
    for leaf in itertools.compress(leaves, extra):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        swept.append(np.asarray(jax.random.key_data(leaf) if is_key else leaf))
    return fingerprint([common, describe(key), options.rounds, options.calibration_trials]), swept
