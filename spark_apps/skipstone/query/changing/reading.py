"""Reads what changed in a table between two snapshots: only files that one of them has and the other has not, or has
with other deletes; and, of other files, rows that have the key of a deleted one.

Called by runs whose source is the changes of a table, and by ``skipstone.open``. Both snapshots have to be retained;
what happened between them does not matter, so that a row which a compaction or a merge copied has not changed. Rows are
divided by their keys into parts that fit into memory.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, PrimitiveType
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.history.points import Point
from skipstone_core.history.tablereads import CHANGE_COLUMN, FIELD, FOLLOW_AGAIN
from skipstone_core.language.predicates import Predicate
from skipstone_core.reasons import Reason

from skipstone.files.deletions import POSITION_CONTENT
from skipstone.files.projections import DataFileDescription, Decoding, deleted_positions
from skipstone.files.reader import describe_files, read_data_file
from skipstone.query.changing.columns import require_comparable
from skipstone.query.changing.diffs import diff_rows
from skipstone.query.changing.dividing import HASHES, part_of_rows
from skipstone.query.changing.leftrows import DividedRows, LeftRows
from skipstone.query.changing.lineage import LineageSide, keep_unshared, proves_equality
from skipstone.query.changing.points import resolve_since, resolve_until
from skipstone.query.planner import ReadOptions, ReadPlan, checked_predicate, plan_read
from skipstone.query.reading import matching_rows
from skipstone.tables.arrow import arrow_schema, with_lineage
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import FileSet, SpecPartition, known_file_set

#: Bytes of data files whose rows are compared at once, about; there are no more parts than so many.
PART_BYTES = 64 << 20
MOST_PARTS = 256
#: Bytes of rows that are compared at once: files can hold a thousand times what they take.
PART_MEMORY = 512 << 20
#: Bytes of data files on either side from which reading the lineage of their rows first saves more than it takes.
LINEAGE_BYTES = 4 << 20
_DECODING = Decoding(16 << 20)
_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Which rows count in the older snapshot, and which in the newer one. ``zone``: of times without offset."""

    before: str | None
    after: str | None
    zone: tzinfo = UTC


@dataclass(frozen=True)
class Between:
    """Two points of a table's history. ``since`` None: before the first snapshot; ``until`` None: the current one."""

    since: Point | None = None
    until: Point | None = None


@dataclass(frozen=True, kw_only=True)
class ChangesPlan:
    """The files to compare. ``before`` None: the table had no rows. ``schema``: in which both are read.

    ``predicates``: the rows that count of the older snapshot, and of the newer one. ``is_by_lineage``: rows with equal
    lineage are equal, see ``lineage``. Without ``keys``, nothing is an update. ``stays``: one boolean for each file of
    the newer snapshot, whether it has the same rows in the older one, so that it is not compared; ``options``: of reads
    of the newer one.
    """

    table: Table
    schema: Schema
    keys: tuple[str, ...]
    predicates: tuple[Predicate | None, Predicate | None]
    before: ReadPlan | None
    after: ReadPlan
    stays: _Flags
    options: ReadOptions
    is_by_lineage: bool = False

    @property
    def files(self) -> int:
        """How many files are opened."""
        return len(self.after.ordinals) + (len(self.before.ordinals) if self.before is not None else 0)

    @property
    def name(self) -> str:
        """The table as people call it."""
        return ".".join(self.table.name())


def changes(
    table: Table,
    since: Point | None,
    until: Point | None,
    keys: Sequence[str],
    where: str | None = None,
) -> pa.Table:
    """What changed in ``table`` between two points of its history (None: before its first row; now), by ``keys``.

    A point is the id of a snapshot, a branch, a tag, or a time. The columns of the table, and ``_change_type``: INSERT,
    DELETE, or UPDATE_BEFORE followed by UPDATE_AFTER; without keys, an update is a DELETE and an INSERT. ``where``:
    only of rows on which it is true. Raises BadSpec for columns, conditions and points that the table does not have,
    BadData when keys do not name one row each.
    """
    plan = plan_points(table, Between(since, until), ReadOptions(), keys, where)
    return pa.concat_tables(read_changes(plan)).cast(changes_schema(plan))


def plan_points(
    table: Table, between: Between, options: ReadOptions, keys: Sequence[str], where: str | None = None
) -> ChangesPlan:
    """As ``plan_changes``, for two points of the table's history. Raises BadSpec."""
    since = None if between.since is None else resolve_since(table, between.since)
    options = replace(options, snapshot_id=resolve_until(table, between.until))
    return plan_changes(table, since, options, keys, where)


def plan_changes(
    table: Table,
    since: int | None,
    options: ReadOptions,
    keys: Sequence[str],
    where: str | Conditions | None = None,
) -> ChangesPlan:
    """The files that tell what changed since the snapshot ``since`` (None: all is new) up to that of ``options``.

    With other ``Conditions`` of the two, these are all files. Raises BadSpec for a condition or keys that do not fit
    the table, BadData (SOURCE_CHANGED) for one of the older snapshot and for columns that were replaced by others of
    their names, KeyError for a snapshot that is not retained.
    """
    after = known_file_set(table, options.snapshot_id)
    given = where if isinstance(where, Conditions) else Conditions(before=where, after=where)
    predicate = checked_predicate(given.after, after.schema, given.zone)
    _require_keys(".".join(table.name()), after.schema, keys)
    if since is None:
        return ChangesPlan(
            table=table, schema=after.schema, keys=tuple(keys), predicates=(None, predicate), before=None,
            after=plan_read(table, predicate, options), stays=np.zeros(len(after), np.bool_), options=options,
        )  # fmt: skip
    before = known_file_set(table, since)
    require_comparable(".".join(table.name()), before.schema, after.schema)
    is_same = given.before == given.after
    predicate_before = predicate if is_same else _predicate_before(given, after.schema)
    stays_before, stays_after = _same_files(before, after) if is_same else _no_files(before, after)

    def plan(files: FileSet, counts: Predicate | None, stays: _Flags, snapshot_id: int | None) -> ReadPlan:
        is_pruned = files.schema.schema_id == after.schema.schema_id
        at = ReadOptions(snapshot_id=snapshot_id, index_namespace=options.index_namespace)
        return plan_read(table, counts if is_pruned else None, at, None, ~stays)

    plans = (
        plan(before, predicate_before, stays_before, since),
        plan(after, predicate, stays_after, options.snapshot_id),
    )
    return ChangesPlan(
        table=table,
        schema=after.schema,
        keys=tuple(keys),
        predicates=(predicate_before, predicate),
        before=plans[0],
        after=plans[1],
        stays=stays_after,
        options=options,
        is_by_lineage=is_same
        and min(map(_bytes_of, plans)) >= LINEAGE_BYTES
        and proves_equality(table, since, options.snapshot_id),
    )


def _predicate_before(given: Conditions, schema: Schema) -> Predicate | None:
    try:
        return checked_predicate(given.before, schema, given.zone)
    except BadSpec as error:
        raise BadData(
            Reason.SOURCE_CHANGED,
            f"the last job read the rows on which {given.before!r} is true, which cannot be tested any more ({error}), "
            f"so which rows were read is not known; {FOLLOW_AGAIN}",
            field=FIELD,
        ) from error


def read_changes(plan: ChangesPlan) -> Iterator[pa.Table]:
    """The changes, as ``diff_rows`` gives them, part by part; one table at least.

    Raises as ``diff_rows``, and BadData for files and deletes that cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / f"{number}" for number in range(_part_count(plan))]
        sides = _sides(plan, Path(folder))
        old, new = (
            _divided(plan, side.rows(plan), [path.with_suffix(suffix) for path in names])
            for suffix, side in zip((".old", ".new"), sides, strict=True)
        )
        left = _divided(plan, _left_rows(plan, sides[1], old, new), [path.with_suffix(".left") for path in names])
        for part in zip(old, new, left, strict=True):
            yield from _compared(plan, _Part(*part), len(names))


def changes_schema(plan: ChangesPlan) -> pa.Schema:
    """The columns of the changes."""
    return _rows_schema(plan).append(pa.field(CHANGE_COLUMN, pa.string()))


def _rows_schema(plan: ChangesPlan) -> pa.Schema:
    return pa.schema([column.remove_metadata() for column in arrow_schema(plan.schema)])


def _require_keys(name: str, schema: Schema, keys: Sequence[str]) -> None:
    if CHANGE_COLUMN in (column.name for column in schema.fields):
        message = f"the table {name} has a column {CHANGE_COLUMN!r}, which changes have themselves: rename it"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.source.table.changes")
    types = {column.name: column.field_type for column in schema.fields}
    for key in keys:
        if key not in types:
            message = f"the table {name} has no column {key!r}: name its columns as keys"
            raise BadSpec(Reason.KEY_COLUMN_MISSING, message, field="spec.keys")
        if not isinstance(types[key], PrimitiveType) or isinstance(types[key], FloatType | DoubleType):
            message = f"column {key!r} of the table {name} has the type {types[key]}, which no key may have"
            raise BadSpec(Reason.KEY_TYPE_MISMATCH, f"{message}: choose other keys", field="spec.keys")


def _no_files(before: FileSet, after: FileSet) -> tuple[_Flags, _Flags]:
    return np.zeros(len(before), np.bool_), np.zeros(len(after), np.bool_)


def _same_files(before: FileSet, after: FileSet) -> tuple[_Flags, _Flags]:
    """Which files of each side the other has too, in the same partition and with the same deletes."""
    places = {name: at for at, name in enumerate(_names(after))}
    pairs = [(at, places[name]) for at, name in enumerate(_names(before)) if name in places]
    ours, theirs = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    same = [
        _delete_names(first) == _delete_names(second)
        for first, second in zip(before.deletes_of_each(ours), after.deletes_of_each(theirs), strict=True)
    ]
    kept = np.array(same, np.bool_)
    stays = _no_files(before, after)
    stays[0][ours[kept]], stays[1][theirs[kept]] = True, True
    return stays


def _names(files: FileSet) -> Iterator[tuple[str, SpecPartition, int]]:
    """The path of each file, its partition, whose values a file need not hold, and how often both came before."""
    partitions, numbers = files.partitions()
    seen: Counter[tuple[str, int]] = Counter()
    for path, number in zip(files.files["path"].to_pylist(), numbers.tolist(), strict=True):
        yield path, partitions[number], seen[path, number]
        seen[path, number] += 1


def _delete_names(deletes: Sequence[Delete]) -> frozenset[tuple[str, object]]:
    return frozenset((delete.file.file_path, delete.place) for delete in deletes)


def _part_count(plan: ChangesPlan) -> int:
    size = sum(_bytes_of(read) for read in (plan.before, plan.after) if read is not None)
    return min(MOST_PARTS, 1 + size // PART_BYTES)


def _bytes_of(read: ReadPlan) -> int:
    return int(read.files.files["size"].to_numpy()[list(read.ordinals)].sum()) if read.ordinals else 0


@dataclass(frozen=True)
class _Side:
    """The rows of one snapshot: the files to read, and ``positions`` by file id where only these may have changed.

    ``unshared``: by file id, which rows may have changed by their lineage.
    """

    read: ReadPlan | None
    predicate: Predicate | None
    files: Sequence[DataFileDescription]
    positions: Mapping[int, _Numbers]
    unshared: Mapping[int, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def rows(self, plan: ChangesPlan) -> Iterator[pa.RecordBatch]:
        """The rows that count, of those that may have changed."""
        names = [column.name for column in plan.schema.fields]
        for file in self.files:
            positions, groups = self._chosen(file.file_id)
            if positions is None or len(positions):
                for batch in read_data_file(file, names, groups, positions, _DECODING):
                    yield matching_rows(batch, self.predicate)

    def compared(self) -> Mapping[int, _Numbers]:
        """Which rows are read, of files with others that the other snapshot has too."""
        numbers = {*self.positions, *(number for number, kept in self.unshared.items() if not kept.all())}
        chosen = ((number, self._chosen(number)[0]) for number in sorted(numbers))
        return {number: positions for number, positions in chosen if positions is not None}

    def _chosen(self, number: int) -> tuple[_Numbers | None, tuple[int, ...] | None]:
        """Which rows of a file are read, and which row groups; None: all."""
        positions, groups = self.positions.get(number), None
        if positions is None and self.read is not None:
            positions, groups = self.read.positions.get(number), self.read.row_groups.get(number)
        kept = self.unshared.get(number)
        if kept is not None and not kept.all():
            positions = np.flatnonzero(kept) if positions is None else positions[kept[positions]]
        return positions, groups


def _sides(plan: ChangesPlan, folder: Path) -> tuple[_Side, _Side]:
    before, after = _described(plan, plan.before), _described(plan, plan.after)
    is_same = plan.predicates[0] == plan.predicates[1]  # else rows of files that stay may begin or cease to count
    gone, back = (_deleted_since(before, after), _deleted_since(after, before)) if is_same else ({}, {})
    first, second = (
        _Side(plan.before, plan.predicates[0], before, gone),
        _Side(plan.after, plan.predicates[1], after, back),
    )
    if not plan.is_by_lineage:
        return first, second
    unshared = keep_unshared(_by_lineage(plan, first), _by_lineage(plan, second), folder)
    if unshared is None:
        return first, second
    return replace(first, unshared=unshared[0]), replace(second, unshared=unshared[1])


def _by_lineage(plan: ChangesPlan, side: _Side) -> LineageSide:
    schema = with_lineage(plan.schema).model_dump_json()
    return LineageSide([replace(file, schema_json=schema) for file in side.files], side.positions)


def _described(plan: ChangesPlan, read: ReadPlan | None) -> list[DataFileDescription]:
    if read is None:
        return []
    return describe_files(plan.table, read.files.in_schema(plan.schema), list(read.ordinals))


def _deleted_since(here: Sequence[DataFileDescription], there: Sequence[DataFileDescription]) -> Mapping[int, _Numbers]:
    """Rows of files of ``here`` that ``there`` lacks, of files on both sides that have deletes by position only."""
    counts = Counter(file.path for files in (here, there) for file in files)
    others = {file.path: file for file in there}
    pairs = [(file, others[file.path]) for file in here if file.path in others and counts[file.path] == 2]
    return {
        mine.file_id: np.setdiff1d(deleted_positions(theirs), deleted_positions(mine))
        for mine, theirs in pairs
        if mine.constants == theirs.constants
        and all(delete.content == POSITION_CONTENT for delete in (*mine.deletes, *theirs.deletes))
    }


def _left_rows(plan: ChangesPlan, after: _Side, old: Sequence[Path], new: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """The rows that count and are not compared, since both snapshots have them, with the keys of deleted ones."""
    among, compared = plan.stays.copy(), after.compared()
    among[list(compared)] = True
    if not plan.keys or not among.any():
        return
    left = LeftRows(
        table=plan.table, schema=plan.schema, keys=plan.keys, options=plan.options, among=among, compared=compared,
        decoding=_DECODING,
    )  # fmt: skip
    for keys in DividedRows(old, new, plan.keys, PART_MEMORY).fewer():
        for batch in left.find(keys):
            yield matching_rows(batch, after.predicate)


def _divided(plan: ChangesPlan, rows: Iterator[pa.RecordBatch], paths: Sequence[Path]) -> Sequence[Path]:
    """Write rows to a file for each part: those with equal keys to the same one."""
    schema = _rows_schema(plan)
    with ExitStack() as stack:
        parts = [stack.enter_context(pa.ipc.new_file(str(path), schema)) for path in paths]
        for batch in rows:
            _spread(parts, pa.Table.from_batches([batch]).cast(schema), plan.keys, 1)
    return paths


@dataclass(frozen=True)
class _Part:
    """Rows of some keys: those to compare, and those that are ``left`` of keys with fewer rows, which both have."""

    old: Path
    new: Path
    left: Path

    @property
    def size(self) -> int:
        """Bytes of the rows, as often as they are in memory."""
        return sum(path.stat().st_size for path in (self.old, self.new, self.left, self.left))

    def changes(self, plan: ChangesPlan) -> pa.Table:
        """As of ``diff_rows``."""
        left = _rows(self.left)
        before, after = (pa.concat_tables([_rows(path), left]) for path in (self.old, self.new))
        return diff_rows(before, after, plan.keys, plan.name)

    def divided(self, keys: Sequence[str], divisor: int, count: int) -> Iterator[_Part]:
        """Divide the rows once more."""
        each = [_divided_again(path, keys, divisor, count) for path in (self.old, self.new, self.left)]
        return (_Part(*paths) for paths in zip(*each, strict=True))


def _compared(plan: ChangesPlan, part: _Part, divisor: int) -> Iterator[pa.Table]:
    """The changes of one part, which is divided again while its rows take too much memory.

    ``divisor``: as of ``part_of_rows``, with which its rows can be divided again.
    """
    count = min(MOST_PARTS, 1 + part.size // PART_MEMORY)
    if count == 1 or divisor >= HASHES:
        yield part.changes(plan)
        return
    for smaller in part.divided(plan.keys, divisor, count):
        yield from _compared(plan, smaller, divisor * count)


def _divided_again(path: Path, keys: Sequence[str], divisor: int, count: int) -> Sequence[Path]:
    paths = [path.with_name(f"{path.name}-{part}") for part in range(count)]
    with ExitStack() as stack:
        file = stack.enter_context(pa.ipc.open_file(stack.enter_context(pa.memory_map(str(path)))))
        parts = [stack.enter_context(pa.ipc.new_file(str(place), file.schema)) for place in paths]
        for at in range(file.num_record_batches):
            _spread(parts, pa.Table.from_batches([file.get_batch(at)]), keys, divisor)
    path.unlink()
    return paths


def _spread(parts: Sequence[pa.RecordBatchFileWriter], rows: pa.Table, keys: Sequence[str], divisor: int) -> None:
    """Write each of ``rows`` to its part."""
    if len(parts) == 1:
        parts[0].write_table(rows)
        return
    part_of = part_of_rows(rows, keys, len(parts), divisor)
    for part in np.unique(part_of):
        parts[part].write_table(rows.filter(pa.array(part_of == part)))


def _rows(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.read_all()
