"""What a table remembers of the reads of other tables: where the next one begins, and where reads have begun before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import BadData
from skipstone_core.history.tablereads import (
    MAX_READS,
    Appends,
    SourceSnapshot,
    TableRead,
    decode_reads,
    encode_reads,
    find_since,
    is_remembered_whole,
    plan_appends,
    reads_up_to,
)


def read(number: int, start: str = "", table: str = "one") -> TableRead:
    return TableRead(
        number=number, table_uuid=table, snapshot_id=str(number), commit_id="9", sequence_number=number, start=start
    )


def test_a_value_of_from_snapshot_begins_once_however_long_ago() -> None:
    reads: tuple[TableRead, ...] = ()
    for number, start in enumerate(["17", "", "18", *[""] * (MAX_READS + 5)], 1):
        expected = int(start) if start else number - 1
        assert find_since("src", start, reads, "one") == (expected or None)
        reads = decode_reads(encode_reads((read(number, start), *reads)))
    assert len(reads) == MAX_READS
    newest = reads[0].number
    assert [find_since("src", start, reads, "one") for start in ("17", "18", "", "19")] == [newest, newest, newest, 19]


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "", "17", "18"])), max_size=40))
def test_what_is_remembered_of_branches_is_right_or_known_to_be_cut(steps: list[tuple[int, str]]) -> None:
    """Each read follows any of those before it, as jobs on branches do; each history has its own newest read."""
    made: list[TableRead] = []
    histories: list[list[TableRead]] = [[]]
    reads: tuple[TableRead, ...] = ()
    for number, (parent, start) in enumerate(steps, 1):
        before = histories[parent % len(histories)]
        after = before[0].commit_id if before else ""
        made.append(replace(read(number, start), commit_id=f"c{number}", after=after))
        histories.append([made[-1], *before])
        reads = decode_reads(encode_reads((made[-1], *reads)))
    for history in histories:
        known = {each.commit_id for each in history}
        newest = next((each for each in reads if each.commit_id in known), None)
        if newest is None:
            assert not history or not is_remembered_whole(reads)
            continue
        found = tuple(reads_up_to(reads, newest))
        assert newest.commit_id == history[0].commit_id
        assert [each.commit_id for each in found] == [each.commit_id for each in history][: len(found)]
        assert find_since("src", "19", found, "one") == 19
        for begun in ("17", "18"):
            has_begun = any(each.start == begun for each in history)
            assert find_since("src", begun, found, "one") == (newest.number if has_begun else int(begun))


@pytest.mark.parametrize(
    ("start", "has_changes", "way_out"),
    [
        ("", False, "or to 0 to read it whole"),
        ("0", False, "read the whole table by a job"),
        ("", True, "whenNotMatchedBySource"),
    ],
)
def test_another_table_is_refused_by_a_way_out_that_was_not_taken_before(
    start: str, has_changes: bool, way_out: str
) -> None:
    with pytest.raises(BadData, match=way_out):
        find_since("src", start, [read(1, start)], "two", has_changes=has_changes)


def test_deletes_that_take_the_place_of_others_part_the_appends_around_them() -> None:
    snapshots = [
        SourceSnapshot(snapshot_id=1, parent_id=None, operation="append"),
        SourceSnapshot(snapshot_id=2, parent_id=1, operation="append"),
        SourceSnapshot(snapshot_id=3, parent_id=2, operation="overwrite", adds_deletes=True, resolves_deletes=True),
        SourceSnapshot(snapshot_id=4, parent_id=3, operation="append"),
    ]
    known = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    assert plan_appends("src", known, 1, 4) == (Appends(2, frozenset({2})), Appends(4, frozenset({4})))
    known[3] = replace(snapshots[2], resolves_deletes=False)
    with pytest.raises(BadData, match="snapshot 3 of src is not an append"):
        plan_appends("src", known, 1, 4)


def test_appends_that_cannot_be_followed_back_are_refused() -> None:
    known = {
        1: SourceSnapshot(snapshot_id=1, parent_id=None, operation="append"),
        3: SourceSnapshot(snapshot_id=3, parent_id=2, operation="append"),
    }
    with pytest.raises(BadData, match="snapshots in between expired"):
        plan_appends("src", known, 1, 3)
    with pytest.raises(BadData, match="not in the history"):
        plan_appends("src", known, 1, 0)  # the table has no snapshot any more
