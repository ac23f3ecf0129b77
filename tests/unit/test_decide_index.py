"""One SecondaryIndex: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import EventType, Refused
from skipstone_operator.reconcilers.index import decide, plan_reindex, refused
from skipstone_operator.reconcilers.indexstatus import covered_percent, format_covered, format_missing
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import Create, Delete, PutFinalizers, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Children
from skipstone_operator.worlds.worlds import IndexWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    condition,
    current_run,
    ended,
    good_table,
    index_state,
    index_world,
    pending,
    place,
    pod,
    report,
    subject,
    synced_index_status,
    table_state,
    underway,
    written_condition,
)

Obj = dict[str, Any]
OWNER = "uid-by-tail"
TYPES = ("Ready", "Synced", "Degraded", "Progressing")


def written(world: IndexWorld) -> PutStatus:
    step = decide(world)
    assert isinstance(step, PutStatus), step
    return step


def conditions(step: Step) -> dict[str, tuple[str, str]]:
    return {type_: written_condition(step, type_) for type_ in TYPES}


def on(table: Any, index: Obj | None = None, status: Obj | None = None, **facts: Any) -> IndexWorld:
    world = index_world(index, status, **facts)
    return replace(world, place=replace(world.place, table=table))


OLDER = subject(objects.index("older"), creationTimestamp="2026-01-01T10:00:00Z")
NOT_READY = good_table(conditions=[condition("Ready", "False", "TableMissing")])
FLOATS = good_table(columnTypes={"x": "double"})
BINARY = good_table(columnTypes={"id": "long", "tailnum": "struct<1: x: optional int>"})


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (on(None), Reason.TABLE_NOT_FOUND),
        (on(subject(objects.table(), deletionTimestamp=EARLIER)), Reason.TABLE_NOT_FOUND),
        (on(subject(objects.table())), Reason.TABLE_NOT_READY),
        (on(NOT_READY), Reason.TABLE_NOT_READY),
        (index_world(others=(OLDER,)), Reason.DUPLICATE_INDEX),
        (index_world(objects.index("by-tail", "nope")), Reason.COLUMN_NOT_FOUND),
        (on(BINARY), Reason.COLUMN_TYPE_UNSUPPORTED),
        (index_world(objects.index("by-tail", "id", "id")), Reason.INVALID_SPEC),
        (index_world(objects.index("by-tail", "id", include=["nope"])), Reason.COLUMN_NOT_FOUND),
        (on(BINARY, objects.index("by-id", "id", include=["tailnum"])), Reason.COLUMN_TYPE_UNSUPPORTED),
        (index_world(objects.index("by-id", "id", include=["id"])), Reason.INVALID_SPEC),
        (index_world(objects.index("by-id", "id", include=["a", "a"])), Reason.INVALID_SPEC),
        (on(FLOATS, objects.index("by-x", "x", type="Covering", buckets=4)), Reason.COLUMN_TYPE_UNSUPPORTED),
        (index_world(objects.index("by-id", "id", type="Covering")), Reason.INVALID_SPEC),
        (index_world(objects.index("by-id", "id", buckets=4)), Reason.INVALID_SPEC),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else "",
)
def test_an_index_that_cannot_be_starts_nothing(world: IndexWorld, reason: Reason) -> None:
    step = written(world)
    assert written_condition(step, "Ready") == ("False", reason)
    assert written_condition(step, "Progressing") == ("False", reason)
    assert "currentRun" not in step.status


def test_a_built_index_survives_the_renaming_of_its_column() -> None:
    world = index_world(objects.index("by-tail", "nope"), status(2, 1))
    assert written_condition(written(world), "Progressing") == ("True", Reason.RUN_INTENDED)


def test_a_younger_or_different_index_is_no_duplicate() -> None:
    younger = subject(objects.index("younger"), creationTimestamp="2026-01-01T11:30:00Z")
    other = subject(objects.index("older", "id"), creationTimestamp="2026-01-01T10:00:00Z")
    included = subject(objects.index("older", "tailnum", include=["id"]), creationTimestamp="2026-01-01T10:00:00Z")
    covering = subject(
        objects.index("older", "tailnum", type="Covering", buckets=4), creationTimestamp="2026-01-01T10:00:00Z"
    )
    for twin in (younger, other, included, covering):
        assert written_condition(written(index_world(others=(twin,))), "Progressing") == ("True", Reason.RUN_INTENDED)


def status(total: int = 2, synced: int = 2, **changes: Any) -> Obj:
    return synced_index_status(total, synced, **changes)


FAILED_TWO = {"total": 4, "synced": 2, "missing": 2, "failed": 2}
LAST = {"id": "x", "kind": "Reindex", "result": "Failed", "reason": "ColumnReplaced", "inputsHash": ""}


@pytest.mark.parametrize(
    ("spec", "known", "expected"),
    [
        (
            {},
            {},
            [("False", Reason.NOT_BUILT), ("Unknown", Reason.NOT_BUILT), ("False", Reason.HEALTHY)],
        ),
        (
            {},
            status(),
            [("True", Reason.HEALTHY), ("True", Reason.SEGMENTS_IN_SYNC), ("False", Reason.HEALTHY)],
        ),
        (
            {},
            status(2, 1),
            [("True", Reason.HEALTHY), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {},
            status(2, 0, exists=False),
            [("False", Reason.NOT_BUILT), ("False", Reason.NOT_BUILT), ("False", Reason.HEALTHY)],
        ),
        (
            {"maxLagSegments": 1},
            status(4, 2),
            [("False", Reason.LAG_EXCEEDED), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {"maxLagSegments": 2},
            status(4, 2),
            [("True", Reason.HEALTHY), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {"minCoveredPercent": 51},
            status(4, 2),
            [("False", Reason.COVERAGE_BELOW_MINIMUM), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {},
            status(4, 2, unusedBelowPercent=51),
            [("False", Reason.COVERAGE_BELOW_MINIMUM), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {},
            status(4, 2, unusedBelowPercent=50),
            [("True", Reason.HEALTHY), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {"minCoveredPercent": 50},
            status(4, 2),
            [("True", Reason.HEALTHY), ("False", Reason.SEGMENTS_MISSING), ("False", Reason.HEALTHY)],
        ),
        (
            {},
            status(4, 2, segments=FAILED_TWO),
            [("True", Reason.HEALTHY), ("False", Reason.SEGMENTS_FAILED), ("True", Reason.SEGMENTS_FAILED)],
        ),
        (
            {},
            status(degraded="ColumnReplaced", degradedMessage="tailnum was replaced"),
            [
                ("False", Reason.COLUMN_REPLACED),
                ("True", Reason.SEGMENTS_IN_SYNC),
                ("True", Reason.COLUMN_REPLACED),
            ],
        ),
    ],
    ids=[
        "never looked at",
        "in sync",
        "behind",
        "not built",
        "too many missing",
        "just few enough missing",
        "covers too little",
        "unused, as it covers too little",
        "used, as it covers just enough",
        "covers just enough",
        "segments failed",
        "column replaced",
    ],
)
def test_what_coverage_means(spec: Obj, known: Obj, expected: list[tuple[str, Reason]]) -> None:
    step = written(index_world(objects.index(suspend=True, **spec), known))
    found = conditions(step)
    assert [found[type_] for type_ in TYPES[:3]] == expected
    assert found["Progressing"] == ("False", Reason.SUSPENDED)


def test_an_empty_table_is_in_sync_without_a_run() -> None:
    empty = good_table(segments={"total": 0}, sequenceNumber=0)
    step = written(on(empty))
    assert conditions(step) == {
        "Ready": ("True", Reason.HEALTHY),
        "Synced": ("True", Reason.SEGMENTS_IN_SYNC),
        "Degraded": ("False", Reason.HEALTHY),
        "Progressing": ("False", Reason.IDLE),
    }


@pytest.mark.parametrize(
    ("spec", "known", "annotation", "starts"),
    [
        ({}, {}, "", True),
        ({}, status(2, 1), "", True),
        ({}, status(), "", False),
        ({}, status(tableSequenceNumber=1), "", True),
        ({}, status(4, 2, segments=FAILED_TWO), "", False),
        ({}, status(4, 2, segments={**FAILED_TWO, "failed": 1}), "", True),
        ({}, status(4, 2, segments=FAILED_TWO, lastRun={**LAST, "inputsHash": "changed"}), "", True),
        ({}, status(2, 1, degraded="ColumnReplaced"), "", False),
        ({}, status(2, 1, degraded="IndexDamaged"), "", True),
        ({}, status(2, 1, degraded="StorageUnavailable"), "", True),
        ({}, status(4, 2, segments=FAILED_TWO, degraded="SegmentsFailed"), "", False),
        ({}, status(4, 2, segments={**FAILED_TWO, "failed": 1}, degraded="SegmentsFailed"), "", True),
        ({"maintenance": "Inline"}, status(2, 2), "", False),
        ({"maintenance": "Inline"}, status(2, 2, rowsToMerge=2_000_000), "", True),
        ({"maintenance": "Manual"}, status(2, 2, rowsToMerge=2_000_000), "", False),
        ({"maintenance": "Manual"}, status(2, 1), "", False),
        ({"maintenance": "Manual"}, status(2, 1), "again", True),
        ({"maintenance": "Manual"}, status(2, 1, observedReindex="again"), "again", False),
        ({"maintenance": "Manual"}, {}, "", False),
        ({"unusedBelowPercent": 50}, status(), "", True),
        ({"unusedBelowPercent": 50}, status(unusedBelowPercent=50), "", False),
        ({}, status(unusedBelowPercent=50), "", True),
        ({"unusedBelowPercent": 50, "maintenance": "Manual"}, status(), "", False),
        ({"store": {"type": "HBase", "host": "h"}}, status(store="hbase://h:9090/skipstone"), "", False),
        ({"store": {"type": "HBase", "host": "h"}}, status(store="hbase://old:9090/skipstone"), "", True),
        ({"store": {"type": "HBase", "host": "h", "tls": True}}, status(store="hbase://h:9090/skipstone"), "", True),
        (
            {"store": {"type": "HBase", "host": "h", "tls": True, "timeoutSeconds": 5}},
            status(store="hbase://h:9090/skipstone?tls=true&timeoutSeconds=5"),
            "",
            False,
        ),
        ({"suspend": True}, status(2, 1), "again", False),
        ({}, status(2, 1, retryTime="2026-01-01T12:00:30Z"), "", False),
        ({}, status(2, 1, retryTime="2026-01-01T11:59:59Z"), "", True),
    ],
    ids=[
        "unknown",
        "missing",
        "in sync",
        "table moved on",
        "only segments that fail",
        "some that may work",
        "inputs changed since",
        "degraded for good",
        "damaged",
        "storage did not answer",
        "degraded by segments that fail",
        "degraded by one, others may work",
        "inline and in sync",
        "inline with runs to merge",
        "manual with runs to merge",
        "manual",
        "asked by hand",
        "asked before",
        "manual and unknown",
        "a new least coverage",
        "a known least coverage",
        "no least coverage any more",
        "manual with a new least coverage",
        "a known store",
        "a store that moved",
        "a store with other settings",
        "a store with known settings",
        "suspended",
        "back-off",
        "back-off over",
    ],
)
def test_when_a_reindex_starts(spec: Obj, known: Obj, annotation: str, starts: bool) -> None:
    meta = {"annotations": {"skipstone.dev/reindex": annotation}} if annotation else {}
    step = decide(index_world(objects.index(**spec), known, metadata=meta))
    began = isinstance(step, PutStatus) and "currentRun" in step.status
    assert began is starts
    if began and annotation and isinstance(step, PutStatus):
        assert step.status["observedReindex"] == annotation


@pytest.mark.parametrize(
    ("annotation", "rebuild"),
    [("7", None), ("full/7", "full/7"), ("Full", "Full"), ("fuller", None), ("", None), ("7/full", None)],
)
def test_a_full_reindex_is_asked_for_by_the_annotation(annotation: str, rebuild: str | None) -> None:
    meta = {"annotations": {"skipstone.dev/reindex": annotation}} if annotation else {}
    plan = plan_reindex(index_world(objects.index(unusedBelowPercent=30), metadata=meta))
    assert plan is not None
    task = plan.task["reindex"]
    assert (task.rebuild, task.index.unused_below_percent) == (rebuild, 30)


def test_a_long_annotation_is_kept_short() -> None:
    meta = {"annotations": {"skipstone.dev/reindex": "x" * 100_000}}
    step = written(index_world(objects.index(maintenance="Manual"), status(), metadata=meta))
    assert len(step.status["observedReindex"]) == 256


def test_no_warehouse_no_reindex() -> None:
    world = index_world()
    step = written(replace(world, place=replace(world.place, warehouse=None)))
    assert written_condition(step, "Progressing") == ("False", Reason.WAITING_FOR_WAREHOUSE)


def test_an_index_at_rest_writes_nothing() -> None:
    once = written(index_world(status=status()))
    assert decide(index_world(status=dict(once.status))) == Rest()


def with_run(spec: Obj | None = None, known: Obj | None = None, **changes: Any) -> tuple[IndexWorld, CurrentRun]:
    plan = plan_reindex(index_world(objects.index(**(spec or {}))))
    assert plan is not None
    current = replace(plan.intent(1, EARLIER), **{"launch_time": EARLIER, **changes})
    return index_world(objects.index(**(spec or {})), {**(known or {}), "currentRun": encode(current)}), current


def seen(world: IndexWorld, current: CurrentRun, found: Any = None) -> IndexWorld:
    run = RunWorld(current=current, owner_uid=OWNER, pod=found)
    return replace(world, run=run, pods=(found,) if found is not None else ())


def conclude(
    outcome: RunOutcome | None, reason: Reason, code: int, known: Obj | None = None, **facts: Any
) -> PutStatus:
    world, current = with_run(known=known)
    state = table_state(indexes=(index_state(facts.get("total", 3), facts.get("synced", 3)),))
    counts = {"segments": facts.get("built", 1)}
    said = report(current, outcome, reason, table_states=(state,), counts=counts) if outcome else None
    return written(seen(world, current, ended(current, OWNER, code, said)))


class TestReindex:
    def test_launching(self) -> None:
        world, current = with_run(launch_time=None)
        step = decide(seen(world, current))
        assert isinstance(step, Create)
        assert step.object["metadata"]["labels"]["skipstone.dev/operation"] == "Reindex"

    def test_synced(self) -> None:
        step = conclude(RunOutcome.COMMITTED, Reason.COMMITTED, 0)
        assert conditions(step)["Synced"] == ("True", Reason.SEGMENTS_IN_SYNC)
        assert conditions(step)["Progressing"] == ("False", Reason.IDLE)
        got = step.status
        assert (got["synced"], got["missing"], got["covered"], got["lastSyncTime"]) == (
            "3/3",
            "",
            "100 %",
            "2026-01-01T12:00:00Z",
        )

    def test_more_arrived_meanwhile(self) -> None:
        step = conclude(RunOutcome.COMMITTED, Reason.COMMITTED, 0, total=4)
        assert conditions(step)["Synced"] == ("False", Reason.SEGMENTS_MISSING)
        assert "retryTime" not in step.status

    def test_nothing_built_though_missing_waits(self) -> None:
        step = conclude(RunOutcome.COMMITTED, Reason.COMMITTED, 0, total=4, built=0)
        assert step.status["retryTime"] == "2026-01-01T12:00:10Z"

    def test_a_run_that_tells_nothing_of_the_index_waits_ever_longer(self) -> None:
        world, current = with_run(known={"failedAttempts": 1})
        said = report(current, RunOutcome.COMMITTED, Reason.COMMITTED, counts={"segments": 0})
        step = written(seen(world, current, ended(current, OWNER, 0, said)))
        assert (step.status["failedAttempts"], step.status["retryTime"]) == (2, "2026-01-01T12:00:20Z")
        assert conditions(step)["Progressing"] == ("True", Reason.RETRYING)

    @pytest.mark.parametrize("reason", [Reason.COLUMN_REPLACED, Reason.DELETES_UNSUPPORTED])
    def test_refused_is_remembered(self, reason: Reason) -> None:
        step = conclude(RunOutcome.FAILED, reason, 64, synced=1)
        assert conditions(step)["Degraded"] == ("True", reason)
        again = index_world(status=dict(step.status))
        assert isinstance(decide(again), PutStatus | Rest)
        settled = written(again) if not isinstance(decide(again), Rest) else step
        assert "currentRun" not in settled.status
        retyped = good_table(columnTypes={"id": "long", "tailnum": "binary"})
        assert "currentRun" in written(on(retyped, status=dict(step.status))).status

    @pytest.mark.parametrize("reason", [Reason.TABLE_MISSING, Reason.TABLE_REPLACED])
    def test_a_table_that_may_come_back_is_waited_for(self, reason: Reason) -> None:
        step = conclude(RunOutcome.FAILED, reason, 64, synced=1)
        assert conditions(step)["Progressing"] == ("True", Reason.RETRYING)
        assert step.status["failedInputsHash"] == ""

    @pytest.mark.parametrize(("outcome", "code"), [(RunOutcome.UNKNOWN, 69), (None, 137)])
    def test_anything_else_is_tried_again(self, outcome: RunOutcome | None, code: int) -> None:
        step = conclude(outcome, Reason.CATALOG_UNAVAILABLE, code, {"failedAttempts": 1}, synced=1)
        assert conditions(step)["Progressing"][1] == Reason.RETRYING
        assert (step.status["failedAttempts"], step.status["retryTime"]) == (2, "2026-01-01T12:00:20Z")

    def test_a_vanished_pod_does_not_count(self) -> None:
        world, current = with_run(known={"failedAttempts": 5})
        step = written(seen(world, current))
        assert (step.status["failedAttempts"], step.status["retryTime"]) == (5, "2026-01-01T12:00:10Z")

    def test_suspend_stops_it_and_says_so_first(self) -> None:
        world, current = with_run({"suspend": True})
        step = written(seen(world, current, pod(current, OWNER)))
        assert step.status["currentRun"]["stopReason"] == "Suspended"
        again = index_world(objects.index(suspend=True), dict(step.status))
        assert again.index.status.current_run is not None
        assert isinstance(decide(seen(again, again.index.status.current_run, pod(current, OWNER))), Delete)

    @pytest.mark.parametrize("reason", [Reason.DRIVER_PENDING, Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED])
    def test_a_pending_pod_says_why(self, reason: Reason) -> None:
        world, current = with_run()
        step = written(seen(world, current, pending(current, OWNER, reason)))
        assert conditions(step)["Progressing"] == ("True", reason)

    def test_a_late_pod_goes(self) -> None:
        world, current = with_run()
        late = replace(world, setting=replace(SETTING, now=START + timedelta(seconds=301)))
        step = written(seen(late, current, pending(current, OWNER, Reason.UNSCHEDULABLE)))
        assert step.status["currentRun"]["stopReason"] == "Unschedulable"

    def test_a_running_pod_shows_its_progress(self) -> None:
        world, current = with_run()
        step = written(seen(world, current, pod(current, OWNER, underway=underway(current, progress="segment 4"))))
        assert conditions(step)["Progressing"] == ("True", Reason.DRIVER_RUNNING)
        assert step.status["currentRun"]["progress"] == "segment 4"

    def test_suspended_before_the_pod_takes_the_intent_back(self) -> None:
        world, current = with_run({"suspend": True}, launch_time=None)
        step = written(seen(world, current))
        assert "currentRun" not in step.status

    def test_a_schema_changed_before_the_pod_makes_a_new_intent(self) -> None:
        world, current = with_run(launch_time=None)
        table = good_table(columnTypes={"id": "long", "tailnum": "string", "x": "int"})
        step = written(replace(seen(world, current), place=replace(world.place, table=table)))
        assert step.status["currentRun"]["id"] != current.id

    def test_a_live_reindex_is_taken_up_when_its_status_was_lost(self) -> None:
        live = pod(current_run(RunKind.REINDEX, id="uidbytai-12345678-4"), OWNER)
        step = written(index_world(children=Children(pods=(live,))))
        assert step.status["currentRun"]["id"] == "uidbytai-12345678-4"

    def test_a_foreign_pod_is_never_touched(self) -> None:
        world, current = with_run()
        step = written(seen(world, current, pod(current, "somebody")))
        assert conditions(step)["Progressing"] == ("False", Reason.RESOURCE_CONFLICT)

    def test_a_refused_pod_is_shown(self) -> None:
        world, current = with_run(launch_time=None)
        step = refused(seen(world, current), Refused(status=403, reason="Forbidden", message="exceeded quota"))
        assert written_condition(step, "Progressing") == ("False", Reason.WAITING_FOR_QUOTA)


class TestWhatRunsTell:
    def told(self, known: Obj | None = None, **state: Any) -> PutStatus:
        load = current_run()
        total, synced = state.pop("total", 5), state.pop("synced", 3)
        states = (table_state(sequence_number=9, indexes=(index_state(total, synced, **state),)),)
        said = report(load, RunOutcome.COMMITTED, Reason.COMMITTED, table_states=states)
        world = index_world(objects.index(suspend=True), known, pods=(ended(load, "uid-jan", 0, said),))
        return written(world)

    def test_the_report_of_any_run_counts(self) -> None:
        got = self.told().status
        assert (got["synced"], got["missing"], got["covered"]) == ("3/5", "4,5", "60 %")
        assert (got["tableSequenceNumber"], got["missingSegments"]) == (9, [4, 5])
        assert got["segments"] == {"total": 5, "synced": 3, "missing": 2, "failed": 0}

    def test_an_older_report_changes_nothing(self) -> None:
        got = self.told(status(observedTime="2026-01-01T12:00:01Z")).status
        assert got["synced"] == "2/2"

    def test_a_replaced_column_degrades(self) -> None:
        step = self.told(degraded=Reason.COLUMN_REPLACED, message="tailnum was replaced")
        assert conditions(step)["Degraded"] == ("True", Reason.COLUMN_REPLACED)
        assert conditions(step)["Ready"] == ("False", Reason.COLUMN_REPLACED)

    @pytest.mark.parametrize(
        ("missing", "text"),
        [(0, ""), (1, "1"), (5, "1,2,3,4,5"), (6, "1,2,3…+3"), (30, "1,2,3…+27")],
    )
    def test_missing_segments_in_a_column(self, missing: int, text: str) -> None:
        listed = tuple(range(1, missing + 1))[:20]
        assert format_missing(index_state(missing, 0, missing_segments=listed)) == text

    @pytest.mark.parametrize(
        ("live", "covered", "percent"), [(0, 0, 100), (1000, 999, 99), (1000, 1000, 100), (3, 2, 66), (5, 0, 0)]
    )
    def test_coverage_is_never_rounded_up(self, live: int, covered: int, percent: int) -> None:
        assert covered_percent(live, covered) == percent
        assert format_covered(index_state(1, 1, rows_live=live, rows_covered=covered)) == f"{percent} %"


GOING = {"deletionTimestamp": "2026-01-01T11:59:00Z"}
MADE = status(warehouse="main", tableNamespace="air", tableName="flights")


class TestDeletion:
    def test_a_finalizer_before_anything_else_and_none_with_retain(self) -> None:
        step = decide(index_world(metadata={"finalizers": []}))
        assert isinstance(step, PutFinalizers)
        assert step.finalizers == ("skipstone.dev/reclaim",)
        off = decide(index_world(objects.index(reclaimPolicy="Retain")))
        assert isinstance(off, PutFinalizers)
        assert off.finalizers == ()

    def test_nothing_built_nothing_to_drop(self) -> None:
        step = decide(index_world(metadata=GOING))
        assert isinstance(step, PutFinalizers)
        assert step.events == ()

    def test_a_live_reindex_is_stopped_first(self) -> None:
        live = pod(current_run(RunKind.REINDEX), OWNER)
        step = decide(index_world(status=MADE, metadata=GOING, children=Children(pods=(live,))))
        assert isinstance(step, Delete)
        assert step.kind == "Pod"

    @pytest.mark.parametrize("table", [good_table(), None], ids=["table there", "table gone"])
    def test_the_drop_names_the_table_even_when_it_is_gone(self, table: Any) -> None:
        begun = written(on(table, status=MADE, metadata=GOING))
        assert begun.status["currentRun"]["kind"] == "Drop"
        world = on(table, status=dict(begun.status), metadata=GOING)
        assert world.index.status.current_run is not None
        step = decide(seen(world, world.index.status.current_run))
        assert isinstance(step, Create)
        request = step.object["data"]["request.json"]
        assert '"name": "flights"' in request
        assert '"uid": "uid-by-tail"' in request

    def test_kept_when_the_warehouse_is_gone(self) -> None:
        world = replace(index_world(status=MADE, metadata=GOING), place=place(warehouse=None))
        step = decide(world)
        assert isinstance(step, PutFinalizers)
        assert [(e.type, e.reason) for e in step.events] == [(EventType.WARNING, Reason.DATA_RETAINED)]
        assert "air.flights__si_by_tail_uidbytai" in step.events[0].note
