"""Schemas, partitions, orders, keys and clauses as Python programs write them, as fields of manifests."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, TimestamptzType
from skipstone_core.errors import LakeError
from skipstone_local.lake.declaring import (
    build_clauses,
    build_columns,
    build_keys,
    build_partitioning,
    build_sort_order,
    lay_columns,
    parse_identifier,
    resource_name,
)
from skipstone_local.lake.opening import build_warehouse, driver_cores
from skipstone_operator.resources.kinds import API_VERSION, parse
from skipstone_operator.resources.table import TableSpec

TYPES = [
    (pa.bool_(), "boolean"),
    (pa.int8(), "int"),
    (pa.uint16(), "int"),
    (pa.int32(), "int"),
    (pa.uint32(), "long"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.decimal128(12, 2), "decimal(12,2)"),
    (pa.date32(), "date"),
    (pa.time64("us"), "time"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("ns", "UTC"), "timestamptz"),
    (pa.string(), "string"),
    (pa.large_string(), "string"),
    (pa.dictionary(pa.int32(), pa.string()), "string"),
    (pa.binary(), "binary"),
    (pa.binary(16), "fixed[16]"),
    (pa.uuid(), "uuid"),
]


@pytest.mark.parametrize(("kind", "name"), TYPES, ids=str)
def test_a_type_of_arrow_has_a_name_in_iceberg(kind: pa.DataType, name: str) -> None:
    assert build_columns(pa.schema([pa.field("a", kind)]), []) == [{"name": "a", "type": name}]


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null()], ids=str
)
def test_a_type_that_tables_cannot_have_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(LakeError, match=r"column 'a' has the type .* cast it") as refused:
        build_columns(pa.schema([pa.field("a", kind)]), [])
    assert refused.value.reason == "InvalidSpec"


def test_schemas_come_in_several_forms() -> None:
    iceberg = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "price", DecimalType(9, 2)),
    )
    expected = [
        {"name": "id", "type": "long", "required": True},
        {"name": "at", "type": "timestamptz"},
        {"name": "price", "type": "decimal(9,2)"},
    ]
    rows = [{"id": 1, "at": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "price": Decimal("1234567.25")}]
    assert build_columns(iceberg, []) == expected
    assert build_columns({"id": "long", "at": "timestamptz", "price": "decimal(9,2)"}, ["id"]) == expected
    assert build_columns(rows, ["id"]) == expected


def test_partitions_and_orders_are_written_as_in_sql() -> None:
    assert build_partitioning(["region", "month(at)", "days(at)", "bucket(16, id)", "Truncate( 4 , name )"]) == [
        {"column": "region", "transform": "Identity"},
        {"column": "at", "transform": "Month"},
        {"column": "at", "transform": "Day"},
        {"column": "id", "transform": "Bucket", "width": 16},
        {"column": "name", "transform": "Truncate", "width": 4},
    ]
    assert build_sort_order(["at", "price desc", "name ASC nulls last"]) == [
        {"column": "at", "direction": "Ascending"},
        {"column": "price", "direction": "Descending"},
        {"column": "name", "direction": "Ascending", "nulls": "Last"},
    ]
    with pytest.raises(LakeError, match=r"'week\(at\)' has an unknown transform: use one of identity, year"):
        build_partitioning(["week(at)"])


def test_keys_and_clauses_are_short_or_as_in_manifests() -> None:
    assert build_keys("id") == build_keys(["id"]) == build_keys({"id": "id"}) == [{"target": "id", "source": "id"}]
    assert build_keys({"id": "order_id"}) == [{"target": "id", "source": "order_id"}]
    assert build_clauses(None, "Update") == []
    assert build_clauses("delete", "Update") == [{"action": "Delete"}]
    assert build_clauses([{"when": "source.op = 'D'", "action": "Delete"}, {"set": {"a": "b"}}], "Update") == [
        {"when": "source.op = 'D'", "action": "Delete"},
        {"action": "Update", "set": {"a": "b"}},
    ]
    for wrong in ("upsert", [{"action": "Upsert"}]):
        with pytest.raises(LakeError, match="has the action 'Upsert': use one of Update, Delete, Insert"):
            build_clauses(wrong, "Update")


def test_names_of_objects_differ_as_names_of_tables_do() -> None:
    assert parse_identifier("sales.eu.orders") == ("sales.eu", "orders")
    assert parse_identifier("orders") == ("default", "orders")
    for wrong in ("", ".", "sales.", ".orders"):
        with pytest.raises(LakeError, match=r"is not the name of a table: write NAMESPACE\.NAME"):
            parse_identifier(wrong)
    assert resource_name("sales", "orders") == "sales-orders"
    names = [
        ("sales", "Orders"), ("sales", "orders_"), ("sales", "orders"), ("sales", "o" * 100), ("s", "o" * 101),
        ("sales-orders",), ("sales-eu", "orders"), ("sales", "eu-orders"), ("a.b", "c"), ("a", "b.c"),
    ]  # fmt: skip
    made = [resource_name(*name) for name in names]
    assert len(set(made)) == len(made)
    assert all(len(name) <= 47 and name == name.lower() for name in made)


def test_columns_of_a_table_stay_when_some_are_given() -> None:
    known = [{"name": "id", "type": "long", "required": True, "doc": "d"}, {"name": "v", "type": "string"}]
    given = build_columns({"w": "int", "id": "long"}, [])
    assert lay_columns(known, given) == [*known, {"name": "w", "type": "int"}]
    assert lay_columns((), given) == given
    changed = lay_columns(known, build_columns({"v": "long"}, ["v"]))
    assert changed == [known[0], {"name": "v", "type": "long", "required": True}]


def test_what_is_declared_is_a_table() -> None:
    spec = {
        "warehouseRef": {"name": "lake"},
        "identifier": {"namespace": "sales", "name": "orders"},
        "columns": build_columns({"id": "long", "at": "timestamptz"}, ["id"]),
        "primaryKey": ["id"],
        "partitioning": build_partitioning(["bucket(4, id)", "at"]),
        "sortOrder": build_sort_order(["at desc"]),
    }
    table = parse({"apiVersion": API_VERSION, "kind": "Table", "metadata": {"name": "orders"}, "spec": spec})
    assert isinstance(table.spec, TableSpec)
    assert table.spec.partitioning[0].width == 4


@pytest.mark.parametrize(
    ("cores", "gib", "used"), [(1, 64, 1), (2, 64, 2), (64, 64, 8), (16, 8, 4), (4, 3, 1), (4, 1, 1)]
)
def test_drivers_use_the_cores_for_which_the_machine_has_memory(cores: int, gib: int, used: int) -> None:
    assert driver_cores(cores, gib * 1024**3) == used
    assert parse(build_warehouse(used)).spec.spark.driver.cores == used
