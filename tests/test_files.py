"""Files appear whole or not at all."""

import os

import pytest
from processes import process

from jaxota._core import files


def test_files_are_replaced_together(tmp_path):
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("old")
    with files.replacing(old, new) as drafts:
        for draft in drafts:
            draft.write_text("fresh")
            assert draft.suffix == ".txt"
        assert old.read_text() == "old" and not new.exists()
    assert old.read_text() == new.read_text() == "fresh"
    assert sorted(os.listdir(tmp_path)) == ["new.txt", "old.txt"]
    umask = os.umask(0)
    os.umask(umask)
    assert new.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_failure_leaves_everything_as_it_was(tmp_path, error):
    old = tmp_path / "old.txt"
    old.write_text("old")
    with pytest.raises(error), files.replacing(old, tmp_path / "new.txt") as drafts:
        drafts[0].write_text("half")
        raise error
    assert old.read_text() == "old"
    assert os.listdir(tmp_path) == ["old.txt"]


def test_folders_that_were_made_for_files_go_with_them(tmp_path):
    with pytest.raises(ValueError), files.replacing(tmp_path / "a" / "b" / "new.txt"):
        raise ValueError
    assert os.listdir(tmp_path) == []
    with files.replacing(tmp_path / "a" / "b" / "new.txt") as (draft,):
        draft.write_text("fresh")
    assert (tmp_path / "a" / "b" / "new.txt").read_text() == "fresh"


def test_either_all_files_are_placed_or_none(tmp_path, monkeypatch):
    """A folder is seen before anything is written; else what was replaced comes back."""
    names = "old", "new", "last"
    paths = [tmp_path / name for name in names]
    paths[0].write_text("old")
    paths[2].mkdir()
    with pytest.raises(IsADirectoryError, match="last is a folder"), files.replacing(*paths):
        pytest.fail("it was begun")
    paths[2].rmdir()
    real = os.replace

    def refusing(source, target):
        if target == paths[2]:
            raise PermissionError(1, "Operation not permitted")
        real(source, target)

    for link in (os.link, None):  # there are disks without links
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refusing)
            if link is None:
                patch.setattr(os, "link", lambda *_, **__: refusing(None, paths[2]))
            with pytest.raises(PermissionError), files.replacing(*paths) as drafts:
                for draft in drafts:
                    draft.write_text("fresh")
        assert os.listdir(tmp_path) == ["old"] and paths[0].read_text() == "old"


def test_drafts_of_killed_processes_are_cleared_and_those_of_living_ones_are_not(tmp_path):
    work = "-c", f"""
from jaxota._core import files
from pathlib import Path
import time
with files.replacing(Path({str(tmp_path)!r}) / "theirs") as (draft,):
    draft.write_text("half")
    print("at it", flush=True)
    time.sleep(100)
"""  # fmt: skip

    def drafts():
        return list(tmp_path.glob(".jaxota-*/theirs"))

    with process(*work) as living, process(*work) as killed:
        for started in (living, killed):
            assert started.stdout.readline() == "at it\n"
        assert len(drafts()) == 2
        killed.kill()
        killed.wait()
        files.clear(tmp_path)
        assert len(drafts()) == 1
    with files.replacing(tmp_path / "ours") as (draft,):  # the first of this process here
        draft.write_text("fresh")
    assert os.listdir(tmp_path) == ["ours"]


def test_a_draft_that_is_not_locked_yet_is_left_alone_for_a_minute(tmp_path):
    """Its process made the folder a moment ago, and is about to lock it."""
    draft = tmp_path / f"{files.DRAFTS}new"
    draft.mkdir()
    files.clear(tmp_path)
    assert draft.exists()
    os.utime(draft, (0, 0))
    files.clear(tmp_path)
    assert not draft.exists()
