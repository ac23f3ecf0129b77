"""The status of a LoadJob or MergeJob in each of its states.

Called by the job deciders only. Pure: a status in, a status out.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.reports import JobReport
from skipstone_core.merging.unused import MAX_UNUSED
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    COMPLETE,
    FAILED,
    PROGRESSING,
    Judgement,
    fails,
    format_time,
    holds,
    is_true,
    shorten,
)
from skipstone_operator.reconcilers.jobs.mergestatus import indexes_behind, with_funnel, with_merge_report
from skipstone_operator.reconcilers.runs.statuses import judged, put_status
from skipstone_operator.resources.jobstatus import JobStatus, UnusedSourceColumn
from skipstone_operator.resources.loadjob import LoadJobStatus
from skipstone_operator.resources.mergejob import MergeJobStatus
from skipstone_operator.resources.rules import limits
from skipstone_operator.worlds.runs import Verdict
from skipstone_operator.worlds.steps import PutStatus
from skipstone_operator.worlds.subjects import is_dry_run
from skipstone_operator.worlds.times import format_span, seconds_since
from skipstone_operator.worlds.worlds import JobWorld


def is_finished(status: JobStatus) -> bool:
    """Return whether the job is Complete or Failed: nothing is started for it any more."""
    return is_true(status.conditions, COMPLETE) or is_true(status.conditions, FAILED)


def at_work(world: JobWorld, status: JobStatus, reason: Reason, message: str) -> PutStatus | None:
    """Something is being done for the job."""
    return written(world, status, holds(PROGRESSING, reason, message))


def waiting(world: JobWorld, status: JobStatus, reason: Reason, message: str) -> PutStatus | None:
    """Nothing is being done for the job until something else changes."""
    return written(world, status, fails(PROGRESSING, reason, message))


def written(world: JobWorld, status: JobStatus, progress: Judgement) -> PutStatus | None:
    """The status of a job that has not ended, if anything changed."""
    judgements = (fails(COMPLETE, progress.reason), fails(FAILED, progress.reason), progress)
    marked = replace(_marked(world, status), reason=progress.reason.value)
    return put_status(world.job, judged(marked, world.job, judgements, world.setting.now))


def _marked(world: JobWorld, status: JobStatus) -> JobStatus:
    """``status``, which says of a dry run that it is one: a user who is careful starts it only then."""
    if isinstance(status, MergeJobStatus) and is_dry_run(world.job):
        return replace(status, dry_run=True)
    return status


def completed(world: JobWorld, status: JobStatus, verdict: Verdict) -> PutStatus | None:
    """The commit is in the table, or a dry run knows what it would be."""
    report = verdict.report
    reported = _with_report(status, report) if report is not None else status
    if isinstance(reported, MergeJobStatus):
        reported = replace(reported, indexes_behind=indexes_behind(world))
    summary = verdict.message or Reason.COMMITTED.sentence
    judgements = (
        holds(COMPLETE, verdict.reason, summary),
        fails(FAILED, verdict.reason),
        fails(PROGRESSING, Reason.IDLE),
    )
    return _finished(world, reported, judgements, verdict.reason)


def failed(world: JobWorld, status: JobStatus, reason: Reason, message: str) -> PutStatus | None:
    """The commit is not in the table and never will be."""
    judgements = (fails(COMPLETE, reason), holds(FAILED, reason, message), fails(PROGRESSING, Reason.IDLE))
    return _finished(world, status, judgements, reason)


def _finished(
    world: JobWorld, status: JobStatus, judgements: tuple[Judgement, ...], reason: Reason
) -> PutStatus | None:
    now = world.setting.now
    spent = seconds_since(status.start_time, now)
    ended = replace(
        _marked(world, status),
        reason=reason.value,
        current_run=None,
        confirm=None,
        retry_time=None,
        completion_time=format_time(now),
        duration=format_span(spent) if spent is not None else "",
    )
    return put_status(world.job, judged(ended, world.job, judgements, now))


def _with_report(status: JobStatus, report: JobReport) -> JobStatus:
    status = replace(
        status,
        snapshot_id=report.snapshot_id,
        unused_columns=_unused(report),
        unused_columns_total=report.unused_total,
    )
    if isinstance(status, LoadJobStatus):
        return replace(
            status,
            segment=report.counts.get("segment"),
            rows_read=report.counts.get("rowsRead"),
            rows_loaded=report.counts.get("rowsLoaded"),
            files_registered=report.counts.get("filesRegistered"),
            files_skipped=report.counts.get("filesSkipped"),
            rows_rejected=report.counts.get("rowsRejected"),
            rejected_path=shorten(report.rejected_path or "", 2048),
        )
    if isinstance(status, MergeJobStatus):
        return with_merge_report(status, report)
    return status


def _unused(report: JobReport) -> tuple[UnusedSourceColumn, ...]:
    # A list with more columns, or with one of them twice, would make the API server refuse the whole status.
    columns = {shorten(column.name, limits.MAX_NAME): column.rows for column in report.unused_columns}
    return tuple(UnusedSourceColumn(name=name, rows=rows) for name, rows in list(columns.items())[:MAX_UNUSED])


def with_progress(status: JobStatus, report: JobReport | None) -> JobStatus:
    """``status`` with what a running driver found so far."""
    return with_funnel(status, report) if report is not None and isinstance(status, MergeJobStatus) else status
