"""Chunks on a Dask cluster: workers write into the store, and the driver hears that they did."""

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxota.errors import InputError

SECONDS = 10  # that a scheduler has to answer
_one_at_a_time = threading.Lock()  # a chunk uses all devices of its process


@contextlib.contextmanager
def executor(address: str) -> Iterator[Any]:
    """An executor of `concurrent.futures`' kind whose work is done by the cluster at `address`."""
    try:
        from distributed import Client
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
        # A chunk whose worker died is done by another, as often as it takes.
        yield client.get_executor(pure=False, retries=10)


def chunk(words: str, folder: str, number: int) -> int:
    """Done by a worker: the chunk of a number, of the job that `words` specify, to the store.

    Nothing is sent back but the number.
    """
    with _one_at_a_time:
        _use_cores()
        from jaxota import _cache
        from jaxota.experiments import specs
        from jaxota.studies.descriptions import difference
        from jaxota.studies.store import Store

        _cache.keep_programs()
        job = specs.remembered(words)
        store = Store.opened(Path(folder))
        apart = difference(job.description, store.told["description"])
        if apart:
            raise InputError(f"a worker makes another study of it than the driver: {apart}")
        job.cut_as(store.told["blocks"])
        job.follow(store.told["labels"])
        if not store.holds(number):
            store.write(number, job.compute(number, lambda *_: None, store.plans))
    return number


def work(spec: dict[str, Any], folder: Path) -> Callable[[int], int]:
    """What an executor is given for each number."""
    return functools.partial(chunk, json.dumps(spec), str(folder.resolve()))


def _use_cores() -> None:
    """On CPU, as many devices as the worker has threads, unless JAX was told or has begun."""
    from distributed import get_worker

    from jaxota._devices import virtual

    with contextlib.suppress(ValueError):  # no worker, but a thread of the driver's own
        virtual(get_worker().state.nthreads)
