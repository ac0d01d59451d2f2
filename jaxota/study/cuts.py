"""How a study is cut: chunks of a moment's work that fit into memory."""

import math
from typing import Any

import jax

from jaxota._core import batching
from jaxota._core import batching as _chunks
from jaxota._core.batching import format_bytes
from jaxota.errors import InputError
from jaxota.study.programs import Programs
from jaxota.study.settings import Group, Settings


def cut(settings: Settings, programs: Programs, budget: int | None) -> dict[str, int]:
    """The size of a block along each axis of numbers, and along the trials.

    A program says itself what it takes. Where that is more than the `budget`, it is asked at a
    smaller size, too, and the line through both gives the size that fits, which is checked again.
    """
    group = max(settings.groups.values(), key=_weight)
    sizes, trials = settings.swept_sizes, settings.study.trials
    parts = group.parts
    rows = math.prod(sizes.values()) * trials
    work = parts["algorithms"], parts["task"], settings.study.rounds, rows
    size = min(_chunks.rows_at_once(*work), max(1, _room(budget) // _weight(group)))
    blocks = _blocks(sizes, trials, size)
    for _ in range(3):
        taken = _measured(programs, group, blocks)
        if taken <= _room(budget):
            return blocks
        blocks = _fitting(programs, group, sizes, trials, blocks, taken, budget)
    raise InputError(_too_much(_measured(programs, group, blocks), budget))


def _fitting(
    programs: Programs,
    group: Group,
    sizes: dict[str, int],
    trials: int,
    blocks: dict[str, int],
    taken: int,
    budget: int | None,
) -> dict[str, int]:
    """Blocks on the line through what these take and what the smallest take."""
    smallest = dict.fromkeys(blocks, 1) | {"trial": min(trials, jax.local_device_count())}
    least = _measured(programs, group, smallest)
    few, many = math.prod(smallest.values()), math.prod(blocks.values())
    if least > _room(budget) or many <= few:
        raise InputError(_too_much(least, budget))
    slope = max(1.0, (taken - least) / (many - few))
    size = few + int(0.95 * (_room(budget) - least) / slope)
    return _blocks(sizes, trials, max(few, min(size, many - 1)))


def _measured(programs: Programs, group: Group, blocks: dict[str, int]) -> int:
    *settings, trials = blocks.values()
    return programs.block(group, math.prod(settings), trials).memory


def _blocks(sizes: dict[str, int], trials: int, rows: int) -> dict[str, int]:
    """Blocks of about so many rows: trials first, as they share their data, then settings."""
    pieces = math.ceil(trials / rows)
    blocks = {"trial": math.ceil(trials / pieces)}
    left = max(1, rows // blocks["trial"])
    for name, size in reversed(sizes.items()):
        pieces = math.ceil(size / left)
        blocks[name] = math.ceil(size / pieces)
        left = max(1, left // blocks[name])
    return {name: blocks[name] for name in (*sizes, "trial")}


def _weight(group: Group) -> int:
    """An estimate of what a row takes, to find the largest group and a size to begin with."""
    parts: Any = group.parts
    return _chunks.bytes_per_trial(parts["algorithms"], parts["task"], group.options.rounds)


def _room(budget: int | None) -> int:
    """The budget; without one, what the devices have, or a quarter of this machine's memory."""
    if budget is not None:
        return budget
    device = batching.device_memory()
    return int(0.8 * device) if device else batching.machine_memory() // 4


def _too_much(taken: int, budget: int | None) -> str:
    return (
        f"memory must be at least {format_bytes(taken)}, which one trial on each device takes here, "
        f"got {format_bytes(_room(budget))}"
    )
