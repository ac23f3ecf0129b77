"""What a volume does that no object store has to: links that others planted, and a file system without room."""

from __future__ import annotations

from pathlib import Path

import pytest
from skipstone.storage.volume import Volume
from skipstone_core.errors import DependencyUnavailable

from tests.storages import ROOM, little_room


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """An empty one."""
    (tmp_path / "volume").mkdir()
    return Volume(str(tmp_path / "volume"))


def test_a_copy_follows_no_link_in_its_place(volume: Volume, tmp_path: Path) -> None:
    victim, source = volume.directory / "metadata.json", tmp_path / "source"
    victim.write_text("metadata of a table")
    source.write_text("copied")
    (volume.directory / "copy").symlink_to(victim)
    volume.keep_copy("copy", source)
    assert victim.read_text() == "metadata of a table"
    assert not (volume.directory / "copy").is_symlink()
    assert volume.read("copy") == b"copied"


def test_a_copy_without_room_leaves_nothing(volume: Volume, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(3 * ROOM))
    with little_room(), pytest.raises(DependencyUnavailable, match="File too large"):
        volume.keep_copy("copies/copy", source)
    assert list(volume.list("")) == []


def test_content_without_room_leaves_nothing(volume: Volume) -> None:
    with little_room(), pytest.raises(DependencyUnavailable, match="File too large"):
        volume.keep_content("digests/digest", bytes(3 * ROOM))
    with little_room(), pytest.raises(DependencyUnavailable, match="File too large"):
        volume.create("records/record", bytes(3 * ROOM))
    assert list(volume.list("")) == []


def test_a_copy_that_cannot_take_its_place_leaves_nothing_beside_it(volume: Volume, tmp_path: Path) -> None:
    (volume.directory / "copy" / "inside").mkdir(parents=True)
    (tmp_path / "source").write_text("copied")
    with pytest.raises(DependencyUnavailable):
        volume.keep_copy("copy", tmp_path / "source")
    assert list(volume.list("")) == []
