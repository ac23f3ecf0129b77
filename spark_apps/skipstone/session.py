"""The only place that makes a SparkSession.

Called by the runs that need Spark and by the tests. In a pod, PYSPARK_SUBMIT_ARGS names master and properties;
without it the session is local with two cores. Must not be imported by anything that has to run without a JVM.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from skipstone_core.jobs import JobRequest


def spark_session(request: JobRequest) -> SparkSession:
    """The session of this process, started when there is none.

    Forced whatever the properties say: UTC, exact column names, ANSI, no ignored files, no speculation.
    """
    raise NotImplementedError(request)
