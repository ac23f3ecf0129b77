"""Worlds for tests of deciders: built from manifests, with facts put in by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from skipstone_core.contract.reports import IndexState, JobReport, RunOutcome, SegmentCounts, TableState
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.ports import Key
from skipstone_operator.reconcilers.runs.requests import RunPlan
from skipstone_operator.resources.common import Condition, ConditionStatus, CurrentRun
from skipstone_operator.resources.kinds import KINDS
from skipstone_operator.worlds.pods import PodFacts, Wait
from skipstone_operator.worlds.runs import RunWorld
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.subjects import ClaimFacts, Place, Setting, Subject, read_subject
from skipstone_operator.worlds.worlds import IndexWorld, JobWorld, TableWorld, WarehouseWorld

from tests.unit import objects
from tests.unit.kube_double import START
from tests.unit.operator_double import DEFAULTS

NOW = "2026-01-01T12:00:00Z"
EARLIER = "2026-01-01T11:00:00Z"
SETTING = Setting(now=START, defaults=DEFAULTS)
ONE_NODE = ClaimFacts("lake-data", ("ReadWriteOnce",))


def subject(obj: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> Subject[Any, Any]:
    """A stored object; ``metadata`` is laid over its own."""
    name = obj["metadata"]["name"]
    base = {"uid": f"uid-{name}", "generation": 1, "creationTimestamp": EARLIER, "resourceVersion": "7"}
    raw = {**obj, "metadata": {**obj["metadata"], **base, **metadata}}
    if status is not None:
        raw["status"] = status
    return read_subject(KINDS[obj["kind"]], raw)


def condition(type_: str, status: str, reason: str, generation: int = 1) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": EARLIER,
        "observedGeneration": generation,
    }


def good_warehouse(**spec: Any) -> Subject[Any, Any]:
    """A Warehouse whose check run succeeded."""
    ready = [condition("Ready", "True", "Checked")]
    return subject(objects.warehouse(**spec), {"observedGeneration": 1, "checkedGeneration": 1, "conditions": ready})


def good_table(**status: Any) -> Subject[Any, Any]:
    """A Managed Table that is ready and has two segments."""
    base = {
        "observedGeneration": 1,
        "appliedGeneration": 1,
        "conditions": [condition("Ready", "True", "Created")],
        "tableUuid": "uuid-1",
        "owned": True,
        "columnTypes": {"id": "long", "tailnum": "string"},
        "fieldIds": {"id": 1, "tailnum": 2},
        "sequenceNumber": 2,
        "observedTime": EARLIER,
        "segments": {"total": 2},
    }
    return subject(objects.table(), {**base, **status})


def place(**changes: Any) -> Place:
    """A ready table in a ready Warehouse."""
    return replace(Place(table=good_table(), warehouse=good_warehouse(), claim=ONE_NODE), **changes)


def job_world(job: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **facts: Any) -> JobWorld:
    """A load that may write now."""
    meta = facts.pop("metadata", {})
    base = JobWorld(job=subject(job or objects.load("jan"), status, **meta), place=place(), setting=SETTING)
    return replace(base, **facts)


def index_world(index: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **facts: Any) -> IndexWorld:
    """An index on a ready table, whose finalizer is there."""
    meta = {"finalizers": ["skipstone.dev/reclaim"], **facts.pop("metadata", {})}
    found = subject(index or objects.index(), status, **meta)
    others = facts.pop("others", ())
    base = IndexWorld(index=found, setting=SETTING, place=place(indexes=(found, *others)))
    return replace(base, **facts)


def table_world(table: Subject[Any, Any] | None = None, **facts: Any) -> TableWorld:
    """A Table with nothing else under its key."""
    found = table or good_table()
    base = TableWorld(key=Key("Table", "lake", "flights"), setting=SETTING, table=found, place=place(table=found))
    return replace(base, **facts)


def warehouse_world(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **facts: Any
) -> WarehouseWorld:
    """A Warehouse with its claim."""
    meta = facts.pop("metadata", {})
    base = WarehouseWorld(
        warehouse=subject(objects.warehouse(**(spec or {})), status, **meta), setting=SETTING, claim=ONE_NODE
    )
    return replace(base, **facts)


def synced_index_status(total: int = 2, synced: int = 2, **changes: Any) -> dict[str, Any]:
    """What status holds after a report."""
    return {
        "synced": f"{synced}/{total}",
        "exists": True,
        "tableSequenceNumber": 2,
        "observedTime": EARLIER,
        "tableUid": "uid-flights",
        "segments": {"total": total, "synced": synced, "missing": total - synced, "failed": 0},
        "rows": {"live": 10 * total, "covered": 10 * synced},
        **changes,
    }


def current_run(kind: RunKind = RunKind.LOAD, **changes: Any) -> CurrentRun:
    """An intended run."""
    return replace(CurrentRun(id="uidjan-12345678-1", kind=kind, inputs_hash="12345678", start_time=EARLIER), **changes)


def launched(plan: RunPlan, **changes: Any) -> CurrentRun:
    """The run of ``plan`` with its pod seen."""
    return replace(plan.intent(1, EARLIER), launch_time=EARLIER, **changes)


def pod(current: CurrentRun, owner_uid: str, **changes: Any) -> PodFacts:
    """The running pod of a run."""
    base = PodFacts(
        name=f"{current.id}-driver",
        namespace="lake",
        uid="uid-pod",
        run_id=current.id,
        operation=current.kind.value,
        owner_uid=owner_uid,
        created=START,
        started=START,
    )
    return replace(base, **changes)


def ended(current: CurrentRun, owner_uid: str, code: int, report: JobReport | None = None, **changes: Any) -> PodFacts:
    """The pod of a run whose driver ended."""
    base = pod(current, owner_uid, terminal=True, exit_code=code, ended=START, report=report, states=report)
    return replace(base, **changes)


def pending(current: CurrentRun, owner_uid: str, reason: Reason) -> PodFacts:
    """The pod of a run that has not started."""
    return pod(current, owner_uid, started=None, waits=Wait(reason, "because"))


def report(current: CurrentRun, outcome: RunOutcome, reason: Reason, **changes: Any) -> JobReport:
    """What the driver of a run said at its end."""
    base = JobReport(
        run_id=current.id, attempt=current.attempt, kind=current.kind, outcome=outcome, reason=reason, message="said"
    )
    return replace(base, **changes)


def underway(current: CurrentRun, **changes: Any) -> JobReport:
    """What the driver of a run says while it works."""
    return report(current, RunOutcome.RUNNING, Reason.DRIVER_RUNNING, **changes)


def run_world(subject_: Subject[Any, Any], current: CurrentRun, found: PodFacts | None = None) -> RunWorld:
    """A run with its pod."""
    return RunWorld(current=current, owner_uid=subject_.meta.uid, pod=found)


def table_state(**changes: Any) -> TableState:
    """What runs report of the table."""
    base = TableState(
        namespace="air",
        name="flights",
        uid="uid-flights",
        table_uuid="uuid-1",
        owner="uid-flights",
        sequence_number=3,
        rows=30,
        segments=SegmentCounts(total=3, valid=3, latest=3),
        columns={"id": "long", "tailnum": "string"},
        field_ids={"id": 1, "tailnum": 2},
    )
    return replace(base, **changes)


def index_state(total: int, synced: int, **changes: Any) -> IndexState:
    """What runs report of the index."""
    base = IndexState(
        uid="uid-by-tail",
        name="by-tail",
        segments_total=total,
        segments_synced=synced,
        segments_missing=total - synced,
        missing_segments=tuple(range(synced + 1, total + 1))[:20],
        rows_live=10 * total,
        rows_covered=10 * synced,
        exists=True,
    )
    return replace(base, **changes)


def written_condition(step: Step, type_: str) -> tuple[str, str]:
    """Status and reason of a condition that a step writes."""
    assert isinstance(step, PutStatus), step
    found = next(c for c in step.status["conditions"] if c["type"] == type_)
    return found["status"], found["reason"]


def as_condition(type_: str, status: ConditionStatus, reason: Reason, time: str = EARLIER) -> Condition:
    """A typed condition."""
    return Condition(type=type_, status=status, reason=reason.value, last_transition_time=time, observed_generation=1)
