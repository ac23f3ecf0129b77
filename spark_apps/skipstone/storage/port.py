"""What the data plane asks of a Warehouse's storage, whatever it is.

Paths are relative to the root, with ``/``, and never leave it. A file is made whole or not at all, and is never
changed afterwards by us; people may replace what is theirs, and ``Entry`` tells. Names that begin with ``.`` or ``_``
or end with ``._COPYING_`` are hidden: only who names them sees them.
Must not know what files hold, and knows no Warehouse: ``opening`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

#: Ends the name of a file that Hadoop is still copying.
_COPYING = "._COPYING_"
#: Bytes that ``open`` asks for at once when a file is read from its beginning to its end.
READ_AHEAD = 4 << 20


@dataclass(frozen=True, order=True, kw_only=True)
class Entry:
    """One file: its ``path``, ``size`` in bytes, and ``version``, which tells that it was replaced.

    ``version``: on a volume the time of the last modification in nanoseconds since 1970, in an object store the ETag.
    ``touched_ns``: when it last changed in a way that nobody can take back, as this process saw it; 0: not looked at.
    On a volume that is the last change of status (ctime), in an object store the time of the put.
    """

    path: str
    size: int
    version: int | str
    touched_ns: int = field(default=0, compare=False)

    @property
    def written_ns(self) -> int:
        """When somebody last wrote it, or took it to its place, as far as this process saw that."""
        return max(self.touched_ns, self.version if isinstance(self.version, int) else 0)

    @property
    def modified_ns(self) -> int:
        """When its content was last written; on a volume whoever owns the file may set that back."""
        return self.version if isinstance(self.version, int) else self.touched_ns


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder with what is visible in it: ``files`` sorted by path, and the names of ``folders``, sorted."""

    path: str
    files: tuple[Entry, ...]
    folders: tuple[str, ...]


class LeadsOut(Exception):
    """A path is, or leads through, a link to a place outside of the storage or among the records of runs."""


class NoFile(Exception):
    """Something that people see is neither a file nor a folder: a link that leads nowhere, a socket."""


class Replaced(OSError):
    """A file is not the one that was asked for any more: another version of it is there, or none, or a link."""

    def __init__(self, path: str) -> None:
        """``path``: of the file."""
        super().__init__(f"'{path}' is not the file any more that it was")


class Storage(Protocol):
    """A Warehouse's storage.

    Besides what is said below, every method raises DependencyUnavailable when the storage does not answer or refuses:
    its sentence says what was asked of which place, and what to do. It is never raised for what is merely absent.
    """

    def where(self, path: str = "") -> str:
        """Return its name for people, or that of a file: a path, or an address with the endpoint."""
        ...

    def address(self, path: str = "") -> str:
        """Where Hadoop's file systems, by which Spark reads, find the root or a file."""
        ...

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings that reach it. They hold no credentials, only names of variables."""
        ...

    def may_hold(self, path: str) -> bool:
        """Return whether files may arrive below ``path`` as it is: on a volume in folders, in a bucket anywhere."""
        ...

    def is_taken(self, path: str) -> bool:
        """Return whether anything is at ``path`` or below it, hidden or not."""
        ...

    def look(self, path: str) -> Entry | Folder | None:
        """Return the entry or folder at ``path``, hidden or not; None for none. Raises LeadsOut, NoFile."""
        ...

    def match(self, pattern: str) -> tuple[Entry | Folder, ...]:
        """All visible that a pattern of ``*``, ``?``, ``[...]`` and ``**`` names, sorted. Raises LeadsOut, NoFile."""
        ...

    def entries(self, paths: Sequence[str]) -> Iterator[Entry | None]:
        """The files at ``paths`` in their order; None for one that is gone. Links are not followed."""
        ...

    def list(self, folder: str) -> Iterator[Entry]:
        """All files below ``folder``, hidden ones too; in no order. Nothing when there is no such folder."""
        ...

    def read(self, path: str) -> bytes:
        """The whole content of a file that was made by ``create`` or ``keep_content``. Raises FileNotFoundError."""
        ...

    def open(self, what: Entry | str, *, buffering: int = READ_AHEAD) -> BinaryIO:
        """The content of a file, seekable. Opening it, or a later read, raises what is said here.

        Of an Entry that very file, or Replaced; of a path what ``create`` or ``keep_content`` made, or
        FileNotFoundError. ``buffering``: bytes to read ahead; 0 for who reads ranges, and gets all bytes it asks for.
        """
        ...

    def create(self, path: str, content: bytes) -> bytes:
        """Make a file unless one is there, durably; what is there then: of several writers the first counts."""
        ...

    def keep_content(self, path: str, content: bytes) -> None:
        """Make a file whose name stands for its content (a digest), durably; something else there is replaced."""
        ...

    def keep_copy(self, path: str, source: Path) -> None:
        """Make a file of the local file ``source``, durably; a name that nobody else uses."""
        ...

    def move(self, path: str, to: str) -> None:
        """Give a file of ours another name in its folder."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, if it is there."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove all files below ``folder``, and itself, if it is there."""
        ...

    def probe(self, name: str) -> None:
        """Prove with files of this ``name`` that all of the above works, and that one of racing creators wins."""
        ...

    def probe_reading(self) -> None:
        """Prove that files can be listed and read: the first one is, if there is any."""
        ...


@dataclass(frozen=True)
class StoredFile:
    """A file, and the storage that it is in."""

    storage: Storage
    entry: Entry

    @property
    def name(self) -> str:
        """What people call it."""
        return self.entry.path

    def open(self, *, buffering: int = READ_AHEAD) -> BinaryIO:
        """Its content, as ``Storage.open`` gives it."""
        return self.storage.open(self.entry, buffering=buffering)


def is_hidden(path: str) -> bool:
    """Return whether a part of ``path`` has a name of hidden files: all that Spark leaves out, and never tells."""
    return any(part.startswith((".", "_")) or part.endswith(_COPYING) for part in PurePosixPath(path).parts)
