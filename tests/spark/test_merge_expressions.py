"""Expressions of clauses: random ones mean what Spark's ANSI SQL makes of the same text, also through whole merges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from skipstone.kernels.computing.expressions import compute
from skipstone_core.contract.requests import MergeAction, MergeClause
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.language.expressions import Atom, ValueExpression, check_expression, with_sides
from skipstone_core.language.parser import parse_assigned
from skipstone_core.language.predicates import ColumnRef, Constant
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.examples import cases
from tests.spark.merge_bed import MergeBed, duckdb_merge, task_of

ZONE = "America/New_York"
EXPRESSIONS = cases(80, 3000)
REFUSED = cases(4, 100)
INTS = [0, 1, -1, 7, -3, 2**31 - 1, -(2**31), None]
LONGS = [0, 1, -1, 10, 2**31, 2**63 - 1, -(2**63), None]
SMALL = [Decimal(text) for text in ("0.00", "1.50", "-0.05", "9999999.99", "-9999999.99", "3.33")]
WIDE = [Decimal(text) for text in ("0", "1.5", "-2.0000000001", "9999999999999999999999999999.9999999999", "1e-10")]
DOUBLES = [0.0, -0.0, 1.5, -2.25, 0.1, 1e300, float("inf"), float("nan"), None]
TEXTS = ["", "a", "é", "12", " -7 ", "1.5", "2024-02-29", "true", "x'y", None]
DAYS = [date(2024, 2, 29), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), None]
MOMENTS = [datetime(2024, 2, 29), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 7, 1, 12, 30), None]  # noqa: DTZ001
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "source.i": ("int", pa.int32(), INTS),
    "target.j": ("int", pa.int32(), INTS),
    "source.l": ("long", pa.int64(), LONGS),
    "source.d": ("decimal(9, 2)", pa.decimal128(9, 2), [*SMALL, None]),
    "target.e": ("decimal(38, 10)", pa.decimal128(38, 10), [*WIDE, None]),
    "source.f": ("float", pa.float32(), [0.5, -1.25, 3.0, None]),
    "target.x": ("double", pa.float64(), DOUBLES),
    "source.s": ("string", pa.string(), TEXTS),
    "target.t": ("string", pa.large_string(), TEXTS),
    "source.b": ("boolean", pa.bool_(), [True, False, None]),
    "source.day": ("date", pa.date32(), DAYS),
    "target.at": ("timestamp", pa.timestamp("us"), MOMENTS),
    "source.seen": ("timestamptz", pa.timestamp("us", tz="UTC"), [one and one.replace(tzinfo=UTC) for one in MOMENTS]),
}
NUMBERS = ["source.i", "target.j", "source.l", "source.d", "target.e", "source.f", "target.x"]
#: Spark rounds what it negates to 34 digits.
WIDEST = "target.e"
LITERALS = ["0", "1", "-2", "2147483648", "0.5", "1.25", "100.000", "1e2", "null"]
#: Types of Spark for those of Iceberg that it calls otherwise.
SPARK_TYPES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
ROWS = 12


class Texts:
    """Random expressions as texts, most of which the check takes."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def number(self, depth: int) -> str:
        pick, below = self.random.random(), depth - 1
        if depth == 0 or pick < 0.15:
            return self.random.choice([*NUMBERS, *NUMBERS, *LITERALS])
        if pick < 0.65:
            return f"({self.number(below)} {self.random.choice('+-*/%')} {self.number(below)})"
        if pick < 0.75:
            return f"coalesce({self.number(below)}, {self.number(below)})"
        if pick < 0.82:
            return f"- {self.random.choice([name for name in NUMBERS if name != WIDEST])}"
        if pick < 0.88:
            return f"round({self.number(below)}, {self.random.randint(0, 4)})"
        kind = self.random.choice(["int", "long", "float", "double", "decimal(12,2)", "decimal(38,6)"])
        return f"cast({self.number(below) if pick < 0.97 else self.text(below)} as {kind})"

    def text(self, depth: int) -> str:
        pick, below = self.random.random(), depth - 1
        if depth == 0 or pick < 0.3:
            return self.random.choice(["source.s", "target.t", "'x'", "'it''s'", "''"])
        if pick < 0.6:
            return f"({self.text(below)} || {self.text(below)})"
        if pick < 0.75:
            return f"coalesce({self.text(below)}, {self.text(below)})"
        inner = [self.number(below), "source.b", "source.day", "target.at", "source.seen"]
        return f"cast({self.random.choice(inner)} as string)"

    def moment(self, depth: int) -> str:
        pick = self.random.random()
        if depth == 0 or pick < 0.3:
            return self.random.choice(["source.day", "target.at", "source.seen", "date '2024-01-01'"])
        if pick < 0.5:
            return f"coalesce({self.moment(depth - 1)}, {self.moment(depth - 1)})"
        if pick < 0.6:
            return f"to_date({self.moment(depth - 1)})"
        inner = self.moment(depth - 1) if pick < 0.9 else "source.s"
        return f"cast({inner} as {self.random.choice(['date', 'timestamp', 'timestamptz'])})"

    def any(self) -> str:
        return self.random.choice([self.number, self.number, self.number, self.text, self.moment])(3)


def checked(text: str) -> ValueExpression | None:
    """The expression, or None where its parts do not go together."""
    value = parse_assigned(text)
    term = Atom(value) if value is None or isinstance(value, ColumnRef | Constant) else value
    types = {name: kind for name, (kind, _, _) in COLUMNS.items()}
    try:
        return check_expression(with_sides(term), types, text=text, field="spec.f", zone=ZoneInfo(ZONE))
    except BadSpec:
        return None


def row_by_row(one: ValueExpression, columns: dict[str, pa.Array]) -> list[Any]:
    """The value in each row; the error where it is refused."""
    found: list[Any] = []
    for row in range(ROWS):
        try:
            found += compute(one, {name: column.slice(row, 1) for name, column in columns.items()}, 1).to_pylist()
        except BadData as error:
            found.append(error)
    return found


def at_once(one: ValueExpression, columns: dict[str, pa.Array], values: list[Any]) -> bool:
    """Whether the rows that are not refused have the same values when they are computed together."""
    good = [row for row, value in enumerate(values) if not isinstance(value, BadData)]
    together = compute(
        one, {name: column.take(pa.array(good, pa.int64())) for name, column in columns.items()}, len(good)
    )
    return [exact(value) for value in together.to_pylist()] == [exact(values[row]) for row in good]


def spark_text(text: str) -> str:
    """The same for Spark: types have other names there."""
    return re.sub(r"as (\w+)\b", lambda found: f"as {SPARK_TYPES.get(found[1], found[1])}", text)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """Spark in the zone of the expressions."""
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", ZONE)
    other.conf.set("spark.sql.ansi.enabled", "true")
    return other


def frame_of(session: SparkSession, columns: dict[str, pa.Array]) -> DataFrame:
    flat = session.createDataFrame(pa.table({"n": pa.array(range(ROWS)), **columns}))
    # without the cast a timestamp without zone would be an instant
    typed = {name: f"cast(`{name}` as {SPARK_TYPES.get(kind, kind)})" for name, (kind, _, _) in COLUMNS.items()}
    sides = [
        f"struct({', '.join(f'{one} as `{name[7:]}`' for name, one in typed.items() if name[:6] == side)}) as {side}"
        for side in ("source", "target")
    ]
    return flat.selectExpr("n", *sides).coalesce(1)


def exact(value: Any) -> Any:
    """Comparable to the sign of zero, with one NaN; instants as instants."""
    if isinstance(value, float):
        return repr(value)
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def test_random_expressions_mean_what_spark_makes_of_them(session: SparkSession) -> None:
    random = Random(16)
    texts = Texts(random)
    columns = {
        n: pa.array([random.choice(values) for _ in range(ROWS)], kind) for n, (_, kind, values) in COLUMNS.items()
    }
    found = [one for one in (checked(texts.any()) for _ in range(2 * EXPRESSIONS)) if one is not None][:EXPRESSIONS]
    assert len(found) > EXPRESSIONS / 2
    values = [row_by_row(one, columns) for one in found]
    assert all(at_once(one, columns, ours) for one, ours in zip(found, values, strict=True))
    frame = frame_of(session, columns)
    selected = []
    for at, (one, ours) in enumerate(zip(found, values, strict=True)):
        good = [str(row) for row, value in enumerate(ours) if not isinstance(value, BadData)]
        when = f"n in ({', '.join(good)})" if good else "false"
        selected.append(f"case when {when} then {spark_text(one.text)} end as v{at}")
    theirs = frame.selectExpr("n", *selected).toArrow().sort_by("n")
    wrong = []
    for at, (one, ours) in enumerate(zip(found, values, strict=True)):
        for value, expected in zip(ours, theirs.column(f"v{at}").to_pylist(), strict=True):
            if not isinstance(value, BadData) and exact(value) != exact(expected):
                wrong.append((one.text, one.type, value, expected))
    assert wrong == []
    assert sum(value is not None and not isinstance(value, BadData) for ours in values for value in ours) > 5 * len(
        found
    )
    refused = [
        (one, row) for one, ours in zip(found, values, strict=True) for row, value in enumerate(ours)
        if isinstance(value, BadData) and "casts a value" not in str(value)
    ]  # fmt: skip
    assert len(refused) >= REFUSED
    for one, row in random.sample(refused, REFUSED):
        with pytest.raises(PySparkException):
            frame.where(f"n = {row}").selectExpr(f"{spark_text(one.text)} as v").toArrow()


# --- whole merges ---

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", IntegerType()),
    NestedField(3, "m", IntegerType()),
    NestedField(4, "total", DecimalType(9, 2)),
    NestedField(5, "v", StringType()),
)
FEED = pa.table(
    {
        "id": pa.array([1, 11, 21, 100, 101], pa.int64()),
        "n": pa.array([10, None, -5, 7, None], pa.int32()),
        "price": pa.array(
            [Decimal("1.50"), Decimal("2.25"), None, Decimal("0.10"), Decimal("3.00")], pa.decimal128(5, 2)
        ),
        "v": ["one", None, "x", "new", None],
    }
)
SET = {
    "n": "coalesce(source.n, 0) + target.n",
    "m": "target.n",
    "total": "round(coalesce(target.total, 0) + source.price * 2, 2)",
    "v": "target.v || ':' || coalesce(source.v, '-')",
}
VALUES = {"id": "id", "n": "n * 2", "total": "source.price + 1", "v": "concat('new ', cast(id as string))"}
SQL = """
merge into t using s on t.id = s.id
when matched then update set n = coalesce(s.n, 0) + t.n, m = t.n, total = coalesce(t.total, 0) + s.price * 2,
  v = t.v || ':' || coalesce(s.v, '-')
when not matched then insert (id, n, total, v) values (s.id, s.n * 2, s.price + 1, 'new ' || s.id)
when not matched by source and t.id < 5 then update set n = -t.m, total = t.total / 4, v = t.v || '!'
"""
BY_SOURCE = MergeClause(
    action=MergeAction.UPDATE,
    when="target.id < 5",
    values={"n": "-target.m", "total": "cast(target.total / 4 as decimal(9,2))", "v": "target.v || '!'"},
)
MODES = [MergeMode.COPY_ON_WRITE, MergeMode.MERGE_ON_READ]


@pytest.fixture(params=MODES)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MergeBed]:
    """Thirty rows in three files."""
    made = MergeBed(tmp_path)
    made.create(SCHEMA, **{MERGE_MODE: request.param})
    made.append(*([row(i) for i in range(start, start + 10)] for start in (0, 10, 20)))
    yield made
    made.catalog.close()


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "n": number,
        "m": -number,
        "total": None if number == 11 else Decimal(number),
        "v": f"r{number}",
    }


def update(**values: str) -> tuple[MergeClause, ...]:
    return (MergeClause(action=MergeAction.UPDATE, values=values),)


INSERT_VALUES = (MergeClause(action=MergeAction.INSERT, values=VALUES),)


def test_a_merge_computes_as_duckdb_does(bed: MergeBed) -> None:
    before = bed.table().scan().to_arrow()
    clauses = {
        "when_matched": update(**SET),
        "when_not_matched": INSERT_VALUES,
        "when_not_matched_by_source": (BY_SOURCE,),
    }
    report = bed.merge(task_of(bed.source(FEED), **clauses))
    assert bed.rows() == duckdb_merge(before, FEED, SQL)
    counts = report.counts
    assert (counts["rowsUpdated"], counts["rowsInserted"], counts["filesCandidate"]) == (7, 2, 3)
    assert (counts["filesMarked"] > 0) == (bed.table().properties[MERGE_MODE] == MergeMode.MERGE_ON_READ)


def test_columns_that_are_swapped_have_their_values_from_before(bed: MergeBed) -> None:
    bed.merge(task_of(bed.source(FEED), when_matched=update(n="target.m", m="target.n"), when_not_matched=()))
    found = {one["id"]: (one["n"], one["m"]) for one in bed.table().scan().to_arrow().to_pylist()}
    assert (found[1], found[11], found[21], found[2]) == ((-1, 1), (-11, 11), (-21, 21), (2, -2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"n": "target.n + 2147483640"},
            r"spec.whenMatched\[0\].set.n: 'target.n \+ 2147483640' leaves the range of int",
        ),
        ({"n": "source.id / 2"}, "casts a value of .* that int does not hold as it is"),
        ({"n": "to_date(timestamp '2024-01-01 00:00:00')"}, "is date and cannot feed 'n', which is int: write cast"),
        ({"total": "target.total / 0"}, "divides by zero in some row"),
        ({"total": "source.price * 0.1"}, r"casts a value of source.price \* 0.1 that decimal\(9,2\) does not hold"),
        ({"n": "cast(source.v as int)"}, "casts a value of source.v that int does not hold as it is"),
    ],
)
def test_a_value_that_cannot_be_computed_fails_the_merge(bed: MergeBed, values: dict[str, str], message: str) -> None:
    before = bed.rows()
    with pytest.raises((BadData, BadSpec), match=message):
        bed.merge(task_of(bed.source(FEED), when_matched=update(**values), when_not_matched=()))
    assert bed.rows() == before
