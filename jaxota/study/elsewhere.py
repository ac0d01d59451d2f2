"""Chunks that other processes compute: each opens the store itself, and sends back a number."""

import functools
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

from jaxota.errors import InputError
from jaxota.study.descriptions import difference
from jaxota.study.job import StudyJob
from jaxota.study.store import Store
from jaxota.study.study import Study
from jaxota.study.work import Job

_one_at_a_time = threading.Lock()  # a chunk uses all devices of its process


def fill(job: Job, folder: str, number: int) -> int:
    """Compute the chunk of a number, unless it is there, and write it to the store."""
    with _one_at_a_time:
        store = Store.opened(Path(folder))
        apart = difference(job.description, store.told["description"])
        if apart:
            raise InputError(f"{folder} holds another study than a worker has: {apart}")
        job.cut_as(store.told["blocks"])
        job.follow(store.told["labels"])
        if not store.holds(number):
            store.write(number, job.compute(number, lambda *_: None, store.plans))
    return number


def work(study: Study, folder: Path) -> Callable[[int], int]:
    """What an executor is given for each number of a study."""
    try:
        import cloudpickle  # optax transformations are closures, which pickle does not take
    except ImportError:
        raise InputError("executor needs cloudpickle: pip install 'jaxota[distributed]'") from None
    return functools.partial(_chunk, cloudpickle.dumps(study), str(folder.resolve()))


def _chunk(sent: bytes, folder: str, number: int) -> int:
    return fill(_job(sent), folder, number)


@functools.lru_cache(maxsize=4)
def _job(sent: bytes) -> StudyJob:
    """A study as it was sent: made once in a process, as programs are part of it."""
    return StudyJob(pickle.loads(sent))
