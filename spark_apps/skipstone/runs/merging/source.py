"""First half of a merge run: the source, read once and written down as immutable slices sorted by key.

Called by the merge run: in this process for a small plain source, else in Spark. Everything after it
reads the slices, never the source again.
Must not know files of the target except by their key ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, StringType, StructType, UnknownType, UUIDType
from pyspark import TaskContext
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from skipstone_core.contract.columns import MatchNames, UnknownColumns
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.contract.requests import MergeTask, SourceSpec
from skipstone_core.errors import BadData
from skipstone_core.keys import KeyFamily, KeyType, key_type
from skipstone_core.language.paths import join_path
from skipstone_core.merging.evolution import new_columns
from skipstone_core.merging.fields import named_fields
from skipstone_core.merging.leavingout import leaves_out
from skipstone_core.merging.merges import KEPT_COLUMN, MergeColumn, MergePlan, PartialRows, plan_merge
from skipstone_core.merging.naming import with_exact_names
from skipstone_core.merging.unused import MAX_UNUSED, Names, merge_names, refuse_unknown
from skipstone_core.reasons import Reason

from skipstone.kernels.changes import ChangeSlice, SortRule
from skipstone.kernels.holding.packing import PackedRows
from skipstone.kernels.partial import pack_bits
from skipstone.pruning.keyranges import order_keys
from skipstone.pruning.statistics import file_ranges
from skipstone.runs.merging.leavingout import RejectedChanges, require_allowed
from skipstone.runs.merging.plainrejects import NOTED, PlainRejects, RejectedRow, left_out, rejected_rows
from skipstone.runs.merging.presence import Presence
from skipstone.runs.merging.slices.scratch import Scratch
from skipstone.runs.merging.slices.slicing import ANSWER, BoundedRows, bounded, slices_of, unpacked_bytes
from skipstone.runs.tablesources.zones import find_zone
from skipstone.sources.arrow import table_batch
from skipstone.sources.columns import file_names
from skipstone.sources.groups import ColumnGroup, quoted
from skipstone.sources.listing import SourceListing, require_unchanged
from skipstone.sources.nested import Named
from skipstone.sources.plain import PlainLimits, find_plain
from skipstone.sources.reading import (
    ABSENT_COLUMN,
    ERROR_COLUMN,
    FILE_COLUMN,
    RECORD_COLUMN,
    UNUSED_COLUMN,
    ReadRules,
    SourceColumn,
    SourceRead,
    read_source,
)
from skipstone.sources.rejects import RejectPlace
from skipstone.sources.typed.lacking import lacking_fields
from skipstone.sources.unused import add_up, are_counted, counted_text, merged_counts, unused_columns, values_known
from skipstone.tables.arrow import arrow_type_of, nulls
from skipstone.tables.filesets import FileSet
from skipstone.tables.records.heldrows import HeldTable, HoldsMemory
from skipstone.tables.shaping.evolution import plan_columns, with_fields
from skipstone.tasks.failures import caught, storing
from skipstone.tasks.share import DriverShare


@dataclass(frozen=True, kw_only=True)
class Leaves:
    """The unused columns of a source: the first ``columns`` of ``total``. ``unfed``: columns of the table it lacks.

    ``of_no_row``: messages of a feed that tell of no row.
    ``defaulted``: columns in which a change feed may have the source column's default in place of null.
    ``gone``: columns that earlier jobs of the feed had, and this one has not.
    """

    columns: tuple[UnusedColumn, ...] = ()
    total: int = 0
    unfed: tuple[str, ...] = ()
    of_no_row: int = 0
    defaulted: tuple[UnusedColumn, ...] = ()
    gone: tuple[str, ...] = ()

    @staticmethod
    def of(names: Names, values: Mapping[str, int]) -> Leaves:
        """Of a source with ``names``; ``values``: rows that have one, by column."""
        return Leaves(
            columns=unused_columns(names.unused[:MAX_UNUSED], values), total=len(names.unused), unfed=names.unfed
        )


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The materialized source with the plan it was read for. ``plan.keys`` are in the order slices are sorted by.

    ``schema_id``: the table's schema when it was planned; ``columns``: fields that the merge adds to it. ``leaves``:
    what of the source nothing uses. ``left_out``: its changes that are not applied. ``held``: what the table remembers
    of rows of which changes were left out; None where it remembers none of them. ``properties``: what it is to remember
    of the source. ``leaves_out``: whether changes may be left out.
    """

    plan: MergePlan
    slices: tuple[ChangeSlice, ...]
    schema_id: int
    columns: tuple[NestedField, ...] = ()
    leaves: Leaves = Leaves()
    left_out: RejectedChanges = field(default_factory=RejectedChanges)
    held: HeldTable | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    leaves_out: bool = False

    @property
    def rows_read(self) -> int:
        """Rows of the source, superseded ones and those that are left out included."""
        return (
            sum(change_slice.read for change_slice in self.slices) + self.left_out.skipped + len(self.left_out.rejected)
        )

    @property
    def rows_superseded(self) -> int:
        """Rows that a later one of their key stands for, or includes."""
        others = sum(change_slice.others for change_slice in self.slices) if self.plan.composes else 0
        return self.rows_read - len(self.left_out.rejected) - self.rows + others

    @property
    def rows(self) -> int:
        """Rows that count: the last of each key, and those without a key."""
        return sum(change_slice.rows for change_slice in self.slices)


@dataclass(frozen=True, kw_only=True)
class SourceSite:
    """Where and how the source is read. ``scratch``: of this process alone.

    ``memory``: of rows of which changes were left out. ``rejects``: where those are kept that are left out now; None:
    nowhere. ``absent``: keys, as text, of rows that the table does not have.
    """

    task: MergeTask
    listing: SourceListing
    scratch: Scratch
    share: DriverShare
    memory: HoldsMemory
    rejects: RejectPlace | None = None
    absent: frozenset[str] = frozenset()


def read_changes(spark: SparkSession, site: SourceSite, table: Table, files: FileSet) -> Changes:
    """Read, check and write down the source for a merge into ``files`` of ``table``.

    Raises BadSpec for a task that does not fit both schemas, BadData for rows that do not fit, duplicate keys and a
    source that changed while it was read.
    """
    site = _exact(
        site, table, lambda source, rules: read_source(spark, site.listing, source, files.schema, rules).groups
    )
    may_leave_out = leaves_out(site.task)
    rules = ReadRules(site.task.time_zone, _named(site.task), records=may_leave_out)
    read = read_source(spark, site.listing, site.task.source, files.schema, rules)
    planned = _plan(site.task, read.columns, table, files, read.groups)
    names = _names(site.task, planned.plan, read.groups)
    known = values_known(site.listing, site.task.source.format, names.unused[:MAX_UNUSED])
    answers = _write_slices(site, read, planned.plan, _counted(read, names, known))
    values = merged_counts([known, *(answer.unused for answer in answers)])
    left = left_out([row for answer in answers for row in answer.rejected], [answer.part for answer in answers])
    require_allowed(site.task.bad_records, left)
    planned = replace(planned, leaves=Leaves.of(names, values), left_out=left)
    return written_down(site, planned, [answer.slice for answer in answers if answer.slice is not None])


def read_changes_here(site: SourceSite, table: Table, files: FileSet) -> Changes | None:
    """As ``read_changes``, in this process; None when the source is not small and plain.

    Raises NotPlainError when it is not good throughout, or of text that is left to Spark.
    """
    leaves_out(site.task)
    limits = PlainLimits(site.share.rows, site.share.source_bytes, site.share.decoded_bytes)

    def groups(source: SourceSpec, rules: ReadRules) -> Sequence[ColumnGroup]:
        plain = find_plain(site.listing, source, files.schema, limits, rules)
        return plain.groups if plain else ()

    site = _exact(site, table, groups)
    rules = ReadRules(site.task.time_zone, _named(site.task))
    read = find_plain(site.listing, site.task.source, files.schema, limits, rules)
    if read is None:
        return None
    planned = _plan(site.task, (*read.columns, *read.absent), table, files)
    names = _names(site.task, planned.plan, read.groups)
    columns, rule = _slice_columns((*read.columns, *read.absent), planned.plan)
    values = read.values(site.listing, names.unused[:MAX_UNUSED])
    rows = read.rows(_kernel_schema([column for column in columns if column not in read.absent]), planned.plan.keys)
    if planned.plan.partial is not None:
        rows = _with_absent(rows, [column for column in columns if column in read.absent], planned.plan.partial)
    planned = replace(planned, leaves=Leaves.of(names, values))
    with storing(site.scratch.where):
        kept = [site.scratch.keep(rows, rule, f"slice-{attempt_id()}")] if rows.num_rows else []
    return written_down(site, planned, kept)


def _exact(
    site: SourceSite, table: Table, groups: Callable[[SourceSpec, ReadRules], Sequence[ColumnGroup]]
) -> SourceSite:
    """``site`` with a task whose names are those of columns. ``groups``: looks at the files for their columns."""
    if site.task.source.match_names is not MatchNames.IGNORE_CASE:
        return site
    needed = None if needed_columns(site.task) is None else frozenset[str]()
    bare = replace(site.task.source, mapping=(), columns=())
    files = file_names(groups(bare, ReadRules(site.task.time_zone, Named({}, needed))))
    names = list(dict.fromkeys(name for file in files for name in file.names))
    return replace(site, task=with_exact_names(site.task, target_schema(table.schema()), names))


def _with_absent(rows: pa.Table, absent: Sequence[SourceColumn], partial: PartialRows) -> pa.Table:
    """``rows``, which have all other columns, with those that no row has, and the bits that say so."""
    for kind in _kernel_schema(absent):
        rows = rows.append_column(kind, nulls(rows.num_rows, kind.type))
    lacks = np.isin(partial.columns, [column.name for column in absent])
    return rows.append_column(KEPT_COLUMN, pack_bits(np.tile(lacks, (rows.num_rows, 1))))


def _named(task: MergeTask) -> Named:
    return Named(named_fields(task), needed_columns(task))


def needed_columns(task: MergeTask) -> frozenset[str] | None:
    """The columns that every file must have; None where they all must have the same."""
    if not any(clause.present for clause in task.when_matched):
        return None
    return frozenset(key.source for key in task.keys) | ({task.sequence_by} if task.sequence_by else frozenset())


def _names(task: MergeTask, plan: MergePlan, groups: Sequence[ColumnGroup]) -> Names:
    """Return the used names of the source. Raises BadData as ``merge_names`` does, and for names that must be used."""
    names = merge_names(task, plan, file_names(groups))
    if task.source.unknown_columns is UnknownColumns.REFUSE:
        refuse_unknown(names)
    return names


def _counted(read: SourceRead, names: Names, known: Mapping[str, int]) -> tuple[str, ...]:
    """The unused columns that the frame has, whose values rows have to tell."""
    held = {column.name for column in read.columns}
    return tuple(name for name in are_counted(read.groups, names.unused[:MAX_UNUSED], known) if name in held)


def _plan(
    task: MergeTask,
    columns: Sequence[SourceColumn],
    table: Table,
    files: FileSet,
    groups: Sequence[ColumnGroup] = (),
) -> Changes:
    """Return the changes of the merge, without slices. ``groups``: files that may have lists, maps and structs."""
    source = _source_schema(columns, groups)
    types = {str(column.type): column.type for column in columns}
    wanted = new_columns(task, target_schema(table.schema()), source)
    added = plan_columns(table, {column.name: types[column.type] for column in wanted})
    plan = plan_merge(task, target_schema(with_fields(files.schema, added)), source, time_zone(task))
    plan = selective_first(plan, files)
    return Changes(plan=plan, slices=(), schema_id=files.pinned.schema_id, columns=added)


def written_down(site: SourceSite, planned: Changes, slices: Sequence[ChangeSlice]) -> Changes:
    """``planned`` with its slices, numbered. Raises as ``require_unchanged`` does."""
    require_unchanged(site.listing)
    numbered = (replace(part, base=base) for part, base in zip(slices, _bases(slices), strict=True))
    return replace(planned, slices=tuple(numbered))


def selective_first(plan: MergePlan, files: FileSet) -> MergePlan:
    """``plan`` with its keys in the order by which slices are sorted: the most selective column first."""
    order = order_keys(file_ranges(files, plan.keys))
    return replace(plan, keys=tuple(plan.keys[i] for i in order))


def target_schema(schema: Schema) -> tuple[MergeColumn, ...]:
    """The table's columns as the rules of merges take them, and the fields within those that are structs."""
    columns = tuple(
        MergeColumn(name=f.name, type=str(f.field_type), required=f.required, default=f.write_default)
        for f in schema.fields
    )
    taken = {column.name for column in columns}
    return (*columns, *(field for field in _fields_within(schema.fields, ()) if field.name not in taken))


def _fields_within(fields: Sequence[NestedField], path: tuple[str, ...]) -> Iterator[MergeColumn]:
    for within in fields:
        here = (*path, within.name)
        if path:
            yield MergeColumn(
                name=join_path(here), type=str(within.field_type), required=within.required, is_field=True
            )
        if isinstance(within.field_type, StructType):
            yield from _fields_within(within.field_type.fields, here)


def _source_schema(columns: Sequence[SourceColumn], groups: Sequence[ColumnGroup]) -> tuple[MergeColumn, ...]:
    lacking = {column.name: lacking_fields(column, groups) for column in columns}
    return tuple(
        MergeColumn(
            name=column.name,
            type=str(column.type),
            is_field=column.is_field,
            lacks=frozenset(map(join_path, lacking[column.name].everywhere)),
            lacks_in_some=frozenset(map(join_path, lacking[column.name].somewhere)),
        )
        for column in columns
    )


def time_zone(task: MergeTask) -> ZoneInfo:
    """The time zone of ``task``. Raises BadSpec for one that is not known."""
    return find_zone(task.time_zone)


def _slice_columns(columns: Sequence[SourceColumn], plan: MergePlan) -> tuple[list[SourceColumn], SortRule]:
    """Return the columns of slices, and their order."""
    held = [column for column in columns if column.name in plan.source_columns]
    types = {column.name: kind for column in held if (kind := key_type(str(column.type)))}
    types[KEPT_COLUMN] = KeyType(KeyFamily.BINARY)
    return held, SortRule(plan.keys, plan.sequence_by, types, plan.repeated_keys, plan.marks_several)


@dataclass(frozen=True)
class SliceAnswer:
    """The result of a task: no slice without rows. ``unused``: rows with a value, by column that nothing uses.

    ``rejected``: rows that are left out; ``part``: the file that keeps them.
    """

    slice: ChangeSlice | None
    unused: Mapping[str, int]
    rejected: tuple[RejectedRow, ...] = ()
    part: str | None = None


def _write_slices(site: SourceSite, read: SourceRead, plan: MergePlan, counted: Sequence[str]) -> list[SliceAnswer]:
    columns, rule = _slice_columns(read.columns, plan)
    absent = [] if plan.partial is None else [ABSENT_COLUMN]
    unused = [f"{counted_text(f'{quoted(name)} is null' for name in counted)} as {UNUSED_COLUMN}"] if counted else []
    held = [quoted(column.name) for column in columns]
    rejects = PlainRejects(plan=plan, types=rule.types, place=site.rejects) if leaves_out(site.task) else None
    record = [] if rejects is None else [RECORD_COLUMN]
    frame = read.frame.selectExpr(*held, ERROR_COLUMN, FILE_COLUMN, *record, *absent, *unused)
    presence = None if plan.partial is None else Presence.of(plan.partial, read.columns, plan.keys)
    rows = SliceRows(_kernel_schema(columns), presence, tuple(counted), rejects)
    named = {column.name: column for column in columns}
    keys = [_range_column(named[key.source]) for key in plan.keys]
    size = unpacked_bytes(site.listing, site.task.source.format, {column.source for column in columns})
    slices = slices_of(frame, keys, size, lambda most: _slice_kernel(rows, rule, site.scratch, most))
    for dropped in slices.dropped:
        if isinstance(dropped, SliceAnswer) and dropped.part is not None and site.rejects is not None:
            site.rejects.storage.delete(dropped.part)
    return [answer for answer in slices.answers if isinstance(answer, SliceAnswer)]


def _range_column(column: SourceColumn) -> SparkColumn:
    """Text of a uuid may be written in two cases."""
    text = sf.col(quoted(column.name))
    return sf.lower(text) if isinstance(column.type, UUIDType) else text


def _bases(slices: Sequence[ChangeSlice]) -> list[int]:
    return [0, *accumulate(change_slice.rows for change_slice in slices)][: len(slices)]


def _kernel_schema(columns: Sequence[SourceColumn]) -> pa.Schema:
    """A column of no known type is text, and null throughout."""
    text = StringType()
    kinds = [text if isinstance(column.type, UnknownType) else column.type for column in columns]
    return pa.schema([pa.field(column.name, arrow_type_of(kind)) for column, kind in zip(columns, kinds, strict=True)])


def _slice_kernel(
    made: SliceRows, rule: SortRule, scratch: Scratch, most: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = BoundedRows(lambda: PackedRows(made.held_schema, rule.keys, made.schema.names), most)
        answer = caught(lambda: bounded(lambda: _write_partition(batches, rows, made, rule, scratch)), scratch.where)
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], schema=ANSWER)

    return kernel


def _write_partition(
    batches: Iterable[pa.RecordBatch], rows: BoundedRows, made: SliceRows, rule: SortRule, scratch: Scratch
) -> SliceAnswer:
    unused: list[Mapping[str, int]] = [dict.fromkeys(made.counted, 0)]
    bad: list[pa.RecordBatch] = []
    for batch in batches:
        if made.counted:
            unused.append(add_up(batch.column(UNUSED_COLUMN), made.counted))
        if made.rejects is not None:
            batch, faulty = made.rejects.parted(batch)
            bad += [made.noted(faulty, [ERROR_COLUMN])] if faulty.num_rows else []
        rows.add(made.of(batch))
    if made.rejects is None or not bad:
        kept = rows.table().select(made.full_schema.names)
        return SliceAnswer(_write_rows(kept, rule, scratch), merged_counts(unused))
    return _without(made.rejects, rows.table(), pa.Table.from_batches(bad), _Sliced(made, rule, scratch, unused))


@dataclass(frozen=True)
class _Sliced:
    """A slice on its way."""

    made: SliceRows
    rule: SortRule
    scratch: Scratch
    unused: Sequence[Mapping[str, int]]


def _without(rejects: PlainRejects, rows: pa.Table, bad: pa.Table, sliced: _Sliced) -> SliceAnswer:
    """The slice of ``rows`` without those that wait for ``bad`` ones."""
    waits = pa.array(rejects.waiting(rows, bad))
    waiting = rows.filter(waits)
    kept = rows.filter(pc.invert(waits)).select(sliced.made.full_schema.names)
    part = rejects.keep(f"{sliced.scratch.name}-{attempt_id()}", bad, waiting)
    made = _write_rows(kept, sliced.rule, sliced.scratch)
    return SliceAnswer(made, merged_counts(sliced.unused), rejected_rows(bad, waiting), part)


@dataclass(frozen=True)
class SliceRows:
    """Turns batches of Spark into rows of a slice. ``presence``: of a merge whose rows may lack columns.

    ``counted``: what UNUSED_COLUMN of the batches is about. ``rejects``: how rows are left out; None: none may be.
    """

    schema: pa.Schema
    presence: Presence | None
    counted: tuple[str, ...] = ()
    rejects: PlainRejects | None = None

    @property
    def full_schema(self) -> pa.Schema:
        """Of the rows that are made."""
        return self.schema.append(pa.field(KEPT_COLUMN, pa.binary())) if self.presence else self.schema

    @property
    def held_schema(self) -> pa.Schema:
        """Of the rows that are made, with what is noted of them as long as some may be left out."""
        return self.full_schema if self.rejects is None else pa.schema([*self.full_schema, *NOTED])

    def noted(self, batch: pa.RecordBatch, names: Sequence[str] = ()) -> pa.RecordBatch:
        """Rows with what is noted of them, and further columns of text ``names``."""
        rows = table_batch(batch, self.schema)
        names = [*NOTED.names, *names]
        texts = [batch.column(name).cast(pa.string()) for name in names]
        fields = [*self.schema, *(pa.field(name, pa.string()) for name in names)]
        return pa.RecordBatch.from_arrays([*rows.columns, *texts], schema=pa.schema(fields))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises BadData for rows that do not fit, or lack a key."""
        _require_good(batch)
        if self.rejects is not None:
            return self.noted(batch)
        rows = table_batch(batch, self.schema)
        if self.presence is None:
            return rows
        return pa.RecordBatch.from_arrays([*rows.columns, self.presence.bits(batch)], schema=self.full_schema)


def _write_rows(rows: pa.Table, rule: SortRule, scratch: Scratch) -> ChangeSlice | None:
    return scratch.write(rows, rule, f"slice-{attempt_id()}") if rows.num_rows else None


def attempt_id() -> int:
    """Unique within the application: another attempt at the same partition writes another file."""
    context = TaskContext.get()
    return context.taskAttemptId() if context else 0


def _require_good(batch: pa.RecordBatch) -> None:
    errors = batch.column(ERROR_COLUMN)
    if errors.null_count == len(errors):
        return
    first = pc.indices_nonzero(pc.is_valid(errors))[0].as_py()
    file = batch.column(FILE_COLUMN)[first].as_py()
    raise BadData(
        Reason.BAD_RECORDS,
        f"at least {len(errors) - errors.null_count} rows do not fit, the first in {file}: {errors[first].as_py()}; "
        "fix the file, or let badRecords of the merge leave them out",
        field="spec.source",
    )
