"""A job whose outcome is not known: each answer of a confirm run has one next write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.reconcilers.jobs.confirms import plan_confirm
from skipstone_operator.reconcilers.jobs.deciding import decide_job
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.steps import Delete, PutStatus, Rest
from skipstone_operator.worlds.subjects import Children
from skipstone_operator.worlds.worlds import JobWorld

from tests.unit import objects
from tests.unit.job_cases import (
    CONFIRM,
    ELSEWHERE,
    OWNER,
    TRIED,
    launched_load,
    plan_of,
    seen,
    waits,
)
from tests.unit.world_cases import (
    EARLIER,
    condition,
    current_run,
    ended,
    good_warehouse,
    job_world,
    place,
    pod,
    report,
    subject,
    written_condition,
)


class TestConfirming:
    def with_confirm(self, **changes: Any) -> tuple[JobWorld, CurrentRun]:
        plan = plan_confirm(job_world(status=TRIED))
        assert isinstance(plan, RunPlan)
        current = replace(plan.intent(1, EARLIER), launch_time=EARLIER, **changes)
        return job_world(status={**TRIED, "currentRun": encode(current)}), current

    def test_intended_when_nobody_may_still_be_writing(self) -> None:
        step = decide_job(job_world(status={**TRIED, "confirm": {**CONFIRM, "attempts": 0}}))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert isinstance(step, PutStatus)
        assert step.status["currentRun"]["kind"] == "Confirm"
        assert step.status["attempts"] == 4

    def test_a_live_driver_goes_first(self) -> None:
        live = pod(current_run(), OWNER)
        step = decide_job(job_world(status=TRIED, children=Children(pods=(live,))))
        assert isinstance(step, Delete)

    def test_a_driver_that_does_not_go_is_what_is_waited_for(self) -> None:
        going = pod(current_run(), OWNER, deleting=True)
        step = decide_job(job_world(status=TRIED, children=Children(pods=(going,))))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)
        assert isinstance(step, PutStatus)
        assert f"when driver pod {going.name} is gone" in str(step.status["conditions"])
        again = job_world(status=dict(step.status), children=Children(pods=(going,)))
        assert isinstance(decide_job(again), Rest)

    def test_a_warehouse_that_no_pod_can_be_built_from(self) -> None:
        world, current = self.with_confirm()
        current = replace(current, launch_time=None)
        unfit = place(warehouse=good_warehouse(spark={"podTemplate": {"spec": {"shareProcessNamespace": True}}}))
        intended = decide_job(job_world(status=TRIED, place=unfit))
        launching = decide_job(replace(seen(world, current), place=unfit))
        for step in (intended, launching):
            assert written_condition(step, "Progressing") == ("True", Reason.OUTCOME_UNKNOWN)
            assert isinstance(step, PutStatus)
            message = next(c["message"] for c in step.status["conditions"] if c["type"] == "Progressing")
            assert "correct Warehouse 'main': spec.spark.podTemplate.spec.shareProcessNamespace" in message

    def test_suspend_does_not_keep_the_truth_waiting(self) -> None:
        step = decide_job(job_world(objects.load("jan", suspend=True), TRIED))
        assert written_condition(step, "Progressing") == ("True", Reason.CONFIRMING)

    @pytest.mark.parametrize(
        "where",
        [place(table=None), place(warehouse=None), place(table=subject(objects.table(), uid="another"))],
        ids=["table gone", "warehouse gone", "another table of that name"],
    )
    def test_nobody_left_to_ask(self, where: Any) -> None:
        assert waits(job_world(status=TRIED, place=where)) == ("True", Reason.OUTCOME_UNKNOWN)

    @pytest.mark.parametrize(
        ("outcome", "reason", "code", "type_", "expected"),
        [
            (RunOutcome.ALREADY_COMMITTED, Reason.ALREADY_COMMITTED, 0, "Complete", Reason.ALREADY_COMMITTED),
            (RunOutcome.ABSENT, Reason.ABORTED, 0, "Failed", Reason.BACKOFF_LIMIT_EXCEEDED),
            (RunOutcome.FAILED, Reason.ROLLED_BACK, 64, "Failed", Reason.ROLLED_BACK),
            (RunOutcome.FAILED, Reason.INVALID_SPEC, 64, "Progressing", Reason.OUTCOME_UNKNOWN),
            (RunOutcome.UNKNOWN, Reason.CATALOG_UNAVAILABLE, 69, "Progressing", Reason.OUTCOME_UNKNOWN),
            (RunOutcome.UNKNOWN, Reason.CATALOG_UNPROVEN, 75, "Progressing", Reason.OUTCOME_UNKNOWN),
            (None, Reason.DRIVER_FAILED, 1, "Progressing", Reason.OUTCOME_UNKNOWN),
        ],
        ids=["landed", "absent and fenced", "rolled back", "catalog not opened", "no answer", "unproven", "silence"],
    )
    def test_its_answer(
        self, outcome: RunOutcome | None, reason: Reason, code: int, type_: str, expected: Reason
    ) -> None:
        world, current = self.with_confirm()
        said = report(current, outcome, reason) if outcome else None
        step = decide_job(seen(world, current, ended(current, OWNER, code, said)))
        assert written_condition(step, type_) == ("True", expected)
        assert isinstance(step, PutStatus)
        if type_ == "Progressing":
            assert step.status["confirm"]["nextTime"] == "2026-01-01T12:00:10Z"

    def test_asked_again_only_after_its_back_off(self) -> None:
        status = {**TRIED, "confirm": {**CONFIRM, "nextTime": "2026-01-01T12:00:30Z"}}
        step = decide_job(job_world(status=status))
        assert isinstance(step, Rest)
        assert step.requeue.after == 30

    def test_a_failed_pass_is_forgotten_while_it_waits(self) -> None:
        waiting = {**TRIED, "confirm": {**CONFIRM, "nextTime": "2026-01-01T12:00:30Z"}}
        broken = {**waiting, "conditions": [condition("Progressing", "Unknown", "InternalError")]}
        step = decide_job(job_world(status=broken))
        assert written_condition(step, "Progressing") == ("True", Reason.OUTCOME_UNKNOWN)
        assert isinstance(step, PutStatus)
        again = decide_job(job_world(status=dict(step.status)))
        assert isinstance(again, Rest)
        assert again.requeue.after == 30

    def test_a_confirm_run_at_work(self) -> None:
        world, current = self.with_confirm()
        assert waits(seen(world, current, pod(current, OWNER))) == ("True", Reason.CONFIRMING)


class TestAnotherTableOfThatName:
    """A job commits at most once: what began on one Table is never carried on in another."""

    def test_no_further_attempt(self) -> None:
        step = decide_job(job_world(status=ELSEWHERE))
        assert written_condition(step, "Progressing") == ("False", Reason.TABLE_NOT_FOUND)
        assert isinstance(step, PutStatus)
        message = next(c["message"] for c in step.status["conditions"] if c["type"] == "Progressing")
        assert message.startswith("spec.tableRef: ")
        assert message.endswith("delete this job and create it again")

    def test_a_driver_at_work_goes(self) -> None:
        current = launched_load()
        world = job_world(status={**ELSEWHERE, "currentRun": encode(current)})
        step = decide_job(seen(world, current, pod(current, OWNER)))
        assert written_condition(step, "Progressing") == ("True", Reason.TABLE_NOT_FOUND)

    def test_an_intent_that_led_to_no_pod_is_renewed_for_the_new_one(self) -> None:
        current = current_run()
        status = {"attempts": 1, "tableUid": "uid-of-the-first", "currentRun": encode(current)}
        step = decide_job(seen(job_world(status=status), current))
        assert written_condition(step, "Progressing") == ("True", Reason.RUN_INTENDED)
        assert isinstance(step, PutStatus)
        assert step.status["tableUid"] == "uid-flights"


def test_a_load_and_its_confirm_run_never_share_a_name() -> None:
    world = job_world(status=TRIED)
    confirm = plan_confirm(world)
    assert isinstance(confirm, RunPlan)
    assert confirm.kind is RunKind.CONFIRM
    assert confirm.inputs_hash != plan_of(world).inputs_hash
