"""What a spec says of a feed that its messages do not tell: placeholders, units, infinities and rows that are equal.

The messages are those of Debezium 3.6.1 with PostgreSQL 15 and MySQL.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone_core.contract.feeds import ColumnPrecision, EqualRows, Infinity, NonFinite, TimePrecision
from skipstone_core.contract.requests import ChangeFormat
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.merging.feeds import feed_task

from tests.unit.feed_bed import EVERY, MISSING, ORDERS, FeedBed, Row
from tests.unit.test_feeds_debezium import envelope, mysql, postgres, schema_of
from tests.unit.test_feeds_tools import maxwell

CUSTOM = "left out"
PAIRS = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()))
NOON = datetime(2024, 5, 1, 12)  # noqa: DTZ001
NOON_MICROS = 1_714_564_800_000_000


@pytest.fixture
def bed(tmp_path: Path) -> FeedBed:
    return FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=EVERY)


def written(bed: FeedBed, **fields: Any) -> Row:
    return bed.lines(envelope("u", postgres(1), after={"id": 1, **fields})).row()


# --- tables without a primary key ---


@pytest.mark.parametrize("tool", [ChangeFormat.DEBEZIUM, ChangeFormat.MAXWELL])
def test_equal_rows_become_one_only_where_the_spec_says_so(tmp_path: Path, tool: ChangeFormat) -> None:
    bed = FeedBed(tmp_path, tool, schema=PAIRS, keys=("a", "b"))
    row = {"a": 1, "b": "x"}
    if tool is ChangeFormat.MAXWELL:
        bed.lines(maxwell("insert", row, position="b.1:4"), maxwell("insert", row, position="b.1:5"))
    else:
        bed.lines(envelope("c", postgres(1), after=row), envelope("c", postgres(2), after=row))
    with pytest.raises(BadSpec, match=r"keys: they are all columns .* set source.equalRows to Collapse"):
        bed.left()
    bed.source = {"equal_rows": EqualRows.REFUSE}
    with pytest.raises(BadSpec, match="equal rows"):
        bed.left()
    bed.source = {"equal_rows": EqualRows.COLLAPSE}
    assert bed.left() == [row]
    bed.source, bed.keys = {}, ("a",)
    assert bed.left() == [row]


# --- placeholders ---


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("text", CUSTOM),
        ("raw", base64.b64encode(CUSTOM.encode()).decode()),
        ("raw", base64.urlsafe_b64encode(CUSTOM.encode()).decode()),
        ("counts", [*CUSTOM.encode()]),
        ("tags", [CUSTOM]),
        ("pairs", {CUSTOM: CUSTOM}),
        ("pairs", f'{{"{CUSTOM}":"{CUSTOM}"}}'),
    ],
)
@pytest.mark.parametrize("setting", [CUSTOM, "hex:" + CUSTOM.encode().hex()])
def test_a_declared_placeholder_overwrites_no_value(bed: FeedBed, column: str, value: object, setting: str) -> None:
    bed.source = {"unavailable_value": setting}
    assert written(bed, **{column: value})[column] == MISSING


def test_the_default_placeholder_stays_known_beside_a_declared_one(bed: FeedBed) -> None:
    bed.source = {"unavailable_value": CUSTOM}
    assert written(bed, text="__debezium_unavailable_value")["text"] == MISSING


@pytest.mark.parametrize("setting", ["hex:", "hex:0", "hex:zz"])
def test_a_placeholder_without_octets_is_refused(bed: FeedBed, setting: str) -> None:
    bed.source = {"unavailable_value": setting}
    with pytest.raises(BadSpec, match="at least one octet"):
        written(bed, text="x")


# --- NaN and infinities ---


@pytest.mark.parametrize(
    "value", ["NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", "NaN", "Infinity", "-Infinity", float("nan")]
)
def test_numbers_that_decimals_lack_are_refused_or_null(bed: FeedBed, value: object) -> None:
    with pytest.raises(BadData, match=r"'price'.*NaN or an infinity.*: set source.nonFinite to Null"):
        written(bed, price=value)
    bed.source = {"non_finite": NonFinite.REFUSE}
    with pytest.raises(BadData, match=r"source.nonFinite"):
        bed.row()
    bed.source = {"non_finite": NonFinite.NULL}
    assert bed.row()["price"] is None


@pytest.mark.parametrize("column", ["price", "text"])
def test_finite_values_are_read_whole_beside_those(bed: FeedBed, column: str) -> None:
    bed.source = {"non_finite": NonFinite.NULL, "infinity": Infinity.NULL}
    assert written(bed, **{column: "1.50"})[column] == (Decimal("1.50") if column == "price" else "1.50")
    assert written(bed, text="infinity")["text"] == "infinity"
    assert written(bed, wide="NAN")["wide"] != written(bed, wide="NAN")["wide"], "a double has NaN"


LAST_DAY, FIRST_DAY = date.max, date.min
LAST, FIRST = datetime.max, datetime.min  # noqa: DTZ901
INFINITE = [
    ("day", -2147472692, LAST_DAY),
    ("day", -622191234, LAST_DAY),
    ("day", -2147472691, FIRST_DAY),
    ("day", -625821272, FIRST_DAY),
    ("day", "+292278994-08-16Z", LAST_DAY),
    ("day", "+292269055-12-02Z", FIRST_DAY),
    ("day", "-5877611-06-21Z", LAST_DAY),
    ("day", "-5877611-06-22Z", FIRST_DAY),
    ("local", "+294247-01-10T04:00:25.2Z", LAST),
    ("local", "-290308-12-21T19:59:27.6Z", FIRST),
    ("local", 9223372036825200000, LAST),
    ("local", -9223372036832400000, FIRST),
    ("instant", "infinity", LAST.replace(tzinfo=UTC)),
    ("instant", "-infinity", FIRST.replace(tzinfo=UTC)),
]


@pytest.mark.parametrize(("column", "value", "end"), INFINITE)
def test_infinite_times_are_refused_null_or_the_end_of_time(
    bed: FeedBed, column: str, value: object, end: object
) -> None:
    unit = {"time_precision": TimePrecision.MICROS}
    bed.source = unit
    with pytest.raises(BadData, match=rf"'{column}'.*infinity.*: set source.infinity to Null or Max"):
        written(bed, **{column: value})
    bed.source = {**unit, "infinity": Infinity.NULL}
    assert bed.row()[column] is None
    bed.source = {**unit, "infinity": Infinity.MAX}
    assert bed.row()[column] == end


def test_the_schema_tells_in_which_unit_a_timestamp_is_infinite(bed: FeedBed) -> None:
    bed.source = {"infinity": Infinity.MAX}
    millis = schema_of({"type": "int64", "field": "local", "name": "io.debezium.time.Timestamp"})
    bed.lines(
        {"schema": millis, "payload": envelope("u", postgres(1), after={"id": 1, "local": 9223372036825200})},
    )
    assert bed.row()["local"] == LAST


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    bed = FeedBed(tmp_path, ChangeFormat.DEBEZIUM, schema=ORDERS, keys=("price",))
    bed.source = {"non_finite": NonFinite.NULL}
    bed.lines(envelope("c", postgres(1), after={"id": 1, "price": "NAN"}))
    with pytest.raises(BadData, match="no key may stand for it"):
        bed.left()


# --- units of single columns ---


def test_a_column_has_a_unit_of_its_own(bed: FeedBed) -> None:
    """MySQL's DATETIME is told in milliseconds and its TIME in microseconds."""
    bed.source = {
        "time_precision": TimePrecision.MILLIS,
        "column_time_precisions": (
            ColumnPrecision(column="instant", precision=TimePrecision.MICROS),
            ColumnPrecision(column="text", precision=TimePrecision.MICROS),
        ),
    }
    values = {"id": 1, "local": NOON_MICROS // 1000, "instant": NOON_MICROS, "text": -1_000_001}
    row = bed.lines(envelope("u", mysql("b.1", 4), after=values)).row()
    assert (row["local"], row["instant"], row["text"]) == (NOON, NOON.replace(tzinfo=UTC), "-00:00:01.000001")


@pytest.mark.parametrize("column", ["price", "other"])
def test_units_are_for_columns_of_times(bed: FeedBed, column: str) -> None:
    bed.source = {"column_time_precisions": (ColumnPrecision(column=column, precision=TimePrecision.MICROS),)}
    with pytest.raises(BadSpec, match=rf"'{column}' is not a column of the table of type time"):
        written(bed, text="x")


def test_settings_of_debezium_are_for_it_only(tmp_path: Path) -> None:
    task = FeedBed(tmp_path, ChangeFormat.MAXWELL).task
    with pytest.raises(BadSpec, match="nonFinite and infinity are for Debezium, DebeziumFlat and Wal2Json only"):
        feed_task(replace(task, source=replace(task.source, non_finite=NonFinite.NULL, infinity=Infinity.NULL)))


# --- sentences ---


def test_a_text_that_is_not_a_time_is_not_told_to_name_a_unit(bed: FeedBed) -> None:
    with pytest.raises(BadData) as told:
        written(bed, local="soon")
    assert "timePrecision" not in str(told.value)
    with pytest.raises(BadData, match=r"set source.timePrecision or source.columnTimePrecisions"):
        written(bed, local=5)
    bed.source = {"time_precision": TimePrecision.MICROS}
    assert bed.row()["local"] == datetime(1970, 1, 1, 0, 0, 0, 5)  # noqa: DTZ001


def test_a_number_for_text_is_a_time_of_day_or_of_another_type(bed: FeedBed) -> None:
    with pytest.raises(BadData, match=r"'text'.*but a number: name its unit in source.columnTimePrecisions"):
        written(bed, text=5)
    bed.source = {"column_time_precisions": (ColumnPrecision(column="text", precision=TimePrecision.MILLIS),)}
    assert bed.row()["text"] == "00:00:00.005000"
    assert written(bed, small=5)["small"] == 5


def test_a_decimal_in_text_is_not_told_to_be_written_as_text(bed: FeedBed) -> None:
    with pytest.raises(BadData, match="declare the column with more digits") as told:
        written(bed, price="1.505")
    assert "decimal.handling.mode" not in str(told.value)
    with pytest.raises(BadData, match=r"set decimal.handling.mode to string"):
        written(bed, price="AZY=")
