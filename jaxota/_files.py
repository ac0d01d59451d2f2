"""Files appear whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


@contextlib.contextmanager
def replacing(*paths):
    """Names to write to that take the place of `paths`, together, if the block succeeds."""
    paths = [Path(path) for path in paths]
    drafts = []
    try:
        for path in paths:
            handle, draft = tempfile.mkstemp(
                prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent
            )
            os.close(handle)
            drafts.append(Path(draft))
        yield drafts
        umask = os.umask(0)
        os.umask(umask)
        for draft in drafts:
            draft.chmod(0o666 & ~umask)
        for draft, path in zip(drafts, paths, strict=True):
            os.replace(draft, path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
