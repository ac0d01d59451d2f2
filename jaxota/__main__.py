"""The process `jaxota`, ready for a signal before anything heavy is loaded."""

import atexit
import gc
import sys

from jaxota.cli import process


def main() -> None:
    """Run the command, and end the process with its exit code."""
    process.heed_signals()
    process.mend_streams()
    # Tracing leaves hundreds of thousands of objects that stay: to look through them for garbage,
    # again and again and once more at the exit, would take a fifth of a short run.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    from jaxota.cli import main as command

    try:
        sys.exit(command.main())
    finally:
        process.ending.acquire()  # a thread that answers a signal prints the last line


if __name__ == "__main__":
    main()
