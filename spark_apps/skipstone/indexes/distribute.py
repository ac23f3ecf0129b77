"""Runs index kernels in Spark: a list of tasks in, one partition per task, their results out.

Called by build and compaction. Must not know what a task does; tasks and results travel pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

_RESULTS = pa.schema([pa.field("result", pa.binary(), nullable=False)])


def run_tasks(spark: SparkSession, kernel: Callable[[Task, str], Result], tasks: Sequence[Task]) -> list[Result]:
    """Run ``kernel(task, task_id)`` for each task, at most one per core at a time; results in no particular order.

    ``task_id`` differs between tasks and between attempts of one task.
    """
    if not tasks:
        return []
    pickled = [pickle.dumps(task) for task in tasks]
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_mapper(kernel, pickled), "result binary not null")
    return [pickle.loads(row.result) for row in frame.collect()]


def _mapper(
    kernel: Callable[[Task, str], Result], pickled: list[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [pickle.dumps(kernel(pickle.loads(pickled[i]), task_id(i))) for i in batch["id"].to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(results, pa.binary())], schema=_RESULTS)

    return run


def task_id(number: int) -> str:
    """Names a task attempt: its number and Spark's attempt id, unique within an application."""
    context = TaskContext.get()
    return f"{number:05d}-{context.taskAttemptId() if context else 0}"


def parallelism(spark: SparkSession) -> int:
    """Cores that the application may use."""
    return max(1, spark.sparkContext.defaultParallelism)
