"""Programs as compilers print them: XLA's operations, loops and bytes; libtpu's machine code."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

SIZES = {"pred": 1, "bf16": 2, "token": 0}  # bytes; of other types the name ends in the bits
# Operations that run nothing: names for what is there already.
FREE = frozenset(
    [
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"),
        *("partition-id", "replica-id", "opt-barrier"),
    ]
)
_OP = re.compile(r"\s+(?:ROOT )?%([\w.-]+) = (.*?) ([a-z][\w-]*)\((.*)$")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^{}]*)\})?")


class Op(NamedTuple):
    """One operation of a computation."""

    name: str
    type: str  # such as f32[1000,10]{0,1:T(8,128)}
    opcode: str
    operands: tuple[str, ...]
    rest: str  # arguments and attributes

    def called(self, *attributes: str) -> list[str]:
        """Return the computations that these attributes name."""
        found = re.findall(rf"\b(?:{'|'.join(attributes)})=(%[\w.-]+|{{[^}}]*}})", self.rest)
        return re.findall(r"%([\w.-]+)", " ".join(found))


Program: TypeAlias = dict[str, list[Op]]  # operations by computation; the entry is ""


def parse(text: str) -> Program:
    """Read the text of an optimised program."""
    program: Program = {}
    current: list[Op] = []
    for line in text.splitlines():
        if line.startswith(("%", "ENTRY")) and line.endswith("{"):
            name = "" if line.startswith("ENTRY") else line.split()[0].lstrip("%")
            current = program[name] = []
        elif found := _OP.match(line):
            name, kind, opcode, rest = found.groups()
            operands = tuple(re.findall(r"%([\w.-]+)", rest.partition(")")[0]))
            current.append(Op(name, kind, opcode, operands, rest))
    return program


class Use(NamedTuple):
    """An operation that runs: how often, and in which loops (name, trips), the outermost first."""

    op: Op
    times: float
    loops: tuple[tuple[str, int], ...]


def uses(program: Program, share: float = 1.0) -> Iterator[Use]:
    """Yield all that runs, in the program's order; `share` is how often a branch is taken."""

    def walk(name: str, times: float, loops: tuple[tuple[str, int], ...]) -> Iterator[Use]:
        for op in program.get(name, ()):
            if op.opcode == "while":
                turns = trips(program, op)
                yield from walk(op.called("body")[0], times * turns, (*loops, (op.name, turns)))
            elif op.opcode == "conditional":
                names = "branch_computations", "true_computation", "false_computation"
                for branch in op.called(*names):
                    yield from walk(branch, times * share, loops)
            elif op.opcode == "call":
                yield from walk(op.called("to_apply")[0], times, loops)
            elif op.opcode not in FREE:
                yield Use(op, times, loops)

    return walk("", 1.0, ())


def trips(program: Program, loop: Op) -> int:
    """Return how often a loop turns; one that ends by a test on data, at most so often."""
    if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest):
        return int(known[1])
    tested = program.get(loop.called("condition")[0], [])
    inside = [op for test in tested for name in test.called("calls") for op in program[name]]
    constants = (op.rest.partition(")")[0] for op in (*tested, *inside) if op.opcode == "constant")
    return max((int(value) for value in constants if value.isdigit()), default=1)


def padded(kind: str, everywhere: bool = False) -> int:
    """Return the bytes of a type in a chip's main memory, tiles filled up.

    What lies in the core's own memory, S(1), counts only `everywhere`.
    """
    total = 0
    for name, dims, layout in _SHAPE.findall(kind):
        order, _, tiles = layout.partition(":")
        if "S(" in tiles and not everywhere:
            continue
        sizes = [int(size) for size in dims.split(",") if size]
        if order:
            sizes = [sizes[int(axis)] for axis in reversed(order.split(","))]  # the minor one last
        if tile := re.search(r"T\(([\d,]+)\)", tiles):
            filled = [int(size) for size in tile[1].split(",")]
            for axis in range(1, min(len(filled), len(sizes)) + 1):
                sizes[-axis] = math.ceil(sizes[-axis] / filled[-axis]) * filled[-axis]
        bits = re.search(r"\d+", name)
        total += SIZES.get(name, int(bits[0]) // 8 if bits else 0) * math.prod(sizes)
    return total


def moved(program: Program, op: Op, types: dict[str, str]) -> int:
    """Return the bytes that an operation reads from and writes to main memory.

    An operand of which a fusion takes a slice, or rows, counts as much as is taken; an array that
    is updated in its place, as much as is new.
    """
    inner = program[op.called("calls")[0]] if op.opcode == "fusion" else []
    if not inner:
        operands = tuple(f"operand {i}" for i in range(len(op.operands)))
        parameters = [
            Op(name, types.get(given, ""), "parameter", (), f"{i})")
            for i, (name, given) in enumerate(zip(operands, op.operands, strict=True))
        ]
        inner = [*parameters, op._replace(operands=operands)]
    named = {each.name: each for each in inner}

    def source(name: str) -> str:
        while name in named and named[name].opcode == "bitcast":
            name = named[name].operands[0]
        return name

    total = 0
    for each in inner:
        if each.opcode == "parameter":
            given = types.get(op.operands[int(each.rest.partition(")")[0])], "")
            takers = [
                (other, [source(o) for o in other.operands].index(each.name))
                for other in inner
                if other.opcode != "bitcast" and each.name in map(source, other.operands)
            ]
            total += min(padded(given), sum(_taken(other, place, given) for other, place in takers))
    root = inner[-1]
    roots = [named.get(source(o)) for o in root.operands] if root.opcode == "tuple" else [root]
    kinds = re.findall(r"[a-z]\w*\[[\d,]*\](?:\{[^{}]*\})?", op.type)
    for result, kind in zip(roots, kinds, strict=False):
        result = named.get(source(result.name)) if result else None
        written = padded(kind)
        if result and result.opcode == "dynamic-update-slice":
            update = named.get(result.operands[1])
            written = min(written, padded(update.type, True)) if update else written
        total += written
    return total


def _taken(taker: Op, place: int, given: str) -> int:
    """Return the bytes that an operation takes of its operand at a place."""
    if place == 0 and taker.opcode in ("dynamic-slice", "gather", "slice"):
        return padded(taker.type, True)
    if place == 0 and taker.opcode == "dynamic-update-slice":
        return 0
    return padded(given)


_BUNDLE = re.compile(r"^\s*(?:0x[0-9a-f]+|0)\s+(?:[A-Z]{2})?\s*:", re.MULTILINE)
_JUMP = re.compile(r"sbr\.rel (?:\(!?(%p\w+)\) )?target = \$region(\d+)")
DELAY = 4  # bundles after a jump that run before it is taken


def rows_gathered(program: Program, op: Op) -> int:
    """Return how many rows a fusion gathers; 0 if none."""
    inner = [each for name in op.called("calls") for each in program[name]]
    for each in inner:
        if each.opcode == "gather" and (size := re.search(r"slice_sizes={([\d,]+)}", each.rest)):
            result = _SHAPE.search(each.type)
            given = [result[2] if result else "", size[1]]
            whole, row = (math.prod(int(x) for x in dims.split(",") if x) for dims in given)
            return whole // row
    return 0


def cycles(code: str, rows: int = 0) -> int:
    """Return how many bundles of libtpu's machine code run: those of a loop as often as it turns.

    A loop whose number of turns is not in the code is counted once, unless it copies rows from main
    memory: then as often as its copies need for so many `rows`.
    """
    bundles = _BUNDLE.split(code)[1:]
    starts: dict[str, int] = {}
    for here, bundle in enumerate(bundles):
        for region in re.findall(r"Start(?:/End empty)? region (\d+)", bundle):
            starts.setdefault(region, here)
    times: list[float] = [1] * len(bundles)
    whole: set[int] = set()  # bundles whose times are those of the whole code, loops around or not
    for here, bundle in enumerate(bundles):
        for test, region in _JUMP.findall(bundle):
            if (start := starts.get(region, here + 1)) > here:
                continue
            compared = re.search(rf"{test} = scmp\.\w+\.[su]32\.totalorder ([^;}}/]*)", code)
            limit = re.search(r", (\d+)\s*$", compared[1]) if compared else None
            inside = set(range(start, min(here + DELAY + 1, len(bundles)))) - whole
            turns = int(limit[1]) if limit else 1.0
            copies = sum(bundles[n].count("dma.hbm_to_vmem") for n in inside)
            if limit is None and copies and rows:
                whole |= inside
                turns = rows / copies
            for n in inside:
                times[n] *= turns
    return round(sum(times))


def graphs(thunks: str) -> list[float]:
    """Return which share of the launches is in CUDA graphs: outside loops, then loop by loop."""
    counts = [[0, 0]]
    around: list[tuple[int, int, bool]] = []  # indentation, number of the loop, in a graph
    testing = False
    for line in thunks.splitlines():
        if line.strip() in ("condition:", "body:"):
            testing = line.strip() == "condition:"
        if not (found := re.match(r"( *)\d+: k(\w+)", line)):
            continue
        while around and around[-1][0] >= len(found[1]):
            around.pop()
        _, loop, graph = around[-1] if around else (0, 0, False)
        if found[2] == "While":
            counts.append([0, 0])
            around.append((len(found[1]), len(counts) - 1, graph))
        elif found[2] in ("CommandBuffer", "Conditional", "Sequential"):
            around.append((len(found[1]), loop, graph or found[2] == "CommandBuffer"))
        elif not testing:
            counts[loop][graph] += 1
    return [inside / max(1, inside + outside) for outside, inside in counts]
