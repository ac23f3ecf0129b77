"""The only place that makes a SparkSession.

Called by the runs that need Spark and by the tests. In a pod, PYSPARK_SUBMIT_ARGS names master and properties;
without it the session is local with two cores. Must not be imported by anything that has to run without a JVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from skipstone.jvm import JVM_OPTIONS, PORT, SUBMIT_ARGUMENTS, event_log_folder, find_java_problem, use_jvm

#: Right answers depend on these, or our tasks are made for them; properties of a Warehouse cannot change them.
FORCED: Mapping[str, str] = {
    # Every process that talks to the driver proves that it knows the run's secret, which Spark makes afresh
    "spark.authenticate": "true",
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.enabled": "true",
    # Named by text: importing it here would import everything that tasks need
    "spark.python.daemon.module": "skipstone.runs.workers",
    "spark.speculation": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    # Java never compiles methods of more than 8000 bytes of code, and conversions of wide tables are such methods
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    # Outside of the heap, a batch takes twice as much while it grows, and as much again in the worker
    "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # So many rows are decoded at once, however long they are: 4,096 texts of 1 MiB, as is usual, do not fit a heap.
    # Spark's readers of Parquet hold them three times
    "spark.sql.orc.columnarReaderBatchSize": "64",
    "spark.sql.orc.impl": "native",
    "spark.sql.parquet.columnarReaderBatchSize": "16",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.killEnabled": "false",
}

LOCAL: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def spark_session(request: JobRequest) -> SparkSession:
    """The session of this process, started when there is none.

    Forced whatever the properties say: UTC, exact column names, ANSI, no ignored files, no speculation.
    Raises BadSpec when there is no Java for it.
    """
    if PORT not in os.environ and (problem := find_java_problem(os.environ)):
        raise BadSpec(Reason.JAVA_MISSING, problem)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = dict(FORCED) if SUBMIT_ARGUMENTS in os.environ else {**LOCAL, **FORCED}
    settings |= _event_log_settings(request)
    use_jvm()
    builder = SparkSession.builder.appName(f"{request.owner_kind.lower()}/{request.owner_name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _event_log_settings(request: JobRequest) -> Mapping[str, str]:
    """One compressed file: the storage of a Warehouse takes whole files only."""
    if request.spark.event_log_seconds is None:
        return {}
    folder = event_log_folder(request.run_id)
    folder.mkdir(mode=0o700, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "true",
        "spark.eventLog.rolling.enabled": "false",
    }


def finish_event_log(request: JobRequest) -> None:
    """End the session that writes the log of its events for ``request``, if there is one: Spark finishes it then."""
    session, place = SparkSession.getActiveSession(), event_log_folder(request.run_id).as_uri()
    if session is not None and session.sparkContext.getConf().get("spark.eventLog.dir") == place:
        session.stop()
