"""What is known of the columns of a feed, over its jobs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone.kernels.partial import pack_bits
from skipstone.runs.merging.memories.sightings import sight
from skipstone.sources.feeds.shapes import ORDER_COLUMN, ORIGIN_COLUMN
from skipstone_core.merging.feeds import KIND_COLUMN, MISSING_COLUMN, READ, UPDATE
from skipstone_core.merging.merges import KEPT_COLUMN
from skipstone_core.merging.sightings import (
    ColumnSightings,
    SeenIn,
    decode_seen,
    encode_seen,
    feed_property,
    judge_columns,
    merged_sightings,
)


def at(**orders: int) -> ColumnSightings:
    return ColumnSightings(**{name: bytes([order]) for name, order in orders.items()})


@pytest.mark.parametrize(
    ("known", "found", "seen", "snapshot_only", "gone"),
    [
        (None, at(read=1, changed_without=2), SeenIn.SNAPSHOT, True, False),  # generated
        (None, at(read=2, changed_without=1), SeenIn.SNAPSHOT, False, False),  # added before the snapshot
        (None, at(read=1, changed=2, changed_without=3), SeenIn.CHANGE, False, False),  # dropped after a change
        (None, at(read=1), SeenIn.SNAPSHOT, False, False),
        (None, at(read=1, read_without=2, changed_without=3), None, False, False),  # a later snapshot lacks it
        (None, at(read_without=1, read=2, changed_without=3), SeenIn.SNAPSHOT, True, False),
        (None, at(changed_without=1), None, False, False),  # never there
        (SeenIn.SNAPSHOT, at(changed_without=1), SeenIn.SNAPSHOT, True, True),
        (SeenIn.SNAPSHOT, at(changed=1, changed_without=2), SeenIn.CHANGE, False, False),
        (SeenIn.SNAPSHOT, at(read_without=1, changed_without=2), None, False, True),
        (SeenIn.CHANGE, at(changed_without=1), SeenIn.CHANGE, False, True),
        (SeenIn.CHANGE, at(read=1, changed_without=2), SeenIn.CHANGE, False, False),
        (SeenIn.CHANGE, at(read_without=1), SeenIn.CHANGE, False, True),
    ],
)
def test_a_column_is_judged_by_what_was_and_what_is(
    known: SeenIn | None, found: ColumnSightings, seen: SeenIn | None, snapshot_only: bool, gone: bool
) -> None:
    judged = judge_columns({} if known is None else {"x": known}, {"x": found})
    assert (judged.seen.get("x"), judged.snapshot_only, judged.gone) == (
        seen,
        ("x",) if snapshot_only else (),
        ("x",) if gone else (),
    )
    declared = judge_columns({} if known is None else {"x": known}, {"x": found}, {"x"})
    assert (declared.seen, declared.snapshot_only, declared.gone) == ({"x": SeenIn.SNAPSHOT}, (), ())


@given(
    st.lists(st.tuples(st.sampled_from(["read", "read_without", "changed", "changed_without"]), st.integers(0, 255)))
)
def test_sightings_add_up_in_any_order(found: list[tuple[str, int]]) -> None:
    parts = [{"x": at(**{name: order})} for name, order in found]
    assert merged_sightings(parts) == merged_sightings(reversed(parts))


WRITES = st.lists(
    st.tuples(st.sampled_from([None, READ, UPDATE]), st.lists(st.sampled_from("hlu"), min_size=2, max_size=2)),
    max_size=8,
)


@given(WRITES)
def test_the_last_writes_with_a_column_and_without_it_are_found(writes: list[tuple[str | None, list[str]]]) -> None:
    """A column is there (h), leaves its value out (u) or lacks (l)."""
    told = np.array([states for _, states in writes]).reshape(len(writes), 2)
    table = pa.table(
        {
            KEPT_COLUMN: pack_bits(told != "h"),
            MISSING_COLUMN: pack_bits(told == "u"),
            KIND_COLUMN: pa.array([kind for kind, _ in writes], pa.string()),
            ORDER_COLUMN: pa.array([bytes([n]) * 20 for n in range(len(writes))], pa.binary()),
            ORIGIN_COLUMN: pa.array(["x"] * len(writes), pa.string()),
        }
    )
    expected = {
        name: merged_sightings([{name: seen(kind, states[at], n)} for n, (kind, states) in enumerate(writes)])[name]
        for at, name in enumerate("ab" if writes else "")
    }
    assert sight(table, ["a", "b"]) == expected


def seen(kind: str | None, state: str, number: int) -> ColumnSightings:
    name = ("read" if kind == READ else "changed") + ("_without" if state == "l" else "")
    return ColumnSightings(**{name: bytes([number]) * 20})


@given(st.dictionaries(st.integers(1, 3000), st.sampled_from(list(SeenIn))), st.text())
def test_a_table_remembers_them(seen: dict[int, SeenIn], feed: str) -> None:
    assert decode_seen(encode_seen(feed, seen)) == seen


@pytest.mark.parametrize("text", [None, "", "x", "[]", '{"change": "a-b"}', '{"change": {"1": 2}}', '{"change": 7}'])
def test_what_anybody_wrote_is_not_believed_and_breaks_nothing(text: str | None) -> None:
    assert set(decode_seen(text)) <= {7}


def test_a_property_is_of_one_feed() -> None:
    assert feed_property("d.public.orders") != feed_property("d.public.lines")
    assert len(encode_seen("d", dict.fromkeys(range(1, 2000), SeenIn.CHANGE))) < 100, "spans of ids"
