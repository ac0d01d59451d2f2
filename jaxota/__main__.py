"""The process `jaxota`, ready for a signal before anything heavy is loaded."""

import sys

from jaxota.cli import process as _process


def main() -> None:
    """Run the command, and end the process with its exit code."""
    _process.heed_signals()
    _process.mend_streams()
    from jaxota.cli import commands as cli

    try:
        sys.exit(cli.main())
    finally:
        _process.ending.acquire()  # a signal that is being answered has the last word


if __name__ == "__main__":
    main()
