"""What a store holds, for Python."""

from typing import Any

from jaxota import _validate, types


def open(folder: types.Path) -> Any:
    """The results in a store, as an `xarray.Dataset`; settings and versions are in its attributes.

    folder: that a sweep, or `Study.run`, was given. It may still be written: chunks that are not
        there yet are NaN, and `chunks_done` of `chunks` says how many are. Files are checked: of a
        chunk that is not what was written there is one line.
    """
    from jaxota.studies.store import Store  # loads zarr, which is slow

    return Store.opened(_validate.path("folder", folder)).dataset()
