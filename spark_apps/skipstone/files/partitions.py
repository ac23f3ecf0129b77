"""Transforms of whole batches: partition values, the rows and folders of partitions, and what rows are sorted by.

Used by the writer, and to sort more rows than memory holds. The transforms are vectorised ones of PyIceberg. Must not
write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import BucketTransform, HourTransform, Transform, VoidTransform
from pyiceberg.typedef import Record
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.compat.pyiceberg import partition_path, transformed_values

PartitionTuple = tuple[Any, ...]
#: Longest name of a partition's folder; values are percent-encoded in it, so bytes are characters.
MAX_FOLDER = 200
_HOUR_MICROSECONDS = 3_600_000_000
#: Microseconds of the first and the last moment whose hour is an int, as Iceberg numbers hours.
_HOURS = (-(2**31) * _HOUR_MICROSECONDS, 2**31 * _HOUR_MICROSECONDS - 1)


def split_by_partition(
    table: pa.Table, spec: PartitionSpec, schema: Schema
) -> Iterator[tuple[PartitionTuple, pa.Table]]:
    """Each partition of ``table`` (columns in the order of ``schema``) with its rows, in their order.

    Raises BadData (BAD_RECORDS) for a row that no partition can hold.
    """
    if spec.is_unpartitioned() or table.num_rows == 0:
        if table.num_rows:
            yield tuple(None for _ in spec.fields), table
        return
    columns = partition_columns(table, spec, schema)
    codes = _row_codes(columns)
    if codes is None:
        yield _values(columns, 0, spec), table
        return
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sorted_rows = table.take(pa.array(order))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        first = int(order[start])
        yield _values(columns, first, spec), sorted_rows.slice(start, stop - start)


def partition_columns(table: pa.Table, spec: PartitionSpec, schema: Schema) -> list[pa.Array]:
    """One array per partition field: the transform of its source column."""
    return [_partition_column(table, field, schema) for field in spec.fields]


def partition_folders(spec: PartitionSpec, schema: Schema, partition: PartitionTuple) -> str:
    """The folders of a partition's files as Iceberg names them, cut to what file systems take."""
    return "/".join(_short(folder) for folder in partition_path(spec, Record(*partition), schema).split("/"))


def _short(folder: str) -> str:
    if len(folder) <= MAX_FOLDER:
        return folder
    return f"{folder[: MAX_FOLDER - 17]}-{hashlib.sha256(folder.encode()).hexdigest()[:16]}"


def source_column(table: pa.Table, schema: Schema, field_id: int) -> pa.Array:
    """The column of a possibly nested field; null where a parent is null."""
    accessor = schema.accessor_for_field(field_id)
    column = _one_array(table.column(accessor.position))
    while accessor.inner is not None:
        accessor = accessor.inner
        column = pc.struct_field(column, [accessor.position])
    return column


def transformed(table: pa.Table, source_id: int, transform: Transform[Any, Any], schema: Schema) -> pa.Array:
    """The transform of a column. Raises NotUtf8 where that is of texts as such."""
    column = source_column(table, schema, source_id)
    if pa.types.is_string(column.type) and not isinstance(transform, BucketTransform | VoidTransform):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:  # what PyIceberg truncates by ends the process
            raise NotUtf8 from error
    return _one_array(transformed_values(transform, schema.find_field(source_id).field_type, column))


class NotUtf8(ValueError):
    """A text is not UTF-8, as Spark lets columns hold them."""


def _partition_column(table: pa.Table, field: PartitionField, schema: Schema) -> pa.Array:
    if isinstance(field.transform, HourTransform):
        _require_hours(source_column(table, schema, field.source_id), field)
    try:
        return transformed(table, field.source_id, field.transform, schema)
    except NotUtf8 as error:
        message = (
            f"a row has no partition: its '{field.name}' ({field.transform}) is of a text that is not UTF-8: fix the "
            "row, or partition by something else"
        )
        raise BadData(Reason.BAD_RECORDS, message, field="spec.source") from error


def _require_hours(moments: pa.Array, field: PartitionField) -> None:
    """Raise BadData for a moment whose hour is not an int: as one, it would be the hour of another time."""
    ends = pc.min_max(moments.cast(pa.int64()))
    if ends["min"].is_valid and not _HOURS[0] <= ends["min"].as_py() <= ends["max"].as_py() <= _HOURS[1]:
        message = (
            f"a row has no partition: its '{field.name}' ({field.transform}) is of a time more than 244,000 years from "
            "1970, whose hour Iceberg has no number for: fix the row, or partition by something else"
        )
        raise BadData(Reason.BAD_RECORDS, message, field="spec.source")


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _row_codes(columns: list[pa.Array]) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """One number per row, equal where all columns are equal (null equals null, NaN equals NaN); None: all are."""
    codes = None
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        count = len(encoded.dictionary)
        if count > 1:
            indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            codes = indices if codes is None else _dense(codes * count + indices)
    return codes


def _dense(codes: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Other numbers for the same rows, from zero without gaps: so that products never overflow."""
    dense: np.ndarray[Any, np.dtype[np.int64]] = pc.dictionary_encode(pa.array(codes)).indices.to_numpy()
    return dense.astype(np.int64)


def _values(columns: Sequence[pa.Array], row: int, spec: PartitionSpec) -> PartitionTuple:
    """The partition of a row."""
    values = tuple(_internal(column, row) for column in columns)
    for value, column, field in zip(values, columns, spec.fields, strict=True):
        if isinstance(value, Decimal) and len(value.as_tuple().digits) > column.type.precision:
            message = (
                f"a row has no partition: its '{field.name}' ({field.transform}) is {value}, which is beyond "
                f"decimal({column.type.precision}, {column.type.scale}): fix the row, or partition by something else"
            )
            raise BadData(Reason.BAD_RECORDS, message, field="spec.source")
    return values


def _internal(column: pa.Array, row: int) -> Any:
    """One value as Iceberg keeps partition values: dates in days, times and timestamps in microseconds."""
    value = column.slice(row, 1)
    if pa.types.is_date32(value.type):
        value = value.cast(pa.int32())
    elif pa.types.is_timestamp(value.type) or pa.types.is_time64(value.type):
        value = value.cast(pa.int64())
    return value[0].as_py()


@dataclass(frozen=True)
class SortKeys:
    """The keys of a sort: a column and a direction each."""

    table: pa.Table
    directions: tuple[str, ...]

    @classmethod
    def of(cls, rows: pa.Table, order: SortOrder, schema: Schema) -> SortKeys:
        """Keys of ``rows`` in ``order``, which has fields."""
        keys = list(_sort_keys(rows, order, schema))
        names = [str(position) for position in range(len(keys))]
        return cls(pa.table([key for key, _ in keys], names=names), tuple(direction for _, direction in keys))

    @classmethod
    def joined(cls, parts: Sequence[SortKeys]) -> SortKeys:
        """The keys of all parts, one after the other."""
        return cls(pa.concat_tables([part.table for part in parts]), parts[0].directions)

    def __len__(self) -> int:
        """How many rows."""
        return int(self.table.num_rows)

    def order(self) -> pa.Array:
        """The places of the rows in order; equal ones stay as they are."""
        keys = list(zip(self.table.column_names, self.directions, strict=True))
        return pc.sort_indices(self.table, sort_keys=keys)

    def at(self, places: npt.NDArray[np.int64] | pa.Array) -> SortKeys:
        """The keys at ``places``."""
        return SortKeys(self.table.take(pa.array(places)), self.directions)


def _sort_keys(rows: pa.Table, order: SortOrder, schema: Schema) -> Iterator[tuple[pa.Array, str]]:
    """Per sort field: whether it is null (nulls first or last on their own), then its transformed value."""
    for sort_field in order.fields:
        try:
            column = transformed(rows, sort_field.source_id, sort_field.transform, schema)
        except NotUtf8:  # texts are ordered as their beginnings are
            column = source_column(rows, schema, sort_field.source_id)
        yield pc.is_null(column), "descending" if sort_field.null_order == NullOrder.NULLS_FIRST else "ascending"
        yield column, "descending" if sort_field.direction == SortDirection.DESC else "ascending"
