"""Nulls of columns with a default, which Kafka Connect's converters replace by it unless they are told not to.

The messages are those of Debezium 3.6.1 for `alter table orders add name text default 'n'`, with schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from skipstone.sources.feeds.values.defaults import DEFAULTED_COLUMN, tally_defaults
from skipstone_core.contract.reports import UnusedColumn
from skipstone_core.contract.requests import ChangeFormat, SourceFormat
from skipstone_core.merging.feeds import OP_COLUMN, UPSERT
from skipstone_core.merging.unused import describe_defaulted

from tests.unit.feed_bed import FeedBed, Row
from tests.unit.test_feeds_debezium import (
    CONNECT,
    PLACEHOLDER,
    avro_schema,
    envelope,
    order,
    postgres,
    schema_of,
    typed,
)
from tests.unit.test_feeds_tools import flat

PRICE = typed("price", "bytes", f"{CONNECT}Decimal", scale="2")
SCHEMA = schema_of(
    typed("id", "int64") | {"optional": False, "default": 1},
    typed("name", "string") | {"default": "n"},
    PRICE | {"default": "AA=="},
    typed("gone", "string") | {"default": "n"},
)


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM)


def told(number: int, name: str | None, **fields: Any) -> Row:
    return {"schema": SCHEMA, "payload": envelope("c", postgres(number), after=order(number, name, **fields))}


def doubtful(bed: FeedBed) -> Mapping[str, int]:
    changes = bed.changes()
    return tally_defaults(changes.filter(pc.equal(changes[OP_COLUMN], UPSERT))[DEFAULTED_COLUMN]).doubtful


def test_defaults_of_columns_that_may_be_null_are_counted(bed: FeedBed) -> None:
    bed.lines(told(1, "n", price="AA=="), told(2, "n", price="AA=="), told(3, "other", price="AQ==", gone="n"))
    assert doubtful(bed) == {"name": 2, "price": 2}, "neither columns that are NOT NULL, nor those the table lacks"


def test_a_null_proves_the_settings_from_its_file_on(bed: FeedBed) -> None:
    bed.lines(told(1, "n", price="AA=="), name="0.json")
    bed.lines(told(2, "n", price="AA=="), told(3, "n", price=None), name="1.json")
    bed.lines(told(4, "n", price="AA=="), name="2.json")
    assert doubtful(bed) == {"name": 1, "price": 1}


def test_deletes_values_left_out_and_messages_without_defaults_say_nothing(bed: FeedBed) -> None:
    delete = {"schema": SCHEMA, "payload": envelope("d", postgres(3), before=order(3, "n"))}
    bed.lines(told(1, PLACEHOLDER, price="AQ=="), delete, envelope("c", postgres(4), after=order(4, "n")))
    assert doubtful(bed) == {}


def test_flat_messages_tell_their_defaults_too(tmp_path: Path) -> None:
    message = flat("c", 9, {"id": 1, "name": "n"})
    columns = [typed("id", "int64") | {"optional": False}, typed("name", "string") | {"default": "n"}]
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM_FLAT)
    bed.lines({"schema": {"type": "struct", "fields": columns}, "payload": message})
    assert doubtful(bed) == {"name": 1}


def test_avro_tells_its_defaults_with_bytes_as_text(tmp_path: Path) -> None:
    decimal = {"type": "bytes", "scale": 2, "connect.name": f"{CONNECT}Decimal", "logicalType": "decimal"}
    schema = avro_schema(
        {"name": "id", "type": "long", "default": 1},
        {"name": "name", "type": ["string", "null"], "default": "n"},
        {"name": "price", "type": [{**decimal, "precision": 9}, "null"], "default": "\u00ff"},
    )
    rows = [{"id": 1, "name": "n", "price": Decimal("-0.01")}, {"id": 2, "name": "x", "price": Decimal("0.01")}]
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, SourceFormat.AVRO)
    bed.avro(schema, [envelope("c", postgres(row["id"]), after=row) for row in rows])
    assert doubtful(bed) == {"name": 1, "price": 1}


def test_the_sentence_names_columns_and_both_settings() -> None:
    sentence = describe_defaulted((UnusedColumn(name="name", rows=2), UnusedColumn(name="price", rows=1)))
    assert "the default of 2 columns that may be null: 'name' (2 rows), 'price' (1 row)" in sentence
    assert "value.converter.replace.null.with.default" in sentence
    assert "transforms.unwrap.replace.null.with.default" in sentence
    assert describe_defaulted(()) == ""
