"""What to do about each reason, one sentence for people.

The reference page of reasons and ``skipstone why`` both take it from here. Must not hold logic.
"""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_core.reasons import Reason

NOTHING = "Nothing to do."
WAIT = "Wait: it continues by itself."
SEE_LOG = "Read the message and the driver's log"

REMEDIES: Mapping[Reason, str] = {
    # Specification and references
    Reason.INVALID_SPEC: "Correct the field that the message names; if the field is immutable, create a new resource.",
    Reason.WAREHOUSE_NOT_FOUND: (
        "Create the Warehouse in this namespace, or create the resource again with another spec.warehouseRef."
    ),
    Reason.WAREHOUSE_NOT_READY: "Find out why the Warehouse is not ready; this resource continues when it is.",
    Reason.TABLE_NOT_FOUND: (
        "Create the Table in this namespace, or create the resource again with another spec.tableRef."
    ),
    Reason.TABLE_NOT_READY: "Find out why the Table is not ready; this resource continues when it is.",
    Reason.RESOURCE_CONFLICT: (
        "Delete one of the two resources; to keep both, create this one again under another name in the catalog."
    ),
    Reason.COLUMN_NOT_FOUND: (
        "Add the column to the table, or name another one; to change an index or a job, create it again."
    ),
    Reason.COLUMN_REPLACED: "Delete the SecondaryIndex and create it again, so that it is built from the new column.",
    Reason.COLUMN_TYPE_UNSUPPORTED: (
        "Change the type of the column, or name another one; to change an index or a job, create it again."
    ),
    Reason.DUPLICATE_INDEX: "Delete this SecondaryIndex; the older one serves the same queries.",
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
        "Restore the catalog, or correct its address in the Warehouse; runs retry by themselves."
    ),
    Reason.CATALOG_UNPROVEN: "Restore the catalog that held the table, or delete this resource.",
    Reason.STORAGE_UNAVAILABLE: (
        "Check the volume or bucket, its space and its credentials; runs retry by themselves."
    ),
    # Planning server of a Warehouse
    Reason.SERVING: NOTHING,
    Reason.REPLICAS_PENDING: "Wait; if this lasts, run `kubectl describe` on the pods that the message names.",
    Reason.REPLICAS_FAILED: "Run `kubectl describe` and `kubectl logs` on the pods of the named Deployment.",
    Reason.SERVER_REFUSED: "Correct spec.planning, or the quota, policy or right that the message names.",
    # Kept drivers of a Warehouse
    Reason.KEPT_DRIVERS_READY: NOTHING,
    Reason.KEPT_DRIVERS_PENDING: "Wait; if this lasts, run `kubectl describe` on the pods with the operation Keep.",
    Reason.KEPT_DRIVERS_FAILED: "Run `kubectl logs` on the pod that the message names, and correct the Warehouse.",
    # Table
    Reason.APPLIED: NOTHING,
    Reason.CREATED: NOTHING,
    Reason.ADOPTED: NOTHING,
    Reason.OBSERVED: NOTHING,
    Reason.NOT_CREATED_HERE: "Nothing to do; delete the data by hand if you no longer need it.",
    Reason.SCHEMA_MISMATCH: "Make spec.columns match the table, or change the table; the message shows the difference.",
    Reason.SCHEMA_DRIFT: (
        "Declare added columns in spec.columns; if columns were removed, create the Table again, as the message "
        "describes."
    ),
    Reason.TABLE_MISSING: (
        "Restore the table in the catalog, or, to start with an empty one, delete this Table and create it again."
    ),
    Reason.TABLE_REPLACED: (
        "Restore the earlier table under this identifier, or, to use the new one, delete this Table and create it "
        "again."
    ),
    Reason.BRANCH_NOT_FOUND: "Create the branch, or create the job again with another spec.branch.",
    Reason.FORMAT_VERSION_UNSUPPORTED: "Write the table with the engine that created it, or upgrade Skipstone.",
    Reason.DELETES_UNSUPPORTED: (
        "Set maintenance.resolveEqualityDeletes of the Table, or compact the table with the engine that wrote the "
        "deletes, then retry."
    ),
    # SecondaryIndex
    Reason.SEGMENTS_IN_SYNC: NOTHING,
    Reason.SEGMENTS_MISSING: (
        "Wait for the next reindex; with maintenance Manual or spec.suspend, reindex by hand. Queries stay right."
    ),
    Reason.SEGMENTS_FAILED: f"{SEE_LOG}, correct the cause, then reindex by hand. Queries stay right.",
    Reason.INDEX_DAMAGED: "Wait for the next reindex, or reindex by hand. Queries stay right.",
    Reason.LAG_EXCEEDED: "Wait for the reindex, or raise spec.maxLagSegments. Queries stay right.",
    Reason.COVERAGE_BELOW_MINIMUM: "Wait for the reindex, or lower the field in the message. Queries stay right.",
    Reason.HEALTHY: NOTHING,
    Reason.NOT_BUILT: "Wait for the first reindex; with maintenance Manual, reindex by hand.",
    # Maintenance of a Table
    Reason.SMALL_FILES: "Wait for the next maintain run, or request one by hand.",
    Reason.MANY_DELETES: "Wait for the next maintain run, or request one by hand.",
    Reason.MANY_MANIFESTS: "Wait for the next maintain run, or request one by hand.",
    Reason.MANIFESTS_WITHOUT_BOUNDS: "Set spec.maintenance.compaction, then wait for the next maintain run.",
    Reason.SNAPSHOTS_PENDING: "Wait for the next maintain run, or request one by hand.",
    Reason.ORPHAN_FILES_KEPT: "Wait until the job that the message names has finished.",
    Reason.WINDOW_CLOSED: (
        "Wait until the window opens, or request a maintain run by hand, which does not need a window."
    ),
    Reason.MAINTENANCE_FAILED: f"{SEE_LOG}; another run follows by itself.",
    Reason.MAINTENANCE_OFF: NOTHING,
    Reason.MAINTAINING: WAIT,
    Reason.GIVING_WAY: WAIT,
    # MergeSchedule
    Reason.SCHEDULED: NOTHING,
    Reason.JOB_ACTIVE: WAIT,
    Reason.PREVIOUS_JOB_ACTIVE: "Wait for the MergeJob in progress; if it takes too long, find out why.",
    Reason.JOB_FAILED: "Find out why the MergeJob failed; the next one is still created at its time.",
    Reason.JOB_REJECTED: "Correct spec.mergeTemplate, or the quota or policy that the message names.",
    Reason.RUN_MISSED: "Nothing to do; with consume New, the next MergeJob merges all new files.",
    Reason.TOO_MANY_MISSED: "Nothing to do; if this happens again, check the clocks and whether the operator runs.",
    # Waiting: no deadline runs
    Reason.WAITING_FOR_TABLE: "Wait for the run that writes the table; if it takes too long, find out why.",
    Reason.WAITING_FOR_TURN: "Wait for the older job, or delete or suspend it.",
    Reason.WAITING_FOR_QUOTA: (
        "Wait for other runs, or raise the ResourceQuota or spec.maxConcurrentRuns of the Warehouse."
    ),
    Reason.WAITING_FOR_WAREHOUSE: "Create the Warehouse, or find out why it is not ready.",
    Reason.SUSPENDED: "Set spec.suspend to false.",
    # Progress
    Reason.RUN_INTENDED: WAIT,
    Reason.DRIVER_PENDING: WAIT,
    Reason.DRIVER_RUNNING: WAIT,
    Reason.RETRYING: "Wait for the next attempt; the message shows why the last one failed.",
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
    Reason.NODE_NOT_READY: "Repair the node, or wait: the next attempt starts on another node.",
    Reason.DRIVER_STUCK: (
        "Wait until the run is given up, or, if the node is down, run the command that the message names."
    ),
    Reason.KEPT_DRIVER_BUSY: WAIT,
    Reason.POD_REJECTED: "Correct the cause of the refusal: a policy, a quota or the pod template of the Warehouse.",
    # How a run ended
    Reason.COMMITTED: NOTHING,
    Reason.ALREADY_COMMITTED: NOTHING,
    Reason.DRY_RUN: "Create the MergeJob without spec.dryRun to apply the changes.",
    Reason.SOURCE_ALREADY_APPLIED: (
        "Nothing to do; to apply the same source again, create a job with source.duplicates Allow."
    ),
    Reason.SOURCE_NOT_FOUND: "Provide the files, or create a job with the right paths or another snapshot.",
    Reason.SOURCE_LOCATION_NOT_FOUND: (
        "Add the location to spec.sourceLocations of the Warehouse, or create a job that names another one."
    ),
    Reason.SOURCE_UNREADABLE: (
        "Correct the file that the message names, or spec.source.format, and create the job again."
    ),
    Reason.SOURCE_CHANGED: (
        "Do not write to files while a job reads them: move them into the folder when they are complete. For a table, "
        "set source.table.fromSnapshot as the message says."
    ),
    Reason.SOURCE_NOT_SETTLED: WAIT,
    Reason.SOURCE_COLUMN_MISSING: "Add the column to the source, or correct the mapping, and create the job again.",
    Reason.COLUMNS_GONE: (
        "Add a renamed column to the Table under its new name, or set source.unknownColumns to Add; remove the old "
        "one from the table if you no longer need its values."
    ),
    Reason.CHANGES_LEFT_OUT: (
        "Apply the setting that the message names, then merge the files that status.rejectedPath names with "
        "source.onlyRejected."
    ),
    Reason.COLUMNS_IGNORED: (
        "Add the columns to the Table, or set source.unknownColumns to Add; nothing to do if you do not need them."
    ),
    Reason.SOURCE_COLUMNS_UNUSED: (
        "Follow the message: name the columns in source.mapping, set the delimiter, or add them to the table."
    ),
    Reason.PATH_OUTSIDE_WAREHOUSE: "Use a path below the Warehouse's root, or a source location of the Warehouse.",
    Reason.BAD_RECORDS: (
        "Correct the rows, apply the setting that the message names, or create a job whose spec.badRecords allows them."
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
    Reason.DRIVER_LOST: "Wait: the next attempt starts by itself; if this happens again, check the node.",
    Reason.OUT_OF_MEMORY: "Raise the field of the Warehouse that the message names; the next attempt starts by itself.",
    Reason.DISK_FULL: "Free or add space on the volume that the message names; the next attempt starts by itself.",
    Reason.JAVA_MISSING: "Install Java 17 or newer, or set JAVA_HOME, and create the job again.",
    Reason.JVM_LOST: "Raise the field of the Warehouse that the message names; the next attempt starts by itself.",
    Reason.BACKOFF_LIMIT_EXCEEDED: (
        "Correct the cause that the message names, then create the job again: its rows are not in the table."
    ),
    Reason.DEADLINE_EXCEEDED: (
        "Create the job again with a longer spec.activeDeadlineSeconds: its rows are not in the table."
    ),
    Reason.OUTCOME_UNKNOWN: "Restore the catalog or the file that the message names: confirm runs keep checking.",
    Reason.ABORTED: "Create the job again: its rows are not in the table, and the failed job will never add them.",
    # Deletion
    Reason.DATA_DELETED: NOTHING,
    Reason.DATA_RETAINED: (
        "Nothing to do; if you no longer need the data, drop the table in the catalog and delete the files by hand. "
        "If another table uses the files, drop the table without deleting them (DROP TABLE without PURGE)."
    ),
    # Trouble of the operator itself
    Reason.INTERNAL_ERROR: "Read the operator's log; the operator retries by itself. Report the error if it lasts.",
    Reason.UNRECOGNIZED: WAIT,
}


def find_remedy(reason: str) -> str:
    """Return the way out of ``reason``; empty for a word that is not a reason of this release."""
    try:
        return REMEDIES[Reason(reason)]
    except ValueError:
        return ""
