"""The table run: what it creates, what it evolves, and what it refuses in one sentence that names the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.table import run_table
from skipstone_core.contract.columns import PartitionFieldSpec, SortFieldSpec
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    ColumnSpec,
    JobRequest,
    Management,
    RunKind,
    TableRef,
    TableTask,
    WarehouseRef,
)
from skipstone_core.errors import BadSpec
from skipstone_core.ids import EVOLVED_PROPERTY
from skipstone_core.reasons import Reason

from tests.spark.lake import append
from tests.spark.secondengine import second_spark

UID = "9d1f0c3e-0000-4000-8000-000000000001"
ID = ColumnSpec(name="id", type="long", required=True)
NAME = ColumnSpec(name="name", type="string", doc="who")
SMALL = ColumnSpec(name="n", type="int")
Run = Callable[..., JobReport]


@pytest.fixture
def run(warehouse: WarehouseRef) -> Run:
    """Run with a task of the given fields, as the Table with uid UID."""

    def go(*columns: ColumnSpec, ref: dict[str, Any] | None = None, **task: Any) -> JobReport:
        request = JobRequest(
            kind=RunKind.TABLE,
            run_id="r-1",
            attempt=1,
            warehouse=warehouse,
            owner_kind="Table",
            owner_name="t",
            owner_uid=UID,
            table=TableRef(namespace="ns", name="t", **{"uid": UID, **(ref or {})}),
            table_task=TableTask(columns=columns, **task),
        )
        return run_table(request, Reporter(request))

    return go


def refused(reason: Reason, field: str, said: str, call: Callable[[], object]) -> None:
    """``call`` must be refused with this reason, naming this field."""
    with pytest.raises(BadSpec) as caught:
        call()
    assert caught.value.reason is reason
    assert caught.value.field == field
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def table(catalog: Catalog) -> Table:
    """The table as it is now."""
    return catalog.load_table(("ns", "t"))


def test_a_new_table_has_the_declared_shape(run: Run, catalog: Catalog) -> None:
    report = run(
        ID,
        NAME,
        ColumnSpec(name="at", type="timestamptz"),
        primary_key=("id",),
        partitioning=(
            PartitionFieldSpec(column="at", transform="Day"),
            PartitionFieldSpec(column="id", transform="Bucket", width=8),
        ),
        sort_order=(SortFieldSpec(column="name", direction="Descending"),),
        properties={"write.target-file-size-bytes": "1000000"},
    )
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.CREATED)
    made = table(catalog)
    assert made.metadata.format_version == 2
    assert [str(field.transform) for field in made.spec().fields] == ["day", "bucket[8]"]
    assert [field.name for field in made.spec().fields] == ["at_day", "id_bucket_8"]
    assert made.schema().identifier_field_names() == {"id"}
    assert made.properties["skipstone.owner"] == UID
    assert made.properties["write.target-file-size-bytes"] == "1000000"
    (state,) = report.table_states
    assert state.table_uuid == str(made.metadata.table_uuid)
    assert state.columns == {"id": "long", "name": "string", "at": "timestamptz"}
    assert state.field_ids == {"id": 1, "name": 2, "at": 3}
    assert (state.rows, state.files, state.segments.total, state.owner) == (0, 0, 0, UID)


def test_the_state_says_which_metadata_it_was_read_from(run: Run, catalog: Catalog) -> None:
    (first,) = run(ID, NAME).table_states
    (second,) = run(ID, NAME, SMALL, field_ids={"id": 1, "name": 2}).table_states
    metadata = table(catalog).metadata
    assert second.metadata.uuid == first.metadata.uuid == str(metadata.table_uuid)
    assert second.metadata.version > first.metadata.version
    assert second.metadata.updated_ms == metadata.last_updated_ms


def test_spark_sees_the_declared_shape(run: Run, spark: SparkSession, warehouse: WarehouseRef) -> None:
    run(ID, NAME, partitioning=(PartitionFieldSpec(column="id", transform="Truncate", width=10),))
    described = second_spark(spark, warehouse).sql("describe skipstone.ns.t").collect()
    shown = {row["col_name"]: row["data_type"] for row in described}
    assert shown["id"] == "bigint"
    assert "truncate(10, id)" in shown.values()


def test_running_again_changes_nothing(run: Run, catalog: Catalog) -> None:
    run(ID, NAME, primary_key=("id",))
    before = table(catalog).metadata_location
    report = run(ID, NAME, primary_key=("id",), field_ids={"id": 1, "name": 2})
    assert report.reason is Reason.CREATED
    assert table(catalog).metadata_location == before


def test_safe_changes_are_applied(run: Run, catalog: Catalog) -> None:
    run(ID, SMALL, ColumnSpec(name="f", type="float"), ColumnSpec(name="d", type="decimal(9,2)"))
    append(table(catalog), pa.table({"id": pa.array([1], pa.int64()), "n": pa.array([5], pa.int32())}))
    run(
        replace(ID, required=False),
        replace(SMALL, type="long"),
        ColumnSpec(name="f", type="double"),
        ColumnSpec(name="d", type="decimal(18, 2)"),
        NAME,
        properties={"comment": "hello"},
    )
    made = table(catalog)
    fields = [(f.name, str(f.field_type), f.required) for f in made.schema().fields]
    assert fields == [
        ("id", "long", False),
        ("n", "long", False),
        ("f", "double", False),
        ("d", "decimal(18, 2)", False),
        ("name", "string", False),
    ]
    assert made.schema().find_field("name").doc == "who"
    assert made.properties["comment"] == "hello"
    assert made.scan().to_arrow().to_pylist()[0]["n"] == 5


@pytest.mark.parametrize(
    "case",
    [
        (
            (ID, replace(SMALL, type="string")),
            {},
            "spec.columns[1].type",
            "is int in the table and cannot become string",
        ),
        ((replace(ID, type="int"), SMALL), {}, "spec.columns[0].type", "is long in the table and cannot become int"),
        ((ID, replace(SMALL, required=True)), {}, "spec.columns[1]", "is optional in the table"),
        ((ID, SMALL, replace(NAME, required=True)), {}, "spec.columns[2]", "is new and cannot be required"),
        ((ID,), {}, "spec.columns", "columns are never dropped"),
        (
            (ID, SMALL),
            {"partitioning": (PartitionFieldSpec(column="id", transform="Identity"),)},
            "spec.partitioning",
            "no partitioning",
        ),
        ((ID, SMALL), {"sort_order": (SortFieldSpec(column="id"),)}, "spec.sortOrder", "no sort order"),
    ],
    ids=[
        "other type",
        "narrower type",
        "optional to required",
        "new required",
        "dropped",
        "partitioning",
        "sort order",
    ],
)
def test_changes_that_lose_something_are_refused(
    run: Run, catalog: Catalog, case: tuple[tuple[ColumnSpec, ...], dict[str, Any], str, str]
) -> None:
    columns, task, field, said = case
    run(ID, SMALL)
    before = table(catalog).metadata_location
    refused(Reason.SCHEMA_MISMATCH, field, said, lambda: run(*columns, **task))
    assert table(catalog).metadata_location == before


@pytest.mark.parametrize(
    "case",
    [
        ((ColumnSpec(name="a", type="strng"),), {}, Reason.COLUMN_TYPE_UNSUPPORTED, "spec.columns[0].type"),
        ((ColumnSpec(name="a", type="list<int>"),), {}, Reason.COLUMN_TYPE_UNSUPPORTED, "spec.columns[0].type"),
        ((ColumnSpec(name="a", type="timestamp_ns"),), {}, Reason.COLUMN_TYPE_UNSUPPORTED, "spec.columns[0].type"),
        ((ID, replace(ID, name="ID")), {}, Reason.INVALID_SPEC, "spec.columns"),
        ((ID, replace(ID, name="_file")), {}, Reason.INVALID_SPEC, "spec.columns"),
        ((), {}, Reason.INVALID_SPEC, "spec.columns"),
        ((ID,), {"primary_key": ("nope",)}, Reason.COLUMN_NOT_FOUND, "spec.primaryKey[0]"),
        (
            (ColumnSpec(name="f", type="double"),),
            {"primary_key": ("f",)},
            Reason.COLUMN_TYPE_UNSUPPORTED,
            "spec.primaryKey[0]",
        ),
        (
            (ID,),
            {"partitioning": (PartitionFieldSpec(column="x", transform="Identity"),)},
            Reason.COLUMN_NOT_FOUND,
            "spec.partitioning[0].column",
        ),
        (
            (ID,),
            {"partitioning": (PartitionFieldSpec(column="id", transform="Hour"),)},
            Reason.COLUMN_TYPE_UNSUPPORTED,
            "spec.partitioning[0].transform",
        ),
        (
            (ID,),
            {"partitioning": (PartitionFieldSpec(column="id", transform="Bucket"),)},
            Reason.INVALID_SPEC,
            "spec.partitioning[0].width",
        ),
        ((ID,), {"sort_order": (SortFieldSpec(column="x"),)}, Reason.COLUMN_NOT_FOUND, "spec.sortOrder[0].column"),
        (
            (ID,),
            {"properties": {"commit.retry.num-retries": "9"}},
            Reason.INVALID_SPEC,
            "spec.properties[commit.retry.num-retries]",
        ),
        ((ID,), {"properties": {"skipstone.owner": "me"}}, Reason.INVALID_SPEC, "spec.properties[skipstone.owner]"),
    ],
)
def test_what_cannot_be_declared_is_refused_and_creates_nothing(
    run: Run, catalog: Catalog, case: tuple[tuple[ColumnSpec, ...], dict[str, Any], Reason, str]
) -> None:
    columns, task, reason, field = case
    refused(reason, field, "", lambda: run(*columns, **task))
    assert not catalog.table_exists(("ns", "t"))


def existing(catalog: Catalog, *fields: NestedField) -> Table:
    """A table that somebody else made."""
    return catalog.create_table(("ns", "t"), Schema(*fields))


def test_a_compatible_table_is_adopted_and_evolved(run: Run, catalog: Catalog) -> None:
    existing(catalog, NestedField(1, "id", IntegerType()), NestedField(2, "extra", StringType()))
    report = run(replace(ID, required=False), NAME)
    assert report.reason is Reason.ADOPTED
    assert report.table_states[0].owner == ""
    assert [f.name for f in table(catalog).schema().fields] == ["id", "extra", "name"]


def test_an_incompatible_table_is_not_adopted(run: Run, catalog: Catalog) -> None:
    existing(catalog, NestedField(1, "id", StringType()))
    refused(
        Reason.SCHEMA_MISMATCH,
        "spec.columns[0].type",
        "is string in the table",
        lambda: run(replace(ID, required=False)),
    )


def test_a_table_whose_names_differ_in_case_only_is_not_adopted(run: Run, catalog: Catalog) -> None:
    existing(catalog, NestedField(1, "ID", LongType()))
    refused(Reason.INVALID_SPEC, "spec.columns", "differ in case only", lambda: run(replace(ID, required=False)))


def test_an_observed_table_is_never_changed(run: Run, catalog: Catalog) -> None:
    before = existing(catalog, NestedField(1, "other", StringType())).metadata_location
    report = run(ref={"management": Management.OBSERVED})
    assert report.reason is Reason.OBSERVED
    assert report.table_states[0].columns == {"other": "string"}
    assert table(catalog).metadata_location == before


def test_an_observed_table_that_is_missing_is_not_created(run: Run, catalog: Catalog) -> None:
    refused(Reason.TABLE_MISSING, "", "holds no table ns.t", lambda: run(ref={"management": Management.OBSERVED}))


def test_a_table_that_was_seen_once_is_never_created_anew(run: Run, catalog: Catalog) -> None:
    uuid = run(ID).table_states[0].table_uuid
    catalog.drop_table(("ns", "t"))
    refused(Reason.TABLE_MISSING, "", "holds no table ns.t", lambda: run(ID, ref={"table_uuid": uuid}))
    existing(catalog, NestedField(1, "id", LongType(), required=True))
    refused(Reason.TABLE_REPLACED, "", "is another table now", lambda: run(ID, ref={"table_uuid": uuid}))


def test_a_new_table_never_shares_the_folder_of_an_old_one(run: Run, catalog: Catalog) -> None:
    old = run(ID).table_states[0].location
    catalog.drop_table(("ns", "t"))
    new = run(ID).table_states[0].location
    assert new != old
    assert new.startswith(old)


def drift(catalog: Catalog, change: str) -> None:
    """Somebody else changes the schema."""
    with table(catalog).update_schema() as update:
        if change in ("drop", "replace"):
            update.delete_column("name")
    with table(catalog).update_schema() as update:
        if change == "replace":
            update.add_column("name", StringType())
        if change == "add":
            update.add_column("theirs", StringType())
        if change == "nest":
            update.add_column("theirs", ListType(99, StringType(), element_required=False))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop", "'name' is gone"),
        ("replace", "was dropped and added again"),
        ("add", "somebody else added column 'theirs'; declare it in spec.columns or drop it"),
        ("nest", "'theirs'; set spec.management to Observed, since spec.columns cannot declare its type list<string>"),
    ],
)
def test_a_schema_changed_by_others_is_told_and_not_repaired(
    run: Run, catalog: Catalog, change: str, said: str
) -> None:
    ids = run(ID, NAME).table_states[0].field_ids
    drift(catalog, change)
    before = table(catalog).metadata_location
    refused(Reason.SCHEMA_DRIFT, "", said, lambda: run(ID, NAME, field_ids=ids))
    assert table(catalog).metadata_location == before


@pytest.mark.parametrize("change", ["drop", "replace"])
def test_a_table_whose_columns_are_gone_is_taken_up_by_a_table_that_is_created_again(
    run: Run, catalog: Catalog, change: str
) -> None:
    ids = run(ID, NAME).table_states[0].field_ids
    drift(catalog, change)
    refused(Reason.SCHEMA_DRIFT, "", "delete this Table and create it again", lambda: run(ID, NAME, field_ids=ids))
    columns = (ID,) if change == "drop" else (ID, NAME)
    again = {"uid": "22222222-0000-0000-0000-000000000000"}
    assert run(*columns, ref=again).reason is Reason.ADOPTED


@pytest.mark.parametrize("way", ["declare it in spec.columns", "or drop it"])
def test_what_is_told_of_a_column_that_others_added_works(run: Run, catalog: Catalog, way: str) -> None:
    ids = run(ID, NAME).table_states[0].field_ids
    drift(catalog, "add")
    refused(Reason.SCHEMA_DRIFT, "", way, lambda: run(ID, NAME, field_ids=ids))
    if way == "or drop it":
        with table(catalog).update_schema() as update:
            update.delete_column("theirs")
    more = () if way == "or drop it" else (replace(NAME, name="theirs"),)
    assert run(ID, NAME, *more, field_ids=ids).outcome is RunOutcome.COMMITTED


def test_columns_that_merges_added_need_no_declaration(run: Run, catalog: Catalog) -> None:
    ids = run(ID, NAME).table_states[0].field_ids
    drift(catalog, "add")
    with table(catalog).transaction() as change:
        change.set_properties({EVOLVED_PROPERTY: '["theirs"]'})
    state = run(ID, NAME, field_ids=ids).table_states[0]
    assert state.evolved_columns == ("theirs",)
    assert state.problem is None


def test_a_table_of_format_1_is_reported_and_left_alone(
    run: Run, catalog: Catalog, spark: SparkSession, warehouse: WarehouseRef
) -> None:
    sql = "create table skipstone.ns.t (id bigint) using iceberg tblproperties ('format-version' = '1')"
    second_spark(spark, warehouse).sql(sql)
    before = table(catalog).metadata_location
    (state,) = run(replace(ID, required=False), NAME).table_states
    assert state.problem is Reason.FORMAT_VERSION_UNSUPPORTED
    assert state.format_version == 1
    assert table(catalog).metadata_location == before
