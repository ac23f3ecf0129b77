"""What to do about a reason: the one list of ways out, which the reference page and the report show.

A reason that is no trouble, or that ends by itself without anybody having to know, has none. Must not hold logic: the
sentences name fields and commands, and who shows them decides when.
"""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_core.reasons import Reason

_CORRECT = "Correct the field that the message names and apply the resource again."
_NEW_JOB = "Then create a new job: the rows of this one are not in the table."
_WAIT = "Nothing: it goes on by itself."
_INDEX_CATCHES_UP = (
    "Nothing with maintenance Auto or Inline: a reindex follows. With Manual, or to have it now: "
    "kubectl annotate si/NAME skipstone.dev/reindex=$(date +%s) --overwrite"
)
_MAINTAIN_NOW = (
    "Nothing: a maintain run follows. To have it now: "
    "kubectl annotate tbl/NAME skipstone.dev/maintain=$(date +%s) --overwrite"
)

#: One or two sentences by reason, for whoever applies resources or runs the cluster.
WAYS_OUT: Mapping[Reason, str] = {
    Reason.INVALID_SPEC: f"{_CORRECT} For a field that never changes, delete it and create it again.",
    Reason.WAREHOUSE_NOT_FOUND: "Create the Warehouse, or correct spec.warehouseRef.",
    Reason.WAREHOUSE_NOT_READY: "Look at the Ready condition of the Warehouse: its message says what it lacks.",
    Reason.TABLE_NOT_FOUND: "Create the Table, or correct spec.tableRef.",
    Reason.TABLE_NOT_READY: "Look at the Ready condition of the Table: its message says what it lacks.",
    Reason.RESOURCE_CONFLICT: "Delete one of the two resources, or give this one another name.",
    Reason.COLUMN_NOT_FOUND: "Correct the name of the column, or add the column to the table.",
    Reason.COLUMN_REPLACED: "Delete the SecondaryIndex and create it again, so that it indexes the new column.",
    Reason.COLUMN_TYPE_UNSUPPORTED: "Name another column, or one of a type that the message lists.",
    Reason.DUPLICATE_INDEX: "Delete this SecondaryIndex: the older one answers the same questions.",
    Reason.CHECK_PENDING: "Nothing: the check run ends within minutes. If it does not, look at its pod.",
    Reason.CHECK_FAILED: "Correct the catalog, the storage or the credentials that the message names.",
    Reason.CLAIM_NOT_FOUND: "Create the PersistentVolumeClaim, or correct spec.storage.pvc.claimName.",
    Reason.CATALOG_NEEDS_ONE_NODE: "Claim the volume ReadWriteOnce, or use a PostgreSQL or Rest catalog.",
    Reason.CATALOG_UNAVAILABLE: "Bring the catalog back: what waits for it goes on by itself.",
    Reason.CATALOG_UNPROVEN: "Bring back the catalog or the volume that held the table, or delete the resource.",
    Reason.STORAGE_UNAVAILABLE: "Bring the volume or bucket back, and see that the runs may write, read and list it.",
    Reason.SCHEMA_MISMATCH: "Change spec.columns to what the table can become, or evolve the table itself.",
    Reason.SCHEMA_DRIFT: "Put the other change into spec.columns, or take it back in the table.",
    Reason.TABLE_MISSING: "Restore the table in the catalog, or delete the Table and create it again.",
    Reason.TABLE_REPLACED: "Put the former table back, or delete the Table and create it again for the new one.",
    Reason.FORMAT_VERSION_UNSUPPORTED: "Take out of the table what the message names, or write it with another engine.",
    Reason.DELETES_UNSUPPORTED: "Compact the table with the engine that wrote these deletes, then run the job again.",
    Reason.SEGMENTS_MISSING: _INDEX_CATCHES_UP,
    Reason.SEGMENTS_FAILED: "Repair or remove the data files that the message names, then start a reindex.",
    Reason.INDEX_DAMAGED: _INDEX_CATCHES_UP,
    Reason.LAG_EXCEEDED: f"{_INDEX_CATCHES_UP}. If it lags all the time, raise spec.maxLagSegments or use Inline.",
    Reason.COVERAGE_BELOW_MINIMUM: _INDEX_CATCHES_UP,
    Reason.NOT_BUILT: _INDEX_CATCHES_UP,
    Reason.SMALL_FILES: _MAINTAIN_NOW,
    Reason.MANY_DELETES: _MAINTAIN_NOW,
    Reason.MANY_MANIFESTS: _MAINTAIN_NOW,
    Reason.SNAPSHOTS_PENDING: _MAINTAIN_NOW,
    Reason.ORPHAN_FILES_KEPT: "Finish or delete the jobs that have begun, or raise olderThan above their deadline.",
    Reason.WINDOW_CLOSED: "Nothing: the message says when the window opens. The annotation skipstone.dev/maintain "
    "starts a run outside of it.",
    Reason.MAINTENANCE_FAILED: "Correct what the message names; the next maintain run tries again by itself.",
    Reason.GIVING_WAY: _WAIT,
    Reason.PREVIOUS_JOB_ACTIVE: "Nothing: one MergeJob follows for all times that passed. If that happens often, make "
    "spec.schedule less frequent.",
    Reason.JOB_FAILED: "Look at the Failed condition of the MergeJob that ended last.",
    Reason.JOB_REJECTED: "Correct spec.mergeTemplate as the message says.",
    Reason.RUN_MISSED: "Nothing: the latest time is made up for. For older ones, raise startingDeadlineSeconds.",
    Reason.TOO_MANY_MISSED: "Nothing: the latest time is made up for. See why no MergeJob was created for so long.",
    Reason.WAITING_FOR_TABLE: _WAIT,
    Reason.WAITING_FOR_TURN: _WAIT,
    Reason.WAITING_FOR_QUOTA: "Nothing, or raise spec.maxConcurrentRuns of the Warehouse or the ResourceQuota.",
    Reason.WAITING_FOR_WAREHOUSE: "Create the Warehouse, or look at its Ready condition, which says what it lacks.",
    Reason.SUSPENDED: "Set spec.suspend to false when it shall go on.",
    Reason.RETRYING: "Nothing while attempts are left. The message says what failed.",
    Reason.CONFIRMING: _WAIT,
    Reason.IMAGE_PULL_FAILED: "Correct the name of the image, or let the cluster pull it (image.pullSecrets).",
    Reason.UNSCHEDULABLE: "Add a node, or ask for less in spec.spark of the Warehouse.",
    Reason.CONTAINER_CONFIG_ERROR: "Create the Secret, ConfigMap or key that the message names.",
    Reason.VOLUME_UNAVAILABLE: "Create the PersistentVolumeClaim, or see why it cannot be mounted.",
    Reason.POD_REJECTED: "Change what the message quotes: a policy, a quota or the podTemplate of the Warehouse.",
    Reason.SOURCE_ALREADY_APPLIED: "Nothing: the rows are there. A job with source.duplicates: Allow adds them again.",
    Reason.SOURCE_NOT_FOUND: f"Put the file there, or correct spec.source.paths. {_NEW_JOB}",
    Reason.SOURCE_LOCATION_NOT_FOUND: "Add the location to spec.sourceLocations of the Warehouse.",
    Reason.SOURCE_UNREADABLE: f"Repair the file, or correct spec.source.format. {_NEW_JOB}",
    Reason.SOURCE_CHANGED: "Let writers move finished files into the folder, or set source.settleSeconds.",
    Reason.SOURCE_NOT_SETTLED: "Nothing: the job tries again when the file has settled.",
    Reason.SOURCE_COLUMN_MISSING: f"Add the column to the source, or change the mapping. {_NEW_JOB}",
    Reason.PATH_OUTSIDE_WAREHOUSE: "Use a path below the Warehouse's root, or add a source location to the Warehouse.",
    Reason.BAD_RECORDS: f"Repair the rows that the message names, or allow them in spec.badRecords. {_NEW_JOB}",
    Reason.DUPLICATE_SOURCE_KEYS: f"Set spec.sequenceBy, or leave one row of each key in the source. {_NEW_JOB}",
    Reason.KEY_COLUMN_MISSING: f"Correct spec.keys. {_NEW_JOB}",
    Reason.KEY_TYPE_MISMATCH: f"Give the source column the type of the table's column. {_NEW_JOB}",
    Reason.CONFLICTED: "Run the job when other writers are quiet, or let fewer of them write the same files.",
    Reason.ROLLED_BACK: "Nothing if the rollback was meant. Else create a new job with the same source.",
    Reason.CLOCK_SKEWED: "Correct the clock of the node that the driver ran on.",
    Reason.CREDENTIALS_EXPIRED: "Nothing: the next attempt takes new ones. If it happens often, let them live longer.",
    Reason.DRIVER_FAILED: "Read the last words in the message, and the logs of the driver pod.",
    Reason.DRIVER_LOST: "Nothing: another attempt follows. If it happens often, see why nodes evict pods.",
    Reason.OUT_OF_MEMORY: "Raise the field of spec.spark of the Warehouse that the message names.",
    Reason.DISK_FULL: "Make room on the Warehouse's volume, or raise the size of the scratch volume.",
    Reason.JVM_LOST: "Read in the message how the JVM ended. For lack of memory, raise spec.spark of the Warehouse.",
    Reason.BACKOFF_LIMIT_EXCEEDED: f"Look at the message of the last attempt. {_NEW_JOB}",
    Reason.DEADLINE_EXCEEDED: f"Raise spec.activeDeadlineSeconds, or give its runs more resources. {_NEW_JOB}",
    Reason.OUTCOME_UNKNOWN: "Bring back the catalog or storage that the message names: the job then finds out.",
    Reason.ABORTED: "Nothing: the rows are not in the table, and this job never adds them. Create a new job for them.",
    Reason.INTERNAL_ERROR: "Nothing: the operator tries again each minute. If it stays, read the operator's log.",
}


def way_out(reason: str) -> str:
    """What to do about the reason of this name; empty for one that is no trouble or that is not known."""
    try:
        return WAYS_OUT.get(Reason(reason), "")
    except ValueError:
        return ""
