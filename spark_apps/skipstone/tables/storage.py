"""Files of tables: where they are read from and written to, and what makes them survive a power cut.

The one place of the data plane that opens a FileIO. On volumes a file that was closed is on disk with its name and the
names of its folders, so that no commit can name what a power cut takes away; other storages see to that themselves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSystem
from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem
from pyiceberg.typedef import Properties

from skipstone.compat.pyiceberg import HookedFileIO
from skipstone.durable import make_folder, sync_file, sync_folder

#: Properties that tell a FileIO how to reach its storage.
_STORAGE_PREFIXES = ("s3.", "client.", "gcs.", "adls.", "hdfs.")
#: Folders whose own names this process has made durable, so that it does so once. Cleared when there are too many.
_named: set[Path] = set()
_MOST_NAMED = 100_000


class _SyncedFile(pa.OSFile):  # type: ignore[misc]
    """A new file of a volume."""

    def __init__(self, path: str, mode: str) -> None:
        """Made open by Arrow; ``mode`` is for writing."""
        self._place = Path(path)

    def close(self) -> None:
        """Close the file and wait until it is on disk, with its name. Raises OSError."""
        if self.closed:
            return
        super().close()
        sync_file(self._place)
        sync_folder(self._place.parent)


class _Volume(PyArrowLocalFileSystem):
    """A file system whose files are durable once they are closed."""

    def open_output_stream(self, path: str, *_: Any, **__: Any) -> pa.NativeFile:
        """A new file; folders are made as needed. Raises OSError."""
        _make_named(Path(path).parent)
        return _SyncedFile(path, "wb")


class DurableFileIO(HookedFileIO):
    """PyIceberg's FileIO, with files on volumes that are durable once they are closed."""

    def local_file_system(self) -> FileSystem:
        """One whose files are durable once they are closed."""
        return _Volume()


#: What a catalog is opened with, so that its tables use our FileIO.
CATALOG_PROPERTIES = {PY_IO_IMPL: f"{DurableFileIO.__module__}.{DurableFileIO.__qualname__}"}


def file_io(location: str) -> FileIO:
    """For tasks and drivers that read and write files of tables on their own, at ``location``."""
    is_local = location.startswith("file:") or "://" not in location
    return DurableFileIO() if is_local else load_file_io({}, location)


def storage_io(properties: Properties, location: str | None) -> FileIO:
    """The FileIO of a table at ``location``, of which ``properties`` are its catalog's and its own.

    Executors get it too, so it knows nothing but how to reach the storage.
    """
    kept = {name: value for name, value in properties.items() if name.startswith(_STORAGE_PREFIXES)}
    return load_file_io({**kept, **CATALOG_PROPERTIES}, location)


def _make_named(folder: Path) -> None:
    """Make a folder, and its name and those of the folders above it durable, also where another process made them."""
    make_folder(folder)
    if len(_named) > _MOST_NAMED:
        _named.clear()
    for one in (folder, *folder.parents):
        if one in _named or os.path.ismount(one):
            break
        try:
            sync_folder(one.parent)
        except PermissionError:  # not a folder of ours: it was there before us
            break
        _named.add(one)
