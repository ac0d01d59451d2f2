"""Files that are written whole or not at all, several of them together."""

import contextlib
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DRAFTS = ".jaxota-"  # prefix of the hidden folders that hold drafts
placed: list[Path] = []  # the files that were written last
placing = threading.RLock()  # held while files take their places: no moment to end the process
undo_steps: list[Callable[[], object]] = []  # taken, the last one first, if a signal ends it


@contextlib.contextmanager
def undoing(step: Callable[[], object]) -> Iterator[None]:
    """Take this step if a signal ends the process inside the block."""
    undo_steps.append(step)
    try:
        yield
    finally:
        undo_steps.remove(step)


@contextlib.contextmanager
def replacing(*paths: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Yield paths of drafts, which replace `paths` together if the block succeeds.

    All `paths` lie in one folder, which is made if it is missing.
    """
    targets = [Path(path) for path in paths]
    for path in targets:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: move it, or write to another place")
    with drafting(targets[0].parent) as folder:
        drafts = [folder / path.name for path in targets]
        yield drafts
        with placing:
            _place(drafts, targets, folder)
            placed[:] = targets


def without_folder(path: Path) -> Path:
    """Return the path of a file, after removing a folder that has taken its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    return path


def _place(drafts: list[Path], targets: list[Path], folder: Path) -> None:
    """Move all drafts to their targets; if one fails, restore the files that were there before."""
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
    """Link `path` to a second name, or copy it where the file system has no links."""
    try:
        os.link(path, old, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(path, old)


@contextlib.contextmanager
def drafting(parent: Path) -> Iterator[Path]:
    """Yield a hidden folder in `parent`; a failure removes it, and `parent` if it was made here."""
    import filelock  # slow to import

    _clear_once(parent.resolve())
    with contextlib.ExitStack() as stack:
        with placing:
            made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=DRAFTS, dir=parent))
            undo = functools.partial(_remove, folder, made)
            stack.enter_context(undoing(undo))
        try:
            with filelock.FileLock(folder / ".lock"):
                yield folder
        except BaseException:
            undo()
            raise
        shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, made: list[Path]) -> None:
    for _ in range(10):  # a thread may still be writing there
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    for parent in made:
        with contextlib.suppress(OSError):  # it holds files of others
            parent.rmdir()


def clear(parent: Path) -> None:
    """Remove the drafts of processes that were killed."""
    import filelock

    for folder in parent.glob(f"{DRAFTS}*"):
        with contextlib.suppress(OSError, filelock.Timeout):  # its process is still at work
            lock = folder / ".lock"
            if not lock.exists() and time.time() - folder.stat().st_mtime < 60:
                continue  # its process is about to lock it
            with filelock.FileLock(lock, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


_clear_once = functools.cache(clear)  # once for each folder, which may hold thousands of files


def unwritable(folder: Path) -> str | None:
    """Return why no file can be written to a folder that may not be there yet, or None."""
    existing = next((p for p in (folder, *folder.parents) if p.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return error.strerror
