"""Segments: what became of the files that one snapshot added.

A segment is the set of live data files with one file sequence number; its id is that number. Used by the data plane
for the state of a table and of its indexes. Must not read manifests: callers bring the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.contract.reports import SegmentCounts


class SegmentStatus(StrEnum):
    """The state of a segment for readers."""

    VALID = "Valid"
    PARTIAL = "Partial"
    UPDATED = "Updated"
    COMPACTED = "Compacted"
    DELETED = "Deleted"


#: Statuses of segments that still have live files.
LIVE_STATUSES = frozenset({SegmentStatus.VALID, SegmentStatus.PARTIAL, SegmentStatus.UPDATED})


@dataclass(frozen=True, kw_only=True)
class SegmentFacts:
    """The facts about one segment in one snapshot of the table.

    ``added_files`` is what the segment's own snapshot added, None when that snapshot is expired; ``partial`` tells
    that its load redirected or dropped rows; ``rewritten`` that a rewrite moved its rows to another segment.
    """

    segment: int
    live_files: int
    added_files: int | None = None
    has_deletes: bool = False
    partial: bool = False
    rewritten: bool = False


def segment_status(facts: SegmentFacts) -> SegmentStatus:
    """The status of one segment. Partial outweighs Updated: rows that were never loaded are what a user must hear."""
    if facts.live_files == 0:
        return SegmentStatus.COMPACTED if facts.rewritten else SegmentStatus.DELETED
    if facts.partial:
        return SegmentStatus.PARTIAL
    lost_files = facts.added_files is not None and facts.live_files < facts.added_files
    return SegmentStatus.UPDATED if facts.has_deletes or lost_files else SegmentStatus.VALID


def segment_statuses(facts: Iterable[SegmentFacts]) -> dict[int, SegmentStatus]:
    """Statuses by segment id; an id given twice keeps its last facts."""
    return {fact.segment: segment_status(fact) for fact in facts}


def count_segments(statuses: Mapping[int, SegmentStatus]) -> SegmentCounts:
    """How many live segments have which status, and the newest live one."""
    live = {segment: status for segment, status in statuses.items() if status in LIVE_STATUSES}
    by_status = Counter(live.values())
    return SegmentCounts(
        total=len(live),
        valid=by_status[SegmentStatus.VALID],
        partial=by_status[SegmentStatus.PARTIAL],
        updated=by_status[SegmentStatus.UPDATED],
        latest=max(live, default=None),
    )
