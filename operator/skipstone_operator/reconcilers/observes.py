"""Observe runs: which tables nobody has looked at for too long, and the one run that looks at all of them.

Called by the Warehouse's decider. Pure. What a run found is taken over by the Tables and indexes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from skipstone_core.contract.requests import Management, RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import READY, find, format_time
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.indexstatus import is_known
from skipstone_operator.reconcilers.launch import (
    FOREIGN_POLL,
    clean_executors,
    delete_pod,
    discard,
    is_stale,
    launch,
    next_attempt,
    refusal_finding,
    trim,
)
from skipstone_operator.reconcilers.requests import plan_observe_run
from skipstone_operator.reconcilers.statuses import earliest, followed, or_rest, put_status, record_end
from skipstone_operator.resources.secondaryindex import Maintenance
from skipstone_operator.worlds.runs import Ended, Ending, Foreign, Live, NotLaunched, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import Rest, Step
from skipstone_operator.worlds.subjects import IndexSubject, TableSubject, children_of, warehouse_ready
from skipstone_operator.worlds.times import add_seconds, backoff, parse_time, past_time, seconds_since, seconds_until
from skipstone_operator.worlds.worlds import WarehouseWorld

#: Seconds after an observe run in which tables and indexes take over what it found.
SETTLE = 10.0
#: Seconds until something that a run did not answer is asked again.
ASK_AGAIN = 60.0
OBSERVED_INTERVAL = 300
#: Tables and indexes that one report has room for: 64 KiB, about one KiB for each. A fuller one would tell nothing.
MAX_TOLD = 48


def decide_observe(world: WarehouseWorld) -> Step:
    """The one next write for the observe runs of the Warehouse."""
    current = world.warehouse.status.observe_run
    step = (
        _decide_run(world, world.observe) if current is not None and world.observe is not None else _decide_idle(world)
    )
    if not isinstance(step, Rest):
        return step
    mine = children_of(world.children, RunKind.OBSERVE)
    return trim(mine, {current.id} if current else ()) or step


def _decide_idle(world: WarehouseWorld) -> Step:
    if not warehouse_ready(world.warehouse):
        return Rest()
    waits = [wait for table in world.tables if (wait := seconds_to_look(world, table)) is not None]
    wait = min(waits, default=None)
    if wait is None:
        return Rest()
    status, now = world.warehouse.status, world.setting.now
    wait = max(wait, seconds_until(status.observe_retry_time, now))
    if wait > 0:
        return Rest(requeue=Requeue(wait))
    plan = plan_observe_run(world.warehouse, world.claim, list(_due(world)), world.setting)
    last = status.last_observe_run
    attempt = next_attempt(
        children_of(world.children, RunKind.OBSERVE), (RunKind.OBSERVE,), last.attempt if last else 0
    )
    intended = replace(status, observe_run=plan.intent(attempt, format_time(now)), observe_retry_time=None)
    return or_rest(put_status(world.warehouse, intended), 0.0)


def _due(world: WarehouseWorld) -> Iterator[tuple[TableSubject, tuple[IndexSubject, ...]]]:
    """The tables of the next run, those looked at longest ago first; what has no room in one report comes later."""
    due = [table for table in world.tables if seconds_to_look(world, table) == 0]
    told = 0
    for table in sorted(due, key=lambda table: (table.status.observed_time or "", table.age)):
        indexes = world.indexes.get(table.meta.name, ())
        if told and told + 1 + len(indexes) > MAX_TOLD:
            return
        told += 1 + len(indexes)
        yield table, indexes


def seconds_to_look(world: WarehouseWorld, table: TableSubject) -> float | None:
    """Seconds until the table is due; None when it never is."""
    if table.deleting or not is_observable(table):
        return None
    if past_time(table.status.observed_time, world.setting.now) is None:
        return _ask_delay(world, table)
    unknown = [
        _ask_delay(world, index) for index in world.indexes.get(table.meta.name, ()) if is_in_the_dark(table, index)
    ]
    return earliest(*unknown, _refresh_delay(world, table))


def is_observable(table: TableSubject) -> bool:
    """Whether the table is known to be the one that its resource declares."""
    ready = find(table.status.conditions, READY)
    if ready is None or ready.reason in (Reason.RESOURCE_CONFLICT, Reason.INVALID_SPEC, Reason.COLUMN_TYPE_UNSUPPORTED):
        return False
    return table.spec.management is Management.OBSERVED or table.status.applied_generation > 0


def is_in_the_dark(table: TableSubject, index: IndexSubject) -> bool:
    """Whether nothing but an observe run will tell how far the index is: no reindex starts by itself."""
    status, spec = index.status, index.spec
    idle = spec.suspend or spec.maintenance is Maintenance.MANUAL
    behind = table.status.sequence_number > status.table_sequence_number
    return idle and not index.deleting and (not is_known(status) or behind)


def _ask_delay(world: WarehouseWorld, subject: TableSubject | IndexSubject) -> float:
    last = world.warehouse.status.last_observe_run
    asked = past_time(last.start_time, world.setting.now) if last is not None else None
    created = parse_time(subject.meta.creation_timestamp)
    if last is None or asked is None or (created is not None and created >= asked):
        return 0.0
    waited = seconds_since(last.completion_time, world.setting.now)
    return 0.0 if waited is None else max(0.0, ASK_AGAIN - waited)


def _refresh_delay(world: WarehouseWorld, table: TableSubject) -> float | None:
    interval = table.spec.refresh_interval_seconds
    if interval is None:
        interval = OBSERVED_INTERVAL if table.spec.management is Management.OBSERVED else 0
    waited = seconds_since(table.status.observed_time, world.setting.now)
    return max(0.0, interval - waited) if interval > 0 and waited is not None else None


def _decide_run(world: WarehouseWorld, run: RunWorld) -> Step:
    setting = world.setting
    match judge_run(run, now=setting.now, pending_deadline=setting.timing.pending_deadline):
        case NotLaunched():
            return _launch(world, run)
        case Foreign(what):
            # The next run has another name; this one would wait for as long as the other object stays.
            message = f"{what} bears the name of the observe run and belongs to something else; delete it"
            return _conclude(
                world, run, Verdict(ending=Ending.UNKNOWN, reason=Reason.RESOURCE_CONFLICT, message=message)
            )
        case Live() as live:
            return _follow(world, run, live)
        case Ended(verdict, _):
            return clean_executors(run) or _conclude(world, run, verdict)


def _launch(world: WarehouseWorld, run: RunWorld) -> Step:
    status, due = world.warehouse.status, list(_due(world))
    plan = plan_observe_run(world.warehouse, world.claim, due, world.setting)
    if not due or not warehouse_ready(world.warehouse) or is_stale(run.current, plan):
        return discard(run) or or_rest(put_status(world.warehouse, replace(status, observe_run=None)), 0.0)
    return launch(run, plan)


def refused_observe(world: WarehouseWorld, refusal: Refused) -> Step:
    """The API server refused a child of the observe run: a quota is waited for, anything else is a failure."""
    finding = refusal_finding(refusal)
    if finding.reason is Reason.WAITING_FOR_QUOTA or world.observe is None:
        return Rest(requeue=Requeue(world.setting.timing.quota_poll))
    verdict = Verdict(ending=Ending.UNKNOWN, reason=finding.reason, message=finding.message)
    return _conclude(world, world.observe, verdict)


def _follow(world: WarehouseWorld, run: RunWorld, live: Live) -> Step:
    current = replace(followed(run.current, live), progress="")
    if live.overdue and not current.stop_reason:
        current = replace(current, stop_reason=live.reason.value, stop_message=live.message)
    step = put_status(world.warehouse, replace(world.warehouse.status, observe_run=current))
    if step is None and current.stop_reason and not live.pod.deleting:
        return delete_pod(live.pod)
    return or_rest(step, FOREIGN_POLL)


def _conclude(world: WarehouseWorld, run: RunWorld, verdict: Verdict) -> Step:
    status, now, timing = world.warehouse.status, world.setting.now, world.setting.timing
    failures = 0 if verdict.ending is Ending.SUCCEEDED else status.failed_observes + 1
    delay = max(SETTLE, backoff(failures, base=timing.backoff_base, cap=timing.check_retry_cap))
    ended = replace(
        status,
        observe_run=None,
        last_observe_run=record_end(run.current, verdict, now),
        failed_observes=failures,
        observe_retry_time=format_time(add_seconds(now, delay)),
    )
    return or_rest(put_status(world.warehouse, ended), 0.0)
