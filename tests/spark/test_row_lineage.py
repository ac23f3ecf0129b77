"""Tables of format version 3: loads and merges keep the ids of rows, as plain Spark sees them, and Spark goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.tables.catalogs import NotSentError
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.errors import BadSpec
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, AtSwap, MergeBed, task_of
from tests.spark.rawdeletes import add_equality_delete
from tests.spark.secondengine import second_spark

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


def assert_refused(bed: MergeBed, said: str) -> None:
    with pytest.raises(BadSpec, match=said) as caught:
        merge(bed, {1: "one"})
    assert caught.value.reason is Reason.FORMAT_VERSION_UNSUPPORTED


def test_a_column_with_a_name_of_lineage_is_refused(bed: MergeBed) -> None:
    bed.create(
        Schema(NestedField(1, "id", LongType()), NestedField(2, "_row_id", LongType())), **{"format-version": "3"}
    )
    assert_refused(bed, "has a column '_row_id'")


def test_a_type_that_nobody_here_reads_is_told(bed: MergeBed, other: SparkSession) -> None:
    other.sql(
        "create table skipstone.ns.t (id bigint, name variant) using iceberg tblproperties ('format-version' = '3')"
    )
    assert_refused(bed, "cannot read .*variant")


def test_a_default_for_writers_is_refused(bed: MergeBed) -> None:
    table = bed.create(Schema(NestedField(1, "id", LongType(), required=True)), **{"format-version": "3"})
    with table.update_schema() as change:
        change.add_column("name", StringType(), default_value="x")
    assert_refused(bed, "has a default for column 'name'")


def test_metadata_that_pyiceberg_would_lose_is_not_written_again(bed: MergeBed) -> None:
    table = bed.create(SCHEMA, **{"format-version": "3"})
    place = Path(table.metadata_location.removeprefix("file://"))
    key = {"key-id": "k", "encrypted-key-metadata": "AAAA"}
    place.write_text(json.dumps({**json.loads(place.read_text()), "encryption-keys": [key]}))
    assert_refused(bed, "has encryption-keys in its metadata, which a commit would lose")
    with pytest.raises(NotSentError, match="encryption-keys"), bed.table().transaction() as change:
        change.set_properties({"a": "1"})
    assert bed.table().metadata_location == table.metadata_location


def test_maintenance_leaves_tables_of_format_version_3_alone(tmp_path: Path) -> None:
    bed = MaintainBed(tmp_path)
    bed.create(SCHEMA, **{"format-version": "3"})
    bed.append(people(0, 3))
    head = bed.table().metadata_location
    policy = MaintenancePolicy(snapshots=SnapshotPolicy(max_age_seconds=0))
    with pytest.raises(BadSpec, match="has Iceberg format version 3, which maintenance does not support") as told:
        bed.run(bed.maintenance((MaintenanceStep.SNAPSHOTS,), policy))
    assert told.value.reason is Reason.FORMAT_VERSION_UNSUPPORTED
    assert bed.table().metadata_location == head
    bed.catalog.close()
