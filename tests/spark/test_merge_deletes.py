"""Merges into tables that plain Spark with the Iceberg runtime wrote: row-level deletes, evolved schemas and specs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, duckdb_merge, rows_of, task_of
from tests.spark.secondengine import second_spark, spark_rows

MOR = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
    "'write.distribution-mode'='none', 'write.merge.mode'='{mode}'"
)
UPSERT = (
    "merge into t using s on t.id = s.id when matched and s.op = 'D' then delete "
    "when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)"
)
FEED = pa.table(
    {
        "id": [3, 4, 7, 50, 61, 500],
        "v": ["three", "four", "seven", "fifty", "sixty-one", "new"],
        "op": ["U", "D", "U", "U", "D", "U"],
    }
)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def properties(request: pytest.FixtureRequest) -> str:
    """Of tables that hold deletes, each merged in both ways."""
    return MOR.format(mode=request.param)


@pytest.fixture
def other(bed: MergeBed, spark: SparkSession) -> SparkSession:
    """Plain Spark on the same catalog."""
    return second_spark(spark, bed.warehouse)


def sql(session: SparkSession, *statements: str) -> None:
    for statement in statements:
        session.sql(statement)


def assert_merges_like_duckdb(bed: MergeBed, spark: SparkSession) -> None:
    before = spark_rows(spark, bed.warehouse, "ns.t")
    report = bed.merge(task_of(bed.source(FEED), when_matched=(DELETE_D, UPDATE)))
    assert report.outcome is RunOutcome.COMMITTED
    after = spark_rows(spark, bed.warehouse, "ns.t")
    assert rows_of(after) == duckdb_merge(before, FEED, UPSERT)
    assert bed.rows() == rows_of(after)


@pytest.mark.parametrize("partitioning", ["", "partitioned by (bucket(3, id))", "partitioned by (g)"])
def test_rows_under_position_deletes_stay_deleted(
    bed: MergeBed, spark: SparkSession, other: SparkSession, properties: str, partitioning: str
) -> None:
    sql(
        other,
        f"create table skipstone.ns.t (id bigint, v string, g int) using iceberg {partitioning} "
        f"tblproperties ({properties})",
        "insert into skipstone.ns.t select id, concat('v', id), cast(id % 3 as int) from range(100)",
        "delete from skipstone.ns.t where id in (3, 5, 60)",
        "delete from skipstone.ns.t where id = 50",
    )
    snapshot = bed.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert int(str(snapshot.summary["total-position-deletes"])) == 4
    assert_merges_like_duckdb(bed, spark)


def test_renamed_added_and_widened_columns(
    bed: MergeBed, spark: SparkSession, other: SparkSession, properties: str
) -> None:
    sql(
        other,
        f"create table skipstone.ns.t (key int, v string) using iceberg tblproperties ({properties})",
        "insert into skipstone.ns.t select cast(id as int), concat('v', id) from range(20)",
        "alter table skipstone.ns.t rename column key to id",
        "alter table skipstone.ns.t alter column id type bigint",
        "alter table skipstone.ns.t add column n bigint",
        "insert into skipstone.ns.t select id, concat('v', id), id from range(40, 70)",
    )
    assert_merges_like_duckdb(bed, spark)


def test_a_key_column_added_later_is_null_in_old_files(
    bed: MergeBed, spark: SparkSession, other: SparkSession, properties: str
) -> None:
    sql(
        other,
        f"create table skipstone.ns.t (v string) using iceberg tblproperties ({properties})",
        "insert into skipstone.ns.t select concat('v', id) from range(20)",
        "alter table skipstone.ns.t add column id bigint",
        "insert into skipstone.ns.t select concat('v', id), id from range(40, 70)",
    )
    assert_merges_like_duckdb(bed, spark)


def test_a_changed_partitioning_takes_new_rows(
    bed: MergeBed, spark: SparkSession, other: SparkSession, properties: str
) -> None:
    sql(
        other,
        "create table skipstone.ns.t (id bigint, v string, g int) using iceberg partitioned by (g) "
        f"tblproperties ({properties})",
        "insert into skipstone.ns.t select id, concat('v', id), cast(id % 3 as int) from range(100)",
    )
    with bed.table().update_spec() as change:
        change.remove_field("g")
    assert_merges_like_duckdb(bed, spark)


def test_nested_columns_are_kept(bed: MergeBed, spark: SparkSession, other: SparkSession, properties: str) -> None:
    sql(
        other,
        f"create table skipstone.ns.t (id bigint, v string, tags array<string>, place struct<city: string, zip: int>) "
        f"using iceberg tblproperties ({properties})",
        "insert into skipstone.ns.t select id, concat('v', id), array(concat('t', id), null), "
        "named_struct('city', concat('c', id), 'zip', cast(id as int)) from range(70)",
    )
    assert_merges_like_duckdb(bed, spark)


def test_format_version_1_is_refused(bed: MergeBed, other: SparkSession) -> None:
    sql(
        other,
        "create table skipstone.ns.t (id bigint, v string) using iceberg tblproperties ('format-version'='1')",
        "insert into skipstone.ns.t select id, concat('v', id) from range(10)",
    )
    with pytest.raises(BadSpec) as caught:
        bed.merge(task_of(bed.source(FEED)))
    assert caught.value.reason is Reason.FORMAT_VERSION_UNSUPPORTED
