"""Files appear whole or not at all."""

import os

import pytest

from jaxota import _files


def test_all_are_replaced_together(tmp_path):
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("old")
    with _files.replacing(old, new) as drafts:
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
    with pytest.raises(error), _files.replacing(old, tmp_path / "new.txt") as drafts:
        drafts[0].write_text("half")
        raise error
    assert old.read_text() == "old"
    assert os.listdir(tmp_path) == ["old.txt"]
