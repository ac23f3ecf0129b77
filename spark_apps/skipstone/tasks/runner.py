"""Runs kernels: a list of tasks in, their results out, in Spark or in this process.

Called by index builds and compactions through ``Tasks``; the run chooses. Must not know what a task does. Tasks and
results travel pickled through Spark.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from skipstone.tasks.mapping import map_batches

Task = TypeVar("Task")
Result = TypeVar("Result")

_RESULTS = pa.schema([pa.field("result", pa.binary(), nullable=False)])


def _ignore(_: object) -> None:
    """What is done with a result by itself unless somebody says."""


class Tasks(Protocol):
    """Where kernels run."""

    @property
    def parallelism(self) -> int:
        """How many tasks can run at a time."""

    def run(
        self, kernel: Callable[[Task, str], Result], tasks: Sequence[Task], take: Callable[[Result], None] = _ignore
    ) -> list[Result]:
        """``kernel(task, task_id)`` of each task, in no particular order; raises what a task raises.

        ``task_id`` differs between tasks of one run and between attempts of one task. ``take`` gets every result that
        reached this process, before a task's error is raised too.
        """


class InProcess:
    """A few tasks at a time in threads of this process: for work that is smaller than the start of a JVM."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self._numbers = itertools.count(1)

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time."""
        return self._workers

    def run(
        self, kernel: Callable[[Task, str], Result], tasks: Sequence[Task], take: Callable[[Result], None] = _ignore
    ) -> list[Result]:
        """Run the tasks here. None begins after one has failed; those under way are finished."""
        with ThreadPoolExecutor(self._workers) as pool:
            begun = [pool.submit(kernel, task, f"{next(self._numbers):05d}-local") for task in tasks]
            wait(begun, return_when=FIRST_EXCEPTION)
            ended = [future for future in begun if not future.cancel()]
        for future in ended:
            if future.exception() is None:
                take(future.result())
        return [future.result() for future in ended]


class InSpark:
    """One Spark task per task, in the executors."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def parallelism(self) -> int:
        """Cores that the application may use."""
        return max(1, self._spark.sparkContext.defaultParallelism)

    def run(
        self, kernel: Callable[[Task, str], Result], tasks: Sequence[Task], take: Callable[[Result], None] = _ignore
    ) -> list[Result]:
        """Run the tasks in Spark; raises PySparkException when one fails for good, and no result comes then."""
        if not tasks:
            return []
        pickled = [pickle.dumps(task) for task in tasks]
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        frame = map_batches(numbers, _mapper(kernel, pickled), "result binary not null")
        results: list[Result] = [pickle.loads(row.result) for row in frame.collect()]
        for result in results:
            take(result)
        return results


def _mapper(
    kernel: Callable[[Task, str], Result], pickled: list[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [pickle.dumps(kernel(pickle.loads(pickled[i]), _task_id(i))) for i in batch["id"].to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(results, pa.binary())], schema=_RESULTS)

    return run


def _task_id(number: int) -> str:
    context = TaskContext.get()
    return f"{number:05d}-{context.taskAttemptId() if context else 0}"
