"""Which columns a change feed has, over time: in rows that snapshots read, and in changes.

A stored generated column of PostgreSQL is in the former only; a column that was dropped or renamed is in neither any
more. Snapshots and changes arrive in different jobs, so the table remembers what its feeds had. Called by the merge run
for each feed. Pure. Must not know messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.errors import BadData
from skipstone_core.ids import FEED_PROPERTY_PREFIX
from skipstone_core.merging.unused import listed
from skipstone_core.reasons import Reason


class SeenIn(StrEnum):
    """Where a feed has had a column: in rows that snapshots read only, or in changes too."""

    SNAPSHOT = "snapshot"
    CHANGE = "change"


@dataclass(frozen=True, kw_only=True)
class ColumnSightings:
    """The last writes of a feed with a column and without it, by their orders; None: there is none.

    ``read``: by snapshots; ``changed``: by changes.
    """

    read: bytes | None = None
    read_without: bytes | None = None
    changed: bytes | None = None
    changed_without: bytes | None = None

    def plus(self, other: ColumnSightings) -> ColumnSightings:
        """Return both together."""
        return ColumnSightings(
            read=_last(self.read, other.read),
            read_without=_last(self.read_without, other.read_without),
            changed=_last(self.changed, other.changed),
            changed_without=_last(self.changed_without, other.changed_without),
        )

    @property
    def has_value(self) -> bool:
        """Return whether some write has the column."""
        return self.read is not None or self.changed is not None

    @property
    def lacks(self) -> bool:
        """Return whether some write lacks it."""
        return self.read_without is not None or self.changed_without is not None


@dataclass(frozen=True, kw_only=True)
class FeedColumns:
    """What is known of the columns of a feed after a job. ``seen``: to be remembered.

    ``snapshot_only``: changes lack them, although snapshots have them. ``gone``: earlier jobs had them, and no write of
    this one has.
    """

    seen: Mapping[str, SeenIn]
    snapshot_only: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def judge_columns(
    known: Mapping[str, SeenIn], by_name: Mapping[str, ColumnSightings], declared: Collection[str] = ()
) -> FeedColumns:
    """Judge the columns of a feed by what was ``known`` of it and the sightings of a job, ``by_name``.

    ``declared``: those that the spec says are generated, of which messages need not have values.
    """
    seen = {**known, **dict.fromkeys(declared, SeenIn.SNAPSHOT)}
    only, gone = [], []
    for name, sightings in by_name.items():
        if name in declared:
            continue
        state = _state(known.get(name), sightings)
        if state is None:
            seen.pop(name, None)
        else:
            seen[name] = state
        if state is SeenIn.SNAPSHOT and _is_after(sightings.changed_without, sightings.read):
            only.append(name)
        if name in known and not sightings.has_value and sightings.lacks:
            gone.append(name)
    return FeedColumns(seen=seen, snapshot_only=tuple(only), gone=tuple(gone))


def merged_sightings(parts: Iterable[Mapping[str, ColumnSightings]]) -> Mapping[str, ColumnSightings]:
    """Return the sums of ``parts``."""
    sums: dict[str, ColumnSightings] = {}
    for part in parts:
        for name, sightings in part.items():
            sums[name] = sums.get(name, ColumnSightings()).plus(sightings)
    return sums


def undeclared(names: Collection[str]) -> BadData:
    """Return the error for columns that snapshots have and changes do not."""
    first = min(names)
    return BadData(
        Reason.SOURCE_COLUMN_MISSING,
        f"rows of snapshots have {listed(sorted(names))} and changes do not, as of stored generated columns of "
        "PostgreSQL, so that updates would leave old values and new rows have none: set source.generated to the "
        f"expression of each, or to null to leave its values out, such as {{{json.dumps(first, ensure_ascii=False)}: "
        "'null'}; if a column was dropped or renamed in the source, merge a new snapshot of it",
        field="spec.source.generated",
    )


def feed_property(feed: str) -> str:
    """Return the table property that remembers the columns of the source table ``feed``."""
    return f"{FEED_PROPERTY_PREFIX}{hashlib.sha256(feed.encode()).hexdigest()[:12]}"


def encode_seen(feed: str, seen: Mapping[int, SeenIn], gone: Collection[int] = ()) -> str:
    """Return ``seen``, by field id, and those that were ``gone`` last, as the table remembers it."""
    ids = {place.value: _ranges(number for number, where in seen.items() if where is place) for place in SeenIn}
    return json.dumps({"feed": feed, **ids, **({_GONE: _ranges(gone)} if gone else {})}, ensure_ascii=False)


def decode_seen(text: str | None) -> Mapping[int, SeenIn]:
    """Return what ``encode_seen`` wrote; nothing of what cannot be read, as anybody may set properties."""
    try:
        places = json.loads(text or "{}")
        return {number: place for place in SeenIn for number in _numbers(places.get(place.value, ""))}
    except (ValueError, AttributeError):
        return {}


def decode_gone(text: str | None) -> frozenset[int]:
    """Return which columns were gone last, as ``encode_seen`` wrote it; none of what cannot be read."""
    try:
        return frozenset(_numbers(json.loads(text or "{}").get(_GONE, "")))
    except (ValueError, AttributeError):
        return frozenset()


def _state(known: SeenIn | None, sightings: ColumnSightings) -> SeenIn | None:
    if sightings.changed is not None or known is SeenIn.CHANGE:
        return SeenIn.CHANGE
    if sightings.read is None:
        return None if sightings.read_without is not None else known
    return None if _is_after(sightings.read_without, sightings.read) else SeenIn.SNAPSHOT


def _is_after(order: bytes | None, other: bytes | None) -> bool:
    return order is not None and (other is None or order > other)


def _last(first: bytes | None, other: bytes | None) -> bytes | None:
    return max((order for order in (first, other) if order is not None), default=None)


def _ranges(numbers: Iterable[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _numbers(text: str) -> Iterable[int]:
    for part in filter(None, str(text).split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), min(int(last or first), int(first) + _MAX_SPAN) + 1)


_GONE = "gone"
#: Longer spans of field ids are not ours.
_MAX_SPAN = 100_000
