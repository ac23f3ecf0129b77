"""Who writes a table: one at a time, the older first, and the older of two claimants."""

from __future__ import annotations

import cProfile
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Key
from skipstone_operator.reconcilers.jobs.confirms import plan_confirm
from skipstone_operator.reconcilers.jobs.facts import plan_run
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.reconcilers.table import decide
from skipstone_operator.reconcilers.tablestatus import choose_writer, find_turn
from skipstone_operator.worlds.identity import find_older_claimant
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import Create, PutStatus
from skipstone_operator.worlds.subjects import TableSubject
from skipstone_operator.worlds.worlds import JobWorld, TableWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.table_cases import (
    BEGUN,
    KEPT,
    MID,
    NEW,
    OLD,
    OTHER_POSTGRES,
    OTHER_REST,
    OWNER,
    POSTGRES,
    SAME_POSTGRES,
    SAME_REST,
    going,
    new_table,
    progressing,
    queued,
    released,
    written,
)
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    condition,
    current_run,
    good_table,
    good_warehouse,
    job_world,
    place,
    pod,
    subject,
    table_world,
    written_condition,
)


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

    def test_a_pass_takes_as_long_as_there_are_jobs(self) -> None:
        """A table keeps its finished jobs for a week: a load that waits for them all would wait for minutes."""
        done = {"conditions": [condition("Complete", "True", "Committed")]}

        def count_calls(jobs: int) -> int:
            world = table_world(jobs=(*(queued(f"j{number}", OLD, done) for number in range(jobs)), queued("z", NEW)))
            profile = cProfile.Profile()
            assert profile.runcall(decide, world) is not None
            return sum(entry.callcount for entry in profile.getstats())

        assert count_calls(200) < 3 * count_calls(100)


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
