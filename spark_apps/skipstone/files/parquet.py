"""One Parquet data file being written, and the statistics Iceberg wants of it.

Used by the writer and by ``splicing``. Must not know partitions, sort orders or commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    match_metrics_mode,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal
from skipstone_core.filter_sizes import FilterSize
from skipstone_core.stats import upper_bound
from skipstone_core.table_properties import METRICS_DEFAULT, METRICS_OF

from skipstone.compat.lineage.opaque import Opaque
from skipstone.files.bloom.sealing import seal_filters
from skipstone.files.footers import TAIL
from skipstone.files.opaque.annotations import ending, stored_types
from skipstone.tables.arrow import arrow_schema, field_id
from skipstone.tables.parquetfiles import WholeFile, seal_of, seal_of_pages
from skipstone.tables.shaping.dictionaries import dictionary_columns

#: Options of all data files.
FORMAT = {"store_decimal_as_integer": True, "write_page_index": True, "write_page_checksum": True}
#: Types whose bounds stay the numbers that the file holds: Python's dates and times do not reach all that other engines
#: hold, and a decimal may be stored in several ways.
_NUMBERS = (DateType, DecimalType, TimestampType, TimestamptzType)
#: Among the options of a file: the columns with bloom filters, each with the fields of a FilterSize.
FILTER_SIZES = "filter_sizes"


def open_writer(
    sink: Any, columns: pa.Schema, options: Mapping[str, Any], rows: pa.Table, group_rows: int
) -> pq.ParquetWriter:
    """A writer of row groups of about so many rows, of which ``rows`` are the first; they are not written here.

    ``options``: of ParquetWriter, with FILTER_SIZES. Arrow makes a filter smaller in the end when a row group has fewer
    distinct values.
    """
    given = {name: value for name, value in options.items() if name != FILTER_SIZES}
    given["use_dictionary"] = dictionary_columns(rows, allowed=given.get("use_dictionary", True))
    sizes = {name: FilterSize(**size) for name, size in options.get(FILTER_SIZES, {}).items() if name in columns.names}
    filters = {name: {"ndv": size.values(group_rows), "fpp": size.rate} for name, size in sizes.items()}
    return pq.ParquetWriter(sink, columns, **FORMAT, **given, bloom_filter_options=filters or None)


class NanCounter:
    """NaNs by field id, in columns at the top of the schema."""

    def __init__(self) -> None:
        self.found: Counter[int] = Counter()

    def count(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Count in ``rows``, whose fields have field ids."""
        for field in rows.schema:
            if pa.types.is_floating(field.type):
                self.found[field_id(field) or 0] += pc.sum(pc.is_nan(rows.column(field.name))).as_py() or 0

    def count_in(self, parquet: WholeFile, group: int, fields: Iterable[pa.Field]) -> None:
        """Count in a row group of a file, in those of ``fields`` that are floating."""
        names = [field.name for field in fields if pa.types.is_floating(field.type)]
        if names:
            for batch in parquet.batches(names, [group]):
                self.count(batch)


class SealedSink:
    """An output stream that puts a seal before the footer, as Arrow takes files of Python."""

    def __init__(self, sink: Any) -> None:
        """``sink``: an open file, which ``close`` closes."""
        self._sink = sink
        self._held: bytearray | None = None
        self._aborted = False

    @property
    def closed(self) -> bool:
        """Return whether it was closed."""
        return bool(self._sink.closed)

    def write(self, data: bytes) -> int:
        """Write, or hold back what may be the end."""
        if self._held is not None:
            self._held += data
        elif not self._aborted:
            self._sink.write(data)
        return len(data)

    def tell(self) -> int:
        """Bytes written, those held back among them."""
        return int(self._sink.tell()) + len(self._held or b"")

    def flush(self) -> None:
        """Nothing is flushed: a file counts when it is closed."""

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    def abort(self) -> None:
        """Close the sink; what Arrow still writes, as it does when it forgets a file, goes nowhere."""
        self._aborted, self._held = True, None
        self._sink.close()

    @contextmanager
    def end(self, change: Callable[[bytes, int], bytes] | None = None) -> Iterator[None]:
        """What is written inside ends with the footer. ``change``: makes of it, and of where it begins, what counts."""
        begin, self._held = self.tell(), bytearray()
        yield
        held, self._held = bytes(self._held), None
        held = held if change is None else change(held, begin)
        length, _ = TAIL.unpack(held[-TAIL.size :])
        start = len(held) - TAIL.size - length
        seals = seal_of_pages(held[:start]) + seal_of(held[start : -TAIL.size])
        self._sink.write(held[:start] + seals + held[start:])


class ParquetFile:
    """An open data file; rows go in as row groups."""

    def __init__(self, io: FileIO, path: str, schema: Schema, options: dict[str, Any]) -> None:
        """Create ``path``, which must not exist. ``options``: see ``open_writer``."""
        self.path = path
        self._schema = schema
        self._columns = arrow_schema(schema)
        self._options = options
        self._sink = SealedSink(io.new_output(path).create(overwrite=False))
        self._writer: pq.ParquetWriter | None = None
        self._nans = NanCounter()
        #: So many were written.
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def append(self, rows: pa.Table, group_rows: int) -> None:
        """Write ``rows`` as row groups of at most ``group_rows`` rows. The file has the columns of the first ones."""
        if self._writer is None:
            columns = pa.schema([field for field in self._columns if field.name in rows.column_names])
            self._writer = open_writer(self._sink, columns, self._options, rows, min(rows.num_rows, group_rows))
        self._writer.write_table(rows, row_group_size=group_rows)
        self.rows += rows.num_rows
        self._nans.count(rows)

    def close(self, properties: dict[str, str]) -> dict[str, Any]:
        """Finish the file; its statistics as DataFile arguments. ``properties`` hold the table's metrics modes."""
        writer = self._writer or open_writer(self._sink, self._columns, self._options, self._columns.empty_table(), 0)
        with self._sink.end(ending(self._schema, seal_filters if self._options.get(FILTER_SIZES) else None)):
            writer.close()
        self._sink.close()
        return statistics_of(writer.writer.metadata, self._schema, self._nans, properties)

    def abort(self) -> None:
        """End the file, so that nothing is sent later; who calls this deletes it."""
        self._sink.abort()


@dataclass(frozen=True)
class ForeignColumns:
    """Of a file of another writer: the field of each column by its path, and the fields that have less than usual.

    ``unbounded``: those whose bounds are not believed. ``silent``: those of which some row group has no statistics.
    """

    fields: Mapping[str, int]
    unbounded: Collection[int] = ()
    silent: Collection[int] = ()


def statistics_of(
    metadata: pq.FileMetaData,
    schema: Schema,
    nans: NanCounter,
    properties: dict[str, str],
    foreign: ForeignColumns | None = None,
) -> dict[str, Any]:
    """Arguments of a DataFile from a file's metadata. ``properties`` hold the table's metrics modes.

    ``foreign`` None: the file is ours, with the columns of ``schema``.
    """
    columns = foreign or _own_columns(metadata, schema)
    plan = _without_bounds(_statistics_plan(schema, properties), columns)
    return _statistics(metadata, plan, columns.fields, nans)


def _statistics_plan(schema: Schema, properties: dict[str, str]) -> dict[int, StatisticsCollector]:
    """PyIceberg's plan, with bounds of fields within structs, which Iceberg's Java library writes too.

    Not of floats: NaNs are counted in columns only, and bounds are trusted by their number.
    """
    plan = compute_statistics_plan(schema, properties)
    for name, field in _fields_of_structs(schema.fields, ()):
        root, *_ = name
        own = properties.get(METRICS_OF + ".".join(name))
        text = own or properties.get(METRICS_DEFAULT, TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT)
        if own is None and properties.get(METRICS_OF + root, "").strip().lower() == "none":
            continue
        mode = match_metrics_mode(text)
        if mode.type is MetricModeTypes.TRUNCATE and not isinstance(field.field_type, StringType | BinaryType):
            mode = MetricsMode(MetricModeTypes.FULL)
        plan[field.field_id] = replace(plan[field.field_id], mode=mode)
    return plan


def _fields_of_structs(
    fields: Iterable[NestedField], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    """Fields of simple types within structs, but for floats, with the names that lead to each."""
    for field in fields:
        here, kind = (*path, field.name), field.field_type
        if isinstance(kind, StructType):
            yield from _fields_of_structs(kind.fields, here)
        elif path and isinstance(kind, PrimitiveType) and not isinstance(kind, FloatType | DoubleType | Opaque):
            yield here, field


def _own_columns(metadata: pq.FileMetaData, schema: Schema) -> ForeignColumns:
    """The columns of a file of ours. Of the parts in which values of opaque types lie, only the size is told."""
    fields, opaque = parquet_path_to_id_mapping(schema), stored_types(schema)
    if not opaque:
        return ForeignColumns(fields)
    whole = {f"{path}.": number for path, number in fields.items() if number in opaque}
    paths = {metadata.schema.column(at).path for at in range(metadata.num_columns)} - fields.keys()
    parts = {path: number for path in paths for prefix, number in whole.items() if path.startswith(prefix)}
    return ForeignColumns({**fields, **parts}, silent=opaque.keys())


def _without_bounds(plan: Mapping[int, StatisticsCollector], columns: ForeignColumns) -> dict[int, StatisticsCollector]:
    changed = {number: _in_mode(plan[number], MetricModeTypes.COUNTS) for number in columns.unbounded if number in plan}
    changed |= {number: _in_mode(plan[number], MetricModeTypes.NONE) for number in columns.silent if number in plan}
    return {**plan, **changed}


def _in_mode(column: StatisticsCollector, most: MetricModeTypes) -> StatisticsCollector:
    """In a mode that tells no more than ``most``, which is COUNTS or NONE."""
    return column if column.mode.type == MetricModeTypes.NONE else replace(column, mode=MetricsMode(most))


def _statistics(
    metadata: pq.FileMetaData, plan: Mapping[int, StatisticsCollector], mapping: Mapping[str, int], nans: NanCounter
) -> dict[str, Any]:
    numbers = {
        number: collector
        for number, collector in plan.items()
        if isinstance(collector.iceberg_type, _NUMBERS) and _is_bound(collector)
    }
    unreadable = _columns_of_other_texts(metadata, mapping, plan)
    counted = {number: _in_mode(plan[number], MetricModeTypes.COUNTS) for number in (*numbers, *unreadable)}
    statistics = data_file_statistics_from_parquet_metadata(metadata, {**plan, **counted}, dict(mapping))
    for column in statistics.column_aggregates.values():
        _shorten(column)
    serialized = statistics.to_serialized_dict()
    for number, (least, most) in ranges_of(metadata, mapping, numbers).items():
        serialized["lower_bounds"][number] = _number_bytes(numbers[number].iceberg_type, least)
        serialized["upper_bounds"][number] = _number_bytes(numbers[number].iceberg_type, most)
    for untrusted in _columns_without_bounds(metadata, mapping):
        serialized["lower_bounds"].pop(untrusted, None)
        serialized["upper_bounds"].pop(untrusted, None)
    counted = serialized["value_counts"]
    serialized["nan_value_counts"] = {column: nans.found[column] for column in nans.found if column in counted}
    return serialized


def _number_bytes(kind: PrimitiveType, number: int) -> bytes:
    """A bound as manifests hold it."""
    return to_bytes(kind, unscaled_to_decimal(number, kind.scale) if isinstance(kind, DecimalType) else number)


def _is_bound(column: StatisticsCollector) -> bool:
    return column.mode.type not in (MetricModeTypes.NONE, MetricModeTypes.COUNTS)


def _columns_of_other_texts(
    metadata: pq.FileMetaData, mapping: Mapping[str, int], plan: Mapping[int, StatisticsCollector]
) -> set[int]:
    """String columns of which a bound is not UTF-8, as Spark lets them be: a bound of Iceberg is, so they get none."""
    texts = {
        number
        for number, collector in plan.items()
        if isinstance(collector.iceberg_type, StringType) and _is_bound(collector)
    }
    return {
        mapping[column.path_in_schema]
        for column in _chunks(metadata)
        if mapping[column.path_in_schema] in texts
        and column.is_stats_set
        and column.statistics.has_min_max
        and not (_is_utf8(column.statistics.min_raw) and _is_utf8(column.statistics.max_raw))
    }


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def ranges_of(
    metadata: pq.FileMetaData, mapping: Mapping[str, int], wanted: Container[int]
) -> dict[int, tuple[int, int]]:
    """The least and the greatest value of columns, as the numbers that the file holds; of decimals without the point.

    From the row groups that have bounds. ``mapping``: field id by the column's path.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for column in _chunks(metadata):
        number = mapping[column.path_in_schema]
        if number in wanted and column.is_stats_set and column.statistics.has_min_max:
            least, most = (_whole(bound) for bound in (column.statistics.min_raw, column.statistics.max_raw))
            low, high = ranges.get(number, (least, most))
            ranges[number] = min(low, least), max(high, most)
    return ranges


def _whole(raw: int | bytes) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw


def _chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in range(metadata.num_row_groups):
        for position in range(metadata.num_columns):
            yield metadata.row_group(group).column(position)


def _shorten(column: Any) -> None:
    """Cut the upper bound of texts and bytes to the length of the table's metrics mode, so that it stays one."""
    if isinstance(column.current_max, str | bytes) and isinstance(column.primitive_type, StringType | BinaryType):
        column.current_max = upper_bound(column.current_max, column.trunc_length)


def _columns_without_bounds(metadata: pq.FileMetaData, mapping: Mapping[str, int]) -> set[int]:
    """Columns of which a row group holds values but no bounds (long values have none): no bound of the file holds."""
    return {
        mapping[column.path_in_schema]
        for column in _chunks(metadata)
        if _holds_values(column) and not (column.is_stats_set and column.statistics.has_min_max)
    }


def _holds_values(column: pq.ColumnChunkMetaData) -> bool:
    if not column.is_stats_set or not column.statistics.has_null_count:
        return bool(column.num_values)
    return bool(column.num_values > column.statistics.null_count)
