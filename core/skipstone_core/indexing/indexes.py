"""The rules of lookup indexes: what an index is of, what it covers, what to build and what to merge next.

Used by the data plane's build, coverage and query. Coverage is by file, never by segment: a file is covered when the
index holds exactly that file (path, size, records). Must not know how entries are stored or read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from skipstone_core.ids import canonical_hash
from skipstone_core.indexing.snapshots import FileIdentity

#: Version of the layout of index tables; part of every definition hash, so a new layout is a new index.
LAYOUT_VERSION = 1
MAX_INDEX_COLUMNS = 32
#: So many sorted runs of one level are merged into one run of the next level.
MERGE_FAN_IN = 8
#: Rows of files that no snapshot holds any more are dropped when they are this part of all rows, or more.
STALE_PART_TO_PURGE = 0.25


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """One key column: the field id in the table's schema and the type in which keys are stored."""

    field_id: int
    storage_type: str


@dataclass(frozen=True)
class IndexDefinition:
    """What an index is of. Names are not part of it: renaming a column keeps the index.

    Storage types are wide (every integer is a ``long``, every float too, in an order-preserving form), so widening
    a column keeps the index as well.
    """

    columns: tuple[IndexColumn, ...]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits; readers ignore an index table whose digest is not this."""
        columns = [[column.field_id, column.storage_type] for column in self.columns]
        return canonical_hash({"layout": LAYOUT_VERSION, "columns": columns})

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Field ids in index order."""
        return tuple(column.field_id for column in self.columns)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the pinned snapshot. ``added_snapshot_id`` splits segment 0 of format v1 tables."""

    identity: FileIdentity
    segment: int
    added_snapshot_id: int


@dataclass(frozen=True, slots=True)
class SegmentSync:
    """Whether an index covers all live files of a segment."""

    segment: int
    is_synced: bool


def synced_up_to(segments: Iterable[SegmentSync]) -> int:
    """The last segment before the first that is not synced, of segments in ascending order; 0 for none."""
    last = 0
    for one in segments:
        if not one.is_synced:
            return last
        last = one.segment
    return last


@dataclass(frozen=True, slots=True)
class BuildUnit:
    """Files that one index commit enters: the missing ones of a segment, or of one snapshot within segment 0."""

    segment: int
    added_snapshot_id: int | None
    files: tuple[FileIdentity, ...]


def plan_builds(
    live: Iterable[LiveFile], covered: Iterable[FileIdentity], max_segments: int | None
) -> tuple[BuildUnit, ...]:
    """The units that bring an index in sync, oldest first; ``max_segments`` bounds them (None: all).

    Each missing file is in exactly one unit, so a run that stops between two commits loses only the unit in progress.
    """
    held = frozenset(covered)
    units: defaultdict[tuple[int, int], list[FileIdentity]] = defaultdict(list)
    for file in live:
        if file.identity not in held:
            units[build_unit_key(file.segment, file.added_snapshot_id)].append(file.identity)
    ordered = [
        BuildUnit(segment, snapshot or None, tuple(units[segment, snapshot])) for segment, snapshot in sorted(units)
    ]
    return tuple(ordered if max_segments is None else ordered[:max_segments])


def build_unit_key(segment: int, added_snapshot_id: int) -> tuple[int, int]:
    """Files with equal keys are built in one commit: by segment, and within segment 0 by snapshot."""
    return (segment, added_snapshot_id if segment == 0 else 0)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Index files that hold entries in key order without overlap.

    ``level`` 0 is what a build wrote, a run per file; ``part`` tells runs of one commit (``sequence``) apart.
    """

    level: int
    sequence: int
    part: int
    rows: int


def plan_run_merge(runs: Iterable[SortedRun]) -> tuple[SortedRun, ...]:
    """The runs to merge next into one run of the next level; empty when no level has ``MERGE_FAN_IN`` of them.

    The lowest full level goes first and is merged whole, so each entry is written once per level: the cost of a
    segment does not grow with the number of segments, only with its logarithm.
    """
    levels: defaultdict[int, list[SortedRun]] = defaultdict(list)
    for run in runs:
        levels[run.level].append(run)
    full = [level for level, members in levels.items() if len(members) >= MERGE_FAN_IN]
    return tuple(sorted(levels[min(full)], key=lambda run: (run.sequence, run.part))) if full else ()


def is_purge_worthwhile(stale_rows: int, all_rows: int) -> bool:
    """Whether so many entries belong to files of no snapshot that rewriting the index without them pays."""
    return stale_rows > 0 and stale_rows >= STALE_PART_TO_PURGE * all_rows
