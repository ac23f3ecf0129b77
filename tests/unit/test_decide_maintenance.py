"""What a table's maintenance needs: the condition Healthy, the window, and what a run may take for left behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from skipstone_core.contract.requests import MaintainTask, RunKind
from skipstone_core.maintenance.health import TableHealth
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_operator.conditions import HEALTHY
from skipstone_operator.ports import EventType
from skipstone_operator.reconcilers.maintenance.due import find_due, in_use_since_ms, unfinished
from skipstone_operator.reconcilers.maintenance.health import count, show
from skipstone_operator.reconcilers.tablestatus import choose_writer
from skipstone_operator.resources.maintenance.spec import Window
from skipstone_operator.worlds.subjects import Finding, TableSubject
from skipstone_operator.worlds.times import CLOCKS
from skipstone_operator.worlds.windows import Opening, find_opening
from skipstone_operator.worlds.worlds import TableWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.table_cases import BEGUN, OLD, queued, written
from tests.unit.world_cases import (
    condition,
    current_run,
    good_table,
    index_world,
    place,
    pod,
    subject,
    table_world,
    written_condition,
)

MAINTENANCE = {
    "resolveEqualityDeletes": {"minFiles": 3},
    "compaction": {},
    "snapshots": {"maxAge": "1h"},
    "orphanFiles": {"policy": "Delete", "olderThan": "24h"},
}
LOOKED = {"lastMaintenance": [{"step": "OrphanFiles", "time": "2026-01-01T11:30:00Z", "run": "r", "done": True}]}


def table(health: dict[str, Any] | None, **status: Any) -> TableSubject:
    known = dict(good_table().raw["status"]) | LOOKED | status
    told = known if health is None else {**known, "health": health}
    found: TableSubject = subject(objects.table(maintenance=MAINTENANCE), told)
    return found


def world(health: dict[str, Any] | None, jobs: tuple[Any, ...] = (), **status: Any) -> TableWorld:
    found = table(health, **status)
    return table_world(found, jobs=jobs, place=place(table=found, indexes=(index_world().index,)))


def told(health: dict[str, Any] | None, **status: Any) -> tuple[tuple[str, str], str]:
    step = written(world(health, **status))
    message = next(c["message"] for c in step.status["conditions"] if c["type"] == HEALTHY)
    return written_condition(step, HEALTHY), message


@pytest.mark.parametrize(
    ("health", "condition", "says"),
    [
        (None, ("Unknown", "RunIntended"), "no run has told yet how the table is"),
        ({"snapshots": 3}, ("True", "Healthy"), "0 small files, 0 delete files, 3 snapshots"),
        ({"smallFiles": 6, "dueFiles": 5}, ("False", "SmallFiles"), "5 files are due for compaction"),
        ({"smallFiles": 1, "deleteFiles": 4, "dueFiles": 2}, ("False", "ManyDeletes"), "2 files are due"),
        ({"deleteFiles": 3, "equalityDeleteFiles": 2}, ("True", "Healthy"), "0 small files, 3 delete files"),
        ({"deleteFiles": 4, "equalityDeleteFiles": 3}, ("False", "ManyDeletes"), "3 equality delete files are due"),
        ({"manifests": 90, "dueManifests": 80}, ("False", "ManyManifests"), "80 of 90 manifests are due"),
        (
            {"manifests": 3, "dueManifests": 1, "manifestsWithoutBounds": 1},
            ("False", "ManifestsWithoutBounds"),
            "the manifest list lacks bounds of 1 of 3 manifests, and other engines skip their files",
        ),
        ({"snapshots": 30, "expirableSnapshots": 12}, ("False", "SnapshotsPending"), "30 snapshots are retained"),
        ({"snapshots": 2, "nextExpiryTime": "2026-01-01T11:54:01Z"}, ("True", "Healthy"), "0 small files"),
        ({"snapshots": 2, "nextExpiryTime": "2026-01-01T11:53:59Z"}, ("False", "SnapshotsPending"), "2 snapshots"),
    ],
)
def test_healthy_says_what_is_due(health: dict[str, Any] | None, condition: tuple[str, str], says: str) -> None:
    found, message = told(health)
    assert found == condition
    assert message.startswith(says)


def test_what_a_maintain_run_ends_by_itself_is_no_warning() -> None:
    well = [{"type": HEALTHY, "status": "True", "reason": "Healthy", "lastTransitionTime": OLD}]
    conditions = [*good_table().raw["status"]["conditions"], *well]
    step = written(world({"smallFiles": 6, "dueFiles": 5}, conditions=conditions))
    assert [(one.reason.value, one.type) for one in step.events if one.reason.value == "SmallFiles"] == [
        ("SmallFiles", EventType.NORMAL)
    ]


def test_orphan_files_wait_for_jobs_that_may_outlive_their_age() -> None:
    late = {"lastMaintenance": []}
    free, begun = world({}, **late), world({}, (queued("a", OLD, BEGUN),), **late)
    slow = world({}, (queued("a", OLD, activeDeadlineSeconds=86_401),), **late)
    quick = world({}, (queued("a", OLD, activeDeadlineSeconds=86_400),), **late)
    found = [find_due(one, one.table, one.table.status) for one in (free, begun, slow, quick) if one.table is not None]
    assert [due.steps for due in found] == [(MaintenanceStep.ORPHAN_FILES,), (), (), (MaintenanceStep.ORPHAN_FILES,)]
    assert "has begun and may still commit" in found[1].held
    assert "activeDeadlineSeconds is longer than spec.maintenance.orphanFiles.olderThan" in found[2].held


def test_a_request_that_is_held_back_waits_and_keeps_nothing_from_being_done() -> None:
    asked = {"annotations": {"skipstone.dev/maintain": "OrphanFiles/1"}}
    told = dict(good_table().raw["status"]) | {"health": {"dueFiles": 5}}
    found: TableSubject = subject(objects.table(maintenance=MAINTENANCE), told, **asked)
    free = table_world(found, place=place(table=found))
    due, held = (find_due(one, found, found.status) for one in (free, replace(free, jobs=(queued("a", OLD, BEGUN),))))
    assert (due.steps, due.request) == ((MaintenanceStep.ORPHAN_FILES,), "OrphanFiles/1")
    assert (held.steps, held.request) == ((MaintenanceStep.COMPACTION,), "")
    assert "has begun and may still commit" in held.held


def test_files_of_unfinished_jobs_and_of_indexes_are_spared() -> None:
    done = {"conditions": [{"type": "Complete", "status": "True", "reason": "x", "lastTransitionTime": OLD}]}
    found = world({}, (queued("a", OLD), queued("b", OLD, done)))
    assert unfinished(found) == ("uid-a", "uid-by-tail")
    assert MaintainTask(policy=find_due(found, table({}), table({}).status).policy, steps=()).spared_owners == ()


def test_what_the_oldest_run_may_still_read_stays() -> None:
    reindex = pod(current_run(RunKind.REINDEX), "uid-by-tail", created=START - timedelta(minutes=5))
    later = pod(current_run(RunKind.OBSERVE), "uid-flights")
    maintain = pod(current_run(RunKind.MAINTAIN), "uid-flights", created=START - timedelta(hours=1))
    over = pod(current_run(RunKind.REINDEX), "uid-by-tail", created=START - timedelta(hours=2), terminal=True)
    since = int((START - timedelta(minutes=5)).timestamp() * 1000)
    assert in_use_since_ms(replace(world({}), pods=(over, maintain, later, reindex))) == since
    assert in_use_since_ms(replace(world({}), pods=(over, maintain))) is None


FOLLOWED = {"table": {"name": "flights"}, "consume": "New"}


def schedule(name: str, source: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A schedule of another table, created an hour ago."""
    template = {"tableRef": {"name": "copy"}, "source": source}
    created = (START - timedelta(hours=1)).isoformat()
    return subject(objects.schedule(name, template=template, **spec), status, creationTimestamp=created)


@pytest.mark.parametrize(
    ("status", "spec", "source", "minutes"),
    [
        ({"lastReadTime": (START - timedelta(minutes=30)).isoformat()}, {}, {}, 30),
        ({}, {}, {}, 60),
        ({"lastReadTime": (START + timedelta(hours=30)).isoformat()}, {}, {}, None),  # that cannot have been
        ({}, {"suspend": True}, {}, None),
        ({}, {}, {"consume": "All"}, None),
        ({}, {}, {"table": {"name": "flights", "ref": "audit"}}, None),
        ({}, {}, {"table": {"name": "flights", "ref": "main"}}, 60),
    ],
)
def test_what_a_schedule_of_another_table_reads_next_stays(
    status: dict[str, Any], spec: dict[str, Any], source: dict[str, Any], minutes: int | None
) -> None:
    reader = schedule("copy", {**FOLLOWED, **source}, status, **spec)
    since = in_use_since_ms(replace(world({}), readers=(reader,)))
    assert since == (None if minutes is None else int((START - timedelta(minutes=minutes) - CLOCKS).timestamp() * 1000))


def test_what_an_unfinished_job_of_another_table_reads_stays() -> None:
    over = {"conditions": [condition("Complete", "True", "Committed")]}
    created = {"creationTimestamp": (START - timedelta(minutes=20)).isoformat()}
    source = {"tableRef": {"name": "copy"}, "source": {"table": {"name": "flights"}}}
    running, done = (
        subject(objects.resource("LoadJob", name, source), status, **created)
        for name, status in (("running", {}), ("done", over))
    )
    since = int((START - timedelta(minutes=20) - CLOCKS).timestamp() * 1000)
    assert in_use_since_ms(replace(world({}), readers=(done, running))) == since
    assert in_use_since_ms(replace(world({}), readers=(done,))) is None


def test_maintenance_is_the_last_to_get_the_place() -> None:
    due = {"smallFiles": 6, "dueFiles": 5}
    free, wanted = world(due), world(due, (queued("a", OLD),))
    names = []
    for one in (free, wanted):
        assert one.table is not None
        writer = choose_writer(one, one.table, one.table.status, change_due=False, maintain_due=True)
        names.append(writer.name if writer is not None else "")
    assert names == ["flights", "a"]


def test_a_health_is_shown_and_counted_again() -> None:
    health = TableHealth(
        small_files=3, snapshots=7, oldest_snapshot_ms=1_767_000_000_000, next_expiry_ms=1_767_000_360_000,
        bytes_by_age={"hour": 10, "older": 20},
    )  # fmt: skip
    shown = show(health, START)
    assert (shown.time, shown.oldest_snapshot_time) == ("2026-01-01T12:00:00Z", "2025-12-29T09:20:00Z")
    assert count(shown) == health
    assert show(TableHealth(next_expiry_ms=(1 << 63) - 1), START).next_expiry_time is not None


@pytest.mark.parametrize(
    ("schedule", "duration", "zone", "open_for", "opens_in"),
    [
        ("0 12 * * *", "1h", "UTC", 60, 24 * 60),
        ("59 11 * * *", "1h", "UTC", 59, 24 * 60 - 1),
        ("0 11 * * *", "1h", "UTC", None, 23 * 60),
        ("0 13 * * *", "90m", "Europe/Berlin", 90, 24 * 60),
        ("0 * * * *", "5h", "UTC", 300, 60),
    ],
)
def test_a_window_is_open_from_its_time_for_its_duration(
    schedule: str, duration: str, zone: str, open_for: int | None, opens_in: int
) -> None:
    found = find_opening(Window(schedule=schedule, duration=duration, time_zone=zone), START)
    closes = None if open_for is None else START + timedelta(minutes=open_for)
    assert found == Opening(closes=closes, opens=START + timedelta(minutes=opens_in))


def test_a_window_in_an_hour_that_the_clocks_skip_opens_right_after() -> None:
    window = Window(schedule="30 2 * * *", duration="30m", time_zone="Europe/Berlin")
    found = find_opening(window, datetime(2026, 3, 29, 1, 0, tzinfo=UTC))
    assert isinstance(found, Opening)
    assert found.closes == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def test_a_window_that_an_older_rule_let_in_is_a_finding() -> None:
    found = find_opening(Window(schedule="@daily", duration="soon"), START)
    assert isinstance(found, Finding)
    assert found.message.startswith("spec.maintenance.window.duration: window.duration must be a time")


def test_an_expiry_waits_for_the_run_that_reads_all_that_is_due() -> None:
    # The first snapshot to go was replaced at 10:40, and is due since 11:46.
    found = world({"snapshots": 30, "expirableSnapshots": 12, "nextExpiryTime": "2026-01-01T11:40:00Z"})
    assert found.table is not None
    since = {minutes: START - timedelta(minutes=minutes) for minutes in (79, 80)}
    for begun, steps in ((since[79], (MaintenanceStep.SNAPSHOTS,)), (since[80], ())):
        reads = pod(current_run(RunKind.REINDEX), "uid-by-tail", created=begun)
        for seen, due in (
            (replace(found, pods=(reads,)), steps),
            (replace(found, pods=()), (MaintenanceStep.SNAPSHOTS,)),
        ):
            assert find_due(seen, found.table, found.table.status).steps == due
    waits = find_due(replace(found, pods=(reads,)), found.table, found.table.status)
    assert waits.wait == 23.5 * 3600  # until orphan files are looked for again
