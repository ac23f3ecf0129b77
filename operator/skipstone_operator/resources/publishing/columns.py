"""What ``kubectl get`` shows for each kind.

Read by ``crds`` only. Composed columns read status strings that reconcilers compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PrinterColumn:
    """One column; ``wide`` ones appear with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    text: str
    wide: bool = False


def _condition(name: str, kind: str, part: str, text: str, *, wide: bool = False) -> PrinterColumn:
    path = f'.status.conditions[?(@.type=="{kind}")].{part}'
    return PrinterColumn(name=name, path=path, text=text, wide=wide)


AGE = PrinterColumn(name="Age", path=".metadata.creationTimestamp", type="date", text="Time since creation.")
READY = _condition("Ready", "Ready", "status", "Whether the resource can be used.")
WHY = _condition("Reason", "Ready", "reason", "Why Ready is what it is.", wide=True)
COMPLETE = _condition("Complete", "Complete", "status", "Whether the job's commit is in the table.")
MERGED = _condition(
    "Complete", "Complete", "status", "Whether the job's commit is in the table; of a dry run, whether it has ended."
)
JOB_TABLE = PrinterColumn(name="Table", path=".spec.tableRef.name", text="The Table.")
DURATION = PrinterColumn(name="Duration", path=".status.duration", text="Time from first attempt to end.")


def _count(name: str, path: str, text: str, *, wide: bool = False) -> PrinterColumn:
    return PrinterColumn(name=name, path=path, type="integer", text=text, wide=wide)


def _date(name: str, path: str, text: str, *, wide: bool = False) -> PrinterColumn:
    return PrinterColumn(name=name, path=path, type="date", text=text, wide=wide)


def _string(name: str, path: str, text: str, *, wide: bool = False) -> PrinterColumn:
    return PrinterColumn(name=name, path=path, text=text, wide=wide)


JOB_REASON = _string("Reason", ".status.reason", "Why the job is where it is.", wide=True)

PRINTER_COLUMNS: Mapping[str, tuple[PrinterColumn, ...]] = {
    "Warehouse": (
        _string("Catalog", ".status.catalog", "The catalog."),
        _string("Storage", ".status.storage", "The storage."),
        READY,
        _count("Tables", ".status.tables", "Tables that name this Warehouse."),
        _condition(
            "Planning", "PlanningReady", "status", "Whether a replica of the planning server serves.", wide=True
        ),
        _string("Warm", ".status.warmDrivers.summary", "Kept drivers that take runs, of those wanted.", wide=True),
        WHY,
        AGE,
    ),
    "Table": (
        READY,
        _count("Rows", ".status.rows", "Rows in live data files, without those that position deletes remove."),
        _count("Files", ".status.files", "Live data files."),
        _count("Segments", ".status.segments.total", "Live segments."),
        _string("Indexes", ".status.indexesInSync", "Indexes in sync of all."),
        _string("Snapshot", ".status.snapshotId", "Current snapshot.", wide=True),
        _condition("Healthy", "Healthy", "status", "Whether the table is as spec.maintenance asks.", wide=True),
        _count("Small", ".status.health.smallFiles", "Small data files.", wide=True),
        _count("Deletes", ".status.health.deleteFiles", "Delete files and deletion vectors.", wide=True),
        _count("Snapshots", ".status.health.snapshots", "Snapshots that the table retains.", wide=True),
        WHY,
        _condition("Status", "Ready", "message", "What Ready says.", wide=True),
        AGE,
    ),
    "SecondaryIndex": (
        JOB_TABLE,
        _string("Columns", ".status.columnList", "Indexed columns."),
        _string("Synced", ".status.synced", "Synced segments of all."),
        _string("Missing", ".status.missing", "Ids of segments that are not covered."),
        _string("Covered", ".status.covered", "Share of rows covered.", wide=True),
        _count("UnusedBelow", ".status.unusedBelowPercent", "Percentage below which it is not used.", wide=True),
        READY,
        WHY,
        PrinterColumn(name="LastSync", path=".status.lastSyncTime", type="date", text="Time since the last reindex."),
        AGE,
    ),
    "LoadJob": (
        JOB_TABLE,
        COMPLETE,
        _count("Segment", ".status.segment", "Segment that the load made."),
        _count("Rows", ".status.rowsLoaded", "Rows loaded."),
        _count("Rejected", ".status.rowsRejected", "Rows rejected."),
        JOB_REASON,
        DURATION,
        AGE,
    ),
    "MergeJob": (
        JOB_TABLE,
        MERGED,
        _string("Pruned", ".status.pruned", "Files not read, of all."),
        _count("Updated", ".status.rows.updated", "Rows updated."),
        _count("Deleted", ".status.rows.deleted", "Rows deleted."),
        _count("Inserted", ".status.rows.inserted", "Rows inserted."),
        _count("Rejected", ".status.rows.rejected", "Changes that did not fit and were left out.", wide=True),
        _count("NotFound", ".status.rows.unmatchedDeletes", "Rows to be deleted that were not found.", wide=True),
        JOB_REASON,
        DURATION,
        AGE,
    ),
    "MergeSchedule": (
        _string("Schedule", ".spec.schedule", "The cron expression."),
        PrinterColumn(name="Suspend", path=".spec.suspend", type="boolean", text="Whether no MergeJob is created."),
        _date("Last", ".status.lastScheduleTime", "Time since the last MergeJob was due."),
        _string("Next", ".status.nextScheduleTime", "When the next MergeJob is due."),
        _count("Active", ".status.active", "MergeJobs that have not ended."),
        READY,
        WHY,
        _string("TimeZone", ".spec.timeZone", "Time zone of the schedule.", wide=True),
        _date("LastSuccess", ".status.lastSuccessfulTime", "Time since a MergeJob became Complete.", wide=True),
        _count("NotFound", ".status.rowsUnmatchedDeletes", "Rows to be deleted that were not found.", wide=True),
        AGE,
    ),
}
