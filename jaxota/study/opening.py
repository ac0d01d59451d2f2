"""What a store holds, for Python."""

from typing import Any

from jaxota._core import inputs as _validate
from jaxota._core import part as types


def open(folder: types.Path) -> Any:
    """The results in a store, as an `xarray.Dataset`; settings and versions are in its attributes.

    Args:
        folder: that a sweep, or `Study.run`, was given. It may still be written: chunks that are
            not there yet are NaN, and `chunks_done` of `chunks` says how many are. Files are
            checked: of a chunk that is not what was written there is one line.
    """
    from jaxota.study.store import Store  # loads zarr, which is slow

    return Store.opened(_validate.path("folder", folder)).dataset()
