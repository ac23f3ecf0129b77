"""Tests on columns as tests on what a partition transform made of them: never stronger, and no weaker than Iceberg's.

A transform that keeps the order takes the ends of a range; a bucket takes what is equal. Must not know partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    TruncateTransform,
    YearTransform,
    parse_transform,
)
from pyiceberg.types import DateType, IntegerType, LongType, PrimitiveType
from skipstone_core.keys import KeyFamily, KeyType, key_type
from skipstone_core.language.filters import IDENTITY, ColumnTest
from skipstone_core.language.predicates import Value

from skipstone.compat.pyiceberg import transformed_values
from skipstone.query.partitions.values import CodedTest, Mask, ValueColumn, encode_test
from skipstone.tables.arrow import arrow_type_of

_HOUR_MICROS, _DAY_MICROS = 3_600_000_000, 86_400_000_000
_UNARY = ("is-null", "not-null")


@dataclass(frozen=True)
class FieldProjection:
    """A partition field over a column of type ``source``: what tests on the column say of the field's values."""

    transform: object
    source: PrimitiveType

    @property
    def kind(self) -> KeyType | None:
        """How the values of the field compare; None when nobody knows."""
        result = self.transform.result_type(self.source)  # type: ignore[attr-defined]
        return key_type(str(result).replace("_ns", ""))

    def project(self, test: ColumnTest) -> CodedTest | None:
        """``test`` on values of the field; None when it says nothing of them."""
        if test.term.transform == str(self.transform):
            return encode_test(test.operator, test.values, self.kind) if self.kind else None
        if test.term.transform != IDENTITY:
            return None
        if test.operator in _UNARY:
            return CodedTest(test.operator)
        match self.transform:
            case BucketTransform():
                return self._bucket(test)
            case TruncateTransform():
                return self._truncate(test, self.transform.width)
            case TimeTransform():
                return self._period(test)
        return None

    def applied(self, term: str) -> FieldProjection | None:
        """The field after the transform named ``term``; None unless it is the column itself, from which all follows.

        Iceberg's own clients take such a test for one on the column, and test no row: it must be judged in full.
        """
        if not isinstance(self.transform, IdentityTransform):
            return None
        return FieldProjection(parse_transform(term), self.source)

    def values_of(self, values: Sequence[object]) -> list[object]:
        """Return the transformed values of the column, both as Iceberg holds them."""
        apply = self._function()
        return [None if value is None else apply(value) for value in values]

    def _function(self) -> Callable[[object], object]:
        if isinstance(self.transform, TimeTransform):
            is_date = isinstance(self.source, DateType)
            return lambda value: _period_of(self.transform, cast("int", value), is_date=is_date)
        if isinstance(self.transform, TruncateTransform) and isinstance(self.source, IntegerType | LongType):
            width, bits = self.transform.width, 32 if isinstance(self.source, IntegerType) else 64
            return lambda value: _wrapped(cast("int", value) // width * width, bits)
        return self.transform.transform(self.source)  # type: ignore[attr-defined,no-any-return]

    def uncertain(self, test: ColumnTest, column: ValueColumn) -> Mask | bool:
        """Values that the transform does not make: integers near the least one overflow in Java.

        They say nothing of the column's values, but that there are some, and all of a test on the transform.
        """
        if test.term.transform != IDENTITY or not test.values:
            return False
        if not isinstance(self.transform, TruncateTransform) or not isinstance(self.source, IntegerType | LongType):
            return False
        return np.asarray(column.numbers % self.transform.width != 0, np.bool_)

    def _coded(self, test: ColumnTest) -> CodedTest | None:
        """The test as one on the column itself; None for tests that hold of rows that are not looked for."""
        own = key_type(str(self.source))
        if own is None or test.operator in ("!=", "not-in", "is-nan", "not-nan"):
            return None
        return encode_test(test.operator, test.values, own)

    def _bucket(self, test: ColumnTest) -> CodedTest | None:
        if test.operator not in ("=", "in"):
            return None
        kind = arrow_type_of(self.source)
        values = pa.array([value for value in test.values if _fits(value, self.source)], kind)
        buckets = transformed_values(self.transform, self.source, values)  # type: ignore[arg-type]
        return CodedTest("in", tuple(sorted(set(buckets.to_pylist()))))

    def _truncate(self, test: ColumnTest, width: int) -> CodedTest | None:
        coded = self._coded(test)
        own = key_type(str(self.source))
        if coded is None or own is None:
            return None
        if own.family is KeyFamily.STRING or own.family is KeyFamily.BINARY:
            return _truncated_text(coded, width)
        return _monotone(coded, lambda value: value - value % width)

    def _period(self, test: ColumnTest) -> CodedTest | None:
        coded = self._coded(test)
        if coded is None:
            return None
        is_date = isinstance(self.source, DateType)
        projected = _monotone(coded, lambda value: _period_of(self.transform, value, is_date=is_date))
        if isinstance(self.transform, DayTransform) and is_date:
            return projected
        return _widened(projected)


def _wrapped(value: int, bits: int) -> int:
    """``value`` as Java's arithmetic leaves it: below the least integer come the greatest."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _fits(value: Value, source: PrimitiveType) -> bool:
    """Return whether the column can hold the value; a decimal with more digits than its type equals none."""
    own = key_type(str(source))
    coded = () if own is None else encode_test("=", (value,), own).values
    if own is None or own.family is not KeyFamily.DECIMAL:
        return own is None or bool(coded)
    return any(abs(cast("int", unscaled)) < 10 ** (own.digits + own.scale) for unscaled in coded)


def _period_of(transform: object, value: int, *, is_date: bool) -> int:
    if isinstance(transform, HourTransform):
        return value // _HOUR_MICROS
    days = value if is_date else value // _DAY_MICROS
    match transform:
        case YearTransform():
            return int(np.datetime64(days, "D").astype("datetime64[Y]").astype(np.int64))
        case MonthTransform():
            return int(np.datetime64(days, "D").astype("datetime64[M]").astype(np.int64))
    return days


def _monotone(test: CodedTest, step: Callable[[int], int]) -> CodedTest:
    """A test on whole numbers after a step that keeps their order."""
    values = cast("tuple[int, ...]", test.values)
    match test.operator:
        case "<":
            return CodedTest("<=", (step(values[0] - 1),))
        case ">":
            return CodedTest(">=", (step(values[0] + 1),))
        case "<=" | ">=":
            return CodedTest(test.operator, (step(values[0]),))
        case _:
            return CodedTest("in", tuple({step(value): None for value in values}))


def _widened(test: CodedTest) -> CodedTest:
    """Before 1970 with the period after: old writers rounded towards 1970, as Iceberg allows for."""
    values = cast("tuple[int, ...]", test.values)
    match test.operator:
        case "<=" if values[0] < 0:
            return CodedTest("<=", (values[0] + 1,))
        case "in":
            return CodedTest("in", (*values, *(value + 1 for value in values if value < 0)))
    return test


def _truncated_text(test: CodedTest, width: int) -> CodedTest | None:
    values = cast("tuple[str, ...] | tuple[bytes, ...]", test.values)
    match test.operator:
        case "<" | "<=":
            return CodedTest("<=", (values[0][:width],))
        case ">" | ">=":
            return CodedTest(">=", (values[0][:width],))
        case "starts-with":
            return CodedTest("starts-with", (values[0][:width],))
        case "not-starts-with":
            return test if len(values[0]) <= width else None
        case _:
            return CodedTest("in", tuple(value[:width] for value in values))
