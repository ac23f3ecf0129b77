"""The one list of reasons: conditions, Events, metric labels and the reference page all use it.

Every reason has one sentence of documentation; the docs table is generated from here.
Must not hold logic: who decides for a reason is the decider's business.
"""

from __future__ import annotations

from skipstone_core.coded import CodedSentence


class Reason(CodedSentence):
    """Why a condition has its status, in CamelCase as Kubernetes wants it."""

    # Specification and references
    INVALID_SPEC = "InvalidSpec", "A field cannot be used as written; the message names it. Nothing was started."
    WAREHOUSE_NOT_FOUND = "WarehouseNotFound", "spec.warehouseRef names no Warehouse in this namespace."
    WAREHOUSE_NOT_READY = "WarehouseNotReady", "The Warehouse exists but its Ready condition is not True yet."
    TABLE_NOT_FOUND = "TableNotFound", "spec.tableRef names no Table in this namespace."
    TABLE_NOT_READY = "TableNotReady", "The Table exists but its Ready condition is not True yet."
    RESOURCE_CONFLICT = "ResourceConflict", "An older resource already claims the same object in the catalog."
    COLUMN_NOT_FOUND = "ColumnNotFound", "A named column is not in the table."
    COLUMN_REPLACED = "ColumnReplaced", "An indexed column was dropped and its name given to a new column."
    COLUMN_TYPE_UNSUPPORTED = "ColumnTypeUnsupported", "A column has a type that cannot be used here."
    DUPLICATE_INDEX = "DuplicateIndex", "An older SecondaryIndex has the same definition on the same table."

    # Warehouse
    CHECK_PENDING = "CheckPending", "The check run of this generation has not finished."
    CHECKED = "Checked", "Catalog and storage answered the check run."
    CHECK_FAILED = "CheckFailed", "The check run could not use the catalog or the storage; the message names the cause."
    CLAIM_NOT_FOUND = "ClaimNotFound", "spec.storage.pvc.claimName names no PersistentVolumeClaim in this namespace."
    CATALOG_NEEDS_ONE_NODE = (
        "CatalogNeedsOneNode",
        "An SQLite catalog cannot be shared between nodes: claim the volume ReadWriteOnce.",
    )
    CATALOG_UNAVAILABLE = (
        "CatalogUnavailable",
        "The catalog did not answer, refused the request, or gave an inconclusive answer.",
    )
    CATALOG_UNPROVEN = (
        "CatalogUnproven",
        "The table is not in the catalog, and it is not proven that this is the catalog that held it.",
    )
    STORAGE_UNAVAILABLE = "StorageUnavailable", "The storage could not be written, read or listed."

    # Planning server of a Warehouse
    SERVING = "Serving", "Every replica of the planning server is ready."
    REPLICAS_PENDING = (
        "ReplicasPending",
        "Objects of the planning server are missing, or its replicas are not ready yet; the message counts the "
        "replicas.",
    )
    REPLICAS_FAILED = (
        "ReplicasFailed",
        "Replicas of the planning server were not ready in time; the pods of its Deployment show the cause.",
    )
    SERVER_REFUSED = (
        "ServerRefused",
        "The API server refused an object of the planning server; the message quotes its answer. The operator retries.",
    )

    # Kept drivers of a Warehouse
    KEPT_DRIVERS_READY = "KeptDriversReady", "Every kept driver that the Warehouse wants takes runs."
    KEPT_DRIVERS_PENDING = (
        "KeptDriversPending",
        "Kept drivers are missing or do not take runs yet; until then runs start in pods of their own.",
    )
    KEPT_DRIVERS_FAILED = (
        "KeptDriversFailed",
        "A kept driver ended with an error; the message names its pod. The operator starts another one.",
    )

    # Table
    APPLIED = "Applied", "The table matches its spec; no run has reported yet whether Skipstone created it."
    CREATED = "Created", "The table was created by Skipstone and is up to date with its spec."
    ADOPTED = "Adopted", "The table existed before and its schema fits the spec; it is never purged."
    OBSERVED = "Observed", "The table is only read; another owner creates, changes and drops it."
    NOT_CREATED_HERE = "NotCreatedHere", "The table was not created by this resource, so its data is kept."
    SCHEMA_MISMATCH = (
        "SchemaMismatch",
        "The existing table or the requested change does not fit; the message names the difference.",
    )
    SCHEMA_DRIFT = "SchemaDrift", "Another program changed the schema of a managed table."
    TABLE_MISSING = (
        "TableMissing",
        "The table is no longer in the catalog; Skipstone does not create it again by itself.",
    )
    TABLE_REPLACED = "TableReplaced", "The catalog holds another table under this identifier."
    BRANCH_NOT_FOUND = (
        "BranchNotFound",
        "The table does not have the branch that spec.branch names, or cannot have it; the message shows the way out.",
    )
    FORMAT_VERSION_UNSUPPORTED = (
        "FormatVersionUnsupported",
        "Skipstone does not write the table's format version, or a feature of it that the table uses.",
    )
    DELETES_UNSUPPORTED = "DeletesUnsupported", "The table holds deletes that this run cannot apply."

    # SecondaryIndex
    SEGMENTS_IN_SYNC = "SegmentsInSync", "Every live segment of the table is covered by the index."
    SEGMENTS_MISSING = "SegmentsMissing", "Some segments are not covered yet; queries prune those by min/max bounds."
    SEGMENTS_FAILED = "SegmentsFailed", "Some segments could not be indexed; the message names the first."
    INDEX_DAMAGED = "IndexDamaged", "Files of the index are missing or damaged; the next reindex builds them again."
    LAG_EXCEEDED = "LagExceeded", "More segments are missing than spec.maxLagSegments allows."
    COVERAGE_BELOW_MINIMUM = (
        "CoverageBelowMinimum",
        "Fewer rows are covered than spec.minCoveredPercent or spec.unusedBelowPercent requires.",
    )
    HEALTHY = "Healthy", "The resource has no problem."
    NOT_BUILT = "NotBuilt", "The index has not been built yet."

    # Maintenance of a Table
    SMALL_FILES = "SmallFiles", "Small data files are due for compaction; the next maintain run rewrites them."
    MANY_DELETES = "ManyDeletes", "Files with many deleted rows are due for compaction; the next maintain run does it."
    MANY_MANIFESTS = "ManyManifests", "Manifests are due for a rewrite; the next maintain run does it."
    MANIFESTS_WITHOUT_BOUNDS = (
        "ManifestsWithoutBounds",
        "A manifest list lacks bounds, and other engines skip the files; rewriting manifests repairs it.",
    )
    SNAPSHOTS_PENDING = "SnapshotsPending", "Snapshots are due to expire; the next maintain run removes them."
    ORPHAN_FILES_KEPT = (
        "OrphanFilesKept",
        "The search for orphan files waits while a job may still commit files that look like them.",
    )
    WINDOW_CLOSED = "WindowClosed", "Maintenance is due and waits until spec.maintenance.window opens."
    MAINTENANCE_FAILED = (
        "MaintenanceFailed",
        "The last maintain run or one of its steps failed; the message names the cause.",
    )
    MAINTENANCE_OFF = "MaintenanceOff", "The maintain run is stopped, because spec.maintenance was removed."
    MAINTAINING = "Maintaining", "A maintain run is in progress; the message shows its steps and its progress."
    GIVING_WAY = "GivingWay", "The maintain run is stopped, because a job or a change of the table waits for it."

    # MergeSchedule
    SCHEDULED = "Scheduled", "A MergeJob is created at each time of spec.schedule."
    JOB_ACTIVE = "JobActive", "A MergeJob of the schedule has not ended."
    PREVIOUS_JOB_ACTIVE = "PreviousJobActive", "A MergeJob is due and waits for the end of the previous one."
    JOB_FAILED = "JobFailed", "The MergeJob that ended last failed; the next one is still created at its time."
    JOB_REJECTED = "JobRejected", "The API server refused the MergeJob; the message quotes its answer."
    COLUMNS_GONE = (
        "ColumnsGone",
        "The change feed of the MergeJob that became Complete last no longer has columns that earlier ones merged.",
    )
    COLUMNS_IGNORED = (
        "ColumnsIgnored",
        "The MergeJob that became Complete last left out columns of its source that hold values.",
    )
    CHANGES_LEFT_OUT = (
        "ChangesLeftOut",
        "A MergeJob of the schedule left out changes that do not fit, as badRecords allows.",
    )
    RUN_MISSED = (
        "RunMissed",
        "Times passed without a MergeJob of their own: they were too late, or a later MergeJob replaces theirs.",
    )
    TOO_MANY_MISSED = "TooManyMissed", "More than 100 times passed without a MergeJob; only the latest gets one."

    # Waiting: no deadline runs
    WAITING_FOR_TABLE = "WaitingForTable", "Another run is writing this table."
    WAITING_FOR_TURN = "WaitingForTurn", "An older job of the same table goes first."
    WAITING_FOR_QUOTA = "WaitingForQuota", "A ResourceQuota or spec.maxConcurrentRuns of the Warehouse is used up."
    WAITING_FOR_WAREHOUSE = "WaitingForWarehouse", "The Warehouse is missing or not ready."
    SUSPENDED = "Suspended", "spec.suspend is true."

    # Progress
    RUN_INTENDED = "RunIntended", "The next run is recorded and about to be launched."
    DRIVER_PENDING = "DriverPending", "The driver pod exists and has not started."
    DRIVER_RUNNING = "DriverRunning", "The driver is running; the message shows its progress."
    RETRYING = "Retrying", "An attempt failed and the next one waits for its back-off."
    CONFIRMING = "Confirming", "A confirm run checks whether the last attempt committed."
    IDLE = "Idle", "No work is due."
    DELETING = "Deleting", "The resource is being deleted."

    # Cluster waits: a deadline runs
    IMAGE_PULL_FAILED = "ImagePullFailed", "The image of the run cannot be pulled."
    UNSCHEDULABLE = "Unschedulable", "No node can take the driver pod."
    CONTAINER_CONFIG_ERROR = "ContainerConfigError", "The pod names a Secret, ConfigMap or key that is missing."
    VOLUME_UNAVAILABLE = "VolumeUnavailable", "The PersistentVolumeClaim is missing or cannot be mounted."
    NODE_NOT_READY = "NodeNotReady", "The node of the driver pod does not answer; if this lasts, the driver is stopped."
    DRIVER_STUCK = (
        "DriverStuck",
        "A deleted driver pod does not end, because its node does not answer; the message names both and the way out.",
    )
    POD_REJECTED = "PodRejected", "The API server refused the pod of a run; the message quotes its answer."

    KEPT_DRIVER_BUSY = (
        "KeptDriverBusy",
        "The kept driver did not begin the run in time; the run starts in a pod of its own, and no attempt is counted.",
    )

    # How a run ended
    COMMITTED = "Committed", "The run's commit is in the table."
    ALREADY_COMMITTED = "AlreadyCommitted", "An earlier attempt's commit is in the table; it was not repeated."
    DRY_RUN = "DryRun", "The dry run has found what the merge would do; nothing was written and nothing will be."
    SOURCE_ALREADY_APPLIED = "SourceAlreadyApplied", "Another job already applied the same source to this table."
    SOURCE_NOT_FOUND = (
        "SourceNotFound",
        "A path in spec.source.paths matches no file, or the table in spec.source.table lacks the named snapshot.",
    )
    SOURCE_LOCATION_NOT_FOUND = (
        "SourceLocationNotFound",
        "spec.source.location names no source location of the Warehouse; the job waits for it.",
    )
    SOURCE_UNREADABLE = "SourceUnreadable", "A source file cannot be read in the given format."
    SOURCE_CHANGED = (
        "SourceChanged",
        "A source file changed while it was read, or which rows of a source table are new is not known any more.",
    )
    SOURCE_NOT_SETTLED = (
        "SourceNotSettled",
        "A source file changed less than source.settleSeconds ago; the job retries.",
    )
    SOURCE_COLUMN_MISSING = "SourceColumnMissing", "The source lacks a column that the table or the mapping needs."
    SOURCE_COLUMNS_UNUSED = (
        "SourceColumnsUnused",
        "Columns of the source would be left out, probably by mistake; the message names them and a way out.",
    )
    PATH_OUTSIDE_WAREHOUSE = "PathOutsideWarehouse", "A path leads out of the Warehouse's root."
    BAD_RECORDS = "BadRecords", "Rows that do not fit the schema were found and spec.badRecords does not allow them."
    DUPLICATE_SOURCE_KEYS = "DuplicateSourceKeys", "Several source rows have one key and spec.sequenceBy is not set."
    KEY_COLUMN_MISSING = "KeyColumnMissing", "A merge key is missing in the table or in the source."
    KEY_TYPE_MISMATCH = "KeyTypeMismatch", "A merge key has different types in the table and in the source."
    CONFLICTED = "Conflicted", "Other writers kept changing the same files; try again."
    ROLLED_BACK = (
        "RolledBack",
        "The job's commit was rolled back in the table; Skipstone does not apply it again by itself.",
    )
    CLOCK_SKEWED = (
        "ClockSkewed",
        "The clock of the driver's node or of the catalog's server is behind the table's last change, or the two "
        "clocks differ; the message names the clock. Nothing was committed.",
    )
    CREDENTIALS_EXPIRED = (
        "CredentialsExpired",
        "The credentials for a storage expired while a run used them; the next attempt gets new ones.",
    )
    DRIVER_FAILED = "DriverFailed", "The driver ended without a report; the message has its last output."
    DRIVER_LOST = "DriverLost", "The driver pod was deleted or evicted; this does not count as an attempt."
    OUT_OF_MEMORY = "OutOfMemory", "The driver or an executor ran out of memory; the message names the field to raise."
    DISK_FULL = "DiskFull", "The Warehouse's volume or the scratch volume of a pod is full."
    JAVA_MISSING = (
        "JavaMissing",
        "The run needs Spark, and no Java that Spark can use was found; this happens only outside of pods.",
    )
    JVM_LOST = "JvmLost", "The JVM of the driver ended or does not answer; the message shows how it ended."
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded", "All attempts failed and the commit is proven absent."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "spec.activeDeadlineSeconds passed and the commit is proven absent."
    OUTCOME_UNKNOWN = "OutcomeUnknown", "It is not known yet whether the commit landed; confirm runs keep checking."
    ABORTED = "Aborted", "The commit is absent and fenced off: it will never be in the table."

    # Deletion
    DATA_DELETED = "DataDeleted", "The data was purged as spec.reclaimPolicy asks."
    DATA_RETAINED = "DataRetained", "The data was kept; the message names its location."

    # Trouble of the operator itself
    INTERNAL_ERROR = (
        "InternalError",
        "The operator failed to process this resource and retries; the message and the operator's log show the error.",
    )
    UNRECOGNIZED = "Unrecognized", "The status holds a reason of another release; the next run replaces it."
