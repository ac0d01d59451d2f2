"""Files appear whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(*paths: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Names to write to that take the place of `paths`, together, if the block succeeds."""
    targets = [Path(path) for path in paths]
    drafts: list[Path] = []
    try:
        for path in targets:
            handle, name = tempfile.mkstemp(
                prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent
            )
            os.close(handle)
            drafts.append(Path(name))
        yield drafts
        umask = os.umask(0)
        os.umask(umask)
        for draft in drafts:
            draft.chmod(0o666 & ~umask)
        for draft, path in zip(drafts, targets, strict=True):
            os.replace(draft, path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
