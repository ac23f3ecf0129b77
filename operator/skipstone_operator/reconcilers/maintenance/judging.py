"""The condition Healthy: whether a table is as ``spec.maintenance`` asks, and what is about to be done if not.

Called by the status of the Table. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import HEALTHY, Judgement, fails, format_time, holds, unknown
from skipstone_operator.reconcilers.maintenance.due import Due, find_due, find_window
from skipstone_operator.resources.common import RunResult
from skipstone_operator.resources.maintenance.status import Health, StepResult
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.subjects import Finding, TableSubject
from skipstone_operator.worlds.windows import Opening
from skipstone_operator.worlds.worlds import TableWorld

#: How a step may end without being done and without anybody having to look.
_WAITS = frozenset({Reason.GIVING_WAY.value, Reason.WINDOW_CLOSED.value, Reason.COMMITTED.value, Reason.IDLE.value})


def judge_healthy(world: TableWorld, table: TableSubject, status: TableStatus) -> Judgement | None:
    """The condition; None for a table that asks for no maintenance."""
    if table.spec.maintenance is None:
        return None
    opening = find_window(world, table)
    if isinstance(opening, Finding):
        return fails(HEALTHY, opening.reason, opening.message)
    if (failure := _find_failure(status)) is not None:
        return fails(HEALTHY, Reason.MAINTENANCE_FAILED, failure)
    if status.health is None:
        return unknown(HEALTHY, Reason.RUN_INTENDED, "no run has told yet how the table is")
    return _judge_due(find_due(world, table, status), status.health, opening)


def _find_failure(status: TableStatus) -> str | None:
    """What went wrong in the last maintain run, while the next one waits to try again."""
    last = status.last_maintain_run
    if status.failed_maintains == 0 or last is None:
        return None
    if last.result is not RunResult.SUCCEEDED:
        return f"the last maintain run ended with {last.reason}: {last.message}"
    failed = (step for step in status.last_maintenance if step.run == last.id and is_failed(step))
    return next((f"{step.step} ended with {step.reason}: {step.message}" for step in failed), None)


def is_failed(result: StepResult) -> bool:
    """Return whether the step ended otherwise than by giving way."""
    return not result.done and result.reason not in _WAITS


def _judge_due(due: Due, health: Health, opening: Opening | None) -> Judgement:
    # A look for orphan files is due each day, which says nothing of how the table is.
    pending = [step for step in due.pending if step is not MaintenanceStep.ORPHAN_FILES]
    if not pending and health.manifests_without_bounds:
        return fails(HEALTHY, Reason.MANIFESTS_WITHOUT_BOUNDS, f"{_skipped(health)}: set spec.maintenance.compaction")
    if not pending:
        return holds(HEALTHY, Reason.ORPHAN_FILES_KEPT if due.held else Reason.HEALTHY, due.held or _well(health))
    reason, message = _find_trouble(pending, health)
    if opening is None or opening.closes is not None:
        return fails(HEALTHY, reason, message)
    when = f"opens at {format_time(opening.opens)}" if opening.opens is not None else "does not open again"
    return fails(HEALTHY, Reason.WINDOW_CLOSED, f"{message}; the window {when}")


def _well(health: Health) -> str:
    return f"{health.small_files} small files, {health.delete_files} delete files, {health.snapshots} snapshots"


def _skipped(health: Health) -> str:
    some = f"{health.manifests_without_bounds} of {health.manifests} manifests"
    return f"the manifest list lacks bounds of {some}, and other engines skip their files"


def _find_trouble(pending: Sequence[MaintenanceStep], health: Health) -> tuple[Reason, str]:
    if health.manifests_without_bounds and MaintenanceStep.MANIFESTS in pending:
        return Reason.MANIFESTS_WITHOUT_BOUNDS, f"{_skipped(health)}; the next maintain run repairs it"
    if pending[0] is MaintenanceStep.RESOLVE_EQUALITY_DELETES:
        what = f"{health.equality_delete_files} equality delete files are due to be resolved: {_well(health)}"
        return Reason.MANY_DELETES, what
    if pending[0] is MaintenanceStep.COMPACTION:
        what = f"{health.due_files} files are due for compaction: {_well(health)}"
        return (Reason.MANY_DELETES if health.delete_files >= health.small_files else Reason.SMALL_FILES), what
    if pending[0] is MaintenanceStep.MANIFESTS:
        return Reason.MANY_MANIFESTS, f"{health.due_manifests} of {health.manifests} manifests are due for a rewrite"
    message = f"{health.snapshots} snapshots are retained and some are older than spec.maintenance.snapshots.maxAge"
    return Reason.SNAPSHOTS_PENDING, message
