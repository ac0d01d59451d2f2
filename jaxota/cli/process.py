"""The process of the command: signals, streams, progress, the program cache, the environment."""

import atexit
import codecs
import contextlib
import gc
import importlib.util
import mmap
import os
import re
import shutil
import signal
import socket
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota._core import cache, files
from jaxota._core.progress import shown
from jaxota.errors import InputError, visible

# Windows has no SIGHUP, which a terminal sends when it is closed.
_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
ending = threading.RLock()  # held by the thread that prints the last line
# Stages of a command that may still find its input to be bad, and then print that line alone.
PREPARING = ("reading the data", "compiling")
out: Path | None = None  # the folder that the command writes to
store: Path | None = None  # the folder that keeps its chunks
announced = False  # whether the devices in use were printed


def main() -> None:
    """Run the command, and end the process with its exit code."""
    heed_signals()
    mend_streams()
    # Tracing leaves hundreds of thousands of objects that stay: to look through them for garbage,
    # again and again and once more at the exit, would take a fifth of a short run.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    from jaxota.cli import main as command

    try:
        sys.exit(command.main())
    finally:
        ending.acquire()  # a thread that answers a signal prints the last line


def heed_signals() -> None:
    """End the process within a moment of Ctrl-C, SIGTERM or SIGHUP, whatever it does.

    An exception would be lost inside a callback of a C library, and a normal exit waits for a
    compiler at work: a thread of its own cleans up, prints one line, and leaves. A signal that is
    ignored, as in the background of a script, stays ignored.
    """
    heeded = [signum for signum in _SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
    for signum in heeded:
        signal.signal(signum, _leave)  # until the thread is there
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()
    for signum in heeded:
        signal.signal(signum, lambda *_: None)


def _watch(reading: socket.socket) -> None:
    while (signum := reading.recv(1)[0]) not in _SIGNALS:
        pass
    reading.settimeout(0.05)
    while not files.placing.acquire(timeout=0.05):
        with contextlib.suppress(TimeoutError):
            if reading.recv(1)[0] in _SIGNALS:  # a second Ctrl-C: do not wait
                break
    ending.acquire()  # other threads wait from now on, and print nothing
    for step in reversed(tuple(files.undo_steps)):
        with contextlib.suppress(Exception):
            step()
    _leave(signum)


def _leave(signum: int, frame: object = None) -> None:
    ending.acquire()
    with contextlib.suppress(OSError):
        os.write(2, f"jaxota: interrupted, {_kept()}\n".encode("utf-8", "replace"))
    os._exit(128 + signum)


def _kept() -> str:
    """Say what an interruption leaves."""
    if store is not None and (store / "study.json").exists():
        return resumable(store)
    if out in {path.parent for path in files.placed}:
        return f"when the results had been written to {out}"
    return "nothing was written"


def resumable(store: Path) -> str:
    """Say how many chunks a store holds, and how to continue."""
    chunks = len(list((store / "chunks").glob("[!.]*")))
    kept = "1 finished chunk is" if chunks == 1 else f"{chunks:,} finished chunks are"
    return f"{kept} kept in {store}: the same command with --resume goes on"


_PLAIN = {
    "±": "+-", "−": "-", "–": "-", "×": "x", "·": "*", "…": "...", "≤": "<=", "≥": ">=",
    "→": "->", "²": "^2", "⁻": "^-", "√": "sqrt ", "‖": "||", "∞": "inf", "Σ": "sum ",
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "Δ": "Delta", "ε": "eps",
    "η": "eta", "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega",
}  # fmt: skip


def mend_streams() -> None:
    """Write plain characters where an encoding lacks one; give a closed stream an empty file."""

    def plainly(error: Any) -> tuple[str, int]:
        lacking = error.object[error.start : error.end]
        return "".join(_PLAIN.get(character, "?") for character in lacking), error.end

    codecs.register_error("jaxota", plainly)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        else:
            stream.reconfigure(errors="jaxota")


def say(*lines: str, file: Any = None) -> None:
    """Print lines in which nothing controls the terminal; on one, none breaks in mid-word."""
    stream = sys.stdout if file is None else file
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    for line in "\n".join(lines).split("\n"):
        print(folded(visible(line), width), file=stream)


def folded(line: str, width: int | None, indent: int = 0) -> str:
    """Fold a line between words, all rows but the first indented; without a width it is whole."""
    if width is None or len(line) <= width:
        return line
    rest = " " * indent
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, width, subsequent_indent=rest, drop_whitespace=True, **whole)


def hush() -> int:
    """Drop the rest of the output, as its reader is gone; return the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream without a file
            os.dup2(nowhere, stream.fileno())
    return 128 + 13  # as if by SIGPIPE


@contextlib.contextmanager
def progress(name: str) -> Iterator[Callable[..., None]]:
    """Show the progress of a command, and before its work begins where it runs."""
    with shown(name) as tell:

        def report(stage: str, *counts: Any, **steps: Any) -> None:
            if stage not in PREPARING:
                announce()
            tell(stage, *counts, **steps)

        yield report


@contextlib.contextmanager
def replacing_damaged_programs() -> Iterator[None]:
    """Remove a program from the cache that cannot be read; warnings return to normal afterwards.

    JAX warns of it, compiles anew, and would never replace the file. A program that could not be
    written, as on a full disk, will be such a one: that warning is not shown.
    """
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            fault = re.match(r"Error (reading|writing) persistent .* for '([^']*)'", str(message))
            if fault is None:
                shown(message, *where, **more)
            elif fault[1] == "reading":
                import jax

                place = Path(jax.config.values["jax_compilation_cache_dir"])
                for entry in place.glob(f"{fault[2]}-*-cache"):
                    entry.unlink(missing_ok=True)

        warnings.showwarning = show
        yield


def prepare() -> None:
    """Set what must be set before JAX begins, and refuse what would fail after the work."""
    global announced
    from jaxota._core import devices

    if backend := os.environ.get("MPLBACKEND"):
        try:
            import matplotlib  # looks at it when it is loaded  # noqa: F401
        except ValueError:
            known = "one that matplotlib knows"
            raise InputError(f"MPLBACKEND must be {known}, got {backend!r}") from None
    start_jax()
    cache.keep_programs()
    announced = False
    if devices.unused_hardware():  # now: whoever meant to use it need not wait for a compiler
        announce()


def start_jax() -> None:
    """Let JAX find its devices: on CPU one for each core."""
    from jaxota._core import devices

    refuse_unknown_flags()
    devices.virtual()
    import jax

    try:
        jax.devices()
    except Exception as error:  # of JAX or of a plugin
        reason = f": {str(error).splitlines()[0]}" if str(error) else ""
        platforms = os.environ.get("JAX_PLATFORMS")
        raise InputError(
            f"JAX_PLATFORMS must name what JAX finds here, such as cpu, got {platforms!r}{reason}"
        ) from None


def announce(where: str | None = None) -> None:
    """Print where a command runs, once, before work begins: by default the devices in use."""
    global announced
    if not announced:
        from jaxota._core.devices import devices

        say(f"jaxota: running on {where or devices()}", file=sys.stderr)
        announced = True


def refuse_unknown_flags() -> None:
    """Raise InputError for a flag that XLA does not know: it would end the process by itself."""
    flags = re.findall(r"--(\w+)", os.environ.get("XLA_FLAGS", ""))
    place = importlib.util.find_spec("jaxlib")
    library = Path(*place.submodule_search_locations or ()) / "libjax_common.so" if place else None
    if not flags or library is None or not library.exists():
        return
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        for flag in flags:
            if code.find(f"{flag}\0".encode()) < 0:
                raise InputError(f"XLA_FLAGS must hold flags that XLA knows, got --{flag}")


def silence_downloads() -> None:
    """Turn off the progress bars of tensorflow-datasets, which would run through ours."""
    with contextlib.suppress(ImportError):
        import tensorflow_datasets

        tensorflow_datasets.disable_progress_bar()
