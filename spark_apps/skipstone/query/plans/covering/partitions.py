"""Rows of a scan of an index as the partitions that a shuffle by the keys would have made of them.

Used by ``uniting``. Iceberg gives files partition by partition when the session that plans the scan lets it, and the
buckets of an index are those of Spark's hash partitioning. A plan that says so joins, unites and aggregates by the keys
without a shuffle. Nobody checks that again when the query runs, so all of it is checked here. Must not read rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import cast

import pyarrow as pa

from skipstone.compat.catalyst import DATASETS, Expression, LogicalPlan
from skipstone.compat.java import EMPTY_SEQ, NONE, Jvm, items, java_class, scala_object, scala_seq, some
from skipstone.compat.partitioning import (
    CLASS_TAGS,
    CONTEXTS,
    HASH_PARTITIONINGS,
    KEY_GROUPED,
    LOGICAL_RDD,
    PARSER,
    CloneableSession,
    KeyGrouped,
    RowExecution,
    RowPartitions,
    chosen_partition,
    numbers_at,
    row_execution,
)
from skipstone.indexes.buckets import Buckets

#: Settings for planning the scan of an index: Iceberg tells the partitions of its files, and Spark keeps them.
_GROUPED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.sources.v2.bucketing.enabled": "true",
}
_SCAN = "BatchScanExec"
_NOT_STREAMING = False
#: Literals of all types of keys, as Spark parses them and as indexes hold them.
_SAMPLES = (
    ("7L", "long", pa.array([7])),
    ("'skipstone \u20ac'", "string", pa.array(["skipstone \u20ac"])),
    ("date'2024-02-29'", "date", pa.array([19782], pa.int32()).view(pa.date32())),
    ("true", "boolean", pa.array([True])),
    ("X'01FF02'", "binary", pa.array([b"\x01\xff\x02"])),
    ("12.5BD", "decimal(1)", pa.array(["12.5"]).cast(pa.decimal128(38, 1))),
    ("timestamp_ntz'1970-01-01 00:00:01'", "timestamp", pa.array([1_000_000]).view(pa.timestamp("us"))),
)
#: So many buckets tell hashes apart.
_MANY = 1021


class NotBucketed(Exception):
    """Spark would not read the entries bucket by bucket, or not shuffle other rows to these buckets."""


def grouping_session(session: CloneableSession) -> CloneableSession:
    """A copy of a session for planning scans of indexes; the user's own session keeps its settings."""
    copy = session.cloneSession()
    for key, value in _GROUPED.items():
        copy.conf().set(key, value)
    return copy


@lru_cache(maxsize=1)
def require_spark_hash(jvm: Jvm) -> None:
    """Raise NotBucketed if Spark does not shuffle keys into the buckets that indexes have."""
    parser = scala_object(jvm, PARSER)
    literals = scala_seq(jvm, [parser.parseExpression(text) for text, _, _ in _SAMPLES])
    expression = java_class(jvm, HASH_PARTITIONINGS)(literals, _MANY).partitionIdExpression()
    spark = int(expression.eval(None))
    (ours,) = Buckets(_MANY, tuple(storage for _, storage, _ in _SAMPLES)).of([keys for _, _, keys in _SAMPLES])
    if spark != int(ours):
        raise NotBucketed("this version of Spark shuffles by another hash")


@dataclass(frozen=True, eq=False)
class Partitioner:
    """Makes plans of partitioned rows for a session; ``grouping``: a session for planning scans of indexes."""

    jvm: Jvm
    session: CloneableSession
    grouping: CloneableSession

    def partitioned(self, plan: LogicalPlan, keys: Sequence[Expression], buckets: int) -> LogicalPlan:
        """``plan``, whose last column is the bucket of a row, as a plan with its rows in so many buckets of ``keys``.

        Raises NotBucketed.
        """
        execution = row_execution(java_class(self.jvm, DATASETS).ofRows(self.grouping, plan))
        rows, statistics = self._rows(execution, buckets), some(self.jvm, execution.optimizedPlan().stats())
        partitioning = java_class(self.jvm, HASH_PARTITIONINGS)(scala_seq(self.jvm, list(keys)), buckets)
        none, nothing = scala_object(self.jvm, NONE), scala_object(self.jvm, EMPTY_SEQ)
        return java_class(self.jvm, LOGICAL_RDD)(
            plan.output(), rows, partitioning, nothing, _NOT_STREAMING, none, self.session, statistics, none
        )

    def _rows(self, execution: RowExecution, buckets: int) -> RowPartitions:
        """The rows of a scan, one partition per bucket."""
        (leaf,) = items(execution.executedPlan().collectLeaves())
        if leaf.getClass().getSimpleName() != _SCAN:  # nothing is left to scan
            return self._empty(buckets)
        partitioning, rows = leaf.outputPartitioning(), execution.toRdd()
        name = partitioning.getClass().getSimpleName()
        if name != KEY_GROUPED:
            raise NotBucketed(f"the scan of the index reports {name}")
        grouped = cast(KeyGrouped, partitioning)
        held = numbers_at(self.jvm, grouped.uniquePartitionValues(), grouped.expressions().size() - 1)
        if len(held) != rows.getNumPartitions() or len({*held}) != len(held) or not {*held} <= {*range(buckets)}:
            raise NotBucketed(f"{rows.getNumPartitions()} partitions do not hold the buckets of the index")
        return rows if held == [*range(buckets)] else self._in_order(rows, held, buckets)

    def _in_order(self, rows: RowPartitions, held: Sequence[int], buckets: int) -> RowPartitions:
        """All buckets in their order; ``held``: the bucket of each partition of ``rows``."""
        partition_of = {bucket: partition for partition, bucket in enumerate(held)}
        parts: list[RowPartitions] = []
        for is_empty, some_buckets in groupby(range(buckets), lambda bucket: bucket not in partition_of):
            stretch = [*some_buckets]
            if is_empty:
                parts.append(self._empty(len(stretch)))
            else:
                parts += (chosen_partition(self.jvm, rows, partition_of[bucket]) for bucket in stretch)
        kind = scala_object(self.jvm, CLASS_TAGS).AnyRef()
        return self.session.sparkContext().union(scala_seq(self.jvm, parts), kind)

    def _empty(self, partitions: int) -> RowPartitions:
        context = java_class(self.jvm, CONTEXTS).fromSparkContext(self.session.sparkContext())
        return context.parallelize([], partitions).rdd()
