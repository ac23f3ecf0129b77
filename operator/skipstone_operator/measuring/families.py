"""The gauges of resources by name: what each says, and by which labels. A series ends with its object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OBJECT = ("kind", "namespace", "name")
INDEX = ("namespace", "index")
TABLE = ("namespace", "table")
SCHEDULE = ("namespace", "schedule")
WAREHOUSE = ("namespace", "warehouse")
JOBS = ("kind", "namespace", "table")


@dataclass(frozen=True)
class Family:
    """One metric without its prefix. ``text`` is its help, ``labels`` the names of its labels."""

    text: str
    labels: tuple[str, ...]


#: Gauges of a table's health by the fields of ``status.health``.
HEALTH = {
    "smallFiles": ("table_small_files", "Data files below three quarters of the target size."),
    "dueFiles": ("table_due_files", "Data files that compaction would rewrite now."),
    "deleteFiles": ("table_delete_files", "Delete files and deletion vectors."),
    "snapshots": ("table_snapshots", "Snapshots that the table retains."),
    "manifests": ("table_manifests", "Manifests of the current snapshot."),
    "metadataBytes": ("table_metadata_bytes", "Bytes of the metadata file, the manifest lists and the manifests."),
}
FAMILIES: Mapping[str, Family] = {
    "resource_ready": Family("Whether the condition Ready is True.", OBJECT),
    "resource_stalled": Family("Whether somebody has to act: the condition Stalled. Not of jobs.", OBJECT),
    "resource_driver_stuck": Family(
        "1 while a deleted driver pod on a node that does not answer keeps the resource waiting.", OBJECT
    ),
    "resource_failed_runs": Family("Runs of the resource that failed in a row; of jobs while they try.", OBJECT),
    "index_lag_segments": Family("Segments that an index misses.", INDEX),
    "index_lag_seconds": Family(
        "Seconds since the index covered every segment; catches_up is false for Manual and suspended ones.",
        (*INDEX, "catches_up"),
    ),
    "index_last_sync_timestamp_seconds": Family("When a reindex last committed, in seconds since 1970.", INDEX),
    "index_rows": Family("Rows of the table as the index sees it.", INDEX),
    "index_covered_rows": Family("Rows that the index covers.", INDEX),
    "index_bytes": Family("Bytes of the index.", INDEX),
    "table_rows": Family("Rows in live data files, without those that position deletes take.", TABLE),
    "table_files": Family("Live data files.", TABLE),
    "table_bytes": Family("Bytes of live data files.", TABLE),
    "table_segments": Family("Live segments.", TABLE),
    "table_healthy": Family("Whether the table is as spec.maintenance asks: the condition Healthy.", TABLE),
    "table_unhealthy_seconds": Family("Seconds since the condition Healthy of the table became False; 0 else.", TABLE),
    **{name: Family(text, TABLE) for name, text in HEALTH.values()},
    "table_maintained_timestamp_seconds": Family(
        "When a step of maintenance was last done, in seconds since 1970.", (*TABLE, "step")
    ),
    "schedule_delay_seconds": Family(
        "Seconds since the first time that has come and has no MergeJob; 0 when there is none.", SCHEDULE
    ),
    "schedule_active_jobs": Family("MergeJobs of the schedule that have not ended.", SCHEDULE),
    "schedule_gone_columns": Family(
        "Columns that earlier MergeJobs of the schedule merged and its change feed no longer has.", SCHEDULE
    ),
    "schedule_last_success_timestamp_seconds": Family(
        "When a MergeJob of the schedule last became Complete, in seconds since 1970.", SCHEDULE
    ),
    "planning_server_replicas": Family("Replicas that the Warehouse wants of its planning server.", WAREHOUSE),
    "planning_server_ready_replicas": Family("Replicas of the planning server that are ready.", WAREHOUSE),
    "kept_drivers": Family("Kept drivers that the Warehouse wants now.", WAREHOUSE),
    "kept_drivers_ready": Family("Kept drivers of the Warehouse that take runs.", WAREHOUSE),
    "jobs": Family("Jobs by state: Waiting, Running, Complete, Failed.", (*JOBS, "state")),
    "job_last_success_timestamp_seconds": Family(
        "When a job of the table last became Complete, in seconds since 1970, of the jobs that are there.", JOBS
    ),
    "job_failed_timestamp_seconds": Family(
        "When a job that is there became Failed, in seconds since 1970.", (*OBJECT, "table", "reason")
    ),
}
#: Counters of the work of jobs by table, and the counts of a job's status that each adds up.
WORK: Mapping[str, Family] = {
    "load_rows": Family("Rows that LoadJobs loaded.", TABLE),
    "merge_rows": Family("Rows that MergeJobs changed.", (*TABLE, "change")),
    "rejected_rows": Family(
        "Rows that LoadJobs and MergeJobs left out: Rejected did not fit, Waiting fit and followed one of these.",
        (*TABLE, "cause"),
    ),
    "merge_unmatched_rows": Family(
        "Rows that MergeJobs were to delete or update and did not find.", (*TABLE, "change")
    ),
    "ignored_values": Family("Values in columns of sources that LoadJobs and MergeJobs did not use.", TABLE),
    "merge_files": Family("Live data files of the table as each MergeJob found them.", TABLE),
    "merge_pruned_files": Family("Files of these that the MergeJob did not read.", TABLE),
}
