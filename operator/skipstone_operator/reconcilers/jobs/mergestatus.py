"""What the status of a MergeJob says of its merge: the funnel while it runs, everything once it is committed.

Called by the job deciders only. Pure: a status in, a status out.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone_core.contract.reports import JobReport
from skipstone_core.funnel import FunnelStage
from skipstone_core.merging.unused import MAX_UNUSED

from skipstone_operator.conditions import shorten
from skipstone_operator.resources.jobstatus import DefaultedColumn
from skipstone_operator.resources.mergejob import (
    MAX_INDEXES_BEHIND,
    MAX_STAGE_NAME,
    MAX_STAGES,
    FileFunnel,
    FunnelStageStatus,
    IndexBehind,
    MergeBytes,
    MergeJobStatus,
    MergeRows,
)
from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.secondaryindex import Maintenance
from skipstone_operator.worlds.worlds import JobWorld


def with_funnel(status: MergeJobStatus, report: JobReport) -> MergeJobStatus:
    """Which files a running merge reads; what it finds in them is known at its end."""
    if "filesTotal" not in report.counts:
        return status
    return replace(
        status,
        files=_files(report),
        pruned=_pruned(report),
        funnel=tuple(replace(stage, false_positive_rate="") for stage in _funnel(report)),
    )


def indexes_behind(world: JobWorld) -> tuple[IndexBehind, ...]:
    """The indexes that lacked segments of the table when the run ended, as far as its annotation tells."""
    pod = world.run.pod if world.run is not None else None
    states = pod.states.table_states if pod is not None and pod.states is not None else ()
    behind = [index for state in states for index in state.indexes if index.segments_missing]
    alone = {
        index.meta.uid
        for index in world.place.indexes
        if index.spec.maintenance is not Maintenance.MANUAL and not index.spec.suspend
    }
    return tuple(
        IndexBehind(name=index.name, missing_segments=index.segments_missing, catches_up=index.uid in alone)
        for index in behind[:MAX_INDEXES_BEHIND]
    )


def with_merge_report(status: MergeJobStatus, report: JobReport) -> MergeJobStatus:
    """All that a finished merge tells."""
    counts = report.counts
    return replace(
        status,
        files=_files(report),
        rows=MergeRows(
            source=counts.get("rowsSource", 0),
            matching=counts.get("rowsMatching", 0),
            unmatched=counts.get("rowsUnmatched", 0),
            unmatched_deletes=counts.get("rowsUnmatchedDeletes", 0),
            unmatched_updates=counts.get("rowsUnmatchedUpdates", 0),
            superseded=counts.get("rowsSuperseded", 0),
            matched=counts.get("rowsMatched", 0),
            updated=counts.get("rowsUpdated", 0),
            deleted=counts.get("rowsDeleted", 0),
            inserted=counts.get("rowsInserted", 0),
            ignored=counts.get("rowsIgnored", 0),
            copied=counts.get("rowsCopied", 0),
            rejected=counts.get("rowsRejected", 0),
            waiting=counts.get("rowsWaiting", 0),
        ),
        bytes=MergeBytes(
            candidate=counts.get("bytesCandidate", 0),
            removed=counts.get("bytesRemoved", 0),
            rewritten=counts.get("bytesRewritten", 0),
            inserted=counts.get("bytesInserted", 0),
            deletes=counts.get("bytesDeletes", 0),
        ),
        rejected_path=shorten(report.rejected_path or "", 2048),
        pruned=_pruned(report),
        funnel=_funnel(report),
        defaulted_columns=_defaulted(report),
        gone_columns=tuple(dict.fromkeys(shorten(name, limits.MAX_NAME) for name in report.gone_columns))[:MAX_UNUSED],
    )


def _defaulted(report: JobReport) -> tuple[DefaultedColumn, ...]:
    """Each name once, as the API server demands."""
    columns = {shorten(column.name, limits.MAX_NAME): column.rows for column in report.defaulted_columns}
    return tuple(DefaultedColumn(name=name, rows=rows) for name, rows in list(columns.items())[:MAX_UNUSED])


def _files(report: JobReport) -> FileFunnel:
    counts = report.counts
    return FileFunnel(
        total=counts.get("filesTotal", 0),
        candidate=counts.get("filesCandidate", 0),
        touched=counts.get("filesTouched", 0),
        rewritten=counts.get("filesRewritten", 0),
        marked=counts.get("filesMarked", 0),
    )


def _pruned(report: JobReport) -> str:
    files = _files(report)
    return f"{files.total - files.candidate}/{files.total}"


def _funnel(report: JobReport) -> tuple[FunnelStageStatus, ...]:
    # A list with more stages, or with one of them twice, would make the API server refuse the whole status.
    stages = {shorten(stage.name, MAX_STAGE_NAME): stage for stage in report.funnel}
    return tuple(_funnel_stage(replace(stage, name=name)) for name, stage in list(stages.items())[:MAX_STAGES])


def _funnel_stage(stage: FunnelStage) -> FunnelStageStatus:
    return FunnelStageStatus(
        name=stage.name,
        files_in=stage.files_in,
        files_out=stage.files_out,
        false_positives=stage.untouched,
        false_positive_rate=stage.false_positive_rate,
        left_out=stage.left_out,
        message=shorten(stage.message, 1024),
        duration_ms=stage.ms,
    )
