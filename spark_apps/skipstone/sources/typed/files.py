"""Reads Parquet and ORC files under the types that their footers tell.

Called by ``reading``, and by ``plain`` for footers. Footers are read on the driver, so that a column of a wrong type is
told before anything runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from skipstone_core.contract.requests import SourceFormat
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.sources.groups import CORRUPT, URL, RawColumn, RawGroup, quoted
from skipstone.sources.listing import SourceListing
from skipstone.sources.presence import complete
from skipstone.sources.text.files import spark_paths, spark_reader
from skipstone.sources.text.headers import unreadable
from skipstone.sources.typed.filetypes import FileType, file_type, orc_type
from skipstone.storage.port import StoredFile
from skipstone.tables.parquetfiles import WholeFile


class FileColumn(NamedTuple):
    """A column of a file; ``type`` is None for one that is there and cannot be loaded.

    ``is_empty``: it is known to hold no value.
    """

    name: str
    type: FileType | None
    is_empty: bool = False


FileColumns = tuple[FileColumn, ...]


def typed_groups(spark: SparkSession, listing: SourceListing, kind: SourceFormat) -> list[RawGroup]:
    """One group per set of columns and types.

    Raises BadData (SOURCE_UNREADABLE) for a file without a readable footer, BadSpec (COLUMN_TYPE_UNSUPPORTED) for an
    ORC file with instants, which Spark refuses as a whole.
    """
    read = read_parquet_footer if kind is SourceFormat.PARQUET else read_orc_footer
    footers: dict[tuple[tuple[str, str, bool], ...], tuple[FileColumns, list[str]]] = {}
    for file in listing.stored:
        footer = read(file)
        key = tuple((name, repr(found), is_empty) for name, found, is_empty in footer)
        footers.setdefault(key, (footer, []))[1].append(file.name)
    return [_group(spark, listing, kind, footer, files) for footer, files in footers.values()]


def read_parquet_footer(stored: StoredFile) -> FileColumns:
    """The columns of a Parquet file; INT96 timestamps are instants, as Spark writes them."""
    name = stored.name
    try:
        with stored.open(buffering=0) as opened:
            file = WholeFile(opened)
            schema, physical, empty = file.schema_arrow, file.schema, _empty_columns(file)
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except (OSError, pa.ArrowException) as error:
        raise unreadable(name, f"this is no readable Parquet file: {error}") from error
    old = {physical.column(i).path for i in range(len(physical)) if physical.column(i).physical_type == "INT96"}
    instant = file_type(pa.timestamp("us", tz="UTC"))
    return _unique(
        name,
        [
            FileColumn(one.name, instant if one.name in old else file_type(one.type), one.name in empty)
            for one in schema
        ],
    )


def _empty_columns(file: WholeFile) -> frozenset[str]:
    """Columns that hold no value, as their type or the statistics of every row group say."""
    paths = Counter(file.schema.column(at).path for at in range(len(file.schema)))
    plain = [at for at in range(len(file.schema)) if paths[file.schema.column(at).path] == 1]
    counted = {file.schema.column(at).path for at in plain if _is_all_null(file.metadata, at)}
    nested = {one.name for one in file.schema_arrow if pa.types.is_nested(one.type)}
    typed = {one.name for one in file.schema_arrow if pa.types.is_null(one.type)}
    return frozenset(typed | (counted & {one.name for one in file.schema_arrow} - nested))


def _is_all_null(footer: pq.FileMetaData, column: int) -> bool:
    chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
    return all(
        (told := chunk.statistics) is not None and told.has_null_count and told.null_count == chunk.num_values
        for chunk in chunks
    )


def read_orc_footer(stored: StoredFile) -> FileColumns:
    """The columns of an ORC file."""
    name = stored.name
    try:
        with stored.open(buffering=0) as opened:
            schema = orc.ORCFile(opened).schema
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise unreadable(name, f"this is no readable ORC file: {error}") from error
    for one in schema:
        if pa.types.is_timestamp(one.type) and one.type.tz is not None:
            raise BadSpec(
                Reason.COLUMN_TYPE_UNSUPPORTED,
                f"'{name}': column '{one.name}' is a timestamp with local time zone, which Spark does not read from "
                "ORC: write it as a timestamp in UTC, or use Parquet",
                field="source.paths",
            )
    return _unique(name, [FileColumn(one.name, orc_type(one)) for one in schema])


def _unique(name: str, columns: Sequence[FileColumn]) -> FileColumns:
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise unreadable(name, "two columns have one name: give each column its own name")
    return tuple(columns)


def _group(
    spark: SparkSession, listing: SourceListing, kind: SourceFormat, footer: FileColumns, files: Sequence[str]
) -> RawGroup:
    readable = {one.name: one.type for one in footer if one.type is not None}
    ddl = ", ".join(f"{quoted(name)} {found.spark}" for name, found in readable.items())
    reader = spark_reader(spark, listing).schema(ddl if ddl else StructType())
    paths = spark_paths(listing, files)
    frame = reader.parquet(*paths) if kind is SourceFormat.PARQUET else reader.orc(paths)
    return RawGroup(
        frame=complete(frame, listing, len(files)).withColumns(
            {CORRUPT: F.lit(None).cast("string"), URL: F.col("_metadata.file_path")}
        ),
        columns=raw_columns(footer),
        record=_record(readable),
        example=files[0],
    )


def _record(names: Iterable[str]) -> Column:
    columns = ", ".join(map(quoted, names))
    return F.to_json(F.expr(f"struct({columns})"), {"ignoreNullFields": "false"}) if columns else F.lit("{}")


def raw_columns(footer: FileColumns) -> Mapping[str, RawColumn]:
    """The columns by name."""
    return {one.name: RawColumn(quoted(one.name), one.type, is_empty=one.is_empty) for one in footer}
