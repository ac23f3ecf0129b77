"""A Table that is being deleted: each world has one next write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason
from skipstone_operator.ports import EventType, Refused
from skipstone_operator.reconcilers.table import decide, refused
from skipstone_operator.worlds.steps import PutFinalizers, PutStatus, Rest, Step

from tests.unit.kube_double import START
from tests.unit.table_cases import (
    KEPT,
    OWNER,
    going,
    new_table,
    progressing,
    ready,
    released,
    seen,
    written,
)
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    current_run,
    ended,
    good_warehouse,
    pending,
    place,
    pod,
    report,
    table_world,
)


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

    def test_what_the_last_run_lacked_is_told_when_time_is_up(self) -> None:
        late = replace(SETTING, now=START + timedelta(seconds=540))
        run = {"id": "r", "kind": "Drop", "attempt": 2, "result": "Unknown", "message": "ns.b cannot be read"}
        table = going(
            status={"tableUuid": "uuid-1", "location": "/x", "lastRun": {**run, "reason": "StorageUnavailable"}}
        )
        step = decide(replace(table_world(table), setting=late))
        assert isinstance(step, PutFinalizers)
        assert "its last run ended with StorageUnavailable: ns.b cannot be read" in step.events[0].note

    @pytest.mark.parametrize("running", [True, False])
    def test_a_drop_run_that_time_runs_out_under_is_named_as_long_as_it_may_go_on(self, running: bool) -> None:
        begun = written(table_world(going()))
        table = going(status={**begun.status, "tableUuid": "uuid-1", "location": "/x"})
        current = table.status.current_run
        assert current is not None
        driver = pod(current, OWNER, node="worker-7") if running else pending(current, OWNER, Reason.UNSCHEDULABLE)
        late = replace(SETTING, now=START + timedelta(seconds=540))
        step = decide(seen(replace(table_world(table), setting=late), current, driver))
        assert released(step) == KEPT
        assert isinstance(step, PutFinalizers)
        kept = step.events[0].note.startswith("the data at /x was kept")
        may_go_on = step.events[0].note.startswith(f"driver pod {driver.name} on node worker-7 may still drop the data")
        assert (kept, may_go_on) == (not running, running)

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
