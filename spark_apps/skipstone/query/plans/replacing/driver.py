"""Rows that the driver reads itself, in place of a relation or of some of its files.

Used by ``substitution``: few rows by their position, and rows that an index alone holds, cost less than the tasks that
would read whole files for them. Must not judge relations; what it does not take is staged.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from skipstone_core.errors import BadData
from skipstone_core.indexing import use
from skipstone_core.indexing.use import PAGE_ROWS, ReadCost, is_driver_faster, may_decode, part_in_pages

from skipstone.compat.catalyst import LOCAL_RELATION, LocalRelation, LogicalPlan, Relation
from skipstone.compat.catalyst import StructType as JavaStruct
from skipstone.compat.java import NONE, Jvm, scala_object
from skipstone.compat.methods import values_at
from skipstone.compat.outlines.compiling import few_rows
from skipstone.compat.pyspark import java_frame, java_session, jvm
from skipstone.indexes.asking.probes import Probe
from skipstone.indexes.asking.sampling import probable_rows
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.parallel import CORES
from skipstone.query.planner import ReadPlan
from skipstone.query.plans import cost
from skipstone.query.reading import BudgetSpent, ReadBudget, answered_rows, rows_of_files
from skipstone.tables.arrow import arrow_schema

logger = logging.getLogger("skipstone.query")

#: Where a relation says its columns.
_SCHEMA = ((LogicalPlan.schema, JavaStruct.json),)
#: Spark types whose values Arrow carries over unchanged.
_PLAIN = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    TimestampNTZType,
    TimestampType,
)
_NOT_STREAMING = False
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DriverColumns:
    """The columns that the driver may read: their ``names``, and ``schema``, that of the whole relation."""

    schema: StructType
    names: tuple[str, ...]

    @property
    def part(self) -> float:
        """The part of all columns that is read."""
        return len(self.names) / len(self.schema)


@dataclass(frozen=True)
class DriverRead:
    """Files that the driver reads: by position, and by the columns of the condition first where no index says which
    rows match (``scanned``). ``takes_answer``: whether it takes the plan's answer.
    """

    columns: DriverColumns
    ordinals: tuple[int, ...] = ()
    scanned: tuple[int, ...] = ()
    takes_answer: bool = False

    def __bool__(self) -> bool:
        """Return whether there is anything to read."""
        return bool(self.ordinals or self.scanned or self.takes_answer)

    def text(self) -> str:
        """For explain."""
        read = [f"{len(self.ordinals)} files by position"] if self.ordinals else []
        read += [f"{len(self.scanned)} files by the condition's columns first"] if self.scanned else []
        read += ["what the index holds"] if self.takes_answer else []
        return f"read by the driver: {', '.join(read)}"


@dataclass(frozen=True)
class DriverRows:
    """A read that was done, its rows, and the files of the plan that are still to be read."""

    read: DriverRead | None
    rows: pa.Table
    rest: tuple[int, ...]


def driver_columns(
    jvm: Jvm, java: Relation, relation_schema: Schema, used: frozenset[str] | None
) -> DriverColumns | None:
    """The columns that the driver would read of the relation ``java``; None when only Spark can, or there are none.

    ``used`` None: all.
    """
    (text,) = values_at(jvm, java, _SCHEMA)
    schema = StructType.fromJson(json.loads(text))
    known = {field.name for field in relation_schema.fields}
    if len({field.name for field in schema}) != len(schema) or any(field.name not in known for field in schema):
        return None
    read = [field for field in schema if used is None or field.name in used]
    if not read:  # Arrow's batches without columns have no rows
        return None
    if not all(_is_plain(field.dataType) for field in [*read, *(field for field in schema if not field.nullable)]):
        return None
    return DriverColumns(schema, tuple(field.name for field in read))


def _is_plain(kind: DataType) -> bool:
    return isinstance(kind, _PLAIN) or (isinstance(kind, StringType) and kind.isUTF8BinaryCollation())


@dataclass(frozen=True)
class DriverReadLimits:
    """``rows``: how many the driver reads of a relation at most. ``parallelism``: cores of all tasks.

    ``page_rows``: rows in a page of the relation's files. ``cores``: the driver's. ``most_bytes``: of a relation in its
    memory, None: as usual.
    """

    rows: int
    parallelism: int
    page_rows: int = PAGE_ROWS
    cores: int = CORES
    most_bytes: int | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows that the driver takes."""
        return use.DRIVER_BYTES if self.most_bytes is None else self.most_bytes

    @property
    def answer_bytes(self) -> int:
        """Bytes of an index that the driver decodes for an answer."""
        return min(cost.DRIVER_ANSWER_BYTES, self.row_bytes)


def driver_read(plan: ReadPlan, columns: DriverColumns, limits: DriverReadLimits) -> DriverRead | None:
    """Return the part of ``plan`` that the driver reads; None: nothing."""
    probe = plan.answer.probe if plan.answer is not None else None
    takes_answer = probe is not None and probe.cost.bytes <= limits.answer_bytes and _is_short(probe, limits.rows)
    counts = {ordinal: len(plan.positions[ordinal]) for ordinal in plan.ordinals if ordinal in plan.positions}
    scanned = _unindexed(plan, takes_answer=takes_answer)
    rows = sum(counts.values())
    by_position = _by_position(plan, columns, counts, limits.page_rows)
    scan = _scan(plan, columns, scanned)
    read = DriverRead(columns, takes_answer=takes_answer)
    if rows <= limits.rows and _is_cheap([by_position], limits):
        read = replace(read, ordinals=tuple(counts))
    others = plan.funnel.min_max - len(scanned)
    are_few = others > 0 and rows * len(scanned) <= (limits.rows - rows) * others
    least, most = _decoded(plan, columns, scanned, limits)
    if are_few and least <= most and _is_cheap([by_position, scan], limits):
        read = replace(read, scanned=scanned)
    return read or None


def driver_scan(plan: ReadPlan, columns: DriverColumns, limits: DriverReadLimits) -> DriverRead | None:
    """All files of ``plan``, of which no index tells anything, by the condition's columns first; None: not worth it."""
    is_known = plan.positions or plan.row_groups or plan.answer
    if is_known or not limits.rows or not plan.files.are_parquet[list(plan.ordinals)].all():
        return None
    rows = int(_of_files(plan, plan.ordinals)[1].sum())
    tested = {column.name for column in plan.predicate.columns} if plan.predicate else set()
    is_short = rows <= (cost.DRIVER_SCAN_VALUES // len(tested | {*columns.names}) if tested else limits.rows)
    is_cheap = is_short and _is_cheap([_scan(plan, columns, plan.ordinals)], limits)
    return DriverRead(columns, scanned=plan.ordinals) if is_cheap else None


def _is_short(probe: Probe, most: int) -> bool:
    """Return whether the driver goes through the entries of an answer.

    Tasks cannot read single pages of entries. Where pages leave out much, the driver reads more entries, unless a
    sample shows that they hold more rows than ``most``.
    """
    if probe.rows <= cost.DRIVER_ANSWER_ROWS:
        return True
    try:
        return probe.is_by_pages and probable_rows(probe) <= most
    except UnreadableIndexFile:  # whoever reads it next says so
        return False


#: What the driver would do, and what tasks would do instead.
_Choice = tuple[ReadCost, ReadCost]


def _is_cheap(choices: Sequence[_Choice], limits: DriverReadLimits) -> bool:
    here, there = (sum(costs, ReadCost()) for costs in zip(*choices, strict=True))
    return is_driver_faster(here, there, task_cores=limits.parallelism)


def _unindexed(plan: ReadPlan, *, takes_answer: bool) -> tuple[int, ...]:
    """Files that the driver can read of which no index says which rows match. Files of other formats are left to tasks,
    which read all that Iceberg does.
    """
    answered = set(plan.answer.ordinals.tolist()) if plan.answer is not None and takes_answer else set()
    known = (plan.row_groups.keys() - plan.filtered) | plan.positions.keys() | answered
    are_parquet = plan.files.are_parquet
    return tuple(ordinal for ordinal in plan.ordinals if ordinal not in known and are_parquet[ordinal])


def _by_position(plan: ReadPlan, columns: DriverColumns, counts: Mapping[int, int], page_rows: int) -> _Choice:
    sizes, records = _of_files(plan, tuple(counts))
    parts = [part_in_pages(rows, of, page_rows) for rows, of in zip(counts.values(), records.tolist(), strict=True)]
    decoded = np.where(plan.files.are_parquet[list(counts)], np.array(parts), 1.0) * sizes
    here, there = (ReadCost(len(counts), int(part.sum() * columns.part)) for part in (decoded, sizes))
    return here, there


def _scan(plan: ReadPlan, columns: DriverColumns, scanned: tuple[int, ...]) -> _Choice:
    size = int(_of_files(plan, scanned)[0].sum())
    tested = len(plan.predicate.columns) if plan.predicate else len(columns.schema)
    here = ReadCost(len(scanned), size * tested // len(columns.schema))
    return here, ReadCost(len(scanned), int(size * columns.part))


def _decoded(
    plan: ReadPlan, columns: DriverColumns, scanned: tuple[int, ...], limits: DriverReadLimits
) -> tuple[int, int]:
    """Bytes that the columns of the condition have in memory at least, and as how many the driver decodes at most."""
    schema, rows = arrow_schema(plan.files.schema), int(_of_files(plan, scanned)[1].sum())
    tested = {column.name for column in plan.predicate.columns} if plan.predicate else {*columns.names}
    widths = [_width(schema.field(name).type) for name in tested]
    least = rows * (cost.DRIVER_NOTED_BYTES + sum(width or 0 for width in widths))
    known = 0 if None in widths else least
    most = may_decode(known, driver_cores=limits.cores, task_cores=limits.parallelism, most=limits.most_bytes)
    return least, most


def _width(kind: pa.DataType) -> int | None:
    """Bytes of each value; None where they differ."""
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return None


def _of_files(plan: ReadPlan, ordinals: tuple[int, ...]) -> tuple[Int64s, Int64s]:
    sizes, records = (plan.files.files[name].to_numpy()[list(ordinals)] for name in ("size", "records"))
    return sizes, records


def read_rows(table: Table, plan: ReadPlan, chosen: DriverRead, limits: DriverReadLimits) -> DriverRows:
    """Read what was chosen; what turns out unreadable or too large is left to tasks."""
    names = chosen.columns.names
    batches, read = _by_positions(table, plan, replace(chosen, scanned=()), limits.row_bytes)
    left = limits.rows - sum(map(len, batches))
    try:
        _, most = _decoded(plan, chosen.columns, chosen.scanned, limits)
        scanned = [*rows_of_files(table, plan, names, chosen.scanned, ReadBudget(left, most))]
        batches, read = [*batches, *scanned], replace(read, scanned=chosen.scanned)
    except BudgetSpent:
        logger.debug("%d files have more rows than the driver takes", len(chosen.scanned))
    answered = (
        answered_rows(table, plan, names, ReadBudget(limits.rows, limits.row_bytes)) if chosen.takes_answer else None
    )
    if answered is None:
        read = replace(read, takes_answer=False)
    done = {
        *read.ordinals,
        *read.scanned,
        *(plan.answer.ordinals.tolist() if plan.answer and read.takes_answer else ()),
    }
    rest = tuple(ordinal for ordinal in plan.ordinals if ordinal not in done)
    schema = pa.schema([arrow_schema(plan.files.schema).field(name) for name in names])
    return DriverRows(read or None, pa.Table.from_batches([*batches, *(answered or [])], schema=schema), rest)


def _by_positions(
    table: Table, plan: ReadPlan, chosen: DriverRead, most_bytes: int
) -> tuple[list[pa.RecordBatch], DriverRead]:
    """The rows of the files that are read by position; none if one is for Spark alone, or they are too much."""
    budget = ReadBudget(sys.maxsize, most_bytes)  # how many rows there are is known
    try:
        return list(rows_of_files(table, plan, chosen.columns.names, chosen.ordinals, budget)), chosen
    except BadData as error:
        logger.debug("the driver cannot read files by position: %s", error)
    except BudgetSpent:
        logger.debug("the rows of %d files are more bytes than the driver takes", len(chosen.ordinals))
    return [], replace(chosen, ordinals=())


def to_spark(spark: SparkSession, columns: DriverColumns, rows: pa.Table) -> LocalRelation:
    """The rows as a local relation with all columns of the relation; those not read hold anything that they may.

    Raises ValueError when Spark makes something else of them.
    """
    nullable = StructType([StructField(field.name, field.dataType, nullable=True) for field in columns.schema])
    kinds = to_arrow_schema(nullable)
    arrays = [_column(rows, kind, field) for kind, field in zip(kinds, columns.schema, strict=True)]
    # in one piece: Spark takes an empty batch for the end of all rows
    table = pa.Table.from_arrays(arrays, schema=kinds).combine_chunks()
    if (local := _sent_at_once(spark, table, nullable)) is not None:
        return local
    local = cast(LocalRelation, java_frame(spark.createDataFrame(table, nullable)).queryExecution().analyzed())
    if local.getClass().getName() != LOCAL_RELATION.name or local.data().size() != table.num_rows:
        raise ValueError(f"Spark did not take {table.num_rows} rows into its plan")
    return local


def _sent_at_once(spark: SparkSession, table: pa.Table, schema: StructType) -> LocalRelation | None:
    """Rows as a local relation by one call to the JVM, where PySpark makes 30; None for more than few bytes."""
    if table.nbytes > cost.SENT_AT_ONCE_BYTES or (few := few_rows(jvm(spark), cost.ONE_TASK_ROWS)) is None:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        for batch in table.to_batches():
            if batch.num_rows:
                stream.write_batch(batch)
    return few.local(java_session(spark), sink.getvalue().to_pybytes(), schema.json(), table.num_rows)


def _column(rows: pa.Table, kind: pa.Field, field: StructField) -> pa.ChunkedArray:
    if kind.name not in rows.schema.names:
        count = rows.num_rows
        return pa.chunked_array([pa.nulls(count, kind.type) if field.nullable else pa.repeat(_any(kind.type), count)])
    column = rows.column(kind.name)
    if pa.types.is_fixed_size_binary(column.type) and pa.types.is_string(kind.type):
        texts = [None if value is None else str(UUID(bytes=value)) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, kind.type)])
    return column.cast(kind.type)


def _any(kind: pa.DataType) -> pa.Scalar:
    """A value of a plain type: generated code does not look whether it is there where it must be."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.scalar("").cast(kind)
    return pa.scalar(0, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.scalar(0).cast(kind)


def with_rows(jvm: Jvm, java: Relation, rows: LocalRelation) -> LogicalPlan:
    """Return the replacement of the relation ``java``: ``rows`` under its column ids."""
    local = scala_object(jvm, LOCAL_RELATION)
    return local.apply(java.output(), rows.data(), _NOT_STREAMING, scala_object(jvm, NONE))
