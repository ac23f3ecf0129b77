"""Files of tables: where they are read from and written to, and what makes them survive a power cut.

The one place of the data plane that opens a FileIO. On volumes a file that was closed is on disk with its name and the
names of its folders, so that no commit can name what a power cut takes away; other storages see to that themselves.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem
from pyiceberg.table import Table
from pyiceberg.typedef import Properties
from skipstone_core.errors import ContractViolation

from skipstone.compat.pyiceberg import HookedFileIO
from skipstone.storage.access import ca_file
from skipstone.storage.durable import make_folder, sync_file, sync_folder

#: Properties that tell a FileIO how to reach its storage.
_STORAGE_PREFIXES = ("s3.", "client.", "gcs.", "adls.", "hdfs.")
#: Folders whose own names this process has made durable, so that it does so once. Cleared when there are too many.
_named: set[Path] = set()
_MOST_NAMED = 100_000
#: How often one request to S3 is sent before it has failed.
MOST_REQUESTS = 8


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

    def s3_file_system(self, told: S3FileSystem) -> FileSystem:
        """One that puts a small file by one request; by parts it would take three, and leave some when it is killed.

        It asks again as often as a burst of refusals takes.
        """
        _, (options,) = told.__reduce__()
        again = AwsStandardS3RetryStrategy(max_attempts=MOST_REQUESTS)
        authorities = {"tls_ca_file_path": found} if (found := ca_file()) else {}
        return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": again, **authorities})


#: What a catalog is opened with, so that its tables use our FileIO.
CATALOG_PROPERTIES = {PY_IO_IMPL: f"{DurableFileIO.__module__}.{DurableFileIO.__qualname__}"}


@dataclass(frozen=True)
class FileAccess:
    """How tasks reach the files of one table: picklable, and without a word of it in ``repr``.

    ``properties``: those of the loaded table's FileIO that tell how to reach its storage, credentials among them.
    None: those of no table, which is enough for volumes only.
    """

    properties: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)

    def open(self, location: str) -> FileIO:
        """The FileIO for files at ``location``. Raises ContractViolation for another storage when it is of no table."""
        if not _is_local(location) and self.properties is None:
            raise ContractViolation(f"{location} is on no volume: its FileIO needs the properties of the loaded table")
        return _opened(self)


#: For files that are certainly on a volume.
ON_VOLUMES = FileAccess()


def file_access(table: Table) -> FileAccess:
    """How tasks reach the files of ``table``, as its catalog has just told."""
    return FileAccess(tuple(sorted(_reaching(table.io.properties).items())))


@lru_cache(maxsize=16)
def _opened(access: FileAccess) -> FileIO:
    """One for all files that are reached alike: it keeps connections."""
    return DurableFileIO(dict(access.properties or ()))


def _is_local(location: str) -> bool:
    return location.startswith("file:") or "://" not in location


def _reaching(properties: Properties) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(_STORAGE_PREFIXES)}


def storage_io(properties: Properties, location: str | None) -> FileIO:
    """The FileIO of a table at ``location``, of which ``properties`` are its catalog's and its own.

    Executors get it too, so it knows nothing but how to reach the storage.
    """
    return load_file_io({**_reaching(properties), **CATALOG_PROPERTIES}, location)


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
