"""The parent of Spark's Python workers: it has imported what tasks use before the workers are forked from it.

Spark starts it in place of ``pyspark.daemon`` (spark.python.daemon.module), so that no first task imports it all again
and workers share the memory of it. ``warm_workers`` is called by runs when their session is there.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.daemon import manager
from pyspark.sql import SparkSession

from skipstone.starting import lean_imports
from skipstone.tasks.mapping import map_batches

#: Where the kernels are.
KERNELS = ("skipstone.runs.load_tasks", "skipstone.runs.merging.rewrite", "skipstone.indexes.building.build")
#: The name of threads that let Spark start it; they may outlive the run that began them.
WARMING = "warm-workers"
_log = logging.getLogger(__name__)


def warm_workers(spark: SparkSession) -> None:
    """Let Spark start the workers' parent now, while the driver plans its first job."""
    threading.Thread(target=_run_nothing, args=(spark,), name=WARMING, daemon=True).start()


def _run_nothing(spark: SparkSession) -> None:
    try:
        map_batches(spark.range(1), _unchanged, "id long").collect()
    except Exception as error:  # noqa: BLE001 - whatever it is, the run's own jobs will tell what is wrong
        _log.info("the Python workers were not started ahead: %s", error)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    # A worker collects garbage after each task: to look at all that is imported, which this spares it too, takes longer
    # than a small task, and writes to memory that the workers share until then.
    with lean_imports():
        for kernels in KERNELS:
            importlib.import_module(kernels)
    manager()  # type: ignore[no-untyped-call]
