"""The status of a Table: what runs told of it, whether it is ready, who may write it.

Called by the table's decider only. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from skipstone_core.codec import decode, encode
from skipstone_core.contract.reports import MAX_LISTED_PROPERTIES, JobReport, PropertyFindings, TableState
from skipstone_core.contract.requests import Management
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    COMPLETE,
    HEALTHY,
    READY,
    SYNCED,
    Judgement,
    fails,
    find,
    format_time,
    holds,
    is_true,
    read_reason,
    shorten,
    unknown,
    without,
)
from skipstone_operator.reconcilers.jobs.facts import find_block, find_foreign_owner
from skipstone_operator.reconcilers.jobs.status import is_finished
from skipstone_operator.reconcilers.maintenance.health import show
from skipstone_operator.reconcilers.maintenance.judging import judge_healthy
from skipstone_operator.reconcilers.runs.statuses import judged, put_status
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.common import ConditionStatus, RunResult
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.resources.loadjob import LoadJobStatus
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.table import (
    MAX_CAVEATS,
    MAX_PROPERTY_NAME,
    IndexTally,
    PropertiesSeen,
    Segments,
    TableStatus,
    Writer,
)
from skipstone_operator.worlds.observations import (
    Observation,
    find_observation,
    is_newer,
    last_look,
    may_miss,
    remembered,
)
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.steps import PutStatus
from skipstone_operator.worlds.subjects import (
    Finding,
    TableSubject,
    find_warehouse_finding,
    is_dry_run,
    warehouse_ready,
)
from skipstone_operator.worlds.times import parse_time, past_time
from skipstone_operator.worlds.worlds import JobWorld, TableWorld

#: Ignored properties that a condition names.
NAMED_PROPERTIES = 5
#: What a job that changed nothing names as its snapshot.
NO_SNAPSHOT = "0"
#: Operations of pods that write the main table; a reindex, an observe run or a dry run may run beside them.
WRITER_OPERATIONS = frozenset({"Table", "Load", "Merge", "Confirm", "Drop", "Maintain"})


def with_observation(
    world: TableWorld, table: TableSubject, status: TableStatus, *, schema_changed: bool = False
) -> TableStatus:
    """``status`` with the newest state that a finished run told, once the table is known to be the one declared.

    ``schema_changed``: a change run of ours just ended, so another schema than the remembered one is as it should be.
    """
    managed = table.spec.management is Management.MANAGED
    now, known = world.setting.now, remembered(status.observed_time, status.metadata)
    observation = find_observation(table.meta.uid, world.pods, now)
    if observation is None or (managed and status.applied_generation == 0):
        return status
    # A later run that read older metadata has looked all the same.
    looked = replace(status, observed_time=last_look(status.observed_time, observation, now))
    if not is_newer(observation, known, now):
        return looked
    watched = managed and not schema_changed and status.current_run is None
    return apply_state(looked, observation, _find_drift(status, observation.state) if watched else "")


def _find_drift(status: TableStatus, state: TableState) -> str:
    """How the schema differs from the one that our own change runs left; empty when it does not.

    Columns that merges added on request are no difference.
    """
    if not status.field_ids or not state.table_uuid or not _tells_schema(state):
        return ""
    old = {name: (number, status.column_types.get(name)) for name, number in status.field_ids.items()}
    by_right = set(state.evolved_columns) - set(old)
    new = {name: (number, state.columns.get(name)) for name, number in state.field_ids.items() if name not in by_right}
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if not changed:
        return ""
    if lost := [name for name in changed if name in old and state.field_ids.get(name) != old[name][0]]:
        return _describe_lost(lost)
    names = ", ".join(changed[:5])
    message = f"somebody else changed the columns {names} of the table: undo it, or"
    foreign = next(
        (name for name in changed if not re.fullmatch(limits.COLUMN_TYPE, state.columns.get(name, "int"))), ""
    )
    if foreign:
        kind = shorten(state.columns[foreign], 64)
        return (
            f"{message} set spec.management to Observed, since spec.columns cannot declare {foreign}, which is {kind}"
        )
    return f"{message} declare them in spec.columns"


def _describe_lost(names: Sequence[str]) -> str:
    # A column that is added again is another one: its values are not those of the column that was there.
    return (
        f"somebody else dropped, renamed or replaced the columns {', '.join(names[:5])} of the table: set "
        "spec.reclaimPolicy to Retain, delete this Table and create it again with the columns that the table has now"
    )


def with_owner(status: TableStatus, report: JobReport | None) -> TableStatus:
    """``status`` with what a change run says of the owner property that it found in the table, or put there."""
    owned = {Reason.CREATED: True, Reason.ADOPTED: False}.get(report.reason) if report is not None else None
    return status if owned is None else replace(status, owned=owned)


def apply_state(status: TableStatus, observation: Observation, drift: str = "") -> TableStatus:
    """``status`` with what ``observation`` says; ``drift`` is the sentence on a schema changed by others."""
    state = observation.state
    problem = state.problem or (Reason.SCHEMA_DRIFT if drift else None)
    seen = replace(
        status,
        problem=problem.value if problem else "",
        problem_message=shorten(state.message if state.problem else drift),
    )
    # A state without table UUID tells of no table: what was known of it stays.
    return _with_counters(seen, observation, drifted=problem is Reason.SCHEMA_DRIFT) if state.table_uuid else seen


def _tells_schema(state: TableState) -> bool:
    # A report with many tables or columns leaves lists out to fit into its annotation.
    return bool(state.field_ids) and bool(state.columns)


def _with_counters(status: TableStatus, observation: Observation, *, drifted: bool) -> TableStatus:
    state = observation.state
    kept = drifted or not _tells_schema(state)
    return replace(
        status,
        table_uuid=status.table_uuid or state.table_uuid,
        location=state.location or status.location,
        namespace_id=state.namespace_id or status.namespace_id,
        format_version=state.format_version,
        owned=bool(state.owner) and state.owner == state.uid,
        field_ids=status.field_ids if kept else dict(state.field_ids),
        column_types=status.column_types if kept else dict(state.columns),
        metadata=observation.mark(state.metadata),
        snapshot_id=state.snapshot_id,
        sequence_number=state.sequence_number,
        rows=state.rows,
        files=state.files,
        bytes=state.bytes,
        segments=decode(Segments, encode(state.segments)),
        properties=_properties_seen(state.properties),
        caveats=tuple(map(shorten, state.caveats[:MAX_CAVEATS])),
        health=status.health if state.health is None else show(state.health, observation.time),
    )


def _properties_seen(findings: PropertyFindings) -> PropertiesSeen:
    names = tuple(shorten(name, MAX_PROPERTY_NAME) for name in findings.ignored[:MAX_LISTED_PROPERTIES])
    return PropertiesSeen(ignored=names, ignored_total=findings.ignored_total, refused=shorten(findings.refused))


def with_tally(world: TableWorld, status: TableStatus) -> TableStatus:
    """``status`` with the number of indexes and of those in sync."""
    living = [index for index in world.place.indexes if not index.deleting]
    in_sync = sum(1 for index in living if is_true(index.status.conditions, SYNCED))
    tally = IndexTally(total=len(living), in_sync=in_sync)
    return replace(status, indexes=tally, indexes_in_sync=f"{in_sync}/{len(living)}")


def seen(world: TableWorld, table: TableSubject) -> TableStatus:
    """The status with everything that others told: observations and indexes."""
    status = with_tally(world, with_observation(world, table, table.status))
    return status if table.spec.maintenance is not None else replace(status, health=None)


def written(
    world: TableWorld, table: TableSubject, status: TableStatus, progress: Judgement, *, due: bool = False
) -> PutStatus | None:
    """The status write with conditions, if anything changed; ``due``: a change of the table wants to be the writer."""
    return put_written(
        world, table, replace(status, writer=choose_writer(world, table, status, change_due=due)), progress
    )


def put_written(world: TableWorld, table: TableSubject, status: TableStatus, progress: Judgement) -> PutStatus | None:
    """The status write with conditions, whoever is the writer."""
    status = replace(status, untold_time=find_unreported(world, status))
    ready, healthy = judge_ready(world, table, status), judge_healthy(world, table, status)
    if healthy is None:
        status = replace(status, conditions=without(status.conditions, HEALTHY))
    judgements = [judgement for judgement in (ready, progress, healthy) if judgement is not None]
    return put_status(table, judged(status, table, judgements, world.setting.now))


def find_unreported(world: TableWorld, status: TableStatus) -> str | None:
    """When the job that committed to main last ended, while ``status`` does not tell of its commit; None when it does.

    The pod of a job may be gone before anybody reads what it says of the table, and may fail to say it.
    """
    on_main = [job.job.status for job in world.jobs if job.job.spec.branch is None]
    committed = [job for job in on_main if _has_committed(world, job)]
    last = max(committed, key=lambda job: job.completion_time or "", default=None)
    if last is None or last.snapshot_id == status.snapshot_id:
        return None
    segment = last.segment if isinstance(last, LoadJobStatus) else None
    if segment is not None and segment <= status.sequence_number:
        return None
    ended, looked = parse_time(last.completion_time), past_time(status.observed_time, world.setting.now)
    if ended is None or world.table is None:
        return None
    doubt = may_miss(ended, world.table.meta.uid, world.pods, world.setting.now)
    # Until a run reports that began after it
    was_unreported = doubt is None and status.untold_time == last.completion_time
    return last.completion_time if doubt or was_unreported or looked is None or looked < ended else None


def _has_committed(world: TableWorld, job: JobStatus) -> bool:
    mine = world.table is not None and job.table_uid == world.table.meta.uid
    return mine and is_true(job.conditions, COMPLETE) and job.snapshot_id not in ("", NO_SNAPSHOT)


def find_obstacle(world: TableWorld, table: TableSubject) -> Finding | None:
    """Why the table cannot be ready whatever its runs say."""
    if (bad := validate_spec(table.kind, table.spec)) is not None:
        return Finding(bad.reason, bad.message)
    if (closed := _find_closed_column(table)) is not None:
        return closed
    if world.place.warehouse is None:
        name = table.spec.warehouse_ref.name
        return Finding(Reason.WAREHOUSE_NOT_FOUND, f"spec.warehouseRef: there is no Warehouse {name!r} here; create it")
    rival = world.older_claimant
    if rival is not None:
        who = f"Table {rival.meta.namespace}/{rival.meta.name}"
        return Finding(
            Reason.RESOURCE_CONFLICT,
            f"spec.identifier: {who} is older and claims the same table; delete one of them, or create this one again "
            "with another identifier",
        )
    return None


def _find_closed_column(table: TableSubject) -> Finding | None:
    """A column that would close the table to Spark and that it does not have yet, unless the spec allows it."""
    if table.spec.allow_types_unreadable_by_spark or table.status.applied_generation == table.meta.generation:
        return None
    for position, column in enumerate(table.spec.columns):
        if column.type == limits.CLOSED_TYPE and table.status.column_types.get(column.name) != column.type:
            message = f"spec.columns[{position}].type: {column.type} {limits.CLOSED_WAY_OUT}"
            return Finding(Reason.COLUMN_TYPE_UNSUPPORTED, message)
    return None


def judge_ready(world: TableWorld, table: TableSubject, status: TableStatus) -> Judgement | None:
    """The condition Ready, or None while a table that is in use waits for a change."""
    if (obstacle := find_obstacle(world, table)) is not None:
        return fails(READY, obstacle.reason, obstacle.message)
    if status.problem and status.problem != Reason.FORMAT_VERSION_UNSUPPORTED:
        return fails(READY, read_reason(status.problem), status.problem_message)
    if table.spec.management is Management.OBSERVED:
        return _judge_observed(world, table, status)
    if status.applied_generation == table.meta.generation:
        return _judge_applied(status)
    return _judge_unapplied(world, table, status)


def _judge_unknown(world: TableWorld, table: TableSubject, message: str) -> Judgement:
    finding = find_warehouse_finding(table.spec.warehouse_ref.name, world.place.warehouse)
    if finding is not None:
        return fails(READY, finding.reason, finding.message)
    return unknown(READY, Reason.RUN_INTENDED, message)


def _judge_unseen(world: TableWorld) -> Judgement | None:
    warehouse = world.place.warehouse
    if warehouse is None or not warehouse_ready(warehouse) or warehouse.status.failed_observes == 0:
        return None
    last = warehouse.status.last_observe_run
    if last is None or not last.reason:
        return None
    return unknown(READY, read_reason(last.reason), f"the table could not be looked at: {last.message}")


def _judge_observed(world: TableWorld, table: TableSubject, status: TableStatus) -> Judgement:
    if not status.table_uuid:
        return _judge_unseen(world) or _judge_unknown(world, table, "the table has not been looked at yet")
    message, clauses = "the table is read as it is", _say_properties(status.properties)
    if status.problem == Reason.FORMAT_VERSION_UNSUPPORTED:
        message = f"format version {status.format_version}: indexes and queries only, loads and merges are refused"
        clauses = iter(())
    return holds(READY, Reason.OBSERVED, "; ".join((message, *clauses, *status.caveats)))


def _judge_applied(status: TableStatus) -> Judgement:
    reason, message = Reason.APPLIED, "the table is as spec asks"
    if status.owned:
        reason = Reason.CREATED
    elif status.owned is not None:
        reason, message = Reason.ADOPTED, "the table existed and is as spec asks; its data is never purged"
    return holds(READY, reason, "; ".join((message, *_say_properties(status.properties), *status.caveats)))


def _say_properties(seen: PropertiesSeen) -> Iterator[str]:
    if seen.refused:
        yield f"loads or merges are refused: {seen.refused.removesuffix('.')}"
    if not seen.ignored:
        return
    names = ", ".join(seen.ignored[:NAMED_PROPERTIES])
    more = max(seen.ignored_total, len(seen.ignored)) - NAMED_PROPERTIES
    others = f" and {more} more" if more > 0 else ""
    yield (
        f"loads and merges ignore the properties {names}{others} of the Iceberg table: remove them there, or accept "
        "files that are written without them"
    )


def _judge_unapplied(world: TableWorld, table: TableSubject, status: TableStatus) -> Judgement | None:
    last, in_use = status.last_run, status.applied_generation > 0
    # A table in use stays ready for what it was while its change is merely late.
    tells = last is not None and (last.result is RunResult.FAILED or not in_use)
    if tells and last is not None and last.generation == table.meta.generation and last.reason:
        return fails(READY, read_reason(last.reason), last.message)
    if in_use:
        return _judge_late(status)
    return _judge_unknown(world, table, "the table has not been created yet")


def _judge_late(status: TableStatus) -> Judgement | None:
    ready = find(status.conditions, READY)
    if ready is None or ready.status is ConditionStatus.TRUE:
        return None
    # What stood in the way is gone, or was said of another spec.
    return unknown(READY, Reason.RUN_INTENDED, "the change of the table has not been applied yet")


def live_writers(pods: Iterable[PodFacts]) -> tuple[PodFacts, ...]:
    """Pods that may still write the main table."""
    return tuple(pod for pod in pods if pod.live and pod.operation in WRITER_OPERATIONS)


def queue_of(world: TableWorld) -> list[JobWorld]:
    """Unfinished jobs that could write now but for each other, in the order in which they may."""
    writers = [job for job in world.jobs if not is_finished(job.job.status) and not is_dry_run(job.job)]
    able = [job for job in writers if not job.job.deleting and _is_able(job)]
    return sorted(able, key=lambda job: (not _is_begun(job), job.job.age))


def _is_begun(job: JobWorld) -> bool:
    status = job.job.status
    return status.current_run is not None or status.confirm is not None


def _is_able(job: JobWorld) -> bool:
    if find_foreign_owner(job) is not None:
        return False
    if _is_begun(job):
        return True
    return not job.job.spec.suspend and find_block(replace(job, turn=None)) is None


def choose_writer(
    world: TableWorld, table: TableSubject, status: TableStatus, *, change_due: bool, maintain_due: bool = False
) -> Writer | None:
    """Who may write next: a change, then the jobs, then maintenance.

    The place is free only when no pod of another holder is still alive.
    """
    queue, holder = queue_of(world), status.writer
    candidates = [_as_writer(world, job) for job in queue]
    if change_due or status.current_run is not None:
        candidates.insert(0, _table_writer(world, table, status))
    elif maintain_due or status.maintain_run is not None:
        candidates.append(_table_writer(world, table, status))
    by_uid = {writer.uid: writer for writer in candidates}
    if holder is not None and holder.uid in by_uid:
        return replace(by_uid[holder.uid], since=holder.since)
    writing = live_writers(world.pods)
    if writing:
        known = next((by_uid[pod.owner_uid] for pod in writing if pod.owner_uid in by_uid), None)
        return known or holder
    return candidates[0] if candidates else None


def _as_writer(world: TableWorld, job: JobWorld) -> Writer:
    run, meta = job.job.status.current_run, job.job.meta
    now = format_time(world.setting.now)
    return Writer(kind=job.job.kind, name=meta.name, uid=meta.uid, run=run.id if run else "", since=now)


def _table_writer(world: TableWorld, table: TableSubject, status: TableStatus) -> Writer:
    run, meta = status.current_run or status.maintain_run, table.meta
    now = format_time(world.setting.now)
    return Writer(kind=table.kind, name=meta.name, uid=meta.uid, run=run.id if run else "", since=now)


def find_turn(world: TableWorld, job: JobWorld, queue: Sequence[JobWorld] | None = None) -> Finding | None:
    """Who goes before ``job``; None when it is the writer, or a dry run, which runs beside any writer.

    ``queue``: ``queue_of(world)``, if it is known already.
    """
    if is_dry_run(job.job):
        return None
    writer = world.table.status.writer if world.table is not None else None
    if writer is not None and writer.uid == job.job.meta.uid:
        return None
    ahead = [other.job for other in (queue_of(world) if queue is None else queue) if other.job.age < job.job.age]
    older = [other for other in ahead if writer is None or other.meta.uid != writer.uid]
    if older:
        return Finding(Reason.WAITING_FOR_TURN, f"{older[-1].kind} {older[-1].meta.name} is older and goes first")
    if writer is not None:
        return Finding(Reason.WAITING_FOR_TABLE, f"{writer.kind} {writer.name} is writing the table")
    writing = live_writers(world.pods)
    who = f"pod {writing[0].name} is still alive" if writing else "the table is being handed over"
    return Finding(Reason.WAITING_FOR_TABLE, who)
