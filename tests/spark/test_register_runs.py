"""Loads of the mode Register: which files become a table's, once, where they are, and what never happens to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.query import plan_read, read
from skipstone.runs.drop import run_drop
from skipstone.runs.registering.intake import NOTHING_TO_REGISTER
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.places import SourceLocationRef
from skipstone_core.contract.reports import JobReport, RunOutcome, UnusedColumn
from skipstone_core.contract.requests import (
    ColumnMapping,
    ConsumePolicy,
    DropTask,
    DuplicatesPolicy,
    JobRequest,
    LoadMode,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.ids import OWNER_PROPERTY
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.spark.load_bed import Bed, again, run, source
from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, task_of
from tests.spark.secondengine import second_spark, spark_rows
from tests.spark.test_load_runs import drive, run_at_once

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "country", StringType())
)
BY_COUNTRY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "country"))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.catalog.close()


def rows(*ids: int, **more: Any) -> pa.Table:
    """Rows without the column that folders tell."""
    columns = {"id": pa.array(ids, pa.int64()), "name": pa.array([f"name{one}" for one in ids], pa.string())}
    return pa.table({**columns, **more})


def put(bed: Bed, name: str, table: pa.Table, **options: Any) -> str:
    """Write a file as a writer that knows nothing of Iceberg; its path."""
    path = bed.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return name


def plain(*paths: str, **rest: Any) -> SourceSpec:
    return source(SourceFormat.PARQUET, *paths, **rest)


def register(bed: Bed, *paths: str, name: str = "t", **rest: Any) -> JobReport:
    return bed.load(plain(*paths, **rest), name, mode=LoadMode.REGISTER)


def request(bed: Bed, *paths: str, **rest: Any) -> JobRequest:
    return bed.request(plain(*paths, **rest), mode=LoadMode.REGISTER)


def digests(bed: Bed, folder: str = "lake") -> dict[str, str]:
    """Content and time of all files below ``folder``: what nobody may change."""
    found = [path for path in sorted((bed.root / folder).rglob("*")) if path.is_file()]
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() + str(one.stat().st_mtime_ns) for one in found}


def ids(bed: Bed, name: str = "t") -> list[int]:
    return sorted(bed.arrow(name)["id"].to_pylist())


def countries(bed: Bed) -> None:
    """A table by country, and three files of a lake in folders of Hive's form."""
    bed.create(SCHEMA, partition_spec=BY_COUNTRY)
    put(bed, "lake/country=DE/a.parquet", rows(1, 2))
    put(bed, "lake/country=New%20Zealand/b.parquet", rows(3))
    put(bed, "lake/country=__HIVE_DEFAULT_PARTITION__/c.parquet", rows(4))
    put(bed, "lake/_tmp/d.parquet", rows(5))
    (bed.root / "lake/_SUCCESS").write_text("")


# --- what folders say ---


def test_columns_that_only_folders_name_are_told(bed: Bed) -> None:
    countries(bed)
    put(bed, "lake/run=7/country=DE/e.parquet", rows(6))
    put(bed, "lake/run=8/x=1/country=DE/f.parquet", rows(7, 8))
    report = register(bed, "lake/**/*.parquet")
    assert report.unused_columns == (UnusedColumn(name="run", rows=3), UnusedColumn(name="x", rows=2))
    assert ids(bed) == [1, 2, 3, 4, 6, 7, 8]


def test_a_file_of_two_names_is_registered_once(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1, 2))
    (bed.root / "lake/b.parquet").hardlink_to(bed.root / "lake/a.parquet")
    said = r"'lake/a\.parquet' and 'lake/b\.parquet' are one file, .*: name one of them only"
    with pytest.raises(BadData, match=said):
        register(bed, "lake/*.parquet")
    register(bed, "lake/a.parquet")  # what the message says
    with pytest.raises(BadData, match="1 files of the source are or were files of the table"):
        register(bed, "lake/b.parquet")
    assert register(bed, "lake/b.parquet", duplicates=DuplicatesPolicy.ALLOW).counts["filesSkipped"] == 1
    (bed.root / "lake/c.parquet").symlink_to("a.parquet")
    assert register(bed, "lake/c.parquet").reason is Reason.SOURCE_ALREADY_APPLIED
    assert ids(bed) == [1, 2]


# --- files stay where they are ---


def test_a_folder_of_a_lake_becomes_a_table_where_it_is(bed: Bed, spark: SparkSession) -> None:
    countries(bed)
    before = digests(bed)
    report = register(bed, "lake")
    assert (report.outcome, report.counts["segment"]) == (RunOutcome.COMMITTED, 1)
    counts = {name: report.counts[name] for name in ("rowsLoaded", "filesRegistered", "filesSkipped")}
    assert counts == {"rowsLoaded": 4, "filesRegistered": 3, "filesSkipped": 0}
    assert "session" not in report.stages_ms
    expected = [(1, "DE"), (2, "DE"), (3, "New Zealand"), (4, None)]
    for found in (bed.arrow(), read(bed.table()), spark_rows(spark, bed.warehouse, "ns.t")):
        assert sorted(zip(*(found[name].to_pylist() for name in ("id", "country")), strict=True)) == expected
    assert read(bed.table(), ["id"], "country = 'New Zealand'")["id"].to_pylist() == [3]
    assert plan_read(bed.table(), "country = 'DE'").funnel.read == 1
    assert digests(bed) == before
    assert bed.data_files() == set()


def test_paths_may_name_single_files_and_patterns(bed: Bed) -> None:
    countries(bed)
    report = register(bed, "lake/country=DE/a.parquet", "lake/country=N*/*.parquet")
    assert report.counts["filesRegistered"] == 2
    assert ids(bed) == [1, 2, 3]


@pytest.mark.parametrize("name", ["a b", "50%", "é", "a%20b", "a'b", "a+b&c"])
def test_every_engine_finds_a_file_whatever_its_name(bed: Bed, spark: SparkSession, name: str) -> None:
    bed.create(SCHEMA)
    put(bed, f"lake/{name}/{name}.parquet", rows(1))
    register(bed, "lake")
    assert ids(bed) == [1]
    assert read(bed.table())["id"].to_pylist() == [1]
    assert spark_rows(spark, bed.warehouse, "ns.t")["id"].to_pylist() == [1]


def test_registered_files_are_indexed_and_merged_like_any_other(bed: Bed, spark: SparkSession) -> None:
    bed.create(SCHEMA, partition_spec=BY_COUNTRY)
    for number, country in enumerate(("DE", "FR", "IT")):
        wide = pa.array(range(number, 300, 3), pa.int64())
        put(bed, f"lake/country={country}/a.parquet", pa.table({"name": pa.array([f"n{i}" for i in wide]), "id": wide}),
            row_group_size=20)  # fmt: skip
    register(bed, "lake")
    before = digests(bed)
    lake = Lake(bed.root)
    lake.reindex(index_on("name"))
    lake.assert_every_row_once(index_on("name"))
    plan = plan_read(bed.table(), "name = 'n7'")
    assert (plan.funnel.min_max, plan.funnel.read) == (3, 1)
    lake.assert_exact("name in ('n7', 'n8', 'n300')")
    merges = MergeBed(bed.root)
    feed = pa.table({"name": ["n7", "n8"], "op": ["U", "D"], "id": pa.array([1007, 8], pa.int64())})
    report = merges.merge(task_of(merges.source(feed), ("name",), when_matched=(DELETE_D, UPDATE)))
    assert (report.counts["filesCandidate"], report.counts["filesRewritten"]) == (2, 2)
    assert digests(bed) == before
    expected = sorted({*range(300), 1007} - {7, 8})
    assert ids(bed) == expected
    assert sorted(spark_rows(spark, bed.warehouse, "ns.t")["id"].to_pylist()) == expected


def test_a_dropped_table_leaves_registered_files_and_takes_its_own(bed: Bed) -> None:
    countries(bed)
    register(bed, "lake")
    bed.load(plain("lake/country=DE/a.parquet"))
    with bed.table().transaction() as change:
        change.set_properties({OWNER_PROPERTY: "table-t"})
    before, own = digests(bed), bed.data_files()
    assert len(own) == 1
    dropped = JobRequest(
        kind=RunKind.DROP, run_id="r", attempt=1, warehouse=bed.warehouse, owner_kind="Table", owner_name="t",
        owner_uid="table-t", table=bed.request(plain("x")).table, drop=DropTask(),
    )  # fmt: skip
    report = run_drop(dropped, Reporter(dropped))
    assert report.reason is Reason.DATA_DELETED
    assert "3 files that lie elsewhere" in report.message
    assert digests(bed) == before
    assert not (bed.root / "ns").exists() or not list((bed.root / "ns").rglob("*"))


# --- once ---


def test_registered_files_stay_when_their_folder_became_the_tables_own(bed: Bed) -> None:
    countries(bed)
    register(bed, "lake")
    before = digests(bed)
    with bed.table().transaction() as change:
        change.set_properties({OWNER_PROPERTY: "table-t", "write.data.path": f"file://{bed.root}/lake"})
    request = replace(bed.request(plain("lake")), kind=RunKind.DROP, load=None, drop=DropTask())
    assert run_drop(request, Reporter(request)).reason is Reason.DATA_DELETED
    assert not bed.catalog.table_exists(("ns", "t"))
    assert digests(bed) == before


def test_a_second_attempt_finds_the_first(bed: Bed) -> None:
    countries(bed)
    first = request(bed, "lake")
    reports = [run(first), run(again(first))]
    assert [one.outcome for one in reports] == [RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED]
    assert reports[0].counts == reports[1].counts
    assert ids(bed) == [1, 2, 3, 4]


def test_drivers_and_jobs_that_race_register_each_file_once(bed: Bed) -> None:
    countries(bed)
    one, other = request(bed, "lake"), request(bed, "lake/country=DE")
    reports = run_at_once([one, one, other])
    assert RunOutcome.COMMITTED in {report.outcome for report in reports}
    assert len(ids(bed)) == len(set(ids(bed)))
    register(bed, "lake", consume=ConsumePolicy.NEW)
    assert ids(bed) == [1, 2, 3, 4]


def test_a_driver_killed_around_its_commit_doubles_and_deletes_nothing(bed: Bed) -> None:
    countries(bed)
    before = digests(bed)
    first = request(bed, "lake")
    code, _ = drive(bed, first, "after SqlCatalog.commit_table", JAVA_HOME="/nonexistent", PATH="/nonexistent")
    assert code != 0
    report = run(again(first))
    assert report.outcome is RunOutcome.ALREADY_COMMITTED
    assert ids(bed) == [1, 2, 3, 4]
    assert digests(bed) == before


def test_files_of_another_job_are_refused_or_left_out_with_a_count(bed: Bed) -> None:
    countries(bed)
    register(bed, "lake/country=DE")
    refused = register(bed, "lake")
    assert (refused.outcome, refused.reason) == (RunOutcome.FAILED, Reason.SOURCE_ALREADY_APPLIED)
    assert "1 files of the source are or were files of the table" in refused.message
    assert ids(bed) == [1, 2]
    allowed = register(bed, "lake", duplicates=DuplicatesPolicy.ALLOW)
    assert (allowed.counts["filesRegistered"], allowed.counts["filesSkipped"]) == (2, 1)
    nothing = register(bed, "lake", consume=ConsumePolicy.NEW)
    assert nothing.message == NOTHING_TO_REGISTER
    put(bed, "lake/country=DE/z.parquet", rows(9))
    new = register(bed, "lake", consume=ConsumePolicy.NEW)
    assert (new.counts["filesRegistered"], new.counts["filesSkipped"]) == (1, 3)
    assert ids(bed) == [1, 2, 3, 4, 9]


def test_a_file_that_was_copied_is_not_registered_besides(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1))
    bed.load(plain("lake/a.parquet"))
    assert register(bed, "lake").reason is Reason.SOURCE_ALREADY_APPLIED
    assert ids(bed) == [1]


def test_a_file_that_a_merge_replaced_never_comes_back(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1, 2))
    register(bed, "lake")
    merges = MergeBed(bed.root)
    feed = pa.table({"id": pa.array([1], pa.int64()), "name": ["changed"], "op": ["U"]})
    merges.merge(task_of(merges.source(feed), ("id",), when_matched=(UPDATE,)))
    put(bed, "lake/b.parquet", rows(3))
    assert register(bed, "lake").reason is Reason.SOURCE_ALREADY_APPLIED
    report = register(bed, "lake", duplicates=DuplicatesPolicy.ALLOW)
    assert (report.counts["filesRegistered"], report.counts["filesSkipped"]) == (1, 1)
    assert [(row["id"], row["name"]) for row in bed.rows()] == [(1, "changed"), (2, "name2"), (3, "name3")]


def test_files_that_another_engine_added_are_not_added_again(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1))
    put(bed, "lake/b.parquet", rows(2))
    bed.table().add_files([f"file:{bed.root}/lake/a.parquet"])
    with pytest.raises(BadData, match=r"1 files of the source .*; the first is 'lake/a.parquet'"):
        register(bed, "lake")
    report = register(bed, "lake", consume=ConsumePolicy.NEW)
    assert (report.counts["filesRegistered"], report.counts["filesSkipped"]) == (1, 1)
    assert ids(bed) == [1, 2]


class Before:
    """Does something once, right before the swap."""

    def __init__(self, act: Any) -> None:
        self._act = act

    def before_swap(self, _: Table) -> None:
        act, self._act = self._act, None
        if act:
            act()

    def after_swap(self, _: Table) -> None:
        pass


def test_a_file_that_another_engine_adds_meanwhile_is_seen(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1))
    put(bed, "lake/b.parquet", rows(2))
    hooks = Before(lambda: bed.table().add_files([f"file://{bed.root}/lake/a.parquet"]))
    report = run(request(bed, "lake", consume=ConsumePolicy.NEW), CommitPorts(hooks=hooks))
    assert (report.counts["filesRegistered"], report.counts["filesSkipped"]) == (1, 1)
    assert ids(bed) == [1, 2]


def test_a_rollback_gives_files_back(bed: Bed) -> None:
    bed.create(SCHEMA)
    bed.load(plain(put(bed, "other/x.parquet", rows(7))))
    put(bed, "lake/a.parquet", rows(1))
    first = bed.table().current_snapshot()
    assert first is not None
    register(bed, "lake")
    with bed.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.snapshot_id)
    assert ids(bed) == [7]
    assert register(bed, "lake", consume=ConsumePolicy.NEW).counts["filesRegistered"] == 1
    assert ids(bed) == [1, 7]


def test_files_without_rows_are_left_out_and_counted(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows())
    report = register(bed, "lake")
    assert (report.outcome, report.counts["filesSkipped"]) == (RunOutcome.COMMITTED, 1)
    assert bed.arrow().num_rows == 0


def test_a_file_that_changes_while_it_is_looked_at_is_told(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1))
    from skipstone.runs.registering import register as registering

    data_files = registering.plan_examination

    def replaced(*given: Any) -> Any:
        put(bed, "lake/a.parquet", rows(1, 2, 3))
        return data_files(*given)

    monkeypatch.setattr(registering, "plan_examination", replaced)
    with pytest.raises(BadData) as told:
        register(bed, "lake")
    assert told.value.reason is Reason.SOURCE_CHANGED
    assert bed.arrow().num_rows == 0


# --- names, ids and columns ---


def test_columns_are_found_by_name_in_any_order_and_missing_ones_are_null(bed: Bed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", pa.table({"country": ["DE"], "id": pa.array([1], pa.int32())}))
    put(bed, "lake/b.parquet", rows(2))
    register(bed, "lake")
    expected = [(1, None, "DE"), (2, "name2", None)]
    for found in (bed.arrow(), read(bed.table()), spark_rows(spark, bed.warehouse, "ns.t")):
        assert sorted(zip(*(found[name].to_pylist() for name in ("id", "name", "country")), strict=True)) == expected
    assert read(bed.table(), ["id"], "name is null")["id"].to_pylist() == [1]


def test_a_renamed_column_keeps_the_values_of_registered_files(bed: Bed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1))
    register(bed, "lake")
    with bed.table().update_schema() as update:
        update.rename_column("name", "label")
    for found in (bed.arrow(), read(bed.table()), spark_rows(spark, bed.warehouse, "ns.t")):
        assert found["label"].to_pylist() == ["name1"]
    put(bed, "lake/b.parquet", pa.table({"label": ["new"], "id": pa.array([2], pa.int64())}))
    report = register(bed, "lake/b.parquet")
    assert report.outcome is RunOutcome.COMMITTED
    for found in (bed.arrow(), read(bed.table()), spark_rows(spark, bed.warehouse, "ns.t")):
        assert sorted(found["label"].to_pylist()) == ["name1", "new"]


def test_source_mapping_gives_a_column_another_name(bed: Bed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", pa.table({"ID": pa.array([1], pa.int64()), "Full Name": ["x"]}))
    mapping = (ColumnMapping(column="id", from_="ID"), ColumnMapping(column="name", from_="Full Name"))
    register(bed, "lake", mapping=mapping)
    for found in (bed.arrow(), read(bed.table()), spark_rows(spark, bed.warehouse, "ns.t")):
        assert [found[name].to_pylist() for name in ("id", "name")] == [[1], ["x"]]


REFUSED = [
    ({"ID": [1]}, "column 'ID' differs from the table's column 'id' in case", Reason.COLUMN_NOT_FOUND),
    ({"id": [1], "extra": [1]}, "column 'extra' is not in the table", Reason.COLUMN_NOT_FOUND),
]


@pytest.mark.parametrize(("columns", "says", "reason"), REFUSED)
def test_columns_that_readers_stumble_over_are_refused(
    bed: Bed, columns: dict[str, list[int]], says: str, reason: Reason
) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}))
    with pytest.raises(UserError, match=says) as refused:
        register(bed, "lake")
    assert refused.value.reason is reason
    assert str(refused.value).startswith("source: 'lake/a.parquet': ")
    assert bed.table().current_snapshot() is None


def test_a_required_column_must_be_there_and_hold_no_null(bed: Bed) -> None:
    bed.create(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))
    put(bed, "missing/a.parquet", pa.table({"name": ["x"]}))
    with pytest.raises(BadData, match=r"'missing/a\.parquet' has no column 'id'"):
        register(bed, "missing")
    some = pa.table({"id": pa.array([1, None], pa.int64())})
    for name, options in (("known", {}), ("unknown", {"write_statistics": False})):
        put(bed, f"{name}/a.parquet", some, **options)
        with pytest.raises(BadData, match="column 'id' holds 1 nulls") as refused:
            register(bed, name)
        assert refused.value.reason is Reason.BAD_RECORDS
    put(bed, "good/a.parquet", some.slice(0, 1), write_statistics=False)
    register(bed, "good")
    assert ids(bed) == [1]


def with_ids(table: pa.Table, **numbers: int) -> pa.Table:
    """``table`` with field ids, as writers of Iceberg note them."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(numbers[field.name])}) if field.name in numbers else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def test_field_ids_of_this_table_are_taken_and_those_of_others_refused(bed: Bed, spark: SparkSession) -> None:
    bed.create(SCHEMA)
    put(bed, "good/a.parquet", with_ids(rows(1), id=1, name=2))
    register(bed, "good")
    assert "schema.name-mapping.default" not in bed.table().properties
    assert spark_rows(spark, bed.warehouse, "ns.t")["name"].to_pylist() == ["name1"]
    put(bed, "swapped/a.parquet", with_ids(rows(1), id=2, name=1))
    with pytest.raises(BadSpec, match="column 'id' has the field id 2, and in the table it is field 1") as refused:
        register(bed, "swapped")
    assert refused.value.reason is Reason.SCHEMA_MISMATCH
    put(bed, "some/a.parquet", with_ids(rows(1), id=1))
    with pytest.raises(BadSpec, match="column 'name' has no field id beside columns that have one"):
        register(bed, "some")


def test_a_name_mapping_of_others_is_kept_and_completed(bed: Bed) -> None:
    bed.create(SCHEMA, **{"schema.name-mapping.default": '[{"field-id": 2, "names": ["name", "label"]}]'})
    put(bed, "lake/a.parquet", rows(1))
    register(bed, "lake")
    mapping = bed.table().metadata.name_mapping()
    assert mapping is not None
    assert {one.field_id: one.names for one in mapping} == {1: ["id"], 2: ["name", "label"], 3: ["country"]}
    put(bed, "other/a.parquet", pa.table({"name": pa.array([5], pa.int64())}))
    with pytest.raises(BadSpec, match="the name 'name' would stand for the fields 1 and 2 of the table"):
        register(bed, "other", mapping=(ColumnMapping(column="id", from_="name"),))


def test_columns_of_foreign_files_that_the_mapping_does_not_name_are_passed_by(bed: Bed) -> None:
    """As Spark's add_files lets them in; PyIceberg reads no such table."""
    bed.create(SCHEMA, **{"schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}]'})
    path = put(
        bed, "lake/a.parquet", pa.table({"odd": pa.array([1], pa.time32("ms")), "id": pa.array([1], pa.int64())})
    )
    add_as_it_is(bed.table(), bed.root / path)
    assert read(bed.table(), ["id"])["id"].to_pylist() == [1]


def add_as_it_is(table: Table, path: Path) -> None:
    """Add a file of one row without a look at it."""
    nothing: dict[int, Any] = {}
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=Record(),
        record_count=1, file_size_in_bytes=path.stat().st_size, column_sizes=nothing, value_counts=nothing,
        null_value_counts=nothing, nan_value_counts=nothing, lower_bounds=nothing, upper_bounds=nothing,
        split_offsets=[4], key_metadata=None, equality_ids=None, sort_order_id=None,
    )  # fmt: skip
    file.spec_id = 0
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)


# --- partitions ---


def test_partitions_of_transforms_are_those_of_the_rows(bed: Bed, spark: SparkSession) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "day", DateType()))
    month = PartitionField(2, 1000, MonthTransform(), "m")
    bed.create(schema, partition_spec=PartitionSpec(month, PartitionField(1, 1001, BucketTransform(4), "b")))
    days = [date(2024, 2, 1), date(2024, 2, 29)]
    put(bed, "lake/a.parquet", pa.table({"id": pa.array([7, 7], pa.int32()), "day": days}))
    put(bed, "lake/b.parquet", pa.table({"id": pa.array([None], pa.int32())}))
    register(bed, "lake")
    partitions = {tuple(task.file.partition) for task in bed.table().scan().plan_files()}  # type: ignore[arg-type]
    assert partitions == {(649, BucketTransform(4).transform(IntegerType())(7)), (None, None)}
    assert spark_rows(spark, bed.warehouse, "ns.t").num_rows == 3
    second = second_spark(spark, bed.warehouse)
    sql = f"select id from {bed.warehouse.catalog.name}.ns.t where day = date'2024-02-29' and id = 7"
    assert [row.id for row in second.sql(sql).collect()] == [7]


PARTITIONS = [
    ("lake/a.parquet", rows(1), "is partitioned by 'country', which neither the file nor a folder"),
    ("lake/country=DE/country=FR/a.parquet", rows(1), "name the column 'country' twice"),
    ("lake/a.parquet", rows(1, 2, country=pa.array(["DE", "FR"])), "holds rows of several partitions"),
    ("lake/country=DE/a.parquet", rows(1, country=pa.array(["FR"])), "its folder and its rows differ in the column"),
    ("lake/country=DE/id=5/a.parquet", rows(1).select(["name"]), "the folders name the column 'id', which the file"),
]


@pytest.mark.parametrize(("name", "table", "says"), PARTITIONS)
def test_a_partition_that_is_not_certain_is_refused(bed: Bed, name: str, table: pa.Table, says: str) -> None:
    bed.create(SCHEMA, partition_spec=BY_COUNTRY)
    put(bed, name, table)
    with pytest.raises(BadData, match=says):
        register(bed, "lake")
    assert bed.table().current_snapshot() is None


def test_a_column_in_the_file_tells_its_partition_also_without_statistics(bed: Bed) -> None:
    bed.create(SCHEMA, partition_spec=BY_COUNTRY)
    put(bed, "lake/a.parquet", rows(1, 2, country=pa.array(["DE", "DE"])), write_statistics=False)
    put(bed, "lake/country=FR/b.parquet", rows(3, country=pa.array(["FR"])))
    register(bed, "lake")
    assert read(bed.table(), ["id"], "country = 'DE'").num_rows == 2
    assert plan_read(bed.table(), "country = 'FR'").funnel.read == 1


# --- what is refused as a whole ---


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("lake/_delta_log/00000.json", "'lake' holds a Delta table"),
        ("lake/.hoodie/hoodie.properties", "'lake' holds a Hudi table"),
        ("lake/metadata/v1.metadata.json", "'lake' holds an Iceberg table"),
        ("_delta_log/00000.json", r"'\.' holds a Delta table"),
    ],
)
def test_files_of_a_table_with_a_log_of_its_own_are_refused(bed: Bed, made: str, says: str) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/data/country=DE/a.parquet", rows(1))
    bed.put(made, "{}")
    with pytest.raises(BadData, match=says):
        register(bed, "lake/data")


def test_files_of_other_tables_of_the_warehouse_are_refused(bed: Bed) -> None:
    bed.create(SCHEMA)
    bed.create(SCHEMA, "other")
    bed.load(plain(put(bed, "in/a.parquet", rows(1))), "other")
    with pytest.raises(BadData, match="'ns/other' holds an Iceberg table"):
        register(bed, "ns/other/data")


def test_files_in_the_tables_own_place_are_taken_beside_its_own_files_only(bed: Bed) -> None:
    """A folder that was a table of Hive, and in which the Iceberg table was made."""
    bed.create(SCHEMA, partition_spec=BY_COUNTRY)
    put(bed, "ns/t/country=DE/a.parquet", rows(1))
    register(bed, "ns/t/country=DE")
    assert ids(bed) == [1]
    put(bed, "ns/t/data/b.parquet", rows(2))
    with pytest.raises(BadSpec, match=r"'ns/t/data/b\.parquet' lies in a folder of the table's own files"):
        register(bed, "ns/t/data")


def test_names_that_end_a_path_for_engines_are_refused(bed: Bed) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a:b/a.parquet", rows(1))
    register(bed, "lake")
    for folder, name, said in (("1", "a#1.parquet", "#"), ("2", "a?.parquet", "[?]"), ("3", "x:y.parquet", ":")):
        put(bed, f"other/{folder}/{name}", rows(1))
        with pytest.raises(BadSpec, match=f"has '{said}' in its name"):
            register(bed, f"other/{folder}")


def test_a_location_that_other_runs_do_not_mount_is_refused(bed: Bed, tmp_path: Path) -> None:
    bed.create(SCHEMA)
    put(bed, "drop/a.parquet", rows(1))
    place = SourceLocationRef(name="drop", root=str(bed.root / "drop"))
    asked = request(bed, "a.parquet", location="drop")
    asked = replace(asked, warehouse=replace(asked.warehouse, locations=(place,)))
    with pytest.raises(BadSpec, match=r"source location 'drop' cannot be registered: .* do not mount it"):
        run(asked)


@pytest.mark.parametrize("content", [b"PAR1 no more", b"", b"id,name\n1,x\n"])
def test_what_is_no_parquet_file_is_named(bed: Bed, content: bytes) -> None:
    bed.create(SCHEMA)
    put(bed, "lake/a.parquet", rows(1))
    bed.put("lake/readme.txt", content)
    with pytest.raises(BadData, match=r"'lake/readme\.txt': this is not a readable Parquet file"):
        register(bed, "lake")
    assert register(bed, "lake/*.parquet").counts["filesRegistered"] == 1


def test_days_of_the_old_calendar_are_refused(bed: Bed) -> None:
    bed.create(Schema(NestedField(1, "day", DateType())))
    for name, day in (("old", date(1500, 1, 1)), ("new", date(1600, 1, 1))):
        table = pa.table({"day": pa.array([day])}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
        put(bed, f"{name}/a.parquet", table)
    with pytest.raises(
        BadData, match="column 'day' may hold days of the calendar that Spark used before its version 3"
    ):
        register(bed, "old")
    assert register(bed, "new").outcome is RunOutcome.COMMITTED
