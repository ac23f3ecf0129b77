"""Reads Parquet and ORC files under the types that their footers tell.

Called by ``reading``, and by ``plain`` for footers. Footers are read on the driver, so that a column of a wrong type is
told before anything runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import Column, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import split_path
from skipstone_core.reasons import Reason

from skipstone.sources.groups import CORRUPT, RawColumn, RawGroup, quoted, with_url
from skipstone.sources.listing import SourceListing
from skipstone.sources.nested import Named, struct_types, unloaded, with_fields
from skipstone.sources.presence import complete
from skipstone.sources.text.files import spark_paths, spark_reader
from skipstone.sources.text.headers import unreadable
from skipstone.sources.typed.filetypes import INT96, FileType, file_type, orc_type
from skipstone.sources.typed.folders import ValueSource, folder_columns, value_source, with_values, without_values
from skipstone.storage.port import StoredFile
from skipstone.tables.parquetfiles import WholeFile


class FileColumn(NamedTuple):
    """A column of a file; ``type`` is None for one that is there and cannot be loaded.

    ``fields``: of a struct; None where the file does not say. ``is_empty``: it is known to hold no value.
    ``shown``: what people call its type.
    """

    name: str
    type: FileType | None
    fields: tuple[FileColumn, ...] | None = ()
    is_empty: bool = False
    shown: str = ""


FileColumns = tuple[FileColumn, ...]


def typed_groups(spark: SparkSession, listing: SourceListing, kind: SourceFormat, named: Named) -> list[RawGroup]:
    """One group per set of columns and types. ``named``: fields within columns that become columns, too.

    Values that are told beside the files are columns of text; a file whose folders do not say them is in a group with
    files of the same values.

    A file with neither columns nor rows, which some tools write for an empty table, is in no group.

    Raises BadData (SOURCE_UNREADABLE) for a file without a readable footer, BadSpec (COLUMN_TYPE_UNSUPPORTED) for an
    ORC file with instants, which Spark refuses as a whole, and as ``find_field`` does.
    """
    read = read_parquet_footer if kind is SourceFormat.PARQUET else read_orc_footer
    footers: dict[tuple[object, ...], _Files] = {}
    values = listing.values
    for file in listing.stored:
        footer = read(file)
        if not footer and is_without_rows(file, kind):
            continue
        source = None
        if values is not None:
            footer = without_values(file.name, values, footer)
            source = value_source(file.name, values.texts[file.name])
        key = (source, *map(repr, footer))
        footers.setdefault(key, _Files(kind, footer, [], source)).names.append(file.name)
    reader = spark_reader(spark, listing)
    return [_group(reader, listing, files, named) for files in footers.values()]


def is_without_rows(stored: StoredFile, kind: SourceFormat) -> bool:
    """Return whether a file of Parquet or ORC has no row."""
    with stored.open(buffering=0) as opened:
        return not (WholeFile(opened).metadata.num_rows if kind is SourceFormat.PARQUET else orc.ORCFile(opened).nrows)


class _Files(NamedTuple):
    """Files of one format with the same columns. ``source``: of values that are told beside them."""

    kind: SourceFormat
    footer: FileColumns
    names: list[str]
    source: ValueSource | None = None


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
        raise unreadable(name, f"this is not a readable Parquet file: {error}") from error
    columns = map(physical.column, range(len(physical)))
    old = frozenset(column.path for column in columns if column.physical_type == "INT96")
    reader = _FooterReader(lambda column, path: INT96 if path in old else file_type(column.type), empty, old)
    return _unique(name, [reader.column(column, ()) for column in schema])


def _empty_columns(file: WholeFile) -> frozenset[str]:
    """Paths of columns, and of fields within them, that hold no value as the statistics of every row group say."""
    paths = [file.schema.column(at).path for at in range(len(file.schema))]
    known = Counter(paths)
    return frozenset(path for at, path in enumerate(paths) if known[path] == 1 and _is_all_null(file.metadata, at))


def _is_all_null(footer: pq.FileMetaData, column: int) -> bool:
    chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
    return all(
        (statistics := chunk.statistics) is not None
        and statistics.has_null_count
        and statistics.null_count == chunk.num_values
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
        raise unreadable(name, f"this is not a readable ORC file: {error}") from error
    for column in schema:
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            raise BadSpec(
                Reason.COLUMN_TYPE_UNSUPPORTED,
                f"'{name}': column '{column.name}' is a timestamp with local time zone, which Spark does not read from "
                "ORC: write it as a timestamp in UTC, or use Parquet",
                field="source.paths",
            )
    _require_no_backtick(name, schema)
    reader = _FooterReader(lambda column, _: orc_type(column))
    return _unique(name, [reader.column(column, ()) for column in schema])


def _require_no_backtick(name: str, fields: Iterable[pa.Field]) -> None:
    """Raise BadSpec for a name with a backtick, at any depth: Spark reads null for it from ORC."""
    for column in fields:
        if "`" in column.name:
            raise BadSpec(
                Reason.COLUMN_TYPE_UNSUPPORTED,
                f"'{name}': the name {column.name!r} has a backtick, for which Spark reads null from ORC: rename it, "
                "or use Parquet",
                field="source.paths",
            )
        _require_no_backtick(name, (column.type.field(at) for at in range(column.type.num_fields)))


class _FooterReader(NamedTuple):
    """The facts of a footer by paths: types, and which columns and fields are ``empty``, or ``old`` timestamps (INT96).

    A column with old timestamps within is not loaded.
    """

    type_of: Callable[[pa.Field, str], FileType | None]
    empty: frozenset[str] = frozenset()
    old: frozenset[str] = frozenset()

    def column(self, column: pa.Field, above: tuple[str, ...]) -> FileColumn:
        """Return the column or field ``column`` with the fields in it."""
        parts = (*above, column.name)
        path = ".".join(parts)
        if pa.types.is_null(column.type):
            return FileColumn(column.name, None, fields=None, is_empty=True)
        inside = (
            [column.type.field(at) for at in range(column.type.num_fields)] if pa.types.is_struct(column.type) else ()
        )
        is_empty = path in self.empty and not pa.types.is_nested(column.type)
        holds_old = pa.types.is_nested(column.type) and any(name.startswith(f"{path}.") for name in self.old)
        kind = None if holds_old else self.type_of(column, path)
        return FileColumn(column.name, kind, tuple(self.column(f, parts) for f in inside), is_empty, str(column.type))


def _unique(name: str, columns: Sequence[FileColumn]) -> FileColumns:
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise unreadable(name, "two columns have one name: give each column its own name")
    return tuple(columns)


def _group(reader: DataFrameReader, listing: SourceListing, files: _Files, named: Named) -> RawGroup:
    fields = _fields(files.footer, named)
    typed = {name: column.type for name, column in fields.items() if column.type is not None}
    readable = {
        column.name: column.type
        for column in files.footer
        if column.type is not None and (not column.type.inside or column.name in named.nested)
    }
    types: dict[tuple[str, ...], str] = {(name,): reading.spark for name, reading in readable.items()}
    types |= {split_path(name): column.spark for name, column in typed.items()}
    columns_read = struct_types(types)
    if files.kind is SourceFormat.ORC:
        _require_names(files, columns_read)
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns_read.items())
    reader = reader.schema(ddl if ddl else StructType())
    paths = spark_paths(listing, files.names)
    frame = reader.parquet(*paths) if files.kind is SourceFormat.PARQUET else reader.orc(paths)
    frame = with_url(complete(frame, listing, len(files.names))).withColumn(CORRUPT, F.lit(None).cast("string"))
    beside: Mapping[str, RawColumn] = {}
    if files.source is not None and listing.values is not None:
        frame = with_values(frame, files.source, listing.storage.address())
        beside = folder_columns(listing.values, listing.values.texts[files.names[0]])
    columns = {
        name: RawColumn(quoted(name), column.type, is_field=True, is_empty=column.is_empty)
        for name, column in fields.items()
    }
    return RawGroup(
        frame=with_fields(frame, typed),
        columns={**raw_columns(files.footer, named.nested), **columns, **beside},
        record=_record([*readable, *typed, *beside]),
        example=files.names[0],
    )


def _require_names(files: _Files, read: Collection[str]) -> None:
    """Raise BadSpec for ORC without names of columns (of Hive) if one is not read: Spark goes by their places."""
    left = next((column for column in files.footer if column.name not in read), None)
    if left is not None and all(column.name.startswith("_col") for column in files.footer):
        raise BadSpec(
            Reason.COLUMN_TYPE_UNSUPPORTED,
            f"'{files.names[0]}': column '{left.name}' ({left.shown or 'without values'}) is not loaded, and Spark "
            "reads ORC whose names all begin with _col only as a whole: write the file without it, or with names "
            "of columns",
            field="source.paths",
        )


def _fields(footer: FileColumns, named: Named) -> dict[str, FileColumn]:
    """The fields within columns that are named."""
    fields = dict(named.found(footer))
    for name, column in fields.items():
        if (column.type is None and not column.is_empty) or (column.type is not None and column.type.inside):
            raise unloaded(name, named.fields[name])
    return fields


def _record(names: Iterable[str]) -> Column:
    columns = ", ".join(map(quoted, names))
    return F.to_json(F.expr(f"struct({columns})"), {"ignoreNullFields": "false"}) if columns else F.lit("{}")


def raw_columns(footer: FileColumns, nested: Collection[str] = ()) -> Mapping[str, RawColumn]:
    """The columns by name; lists, maps and structs are read if they are of the names ``nested``."""
    return {
        column.name: RawColumn(
            quoted(column.name),
            column.type if column.type is None or not column.type.inside or column.name in nested else None,
            is_empty=column.is_empty,
            shown=column.shown,
        )
        for column in footer
    }
