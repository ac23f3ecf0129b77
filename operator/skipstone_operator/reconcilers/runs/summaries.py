"""Reconciling and Stalled: what all other conditions come to, for tools that know no kind of ours.

The rules are those of kstatus (sigs.k8s.io/cli-utils, ``pkg/kstatus``), which kpt and Flux wait by: a resource with
``Reconciling`` is in progress, one with ``Stalled`` has failed, one with neither is as its spec asks. Both are
abnormal-true: they are absent while they do not hold, and never there together. Called wherever conditions are laid
over a status. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    COMPLETE,
    DEGRADED,
    FAILED,
    HEALTHY,
    PLANNING_READY,
    PROGRESSING,
    READY,
    RECONCILING,
    STALLED,
    SUMMARIES,
    SYNCED,
    Judgement,
    find,
    holds,
    merge_conditions,
    read_reason,
)
from skipstone_operator.resources.common import Condition, ConditionStatus

#: Reasons of Ready=False that end when another resource turns up or gets ready, or when something is tried again.
_AWAITED = frozenset(
    {
        Reason.WAREHOUSE_NOT_FOUND,
        Reason.WAREHOUSE_NOT_READY,
        Reason.TABLE_NOT_FOUND,
        Reason.TABLE_NOT_READY,
        Reason.CLAIM_NOT_FOUND,
        Reason.CATALOG_UNAVAILABLE,
        Reason.STORAGE_UNAVAILABLE,
        Reason.CHECK_PENDING,
        Reason.RUN_INTENDED,
        Reason.NOT_BUILT,
        Reason.DELETING,
        Reason.WAITING_FOR_QUOTA,
        Reason.INTERNAL_ERROR,
    }
)
#: Reasons of PlanningReady that end by themselves, or when somebody else makes room or makes the claim.
_UNDERWAY = frozenset({Reason.REPLICAS_PENDING, Reason.WAITING_FOR_QUOTA, Reason.CLAIM_NOT_FOUND})
#: Reasons of Progressing that go only when somebody changes something.
_NEEDS_USER = frozenset({Reason.INVALID_SPEC, Reason.RESOURCE_CONFLICT, Reason.DRIVER_STUCK})


def lay_conditions(
    old: Sequence[Condition], new: Iterable[Judgement], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Lay ``new`` over ``old``, and sum up what comes out for ``generation``."""
    merged = merge_conditions(old, new, generation=generation, now=now)
    own = tuple(condition for condition in merged if condition.type not in SUMMARIES)
    summary = sum_up(own, generation)
    if summary is None:
        return own
    before = [condition for condition in merged if condition.type == summary.type]
    return (*own, *merge_conditions(before, [summary], generation=generation, now=now))


def sum_up(conditions: Sequence[Condition], generation: int) -> Judgement | None:
    """Reconciling or Stalled, as ``conditions`` say; None for a resource that is as the spec of ``generation`` asks."""
    failed, complete, progress = (find(conditions, type_) for type_ in (FAILED, COMPLETE, PROGRESSING))
    if failed is not None and failed.status is ConditionStatus.TRUE:
        return _because(STALLED, failed)
    if progress is None or (complete is not None and complete.status is ConditionStatus.TRUE):
        return None
    ready = find(conditions, READY)
    if progress.reason == Reason.DRIVER_STUCK and not _is_active(progress):
        # Whatever the resource can be used for, its run is in nobody's hands.
        return _because(STALLED, progress)
    if ready is None:
        return _because(STALLED if _is_blocked(progress) else RECONCILING, progress)
    return _sum_up_ready(conditions, ready, progress, generation) or _sum_up_planning(conditions)


def _sum_up_planning(conditions: Sequence[Condition]) -> Judgement | None:
    """What keeps a Warehouse that can be used from the planning server that it asks for."""
    planning = find(conditions, PLANNING_READY)
    if planning is None or planning.reason == Reason.SERVING:
        return None
    return _because(RECONCILING if read_reason(planning.reason) in _UNDERWAY else STALLED, planning)


def _sum_up_ready(
    conditions: Sequence[Condition], ready: Condition, progress: Condition, generation: int
) -> Judgement | None:
    synced = find(conditions, SYNCED)
    usable = ready.status is ConditionStatus.TRUE and ready.observed_generation == generation
    if usable and (synced is None or synced.status is ConditionStatus.TRUE):
        return None if _is_active(progress) else _find_given_up(conditions)
    if _is_blocked(progress):
        return _because(STALLED, progress)
    if _is_active(progress) or not _is_resting(progress, ready):
        return _because(RECONCILING, progress)
    return _find_given_up(conditions) or (None if usable else _sum_up_resting(ready, progress))


def _sum_up_resting(ready: Condition, progress: Condition) -> Judgement:
    """Nothing is done for a resource that cannot be used: it waits for another one, or for somebody to act."""
    if ready.status is ConditionStatus.FALSE and read_reason(ready.reason) not in _AWAITED:
        return _because(STALLED, ready)
    return _because(RECONCILING, progress if ready.status is ConditionStatus.TRUE else ready)


def _find_given_up(conditions: Sequence[Condition]) -> Judgement | None:
    """What keeps the resource from what it asks for and is not tried again; a schedule goes on after a failed job.

    Maintenance that fails is tried again; one whose window cannot be understood is not.
    """
    degraded, healthy = find(conditions, DEGRADED), find(conditions, HEALTHY)
    if healthy is not None and healthy.status is ConditionStatus.FALSE and healthy.reason == Reason.INVALID_SPEC:
        return _because(STALLED, healthy)
    if degraded is None or degraded.status is not ConditionStatus.TRUE or degraded.reason == Reason.JOB_FAILED:
        return None
    return _because(STALLED, degraded)


def _is_active(progress: Condition) -> bool:
    return progress.status is ConditionStatus.TRUE


def _is_blocked(progress: Condition) -> bool:
    return not _is_active(progress) and read_reason(progress.reason) in _NEEDS_USER


def _is_resting(progress: Condition, ready: Condition) -> bool:
    """Return whether nothing is waited for but what Ready tells of; a user who suspends wants it so."""
    return progress.reason in (Reason.IDLE, Reason.SUSPENDED, ready.reason)


def _because(type_: str, condition: Condition) -> Judgement:
    return holds(type_, read_reason(condition.reason), condition.message)
