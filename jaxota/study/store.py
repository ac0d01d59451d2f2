"""A store: one Zarr data set that many processes fill, and that knows what of it is whole.

    study.json     what the store is of; written once, before any chunk
    data.zarr/     results, labelled; one file for each chunk of a variable, with its checksum
    commits/       one record for each finished chunk, written last: what has none does not count
    plans/         calibrations

Zarr replaces a file at once, but a chunk is one file in each variable, and a file that holds
nothing but the fill value is left out: that files are there, or are not, says nothing.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from jaxota._core import files as _files
from jaxota._core import inputs as _validate
from jaxota._core import part as types
from jaxota._core.state import Plan
from jaxota.cli import process as _process
from jaxota.errors import InputError
from jaxota.study.compile import Plans
from jaxota.study.describe import difference, fingerprint
from jaxota.study.executor import Job
from jaxota.study.layout import Space
from jaxota.study.summary import finished

FORMAT = "jaxota.Store 1"
STUDY = "study.json"


class Store:
    """The chunks of a job in a folder; without the job it can be read."""

    def __init__(self, folder: Path, told: dict[str, Any]) -> None:
        self.folder, self.told = folder, told
        self.space = Space.from_json(told["space"])
        self.plans = StoredPlans(folder / "plans")
        self._shared = False  # whether other processes may be at it
        self._whole: set[str] = set()  # the chunks that were found so

    @classmethod
    def opened(cls, folder: Path) -> "Store":
        """The store in a folder, perhaps still being written."""
        return cls(folder, read(folder))

    @classmethod
    def entered(cls, folder: Path, job: Job, resume: bool, spec: Any = None) -> "Store":
        """A job's store: a new one, or that in the folder to go on with.

        `spec` says how the job is made again, by whoever opens the folder.
        """
        if not resume and (folder / STUDY).exists():
            raise InputError(f"{folder} holds a store already: go on with it by --resume")
        if not (folder / STUDY).exists() and _holds_others(folder):
            raise InputError(f"{folder} must be a new or an empty folder: it holds other files")
        new = None if (folder / STUDY).exists() else _told(job, spec)  # before a folder is made
        try:
            with _process.placing:
                folder.mkdir(parents=True, exist_ok=True)
                with locked(folder):
                    if (folder / STUDY).exists():
                        return cls._resumed(folder, job, spec)
                    told = new or _told(job, spec)
                    create_arrays(folder, job.space)
                    _write_json(folder / STUDY, told)
                    return cls(folder, told)
        except OSError as error:
            raise InputError(f"{folder} must be a folder that can be written: {error}") from None

    @classmethod
    def _resumed(cls, folder: Path, job: Job, spec: Any) -> "Store":
        """The store that is there, made as large as the job is."""
        there = read(folder)
        apart = difference(job.description, there["description"])
        if apart:
            raise InputError(f"{folder} holds a store of another study: {apart}")
        job.cut_as(there["blocks"])
        job.follow(there["labels"])
        told = _told(job, spec or there["spec"])
        _refuse_less(folder, there["labels"], told["labels"])
        _refuse_other(folder, there, told)
        if told != there:
            grow_arrays(folder, job.space)
            _write_json(folder / STUDY, told)
        store = cls(folder, told)
        store._clear()
        store._shared = True
        return store

    def missing(self) -> list[int]:
        """What has no record, or one of other bytes than there are.

        From a place of its own on, so that processes at the same work seldom meet.
        """
        numbers = [n for n in range(self.space.count) if not self.holds(n)]
        turn = os.getpid() % len(numbers) if self._shared and numbers else 0
        return numbers[turn:] + numbers[:turn]

    def holds(self, number: int) -> bool:
        """Whether a chunk is there, whole."""
        return self._state(number) == "whole"

    def damaged(self) -> list[str]:
        """The chunks that were finished, and are not what they were."""
        states = {self.space.label(n): self._state(n) for n in range(self.space.count)}
        return [label for label, state in states.items() if state == "damaged"]

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep a chunk, unless another process was faster."""
        region, label = self.space.region(number), self.space.label(number)
        try:
            with locked(self.folder), _process.placing:
                if self.holds(number):
                    return
                for name, variable in self.space.variables.items():
                    self._arrays[name][self.space.where(variable, region)] = arrays[name]
                record = {
                    "chunk": label,
                    "study": self.told["hash"],
                    "covers": self.space.covers(number),
                    "sha256": self._checksum(number),
                }
                _write_json(self.folder / "commits" / f"{label}.json", record)
        except OSError as error:
            kept = len(list((self.folder / "commits").glob("*.json")))
            raise InputError(
                f"chunk {label} could not be written to {self.folder}: "
                f"{error.strerror or error}; {kept} of {self.space.count} chunks are kept: make "
                "room, and go on with --resume"
            ) from None

    @functools.cached_property
    def _arrays(self) -> dict[str, Any]:
        """The variables, to be written to."""
        group = zarr.open_group(self.folder / "data.zarr", mode="r+")
        return {name: group[name] for name in self.space.variables}

    def dataset(self) -> Any:
        """What there is; chunks that are missing are NaN, damaged ones are named."""
        import xarray  # slow to import

        missing = self.missing()
        damaged = self.damaged() if missing else []
        if damaged:
            raise InputError(
                f"{self.folder}: chunk {', '.join(damaged)} is damaged: --resume computes it again"
            )
        # Labels are the study's, beyond which the data set may have grown.
        data = xarray.open_zarr(
            self.folder / "data.zarr",
            consolidated=False,
            chunks=None,
            drop_variables=list(self.space.coords),
        )
        data = data.isel({d: slice(self.space.sizes[str(d)]) for d in data.dims})
        data = data.assign_coords(self.space.coords)
        if missing:
            data = data.load()
            for number in missing:
                region = self.space.region(number)
                for name, variable in self.space.variables.items():
                    data[name].values[self.space.where(variable, region)] = np.nan
        count = self.space.count
        told = {"chunks": count, "chunks_done": count - len(missing)}
        settings = {"description": json.dumps(self.told["description"])}
        return finished(data, self.told["attributes"]).assign_attrs(**told, **settings)

    def _state(self, number: int) -> str:
        label = self.space.label(number)
        if label in self._whole:  # files are read once
            return "whole"
        path = self.folder / "commits" / f"{label}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return "absent"
        except (OSError, ValueError):
            return "damaged"  # records appear whole
        if not isinstance(record, dict):
            return "damaged"
        if record.get("covers") != self.space.covers(number):
            return "absent"  # of fewer trials or settings than there are now
        if record.get("study") != self.told["hash"]:
            return "absent"
        if record.get("sha256") != self._checksum(number):
            return "damaged"
        self._whole.add(label)
        return "whole"

    def _checksum(self, number: int) -> str:
        """Of a chunk's files, or of their absence."""
        digest, index = hashlib.sha256(), self.space.index(number)
        for name, variable in self.space.variables.items():
            cut = max((n for n, d in enumerate(variable.dims, 1) if d in index), default=0)
            place = [str(index.get(d, 0)) for d in variable.dims[:cut]]
            # One file, or several where models have become larger than they were.
            path = self.folder.joinpath("data.zarr", name, "c", *place)
            for file in sorted(p for p in (path, *path.rglob("*")) if p.is_file()):
                if file.suffix != ".partial":
                    content = file.read_bytes()
                    words = f"{name} {file.relative_to(path)} {len(content)} "
                    digest.update(words.encode() + content)
        return digest.hexdigest()

    def _clear(self) -> None:
        """Remove what killed processes left: nobody writes now."""
        for place in (self.folder / "commits", self.folder / "plans", self.folder):
            _files.clear(place)
        for path in self.folder.rglob("*.partial"):
            path.unlink()


def read(folder: Path) -> dict[str, Any]:
    """What a store says of itself."""
    try:
        told = json.loads((folder / STUDY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} holds no store: there is no {STUDY} in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / STUDY} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise InputError(f"{folder / STUDY} is of another format than {FORMAT!r}")
    if told.get("hash") != fingerprint(told.get("description")):
        raise InputError(f"{folder / STUDY} is damaged: its settings are not what they were")
    return told


def _holds_others(folder: Path) -> bool:
    """Whether a folder has files that were not left by a store that was being made."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = {".lock", "commits", "data.zarr"} if ".lock" in names else set()
    others = {name for name in names - ours if not name.startswith(_files.DRAFTS)}
    return bool(others) or any(folder.glob("commits/*.json"))


def _told(job: Job, spec: Any) -> dict[str, Any]:
    space = job.space
    told = {
        "format": FORMAT,
        "name": job.name,
        "hash": fingerprint(job.description),
        "description": job.description,
        "spec": spec,
        "attributes": job.attributes,
        "blocks": job.blocks,
        "labels": _labels(space, job.growing),
        "meanings": job.meanings,
        "space": space.as_json(),
    }
    return json.loads(json.dumps(told))  # as it will be read


def _labels(space: Space, growing: tuple[str, ...]) -> dict[str, list[Any]]:
    """What lies along the dimensions that may grow; of trials, how many."""
    sizes = space.sizes | {name: size for name, (size, _) in space.behind.items()}
    return {
        name: np.asarray(space.coords[name][1]).tolist() if name in space.coords else [sizes[name]]
        for name in growing
    }


def _refuse_less(folder: Path, there: dict[str, list[Any]], here: dict[str, list[Any]]) -> None:
    """A store may be given more trials, and not less; of settings `follow` has seen to it."""
    for name in ("trial", "block"):
        if name in there and here[name][0] < there[name][0]:
            raise InputError(
                f"{folder} holds {there[name][0]} trials: trials must be at least as many, "
                f"got {here[name][0]}"
            )


def _refuse_other(folder: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """One label must stand for one thing."""
    for name, meanings in there["meanings"].items():
        for label, before, now in zip(
            there["labels"][name], meanings, here["meanings"][name], strict=False
        ):
            apart = difference(now, before)
            if apart:
                raise InputError(f"{folder} holds another {name} {label}: {apart}")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with _files.replacing(path) as (draft,):
        draft.write_text(json.dumps(content, indent=1), encoding="utf-8")


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
                    with _files.replacing(self._path(name)) as (draft,), draft.open("wb") as file:
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


def create_arrays(folder: Path, space: Space) -> None:
    """An empty data set of the space's shape."""
    (folder / "commits").mkdir(exist_ok=True)
    group = zarr.open_group(folder / "data.zarr", mode="w", zarr_format=3)
    codecs: Any = [ZstdCodec(level=1), Crc32cCodec()]
    for name, variable in space.variables.items():
        group.create_array(
            name,
            shape=space.shape(variable),
            chunks=space.chunks(variable),
            dtype=variable.dtype,
            fill_value=np.nan,
            dimension_names=variable.dims,
            compressors=codecs,
        )
    _write_coords(group, space)


def grow_arrays(folder: Path, space: Space) -> None:
    """The data set that is there, as large as the space."""
    group: Any = zarr.open_group(folder / "data.zarr", mode="r+")
    for name, variable in space.variables.items():
        group[name].resize(space.shape(variable))
    _write_coords(group, space)


def _write_coords(group: Any, space: Space) -> None:
    for name, (dim, values) in space.coords.items():
        labels = np.asarray(values)
        array = group.create_array(
            name,
            shape=labels.shape,
            chunks=labels.shape,
            dtype=str if labels.dtype.kind in "UO" else labels.dtype,
            dimension_names=[dim],
            compressors=[Crc32cCodec()],
            overwrite=True,
        )
        array[:] = labels


def open(folder: types.Path) -> Any:
    """The results in a store, as an `xarray.Dataset`; settings and versions are in its attributes.

    Args:
        folder: that a sweep, or `Study.run`, was given. It may still be written: chunks that are
            not there yet are NaN, and `chunks_done` of `chunks` says how many are. Files are
            checked: of a chunk that is not what was written there is one line.
    """
    return Store.opened(_validate.path("folder", folder)).dataset()
