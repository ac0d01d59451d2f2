"""The command `jaxota compile`: memory, kernels and predicted time of a study's programs.

As a process of its own, `python -m jaxota.cli.compile FOLDER REQUEST`, it compiles one program: a
compiler reads its flags when it starts, and libtpu ends the process where it fails.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jaxota._core import files
from jaxota.cli import price, process, targets
from jaxota.cli.targets import Target
from jaxota.errors import InputError
from jaxota.reports import counted

HEADER = [
    *("", "compiled in", "arguments", "temporaries", "results", "trials that fit"),
    *("kernels a step", "a round", "time", "user-steps/s", "bound"),
]


def report(name: str, options: dict[str, Any], where: str, tell: Callable[..., None]) -> Any:
    """Compile every algorithm of a study and return a table to show.

    Args:
        name: a figure, or FILE.py[:NAME].
        options: those of the study, such as trials.
        where: the name of a target.
        tell: called with each step of the work.
    """
    target = targets.parse(where)
    if target is not None:
        targets.require(target)
        os.environ.update(targets.OFFLINE)  # before JAX begins
        process.announce(f"the CPU here, to compile for {where}")
    else:
        process.start_jax()
    from jaxota.cli import run

    chosen = run.load(name)
    if not hasattr(chosen, "study"):
        raise InputError(f"{name} is an experiment: compile takes a figure or a study")
    study = chosen.study(**options)
    rows, remarks = [], []
    for label in study.algorithms:
        tell(f"compiling {label}")
        request = {"name": name, "label": label, "options": options, "for": where}
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "jaxota.cli.compile", folder, json.dumps(request)]
            if failure := compiled(command, target, Path(folder)):
                rows.append([label, failure, *[""] * (len(HEADER) - 2)])
                continue
            cells, more = _row(target, Path(folder))
        rows.append([label, *cells])
        remarks += [f"{label}: {more}"] if more else []
    counts = f"{counted(study.trials, 'trial')}, {counted(study.rounds, 'round')}"
    caption = f"{chosen.name} compiled for {where}, {counts}"
    if target is None:
        remarks.append("Times are predicted for v5e, v6e, h100 and t4 only.")
    else:
        caption += ": predicted, not measured"
        remarks.append(f"Nothing ran on {where}: docs/accelerators.md says how this is predicted.")
    return SimpleNamespace(caption=caption, table=[HEADER, *rows], remarks=remarks)


def compiled(
    command: list[str],
    target: Target | None,
    folder: Path,
    seconds: float | None = None,
    **more: str,
) -> str:
    """Run a process that compiles into `folder`; return why it failed, or nothing.

    Args:
        command: the process, which calls `targets.compile_into`.
        target: the devices to compile for, which set its environment; None for those here.
        folder: the folder to write to.
        seconds: the time it may take.
        **more: what else to set in its environment.
    """
    setting = targets.environment(target, folder / "dump") if target else {}
    environment = os.environ | setting | more
    # In a session of its own it does not answer Ctrl-C, too; it ends with all that it started.
    with (
        open(folder / "errors", "wb") as errors,
        subprocess.Popen(
            command, env=environment, stderr=errors, stdout=errors, start_new_session=True
        ) as child,
    ):
        end = functools.partial(os.killpg, child.pid, signal.SIGKILL)
        with files.undoing(end):
            try:
                code = child.wait(seconds)
            except subprocess.TimeoutExpired:
                end()
                return f"not compiled within {seconds:.0f} s"
    if code < 0:
        return f"the compiler aborted ({signal.Signals(-code).name})"
    lines = (folder / "errors").read_text("utf-8", "replace").strip().splitlines()
    if code == 2 and lines:  # a line for the user
        raise InputError(lines[-1])
    return f"fails: {lines[-1] if lines else code}" if code else ""


def _row(target: Target | None, folder: Path) -> tuple[list[str], str]:
    """Return the cells of a compiled program, and a remark."""
    from jaxota._core.capacity import format_bytes

    facts = json.loads((folder / "facts.json").read_text())
    arguments, temporaries, results = (facts[k] for k in ("arguments", "temporaries", "results"))
    # What grows with the trials is at most all but the arguments: this many fit at least.
    room = max(0.0, facts["memory"] - arguments)
    most = int(room / (temporaries + results) * facts["trials"])
    cells = [f"{facts['compile_seconds']:.1f} s"]
    cells += [format_bytes(size) for size in (arguments, temporaries, results)]
    cells.append(f"≥ {float(f'{most:.2g}'):,.0f}")
    if target is None:
        return [*cells, *["–"] * 5], ""
    found = price.price(target.chip, folder, *(facts[k] for k in ("rounds", "steps", "every")))
    cells += [f"{x:.3g}" if x else "–" for x in (found.step_kernels, found.round_kernels)]
    cells += [f"{1e3 * found.seconds:.3g} ms", f"{facts['user_steps'] / found.seconds:.2g}"]
    largest = (f"{row.name} {100 * found.share(row):.0f} %" for row in found.top[:3])
    remark = f"most time in {', '.join(largest)}"
    if found.unpriced:
        remark += f"; {found.unpriced} operations without a figure count as launches or bytes only"
    return [*cells, found.bound], remark


def _compile(folder: Path, request: dict[str, Any]) -> None:
    """Compile one algorithm of a study for a target; write the program and its facts."""
    import jaxota as jo
    from jaxota._core import capacity, devices
    from jaxota.cli import run
    from jaxota.study.resolve import resolve

    target = targets.parse(request["for"])
    if target is None:
        devices.virtual()
    chosen: Any = run.load(request["name"])
    study = chosen.study(**request["options"])
    study = study.replace(algorithms={request["label"]: study.algorithms[request["label"]]})
    group = next(iter(resolve(study.replace(reference="")).groups.values()))
    parts = group.rows(0)  # the first setting's
    (algorithm,), task = parts["algorithms"], parts["task"]
    setup = study.key, algorithm, parts["channel"], task, study.rounds, study.trials
    lowered = jo.lower(*setup, devices=targets.devices(target), every=study.every)
    memory = target.chip.memory if target else capacity.device_memory() or capacity.machine_memory()
    targets.compile_into(
        folder,
        lowered,
        memory=memory,
        trials=study.trials,
        rounds=study.rounds,
        steps=algorithm.local.steps,
        every=study.every,
        user_steps=study.trials * study.rounds * task.users * algorithm.local.steps,
    )


if __name__ == "__main__":
    try:
        _compile(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
