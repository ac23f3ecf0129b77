"""From the Arrow batches that Spark hands to tasks to batches in a table's Arrow types.

Called inside tasks by the load run and by merges. Must not need Spark.
"""

from __future__ import annotations

import pyarrow as pa


def table_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema`` out of ``batch``, by name: uuid from text, time from microseconds, zones as UTC."""
    raise NotImplementedError(batch, schema)
