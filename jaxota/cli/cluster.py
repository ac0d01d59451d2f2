"""Chunks on a Dask cluster: workers write into the store, and the driver hears that they did."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota._core import inputs as _validate
from jaxota.errors import InputError

SECONDS = 10  # that a scheduler has to answer


@contextlib.contextmanager
def executor(address: str) -> Iterator[Any]:
    """An executor of `concurrent.futures`' kind whose work is done by the cluster at `address`."""
    try:
        from distributed import CancelledError, Client, KilledWorker
    except ImportError:
        raise InputError("--scheduler needs dask: pip install 'jaxota[distributed]'") from None
    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"--scheduler {address} did not answer within {SECONDS} s: {reason}"
        ) from None
    with client:
        try:
            # A chunk whose worker died is done by another.
            yield client.get_executor(pure=False, retries=10)
        except KilledWorker as error:
            raise InputError(
                f"workers died at one chunk again and again ({_validate.first_line(error)}): "
                "a lower --memory may help, and --resume goes on"
            ) from None
        except CancelledError:
            raise InputError(f"--scheduler {address} went away: --resume goes on") from None


def chunk(words: str, folder: str, number: int) -> int:
    """Done by a worker: the chunk of a number, of the job that `words` specify, to the store.

    Nothing is sent back but the number.
    """
    _use_cores()
    from jaxota.cli import cache as _cache
    from jaxota.cli import specs
    from jaxota.study import executor as elsewhere

    _cache.keep_programs()
    return elsewhere.fill(specs.remembered(words), folder, number)


def work(spec: dict[str, Any], folder: Path) -> Callable[[int], int]:
    """What an executor is given for each number."""
    return functools.partial(chunk, json.dumps(spec), str(folder.resolve()))


def _use_cores() -> None:
    """On CPU, as many devices as the worker has threads, unless JAX was told or has begun."""
    from distributed import get_worker

    from jaxota._core.devices import virtual

    with contextlib.suppress(ValueError):  # no worker, but a thread of the driver's own
        virtual(get_worker().state.nthreads)
