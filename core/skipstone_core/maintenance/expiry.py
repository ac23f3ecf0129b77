"""Which snapshots of a table expire: by age and count on the main branch, by their own settings on other branches.

Used by the data plane's expiry and by a table's health. Pure: the time is given. Must not know files.
The retained ancestors of a branch stay one piece: what is older than the first that expires expires too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from skipstone_core.maintenance.policies import SnapshotPolicy

MAIN = "main"


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """One snapshot in the metadata. Times are milliseconds since 1970."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int


@dataclass(frozen=True, kw_only=True)
class RefFacts:
    """A branch or a tag. The rest is what it says itself; None: it says nothing."""

    name: str
    snapshot_id: int
    is_branch: bool
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots: int | None = None


@dataclass(frozen=True, kw_only=True)
class ExpiryPlan:
    """``snapshots``: ids to remove, ``refs``: names to remove. ``next_ms``: when the policy next lets one go, or let
    the first of those here go; None: there is none.
    """

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    next_ms: int | None = None


def plan_expiry(
    snapshots: Sequence[SnapshotFacts],
    refs: Sequence[RefFacts],
    policy: SnapshotPolicy,
    now_ms: int,
    *,
    in_use_since_ms: int | None = None,
) -> ExpiryPlan:
    """What expires at ``now_ms``.

    ``in_use_since_ms``: when the oldest run that may read the table began; what was the head of main since then stays.
    A tag keeps its snapshot, a branch its newest ones; both go when they are older than they say themselves. A
    snapshot that no ref reaches stays while it is young.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    over = tuple(ref.name for ref in refs if _is_over(ref, known, now_ms))
    kept: set[int] = set()
    last_ms: dict[int, int] = {}
    reached: set[int] = set()
    for ref in (ref for ref in refs if ref.name not in over):
        chain = list(_chain(known, ref.snapshot_id)) if ref.is_branch else [ref.snapshot_id]
        reached.update(chain)
        times = [known[one].timestamp_ms for one in chain if one in known]
        in_use = _in_use(times, in_use_since_ms) if ref.name == MAIN else 0
        kept.update(chain[: max(in_use, _young(times, now_ms - _age(ref, policy)), _least(ref, policy))])
        if ref.is_branch:
            for snapshot_id in chain[_least(ref, policy) :]:
                until = known[snapshot_id].timestamp_ms + _age(ref, policy)
                last_ms[snapshot_id] = max(until, last_ms.get(snapshot_id, until))
    age = policy.max_age_seconds * 1000
    for snapshot in snapshots:
        if snapshot.snapshot_id not in reached:
            last_ms[snapshot.snapshot_id] = snapshot.timestamp_ms + age
            if snapshot.timestamp_ms >= now_ms - age:
                kept.add(snapshot.snapshot_id)
    pinned = {ref.snapshot_id for ref in refs if ref.name not in over}
    waits = [until for snapshot_id, until in last_ms.items() if snapshot_id not in pinned]
    gone = tuple(snapshot.snapshot_id for snapshot in snapshots if snapshot.snapshot_id not in kept)
    return ExpiryPlan(snapshots=gone, refs=over, next_ms=min(waits, default=None))


def _is_over(ref: RefFacts, known: Mapping[int, SnapshotFacts], now_ms: int) -> bool:
    """Whether a ref says itself that it is too old. One whose snapshot is not there is nobody's to judge."""
    head = known.get(ref.snapshot_id)
    if ref.name == MAIN or ref.max_ref_age_ms is None or head is None:
        return False
    return now_ms - head.timestamp_ms > ref.max_ref_age_ms


def _chain(known: Mapping[int, SnapshotFacts], snapshot_id: int | None) -> Iterator[int]:
    """A snapshot and its ancestors as far as they are retained."""
    while snapshot_id is not None and (snapshot := known.get(snapshot_id)) is not None:
        yield snapshot_id
        snapshot_id = snapshot.parent_id


def _least(ref: RefFacts, policy: SnapshotPolicy) -> int:
    own = ref.min_snapshots or 1
    return max(own, policy.min_to_keep) if ref.name == MAIN else own


def _age(ref: RefFacts, policy: SnapshotPolicy) -> int:
    """Milliseconds; main keeps the longer of its own and of the policy's."""
    own, asked = ref.max_snapshot_age_ms, policy.max_age_seconds * 1000
    if own is None:
        return asked
    return max(own, asked) if ref.name == MAIN else own


def _young(times: Sequence[int], oldest_ms: int) -> int:
    """How many of a branch's snapshots, newest first, there are up to the last that is young."""
    return max((number + 1 for number, time_ms in enumerate(times) if time_ms >= oldest_ms), default=0)


def _in_use(times: Sequence[int], since_ms: int | None) -> int:
    """How many of them were the head at that moment or later: each until the next one was committed."""
    if since_ms is None:
        return 0
    ended = (time_ms for time_ms in times[:-1])
    return max((number + 1 for number, time_ms in enumerate(ended, start=1) if time_ms >= since_ms), default=1)
