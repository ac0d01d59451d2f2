"""How many trials run at once, and how much work is a chunk: one rule for all that runs."""

import functools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from jaxota.errors import InputError
from jaxota.tasks.problem import Task

if TYPE_CHECKING:
    from jaxota.algorithms import Algorithm

MEMORY = 2**30  # bytes of working memory that the trials in flight may take
# On CPU, what their users' steps may hold, so that it stays close to the processor: measured by
# benchmarks/throughput/in_flight.py.
CACHE = 2**23
KEYS = 112  # bytes of a round's seven random keys, and of those they are split from
# What may run between two signs of progress: users of all trials and settings, and products.
IN_FLIGHT = 4000
PRODUCTS = 2e10
# A chunk is a moment's work, in products, but some rows that all devices share, if they are not
# more than PRODUCTS; where there are more chunks than FEW, they grow, up to so many times.
MOMENT, ROWS = 4e9, 8
FEW, LARGEST = 250, 16


def trials_at_once(
    algorithms: Sequence["Algorithm"], task: Task, copies: int = 1, rounds: int = 0
) -> int:
    """How many trials of `algorithms` side by side are in flight at once, if as many `copies` of
    each run beside them: settings, and devices.
    """
    most = MEMORY // (bytes_per_trial(algorithms, task, rounds) * copies)
    if jax.default_backend() == "cpu":
        steps = max(_floats_of_steps(algorithm, task) for algorithm in algorithms)
        most = min(most, CACHE // (4 * steps * copies))
    return max(1, most)


def _floats_of_steps(algorithm: "Algorithm", task: Task) -> int:
    """What the users of a trial hold in a step: minibatches and what is computed of them, and of
    models the origin, the difference, the gradient and the direction.
    """
    draws = algorithm.local.draws
    batches = task.floats_per_trial(draws) - task.floats_per_trial(0)
    return 4 * task.users * task.dim + batches


def bytes_per_trial(algorithms: Sequence["Algorithm"], task: Task, rounds: int = 0) -> int:
    """An estimate of what a trial takes while it runs, with the keys of so many rounds."""
    return KEYS * rounds + 4 * sum(
        task.users * (8 * task.dim + algorithm.local.steps * algorithm.local.draws)
        + task.floats_per_trial(algorithm.local.draws)
        for algorithm in algorithms
    )


def trials_between_reports(
    algorithms: Sequence["Algorithm"], task: Task, settings: int, rounds: int, trials: int
) -> int:
    """How many to run before progress is reported: pieces of one size, none of which takes long."""
    most = _short(algorithms, task, rounds) // settings
    pieces = math.ceil(trials / max(1, most))
    return math.ceil(trials / pieces)


def rows_at_once(algorithms: Sequence["Algorithm"], task: Task, rounds: int, rows: int) -> int:
    """How many of so many rows, each a trial of a setting, are a chunk."""
    products = _products(algorithms, task, rounds)
    short = int(max(1, MOMENT // products, min(ROWS, PRODUCTS // products)))
    return short * min(max(1, rows // short // FEW), LARGEST)


def _short(algorithms: Sequence["Algorithm"], task: Task, rounds: int) -> int:
    """How many trials take no more than a moment."""
    return int(min(IN_FLIGHT // task.users, PRODUCTS // _products(algorithms, task, rounds)))


def _products(algorithms: Sequence["Algorithm"], task: Task, rounds: int) -> int:
    """Of a trial."""
    samples = sum(algorithm.local.steps * algorithm.local.draws for algorithm in algorithms) or 1
    return task.users * samples * task.dim * rounds


@functools.cache
def of_device() -> int | None:
    """The bytes that a device of its own memory has; None where it shares the machine's."""
    told = jax.local_devices()[0].memory_stats() or {}
    return told.get("bytes_limit")


@functools.cache
def of_machine() -> int:
    """In bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse(names: str, what: str, taken: int) -> None:
    """InputError, by the `names` of what may be lowered, where `what` takes more than there is."""
    device = of_device()
    most, whose = (device, "a device") if device else (of_machine(), "this machine")
    if taken > most:
        raise InputError(
            f"{names} must be smaller: {what} would take {in_words(taken)} of memory, and {whose} "
            f"has {in_words(most)}"
        )


def in_words(count: float) -> str:
    """Bytes as people write them."""
    count = min(count, 1e300)  # whole numbers have no end
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
