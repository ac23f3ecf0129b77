"""The rules of upkeep: when snapshots are due, which manifests are written again, which files are orphans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.errors import ContractViolation
from skipstone_core.maintenance.health import TableHealth, plan_due
from skipstone_core.maintenance.manifests import RADIX, ManifestFacts, plan_manifest_groups
from skipstone_core.maintenance.orphans import FileMark, FoundFile, OrphanRecord, Reached, names_meant, plan_orphans
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy

UID = "11111111-2222-3333-4444-555555555555"


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


def test_manifests_whose_list_lacks_bounds_are_written_again_however_few_and_large() -> None:
    listed = manifests(5000, 20_000_000, 5000)
    assert plan_manifest_groups([listed[0], replace(listed[1], lacks_bounds=True), listed[2]]) == ((1,),)
    assert plan_manifest_groups([listed[0], replace(listed[1], lacks_bounds=True, live=0), listed[2]]) == ()


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


@pytest.mark.parametrize(
    ("location", "meant"),
    [
        ("s3://b/t/data/a#b.parquet", {"a#b.parquet", "a"}),
        ("s3://b/t/data/a?b#c.parquet", {"a?b#c.parquet", "a"}),
        ("/t/data/p=a#b/c.parquet", {"c.parquet", "p=a"}),
        ("/t/data/#c.parquet", {"#c.parquet"}),
        ("file:/t/data/a%23b.parquet", {"a%23b.parquet"}),
    ],
)
def test_what_an_engine_may_mean_by_a_name_is_in_use(location: str, meant: set[str]) -> None:
    assert names_meant(location) == meant
    reached = Reached(frozenset(), names_meant(location))
    files = [found(f"t/elsewhere/{name}") for name in (*sorted(meant), "other", "other#b.parquet")]
    assert [one.path for one in plan_orphans(files, reached, 1, (), ())] == [
        "t/elsewhere/other",
        "t/elsewhere/other#b.parquet",
    ]


def test_a_record_of_orphans_reads_as_it_was_written() -> None:
    record = OrphanRecord(run_id="r-1", marks=(FileMark(path="a/ü \n", size=3, version="7"),))
    assert OrphanRecord.decode(record.encode()) == record
    for torn in (record.encode()[:-4], b"[]", b"{}", b'{"run":1,"files":3}', b'{"run":"r","files":[[1]]}'):
        with pytest.raises(ContractViolation):
            OrphanRecord.decode(torn)
