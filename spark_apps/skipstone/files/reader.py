"""Reads one data file with its deletes applied, by field id, in the table schema's Arrow types.

Called by index builds, merges and queries, inside Spark tasks or without Spark.
Must not ignore a delete: what cannot be applied is refused with a reason.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from propcache.api import cached_property
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.caches import ByteCache
from skipstone.files.avro.datafiles import read_avro_file
from skipstone.files.deletions import DeleteDescription, Deletions
from skipstone.files.orcfiles import read_orc_file
from skipstone.files.pages import INT96_UNIT, PageReader
from skipstone.files.projections import (
    POSITION_COLUMN,
    ROW_GROUP_COLUMN,
    DataFileDescription,
    Decoding,
    PhysicalFile,
    Positions,
    Projection,
    deletions_of,
    live_rows,
)
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import DataFileFacts, FileSet
from skipstone.tables.parquet.unpacking import unpacked
from skipstone.tables.parquetfiles import WholeFile, naming_damage, read_metadata
from skipstone.tables.storage import FileAccess, file_access

__all__ = [
    "POSITION_COLUMN",
    "ROW_GROUP_COLUMN",
    "DataFileDescription",
    "DeleteDescription",
    "FileReaders",
    "OpenDataFile",
    "describe_files",
    "is_read_whole",
    "open_data_file",
    "open_readers",
    "read_data_file",
]

Part = TypeVar("Part")
Made = TypeVar("Made")
BATCH_ROWS = 128 * 1024
#: Column chunks are read in such pieces: a foreign file may be one row group of any size.
BUFFER_BYTES = 1024 * 1024
#: Memory for footers of data files, in bytes: workers live as long as their executor and meet the same files again.
FOOTER_CACHE_BYTES = 64 * 1024 * 1024
#: A decoded footer takes about so many times its serialized size.
_DECODED = 8
_footers: ByteCache[tuple[str, int], pq.FileMetaData] = ByteCache(
    "data footers", FOOTER_CACHE_BYTES, lambda footer: _DECODED * int(footer.serialized_size)
)


def describe_files(
    table: Table,
    files: FileSet,
    ordinals: Sequence[int],
    *,
    with_deletes: bool = True,
) -> list[DataFileDescription]:
    """Descriptions of ``ordinals`` for tasks, in the pinned schema of ``files``.

    ``with_deletes`` False describes files as they were written, for those who need every row of them. Raises BadData
    (DELETES_UNSUPPORTED) when a delete cannot be applied on reading.
    """
    mapping = table.metadata.name_mapping()
    common = _Common(
        schema_json=files.schema.model_dump_json(),
        name_mapping_json=mapping.model_dump_json() if mapping is not None else None,
        access=file_access(table),
    )
    described = [_describe(table, files, ordinal, common) for ordinal in ordinals]
    if not with_deletes:
        return described
    return [_with_deletes(file, files) for file in described]


def read_data_file(
    file: DataFileDescription,
    columns: Sequence[str],
    row_groups: Sequence[int] | None = None,
    positions: Positions | None = None,
    decoding: Decoding | None = None,
) -> Iterator[pa.RecordBatch]:
    """The live rows of ``file`` in file order, ``columns`` by their name in the schema to read in.

    POSITION_COLUMN and ROW_GROUP_COLUMN may be among ``columns``. Columns the file does not hold have
    their partition value, else the schema's initial default, else null.
    ``row_groups``: read only these (positions still count from the file's start). ``positions``: give only these rows
    (ascending), decoding only the pages that hold them where that saves enough. ``decoding``: of a Parquet file.
    Raises KeyError for a column that the schema does not have, BadData (SOURCE_UNREADABLE) for a file that lacks rows.
    """
    if is_read_whole(file):
        yield from _WHOLE[file.file_format](file, columns, positions)
        return
    with open_data_file(file) as opened:
        for group in range(len(opened.group_rows)) if row_groups is None else row_groups:
            yield from opened.read(columns, group, positions, decoding)


#: Readers of formats that are read whole.
_WHOLE: Mapping[str, Callable[[DataFileDescription, Sequence[str], Positions | None], Iterator[pa.RecordBatch]]] = {
    FileFormat.AVRO.value: read_avro_file,
    FileFormat.ORC.value: read_orc_file,
}


def is_read_whole(file: DataFileDescription) -> bool:
    """Return whether ``file`` has a format without row groups, which is read from its start to its end."""
    return file.file_format in _WHOLE


class OpenDataFile:
    """A data file that is read several times: other columns, one row group after the other."""

    def __init__(self, file: DataFileDescription, source: Any) -> None:
        """``source``: the open file, which the caller closes."""
        self.file = file
        self.source = source
        # by the size that it has, not the one that it should have: a file that was cut short has no footer
        with naming_damage(file.path):
            footer = _footers.get((file.path, source.seek(0, os.SEEK_END)), lambda: read_metadata(source))
            self._parquet = WholeFile(
                source,
                footer,
                use_threads=True,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                coerce_int96_timestamp_unit=INT96_UNIT,
            )
        self._pages = PageReader(source, file.path, file.size, self.group_rows)
        self._projections: dict[tuple[str, ...], Projection] = {}

    @property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group, deleted ones included."""
        return self._parquet.group_rows

    def bounds(self, column: str, group: int) -> tuple[int, int] | tuple[bytes, bytes] | None:
        """Bounds of a column in a row group, as canonical keys have them; None: not known, or of another type."""
        projection = self._projection((column,))
        field, wanted = projection.physical(column), projection.output.field(column).type
        chunk = self.chunk(column, group)
        if field is None or chunk is None or not _has_plain_bounds(field.type, wanted):
            return None
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return statistics.min_raw, statistics.max_raw

    def chunk(self, column: str, group: int) -> pq.ColumnChunkMetaData | None:
        """Return the metadata of a column of simple type in a row group; None when the file does not hold it."""
        leaf = self._leaf(column)
        return None if leaf is None else self._parquet.metadata.row_group(group).column(leaf)

    def stored(self, column: str) -> pq.ColumnSchema | None:
        """How the file stores a column of simple type; None when it does not hold it."""
        leaf = self._leaf(column)
        return None if leaf is None else self._parquet.schema.column(leaf)

    def _leaf(self, column: str) -> int | None:
        field = self._projection((column,)).physical(column)
        return None if field is None else self._leaves.get(field.name)

    @cached_property
    def _leaves(self) -> dict[str, int]:
        schema = self._parquet.schema
        paths = Counter(schema.column(at).path for at in range(len(schema.names)))
        # a.b may be a column of that name, and one in a struct: neither is told from the other
        return {path: at for at in range(len(schema.names)) if paths[path := schema.column(at).path] == 1}

    def read(
        self, columns: Sequence[str], group: int, positions: Positions | None = None, decoding: Decoding | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The live rows of a row group, as ``read_data_file`` gives them."""
        pages = None if positions is None else self._pages
        projection, rows = self._projection(tuple(columns)), self._starts[group : group + 2]
        opened = _Open(self._parquet, pages, projection, rows, decoding or Decoding())
        with naming_damage(self.file.path):
            yield from _read_group(opened, group, positions)

    def has_deleted(self, group: int) -> bool:
        """Return whether deletes may take rows of a row group."""
        deletions = self.deletions
        if deletions is None or deletions.is_by_value:
            return deletions is not None
        first, end = np.searchsorted(deletions.positions, self._starts[group : group + 2])
        return bool(first < end)

    @cached_property
    def _starts(self) -> Positions:
        """The first row of each row group, and the end."""
        return np.cumsum([0, *self.group_rows])

    def _projection(self, columns: tuple[str, ...]) -> Projection:
        if columns not in self._projections:
            physical = PhysicalFile(self.file, self._parquet.schema_arrow, self.deletions)
            self._projections[columns] = Projection(physical, columns)
        return self._projections[columns]

    @contextmanager
    def again(self) -> Iterator[OpenDataFile]:
        """The same file by a stream of its own, for another thread; deletes are not read again."""
        with open_data_file(self.file) as other:
            vars(other)["deletions"] = self.deletions
            yield other

    @cached_property
    def deletions(self) -> Deletions | None:
        """The deletes of the file, read when first asked for."""
        return deletions_of(self.file)


class OpenWholeFile(OpenDataFile):
    """A data file of a format that is read whole: it stands for one row group, and each read begins at its start."""

    def __init__(self, file: DataFileDescription, source: Any) -> None:
        """``source``: the open file, which the caller closes."""
        self.file = file
        self.source = source

    @property
    def group_rows(self) -> tuple[int, ...]:
        """All rows, deleted ones included."""
        return (self.file.records,)

    def bounds(self, column: str, group: int) -> None:
        """Nothing is known of a row group."""

    def read(
        self, columns: Sequence[str], group: int, positions: Positions | None = None, decoding: Decoding | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The live rows, as ``read_data_file`` gives them."""
        yield from read_data_file(self.file, columns, None, positions, decoding)


@contextmanager
def open_data_file(file: DataFileDescription) -> Iterator[OpenDataFile]:
    """Open ``file`` for reading."""
    with file.access.open(file.path).new_input(file.path).open() as source:
        yield OpenWholeFile(file, source) if is_read_whole(file) else OpenDataFile(file, source)


class FileReaders:
    """Readers of a data file, each with a stream of its own: ``opened`` for the caller, and one for each thread.

    What threads make of parts of the file comes in the order of the parts, and few of it is held at a time.
    """

    def __init__(self, opened: OpenDataFile, threads: int, closing: ExitStack) -> None:
        """``threads``: 1 for none besides the caller's. ``closing``: closes what is opened here."""
        self.opened = opened
        self._threads = threads
        self._closing = closing
        self._free: SimpleQueue[OpenDataFile] = SimpleQueue()

    def each(
        self, make: Callable[[OpenDataFile, Part], Made], parts: Sequence[Part], *, alone: bool = False
    ) -> Generator[Made, None, None]:
        """``make(reader, part)`` of each part, in their order; raises what it raises. ``alone``: by the caller itself.

        At most one part for each thread is being made, and one more waits for the caller, who closes the generator
        if it leaves parts: no thread reads afterwards.
        """
        if alone or self._threads < 2 or len(parts) < 2:
            for part in parts:
                yield make(self.opened, part)
            return
        begun: deque[Future[Made]] = deque()
        with ThreadPoolExecutor(min(self._threads, len(parts))) as pool:
            try:
                for part in parts:
                    if len(begun) > self._threads:
                        yield begun.popleft().result()
                    begun.append(pool.submit(self._make, make, part))
                while begun:
                    yield begun.popleft().result()
            finally:
                for future in begun:
                    future.cancel()

    def _make(self, make: Callable[[OpenDataFile, Part], Made], part: Part) -> Made:
        reader = self._take()
        try:
            return make(reader, part)
        finally:
            self._free.put(reader)

    def _take(self) -> OpenDataFile:
        try:
            return self._free.get_nowait()
        except Empty:
            return self._closing.enter_context(self.opened.again())


@contextmanager
def open_readers(file: DataFileDescription, threads: int) -> Iterator[FileReaders]:
    """Open ``file`` for a task that has so many threads for it."""
    with ExitStack() as closing, open_data_file(file) as opened:
        yield FileReaders(opened, threads, closing)


@dataclass(frozen=True)
class _Open:
    """A row group being read: its file, and its first row and end. ``pages``: for reading a few of its rows."""

    parquet: WholeFile
    pages: PageReader | None
    projection: Projection
    rows: Positions
    decoding: Decoding


def _has_plain_bounds(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column in ``kind`` keeps its bounds as canonical keys of type ``wanted`` are kept."""
    if pa.types.is_signed_integer(kind):
        return bool(pa.types.is_signed_integer(wanted))
    micros = pa.types.is_timestamp(kind) and kind.unit == "us"
    return kind == wanted and bool(micros or pa.types.is_date32(kind) or pa.types.is_string(kind))


def _read_group(file: _Open, group: int, positions: Positions | None) -> Iterator[pa.RecordBatch]:
    projection, decoding = file.projection, file.decoding
    start, end = (int(bound) for bound in file.rows)
    wanted = np.arange(start, end) if positions is None else positions[slice(*np.searchsorted(positions, [start, end]))]
    names = projection.physical_names
    if not names:
        for first in range(0, len(wanted), BATCH_ROWS):
            yield from live_rows(projection, None, wanted[first : first + BATCH_ROWS], group, decoding)
        return
    for page_rows in _by_pages(file, group, names, wanted - start):
        yield from live_rows(projection, page_rows, wanted[: page_rows.num_rows], group, decoding)
        wanted = wanted[page_rows.num_rows :]
    if not len(wanted):
        return
    # to the end, wherever the last of the rows is: only then it is known that no column lacks a page
    packed = projection.physical_texts(decoding.packed)
    for batch in file.parquet.batches(names, [group], BATCH_ROWS, decoding.batch_bytes, packed=packed):
        mine, wanted = np.split(wanted, np.searchsorted(wanted, [start + batch.num_rows]))
        if len(mine):
            chosen = batch if len(mine) == batch.num_rows else batch.take(pa.array(mine - start))
            yield from live_rows(projection, chosen, mine, group, decoding)
        start += batch.num_rows


def _by_pages(file: _Open, group: int, names: Sequence[str], rows: Positions) -> Iterator[pa.RecordBatch]:
    """The first of ``rows`` (counted in the row group), as many as pages give: all of them or, mostly, none."""
    pages = file.pages
    if pages is None or (len(rows) > BATCH_ROWS and not pages.spare(group, names, rows)):
        return
    for start in range(0, len(rows), BATCH_ROWS):
        packed = pages.read_packed(group, names, rows[start : start + BATCH_ROWS])
        if packed is None:
            return
        yield from unpacked(packed, file.decoding.batch_bytes)


@dataclass(frozen=True)
class _Common:
    """The common parts of descriptions of one table's files."""

    schema_json: str
    name_mapping_json: str | None
    access: FileAccess


def _describe(table: Table, files: FileSet, ordinal: int, common: _Common) -> DataFileDescription:
    file = files.facts(ordinal)
    return DataFileDescription(
        file_id=ordinal,
        path=file.path,
        size=file.size,
        records=file.records,
        schema_json=common.schema_json,
        file_format=file.format.value,
        constants=tuple(_constants(table, file)),
        name_mapping_json=common.name_mapping_json,
        spec_id=file.spec_id,
        partition=file.partition[: len(table.specs()[file.spec_id].fields)],
        access=common.access,
        first_row_id=file.first_row_id,
        data_sequence=file.data_sequence,
    )


def _with_deletes(file: DataFileDescription, files: FileSet) -> DataFileDescription:
    deletes = files.applying_deletes(file.file_id)
    described = tuple(describe_delete(delete, files.schema, file.access) for delete in deletes)
    return replace(file, deletes=described) if deletes else file


def describe_delete(delete: Delete, schema: Schema, access: FileAccess) -> DeleteDescription:
    """Describe a delete for tasks. Raises BadData (DELETES_UNSUPPORTED) for one that cannot be applied on reading."""
    file = delete.file
    is_equality = file.content == DataFileContent.EQUALITY_DELETES
    ids = tuple(file.equality_ids or ()) if is_equality else ()
    kinds = tuple(_comparable(schema, number, file.file_path) for number in ids)
    return DeleteDescription(
        path=file.file_path,
        content=int(file.content),
        file_format=file.file_format.value,
        equality_ids=ids,
        equality_kinds=kinds,
        is_own=delete.is_own,
        access=access,
        place=delete.place,
    )


def _comparable(schema: Schema, number: int, path: str) -> IcebergType:
    """The type of the column ``number``. Raises BadData (DELETES_UNSUPPORTED) for one whose values do not compare."""
    field = next((field for field in schema.fields if field.field_id == number), None)
    if field is None:
        shown = f"a column with field id {number}, which is not at the top of the schema any more"
    elif not isinstance(field.field_type, PrimitiveType) or isinstance(field.field_type, FloatType | DoubleType):
        shown = f"column {field.name!r} of type {field.field_type}"
    else:
        return field.field_type
    message = (
        f"the equality delete file {path} deletes by {shown}; set maintenance.resolveEqualityDeletes of the Table, or "
        "compact the table with another engine first."
    )
    raise BadData(Reason.DELETES_UNSUPPORTED, message)


def _constants(table: Table, file: DataFileFacts) -> Iterator[tuple[int, object]]:
    spec = table.specs()[file.spec_id]
    for position, field in enumerate(spec.fields):
        value = file.partition[position]
        if isinstance(field.transform, IdentityTransform) and value is not None:
            yield field.source_id, value
