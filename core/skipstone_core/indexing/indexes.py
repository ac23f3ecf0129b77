"""The rules of indexes: what an index is of, what it covers, what to build and what to merge next.

Used by the data plane's build, coverage and query. Coverage is by file, never by segment: a file is covered when the
index holds exactly that file (path, size, records). Must not know how entries are stored or read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from skipstone_core.contract.indextypes import NO_PARAMETERS, IndexParameters, IndexType
from skipstone_core.contract.stores import StoreType
from skipstone_core.ids import canonical_hash
from skipstone_core.indexing.snapshots import FileIdentity

#: Version of the layout of index tables; part of every definition hash, so a new layout is a new index.
LAYOUT_VERSION = 1
MAX_INDEX_COLUMNS = 32
MAX_INCLUDED_COLUMNS = 32
#: A sorted run is spread over buckets when it has so many rows for each: smaller files cost more than they save.
ROWS_PER_BUCKET = 2048
#: So many sorted runs of about the same size are merged into one; a power of two.
MERGE_FAN_IN = 8
#: Rows of files that no snapshot holds any more are dropped when they are this part of all rows, or more.
STALE_PART_TO_PURGE = 0.25


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """One column of an index: the field id in the table's schema and the type in which values are stored."""

    field_id: int
    storage_type: str


@dataclass(frozen=True)
class IndexDefinition:
    """The columns of an index. Names are not part of it: renaming a column keeps the index.

    ``columns``: the keys, by which entries are sorted. ``included``: values that entries hold besides, each column once
    and none that is a key. ``parameters``: those of its type. ``store``: the type of the store outside the index table
    that holds its entries, None: they are in it. Storage types are wide (every integer is a ``long``,
    every float too, in an order-preserving form as a key and as a ``double`` of its own bits as an included value), so
    widening a column keeps the index as well.
    """

    columns: tuple[IndexColumn, ...]
    included: tuple[IndexColumn, ...] = ()
    parameters: IndexParameters = NO_PARAMETERS
    store: StoreType | None = None

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits; readers ignore an index table whose digest is not this.

        What a definition does not have is left out of it, so an addition to definitions keeps the indexes that are
        without.
        """
        described: dict[str, object] = {"layout": LAYOUT_VERSION, "columns": _described(self.columns)}
        if self.included:
            described["include"] = _described(self.included)
        if self.store is not None:
            described["store"] = self.store.value
        return canonical_hash({**described, **self.parameters.given})

    @property
    def type(self) -> IndexType:
        """The type of the index."""
        return self.parameters.type

    @property
    def buckets(self) -> int:
        """How many buckets the entries are divided into; 0: they are not."""
        return self.parameters.buckets or 0

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Field ids of the keys in index order."""
        return tuple(column.field_id for column in self.columns)

    @property
    def key_storages(self) -> tuple[str, ...]:
        """Storage types of the keys in index order."""
        return tuple(column.storage_type for column in self.columns)


def _described(columns: Iterable[IndexColumn]) -> list[list[object]]:
    return [[column.field_id, column.storage_type] for column in columns]


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
    for segment in segments:
        if not segment.is_synced:
            return last
        last = segment.segment
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

    ``level``: how many merges its entries went through; 0 is what a build wrote, a run per file. ``part`` tells runs of
    one commit (``sequence``) apart.
    """

    level: int
    sequence: int
    part: int
    rows: int

    @property
    def tier(self) -> int:
        """Runs of a tier differ in rows by less than the fan-in of a merge."""
        return (max(self.rows, 1).bit_length() - 1) // (MERGE_FAN_IN.bit_length() - 1)


def plan_run_merge(runs: Iterable[SortedRun]) -> tuple[SortedRun, ...]:
    """The runs to merge next into one; empty when no tier has ``MERGE_FAN_IN`` of them.

    The lowest full tier goes first and is merged whole. What it becomes is of a higher tier, so an entry is written at
    most once per tier: the cost of a segment does not grow with the number of segments, only with its logarithm, and
    small runs never cause large ones to be written again. A build that writes fewer than ``MERGE_FAN_IN`` large runs
    has written each of their entries for good. (Size-tiered merging of a log-structured merge tree.)
    """
    tiers: defaultdict[int, list[SortedRun]] = defaultdict(list)
    for run in runs:
        tiers[run.tier].append(run)
    full = [tier for tier, members in tiers.items() if len(members) >= MERGE_FAN_IN]
    return tuple(sorted(tiers[min(full)], key=lambda run: (run.sequence, run.level, run.part))) if full else ()


def is_spread(rows: int, all_rows: int, buckets: int) -> bool:
    """Return whether a run of so many rows goes to a file per bucket; ``all_rows``: of the index, these included.

    A small run is one file for all buckets, as a commit of a few rows must not write hundreds of files. Its rows are
    few beside the others, or there are so few at all that the files of the whole index are counted in runs.
    """
    return rows >= buckets * ROWS_PER_BUCKET or rows * MERGE_FAN_IN >= all_rows


def is_purge_worthwhile(stale_rows: int, all_rows: int) -> bool:
    """Return whether so many entries belong to files of no snapshot that rewriting the index without them pays."""
    return stale_rows > 0 and stale_rows >= STALE_PART_TO_PURGE * all_rows
