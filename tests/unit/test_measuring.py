"""What is measured of each kind while its objects are there, and that nothing is left of them when they are gone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.samples import Sample
from skipstone_core.contract.requests import JobRequest, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.measuring import objects as measured
from skipstone_operator.metrics import Metrics
from skipstone_operator.ports import Key
from skipstone_operator.resources.kinds import KINDS
from skipstone_operator.routing import KEY_KINDS

from tests.unit import objects
from tests.unit.lake_double import Ends
from tests.unit.operator_double import World
from tests.unit.world_cases import EARLIER, condition

Obj = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0


class Bench:
    """Metrics with a clock that stands at noon, an hour after EARLIER."""

    def __init__(self) -> None:
        self.time, self.version = NOON, 0
        self.metrics = Metrics(KEY_KINDS, now=lambda: self.time)

    def see(self, obj: Obj, status: Obj | None = None, **metadata: Any) -> None:
        self.version += 1
        own = {"creationTimestamp": EARLIER, "generation": 1, "resourceVersion": str(self.version), **metadata}
        seen = {**obj, "metadata": {**obj["metadata"], **own}, "status": status or {}}
        self.metrics.seen(seen)

    def value(self, metric: str, /, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"skipstone_{metric}", {"namespace": "lake", **labels})

    def of_objects(self) -> list[Sample]:
        families = self.metrics.registry.collect()
        return [sample for family in families for sample in family.samples if "namespace" in sample.labels]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def conditions(*given: tuple[str, str, str]) -> Obj:
    return {"conditions": [condition(*each) for each in given]}


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        ("Warehouse", objects.warehouse("one")),
        ("Table", objects.table("one")),
        ("SecondaryIndex", objects.index("one")),
        ("MergeSchedule", objects.schedule("one")),
    ],
)
def test_whether_a_resource_is_ready_or_stalled(bench: Bench, kind: str, obj: Obj) -> None:
    place = {"kind": kind, "name": "one"}
    bench.see(obj)
    assert bench.value("resource_ready", **place) == bench.value("resource_stalled", **place) == 0
    bench.see(obj, conditions(("Ready", "True", "Checked")))
    assert bench.value("resource_ready", **place) == 1
    bench.see(obj, conditions(("Ready", "False", "InvalidSpec"), ("Stalled", "True", "InvalidSpec")))
    assert (bench.value("resource_ready", **place), bench.value("resource_stalled", **place)) == (0, 1)


def test_replicas_of_a_planning_server(bench: Bench) -> None:
    def seen() -> list[float | None]:
        families = ("planning_server_replicas", "planning_server_ready_replicas")
        return [bench.value(family, warehouse="one") for family in families]

    bench.see(objects.warehouse("one"))
    assert seen() == [None, None]
    bench.see(objects.warehouse("one"), {"planning": {"url": "http://one", "replicas": 2}})
    assert seen() == [2, 0]
    bench.see(objects.warehouse("one"), {"planning": {"replicas": 2, "readyReplicas": 1}})
    assert seen() == [2, 1]


def test_kept_drivers(bench: Bench) -> None:
    bench.see(objects.warehouse("one"), {"warmDrivers": {"wanted": 2, "ready": 1}})
    assert [bench.value(family, warehouse="one") for family in ("kept_drivers", "kept_drivers_ready")] == [2, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_an_object_that_is_gone(bench: Bench, kind: str) -> None:
    bench.see(MADE[kind], STATUS[kind])
    assert bench.of_objects()
    key = Key(kind, "lake", MADE[kind]["metadata"]["name"])
    bench.metrics.gone(key)
    assert bench.of_objects() == []
    bench.metrics.gone(key)
    bench.metrics.job_committed("lake", "flights", {"rowsLoaded": 4})
    assert bench.of_objects() == []


MADE = {
    "Warehouse": objects.warehouse(),
    "Table": objects.table(),
    "SecondaryIndex": objects.index(),
    "LoadJob": objects.load("jan"),
    "MergeJob": objects.merge("feed"),
    "MergeSchedule": objects.schedule(),
}
DONE = {"step": "Compaction", "run": "r", "done": True, "time": EARLIER}
STATUS: dict[str, Obj] = {
    "Warehouse": {"failedAttempts": 2, "failedObserves": 1, "planning": {"replicas": 2}},
    "Table": {
        "rows": 70,
        "files": 7,
        "bytes": 700,
        "segments": {"total": 3},
        "failedMaintains": 4,
        "health": {"smallFiles": 3, "metadataBytes": 4096},
        "lastMaintenance": [DONE, {**DONE, "step": "Snapshots", "done": False}, {**DONE, "step": "MadeUp"}],
        **conditions(("Ready", "True", "Created"), ("Healthy", "False", "SmallFiles")),
    },
    "SecondaryIndex": {
        "segments": {"missing": 2},
        "rows": {"live": 70, "covered": 50},
        "bytes": 9,
        "lastSyncTime": EARLIER,
        **conditions(("Synced", "False", "SegmentsMissing")),
    },
    "LoadJob": {"completionTime": EARLIER, **conditions(("Failed", "True", "BadRecords"))},
    "MergeJob": {"completionTime": EARLIER, **conditions(("Complete", "True", "Committed"))},
    "MergeSchedule": {"active": 1, "lastSuccessfulTime": EARLIER},
}


def test_a_table_is_measured(bench: Bench) -> None:
    bench.see(MADE["Table"], STATUS["Table"])
    table = {"table": "flights"}
    names = ("rows", "files", "bytes", "segments", "small_files", "metadata_bytes", "snapshots", "healthy")
    assert [bench.value(f"table_{name}", **table) for name in names] == [70, 7, 700, 3, 3, 4096, 0, 0]
    assert bench.value("table_maintained_timestamp_seconds", **table, step="Compaction") == NOON - HOUR
    steps = {sample.labels["step"] for sample in bench.of_objects() if "step" in sample.labels}
    assert steps == {"Compaction"}
    assert bench.value("resource_failed_runs", kind="Table", name="flights") == 4


def test_how_long_a_table_is_unhealthy_outlives_the_operator(bench: Bench) -> None:
    bench.see(MADE["Table"], STATUS["Table"])
    assert bench.value("table_unhealthy_seconds", table="flights") == HOUR
    bench.time += 5
    assert bench.value("table_unhealthy_seconds", table="flights") == HOUR + 5
    bench.see(MADE["Table"], conditions(("Healthy", "True", "Healthy")))
    assert bench.value("table_unhealthy_seconds", table="flights") == 0
    bench.see(MADE["Table"], conditions(("Healthy", "Unknown", "RunIntended")))
    assert bench.value("table_unhealthy_seconds", table="flights") is None


def test_a_table_without_maintenance_has_no_health(bench: Bench) -> None:
    bench.see(MADE["Table"], {"rows": 1, **conditions(("Ready", "True", "Created"))})
    assert bench.value("table_healthy", table="flights") is None
    assert bench.value("table_small_files", table="flights") is None


def test_how_long_an_index_is_behind_grows_with_time_and_ends_with_it(bench: Bench) -> None:
    place = {"index": "by-tail", "catches_up": "true"}
    bench.see(MADE["SecondaryIndex"], STATUS["SecondaryIndex"])
    assert bench.value("index_lag_segments", index="by-tail") == 2
    assert bench.value("index_lag_seconds", **place) == HOUR
    bench.time += 5
    assert bench.value("index_lag_seconds", **place) == HOUR + 5
    assert (bench.value("index_rows", index="by-tail"), bench.value("index_covered_rows", index="by-tail")) == (70, 50)
    bench.see(MADE["SecondaryIndex"], conditions(("Synced", "True", "SegmentsInSync")))
    assert bench.value("index_lag_seconds", **place) == bench.value("index_lag_segments", index="by-tail") == 0


@pytest.mark.parametrize("spec", [{"maintenance": "Manual"}, {"suspend": True}])
def test_an_index_that_nobody_brings_in_sync_says_so(bench: Bench, spec: Obj) -> None:
    bench.see(objects.index(**spec), STATUS["SecondaryIndex"])
    assert bench.value("index_lag_seconds", index="by-tail", catches_up="false") == HOUR
    assert bench.value("index_lag_seconds", index="by-tail", catches_up="true") is None


ON_TIME: Obj = {"observedGeneration": 1, **conditions(("Ready", "True", "Scheduled"), ("Progressing", "False", "Idle"))}
WAITING: Obj = {
    "observedGeneration": 1,
    "nextScheduleTime": "2026-01-01T13:00:00Z",
    **conditions(("Ready", "True", "Scheduled"), ("Progressing", "True", "PreviousJobActive")),
}


@pytest.mark.parametrize(
    ("spec", "status", "delay"),
    [
        ({"cron": "0 * * * *"}, {"lastScheduleTime": "2026-01-01T12:00:00Z"}, 0),
        ({"cron": "50 11 * * *"}, {}, 600),
        # It was due at every minute since: the first of them counts.
        ({"cron": "* * * * *"}, {"lastScheduleTime": "2026-01-01T11:30:00Z"}, 29 * 60),
        ({"cron": "* * * * *"}, {"lastScheduleTime": EARLIER, "lastMissedTime": "2026-01-01T11:58:00Z"}, 60),
        ({"cron": "* * * * *", "suspend": True}, {"lastScheduleTime": EARLIER}, 0),
        ({"cron": "no cron at all"}, {}, 0),
        # The operator wrote when the next time is, and nothing waited then.
        ({"cron": "* * * * *"}, {**ON_TIME, "nextScheduleTime": "2026-01-01T11:50:00Z"}, 600),
        ({"cron": "* * * * *"}, {**ON_TIME, "nextScheduleTime": "2026-01-01T12:01:00Z"}, 0),
        # A time waits for the end of the job before it, so the next one is not the first.
        ({"cron": "0 * * * *"}, {**WAITING, "lastScheduleTime": "2026-01-01T10:00:00Z"}, 3600),
    ],
)
def test_how_late_a_schedule_is(bench: Bench, spec: Obj, status: Obj, delay: float) -> None:
    bench.see(objects.schedule(**spec), status, creationTimestamp="2026-01-01T09:30:00Z")
    assert bench.value("schedule_delay_seconds", schedule="hourly") == delay


def test_a_schedule_is_measured(bench: Bench) -> None:
    bench.see(MADE["MergeSchedule"], STATUS["MergeSchedule"])
    assert bench.value("schedule_active_jobs", schedule="hourly") == 1
    assert bench.value("schedule_last_success_timestamp_seconds", schedule="hourly") == NOON - HOUR


def test_jobs_are_counted_by_table_and_only_what_failed_has_series_of_its_own(bench: Bench) -> None:
    loads = {"kind": "LoadJob", "table": "flights"}
    for number in range(30):
        bench.see(objects.load(f"done-{number}"), STATUS["MergeJob"])
    bench.see(objects.load("late"), {**STATUS["MergeJob"], "completionTime": "2026-01-01T11:30:00Z"})
    bench.see(objects.load("waits"), conditions(("Progressing", "False", "WaitingForTurn")))
    bench.see(objects.load("runs"), {"currentRun": {"launchTime": EARLIER}, "failedAttempts": 2})
    bench.see(objects.load("bad"), STATUS["LoadJob"])
    counted = {
        state: bench.value("jobs", **loads, state=state) for state in ("Waiting", "Running", "Complete", "Failed")
    }
    assert counted == {"Waiting": 1, "Running": 1, "Complete": 31, "Failed": 1}
    assert bench.value("job_last_success_timestamp_seconds", **loads) == NOON - HOUR / 2
    failed = {**loads, "name": "bad", "reason": "BadRecords"}
    assert bench.value("job_failed_timestamp_seconds", **failed) == NOON - HOUR
    assert bench.value("resource_failed_runs", kind="LoadJob", name="runs") == 2
    assert {sample.labels["name"] for sample in bench.of_objects() if "name" in sample.labels} == {"bad", "runs"}


@pytest.mark.parametrize("obj", [objects.load("jan"), objects.merge("feed", dryRun=True), objects.table()])
def test_a_resource_whose_driver_is_stuck_has_a_series_for_as_long_as_that_lasts(bench: Bench, obj: Obj) -> None:
    name = obj["metadata"]["name"]
    bench.see(obj, conditions(("Progressing", "False", "DriverStuck")))
    assert bench.value("resource_driver_stuck", kind=obj["kind"], name=name) == 1
    bench.see(obj, conditions(("Progressing", "True", "DriverRunning")))
    assert "resource_driver_stuck" not in {sample.name.removeprefix("skipstone_") for sample in bench.of_objects()}


def test_reasons_and_numbers_that_users_write_make_no_series_at_will(bench: Bench) -> None:
    status = {**STATUS["LoadJob"], **conditions(("Failed", "True", "WhateverIWant"))}
    bench.see(objects.load("bad"), status)
    failed = {"kind": "LoadJob", "name": "bad", "table": "flights", "reason": "Unrecognized"}
    assert bench.value("job_failed_timestamp_seconds", **failed) == NOON - HOUR
    odd: Obj = {"rows": "many", "segments": [], "health": 7, "conditions": "fine", "lastMaintenance": [3]}
    bench.see(MADE["Table"], odd)
    assert bench.value("table_rows", table="flights") is None
    assert bench.value("resource_ready", kind="Table", name="flights") == 0


def test_the_work_of_jobs_is_counted_by_table_from_zero(bench: Bench) -> None:
    bench.see(MADE["Table"])
    table = {"table": "flights"}
    assert bench.value("merge_rows_total", **table, change="Updated") == 0
    counts = {"rowsUpdated": 5, "rowsDeleted": 1, "filesTotal": 400, "filesPruned": 388}
    for _ in range(2):
        bench.metrics.job_committed("lake", "flights", counts)
    bench.metrics.job_committed("lake", "flights", {"rowsLoaded": 7, "valuesIgnored": 3, "rowsUnmatchedDeletes": 2})
    assert bench.value("merge_unmatched_rows_total", **table, change="Deleted") == 2
    assert bench.value("merge_unmatched_rows_total", **table, change="Updated") == 0
    assert bench.value("ignored_values_total", **table) == 3
    assert bench.value("rejected_rows_total", **table, cause="Waiting") == 0
    bench.metrics.job_committed("lake", "flights", {"rowsRejected": 2, "rowsWaiting": 4})
    assert bench.value("rejected_rows_total", **table, cause="Rejected") == 2
    assert bench.value("rejected_rows_total", **table, cause="Waiting") == 4
    assert bench.value("merge_rows_total", **table, change="Updated") == 10
    assert bench.value("merge_rows_total", **table, change="Inserted") == 0
    assert bench.value("load_rows_total", **table) == 7
    assert (bench.value("merge_files_total", **table), bench.value("merge_pruned_files_total", **table)) == (800, 776)


def test_other_objects_are_not_measured(bench: Bench) -> None:
    bench.see({"kind": "Pod", "metadata": {"name": "p", "namespace": "lake"}})
    assert bench.of_objects() == []


def test_every_job_that_commits_is_counted_once_with_what_it_did() -> None:
    world = World()
    for obj in (objects.claim(), objects.warehouse(), objects.table(), objects.load("jan"), objects.merge("feed")):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("MergeJob", "feed", "Complete") and world.holds("LoadJob", "jan", "Complete"))
    for _ in range(3):
        world.tick()
    assert world.meter.committed["lake/flights"] == 2
    loaded = world.kube.status("LoadJob", "jan").get("rowsLoaded") or 0
    assert world.meter.committed["rowsLoaded"] == loaded
    assert world.meter.failed == []


def test_a_run_that_fails_is_counted_and_one_that_is_lost_is_not() -> None:
    world = World()
    for obj in (objects.claim(), objects.warehouse(), objects.table(), objects.load("jan", backoffLimit=1)):
        world.kube.add(obj)

    def script(request: JobRequest) -> Ends | None:
        return Ends(69, Reason.CATALOG_UNAVAILABLE) if request.kind is RunKind.LOAD else None

    world.lake.script = script
    world.run_until(lambda: world.holds("LoadJob", "jan", "Failed"))
    assert world.meter.failed == [("Load", "CatalogUnavailable")] * 2


def test_one_scrape_and_one_change_cost_as_much_as_there_are_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object is read once, when it changes; a scrape reads none."""
    bench, read, original = Bench(), [], measured.read
    monkeypatch.setattr(measured, "read", lambda obj, now: read.append(1) or original(obj, now))
    for number in range(200):
        bench.see(objects.index(f"i-{number}"), STATUS["SecondaryIndex"])
    assert len(read) == 200
    before = len(bench.of_objects())
    assert before == 200 * len({sample.name for sample in bench.of_objects()})
    assert len(read) == 200
