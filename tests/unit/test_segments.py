"""Segment statuses: every way a segment can end up, and the counts of a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.indexing.segments import (
    LIVE_STATUSES,
    SegmentFacts,
    SegmentStatus,
    count_segments,
    segment_status,
    segment_statuses,
)


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (SegmentFacts(segment=1, live_files=2, added_files=2), SegmentStatus.VALID),
        (SegmentFacts(segment=1, live_files=2, added_files=None), SegmentStatus.VALID),
        (SegmentFacts(segment=1, live_files=1, added_files=2), SegmentStatus.UPDATED),
        (SegmentFacts(segment=1, live_files=2, added_files=2, has_deletes=True), SegmentStatus.UPDATED),
        (SegmentFacts(segment=1, live_files=2, added_files=2, partial=True), SegmentStatus.PARTIAL),
        (SegmentFacts(segment=1, live_files=1, added_files=2, partial=True, has_deletes=True), SegmentStatus.PARTIAL),
        (SegmentFacts(segment=1, live_files=0, added_files=2), SegmentStatus.DELETED),
        (SegmentFacts(segment=1, live_files=0, added_files=2, rewritten=True), SegmentStatus.COMPACTED),
        (SegmentFacts(segment=1, live_files=0, added_files=2, partial=True), SegmentStatus.DELETED),
    ],
)
def test_a_segment_has_the_status_of_what_became_of_its_files(facts: SegmentFacts, status: SegmentStatus) -> None:
    assert segment_status(facts) is status


def test_counts_leave_out_segments_without_live_files() -> None:
    facts = [
        SegmentFacts(segment=1, live_files=0, rewritten=True),
        SegmentFacts(segment=2, live_files=1, added_files=1),
        SegmentFacts(segment=3, live_files=1, added_files=2),
        SegmentFacts(segment=4, live_files=1, added_files=1, partial=True),
        SegmentFacts(segment=5, live_files=0),
    ]
    counts = count_segments(segment_statuses(facts))
    assert (counts.total, counts.valid, counts.partial, counts.updated, counts.latest) == (3, 1, 1, 1, 4)


def test_a_table_without_segments_has_no_latest_one() -> None:
    assert count_segments({}).latest is None


@given(st.dictionaries(st.integers(0, 50), st.sampled_from(list(SegmentStatus))))
def test_the_counts_by_status_add_up_to_the_total(statuses: dict[int, SegmentStatus]) -> None:
    counts = count_segments(statuses)
    assert counts.valid + counts.partial + counts.updated == counts.total
    assert counts.total == sum(status in LIVE_STATUSES for status in statuses.values())
