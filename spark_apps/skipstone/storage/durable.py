"""Files that are whole or absent, whatever dies while they are written, and that survive a power cut.

Used for the records of runs and of consumed files, and for copies of what this machine made. Works on file systems
without hard links too.
Must not know what the files hold.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

#: The file of a directory that stands for a file (``keep_first`` without hard links).
_INSIDE = "content"
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
#: Bytes of a copy that are in memory at once.
_AT_ONCE = 1 << 20
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
_Write = Callable[[BinaryIO], object]


def keep_content(path: Path, content: bytes) -> None:
    """Make ``path``, whose name stands for ``content`` (a digest), durable. Raises OSError.

    What is there already stays when it has this content. Else it is torn, whoever left it, and is replaced.
    """
    make_folder(path.parent)
    try:
        is_there = path.read_bytes() == content
    except FileNotFoundError:
        is_there = False
    if not is_there:
        _replace(path, lambda file: file.write(content))
    # Also for a file that is there: who made it may have died before this
    sync_folder(path.parent)


def keep_copy(path: Path, source: Path) -> None:
    """Make ``path`` a durable copy of the file ``source``; what is there, a link too, is replaced. Raises OSError."""
    make_folder(path.parent)
    with source.open("rb") as content:
        _replace(path, lambda file: shutil.copyfileobj(content, file, _AT_ONCE))
    sync_folder(path.parent)


def keep_first(path: Path, content: bytes) -> None:
    """Make ``path`` with ``content`` durable unless something is there: the first of several writers counts.

    To be read by ``read_first`` only. Raises OSError.
    """
    make_folder(path.parent)
    partial = _written_beside(path, lambda file: file.write(content))
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _keep_first_as_folder(path, content)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_first(path: Path) -> bytes:
    """Return the content that the first ``keep_first`` of ``path`` wrote. Raises OSError."""
    try:
        return path.read_bytes()
    except IsADirectoryError:
        return (path / _INSIDE).read_bytes()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durably. Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file that was written durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keep_first_as_folder(path: Path, content: bytes) -> None:
    """Without links, only a folder that holds something has a name that a rename does not take from it."""
    folder = _beside(path)
    folder.mkdir()
    _write(folder / _INSIDE, lambda file: file.write(content))
    sync_folder(folder)
    try:
        folder.rename(path)
    except OSError as error:
        (folder / _INSIDE).unlink(missing_ok=True)
        folder.rmdir()
        if error.errno not in _TAKEN:
            raise


def _replace(path: Path, write: _Write) -> None:
    partial = _written_beside(path, write)
    try:
        partial.replace(path)
    except OSError:
        partial.unlink()
        raise


def _written_beside(path: Path, write: _Write) -> Path:
    partial = _beside(path)
    try:
        _write(partial, write)
    except OSError:
        # A full file system has no room for what nobody will finish
        partial.unlink(missing_ok=True)
        raise
    return partial


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def _write(path: Path, write: _Write) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
