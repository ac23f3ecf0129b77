"""Reads Avro files as Arrow batches: in this process, or in Spark's tasks, one file after another.

Called by ``reading`` and ``plain``: both get the same values. A task reads whole files: a part of one could begin at
bytes that only look like the end of a block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skipstone.files.avro.containers import BlockReader, Damaged
from skipstone.files.avro.records import avro_records
from skipstone.sources.avro.schemas import RecordSchema, layout_name, parse_schema
from skipstone.sources.avro.values import AvroType, Column, Value
from skipstone.sources.groups import CORRUPT, RawColumn, RawGroup, quoted
from skipstone.sources.listing import SourceListing
from skipstone.sources.nested import Named
from skipstone.sources.text.headers import unreadable
from skipstone.sources.text.wholefiles import whole_files
from skipstone.storage.port import StoredFile

#: Rows and bytes of records that become one batch.
_BATCH_ROWS, _BATCH_BYTES = 4096, 4 << 20
_HEADER_READ_AHEAD = 64 << 10
_NO = pa.scalar(value=False)
_Row = Mapping[str, Value]
_NONE = Named()


def avro_columns(stored: StoredFile, named: Named = _NONE) -> Mapping[str, RawColumn]:
    """The columns of a file by name, and the ``named`` fields within them. Raises BadData (SOURCE_UNREADABLE)."""
    with _readable(stored), stored.open(buffering=_HEADER_READ_AHEAD) as opened:
        schema = parse_schema(BlockReader(opened).schema).naming(named)
    return {
        column.name: RawColumn(
            quoted(column.name), column.type.file_type if column.type else None, is_field=column.is_field
        )
        for column in schema.columns
    }


def avro_batches(stored: StoredFile, named: Named = _NONE) -> Iterator[pa.RecordBatch]:
    """The columns of a file that can be loaded, ``named`` fields within them included, as Spark's tasks take them, then
    CORRUPT: rows with a value outside of the range of its type as text, else null.

    Raises BadData (SOURCE_UNREADABLE), maybe after the first batches.
    """
    with _readable(stored), stored.open() as opened:
        container = BlockReader(opened)
        schema = parse_schema(container.schema).naming(named)
        rows: list[_Row] = []
        size = 0
        for row, length in avro_records(schema.layout, container.blocks()):
            rows.append(row)
            size += length
            if len(rows) == _BATCH_ROWS or size > _BATCH_BYTES:
                yield _batch(schema, rows)
                rows, size = [], 0
        if rows:
            yield _batch(schema, rows)


@contextmanager
def _readable(stored: StoredFile) -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        raise unreadable(stored.name, f"this is not a readable Avro file: {error}") from error


def _batch(schema: RecordSchema, rows: Sequence[_Row]) -> pa.RecordBatch:
    arrays, names = [], []
    bad = pa.repeat(_NO, len(rows))
    for column in schema.columns:
        if column.type is not None:
            decoded = _column(column.name, column.type, [_value(row, column.path) for row in rows])
            bad = bad if decoded.bad is None else pc.or_(bad, decoded.bad.fill_null(_NO))
            arrays.append(decoded.values)
            names.append(column.name)
    texts = [_text(schema, row) if is_bad else None for row, is_bad in zip(rows, bad.to_pylist(), strict=True)]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(texts, pa.string())], [*names, CORRUPT])


def _value(row: _Row, path: Sequence[int]) -> Value:
    """What stands at ``path``; null within null."""
    node: object = row
    for position in path:
        if node is None:
            return None
        node = cast("Mapping[str, object]", node)[layout_name(position)]
    return cast("Value", node)


def _column(name: str, kind: AvroType, values: Sequence[Value]) -> Column:
    try:
        return kind.column(values)
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except (pa.ArrowException, OverflowError) as error:
        raise Damaged(f"column '{name}' holds what its type does not allow ({error})") from error


def _text(schema: RecordSchema, row: _Row) -> str:
    """A row that is kept for people."""
    shown = {column.name: _value(row, column.path) for column in schema.columns if column.type is not None}
    return json.dumps(shown, default=lambda value: value.decode(errors="replace"))


def avro_groups(spark: SparkSession, listing: SourceListing, named: Named) -> list[RawGroup]:
    """One group per set of columns and types, ``named`` fields included. Raises BadData (SOURCE_UNREADABLE)."""
    groups: dict[tuple[tuple[str, str], ...], tuple[Mapping[str, RawColumn], list[StoredFile]]] = {}
    for file in listing.stored:
        columns = avro_columns(file, named)
        key = tuple((name, _kind(column)) for name, column in columns.items())
        groups.setdefault(key, (columns, []))[1].append(file)
    return [_group(spark, listing, columns, files, named) for columns, files in groups.values()]


def _kind(column: RawColumn) -> str:
    return f"{column.file_type.spark} {column.file_type.natural}" if column.file_type else ""


def _group(
    spark: SparkSession,
    listing: SourceListing,
    columns: Mapping[str, RawColumn],
    files: Sequence[StoredFile],
    named: Named,
) -> RawGroup:
    loaded = {name: column.file_type for name, column in columns.items() if column.file_type}
    ddl = [f"{quoted(name)} {kind.spark}" for name, kind in loaded.items()]
    return RawGroup(
        frame=whole_files(spark, listing, files, partial(avro_batches, named=named), [*ddl, f"{CORRUPT} string"]),
        columns=columns,
        record=F.to_json(F.expr(f"struct({', '.join(map(quoted, loaded))})"), {"ignoreNullFields": "false"})
        if loaded
        else F.lit("{}"),
        corrupt="a decimal, time or timestamp is outside the range of its type",
        example=files[0].name,
    )
