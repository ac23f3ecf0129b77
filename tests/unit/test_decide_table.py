"""One Table and the jobs under its key: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import Management, RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import EventType, Key, Refused
from skipstone_operator.reconcilers.confirms import plan_confirm
from skipstone_operator.reconcilers.jobfacts import plan_run
from skipstone_operator.reconcilers.requests import RunPlan, build_table_task, plan_table_run
from skipstone_operator.reconcilers.table import decide, refused
from skipstone_operator.reconcilers.tablestatus import choose_writer, find_turn
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.identity import find_older_claimant
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import Create, Delete, PutFinalizers, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import TableSubject
from skipstone_operator.worlds.worlds import JobWorld, TableWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    condition,
    current_run,
    ended,
    good_table,
    good_warehouse,
    job_world,
    pending,
    place,
    pod,
    report,
    subject,
    synced_index_status,
    table_state,
    table_world,
    written_condition,
)

OWNER = "uid-flights"


def new_table(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any
) -> TableSubject:
    found: TableSubject = subject(objects.table(**(spec or {})), status, **metadata)
    return found


def ready(step: Step) -> tuple[str, str]:
    return written_condition(step, "Ready")


def progressing(step: Step) -> tuple[str, str]:
    return written_condition(step, "Progressing")


def written(world: TableWorld) -> PutStatus:
    step = decide(world)
    assert isinstance(step, PutStatus), step
    return step


TWICE = [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]


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
            table_world(subject(objects.observed_table(), {"tableUuid": "u", "formatVersion": 3})),
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


def plan_of(table: TableSubject) -> RunPlan:
    return plan_table_run(table, place(table=table), good_warehouse(), SETTING)


def with_run(status: dict[str, Any] | None = None, **changes: Any) -> tuple[TableWorld, CurrentRun]:
    current = replace(plan_of(new_table()).intent(1, EARLIER), **{"launch_time": EARLIER, **changes})
    table = new_table(status={**(status or {}), "currentRun": encode(current)})
    return table_world(table), current


def seen(world: TableWorld, current: CurrentRun, found: Any = None) -> TableWorld:
    pods = (found,) if found is not None else ()
    return replace(world, run=RunWorld(current=current, owner_uid=OWNER, pod=found), pods=pods)


def conclude(
    outcome: RunOutcome | None, reason: Reason, code: int, status: dict[str, Any] | None = None, **state: Any
) -> PutStatus:
    world, current = with_run(status)
    told = (table_state(**state),)
    said = report(current, outcome, reason, table_states=told, snapshot_id="5") if outcome else None
    return written(seen(world, current, ended(current, OWNER, code, said)))


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


def queued(name: str, created: str, status: dict[str, Any] | None = None, **spec: Any) -> JobWorld:
    return job_world(objects.load(name, **spec), status, metadata={"creationTimestamp": created})


OLD, MID, NEW = "2026-01-01T10:00:00Z", "2026-01-01T10:00:01Z", "2026-01-01T10:00:02Z"
BEGUN = {"attempts": 1, "currentRun": encode(current_run())}


class TestWriter:
    def writer(self, *jobs: JobWorld, table: TableSubject | None = None, pods: tuple[Any, ...] = ()) -> str:
        step = written(table_world(table, jobs=jobs, pods=pods))
        return str((step.status.get("writer") or {}).get("name", ""))

    def test_the_oldest_goes_first_then_by_name(self) -> None:
        assert self.writer(queued("b", MID), queued("a", OLD), queued("c", NEW)) == "a"
        assert self.writer(queued("b", OLD), queued("a", OLD)) == "a"

    def test_suspended_finished_and_deleted_jobs_are_passed_over(self) -> None:
        done = {"conditions": [condition("Complete", "True", "Committed")]}
        deleted = job_world(objects.load("c"), metadata={"creationTimestamp": OLD, "deletionTimestamp": NEW})
        jobs = (queued("a", OLD, suspend=True), queued("b", OLD, done), deleted, queued("d", NEW))
        assert self.writer(*jobs) == "d"

    def test_a_job_that_began_on_another_table_of_that_name_holds_up_nobody(self) -> None:
        confirm = {"attempts": 1, "reason": "BackoffLimitExceeded", "message": "x", "since": EARLIER}
        stranger = {"attempts": 1, "launched": True, "tableUid": "uid-of-the-first", "confirm": confirm}
        assert self.writer(queued("a", OLD, stranger), queued("b", NEW)) == "b"

    def test_who_has_begun_goes_on_first(self) -> None:
        table = good_table()
        world = table_world(table, jobs=(queued("a", OLD), queued("b", NEW, BEGUN)))
        chosen = choose_writer(world, table, table.status, change_due=False)
        assert chosen is not None
        assert (chosen.name, chosen.run) == ("b", current_run().id)

    def test_a_live_pod_keeps_the_place_taken(self) -> None:
        stranger = pod(current_run(), "uid-of-a-deleted-job")
        step = written(table_world(jobs=(queued("a", OLD),), pods=(stranger,)))
        assert "writer" not in step.status
        assert self.writer(queued("a", OLD)) == "a"

    def test_reindex_and_observe_pods_write_no_table(self) -> None:
        beside = (pod(current_run(RunKind.REINDEX), "x"), pod(current_run(RunKind.OBSERVE), "y"))
        assert self.writer(queued("a", OLD), pods=beside) == "a"

    def test_a_lost_place_goes_back_to_the_owner_of_the_live_pod(self) -> None:
        assert self.writer(queued("a", OLD), queued("b", NEW), pods=(pod(current_run(), "uid-b"),)) == "b"

    def test_the_holder_keeps_it_between_attempts(self) -> None:
        table = good_table(writer={"kind": "LoadJob", "name": "b", "uid": "uid-b", "since": EARLIER})
        step = written(table_world(table, jobs=(queued("a", OLD), queued("b", NEW))))
        assert step.status["writer"]["name"] == "b"
        assert step.status["writer"]["since"] == EARLIER

    def test_a_change_of_the_table_goes_before_the_queue(self) -> None:
        table = subject(objects.table(), dict(good_table().raw["status"]), generation=2)
        assert self.writer(queued("a", OLD), table=table) == "flights"

    def test_a_change_waits_for_the_job_at_work(self) -> None:
        status = {**good_table().raw["status"], "writer": {"kind": "LoadJob", "name": "a", "uid": "uid-a"}}
        table = subject(objects.table(), status, generation=2)
        job = queued("a", OLD, {"attempts": 1, "retryTime": "2026-01-01T13:00:00Z", "confirm": {"nextTime": NEW}})
        step = written(table_world(table, jobs=(job,)))
        assert step.status["writer"]["name"] == "a"
        assert progressing(step) == ("False", Reason.WAITING_FOR_TABLE)

    def test_those_who_wait_are_told_for_whom(self) -> None:
        holder = {"kind": "LoadJob", "name": "a", "uid": "uid-a", "since": EARLIER, "run": current_run().id}
        world = table_world(
            good_table(writer=holder), jobs=(queued("a", OLD, BEGUN), queued("b", MID), queued("c", NEW))
        )
        turns = [find_turn(world, job) for job in world.jobs]
        assert turns[0] is None
        assert [turn.reason for turn in turns[1:] if turn] == [Reason.WAITING_FOR_TABLE, Reason.WAITING_FOR_TURN]
        assert "LoadJob a" in str(turns[1])
        assert "LoadJob b" in str(turns[2])


GOING = {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": ["skipstone.dev/reclaim", "other"]}


def going(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> TableSubject:
    known = {"tableUuid": "uuid-1", "location": "/skipstone/main/air/flights"} if status is None else status
    return new_table({"reclaimPolicy": "Delete", **(spec or {})}, known, **{**GOING, **meta})


def released(step: Step) -> tuple[tuple[str, ...], list[tuple[EventType, Reason]]]:
    assert isinstance(step, PutFinalizers), step
    return step.finalizers, [(record.type, record.reason) for record in step.events]


KEPT = (("other",), [(EventType.WARNING, Reason.DATA_RETAINED)])


class TestDeletion:
    def test_a_finalizer_only_with_delete_and_before_anything_else(self) -> None:
        step = decide(table_world(new_table({"reclaimPolicy": "Delete"})))
        assert released(step) == (("skipstone.dev/reclaim",), [])
        off = decide(table_world(new_table(finalizers=["skipstone.dev/reclaim"])))
        assert released(off) == ((), [])

    def test_nothing_was_made(self) -> None:
        assert released(decide(table_world(going(status={})))) == (("other",), [])

    def test_kept_by_somebody_else_only(self) -> None:
        assert decide(table_world(going(finalizers=["other"]))) == Rest()

    @pytest.mark.parametrize(
        "change",
        [{"warehouse": None}, {"claim": None}],
        ids=["no warehouse", "no claim"],
    )
    def test_the_drop_cannot_start(self, change: dict[str, Any]) -> None:
        table = going()
        world = replace(table_world(table), place=replace(place(table=table), **change))
        assert released(decide(world)) == KEPT

    def test_retained_after_all(self) -> None:
        assert released(decide(table_world(going({"reclaimPolicy": "Retain"})))) == KEPT

    def test_ten_minutes_are_enough(self) -> None:
        late = replace(SETTING, now=START + timedelta(seconds=540))
        assert released(decide(replace(table_world(going()), setting=late))) == KEPT

    def test_intended_when_no_writer_is_left(self) -> None:
        writer = pod(current_run(), "uid-jan")
        waiting = written(table_world(going(), pods=(writer,)))
        assert "currentRun" not in waiting.status
        assert progressing(waiting) == ("True", Reason.DELETING)
        step = written(table_world(going()))
        assert step.status["currentRun"]["kind"] == "Drop"
        assert ready(step) == ("False", Reason.DELETING)

    def dropping(self, outcome: RunOutcome | None, reason: Reason, code: int = 0) -> Step:
        begun = written(table_world(going()))
        table = going(status={**begun.status, "tableUuid": "uuid-1"})
        current = table.status.current_run
        assert current is not None
        current = replace(current, launch_time=EARLIER)
        said = report(current, outcome, reason) if outcome else None
        return decide(seen(table_world(table), current, ended(current, OWNER, code, said)))

    def test_purged(self) -> None:
        step = self.dropping(RunOutcome.COMMITTED, Reason.DATA_DELETED)
        assert released(step) == (("other",), [(EventType.NORMAL, Reason.DATA_DELETED)])

    @pytest.mark.parametrize("reason", [Reason.DATA_RETAINED, Reason.NOT_CREATED_HERE])
    def test_not_ours_is_kept(self, reason: Reason) -> None:
        assert released(self.dropping(RunOutcome.COMMITTED, reason)) == KEPT

    def test_refused_is_kept(self) -> None:
        assert released(self.dropping(RunOutcome.FAILED, Reason.INVALID_SPEC, 64)) == KEPT

    def test_no_answer_is_tried_again(self) -> None:
        step = self.dropping(None, Reason.DRIVER_FAILED, 1)
        assert isinstance(step, PutStatus)
        assert step.status["retryTime"] == "2026-01-01T12:00:10Z"

    def test_a_namespace_that_goes_away_lets_go(self) -> None:
        answer = Refused(status=403, reason="Forbidden", message="x", causes=("NamespaceTerminating",))
        assert released(refused(table_world(going()), OWNER, answer)) == KEPT

    def test_a_warehouse_that_no_pod_can_be_built_from_is_named_until_time_is_up(self) -> None:
        begun = written(table_world(going()))
        table = going(status={**begun.status, "tableUuid": "uuid-1"})
        current = table.status.current_run
        assert current is not None
        unfit = good_warehouse(spark={"podTemplate": {"spec": {"shareProcessNamespace": True}}})
        world = seen(replace(table_world(table), place=replace(place(table=table), warehouse=unfit)), current)
        step = written(world)
        message = next(c["message"] for c in step.status["conditions"] if c["type"] == "Progressing")
        assert "correct Warehouse 'main': spec.spark.podTemplate.spec.shareProcessNamespace" in message
        late = replace(SETTING, now=START + timedelta(seconds=540))
        assert released(decide(replace(world, setting=late))) == KEPT

    def test_another_refusal_waits(self) -> None:
        step = refused(table_world(going()), OWNER, Refused(status=403, reason="Forbidden", message="exceeded quota"))
        assert progressing(step) == ("False", Reason.WAITING_FOR_QUOTA)

    @pytest.mark.parametrize(("waited", "kept"), [(30, False), (61, True)])
    def test_an_image_that_cannot_be_pulled_lets_go_after_a_minute(self, waited: int, kept: bool) -> None:
        begun = written(table_world(going()))
        table = going(status={**begun.status, "tableUuid": "uuid-1"})
        current = table.status.current_run
        assert current is not None
        world = replace(table_world(table), setting=replace(SETTING, now=START + timedelta(seconds=waited)))
        step = decide(seen(world, current, pending(current, OWNER, Reason.IMAGE_PULL_FAILED)))
        assert isinstance(step, PutFinalizers) is kept


class TestLaunchesComeLast:
    def launching(self, kind: RunKind, table: TableSubject, status: dict[str, Any]) -> JobWorld:
        where = place(table=table)
        idle = job_world(status=status, place=where)
        plan = plan_confirm(idle) if kind is RunKind.CONFIRM else plan_run(idle)
        assert isinstance(plan, RunPlan)
        current = plan.intent(1, EARLIER)
        intended = job_world(status={**status, "currentRun": encode(current)}, place=where)
        return replace(intended, run=RunWorld(current=current, owner_uid="uid-jan"))

    def test_a_load_without_room_does_not_keep_the_table_from_being_told(self) -> None:
        settled = written(table_world(good_table(writer={"kind": "LoadJob", "name": "jan", "uid": "uid-jan"})))
        table = new_table(status={**settled.status, "writer": {"kind": "LoadJob", "name": "jan", "uid": "uid-jan"}})
        load = self.launching(RunKind.LOAD, table, {"attempts": 1, "tableUid": OWNER})
        told = decide(table_world(table, jobs=(load,)))
        assert isinstance(told, PutStatus)
        after = new_table(status=dict(told.status))
        calm = table_world(after, jobs=(replace(load, place=place(table=after)),))
        assert isinstance(decide(calm), Create)

    def test_a_confirm_run_that_is_refused_does_not_keep_a_deleted_table(self) -> None:
        table = going()
        confirm = {"attempts": 1, "reason": "BackoffLimitExceeded", "message": "x", "since": EARLIER}
        job = self.launching(RunKind.CONFIRM, table, {"attempts": 1, "tableUid": OWNER, "confirm": confirm})
        late = replace(SETTING, now=START + timedelta(seconds=540))
        assert released(decide(replace(table_world(table, jobs=(job,)), setting=late))) == KEPT


SAME_REST = (
    "http://c",
    "http://c/",
    "HTTP://C:80//",
    "http://me@c",
    "http://c.lake",
    "http://c.lake.svc",
    "http://c.Lake.svc.cluster.local./",
)
OTHER_REST = ("http://d", "https://c", "http://c:8181", "http://c/x", "http://c.other", "http://[::1]:c")
POSTGRES = {"type": "Sql", "uri": "postgresql://db.example.com/lake"}
SAME_POSTGRES = (
    "postgresql://db.example.com/lake",
    "postgresql+psycopg2://me@DB.example.com:5432/lake/?sslmode=require",
    "postgresql:///lake?host=db.example.com",
    "postgresql:///lake?host=db.example.com&port=5432",
)
OTHER_POSTGRES = ("postgresql://db.example.com/Lake", "postgresql://db.example.com:5433/lake")


class TestIdentity:
    def rival(self, older: TableSubject, newer: TableSubject, *warehouses: Any) -> TableSubject | None:
        known = {warehouse.key: warehouse for warehouse in warehouses}
        home = known[Key("Warehouse", newer.meta.namespace, newer.spec.warehouse_ref.name)]
        return find_older_claimant(newer, home, (older, newer), known)

    def pair(self) -> tuple[TableSubject, TableSubject]:
        older = new_table(name="a", uid="uid-a", creationTimestamp=OLD)
        return older, new_table(name="b", uid="uid-b", creationTimestamp=NEW)

    def test_the_older_wins(self) -> None:
        older, newer = self.pair()
        assert self.rival(older, newer, good_warehouse()) is older
        assert self.rival(newer, older, good_warehouse()) is None

    def test_another_table_is_no_rival(self) -> None:
        older, _ = self.pair()
        identifier = {"namespace": "air", "name": "other"}
        newer = new_table({"identifier": identifier}, name="b", uid="uid-b", creationTimestamp=NEW)
        assert self.rival(older, newer, good_warehouse()) is None

    @pytest.mark.parametrize(
        ("one", "two", "same"),
        [
            ({"type": "Sql"}, {"type": "Sql"}, True),
            ({"type": "Sql"}, {"type": "Sql", "name": "other"}, False),
            ({"type": "Sql"}, {"type": "Sql", "uri": "sqlite:////skipstone/second/catalog.db"}, True),
            ({"type": "Sql"}, {"type": "Sql", "uri": "sqlite:////skipstone/second/other.db"}, False),
            ({"type": "Sql"}, {"type": "Sql", "uri": "sqlite:////skipstone//second/./catalog.db?timeout=9"}, True),
            *(({"type": "Rest", "uri": "http://c"}, {"type": "Rest", "uri": uri}, True) for uri in SAME_REST),
            *(({"type": "Rest", "uri": "http://c"}, {"type": "Rest", "uri": uri}, False) for uri in OTHER_REST),
            *((POSTGRES, {"type": "Sql", "uri": uri}, True) for uri in SAME_POSTGRES),
            *((POSTGRES, {"type": "Sql", "uri": uri}, False) for uri in OTHER_POSTGRES),
        ],
    )
    def test_warehouses_may_share_a_catalog(self, one: dict[str, Any], two: dict[str, Any], same: bool) -> None:
        older, _ = self.pair()
        newer = new_table({"warehouseRef": {"name": "second"}}, name="b", uid="uid-b", creationTimestamp=NEW)
        second = subject(objects.warehouse("second", catalog=two))
        assert (self.rival(older, newer, good_warehouse(catalog=one), second) is older) is same

    def test_a_service_of_the_same_name_in_another_namespace_is_another_catalog(self) -> None:
        older, _ = self.pair()
        newer = new_table({"warehouseRef": {"name": "second"}}, uid="uid-b", creationTimestamp=NEW, namespace="pond")
        for uri, same in (("http://c", False), ("http://c.lake:80", True)):
            second = subject(objects.warehouse("second", catalog={"type": "Rest", "uri": uri}), namespace="pond")
            home = good_warehouse(catalog={"type": "Rest", "uri": "http://c"})
            assert (self.rival(older, newer, home, second) is older) is same


def test_jobs_of_a_table_that_does_not_exist_wait_for_it() -> None:
    world = TableWorld(key=Key("Table", "lake", "x"), setting=SETTING, jobs=(job_world(place=place(table=None)),))
    assert written_condition(decide(world), "Progressing") == ("False", Reason.TABLE_NOT_FOUND)
