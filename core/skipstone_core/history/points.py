"""Points of a table's history as people name them: a snapshot, a branch, a tag, a time, or the time before all rows.

Used by readers of changes. Must not read metadata: only snapshots, names and times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from skipstone_core.errors import BadSpec
from skipstone_core.history.tablereads import BEGINNING
from skipstone_core.reasons import Reason

#: A snapshot by its id; a text that is an id, a branch, a tag or a time; a time. 0: before the first snapshot.
Point = int | str | datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
#: Names of branches and tags that a message lists.
_LISTED = 10


class HeadChange(NamedTuple):
    """A snapshot became the current one of the table, at a time in milliseconds since 1970."""

    at_ms: int
    snapshot_id: int


@dataclass(frozen=True, kw_only=True)
class TableTimeline:
    """The history of the table ``name`` as its metadata has it.

    ``snapshots``: the retained ones; ``first``: that of them before which the table had no rows, None if it is not
    known; ``refs``: the snapshots of branches and tags; ``heads``: the table's snapshot log, the oldest entry first.
    """

    name: str
    snapshots: Collection[int]
    first: int | None
    refs: Mapping[str, int]
    heads: Sequence[HeadChange]


def find_point(timeline: TableTimeline, point: Point, field: str) -> int | None:
    """The id of the snapshot at ``point``; None: the time before the first snapshot.

    A text is the id of a retained snapshot, else a branch or a tag, else a time in ISO 8601, in UTC without an offset.
    Raises BadSpec, naming ``field``, when the history has no such point.
    """
    if isinstance(point, datetime):
        return _at_time(timeline, point, str(point), field)
    text = str(point).strip()
    if text == BEGINNING:
        return None
    if text.isascii() and text.isdecimal() and int(text) in timeline.snapshots:
        return int(text)
    if text in timeline.refs:
        return timeline.refs[text]
    moment = None if text.isdecimal() else _parsed(text)
    if moment is None:
        raise _unknown(timeline, text, field)
    return _at_time(timeline, moment, text, field)


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _at_time(timeline: TableTimeline, moment: datetime, text: str, field: str) -> int | None:
    """The snapshot that was current at a time."""
    at_ms = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    # The entries of a log need not be in order: clocks of writers differ. The last one that is not later counts.
    current = [head.snapshot_id for head in timeline.heads if head.at_ms <= at_ms // _MILLISECOND]
    if not current:
        if not timeline.heads or timeline.heads[0].snapshot_id == timeline.first:
            return None
    elif current[-1] in timeline.snapshots:
        return current[-1]
    message = (
        f"the snapshot of {timeline.name} that was current at {text} is not retained: name a later time, or 0 for the "
        "time before the first snapshot"
    )
    raise BadSpec(Reason.INVALID_SPEC, message, field=field)


def _unknown(timeline: TableTimeline, text: str, field: str) -> BadSpec:
    names = sorted(timeline.refs)
    listed = ", ".join(map(repr, names[:_LISTED])) + (" and others" if len(names) > _LISTED else "")
    has = f"; its branches and tags are {listed}" if names else ""
    message = (
        f"{timeline.name} has no snapshot, branch or tag {text!r}, which is not a time either{has}: name one of its "
        "history that has not expired, or a time such as 2026-01-31T08:00:00Z"
    )
    return BadSpec(Reason.INVALID_SPEC, message, field=field)
