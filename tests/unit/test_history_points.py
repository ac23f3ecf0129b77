"""Points of a table's history: which snapshot a text, a number or a time names, and which name none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from skipstone_core.errors import BadSpec
from skipstone_core.history.points import HeadChange, Point, TableTimeline, find_point

NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
HOUR_MS = 3_600_000


def timeline(**changed: Any) -> TableTimeline:
    known: dict[str, Any] = {
        "name": "ns.t",
        "snapshots": {11, 12, 13},
        "first": 11,
        "refs": {"main": 13, "audit": 12, "2026-01-01": 11, "77": 12},
        "heads": [HeadChange(NOON_MS + at * HOUR_MS, 11 + at) for at in range(3)],
    }
    return TableTimeline(**{**known, **changed})


@pytest.mark.parametrize(
    ("point", "snapshot"),
    [
        (12, 12),
        ("12", 12),
        (" 12 ", 12),
        (0, None),
        ("0", None),
        ("audit", 12),
        ("77", 12),
        ("2026-01-01", 11),
        ("2026-01-01T12:00:00Z", 11),
        ("2026-01-01T13:59:59.999Z", 12),
        ("2026-01-01T14:00:00", 13),
        ("2026-01-01 15:30:00+02:00", 12),
        ("2026-01-01T11:59:59.999999Z", None),
        ("2027-01-01", 13),
        (datetime(2026, 1, 1, 13, tzinfo=UTC), 12),
        (datetime(2026, 1, 1, 13), 12),  # noqa: DTZ001 - without a zone it is UTC
        (datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=-3))), 11),
    ],
)
def test_a_point_names_a_snapshot(point: Point, snapshot: int | None) -> None:
    assert find_point(timeline(), point, "since") == snapshot


def test_after_a_rollback_the_last_entry_that_is_not_later_counts() -> None:
    rolled = timeline(heads=[*timeline().heads, HeadChange(NOON_MS + 3 * HOUR_MS, 11)])
    assert find_point(rolled, "2026-01-01T15:00:00Z", "since") == 11
    assert find_point(rolled, "2026-01-01T14:59:00Z", "since") == 13


@pytest.mark.parametrize(
    ("point", "changed", "says"),
    [
        ("14", {}, "^until: ns.t has no snapshot, branch or tag '14'.*its branches and tags are '2026-01-01', '77'"),
        ("nightly", {"refs": {}}, "has no snapshot, branch or tag 'nightly', which is not a time either: name one of"),
        ("2026-01-01T13:00:00Z", {"snapshots": {11, 13}}, "current at 2026-01-01T13:00:00Z is not retained: name a"),
        ("2026-01-01T11:00:00Z", {"first": None}, "is not retained: name a later time, or 0 for the time before"),
        ("2026-01-01T11:00:00Z", {"heads": [HeadChange(NOON_MS, 12)]}, "is not retained"),
    ],
)
def test_what_is_not_in_the_history_is_refused(point: str, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSpec, match=says):
        find_point(timeline(**changed), point, "until")


def test_a_table_without_snapshots_had_no_rows_at_any_time() -> None:
    empty = timeline(snapshots=set(), first=None, refs={}, heads=[])
    assert find_point(empty, "2026-01-01T11:00:00Z", "since") is None
