"""Bounds and allow-lists of specs: what CEL rules and re-validation both stand on.

Read by the kinds, by ``openapi`` and by ``checks``. Data only.
"""

from __future__ import annotations

from skipstone_core.table_properties import COLUMN_PROPERTIES, PROPERTIES

MAX_COLUMNS = 300
MAX_NAME = 255
MAX_KEYS = 32
MAX_PATHS = 64
MAX_CLAUSES = 64
MAX_PREDICATE = 4096
MAX_ASSIGNED = 1024
MAX_PATH = 1024
MAX_MAP = 64
MAX_VALUE = 1024

#: Iceberg's primitive types. Nested ones are not accepted in specs.
COLUMN_TYPE = (
    r"^(boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary"
    r"|decimal\(([1-9]|[12][0-9]|3[0-8]), ?([0-9]|[12][0-9]|3[0-8])\)|fixed\[[1-9][0-9]{0,5}\])$"
)
COLUMN_TYPE_HELP = (
    "boolean, int, long, float, double, decimal(p,s), date, time, timestamp, timestamptz, string, uuid, "
    "fixed[n] or binary"
)

CATALOG_PROPERTIES = (
    "audience",
    "init_catalog_tables",
    "oauth2-server-uri",
    "pool_pre_ping",
    "prefix",
    "resource",
    "rest-page-size",
    "scope",
    "snapshot-loading-mode",
    "warehouse",
)

TABLE_PROPERTIES = tuple(PROPERTIES)
TABLE_PROPERTY_PREFIXES = tuple(COLUMN_PROPERTIES)

SPARK_CONF = (
    "spark.default.parallelism",
    "spark.driver.maxResultSize",
    "spark.driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor",
    "spark.excludeOnFailure.enabled",
    "spark.executor.heartbeatInterval",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.executor.pyspark.memory",
    "spark.io.compression.codec",
    "spark.kubernetes.allocation.batch.delay",
    "spark.kubernetes.allocation.batch.size",
    "spark.kubernetes.driver.request.cores",
    "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.request.cores",
    "spark.locality.wait",
    "spark.log.level",
    "spark.memory.fraction",
    "spark.memory.storageFraction",
    "spark.network.timeout",
    "spark.python.worker.reuse",
    "spark.rdd.compress",
    "spark.rpc.message.maxSize",
    "spark.scheduler.maxRegisteredResourcesWaitingTime",
    "spark.scheduler.minRegisteredResourcesRatio",
    "spark.shuffle.compress",
    "spark.shuffle.spill.compress",
    "spark.speculation",
    "spark.speculation.interval",
    "spark.speculation.multiplier",
    "spark.speculation.quantile",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
    "spark.sql.adaptive.coalescePartitions.enabled",
    "spark.sql.adaptive.enabled",
    "spark.sql.adaptive.skewJoin.enabled",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.shuffle.partitions",
    "spark.stage.maxConsecutiveAttempts",
    "spark.task.maxFailures",
    "spark.ui.enabled",
)

SOURCE_OPTIONS = (
    "dateFormat",
    "delimiter",
    "encoding",
    "escape",
    "header",
    "multiLine",
    "nullValue",
    "quote",
    "timestampFormat",
)
