"""Memory and work of trials: how many run at once, how large a chunk is, what does not fit."""

import functools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from jaxota.errors import InputError

if TYPE_CHECKING:
    from jaxota.algorithms import Algorithm
    from jaxota.tasks.problem import Task

MEMORY = 2**30  # bytes of working memory that the trials in flight may take
# On CPU, the bytes that their users' steps may take, so that they stay in the processor's cache:
# measured by benchmarks/throughput/in_flight.py.
CACHE = 2**23
KEYS = 112  # bytes of a round's seven random keys, and of the keys they are split from
# Most work between two signs of progress: users of all trials and settings, and products.
IN_FLIGHT = 4000
PRODUCTS = 2e10
# A chunk is MOMENT products of work, or ROWS rows that all devices share, if these are no more than
# PRODUCTS; where there are more than FEW chunks, they grow, up to LARGEST times.
MOMENT, ROWS = 4e9, 8
FEW, LARGEST = 250, 16


def trials_at_once(
    algorithms: Sequence["Algorithm"], task: "Task", copies: int = 1, rounds: int = 0
) -> int:
    """Return how many trials run at once on a device.

    Args:
        algorithms: run side by side in each trial.
        task: the task.
        copies: how many such batches run beside each other: settings times devices.
        rounds: R, whose random keys take memory, too.
    """
    most = MEMORY // (bytes_per_trial(algorithms, task, rounds) * copies)
    if jax.default_backend() == "cpu":
        # Algorithms take their steps one after the other: the largest alone must fit the cache.
        steps = max(_floats_per_step(algorithm, task) for algorithm in algorithms)
        most = min(most, CACHE // (4 * steps * copies))
    return max(1, most)


def _floats_per_step(algorithm: "Algorithm", task: "Task") -> int:
    """Return the size of a step of all users of a trial.

    Users hold their minibatches with what is computed from these, and four vectors: the origin, the
    difference, the gradient and the direction.
    """
    draws = algorithm.local.draws
    batches = task.floats_per_trial(draws) - task.floats_per_trial(0)
    return 4 * task.users * task.dim + batches


def bytes_per_trial(algorithms: Sequence["Algorithm"], task: "Task", rounds: int = 0) -> int:
    """Return an estimate of the memory of a running trial, with the keys of so many rounds."""
    return KEYS * rounds + 4 * sum(
        task.users * (8 * task.dim + algorithm.local.steps * algorithm.local.draws)
        + task.floats_per_trial(algorithm.local.draws)
        for algorithm in algorithms
    )


def trials_between_reports(
    algorithms: Sequence["Algorithm"], task: "Task", settings: int, rounds: int, trials: int
) -> int:
    """Return how many trials to run between two signs of progress: pieces of one size."""
    by_work = PRODUCTS // _products(algorithms, task, rounds)
    most = int(min(IN_FLIGHT // task.users, by_work)) // settings
    pieces = math.ceil(trials / max(1, most))
    return math.ceil(trials / pieces)


def rows_at_once(algorithms: Sequence["Algorithm"], task: "Task", rounds: int, rows: int) -> int:
    """Return the size of a chunk of `rows`, each of which is a trial of a setting."""
    products = _products(algorithms, task, rounds)
    short = int(max(1, MOMENT // products, min(ROWS, PRODUCTS // products)))
    return short * min(max(1, rows // short // FEW), LARGEST)


def _products(algorithms: Sequence["Algorithm"], task: "Task", rounds: int) -> int:
    """Return the multiplications of a trial, by order of magnitude."""
    samples = sum(algorithm.local.steps * algorithm.local.draws for algorithm in algorithms) or 1
    return task.users * samples * task.dim * rounds


@functools.cache
def device_memory() -> int | None:
    """Return the bytes of a device with memory of its own; None where it shares the machine's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit")


@functools.cache
def machine_memory() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
