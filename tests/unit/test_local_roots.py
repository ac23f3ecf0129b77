"""Which folders can be the root of tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import skipstone
from skipstone_local.places import RootFolder
from skipstone_local.up.entry import BadRoot, check_root


def test_a_path_that_addresses_cannot_hold_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadRoot, match="cannot hold '#': choose another by --root or SKIPSTONE_LOCAL"):
        check_root(RootFolder(tmp_path / "a#b"))
    with pytest.raises(skipstone.LakeError, match="cannot hold '#': open another folder"):
        skipstone.open(tmp_path / "a#b")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_the_lake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(skipstone.LakeError, match=r"file cannot be served: .*exists.*: open a folder that you can"):
        skipstone.open(tmp_path / "file")


def test_a_folder_with_tables_is_served_where_it_was_made_and_nowhere_else(tmp_path: Path) -> None:
    """Runs would write to the folder that it was copied from."""
    made = RootFolder(tmp_path / "made")
    (made.claim("default", "lake") / "sales").mkdir(parents=True)
    check_root(made)
    made.origin.write_text(str(made.path))
    (tmp_path / "link").symlink_to(made.path)
    check_root(made)
    check_root(RootFolder(tmp_path / "link"))
    moved = RootFolder(made.path.rename(tmp_path / "moved"))
    with pytest.raises(BadRoot, match=f"moved was moved or copied from {made.path}, by which .*: move it back there"):
        check_root(moved)
    with pytest.raises(skipstone.LakeError, match="by which its tables name their files: open another folder"):
        skipstone.open(moved.path)
    moved.path.rename(made.path)
    check_root(made)


def test_an_empty_folder_can_be_moved(tmp_path: Path) -> None:
    root = RootFolder(tmp_path)
    root.origin.write_text("/elsewhere")
    root.claim("default", "lake").mkdir(parents=True)
    check_root(root)
