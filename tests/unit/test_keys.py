"""Canonical keys: one equality and one order for each family."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.keys import KeyFamily, KeyType, float_order, is_bucketed, key_type

from tests.unit.scalar_keys import float_value, normalize

FLOAT = KeyType(KeyFamily.FLOAT)
STRING = KeyType(KeyFamily.STRING)


def test_floats_order_as_spark_orders_them() -> None:
    ascending = [-math.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.5, 1e300, math.inf, math.nan]
    assert [normalize(x, FLOAT) for x in ascending] == sorted(normalize(x, FLOAT) for x in ascending)
    assert len({normalize(x, FLOAT) for x in ascending}) == len(ascending)


def test_zeros_are_one_key_and_nans_are_one_key() -> None:
    assert normalize(-0.0, FLOAT) == normalize(0.0, FLOAT)
    assert normalize(math.nan, FLOAT) == normalize(-math.nan, FLOAT)


@settings(deadline=None)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_float_order_agrees_with_comparison(a: float, b: float) -> None:
    assert (float_order(a) < float_order(b)) == (a < b)
    assert float_value(float_order(a)) == a


@settings(deadline=None)
@given(st.text(), st.text())
def test_strings_order_by_code_point(a: str, b: str) -> None:
    assert (normalize(a, STRING) < normalize(b, STRING)) == (a < b)  # type: ignore[operator]


def test_decimals_compare_by_value_at_the_common_scale() -> None:
    left, right = key_type("decimal(9, 2)"), key_type("decimal(12,4)")
    assert left is not None
    assert right is not None
    common = left.common(right)
    assert common == KeyType(KeyFamily.DECIMAL, 4, 8)
    assert normalize(Decimal("1.50"), common) == normalize(Decimal("1.5000"), common) == 15000
    assert normalize(Decimal("-0.00"), common) == 0


def test_decimals_that_no_common_type_holds_do_not_compare() -> None:
    left, right = key_type("decimal(38, 0)"), key_type("decimal(38, 38)")
    assert left is not None
    assert right is not None
    assert left.common(right) is None


def test_decimal_beyond_the_scale_is_an_error() -> None:
    with pytest.raises(ValueError, match="more than 1 decimal places"):
        normalize(Decimal("1.25"), KeyType(KeyFamily.DECIMAL, 1, 5))


def test_instants_compare_across_zones() -> None:
    kind = KeyType(KeyFamily.TIMESTAMPTZ)
    east = datetime(1899, 12, 31, 23, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    assert normalize(east, kind) == normalize(east.astimezone(UTC), kind)
    assert normalize(datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), kind) == -1


def test_dates_are_days() -> None:
    assert normalize(date(1969, 12, 31), KeyType(KeyFamily.DATE)) == -1


@pytest.mark.parametrize(
    ("value", "family"),
    [
        ("x", KeyFamily.INTEGER),
        (1.5, KeyFamily.INTEGER),
        (1, KeyFamily.STRING),
        (datetime(2024, 1, 1, tzinfo=UTC), KeyFamily.DATE),
    ],
)
def test_value_of_another_family_is_an_error(value: object, family: KeyFamily) -> None:
    with pytest.raises(TypeError, match="is no"):
        normalize(value, KeyType(family))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("int", KeyFamily.INTEGER),
        ("long", KeyFamily.INTEGER),
        ("fixed[16]", KeyFamily.BINARY),
        ("uuid", KeyFamily.BINARY),
        ("timestamptz", KeyFamily.TIMESTAMPTZ),
        ("time", KeyFamily.TIME),
    ],
)
def test_key_type_of_iceberg_types(name: str, family: KeyFamily) -> None:
    kind = key_type(name)
    assert kind is not None
    assert kind.family is family


@pytest.mark.parametrize("name", ["list<int>", "struct<1: a: optional int>", "map<string, int>", "variant"])
def test_nested_types_are_no_keys(name: str) -> None:
    assert key_type(name) is None


def test_families_do_not_mix() -> None:
    left, right = key_type("long"), key_type("string")
    assert left is not None
    assert right is not None
    assert left.common(right) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("boolean", "int", "long", "date", "timestamp", "timestamptz", "string", "binary")),
        *((name, True) for name in ("fixed[7]", "decimal(18, 2)", "decimal(1,0)")),
        *((name, False) for name in ("float", "double", "time", "uuid", "decimal(19, 2)", "timestamp_ns", "list<int>")),
    ],
)
def test_types_that_keys_of_covering_indexes_have(name: str, expected: bool) -> None:
    assert is_bucketed(name) is expected
