"""Columns of random tables with the values that broke other systems, and random conditions on them.

Used by the random query tests only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
LONG_TEXT = "x" * 300
LONG_TEXTS = (LONG_TEXT + "a", LONG_TEXT + "b")


def moment(text: str) -> dt.datetime:
    """A time without zone."""
    return dt.datetime.fromisoformat(text)


@dataclass(frozen=True)
class Kind:
    """A type, values of it, and literals to compare it with (as text of the grammar)."""

    type: pa.DataType
    values: tuple[object, ...]
    literals: tuple[str, ...]
    prefixes: tuple[str, ...] = ()


_MOMENTS = ("1883-11-18 12:03:58.000001", "1969-12-31 23:59:59.999999", "1970-01-01", "2024-01-01 00:00:00.000001")
_NUMBERS = ("0", "1", "-1", "5", "7", "5.0", "4.5", "-0.5", "0.1", "5e0", "1e300", "9223372036854775807", "2147483648")
_DECIMALS = ("0", "12.34", "12.340", "12.345", "-0.01", "-0.005", "9999999.99", "10000000", "-1e0", "0.1")
KINDS: Mapping[str, Kind] = {
    "boolean": Kind(pa.bool_(), (True, False), ("true", "false")),
    "int": Kind(pa.int32(), (0, 1, -1, 5, 7, 2**31 - 1, -(2**31)), _NUMBERS),
    "long": Kind(pa.int64(), (0, 1, -1, 5, 7, 2**53 + 1, 2**63 - 1, -(2**63)), (*_NUMBERS, "9007199254740993")),
    "float": Kind(pa.float32(), (NAN, 0.0, -0.0, INF, -INF, 0.5, 0.1, 7.0, 1e-45), _NUMBERS),
    "double": Kind(pa.float64(), (NAN, 0.0, -0.0, INF, -INF, 0.5, 0.1, -1.0, 5e-324, 1e300), _NUMBERS),
    "decimal": Kind(
        pa.decimal128(9, 2), tuple(map(Decimal, ("0.00", "-0.01", "12.34", "-9999999.99", "9999999.99"))), _DECIMALS
    ),
    "wide_decimal": Kind(
        pa.decimal128(38, 10),
        tuple(map(Decimal, ("0", "12.34", "12.3450000001", "-12345678901234567890.5", "9999999999999999999999999999"))),
        _DECIMALS,
    ),
    "date": Kind(
        pa.date32(),
        tuple(dt.date(*parts) for parts in ((1, 1, 1), (1899, 12, 31), (1970, 1, 1), (2024, 2, 29), (9999, 12, 31))),
        ("date '1970-01-01'", "date '1899-12-31'", "date '2024-03-01'", "date '0001-01-01'"),
    ),
    "timestamp": Kind(
        pa.timestamp("us"),
        tuple(map(moment, _MOMENTS)),
        (*(f"timestamp '{text}'" for text in _MOMENTS), "date '1970-01-01'", "timestamp '1900-01-01 00:00:00'"),
    ),
    "timestamptz": Kind(
        pa.timestamp("us", tz="UTC"),
        tuple(moment(text).replace(tzinfo=dt.UTC) for text in _MOMENTS),
        ("timestamp '1883-11-18 12:03:58.000001+00:00'", "timestamp '1970-01-01 02:00:00+02:00'"),
    ),
    "string": Kind(
        pa.string(),
        ("", "a", "ab", "b", "é", "\ud7ff", "\ue000", "\uffff", "😀", "😀z", *LONG_TEXTS, "\U0010ffff"),
        ("''", "'a'", "'ab'", "'aa'", "'\uffff'", "'😀'", "'\U0010ffff'", f"'{LONG_TEXT}b'", f"'{LONG_TEXT}'"),
        ("a", "é", "😀", LONG_TEXT, "\uffff", "\U0010ffff", "\ud7ff"),
    ),
    "binary": Kind(pa.binary(), (b"", b"\x00", b"\xff\x00", b"\xff" * 70), ()),
}  # fmt: skip


def random_values(random: Random, kind: Kind, count: int) -> list[object]:
    """Values of a kind; now and then all equal, all null or without nulls, so that bounds tell something."""
    pool = list(kind.values)
    match random.randrange(6):
        case 0:
            pool = [random.choice(pool)]
        case 1:
            pool = [None]
        case 2 | 3:
            pool = [*random.sample(pool, min(3, len(pool))), None]
        case 4:
            pool = [*pool, None]
    return [random.choice(pool) for _ in range(count)]


@dataclass(frozen=True)
class Conditions:
    """Random conditions on named columns."""

    random: Random
    columns: Mapping[str, Kind]

    def condition(self, depth: int = 3) -> str:
        """A condition as text of the grammar."""
        choice = self.random.random()
        if depth == 0 or choice < 0.35:
            return self._leaf()
        if choice < 0.45:
            return f"not ({self.condition(depth - 1)})"
        word = " and " if choice < 0.75 else " or "
        parts = [self.condition(depth - 1) for _ in range(self.random.randint(2, 3))]
        return f"({word.join(parts)})"

    def _leaf(self) -> str:
        name = self.random.choice(sorted(self.columns))
        kind = self.columns[name]
        if not kind.literals or self.random.random() < 0.12:
            return f"{name} is {self.random.choice(['', 'not '])}null"
        return self.random.choice(self._shapes(name, kind))

    def _shapes(self, name: str, kind: Kind) -> Sequence[str]:
        one, two = (self.random.choice(kind.literals) for _ in range(2))
        some = ", ".join(self.random.choice(kind.literals) for _ in range(self.random.randint(1, 4)))
        operator = self.random.choice(["<", "<=", ">", ">=", "!="])
        shapes = [
            f"{name} = {one}",
            f"{name} = {one}",
            f"{name} {operator} {one}",
            f"{one} {operator} {name}",
            f"{name} in ({some})",
            f"{name} not in ({some})",
            f"{name} between {one} and {two}",
        ]
        prefix = self.random.choice(kind.prefixes) if kind.prefixes else ""
        return [*shapes, f"{name} like '{prefix}%'", f"{name} not like '{prefix}%'"] if prefix else shapes
