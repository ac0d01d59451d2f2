"""Commands in processes of their own: started, waited for, and gone when a block is left."""

import contextlib
import os
import re
import subprocess
import sys
import time

PATIENCE = 120  # seconds; a process that takes so long hangs
# A process that says when it begins. Ctrl-C works there, also where tests run in the background.
BEGIN = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxota.__main__ import main
{}
print("begun", flush=True)
main()
"""


@contextlib.contextmanager
def process(*words, **options):
    """Python with these words, gone when the block is left."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *map(str, words)], **pipes | options) as started:
        try:
            yield started
        finally:
            started.kill()


@contextlib.contextmanager
def begun(*words, first="", env=os.environ):
    """The command with these words, from its first line on; `first` is what is done before."""
    with process("-c", BEGIN.format(first), *words, env=env) as started:
        assert started.stdout.readline() == "begun\n", started.communicate()
        yield started


def finished(started):
    """Exit code, and what was printed to both streams."""
    printed, errors = started.communicate(timeout=PATIENCE)
    return started.returncode, printed, errors


def wait_for(condition, started):
    """Until it holds, while the process is at work."""
    since = time.monotonic()
    while not condition():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < since + PATIENCE, "it hangs"
        time.sleep(0.001)


def assert_one_line(errors, *words):
    assert errors.startswith("jaxota: ") and errors.count("\n") == 1, errors
    for word in words:
        assert str(word) in errors


def without_devices(errors):
    """What a command that computes says beside its devices, and its progress if it takes long."""
    errors = re.sub(r"^\w+: .* · elapsed .*\n", "", errors, flags=re.M)
    devices = r"jaxota: running on (\d+ CPU devices?|the workers of tcp://[\d.:]+)\n"
    rest, count = re.subn(f"^{devices}", "", errors, flags=re.M)
    assert count == 1, errors
    return rest
