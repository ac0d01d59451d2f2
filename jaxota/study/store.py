"""A store: one Zarr data set that many processes fill, and that knows which chunks are complete.

    study.json     what the store is of; written once, before any chunk
    data.zarr/     results, labelled; one file for each chunk of a variable, with its checksum
    commits/       one record for each finished chunk, written last: a chunk without does not count
    plans/         calibrations

Zarr replaces a file at once, but a chunk is one file in each variable, and a file that holds
nothing but the fill value is left out: that a file is there, or is not, says nothing.
"""

import contextlib
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

from jaxota._core import files
from jaxota._core.part import difference, fingerprint
from jaxota._core.state import Plan
from jaxota.errors import InputError
from jaxota.study.layout import Layout, finish

FORMAT = "jaxota.Store 1"
STUDY = "study.json"


@contextlib.contextmanager
def _writing(what: str, folder: Path) -> Iterator[None]:
    """Hold the lock of a store while `what` is written; a disk without room is an InputError."""
    try:
        with filelock.FileLock(folder / ".lock"), files.placing:
            yield
    except OSError as error:
        kept = len(list((folder / "commits").glob("*.json")))
        raise InputError(
            f"{what} could not be written to {folder}: {error.strerror or error}; finished "
            f"chunks ({kept}) are kept: make room, and go on with --resume"
        ) from None


class StoredPlans:
    """Calibrations in the folder of a store, one file each, for all processes that work at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> Plan | None:
        """Return the stored plan of this name, or None."""
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as stored:
                return Plan(**{key.removeprefix("0."): values for key, values in stored.items()})
        except Exception:  # not there, or damaged in any of the ways that a file can be
            return None

    def save(self, name: str, plan: Plan) -> Plan:
        """Store a plan; return the stored one, as another process may have been faster."""
        fields = {f"0.{k}": values for k, values in vars(plan).items() if values is not None}
        path = self.folder / f"{name}.npz"
        with _writing("a calibration", self.folder.parent):
            stored = self.load(name)
            if stored is None:
                with files.replacing(path) as (draft,), open(draft, "wb") as file:
                    np.savez(file, **fields)
        return stored or plan


class Store:
    """The chunks of a study in a folder, which can be read without the study.

    Attributes:
        folder: where the store is; it may be written while it is open.
        metadata: the content of study.json.
        layout: the arrays and their chunks.
        plans: the calibrations.
    """

    def __init__(self, folder: Path, shared: bool = False) -> None:
        self.folder, self.metadata = folder, _read_metadata(folder)
        self.layout = Layout.from_json(self.metadata["space"])
        self.plans = StoredPlans(folder / "plans")
        self._shared = shared  # whether other processes may work at it
        self._complete: set[str] = set()  # chunks whose files were checked

    @classmethod
    def create(cls, folder: Path, job: Any, resume: bool, spec: Any = None) -> "Store":
        """Make a store for a job; with `resume`, go on with the job's store in this folder.

        `spec` is plain data that is kept: the command that made the store.
        """
        exists = (folder / STUDY).exists()
        if exists and not resume:
            raise InputError(f"{folder} holds a store already: go on with it by --resume")
        if not exists and _holds_other_files(folder):
            raise InputError(f"{folder} must be a new or an empty folder: it holds other files")
        # To choose chunks may fail: before there is a folder.
        layout = None if exists else job.layout()
        try:
            with files.placing:
                folder.mkdir(parents=True, exist_ok=True)
                with filelock.FileLock(folder / ".lock"):
                    exists = (folder / STUDY).exists()  # another process may have been faster
                    if exists:
                        _grow(folder, job, spec)
                    else:
                        (folder / "commits").mkdir(exist_ok=True)
                        layout = layout or job.layout()
                        _shape_arrays(folder, layout, "w")
                        _write_json(folder / STUDY, _metadata(job, layout, spec))
        except OSError as error:
            raise InputError(f"{folder} must be a folder that can be written: {error}") from None
        return cls(folder, shared=exists)

    def missing(self) -> list[int]:
        """Return the numbers of the chunks without a record, or with damaged files.

        Each process begins at another of them, so that those at the same work seldom meet.
        """
        numbers = [n for n in range(self.layout.count) if not self.holds(n)]
        turn = os.getpid() % len(numbers) if self._shared and numbers else 0
        return numbers[turn:] + numbers[:turn]

    def holds(self, number: int) -> bool:
        """Whether a chunk is there, complete."""
        return self._state(number) == "complete"

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep a chunk, unless another process was faster."""
        label = self.layout.label(number)
        with _writing(f"chunk {label}", self.folder):
            if self.holds(number):
                return
            self.layout.put(number, arrays, into=self._arrays)
            record = {
                "chunk": label,
                "study": self.metadata["hash"],
                "covers": self.layout.extent(number),
                "sha256": self._checksum(number),
            }
            _write_json(self.folder / "commits" / f"{label}.json", record)

    @functools.cached_property
    def _arrays(self) -> dict[str, Any]:
        """The Zarr arrays, to be written to."""
        group = zarr.open_group(self.folder / "data.zarr", mode="r+")
        return {name: group[name] for name in self.layout.dims}

    def dataset(self) -> Any:
        """Return all results, NaN where chunks are missing; InputError names damaged ones."""
        import xarray  # slow to import

        layout, missing = self.layout, self.missing()
        damaged = [layout.label(n) for n in sorted(missing) if self._state(n) == "damaged"]
        if damaged:
            raise InputError(
                f"{self.folder}: chunk {', '.join(damaged)} is damaged: --resume computes it again"
            )
        # Sizes and labels are those of study.json: the arrays may have begun to grow beyond.
        path, coords = self.folder / "data.zarr", list(layout.coords)
        data = xarray.open_zarr(path, consolidated=False, chunks=None, drop_variables=coords)
        data = data.isel({d: slice(layout.sizes[str(d)]) for d in data.dims})
        data = data.assign_coords(layout.coords)
        if missing:
            arrays = {name: data[name].load().values for name in layout.dims}
            for number in missing:
                layout.put(number, layout.empty(number), into=arrays)
        return finish(data, self.metadata["attributes"]).assign_attrs(
            chunks=layout.count,
            chunks_done=layout.count - len(missing),
            description=json.dumps(self.metadata["description"]),
        )

    def _state(self, number: int) -> str:
        label = self.layout.label(number)
        if label in self._complete:  # files are read once
            return "complete"
        path = self.folder / "commits" / f"{label}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            covered, checksum = (record["covers"], record["study"]), record["sha256"]
        except FileNotFoundError:
            return "absent"
        except (OSError, ValueError, LookupError, TypeError):
            return "damaged"  # records appear as a whole
        # It may have fewer trials or settings than it should have now.
        if covered != (self.layout.extent(number), self.metadata["hash"]):
            return "absent"
        if checksum != self._checksum(number):
            return "damaged"
        self._complete.add(label)
        return "complete"

    def _checksum(self, number: int) -> str:
        """Return a digest of a chunk's files, and of which there are."""
        digest, index = hashlib.sha256(), self.layout.index(number)
        for name, dims in self.layout.dims.items():
            depth = max(n for n, d in enumerate(dims, 1) if d in index)
            place = [str(index.get(d, 0)) for d in dims[:depth]]
            # One file, or several where models have become larger than they were.
            path = self.folder.joinpath("data.zarr", name, "c", *place)
            for file in sorted(p for p in (path, *path.rglob("*")) if p.is_file()):
                if file.suffix != ".partial":
                    content = file.read_bytes()
                    heading = f"{name} {file.relative_to(path)} {len(content)} "
                    digest.update(heading.encode() + content)
        return digest.hexdigest()


def _grow(folder: Path, job: Any, spec: Any) -> None:
    """Give the store of a job the trials and settings that it lacks."""
    stored = _read_metadata(folder)
    differs = difference(job.description, stored["description"])
    if differs:
        raise InputError(f"{folder} holds a store of another study: {differs}")
    before = Layout.from_json(stored["space"])
    layout = job.layout(before)
    if layout.trials < before.trials:
        raise InputError(
            f"{folder} holds {before.trials} trials: trials must be at least as many, "
            f"got {layout.trials}"
        )
    metadata = _metadata(job, layout, spec or stored["spec"])
    for name, meanings in stored["meanings"].items():
        labelled = zip(before.labels(name), meanings, metadata["meanings"][name], strict=False)
        for label, old, new in labelled:
            differs = difference(new, old)
            if differs:
                raise InputError(f"{folder} holds another {name} {label}: {differs}")
    if metadata != stored:
        _shape_arrays(folder, layout, "r+")
        _write_json(folder / STUDY, metadata)
    # Remove what killed processes left: this one has the lock, so that nobody writes now.
    for place in (folder / "commits", folder / "plans", folder):
        files.clear(place)
    for path in folder.rglob("*.partial"):
        path.unlink()


def _metadata(job: Any, layout: Layout, spec: Any) -> dict[str, Any]:
    """Return the content of study.json."""
    metadata = {
        "format": FORMAT,
        "name": job.study.name,
        "hash": fingerprint(job.description),
        "description": job.description,
        "spec": spec,
        "attributes": job.attributes,
        "meanings": job.meanings(layout),
        "space": layout.as_json(),
    }
    return json.loads(json.dumps(metadata))  # as it will be read


def _read_metadata(folder: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((folder / STUDY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} holds no store: there is no {STUDY} in it") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / STUDY} cannot be read: {error}") from None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise InputError(f"{folder / STUDY} is of another format than {FORMAT!r}")
    if metadata.get("hash") != fingerprint(metadata.get("description")):
        raise InputError(f"{folder / STUDY} is damaged: its settings are not what they were")
    return metadata


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with files.replacing(path) as (draft,):
        draft.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _holds_other_files(folder: Path) -> bool:
    """Whether a folder has files that were not left by a store that was being made."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = {".lock", "commits", "data.zarr"} if ".lock" in names else set()
    others = {name for name in names - ours if not name.startswith(files.DRAFTS)}
    return bool(others) or any(folder.glob("commits/*.json"))


def _shape_arrays(folder: Path, layout: Layout, mode: Any) -> None:
    """Make an empty data set ("w"), with a checksum for each file, or let it grow ("r+")."""
    group: Any = zarr.open_group(folder / "data.zarr", mode=mode, zarr_format=3)
    for name, dims in layout.dims.items():
        shape = tuple(layout.sizes[d] for d in dims)
        if mode == "r+":
            group[name].resize(shape)
            continue
        group.create_array(
            name,
            shape=shape,
            chunks=tuple((layout.sizes | layout.blocks)[d] for d in dims),
            dtype=layout.dtype,
            fill_value=np.nan,
            dimension_names=dims,
            compressors=[ZstdCodec(level=1), Crc32cCodec()],
        )
    for name, (dim, values) in layout.coords.items():
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
