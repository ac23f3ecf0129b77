"""First half of a merge of a change feed: its files become slices with one row a key, as ``source`` makes of others.

Called by the merge run: in this process for a small feed, else in Spark. Both read files and resolve changes by the
same functions; Spark only brings all changes of a key together in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, UUIDType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.merging.evolution import refuse_names
from skipstone_core.merging.feeds import (
    MISSING_COLUMN,
    NO_ROW,
    OP_COLUMN,
    TRUNCATE,
    UPSERT,
    control_columns,
    feed_plan,
    feed_task,
    truncated,
)
from skipstone_core.merging.holds import HeldRow
from skipstone_core.merging.merges import KEPT_COLUMN, MergeColumn, plan_merge
from skipstone_core.merging.unused import MAX_UNUSED, unknown_columns, void_feed

from skipstone.kernels.changes import ChangeSlice, SortRule
from skipstone.kernels.holding.packing import PackedRows
from skipstone.kernels.partial import unpack_bits
from skipstone.runs.merging.leavingout import RejectedChanges, require_allowed
from skipstone.runs.merging.memories.sightings import Sightings, judge_feed, sight
from skipstone.runs.merging.slices.scratch import Scratch
from skipstone.runs.merging.slices.slicing import ANSWER, BoundedRows, bounded, slices_of
from skipstone.runs.merging.source import (
    Changes,
    Leaves,
    SourceSite,
    attempt_id,
    selective_first,
    target_schema,
    time_zone,
    written_down,
)
from skipstone.sources.arrow import table_batch
from skipstone.sources.feeds.batches import batch_schema
from skipstone.sources.feeds.files import (
    FeedFile,
    feed_batches,
    feed_files,
    feed_target,
    require_generated,
    require_one_table,
)
from skipstone.sources.feeds.registry import tool_of
from skipstone.sources.feeds.rejecting.records import keep_records
from skipstone.sources.feeds.rejecting.sifting import Holding, KeyMove, spread_stops
from skipstone.sources.feeds.resolving import Resolution, Truncation, find_truncation, resolve
from skipstone.sources.feeds.shapes import (
    FAULT_COLUMN,
    LOG_COLUMN,
    ORDER_COLUMN,
    ORIGIN_COLUMN,
    TABLE_COLUMN,
    FeedTarget,
)
from skipstone.sources.feeds.unknown import UNKNOWN_COLUMN, UnknownColumn, merged_tallies, tally
from skipstone.sources.feeds.values.defaults import DEFAULTED_COLUMN, Defaults, merged_defaults, tally_defaults
from skipstone.sources.groups import quoted
from skipstone.sources.rejects import RejectPart
from skipstone.sources.typed.filetypes import spark_type
from skipstone.tables.filesets import FileSet
from skipstone.tables.records.heldrows import HeldTable
from skipstone.tables.shaping.evolution import plan_columns, with_fields
from skipstone.tasks.failures import carrying, caught, storing
from skipstone.tasks.mapping import map_batches

#: Messages are read one by one: from here on Spark's tasks are sooner done.
HERE_BYTES = 16 << 20
#: Source bytes that one task reads when there are more than cores.
_TASK_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class FeedSlice:
    """The result of one task for its keys: ``slice`` is None when no change is left. ``tables``: that changes were of.

    ``writes``: whether it has inserts or updates; ``present``: the columns of the table that some of them have;
    ``unknown``: what they have beside these. ``of_no_row``: messages that tell of no row.
    ``defaults``: what they have in nullable columns with a default. ``seen``: the columns that writes have and lack.
    ``left_out``: changes that are in no slice; ``links``: messages that change keys.
    """

    slice: ChangeSlice | None
    tables: frozenset[str]
    writes: bool
    present: frozenset[str]
    unknown: Mapping[str, UnknownColumn]
    of_no_row: int
    defaults: Defaults
    seen: Sightings
    left_out: RejectedChanges = field(default_factory=RejectedChanges)
    links: tuple[KeyMove, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Feed:
    """A feed on its way: what it is read for, its files and its plan. ``holding``: None where no change is left out."""

    target: FeedTarget
    files: tuple[FeedFile, ...]
    planned: Changes
    truncation: Truncation | None = None
    holding: Holding | None = None

    @property
    def schema(self) -> pa.Schema:
        """Of its batches."""
        return batch_schema(self.target)

    @property
    def resolution(self) -> Resolution:
        columns = tuple(column.name for column in self.target.carried)
        keys, truncation = self.planned.plan.keys, self.truncation
        return Resolution(keys=keys, columns=columns, truncation=truncation, holding=self.holding)


def read_feed_here(site: SourceSite, table: Table, files: FileSet) -> Changes | None:
    """Read, check and write down the feed in this process; None when it is not small. Raises as ``read_feed``."""
    held = _held(site, table)
    feed = _planned(site, files, held)
    if site.listing.total_bytes > min(HERE_BYTES, site.share.source_bytes):
        return None
    changes = _changes_here(site, feed)
    if changes is None:
        return None
    if added := _added(site, table, tally(changes.column(UNKNOWN_COLUMN))):
        feed = _planned(site, files, held, added)
        changes = _changes_here(site, feed)
        if changes is None:
            return None
    rows = changes

    def sliced(feed: _Feed) -> Sequence[object]:
        with storing(site.scratch.where):
            return [_slice(rows, feed.resolution, site.scratch.keep)]

    return _settled(site, _with_truncation(feed, site, files, find_truncation(changes)), table, sliced)


def _changes_here(site: SourceSite, feed: _Feed) -> pa.Table | None:
    """All changes; None when they are many."""
    held = PackedRows(feed.schema, feed.resolution.keys, feed.resolution.columns)
    share, rows, decoded = site.share, 0, 0
    for file in feed.files:
        for batch in feed_batches(file, feed.target):
            held.add(batch)
            rows, decoded = rows + batch.num_rows, decoded + batch.nbytes
            if rows > share.rows or decoded > share.decoded_bytes or held.nbytes > share.source_bytes:
                return None
    return held.table()


def read_feed(spark: SparkSession, site: SourceSite, table: Table, files: FileSet) -> Changes:
    """Read, check and write down the feed for a merge into ``files`` of ``table``.

    Raises BadSpec for a task that does not fit the table, BadData for messages that cannot be used, for changes of
    several tables or of one row in several logs, and for a source that changed while it was read.
    """
    held = _held(site, table)
    feed = _planned(site, files, held)
    frame = _frame(spark, site, feed)
    if site.task.source.unknown_columns is UnknownColumns.ADD:
        unknown = frame.where(sf.col(UNKNOWN_COLUMN).isNotNull()).select(UNKNOWN_COLUMN).distinct().toArrow()
        feed = _planned(site, files, held, _added(site, table, tally(unknown.column(UNKNOWN_COLUMN))))
        frame = _frame(spark, site, feed)
    if feed.target.allow_truncate:
        truncates = frame.where(sf.col(OP_COLUMN) == TRUNCATE).select(
            OP_COLUMN, ORDER_COLUMN, ORIGIN_COLUMN, LOG_COLUMN
        )
        feed = _with_truncation(feed, site, files, find_truncation(truncates.toArrow()))
    keys = [sf.col(quoted(key.source)) for key in feed.planned.plan.keys]

    def sliced(feed: _Feed) -> Sequence[object]:
        schema, how, size = feed.schema, feed.resolution, site.listing.total_bytes
        return slices_of(frame, keys, size, lambda most: _slice_kernel(schema, how, site.scratch, most)).answers

    return _settled(site, feed, table, sliced)


def _held(site: SourceSite, table: Table) -> HeldTable:
    """Return the table's record of rows whose changes were left out, by the keys of the task."""
    return HeldTable.of(site.memory, table, json.dumps(sorted(key.target for key in site.task.keys)))


def _settled(site: SourceSite, feed: _Feed, table: Table, sliced: Callable[[_Feed], Sequence[object]]) -> Changes:
    """The changes of ``feed``, ``sliced`` until no message is applied in part."""
    while True:
        parts = [part for part in sliced(feed) if isinstance(part, FeedSlice)]
        if feed.holding is None:
            return _kept(site, feed, table, parts)
        links = [link for part in parts for link in part.links]
        known = feed.holding.stops
        stops = spread_stops(links, [change for part in parts for change in part.left_out.rejected])
        earlier = {key: stop for key, stop in stops.items() if key not in known or stop.order < known[key].order}
        if not earlier:
            return _kept(site, feed, table, parts)
        feed = replace(feed, holding=replace(feed.holding, stops={**known, **earlier}))


def _added(site: SourceSite, table: Table, unknown: Mapping[str, UnknownColumn]) -> tuple[NestedField, ...]:
    """The fields that the feed adds to the table: none unless it is asked to, and none without a type."""
    if site.task.source.unknown_columns is not UnknownColumns.ADD:
        return ()
    types = {name: kind for name, column in sorted(unknown.items()) if (kind := column.type) is not None}
    refuse_names((field.name for field in table.schema().fields), [*types], "spec.source.unknownColumns")
    return plan_columns(table, types)


def _planned(site: SourceSite, files: FileSet, held: HeldTable, added: tuple[NestedField, ...] = ()) -> _Feed:
    task, schema = feed_task(site.task), with_fields(files.schema, added)
    target = feed_target(task, schema)
    zone = time_zone(task)
    source = [MergeColumn(name=column.name, type=str(column.type)) for column in target.carried]
    plan = plan_merge(task, target_schema(schema), (*source, *control_columns()), zone)
    plan = selective_first(feed_plan(plan, [column.name for column in source]), files)
    listed = feed_files(site.listing, target.tool)
    holding = _holding(site, target, held, listed)
    planned = Changes(
        plan=plan,
        slices=(),
        schema_id=files.pinned.schema_id,
        columns=added,
        held=held,
        leaves_out=holding is not None,
    )
    return _Feed(target=target, files=listed, planned=planned, holding=holding)


def _holding(site: SourceSite, target: FeedTarget, held: HeldTable, files: Sequence[FeedFile]) -> Holding | None:
    """Return the known holds of changes that are left out; None when none can be."""
    only_rejected = bool(site.task.source.only_rejected)
    if not (target.rejects or held.rows or only_rejected):
        return None
    paths = tuple(file.stored.name for file in files)
    is_exact = tool_of(target.tool).is_exact
    return Holding(is_exact=is_exact, rows=held.rows, absent=site.absent, files=paths, only_rejected=only_rejected)


def _with_truncation(feed: _Feed, site: SourceSite, files: FileSet, truncation: Truncation | None) -> _Feed:
    """``feed`` made to delete what the table had before the truncate, unless an earlier merge applied it."""
    if truncation is None or site.task.source.only_rejected:
        return feed
    task, plan = truncated(feed_task(site.task)), feed.planned.plan
    source = [MergeColumn(name=column.name, type=str(column.type)) for column in feed.target.carried]
    schema = with_fields(files.schema, feed.planned.columns)
    other = plan_merge(task, target_schema(schema), (*source, *control_columns()), time_zone(task))
    plan = replace(plan, when_not_matched_by_source=other.when_not_matched_by_source)
    holding = feed.holding and replace(feed.holding, rows={})  # nothing is missing any more
    return replace(feed, planned=replace(feed.planned, plan=plan), truncation=truncation, holding=holding)


def _kept(site: SourceSite, feed: _Feed, table: Table, parts: Sequence[FeedSlice]) -> Changes:
    feeds = frozenset(name for part in parts for name in part.tables)
    require_one_table(feeds)
    require_generated(site.task, feed.target)
    leaves = _leaves(site, feed.target, parts)
    schema = with_fields(table.schema(), feed.planned.columns)
    memory = judge_feed(table, schema, feeds, [part.seen for part in parts], site.task.source.generated or {})
    left = RejectedChanges.merged([part.left_out for part in parts], [file.stored.name for file in feed.files])
    if feed.truncation is not None and feed.planned.held is not None:
        left = replace(left, rows={**dict.fromkeys(feed.planned.held.rows, HeldRow()), **left.rows})
    require_allowed(site.task.bad_records, left)
    left = replace(left, parts=_kept_records(site, feed, left))
    leaves = replace(leaves, gone=memory.gone)
    planned = replace(feed.planned, leaves=leaves, left_out=left, properties=memory.properties)
    return written_down(site, planned, [part.slice for part in parts if part.slice is not None])


def _kept_records(site: SourceSite, feed: _Feed, left: RejectedChanges) -> tuple[str, ...]:
    """Write down what is left out, if it is to be kept; the files."""
    if site.rejects is None or not left.rejected:
        return ()
    part = RejectPart(site.rejects, f"{site.scratch.name}-{attempt_id()}")
    try:
        for number, reasons in left.reasons.items():
            keep_records(feed.files[number].stored, feed.target, reasons, part)
        path = part.close()
    except BaseException:
        part.abort()
        raise
    return (path,) if path else ()


def _leaves(site: SourceSite, target: FeedTarget, parts: Sequence[FeedSlice]) -> Leaves:
    """Return the columns of the feed that the table lacks. Raises BadData if that is not allowed, or if all are."""
    unknown = merged_tallies(part.unknown for part in parts)
    if unknown and site.task.source.unknown_columns is UnknownColumns.REFUSE:
        raise unknown_columns([*unknown], can_be_mapped=False)
    present = frozenset(name for part in parts for name in part.present)
    others = [column.name for column in target.carried if not column.is_key]
    if unknown and others and present.isdisjoint(others):
        raise void_feed([*unknown], others)
    columns = tuple(UnusedColumn(name=name, rows=column.rows) for name, column in unknown.items())
    unfed = tuple(name for name in others if name not in present) if any(part.writes for part in parts) else ()
    of_no_row = sum(part.of_no_row for part in parts)
    doubtful = merged_defaults(part.defaults for part in parts).doubtful
    defaulted = tuple(UnusedColumn(name=name, rows=rows) for name, rows in doubtful.items())
    return Leaves(
        columns=columns[:MAX_UNUSED],
        total=len(columns),
        unfed=unfed,
        of_no_row=of_no_row,
        defaulted=defaulted[:MAX_UNUSED],
    )


def _slice(changes: pa.Table, how: Resolution, write: Callable[[pa.Table, SortRule, str], ChangeSlice]) -> FeedSlice:
    of_no_row = pc.equal(changes.column(OP_COLUMN), NO_ROW)
    changes = changes.filter(pc.invert(of_no_row))
    writes = changes.filter(
        pc.and_(pc.equal(changes.column(OP_COLUMN), UPSERT), pc.is_null(changes.column(FAULT_COLUMN)))
    )
    resolved = resolve(changes, how)
    rows, sifted = resolved.rows, resolved.sifted
    left = RejectedChanges()
    if sifted is not None:
        left = RejectedChanges(rejected=sifted.rejected, skipped=sifted.skipped, passed=sifted.passed, rows=sifted.rows)
    read = changes.num_rows - len(left.rejected) - left.skipped - left.passed
    made = write(rows, SortRule(how.keys, None, {}), f"slice-{attempt_id()}") if rows.num_rows else None
    if made is None:  # a later truncate stands for all of them
        left = replace(left, skipped=left.skipped + read)
    return FeedSlice(
        slice=replace(made, read=read) if made is not None else None,
        tables=frozenset(changes.column(TABLE_COLUMN).unique().to_pylist()),
        writes=bool(writes.num_rows),
        present=_present(writes, how.columns),
        unknown=tally(writes.column(UNKNOWN_COLUMN)),
        of_no_row=pc.sum(of_no_row).as_py() or 0,
        defaults=tally_defaults(writes.column(DEFAULTED_COLUMN)),
        seen=sight(writes, how.columns),
        left_out=left,
        links=sifted.links if sifted is not None else (),
    )


def _present(writes: pa.Table, columns: Sequence[str]) -> frozenset[str]:
    """The columns that some change has, if only to say that it leaves its value as it is."""
    kept, missing = (unpack_bits(writes.column(name), len(columns)) for name in (KEPT_COLUMN, MISSING_COLUMN))
    return frozenset(np.array(columns, dtype=object)[(~kept | missing).any(axis=0)].tolist())


def _frame(spark: SparkSession, site: SourceSite, feed: _Feed) -> DataFrame:
    cores = max(1, spark.sparkContext.defaultParallelism)
    tasks = max(1, min(len(feed.files), max(cores, -(-site.listing.total_bytes // _TASK_BYTES))))
    schema = batch_schema(feed.target)
    types = {column.name: column.type for column in feed.target.carried}
    ddl = [
        f"{quoted(field.name)} {_spark_type(types[field.name]) if field.name in types else _control_type(field.type)}"
        for field in schema
    ]
    kernel = _read_kernel(feed.files, feed.target)
    return map_batches(spark.range(0, len(feed.files), 1, tasks), kernel, ", ".join(ddl))


def _control_type(kind: pa.DataType) -> str:
    return "binary" if pa.types.is_binary(kind) else "string"


def _spark_type(kind: IcebergType) -> str:
    match kind:
        case UUIDType():
            return "binary"
        case ListType():
            return f"array<{_spark_type(kind.element_type)}>"
        case MapType():
            return f"map<{_spark_type(kind.key_type)}, {_spark_type(kind.value_type)}>"
    return spark_type(kind)


def _read_kernel(
    files: Sequence[FeedFile], target: FeedTarget
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                with carrying():
                    yield from map(_for_spark, feed_batches(files[number], target))

    return read


def _for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In types that Spark has."""
    arrays = [_plain(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain(array: pa.Array) -> pa.Array:
    plain = _plain_type(array.type)
    return array if plain == array.type else array.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_plain_type(kind.item_type)))
    return kind


def _slice_kernel(
    schema: pa.Schema, how: Resolution, scratch: Scratch, most: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def work() -> FeedSlice:
            rows = BoundedRows(lambda: PackedRows(schema, how.keys, how.columns), most)
            for batch in batches:
                rows.add(table_batch(batch, schema))
            return _slice(rows.table(), how, scratch.write)

        answer = caught(lambda: bounded(work), scratch.where)
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], schema=ANSWER)

    return kernel
