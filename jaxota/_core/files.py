"""Files appear whole or not at all, and together."""

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxota.cli import process as _process

DRAFTS = ".jaxota-"  # folders of drafts begin so
placed: list[Path] = []  # the last files that took their places


@contextlib.contextmanager
def replacing(*paths: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Names to write to that take the place of `paths`, together, if the block succeeds.

    All lie in one folder, which is made if it is missing.
    """
    targets = [Path(path) for path in paths]
    refuse_folders(*targets)
    with drafting(targets[0].parent) as folder:
        drafts = [folder / path.name for path in targets]
        yield drafts
        with _process.placing:
            _place(drafts, targets, folder)
            placed[:] = targets


def refuse_folders(*paths: Path) -> None:
    """A file takes the place of a file, and of nothing else."""
    for path in paths:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: move it, or write to another place")


def _place(drafts: list[Path], targets: list[Path], folder: Path) -> None:
    """All or none: what was there before comes back if one of them cannot be placed."""
    before = [folder / f"{path.name}.before" for path in targets]
    if len(targets) > 1:
        for path, old in zip(targets, before, strict=True):
            with contextlib.suppress(FileNotFoundError):
                _keep(path, old)
    done = 0
    try:
        for draft, path in zip(drafts, targets, strict=True):
            os.replace(draft, path)
            done += 1
    except OSError:
        for path, old in zip(targets[:done], before, strict=False):
            os.replace(old, path) if old.exists() else path.unlink()
        raise


def _keep(path: Path, old: Path) -> None:
    """`path` by a second name, or a copy where there are no such."""
    try:
        os.link(path, old, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(path, old)


@contextlib.contextmanager
def drafting(parent: Path) -> Iterator[Path]:
    """A hidden folder in `parent`, which is made if it is missing; neither outlives a failure."""
    import filelock  # slow to import

    _clear_once(parent.resolve())
    with contextlib.ExitStack() as stack:
        with _process.placing:
            made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=DRAFTS, dir=parent))
            undo = functools.partial(_remove, folder, made)
            stack.enter_context(_process.undoing(undo))
        try:
            with filelock.FileLock(folder / ".lock"):
                yield folder
        except BaseException:
            undo()
            raise
        shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, made: list[Path]) -> None:
    for _ in range(10):  # somebody may still be writing there
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    for parent in made:
        with contextlib.suppress(OSError):  # others write there
            parent.rmdir()


def clear(parent: Path) -> None:
    """Remove the drafts of processes that were killed."""
    import filelock

    for folder in parent.glob(f"{DRAFTS}*"):
        with (
            contextlib.suppress(OSError, filelock.Timeout),  # that of a process at work
            filelock.FileLock(folder / ".lock", timeout=0),
        ):
            shutil.rmtree(folder, ignore_errors=True)


_clear_once = functools.cache(clear)  # there may be thousands of files to look through
