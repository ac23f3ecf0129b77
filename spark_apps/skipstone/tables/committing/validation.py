"""Is a planned change still right on a newer head? Judged over everything committed since the plan.

Used by the commit loop before every swap, because a commit on the head it was just staged on is checked by nobody
else. Errs towards conflict: planning again costs time, a wrong commit costs rows. Must not write.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone_core.history.commits import Conflicted
from skipstone_core.indexing.snapshots import DeleteKind, Pinned
from skipstone_core.reasons import Reason

from skipstone.tables.committing.changes import Guard
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone.tables.records.histories import ancestors


@dataclass(frozen=True)
class Window:
    """The changes between the plan and the head: the head's files and the snapshots in between."""

    head: Table
    files: FileSet
    snapshot_ids: Set[int] = field(default_factory=frozenset)

    def added_files(self) -> tuple[DataFile, ...]:
        """Data files that live at the head and were added since the plan."""
        added = pc.is_in(self.files.files["added_snapshot_id"], pa.array(sorted(self.snapshot_ids), pa.int64()))
        return tuple(self.files.data_file(row) for row in pc.indices_nonzero(added).to_pylist())


def find_shape_conflict(table: Table, pinned: Pinned) -> Conflicted | None:
    """Table, schema or default partition spec are not those that the change was planned on."""
    name = ".".join(table.name())
    if str(table.metadata.table_uuid) != pinned.table_uuid:
        return Conflicted(Reason.TABLE_REPLACED, f"{name} was replaced by another table during the run.")
    if table.schema().schema_id != pinned.schema_id:
        return plan_again(f"the schema of {name} changed")
    if table.spec().spec_id != pinned.spec_id:
        return plan_again(f"the partitioning of {name} changed")
    if table.metadata.format_version != pinned.format_version:
        return plan_again(f"the format version of {name} changed")
    return plan_again(f"rows of {name} got ids, which they have to keep") if _began_lineage(table, pinned) else None


def find_conflict(
    table: Table, pinned: Pinned, relied_on: tuple[DataFile, ...], guard: Guard | None, *, keeps_age: bool = False
) -> Conflicted | None:
    """The first reason why a change planned on ``pinned`` must not be committed on the head of ``table``, or None.

    ``relied_on``: data files of which the change takes rows, or leaves rows alone because of what they say. Without
    the latter, two changes could each keep a row that the other one changes, as neither order of the two would.
    ``keeps_age``: new equality deletes apply to what the change adds, as they would have to what it removes.
    """
    if conflict := find_shape_conflict(table, pinned):
        return conflict
    head = table.current_snapshot()
    if (head.snapshot_id if head else None) == pinned.snapshot_id or not (relied_on or guard):
        return None
    window = window_since(table, pinned)
    if window is None:
        return rolled_back()
    return _relied_on_conflict(window, relied_on, keeps_age=keeps_age) or _added_conflict(window, guard)


def find_conflicts(
    table: Table, pinned: Pinned, parts: Sequence[tuple[DataFile, ...]], *, keeps_age: bool
) -> list[Conflicted | None]:
    """As ``find_conflict``, for each of several parts of a change, by what it relies on."""
    head = table.current_snapshot()
    shape = find_shape_conflict(table, pinned)
    if shape or (head.snapshot_id if head else None) == pinned.snapshot_id:
        return [shape for _ in parts]
    window = window_since(table, pinned)
    if window is None:
        return [rolled_back() for _ in parts]
    return [_relied_on_conflict(window, part, keeps_age=keeps_age) for part in parts]


def window_since(table: Table, pinned: Pinned) -> Window | None:
    """Return the changes since the plan; None when the head does not descend from the plan's snapshot."""
    files = read_file_set(table)
    between = _snapshots_since(table, pinned.snapshot_id, files)
    return None if between is None else Window(table, files, between)


def rolled_back() -> Conflicted:
    """Return the conflict of a head that does not descend from the plan's snapshot."""
    return plan_again("the table was rolled back or the planned snapshot expired")


def _began_lineage(table: Table, pinned: Pinned) -> bool:
    """Return whether the first commit after an upgrade to format 3 came in between: planned rows have no ids yet."""
    before = None if pinned.snapshot_id is None else table.snapshot_by_id(pinned.snapshot_id)
    head = table.current_snapshot()
    return bool(before and head and before.first_row_id is None and head.first_row_id is not None)


def _snapshots_since(table: Table, pinned: int | None, files: FileSet) -> frozenset[int] | None:
    """Ids of the snapshots after ``pinned`` up to the head; None when the head does not descend from it.

    Since an empty table everything is new, also what was added by snapshots that are retained no more.
    """
    if pinned is None:
        return frozenset(files.files["added_snapshot_id"].to_pylist())
    ids: set[int] = set()
    for snapshot in ancestors(table):
        if snapshot.snapshot_id == pinned:
            return frozenset(ids)
        ids.add(snapshot.snapshot_id)
    return None


def _relied_on_conflict(window: Window, relied_on: tuple[DataFile, ...], *, keeps_age: bool) -> Conflicted | None:
    if not relied_on:
        return None
    paths = pa.array([file.file_path for file in relied_on], pa.string())
    rows = pc.index_in(paths, window.files.files["path"].combine_chunks())
    if rows.null_count:
        gone = paths.filter(pc.is_null(rows))[0].as_py()
        return plan_again(f"{gone} was removed by another writer")
    for delete in window.files.delete_files if not keeps_age else ():
        if delete.kind is DeleteKind.EQUALITY and delete.added_snapshot_id in window.snapshot_ids:
            return plan_again(f"another writer added the equality delete {delete.file.file_path}")
    return _new_delete_conflict(window, rows.to_pylist())


def _new_delete_conflict(window: Window, rows: list[int]) -> Conflicted | None:
    if not any(delete.added_snapshot_id in window.snapshot_ids for delete in window.files.delete_files):
        return None
    for row in rows:
        for delete in window.files.applying_deletes(row):
            is_judged = delete.kind is DeleteKind.EQUALITY  # those that void a change were looked for before
            if delete.added_snapshot_id in window.snapshot_ids and not is_judged:
                return plan_again(f"another writer deleted rows of {window.files.files['path'][row].as_py()}")
    return None


def _added_conflict(window: Window, guard: Guard | None) -> Conflicted | None:
    if guard is None:
        return None
    added = window.added_files()
    message = guard(window.head, added) if added else None
    return plan_again(message) if message else None


def plan_again(message: str) -> Conflicted:
    """Return the conflict after which a run plans again; ``message``: a clause that says what happened."""
    return Conflicted(Reason.CONFLICTED, f"Since the run planned its change, {message}.")
