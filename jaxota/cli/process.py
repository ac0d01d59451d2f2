"""The process of the command: signals, streams, the program cache, the environment."""

import codecs
import contextlib
import hashlib
import os
import platform
import re
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota.errors import InputError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
placing = threading.RLock()  # held while files take their places: no moment to end the process
ending = threading.RLock()  # held by who says the last word
_undo: list[Callable[[], object]] = []


def _nothing() -> str:
    return "nothing was written"


kept: Callable[[], str] = _nothing  # says what an interruption leaves


def heed_signals() -> None:
    """From now on Ctrl-C and SIGTERM end the process within a moment, whatever it does.

    Neither an exception, which is lost inside a callback of a C library, nor a proper end, which
    takes down a compiler at work, would do: a thread of its own cleans up, says one line, and
    leaves. A signal that is ignored, as in the background of a script, stays so.
    """
    heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
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
    while not placing.acquire(timeout=0.05):
        with contextlib.suppress(TimeoutError):
            if reading.recv(1)[0] in _SIGNALS:  # once more: it is not to be waited for
                break
    ending.acquire()  # from now on others wait, and say nothing
    for step in reversed(tuple(_undo)):
        with contextlib.suppress(Exception):
            step()
    _leave(signum)


def _leave(signum: int, frame: object = None) -> None:
    ending.acquire()
    with contextlib.suppress(OSError):
        os.write(2, f"jaxota: interrupted, {kept()}\n".encode("utf-8", "replace"))
    os._exit(128 + signum)


@contextlib.contextmanager
def undoing(step: Callable[[], object]) -> Iterator[None]:
    """Should a signal end the process in this block, then not without this step."""
    _undo.append(step)
    try:
        yield
    finally:
        _undo.remove(step)


_PLAIN = {
    "±": "+-", "−": "-", "–": "-", "×": "x", "·": "*", "…": "...", "≤": "<=", "≥": ">=",
    "→": "->", "²": "^2", "⁻": "^-", "√": "sqrt ", "‖": "||", "∞": "inf", "Σ": "sum ",
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "Δ": "Delta", "ε": "eps",
    "η": "eta", "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega",
}  # fmt: skip


def mend_streams() -> None:
    """Where an encoding lacks a character it is written in plain ones; a closed stream is empty."""

    def plainly(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lacking = error.object[error.start : error.end]
        return "".join(_PLAIN.get(each, "?") for each in lacking), error.end

    codecs.register_error("jaxota", plainly)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors="jaxota")


def hush() -> int:
    """The reader of our output is gone: what is left of it goes nowhere. Returns the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream without a file
            os.dup2(nowhere, stream.fileno())
    return 128 + 13  # as if by SIGPIPE


CACHE = "JAXOTA_CACHE"


def folder() -> Path:
    """That which the environment names, or the user's own."""
    import platformdirs

    named = os.environ.get(CACHE) or "off"
    if named == "off":
        return Path(platformdirs.user_cache_dir("jaxota"))
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise InputError(f"{CACHE} must be a folder, or off, got {named}: {error}") from None


def keep_programs() -> None:
    """Keep compiled programs between runs, unless the environment says otherwise.

    Programs are kept apart by kind of processor, as a home folder may be shared by several.
    """
    if os.environ.get(CACHE) == "off":
        return
    import jax

    # XLA:CPU reports two tuning hints of its own as missing from the processor, at length, for each
    # program that it reads from the cache; what is really wrong reaches us as an exception.
    jax.config.update("jax_logging_level", "CRITICAL")
    try:
        described = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        kind = [line for line in described.splitlines() if line.startswith(("model name", "flags"))]
    except OSError:
        kind = [platform.processor()]
    place = folder() / hashlib.sha256("".join(kind).encode()).hexdigest()[:8]
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        print(
            f"jaxota: compiled programs are not kept, as {place} cannot be written "
            f"({error.strerror}): name another folder with {CACHE}, or off",
            file=sys.stderr,
        )
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    _heal(place)


def _heal(place: Path) -> None:
    """A program that cannot be read makes room for itself: JAX warns, and would never replace it.

    One that could not be written, as on a full disk, will be such a one.
    """
    shown = warnings.showwarning

    def heal(message: Any, *where: Any, **more: Any) -> None:
        told = re.match(r"Error (reading|writing) persistent .* for '([^']*)'", str(message))
        if told is None:
            shown(message, *where, **more)
        elif told[1] == "reading":
            for entry in place.glob(f"{told[2]}-*-cache"):
                entry.unlink(missing_ok=True)

    warnings.showwarning = heal


def prepare(on_images: bool) -> None:
    """What must be set before JAX begins, and what would fail after the work."""
    from jaxota._core import devices as _devices

    _refuse_backend()
    _devices.virtual()
    keep_programs()
    _refuse_platform()
    if on_images:
        _silence_tfds()


def _refuse_platform() -> None:
    import jax

    try:
        jax.devices()
    except Exception as error:  # of JAX or of a plugin
        said = f": {str(error).splitlines()[0]}" if str(error) else ""
        raise InputError(
            "JAX_PLATFORMS must name what JAX finds here, such as cpu, got "
            f"{os.environ.get('JAX_PLATFORMS')!r}{said}"
        ) from None


def _refuse_backend() -> None:
    """Matplotlib looks at it when it is loaded."""
    named = os.environ.get("MPLBACKEND")
    if named:
        try:
            import matplotlib  # noqa: F401
        except ValueError:
            raise InputError(
                f"MPLBACKEND must be one that matplotlib knows, got {named!r}"
            ) from None


def _silence_tfds() -> None:
    """Its bars would run through ours."""
    with contextlib.suppress(ImportError):
        import tensorflow_datasets

        tensorflow_datasets.disable_progress_bar()
