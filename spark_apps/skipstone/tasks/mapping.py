"""The only way from a Spark frame to a kernel: batches keep the names of the frame's columns, whatever these are.

Called by all that gives rows or numbers of tasks to Python workers. Must not know what a kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

BatchKernel = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_batches(frame: DataFrame, kernel: BatchKernel, ddl: str) -> DataFrame:
    """``frame.mapInArrow(kernel, ddl)`` for columns of any name.

    PySpark looks up each column by its name without quoting it: one with a dot is taken for a field, one with a
    backtick is not parsed. So columns travel under numbers.
    """
    names = frame.columns

    def renamed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return kernel(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{at}" for at in range(len(names)))).mapInArrow(renamed, ddl)
