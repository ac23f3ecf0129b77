"""Whose a root folder is: what another user leaves in it, its own could neither read nor change."""

from __future__ import annotations

import os
import pwd
import tempfile

from skipstone_local.places import RootFolder


class ForeignFolder(OSError):
    """The folder is another user's. ``sentence`` and ``way_out`` make up its text."""

    def __init__(self, folder: RootFolder, owner: int) -> None:
        """``owner``: a uid."""
        whose = _name(owner)
        self.sentence = f"{folder.path} is the folder of {whose}, and this process runs as {_name(os.geteuid())}"
        self.way_out = f"run it as {whose}, or choose another folder"
        super().__init__(f"{self.sentence}: {self.way_out}")


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
