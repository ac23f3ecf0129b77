"""Reads what changed in a table between two snapshots: only files that one of them has and the other has not, or has
with other deletes.

Called by runs whose source is the changes of a table, and by ``skipstone.open``. Both snapshots have to be retained;
what happened between them does not matter, so that a row which a compaction or a merge copied has not changed. Rows are
divided by their keys into parts that fit into memory.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, PrimitiveType
from skipstone_core.errors import BadSpec
from skipstone_core.history.tablereads import CHANGE_COLUMN
from skipstone_core.language.predicates import Predicate
from skipstone_core.reasons import Reason

from skipstone.files.deletions import POSITION_CONTENT
from skipstone.files.projections import DataFileDescription, Decoding, deleted_positions
from skipstone.files.reader import describe_files, read_data_file
from skipstone.query.changing.diffs import diff_rows
from skipstone.query.planner import ReadOptions, ReadPlan, checked_predicate, plan_read
from skipstone.query.reading import matching_rows
from skipstone.tables.arrow import arrow_schema
from skipstone.tables.deletes import Delete
from skipstone.tables.filesets import FileSet, known_file_set

#: Bytes of data files whose rows are compared at once, about; there are no more parts than so many.
PART_BYTES = 64 << 20
MOST_PARTS = 256
_BATCH_BYTES = 16 << 20
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ChangesPlan:
    """The files to compare. ``before`` None: the table had no rows. ``schema``: in which both are read."""

    table: Table
    schema: Schema
    keys: tuple[str, ...]
    predicate: Predicate | None
    before: ReadPlan | None
    after: ReadPlan

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
    since: int | None,
    until: int | None,
    keys: Sequence[str],
    where: str | None = None,
) -> pa.Table:
    """What changed in ``table`` between two snapshots (None: before the first one; the current one), by ``keys``.

    The columns of the table, and ``_change_type``: INSERT, DELETE, or UPDATE_BEFORE followed by UPDATE_AFTER.
    ``where``: only of rows on which it is true. Raises BadSpec for columns, conditions and snapshots that the table
    does not have, BadData when keys do not name one row each.
    """
    for number in (since, until):
        if number is not None and table.snapshot_by_id(number) is None:
            message = f"the table has no snapshot {number}: name one of its history that has not expired"
            raise BadSpec(Reason.INVALID_SPEC, message, field="snapshot")
    plan = plan_changes(table, since, ReadOptions(snapshot_id=until), keys, where)
    return pa.concat_tables(read_changes(plan)).cast(changes_schema(plan))


def plan_changes(
    table: Table,
    since: int | None,
    options: ReadOptions,
    keys: Sequence[str],
    where: str | Predicate | None = None,
) -> ChangesPlan:
    """The files that tell what changed since the snapshot ``since`` (None: all is new) up to that of ``options``.

    Raises BadSpec for a condition or keys that do not fit the table, KeyError for a snapshot that is not retained.
    """
    after = known_file_set(table, options.snapshot_id)
    predicate = checked_predicate(where, after.schema)
    _require_keys(after.schema, keys)
    if since is None:
        return ChangesPlan(
            table=table, schema=after.schema, keys=tuple(keys), predicate=predicate, before=None,
            after=plan_read(table, predicate, options),
        )  # fmt: skip
    before = known_file_set(table, since)
    stays_before, stays_after = _same_files(before, after)

    def plan(files: FileSet, stays: npt.NDArray[np.bool_], snapshot_id: int | None) -> ReadPlan:
        is_pruned = files.schema.schema_id == after.schema.schema_id
        at = ReadOptions(snapshot_id=snapshot_id, index_namespace=options.index_namespace)
        return plan_read(table, predicate if is_pruned else None, at, None, ~stays)

    return ChangesPlan(
        table=table,
        schema=after.schema,
        keys=tuple(keys),
        predicate=predicate,
        before=plan(before, stays_before, since),
        after=plan(after, stays_after, options.snapshot_id),
    )


def read_changes(plan: ChangesPlan) -> Iterator[pa.Table]:
    """The changes, as ``diff_rows`` gives them, part by part; one table at least.

    Raises as ``diff_rows``, and BadData for files and deletes that cannot be read.
    """
    schema = pa.schema([field.remove_metadata() for field in arrow_schema(plan.schema)])
    with tempfile.TemporaryDirectory() as folder:
        count = _part_count(plan)
        before, after = _described(plan, plan.before), _described(plan, plan.after)
        sides = [
            _divided(plan, read, schema, [Path(folder) / f"{side}-{part}" for part in range(count)])
            for side, read in (
                ("before", _Side(plan.before, before, _deleted_since(before, after))),
                ("after", _Side(plan.after, after, _deleted_since(after, before))),
            )
        ]
        for old, new in zip(*sides, strict=True):
            yield diff_rows(_rows(old), _rows(new), plan.keys, plan.name)


def changes_schema(plan: ChangesPlan) -> pa.Schema:
    """The columns of the changes."""
    schema = pa.schema([field.remove_metadata() for field in arrow_schema(plan.schema)])
    return schema.append(pa.field(CHANGE_COLUMN, pa.string()))


def _require_keys(schema: Schema, keys: Sequence[str]) -> None:
    if CHANGE_COLUMN in (field.name for field in schema.fields):
        message = f"the table has a column {CHANGE_COLUMN!r}, which changes have themselves: rename it"
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.source.table.changes")
    types = {field.name: field.field_type for field in schema.fields}
    for key in keys:
        if key not in types:
            message = f"the source table has no column {key!r}: name its columns as keys"
            raise BadSpec(Reason.KEY_COLUMN_MISSING, message, field="spec.keys")
        if not isinstance(types[key], PrimitiveType) or isinstance(types[key], FloatType | DoubleType):
            message = f"column {key!r} of the source table has the type {types[key]}, which no key may have"
            raise BadSpec(Reason.KEY_TYPE_MISMATCH, f"{message}: choose other keys", field="spec.keys")


def _same_files(before: FileSet, after: FileSet) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which files of each side the other has too, with the same deletes."""
    places = {path: at for at, path in enumerate(after.files["path"].to_pylist())}
    pairs = [(at, places[path]) for at, path in enumerate(before.files["path"].to_pylist()) if path in places]
    ours, theirs = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    same = [
        _delete_names(first) == _delete_names(second)
        for first, second in zip(before.deletes_of_each(ours), after.deletes_of_each(theirs), strict=True)
    ]
    kept = np.array(same, np.bool_)
    stays = np.zeros(len(before), np.bool_), np.zeros(len(after), np.bool_)
    stays[0][ours[kept]], stays[1][theirs[kept]] = True, True
    return stays


def _delete_names(deletes: Sequence[Delete]) -> frozenset[tuple[str, object]]:
    return frozenset((delete.file.file_path, delete.place) for delete in deletes)


def _part_count(plan: ChangesPlan) -> int:
    size = sum(
        int(read.files.files["size"].to_numpy()[list(read.ordinals)].sum())
        for read in (plan.before, plan.after)
        if read is not None and read.ordinals
    )
    return min(MOST_PARTS, 1 + size // PART_BYTES)


@dataclass(frozen=True)
class _Side:
    """The rows of one snapshot: the files to read, and ``positions`` by path where only these rows may have changed."""

    read: ReadPlan | None
    files: Sequence[DataFileDescription]
    positions: Mapping[str, _Numbers]

    def rows(self, plan: ChangesPlan) -> Iterator[pa.RecordBatch]:
        """The rows that count."""
        names = [field.name for field in plan.schema.fields]
        for file in self.files:
            positions, groups = self.positions.get(file.path), None
            if positions is None and self.read is not None:
                positions, groups = self.read.positions.get(file.file_id), self.read.row_groups.get(file.file_id)
            if positions is None or len(positions):
                for batch in read_data_file(file, names, groups, positions, Decoding(_BATCH_BYTES)):
                    yield matching_rows(batch, plan.predicate)


def _described(plan: ChangesPlan, read: ReadPlan | None) -> list[DataFileDescription]:
    if read is None:
        return []
    return describe_files(plan.table, read.files.in_schema(plan.schema), list(read.ordinals))


def _deleted_since(here: Sequence[DataFileDescription], there: Sequence[DataFileDescription]) -> Mapping[str, _Numbers]:
    """Rows of files of ``here`` that ``there`` lacks, of files on both sides that have deletes by position only."""
    others = {file.path: file for file in there}
    pairs = [(file, others[file.path]) for file in here if file.path in others]
    return {
        mine.path: np.setdiff1d(deleted_positions(theirs), deleted_positions(mine))
        for mine, theirs in pairs
        if all(delete.content == POSITION_CONTENT for delete in (*mine.deletes, *theirs.deletes))
    }


def _divided(plan: ChangesPlan, side: _Side, schema: pa.Schema, paths: Sequence[Path]) -> Sequence[Path]:
    """Write the rows of one side to a file for each part: those with equal keys to the same one."""
    with ExitStack() as stack:
        parts = [stack.enter_context(pa.ipc.new_file(str(path), schema)) for path in paths]
        for batch in side.rows(plan):
            rows = pa.Table.from_batches([batch]).cast(schema)
            if len(parts) == 1:
                parts[0].write_table(rows)
                continue
            part_of = _part_of_rows(rows, plan.keys, len(parts))
            for part in np.unique(part_of):
                parts[part].write_table(rows.filter(pa.array(part_of == part)))
    return paths


def _part_of_rows(rows: pa.Table, keys: Sequence[str], count: int) -> _Numbers:
    """The part of each row, by the values of its keys only."""
    hashes = np.zeros(len(rows), np.uint64)
    for key in keys:
        encoded = rows.column(key).combine_chunks().dictionary_encode(null_encoding="encode")
        each = [zlib.crc32(repr(value).encode()) for value in encoded.dictionary.to_pylist()]
        hashes = hashes * np.uint64(31) + np.array(each, np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]
    return (hashes % np.uint64(count)).astype(np.int64)


def _rows(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.read_all()
