"""Finds the two snapshots between which changes are asked for in the metadata of a table.

Called by ``changes``. Must not read files.
"""

from __future__ import annotations

from pyiceberg.table import Table
from skipstone_core.errors import BadSpec
from skipstone_core.history.points import HeadChange, Point, TableTimeline, find_point
from skipstone_core.reasons import Reason

#: The sequence number of a table's first snapshot is this at most; tables of format version 1 number none.
_FIRST_NUMBER = 1


def resolve_since(table: Table, point: Point) -> int | None:
    """The snapshot after which changes are read; None: all rows are new. Raises BadSpec (field ``since``)."""
    return find_point(_timeline(table), point, "since")


def resolve_until(table: Table, point: Point | None) -> int | None:
    """The snapshot up to which changes are read; None: the current one. Raises BadSpec (field ``until``)."""
    if point is None:
        return None
    snapshot_id = find_point(_timeline(table), point, "until")
    if snapshot_id is None:
        message = f"{_name(table)} had no rows at {str(point)!r}: name a point after its first snapshot"
        raise BadSpec(Reason.INVALID_SPEC, message, field="until")
    current = table.current_snapshot()
    # The current one is read in the schema that the table has now, as if nothing was named.
    return None if current is not None and current.snapshot_id == snapshot_id else snapshot_id


def _timeline(table: Table) -> TableTimeline:
    metadata = table.metadata
    firsts = (
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 0) <= _FIRST_NUMBER
    )
    return TableTimeline(
        name=_name(table),
        snapshots=frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots),
        first=next(firsts, None),
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        heads=[HeadChange(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log],
    )


def _name(table: Table) -> str:
    return ".".join(table.name())
