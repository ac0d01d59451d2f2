"""What would the paper's experiments cost on TPU v5e, TPU v6e and H100?

    python benchmarks/throughput/accelerators.py [--out DIR] [--chips v5e,h100] [--lines TEXT]
    python benchmarks/throughput/accelerators.py --root CHECKOUT --label before --out DIR
    python benchmarks/throughput/accelerators.py --here

A PREDICTION, not a measurement: each line is compiled by the chip's own compiler, in a process of
its own, and priced by `jaxota.cli.price`. Results are added to DIR/accelerators.json, so that lines
can be made anew one by one. `--root` prices another checkout of jaxota. `--here` measures the same
lines on the devices here, beside the prediction where there is one for them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import bench

PATIENCE = 400.0  # seconds for a line to compile
CHIPS = ("v5e", "v6e", "h100")
SEVERAL = {"v5e": ("v5e", "v5e:2x2", "v5e:2x4"), "h100": ("h100", "h100:4", "h100:8")}
SPREAD = "fig1 COTAF, T = 100,000"  # the line that several chips share
RESULTS = bench.HERE / "results"


class Line(NamedTuple):
    """One experiment."""

    task: str
    algorithm: str
    trials: int
    here: bool = False  # whether `--here` measures it


LINES = {
    f"fig1 {name.upper()}, T = {trials:,}": Line("regression", name, trials, here)
    for name in ("cotaf", "cobaaf", "wise")
    for trials, here in ((1000, True), (10_000, name == "cotaf"), (100_000, False))
} | {
    "fig1 COTAF, data redrawn, T = 1,000": Line("redrawn", "cotaf", 1000, True),
    "fig4 COTAF, T = 200": Line("softmax", "cotaf", 200, True),
    "CNN COTAF, T = 200": Line("cnn", "cotaf", 200, True),
}


def experiment(line: Line) -> tuple[Any, dict[str, Any]]:
    """Arguments of `simulate` and of `every`; images are random, of the shapes of the figures'."""
    import jax
    import numpy as np

    import jaxota as jo

    def images(module: Any, samples: int, tests: int, *shape: int) -> Any:
        rng = np.random.default_rng(0)
        x = rng.random((10, samples, *shape), np.float32)
        test = rng.random((tests, *shape), np.float32), rng.integers(0, 10, tests)
        return jo.tasks.classification(module, (x, rng.integers(0, 10, (10, samples))), test)

    local, rounds, every = (1e-2, 10, 10), 60, 1
    if line.task in ("regression", "redrawn"):
        redraw = line.task == "redrawn"
        task = jo.tasks.synthetic_regression(0, 20, 100, 10, 0.1, 1.0, redraw=redraw)
    elif line.task == "softmax":
        task = images(jo.tasks.SoftmaxRegression(10), 600, 10_000, 28, 28)
        local, rounds, every = (1e-2, 5, 20), 100, 5
    else:
        task = images(jo.tasks.CNN(10, channels=(4, 8)), 140, 359, 8, 8, 1)
        local, rounds, every = (0.2, 5, 20), 40, 2
    algorithm = getattr(jo, line.algorithm)(*local)
    steps = task.users * algorithm.local.steps * rounds * line.trials
    setup = jax.random.key(1), algorithm, jo.Channel(10.0), task, rounds, line.trials
    facts = {"rounds": rounds, "steps": algorithm.local.steps, "every": every, "user_steps": steps}
    return setup, facts


def compile_line(folder: str, name: str, target: str) -> None:
    """The work of a child: compile one line for a target."""
    import jaxota as jo
    import jaxota.cli

    # Another checkout may lack the newer modules of the command; they depend on nothing in it.
    jaxota.cli.__path__.append(str(bench.ROOT / "jaxota" / "cli"))
    from jaxota.cli import targets

    setup, facts = experiment(LINES[name])
    devices = targets.devices(targets.parse(target))
    make = jo.lower if hasattr(jo, "lower") else lower_before
    lowered = make(*setup, devices=devices, every=facts["every"])
    targets.compile_into(Path(folder), lowered, **facts)


def lower_before(*setup: Any, devices: Any, every: int) -> Any:
    """Lower the program for one device in a checkout that has no `jo.lower`."""
    from unittest import mock

    import jax

    from jaxota import calibration, simulation
    from jaxota._core import arguments

    sharding = jax.sharding.SingleDeviceSharding(devices[0])
    with mock.patch("jax.default_backend", lambda: devices[0].platform):
        values, options = arguments.experiment(*setup, every=every)
        if values["algorithm"].needs:
            parts = {name: values[name] for name in ("key", "algorithm", "task")}
            values["plan"] = jax.eval_shape(
                lambda named: calibration.measure(options, **named, initial=None), parts
            )
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), values
        )
        return simulation.program.lower(options, **shapes)


def priced(name: str, target: str, root: Path) -> dict[str, Any]:
    """Compile a line in a process of its own, and return its facts and price."""
    from jaxota.cli import compile, price, targets

    where = targets.parse(target)
    assert where is not None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [sys.executable, __file__, "--child", temporary, name, target]
        if failure := compile.compiled(command, where, folder, PATIENCE, PYTHONPATH=str(root)):
            return {"failure": failure}
        facts = json.loads((folder / "facts.json").read_text())
        counts = (facts[k] for k in ("rounds", "steps", "every"))
        found = price.price(where.chip, folder, *counts)
    largest = {row.name: round(found.share(row), 3) for row in found.top[:3]}
    facts |= found._asdict() | {"top": largest, "rate": facts["user_steps"] / found.seconds}
    return facts


def commit(root: Path) -> str:
    """The commit of a checkout, and whether it holds other changes."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=7"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def predict(given: argparse.Namespace) -> None:
    """Price the chosen lines on the chosen chips, and keep each as soon as it is known."""
    import importlib.metadata as installed

    from jaxota.cli import targets

    path = given.out / "accelerators.json" if given.out else None
    kept = json.loads(path.read_text()) if path and path.exists() else {}
    stored = kept.setdefault(given.label, {})
    made = {
        "commit": commit(given.root),
        "jax": installed.version("jax"),
    }  # before files are written
    jobs = [(chip, chip, name) for chip in given.chips.split(",") for name in LINES]
    if given.label == "after":
        several = [(c, t) for c in given.chips.split(",") for t in SEVERAL.get(c, ())[1:]]
        jobs += [(chip, target, SPREAD) for chip, target in several]
    for chip, target, name in jobs:
        if given.lines not in name:
            continue
        targets.require(targets.parse(chip))
        bench.going_on(f"{target}: {name}")
        facts = priced(name, target, given.root) | made
        stored.setdefault(target, {})[name] = facts
        bench.going_on("")
        words = facts.get("failure") or (
            f"{facts['rate']:.2g} user-steps/s predicted, {1e3 * facts['seconds']:.3g} ms, "
            f"{facts['bound']}, compiled in {facts['compile_seconds']:.0f} s"
        )
        print(f"{given.label}, {target}, {name}: {words}", flush=True)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept, indent=1) + "\n")
    if path:
        picture(kept, path.with_suffix(".png"))
        print(f"{path}, {path.with_suffix('.png')}")


TITLES = {"v5e": "TPU v5e, one chip", "v6e": "TPU v6e, one chip", "h100": "NVIDIA H100"}


def picture(kept: dict[str, Any], path: Path) -> None:
    """Draw before and after for each line, one panel for each chip."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chips = [chip for chip in CHIPS if any(chip in kept[label] for label in kept)]
    size = 2.2 + 1.7 * len(chips), 3.4
    figure, panels = plt.subplots(
        1, len(chips), figsize=size, sharey=True, layout="constrained", squeeze=False
    )
    looks = {"before": ("o", "white", "0.45"), "after": ("o", "C0", "C0")}
    for axes, chip in zip(panels[0], chips, strict=True):
        rates: dict[str, dict[int, float]] = {}
        for label in looks:
            found = kept.get(label, {}).get(chip, {})
            rates[label] = {
                row: found[name]["rate"]
                for row, name in enumerate(LINES)
                if "rate" in found.get(name, {})
            }
        for row in rates["before"].keys() & rates["after"].keys():
            ends = rates["before"][row], rates["after"][row]
            axes.plot(ends, (row, row), color="0.75", linewidth=1, zorder=1)
        for label, (marker, face, edge) in looks.items():
            axes.scatter(
                [*rates[label].values()], [*rates[label]], s=22, marker=marker, facecolor=face,
                edgecolor=edge, label=label, zorder=2,
            )  # fmt: skip
        axes.set_title(TITLES[chip], fontsize=8)
        axes.set_xscale("log")
        axes.set_xlim(4e4, 2e10)
        axes.set_xticks([1e5, 1e6, 1e7, 1e8, 1e9, 1e10])
        axes.tick_params(labelsize=7)
        axes.grid(axis="x", color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_yticks(range(len(LINES)), list(LINES))
    panels[0][0].invert_yaxis()
    panels[0][-1].legend(fontsize=7, frameon=False, loc="lower right")
    figure.supxlabel("user-steps per second, predicted from compiled programs", fontsize=8)
    figure.savefig(path, dpi=200)
    plt.close(figure)


def measured() -> None:
    """Measure the lines on the devices here, beside the prediction for such a chip."""
    import jax

    import jaxota as jo
    from jaxota.cli import targets

    kind, count = jax.devices()[0].device_kind, jax.local_device_count()
    chip = next((name for name, chip in targets.CHIPS.items() if chip.kind == kind), None)
    stored = json.loads((RESULTS / "accelerators.json").read_text())["after"].get(chip, {})
    small = jax.default_backend() == "cpu"
    rows = []
    for name, line in LINES.items():
        if not line.here:
            continue
        if small:  # in minutes, also on two cores
            if line.trials > 1000:
                continue
            line = line._replace(trials=line.trials // 20)
        bench.going_on(name)
        setup, facts = experiment(line)
        plan = jo.calibrate(*setup[:2], setup[3], setup[4], 10) if setup[1].needs else None

        def run(setup: Any = setup, plan: Any = plan, every: int = facts["every"]) -> float:
            begun = time.perf_counter()
            jax.block_until_ready(jo.simulate(*setup, plan=plan, every=every))
            return time.perf_counter() - begun

        first = run()
        seconds = min(run() for _ in range(3))
        rate = facts["user_steps"] / seconds / count
        told = stored.get(name, {}).get("rate")
        cells = (f"{told:.2g}", f"{rate / told:.2g}") if told else ("none", "")
        rows.append((name, line.trials, f"{first:.1f}", f"{1e3 * seconds:.3g}", f"{rate:.2g}"))
        rows[-1] += cells
        bench.going_on("")
    if chip is None:
        print(f"There is no prediction for {kind}.")
    print("--- send from here: an issue with this block tells how far the prediction is off")
    header = "", "trials", "first call, s", "ms", "user-steps/s a device", "predicted", "ratio"
    facts = bench.machine() | bench.accelerator() | {"commit": commit(bench.ROOT)}
    bench.said("Measured by benchmarks/throughput/accelerators.py --here", facts, header, rows)
    print("--- to here")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="DIR", help="write JSON and a picture there")
    parser.add_argument("--root", type=Path, default=bench.ROOT, help="the checkout to compile")
    parser.add_argument("--label", choices=("before", "after"), default="after")
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--lines", default="", metavar="TEXT", help="lines that contain this text")
    parser.add_argument("--here", action="store_true", help="measure on the devices here")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        compile_line(*given.child)
    elif given.here:
        measured()
    else:
        predict(given)


if __name__ == "__main__":
    main()
