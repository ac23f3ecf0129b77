"""Merges of every key type, partitioning and clause list through whole runs, row for row as DuckDB's MERGE has it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession
from skipstone.tables.arrow import arrow_type_of
from skipstone.tasks.share import USUAL_SHARE
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeTask, PruningStrategy
from skipstone_core.table_properties import MERGE_MODE

from tests.examples import turn
from tests.spark.merge_bed import ALL_IN_SPARK, DELETE, DELETE_D, UPDATE, MergeBed, duckdb_merge, rows_of, task_of
from tests.spark.secondengine import spark_rows

START = datetime(2024, 1, 1)  # noqa: DTZ001
UPSERT = (
    "merge into t using s on {on} when matched and s.op = 'D' then delete "
    "when matched then update set v = s.v, n = s.n "
    "when not matched then insert ({keys}, v, n) values ({sources}, s.v, s.n)"
)


@dataclass(frozen=True)
class Case:
    """A target of ``files`` files whose keys are ``values``, and a feed over ``changed``."""

    types: tuple[IcebergType, ...]
    values: Sequence[tuple[Any, ...]]
    changed: Sequence[tuple[Any, ...]]
    files: int = 4
    partition: tuple[int, Transform[Any, Any]] | None = None
    source_types: tuple[pa.DataType, ...] = ()
    statement: str = UPSERT
    properties: dict[str, str] = field(default_factory=dict)
    clauses: dict[str, Any] = field(default_factory=lambda: {"when_matched": (DELETE_D, UPDATE)})

    @property
    def names(self) -> list[str]:
        """Key columns."""
        return [f"k{i}" for i in range(len(self.types))]

    @property
    def schema(self) -> Schema:
        """Keys, then v and n."""
        fields = [
            NestedField(i + 1, name, kind) for i, (name, kind) in enumerate(zip(self.names, self.types, strict=True))
        ]
        return Schema(*fields, NestedField(11, "v", StringType()), NestedField(12, "n", LongType()))

    @property
    def spec(self) -> PartitionSpec:
        """Partitioning by one column."""
        if self.partition is None:
            return UNPARTITIONED_PARTITION_SPEC
        return PartitionSpec(PartitionField(self.partition[0], 1000, self.partition[1], "p"))

    @property
    def feed(self) -> pa.Table:
        """The changes: every third is a delete."""
        kinds = self.source_types or tuple(arrow_type_of(kind) for kind in self.types)
        columns = {name: pa.array([key[i] for key in self.changed], kinds[i]) for i, name in enumerate(self.names)}
        count = range(len(self.changed))
        more = {
            "v": pa.array([f"changed {i}" if i % 4 else None for i in count], pa.string()),
            "n": pa.array([100 + i for i in count], pa.int64()),
            "op": pa.array(["D" if i % 3 == 2 else "U" for i in count], pa.string()),
        }
        return pa.table({**columns, **more})

    @property
    def sql(self) -> str:
        """The same merge for DuckDB."""
        return self.statement.format(
            on=" and ".join(f"t.{name} = s.{name}" for name in self.names),
            keys=", ".join(self.names),
            sources=", ".join(f"s.{name}" for name in self.names),
        )


def ones(values: Sequence[Any]) -> list[tuple[Any]]:
    return [(value,) for value in values]


WORDS = ["", "a", "ab", "é", "z" * 4000, "z" * 4000 + "a", "\uffff", "\U0001f600", "\U0001f601 x"]
MOMENTS = [START + timedelta(hours=5 * i, microseconds=i) for i in range(60)]
MONEY = [Decimal(i) / 4 for i in range(-20, 60)]
LONGS = ones(range(400))
DAYS = [date(1969, 12, 1) + timedelta(days=i) for i in range(60)]
COMPOSITE = [(i % 5, f"c{i % 7}", date(2024, 1, 1 + i % 9), i % 2 == 0) for i in range(200)]
SPARSE = [
    (None if i % 11 == 0 else i % 5, None if i % 13 == 0 else f"c{i}") for i in range(100)
]  # many keys with a null in them

CASES = {
    "long": Case((LongType(),), LONGS, ones([3, 4, 5, 390, 1000, -7])),
    "int in the source, long in the table": Case(
        (LongType(),), LONGS, ones([3, 4, 399, 5000]), source_types=(pa.int32(),)
    ),
    "strings by UTF-8 bytes": Case((StringType(),), ones(WORDS), ones([*WORDS[2:], "new \U0001f602"]), files=3),
    "decimal of another scale": Case(
        (DecimalType(9, 2),), ones(MONEY), ones([*MONEY[4:21:4], Decimal("99.0")]), source_types=(pa.decimal128(7, 0),)
    ),
    "wide decimal": Case(
        (DecimalType(38, 2),),
        ones([Decimal(i) * Decimal("1e25") for i in range(-20, 20)]),
        ones([Decimal("-2e26"), Decimal("0"), Decimal("1e25"), Decimal("0.01")]),
    ),
    "date before 1970": Case((DateType(),), ones(DAYS), ones([DAYS[0], DAYS[31], date(2030, 1, 1)])),
    "timestamp in microseconds": Case(
        (TimestampType(),), ones(MOMENTS), ones([MOMENTS[3], MOMENTS[3] + timedelta(microseconds=1), MOMENTS[50]])
    ),
    "timestamptz": Case(
        (TimestamptzType(),),
        ones([moment.replace(tzinfo=UTC) for moment in MOMENTS]),
        ones([MOMENTS[3].replace(tzinfo=UTC), MOMENTS[59].replace(tzinfo=UTC) + timedelta(seconds=1)]),
    ),
    "boolean": Case((BooleanType(),), ones([True, False, None]), ones([True]), files=2),
    "double with NaN and zeros": Case(
        (DoubleType(),),
        ones([math.nan, 0.0, 1.5, math.inf, -math.inf, 2.5]),
        ones([math.nan, -0.0, 7.5, -math.inf]),
        files=3,
        clauses={
            "when_matched": (
                DELETE_D,
                MergeClause(action=MergeAction.UPDATE, values={"v": "v", "n": "n"}),
            )
        },
    ),
    "composite of four": Case(
        (LongType(), StringType(), DateType(), BooleanType()),
        list(dict.fromkeys(COMPOSITE)),
        [COMPOSITE[3], COMPOSITE[50], (0, "c1", date(2024, 1, 1), True), (99, "new", date(2030, 1, 1), False)],
    ),
    "null keys match nothing": Case(
        (LongType(), StringType()), SPARSE, [*SPARSE[9:15], (None, "x"), (None, None), (3, None), (77, "y")]
    ),
    "identity partition": Case((LongType(),), LONGS, ones([3, 4, 5, 390, 1000]), partition=(12, IdentityTransform())),
    "bucket partition": Case((LongType(),), LONGS, ones([3, 4, 5, 390, 1000]), partition=(1, BucketTransform(4))),
    "day partition": Case((TimestampType(),), ones(MOMENTS), ones(MOMENTS[3:7]), partition=(1, DayTransform())),
    "truncate partition": Case((StringType(),), ones(WORDS), ones(WORDS[2:5]), partition=(1, TruncateTransform(1))),
    "files without statistics": Case(
        (LongType(),), LONGS, ones([3, 4, 5, 390, 1000]), properties={"write.metadata.metrics.default": "none"}
    ),
    "statistics cut short": Case(
        (StringType(),), ones(WORDS), ones(WORDS[3:]), properties={"write.metadata.metrics.default": "truncate(1)"}
    ),
    "empty table": Case((LongType(),), [], ones([1, 2, 3])),
    "empty source": Case((LongType(),), LONGS, []),
    "delete only": Case(
        (LongType(),),
        LONGS,
        ones([3, 4, 5, 390, 1000]),
        statement="merge into t using s on {on} when matched then delete",
        clauses={"when_matched": (DELETE,), "when_not_matched": ()},
    ),
    "insert only": Case(
        (LongType(),),
        LONGS,
        ones([3, 4, 5, 390, 1000, 1001]),
        statement=(
            "merge into t using s on {on} when not matched then insert ({keys}, v, n) values ({sources}, s.v, s.n)"
        ),
        clauses={"when_matched": ()},
    ),
    "chosen columns and conditions": Case(
        (LongType(),),
        LONGS,
        ones([3, 4, 5, 6, 390, 1000, 1001]),
        statement=(
            "merge into t using s on {on} when matched and t.n > 1 and s.op in ('U', 'X') then update set v = s.op "
            "when matched and (t.v is null or t.n = 0) then delete "
            "when not matched and s.n < 106 then insert (k0, v) values (s.k0, s.op)"
        ),
        clauses={
            "when_matched": (
                MergeClause(
                    action=MergeAction.UPDATE, when="target.n > 1 and source.op in ('U', 'X')", values={"v": "op"}
                ),
                MergeClause(action=MergeAction.DELETE, when="target.v is null or target.n = 0"),
            ),
            "when_not_matched": (
                MergeClause(action=MergeAction.INSERT, when="source.n < 106", values={"k0": "k0", "v": "op"}),
            ),
        },
    ),
}


def fill(bed: MergeBed, case: Case, **properties: str) -> None:
    bed.create(case.schema, case.spec, **case.properties, **properties)
    rows = [
        {**dict(zip(case.names, key, strict=True)), "v": f"row {i}" if i % 5 else None, "n": i % 4}
        for i, key in enumerate(case.values)
    ]
    step = max(1, -(-len(rows) // case.files))
    if rows:
        bed.append(*(rows[i : i + step] for i in range(0, len(rows), step)))


def merge_task(bed: MergeBed, case: Case, **more: Any) -> MergeTask:
    return task_of(bed.source(case.feed), case.names, **{**case.clauses, **more})


WAYS = {
    "in Spark": (ALL_IN_SPARK, "copy-on-write"),
    "in the driver": (USUAL_SHARE, "copy-on-write"),
    "on read": (USUAL_SHARE, "merge-on-read"),
}


#: Each kind of key, feed and table once: tasks run the kernels that the driver runs, for which all cases are tried.
#: A third of them has its turn.
THROUGH_SPARK = (
    "long",
    "strings by UTF-8 bytes",
    "wide decimal",
    "timestamptz",
    "double with NaN and zeros",
    "composite of four",
    "null keys match nothing",
    "bucket partition",
    "statistics cut short",
    "empty table",
    "empty source",
    "chosen columns and conditions",
)


def case_of(name: str, way: str) -> Any:
    """A case one way; what only a soak takes through Spark is marked."""
    rare = way == "in Spark" and name not in THROUGH_SPARK[turn(3) :: 3]
    return pytest.param(name, way, marks=[pytest.mark.soak] if rare else [], id=f"{name}-{way}")


@pytest.mark.parametrize(("name", "way"), [case_of(*pair) for pair in itertools.product(CASES, WAYS)])
def test_merge_equals_duckdb_and_other_engines_read_it(
    name: str, way: str, tmp_path: Path, spark: SparkSession
) -> None:
    limits, mode = WAYS[way]
    case, bed = CASES[name], MergeBed(tmp_path, limits)
    fill(bed, case, **{MERGE_MODE: mode})
    before = bed.table().scan().to_arrow()
    expected = duckdb_merge(before, case.feed, case.sql)
    report = bed.merge(merge_task(bed, case))
    assert report.outcome is RunOutcome.COMMITTED
    assert bed.rows() == expected
    assert bed.paths() <= bed.on_disk()
    read = spark_rows(spark, bed.warehouse, "ns.t")
    assert rows_of(read.cast(before.schema)) == expected
    counts = report.counts
    assert before.num_rows - counts["rowsDeleted"] + counts["rowsInserted"] == len(expected)
    assert counts["filesRewritten"] <= counts["filesTouched"] <= counts["filesCandidate"] <= counts["filesTotal"]


@pytest.mark.parametrize("name", ["long", "strings by UTF-8 bytes", "composite of four"])
def test_without_pruning_the_result_is_the_same(name: str, tmp_path: Path) -> None:
    case, results, counts = CASES[name], [], []
    for strategy in (PruningStrategy.AUTO, PruningStrategy.NONE):
        (tmp_path / strategy.value).mkdir()
        bed = MergeBed(tmp_path / strategy.value)
        fill(bed, case)
        report = bed.merge(merge_task(bed, case, pruning=strategy))
        results.append(rows_of(bed.table().scan().to_arrow()))
        counts.append(report.counts)
    assert results[0] == results[1]
    assert counts[1]["filesCandidate"] == counts[1]["filesTotal"]
    assert counts[0]["filesTouched"] == counts[1]["filesTouched"]


def test_an_insert_needs_the_insert_clause(tmp_path: Path) -> None:
    case, bed = CASES["long"], MergeBed(tmp_path)
    fill(bed, case)
    report = bed.merge(merge_task(bed, case, when_not_matched=()))
    assert report.counts["rowsInserted"] == 0
    assert bed.table().scan().to_arrow().num_rows == 399
