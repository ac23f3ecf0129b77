"""Columns of tables in PostgreSQL, with values of every type that a change feed carries.

Used by the soak of Debezium.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

LETTERS = "aZ0 ,'\"\\{}\t\näß€漢😀\u200d"
Make = Callable[[Random], Any]


@dataclass(frozen=True)
class Column:
    """``make``: a value that is not null. ``shown``: SQL that gives what Iceberg is to have, ``{}`` standing for it.

    ``is_untold``: Debezium has no placeholder for a large value that an update leaves as it is. ``is_required``: it is
    NOT NULL. ``default``: SQL of its DEFAULT, and ``filled`` what a converter writes for it in place of null.
    ``generated``: SQL of the expression that it is STORED for; ``computed``: the same for ``source.generated``.
    """

    name: str
    sql: str
    kind: IcebergType
    make: Make
    shown: str = "{}"
    large: bool = False
    is_untold: bool = False
    is_required: bool = False
    default: str = ""
    filled: Any = None
    generated: str = ""
    computed: str = ""

    @property
    def definition(self) -> str:
        """Its part of CREATE TABLE."""
        default = f" default {self.default}" if self.default else ""
        generated = f" generated always as ({self.generated}) stored" if self.generated else ""
        return f"{self.name} {self.sql}{' not null' if self.is_required else ''}{default}{generated}"

    @property
    def is_bits(self) -> bool:
        """Whether it is a string of bits."""
        return "bit" in self.sql

    def value(self, random: Random) -> Any:
        """A value for a statement, sometimes null."""
        made = None if not self.is_required and random.random() < 0.1 else self.make(random)
        # As text: PostgreSQL casts a number before it takes its sign, and so has no -2^63
        return str(made) if isinstance(made, int | float) else made


def whole(bits: int) -> Make:
    """Return a maker of whole numbers of ``bits`` and a sign."""
    limits = (-(1 << bits), (1 << bits) - 1, 0)
    return lambda random: random.choice(limits) if random.random() < 0.1 else random.randrange(*limits[:2])


def decimals(precision: int, scale: int) -> Make:
    """Return a maker of numbers that numeric(precision,scale) holds."""

    def make(random: Random) -> Decimal:
        unscaled = random.choice([10**precision - 1, random.randrange(10 ** random.randint(1, precision))])
        return Decimal(f"{random.choice([1, -1]) * unscaled}e-{scale}")  # whole, whatever the context

    return make


def double(random: Random) -> float:
    """Draw a number of 64 bits, also NaN and infinities."""
    if random.random() < 0.2:
        return random.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308])
    return random.choice([random.uniform(-1e6, 1e6), float(random.randint(-(1 << 53), 1 << 53)), random.gauss(0, 1e-9)])


def single(random: Random) -> float:
    """Draw a number of 32 bits, also NaN and infinities."""
    if random.random() < 0.2:
        return random.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 3.4028234663852886e38, 1.401298464324817e-45])
    return float(struct.unpack("<f", struct.pack("<f", random.gauss(0, 10 ** random.randint(-8, 8))))[0])


def texts(longest: int) -> Make:
    """Return a maker of text with odd characters."""
    return lambda random: "".join(random.choices(LETTERS, k=random.randint(0, longest)))


def often_large(make: Make, length: int) -> Make:
    """Also values that do not fit into a page, which an update does not log when it leaves them as they are."""
    return lambda random: make(random) * (length if random.random() < 0.15 else 1)


def moment(random: Random, first: int = 1, last: int = 9999) -> datetime:
    """Draw a moment of the years ``first`` to ``last``, mostly of today's."""
    years = (first, last) if random.random() < 0.15 else (1990, 2040)
    begin = datetime(years[0], 1, 2, tzinfo=UTC)
    span = (datetime(years[1], 12, 30, tzinfo=UTC) - begin) // timedelta(microseconds=1)
    found = begin + timedelta(microseconds=random.randrange(span))
    return found.replace(microsecond=random.choice([0, found.microsecond, found.microsecond // 1000 * 1000]))


def naive(random: Random) -> datetime:
    """Draw a moment without its zone."""
    return moment(random).replace(tzinfo=None)


def milli(random: Random) -> datetime:
    """Draw a moment of whole milliseconds without its zone."""
    found = naive(random)
    return found.replace(microsecond=found.microsecond // 1000 * 1000)


def day(random: Random) -> date:
    """Draw a day of the years 1 to 9999."""
    return random.choice([date(1, 1, 1), date(9999, 12, 31), *(3 * [moment(random).date()])])


def clock(random: Random) -> time:
    """Draw a time of day."""
    return random.choice([time(), time.max, naive(random).time()])


def lists(make: Make) -> Make:
    """Return a maker of lists with nulls of what ``make`` makes."""
    return lambda random: [None if random.random() < 0.2 else make(random) for _ in range(random.randint(0, 4))]


def list_of(number: int, kind: IcebergType) -> ListType:
    """Return the type of such lists; ``number``: the id of their items."""
    return ListType(number, kind, element_required=False)


def json_text(random: Random) -> str:
    """Draw a document with blanks and repeated names."""
    text = random.choice(["x", "ä€", '\\"', "\\\\", "\\n"])
    number = random.choice(["1", "1.50", "-2e3", "12345678901234567890.5", "true", "null"])
    return f'{{"b" :  "{text}", "a":[{number}, {{}}], "a2": null}}'


def padded_json(random: Random) -> str:
    """Draw a document that is sometimes large."""
    pad = "x" * (3000 if random.random() < 0.15 else 1)
    return f'{{"pad": "{pad}", "of": {json_text(random)}}}'


COLUMNS = (
    Column("flag", "boolean", BooleanType(), lambda random: random.random() < 0.5),
    Column("small", "smallint", IntegerType(), whole(15)),
    Column("whole", "integer", IntegerType(), whole(31)),
    Column("wide", "bigint", LongType(), whole(63)),
    Column("price", "numeric(9,2)", DecimalType(9, 2), decimals(9, 2)),
    Column("huge", "numeric(38,18)", DecimalType(38, 18), decimals(38, 18)),
    Column("count_of", "numeric(20)", DecimalType(20, 0), decimals(20, 0)),
    Column("free_number", "numeric", DecimalType(30, 10), decimals(28, 9)),
    Column("single", "real", FloatType(), single),
    Column("ratio", "double precision", DoubleType(), double),
    Column("short_text", "varchar(40)", StringType(), texts(40)),
    Column("padded", "char(6)", StringType(), lambda random: "".join(random.choices("abä", k=random.randint(0, 5)))),
    Column("kind", "mood", StringType(), lambda random: random.choice(["sad", "höchst ok"])),
    Column("day", "date", DateType(), day),
    Column("clock", "time", TimeType(), clock),
    Column("clock_millis", "time(3)", TimeType(), lambda random: milli(random).time()),
    Column("local", "timestamp", TimestampType(), naive),
    Column("local_millis", "timestamp(3)", TimestampType(), milli),
    Column("instant", "timestamptz", TimestamptzType(), moment),
    Column("code", "uuid", UUIDType(), lambda random: str(uuid.UUID(int=random.getrandbits(128)))),
    Column(
        "flags",
        "boolean[]",
        list_of(1001, BooleanType()),
        often_large(lists(lambda random: random.random() < 0.5), 900),
        large=True,
        is_untold=True,
    ),
    Column(
        "prices",
        "numeric(9,2)[]",
        list_of(1002, DecimalType(9, 2)),
        often_large(lists(decimals(9, 2)), 250),
        large=True,
        is_untold=True,
    ),
    Column(
        "days",
        "date[]",
        list_of(1003, DateType()),
        often_large(lists(day), 500),
        large=True,
        is_untold=True,
    ),
    Column("written", "json", StringType(), json_text, "{}::text"),
    Column("large_json", "jsonb", StringType(), padded_json, "{}::text", large=True),
    Column("large_text", "text", StringType(), often_large(texts(9), 700), large=True),
    Column("large_bytes", "bytea", BinaryType(), often_large(lambda random: random.randbytes(5), 700), large=True),
    Column("large_list", "text[]", list_of(1004, StringType()), often_large(lists(texts(9)), 500), large=True),
    Column("large_ints", "integer[]", list_of(1005, IntegerType()), often_large(lists(whole(31)), 900), large=True),
    Column("large_wides", "bigint[]", list_of(1006, LongType()), often_large(lists(whole(63)), 400), large=True),
)
