"""Observe runs: which tables nobody has looked at for too long, and the one run that looks at all of them.

Called by the Warehouse's decider. Pure. What a run found is taken over by the Tables and indexes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from skipstone_core.contract.requests import Management, RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, READY, Judgement, fails, find, holds
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.indexstatus import is_known
from skipstone_operator.reconcilers.runs.launch import is_awaited, refusal_finding
from skipstone_operator.reconcilers.runs.lifecycle import Policy
from skipstone_operator.reconcilers.runs.records import RecordFields
from skipstone_operator.reconcilers.runs.requests import DueTable, RunPlan, plan_observe_run
from skipstone_operator.reconcilers.runs.statuses import earliest, or_rest, put_status
from skipstone_operator.resources.common import CurrentRun, RunResult
from skipstone_operator.resources.secondaryindex import Maintenance
from skipstone_operator.resources.warehouse import WarehouseStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, Live, RunWorld, Verdict, judge_run
from skipstone_operator.worlds.steps import PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import IndexSubject, TableSubject, children_of, warehouse_ready
from skipstone_operator.worlds.times import parse_time, past_time, seconds_since
from skipstone_operator.worlds.worlds import WarehouseWorld

#: Seconds until something that a run did not answer is asked again.
ASK_AGAIN = 60.0
OBSERVED_INTERVAL = 300
#: Tables and indexes that one report has room for: 64 KiB, about one KiB for each. A fuller one would tell nothing.
MAX_TOLD = 48


def observe_policy(world: WarehouseWorld) -> ObservePolicy:
    """The observe runs of a Warehouse."""
    mine = children_of(world.children, RunKind.OBSERVE)
    run = world.observe if world.warehouse.status.observe_run is not None else None
    return ObservePolicy(world=world, setting=world.setting, children=mine, run=run)


@dataclass(frozen=True, kw_only=True)
class ObservePolicy(Policy[WarehouseStatus]):
    """The runs that look at all due tables of a Warehouse; of them, its conditions tell ``find_trouble`` only."""

    kinds = (RunKind.OBSERVE,)
    noun = "the observe run"
    fields = RecordFields(
        current="observe_run",
        last="last_observe_run",
        failures="failed_observes",
        retry_time="observe_retry_time",
    )
    world: WarehouseWorld

    def plan(self) -> RunPlan | None:
        """The tables that are due."""
        return plan_observe_run(self.world.warehouse, self.world.claim, list(_due(self.world)), self.setting)

    def newest(self, plan: RunPlan) -> int:
        """Numbers go on from run to run."""
        last = self.record().last
        return last.attempt if last is not None else 0

    def idle(self) -> Step | None:
        """Wait until a table is due."""
        world = self.world
        waits = [wait for table in world.tables if (wait := seconds_to_look(world, table)) is not None]
        if not waits or not warehouse_ready(world.warehouse):
            return Rest()
        return Rest(requeue=Requeue(min(waits))) if min(waits) > 0 else None

    def block(self) -> Judgement | None:
        """Nothing is due any more, or the Warehouse is not ready."""
        ready = warehouse_ready(self.world.warehouse)
        return None if ready and any(_due(self.world)) else fails(PROGRESSING, Reason.IDLE)

    def status(self) -> WarehouseStatus:
        """As it is."""
        return self.world.warehouse.status

    def with_run(self, current: CurrentRun | None) -> WarehouseStatus:
        """How far the run is would be a write for every table."""
        return replace(self.status(), observe_run=None if current is None else replace(current, progress=""))

    def show(self, status: WarehouseStatus, progress: Judgement) -> PutStatus | None:
        """The run alone."""
        return put_status(self.world.warehouse, status)

    def foreign(self, run: RunWorld, message: str) -> Step:
        """The next run has another name; this one would wait for as long as the other object stays."""
        return self._give_up(run, Reason.RESOURCE_CONFLICT, message)

    def refused(self, refusal: Refused) -> Step | None:
        """A quota is waited for, anything else is a failure that tables tell of."""
        finding = refusal_finding(refusal)
        if is_awaited(finding) or self.run is None:
            return None
        return self._give_up(self.run, finding.reason, finding.message)

    def _give_up(self, run: RunWorld, reason: Reason, message: str) -> Step:
        return self.conclude(run, Verdict(ending=Ending.UNKNOWN, reason=reason, message=message), None)

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """Tables and indexes take over what was found; a failure waits with back-off."""
        ended = self.fields.lay(self.status(), self.after(run.current, verdict))
        return or_rest(put_status(self.world.warehouse, ended), 0.0)


def find_trouble(world: WarehouseWorld) -> Judgement | None:
    """Progressing of a Warehouse whose observe run is on a node that does not answer; tables tell of all other ends."""
    run = observe_policy(world).run
    state = None if run is None else judge_run(run, now=world.setting.now, timing=world.setting.timing)
    if not isinstance(state, Live) or state.reason not in (Reason.DRIVER_STUCK, Reason.NODE_NOT_READY):
        return None
    return (fails if state.stuck else holds)(PROGRESSING, state.reason, f"the observe run: {state.message}")


def _due(world: WarehouseWorld) -> Iterator[DueTable]:
    """The tables of the next run, those looked at longest ago first; what has no room in one report comes later."""
    due = [table for table in world.tables if seconds_to_look(world, table) == 0]
    reported = 0
    for table in sorted(due, key=lambda table: (table.status.observed_time or "", table.age)):
        indexes = world.indexes.get(table.meta.name, ())
        if reported and reported + 1 + len(indexes) > MAX_TOLD:
            return
        reported += 1 + len(indexes)
        yield DueTable(table=table, indexes=indexes)


def seconds_to_look(world: WarehouseWorld, table: TableSubject) -> float | None:
    """Seconds until the table is due; None when it never is."""
    if table.deleting or not is_observable(table):
        return None
    if past_time(table.status.observed_time, world.setting.now) is None:
        return _ask_delay(world, table)
    unknown = [
        _ask_delay(world, index) for index in world.indexes.get(table.meta.name, ()) if needs_observation(table, index)
    ]
    asked = is_of_unknown_health(table) or has_unreported_commits(table)
    return earliest(*unknown, _ask_delay(world, table) if asked else None, _refresh_delay(world, table))


def is_observable(table: TableSubject) -> bool:
    """Return whether the table is known to be the one that its resource declares."""
    ready = find(table.status.conditions, READY)
    if ready is None or ready.reason in (Reason.RESOURCE_CONFLICT, Reason.INVALID_SPEC, Reason.COLUMN_TYPE_UNSUPPORTED):
        return False
    return table.spec.management is Management.OBSERVED or table.status.applied_generation > 0


def is_of_unknown_health(table: TableSubject) -> bool:
    """Return whether nothing but an observe run will tell how the table is: no change of it is on its way."""
    is_settled = table.status.health is not None or table.spec.maintenance is None
    observed = table.spec.management is Management.OBSERVED
    return not is_settled and (observed or table.status.applied_generation == table.meta.generation)


def has_unreported_commits(table: TableSubject) -> bool:
    """Return whether a job or maintain run may have committed unreported, and no run has looked since or will."""
    last, looked = table.status.last_maintain_run, parse_time(table.status.observed_time)
    silent = last is not None and last.result in (RunResult.LOST, RunResult.UNKNOWN)
    ended = parse_time(last.completion_time) if silent and last is not None else None
    is_silent = ended is not None and (looked is None or looked < ended)
    return table.status.writer is None and (table.status.untold_time is not None or is_silent)


def needs_observation(table: TableSubject, index: IndexSubject) -> bool:
    """Return whether nothing but an observe run will tell how far the index is: no reindex starts by itself."""
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
