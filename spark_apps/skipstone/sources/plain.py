"""Reads a small source of Csv, Json, or plain Parquet or Avro files into Arrow in this process, without a JVM for it.

Called by the load run and the merge run before they ask for a session. Takes only what means the same without
conversion; all else, damaged files included, is left to Spark, which then reads, and tells what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.merging.merges import BoundKey

from skipstone.kernels.computing.casts import FIRST_MOMENT, LAST_MOMENT
from skipstone.kernels.holding.packing import PackedRows
from skipstone.sources.avro.files import avro_batches, avro_columns
from skipstone.sources.columns import SourceColumn, source_columns, table_columns
from skipstone.sources.groups import CORRUPT, ColumnGroup, RawColumn, is_text
from skipstone.sources.listing import PathValues, SourceListing
from skipstone.sources.reading import ReadRules
from skipstone.sources.text.driver.reading import TextReading, text_reading
from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.options import no_options
from skipstone.sources.typed.files import is_without_rows, raw_columns, read_parquet_footer
from skipstone.sources.typed.filetypes import is_plain
from skipstone.sources.typed.folders import folder_columns, plain_value, without_values
from skipstone.sources.unused import values_known, values_read
from skipstone.storage.port import StoredFile
from skipstone.tables.arrow import cast_decimals
from skipstone.tables.parquetfiles import WholeFile, follows_old_calendar, read_metadata

#: Rows that are held at once where not all are needed: each may be long.
BATCH_ROWS = 4096
#: Rows that are decoded at once where all are needed.
WHOLE_ROWS = 128 * 1024
#: Records of Avro and Json are read one by one: from here on Spark's tasks are sooner done.
_RECORD_BYTES = 16 << 20
_UTC = ReadRules("UTC")
_LIMITS = {
    SourceFormat.PARQUET: sys.maxsize,
    SourceFormat.CSV: sys.maxsize,
    SourceFormat.JSON: _RECORD_BYTES,
    SourceFormat.AVRO: _RECORD_BYTES,
}
#: Gives the columns of these names of a file, in one table or in several.
_Reader = Callable[[WholeFile, list[str]], Iterable[pa.Table]]


@dataclass(frozen=True)
class PlainLimits:
    """Rows, and bytes of the unpacked columns, that this process reads and holds.

    ``decoded_bytes``: of values, each as often as it is repeated, that it reads in pieces; None: ``unpacked_bytes``.
    """

    rows: int
    unpacked_bytes: int
    decoded_bytes: int | None = None

    @property
    def most_decoded(self) -> int:
        """``decoded_bytes``, whatever it is."""
        return self.unpacked_bytes if self.decoded_bytes is None else self.decoded_bytes


class NotPlainError(Exception):
    """A file cannot be read here, or holds a value that does not fit: Spark must read the source."""


@dataclass(frozen=True, kw_only=True)
class PlainSource:
    """Files whose ``columns`` hold what the frame of ``read_source`` or ``read_table_rows`` would hold.

    ``absent``: further columns of the source, which no file has. ``groups``: the columns of each file. ``text``: how
    files of text are read.
    """

    files: tuple[StoredFile, ...]
    columns: tuple[SourceColumn, ...]
    limits: PlainLimits
    format: SourceFormat = SourceFormat.PARQUET
    absent: tuple[SourceColumn, ...] = ()
    groups: tuple[ColumnGroup, ...] = ()
    text: TextReading | None = None

    def values(self, listing: SourceListing, names: Sequence[str]) -> Mapping[str, int]:
        """Rows with a value by column, of those of ``names`` of which it is known. Raises NotPlainError."""
        if self.text is not None:
            return self._text_values(self.text, names)
        if self.format is SourceFormat.AVRO:
            return values_read(self.files, names)
        return values_known(listing, self.format, [name for name in names if not is_text(self.groups, name)])

    def rows(self, schema: pa.Schema, keys: Sequence[BoundKey] = ()) -> pa.Table:
        """The columns of ``schema``, in its types, long texts in dictionaries unless they are ``keys``.

        Raises NotPlainError when a file cannot be read, a value does not fit, or all are too much to hold.
        """
        held = PackedRows(schema, keys)
        for part in self._parts(schema, partial(_batches, rows=WHOLE_ROWS)):
            for batch in part.to_batches():
                held.add(batch)
            if held.nbytes > self.limits.unpacked_bytes:
                raise NotPlainError(f"the files hold more than {self.limits.unpacked_bytes} bytes unpacked")
        return held.table()

    def batches(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The same, some rows at a time. Raises NotPlainError, maybe after the first of them."""
        return self._parts(schema, _batches)

    def _text_values(self, text: TextReading, names: Sequence[str]) -> Mapping[str, int]:
        try:
            parts = [text.values(file, group, names) for file, group in zip(self.files, self.groups, strict=True)]
        except SparkNeeded as error:
            raise NotPlainError(str(error)) from error
        return {name: sum(part[name] for part in parts) for name in names}

    def _parts(self, schema: pa.Schema, read: _Reader) -> Iterator[pa.Table]:
        columns = {column.name: column for column in self.columns}
        wanted = [columns[name] for name in schema.names]
        rows = size = 0
        for file, group in zip(self.files, self.groups, strict=True):
            try:
                for part in self._read(file, group, schema, wanted, read):
                    rows, size = rows + part.num_rows, size + part.nbytes
                    if size > self.limits.most_decoded or rows > self.limits.rows:
                        # footers count a value that repeats once, and Avro files have none
                        raise NotPlainError(f"the files hold more than {size} bytes in {rows} rows")
                    yield part
            except (OSError, pa.ArrowException, SparkNeeded) as error:
                raise NotPlainError(str(error)) from error

    def _read(
        self, file: StoredFile, group: ColumnGroup, schema: pa.Schema, columns: Sequence[SourceColumn], read: _Reader
    ) -> Iterator[pa.Table]:
        if self.text is not None:
            return _read_text(self.text.parts(file, group, schema, self.columns), columns)
        is_avro = self.format is SourceFormat.AVRO
        return _read_avro(file, schema, columns) if is_avro else _read(file, group, schema, columns, read)


def find_plain(
    listing: SourceListing,
    source: SourceSpec,
    schema: Schema,
    limits: PlainLimits,
    rules: ReadRules = _UTC,
) -> PlainSource | None:
    """The files of ``listing`` under their own columns, if they are plain, have all columns and are within ``limits``.

    ``schema``: the table's. ``rules``: fields within columns are left to Spark. Raises BadSpec and BadData for columns
    that do not fit, as ``read_source`` does, and NotPlainError for text that is left to Spark.
    """
    named = rules.named

    def columns_of(groups: Sequence[ColumnGroup]) -> tuple[SourceColumn, ...]:
        if any(name not in group.columns for group in groups for name in named.fields):
            return ()
        return source_columns(source, schema, groups, named.needed)

    return _find(_Site(listing, source, schema, limits, rules.time_zone), columns_of, may_lack=named.needed is not None)


def find_plain_rows(
    listing: SourceListing, source: SourceSpec, schema: Schema, limits: PlainLimits, time_zone: str = "UTC"
) -> PlainSource | None:
    """The files of ``listing`` as columns of the table, if they are plain and within ``limits``.

    ``schema``: the table's. Raises as ``read_table_rows`` does, and NotPlainError for text that is left to Spark.
    """
    site = _Site(listing, source, schema, limits, time_zone)
    return _find(site, lambda groups: table_columns(source, schema, groups), may_lack=False)


@dataclass(frozen=True)
class _Site:
    """What is read, for a table of ``schema``."""

    listing: SourceListing
    source: SourceSpec
    schema: Schema
    limits: PlainLimits
    time_zone: str

    @property
    def is_small(self) -> bool:
        """Return whether there are files, of no more bytes than are read here."""
        if self.source.format not in _LIMITS or not self.listing.files:
            return False
        return self.listing.total_bytes <= min(self.limits.unpacked_bytes, _LIMITS[self.source.format])

    def text(self) -> TextReading | None:
        """How files of text are read. Raises as ``text_reading`` does, and BadSpec for options of other formats."""
        most = self.limits.unpacked_bytes
        reading = text_reading(self.listing, self.source, self.schema, self.time_zone, most)
        if reading is None:
            no_options(self.source)
        return reading


def _find(
    site: _Site, columns_of: Callable[[Sequence[ColumnGroup]], tuple[SourceColumn, ...]], *, may_lack: bool
) -> PlainSource | None:
    if not site.is_small:
        return None
    kind, limits = site.source.format, site.limits
    try:
        if kind is SourceFormat.JSON and may_lack:
            raise SparkNeeded(SparkOnly.PRESENT)
        text = site.text()
        values = site.listing.values
        read = [(file, text.columns(file) if text else _columns(file, kind, values)) for file in site.listing.stored]
        files = tuple(file for file, columns in read if columns is not None)
        groups = [ColumnGroup(columns=columns, example=file.name) for file, columns in read if columns is not None]
        wanted = columns_of(groups)
        absent = tuple(
            column for column in wanted if may_lack and not any(column.source in group.columns for group in groups)
        )
        columns = tuple(column for column in wanted if column not in absent)
        if not columns or not all(_feeds(group, column, may_lack=may_lack) for group in groups for column in columns):
            return None
        if text is not None:
            text.require_castable(columns)
    except SparkNeeded as error:
        raise NotPlainError(str(error)) from error
    if kind is SourceFormat.PARQUET and not _is_small_and_new(files, limits):
        return None
    return PlainSource(files=files, columns=columns, limits=limits, format=kind, absent=absent, groups=tuple(groups),
                       text=text)  # fmt: skip


def _columns(file: StoredFile, kind: SourceFormat, values: PathValues | None) -> Mapping[str, RawColumn] | None:
    """The columns by name; None for a file with neither columns nor rows, which has nothing to read.

    ``values``: further columns, of which each has one value in the file.
    """
    if kind is SourceFormat.AVRO:
        return avro_columns(file)
    footer = read_parquet_footer(file)
    if not footer and is_without_rows(file, kind):
        return None
    if values is None:
        return raw_columns(footer)
    footer = without_values(file.name, values, footer)
    return {**raw_columns(footer), **folder_columns(values, values.texts[file.name], of_one=True)}


def _feeds(group: ColumnGroup, column: SourceColumn, *, may_lack: bool) -> bool:
    raw = group.columns.get(column.source)
    if raw is None:
        return any(other.is_text and other.folder is None for other in group.columns.values()) and not may_lack
    if raw.folder is not None:
        is_read = not raw.is_escaped and plain_value(raw.folder.text, column.type) is not None
        return is_read and any(other.folder is None for other in group.columns.values())
    return raw.is_text or is_plain(raw.file_type, column.type) or (raw.is_null and column.type.is_primitive)


def _is_small_and_new(files: Sequence[StoredFile], limits: PlainLimits) -> bool:
    """Judges footers only; a file that is gone by now is Spark's to tell."""
    try:
        footers = [_footer(file) for file in files]
    except (OSError, pa.ArrowException):
        return False
    rows = sum(footer.num_rows for footer in footers)
    size = sum(footer.row_group(i).total_byte_size for footer in footers for i in range(footer.num_row_groups))
    return rows <= limits.rows and size <= limits.unpacked_bytes and not any(map(follows_old_calendar, footers))


def _footer(stored: StoredFile) -> pq.FileMetaData:
    with stored.open(buffering=0) as opened:
        return read_metadata(opened)


def _batches(file: WholeFile, names: list[str], rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    for batch in file.batches(names, rows=rows):
        yield pa.Table.from_batches([batch])


def _read(
    stored: StoredFile, group: ColumnGroup, schema: pa.Schema, columns: Sequence[SourceColumn], read: _Reader
) -> Iterator[pa.Table]:
    """``columns`` of a file as ``schema`` has them."""
    folders = {column.source: value for column in columns if (value := _folder_value(group, column)) is not None}
    sources = [column.source for column in columns if column.source not in folders]
    if not sources:  # then the file says how many rows it has
        sources = [name for name, raw in group.columns.items() if raw.folder is None][:1]
    with stored.open(buffering=0) as opened:
        file = WholeFile(opened, use_threads=True, coerce_int96_timestamp_unit="us")
        old = _old_timestamps(file)
        for part in read(file, list(dict.fromkeys(sources))):
            _require_known_years(part.select([name for name in part.column_names if name in old]))
            yield _fitting(_with_values(part, folders), schema, columns)


def _with_values(part: pa.Table, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """``part`` with further columns, which hold the same value in all rows."""
    columns = {name: part.column(name) for name in part.column_names}
    return pa.table({**columns, **{name: pa.repeat(value, part.num_rows) for name, value in values.items()}})


def _folder_value(group: ColumnGroup, column: SourceColumn) -> pa.Scalar | None:
    raw = group.columns[column.source]
    return plain_value(raw.folder.text, column.type) if raw.folder is not None else None


def _old_timestamps(file: WholeFile) -> frozenset[str]:
    """The columns that are INT96."""
    columns = map(file.schema.column, range(len(file.schema)))
    return frozenset(column.path for column in columns if column.physical_type == "INT96")


def _require_known_years(moments: pa.Table) -> None:
    """Raise pa.ArrowInvalid for a year that INT96 is not read of: Arrow makes other moments of the farthest."""
    for values in moments.columns:
        ends = pc.min_max(values.cast(pa.int64()))
        if ends["min"].is_valid and not FIRST_MOMENT <= ends["min"].as_py() <= ends["max"].as_py() <= LAST_MOMENT:
            raise pa.ArrowInvalid("a year is before 1 or after 9999")


def _read_text(parts: Iterator[pa.Table], columns: Sequence[SourceColumn]) -> Iterator[pa.Table]:
    for part in parts:
        _require_fitting(part, columns)
        yield part


def _read_avro(stored: StoredFile, schema: pa.Schema, columns: Sequence[SourceColumn]) -> Iterator[pa.Table]:
    for batch in avro_batches(stored):
        if batch.column(CORRUPT).null_count < batch.num_rows:
            raise NotPlainError("a value is outside of the range of its type")
        yield _fitting(pa.Table.from_batches([batch]), schema, columns)


def _fitting(part: pa.Table, schema: pa.Schema, columns: Sequence[SourceColumn]) -> pa.Table:
    """``columns`` of ``part`` as ``schema`` has them."""
    held = [_cast(part.column(column.source), field.type) for column, field in zip(columns, schema, strict=True)]
    fitted = pa.Table.from_arrays(held, schema=schema)
    fitted.validate(full=True)  # finds text that is not UTF-8
    _require_fitting(fitted, columns)
    return fitted


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if values.type == kind:  # full validation counts the digits of decimals, too
        return values
    is_number = pa.types.is_integer(values.type) or pa.types.is_decimal(values.type)
    return cast_decimals(values, kind) if is_number and pa.types.is_decimal(kind) else values.cast(kind)


def _require_fitting(rows: pa.Table, columns: Sequence[SourceColumn]) -> None:
    """Raise pa.ArrowInvalid for a null that the table does not take."""
    for values, column in zip(rows.columns, columns, strict=True):
        if column.required and values.null_count:
            raise pa.ArrowInvalid(f"column {column.name} holds null")
