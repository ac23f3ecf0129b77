"""Finds rows that two snapshots of a table of format version 3 share, by two numbers of each row instead of its values.

Called by ``read_changes``. A row that a merge or a compaction copies into another file keeps its id, and the sequence
number of its last change. So rows with equal ids and equal numbers are equal, if every writer between the snapshots
kept them: this module proves that for each snapshot, or gives up, and then all values are compared. What it leaves
out is never a change; what it keeps need not be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.errors import UserError
from skipstone_core.history.rowlineages import keeps_lineage

from skipstone.compat.pyiceberg import summary_of
from skipstone.files.deletions import POSITION_CONTENT
from skipstone.files.projections import DataFileDescription
from skipstone.files.reader import POSITION_COLUMN, describe_files, is_read_whole, open_data_file, read_data_file
from skipstone.parallel import CORES
from skipstone.tables.arrow import LAST_UPDATED_NAME, LINEAGE_NAMES, ROW_ID_NAME, with_lineage
from skipstone.tables.filesets import known_file_set

#: Rows with lineage that are compared at once, about: each takes some tens of bytes.
PART_ROWS = 16 << 20
#: Most snapshots between two others, most of them by unknown writers, and most files of these that are opened.
MOST_SNAPSHOTS, MOST_FOREIGN, MOST_OPENED = 10_000, 100, 1_000
_VERSION = 3
_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_ROWS = pa.schema([("id", pa.int64()), ("changed", pa.int64()), ("file", pa.int32()), ("position", pa.int64())])


@dataclass(frozen=True)
class LineageSide:
    """Files of one snapshot, described in a schema with lineage.

    ``positions``: by file id, of files of which only these rows count.
    """

    files: Sequence[DataFileDescription]
    positions: Mapping[int, _Numbers]


# --- whether lineage proves anything ---


def proves_equality(table: Table, since: int, until: int | None) -> bool:
    """Return whether rows of two snapshots are equal if their lineage is. ``until`` None: the current one.

    True if ``until`` descends from ``since``, all snapshots between them are retained, and each of them was written by
    an engine that keeps lineage, or added only files whose rows have ids and numbers that no earlier row has.
    """
    if table.metadata.format_version < _VERSION or set(LINEAGE_NAMES) & set(table.schema().column_names):
        return False
    between = _between(table, since, until)
    if between is None:
        return False
    foreign = [snapshot for snapshot in between if not _is_by_keeper(snapshot)]
    begun = table.snapshot_by_id(since)
    first = (begun.sequence_number or 0) if begun else 0
    if len(foreign) > MOST_FOREIGN or any((snapshot.sequence_number or 0) <= first for snapshot in foreign):
        return False
    try:
        files = [_added_files(table, snapshot) for snapshot in foreign]
        if any(each is None for each in files):
            return False
        opened = [file for each in files for file in each or ()]
        if len(opened) > MOST_OPENED:
            return False
        with ThreadPoolExecutor(CORES) as threads:
            return all(threads.map(_has_no_lineage, opened))
    except (OSError, UserError):
        # A file that cannot be read proves nothing. Where it is needed for the rows, reading these fails.
        return False


def _between(table: Table, since: int, until: int | None) -> list[Snapshot] | None:
    """The snapshots after ``since`` up to ``until``; None if they are not one retained line, or too many."""
    snapshot = table.current_snapshot() if until is None else table.snapshot_by_id(until)
    line: list[Snapshot] = []
    while snapshot is not None and len(line) <= MOST_SNAPSHOTS:
        if snapshot.snapshot_id == since:
            return line
        line.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


def _is_by_keeper(snapshot: Snapshot) -> bool:
    operation = snapshot.summary.operation.value if snapshot.summary else ""
    return keeps_lineage(operation, summary_of(snapshot))


def _added_files(table: Table, snapshot: Snapshot) -> list[DataFileDescription] | None:
    """The files that a snapshot added; None if rows of them may have ids or numbers of earlier rows by inheritance."""
    files = known_file_set(table, snapshot.snapshot_id)
    added = files.files.filter(pa.array(files.files["added_snapshot_id"].to_numpy() == snapshot.snapshot_id))
    if not len(added):
        return []
    is_new = added["data_sequence"].to_numpy() == snapshot.sequence_number
    first_ids = added["first_row_id"]
    if snapshot.first_row_id is None or first_ids.null_count or not is_new.all():
        return None
    if int(first_ids.to_numpy().min()) < snapshot.first_row_id:
        return None
    schema = with_lineage(Schema())
    return describe_files(table, files.in_schema(schema), added["file_id"].to_pylist(), with_deletes=False)


def _has_no_lineage(file: DataFileDescription) -> bool:
    """Return whether a file stores no lineage, so that its rows inherit that of a new row."""
    if is_read_whole(file):
        return False
    with open_data_file(file) as opened:
        return all(opened.stored(name) is None for name in LINEAGE_NAMES)


# --- which rows are shared ---


def keep_unshared(before: LineageSide, after: LineageSide, folder: Path) -> tuple[Mapping[int, _Mask], ...] | None:
    """For files of each side, by file id, which of their rows the other side does not have; None if ids are not unique.

    Files that are not named may have any rows. ``folder``: where rows are kept while they are compared.
    """
    sides = tuple(_with_known_rows(side) for side in (before, after))
    rows = sum(file.records for side in sides for file in side.files)
    count = 1 + rows // PART_ROWS
    paths = [[folder / f"lineage-{number}-{part}" for part in range(count)] for number in range(len(sides))]
    for side, places in zip(sides, paths, strict=True):
        _write_parts(side, places)
    masks = tuple({file.file_id: np.zeros(file.records, np.bool_) for file in side.files} for side in sides)
    for pair in zip(*paths, strict=True):
        parts = [_read_part(path) for path in pair]
        if any(_has_repeated_ids(part) for part in parts):
            return None
        for part, other, kept in zip(parts, reversed(parts), masks, strict=True):
            _mark_unshared(part, other, kept)
    return masks


def _with_known_rows(side: LineageSide) -> LineageSide:
    """The side without files whose live rows only their values show."""
    known = [file for file in side.files if all(delete.content == POSITION_CONTENT for delete in file.deletes)]
    return LineageSide(known, side.positions)


def _write_parts(side: LineageSide, paths: Sequence[Path]) -> None:
    """Write the lineage of rows to a file for each part: equal ids to the same one."""
    with ExitStack() as stack:
        parts = [stack.enter_context(pa.ipc.new_file(str(path), _ROWS)) for path in paths]
        for rows in _lineage_of(side):
            ids = rows["id"].fill_null(-1).to_numpy() % len(parts)
            for part in np.unique(ids):
                parts[part].write_batch(rows if len(parts) == 1 else rows.filter(pa.array(ids == part)))


def _lineage_of(side: LineageSide) -> Iterator[pa.RecordBatch]:
    for file in side.files:
        positions = side.positions.get(file.file_id)
        if positions is not None and not len(positions):
            continue
        for batch in read_data_file(file, (*LINEAGE_NAMES, POSITION_COLUMN), None, positions):
            columns = {name: batch[name] for name in batch.schema.names}
            ordinals = pa.array(np.full(batch.num_rows, file.file_id, np.int32))
            arrays = [columns[ROW_ID_NAME], columns[LAST_UPDATED_NAME], ordinals, columns[POSITION_COLUMN]]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


@dataclass(frozen=True)
class _Part:
    """Lineage of rows, sorted by id; ``ids`` is -1 where a row has none."""

    ids: _Numbers
    changed: _Numbers
    files: npt.NDArray[np.int32]
    positions: _Numbers


def _read_part(path: Path) -> _Part:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        rows = file.read_all()
    filled = (rows.column(name).fill_null(-1).to_numpy() for name in rows.column_names)
    ids, changed, files, positions = filled
    order = np.argsort(ids, kind="stable")
    return _Part(ids[order], changed[order], files[order], positions[order])


def _has_repeated_ids(part: _Part) -> bool:
    known = part.ids[part.ids >= 0]
    return bool((known[1:] == known[:-1]).any())


def _mark_unshared(part: _Part, other: _Part, kept: Mapping[int, _Mask]) -> None:
    """Mark the rows of ``part`` that ``other`` has not, or with another number."""
    places = np.minimum(np.searchsorted(other.ids, part.ids), max(len(other.ids) - 1, 0))
    shared = np.zeros(len(part.ids), np.bool_)
    if len(other.ids):
        shared = (part.ids >= 0) & (other.ids[places] == part.ids) & (other.changed[places] == part.changed)
    unshared = np.flatnonzero(~shared)
    order = unshared[np.argsort(part.files[unshared], kind="stable")]
    numbers, starts = np.unique(part.files[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
        kept[number][part.positions[rows]] = True
