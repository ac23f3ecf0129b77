"""Which snapshots expire, and when a table is due for it: by the age of heads, by refs, and for runs that read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.maintenance.expiry import (
    ExpiryPlan,
    HeadFacts,
    HistoryFacts,
    RefFacts,
    SnapshotFacts,
    plan_expiry,
)
from skipstone_core.maintenance.health import TableHealth, plan_due
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy

HOUR_MS = 3_600_000


def line(*hours: int) -> list[SnapshotFacts]:
    """Snapshots 1, 2, ... one after the other, committed at these hours."""
    return [
        SnapshotFacts(snapshot_id=number, parent_id=number - 1 or None, timestamp_ms=hour * HOUR_MS)
        for number, hour in enumerate(hours, start=1)
    ]


def main_at(snapshot_id: int, **said: int) -> RefFacts:
    return RefFacts(name="main", snapshot_id=snapshot_id, is_branch=True, **said)


def heads(*entries: tuple[int, int]) -> list[HeadFacts]:
    """A log: snapshots, and the hours from which they were the head."""
    return [HeadFacts(snapshot_id=snapshot_id, since_ms=hour * HOUR_MS) for snapshot_id, hour in entries]


def expired(
    snapshots: list[SnapshotFacts],
    *refs: RefFacts,
    hours: int,
    least: int = 1,
    at: int = 10,
    log: Sequence[HeadFacts] = (),
) -> ExpiryPlan:
    policy = SnapshotPolicy(max_age_seconds=hours * 3600, min_to_keep=least)
    return plan_expiry(HistoryFacts(snapshots=snapshots, refs=refs, log=log), policy, at * HOUR_MS)


@pytest.mark.parametrize("log", [[], [(1, 1), (2, 2), (3, 3), (4, 8), (5, 9)], [(4, 8), (5, 9)]])
def test_snapshots_age_from_when_they_were_replaced_but_for_the_newest_ones(log: list[tuple[int, int]]) -> None:
    history = line(1, 2, 3, 8, 9)
    assert expired(history, main_at(5), hours=5, log=heads(*log)).snapshots == (1, 2)
    assert expired(history, main_at(5), hours=1, log=heads(*log)).snapshots == (1, 2, 3)
    assert expired(history, main_at(5), hours=5, least=4, log=heads(*log)).snapshots == (1,)
    assert expired(history, main_at(5), hours=0, at=100, log=heads(*log)).snapshots == (1, 2, 3, 4)


def test_a_clock_that_went_back_leaves_no_gap() -> None:
    assert expired(line(1, 2, 9, 3, 10), main_at(5), hours=5).snapshots == (1,)


def test_what_a_rollback_made_the_head_again_ages_from_the_next_commit() -> None:
    # 1 and 2 are old; at 8 the table was rolled back to 1, and at 9 another commit came.
    history = [*line(1, 2, 3), SnapshotFacts(snapshot_id=4, parent_id=1, timestamp_ms=9 * HOUR_MS)]
    log = heads((1, 1), (2, 2), (3, 3), (1, 8), (4, 9))
    assert expired(history, main_at(4), hours=5, log=log).snapshots == (2,)
    assert expired(history, main_at(4), hours=5, log=log, at=14).snapshots == (2, 3)
    assert expired(history, main_at(4), hours=5, log=log, at=15).snapshots == (1, 2, 3)


def test_what_a_published_branch_brought_stays_with_what_it_replaced() -> None:
    # 2 and 3 were committed to a branch, which became main at 9.
    history = line(1, 2, 3, 10)
    log = heads((1, 1), (3, 9), (4, 10))
    assert expired(history, main_at(4), hours=5, at=14, log=log).snapshots == ()
    assert expired(history, main_at(4), hours=5, at=15, log=log).snapshots == (1, 2)
    assert expired(history, main_at(4), hours=5, at=16, log=log).snapshots == (1, 2, 3)


def test_tags_keep_a_snapshot_and_branches_follow_what_they_say() -> None:
    history = [*line(1, 2, 3, 4, 9), SnapshotFacts(snapshot_id=6, parent_id=2, timestamp_ms=4 * HOUR_MS)]
    tag = RefFacts(name="t", snapshot_id=1, is_branch=False)
    branch = RefFacts(name="b", snapshot_id=6, is_branch=True, min_snapshots=2)
    assert expired(history, main_at(5), tag, branch, hours=5).snapshots == (3,)
    assert expired(history, main_at(5, min_snapshots=3), hours=5).snapshots == (1, 2, 6)
    over = replace(tag, max_ref_age_ms=HOUR_MS)
    plan = expired(history, main_at(5), over, branch, hours=5)
    assert (plan.snapshots, plan.refs) == ((1, 3), ("t",))


def test_a_ref_on_a_head_ages_from_when_that_was_replaced() -> None:
    tag = RefFacts(name="t", snapshot_id=1, is_branch=False, max_ref_age_ms=2 * HOUR_MS)
    assert expired(line(1), main_at(1), tag, hours=1).refs == ()
    assert expired(line(1, 8), main_at(2), tag, hours=1).refs == ()
    assert expired(line(1, 8), main_at(2), tag, hours=1, at=11).refs == ("t",)


def test_what_was_the_head_since_a_run_began_stays() -> None:
    policy = SnapshotPolicy(max_age_seconds=0)
    history = HistoryFacts(snapshots=line(1, 2, 5, 9), refs=[main_at(4)])
    for since, gone in ((10, (1, 2, 3)), (6, (1, 2)), (5, (1,)), (1, ())):
        plan = plan_expiry(history, policy, 20 * HOUR_MS, in_use_since_ms=since * HOUR_MS)
        assert plan.snapshots == gone


def test_snapshots_that_no_ref_reaches_go_by_age() -> None:
    history = [*line(1, 2), SnapshotFacts(snapshot_id=9, parent_id=1, timestamp_ms=9 * HOUR_MS)]
    assert expired(history, main_at(2), hours=5).snapshots == (1,)
    assert expired(history, main_at(2), hours=5, at=20).snapshots == (1, 9)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 30), st.integers(1, 5), st.integers(50, 90)
)
def test_the_head_stays_and_what_stays_is_one_piece(hours: list[int], age: int, least: int, at: int) -> None:
    history = line(*hours)
    plan = expired(history, main_at(len(hours)), hours=age, least=least, at=at)
    assert plan.snapshots == tuple(range(1, len(plan.snapshots) + 1))
    assert len(hours) - len(plan.snapshots) >= min(least, len(hours))


@dataclass
class Table:
    """A table that many engines write, and who was the head of main when: kept apart from its log.

    ``cuts_log``: its catalog forgets what the log had before a snapshot that is removed; others forget that only.
    """

    cuts_log: bool
    now: int = 0
    snapshots: dict[int, SnapshotFacts] = field(default_factory=dict)
    refs: dict[str, RefFacts] = field(default_factory=dict)
    log: list[HeadFacts] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        """With one commit."""
        self.set_main(self.add(None))

    def set_main(self, snapshot_id: int) -> None:
        """Main is another snapshot from now on."""
        self.refs["main"] = main_at(snapshot_id)
        self.log.append(HeadFacts(snapshot_id=snapshot_id, since_ms=self.now))
        self.spans.append((snapshot_id, self.now))

    def add(self, parent_id: int | None) -> int:
        """A new snapshot."""
        one = SnapshotFacts(snapshot_id=next(self.ids), parent_id=parent_id, timestamp_ms=self.now)
        self.snapshots[one.snapshot_id] = one
        return one.snapshot_id

    def chosen(self, number: int) -> int:
        """One of the retained snapshots."""
        return sorted(self.snapshots)[number % len(self.snapshots)]

    def do(self, what: str, number: int) -> None:
        """One change; ``number`` chooses what it is about."""
        main, branch = self.refs["main"], self.refs.get("b")
        if what == "commit":
            self.set_main(self.add(main.snapshot_id))
        elif what == "stage":
            self.add(main.snapshot_id)
        elif what == "move":  # a rollback, or a staged snapshot that is published
            self.set_main(self.chosen(number))
        elif what == "branch":
            parent = branch.snapshot_id if branch else self.chosen(number)
            self.refs["b"] = RefFacts(
                name="b", snapshot_id=self.add(parent), is_branch=True, min_snapshots=1 + number % 3
            )
        elif what == "publish" and branch:
            self.set_main(branch.snapshot_id)
            if number % 2:
                del self.refs["b"]
        elif what == "tag":
            self.refs["t"] = RefFacts(
                name="t", snapshot_id=self.chosen(number), is_branch=False, max_ref_age_ms=number * 3
            )

    def facts(self) -> HistoryFacts:
        """As metadata tells it."""
        return HistoryFacts(snapshots=list(self.snapshots.values()), refs=list(self.refs.values()), log=self.log)

    def expire(self, plan: ExpiryPlan) -> None:
        """Remove what goes."""
        gone = set(plan.snapshots)
        for name in plan.refs:
            del self.refs[name]
        kept = [one for one in self.snapshots.values() if one.snapshot_id not in gone]
        self.snapshots = {
            one.snapshot_id: one._replace(parent_id=None if one.parent_id in gone else one.parent_id) for one in kept
        }
        last = max((at for at, entry in enumerate(self.log) if entry.snapshot_id in gone), default=-1)
        begin = last + 1 if self.cuts_log else 0
        self.log = [entry for entry in self.log[begin:] if entry.snapshot_id not in gone]

    def heads_since(self, since: int) -> set[int]:
        """What was the head at that moment or later."""
        ends = [start for _, start in self.spans[1:]] + [self.now]
        return {one for (one, _), end in zip(self.spans, ends, strict=True) if end >= since}


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("commit", "commit", "move", "move", "stage", "branch", "publish", "tag", "expire")),
        st.integers(0, 7),
        st.integers(0, 9),
    ),
    max_size=25,
)


@given(CHANGES, st.integers(0, 20), st.integers(1, 3), st.none() | st.integers(0, 60), st.booleans())
def test_each_head_of_the_last_while_stays_whatever_the_order_of_changes(
    changes: list[tuple[str, int, int]], age: int, least: int, in_use_for: int | None, cuts_log: bool
) -> None:
    table = Table(cuts_log)
    policy = SnapshotPolicy(max_age_seconds=age, min_to_keep=least)
    for what, number, seconds in [*changes, ("expire", 0, 0)]:
        table.now += seconds * 1000
        if what != "expire":
            table.do(what, number)
            continue
        since = None if in_use_for is None else table.now - in_use_for * 1000
        plan = plan_expiry(table.facts(), policy, table.now, in_use_since_ms=since)
        table.expire(plan)
        assert table.heads_since(table.now - age * 1000) <= table.snapshots.keys()
        assert since is None or table.heads_since(since) <= table.snapshots.keys()
        assert all(ref.snapshot_id in table.snapshots for ref in table.refs.values())
        after = plan_expiry(table.facts(), policy, table.now, in_use_since_ms=since)
        assert (after.snapshots, after.refs) == ((), ())


@given(CHANGES, st.integers(0, 20), st.none() | st.integers(0, 60), st.integers(0, 60))
def test_an_expiry_is_due_only_when_it_removes_something(
    changes: list[tuple[str, int, int]], age: int, in_use_for: int | None, late: int
) -> None:
    table = Table(cuts_log=False)
    policy = SnapshotPolicy(max_age_seconds=age)
    for what, number, seconds in changes:
        table.now += seconds * 1000
        table.do(what, number)
    now = table.now + late * 1000
    since = None if in_use_for is None else now - in_use_for * 1000
    seen, done = (plan_expiry(table.facts(), policy, now, in_use_since_ms=used) for used in (None, since))
    assert bool(seen.snapshots) == (seen.next_ms is not None and seen.next_ms < now)
    health = TableHealth(
        snapshots=len(table.snapshots), expirable_snapshots=len(seen.snapshots), next_expiry_ms=seen.next_ms
    )
    due = plan_due(MaintenancePolicy(snapshots=policy), health, {}, (now - 1) / 1000, in_use_since_ms=since)
    assert MaintenanceStep.SNAPSHOTS not in due or done.snapshots
