"""Values of messages in the types of columns: each comes out as it is, however it is written, or does not fit."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)
from skipstone.sources.feeds.registry import tool_of
from skipstone.sources.feeds.shapes import FeedColumn, Raw, Semantic
from skipstone.sources.feeds.values.columns import UnfitValue, column_array
from skipstone.sources.feeds.values.encodings import ValueRules
from skipstone.tables.arrow import arrow_type_of
from skipstone_core.contract.feeds import TimePrecision
from skipstone_core.contract.formats import ChangeFormat

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEBEZIUM = tool_of(ChangeFormat.DEBEZIUM).values
UTC_RULES = ValueRules(style=DEBEZIUM)
BERLIN = ValueRules(style=DEBEZIUM, zone=ZoneInfo("Europe/Berlin"))
SCALED = Semantic("org.apache.kafka.connect.data.Decimal", 3)


def read(value: Raw, kind: IcebergType, semantic: Semantic | None = None, rules: ValueRules = UTC_RULES) -> object:
    column = FeedColumn(name="x", type=kind, arrow=arrow_type_of(kind))
    return column_array([value], column, semantic, rules)[0].as_py()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_comes_out_as_it_is_however_it_is_written(value: float) -> None:
    for written in (value, repr(value), f"{value:.17g}", Decimal(repr(value)), Decimal(value)):
        assert read(written, DoubleType()) == value


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_float_comes_out_as_it_is_however_it_is_written(value: float) -> None:
    for written in (value, str(np.float32(value)), f"{value:.9g}", Decimal(value)):
        assert read(written, FloatType()) == value


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("1.4E-45", FloatType(), 2.0**-149),
        ("4.9E-324", DoubleType(), 2.0**-1074),
        ("9.9E-324", DoubleType(), 2.0**-1073),
    ],
)
def test_the_smallest_floats_come_out_as_java_writes_them(written: str, kind: IcebergType, value: float) -> None:
    """With two digits, though one would tell them apart. Recorded from Debezium 3.6.1."""
    assert read(Decimal(written), kind) == read(written, kind) == value
    with pytest.raises(UnfitValue):
        read(Decimal(written.replace("E", "5E")), kind)


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("Time", 45_296_123, "12:34:56.123000"),
        ("MicroTime", 0, "00:00:00.000000"),
        ("MicroTime", 86_400_000_000, "24:00:00.000000"),
        ("MicroTime", -3_020_399_000_001, "-838:59:59.000001"),
        ("NanoTime", 1_000, "00:00:00.000001"),
        ("NanoTime", 123_456_789, "00:00:00.123456789"),
    ],
)
def test_a_time_of_day_is_text_in_a_column_of_text(name: str, number: int, text: str) -> None:
    """Also one that no time of Iceberg is: 24:00 of PostgreSQL, the spans of MySQL, nanoseconds."""
    assert read(number, StringType(), Semantic(f"io.debezium.time.{name}")) == text
    with pytest.raises(UnfitValue):
        read(number, StringType())


@given(st.times())
def test_times_of_day_come_out_as_they_are(value: time) -> None:
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    found = read(micros, StringType(), Semantic("io.debezium.time.MicroTime"))
    assert time.fromisoformat(str(found)) == value
    assert read(found, TimeType()) == value


@given(st.integers(-(10**12), 10**12))
def test_a_decimal_keeps_its_value_or_does_not_fit(unscaled: int) -> None:
    value = Decimal(unscaled).scaleb(-3)
    content = unscaled.to_bytes(8, "big", signed=True)
    encoded = base64.b64encode(content).decode()
    cases = [(value, None), (str(value), None), (content, SCALED), (encoded, SCALED), (value, SCALED)]
    for written, semantic in [*cases, ({"scale": 3, "value": encoded}, None)]:
        if abs(unscaled) < 10**10 and unscaled % 10 == 0:
            assert read(written, DecimalType(9, 2), semantic) == value
        else:
            with pytest.raises(UnfitValue):
                read(written, DecimalType(9, 2), semantic)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))  # noqa: DTZ001
def test_a_timestamp_comes_out_as_it_is_in_every_unit(moment: datetime) -> None:
    micros = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    numbers = {TimePrecision.MICROS: micros, TimePrecision.NANOS: micros * 1000}
    if micros % 1000 == 0:
        numbers[TimePrecision.MILLIS] = micros // 1000
    for unit, number in numbers.items():
        assert read(number, TimestampType(), rules=ValueRules(style=DEBEZIUM, unit=unit)) == moment
    assert read(moment.isoformat(), TimestampType()) == moment
    assert read(f"{moment.isoformat(' ')}Z", TimestamptzType()) == moment.replace(tzinfo=UTC)
    with pytest.raises(UnfitValue, match="timePrecision"):
        read(micros, TimestampType())


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-03-31 02:30:00", "2024-03-31T01:30:00+00:00"),  # skipped by the clock
        ("2024-10-27 02:30:00", "2024-10-27T00:30:00+00:00"),  # comes twice: the first counts
        ("2024-05-01 12:00", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01", "2024-04-30T22:00:00+00:00"),
        ("2024-05-01T12:00:00-0330", "2024-05-01T15:30:00+00:00"),
    ],
)
def test_times_without_offset_are_those_of_the_zone(text: str, instant: str) -> None:
    assert read(text, TimestamptzType(), rules=BERLIN) == datetime.fromisoformat(instant)


def test_bytes_that_may_be_hexadecimal_are_refused_unless_the_schema_says_bytes() -> None:
    assert read("abcd", BinaryType(), Semantic(is_bytes=True)) == b"\x69\xb7\x1d"
    assert read("abC=", BinaryType()) == b"\x69\xb0"
    for semantic in (None, Semantic()):
        with pytest.raises(UnfitValue, match=r"set binary.handling.mode to bytes"):
            read("00ff10ab", BinaryType(), semantic)


def test_numbers_of_special_floats_are_no_base64() -> None:
    for text in ("Infinity", "-Infinity"):
        assert read(text, DoubleType()) == float(text)
    assert str(read("NaN", FloatType())) == "nan"
    with pytest.raises(UnfitValue):
        read("Infinity", DecimalType(38, 2))
