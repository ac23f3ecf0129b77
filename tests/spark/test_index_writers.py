"""Indexes of tables that others write: plain Spark with the Iceberg runtime, deletes of every kind, foreign files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.query import ReadOptions, read
from skipstone.tables.filesets import read_file_set
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.spark.secondengine import second_spark

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
K = index_on("k")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    opened = Lake(tmp_path)
    yield opened
    opened.catalog.close()


def rows(start: int, count: int = 50) -> pa.Table:
    keys = np.arange(start, start + count)
    return pa.table({"k": keys, "name": [f"n{key % 5}" for key in keys]}, schema=SCHEMA)


def grow(lake: Lake, count: int) -> Table:
    table = lake.create(SCHEMA)
    for segment in range(count):
        table.append(rows(segment * 50))
    return table


def data_file(table: Table, key: int) -> DataFile:
    """The file that holds ``key``."""
    (task,) = table.scan(f"k = {key}").plan_files()
    return task.file


def keys(lake: Lake, condition: str) -> list[int]:
    found: list[int] = sorted(read(lake.table(), ["k"], condition)["k"].to_pylist())
    return found


def test_position_deletes_leave_an_index_in_sync_and_hits_are_checked_against_them(lake: Lake) -> None:
    table = grow(lake, 2)
    lake.reindex(K)
    add_position_delete(table, data_file(table, 7), [7, 8])
    assert lake.state(K).missing_segments == ()
    assert keys(lake, "k between 5 and 10") == [5, 6, 9, 10]
    assert lake.assert_exact("k = 7").num_rows == 0


def test_an_index_built_over_deletes_knows_every_row_and_serves_an_older_snapshot_too(lake: Lake) -> None:
    table = grow(lake, 2)
    old = table.metadata.current_snapshot_id
    add_position_delete(table, data_file(table, 7), [7])
    lake.reindex(K)
    assert lake.state(K).entries == 100
    assert keys(lake, "k = 7") == []
    assert read(lake.table(), ["k"], "k = 7", ReadOptions(snapshot_id=old))["k"].to_pylist() == [7]


def test_equality_deletes_apply_to_hits_of_older_segments_only(lake: Lake) -> None:
    table = grow(lake, 2)
    lake.reindex(K)
    add_equality_delete(table, {"k": [7, 60]})
    lake.table().append(rows(7, 1))
    assert keys(lake, "k in (6, 7, 60, 61)") == [6, 7, 61]
    lake.reindex(K)
    assert lake.state(K).segments_missing == 0
    assert keys(lake, "k in (6, 7, 60, 61)") == [6, 7, 61]


def test_a_file_without_field_ids_fails_its_segment_and_the_others_are_built(lake: Lake) -> None:
    table = grow(lake, 1)
    path = f"{table.location()}/data/foreign.orc"
    with table.io.new_output(path).create() as sink:
        orc.write_table(rows(500), sink)
    file = DataFile.from_args(
        file_path=path,
        file_format=FileFormat.ORC,
        partition=Record(),
        record_count=50,
        file_size_in_bytes=len(table.io.new_input(path)),
    )
    file.spec_id = 0
    with table.transaction() as change, change.update_snapshot().fast_append() as update:
        update.append_data_file(file)
    report = lake.reindex(K)
    state = lake.state(K)
    assert (report.reason, report.counts["files"]) == (Reason.SEGMENTS_FAILED, 1)
    assert (state.segments_failed, state.missing_segments, state.degraded) == (1, (2,), Reason.SEGMENTS_FAILED)
    assert "foreign.orc cannot be indexed: it has no field ids" in state.message
    with pytest.raises(BadData, match=r"foreign\.orc has no field ids"):
        read(lake.table(), None, "k = 501")


def test_a_partitioned_table_is_indexed_by_its_partition_column_too(lake: Lake) -> None:
    schema = Schema(NestedField(1, "k", LongType()), NestedField(2, "name", StringType()))
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "name"), PartitionField(1, 1001, BucketTransform(4), "k_bucket")
    )
    table = lake.catalog.create_table(("ns", "t"), schema, partition_spec=spec)
    for start in (0, 50):
        table = append(table, rows(start))
    index = index_on("name", "k")
    lake.reindex(index)
    assert lake.state(index).files_covered == len(read_file_set(lake.table())) > 10
    assert lake.assert_exact("name = 'n3' and k = 53").num_rows == 1
    assert lake.plan("name = 'n3' and k = 53").funnel.read == 1


def test_whatever_plain_spark_does_to_a_table_is_noticed_and_never_answered_wrongly(
    lake: Lake, spark: SparkSession
) -> None:
    session = second_spark(spark, lake.warehouse)
    session.sql(
        "create table skipstone.ns.t (k bigint, name string) using iceberg tblproperties ('format-version'='2')"
    )
    for start in (0, 50, 100):
        added = f"select /*+ coalesce(1) */ id, concat('n', id % 5) from range({start}, {start + 50})"
        session.sql(f"insert into skipstone.ns.t {added}")
    lake.reindex(K)
    assert lake.state(K).segments_synced == 3
    before = lake.table().metadata.current_snapshot_id

    session.sql("alter table skipstone.ns.t set tblproperties ('write.delete.mode'='merge-on-read')")
    session.sql("delete from skipstone.ns.t where k in (3, 55)")
    assert lake.state(K).segments_missing == 0
    assert keys(lake, "k in (3, 4, 55, 120)") == [4, 120]

    session.sql("update skipstone.ns.t set name = 'new' where k = 120")
    assert lake.state(K).missing_segments == (5,)
    assert keys(lake, "k in (119, 120)") == [119, 120]

    session.sql("call skipstone.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))")
    state = lake.state(K)
    assert (state.segments_total, state.rows_covered) == (1, 0)
    assert keys(lake, "k in (3, 4, 55, 120)") == [4, 120]
    lake.reindex(K)
    assert lake.state(K).segments_missing == 0
    assert keys(lake, "k in (3, 4, 55, 120)") == [4, 120]

    session.sql(f"call skipstone.system.rollback_to_snapshot('ns.t', {before})")
    assert lake.state(K).segments_synced == 3
    assert keys(lake, "k in (3, 4, 55, 120)") == [3, 4, 55, 120]


def test_plain_spark_reads_an_index_table(lake: Lake, spark: SparkSession) -> None:
    grow(lake, 9)
    lake.follow(K)
    name = ".".join(lake.index_table(K).identifier)
    counted = second_spark(spark, lake.warehouse).sql(
        f"select kind, level, count(*), count(distinct k0), count(distinct file_id) from skipstone.{name} group by 1, 2"
    )
    assert sorted(map(tuple, counted.collect())) == [
        ("cover", 0, 1, 0, 1),
        ("cover", 1, 8, 0, 8),
        ("entry", 0, 50, 50, 1),
        ("entry", 1, 400, 400, 8),
    ]
