"""A store: a folder that many processes fill with the chunks of a study, one file each.

    study.json     what the store is of, and the layout of its results, with a checksum
    chunks/        finished chunks, each a sealed file that appears at once
    plans/         calibrations, sealed likewise

The name of a chunk is a digest of the study, the settings and the trials that it holds: whoever
computes it, and however the store has grown meanwhile, no name ever means another chunk. A chunk
that is there is finished; no lock is needed to write or to read one. Only study.json is written
under a lock, when a store is made or grows.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from jaxota._core import files, inputs
from jaxota._core.capacity import format_bytes, machine_memory
from jaxota._core.part import difference, fingerprint
from jaxota._core.state import Plan
from jaxota.errors import InputError
from jaxota.study import sealed
from jaxota.study.layout import Layout, labelled

FORMAT = "jaxota.Store 2"
STUDY, CHUNKS, PLANS = "study.json", "chunks", "plans"
_PLAN_BYTES = 2**32  # no plan takes more


class Store:
    """The chunks of a study in a folder, which can be read without the study.

    Attributes:
        folder: where the store is; it may be written while it is open.
        metadata: the content of study.json.
        layout: the arrays and their chunks.
    """

    def __init__(self, folder: Path, shared: bool = False) -> None:
        self.folder, self.metadata = folder, _read_metadata(folder)
        self.layout = Layout.from_json(self.metadata["space"])
        self._shared = shared  # whether other processes may work at it
        self._complete: set[int] = set()

    @classmethod
    def create(cls, folder: Path, job: Any, resume: bool, spec: Any = None) -> "Store":
        """Make the store of a job, or with `resume` open, mend and grow the one in the folder.

        `spec` is plain data that is kept: the command that made the store.
        """
        exists = (folder / STUDY).exists()
        if exists and not resume:
            raise InputError(f"{folder} holds a store already: go on with it by --resume")
        if not exists and _holds_other_files(folder, resume):
            raise InputError(f"{folder} must be a new or an empty folder: it holds other files")
        # To choose chunks may fail: before there is a folder.
        layout = None if exists else job.layout()
        try:
            with files.placing:
                folder.mkdir(parents=True, exist_ok=True)
                with filelock.FileLock(files.without_folder(folder / ".lock")):
                    exists = (folder / STUDY).exists()  # another process may have been faster
                    _update(folder, job, layout, spec)
        except OSError as error:
            raise InputError(f"{folder} must be a folder that can be written: {error}") from None
        return cls(folder, shared=exists)

    @functools.cached_property
    def names(self) -> list[str]:
        """The names of all chunks: digests of what they hold, the same in any layout."""
        return chunk_names(self.metadata, self.layout)

    def missing(self) -> list[int]:
        """Return the numbers of the chunks that are absent or damaged.

        Each process begins at another of them, so that those at the same work seldom meet.
        """
        numbers = [n for n in range(self.layout.count) if not self.holds(n)]
        turn = os.getpid() % len(numbers) if self._shared and numbers else 0
        return numbers[turn:] + numbers[:turn]

    def holds(self, number: int) -> bool:
        """Whether a chunk is there, undamaged; its file is read once."""
        if number not in self._complete:
            with contextlib.suppress(ValueError):
                if self.read(number) is not None:
                    self._complete.add(number)
        return number in self._complete

    def read(self, number: int) -> dict[str, np.ndarray] | None:
        """Return the arrays of a chunk, None if it is not there; ValueError if it is damaged."""
        name, shapes = self.names[number], self.layout.shapes(number)
        most = sum(8 * math.prod(shape) for shape in shapes.values())
        arrays = sealed.read(self.folder / CHUNKS / name, {"chunk": name}, most)
        for key, values in (arrays or {}).items():
            fits = key in shapes and values.ndim == len(shapes[key])
            if not fits or any(n > m for n, m in zip(values.shape, shapes[key], strict=True)):
                raise ValueError(f"it holds {key} {list(values.shape)}")
        return arrays

    def write(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep a chunk, unless another process was faster."""
        if self.holds(number):
            return
        layout, name, region = self.layout, self.names[number], self.layout.region(number)
        settings = {axis: layout.labels(axis)[region[axis]] for axis in self.metadata["meanings"]}
        about = {
            "format": FORMAT,
            "chunk": name,
            "study": self.metadata["hash"],
            "labels": {"algorithm": layout.labels("algorithm"), **settings},
            "trials": layout.trials_of(number),
            "dims": layout.dims,
        }
        sealed.write(self.folder / CHUNKS / name, about, arrays)

    def load_plan(self, name: str) -> Plan | None:
        """Return the stored calibration of this name, or None if it is not there, or damaged."""
        about = {"study": self.metadata["hash"], "plan": name}
        try:
            arrays = sealed.read(self.folder / PLANS / name, about, _PLAN_BYTES)
            return None if arrays is None else Plan(**arrays)
        except (ValueError, TypeError):
            return None

    def save_plan(self, name: str, plan: Plan) -> Plan:
        """Store a calibration; return the stored one, as another process may have been faster."""
        stored = self.load_plan(name)
        if stored is None:
            about = {"study": self.metadata["hash"], "plan": name}
            arrays = {k: np.asarray(v) for k, v in vars(plan).items() if v is not None}
            sealed.write(self.folder / PLANS / name, about, arrays)
        return stored or plan

    def dataset(self, only: Sequence[str] | None = None) -> Any:
        """Return all results, or of trials `only` some, NaN where chunks are missing.

        InputError names chunks that are damaged.
        """
        layout = self.layout
        if only is not None and "block" not in layout.blocks:
            for name in only:
                inputs.chosen("only", name, tuple(layout.dims))
            layout = dataclasses.replace(layout, dims={name: layout.dims[name] for name in only})
        if layout.bytes > machine_memory():
            raise InputError(
                f"{self.folder} holds {format_bytes(layout.bytes)} of results, and this machine "
                f"has {format_bytes(machine_memory())} of memory: open some of them, as by "
                "jo.open(folder, only=['gap'])"
            )
        arrays, damaged, done = layout.empty(), [], 0
        for number in range(layout.count):
            try:
                chunk = self.read(number)
            except ValueError:
                damaged.append(layout.label(number))
                continue
            if chunk is not None:
                layout.put(number, chunk, into=arrays)
                done += 1
        if damaged:
            more = f" and {len(damaged) - 5} others" if len(damaged) > 5 else ""
            raise InputError(
                f"{self.folder}: chunk {', '.join(damaged[:5])}{more} is damaged: --resume "
                "computes it again"
            )
        attributes = self.metadata["attributes"] | {
            "chunks": layout.count,
            "chunks_done": done,
            "description": json.dumps(self.metadata["description"]),
        }
        return labelled(layout, arrays, attributes)


def chunk_names(metadata: dict[str, Any], layout: Layout) -> list[str]:
    """Return a digest of the study, the settings and the trials of each chunk."""
    blocks = {}
    for axis, meanings in metadata["meanings"].items():
        points, step = list(zip(layout.labels(axis), meanings, strict=True)), layout.blocks[axis]
        blocks[axis] = [fingerprint(points[i : i + step]) for i in range(0, len(points), step)]
    names = []
    for number in range(layout.count):
        index = layout.index(number)
        settings = {axis: digests[index[axis]] for axis, digests in blocks.items()}
        names.append(fingerprint([metadata["hash"], settings, layout.trials_of(number)]))
    return names


class _Damaged(InputError):
    """A study.json that cannot be what was written."""


def _update(folder: Path, job: Any, layout: Layout | None, spec: Any) -> None:
    """Write study.json: anew where it is missing or damaged, or with more trials and settings.

    Chunks that are there count in any study.json that has a place for them.
    """
    stored: dict[str, Any] | None = None
    with contextlib.suppress(_Damaged):
        stored = _read_metadata(folder)
    if stored is not None:
        metadata = _grown(folder, job, stored, spec)
    else:
        metadata = _metadata(job, layout or job.layout(), spec)
    if metadata != stored:
        with files.replacing(files.without_folder(folder / STUDY)) as (draft,):
            content = {"sha256": _digest(metadata), **metadata}
            draft.write_text(json.dumps(content, indent=1), encoding="utf-8")
        if stored is not None:  # chunks of the last trials, where there are more now
            old, new = ({*chunk_names(m, Layout.from_json(m["space"]))} for m in (stored, metadata))
            for name in old - new:
                (folder / CHUNKS / name).unlink(missing_ok=True)
    for place in (folder / CHUNKS, folder / PLANS, folder):
        files.clear(place)


def _grown(folder: Path, job: Any, stored: dict[str, Any], spec: Any) -> dict[str, Any]:
    """Return the content of study.json with the trials and settings of a job; or InputError."""
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
        points = zip(before.labels(name), meanings, metadata["meanings"][name], strict=False)
        for label, old, new in points:
            differs = difference(new, old)
            if differs:
                raise InputError(f"{folder} holds another {name} {label}: {differs}")
    return metadata


def _metadata(job: Any, layout: Layout, spec: Any) -> dict[str, Any]:
    """Return the content of study.json, but for its checksum."""
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


def _digest(metadata: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def _read_metadata(folder: Path) -> dict[str, Any]:
    """Return the content of study.json; InputError if it is missing, damaged or of another form."""
    path, checksum, form = folder / STUDY, None, None
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        checksum, form = metadata.pop("sha256", None), metadata.get("format")
        intact = checksum == _digest(metadata)
    except FileNotFoundError:
        raise _Damaged(f"{folder} holds no store: there is no {STUDY} in it") from None
    except (OSError, ValueError, AttributeError, RecursionError, MemoryError):
        intact = False
    if checksum is None and form == "jaxota.Store 1":
        raise InputError(
            f"{folder} is a store of an older form, in Zarr, which this version does not read: "
            "sweep again into another folder"
        )
    if not intact:
        raise _Damaged(f"{path} is damaged: --resume writes it again")
    if form != FORMAT:
        raise InputError(f"{path} is of another form, {inputs.shown(form)}, than {FORMAT!r}")
    try:
        inputs.name("name", metadata["name"])
        for name in ("attributes", "description"):
            dict(metadata[name])
        layout = Layout.from_json(metadata["space"])
        for axis, meanings in metadata["meanings"].items():
            if not len(meanings) == layout.sizes[axis] == len(layout.labels(axis)):
                raise ValueError(f"{axis} has other points")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not fit together: {inputs.first_line(error)}") from None
    return metadata


def _holds_other_files(folder: Path, resume: bool) -> bool:
    """Whether a folder has files that were not left by a store."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if resume and CHUNKS in names:  # a store that has lost its study.json
        return False
    return any(name != ".lock" and not name.startswith(files.DRAFTS) for name in names)
