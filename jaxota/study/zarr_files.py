"""The arrays of a store: a Zarr data set of a space's shape, with checksums."""

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from jaxota.study.spaces import Space


def create(folder: Path, space: Space) -> None:
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


def grow(folder: Path, space: Space) -> None:
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
