"""How many trials run at once: one rule for all that runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxota.problems import Task

if TYPE_CHECKING:
    from jaxota.algorithms import Algorithm

MEMORY = 2**30  # bytes of working memory that the trials in flight may take
# What may run between two signs of progress: users of all trials and settings, and products.
IN_FLIGHT = 4000
PRODUCTS = 2e10


def trials_at_once(algorithms: Sequence["Algorithm"], task: Task, settings: int = 1) -> int:
    """How many trials of `algorithms` side by side, in so many `settings`, fit into memory."""
    floats = sum(
        8 * task.users * task.dim + task.floats_per_trial(algorithm.local.draws)
        for algorithm in algorithms
    )
    return max(1, MEMORY // (4 * floats * settings))


def trials_between_reports(
    algorithms: Sequence["Algorithm"], task: Task, settings: int, rounds: int, trials: int
) -> int:
    """How many to run before progress is reported: pieces of one size, none of which takes long."""
    samples = sum(algorithm.local.steps * algorithm.local.draws for algorithm in algorithms) or 1
    users = task.users * settings
    products = users * samples * task.dim * rounds
    pieces = -(-trials // max(1, int(min(IN_FLIGHT // users, PRODUCTS // products))))
    return -(-trials // pieces)
