"""Capacity of devices: how many trials run at once, how large chunks are, and what does not fit."""

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxota._core import devices
from jaxota._core.devices import Spread
from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota.algorithms import Algorithm
    from jaxota.tasks.problem import Task

MEMORY = 2**30  # bytes of working memory that the trials in flight may take on CPU
# On CPU, the bytes that their users' steps may take, so that they stay in the processor's cache:
# measured by benchmarks/throughput/in_flight.py.
CACHE = 2**23
# On GPU and TPU, the share of a device's memory that the trials in flight may take, if it is more
# than MEMORY: by the compiler's figures for an H100, more make fig1 slower. FILLED trials may take
# up to half of it: with fewer, the CNN leaves cores of an H100, or lanes of a TPU, idle.
SHARE, FILLED = 1 / 32, 256
# On TPU, the bytes that their users' steps should take, so that they stay in the core's own memory.
# A row of LANES trials may take ROW_MEMORY, as the compiler likes to put trials last; if it would
# take more, there are as many as fit LARGE_MEMORY. Chosen by its figures for fig1, fig4 and the CNN
# (docs/accelerators.md).
VECTOR_MEMORY, LARGE_MEMORY, ROW_MEMORY = 2**24, 2**27, 2**30
LANES = 128
FEW_NUMBERS = 24  # numbers of a user who does not compute: its place in the draw, its links
KEYS = 112  # bytes of a round's seven random keys, and of the keys they are split from
# Most work between two signs of progress: users of all trials, and products.
IN_FLIGHT = 4000
PRODUCTS = 2e10
# A chunk is MOMENT products of work, or ROWS rows that all devices share, if these are no more than
# PRODUCTS; where there are more than FEW chunks, they grow, up to LARGEST times.
MOMENT, ROWS = 4e9, 8
FEW, LARGEST = 250, 16
# On GPU and TPU chunks are so many times larger. Not measured: chunks, and so the rounding of all
# results, would depend on the moment's load.
FASTER = 16


def trials_at_once(
    algorithms: Sequence["Algorithm"],
    task: "Task",
    over: Spread = Spread(),
    settings: int = 1,
    rounds: int = 0,
    cohort: int | None = None,
) -> int:
    """Return how many trials of all `algorithms`, with R = `rounds`, run at once on a device.

    Each device runs its share of the `settings` beside each other. A `cohort` is as in `Options`.
    """
    beside = math.ceil(settings / over.settings)
    per_trial = bytes_per_trial(algorithms, task, rounds, cohort) * beside
    # Algorithms take their steps one after the other: the largest alone must fit the cache.
    per_step = 4 * beside * max(_floats_per_step(each, task, cohort) for each in algorithms)
    if devices.platform() == "cpu":  # a process's devices share the machine's memory and cache
        sharing = math.ceil(over.devices / devices.processes())
        most = min(MEMORY // (per_trial * sharing), CACHE // (per_step * sharing))
    else:
        memory = device_memory() or 0
        most = max(MEMORY, int(SHARE * memory)) // per_trial
        most = max(most, min(FILLED, memory // 2 // per_trial))
        if devices.platform() == "tpu":
            row = LANES if LANES * per_step <= ROW_MEMORY else LARGE_MEMORY // per_step
            most = min(most, max(row, VECTOR_MEMORY // per_step))
    return max(1, most)


def _computing(algorithm: "Algorithm", task: "Task", cohort: int | None) -> int:
    """Return the number of users who compute in a round."""
    return task.users if cohort is None or not algorithm.cohorts else cohort


def _floats_per_step(algorithm: "Algorithm", task: "Task", cohort: int | None) -> int:
    """Return the size of a step of all users of a trial who compute.

    Users hold their minibatches with what is computed from these, and four vectors: the origin, the
    difference, the gradient and the direction.
    """
    users = _computing(algorithm, task, cohort)
    return 4 * users * task.dim + _floats_of_batches(algorithm, task, users)


def _floats_of_batches(algorithm: "Algorithm", task: "Task", users: int) -> int:
    """Return the size of a minibatch of each of so many users, with what is computed from it."""
    floats = task.floats_per_trial(algorithm.local.draws) - task.floats_per_trial(0)
    return floats * users // task.users


def bytes_per_trial(
    algorithms: Sequence["Algorithm"], task: "Task", rounds: int = 0, cohort: int | None = None
) -> int:
    """Return an estimate of the memory of a running trial, with the keys of so many rounds."""
    floats = 0
    for algorithm in algorithms:
        local, users = algorithm.local, _computing(algorithm, task, cohort)
        floats += users * (8 * task.dim + local.steps * local.draws)
        floats += task.floats_per_trial(0) + _floats_of_batches(algorithm, task, users)
        if users < task.users:  # the others only remember, and a few numbers are drawn for each
            floats += task.users * FEW_NUMBERS + 2 * _floats_remembered(algorithm, task)
    return KEYS * rounds + 4 * floats


def _floats_remembered(algorithm: "Algorithm", task: "Task") -> int:
    """Return the size of what all users remember between rounds, such as controls."""
    local: Any = getattr(algorithm.local, "start", lambda *_: (None, None))
    compress: Any = getattr(algorithm.compress, "start", lambda *_: None)

    def start() -> Any:
        model = jnp.zeros(task.dim, "float32")
        of_local = local(jax.random.key(0), task.problem(0), model)[1]
        return of_local, compress(task.users, task.dim)

    blocks = 1 + bool(algorithm.local.controlled)
    of_local, of_block = (jax.tree.leaves(x) for x in jax.eval_shape(start))
    return sum(x.size for x in of_local) + blocks * sum(x.size for x in of_block)


def trials_between_reports(
    algorithms: Sequence["Algorithm"], task: "Task", rounds: int, trials: int
) -> int:
    """Return how many trials to run between two signs of progress: pieces of one size."""
    most = int(min(IN_FLIGHT // task.users, PRODUCTS // _products(algorithms, task, rounds)))
    pieces = math.ceil(trials / max(1, most))
    return math.ceil(trials / pieces)


def rows_at_once(
    algorithms: Sequence["Algorithm"],
    task: "Task",
    rounds: int,
    rows: int,
    cohort: int | None = None,
) -> int:
    """Return the size of a chunk of `rows`, each of which is a trial of a setting."""
    products = _products(algorithms, task, rounds, cohort) / (
        1 if devices.platform() == "cpu" else FASTER
    )
    short = int(max(1, MOMENT // products, min(ROWS, PRODUCTS // products)))
    return short * min(max(1, rows // short // FEW), LARGEST)


def _products(
    algorithms: Sequence["Algorithm"], task: "Task", rounds: int, cohort: int | None = None
) -> int:
    """Return the multiplications of a trial, by order of magnitude."""
    samples = sum(
        _computing(each, task, cohort) * each.local.steps * each.local.draws for each in algorithms
    )
    return (samples or task.users) * task.dim * rounds


# Bytes of devices that are not here to be asked.
_MEMORY_OF = {
    "TPU v5 lite": 16e9,
    "TPU v6 lite": 32e9,
    "NVIDIA H100 80GB HBM3": 80e9,
    "Tesla T4": 15e9,
}


def device_memory() -> int | None:
    """Return the bytes of a device with memory of its own; None where it shares the machine's."""
    own = [each for each in devices.target() if each.process_index == jax.process_index()]
    return _memory_of((own or devices.target())[0])


@functools.cache
def _memory_of(device: Any) -> int | None:
    try:
        return (device.memory_stats() or {}).get("bytes_limit")
    except jax.errors.JaxRuntimeError:  # a device of a topology
        return int(_MEMORY_OF.get(device.device_kind, 16e9))


@functools.cache
def machine_memory() -> int:
    """Return the bytes of memory that this process may take: the machine's, or its cgroup's."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _limit_files():
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            limits.append(int(path.read_text()))
    return min(limits)


def _limit_files(
    proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> Iterator[Path]:
    """Yield the files that may hold a limit: of this process's cgroups and of those around them."""
    with contextlib.suppress(OSError):
        for line in proc.read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers in ("", "memory"):
                root = mount / controllers
                name = "memory.limit_in_bytes" if controllers else "memory.max"
                group = root / place.lstrip("/")
                for folder in (group, *group.parents):
                    if folder.is_relative_to(root):
                        yield folder / name


def refuse_memory(names: str, what: str, size: int) -> None:
    """Raise InputError if `what` takes more bytes than there are; `names` must be made smaller."""
    device = device_memory()
    most, owner = (device, "a device") if device else (machine_memory(), "this machine")
    if size > most:
        raise InputError(
            f"{names} must be smaller: {what} would take {format_bytes(size)} of memory, and "
            f"{owner} has {format_bytes(most)}"
        )


def format_bytes(count: float) -> str:
    """Return a number of bytes in words, such as 1.5 GB."""
    count = min(count, 1e300)  # an int may be larger than any float
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
