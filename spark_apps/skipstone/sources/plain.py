"""Reads a small source of plain Parquet files into Arrow in this process, so that no JVM has to be started for it.

Called by the merge run before it asks for a session. Takes only what means the same without conversion; to all else,
damaged files included, the answer is None: Spark then reads, and tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from skipstone_core.contract.requests import SourceFormat, SourceSpec

from skipstone.sources.beneath import open_beneath
from skipstone.sources.columns import SourceColumn, source_columns
from skipstone.sources.groups import ColumnGroup
from skipstone.sources.listing import SourceListing
from skipstone.sources.text.options import no_options
from skipstone.sources.typed.files import raw_columns, read_parquet_footer
from skipstone.sources.typed.filetypes import is_plain

#: What Spark writes into files whose dates and times follow the calendar before its version 3.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
#: Since 1970, of the first and the last day that Python has, and of the ends of these days.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_WRITER_VERSION = b"org.apache.spark.version"


@dataclass(frozen=True)
class PlainLimits:
    """Rows, and bytes of the unpacked columns, that this process reads at once."""

    rows: int
    unpacked_bytes: int


@dataclass(frozen=True, kw_only=True)
class PlainSource:
    """Files whose ``columns`` hold what the frame of ``read_source`` would hold."""

    paths: Mapping[Path, str]
    columns: tuple[SourceColumn, ...]

    def rows(self, schema: pa.Schema) -> pa.Table | None:
        """The columns of ``schema``, in its types; None when a file cannot be read or a value does not fit."""
        try:
            return pa.concat_tables([_read(path, name, schema) for path, name in self.paths.items()])
        except (OSError, pa.ArrowException):
            return None


def find_plain(listing: SourceListing, source: SourceSpec, schema: Schema, limits: PlainLimits) -> PlainSource | None:
    """The files of ``listing``, if they are plain and within ``limits``. ``schema``: the table's.

    Raises BadSpec and BadData for columns that do not fit, as ``read_source`` does.
    """
    if source.format is not SourceFormat.PARQUET or not listing.files or listing.total_bytes > limits.unpacked_bytes:
        return None
    no_options(source)
    names = {Path(listing.root) / file.path: file.path for file in listing.files}
    footers = {path: read_parquet_footer(path, name) for path, name in names.items()}
    groups = [ColumnGroup(columns=raw_columns(footers[path]), example=name) for path, name in names.items()]
    columns = source_columns(source, schema, groups)
    if not all(is_plain(group.columns[one.source].file_type, one.type) for group in groups for one in columns):
        return None
    return PlainSource(paths=names, columns=columns) if _is_small_and_new(names, limits) else None


def _is_small_and_new(paths: Mapping[Path, str], limits: PlainLimits) -> bool:
    """Judges footers only; a file that is gone by now is Spark's to tell."""
    try:
        footers = [_footer(path, name) for path, name in paths.items()]
    except (OSError, pa.ArrowException):
        return False
    rows = sum(footer.num_rows for footer in footers)
    size = sum(footer.row_group(i).total_byte_size for footer in footers for i in range(footer.num_row_groups))
    return rows <= limits.rows and size <= limits.unpacked_bytes and not any(map(_follows_old_calendar, footers))


def _follows_old_calendar(footer: pq.FileMetaData) -> bool:
    told = footer.metadata or {}
    return any(name in told for name in _OLD_CALENDAR) or told.get(_WRITER_VERSION, b"3") < b"3"


def _footer(path: Path, name: str) -> pq.FileMetaData:
    with open_beneath(path, name) as opened:
        return pq.read_metadata(opened)


def _read(path: Path, name: str, schema: pa.Schema) -> pa.Table:
    with open_beneath(path, name) as opened, pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as file:
        found = file.read(columns=schema.names).select(schema.names).cast(schema)
    found.validate(full=True)  # finds text that is not UTF-8
    if any(_leaves_years(column) for column in found.columns):
        raise pa.ArrowInvalid("a year is before 1 or after 9999")
    return found


def _leaves_years(column: pa.ChunkedArray) -> bool:
    """Whether some date or timestamp is none that Python has."""
    kind = column.type
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return False
    first, last = _DAYS if pa.types.is_date32(kind) else _MICROSECONDS
    numbers = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(pa.int64())
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    return bool(pc.any(outside).as_py())
