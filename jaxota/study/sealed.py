"""Sealed files: a line of JSON, arrays, and a checksum of both, which is checked before all else.

First comes the line, `{…, "arrays": {NAME: [DTYPE, SHAPE], …}}`. The arrays follow one after the
other, compressed by zlib. The last 32 bytes are the SHA-256 of everything before.
"""

import hashlib
import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from jaxota._core import files

_KINDS = ("<f4", "<f8")


def write(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a sealed file beside `path`, and put it there at once, also in place of a folder."""
    stored = {name: np.asarray(v, v.dtype.newbyteorder("<")) for name, v in arrays.items()}
    declared = {name: [v.dtype.str, v.shape] for name, v in stored.items()}
    numbers = zlib.compress(b"".join(v.tobytes() for v in stored.values()), 1)
    content = json.dumps(about | {"arrays": declared}).encode() + b"\n" + numbers
    with files.replacing(files.without_folder(path)) as (draft,):
        draft.write_bytes(content + hashlib.sha256(content).digest())


def read(path: Path, about: dict[str, Any], most: int) -> dict[str, np.ndarray] | None:
    """Read the arrays of a sealed file; None if it is not there, ValueError if it is damaged.

    Args:
        path: the file.
        about: entries that its line of JSON must have.
        most: the bytes that its arrays may take; no file is trusted to say so itself.
    """
    try:
        if path.stat().st_size > 2 * most + 2**20:
            raise ValueError("it is too large")
        return _open(path.read_bytes(), about, most)
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _open(content: bytes, about: dict[str, Any], most: int) -> dict[str, np.ndarray]:
    content, digest = content[:-32], content[-32:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("its checksum does not fit")
    head, _, numbers = content.partition(b"\n")
    stored = json.loads(head)
    if {name: stored.get(name) for name in about} != about:
        raise ValueError("it is another file")
    arrays, start = {}, 0
    for name, (kind, shape) in stored["arrays"].items():
        if kind not in _KINDS or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"it declares {name} as {kind}{shape}")
        arrays[name] = np.dtype(kind), shape, start
        start += math.prod(shape) * np.dtype(kind).itemsize
    values = zlib.decompressobj().decompress(numbers, start + 1) if start <= most else b""
    if len(values) != start:
        raise ValueError("it does not hold what it declares")
    return {
        name: np.frombuffer(values, kind, math.prod(shape), first).reshape(shape)
        for name, (kind, shape, first) in arrays.items()
    }
