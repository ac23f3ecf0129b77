"""Reads the files of a feed, one after the other: the same in the driver and in tasks.

Called by the merge run. A file is read whole by one reader: its rows are numbered. Must not know any tool: how a file
is read is its tool's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import StringType, TimestampType, TimestamptzType, TimeType
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.feeds import EqualRows, TimePrecision
from skipstone_core.contract.formats import ChangeFormat, SourceFormat
from skipstone_core.contract.requests import MergeTask, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.merging.clauses import BoundClause, MergeColumn
from skipstone_core.merging.evolution import refuse_own_names
from skipstone_core.merging.feeds import in_words, with_table_names
from skipstone_core.merging.generated import bind_generated
from skipstone_core.reasons import Reason

from skipstone.sources.feeds.batches import BatchMaker
from skipstone.sources.feeds.registry import tool_of
from skipstone.sources.feeds.shapes import (
    TABLE_COLUMN,
    FeedColumn,
    FeedTarget,
    TableChoice,
)
from skipstone.sources.feeds.values.columns import is_carried
from skipstone.sources.feeds.values.placeholders import octets_of
from skipstone.sources.listing import SourceListing
from skipstone.sources.text.headers import require_unpackable
from skipstone.sources.text.options import TextOptions, text_options
from skipstone.storage.port import StoredFile
from skipstone.tables.arrow import arrow_type_of

_CSV_OPTIONS = ("header", "delimiter", "quote", "encoding", "nullValue")


@dataclass(frozen=True)
class FeedFile:
    """A file and its number in the order of the feed."""

    stored: StoredFile
    number: int


def feed_target(task: MergeTask, schema: Schema) -> FeedTarget:
    """What the feed of ``task`` is read for: a table of ``schema``. Raises BadSpec for options that have no meaning."""
    source = task.source
    if source.change_format is None:
        raise BadSpec(Reason.INVALID_SPEC, "the source names no change format", field="spec.source.changeFormat")
    refuse_own_names((field.name for field in schema.fields), "spec.tableRef")
    keys = {key.target for key in task.keys}
    columns = tuple(
        FeedColumn(
            name=field.name,
            type=field.field_type,
            arrow=arrow_type_of(field.field_type),
            is_key=field.name in keys,
            read=is_carried(field.field_type),
            required=field.required,
        )
        for field in schema.fields
    )
    _require_rows(source, columns)
    options, values = _options(task), tool_of(source.change_format).values
    return FeedTarget(
        tool=source.change_format,
        values=values,
        format=source.format,
        columns=columns,
        time_zone=task.time_zone,
        unit=source.time_precision,
        allow_truncate=bool(source.allow_truncate),
        identity_declared=bool(source.replica_identity),
        column_units=_column_units(source, columns),
        unavailable_value=_unavailable_value(source),
        non_finite=source.non_finite,
        infinity=source.infinity,
        tables=TableChoice(source.tables or ()),
        generated=_generated(task, columns),
        null_text=source.options.get("nullValue", values.null_text),
        delimiter=options.delimiter,
        quote=options.quote,
        encoding=options.encoding,
        rejects=task.bad_records is not None and task.bad_records.policy is not BadRecordPolicy.FAIL,
    )


def require_generated(task: MergeTask, target: FeedTarget) -> None:
    """Raise BadSpec for generated columns of ``task`` that the table does not have after all that the feed adds."""
    if target.generated is None:
        bind_generated(task, _merge_columns(target.columns), ZoneInfo(task.time_zone))


def _generated(task: MergeTask, columns: Sequence[FeedColumn]) -> BoundClause | None:
    """What computes generated columns; None where the feed may yet add some that it takes."""
    try:
        return bind_generated(task, _merge_columns(columns), ZoneInfo(task.time_zone))
    except BadSpec:
        if task.source.unknown_columns is UnknownColumns.ADD:
            return None
        raise


def _merge_columns(columns: Sequence[FeedColumn]) -> list[MergeColumn]:
    """Those that feeds can carry, as the rules of merges take them."""
    return [MergeColumn(name=column.name, type=str(column.type)) for column in columns if column.read]


def _options(task: MergeTask) -> TextOptions:
    source = task.source
    for name in source.options:
        if source.format is not SourceFormat.CSV or name not in _CSV_OPTIONS:
            message = f"has no meaning for a feed of {source.change_format} in {source.format}: remove it"
            raise BadSpec(Reason.INVALID_SPEC, message, field=f"spec.source.options.{name}")
    if source.options.get("header", "true").lower() != "true":
        message = f"must be true for a feed of {source.change_format}: files without a header lose deletes"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.source.options.header")
    return text_options(source) if source.format is SourceFormat.CSV else TextOptions()


def _require_rows(source: SourceSpec, columns: Sequence[FeedColumn]) -> None:
    """Raise BadSpec when rows that are equal would become one and the spec does not say that they may."""
    if source.equal_rows is EqualRows.COLLAPSE or not all(column.is_key for column in columns if column.read):
        return
    raise BadSpec(
        Reason.INVALID_SPEC,
        "they are all columns of the table, so that equal rows of a source table without a primary key become one, and "
        "a delete of one of them removes it: name the source table's primary key, or, if it is all columns or equal "
        "rows may become one, set source.equalRows to Collapse",
        field="spec.keys",
    )


def _column_units(source: SourceSpec, columns: Sequence[FeedColumn]) -> dict[str, TimePrecision]:
    """The units of single columns. Raises BadSpec for a column that the table does not have or that has no times."""
    types = {column.name: column.type for column in columns}
    for unit in source.column_time_precisions or ():
        if not isinstance(types.get(unit.column), TimeType | TimestampType | TimestamptzType | StringType):
            raise BadSpec(
                Reason.INVALID_SPEC,
                f"'{unit.column}' is not a column of the table of type time, timestamp, timestamptz or string: name "
                "only such columns",
                field="spec.source.columnTimePrecisions",
            )
    return {unit.column: unit.precision for unit in source.column_time_precisions or ()}


def _unavailable_value(source: SourceSpec) -> bytes | None:
    try:
        return None if source.unavailable_value is None else octets_of(source.unavailable_value)
    except ValueError as error:
        raise BadSpec(
            Reason.INVALID_SPEC,
            "it must be text or, as Debezium's unavailable.value.placeholder, hex: and at least one octet in "
            "hexadecimal digits",
            field="spec.source.unavailableValue",
        ) from error


def feed_files(listing: SourceListing, tool: ChangeFormat) -> tuple[FeedFile, ...]:
    """The files in the order of the feed: that of their paths, if ``tool`` has no order of its own.

    Raises BadData for one packed in a way not read.
    """
    for file in listing.files:
        require_unpackable(file.path)
    stored, order = listing.stored, tool_of(tool).order
    if order is not None:
        stored = tuple(sorted(stored, key=lambda stored_file: order.place(stored_file.name)))
    return tuple(FeedFile(stored_file, number) for number, stored_file in enumerate(stored))


def feed_batches(file: FeedFile, target: FeedTarget) -> Iterator[pa.RecordBatch]:
    """The changes of ``file`` under ``batch_schema``, in its order.

    Raises BadData naming file and line of a message that cannot be used, and both tables of a file with two.
    """
    maker = BatchMaker(target, file.stored.name, file.number)
    tables: set[str] = set()
    for batch in _explained(tool_of(target.tool).batches(file.stored, maker), target):
        tables |= set(pc.unique(batch.column(TABLE_COLUMN)).to_pylist()) - {None}
        require_one_table(tables)
        yield batch


def _explained(batches: Iterator[pa.RecordBatch], target: FeedTarget) -> Iterator[pa.RecordBatch]:
    """``batches``; a message that cannot be used and that may not be left out says why not."""
    try:
        yield from batches
    except BadData as error:
        if not target.rejects or error.reason is not Reason.BAD_RECORDS:
            raise
        message = str(error).removeprefix(f"{error.field}: ")
        why = "badRecords leaves out only changes whose row and whose place in the feed are known"
        raise BadData(error.reason, f"{message} ({why})", field=error.field) from error


def require_one_table(tables: Iterable[str]) -> None:
    """Raise BadData when changes are of several tables."""
    names = sorted(set(tables))
    if len(names) > 1:
        raise BadData(
            Reason.BAD_RECORDS,
            f"the feed has changes of '{names[0]}' and of '{names[1]}', which are not one table: name only files of "
            "one table in source.paths; if both are partitions of one table in PostgreSQL, set "
            "publish.via.partition.root of Debezium's connector to true, and merge a new snapshot; of "
            f"{in_words([tool.feed.title for tool in with_table_names()])}, name the table, or all partitions of one, "
            "in source.tables",
            field="spec.source",
        )
