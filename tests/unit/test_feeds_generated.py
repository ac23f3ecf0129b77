"""Stored generated columns of PostgreSQL: Debezium's snapshots have them, and its changes do not.

The messages have the form of those that ``tests/spark/recorded/generated`` keeps.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData, BadSpec

from tests.unit.feed_bed import FeedBed, Row
from tests.unit.test_feeds_debezium import envelope, postgres
from tests.unit.test_feeds_identity import flat

LINES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "amount", LongType()),
    NestedField(4, "total", DecimalType(9, 2)),
    NestedField(5, "label", StringType()),
    NestedField(6, "share", DoubleType()),
)
TOTAL = {"total": "round(price * amount, 2)"}
PLACEHOLDER = "__debezium_unavailable_value"


def bed(root: Path, generated: dict[str, str], tool: ChangeFormat = ChangeFormat.DEBEZIUM, **more: Any) -> FeedBed:
    return FeedBed(root, tool, schema=LINES, source={"generated": generated}, **more)


def line(number: int, price: str = "1.50", amount: int | None = 2, **more: Any) -> Row:
    return {"id": number, "price": price, "amount": amount, **more}


def read(number: int, **more: Any) -> Row:
    return envelope("r", postgres(1, snapshot="true"), after=line(number, **more))


def totals(found: FeedBed) -> dict[int, Any]:
    return {row["id"]: row["total"] for row in found.left() if isinstance(row, dict)}


def test_changes_get_the_value_that_the_database_computes(tmp_path: Path) -> None:
    found = bed(tmp_path, TOTAL).lines(
        read(1, total="3.00", label="x"),
        read(2, total="3.00"),
        envelope("u", postgres(2), after=line(1, amount=4)),
        envelope("c", postgres(3), after=line(3, amount=None)),
        envelope("d", postgres(4), before={"id": 4}),
    )
    assert totals(found) == {1: Decimal("6.00"), 2: Decimal("3.00"), 3: None}
    assert "deleted 4" in found.left()


def test_a_value_of_the_database_that_is_another_is_refused(tmp_path: Path) -> None:
    found = bed(tmp_path, {"total": "price"}).lines(read(1, total="1.50"), read(2, total="3.00"))
    with pytest.raises(BadData, match=r"'feed/0.json', line 2: column 'total': .* correct its expression"):
        found.left()


def test_null_leaves_the_values_of_a_column_out(tmp_path: Path) -> None:
    found = bed(tmp_path, {"total": "null"}).lines(read(1, total="3.00"), envelope("c", postgres(2), after=line(2)))
    assert totals(found) == {1: None, 2: None}


def test_a_value_that_the_change_leaves_out_cannot_feed_it(tmp_path: Path) -> None:
    found = bed(tmp_path, {"total": "null", "label": "'a' || cast(price as string)"}).lines(
        envelope("u", postgres(2), after={"id": 1, "amount": 2})
    )
    with pytest.raises(BadData, match=r"no value for 'price', from which source\.generated computes 'label'"):
        found.left()
    schema = Schema(*LINES.fields, NestedField(7, "upper", StringType()))
    found = FeedBed(tmp_path / "b", ChangeFormat.DEBEZIUM, schema=schema, source={"generated": {"upper": "label"}})
    found.lines(envelope("u", postgres(2), after=line(1, label=PLACEHOLDER)))
    with pytest.raises(BadData, match=r"no value for 'label', from which .* computes 'upper': run ALTER TABLE"):
        found.left()


def test_flat_messages_and_avro_have_them_too(tmp_path: Path) -> None:
    found = bed(tmp_path, TOTAL, ChangeFormat.DEBEZIUM_FLAT)
    found.lines(flat(line(1), deleted=False), flat(line(2), deleted=True))
    assert totals(found) == {1: Decimal("3.00")}
    columns = [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "amount", "type": "long"},
    ]
    place = postgres(3)
    source = [{"name": name, "type": ["null", "long" if isinstance(value, int) else "string"]}
              for name, value in place.items()]  # fmt: skip
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": columns}]},
            {"name": "op", "type": "string"},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        ],
    }
    other = bed(tmp_path / "avro", TOTAL, format=SourceFormat.AVRO)
    other.avro(schema, [{"op": "c", "source": place, "after": {"id": 1, "price": Decimal("1.25"), "amount": 3}}])
    assert totals(other) == {1: Decimal("3.75")}


def test_dms_computes_them_in_text_and_in_columns(tmp_path: Path) -> None:
    found = bed(tmp_path, TOTAL, ChangeFormat.DMS, format=SourceFormat.CSV)
    found.text("id,price,amount,total\n1,1.50,2,3.00\n", "LOAD1.csv")
    found.text("Op,id,price,amount\nU,1,1.50,3\nD,2,,\n", "20240501-100000000.csv")
    assert totals(found) == {1: Decimal("4.50")}


def test_floats_of_the_database_may_differ_in_their_last_digits(tmp_path: Path) -> None:
    found = bed(tmp_path, {"share": "cast(price as double) / 3.0"})
    found.lines(read(1, price="0.10", share=0.03333333333333333), read(2, price="0.30", share=0.09999999999999999))
    assert [row["share"] for row in found.left() if isinstance(row, dict)] == pytest.approx([0.1 / 3, 0.1])
    found.lines(read(1, price="0.10", share=0.0334), name="1.json")
    with pytest.raises(BadData, match="column 'share'"):
        found.left()


@pytest.mark.parametrize(
    ("generated", "says"),
    [
        ({"nowhere": "1"}, "no column 'nowhere'"),
        ({"id": "amount"}, "it is a key"),
        ({"total": "price *"}, "spec.source.generated.total"),
        ({"total": "label"}, "cannot feed 'total'"),
        ({"total": "target.price"}, "name columns as source.x"),
        ({"total": "price", "share": "cast(total as double)"}, "it names 'total', which is generated itself"),
    ],
)
def test_expressions_that_cannot_work_are_refused(tmp_path: Path, generated: dict[str, str], says: str) -> None:
    with pytest.raises(BadSpec) as caught:
        bed(tmp_path, generated).lines(read(1)).left()
    assert says in f"{caught.value.field} {caught.value}"
