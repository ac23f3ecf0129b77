"""One life for every kind of run: each state of a run, for each kind, has the same next step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers.drops import drop_policy
from skipstone_operator.reconcilers.index import drop_world as drop_index_world
from skipstone_operator.reconcilers.index import reindex_policy
from skipstone_operator.reconcilers.jobs.confirms import confirm_policy
from skipstone_operator.reconcilers.jobs.deciding import attempt_policy
from skipstone_operator.reconcilers.maintain import MaintainPolicy
from skipstone_operator.reconcilers.observes import observe_policy
from skipstone_operator.reconcilers.runs.lifecycle import Policy, decide, decide_refused
from skipstone_operator.reconcilers.runs.records import record_end
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.reconcilers.table import change_policy, find_policy
from skipstone_operator.reconcilers.table import drop_world as drop_table_world
from skipstone_operator.reconcilers.warehouse import check_policy
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import ConfFacts, Ending, RunWorld, Verdict
from skipstone_operator.worlds.steps import Create, Delete, PutFinalizers, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import Children, Subject

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.world_cases import (
    EARLIER,
    SETTING,
    condition,
    ended,
    good_table,
    good_warehouse,
    index_world,
    job_world,
    pending,
    place,
    pod,
    report,
    subject,
    table_world,
    warehouse_world,
    written_condition,
)

Facts = dict[str, Any]
SOON, LATE = START + timedelta(seconds=5), START + timedelta(seconds=400)
CONFIRM = {"reason": "BackoffLimitExceeded", "message": "all failed", "since": EARLIER}
#: Deleted so lately that a drop has its time before it.
GOING = {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["skipstone.dev/reclaim"]}
DATA = {"tableUuid": "uuid-1", "tableUid": "uid-flights", "tableNamespace": "air", "tableName": "flights"}


def _place(warehouse: Subject[Any, Any], **facts: Any) -> Any:
    return place(warehouse=warehouse, **facts)


def _attempt(obj: Facts, status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    begun = {"attempts": 1, "launched": True, "tableUid": "uid-flights"} if status else {}
    return attempt_policy(job_world(obj, {**begun, **status}, place=_place(home), **facts))


def load(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    return _attempt(objects.load("jan"), status, home, facts)


def merge(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    return _attempt(objects.merge("jan"), status, home, facts)


def confirm(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    tried = {"attempts": 4, "failedAttempts": 4, "launched": True, "tableUid": "uid-flights", "confirm": CONFIRM}
    return confirm_policy(job_world(status={**tried, **status}, place=_place(home), **facts))


def change(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    table = subject(objects.table(), status)
    return change_policy(table_world(table, place=_place(home, table=table), **facts), table)


def reindex(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    world = index_world(status={"tableUid": "uid-flights", **status}, **facts)
    return reindex_policy(replace(world, place=replace(world.place, warehouse=home)))


def check(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    facts["check"] = facts.pop("run")
    return check_policy(replace(warehouse_world(status=status, **facts), warehouse=_as(home, status)))


def observe(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    facts["observe"] = facts.pop("run")
    due = subject(objects.observed_table(), {"conditions": [condition("Ready", "Unknown", "RunIntended")]})
    named = {"observeRun": status["currentRun"]} if "currentRun" in status else {}
    named |= {"lastObserveRun": status["lastRun"]} if "lastRun" in status else {}
    ready = {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Checked")]}
    told = {name: value for name, value in status.items() if name not in ("currentRun", "lastRun", "conditions")}
    world = warehouse_world(tables=(due,), **facts)
    return observe_policy(replace(world, warehouse=_as(home, {**ready, **told, **named})))


def _as(home: Subject[Any, Any], status: Facts) -> Subject[Any, Any]:
    return subject({name: value for name, value in home.raw.items() if name != "status"}, status)


def maintain(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    facts["maintain"] = facts.pop("run")
    named = {"maintainRun": status["currentRun"]} if "currentRun" in status else {}
    due = {"health": {"smallFiles": 9, "dueFiles": 9}}
    named |= {"lastMaintainRun": status["lastRun"]} if "lastRun" in status else {}
    told = {name: value for name, value in status.items() if name not in ("currentRun", "lastRun")}
    known = {**good_table().raw["status"], **due, **told, **named}
    table = subject(objects.table(maintenance={"compaction": {}}), known)
    found = find_policy(table_world(table, place=_place(home, table=table), **facts), table)
    assert isinstance(found, MaintainPolicy)
    return found


def drop_table(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    table = subject(objects.table(reclaimPolicy="Delete"), {**DATA, **status}, **GOING)
    return drop_policy(drop_table_world(table_world(table, place=_place(home, table=table), **facts), table))


def drop_index(status: Facts, home: Subject[Any, Any], facts: Facts) -> Policy[Any]:
    known = {**DATA, "exists": True, **status}
    world = index_world(objects.index(reclaimPolicy="Delete"), known, metadata=GOING, **facts)
    return drop_policy(drop_index_world(replace(world, place=replace(world.place, warehouse=home))))


@dataclass(frozen=True)
class Life:
    """One kind of run. ``phase``: what Progressing says of a run that is well, when it is not the run's own reason."""

    make: Callable[[Facts, Subject[Any, Any], Facts], Policy[Any]]
    phase: Reason | None = None
    shown: bool = True

    def policy(self, current: CurrentRun | None = None, image: str = "", **facts: Any) -> Policy[Any]:
        run = facts.pop("run", None)
        home = good_warehouse(**({"spark": {"image": image}} if image else {}))
        status = {"currentRun": encode(current)} if current is not None else {}
        if last := facts.pop("last", None):
            status["lastRun"] = encode(last)
        return self.make(status, home, {"setting": replace(SETTING, now=SOON), **facts, "run": run})

    def plan(self) -> RunPlan:
        plan = self.policy().plan()
        assert plan is not None
        return plan

    @property
    def owner(self) -> str:
        return self.plan().owner.meta.uid

    def intended(self, **changes: Any) -> CurrentRun:
        return replace(self.plan().intent(1, EARLIER), **changes)

    def launched(self, **changes: Any) -> CurrentRun:
        return self.intended(launch_time=EARLIER, running_time=EARLIER, **changes)

    def step(self, current: CurrentRun, found: PodFacts | None = None, **facts: Any) -> Step:
        run = RunWorld(
            current=current,
            owner_uid=self.owner,
            pod=found,
            conf=facts.pop("conf", None),
            executors=facts.pop("executors", ()),
        )
        return decide(self.policy(current, run=run, **facts))


LIVES = {
    "load": Life(load),
    "merge": Life(merge),
    "confirm": Life(confirm, phase=Reason.CONFIRMING),
    "table change": Life(change),
    "reindex": Life(reindex),
    "maintain": Life(maintain, phase=Reason.MAINTAINING),
    "check": Life(check),
    "observe": Life(observe, shown=False),
    "drop of a table": Life(drop_table, phase=Reason.DELETING),
    "drop of an index": Life(drop_index, phase=Reason.DELETING),
}
each_life = pytest.mark.parametrize("life", LIVES.values(), ids=LIVES.keys())


def run_of(step: Step) -> dict[str, Any] | None:
    """The current run that a step writes."""
    assert isinstance(step, PutStatus), step
    return step.status.get("currentRun") or step.status.get("observeRun") or step.status.get("maintainRun")


def conf_of(current: CurrentRun, owner: str) -> ConfFacts:
    return ConfFacts(name="c", namespace="lake", uid="uid-conf", run_id=current.id, owner_uid=owner)


def says(life: Life, step: Step) -> tuple[str, str]:
    return written_condition(step, "Progressing") if life.shown else ("", "")


def expected(life: Life, reason: Reason, status: str = "True", *, well: bool = True) -> tuple[str, str]:
    shown = (life.phase or reason) if well else reason
    return (status, shown) if life.shown else ("", "")


def test_every_kind_of_run_is_here() -> None:
    assert {kind for life in LIVES.values() for kind in life.policy().kinds} == set(RunKind)


@each_life
def test_the_intent_is_written_before_anything_is_created(life: Life) -> None:
    step = decide(life.policy())
    current = run_of(step)
    assert current is not None
    assert current["kind"] in {kind.value for kind in life.policy().kinds}
    assert says(life, step) == expected(life, Reason.RUN_INTENDED)


@each_life
def test_a_live_pod_whose_intent_was_lost_is_taken_up(life: Life) -> None:
    current = life.launched(id=life.intended().id[:-1] + "7")
    step = decide(life.policy(children=Children(pods=(pod(current, life.owner),))))
    taken = run_of(step)
    assert taken is not None
    assert (taken["id"], taken["attempt"]) == (current.id, 7)


@each_life
def test_a_pod_that_ended_by_the_status_and_lives_by_an_older_list_is_not_taken_up_again(life: Life) -> None:
    current = life.launched(id=life.intended().id[:-1] + "7")
    lost = Verdict(ending=Ending.LOST, reason=Reason.DRIVER_LOST, message="gone")
    last = record_end(current, lost, START)
    step = decide(life.policy(children=Children(pods=(pod(current, life.owner),)), last=last))
    assert isinstance(step, Rest), step


@each_life
def test_a_pod_of_somebody_else_is_never_taken_up(life: Life) -> None:
    current = life.launched(id=life.intended().id[:-1] + "7")
    step = decide(life.policy(children=Children(pods=(pod(current, "somebody-else"),))))
    assert isinstance(step, PutStatus)
    assert (run_of(step) or {})["id"] != current.id


@each_life
def test_the_config_map_is_created_before_the_pod(life: Life) -> None:
    current = life.intended()
    first = life.step(current)
    second = life.step(current, conf=conf_of(current, life.owner))
    assert isinstance(first, Create)
    assert isinstance(second, Create)
    assert (first.object["kind"], second.object["kind"]) == ("ConfigMap", "Pod")


@each_life
def test_an_intent_of_other_inputs_is_renewed_once_its_config_map_is_gone(life: Life) -> None:
    current = life.intended()
    first = life.step(current, conf=conf_of(current, life.owner), image="other:1")
    assert isinstance(first, Delete)
    assert first.kind == "ConfigMap"
    renewed = run_of(life.step(current, image="other:1"))
    assert renewed is not None
    assert renewed["inputsHash"] != current.inputs_hash
    assert renewed["attempt"] == 2, "a pod that nobody saw may have had the number"


@each_life
@pytest.mark.parametrize("child", ["pod", "config map"])
def test_what_has_the_name_of_the_run_and_is_not_ours_is_told_and_left_alone(life: Life, child: str) -> None:
    current = life.intended()
    stranger = pod(current, "somebody-else") if child == "pod" else None
    step = life.step(current, stranger, conf=None if stranger else conf_of(current, "somebody-else"))
    assert says(life, step) == expected(life, Reason.RESOURCE_CONFLICT, "False", well=False)
    assert isinstance(step, PutStatus)
    assert "delete it" in str(step.status)
    assert life.shown or run_of(step) is None, "tables tell of it, and the next run has another name"


@each_life
@pytest.mark.parametrize("reason", [Reason.DRIVER_PENDING, Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED])
def test_what_a_pod_waits_for_is_shown(life: Life, reason: Reason) -> None:
    current = life.intended()
    step = life.step(current, pending(current, life.owner, reason))
    assert says(life, step) == expected(life, reason, well=reason is Reason.DRIVER_PENDING)
    assert (run_of(step) or {})["launchTime"]


@each_life
def test_a_driver_at_work_is_shown(life: Life) -> None:
    step = life.step(life.intended(), pod(life.intended(), life.owner))
    assert says(life, step) == expected(life, Reason.DRIVER_RUNNING)


@each_life
def test_a_driver_that_is_being_deleted_is_shown_and_not_deleted_again(life: Life) -> None:
    step = life.step(life.intended(), pod(life.intended(), life.owner, deleting=True))
    assert says(life, step) == expected(life, Reason.DELETING)


@each_life
def test_an_overdue_pod_is_stopped_and_the_reason_is_written_and_shown_first(life: Life) -> None:
    current, setting = life.launched(), replace(SETTING, now=LATE)
    late = replace(pending(current, life.owner, Reason.UNSCHEDULABLE), created=START)
    first = life.step(current, late, setting=setting)
    stopping = run_of(first) or {}
    assert stopping["stopReason"] == "Unschedulable"
    assert says(life, first) == expected(life, Reason.UNSCHEDULABLE, well=False)
    assert isinstance(first, PutStatus)
    assert not life.shown or "stopping run" in str(first.status["conditions"])


@each_life
@pytest.mark.parametrize("deleting", [False, True])
def test_a_pod_is_deleted_once_after_its_stop_was_written(life: Life, deleting: bool) -> None:
    setting = replace(SETTING, now=LATE)
    late = replace(pending(life.launched(), life.owner, Reason.UNSCHEDULABLE), created=START, deleting=deleting)
    written = life.step(life.launched(), late, setting=setting)
    assert isinstance(written, PutStatus)
    policy = _again(life, written, late, setting)
    step = decide(policy)
    assert isinstance(step, Rest if deleting else Delete)
    assert not isinstance(step, Delete) or (step.kind, step.uid) == ("Pod", late.uid)


def _again(life: Life, written: PutStatus, found: PodFacts, setting: Any) -> Policy[Any]:
    """The world after that write."""
    status = dict(written.status)
    name = next(name for name in ("currentRun", "observeRun", "maintainRun") if name in status)
    current = replace(life.launched(), stop_reason=status[name]["stopReason"], stop_message=status[name]["stopMessage"])
    run = RunWorld(current=current, owner_uid=life.owner, pod=found)
    return life.make({**status, "currentRun": status[name]}, good_warehouse(), {"setting": setting, "run": run})


@each_life
def test_executors_go_before_the_end_is_written(life: Life) -> None:
    current = life.launched()
    executor = pod(current, "", name="exec-1")
    step = life.step(current, ended(current, life.owner, 1), executors=(executor,))
    assert isinstance(step, Delete)
    assert step.name == "exec-1"


@each_life
@pytest.mark.parametrize("vanished", [False, True], ids=["silent", "vanished"])
def test_a_driver_that_told_nothing_is_no_success(life: Life, vanished: bool) -> None:
    current = life.launched()
    step = life.step(current, None if vanished else ended(current, life.owner, 1))
    assert run_of(step) is None
    assert isinstance(step, PutStatus)
    assert not [c for c in step.status.get("conditions", ()) if (c["type"], c["status"]) == ("Complete", "True")]
    last = step.status.get("lastObserveRun") or step.status.get("lastRun") or {}
    assert last.get("result") != "Succeeded"


@each_life
def test_what_a_killed_driver_left_as_its_report_is_not_believed(life: Life) -> None:
    current = life.launched()
    forged = report(current, RunOutcome.COMMITTED, Reason.COMMITTED)
    step = life.step(current, ended(current, life.owner, 137, forged))
    assert not isinstance(step, PutFinalizers)
    assert isinstance(step, PutStatus)
    assert not [c for c in step.status.get("conditions", ()) if (c["type"], c["status"]) == ("Complete", "True")]
    last = step.status.get("lastObserveRun") or step.status.get("lastRun") or {}
    assert last.get("result") != "Succeeded"


@each_life
def test_a_quota_is_waited_for(life: Life) -> None:
    current = life.intended(start_time="2026-01-01T12:00:00Z")
    run = RunWorld(current=current, owner_uid=life.owner)
    step = decide_refused(life.policy(current, run=run), Refused(status=403, reason="Forbidden", message=QUOTA))
    assert says(life, step) == expected(life, Reason.WAITING_FOR_QUOTA, "False", well=False)
    assert (isinstance(step, PutStatus) and run_of(step) is not None) or not life.shown


QUOTA = "exceeded quota: pods, used: 2, limited: 2"


@each_life
def test_a_pod_that_is_refused_is_told(life: Life) -> None:
    current = life.intended(start_time="2026-01-01T12:00:00Z")
    run = RunWorld(current=current, owner_uid=life.owner)
    refusal = Refused(status=403, reason="Forbidden", message="violates PodSecurity")
    step = decide_refused(life.policy(current, run=run), refusal)
    assert says(life, step) == expected(life, Reason.POD_REJECTED, well=False)
    assert "violates PodSecurity" in str(step)
