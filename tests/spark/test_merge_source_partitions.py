"""Merges from a partitioned source table: only the target's partitions that its keys belong to are candidates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone_core.contract.requests import SourceFormat, SourceSpec, SourceTableRef, TableRef
from skipstone_core.funnel import PruneStage

from tests.spark.lake import ref_of, write_files
from tests.spark.merge_bed import MergeBed, duckdb_merge, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "at", TimestamptzType()), NestedField(3, "v", StringType())
)
COLUMNS = {"id": 1, "at": 2}
START = datetime(2026, 1, 1, tzinfo=UTC)
MERGE = (
    "merge into t using s on t.id = s.id and t.at = s.at when matched then update set v = s.v "
    "when not matched then insert values (s.id, s.at, s.v)"
)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def partitioned(**fields: Transform[Any, Any]) -> PartitionSpec:
    parts = enumerate(fields.items(), start=1000)
    return PartitionSpec(*(PartitionField(COLUMNS[name], number, how, f"{name}_part") for number, (name, how) in parts))


def fill(bed: MergeBed, name: str, spec: PartitionSpec, rows: pa.Table) -> pa.Table:
    """A table with these rows; as it is read."""
    bed.catalog.create_table(("ns", name), SCHEMA, partition_spec=spec, properties={"format-version": "2"})
    table = bed.catalog.load_table(("ns", name))
    commit_table(bed.catalog, ref_of(table), TableCommit(pinned=pin_table(table), added=write_files(table, rows)))
    return bed.catalog.load_table(("ns", name)).scan().to_arrow()


def rows_at(days: range, value: str) -> pa.Table:
    moments = [START + timedelta(days=day, hours=day % 24) for day in days]
    return pa.table(
        {"id": pa.array([17 * day for day in days], pa.int64()), "at": moments, "v": [value] * len(days)}
    ).cast(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())]))


DAY, MONTH, HOUR = DayTransform(), MonthTransform(), HourTransform()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"at": DAY}, {"at": DAY}),
        ({"at": DAY}, {"at": MONTH}),
        ({"at": MONTH}, {"at": HOUR}),
        ({"id": BucketTransform(4)}, {"id": BucketTransform(16)}),
        ({"id": IdentityTransform()}, {"id": BucketTransform(16)}),
        ({"id": BucketTransform(16)}, {"id": TruncateTransform(100)}),
        ({"at": DAY}, {"at": MONTH, "id": BucketTransform(16)}),
        ({}, {"at": DAY}),
    ],
    ids=str,
)  # fmt: skip
def test_only_partitions_of_source_keys_are_candidates(
    bed: MergeBed, source: dict[str, Transform[Any, Any]], target: dict[str, Transform[Any, Any]]
) -> None:
    changed = pa.concat_tables([rows_at(range(33, 35), "new"), rows_at(range(150, 151), "added")])
    rows = fill(bed, "src", partitioned(**source), changed)
    before = fill(bed, "t", partitioned(**target), rows_at(range(120), "old"))
    table = bed.table()
    makers = {name: how.pyarrow_transform(SCHEMA.find_type(name)) for name, how in target.items()}
    wanted = {tuple(part) for part in zip(*(makers[name](rows[name]).to_pylist() for name in target), strict=True)}
    files = [task.file for task in table.scan().plan_files()]
    expected = sum(tuple(file.partition[at] for at in range(len(target))) in wanted for file in files)
    spec = SourceSpec(
        format=SourceFormat.PARQUET, paths=(), table=SourceTableRef(table=TableRef(namespace="ns", name="src", uid="s"))
    )
    report = bed.merge(task_of("", source=spec, keys=("id", "at")))
    stages = {stage.name: stage for stage in report.funnel}
    stage = stages[PruneStage.PARTITIONS]
    assert (stage.files_in, stage.files_out) == (len(files), expected)
    assert 0 < expected < len(files)
    assert bed.rows() == duckdb_merge(before, rows, MERGE)
