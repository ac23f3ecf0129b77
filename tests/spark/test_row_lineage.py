"""Tables of format version 3: loads and merges keep the ids of rows, as plain Spark sees them, and Spark goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestampNanoType
from pyspark.sql import SparkSession
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import NotSentError
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import read_file_set
from skipstone.tables.states import table_state
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import LoadMode, LoadTask, RunKind, SourceFormat, SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.maintenance.policies import (
    EqualityDeletesPolicy,
    MaintenancePolicy,
    MaintenanceStep,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.index_bed import Lake, index_on
from tests.spark.inline_bed import BY_NAME, InlineBed, change, rows
from tests.spark.lake import read_all
from tests.spark.load_bed import Bed, source
from tests.spark.maintain_bed import EAGER, MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, AtSwap, MergeBed, rows_of, task_of
from tests.spark.rawdeletes import add_equality_delete
from tests.spark.secondengine import second_spark, spark_rows

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
#: Id of a row -> its name, row id, and the sequence number of its last change.
Rows = Mapping[int, tuple[str, int, int]]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


@pytest.fixture
def other(bed: MergeBed, spark: SparkSession) -> SparkSession:
    return second_spark(spark, bed.warehouse)


def seen(other: SparkSession) -> Rows:
    names = ("id", "name", "_row_id", "_last_updated_sequence_number")
    return {row[0]: tuple(row[1:]) for row in other.table("skipstone.ns.t").select(*names).collect()}


def people(start: int, count: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"name {number}"} for number in range(start, start + count)]


def merge(bed: MergeBed, changes: Mapping[int, str | None], ports: CommitPorts | None = None) -> None:
    """A name updates or inserts, None deletes."""
    rows = {
        "id": pa.array(changes, pa.int64()),
        "name": pa.array(changes.values(), pa.string()),
        "op": ["D" if name is None else "U" for name in changes.values()],
    }
    report = bed.merge(task_of(bed.source(pa.table(rows)), when_matched=(DELETE_D, UPDATE)), ports=ports)
    assert report.outcome is RunOutcome.COMMITTED


def assert_kept(before: Rows, changes: Mapping[int, str | None], after: Rows, sequence: int) -> None:
    """Rows have their ids of before; new ones have ids that no row ever had."""
    gone = {number for number, name in changes.items() if name is None and number in before}
    assert {number: row[0] for number, row in after.items()} == {
        number: changes.get(number, before[number][0] if number in before else None)
        for number in ({*before, *changes} - gone)
    }
    for number, (_, row_id, changed) in after.items():
        if number in before:
            assert row_id == before[number][1]
        assert changed == (sequence if number in changes else before[number][2])
    assert len({row[1] for row in after.values()}) == len(after)


@pytest.mark.parametrize("mode", MergeMode)
def test_rows_keep_their_ids_through_merges_of_ours_and_of_spark(
    bed: MergeBed, other: SparkSession, mode: MergeMode
) -> None:
    bed.create(SCHEMA, **{"format-version": "3", MERGE_MODE: mode, "write.delete.mode": "merge-on-read"})
    bed.append(people(0, 12), people(12, 12))
    draw, rows, ever = random.Random(3), seen(other), 24
    assert {number: row[1] for number, row in rows.items()} == {number: number for number in range(24)}
    for step in range(6):
        picked = draw.sample(range(ever + 3), 6)
        changes = {number: None if draw.random() < 0.3 and number in rows else f"step {step}" for number in picked}
        if step % 3 == 1:
            gone = [number for number in sorted(rows) if draw.random() < 0.15]
            other.sql(f"delete from skipstone.ns.t where id in ({', '.join(map(str, gone or [-1]))})").collect()
            rows = seen(other)
        merge(bed, changes)
        after = seen(other)
        sequence = bed.table().metadata.last_sequence_number
        assert_kept(rows, changes, after, sequence)
        assert bed.table().metadata.next_row_id > max(row[1] for row in after.values())  # type: ignore[union-attr]
        rows, ever = after, max(ever, *picked) + 1
    vectors = [delete for delete in read_file_set(bed.table()).delete_files if delete.is_vector]
    paths = [delete.only_path for delete in vectors]
    assert len(set(paths)) == len(paths)


def test_an_upgraded_table_gives_out_ids_once_and_takes_old_deletes_along(bed: MergeBed, other: SparkSession) -> None:
    bed.create(SCHEMA, **{MERGE_MODE: MergeMode.MERGE_ON_READ, "write.delete.mode": "merge-on-read"})
    bed.append(people(0, 12), people(12, 12))
    other.sql("alter table skipstone.ns.t set tblproperties ('write.delete.granularity' = 'partition')")
    other.sql("delete from skipstone.ns.t where id in (1, 13)").collect()
    add_equality_delete(bed.table(), {"id": [5]})
    other.sql("alter table skipstone.ns.t set tblproperties ('format-version' = '3')")
    merge(bed, {2: "two", 14: None, 100: "new"})
    first = seen(other)
    assert sorted(first) == [*(number for number in range(24) if number not in (1, 5, 13, 14)), 100]
    assert len({row[1] for row in first.values()}) == len(first)
    merge(bed, {2: "again", 3: "three"})
    assert_kept(first, {2: "again", 3: "three"}, seen(other), bed.table().metadata.last_sequence_number)


def test_an_upgrade_and_a_commit_between_plan_and_swap_void_the_plan(bed: MergeBed, other: SparkSession) -> None:
    bed.create(SCHEMA)
    bed.append(people(0, 12))

    def upgrade() -> None:
        other.sql("alter table skipstone.ns.t set tblproperties ('format-version' = '3')")
        other.sql("insert into skipstone.ns.t values (50, 'theirs')").collect()
        between.update(seen(other))

    between: dict[int, tuple[str, int, int]] = {}
    merge(bed, {2: "two"}, CommitPorts(hooks=AtSwap(before=upgrade)))
    assert_kept(between, {2: "two"}, seen(other), bed.table().metadata.last_sequence_number)


def test_an_upgrade_alone_between_plan_and_swap_voids_the_plan(bed: MergeBed, other: SparkSession) -> None:
    bed.create(SCHEMA)
    bed.append(people(0, 12), people(12, 12))
    upgrade = "alter table skipstone.ns.t set tblproperties ('format-version' = '3')"
    merge(bed, {2: "two"}, CommitPorts(hooks=AtSwap(before=lambda: other.sql(upgrade) and None)))
    found = seen(other)
    assert found[2][0] == "two"
    assert len({row[1] for row in found.values()}) == len(found) == 24


def assert_refused(bed: MergeBed, said: str) -> None:
    with pytest.raises(BadSpec, match=said) as caught:
        merge(bed, {1: "one"})
    assert caught.value.reason is Reason.FORMAT_VERSION_UNSUPPORTED


def test_a_column_with_a_name_of_lineage_is_refused(bed: MergeBed) -> None:
    bed.create(
        Schema(NestedField(1, "id", LongType()), NestedField(2, "_row_id", LongType())), **{"format-version": "3"}
    )
    assert_refused(bed, "has a column '_row_id'")


def test_a_type_that_is_not_written_is_told(bed: MergeBed) -> None:
    bed.create(
        Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampNanoType())), **{"format-version": "3"}
    )
    assert_refused(bed, "has a column 'at' of type timestamp_ns, which Skipstone does not write; drop the column")
    with bed.table().update_schema() as change:
        change.delete_column("at")
    assert table_state(bed.catalog, bed.ref).state.problem is None


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_inserted_rows_have_the_defaults_of_columns_that_the_source_lacks(
    tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    """Old rows have the default too; a null that somebody wrote is one, before and after a compaction."""
    bed = MaintainBed(tmp_path)
    table = bed.create(
        Schema(NestedField(1, "id", LongType(), required=True)), **{"format-version": "3", "write.merge.mode": mode}
    )
    bed.append([{"id": number} for number in range(4)])
    with table.update_schema() as change:
        change.add_column("name", StringType(), default_value="x")
        change.add_column("n", LongType(), default_value=7)
    bed.append([{"id": 10, "name": None, "n": None}, {"id": 11, "name": "own", "n": 1}])
    with_n = bed.source(pa.table({"id": [0, 20], "n": pa.array([None, 5], pa.int64())}), "with-n")
    assert bed.merge(task_of(with_n)).reason is Reason.COMMITTED
    bare = bed.source([{"id": 1}, {"id": 21}], "bare")
    assert bed.merge(task_of(bare)).reason is Reason.COMMITTED
    rows = dict.fromkeys((1, 2, 3, 21), ("x", 7))
    rows |= {0: ("x", None), 10: (None, None), 11: ("own", 1), 20: ("x", 5)}
    loaded = bed.text("more.csv", "id,name\n30,own\n31,\n")
    given = SourceSpec(format=SourceFormat.CSV, paths=(loaded,), options={"header": "true"})
    request = replace(bed.request(task_of(bare)), kind=RunKind.LOAD, merge=None, load=LoadTask(source=given))
    assert run_load(request, Reporter(request)).reason is Reason.COMMITTED
    rows |= {30: ("own", 7), 31: (None, 7)}
    expected = sorted(repr((number, *values)) for number, values in rows.items())
    for _ in range(2):
        assert rows_of(read_all(bed.table())) == expected
        assert rows_of(spark_rows(spark, bed.warehouse, "ns.t")) == expected
        bed.compact()
    assert len(bed.files()) == 1


def test_a_decimal_that_another_writer_spells_without_a_blank_is_nothing_that_a_commit_loses(bed: MergeBed) -> None:
    decimals = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "m", DecimalType(9, 2)))
    table = bed.create(decimals, **{"format-version": "3"})
    place = Path(table.metadata_location.removeprefix("file://"))
    place.write_text(place.read_text().replace("decimal(9, 2)", "decimal(9,2)"))
    assert "decimal(9,2)" in place.read_text()
    report = bed.merge(task_of(bed.source([{"id": 1, "m": Decimal("1.25")}])))
    assert report.reason is Reason.COMMITTED, report.message


def test_metadata_that_pyiceberg_would_lose_is_not_written_again(bed: MergeBed) -> None:
    table = bed.create(SCHEMA, **{"format-version": "3"})
    place = Path(table.metadata_location.removeprefix("file://"))
    key = {"key-id": "k", "encrypted-key-metadata": "AAAA"}
    place.write_text(json.dumps({**json.loads(place.read_text()), "encryption-keys": [key]}))
    assert_refused(bed, "has encryption-keys in its metadata, which a commit would lose")
    with pytest.raises(NotSentError, match="encryption-keys"), bed.table().transaction() as change:
        change.set_properties({"a": "1"})
    assert bed.table().metadata_location == table.metadata_location


ALL_STEPS = MaintenancePolicy(
    equality_deletes=EqualityDeletesPolicy(min_files=1),
    compaction=EAGER,
    snapshots=SnapshotPolicy(max_age_seconds=0),
    orphan_files=OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60),
)


def maintain(bed: MergeBed) -> JobReport:
    """A whole run."""
    made = MaintainBed(bed.root)
    report = made.run(made.maintenance(tuple(MaintenanceStep), ALL_STEPS))
    made.catalog.close()
    return report


def test_what_would_be_lost_keeps_a_table_from_being_maintained(bed: MergeBed) -> None:
    bed.create(SCHEMA, **{"format-version": "3"})
    bed.append(people(0, 3), people(3, 3))
    head = bed.table().metadata_location
    place = Path(head.removeprefix("file://"))
    key = {"key-id": "k", "encrypted-key-metadata": "AAAA"}
    place.write_text(json.dumps({**json.loads(place.read_text()), "encryption-keys": [key]}))
    steps = maintain(bed).steps
    assert {one.reason for one in steps} == {Reason.FORMAT_VERSION_UNSUPPORTED}
    assert all("ns.t has encryption-keys in its metadata, which a commit would lose" in one.message for one in steps)
    assert bed.table().metadata_location == head


def test_an_encrypted_table_is_left_to_engines_that_encrypt(bed: MergeBed) -> None:
    bed.create(SCHEMA, **{"format-version": "3"})
    bed.append(people(0, 3), people(3, 3))
    with bed.table().transaction() as change:
        change.set_properties({"encryption.key-id": "k"})
    steps = maintain(bed).steps
    assert {one.reason for one in steps} == {Reason.FORMAT_VERSION_UNSUPPORTED}
    assert all("ns.t is encrypted" in one.message for one in steps)
    with pytest.raises(BadSpec, match=r"ns\.t is encrypted, so its files cannot be read; query it with") as caught:
        Lake(bed.root).reindex(index_on("id"))
    assert caught.value.reason is Reason.FORMAT_VERSION_UNSUPPORTED


def test_the_state_of_a_table_counts_deletion_vectors(bed: MergeBed, other: SparkSession) -> None:
    bed.create(SCHEMA, **{"format-version": "3", "write.delete.mode": "merge-on-read"})
    bed.append(people(0, 12), people(12, 12), people(24, 12))
    other.sql("delete from skipstone.ns.t where id in (1, 2, 13)").collect()
    state = table_state(bed.catalog, replace(bed.ref, maintenance=ALL_STEPS)).state
    assert state.health is not None
    assert (state.rows, state.health.deleted_rows, state.health.delete_files) == (33, 3, 2)
    assert state.health.due_files == 3
    assert maintain(bed).steps[1].counts["rowsDropped"] == 3
    assert read_file_set(bed.table()).delete_files == []


def test_registered_files_give_rows_ids_that_merges_and_compactions_keep(bed: MergeBed, other: SparkSession) -> None:
    loads = Bed(bed.root)
    bed.create(SCHEMA, **{"format-version": "3"})
    for name, start in (("a", 0), ("b", 5)):
        registered(bed, f"lake/{name}.parquet", people(start, 5))
    assert loads.load(source(SourceFormat.PARQUET, "lake"), mode=LoadMode.REGISTER).outcome is RunOutcome.COMMITTED
    before = seen(other)
    assert sorted(row[1] for row in before.values()) == list(range(10))
    merge(bed, {2: "two", 11: "eleven"})
    after = seen(other)
    assert_kept(before, {2: "two", 11: "eleven"}, after, bed.table().metadata.last_sequence_number)
    assert maintain(bed).steps[1].counts["filesRewritten"] > 1
    assert seen(other) == after
    taken = registered(bed, "lake/c.parquet", [{"id": 20, "name": "theirs", "_row_id": 3}])
    with pytest.raises(BadSpec, match="column '_row_id' holds the lineage of rows of another table"):
        loads.load(source(SourceFormat.PARQUET, taken), mode=LoadMode.REGISTER)
    assert loads.load(source(SourceFormat.PARQUET, taken)).outcome is RunOutcome.COMMITTED
    assert len({row[1] for row in seen(other).values()}) == 12
    loads.catalog.close()


def test_inline_indexes_stay_in_sync_through_an_upgrade_and_maintenance(tmp_path: Path, spark: SparkSession) -> None:
    bed, maintained = InlineBed(tmp_path, (BY_NAME,)), MaintainBed(tmp_path)
    other = second_spark(spark, maintained.warehouse)
    bed.create(**{MERGE_MODE: MergeMode.MERGE_ON_READ, "write.delete.mode": "merge-on-read"})
    for start in (0, 20, 40):
        bed.load(rows(start, 20))
    other.sql("alter table skipstone.ns.t set tblproperties ('format-version' = '3')")
    bed.assert_in_sync(bed.merge([change(3), change(25), change(70)]))
    before = seen(other)
    other.sql("delete from skipstone.ns.t where id in (7, 41)").collect()
    bed.assert_in_sync(maintained.run(maintained.compaction(BY_NAME)))
    assert seen(other) == {number: row for number, row in before.items() if number not in (7, 41)}
    bed.lake.catalog.close()
    bed.merges.catalog.close()
    maintained.catalog.close()


def registered(bed: MergeBed, path: str, rows: list[dict[str, object]]) -> str:
    """A Parquet file of another writer."""
    place = bed.root / path
    place.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), place)
    return path
