"""Opens files below a root without following a link: what is opened is below it, whatever is exchanged meanwhile.

Used by listing and by the readers of source files in this process. Must not be asked about paths that may hold links:
``listing`` resolves those first.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, cast

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class Beneath:
    """A root, and the folder below it that was used last: files of one folder are looked at one after the other."""

    def __init__(self, root: str | Path) -> None:
        """``root``: absolute; links that lead to it are followed. Raises OSError."""
        self._root = os.open(root, _FOLDER)
        self._folder: tuple[str, ...] = ()
        self._descriptor = self._root

    def __enter__(self) -> Beneath:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()
        os.close(self._root)

    def status(self, name: str) -> os.stat_result:
        """Return the status of ``name``; links are not followed. Raises OSError, also for a link among its folders."""
        *folder, last = PurePosixPath(name).parts
        return os.stat(last, dir_fd=self._at(tuple(folder)), follow_symlinks=False)

    def open(self, name: str) -> BinaryIO:
        """The regular file ``name``. Raises OSError, also for a link."""
        *folder, last = PurePosixPath(name).parts
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(last, flags, dir_fd=self._at(tuple(folder)))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(f"'{name}' is not a regular file")
        return cast(BinaryIO, io.BufferedReader(io.FileIO(descriptor)))

    def _at(self, folder: tuple[str, ...]) -> int:
        if folder != self._folder:
            self._leave()
            for name in folder:
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._descriptor)
                self._close()
                self._descriptor = below
            self._folder = folder
        return self._descriptor

    def _leave(self) -> None:
        self._close()
        self._folder, self._descriptor = (), self._root

    def _close(self) -> None:
        if self._descriptor != self._root:
            os.close(self._descriptor)


def open_beneath(path: Path, name: str) -> BinaryIO:
    """Open ``path``, whose end is ``name`` relative to the root, as ``Beneath`` does. Raises OSError."""
    with Beneath(path.parents[len(PurePosixPath(name).parts) - 1]) as root:
        return root.open(name)
