"""Whether a change planned on one head may be committed on a newer one. Rivals are real, Spark among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import visitors
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import TableRef, WarehouseRef
from skipstone_core.history.commits import Committed, Conflicted, Outcome
from skipstone_core.reasons import Reason

from tests.spark.lake import append, read_all, ref_of, write_files
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.spark.secondengine import second_spark

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


def rows(*ids: int, part: str = "a") -> pa.Table:
    """Rows of one partition."""
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [part] * len(ids)})


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Two partitions with one file each."""
    made = catalog.create_table(("ns", "t"), SCHEMA, partition_spec=BY_PART)
    append(made, rows(1, 2))
    return append(fresh(made), rows(10, 11, part="b"))


def fresh(table: Table) -> Table:
    """The table as it is now."""
    return table.catalog.load_table(table.name())


def file_in(table: Table, part: str) -> DataFile:
    """The live file of a partition."""
    files = read_file_set(table)
    (ordinal,) = [number for number in range(len(files)) if files.partition(number) == (part,)]
    return files.data_file(ordinal)


def rewrite(table: Table, part: str = "a", **options: object) -> Callable[[], Outcome]:
    """A merge planned now, to be committed later: the file of ``part`` becomes one with id 7."""
    files = read_file_set(table)
    added = write_files(table, rows(7, part=part))
    change = TableCommit(pinned=files.pinned, removed=(file_in(table, part),), added=added, txn="m", **options)  # type: ignore[arg-type]
    return lambda: commit_table(table.catalog, ref_of(table), change)


def ids(table: Table) -> list[int]:
    """Ids at the head, by our reader."""
    return sorted(read_all(fresh(table), ["id"]).column("id").to_pylist())


def refused(outcome: Outcome) -> str:
    """The sentence of a conflict that may be planned again."""
    assert isinstance(outcome, Conflicted), outcome
    assert outcome.reason is Reason.CONFLICTED
    return outcome.message


def test_a_rewrite_nobody_disturbs_lands(table: Table) -> None:
    assert isinstance(rewrite(table)(), Committed)
    assert ids(table) == [7, 10, 11]


def test_unrelated_appends_do_not_void_a_rewrite_without_a_guard(table: Table) -> None:
    commit = rewrite(table)
    append(fresh(table), rows(3))
    assert isinstance(commit(), Committed)
    assert ids(table) == [3, 7, 10, 11]


def test_a_file_that_another_writer_rewrote_voids_the_plan(table: Table) -> None:
    mine, theirs = rewrite(table), rewrite(table)
    rival = TableCommit(pinned=read_file_set(table).pinned, removed=(file_in(table, "a"),), txn="rival")
    assert isinstance(commit_table(table.catalog, ref_of(table), rival), Committed)
    assert "was removed by another writer" in refused(mine())
    assert "was removed by another writer" in refused(theirs())
    assert ids(table) == [10, 11]


def test_deletes_by_spark_on_a_rewritten_file_void_the_plan(
    table: Table, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    table.transaction().set_properties(
        {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file"}
    ).commit_transaction()
    mine, other = rewrite(fresh(table), "a"), rewrite(fresh(table), "b")
    second_spark(spark, warehouse).sql("delete from skipstone.ns.t where id = 1")
    assert len(read_file_set(fresh(table)).delete_files) == 1
    assert "deleted rows of" in refused(mine())
    assert isinstance(other(), Committed), "the delete is in another partition"
    assert ids(table) == [2, 7]


def test_a_position_delete_of_another_file_in_the_partition_does_not_void_the_plan(table: Table) -> None:
    append(fresh(table), rows(3))
    files = read_file_set(fresh(table))
    ordinal = files.files["segment"].to_pylist().index(1)
    other = files.files["segment"].to_pylist().index(3)
    change = TableCommit(pinned=files.pinned, removed=(files.data_file(ordinal),), added=(), txn="m")
    add_position_delete(fresh(table), files.data_file(other), [0])
    assert isinstance(commit_table(table.catalog, ref_of(table), change), Committed)
    assert ids(table) == [10, 11]


@pytest.mark.parametrize("part", ["a", "b"])
def test_any_new_equality_delete_voids_a_rewrite(table: Table, part: str) -> None:
    mine = rewrite(table, "a")
    add_equality_delete(fresh(table), {"id": [2]}, part)
    assert "equality delete" in refused(mine())


def test_an_equality_delete_does_not_void_an_append(table: Table) -> None:
    pinned, added = read_file_set(table).pinned, write_files(table, rows(2))
    add_equality_delete(fresh(table), {"id": [2]}, "a")
    outcome = commit_table(table.catalog, ref_of(table), TableCommit(pinned=pinned, added=added, txn="l"))
    assert isinstance(outcome, Committed)
    assert ids(table) == [1, 2, 10, 11], "the row that came after the delete lives"


def test_old_deletes_do_not_void_a_rewrite(table: Table) -> None:
    add_position_delete(fresh(table), file_in(table, "a"), [0])
    assert isinstance(rewrite(fresh(table))(), Committed)
    assert ids(table) == [7, 10, 11]


def test_the_guard_sees_exactly_the_files_added_since_the_plan(table: Table) -> None:
    seen: list[list[int]] = []

    def guard(head: Table, added: tuple[DataFile, ...]) -> str | None:
        seen.append([file.record_count for file in added])
        return "others added the same keys" if sum(seen[-1]) > 3 else None

    commit = rewrite(table, guard=guard)
    append(fresh(table), rows(3, 4, 5))
    append(fresh(table), rows(6))
    assert refused(commit()) == "Since the run planned its change, others added the same keys."
    assert [sorted(counts) for counts in seen] == [[1, 3]]
    assert ids(table) == [1, 2, 3, 4, 5, 6, 10, 11]


def test_a_guard_without_objection_lets_the_change_pass(table: Table) -> None:
    commit = rewrite(table, guard=lambda head, added: None)
    append(fresh(table), rows(3))
    assert isinstance(commit(), Committed)


def test_the_guard_is_asked_for_pure_inserts_on_a_table_that_was_empty(catalog: Catalog) -> None:
    table = catalog.create_table(("ns", "e"), SCHEMA)
    change = TableCommit(
        pinned=read_file_set(table).pinned,
        added=write_files(table, rows(1)),
        txn="m",
        guard=lambda head, added: f"{len(added)} files were added",
    )
    append(table, rows(1))
    assert "1 files were added" in refused(commit_table(catalog, ref_of(table), change))


def test_a_changed_schema_voids_the_plan(table: Table) -> None:
    commit = rewrite(table)
    with fresh(table).update_schema() as update:
        update.add_column("more", StringType())
    assert "the schema of ns.t changed" in refused(commit())


def test_changed_partitioning_voids_the_plan(table: Table) -> None:
    commit = rewrite(table)
    with fresh(table).update_spec() as update:
        update.remove_field("part")
    assert "the partitioning of ns.t changed" in refused(commit())


def test_a_roll_back_behind_the_plan_voids_it(table: Table) -> None:
    commit = rewrite(table)
    first = table.metadata.snapshots[0].snapshot_id
    fresh(table).manage_snapshots().rollback_to_snapshot(first).commit()
    assert "rolled back" in refused(commit())


def test_a_replaced_table_is_never_written(table: Table) -> None:
    commit = rewrite(table)
    table.catalog.drop_table(table.name())
    table.catalog.create_table(table.name(), SCHEMA, location=table.location() + "-2")
    outcome = commit()
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.TABLE_REPLACED


def test_a_dropped_table_is_a_conflict_that_planning_again_cannot_mend(table: Table) -> None:
    commit = rewrite(table)
    table.catalog.drop_table(table.name())
    outcome = commit()
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.TABLE_MISSING


def test_a_known_uuid_that_differs_is_told_before_anything_is_staged(table: Table) -> None:
    ref = TableRef(namespace="ns", name="t", uid="u", table_uuid="00000000-0000-0000-0000-000000000000")
    change = TableCommit(pinned=read_file_set(table).pinned, txn="m")
    outcome = commit_table(table.catalog, ref, change)
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.TABLE_REPLACED


def test_tables_of_other_formats_are_not_written(
    catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    sql = "create table skipstone.ns.other (id bigint) using iceberg tblproperties ('format-version' = '1')"
    second_spark(spark, warehouse).sql(sql)
    table = catalog.load_table(("ns", "other"))
    outcome = commit_table(catalog, ref_of(table), TableCommit(pinned=read_file_set(table).pinned, txn="m"))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.FORMAT_VERSION_UNSUPPORTED
    assert "version 1" in outcome.message


def test_rewriting_keeps_the_other_files_of_a_manifest(catalog: Catalog) -> None:
    table = catalog.create_table(("ns", "m"), SCHEMA)
    added = tuple(file for n in range(5) for file in write_files(table, rows(n)))
    pinned = read_file_set(table).pinned
    commit_table(catalog, ref_of(table), TableCommit(pinned=pinned, added=added, txn="l"))
    files = read_file_set(fresh(table))
    change = TableCommit(pinned=files.pinned, removed=(files.data_file(2),), txn="m")
    assert isinstance(commit_table(catalog, ref_of(table), change), Committed)
    left = read_file_set(fresh(table))
    assert len(left) == 4
    assert set(left.files["segment"].to_pylist()) == {1}, "a rewrite of others never moves a file's segment"


def test_files_of_many_manifests_are_found_however_threads_take_turns(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg looks through manifests by several threads, which share what it compares partitions by."""
    for number in range(24):
        append(fresh(table), rows(number, part=f"{'gone' if number % 2 else 'kept'} {number}"))
    decode = visitors._from_byte_buffer

    def gives_way(*value: Any) -> Any:
        os.sched_yield()
        return decode(*value)

    monkeypatch.setattr(visitors, "_from_byte_buffer", gives_way)
    files = read_file_set(fresh(table))
    removed = tuple(files.data_file(at) for at in range(len(files)) if "gone" in str(files.partition(at)))
    outcome = commit_table(table.catalog, ref_of(table), TableCommit(pinned=files.pinned, removed=removed, txn="m"))
    assert isinstance(outcome, Committed), outcome
    assert ids(table) == sorted([1, 2, 10, 11, *range(0, 24, 2)])


def test_raw_deletes_are_what_they_say(table: Table) -> None:
    """The helpers above make real delete files: another reader sees them as such."""
    add_position_delete(fresh(table), file_in(table, "a"), [0])
    add_equality_delete(fresh(table), {"id": [11]}, "b")
    snapshot = fresh(table).current_snapshot()
    assert snapshot is not None
    manifests = [m for m in snapshot.manifests(table.io) if m.content == ManifestContent.DELETES]
    files = [entry.data_file for m in manifests for entry in m.fetch_manifest_entry(table.io)]
    kinds = {(file.content, file.file_format) for file in files}
    assert kinds == {
        (DataFileContent.POSITION_DELETES, FileFormat.PARQUET),
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET),
    }


def test_many_manifests_are_looked_through_when_memory_keeps_no_decodes(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a large table: more manifests than PyIceberg has threads may name the file, and all are decoded again."""
    monkeypatch.setattr("skipstone.tables.decoding.manifests.CACHE_BYTES", 0)
    monkeypatch.setattr("skipstone.tables.decoding.manifests.open_folder", lambda: None)
    commit = rewrite(table)
    for number in range(100, 124):
        append(fresh(table), pa.table({"id": pa.array([number, number], pa.int64()), "part": ["A", "b"]}))
    assert isinstance(commit(), Committed)
    assert ids(table) == sorted([7, 10, 11, *range(100, 124), *range(100, 124)])
