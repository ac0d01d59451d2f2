"""The process of the command: what it does on a signal, and where nobody listens."""

import codecs
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

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
