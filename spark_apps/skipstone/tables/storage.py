"""Files of tables: where they are read from and written to, and what makes them survive a power cut.

The one place of the data plane that opens a FileIO. On volumes a file that was closed is on disk with its name and the
names of its folders, so that no commit can name what a power cut takes away; other storages see to that themselves.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Properties
from skipstone_core.errors import ContractViolation

from skipstone.caches import ByteCache
from skipstone.compat.pyiceberg import HookedFileIO
from skipstone.storage.buckets.access import ca_file
from skipstone.storage.buckets.kind import all_kinds
from skipstone.storage.buckets.remote import (
    ArrowFile,
    ArrowOptions,
    RemoteBucket,
    RemoteContent,
    RemoteFile,
    reached,
    remote_bucket,
)
from skipstone.storage.buckets.uploads import abort_uploads
from skipstone.storage.buckets.vending import Vending
from skipstone.storage.durable import make_folder, sync_file, sync_folder

#: Properties that tell a FileIO how to reach its storage.
_STORAGE_PREFIXES = ("s3.", "client.", "gcs.", "adls.", "hdfs.")
#: Folders whose own names this process has made durable, so that it does so once. Cleared when there are too many.
_named: set[Path] = set()
_MOST_NAMED = 100_000
#: How often one request to S3 is sent before it has failed.
MOST_REQUESTS = 8
#: Bytes of metadata files in S3 that a process remembers: a table is loaded several times in a run.
METADATA_BYTES = 64 * 1024 * 1024
_contents: ByteCache[tuple[RemoteBucket, str], bytes] = ByteCache("metadata files", METADATA_BYTES, len)
#: Metadata, manifests and lists of them whose names are random: no other content ever has such a name.
_NEVER_CHANGES = re.compile(
    r".*/metadata/[^/]*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}[^/]*\.(avro|metadata\.json)"
)
#: The one scheme by which we compare locations, by each that engines write for the same files.
_PLAIN = {scheme: kind.schemes[0] for kind in all_kinds() for scheme in kind.schemes}
#: What locations begin with that are read without Arrow.
_DIRECT = tuple(f"{scheme}://" for kind in all_kinds() if kind.is_direct for scheme in kind.schemes)
_FILE = "file"


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
    """PyIceberg's FileIO, with files on volumes that are durable once they are closed.

    ``vending``: of a table of a catalog that vends credentials; a copy in another process has none.
    """

    vending: Vending | None = None

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file, with the checksum that Hadoop keeps beside one of a volume. Raises OSError."""
        self.renew()
        super().delete(location)
        path = location if isinstance(location, str) else location.location
        if _is_local(path):
            local = Path(plain_location(path))
            try:
                local.with_name(f".{local.name}.crc").unlink(missing_ok=True)
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:  # then no file has such a name
                    raise

    def renew(self) -> None:
        """Take other credentials from the catalog if it is time for them. Raises as ``Vending.renew`` does."""
        if self.vending:
            self.vending.renew(lambda properties: self.replace_properties(dict(properties)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the catalog."""
        return {**super().__getstate__(), "vending": None}

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        """A file to read; in S3 by few requests."""
        self.renew()
        file: InputFile = super().new_input(location)
        bucket, key = self._remote(location)
        return file if bucket is None else _RemoteInput(location, bucket, key, file)

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        """A file to write; in S3 one whose random name needs no look at what is there."""
        self.renew()
        file: OutputFile = super().new_output(location)
        bucket, key = self._remote(location)
        return file if bucket is None else _RemoteOutput(location, bucket, key, file)

    def _remote(self, location: str) -> tuple[RemoteBucket | None, str]:
        """The bucket and the key of a location in S3 that is read without Arrow."""
        if not location.startswith(_DIRECT):
            return None, ""
        bucket, options, key = self._place(location)
        return remote_bucket(bucket, options), key

    def abort_uploads(self, folder: str, is_left: Callable[[str], bool]) -> None:
        """Abort uploads by parts to files below ``folder`` in S3 of which ``is_left`` tells that nobody finishes them.

        Whatever goes wrong is logged.
        """
        if folder.startswith(_DIRECT):
            self.renew()
            bucket, options, key = self._place(folder)
            if reachable := reached(bucket, options):
                abort_uploads(*reachable, key, is_left)

    def _place(self, location: str) -> tuple[str, ArrowOptions, str]:
        """The bucket of a location in S3, the options of Arrow's file system for it, and the key."""
        scheme, bucket, path = self.parse_location(location, self.properties)
        _, (options,) = self.fs_by_scheme(scheme, bucket).__reduce__()
        return bucket, options, path.removeprefix(bucket).removeprefix("/")

    def local_file_system(self) -> FileSystem:
        """One whose files are durable once they are closed."""
        return _Volume()

    def s3_file_system(self, file_system: S3FileSystem) -> FileSystem:
        """One that puts a small file by one request; by parts it would take three, and leave some when it is killed.

        It asks again as often as a burst of refusals takes.
        """
        _, (options,) = file_system.__reduce__()
        again = AwsStandardS3RetryStrategy(max_attempts=MOST_REQUESTS)
        authorities = {"tls_ca_file_path": bundle} if (bundle := ca_file()) else {}
        return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": again, **authorities})


def never_changes(location: str) -> bool:
    """Return whether a metadata file has a random name, so that no other content ever has it."""
    return bool(_NEVER_CHANGES.fullmatch(location))


def forget_content(location: str) -> None:
    """Ask S3 again for the metadata file at ``location``: what was read of it is damaged, and it may be restored."""
    _contents.drop(lambda known: location.endswith(f"/{known[1]}"))


class _RemoteInput(InputFile):
    """A file in S3; ``by_arrow``: as Arrow reaches it."""

    def __init__(self, location: str, bucket: RemoteBucket, key: str, by_arrow: InputFile) -> None:
        super().__init__(location)
        self._bucket, self._key, self._by_arrow = bucket, key, by_arrow

    def __len__(self) -> int:
        """By a request unless its end was read."""
        known = self._bucket.known_size(self._key)
        return len(self._by_arrow) if known is None else known

    def exists(self) -> bool:
        """By a request."""
        return self._by_arrow.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - as PyIceberg has it
        """Asks for nothing before the first read, which raises what opening does elsewhere."""
        file = RemoteFile(RemoteContent(self._bucket, self._key, cast(Callable[[], ArrowFile], self._by_arrow.open)))
        if not never_changes(self.location):
            return file
        with file:
            return io.BytesIO(_contents.get((self._bucket, self._key), file.readall))


class _RemoteOutput(OutputFile):
    """A new file in S3; ``by_arrow``: as Arrow reaches it."""

    def __init__(self, location: str, bucket: RemoteBucket, key: str, by_arrow: OutputFile) -> None:
        super().__init__(location)
        self._bucket, self._key, self._by_arrow = bucket, key, by_arrow
        self._is_metadata = never_changes(location)
        self._size: int | None = None

    def __len__(self) -> int:
        """Of what was written."""
        return len(self._by_arrow) if self._size is None else self._size

    def exists(self) -> bool:
        """By a request."""
        return self._by_arrow.exists()

    def to_input_file(self) -> InputFile:
        """The same file to read."""
        return _RemoteInput(self.location, self._bucket, self._key, self._by_arrow.to_input_file())

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - as PyIceberg has it
        """Raises FileExistsError for a file that is there, unless nothing can be."""
        if not (overwrite or self._is_metadata) and self._bucket.is_there(self._key, self._by_arrow.exists):
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        sink = self._by_arrow.create(overwrite=True)
        return _RemoteSink(sink, self._written) if self._is_metadata else _CountedSink(sink, self._put)

    def _put(self, size: int) -> None:
        self._size = size
        self._bucket.note_size(self._key, size)

    def _written(self, content: bytes) -> None:
        self._size = len(content)
        _contents.get((self._bucket, self._key), lambda: content)


class _CountedSink:
    """A file on its way, whose size is told once it is there."""

    def __init__(self, sink: OutputStream, put: Callable[[int], None]) -> None:
        self._sink, self._by_arrow = sink, put
        self._size = 0
        self.closed = False

    def write(self, content: bytes) -> int:
        """Send bytes. Raises OSError."""
        written = self._sink.write(content)
        self._size += len(memoryview(content).cast("B"))
        return int(written or 0)

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Nothing is flushed: a file counts when it is closed."""

    def close(self) -> None:
        """Finish the file. Raises OSError."""
        if not self.closed:
            self.closed = True
            self._sink.close()
            self._by_arrow(self._size)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class _RemoteSink:
    """Metadata on its way: it is sent when it is closed, and remembered once it is there."""

    def __init__(self, sink: OutputStream, written: Callable[[bytes], None]) -> None:
        self._sink, self._by_arrow = sink, written
        self._content = bytearray()
        self.closed = False

    def write(self, content: bytes) -> int:
        """Take bytes."""
        self._content += content
        return len(content)

    def tell(self) -> int:
        """Bytes so far."""
        return len(self._content)

    def flush(self) -> None:
        """Nothing is flushed: a file counts when it is closed."""

    def close(self) -> None:
        """Send it. Raises OSError."""
        if not self.closed:
            self.closed = True
            content = bytes(self._content)
            self._sink.write(content)
            self._sink.close()
            self._by_arrow(content)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.closed = True
            self._sink.close()


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
    """How tasks reach the files of ``table``, as its catalog tells; credentials that it vends are good for a while."""
    if isinstance(table.io, DurableFileIO):
        table.io.renew()
    return FileAccess(tuple(sorted(_reaching(table.io.properties).items())))


@lru_cache(maxsize=16)
def _opened(access: FileAccess) -> FileIO:
    """One for all files that are reached alike: it keeps connections."""
    return DurableFileIO(dict(access.properties or ()))


def plain_location(location: str) -> str:
    """``location`` in the one form in which two of them are compared: engines write several for one file."""
    scheme, _, rest = location.partition(":")
    scheme = scheme.lower()
    if scheme == _FILE:
        return "/" + (rest[2:].partition("/")[2] if rest.startswith("//") else rest).lstrip("/")
    plain = _PLAIN.get(scheme)
    return f"{plain}:{rest}" if plain and rest.startswith("//") else location


def data_location(table: Table) -> str:
    """The folder of new data files of ``table``. A property that is empty names none, as for PyIceberg."""
    return _written(table, TableProperties.WRITE_DATA_PATH, "data")


def metadata_folder(table: Table) -> str:
    """The folder of its new metadata files, by the same rule."""
    return _written(table, TableProperties.WRITE_METADATA_PATH, "metadata")


def _written(table: Table, name: str, usual: str) -> str:
    return (table.properties.get(name) or f"{table.location().rstrip('/')}/{usual}").rstrip("/")


def _is_local(location: str) -> bool:
    return location.partition(":")[0].lower() == _FILE or "://" not in location


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
    for path in (folder, *folder.parents):
        if path in _named or os.path.ismount(path):
            break
        try:
            sync_folder(path.parent)
        except PermissionError:  # not a folder of ours: it was there before us
            break
        _named.add(path)
