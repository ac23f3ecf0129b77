"""A namespace as the API server gives it, for tests of the report: statuses made from the operator's own types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from skipstone_core.codec import encode
from skipstone_core.contract.requests import RunKind
from skipstone_core.funnel import LeftOut
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason
from skipstone_operator.resources.common import Condition, ConditionStatus, LastRun, RunResult
from skipstone_operator.resources.loadjob import LoadJobStatus
from skipstone_operator.resources.maintenance.status import Health, StepResult
from skipstone_operator.resources.mergejob import (
    FileFunnel,
    FunnelStageStatus,
    MergeBytes,
    MergeJobStatus,
    MergeRows,
)
from skipstone_operator.resources.mergeschedule import MergeScheduleStatus
from skipstone_operator.resources.planning.status import PlanningStatus
from skipstone_operator.resources.secondaryindex import Coverage, IndexSegments, SecondaryIndexStatus
from skipstone_operator.resources.table import IndexTally, PropertiesSeen, Segments, TableStatus
from skipstone_operator.resources.warehouse import WarehouseStatus

from tests.unit import objects

Obj = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(**before: float) -> str:
    """The time so long before NOW, as Kubernetes writes it."""
    return (NOW - timedelta(**before)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, status: str, reason: str, message: str = "", **before: float) -> Condition:
    moment = at(**(before or {"hours": 1}))
    return Condition(
        type=type_, status=ConditionStatus(status), reason=reason, message=message, last_transition_time=moment
    )


def with_status(obj: Obj, status: Any, **before: float) -> Obj:
    """``obj`` created so long before NOW, with a typed status."""
    metadata = {**obj["metadata"], "creationTimestamp": at(**(before or {"days": 9}))}
    return {**obj, "metadata": metadata, "status": encode(status)}


def last_run(kind: RunKind, stages: dict[str, int], **before: float) -> LastRun:
    return LastRun(
        id="1a2b3c4d-77-1",
        kind=kind,
        result=RunResult.SUCCEEDED,
        reason=Reason.COMMITTED,
        completion_time=at(**before),
        stages_ms=stages,
    )


MERGE_STAGES = {"open": 310, "plan": 420, "read": 1830, "prune": 640, "rewrite": 8120, "commit": 770, "index": 1250}
FUNNEL = (
    FunnelStageStatus(
        name="Partitions",
        files_in=4112,
        files_out=4112,
        left_out=LeftOut.NOT_PARTITIONED_BY_KEY,
        message="no candidate file is partitioned by a key column",
    ),
    FunnelStageStatus(name="TargetWhere", files_in=4112, files_out=4112, left_out=LeftOut.NO_TARGET_WHERE),
    FunnelStageStatus(
        name="KeyRanges",
        files_in=4112,
        files_out=366,
        false_positives=349,
        false_positive_rate="95.4 %",
        duration_ms=112,
    ),
    FunnelStageStatus(
        name="KeyIndex",
        files_in=366,
        files_out=48,
        false_positives=31,
        false_positive_rate="64.6 %",
        message="2 of 9 runs read, 3.1 MiB",
        duration_ms=402,
    ),
    FunnelStageStatus(
        name="Bloom",
        files_in=48,
        files_out=19,
        false_positives=2,
        false_positive_rate="10.5 %",
        message="19 filters read",
        duration_ms=88,
    ),
    FunnelStageStatus(name="ExactJoin", files_in=19, files_out=17, duration_ms=7000),
)


def merged(name: str, files: FileFunnel, funnel: tuple[FunnelStageStatus, ...] = (), **before: float) -> Obj:
    status = MergeJobStatus(
        conditions=(condition("Complete", "True", Reason.COMMITTED), condition("Progressing", "False", Reason.IDLE)),
        reason=Reason.COMMITTED,
        start_time=at(**before),
        completion_time=at(**before),
        duration="13s",
        attempts=1,
        snapshot_id="8123456789012345678",
        last_run=last_run(RunKind.MERGE, MERGE_STAGES, **before),
        files=files,
        rows=MergeRows(source=1200, matched=1100, updated=1000, deleted=100, inserted=100, copied=912_345),
        bytes=MergeBytes(candidate=52_428_800, removed=31_457_280, rewritten=31_400_123, inserted=4096),
        funnel=funnel,
        pruned=f"{files.total - files.candidate}/{files.total}",
    )
    begun = {"hours": 1.0, **before}
    job = with_status(objects.merge(name), status, **begun)
    job["metadata"]["labels"] = {"skipstone.dev/schedule": "hourly"}
    job["metadata"]["annotations"] = {"skipstone.dev/scheduled-time": at(**{**begun, "minutes": 4})}
    return job


def failed_merge(name: str, **before: float) -> Obj:
    message = (
        "7 of 1,200 source keys come more than once, first (order_id=118): set spec.sequenceBy <to choose> & retry"
    )
    status = MergeJobStatus(
        conditions=(condition("Failed", "True", Reason.DUPLICATE_SOURCE_KEYS, message, **before),),
        reason=Reason.DUPLICATE_SOURCE_KEYS,
        completion_time=at(**before),
        duration="9s",
        attempts=1,
        failed_attempts=1,
    )
    return with_status(objects.merge(name), status, **{**before, "minutes": 22})


def running_merge(name: str) -> Obj:
    status = MergeJobStatus(
        conditions=(condition("Progressing", "True", Reason.DRIVER_RUNNING, "rewriting", seconds=20),),
        reason=Reason.DRIVER_RUNNING,
        attempts=1,
        files=FileFunnel(total=4112, candidate=24),
        funnel=tuple(FUNNEL[2:4]),
        pruned="4088/4112",
    )
    return with_status(objects.merge(name), status, seconds=40)


def loaded(name: str, rows: int, **before: float) -> Obj:
    stages = {"session": 6100, "write": 11_400, "commit": 900, "index": 2100}
    status = LoadJobStatus(
        conditions=(condition("Complete", "True", Reason.COMMITTED, **before),),
        reason=Reason.COMMITTED,
        completion_time=at(**before),
        duration="21s",
        attempts=1,
        last_run=last_run(RunKind.LOAD, stages, **before),
        segment=7,
        rows_loaded=rows,
        rows_rejected=0,
    )
    return with_status(objects.load(name), status, **{"seconds": 25.0, **before})


def indexed(name: str, column: str, missing: tuple[int, ...], total: int = 27, **more: Any) -> Obj:
    count = more.pop("count", len(missing))
    rows = 1_336_776
    status = SecondaryIndexStatus(
        conditions=(
            condition("Ready", "True", Reason.HEALTHY),
            condition("Synced", "False", Reason.SEGMENTS_MISSING, f"{count} of {total} segments are missing")
            if count
            else condition("Synced", "True", Reason.SEGMENTS_IN_SYNC),
        ),
        column_list=column,
        table_sequence_number=30,
        synced_sequence_number=(missing[0] - 1) if missing else 30,
        last_sync_time=at(hours=3),
        segments=IndexSegments(total=total, synced=total - count, missing=count),
        files=Coverage(live=4112, covered=4112 - 40 * count),
        rows=Coverage(live=rows, covered=rows - 1000 * count),
        missing_segments=missing,
        synced=f"{total - count}/{total}",
        covered=f"{100 * (rows - 1000 * count) // rows} %",
        exists=True,
        entries=rows,
        bytes=18_874_368,
        **more,
    )
    return with_status(objects.index(name, column), status)


def maintained_table() -> Obj:
    health = Health(
        time=at(minutes=9),
        small_files=31,
        due_files=24,
        due_bytes=91_226_112,
        delete_files=3,
        deleted_rows=411,
        snapshots=58,
        expirable_snapshots=12,
        manifests=40,
        metadata_bytes=2_411_724,
    )
    steps = (
        StepResult(
            step=MaintenanceStep.COMPACTION,
            time=at(hours=20),
            run="77aa-1",
            done=True,
            reason=Reason.COMMITTED,
            counts={"filesRewritten": 96, "filesWritten": 8, "bytesRewritten": 912_345_678},
        ),
        StepResult(step=MaintenanceStep.SNAPSHOTS, time=at(hours=20), run="77aa-1", reason=Reason.GIVING_WAY),
    )
    status = TableStatus(
        conditions=(
            condition("Ready", "True", Reason.CREATED, days=9),
            condition("Healthy", "False", Reason.SMALL_FILES, "24 small files are due for compaction", minutes=9),
        ),
        rows=1_336_776,
        files=4112,
        bytes=6_543_210_987,
        segments=Segments(total=27, valid=22, updated=5, latest=30),
        indexes=IndexTally(total=3, in_sync=1),
        observed_time=at(minutes=9),
        health=health,
        last_maintenance=steps,
        properties=PropertiesSeen(refused="write.format.default is orc, which merges do not write: set it to parquet"),
        last_maintain_run=last_run(RunKind.MAINTAIN, {"open": 300, "rewrite": 64_000, "commit": 2100}, hours=20),
    )
    return with_status(objects.table("flights", maintenance={}), status)


def sample() -> list[Obj]:
    """Every kind, with most of what a status can hold."""
    ready = condition("Ready", "True", Reason.CHECKED, days=9)
    warehouse = WarehouseStatus(
        conditions=(
            ready,
            condition("PlanningReady", "False", Reason.REPLICAS_FAILED, "0 of 2 replicas are ready", minutes=20),
        ),
        catalog="Sql (PostgreSQL)",
        storage="pvc lake-data",
        tables=2,
        check_time=at(days=9),
        planning=PlanningStatus(replicas=2, ready_replicas=0),
    )
    refused = TableStatus(
        conditions=(
            condition(
                "Ready",
                "False",
                Reason.SCHEMA_MISMATCH,
                "spec.columns[3].type: the table has long, and the spec asks for string: keep long",
                hours=5,
            ),
        ),
    )
    waiting = LoadJobStatus(
        conditions=(condition("Progressing", "False", Reason.WAITING_FOR_TURN, "load feb goes first", minutes=2),),
        reason=Reason.WAITING_FOR_TURN,
    )
    due = MergeScheduleStatus(
        conditions=(condition("Ready", "True", Reason.SCHEDULED),),
        active=1,
        active_jobs=("hourly-9",),
        last_schedule_time=at(minutes=1),
        next_schedule_time=at(minutes=-59),
        last_successful_time=at(hours=1),
    )
    return [
        with_status(objects.warehouse(), warehouse),
        maintained_table(),
        with_status(objects.table("carriers"), refused),
        indexed("by-tail", "tailnum", (21, 24, 29)),
        indexed("by-carrier", "carrier,flight", ()),
        indexed("by-origin", "origin", tuple(range(2, 22)), count=25),
        *(
            merged(f"hourly-{hour}", FileFunnel(total=4112, candidate=19, touched=17, rewritten=17), FUNNEL, hours=hour)
            for hour in range(2, 8)
        ),
        merged("marking", FileFunnel(total=120, candidate=30, touched=22, rewritten=4, marked=9), hours=30, minutes=1),
        failed_merge("hourly-1", hours=1),
        running_merge("hourly-9"),
        *(loaded(f"load-{day}", 40_000 + day, days=day) for day in range(1, 5)),
        with_status(objects.load("load-mar"), waiting, minutes=3),
        with_status(objects.schedule(), due),
    ]
