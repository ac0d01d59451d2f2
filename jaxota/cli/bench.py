"""The short benchmarks, as the command runs them."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

from jaxota.cli import process as _process
from jaxota.errors import InputError


def run(out: Path | None) -> int:
    """Each a process of its own; their exit code."""
    folder = Path(__file__).parents[2] / "benchmarks" / "throughput"
    if not (folder / "against.py").exists():
        raise InputError(f"bench needs the benchmarks of a clone of jaxota, not found: {folder}")
    written = ["--out", str(out)] if out else []
    for script, *options in (["against.py", "--only", "regression,full"], ["limits.py"]):
        command = [sys.executable, str(folder / script), "--short", *options, *written]
        # In a session of its own it does not answer Ctrl-C, too; it ends with all that it started.
        with (
            subprocess.Popen(command, start_new_session=True) as child,
            _process.undoing(functools.partial(os.killpg, child.pid, signal.SIGKILL)),
        ):
            code = child.wait()
        if code:
            return 1
    return 0
