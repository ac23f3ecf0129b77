"""Changes by the lineage of rows: copied rows are not read, and no writer that breaks it changes the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone.query.changing import lineage, reading
from skipstone.query.planner import ReadOptions
from skipstone.tables.arrow import LINEAGE_NAMES
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.history.rowlineages import keeps_lineage
from skipstone_core.maintenance.policies import CompactionPolicy
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.lake import append, read_all, ref_of
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, task_of
from tests.spark.rawdeletes import add_vectors, upgrade

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
ROWS = 20
SPARK = {
    "engine-name": "spark",
    "engine-version": "4.1.1",
    "iceberg-version": "Apache Iceberg 1.12.0 (commit 0123abc)",
}


@pytest.fixture(autouse=True)
def small_files_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINEAGE_BYTES", 0)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MaintainBed]:
    made = MaintainBed(tmp_path)
    made.policy = CompactionPolicy(min_input_files=2, delete_permille=1)
    made.create(SCHEMA, **{"format-version": "3"})
    made.append([{"id": key, "v": "a"} for key in range(ROWS)])
    yield made
    made.catalog.close()


def merge(bed: MaintainBed, mode: MergeMode, **values: str) -> None:
    """Update rows to values; D deletes one."""
    bed.table().transaction().set_properties({MERGE_MODE: mode.value}).commit_transaction()
    ops = ["D" if value == "D" else "U" for value in values.values()]
    keys = [int(name[1:]) for name in values]
    feed = pa.table({"id": pa.array(keys, pa.int64()), "v": list(values.values()), "op": ops})
    bed.merge(task_of(bed.source(feed), when_matched=(DELETE_D, UPDATE)))


def head(bed: MaintainBed) -> int:
    snapshot = bed.table().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def plan_of(bed: MaintainBed, since: int, until: int | None = None) -> reading.ChangesPlan:
    return reading.plan_changes(bed.table(), since, ReadOptions(snapshot_id=until), ["id"])


def changed(bed: MaintainBed, since: int, until: int | None = None) -> list[tuple[int, str, str]]:
    """The changes, which are those of PyIceberg's scans of both snapshots."""
    rows = pa.concat_tables(reading.read_changes(plan_of(bed, since, until))).to_pylist()
    found = sorted((row["id"], row["_change_type"], row["v"]) for row in rows)
    before, after = (
        {row["id"]: row["v"] for row in bed.table().scan(snapshot_id=at).to_arrow().to_pylist()}
        for at in (since, until or head(bed))
    )
    expected = [(key, "DELETE", before[key]) for key in before.keys() - after.keys()]
    expected += [(key, "INSERT", after[key]) for key in after.keys() - before.keys()]
    for key in before.keys() & after.keys():
        if before[key] != after[key]:
            expected += [(key, "UPDATE_BEFORE", before[key]), (key, "UPDATE_AFTER", after[key])]
    assert found == sorted(expected)
    return found


def write_with_lineage(table: Table, rows: pa.Table) -> Any:
    writer = DataFileWriter(write_spec(table, "foreign", lineage=True), "1")
    writer.write(rows)
    return tuple(to_data_files((file.to_row() for file in writer.close()), table))


def rewrite(bed: MaintainBed, change: Callable[[dict[str, Any]], dict[str, Any]], *, kept: bool = True) -> None:
    """A foreign commit that writes all rows again, each as ``change`` makes it; ``kept``: with its lineage."""
    table = bed.table()
    files = read_file_set(table)
    names = ["id", "v", *LINEAGE_NAMES]
    rows = [change(row) for row in read_all(table, names, lineage=True).to_pylist()]
    schema = read_all(table, names, lineage=True).schema
    whole = pa.Table.from_pylist(rows, schema)
    added = write_with_lineage(table, whole) if kept else ()
    commit = TableCommit(pinned=pin_table(table), added=added, removed=tuple(map(files.data_file, range(len(files)))))
    commit_table(bed.catalog, ref_of(table), commit)
    if not kept:
        append(bed.table(), whole.select(["id", "v"]))


@pytest.mark.parametrize("mode", MergeMode)
def test_rows_that_merges_and_compactions_copied_are_not_read(
    bed: MaintainBed, mode: MergeMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = head(bed)
    bed.append([{"id": 100, "v": "b"}])
    merge(bed, mode, k1="c", k2="D", k3="a", k200="d")
    assert bed.compact().is_done
    assert plan_of(bed, since).is_by_lineage
    read: list[int] = []
    unwatched = reading.read_data_file

    def counted(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in unwatched(*arguments):
            if "v" in batch.schema.names:
                read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(reading, "read_data_file", counted)
    assert [row[:2] for row in changed(bed, since)] == [
        (1, "UPDATE_AFTER"), (1, "UPDATE_BEFORE"), (2, "DELETE"), (100, "INSERT"), (200, "INSERT"),
    ]  # fmt: skip
    # Rows 1, 2 and 3 before; 1, 3, 100 and 200 after: the merge updated row 3 to what it was.
    assert sum(read) == 7


def test_a_changed_row_that_claims_the_lineage_of_an_unchanged_one_is_found(bed: MaintainBed) -> None:
    since = head(bed)
    rewrite(bed, lambda row: {**row, "v": "z"} if row["id"] == 5 else row)
    assert not plan_of(bed, since).is_by_lineage
    assert changed(bed, since) == [(5, "UPDATE_AFTER", "z"), (5, "UPDATE_BEFORE", "a")]
    bed.append([{"id": 100, "v": "b"}])
    assert bed.compact().is_done
    assert not plan_of(bed, since).is_by_lineage
    assert len(changed(bed, since)) == 3


def test_appended_files_with_the_lineage_of_another_table_are_not_trusted(bed: MaintainBed) -> None:
    since = head(bed)
    merge(bed, MergeMode.COPY_ON_WRITE, k0="D")
    rows = read_all(bed.table(), ["id", "v", *LINEAGE_NAMES], lineage=True)
    theirs = pa.Table.from_pylist([{"id": 0, "v": "theirs", "_row_id": 0, LINEAGE_NAMES[1]: 1}], rows.schema)
    commit = TableCommit(pinned=pin_table(bed.table()), added=write_with_lineage(bed.table(), theirs))
    commit_table(bed.catalog, ref_of(bed.table()), commit)
    assert not plan_of(bed, since).is_by_lineage
    assert bed.compact().is_done
    assert not plan_of(bed, since).is_by_lineage
    assert changed(bed, since) == [(0, "UPDATE_AFTER", "theirs"), (0, "UPDATE_BEFORE", "a")]


def test_writers_that_give_new_ids_are_no_reason_to_compare_all_values(bed: MaintainBed) -> None:
    since = head(bed)
    rewrite(bed, lambda row: {**row, "v": "z"} if row["id"] == 5 else row, kept=False)
    merge(bed, MergeMode.COPY_ON_WRITE, k1="c")
    assert plan_of(bed, since).is_by_lineage
    assert len(changed(bed, since)) == 4


def test_two_rows_with_one_id_are_compared_by_values(bed: MaintainBed) -> None:
    rewrite(bed, lambda row: {**row, "_row_id": row["_row_id"] % 7})
    since = head(bed)
    merge(bed, MergeMode.COPY_ON_WRITE, k1="c", k2="D")
    assert plan_of(bed, since).is_by_lineage
    assert len(changed(bed, since)) == 3


def test_histories_that_prove_nothing_are_compared_by_values(bed: MaintainBed, monkeypatch: pytest.MonkeyPatch) -> None:
    first = head(bed)
    merge(bed, MergeMode.COPY_ON_WRITE, k1="c")
    second = head(bed)
    merge(bed, MergeMode.MERGE_ON_READ, k2="d", k3="D")
    third = head(bed)
    assert plan_of(bed, first).is_by_lineage
    changed(bed, first)
    bed.table().manage_snapshots().rollback_to_snapshot(second).commit()
    merge(bed, MergeMode.COPY_ON_WRITE, k4="e")
    for since, until in ((third, head(bed)), (head(bed), third), (third, first)):
        assert not plan_of(bed, since, until).is_by_lineage
        changed(bed, since, until)
    assert plan_of(bed, first).is_by_lineage
    bed.table().maintenance.expire_snapshots().by_id(second).commit()
    assert not plan_of(bed, first).is_by_lineage
    changed(bed, first)
    rewrite(bed, lambda row: row, kept=False)
    since = head(bed)
    rewrite(bed, lambda row: row, kept=False)
    assert plan_of(bed, since).is_by_lineage
    for limit in ("MOST_FOREIGN", "MOST_OPENED", "MOST_SNAPSHOTS"):
        with monkeypatch.context() as limits:
            limits.setattr(lineage, limit, 0)
            assert not plan_of(bed, since).is_by_lineage


def test_columns_that_come_and_go_do_not_make_copied_rows_differ(bed: MaintainBed) -> None:
    since = head(bed)
    merge(bed, MergeMode.COPY_ON_WRITE, k1="D")
    with bed.table().update_schema() as change:
        change.add_column("n", LongType())
        change.delete_column("v")
        change.add_column("w", StringType())
    bed.append([{"id": 100, "w": "b", "n": 1}])
    assert bed.compact().is_done
    plan = plan_of(bed, since)
    assert plan.is_by_lineage
    rows = pa.concat_tables(reading.read_changes(plan)).to_pylist()
    assert sorted((row["id"], row["_change_type"], row["w"], row["n"]) for row in rows) == [
        (1, "DELETE", None, None), (100, "INSERT", "b", 1),
    ]  # fmt: skip


def test_a_row_that_is_left_of_equal_ones_is_found_by_its_key(
    bed: MaintainBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.append([{"id": 3, "v": "a"}, {"id": 4, "v": "a"}])
    since = head(bed)
    counts = read_file_set(bed.table()).files["records"].to_pylist()
    # The second row 3, and row 0, so that the file with the first row 3 is compacted too.
    add_vectors(bed.table(), {counts.index(2): [0], counts.index(ROWS): [0]})
    assert bed.compact().is_done
    assert plan_of(bed, since).is_by_lineage
    for lineage_bytes in (0, 1 << 60):
        monkeypatch.setattr(reading, "LINEAGE_BYTES", lineage_bytes)
        rows = pa.concat_tables(reading.read_changes(plan_of(bed, since))).to_pylist()
        assert [(row["id"], row["_change_type"]) for row in rows] == [(0, "DELETE")]


def test_rows_of_before_an_upgrade_have_no_lineage(tmp_path: Path) -> None:
    bed = MaintainBed(tmp_path)
    bed.policy = CompactionPolicy(min_input_files=2, delete_permille=1)
    bed.create(SCHEMA, **{"format-version": "2"})
    bed.append([{"id": key, "v": "a"} for key in range(ROWS)])
    since = head(bed)
    upgrade(bed.table())
    merge(bed, MergeMode.MERGE_ON_READ, k1="c", k2="D")
    bed.append([{"id": 100, "v": "b"}])
    assert bed.compact().is_done
    assert len(changed(bed, since)) == 4
    bed.catalog.close()


@pytest.mark.parametrize(
    ("operation", "summary", "keeps"),
    [
        ("append", {"skipstone.txn": "t"}, True),
        ("replace", {"skipstone.compaction.files": "2"}, True),
        ("overwrite", {**SPARK}, True),
        ("replace", {**SPARK, "engine-version": "4.1.9"}, True),
        ("append", {**SPARK}, False),
        ("overwrite", {**SPARK, "engine-version": "3.5.6"}, False),
        ("overwrite", {**SPARK, "iceberg-version": "Apache Iceberg 1.9.2 (commit abc)"}, False),
        ("overwrite", {**SPARK, "engine-name": "flink"}, False),
        ("overwrite", {"engine-name": "spark"}, False),
        ("overwrite", {}, False),
    ],
)
def test_writers_whose_lineage_is_tested_are_trusted(operation: str, summary: dict[str, str], keeps: bool) -> None:
    assert keeps_lineage(operation, summary) is keeps
