"""Which snapshots of a table expire: by age and count on the main branch, by their own settings on other branches.

Used by the data plane's expiry and by a table's health. Pure: the time is given. Must not know files.
The retained ancestors of a branch stay one piece: what is older than the first that expires expires too.

A snapshot of main is as old as the time since it was replaced as the head, by the table's snapshot log: a rollback, or
a branch that is published, makes an old snapshot the head again, and readers begin on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from skipstone_core.maintenance.policies import SnapshotPolicy

MAIN = "main"
#: Milliseconds, later than any that metadata can tell.
_FOR_EVER = 1 << 80


class SnapshotFacts(NamedTuple):
    """One snapshot in the metadata. Times are milliseconds since 1970."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int


class HeadFacts(NamedTuple):
    """An entry of the snapshot log: from when on a snapshot was the head of main, until the time of the next entry."""

    snapshot_id: int
    since_ms: int


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
class HistoryFacts:
    """All that metadata tells of its snapshots. ``log``: the heads of main in their order, as far as it goes back."""

    snapshots: Sequence[SnapshotFacts]
    refs: Sequence[RefFacts] = ()
    log: Sequence[HeadFacts] = ()


@dataclass(frozen=True, kw_only=True)
class ExpiryPlan:
    """``snapshots``: ids to remove, ``refs``: names to remove. ``next_ms``: when the policy next lets one go, or let
    the first of those here go; None: there is none.
    """

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    next_ms: int | None = None


def plan_expiry(
    history: HistoryFacts, policy: SnapshotPolicy, now_ms: int, *, in_use_since_ms: int | None = None
) -> ExpiryPlan:
    """Return the snapshots and refs that expire at ``now_ms``.

    ``in_use_since_ms``: when the oldest run that may read the table began; what was the head of main since then stays.
    Every snapshot that was the head of main within the age of the policy stays. A tag keeps its snapshot, a branch its
    newest ones; both go when they are older than they say themselves. A snapshot that no ref reaches stays while it is
    young.
    """
    facts = _Facts(history, policy)
    over = tuple(ref.name for ref in history.refs if facts.is_over(ref, now_ms))
    holds = facts.holds([ref for ref in history.refs if ref.name not in over])
    used = set() if in_use_since_ms is None else facts.heads_since(in_use_since_ms)
    gone = (snapshot.snapshot_id for snapshot in history.snapshots if holds[snapshot.snapshot_id] < now_ms)
    return ExpiryPlan(
        snapshots=tuple(snapshot_id for snapshot_id in gone if snapshot_id not in used),
        refs=over,
        next_ms=min((until for until in holds.values() if until < _FOR_EVER), default=None),
    )


class _Facts:
    """A history, and when each head of main was replaced."""

    def __init__(self, history: HistoryFacts, policy: SnapshotPolicy) -> None:
        self._snapshots, self._policy = history.snapshots, policy
        self._known = {snapshot.snapshot_id: snapshot for snapshot in history.snapshots}
        self._main = next((ref for ref in history.refs if ref.name == MAIN), None)
        self._ends = self._find_ends(history.log)

    def _find_ends(self, log: Sequence[HeadFacts]) -> Mapping[int, int]:
        """When each snapshot that was the head of main was so last; the head of now is so for ever.

        A log may begin late, and engines need not keep one: what is older on main was the head until its child was.
        """
        named = {entry.snapshot_id for entry in log}
        begin_ms = min((entry.since_ms for entry in log), default=_FOR_EVER)
        line = [self._known[ancestor_id] for ancestor_id in self._chain(self._main.snapshot_id)] if self._main else []
        older = (
            snapshot
            for snapshot in reversed(line)
            if snapshot.snapshot_id not in named and snapshot.timestamp_ms < begin_ms
        )
        entries = [*(HeadFacts(snapshot.snapshot_id, snapshot.timestamp_ms) for snapshot in older), *log]
        if line and entries[-1].snapshot_id != line[0].snapshot_id:
            entries.append(HeadFacts(line[0].snapshot_id, line[0].timestamp_ms))
        ends: dict[int, int] = {}
        for (snapshot_id, since_ms), (_, next_ms) in pairwise(entries):
            end_ms = since_ms if since_ms > next_ms else next_ms  # clocks of writers differ
            known_ms = ends.get(snapshot_id)
            ends[snapshot_id] = end_ms if known_ms is None or end_ms > known_ms else known_ms
        if entries:
            ends[entries[-1].snapshot_id] = _FOR_EVER
        return ends

    def is_over(self, ref: RefFacts, now_ms: int) -> bool:
        """Return whether a ref says itself that it is too old. One whose snapshot is not there is nobody's to judge."""
        if ref.name == MAIN or ref.max_ref_age_ms is None or ref.snapshot_id not in self._known:
            return False
        return now_ms - self._last_ms(ref.snapshot_id) > ref.max_ref_age_ms

    def holds(self, refs: Sequence[RefFacts]) -> Mapping[int, int]:
        """Until when each snapshot stays if these are the refs."""
        holds: dict[int, int] = {}
        for ref in refs:
            for snapshot_id, until_ms in self._held_by(ref):
                holds[snapshot_id] = max(until_ms, holds.get(snapshot_id, until_ms))
        asked, main_age = self._policy.max_age_seconds * 1000, self._main_age
        for snapshot_id, _, timestamp_ms in self._snapshots:
            until_ms = holds.get(snapshot_id, timestamp_ms + asked)
            end_ms = self._ends.get(snapshot_id)
            holds[snapshot_id] = until_ms if end_ms is None else max(until_ms, end_ms + main_age)
        return holds

    def _held_by(self, ref: RefFacts) -> Iterator[tuple[int, int]]:
        """Snapshots that a ref reaches, and until when it keeps each."""
        if not ref.is_branch:
            if ref.snapshot_id in self._known:
                yield ref.snapshot_id, _FOR_EVER
            return
        chain, age, least, until_ms = list(self._chain(ref.snapshot_id)), self._age(ref), self._least(ref), 0
        ends = self._ends if ref.name == MAIN else {}
        for number in range(len(chain) - 1, -1, -1):
            snapshot_id = chain[number]
            time_ms = max(self._known[snapshot_id].timestamp_ms, ends.get(snapshot_id, 0))
            until_ms = max(until_ms, time_ms + age)  # as long as those before it: a branch is one piece
            yield snapshot_id, _FOR_EVER if number < least else until_ms

    def heads_since(self, since_ms: int) -> set[int]:
        """Return the heads of main at that moment or later, and all snapshots of main after the first of them."""
        heads = {snapshot_id for snapshot_id, end_ms in self._ends.items() if end_ms >= since_ms}
        chain = list(self._chain(self._main.snapshot_id)) if self._main else []
        first = max((number for number, snapshot_id in enumerate(chain) if snapshot_id in heads), default=-1)
        return heads.union(chain[: first + 1])

    def _last_ms(self, snapshot_id: int) -> int:
        """From when on a snapshot ages: it was replaced as the head of main, or was made."""
        return max(self._known[snapshot_id].timestamp_ms, self._ends.get(snapshot_id, 0))

    def _chain(self, snapshot_id: int | None) -> Iterator[int]:
        """A snapshot and its ancestors as far as they are retained."""
        while snapshot_id is not None and (snapshot := self._known.get(snapshot_id)) is not None:
            yield snapshot_id
            snapshot_id = snapshot.parent_id

    def _least(self, ref: RefFacts) -> int:
        own = ref.min_snapshots or 1
        return max(own, self._policy.min_to_keep) if ref.name == MAIN else own

    def _age(self, ref: RefFacts) -> int:
        """Milliseconds; main keeps the longer of its own and of the policy's."""
        own, asked = ref.max_snapshot_age_ms, self._policy.max_age_seconds * 1000
        if own is None:
            return asked
        return max(own, asked) if ref.name == MAIN else own

    @property
    def _main_age(self) -> int:
        return self._age(self._main) if self._main else self._policy.max_age_seconds * 1000
