"""Merges into tables that ask for merge on read: data files stay, and every engine sees the merged rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, UUIDType
from pyspark.sql import SparkSession
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import MergeAction, MergeClause
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import DELETE, DELETE_D, UPDATE, AtSwap, MergeBed, rows_of, task_of
from tests.spark.secondengine import second_spark, spark_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "n", LongType()),
)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA, **{MERGE_MODE: MergeMode.MERGE_ON_READ})
    yield made
    made.catalog.close()


def people(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"name {i}", "n": i % 7} for i in range(start, start + count)]


def feed(*changes: tuple[int, str | None, str]) -> pa.Table:
    ids, names, ops = zip(*changes, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string()), "op": list(ops)})


def delete_files(bed: MergeBed) -> list[DataFile]:
    return [delete.file for delete in read_file_set(bed.table()).delete_files]


def assert_rows(bed: MergeBed, spark: SparkSession, expected: list[dict[str, Any]]) -> None:
    """As our reader's library and plain Spark read them."""
    wanted = sorted(repr(tuple(row.values())) for row in expected)
    assert bed.rows() == wanted
    assert rows_of(spark_rows(spark, bed.warehouse, "ns.t")) == wanted


def change(bed: MergeBed, changes: pa.Table, **clauses: Any) -> JobReport:
    report = bed.merge(task_of(bed.source(changes), **{"when_matched": (DELETE_D, UPDATE), **clauses}))
    assert report.outcome is RunOutcome.COMMITTED
    return report


def test_few_changes_leave_the_data_files(bed: MergeBed, spark: SparkSession) -> None:
    bed.append(people(0, 10), people(10, 10), people(20, 10))
    before = bed.paths()
    report = change(bed, feed((3, "three", "U"), (5, "", "D"), (15, "fifteen", "U"), (100, "new", "U")))
    expected = {row["id"]: row for row in people(0, 30) if row["id"] != 5}
    expected[3]["name"], expected[15]["name"] = "three", "fifteen"
    expected[100] = {"id": 100, "name": "new", "n": None}
    assert_rows(bed, spark, list(expected.values()))
    assert before < bed.paths()
    told = {name: report.counts[name] for name in ("filesTouched", "filesMarked", "filesRewritten", "rowsCopied")}
    assert told == {"filesTouched": 2, "filesMarked": 2, "filesRewritten": 0, "rowsCopied": 0}
    assert report.counts["bytesDeletes"] == sum(file.file_size_in_bytes for file in delete_files(bed)) > 0
    assert report.table_states[0].rows == 30
    summary = bed.table().current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary.operation.value == "overwrite"
    names = ("added-position-deletes", "total-position-deletes", "added-delete-files", "total-delete-files")
    assert {name: summary[name] for name in names} == dict(zip(names, "3322", strict=True))


def test_each_delete_file_is_for_one_data_file(bed: MergeBed) -> None:
    bed.append(people(0, 10), people(10, 10))
    change(bed, feed((3, "three", "U"), (9, "", "D"), (15, "fifteen", "U")))
    files = read_file_set(bed.table())
    named = {delete.only_path: pq.read_table(local(delete.file)).to_pydict() for delete in files.delete_files}
    assert set(named) < set(files.files["path"].to_pylist())
    assert sorted(found["pos"] for found in named.values()) == [[3, 9], [5]]
    assert all(set(found["file_path"]) == {path} for path, found in named.items())


def local(file: DataFile) -> str:
    return file.file_path.removeprefix("file://")


def test_deletes_pile_up_until_half_of_a_file_is_gone(bed: MergeBed, spark: SparkSession) -> None:
    bed.append(people(0, 10))
    model = {row["id"]: row for row in people(0, 10)}
    kinds = []
    for first in (0, 2, 4):
        report = change(bed, feed((first, f"new {first}", "U"), (first + 1, "", "D")))
        model[first]["name"] = f"new {first}"
        del model[first + 1]
        assert_rows(bed, spark, list(model.values()))
        kinds.append((report.counts["filesMarked"], report.counts["filesRewritten"], len(delete_files(bed))))
        assert report.table_states[0].rows == len(model)
    assert kinds == [(1, 0, 1), (1, 0, 1), (0, 1, 0)]


def test_a_delete_file_takes_the_place_of_earlier_ones(bed: MergeBed, spark: SparkSession) -> None:
    bed.append(people(0, 20), people(20, 20))
    expected = {row["id"]: row for row in people(0, 40)}
    for number in (3, 25, 5, 4, 30, 6):
        change(bed, feed((number, "", "D")))
        del expected[number]
        assert_rows(bed, spark, list(expected.values()))
    assert sorted(file.record_count for file in delete_files(bed)) == [2, 4]
    summary = bed.table().current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("2", "6")


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_deletes_of_other_engines_are_kept_or_replaced(bed: MergeBed, spark: SparkSession, granularity: str) -> None:
    bed.append(people(0, 20), people(20, 20))
    session = second_spark(spark, bed.warehouse)
    modes = f"'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = '{granularity}'"
    session.sql(f"alter table skipstone.ns.t set tblproperties ({modes})")
    session.sql("delete from skipstone.ns.t where id in (3, 4, 23)")
    change(bed, feed((5, "five", "U"), (6, "", "D")))
    expected = {row["id"]: row for row in people(0, 40) if row["id"] not in (3, 4, 6, 23)}
    expected[5]["name"] = "five"
    assert_rows(bed, spark, list(expected.values()))
    counts = {"file": [1, 4], "partition": [2, 3]}
    assert sorted(file.record_count for file in delete_files(bed)) == counts[granularity]
    session.sql("delete from skipstone.ns.t where id in (7, 24)")
    assert_rows(bed, spark, [row for row in expected.values() if row["id"] not in (7, 24)])


def test_a_file_without_rows_left_is_removed(bed: MergeBed, spark: SparkSession) -> None:
    bed.append(people(0, 10), people(10, 10))
    change(bed, feed(*((i, "", "D") for i in range(4))))
    report = change(bed, feed(*((i, "", "D") for i in range(11))), when_not_matched=())
    assert (report.counts["filesMarked"], report.counts["filesRewritten"]) == (1, 1)
    assert len(bed.paths()) == 1
    assert_rows(bed, spark, people(11, 9))


def test_rows_without_a_source_row_are_marked_too(bed: MergeBed, spark: SparkSession) -> None:
    bed.append(people(0, 10), people(10, 10))
    clauses = (
        MergeClause(action=MergeAction.DELETE, when="target.id = 12"),
        MergeClause(action=MergeAction.UPDATE, when="target.id > 17", values={"n": "70"}),
    )
    report = change(bed, feed((3, "three", "U")), when_not_matched_by_source=clauses)
    expected = {row["id"]: row for row in people(0, 20) if row["id"] != 12}
    expected[3]["name"], expected[18]["n"], expected[19]["n"] = "three", 70, 70
    assert_rows(bed, spark, list(expected.values()))
    assert report.counts["filesMarked"] == 2


def test_many_row_groups(bed: MergeBed, spark: SparkSession) -> None:
    with bed.table().transaction() as properties:
        properties.set_properties({"write.parquet.row-group-limit": "100", "write.parquet.page-row-limit": "10"})
    bed.append(people(0, 1000))
    change(bed, feed((0, "", "D"), (99, "", "D"), (100, "a", "U"), (555, "b", "U"), (999, "", "D")))
    change(bed, feed((101, "", "D"), (554, "c", "U"), (555, "d", "U"), (998, "", "D")))
    gone = {0, 99, 101, 998, 999}
    expected = {row["id"]: row for row in people(0, 1000) if row["id"] not in gone}
    expected[100]["name"], expected[555]["name"], expected[554]["name"] = "a", "d", "c"
    assert_rows(bed, spark, list(expected.values()))


@pytest.mark.parametrize("bad", [(3, None, "U"), (100, None, "U")], ids=["update", "insert"])
def test_a_failed_merge_leaves_nothing(bed: MergeBed, bad: tuple[int, str | None, str]) -> None:
    bed.append(people(0, 10), people(10, 10))
    files, head = bed.on_disk(), bed.table().metadata_location
    with pytest.raises(BadData) as caught:
        change(bed, feed((4, "four", "U"), (12, "", "D"), bad))
    assert caught.value.reason is Reason.BAD_RECORDS
    assert bed.on_disk() == files
    assert bed.table().metadata_location == head


def test_a_table_replaced_under_the_merge_keeps_none_of_its_files(bed: MergeBed) -> None:
    bed.append(people(0, 10))

    def replace() -> None:
        bed.catalog.drop_table(("ns", "t"))
        bed.create(SCHEMA)

    before = bed.on_disk()
    task = task_of(bed.source(feed((4, "four", "U"), (5, "", "D"))), when_matched=(DELETE_D, UPDATE))
    report = bed.merge(task, ports=CommitPorts(hooks=AtSwap(before=replace)))
    assert report.reason is Reason.TABLE_REPLACED
    assert bed.on_disk() == before


@pytest.mark.parametrize("mode", ["copy-on-write", "Copy-On-Write"])
def test_other_modes_copy_on_write(bed: MergeBed, mode: str) -> None:
    with bed.table().transaction() as properties:
        properties.set_properties({MERGE_MODE: mode})
    bed.append(people(0, 10))
    report = change(bed, feed((3, "", "D")), when_matched=(DELETE,))
    assert (report.counts["filesMarked"], report.counts["filesRewritten"]) == (0, 1)


def test_other_engines_compact_what_a_merge_marked(bed: MergeBed, spark: SparkSession) -> None:
    bed.append(people(0, 10), people(10, 10))
    change(bed, feed((3, "three", "U"), (15, "", "D")))
    rows, session = bed.rows(), second_spark(spark, bed.warehouse)
    options = "map('rewrite-all', 'true')"
    for procedure in ("rewrite_position_delete_files", "rewrite_data_files"):
        session.sql(f"call skipstone.system.{procedure}(table => 'ns.t', options => {options})").collect()
        assert bed.rows() == rows
    change(bed, feed((4, "four", "U")))
    assert bed.rows() == sorted(row.replace("'name 4'", "'four'") for row in rows)


def test_an_index_stays_right_over_marked_files(tmp_path: Path) -> None:
    lake, index = Lake(tmp_path), index_on("k")
    table = pa.schema([pa.field("k", pa.int64()), pa.field("name", pa.string())])
    lake.create(table, properties={"format-version": "2", MERGE_MODE: MergeMode.MERGE_ON_READ})
    bed = MergeBed(tmp_path)
    for start in (0, 100):
        bed.append([{"k": k, "name": f"n{k % 5}"} for k in range(start, start + 100)])
    lake.reindex(index)
    changes = pa.table({"k": [3, 150, 151], "name": ["x", "", "y"], "op": ["U", "D", "U"]})
    task = task_of(bed.source(changes), ["k"], when_matched=(DELETE_D, UPDATE))
    assert bed.merge(task).counts["filesMarked"] == 2
    assert lake.state(index).segments_missing == 1
    for condition, keys in (("k in (3, 4)", [3, 4]), ("k >= 149 and k <= 152", [149, 151, 152])):
        assert sorted(lake.assert_exact(condition)["k"].to_pylist()) == keys
    lake.follow(index)
    assert lake.state(index).segments_missing == 0
    assert lake.assert_exact("k in (3, 150, 151)")["name"].to_pylist() == ["x", "y"]


def test_columns_called_as_what_readers_add_keep_their_values(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    names = ("id", "_pos", "_row_group", "n")
    schema = Schema(*(NestedField(number, name, LongType()) for number, name in enumerate(names, 1)))
    bed.create(schema, **{MERGE_MODE: MergeMode.MERGE_ON_READ})
    rows = [{"id": i, "_pos": 1000 + i, "_row_group": 2000 + i, "n": 0} for i in range(20)]
    bed.append(rows)
    changes = pa.table({"id": [3, 7], "n": [1, 1]})
    new_n = MergeClause(action=MergeAction.UPDATE, values={"n": "source.n"})
    bed.merge(task_of(bed.source(changes), when_matched=(new_n,), when_not_matched=()))
    expected = [{**row, "n": int(row["id"] in (3, 7))} for row in rows]
    assert bed.rows() == sorted(repr(tuple(row.values())) for row in expected)


def test_manifests_do_not_pile_up(bed: MergeBed) -> None:
    bed.append(people(0, 40), people(40, 40))
    for number in range(6):
        change(bed, feed((number, "", "D"), (40 + number, f"new {number}", "U")))
    head = bed.table().current_snapshot()
    assert head is not None
    manifests = head.manifests(bed.table().io)
    deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
    assert [one.added_files_count for one in deletes if one.has_added_files()] == [2]
    assert len(deletes) == 2  # one with the new files, one that says which ones went


def test_a_uuid_partition_takes_rewritten_and_new_rows(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "u", UUIDType()), NestedField(3, "v", StringType())
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "u"))
    given = [{"id": i, "u": UUID(int=7 + i % 2).bytes, "v": "old"} for i in range(20)]
    for mode in ("copy-on-write", MergeMode.MERGE_ON_READ):
        root = tmp_path / mode
        root.mkdir()
        bed = MergeBed(root)
        bed.create(schema, spec, **{MERGE_MODE: mode})
        bed.append(given)
        for number, keys in enumerate(((3,), (3, 4), (5, 6, 3, 100))):
            changes = pa.table({"id": pa.array(keys), "v": [f"new {number}"] * len(keys)})
            assert bed.merge(task_of(bed.source(changes))).outcome is RunOutcome.COMMITTED
        found = {row["id"]: row["v"] for row in bed.table().scan().to_arrow().to_pylist()}
        changed = {3: "new 2", 4: "new 1", 5: "new 2", 6: "new 2", 100: "new 2"}
        assert found == dict.fromkeys(range(20), "old") | changed
        bed.catalog.close()
