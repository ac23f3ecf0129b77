"""Which folders can be the root of tables."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import skipstone
from skipstone.lakes import LakeReader
from skipstone_cli.errors import NotFound
from skipstone_cli.output.screen import Screen
from skipstone_local.client.opening import open_root
from skipstone_local.commands.getting import GetQuery, run_get
from skipstone_local.commands.logs import PodLogQuery, run_pod_logs
from skipstone_local.lake.opening import open_lake
from skipstone_local.owners import ForeignFolder, UnfitFolder
from skipstone_local.places import RootFolder, find_root
from skipstone_local.server import serving
from skipstone_local.up.entry import run
from skipstone_local.up.roots import BadRoot, UpOptions, check_root


def test_a_path_that_addresses_cannot_hold_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadRoot, match="cannot hold '#': choose another by --root or SKIPSTONE_LOCAL"):
        check_root(RootFolder(tmp_path / "a#b"))
    with pytest.raises(skipstone.LakeError, match="cannot hold '#': open another folder"):
        skipstone.open(tmp_path / "a#b")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, why in (
        (tmp_path / "file", "is not a folder"),
        (tmp_path / "file" / "lake", "cannot be created: Not a"),
    ):
        with pytest.raises(skipstone.LakeError, match=rf"^{place} {why}.*: open a folder that you can write to$"):
            skipstone.open(place)
        with pytest.raises(BadRoot, match=rf"^{place} {why}.*: choose "):
            run(place, (), UpOptions(once=True), print, {})
        with pytest.raises(UnfitFolder, match=rf"^{place} {why}.*: choose "), serving(place):
            pass


def test_the_hint_of_a_command_names_the_folder(tmp_path: Path) -> None:
    root = RootFolder(tmp_path / "my lake")
    with ExitStack() as until:
        objects = open_root(root, "default", until, print)
        with pytest.raises(NotFound, match="there is no Table x in namespace default: see '") as found:
            run_get(objects, Screen(), GetQuery(words=["tbl", "x"], namespace="default"))
        with pytest.raises(NotFound, match="there is no LoadJob x in namespace default: see '") as unlogged:
            run_pod_logs(objects, Screen(), PodLogQuery("lj/x"))
    for hint in (found, unlogged):
        words = shlex.split(str(hint.value).partition("see '")[2].removesuffix("'"))
        assert words[:3] == ["skipstone", "local", "get"]
        assert find_root(Path(words[words.index("--root") + 1])) == root


def test_the_default_folder_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIPSTONE_LOCAL", str(tmp_path))
    with ExitStack() as until:
        assert open_root(find_root(), "default", until, print).root == ""


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


NOBODY = 65534


@contextmanager
def user(uid: int) -> Iterator[None]:
    """This process is that user's inside the block."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, too")
class TestAnotherUser:
    """What a user leaves in a folder of another, the other can neither read nor change."""

    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """A folder that all users reach."""
        with tempfile.TemporaryDirectory() as made:
            Path(made).chmod(0o777)
            yield Path(made)

    def make(self, place: Path, mode: int) -> RootFolder:
        root = RootFolder(place / "lake")
        root.path.mkdir(mode=mode)
        root.lock.touch(mode=0o600)
        return root

    def test_root_leaves_nothing_in_the_folder_of_a_user(self, place: Path) -> None:
        with user(NOBODY):
            root = self.make(place, 0o700)
        with pytest.raises(BadRoot, match=r"is the folder of user nobody, .* as user root: run it as user nobody, or"):
            check_root(root)
        with pytest.raises(ForeignFolder, match="user nobody"), serving(root.path):
            pass
        with pytest.raises(skipstone.LakeError, match="runs as user root: open another folder"):
            skipstone.open(root.path)
        assert [path.name for path in root.path.iterdir()] == ["lock"]
        with user(NOBODY):
            check_root(root)

    def test_a_folder_that_nobody_served_and_the_user_cannot_write_to_is_refused(self, place: Path) -> None:
        place.chmod(0o755)
        with user(NOBODY):
            with pytest.raises(BadRoot, match=f"^user nobody cannot write to {place}: choose a folder of your own$"):
                run(place, (), UpOptions(once=True), print, {})
            with pytest.raises(skipstone.LakeError, match=f"^user nobody cannot write to {place}: open a folder that"):
                open_lake(place, LakeReader())

    @pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
    def test_a_user_is_told_whose_folder_it_is(self, place: Path, mode: int) -> None:
        root = self.make(place, mode)
        root.path.chmod(mode)
        with user(NOBODY), pytest.raises(BadRoot, match=r"is the folder of user root, .*: run it as user root"):
            check_root(root)
        check_root(root)

    def test_a_folder_behind_a_closed_one_is_an_error_of_the_lake(self, place: Path) -> None:
        closed = place / "closed"
        closed.mkdir(mode=0o700)
        with user(NOBODY), pytest.raises(skipstone.LakeError, match=r"denied.*: open a folder that you can write to"):
            open_lake(closed / "lake", LakeReader())
