"""Predict the time of a compiled program on a chip from the figures that its compiler leaves."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jaxota.cli import hlo
from jaxota.cli.hlo import Program, Use
from jaxota.cli.targets import Chip

# Seconds of a kernel on GPU that does nothing: launched by the host, and within a CUDA graph.
LAUNCH, NODE = 2.5e-6, 1e-6
_ASYNC = re.compile(r".*-(start|done)")  # copies beside the work, on TPU
_SCALAR = re.compile(r"\w+\[1?\](\{.*\})?")
_COST = re.compile(
    r'"reification_cost":\[\{[^}]*?"exec_time_us":([\d.e+-]+),"compute_time_us":([\d.e+-]+)'
)


class Row(NamedTuple):
    """One operation's price."""

    name: str
    type: str
    times: float
    seconds: float  # each time
    bound: str


class Price(NamedTuple):
    """Prediction for one program on one chip; nothing was measured."""

    seconds: float
    bound: str  # of most of the time: launches, memory or arithmetic
    step_kernels: float | None  # kernels of a local step; None where its loop is unrolled
    round_kernels: float | None
    unpriced: int  # operations that run, of which the compiler left no figure
    top: tuple[Row, ...]  # the operations that take the most time

    def share(self, row: Row) -> float:
        """Return the share of the time that an operation takes."""
        return row.times * row.seconds / self.seconds


class _Cost(NamedTuple):
    seconds: float
    bound: str
    known: bool = True  # whether the compiler left a figure
    moved: float = 0.0  # bytes
    kernel: bool = True  # no copy beside the work, and no single number on TPU's scalar core


def price(chip: Chip, folder: Path, rounds: int, steps: int, every: int = 1) -> Price:
    """Price the program in `folder`, which `targets.compile_into` wrote with the compiler's dump.

    Args:
        chip: the chip that it was compiled for.
        folder: program.txt, and in `dump` the compiler's files.
        rounds: R; the loop of so many turns with the most work is that of the rounds.
        steps: K; a loop of so many turns within it is that of the local steps.
        every: a branch, which scores the task, is taken once in so many rounds.
    """
    program = hlo.parse((folder / "program.txt").read_text(encoding="utf-8"))
    run = list(hlo.uses(program, 1 / every))
    read = _gpu if chip.gpu else _tpu
    costs = read(chip, program, run, folder / "dump")
    total: dict[str, float] = defaultdict(float)
    levels: dict[object, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for use, cost in zip(run, costs, strict=True):
        total[cost.bound] += use.times * cost.seconds
        levels[use.loops][0] += use.times * cost.seconds
        levels[use.loops][1] += use.times * cost.moved
    for busy, moved in levels.values():
        # Copies run beside the work, but all bytes must go through the memory's one door.
        total["memory"] += max(0.0, moved / chip.bandwidth - busy)
    rows = [
        Row(use.op.name, use.op.type, use.times, cost.seconds, cost.bound)
        for use, cost in zip(run, costs, strict=True)
    ]
    rows.sort(key=lambda row: -row.times * row.seconds)
    return Price(
        sum(total.values()),
        max(total, key=lambda name: total[name]),
        *_kernels(zip(run, costs, strict=True), rounds, steps),
        sum(not cost.known for cost in costs),
        tuple(rows[:5]),
    )


def _kernels(
    run: Iterable[tuple[Use, _Cost]], rounds: int, steps: int
) -> tuple[float | None, float | None]:
    """Return the kernels of a local step and of a round; None where there is no such loop."""
    work: dict[str, float] = defaultdict(float)
    kernels: dict[str, float] = defaultdict(float)  # of one turn
    within: dict[str, dict[str, None]] = {}  # loops of local steps, by the loop of rounds
    for use, cost in run:
        for depth, (name, turns) in enumerate(use.loops, 1):
            work[name] += use.times * cost.seconds
            entered = math.prod(each for _, each in use.loops[:depth])
            kernels[name] += use.times / entered if cost.kernel else 0.0
            if turns == rounds:
                inner = within.setdefault(name, {})
                inner |= {n: None for n, k in use.loops[depth:] if k == steps}
    loop = max(within, key=lambda name: work[name], default=None)
    step = max(within.get(loop or "", {}), key=lambda name: work[name], default=None)
    return kernels[step] if step else None, kernels[loop] if loop else None


def _tpu(chip: Chip, program: Program, run: list[Use], dump: Path) -> list[_Cost]:
    """Price each operation: its bundles at the clock, or its padded bytes, the larger."""
    bundles = {}
    rows = {use.op.name: hlo.rows_gathered(program, use.op) for use in run}
    for path in dump.glob("*-final_bundles.txt"):
        stamp, _, name = path.name.partition("-")
        if stamp.isdigit() and "schedule-analysis" not in name:
            name = re.sub(r"-\d+-final_bundles\.txt$", "", name)
            code = path.read_text(encoding="utf-8", errors="replace")
            bundles[name] = hlo.cycles(code, rows.get(name, 0))
    types = {op.name: op.type for ops in program.values() for op in ops}

    def content(use: Use) -> object:
        cycles = re.search(r'"estimated_cycles":"-?\d+"', use.op.rest)
        operands = tuple(types.get(name, "") for name in use.op.operands)
        return use.op.opcode, use.op.type, operands, cycles and cycles[0]

    # Of equal operations libtpu writes one, under the name of either.
    alike = {content(use): bundles[use.op.name] for use in run if use.op.name in bundles}
    costs = []
    for use in run:
        if _ASYNC.fullmatch(use.op.opcode):
            first = use.op.type.partition("),")[0].partition("},")[0]
            copied = hlo.padded(first, True) if use.op.opcode.endswith("start") else 0
            costs.append(_Cost(0.0, "memory", moved=copied, kernel=False))
            continue
        count = bundles.get(use.op.name, alike.get(content(use)))
        moved = hlo.moved(program, use.op, types)
        issued, carried = (count or 0) / chip.clock, moved / chip.bandwidth
        bound = "arithmetic" if issued >= carried else "memory"
        vector = _SCALAR.fullmatch(use.op.type) is None
        known = count is not None or not vector
        costs.append(_Cost(max(issued, carried), bound, known, moved, vector))
    return costs


def _gpu(chip: Chip, program: Program, run: list[Use], dump: Path) -> list[_Cost]:
    """Price each kernel: XLA's model of it, or its bytes where it has none, and its launch."""
    listed = [p.read_text() for p in dump.glob("*thunk_sequence_after_thunk_passes.txt")]
    shares = hlo.graphs(max(listed, key=len, default=""))
    loops = list(dict.fromkeys(name for use in run for name, _ in use.loops))
    if len(shares) != len(loops) + 1:  # not the same loops: as if there were no graphs
        shares = [0.0] * (len(loops) + 1)
    share = dict(zip(["", *loops], shares, strict=True))
    types = {op.name: op.type for ops in program.values() for op in ops}
    costs = []
    for use in run:
        inside = share[use.loops[-1][0] if use.loops else ""]
        launch = inside * NODE + (1 - inside) * LAUNCH
        if figure := _COST.search(use.op.rest):
            taken, computing = float(figure[1]) / 1e6, float(figure[2]) / 1e6
        else:
            taken, computing = hlo.moved(program, use.op, types) / chip.bandwidth, 0.0
        bound = "arithmetic" if computing >= 0.5 * taken else "memory"
        bound = "launches" if launch >= taken else bound
        known = figure is not None or use.op.opcode != "custom-call"
        costs.append(_Cost(max(launch, taken), bound, known))
    return costs
