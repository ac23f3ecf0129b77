"""Is a table whole? Everything that its current metadata reaches exists and can be read, by PyIceberg and by Java.

Used by ``conftest`` after every test, over every table of the SQLite catalogs that the test wrote to. Reads only.
What was read once is remembered by its path: files of a table never change, so only their existence is asked again.
"""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from propcache.api import cached_property
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile, read_manifest_list
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyspark import SparkContext
from skipstone.tables.decoding.metadatafiles import read_metadata

#: What Java allows two entries of a snapshot log to be out of order by.
LOG_TOLERANCE_MS = 60_000
#: Where tests keep catalogs, relative to a test's folder.
_CATALOGS = ("*.db", "*/*.db")


class Unsound(AssertionError):
    """A table that an engine cannot read, or not fully."""


class Soundness:
    """Checks tables; remembers what both engines have read, and in which state a catalog was found."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._io = PyArrowFileIO()
        self._java = _Java()
        self._known: dict[str, Any] = {}
        self._planned: set[str] = set()
        self._catalogs: dict[Path, int] = {}
        self._over: set[str] = set()

    def check_folder(self, folder: Path) -> None:
        """Check the tables of all SQLite catalogs in and below ``folder``."""
        for path in _catalogs_in(folder):
            self._check_catalog(path)

    def check_changed(self, folder: Path) -> None:
        """Check those below the folders in ``folder`` that changed since they were last checked."""
        for path in self._catalogs_below(folder):
            if self._catalogs.get(path) != path.stat().st_mtime_ns:
                self._check_catalog(path)

    def leave_out(self, folder: Path) -> None:
        """Take what is below the folders in ``folder`` as checked: it is broken on purpose."""
        self._catalogs.update({path: path.stat().st_mtime_ns for path in self._catalogs_below(folder)})

    def forget(self, folder: Path) -> None:
        """Look into ``folder`` no more: it is that of a test which is over."""
        self._over.add(str(folder))

    def _catalogs_below(self, folder: Path) -> Iterator[Path]:
        """Those below the folders in ``folder``, each once: pytest makes links to them, too."""
        with os.scandir(folder) as found:
            folders = [one.path for one in found if one.is_dir(follow_symlinks=False) and one.path not in self._over]
        for path in folders:
            yield from _catalogs_in(Path(path))

    def _check_catalog(self, path: Path) -> None:
        self._catalogs[path] = path.stat().st_mtime_ns
        for location in _metadata_locations(path):
            self.check_table(location)

    def check_table(self, location: str) -> None:
        """Raise Unsound unless all that the metadata file at ``location`` reaches can be read."""
        metadata = self._metadata(location)
        _check_log(metadata, location)
        for statistics in (*metadata.statistics, *metadata.partition_statistics):
            _require(statistics.statistics_path, location)
        live = {
            snapshot.snapshot_id: sum(
                self._check_manifest(manifest, location) for manifest in self._manifests(snapshot.manifest_list)
            )
            for snapshot in metadata.snapshots
        }
        if location not in self._known:
            shape = f"{metadata.table_uuid} {metadata.schemas} {metadata.partition_specs}"
            plans = {snapshot.snapshot_id: f"{snapshot.manifest_list} {shape}" for snapshot in metadata.snapshots}
            # Java plans a snapshot again only when its files, the schemas or the partitioning differ
            new = {snapshot: count for snapshot, count in live.items() if plans[snapshot] not in self._planned}
            self._java.plan(location, new)
            self._planned.update(plans.values())
            self._known[location] = metadata

    def _metadata(self, location: str) -> TableMetadata:
        _require(location, location)
        known: TableMetadata | None = self._known.get(location)
        if known is not None:
            return known
        found, file = FromInputFile.table_metadata(self._io.new_input(location)), self._io.new_input(location)
        if (remembered := read_metadata(file)) != found:
            raise Unsound(f"{location} holds {found} and is remembered as {remembered}")
        return found

    def _manifests(self, path: str) -> list[ManifestFile]:
        _require(path, "its snapshot")
        if path not in self._known:
            self._known[path] = list(read_manifest_list(self._io.new_input(path)))
        return self._known[path]

    def _check_manifest(self, manifest: ManifestFile, location: str) -> int:
        """How many live data files it names, all of which are there."""
        path = manifest.manifest_path
        _require(path, location)
        if path not in self._known:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            self._known[path] = [entry.data_file for entry in entries]
        for file in self._known[path]:
            self._check_file(file, path)
        return len(self._known[path]) if manifest.content == ManifestContent.DATA else 0

    def _check_file(self, file: DataFile, named_by: str) -> None:
        path, size = file.file_path, _require(file.file_path, named_by)
        if size != file.file_size_in_bytes:
            raise Unsound(f"{path} has {size} bytes, {named_by} says {file.file_size_in_bytes}")
        if file.file_format != FileFormat.PARQUET or path in self._known:
            return
        counts = pq.read_metadata(_local(path)).num_rows, self._java.records(path)
        if set(counts) != {file.record_count}:
            raise Unsound(f"{path} has {counts} rows as PyArrow and Java read it, {named_by} says {file.record_count}")
        self._known[path] = True


class _Java:
    """The Iceberg library of the one JVM of this process, which the first question starts.

    Each part of a dotted name is a question to the JVM, and most of them search all jars: classes are looked up once.
    """

    @cached_property
    def _jvm(self) -> Any:
        SparkContext._ensure_initialized()
        return SparkContext._jvm

    @cached_property
    def _settings(self) -> Any:
        return self._jvm.org.apache.hadoop.conf.Configuration()

    @cached_property
    def _iceberg(self) -> tuple[Any, Any, Any]:
        iceberg = self._jvm.org.apache.iceberg
        count = iceberg.relocated.com.google.common.collect.Iterables.size
        return iceberg.BaseTable, iceberg.StaticTableOperations, count

    @cached_property
    def _files(self) -> Any:
        return self._jvm.org.apache.iceberg.hadoop.HadoopFileIO(self._settings)

    @cached_property
    def _parquet(self) -> tuple[Any, Any, Any]:
        hadoop, parquet = self._jvm.org.apache.hadoop, self._jvm.org.apache.parquet.hadoop
        return hadoop.fs.Path, parquet.util.HadoopInputFile, parquet.ParquetFileReader

    @cached_property
    def _options(self) -> Any:
        """How files are read; Java takes ten times as long to find that out as to read a footer."""
        return self._jvm.org.apache.parquet.HadoopReadOptions.builder(self._settings).build()

    def plan(self, location: str, live: dict[int, int]) -> None:
        """Open the metadata at ``location`` and plan scans of the snapshots in ``live``: data files by snapshot id."""
        table, operations, count = self._iceberg
        try:
            opened = operations(location, self._files)
            opened.current()
            read = table(opened, "t")
            found = {snapshot: count(read.newScan().useSnapshot(snapshot).planFiles()) for snapshot in live}
        except Exception as error:
            raise Unsound(f"Java cannot read {location}: {error}") from error
        if found != live:
            raise Unsound(f"Java finds data files by snapshot {found} in {location}, PyIceberg {live}")

    def records(self, path: str) -> int:
        """The rows of a Parquet file by its footer."""
        place, source, readers = self._parquet
        reader = readers.open(source.fromPath(place(f"file://{_local(path)}"), self._settings), self._options)
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()


def _check_log(metadata: TableMetadata, location: str) -> None:
    """Raise Unsound for a snapshot log that Java refuses to read."""
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    for before, after in itertools.pairwise(times):
        if after - before < -LOG_TOLERANCE_MS:
            raise Unsound(f"the snapshot log of {location} goes back from {before} to {after}")
    if times and metadata.last_updated_ms - times[-1] < -LOG_TOLERANCE_MS:
        raise Unsound(f"{location} was updated at {metadata.last_updated_ms}, before its last snapshot {times[-1]}")


def _require(path: str, named_by: str) -> int:
    """The size of a file. Raises Unsound when it is not there."""
    try:
        return _local(path).stat().st_size
    except OSError as error:
        raise Unsound(f"{path}, named by {named_by}, is gone: {error}") from error


def _local(path: str) -> Path:
    return Path(re.sub("^file:(//)?", "", path))


def _catalogs_in(folder: Path) -> Iterator[Path]:
    for pattern in _CATALOGS:
        yield from (path for path in folder.glob(pattern) if path.is_file())


def _metadata_locations(path: Path) -> list[str]:
    """The metadata files that the catalog at ``path`` points at; none when it is no catalog."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=300)) as catalog:
        columns = {row[1] for row in catalog.execute("pragma table_info(iceberg_tables)")}
        if "metadata_location" not in columns:
            return []
        only = "where coalesce(iceberg_type, 'TABLE') = 'TABLE'" if "iceberg_type" in columns else ""
        return [row[0] for row in catalog.execute(f"select metadata_location from iceberg_tables {only}")]
