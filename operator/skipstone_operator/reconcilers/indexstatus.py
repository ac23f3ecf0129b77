"""The status of a SecondaryIndex: how far it covers its table, and whether that is enough.

Called by the index's decider only. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.reports import IndexState
from skipstone_core.indexing.use import covers_too_little
from skipstone_core.keys import UNFIT_FOR_BUCKETS, is_bucketed, key_type
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    DEGRADED,
    READY,
    SYNCED,
    Judgement,
    fails,
    find,
    holds,
    read_reason,
    shorten,
    unknown,
)
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.common import ConditionStatus
from skipstone_operator.resources.secondaryindex import (
    Coverage,
    IndexSegments,
    SecondaryIndexSpec,
    SecondaryIndexStatus,
)
from skipstone_operator.worlds.observations import Observation, find_observation, is_newer, last_look, remembered
from skipstone_operator.worlds.subjects import Finding, TableSubject, find_table_finding
from skipstone_operator.worlds.worlds import IndexWorld

SHOWN_WHOLE = 5
SHOWN_CUT = 3
MAX_LISTED = 20


def seen(world: IndexWorld) -> SecondaryIndexStatus:
    """The status with what is known of the table and with the newest state that a finished run told."""
    status = with_identity(world, world.index.status)
    uid, now = world.index.meta.uid, world.setting.now
    observation = find_observation(status.table_uid, world.pods, now, uid)
    if observation is None:
        return with_empty_table(world, status)
    known = remembered(status.observed_time, status.metadata, status.index_metadata)
    looked = replace(status, observed_time=last_look(status.observed_time, observation, now))
    if is_newer(observation, known, now, uid):
        return apply_state(looked, observation, uid)
    return with_empty_table(world, looked)


def with_identity(world: IndexWorld, status: SecondaryIndexStatus) -> SecondaryIndexStatus:
    """``status`` with the names that the drop of the index needs when the Table is gone."""
    status = replace(status, column_list=",".join(world.index.spec.columns))
    table = world.place.table
    if table is None:
        return status
    return replace(
        status,
        warehouse=table.spec.warehouse_ref.name,
        table_namespace=table.spec.identifier.namespace,
        table_name=table.spec.identifier.name,
        table_uid=table.meta.uid,
        table_uuid=table.status.table_uuid or status.table_uuid,
    )


def with_empty_table(world: IndexWorld, status: SecondaryIndexStatus) -> SecondaryIndexStatus:
    """A table without segments needs no run to tell that nothing is missing."""
    table = world.place.table
    if table is None or status.observed_time or not table.status.observed_time or table.status.segments.total:
        return status
    return replace(status, synced="0/0", covered="100 %", table_sequence_number=table.status.sequence_number)


def apply_state(status: SecondaryIndexStatus, observation: Observation, uid: str) -> SecondaryIndexStatus:
    """``status`` with what ``observation`` says of this index."""
    state = observation.index(uid)
    if state is None:
        return status
    return replace(
        status,
        table_sequence_number=observation.state.sequence_number,
        synced_sequence_number=state.synced_sequence_number,
        metadata=observation.mark(observation.state.metadata),
        index_metadata=observation.mark(state.metadata),
        segments=IndexSegments(
            total=state.segments_total,
            synced=state.segments_synced,
            missing=state.segments_missing,
            failed=state.segments_failed,
        ),
        files=Coverage(live=state.files_live, covered=state.files_covered),
        rows=Coverage(live=state.rows_live, covered=state.rows_covered),
        missing_segments=state.missing_segments[:MAX_LISTED],
        synced=f"{state.segments_synced}/{state.segments_total}",
        missing=format_missing(state),
        covered=format_covered(state),
        exists=state.exists,
        entries=state.entries,
        bytes=state.bytes,
        rows_to_merge=state.rows_to_merge,
        unused_below_percent=state.unused_below_percent,
        store=state.store,
        degraded=state.degraded.value if state.degraded else "",
        degraded_message=shorten(state.message) if state.degraded else "",
    )


def format_missing(state: IndexState) -> str:
    """``1,4``, or ``1,4,7…+12`` when they are many."""
    ids = state.missing_segments
    if state.segments_missing <= min(SHOWN_WHOLE, len(ids)):
        return ",".join(map(str, ids))
    head = ids[:SHOWN_CUT]
    return f"{','.join(map(str, head))}…+{state.segments_missing - len(head)}"


def covered_percent(live: int, covered: int) -> int:
    """Whole percent of rows covered, rounded down: 100 is all of them."""
    return 100 if live <= 0 else 100 * covered // live


def format_covered(state: IndexState) -> str:
    """``98 %``."""
    return f"{covered_percent(state.rows_live, state.rows_covered)} %"


def find_obstacle(world: IndexWorld) -> Finding | None:
    """Why the index can neither be built nor be used."""
    index, table = world.index, world.place.table
    if (bad := validate_spec(index.kind, index.spec)) is not None:
        return Finding(bad.reason, bad.message)
    if (finding := _find_table_obstacle(index.spec.table_ref.name, table)) is not None or table is None:
        return finding
    return find_duplicate(world) or find_column_obstacle(world, table)


def _find_table_obstacle(name: str, table: TableSubject | None) -> Finding | None:
    if table is None or table.deleting:
        return find_table_finding(name, table)
    ready = find(table.status.conditions, READY)
    refused = ready is not None and ready.status is ConditionStatus.FALSE
    if refused or not table.status.table_uuid:
        return Finding(Reason.TABLE_NOT_READY, f"Table {name!r} is not ready: see its conditions")
    return None


def find_duplicate(world: IndexWorld) -> Finding | None:
    """An older index of the same definition on the same table."""
    index = world.index
    twins = [
        other
        for other in world.place.indexes
        if other.meta.uid != index.meta.uid
        and not other.deleting
        and _defined(other.spec) == _defined(index.spec)
        and other.age < index.age
    ]
    if not twins:
        return None
    name = min(twins, key=lambda other: other.age).meta.name
    return Finding(Reason.DUPLICATE_INDEX, f"SecondaryIndex {name!r} indexes the same columns already; delete one")


def _defined(spec: SecondaryIndexSpec) -> tuple[object, ...]:
    return (spec.columns, frozenset(spec.include), spec.type, spec.parameters)


def find_column_obstacle(world: IndexWorld, table: TableSubject) -> Finding | None:
    """A column that the table lacks, or whose type has no order that an index could use.

    Asked before the first build only: a built index belongs to field ids, which a renamed column keeps, and its runs
    tell when a column was dropped or replaced.
    """
    types = table.status.column_types
    if not types or world.index.status.exists:
        return None
    spec = world.index.spec
    for field, names, unfit in (
        ("columns", spec.columns, "which cannot be indexed"),
        ("include", spec.include, "which cannot be included"),
    ):
        for position, name in enumerate(names):
            if name not in types:
                message = (
                    f"spec.{field}[{position}]: table {table.meta.name!r} has no column {name!r}; add it to the table, "
                    "or create the index again with another column"
                )
                return Finding(Reason.COLUMN_NOT_FOUND, message)
            if key_type(types[name]) is None:
                message = (
                    f"spec.{field}[{position}]: column {name!r} has type {types[name]}, {unfit}; create the index "
                    "again with columns of simple types"
                )
                return Finding(Reason.COLUMN_TYPE_UNSUPPORTED, message)
    for position, name in enumerate(spec.columns if spec.type.traits.is_bucketed else ()):
        if not is_bucketed(types[name]):
            message = f"spec.columns[{position}]: column {name!r} has type {types[name]}, {UNFIT_FOR_BUCKETS}"
            return Finding(Reason.COLUMN_TYPE_UNSUPPORTED, message)
    return None


def judge(world: IndexWorld, status: SecondaryIndexStatus, *, given_up: bool) -> list[Judgement]:
    """The conditions Ready, Synced and Degraded. ``given_up``: the last reindex failed for good."""
    return [judge_ready(world, status), judge_synced(status), judge_degraded(status, given_up=given_up)]


def is_known(status: SecondaryIndexStatus) -> bool:
    """Return whether any run, or the emptiness of the table, told how far the index is."""
    return bool(status.synced)


def judge_ready(world: IndexWorld, status: SecondaryIndexStatus) -> Judgement:
    """Return the condition that queries may use the index within the limits of its spec."""
    if (obstacle := find_obstacle(world)) is not None:
        return fails(READY, obstacle.reason, obstacle.message)
    if status.degraded:
        return fails(READY, read_reason(status.degraded), status.degraded_message)
    if not is_known(status) or (status.segments.total > 0 and not status.exists):
        return fails(READY, Reason.NOT_BUILT, "the index has not been built yet")
    return _judge_limits(world, status)


def _judge_limits(world: IndexWorld, status: SecondaryIndexStatus) -> Judgement:
    spec, lag = world.index.spec, status.segments.missing
    percent = covered_percent(status.rows.live, status.rows.covered)
    if covers_too_little(status.rows.covered, status.rows.live, status.unused_below_percent):
        message = (
            f"{percent} % of the rows are covered, spec.unusedBelowPercent asks for {status.unused_below_percent} %: "
            "queries and merges do not use the index"
        )
        return fails(READY, Reason.COVERAGE_BELOW_MINIMUM, message)
    if spec.max_lag_segments is not None and lag > spec.max_lag_segments:
        message = f"{lag} segments are missing, spec.maxLagSegments allows {spec.max_lag_segments}"
        return fails(READY, Reason.LAG_EXCEEDED, message)
    if spec.min_covered_percent is not None and percent < spec.min_covered_percent:
        message = f"{percent} % of the rows are covered, spec.minCoveredPercent asks for {spec.min_covered_percent} %"
        return fails(READY, Reason.COVERAGE_BELOW_MINIMUM, message)
    return holds(READY, Reason.HEALTHY, f"{status.synced} segments are covered")


def judge_synced(status: SecondaryIndexStatus) -> Judgement:
    """Return the condition that every live segment is covered."""
    segments = status.segments
    if not is_known(status):
        return unknown(SYNCED, Reason.NOT_BUILT, "the index has not been looked at yet")
    if segments.failed:
        message = f"{segments.failed} segments could not be indexed: {status.degraded_message or status.missing}"
        return fails(SYNCED, Reason.SEGMENTS_FAILED, message)
    if segments.total > 0 and not status.exists:
        return fails(SYNCED, Reason.NOT_BUILT, f"none of {segments.total} segments is covered")
    if segments.missing:
        return fails(SYNCED, Reason.SEGMENTS_MISSING, f"missing segments: {status.missing}")
    return holds(SYNCED, Reason.SEGMENTS_IN_SYNC, f"{status.synced} segments are covered")


def judge_degraded(status: SecondaryIndexStatus, *, given_up: bool) -> Judgement:
    """Return the condition that the index cannot be used or built until somebody acts."""
    if status.degraded:
        return holds(DEGRADED, read_reason(status.degraded), status.degraded_message)
    last = status.last_run
    if given_up and last is not None:
        return holds(DEGRADED, read_reason(last.reason), last.message)
    if status.segments.failed:
        return holds(DEGRADED, Reason.SEGMENTS_FAILED, f"{status.segments.failed} segments could not be indexed")
    return fails(DEGRADED, Reason.HEALTHY)
