"""What the end of a maintain run means for the status of its Table.

Called by the decider of maintain runs. Pure: a status in, a status out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from skipstone_core.contract.reports import StepReport
from skipstone_core.maintenance.policies import MaintenanceStep
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import format_time, shorten
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.maintenance.status import StepResult
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import Ending, Verdict

#: Counts of a step that say that something was done.
PROGRESS = ("filesRewritten", "manifestsRewritten", "snapshotsExpired", "filesDeleted")


def find_steps(verdict: Verdict, pod: PodFacts | None) -> tuple[StepReport, ...]:
    """What the run says of its steps: all of it in the annotation, less where the message alone is left."""
    whole = pod.states if pod is not None else None
    reports = [report for report in (whole, verdict.report) if report is not None]
    return next((report.steps for report in reports if report.steps), ())


def made_progress(steps: Iterable[StepReport]) -> bool:
    """Return whether the run did something that is not done again."""
    return any(step.counts.get(name, 0) > 0 for step in steps for name in PROGRESS)


def with_steps(
    status: TableStatus, current: CurrentRun, verdict: Verdict, steps: tuple[StepReport, ...], now: datetime
) -> TableStatus:
    """``status`` with what became of each step that the maintain run was asked for."""
    reported = {step.step: _reported_result(step, current, now) for step in steps}
    silent = {step: _unreported(current, verdict, now, step) for step in status.maintain_steps if step not in reported}
    known = {result.step: result for result in status.last_maintenance}
    results = {**known, **silent, **reported}
    answered = status.maintain_request if verdict.ending is not Ending.LOST else ""
    return replace(
        status,
        maintain_steps=(),
        maintain_request="",
        observed_maintain=answered or status.observed_maintain,
        last_maintenance=tuple(results[step] for step in MaintenanceStep if step in results),
    )


def _reported_result(step: StepReport, current: CurrentRun, now: datetime) -> StepResult:
    return StepResult(
        step=step.step,
        time=format_time(now),
        run=current.id,
        done=step.is_done,
        reason=step.reason.value,
        message=shorten(step.message),
        counts=dict(sorted(step.counts.items())[:32]),
    )


def _unreported(current: CurrentRun, verdict: Verdict, now: datetime, step: MaintenanceStep) -> StepResult:
    """A run that ended well and says nothing of a step did it; any other has left it undone."""
    done = verdict.ending is Ending.SUCCEEDED and not current.stop_reason
    reason = Reason.COMMITTED if done else verdict.reason
    return StepResult(
        step=step,
        time=format_time(now),
        run=current.id,
        done=done,
        reason=reason.value,
        message=shorten(verdict.message),
    )
