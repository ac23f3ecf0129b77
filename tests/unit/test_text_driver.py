"""Csv and Json in their usual forms are read by the driver; what it does not know is named and left to Spark."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from skipstone.sources.text.driver.casts import cast_text, require_cast, require_patterns, require_zone
from skipstone.sources.text.driver.patterns import pattern_regex
from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.options import TextForms, TextOptions

ROOT = Path(__file__).resolve().parents[2]
NINE = datetime(2013, 1, 31, 9, 5)  # noqa: DTZ001


def forms(zone: str = "UTC", **options: Any) -> TextForms:
    return TextForms(options=TextOptions(**options), time_zone=zone)


@pytest.mark.parametrize(
    ("kind", "texts", "values"),
    [
        (BooleanType(), ["true", "FALSE", " t", "0"], [True, False, True, False]),
        (IntegerType(), ["7", "+7", "-007", " 7 "], [7, 7, -7, 7]),
        (LongType(), [str(2**63 - 1), str(-(2**63))], [2**63 - 1, -(2**63)]),
        (DoubleType(), ["1", "-.5", "1e5", "5.", "+1E-3 "], [1.0, -0.5, 1e5, 5.0, 1e-3]),
        (DoubleType(), ["-Infinity", "+inf"], [float("-inf"), float("inf")]),
        (DecimalType(5, 2), ["1", "-.5", "1.500", "0001.10"], [*map(Decimal, ("1.00", "-0.50", "1.50", "1.10"))]),
        (DecimalType(38, 0), [".00", "9" * 38], [Decimal(0), Decimal("9" * 38)]),
        (DecimalType(5, 2), ["1e2", "-.5E-1", "0e-300"], [*map(Decimal, ("100.00", "-0.05", "0.00"))]),
        (DateType(), ["2013-01-31", "2013-1-31"], [date(2013, 1, 31)] * 2),
        (TimestampType(), ["2013-01-31 09:05", "2013-1-31T9:05:00.000000000"], [NINE] * 2),
        (TimeType(), ["9:05", "09:05:00.000"], [time(9, 5)] * 2),
        (StringType(), [" a ", "", "NULL"], [" a ", "", "NULL"]),
    ],
)
def test_usual_forms_are_values(kind: IcebergType, texts: list[str], values: list[Any]) -> None:
    found = cast_text(pa.chunked_array([[*texts, None]], pa.string()), kind, forms())
    assert found.to_pylist() == [*values, None]


@pytest.mark.parametrize(
    ("zone", "text", "utc"),
    [
        ("UTC", "2013-01-31T09:05:00Z", NINE),
        ("Europe/Madrid", "2013-01-31T09:05:00 UTC", NINE),
        ("Europe/Madrid", "2013-01-31 10:05", NINE),
        ("UTC", "2013-01-31 14:35:00+0530", NINE),
        ("UTC", "2013-01-31 04:05:00-05", NINE),
        ("Europe/Madrid", "2013-10-27 02:30", datetime(2013, 10, 27, 0, 30)),  # noqa: DTZ001
    ],
)
def test_instants_have_an_offset_or_the_zone_of_the_job(zone: str, text: str, utc: datetime) -> None:
    found = cast_text(pa.chunked_array([[text]]), TimestamptzType(), forms(zone))
    assert found.cast(pa.timestamp("us")).to_pylist() == [utc]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BooleanType(), "on"),
        (IntegerType(), str(2**31)),
        (IntegerType(), "1.0"),
        (DoubleType(), "1e400"),
        (DoubleType(), "1d"),
        (DoubleType(), "+nan"),
        (FloatType(), "++inf"),
        (DecimalType(5, 2), "1.005"),
        (DecimalType(5, 2), "1000"),
        (DecimalType(5, 2), "1e3"),
        (DecimalType(5, 2), "100e-4"),
        (DecimalType(5, 2), "e1"),
        (DecimalType(38, 38), "9468034.52"),
        (DateType(), "2013-02-29"),
        (DateType(), "0000-01-01"),
        (TimestampType(), "2013-01-31T09:05:00Z"),
        (TimestamptzType(), "2013-01-31T09:05:00+18:30"),
        (TimestamptzType(), "9999-12-31T23:59:59-01"),
        (TimeType(), "24:00"),
        (UUIDType(), "0" * 32),
    ],
)
def test_a_value_that_does_not_fit_is_left_to_spark(kind: IcebergType, text: str) -> None:
    with pytest.raises(SparkNeeded) as caught:
        cast_text(pa.chunked_array([[text]]), kind, forms())
    assert caught.value.why is SparkOnly.VALUE


@pytest.mark.parametrize("text", ["2013-03-31 02:30", "1969-12-31 23:00", "2038-01-01"])
def test_local_times_that_clocks_skip_or_far_ones_are_left_to_spark(text: str) -> None:
    with pytest.raises(SparkNeeded) as caught:
        cast_text(pa.chunked_array([[text]]), TimestamptzType(), forms("Europe/Madrid"))
    assert caught.value.why is SparkOnly.ZONE


@pytest.mark.parametrize("name", ["ROC", "EST", "+01:00", "GMT+1", "posix/Europe/Berlin"])
def test_zones_that_are_not_cities_are_left_to_spark(name: str) -> None:
    require_zone("UTC")
    require_zone("Europe/Madrid")
    with pytest.raises(SparkNeeded) as caught:
        require_zone(name)
    assert caught.value.why is SparkOnly.ZONE


def test_text_of_the_character_for_lost_bytes_is_left_to_spark() -> None:
    with pytest.raises(SparkNeeded) as caught:
        cast_text(pa.chunked_array([["a\ufffd"]]), StringType(), forms())
    assert caught.value.why is SparkOnly.TEXT


@pytest.mark.parametrize("kind", [BinaryType()])
def test_types_that_no_text_carries_are_left_to_spark(kind: IcebergType) -> None:
    with pytest.raises(SparkNeeded) as caught:
        require_cast(kind)
    assert caught.value.why is SparkOnly.TYPE


@pytest.mark.parametrize(
    "pattern",
    ["yy-MM-dd", "MMM d yyyy", "yyyy-MM-dd hh:mm a", "yyyyMd", "yyyy-MM-dd[ HH:mm]", "HH:mm", "yyyy-MM-dd XXX", "''"],
)
def test_patterns_with_other_letters_are_left_to_spark(pattern: str) -> None:
    assert pattern_regex(pattern, is_date=False) is None
    with pytest.raises(SparkNeeded) as caught:
        require_patterns(TextOptions(timestamp_format=pattern))
    assert caught.value.why is SparkOnly.PATTERN


def test_patterns_of_dates_have_no_time_of_day() -> None:
    assert pattern_regex("yyyy-MM-dd HH", is_date=True) is None
    assert pattern_regex("d.M.yyyy", is_date=True) is not None


def test_the_guide_lists_what_is_left_to_spark() -> None:
    guide = " ".join((ROOT / "docs" / "guide" / "loading.md").read_text().split())
    assert [why.value for why in SparkOnly if why.value not in guide] == []
