"""Makes a root folder, and finds whose it is: what another user leaves in it, its own could not read or change."""

from __future__ import annotations

import os
import pwd
import tempfile

from skipstone_local.places import RootFolder


class UnfitFolder(OSError):
    """Nothing can be kept in the folder. ``sentence`` and ``way_out`` make up its text."""

    def __init__(self, sentence: str, way_out: str) -> None:
        """``sentence``: why; ``way_out``: what a user can do."""
        self.sentence = sentence
        self.way_out = way_out
        super().__init__(f"{sentence}: {way_out}")


class ForeignFolder(UnfitFolder):
    """The folder is another user's."""

    def __init__(self, folder: RootFolder, owner: int) -> None:
        """``owner``: a uid."""
        whose = _name(owner)
        sentence = f"{folder.path} is the folder of {whose}, and this process runs as {_name(os.geteuid())}"
        super().__init__(sentence, f"run it as {whose}, or choose another folder")


def make_folder(folder: RootFolder) -> None:
    """Make the folder if it does not exist, for its owner only. Raises UnfitFolder, also if it is read-only."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:
        raise UnfitFolder(f"{folder.path} is not a folder", "choose another path") from None
    except OSError as error:
        sentence = f"{folder.path} cannot be created: {error.strerror or error}"
        raise UnfitFolder(sentence, "choose a folder that you may create") from error
    if not os.access(folder.path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        raise UnfitFolder(f"{_name(os.geteuid())} cannot write to {folder.path}", "choose a folder of your own")


def require_own(folder: RootFolder) -> None:
    """Raise ForeignFolder for a folder that another user served first, and OSError for one that cannot be looked at.

    The superuser is another user, too: the folder's own could not go on after it. Of storage that shows all files as
    one user's, a file that this process makes tells who that is.
    """
    try:
        owner = folder.lock.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:
        owner = folder.path.stat().st_uid
    if owner == os.geteuid():
        return
    try:
        with tempfile.TemporaryFile(dir=folder.path) as made:
            mine = os.fstat(made.fileno()).st_uid
    except PermissionError:
        raise ForeignFolder(folder, owner) from None
    if mine != owner:
        raise ForeignFolder(folder, owner)


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
