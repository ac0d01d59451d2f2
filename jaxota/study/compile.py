"""A study's compiled programs, and the calibrations measured with them.

Each structure has a program for a block of settings × trials, and one for each kind of calibration.
They are compiled when they are first needed, and say how much memory they take before they run.
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
from jaxota._core.capacity import trials_at_once, trials_between_reports
from jaxota._core.devices import compiled, everywhere, on_devices, platform, spread, target
from jaxota._core.part import describe, fingerprint
from jaxota._core.progress import RUNNING
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import noise_free, observe, pool
from jaxota.history import History
from jaxota.rounds import run_all
from jaxota.study.resolve import Group, shapes
from jaxota.tasks.problem import Task

# XLA compiles a program on one core, mostly: several programs compile side by side.
_COMPILERS = ThreadPoolExecutor(4)
CALLS = 2  # of a study's programs that a GPU or TPU is given at once: one runs, one is queued
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
        return run_all(options, key, trials, **parts, plans=plans, start=None)

    all_axes = None, *axes, *[0] * (len(leaves) - len(axes))
    histories = on_devices(run, options.over, [key, *leaves], all_axes, trials)
    return histories if 0 in all_axes else jax.tree.map(lambda x: x[None], histories)


@functools.partial(compiled, static=("options",))
def _moments(
    options: Options,
    algorithm: Algorithm,
    task: Task,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
) -> Any:
    """Return the moments of some calibration runs."""

    def on_device(algorithm: Any, task: Any, key: Any, trials: Any) -> Any:
        return observe(options, key, trials, algorithm, task, initial=None)

    return everywhere(on_device, options.over)(algorithm, task, key, trials)


@jax.jit
def _pooled(moments: Any) -> Plan:
    return pool(*moments)


class Program:
    """A program that is being compiled."""

    def __init__(self, lowered: Any) -> None:
        self.out_info = lowered.out_info
        self._compiling = _COMPILERS.submit(lowered.compile)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program, when it is ready; its results are still on the devices."""
        return self._compiling.result()(*arguments)

    def wait(self, report: Callable[..., None]) -> None:
        """Wait for the compiler, and report it if that takes time."""
        if not self._compiling.done():
            report("compiling")
            self._compiling.result()

    @property
    def memory(self) -> int:
        """The bytes that it takes at most: on one device, or on CPU on all of them."""
        waiting.set()
        memory = self._compiling.result().memory_analysis()
        passed = memory.argument_size_in_bytes + memory.output_size_in_bytes
        if platform() == "cpu":
            return (memory.temp_size_in_bytes + passed) * len(target())
        return memory.temp_size_in_bytes + CALLS * passed


class Programs:
    """All programs that a study has compiled so far, and the plans measured with them.

    Attributes:
        key: the random key of the study.
        diverged: the numbers of the algorithms of which a plan is not finite.
    """

    def __init__(self, key: Any) -> None:
        self.key = key
        self.diverged: set[int] = set()
        self._compiled: dict[Any, Program] = {}
        self._plans: dict[str, Plan] = {}
        self._signatures: dict[int, Any] = {}

    def block(self, group: Group, settings: int, trials: int) -> Program:
        """Return the program for a block of so many settings × trials."""
        plans = tuple(
            jax.eval_shape(_pooled, self._calibration(group, number, 0)[0].out_info)
            if algorithm.needs
            else None
            for number, algorithm in enumerate(group.parts["algorithms"])
        )
        by_setting = jax.tree.map(
            lambda plan: jax.ShapeDtypeStruct((settings, *plan.shape), plan.dtype), plans
        )
        values = group.rows(np.zeros(settings, int)), by_setting
        static = _with_size(group.options, group.parts, settings, trials), group.axes
        return self._compile(_block, static, values, trials)

    def _calibration(self, group: Group, number: int, row: int) -> tuple[Program, Any, int]:
        """Return the program for some runs of a calibration, its parts, and how many runs."""
        parts, options = group.rows(row), group.options
        values = noise_free(parts["algorithms"][number]), parts["task"]
        counts = options.rounds, options.calibration_trials
        runs = trials_between_reports(values[:1], parts["task"], *counts)
        options = _with_size(options._replace(cohort=None), group.parts, 1, runs)  # all users
        program = self._compile(_moments, (options,), values, runs)
        return program, values, runs

    def _compile(
        self, function: Any, static: tuple[Any, ...], values: tuple[Any, ...], size: int
    ) -> Program:
        name = function, static, shapes(values), size
        if name not in self._compiled:
            trials = jax.ShapeDtypeStruct((size,), "int32")
            self._compiled[name] = Program(function.lower(*static, *values, self.key, trials))
        return self._compiled[name]

    def simulate(
        self,
        group: Group,
        rows: np.ndarray,
        trials: np.ndarray,
        report: Callable[..., None],
        stored: Any,
    ) -> tuple[History, ...]:
        """Run every algorithm in the settings `rows` × `trials`: [setting, trial, …], on devices.

        Plans that are neither known nor `stored` are measured first.
        """
        plans = [self._plans_of(group, row, report, stored) for row in rows.tolist()]
        by_setting = jax.tree.map(lambda *settings: np.stack(settings), *plans)
        program = self.block(group, len(rows), len(trials))
        program.wait(report)
        report(RUNNING)
        return program(group.rows(rows), by_setting, self.key, jnp.asarray(trials, "int32"))

    def _plans_of(
        self, group: Group, row: int, report: Callable[..., None], stored: Any
    ) -> tuple[Plan | None, ...]:
        """Return the plan of each algorithm in a setting, None for one that needs none."""
        plans = []
        for number, name in enumerate(self._names(group, row)):
            plan = self._plans.get(name) or (stored.load_plan(name) if stored and name else None)
            if name and plan is None:
                plan = self.calibrate(group, number, row, report)
                plan = stored.save_plan(name, plan) if stored else plan
            if plan is not None:
                self._plans[name] = plan
                if not all(np.isfinite(values).all() for values in jax.tree.leaves(plan)):
                    self.diverged.add(number)
            plans.append(plan)
        return tuple(plans)

    def calibrate(self, group: Group, number: int, row: int, report: Callable[..., None]) -> Plan:
        """Measure the plan of an algorithm in one setting of a group."""
        program, parts, size = self._calibration(group, number, row)
        program.wait(report)
        total = group.options.calibration_trials
        moments = []
        for first in range(0, total, size):
            report("calibrating", first, total)
            trials = jnp.arange(first, first + size, dtype="int32")
            moments.append(jax.device_get(program(*parts, self.key, trials)))
        joined = jax.tree.map(lambda *pieces: np.concatenate(pieces)[:total], *moments)
        return jax.device_get(_pooled(joined))

    def calibrations(self, groups: Iterable[Group], rows: Iterable[int]) -> int:
        """Return the number of these settings whose calibrations differ."""
        names = {frozenset(self._names(group, row)) - {""} for group in groups for row in rows}
        return sum(map(bool, names))

    def _names(self, group: Group, row: int) -> tuple[str, ...]:
        """Return a digest of all that each algorithm's calibration depends on, or "".

        Settings and algorithms that differ in nothing else, such as the channel, share a plan.
        """
        if id(group) not in self._signatures:
            self._signatures[id(group)] = _signatures(group, self.key)
        names = []
        for common, swept in self._signatures[id(group)]:
            digest = hashlib.sha256(common.encode())
            for values in swept:
                digest.update(values[row].tobytes())
            names.append(digest.hexdigest()[:32] if common else "")
        return tuple(names)


def _with_size(options: Options, parts: Any, settings: int, trials: int) -> Options:
    """Return the options with the devices and the batch size for so many runs of these parts."""
    over = spread(trials, settings)
    sizes = over, settings, options.rounds, options.cohort
    chunk = trials_at_once(parts["algorithms"], parts["task"], *sizes)
    return options._replace(over=over, chunk=min(chunk, math.ceil(trials / over.trials)))


def _signatures(group: Group, key: Any) -> list[tuple[str, list[np.ndarray]]]:
    """Return for each algorithm a fingerprint of what settings share, and arrays of the rest."""
    algorithms, options = group.parts["algorithms"], group.options
    signatures: list[tuple[str, list[np.ndarray]]] = [("", [])] * len(algorithms)
    calibrated = [number for number, algorithm in enumerate(algorithms) if algorithm.needs]
    if calibrated:  # to describe a task may mean to read all its data
        task, of_task = _described(group.parts["task"])
        counts = options.rounds, options.calibration_trials
    for number in calibrated:
        rule, of_rule = _described(noise_free(algorithms[number]))
        common = fingerprint([[rule, task], describe(key), *counts])
        signatures[number] = common, [*of_rule, *of_task]
    return signatures


def _described(part: Any) -> tuple[Any, list[np.ndarray]]:
    """Describe the values of a part that all settings share; return the others as arrays."""
    leaves, structure = jax.tree.flatten(part)
    extra = list(inputs.extra_axes(part, "part").values())
    fixed = [0 if axes else leaf for leaf, axes in zip(leaves, extra, strict=True)]
    swept = []
    for leaf in itertools.compress(leaves, extra):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        swept.append(np.asarray(jax.random.key_data(leaf) if is_key else leaf))
    return describe(jax.tree.unflatten(structure, fixed)), swept
