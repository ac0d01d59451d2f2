"""The command's process: signals at any moment, odd terminals, readers that go away."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from processes import assert_one_line, begun, finished, process, without_devices

pytestmark = pytest.mark.slow  # many, or processes

SMALL = ("run", "fig1", "--trials", "4", "--rounds", "3", "--out")
# What runs in the place of a command, to be interrupted where it hurts.
INSTEAD = """
from jaxota.cli import main as cli
from jaxota._core import files as _files
from pathlib import Path

def interrupted(signum=signal.SIGINT):
    os.kill(os.getpid(), signum)
    time.sleep(60)

def work(argv=None):
    out = Path(sys.argv[1])
{}
    return 0

cli.main = work
"""


def interrupted(tmp_path, code, *words):
    """What a process says that does this, in a folder out/deep that is not there yet."""
    out = tmp_path / "out" / "deep"
    program = INSTEAD.format(textwrap.indent(textwrap.dedent(code), " " * 4))
    with begun(out, *words, first=program) as started:
        return finished(started)


NOTHING = (130, "", "jaxota: interrupted, nothing was written\n")


@pytest.mark.parametrize(
    "code",
    [
        "interrupted()",
        # The exception that Ctrl-C raises would be lost in a callback.
        """
        import gc
        gc.callbacks.append(lambda *_: os.kill(os.getpid(), signal.SIGINT))
        gc.collect()
        time.sleep(60)
        """,
        # While a file is being written, by somebody who answers with an error of his own.
        """
        with _files.replacing(out / "a", out / "b") as (first, second):
            first.write_text("half")
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                second.write_text("half")
        """,
        # In a thread, while another one waits for it.
        """
        import threading
        other = threading.Thread(target=interrupted)
        other.start()
        other.join()
        """,
    ],
)
def test_ctrl_c_is_one_line_and_leaves_nothing(code, tmp_path):
    assert interrupted(tmp_path, code) == NOTHING
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_other_signals_do_the_same(name, tmp_path):
    """SIGHUP: a terminal was closed. Processes that the command has started end with it."""
    work = """
    import functools, subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                             start_new_session=True)
    print(child.pid, flush=True)
    with _files.undoing(functools.partial(os.killpg, child.pid, signal.SIGKILL)):
        interrupted(signal.{})
    """
    code, printed, errors = interrupted(tmp_path, work.format(name))
    assert (code, errors) == (128 + getattr(signal, name), NOTHING[2])
    state, until = Path(f"/proc/{int(printed)}/stat"), time.monotonic() + 20
    while state.exists() and state.read_text().split()[2] != "Z":  # a busy machine takes a moment
        assert time.monotonic() < until, "its child runs on"
        time.sleep(0.01)


def test_flags_that_xla_does_not_know_are_one_line(tmp_path):
    flags = os.environ["XLA_FLAGS"] + " --xla_no_such_flag=1"
    with process(
        "-m", "jaxota", *SMALL, tmp_path, env=os.environ | {"XLA_FLAGS": flags}
    ) as started:
        code, printed, errors = finished(started)
    assert (code, printed) == (2, "")
    assert_one_line(errors, "XLA_FLAGS must hold flags that XLA knows, got --xla_no_such_flag")


def test_no_file_is_left_without_the_others(tmp_path):
    """Ctrl-C between two files that belong together waits for the second."""
    code = """
    replace = os.replace
    def slow(source, target):
        replace(source, target)
        if Path(target).name == "a":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
    os.replace = slow
    with _files.replacing(out / "a", out / "b") as drafts:
        [draft.write_text("new") for draft in drafts]
    time.sleep(60)
    """
    assert interrupted(tmp_path, code) == NOTHING
    assert sorted(os.listdir(tmp_path / "out" / "deep")) == ["a", "b"]


def test_who_insists_is_not_kept_waiting(tmp_path):
    """A disk may hang while files are placed: Ctrl-C once more."""
    code = """
    from jaxota.cli import process as _process
    with _files.placing:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        interrupted()
    """
    assert interrupted(tmp_path, code) == NOTHING


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    """As that of a script's background: Ctrl-C is not meant for it."""
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    work = INSTEAD.format('    os.kill(os.getpid(), signal.SIGINT)\n    print("done")')
    with begun(tmp_path, first=f"{ignore}\n{work}") as started:
        assert finished(started) == (0, "done\n", "")


# Somewhat after a function was called, and before anything comes of it.
HOOK = """
import pkgutil, threading
holder = pkgutil.resolve_name({!r})
real = getattr(holder, {!r})

def hooked(*arguments, **options):
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    real(*arguments, **options)
    time.sleep(60)

setattr(holder, {!r}, hooked)
"""


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        ("builtins", "__import__"),  # of the first module, and so before jax is there
        ("jaxota.study.executor", "drive"),
        ("jax.stages:Lowered", "compile"),
        ("matplotlib.figure:Figure", "savefig"),
        ("jaxota.cli.main", "show"),
    ],
)
def test_an_interrupted_run_says_what_it_leaves(holder, name, tmp_path):
    """Counted by what the process does, not by the clock."""
    out = tmp_path / "out" / "deep"
    with begun(*SMALL, out, first=HOOK.format(holder, name, name)) as started:
        code, printed, errors = finished(started)
    assert code == 130
    if name == "show":
        errors = without_devices(errors)
        assert_one_line(errors, "interrupted", f"when the results had been written to {out}")
        assert sorted(os.listdir(out)) == ["fig1.csv", "fig1.nc", "fig1.png"]
    else:
        errors = without_devices(errors) if name in ("drive", "savefig") else errors
        assert printed == "" and errors == NOTHING[2] and list(tmp_path.iterdir()) == []


def said(*words, **environment):
    """What the command prints, by way of bytes."""
    with process("-m", "jaxota", *words, env=os.environ | environment, text=False) as started:
        return finished(started)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1"])
def test_terminals_without_unicode_get_plain_characters(encoding):
    code, printed, errors = said("list", PYTHONIOENCODING=encoding)
    assert (code, errors) == (0, b"")
    assert "8×8 digits" in said("list", PYTHONIOENCODING="utf-8")[1].decode()
    assert ("8x8 digits" if encoding == "ascii" else "8×8 digits") in printed.decode(encoding)
    code, printed, errors = said("sweep", "--help", PYTHONIOENCODING=encoding)
    wanted = "N(0, S^2)" if encoding == "ascii" else "N(0, S²)"
    assert (code, errors) == (0, b"") and wanted in printed.decode(encoding)
    code, printed, errors = said("run", "η", PYTHONIOENCODING=encoding)
    assert code == 2 and b"eta" in errors and errors.count(b"\n") == 1


def test_a_table_in_plain_characters(tmp_path):
    code, printed, errors = said(*SMALL, tmp_path, PYTHONIOENCODING="ascii")
    assert (code, without_devices(errors.decode())) == (0, "")
    assert b"+- is a 95 % interval" in printed and b"| COTAF " in printed
    assert len(os.listdir(tmp_path)) == 3


def test_the_c_locale(monkeypatch):
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    code, printed, errors = said("list", **locale)
    assert (code, errors) == (0, b"") and b"8x8 digits" in printed


def test_a_reader_that_goes_away_is_no_fault():
    """Quiet, and the exit code that shells know: 128 + SIGPIPE."""
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    for words in (["list"], ["--help"], ["sweep", "--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        with process("-m", "jaxota", *words, stdout=writing, env=buffered) as started:
            os.close(writing)
            assert finished(started) == (141, None, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_fault(closed):
    line = f"{sys.executable} -m jaxota list {closed}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed == "2>&-")


@pytest.mark.parametrize(
    ("name", "value"), [("JAX_PLATFORMS", "cuda"), ("JAX_PLATFORMS", "x"), ("MPLBACKEND", "x")]
)
def test_what_the_environment_cannot_give_is_said_before_the_work(name, value, tmp_path):
    code, printed, errors = said(*SMALL, tmp_path / "out", **{name: value})
    assert (code, printed) == (2, b"")
    assert_one_line(errors.decode(), f"{name} must", value)
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_used_is_the_first_line_with_the_fix(tmp_path):
    """JAX's own warning is seen, too, although compiled programs are kept."""
    gpu = """
from jax._src import hardware_utils
from jaxota._core import devices
hardware_utils.has_visible_nvidia_gpu = lambda: True
devices._SIGNS = {("GPU", "cuda12"): ("/no/such/file", sys.executable)}
"""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
    with begun(*SMALL, tmp_path, first=gpu, env=environment) as started:
        code, _, errors = finished(started)
    by_jax, ours = errors.splitlines()
    assert code == 0 and "An NVIDIA GPU may be present" in by_jax
    assert re.fullmatch(
        r"jaxota: running on \d+ CPU devices?, NOT on the GPU of this machine, which JAX cannot "
        r"use: pip install 'jaxota\[cuda12\]', or JAX_PLATFORMS=cpu if that is meant",
        ours,
    )
    with begun(*SMALL, tmp_path, first=gpu, env=environment | {"JAX_PLATFORMS": "cpu"}) as started:
        code, _, errors = finished(started)
    assert (code, without_devices(errors)) == (0, "")
