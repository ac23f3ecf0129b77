"""Deletes of every kind are applied on reading, or the file is refused: never ignored. Spark is the other reader."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.files.reader import describe_files
from skipstone.tables.filesets import read_file_set
from skipstone.tables.states import table_state
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from tests.spark.lake import append, read_all, ref_of
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.spark.secondengine import second_spark, spark_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", StringType()), NestedField(3, "x", DoubleType())
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


def rows(*ids: int | None, part: str | None = "a") -> pa.Table:
    """Rows of one partition."""
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array([part] * len(ids), pa.string())})


def fresh(table: Table) -> Table:
    """The table as it is now."""
    return table.catalog.load_table(table.name())


def ids(table: Table) -> list[int | None]:
    """Live ids by our reader."""
    found: list[int | None] = read_all(fresh(table), ["id"]).column("id").to_pylist()
    return sorted(found, key=repr)


def assert_spark_agrees(table: Table, spark: SparkSession, warehouse: WarehouseRef) -> None:
    """Plain Spark reads the same ids."""
    found = spark_rows(spark, warehouse, ".".join(table.name())).column("id").to_pylist()
    assert ids(table) == sorted(found, key=repr)


@pytest.mark.parametrize("version", ["2", "3"], ids=["position deletes", "deletion vectors"])
def test_deletes_that_spark_made_are_applied(
    spark: SparkSession, warehouse: WarehouseRef, catalog: Catalog, version: str
) -> None:
    session = second_spark(spark, warehouse)
    session.sql(
        "create table skipstone.ns.t (id bigint, part string) using iceberg partitioned by (part) tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
    )
    session.sql("insert into skipstone.ns.t select id, if(id % 2 = 0, 'even', 'odd') from range(100)")
    session.sql("delete from skipstone.ns.t where id between 10 and 19 or id = 99")
    table = catalog.load_table(("ns", "t"))
    files = read_file_set(table)
    assert all(files.has_deletes(ordinal) for ordinal in range(len(files)))
    assert ids(table) == sorted((n for n in range(99) if not 10 <= n <= 19), key=repr)
    session.sql("delete from skipstone.ns.t where id = 20")
    assert ids(table) == sorted((n for n in range(99) if not 10 <= n <= 20), key=repr)
    assert_spark_agrees(table, spark, warehouse)


def test_rows_that_two_deletes_of_spark_name_are_counted_once(
    spark: SparkSession, warehouse: WarehouseRef, catalog: Catalog
) -> None:
    """As two DELETEs leave them that run side by side, of which Spark refuses neither."""
    session = second_spark(spark, warehouse)
    session.sql(
        "create table skipstone.ns.t (id bigint) using iceberg tblproperties ('format-version'='2', "
        "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file')"
    )
    session.sql("insert into skipstone.ns.t select /*+ coalesce(1) */ id from range(100)")
    before = catalog.load_table(("ns", "t")).metadata.current_snapshot_id
    session.sql("delete from skipstone.ns.t where id < 30")
    first = java_table(session)
    session.sql(f"call skipstone.system.rollback_to_snapshot('ns.t', {before})")
    session.sql("delete from skipstone.ns.t where id between 20 and 39")
    change = java_table(session).newRowDelta()
    for file in first.currentSnapshot().addedDeleteFiles(first.io()):
        change = change.addDeletes(file)
    change.commit()
    table = catalog.load_table(("ns", "t"))
    assert sorted(delete.file.record_count for delete in read_file_set(table).delete_files) == [20, 30]
    assert session.table("skipstone.ns.t").count() == 60
    assert table_state(catalog, ref_of(table)).state.rows == 60
    assert_spark_agrees(table, spark, warehouse)


def java_table(session: SparkSession) -> Any:
    """The table as Iceberg's own library knows it now."""
    assert session._jvm is not None
    return session._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, "skipstone.ns.t")


def test_position_deletes_apply_to_their_file_only(
    catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA, partition_spec=BY_PART), rows(1, 2, 3))
    table = append(table, rows(11, 12, 13))
    files = read_file_set(table)
    first = files.files["segment"].to_pylist().index(1)
    add_position_delete(table, files.data_file(first), [0, 2])
    assert ids(table) == [11, 12, 13, 2]
    assert_spark_agrees(table, spark, warehouse)
    now = read_file_set(fresh(table))
    assert [now.has_deletes(n) for n in range(2)].count(True) == 1


def test_equality_deletes_apply_to_older_rows_of_their_partition(
    catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA, partition_spec=BY_PART), rows(1, 2, None))
    table = append(table, rows(1, 2, part="b"))
    add_equality_delete(table, {"id": [1, None]}, "a")
    append(fresh(table), rows(1))
    assert ids(table) == [1, 1, 2, 2]
    assert_spark_agrees(table, spark, warehouse)


def test_equality_deletes_without_partitioning_apply_everywhere(
    catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA), rows(1, 2))
    table = append(table, rows(2, 3, part=None))
    add_equality_delete(table, {"part": ["a", None], "id": [1, 2]})
    assert ids(table) == [2, 3]
    assert_spark_agrees(table, spark, warehouse)


def test_equality_deletes_hold_after_a_rename_and_a_widening(catalog: Catalog) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA), rows(1, 2))
    add_equality_delete(table, {"id": [1]})
    with fresh(table).update_schema() as update:
        update.rename_column("id", "key")
    assert read_all(fresh(table), ["part"]).num_rows == 1
    assert read_all(fresh(table), ["key"]).column(0).to_pylist() == [2]


@pytest.mark.parametrize(("column", "said"), [("x", "column 'x' of type double"), ("id", "field id 1")])
def test_equality_deletes_that_cannot_be_applied_are_refused(catalog: Catalog, column: str, said: str) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA), rows(1))
    add_equality_delete(table, {column: [1]})
    if column == "id":
        with fresh(table).update_schema() as update:
            update.delete_column("id")
    with pytest.raises(BadData, match=said) as caught:
        describe_files(fresh(table), read_file_set(fresh(table)), [0])
    assert caught.value.reason is Reason.DELETES_UNSUPPORTED


@pytest.mark.parametrize("column", ["x", "id"])
def test_equality_deletes_that_cannot_be_applied_are_gone_once_another_engine_compacted(
    catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef, column: str
) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA), rows(1, 2))
    add_equality_delete(table, {column: [1]})
    if column == "id":
        with fresh(table).update_schema() as update:
            update.delete_column("id")
    with pytest.raises(BadData, match="compact the table with another engine first"):
        describe_files(fresh(table), read_file_set(fresh(table)), [0])
    options = "map('delete-file-threshold', '1', 'rewrite-all', 'true')"
    session = second_spark(spark, warehouse)
    session.sql(f"call skipstone.system.rewrite_data_files(table => 'ns.t', options => {options})")
    assert read_all(fresh(table), ["part"]).num_rows == (2 if column == "x" else 1)


def test_segments_with_deletes_are_shown_as_updated(catalog: Catalog) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA), rows(1))
    table = append(table, rows(2), txn="half", is_partial=True)
    table = append(table, rows(3))
    files = read_file_set(table)
    add_position_delete(table, files.data_file(files.files["segment"].to_pylist().index(3)), [0])
    segments = table_state(catalog, ref_of(table)).state.segments
    assert (segments.total, segments.valid, segments.partial, segments.updated, segments.latest) == (3, 1, 1, 1, 3)


def test_files_that_spark_rewrote_move_to_a_new_segment(
    catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA), rows(1))
    append(table, rows(2))
    session = second_spark(spark, warehouse)
    session.sql("call skipstone.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))")
    files = read_file_set(fresh(table)).files
    assert set(files["segment"].to_pylist()) == {3}
    assert set(files["data_sequence"].to_pylist()) == {2}, "deletes that came later still apply"


def test_files_of_format_1_are_segment_zero(catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef) -> None:
    session = second_spark(spark, warehouse)
    session.sql("create table skipstone.ns.t (id bigint) using iceberg tblproperties ('format-version'='1')")
    session.sql("insert into skipstone.ns.t values (1)")
    session.sql("insert into skipstone.ns.t values (2)")
    table = catalog.load_table(("ns", "t"))
    files = read_file_set(table)
    assert files.files["segment"].to_pylist() == [0, 0]
    assert len(set(files.files["added_snapshot_id"].to_pylist())) == 2
    state = table_state(catalog, ref_of(table)).state
    assert (state.format_version, state.problem) == (1, Reason.FORMAT_VERSION_UNSUPPORTED)
    assert ids(table) == [1, 2]


@pytest.mark.parametrize("by_position", [True, False], ids=["position", "equality"])
def test_deletes_apply_in_the_partition_of_nan(catalog: Catalog, *, by_position: bool) -> None:
    by_x = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "x"))
    nan = rows(1, 2).append_column("x", pa.array([math.nan] * 2))
    table = append(catalog.create_table(("ns", "t"), SCHEMA, partition_spec=by_x), nan)
    if by_position:
        add_position_delete(table, read_file_set(table).data_file(0), [0])
    else:
        add_equality_delete(table, {"id": [1]}, math.nan)
    assert ids(table) == [2]


def test_equality_deletes_of_a_spec_of_void_fields_apply_everywhere(catalog: Catalog) -> None:
    table = append(catalog.create_table(("ns", "t"), SCHEMA, partition_spec=BY_PART), rows(1, 2))
    with table.update_spec() as update:
        update.remove_field("part").add_field("part", VoidTransform(), "nothing")
    add_equality_delete(fresh(table), {"id": [1]}, None)
    assert ids(table) == [2]
