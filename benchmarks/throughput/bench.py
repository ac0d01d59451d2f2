"""What benchmarks share: the machine's name, medians taken in turn, a table, JSON, a picture."""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 300  # seconds for a process to answer


def options(question: str, **more: Any) -> argparse.Namespace:
    """The options that all benchmarks have, and numbers of a benchmark's own."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--out", type=Path, metavar="DIR", help="write JSON and a picture there")
    parser.add_argument("--short", action="store_true", help="fewer repetitions")
    for name, value in more.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """What a rate depends on."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.split(": ")[1] for x in lines if x.startswith("model name")), name)
    return {
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def accelerator() -> dict[str, Any]:
    """The same of this process's JAX."""
    import jax

    return {
        "jax": jax.__version__,
        "devices": f"{jax.local_device_count()} {jax.devices()[0].device_kind}",
        "matmul precision": str(jax.config.jax_default_matmul_precision or "default"),
    }


def medians(runs: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """The median seconds of each, after one run to warm up; in turn, so that all see the same
    moments of the machine."""
    for run in runs.values():
        run()
    seconds: dict[Any, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in seconds.items()}


def child(*arguments: Any, devices: int | None = None, python: Any = sys.executable) -> str:
    """What another process prints: a backend cannot change its devices, nor forget a program."""
    environment = dict(os.environ)
    if devices:
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    command = [str(python), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{Path(command[1]).name}: no answer within {PATIENCE} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RuntimeError(f"{Path(command[1]).name}: {last}")
    return done.stdout


def going_on(what: str) -> None:
    """A sign of life, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what} …", end="" if what else "\r\033[K", file=sys.stderr, flush=True)


def said(question: str, facts: dict[str, Any], header: Sequence[str], rows: Iterable[Any]) -> None:
    """The machine, and a table."""
    print(question)
    print(", ".join(f"{k} {v}" for k, v in facts.items()))
    cells = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = (cell.ljust(w) for cell, w in zip(row, widths, strict=True))
        print("  ".join([first, *(x.strip().rjust(len(x)) for x in others)]).rstrip())
    print(flush=True)


def kept(out: Path | None, name: str, facts: dict[str, Any], draw: Callable[[Any], None]) -> None:
    """`facts` as JSON and what `draw(axes)` draws, if there is a folder for them."""
    if out is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    draw(axes)
    figure.savefig(out / f"{name}.png", dpi=200)
    plt.close(figure)
    print(f"{out / name}.json, {out / name}.png")
