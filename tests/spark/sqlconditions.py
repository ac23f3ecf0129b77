"""Random conditions in Spark SQL on columns of every type, whose rows hold the values that they compare with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from random import Random

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
#: Values by column; conditions compare with the same ones, written as Spark SQL.
VALUES: dict[str, tuple[pa.DataType, tuple[object, ...]]] = {
    "k": (pa.int64(), (-3, 0, 1, 2, 5, 2**40, -(2**63), 2**63 - 1)),
    "i": (pa.int32(), (-1, 0, 7, 100, 2**31 - 1)),
    "s": (pa.string(), ("", "a", "ab", "abc", "é", "😀", "x" * 40, "a'b", "a%b")),
    "f": (pa.float64(), (NAN, 0.0, -0.0, 1.5, -1.5, INF, -INF, 1e-300)),
    "r": (pa.float32(), (NAN, 0.0, -0.0, 0.10000000149011612, -2.5, INF)),
    "c": (pa.decimal128(9, 2), tuple(map(Decimal, ("0.00", "1.50", "-1.50", "9999999.99")))),
    "d": (pa.date32(), (dt.date(1, 1, 1), dt.date(1899, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31))),
    "w": (pa.timestamp("us"), (dt.datetime(1899, 1, 1, 1, 2, 3, 4), dt.datetime(2024, 3, 31, 2, 30))),  # noqa: DTZ001
    "z": (
        pa.timestamp("us", "UTC"),
        (dt.datetime(1883, 11, 18, 17, tzinfo=dt.UTC), dt.datetime(2024, 10, 27, 0, 30, 0, 1, tzinfo=dt.UTC)),
    ),
    "b": (pa.bool_(), (True, False)),
}


def literal(name: str, value: object) -> str:
    """A value as Spark SQL."""
    match value:
        case str():
            return "'" + value.replace("'", "\\'") + "'"
        case float():
            return f"{'float' if name == 'r' else 'double'}('{value}')"
        case dt.datetime() if value.tzinfo:
            return f"timestamp '{value.isoformat()}'"
        case dt.datetime():
            return f"timestamp_ntz '{value.isoformat()}'"
        case dt.date():
            return f"date '{value.isoformat()}'"
        case int() if not isinstance(value, bool) and value == -(2**63):
            return "(-9223372036854775807 - 1)"
        case _:
            return str(value)


def leaf(random: Random, names: Sequence[str] = tuple(sorted(VALUES))) -> str:
    """A condition on one of some columns."""
    name = random.choice(names)
    value, other = (literal(name, random.choice(VALUES[name][1])) for _ in range(2))
    forms = [f"{name} {op} {value}" for op in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
    forms += [f"{value} >= {name}", f"{name} in ({value}, {other})", f"{name} not in ({value}, {other})"]
    forms += [f"{name} between {value} and {other}", f"{name} is null", f"{name} is not null", f"{name} <=> null"]
    forms += [
        f"{name} in ({value}, null)",
        f"coalesce({name}, {value}) = {other}",
        f"nullif({name}, {value}) = {other}",
    ]
    return random.choice(forms + special_forms(name, value))


def special_forms(name: str, value: str) -> list[str]:
    """Conditions that columns of one type have."""
    match name:
        case "s":
            return [f"s like {value[:-1]}%'", f"s like {value}", f"not s like {value[:-1]}%'", "s like '%b'"]
        case "b":
            return ["b", "not b"]
        case "d" | "w" | "z":
            days = (f"{name} >= '2024-03-31'", f"cast({name} as date) = date '2024-10-27'")
            return [*days, f"{name} < date '2024-03-01'"]
        case _:
            return [f"{name} = 1.5", f"{name} > 0.1", f"{name} <= 2147483648", f"{name} = '0'"]


def condition(random: Random, depth: int = 2) -> str:
    """A condition of up to four leaves."""
    if depth == 0 or random.random() < 0.3:
        return leaf(random)
    inner = [condition(random, depth - 1) for _ in range(2)]
    return random.choice([f"({inner[0]} and {inner[1]})", f"({inner[0]} or {inner[1]})", f"not ({inner[0]})"])
