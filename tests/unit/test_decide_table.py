"""One Table: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import Management, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.runs.requests import build_table_task
from skipstone_operator.reconcilers.table import decide, refused
from skipstone_operator.reconcilers.tablestatus import find_obstacle
from skipstone_operator.worlds.steps import Create, Delete, PutStatus, Rest
from skipstone_operator.worlds.subjects import TableSubject
from skipstone_operator.worlds.worlds import TableWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.table_cases import (
    OWNER,
    TWICE,
    conclude,
    new_table,
    progressing,
    ready,
    seen,
    with_run,
    written,
)
from tests.unit.world_cases import (
    SETTING,
    condition,
    current_run,
    ended,
    good_table,
    good_warehouse,
    pending,
    place,
    pod,
    report,
    subject,
    synced_index_status,
    table_state,
    table_world,
)


@pytest.mark.parametrize(
    ("world", "is_ready", "progress"),
    [
        (table_world(new_table()), ("Unknown", Reason.RUN_INTENDED), ("True", Reason.RUN_INTENDED)),
        (
            replace(table_world(new_table()), place=place(table=new_table(), warehouse=None)),
            ("False", Reason.WAREHOUSE_NOT_FOUND),
            ("False", Reason.IDLE),
        ),
        (
            replace(table_world(new_table()), place=place(warehouse=subject(objects.warehouse()))),
            ("False", Reason.WAREHOUSE_NOT_READY),
            ("False", Reason.WAITING_FOR_WAREHOUSE),
        ),
        (table_world(new_table({"columns": TWICE})), ("False", Reason.INVALID_SPEC), ("False", Reason.IDLE)),
        (
            table_world(new_table({"columns": [{"name": "a", "type": "decimal(2,9)"}]})),
            ("False", Reason.COLUMN_TYPE_UNSUPPORTED),
            ("False", Reason.IDLE),
        ),
        (
            table_world(new_table(), older_claimant=new_table(name="older")),
            ("False", Reason.RESOURCE_CONFLICT),
            ("False", Reason.IDLE),
        ),
        (
            table_world(subject(objects.observed_table())),
            ("Unknown", Reason.RUN_INTENDED),
            ("False", Reason.IDLE),
        ),
        (
            table_world(
                subject(
                    objects.observed_table(),
                    {"tableUuid": "u", "formatVersion": 3, "problem": "FormatVersionUnsupported"},
                )
            ),
            ("True", Reason.OBSERVED),
            ("False", Reason.IDLE),
        ),
        (table_world(good_table(conditions=[])), ("True", Reason.CREATED), ("False", Reason.IDLE)),
        (table_world(good_table(owned=False)), ("True", Reason.ADOPTED), ("False", Reason.IDLE)),
        (table_world(good_table(owned=None)), ("True", Reason.APPLIED), ("False", Reason.IDLE)),
        *(
            (table_world(good_table(problem=reason.value)), ("False", reason), ("False", Reason.IDLE))
            for reason in (Reason.TABLE_MISSING, Reason.TABLE_REPLACED, Reason.SCHEMA_DRIFT)
        ),
        (
            table_world(good_table(problem="FormatVersionUnsupported", conditions=[])),
            ("True", Reason.CREATED),
            ("False", Reason.IDLE),
        ),
    ],
    ids=lambda value: value[1].value if isinstance(value, tuple) else "",
)
def test_what_an_idle_table_says(world: TableWorld, is_ready: tuple[str, Reason], progress: tuple[str, Reason]) -> None:
    step = written(world)
    assert (ready(step), progressing(step)) == (is_ready, progress)


def test_a_table_at_rest_writes_nothing() -> None:
    once = written(table_world())
    again = subject(objects.table(), dict(once.status))
    assert decide(table_world(again)) == Rest()


def test_the_intent_takes_the_writers_place_in_the_same_write() -> None:
    step = written(table_world(new_table()))
    assert step.status["writer"]["kind"] == "Table"
    assert step.status["currentRun"]["txn"] == "uid-flights/1"
    assert step.status["currentRun"]["kind"] == "Table"


def test_a_table_in_use_stays_ready_while_its_change_is_late() -> None:
    table = good_table()
    changed = subject(objects.table(), dict(table.raw["status"]), generation=2)
    step = written(table_world(changed))
    found = next(c for c in step.status["conditions"] if c["type"] == "Ready")
    assert (found["status"], found["observedGeneration"]) == ("True", 1)


CLOSED = {"columns": [{"name": "id", "type": "long"}, {"name": "at", "type": "time"}]}
HAS_IT = {"columnTypes": {"id": "long", "at": "time"}}


@pytest.mark.parametrize(
    ("spec", "status", "is_refused"),
    [
        ({}, {}, True),
        ({}, {"columnTypes": {"id": "long", "at": "string"}}, True),
        ({}, HAS_IT, False),
        ({}, {"appliedGeneration": 1}, False),
        ({"allowTypesUnreadableBySpark": True}, {}, False),
    ],
    ids=["new", "of another type", "has it", "applied before", "allowed"],
)
def test_a_column_that_closes_the_table_to_spark_is_not_added_unasked(
    spec: dict[str, Any], status: dict[str, Any], is_refused: bool
) -> None:
    found = find_obstacle(table_world(), new_table({**CLOSED, **spec}, status))
    assert (found is not None) == is_refused
    if found is not None:
        assert found.reason is Reason.COLUMN_TYPE_UNSUPPORTED
        assert found.message.startswith("spec.columns[1].type: time closes the whole table to Spark")


class TestChangeRun:
    def test_created(self) -> None:
        step = conclude(RunOutcome.COMMITTED, Reason.CREATED, 0)
        assert ready(step) == ("True", Reason.CREATED)
        assert progressing(step) == ("False", Reason.IDLE)
        status = step.status
        assert (status["tableUuid"], status["appliedGeneration"], status["rows"]) == ("uuid-1", 1, 30)
        assert (status["fieldIds"], status["segments"]["total"]) == ({"id": 1, "tailnum": 2}, 3)
        assert "writer" not in status

    def test_adopted(self) -> None:
        assert ready(conclude(RunOutcome.COMMITTED, Reason.ADOPTED, 0, owner="")) == ("True", Reason.ADOPTED)

    @pytest.mark.parametrize("reason", [Reason.CREATED, Reason.ADOPTED])
    def test_who_owns_it_is_known_although_the_state_was_lost(self, reason: Reason) -> None:
        world, current = with_run()
        said = report(current, RunOutcome.COMMITTED, reason)
        pod = replace(ended(current, OWNER, 0, said), states=None)
        step = written(seen(world, current, pod))
        assert (ready(step), step.status["owned"]) == (("True", reason), reason is Reason.CREATED)

    @pytest.mark.parametrize("reason", [Reason.SCHEMA_MISMATCH, Reason.TABLE_MISSING, Reason.SCHEMA_DRIFT])
    def test_refused_is_remembered_with_its_inputs(self, reason: Reason) -> None:
        step = conclude(RunOutcome.FAILED, reason, 64)
        assert ready(step) == ("False", reason)
        assert progressing(step) == ("False", Reason.IDLE)
        again = new_table(status=dict(step.status))
        assert isinstance(decide(table_world(again)), Rest)
        changed = new_table({"columns": [{"name": "id", "type": "int"}]}, dict(step.status), generation=2)
        assert progressing(written(table_world(changed))) == ("True", Reason.RUN_INTENDED)

    def test_refused_is_tried_again_when_the_warehouse_changes(self) -> None:
        step = conclude(RunOutcome.FAILED, Reason.SCHEMA_MISMATCH, 64)
        table = new_table(status=dict(step.status))
        world = replace(table_world(table), place=place(table=table, warehouse=good_warehouse(spark={"image": "b:1"})))
        assert progressing(written(world)) == ("True", Reason.RUN_INTENDED)

    @pytest.mark.parametrize(
        ("outcome", "reason", "code"),
        [(RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE, 69), (None, Reason.DRIVER_FAILED, 1)],
    )
    def test_anything_else_is_tried_again_for_ever(self, outcome: RunOutcome | None, reason: Reason, code: int) -> None:
        step = conclude(outcome, reason, code, {"failedAttempts": 20})
        assert ready(step) == ("False", reason)
        assert progressing(step) == ("True", Reason.RETRYING)
        assert (step.status["failedAttempts"], step.status["retryTime"]) == (21, "2026-01-01T12:06:00Z")

    def test_a_vanished_pod_does_not_count(self) -> None:
        world, current = with_run()
        step = written(seen(world, current))
        assert (step.status["failedAttempts"], step.status["lastRun"]["reason"]) == (0, "DriverLost")

    def test_a_pending_pod_says_why_and_goes_when_it_is_late(self) -> None:
        world, current = with_run()
        found = pending(current, OWNER, Reason.IMAGE_PULL_FAILED)
        assert progressing(written(seen(world, current, found))) == ("True", Reason.IMAGE_PULL_FAILED)
        late = replace(world, setting=replace(SETTING, now=START + timedelta(seconds=301)))
        step = written(seen(late, current, found))
        assert step.status["currentRun"]["stopReason"] == "ImagePullFailed"
        after = replace(table_world(new_table(status=dict(step.status))), setting=late.setting)
        assert after.table is not None
        assert after.table.status.current_run is not None
        assert isinstance(decide(seen(after, after.table.status.current_run, found)), Delete)

    def test_launching(self) -> None:
        world, current = with_run(launch_time=None)
        step = decide(seen(world, current))
        assert isinstance(step, Create)
        assert step.object["kind"] == "ConfigMap"

    def test_a_spec_changed_before_the_pod_makes_a_new_intent(self) -> None:
        _, current = with_run(launch_time=None)
        changed = new_table({"columns": [{"name": "id", "type": "int"}]}, {"currentRun": encode(current)}, generation=2)
        step = written(seen(table_world(changed), current))
        assert step.status["currentRun"]["generation"] == 2
        assert step.status["currentRun"]["id"] != current.id

    def test_an_intent_without_warehouse_is_taken_back(self) -> None:
        world, current = with_run(launch_time=None)
        step = written(replace(seen(world, current), place=replace(world.place, warehouse=None)))
        assert "currentRun" not in step.status
        assert ready(step) == ("False", Reason.WAREHOUSE_NOT_FOUND)

    def test_a_refused_pod_is_shown(self) -> None:
        world, current = with_run(launch_time=None)
        quota, no = ("False", Reason.WAITING_FOR_QUOTA), ("True", Reason.POD_REJECTED)
        for message, expected in (("exceeded quota", quota), ("no", no)):
            answer = Refused(status=403, reason="Forbidden", message=message)
            assert progressing(refused(seen(world, current), OWNER, answer)) == expected

    def test_a_foreign_pod_is_never_touched(self) -> None:
        world, current = with_run()
        step = written(seen(world, current, pod(current, "somebody")))
        assert progressing(step) == ("False", Reason.RESOURCE_CONFLICT)

    def test_the_request_carries_the_shape_and_what_was_remembered(self) -> None:
        table = good_table()
        task = build_table_task(table)
        assert [column.name for column in task.columns] == ["id", "tailnum"]
        assert task.field_ids == {"id": 1, "tailnum": 2}


class TestWhatRunsTell:
    def told(self, table: TableSubject | None = None, **state: Any) -> PutStatus:
        current = current_run(RunKind.OBSERVE)
        said = report(current, RunOutcome.COMMITTED, Reason.OBSERVED, table_states=(table_state(**state),))
        return written(table_world(table, pods=(ended(current, "uid-main", 0, said),)))

    def test_counters_follow_the_newest_report(self) -> None:
        status = self.told().status
        assert (status["sequenceNumber"], status["rows"], status["observedTime"]) == (3, 30, "2026-01-01T12:00:00Z")

    def test_an_older_report_changes_nothing(self) -> None:
        table = good_table(observedTime="2026-01-01T12:00:01Z")
        assert self.told(table).status["sequenceNumber"] == 2

    def test_the_uuid_is_set_once(self) -> None:
        assert self.told(good_table(tableUuid="first")).status["tableUuid"] == "first"

    @pytest.mark.parametrize("reason", [Reason.TABLE_MISSING, Reason.TABLE_REPLACED])
    def test_a_table_that_is_not_ours_any_more_keeps_its_last_numbers(self, reason: Reason) -> None:
        step = self.told(problem=reason, message="gone", table_uuid="", rows=0)
        assert ready(step) == ("False", reason)
        assert step.status["segments"]["total"] == 2

    def test_it_heals_when_the_table_is_back(self) -> None:
        assert ready(self.told(good_table(problem="TableMissing"))) == ("True", Reason.CREATED)

    @pytest.mark.parametrize(
        "change",
        [
            {"field_ids": {"id": 1}, "columns": {"id": "long"}},
            {"field_ids": {"id": 1, "tailnum": 9}},
            {"columns": {"id": "long", "tailnum": "binary"}},
            {"field_ids": {"id": 1, "tailnum": 2, "x": 3}, "columns": {"id": "long", "tailnum": "string", "x": "int"}},
        ],
        ids=["dropped", "replaced", "retyped", "added"],
    )
    def test_a_schema_changed_by_others_is_drift_for_managed_tables_only(self, change: dict[str, Any]) -> None:
        step = self.told(**change)
        assert ready(step) == ("False", Reason.SCHEMA_DRIFT)
        assert step.status["fieldIds"] == {"id": 1, "tailnum": 2}
        observed = subject(objects.observed_table(), {"tableUuid": "uuid-1", "fieldIds": {"id": 1}})
        assert ready(self.told(observed, **change)) == ("True", Reason.OBSERVED)
        assert observed.spec.management is Management.OBSERVED

    @pytest.mark.parametrize("kind", ["variant", "geometry(OGC:CRS84)", "list<string>", "timestamp_ns"])
    def test_drift_by_a_column_that_no_spec_declares_says_so(self, kind: str) -> None:
        added = {
            "field_ids": {"id": 1, "tailnum": 2, "x": 3},
            "columns": {"id": "long", "tailnum": "string", "x": kind},
        }
        message = self.told(**added).status["problemMessage"]
        assert message.endswith(
            f"set spec.management to Observed, since spec.columns cannot declare x, which is {kind}"
        )
        plain = {**added, "columns": {"id": "long", "tailnum": "string", "x": "decimal(9, 2)"}}
        assert self.told(**plain).status["problemMessage"].endswith("or declare them in spec.columns")

    def test_columns_that_merges_added_are_no_drift(self) -> None:
        wider = {
            "field_ids": {"id": 1, "tailnum": 2, "x": 3},
            "columns": {"id": "long", "tailnum": "string", "x": "int"},
        }
        step = self.told(**wider, evolved_columns=("x",))
        assert ready(step) == ("True", Reason.CREATED)
        assert step.status["fieldIds"] == wider["field_ids"]
        replaced = {**wider, "field_ids": {"id": 1, "tailnum": 4, "x": 3}}
        assert ready(self.told(**replaced, evolved_columns=("x", "tailnum"))) == ("False", Reason.SCHEMA_DRIFT)

    @pytest.mark.parametrize("left_out", [{"columns": {}}, {"columns": {}, "field_ids": {}}])
    def test_a_schema_that_had_no_room_in_the_report_is_as_it_was(self, left_out: dict[str, Any]) -> None:
        step = self.told(**left_out)
        assert ready(step) == ("True", Reason.CREATED)
        assert step.status["rows"] == 30
        assert step.status["fieldIds"] == {"id": 1, "tailnum": 2}
        assert step.status["columnTypes"] == {"id": "long", "tailnum": "string"}

    def test_an_observed_table_says_why_nobody_could_look_at_it(self) -> None:
        last = {"id": "x", "kind": "Observe", "result": "Unknown", "reason": "CatalogUnavailable", "message": "refused"}
        failing = good_warehouse()
        status = {**failing.raw["status"], "failedObserves": 2, "lastObserveRun": last}
        table = subject(objects.observed_table())
        world = replace(table_world(table), place=place(table=table, warehouse=subject(objects.warehouse(), status)))
        step = written(world)
        assert ready(step) == ("Unknown", Reason.CATALOG_UNAVAILABLE)
        message = next(c["message"] for c in step.status["conditions"] if c["type"] == "Ready")
        assert message == "the table could not be looked at: refused"

    def test_indexes_are_counted(self) -> None:
        good = subject(objects.index("a"), {**synced_index_status(), "conditions": [condition("Synced", "True", "x")]})
        bad = subject(objects.index("b", "id"))
        table = good_table()
        world = replace(table_world(table), place=place(table=table, indexes=(good, bad)))
        step = written(world)
        assert (step.status["indexesInSync"], step.status["indexes"]) == ("1/2", {"total": 2, "inSync": 1})
