"""What to do about each reason, one sentence for people.

The reference page of reasons and ``skipstone why`` both take it from here. Must not hold logic.
"""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_core.reasons import Reason

NOTHING = "Nothing to do."
WAIT = "Wait: it goes on by itself."
SEE_LOG = "Read the message and the driver's log"

REMEDIES: Mapping[Reason, str] = {
    # Specification and references
    Reason.INVALID_SPEC: "Correct the field that the message names; a field that never changes needs a new resource.",
    Reason.WAREHOUSE_NOT_FOUND: (
        "Create the Warehouse in this namespace, or create the resource again with another spec.warehouseRef."
    ),
    Reason.WAREHOUSE_NOT_READY: "Find out why the Warehouse is not ready; this goes on once it is.",
    Reason.TABLE_NOT_FOUND: (
        "Create the Table in this namespace, or create the resource again with another spec.tableRef."
    ),
    Reason.TABLE_NOT_READY: "Find out why the Table is not ready; this goes on once it is.",
    Reason.RESOURCE_CONFLICT: (
        "Delete one of the two resources; to keep both, create this one again under another name in the catalog."
    ),
    Reason.COLUMN_NOT_FOUND: (
        "Add the column to the table, or name another one; an index and a job are created again for that."
    ),
    Reason.COLUMN_REPLACED: "Delete the SecondaryIndex and create it again, so that it is built from the new column.",
    Reason.COLUMN_TYPE_UNSUPPORTED: (
        "Change the type of the column, or name another one; an index and a job are created again for that."
    ),
    Reason.DUPLICATE_INDEX: "Delete this SecondaryIndex; the older one answers the same queries.",
    # Warehouse
    Reason.CHECK_PENDING: WAIT,
    Reason.CHECKED: NOTHING,
    Reason.CHECK_FAILED: (
        "Correct the catalog, the storage or the credentials that the message names; the check runs again by itself."
    ),
    Reason.CLAIM_NOT_FOUND: "Create the PersistentVolumeClaim, or correct spec.storage.pvc.claimName.",
    Reason.CATALOG_NEEDS_ONE_NODE: (
        "Claim the volume ReadWriteOnce or ReadWriteOncePod, or use PostgreSQL or a REST catalog."
    ),
    Reason.CATALOG_UNAVAILABLE: (
        "Bring the catalog back, or correct its address in the Warehouse; runs try again by themselves."
    ),
    Reason.CATALOG_UNPROVEN: "Bring back the catalog that held the table, or delete this resource.",
    Reason.STORAGE_UNAVAILABLE: (
        "Check the volume or bucket, its space and its credentials; runs try again by themselves."
    ),
    # Planning server of a Warehouse
    Reason.SERVING: NOTHING,
    Reason.REPLICAS_PENDING: "Wait; if it stays so, `kubectl describe` the pods that the message names.",
    Reason.REPLICAS_FAILED: "Run `kubectl describe` and `kubectl logs` on the pods of the named Deployment.",
    Reason.SERVER_REFUSED: "Correct spec.planning, or the quota, policy or right that the message names.",
    # Table
    Reason.APPLIED: NOTHING,
    Reason.CREATED: NOTHING,
    Reason.ADOPTED: NOTHING,
    Reason.OBSERVED: NOTHING,
    Reason.NOT_CREATED_HERE: "Nothing to do; delete the data by hand if nobody needs it.",
    Reason.SCHEMA_MISMATCH: "Make spec.columns fit the table, or change the table; the message says how they differ.",
    Reason.SCHEMA_DRIFT: (
        "Declare columns that were added in spec.columns; a Table whose columns are gone is created again, as the "
        "message says."
    ),
    Reason.TABLE_MISSING: (
        "Restore the table in the catalog; if it may be created again empty, delete this Table and create it again."
    ),
    Reason.TABLE_REPLACED: (
        "Bring the earlier table back under this identifier; for the new one, delete this Table and create it again."
    ),
    Reason.FORMAT_VERSION_UNSUPPORTED: "Write the table with the engine that made it, or upgrade Skipstone.",
    Reason.DELETES_UNSUPPORTED: "Compact the table with the engine that wrote the deletes, then try again.",
    # SecondaryIndex
    Reason.SEGMENTS_IN_SYNC: NOTHING,
    Reason.SEGMENTS_MISSING: (
        "Wait for the next reindex; with maintenance Manual or spec.suspend, reindex by hand. Queries are "
        "right meanwhile."
    ),
    Reason.SEGMENTS_FAILED: f"{SEE_LOG}, correct the cause, then reindex by hand. Queries are right meanwhile.",
    Reason.INDEX_DAMAGED: "Wait for the next reindex, or reindex by hand. Queries are right meanwhile.",
    Reason.LAG_EXCEEDED: "Wait for the reindex, or raise spec.maxLagSegments. Queries are right meanwhile.",
    Reason.COVERAGE_BELOW_MINIMUM: (
        "Wait for the reindex, or lower spec.minCoveredPercent. Queries are right meanwhile."
    ),
    Reason.HEALTHY: NOTHING,
    Reason.NOT_BUILT: "Wait for the first reindex; with maintenance Manual, reindex by hand.",
    # Maintenance of a Table
    Reason.SMALL_FILES: "Wait for the next maintain run, or ask for one by hand.",
    Reason.MANY_DELETES: "Wait for the next maintain run, or ask for one by hand.",
    Reason.MANY_MANIFESTS: "Wait for the next maintain run, or ask for one by hand.",
    Reason.MANIFESTS_WITHOUT_BOUNDS: "Set spec.maintenance.compaction, then wait for the next maintain run.",
    Reason.SNAPSHOTS_PENDING: "Wait for the next maintain run, or ask for one by hand.",
    Reason.ORPHAN_FILES_KEPT: "Wait until the job that the message names has finished.",
    Reason.WINDOW_CLOSED: "Wait until the window opens, or ask for a maintain run by hand, which needs no window.",
    Reason.MAINTENANCE_FAILED: f"{SEE_LOG}; another run follows by itself.",
    Reason.MAINTENANCE_OFF: NOTHING,
    Reason.MAINTAINING: WAIT,
    Reason.GIVING_WAY: WAIT,
    # MergeSchedule
    Reason.SCHEDULED: NOTHING,
    Reason.JOB_ACTIVE: WAIT,
    Reason.PREVIOUS_JOB_ACTIVE: "Wait for the MergeJob in progress; if it takes too long, find out why.",
    Reason.JOB_FAILED: "Find out why the MergeJob failed; the next one is created at its time all the same.",
    Reason.JOB_REJECTED: "Correct spec.mergeTemplate, or the quota or policy that the message names.",
    Reason.RUN_MISSED: "Nothing to do; a consumed folder is merged by the next MergeJob.",
    Reason.TOO_MANY_MISSED: "Nothing to do; check the clocks and whether the operator runs if this happens again.",
    # Waiting: no deadline runs
    Reason.WAITING_FOR_TABLE: (
        "Wait for the run that writes the table; if it takes too long, find out what it waits for."
    ),
    Reason.WAITING_FOR_TURN: "Wait for the older job; delete or suspend it if it should not go first.",
    Reason.WAITING_FOR_QUOTA: (
        "Wait for other runs, or raise the ResourceQuota or spec.maxConcurrentRuns of the Warehouse."
    ),
    Reason.WAITING_FOR_WAREHOUSE: "Create the Warehouse, or find out why it is not ready.",
    Reason.SUSPENDED: "Set spec.suspend to false.",
    # Progress
    Reason.RUN_INTENDED: WAIT,
    Reason.DRIVER_PENDING: WAIT,
    Reason.DRIVER_RUNNING: WAIT,
    Reason.RETRYING: "Wait for the next attempt; the message says why the last one failed.",
    Reason.CONFIRMING: WAIT,
    Reason.IDLE: NOTHING,
    Reason.DELETING: WAIT,
    # Cluster waits: a deadline runs
    Reason.IMAGE_PULL_FAILED: (
        "Correct spec.spark.image of the Warehouse or the pull secret of the chart, or push the image."
    ),
    Reason.UNSCHEDULABLE: "Add nodes, or lower the resources or loosen the placement in spec.spark of the Warehouse.",
    Reason.CONTAINER_CONFIG_ERROR: "Create the Secret, the ConfigMap or the key that the message names.",
    Reason.VOLUME_UNAVAILABLE: "Create the PersistentVolumeClaim, or find out why it cannot be mounted.",
    Reason.NODE_NOT_READY: "Bring the node back, or wait: the next attempt starts on another node.",
    Reason.DRIVER_STUCK: (
        "Wait until the run is given up, or run the command that the message names once the node is known to be down."
    ),
    Reason.POD_REJECTED: (
        "Correct what the API server objects to: a policy, a quota or the pod template of the Warehouse."
    ),
    # How a run ended
    Reason.COMMITTED: NOTHING,
    Reason.ALREADY_COMMITTED: NOTHING,
    Reason.DRY_RUN: "Create the MergeJob without spec.dryRun to apply the changes.",
    Reason.SOURCE_ALREADY_APPLIED: (
        "Nothing to do; to apply the same source again, create a job with source.duplicates Allow."
    ),
    Reason.SOURCE_NOT_FOUND: "Put the files in place, or create a job with the right paths.",
    Reason.SOURCE_LOCATION_NOT_FOUND: (
        "Add the location to spec.sourceLocations of the Warehouse, or create a job that names another one."
    ),
    Reason.SOURCE_UNREADABLE: (
        "Correct the file that the message names, or spec.source.format, and create the job again."
    ),
    Reason.SOURCE_CHANGED: (
        "Stop writing to the files while a job reads them: move them into place when they are whole."
    ),
    Reason.SOURCE_NOT_SETTLED: WAIT,
    Reason.SOURCE_COLUMN_MISSING: "Add the column to the source, or correct the mapping, and create the job again.",
    Reason.COLUMNS_GONE: (
        "Add a renamed column to the Table under its new name, or set source.unknownColumns to Add; remove the old one "
        "from the table if nobody needs its values."
    ),
    Reason.CHANGES_LEFT_OUT: (
        "Set what the message names, then merge the files that status.rejectedPath names with source.onlyRejected."
    ),
    Reason.COLUMNS_IGNORED: (
        "Add the columns to the Table, or set source.unknownColumns to Add; nothing to do if nobody needs them."
    ),
    Reason.SOURCE_COLUMNS_UNUSED: (
        "Do what the message says: name the columns in source.mapping, set the delimiter, or add them to the table."
    ),
    Reason.PATH_OUTSIDE_WAREHOUSE: "Use a path below the Warehouse's root, or a source location of the Warehouse.",
    Reason.BAD_RECORDS: (
        "Correct the rows, set what the message names, or create a job whose spec.badRecords allows them."
    ),
    Reason.DUPLICATE_SOURCE_KEYS: "Set spec.sequenceBy in a new job, or remove the duplicates from the source.",
    Reason.KEY_COLUMN_MISSING: "Correct spec.keys in a new job, or add the column.",
    Reason.KEY_TYPE_MISMATCH: (
        "Create the job again with keys of one type: in Csv and Json, declare the source column in spec.source.columns."
    ),
    Reason.CONFLICTED: "Let other writers of the table finish, then create the job again.",
    Reason.ROLLED_BACK: "To apply the rows again, create a job with another name and source.duplicates Allow.",
    Reason.CLOCK_SKEWED: "Correct the clock of the node that the message names.",
    Reason.CREDENTIALS_EXPIRED: WAIT,
    Reason.DRIVER_FAILED: f"{SEE_LOG}; the next attempt starts by itself while spec.backoffLimit allows it.",
    Reason.DRIVER_LOST: "Wait: the next attempt starts by itself; look at the node if it happens again.",
    Reason.OUT_OF_MEMORY: "Raise the field of the Warehouse that the message names; the next attempt starts by itself.",
    Reason.DISK_FULL: "Free or add room on the volume that the message names; the next attempt starts by itself.",
    Reason.JAVA_MISSING: "Install Java 17 or newer, or name it by JAVA_HOME, and create the job again.",
    Reason.JVM_LOST: "Raise the field of the Warehouse that the message names; the next attempt starts by itself.",
    Reason.BACKOFF_LIMIT_EXCEEDED: (
        "Correct what the message names, then create the job again: its rows are not in the table."
    ),
    Reason.DEADLINE_EXCEEDED: (
        "Create the job again with a longer spec.activeDeadlineSeconds: its rows are not in the table."
    ),
    Reason.OUTCOME_UNKNOWN: "Bring back the catalog or the file that the message names: confirm runs keep asking.",
    Reason.ABORTED: "Create the job again: its rows are not in the table and never will be.",
    # Deletion
    Reason.DATA_DELETED: NOTHING,
    Reason.DATA_RETAINED: (
        "Nothing to do; if nobody needs the data, drop the table in the catalog and delete the files by hand. If "
        "another table uses the files, drop it there without deleting them (DROP TABLE without PURGE)."
    ),
    # Trouble of the operator itself
    Reason.INTERNAL_ERROR: "Read the operator's log; it tries again by itself. Report it if it stays.",
    Reason.UNRECOGNIZED: WAIT,
}


def find_remedy(reason: str) -> str:
    """What to do about ``reason``; empty for a word that is not a reason of this release."""
    try:
        return REMEDIES[Reason(reason)]
    except ValueError:
        return ""
