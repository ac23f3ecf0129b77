"""Tables of every shape that a change feed is read from: keys, replica identities, defaults, partitions, odd values.

Used by the soak of Debezium.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from tests.spark.postgres_columns import (
    COLUMNS,
    Column,
    Make,
    day,
    decimals,
    list_of,
    lists,
    moment,
    texts,
    whole,
)

Key = tuple[Any, ...]
REGIONS = ("eu", "us-ä'\"\\")
TYPES = (
    "create type mood as enum ('sad', 'höchst ok')",
    "create domain count32 as bigint check (value between 0 and 4294967295)",
    "create domain count64 as numeric(20) check (value between 0 and 18446744073709551615)",
)


@dataclass(frozen=True)
class Shape:
    """A table. ``key_of``: the values of ``key`` in the row of a number below ``ids``; ``after``: more statements.

    ``weight``: how often it changes; ``flows``: what changes it; ``identity``: columns that are logged of deleted rows.
    ``is_truncated``: in the midst of the history. ``partitions``: its tables, if it has any.
    """

    name: str
    key: tuple[Column, ...]
    key_of: Callable[[int], Key]
    columns: tuple[Column, ...]
    constraint: str
    after: tuple[str, ...] = ()
    partitioned: str = ""
    ids: int = 120
    weight: float = 1.0
    flows: tuple[str, ...] = ("insert", "update", "move", "delete")
    identity: tuple[str, ...] = ()
    is_truncated: bool = False
    partitions: tuple[str, ...] = ()

    @property
    def statements(self) -> Sequence[str]:
        """Those that make it."""
        listed = ", ".join([*(column.definition for column in (*self.key, *self.columns)), self.constraint])
        partitioned = f" partition by {self.partitioned}" if self.partitioned else ""
        external = [
            f"alter table {self.name} alter {column.name} set storage external"
            for column in self.columns
            if column.large
        ]
        return [f"create table {self.name} ({listed.rstrip(', ')}){partitioned}", *self.after, *external]

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its key columns."""
        return tuple(column.name for column in self.key)


def _sometimes(odd: Sequence[Any], make: Make, share: float = 0.1) -> Make:
    return lambda random: random.choice(odd) if random.random() < share else make(random)


def _required(name: str, sql: str, kind: IcebergType, make: Make | None = None) -> Column:
    return Column(name, sql, kind, make or texts(8), is_required=True)


def _bits(least: int, most: int) -> Make:
    return lambda random: "".join(random.choices("01", k=random.randint(least, most)))


def _id(random: Random) -> int:
    """Draw one that no other row has."""
    return random.getrandbits(62)


def _grid(make: Make) -> Make:
    return lambda random: [[make(random) for _ in range(2)] for _ in range(random.randint(1, 3))]


REGION_KEY = (_required("region", "text", StringType()), _required("id", "bigint", LongType()))
ID_KEY = (_required("id", "bigint", LongType()),)
CODE_KEY = (_required("code", "text", StringType()),)


def _region_key(number: int) -> Key:
    return REGIONS[number % 2], number // 2


def _id_key(number: int) -> Key:
    return (number,)


def _code_key(number: int) -> Key:
    """A text that is empty in the first row."""
    return ("ä'" * (number % 3) + str(number) if number else "",)


PLAIN_COLUMNS = (
    Column("name", "text", StringType(), texts(12)),
    Column("amount", "integer", IntegerType(), whole(31)),
    Column("price", "numeric(9,2)", DecimalType(9, 2), decimals(9, 2)),
)
BY_KEY = Shape(
    "by_key", REGION_KEY, _region_key, COLUMNS, "primary key (region, id)",
    ids=300, weight=3, identity=("region", "id"),
)  # fmt: skip
BY_ROW = Shape(
    "by_row", REGION_KEY, _region_key, COLUMNS, "primary key (region, id)",
    ("alter table by_row replica identity full",), ids=200, weight=2, identity=("region", "id"), is_truncated=True,
)  # fmt: skip
BY_INDEX = Shape(
    "by_index", CODE_KEY, _code_key, (_required("id", "bigint", LongType(), _id), *PLAIN_COLUMNS), "primary key (id)",
    ("create unique index by_code on by_index (code)", "alter table by_index replica identity using index by_code"),
    identity=("code",),
)  # fmt: skip
#: Its primary key is outside the identity, until LATE_FULL is run.
LATE = Shape(
    "late", ID_KEY, _id_key, (_required("code", "bigint", LongType(), _id), *PLAIN_COLUMNS), "primary key (id)",
    ("create unique index late_code on late (code)", "alter table late replica identity using index late_code"),
)  # fmt: skip
LATE_FULL = "alter table late replica identity full"
#: Run later, it stands for a new snapshot.
LATE_AGAIN = "update late set id = id"
BY_NOTHING = Shape(
    "by_nothing", ID_KEY, _id_key, PLAIN_COLUMNS, "primary key (id)",
    ("alter table by_nothing replica identity nothing",), ids=2000, weight=0.3, flows=("insert",), is_truncated=True,
)  # fmt: skip
PARTS = Shape(
    "parts", REGION_KEY, _region_key, PLAIN_COLUMNS, "primary key (region, id)",
    ("create table parts_eu partition of parts for values in ('eu')",
     "create table parts_rest partition of parts default"),
    partitioned="list (region)", identity=("region", "id"), partitions=("parts_eu", "parts_rest"),
)  # fmt: skip
ALTERED = Shape("altered", ID_KEY, _id_key, PLAIN_COLUMNS, "primary key (id)", identity=("id",))
#: Between two marks each. A row that a statement changes without an event is written again by the update behind it.
ALTERS: tuple[tuple[str, ...], ...] = (
    ("alter table altered add added integer",),
    ("alter table altered add filled text not null default 'new'", "update altered set id = id"),
    ("alter table altered alter added type bigint",),
    ("alter table altered rename filled to renamed", "update altered set id = id"),
    ("alter table altered alter price type numeric(14,2)", "alter table altered alter renamed set default 'other'"),
    ("alter table altered drop added",),
    ("alter table altered alter price type numeric(14,1)", "update altered set id = id"),
    ("alter table altered alter renamed drop not null", "alter table altered add added text"),
)
#: What statements write into columns that ALTERS bring, by name and type.
ADDED = (
    Column("added", "integer", IntegerType(), whole(31)),
    Column("added", "bigint", LongType(), whole(63)),
    Column("added", "text", StringType(), lambda random: "w" + texts(5)(random)),
    Column("filled", "text", StringType(), texts(5), is_required=True),
    Column("renamed", "text", StringType(), texts(5), is_required=True),
    Column("price", "numeric", DecimalType(14, 2), decimals(11, 1)),
)
TODAY = datetime(2020, 1, 1, tzinfo=UTC)
#: Half of the values are null or the default.
DEFAULTED = Shape(
    "defaulted", ID_KEY, _id_key,
    (
        Column("an_integer", "integer", IntegerType(), _sometimes([7], whole(31), 0.3), default="7", filled=7),
        Column("a_text", "text", StringType(), _sometimes(["x"], texts(5), 0.3), default="'x'", filled="x"),
        Column("an_empty", "text", StringType(), _sometimes([""], texts(5), 0.3), default="''", filled=""),
        Column("a_number", "numeric(9,2)", DecimalType(9, 2), _sometimes([Decimal("1.50")], decimals(9, 2), 0.3),
               default="1.50", filled=Decimal("1.50")),
        Column("a_flag", "boolean", BooleanType(), lambda random: random.random() < 0.5, default="true", filled=True),
        Column("a_day", "date", DateType(), _sometimes([TODAY.date()], day, 0.3), default="'2020-01-01'",
               filled=TODAY.date()),
        Column("an_instant", "timestamptz", TimestamptzType(), moment, default="'2020-01-01 00:00:00+00'",
               filled=TODAY),
        Column("a_local", "timestamp", TimestampType(), lambda random: moment(random).replace(tzinfo=None),
               default="'2020-01-01 00:00:00'", filled=TODAY.replace(tzinfo=None)),
        Column("a_list", "integer[]", list_of(1001, IntegerType()), lists(whole(31)), default="'{}'", filled=[]),
        Column("now_by_default", "timestamptz", TimestamptzType(), moment, default="now()",
               filled=datetime(1970, 1, 1, tzinfo=UTC)),
        Column("a_random_uuid", "uuid", UUIDType(), lambda random: str(uuid.UUID(int=random.getrandbits(128))),
               default="gen_random_uuid()", filled=str(uuid.UUID(int=0))),
        Column("required", "integer", IntegerType(), _sometimes([5], whole(31), 0.3), is_required=True, default="5"),
        Column("required_text", "text", StringType(), _sometimes(["y"], texts(5), 0.3), is_required=True,
               default="'y'"),
    ),
    "primary key (id)", identity=("id",),
)  # fmt: skip
GENERATED = Shape(
    "generated", ID_KEY, _id_key,
    (
        Column("amount", "integer", IntegerType(), whole(15)),
        Column("name", "text", StringType(), lambda random: "".join(random.choices("aBcZ ", k=4))),
        Column("doubled", "integer", IntegerType(), whole(15), generated="amount * 2", computed="amount * 2"),
        Column("shouted", "text", StringType(), texts(4), generated="name || '!'", computed="name || '!'"),
        Column("lowered", "text", StringType(), texts(4), generated="lower(name)", computed="null"),
    ),
    "primary key (id)", identity=("id",),
)  # fmt: skip
NESTED = Shape(
    "nested", ID_KEY, _id_key,
    (
        Column("moods", "mood[]", list_of(1001, StringType()), _sometimes([["sad", None]], lambda random:
               random.choices(["sad", "höchst ok"], k=random.randint(0, 3)), 0.1), "{}::text[]"),
        Column("numbers", "integer[]", list_of(1002, IntegerType()), _sometimes([[[1, 2], [3, 4]], [[5]]],
               lists(whole(31)), 0.05)),
        Column("names", "text[]", list_of(1003, StringType()), _sometimes([[["a", "b"], ["c", "d"]]], lists(texts(5)),
               0.02)),
        Column("prices", "numeric(9,2)[]", list_of(1004, DecimalType(9, 2)),
               _sometimes([["NaN"], ["1.5", "NaN", None]], lists(decimals(9, 2)))),
        Column("ratios", "double precision[]", list_of(1005, DoubleType()),
               _sometimes([["NaN", "-Infinity", "0.1"]], lists(lambda random: random.random()))),
        Column("days", "date[]", list_of(1006, DateType()), lists(lambda random: date(2000, 1, random.randint(1, 31)))),
        Column("instants", "timestamptz[]", list_of(1007, TimestamptzType()), lists(lambda random:
               moment(random, 1990, 2040))),
        Column("codes", "uuid[]", list_of(1008, UUIDType()),
               lists(lambda random: str(uuid.UUID(int=random.getrandbits(128)))), "{}::text[]"),
        Column("bytes", "bytea[]", list_of(1009, BinaryType()), lists(lambda random: random.randbytes(3))),
    ),
    "primary key (id)", identity=("id",),
)  # fmt: skip
_INFINITE = ("infinity", "-infinity")
#: Columns whose values are shown as text: Python has no type for them.
SPECIAL = Shape(
    "special", ID_KEY, _id_key,
    (
        Column("free", "numeric", DecimalType(30, 10), _sometimes(["NaN", "Infinity", "-Infinity"], decimals(28, 9)),
               "{}::text"),
        Column("fixed", "numeric(9,2)", DecimalType(9, 2), _sometimes(["NaN"], decimals(9, 2)), "{}::text"),
        Column("day", "date", DateType(), _sometimes([*_INFINITE, "1582-10-04", "1582-10-10"], day, 0.2), "{}::text"),
        Column("local", "timestamp", TimestampType(), _sometimes([*_INFINITE, "1582-10-10 01:02:03.000004"], lambda
               random: moment(random).replace(tzinfo=None)), "{}::text"),
        Column("instant", "timestamptz", TimestamptzType(), _sometimes([*_INFINITE, "1582-10-10 01:02:03.000004+00"],
               moment), "{}::text"),
        Column("one_bit", "bit(1)", BooleanType(), _bits(1, 1), "{}::text"),
        Column("bits", "bit(12)", BinaryType(), _bits(12, 12), "{}::text"),
        Column("some_bits", "varbit(20)", BinaryType(), _bits(1, 20), "{}::text"),
        Column("small_count", "count32", LongType(), _sometimes([4294967295], lambda random: random.getrandbits(32))),
        Column("large_count", "count64", DecimalType(20, 0), _sometimes([18446744073709551615], lambda random:
               random.getrandbits(64))),
        Column("raw", "bytea", BinaryType(), lambda random: random.randbytes(random.randint(0, 9))),
    ),
    "primary key (id)", identity=("id",),
)  # fmt: skip
#: It has no key: equal rows come and go.
KEYLESS = Shape(
    "keyless",
    (
        _required("name", "text", StringType()),
        _required("amount", "integer", IntegerType()),
        _required("day", "date", DateType()),
    ),
    lambda number: (("a", "b'", "")[number % 3], number % 5, date(2000, 1, 1 + number % 4)),
    (), "", ("alter table keyless replica identity full",), ids=60, flows=("insert", "update", "delete"),
    identity=("name", "amount", "day"),
)  # fmt: skip
SHAPES = (BY_KEY, BY_ROW, BY_INDEX, LATE, BY_NOTHING, PARTS, ALTERED, DEFAULTED, GENERATED, NESTED, SPECIAL, KEYLESS)
