"""The rules of upkeep: which snapshots expire, which manifests are written again, which files are orphans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import ContractViolation
from skipstone_core.maintenance.expiry import ExpiryPlan, RefFacts, SnapshotFacts, plan_expiry
from skipstone_core.maintenance.health import TableHealth, plan_due
from skipstone_core.maintenance.manifests import RADIX, ManifestFacts, plan_manifest_groups
from skipstone_core.maintenance.orphans import FileMark, FoundFile, OrphanRecord, Reached, plan_orphans
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy

HOUR_MS = 3_600_000
UID = "11111111-2222-3333-4444-555555555555"


def line(*hours: int) -> list[SnapshotFacts]:
    """Snapshots 1, 2, ... one after the other, committed at these hours."""
    return [
        SnapshotFacts(snapshot_id=number, parent_id=number - 1 or None, timestamp_ms=hour * HOUR_MS)
        for number, hour in enumerate(hours, start=1)
    ]


def main_at(snapshot_id: int, **said: int) -> RefFacts:
    return RefFacts(name="main", snapshot_id=snapshot_id, is_branch=True, **said)


def expired(snapshots: list[SnapshotFacts], *refs: RefFacts, hours: int, least: int = 1, at: int = 10) -> ExpiryPlan:
    return plan_expiry(snapshots, refs, SnapshotPolicy(max_age_seconds=hours * 3600, min_to_keep=least), at * HOUR_MS)


def test_snapshots_go_by_age_but_for_the_newest_ones() -> None:
    history = line(1, 2, 3, 8, 9)
    assert expired(history, main_at(5), hours=5).snapshots == (1, 2, 3)
    assert expired(history, main_at(5), hours=5, least=4).snapshots == (1,)
    assert expired(history, main_at(5), hours=0, at=100).snapshots == (1, 2, 3, 4)


def test_a_clock_that_went_back_leaves_no_gap() -> None:
    assert expired(line(1, 9, 2, 9), main_at(4), hours=5).snapshots == (1,)


def test_tags_keep_a_snapshot_and_branches_follow_what_they_say() -> None:
    history = [*line(1, 2, 3, 8, 9), SnapshotFacts(snapshot_id=6, parent_id=2, timestamp_ms=4 * HOUR_MS)]
    tag = RefFacts(name="t", snapshot_id=1, is_branch=False)
    branch = RefFacts(name="b", snapshot_id=6, is_branch=True, min_snapshots=2)
    assert expired(history, main_at(5), tag, branch, hours=5).snapshots == (3,)
    assert expired(history, main_at(5, min_snapshots=3), hours=5).snapshots == (1, 2, 6)
    over = replace(tag, max_ref_age_ms=HOUR_MS)
    plan = expired(history, main_at(5), over, branch, hours=5)
    assert (plan.snapshots, plan.refs) == ((1, 3), ("t",))


def test_what_was_the_head_since_a_run_began_stays() -> None:
    policy = SnapshotPolicy(max_age_seconds=0)
    history = line(1, 2, 5, 9)
    for since, gone in ((10, (1, 2, 3)), (6, (1, 2)), (5, (1,)), (1, ())):
        plan = plan_expiry(history, [main_at(4)], policy, 20 * HOUR_MS, in_use_since_ms=since * HOUR_MS)
        assert plan.snapshots == gone


def test_snapshots_that_no_ref_reaches_go_by_age() -> None:
    history = [*line(1, 2), SnapshotFacts(snapshot_id=9, parent_id=1, timestamp_ms=9 * HOUR_MS)]
    assert expired(history, main_at(2), hours=5).snapshots == (1,)
    assert expired(history, main_at(2), hours=5, at=20).snapshots == (1, 9)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 30), st.integers(1, 5), st.integers(50, 90)
)
def test_the_head_stays_and_what_stays_is_one_piece(hours: list[int], age: int, least: int, at: int) -> None:
    history = line(*sorted(hours))
    plan = expired(history, main_at(len(hours)), hours=age, least=least, at=at)
    assert plan.snapshots == tuple(range(1, len(plan.snapshots) + 1))
    assert len(hours) - len(plan.snapshots) >= min(least, len(hours))
    if plan.next_ms is not None and plan.next_ms > at * HOUR_MS:
        assert plan.snapshots == ()


def test_a_table_with_many_snapshots_waits_until_many_may_go() -> None:
    policy = MaintenancePolicy(snapshots=SnapshotPolicy(max_age_seconds=3600))
    for snapshots, expirable, due in ((50, 9, False), (50, 10, True), (500, 49, False), (500, 50, True)):
        health = TableHealth(snapshots=snapshots, expirable_snapshots=expirable)
        assert (MaintenanceStep.SNAPSHOTS in plan_due(policy, health, {}, 0.0)) is due


def manifests(*sizes: int) -> list[ManifestFacts]:
    return [ManifestFacts(number=at, kind=0, size=size, live=1, gone=0) for at, size in enumerate(sizes)]


def test_manifests_of_one_kind_become_one_when_a_tier_is_full() -> None:
    assert plan_manifest_groups(manifests(*[5000] * (RADIX - 1))) == ()
    assert plan_manifest_groups(manifests(*[5000] * RADIX)) == (tuple(range(RADIX)),)
    assert plan_manifest_groups(manifests(*[100_000] * (RADIX - 1), *[5000] * RADIX)) == (tuple(range(2 * RADIX - 1)),)
    assert plan_manifest_groups(manifests(*[100_000] * (RADIX - 2), *[5000] * RADIX)) == (
        tuple(range(RADIX - 2, 2 * RADIX - 2)),
    )
    assert plan_manifest_groups(manifests(*[6_000_000] * 20)) == ()
    mixed = [replace(one, kind=one.number % 2) for one in manifests(*[5000] * (2 * RADIX - 2))]
    assert plan_manifest_groups(mixed) == ()


@given(st.integers(1, 400))
def test_a_table_with_a_commit_a_minute_has_few_manifests_and_writes_each_entry_few_times(commits: int) -> None:
    size, listed, written = 1200, list[int](), 0
    for _ in range(commits):
        listed.append(size)
        for group in plan_manifest_groups(manifests(*listed)):
            total = sum(listed[at] for at in group)
            listed = [one for at, one in enumerate(listed) if at not in group] + [total]
            written += total
    tiers = 1 + len(f"{commits // RADIX:b}") // 3
    assert len(listed) < RADIX * (tiers + 1)
    assert written <= commits * size * (commits // RADIX + 1 if commits < 13 * RADIX else 16)


def found(path: str, touched_ms: int = 0, size: int = 1) -> FoundFile:
    return FoundFile(mark=FileMark(path=path, size=size, version="v"), touched_ms=touched_ms)


def test_orphans_are_old_unnamed_and_of_no_run_that_goes_on() -> None:
    files = [
        found("ns/t/data/named.parquet"),
        found("ns/t/data/p=1/elsewhere.parquet"),
        found("ns/t/data/young.parquet", touched_ms=100),
        found("ns/t/data/11111111-abcdef01-2-0-x.parquet"),
        found("ns/t/data/99999999-abcdef01-1-0-x.parquet"),
        found("ns/t/data/22222222-abcdef01-1-0-x.parquet"),
        found("ns/t/metadata/version-hint.text"),
        found("ns/t/data/left.parquet"),
        found("ns/t/data/.named.parquet.crc"),
        found("ns/t/data/.left.parquet.crc"),
    ]
    reached = Reached(frozenset({"ns/t/data/named.parquet"}), frozenset({"named.parquet", "elsewhere.parquet"}))
    orphans = plan_orphans(files, reached, 100, (UID,), ("99999999-abcdef01-1",))
    assert [one.path for one in orphans] == [
        "ns/t/data/.left.parquet.crc",
        "ns/t/data/22222222-abcdef01-1-0-x.parquet",
        "ns/t/data/left.parquet",
    ]


def test_a_record_of_orphans_reads_as_it_was_written() -> None:
    record = OrphanRecord(run_id="r-1", marks=(FileMark(path="a/ü \n", size=3, version="7"),))
    assert OrphanRecord.decode(record.encode()) == record
    for torn in (record.encode()[:-4], b"[]", b"{}", b'{"run":1,"files":3}', b'{"run":"r","files":[[1]]}'):
        with pytest.raises(ContractViolation):
            OrphanRecord.decode(torn)
