"""Calibrations in the folder of a store, for all processes that work at it."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import filelock
import numpy as np

from jaxota._core import files as _files
from jaxota._core.state import Plan
from jaxota.errors import InputError
from jaxota.study.programs import Plans


class StoredPlans:
    """Calibrations in a folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> Plans | None:
        try:
            with np.load(self._path(name), allow_pickle=False) as stored:
                fields = dict(stored)
        except Exception:  # not there, or damaged in any of the ways that a file can be
            return None
        count = 1 + max(int(key.split(".")[0]) for key in fields)
        return tuple(
            Plan(**{k.split(".")[1]: v for k, v in fields.items() if k.startswith(f"{n}.")})
            for n in range(count)
        )

    def save(self, name: str, plans: Plans) -> Plans:
        fields = {
            f"{n}.{field.name}": getattr(plan, field.name)
            for n, plan in enumerate(plans)
            for field in dataclasses.fields(Plan)
            if np.size(getattr(plan, field.name))
        }
        try:
            with locked(self.folder.parent):
                there = self.load(name)
                if there is None:
                    self.folder.mkdir(exist_ok=True)
                    with _files.replacing(self._path(name)) as (draft,), open(draft, "wb") as file:
                        np.savez(file, **fields)
        except OSError as error:
            raise InputError(
                f"a calibration could not be written to {self.folder}: {error.strerror or error}; "
                "finished chunks are kept: make room, and go on with --resume"
            ) from None
        return there or plans

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time writes; a process that dies lets go."""
    with filelock.FileLock(folder / ".lock"):
        yield
