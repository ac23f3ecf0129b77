"""SecondaryIndex: the one next step towards an index that covers every live segment of its table.

Entry point of keys of kind SecondaryIndex. A reindex needs no turn: it may run beside a writer. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from skipstone_core.contract.requests import RunKind, TableRef
from skipstone_core.ids import index_table_name
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PROGRESSING, Judgement, fails, format_time, holds
from skipstone_operator.ports import Refused
from skipstone_operator.reconcilers import drops
from skipstone_operator.reconcilers.indexstatus import find_obstacle, is_known, judge, seen
from skipstone_operator.reconcilers.runs import lifecycle
from skipstone_operator.reconcilers.runs.lifecycle import Policy, decide_refused
from skipstone_operator.reconcilers.runs.records import RecordFields, last_end
from skipstone_operator.reconcilers.runs.requests import (
    DropTarget,
    RunPlan,
    build_index_ref,
    plan_reindex_run,
    reindex_request,
)
from skipstone_operator.reconcilers.runs.statuses import judged, or_rest, put_status
from skipstone_operator.reconcilers.runs.tables import build_table_ref
from skipstone_operator.resources.common import CurrentRun, RunResult
from skipstone_operator.resources.secondaryindex import Maintenance, SecondaryIndexStatus
from skipstone_operator.worlds.observations import find_observation
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, RunWorld, Verdict
from skipstone_operator.worlds.steps import PutStatus, Step
from skipstone_operator.worlds.subjects import Finding, deletes_data, find_warehouse_finding
from skipstone_operator.worlds.worlds import IndexWorld

#: What a run found wrong with an index and the next reindex may fix.
_MENDED_BY_REINDEX = frozenset({Reason.INDEX_DAMAGED, Reason.STORAGE_UNAVAILABLE, Reason.SEGMENTS_FAILED})
#: Operations of pods that enter what they commit into Inline indexes.
_ENTERING = frozenset({RunKind.LOAD.value, RunKind.MERGE.value, RunKind.MAINTAIN.value})
#: Refusals that the Table's own condition tells of, and that end when the table is back.
_MAY_COME_BACK = frozenset({Reason.TABLE_MISSING, Reason.TABLE_REPLACED})


def decide(world: IndexWorld) -> Step:
    """Choose the one next write for the index."""
    index = world.index
    if index.deleting:
        return drops.decide_drop(drop_world(world))
    if (step := drops.keep_finalizer(index, wanted=deletes_data(index))) is not None:
        return step
    return lifecycle.decide(reindex_policy(world))


def drop_world(world: IndexWorld) -> drops.DropWorld:
    """What the deletion of the index has to know; the Table may be gone already."""
    index, status, table = world.index, world.index.status, world.place.table
    target = build_table_ref(table) if table is not None else _remembered_table(status)
    name = index_table_name(target.name, index.meta.name, index.meta.uid)
    return drops.DropWorld(
        subject=index,
        setting=world.setting,
        target=DropTarget(owner=index, table=target, index=build_index_ref(index)),
        location=f"{target.namespace}.{name}",
        has_data=bool(status.exists or status.current_run or status.last_run),
        wants_drop=deletes_data(index),
        warehouse=world.place.warehouse,
        claim=world.place.claim,
        run=world.run,
        children=world.children,
        writers=tuple(pod for pod in world.children.pods if pod.live and pod.operation == RunKind.REINDEX),
    )


def _remembered_table(status: SecondaryIndexStatus) -> TableRef:
    return TableRef(
        namespace=status.table_namespace,
        name=status.table_name,
        uid=status.table_uid,
        table_uuid=status.table_uuid or None,
    )


def find_block(world: IndexWorld) -> Finding | None:
    """Why no reindex can start now."""
    if (obstacle := find_obstacle(world)) is not None:
        return obstacle
    table = world.place.table
    if table is None:
        return Finding(Reason.TABLE_NOT_FOUND, "spec.tableRef: the Table is gone")
    finding = find_warehouse_finding(table.spec.warehouse_ref.name, world.place.warehouse)
    return Finding(Reason.WAITING_FOR_WAREHOUSE, finding.message) if finding is not None else None


def plan_reindex(world: IndexWorld) -> RunPlan | None:
    """The reindex, when Table and Warehouse are there."""
    table, warehouse = world.place.table, world.place.warehouse
    if table is None or warehouse is None:
        return None
    return plan_reindex_run(world.index, world.place, table, warehouse, world.setting)


def is_asked_for(world: IndexWorld, status: SecondaryIndexStatus) -> bool:
    """Return whether a user asked for a reindex by hand since the last one."""
    return reindex_request(world.index) not in ("", status.observed_reindex)


def is_needed(world: IndexWorld, status: SecondaryIndexStatus) -> bool:
    """Return whether a reindex is due: by hand or begun always, else when segments are or may be missing."""
    if is_asked_for(world, status):
        return True
    if needs_user(status):
        return False
    if status.retry_time is not None or (status.last_run is not None and status.last_run.result is RunResult.LOST):
        # A request by hand counts as seen once its first attempt is intended: the attempts after it follow from this.
        return True
    if world.index.spec.maintenance is Maintenance.MANUAL:
        return False
    table = world.place.table
    behind = table is not None and table.status.sequence_number > status.table_sequence_number
    lacking = not is_known(status) or buildable(status) > 0 or behind
    return lacking or is_unsettled(world, status) or status.rows_to_merge > 0 or _may_have_healed(world, status)


def is_unsettled(world: IndexWorld, status: SecondaryIndexStatus) -> bool:
    """Return whether the index table says something else about its use than the spec."""
    spec = world.index.spec
    store = "" if spec.store is None else spec.store.ref().settings
    return status.exists and ((spec.unused_below_percent or 0) != status.unused_below_percent or store != status.store)


def needs_user(status: SecondaryIndexStatus) -> bool:
    """Return whether the index is degraded by something that no reindex fixes."""
    return bool(status.degraded) and status.degraded not in _MENDED_BY_REINDEX


def buildable(status: SecondaryIndexStatus) -> int:
    """Missing segments that are not known to fail."""
    return max(0, status.segments.missing - status.segments.failed)


def _may_have_healed(world: IndexWorld, status: SecondaryIndexStatus) -> bool:
    """Return whether segments failed under inputs that have changed since."""
    plan, last = plan_reindex(world), status.last_run
    changed = plan is not None and last is not None and last.inputs_hash != plan.inputs_hash
    return status.segments.failed > 0 and changed


def is_given_up(status: SecondaryIndexStatus, plan: RunPlan | None) -> bool:
    """Return whether these very inputs failed for good."""
    return plan is not None and status.failed_inputs_hash == plan.inputs_hash


def written(world: IndexWorld, status: SecondaryIndexStatus, progress: Judgement) -> PutStatus | None:
    """The status write with all conditions, if anything changed."""
    given_up = is_given_up(status, plan_reindex(world))
    judgements = [*judge(world, status, given_up=given_up), progress]
    index = world.index
    return put_status(index, judged(status, index, judgements, world.setting.now))


def reindex_policy(world: IndexWorld) -> ReindexPolicy:
    """The reindexes of an index."""
    return ReindexPolicy(world=world, setting=world.setting, children=world.children, run=world.run)


@dataclass(frozen=True, kw_only=True)
class ReindexPolicy(Policy[SecondaryIndexStatus]):
    """The runs that bring an index in sync."""

    kinds = (RunKind.REINDEX,)
    noun = "the reindex"
    fields = RecordFields(refused_hash="failed_inputs_hash")
    world: IndexWorld

    def plan(self) -> RunPlan | None:
        """The reindex, when Table and Warehouse are there."""
        return plan_reindex(self.world)

    def idle(self) -> Step | None:
        """Nothing is missing, or something is in the way."""
        status = self.status()
        rest = find_rest(self.world, status, self.plan())
        if rest is None:
            return None
        waits = self.pause() if rest.reason is Reason.WAITING_FOR_TABLE else None
        return or_rest(self.show(status, fails(PROGRESSING, rest.reason, rest.message)), waits)

    def block(self) -> Judgement | None:
        """Suspended, or Table or Warehouse are not ready."""
        finding = find_suspension(self.world) or find_block(self.world)
        return fails(PROGRESSING, finding.reason, finding.message) if finding is not None else None

    def stop(self) -> Finding | None:
        """Suspended."""
        return find_suspension(self.world)

    def status(self) -> SecondaryIndexStatus:
        """With what runs told of the table and of the index."""
        return seen(self.world)

    def with_intent(self, current: CurrentRun) -> SecondaryIndexStatus:
        """A request by hand is answered by a reindex that knows it."""
        status, plan = super().with_intent(current), self.plan()
        if plan is None or current.inputs_hash != plan.inputs_hash:
            return status
        asked = reindex_request(self.world.index)
        return replace(status, observed_reindex=asked or status.observed_reindex)

    def show(self, status: SecondaryIndexStatus, progress: Judgement) -> PutStatus | None:
        """All conditions of the index."""
        return written(self.world, status, progress)

    def conclude(self, run: RunWorld, verdict: Verdict, pod: PodFacts | None) -> Step:
        """Segments are covered, or it is tried again, or it failed for good."""
        status, current = self.fields.lay_current(self.status(), None), run.current
        if verdict.ending is Ending.SUCCEEDED:
            status = replace(status, last_sync_time=format_time(self.setting.now))
        if verdict.ending is Ending.SUCCEEDED and self._is_fruitless(status, verdict):
            record = self.after(current, verdict, ending=Ending.UNKNOWN)
        else:
            final = verdict.reason not in _MAY_COME_BACK
            record = self.after(current, verdict, inputs_hash=current.inputs_hash if final else "")
        progress = fails(PROGRESSING, Reason.IDLE, "the reindex ended")
        if record.retry_time is not None:
            progress = holds(PROGRESSING, Reason.RETRYING, last_end(record.last))
        return or_rest(self.show(self.fields.lay(status, record), progress), 0.0)

    def _is_fruitless(self, status: SecondaryIndexStatus, verdict: Verdict) -> bool:
        """Return whether nothing was built and the need stands: another run must not follow at once, for ever."""
        built = verdict.report.counts.get("segments", 0) if verdict.report is not None else 0
        return not built and is_needed(self.world, self.fields.lay_due(status))


def find_entering(world: IndexWorld, status: SecondaryIndexStatus) -> Finding | None:
    """The live writer of the table that enters all that an Inline index lacks before it ends.

    That is so when the index lacks nothing but what the table did not have when the writer's pod was made.
    """
    if world.index.spec.maintenance is not Maintenance.INLINE or is_asked_for(world, status) or not status.exists:
        return None
    writer = next((pod for pod in world.pods if pod.live and pod.operation in _ENTERING), None)
    begun = writer.created if writer is not None else None
    if writer is None or begun is None:
        return None
    ended = (pod for pod in world.pods if pod.ended is not None and pod.ended <= begun)
    before = find_observation(status.table_uid, ended, world.setting.now)
    oldest = min(status.missing_segments, default=status.table_sequence_number + 1)
    if before is None or oldest <= before.state.sequence_number:
        return None
    return Finding(Reason.WAITING_FOR_TABLE, f"driver pod {writer.name} enters its files into the index before it ends")


def find_rest(world: IndexWorld, status: SecondaryIndexStatus, plan: RunPlan | None) -> Finding | None:
    """Why nothing is started although nothing runs."""
    if (block := find_suspension(world) or find_block(world)) is not None:
        return block
    if is_given_up(status, plan):
        return Finding(Reason.IDLE, "the last reindex failed for good; it is tried again when its inputs change")
    return find_entering(world, status) if is_needed(world, status) else Finding(Reason.IDLE, "there is nothing to do")


def find_suspension(world: IndexWorld) -> Finding | None:
    """Return why no run starts if the user asked for none."""
    return Finding(Reason.SUSPENDED, "spec.suspend is true") if world.index.spec.suspend else None


def refused(world: IndexWorld, refusal: Refused) -> Step:
    """The API server refused a child of the index's run."""
    if world.index.deleting:
        return drops.refused(drop_world(world), refusal)
    return decide_refused(reindex_policy(world), refusal)
