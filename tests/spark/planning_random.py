"""Random tables, and random filters as SQL and as expressions of PyIceberg.

Everything follows from a seed. Used by the random test of engines that let a server plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as expr
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyspark.sql import SparkSession

from tests.spark.index_bed import Lake, index_on


@dataclass(frozen=True)
class Kind:
    """A type of columns: its values, how SQL writes them, by which transforms tables are partitioned."""

    arrow: pa.DataType
    values: tuple[Any, ...]
    sql: Callable[[Any], str]
    transforms: tuple[Transform[Any, Any], ...] = ()
    is_keyed: bool = True


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = ("", "a", "A", "ab", "abc", "b", "ä", "äb", "z", "zz", "x'y", "🎈", "%", "a_b", "long text of words")
_MOMENTS = tuple(_EPOCH + timedelta(hours=h, microseconds=u) for h in range(-60, 60, 7) for u in (0, 1, -1))


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "\\'") + "'"


def _double(value: float) -> str:
    return f"cast('{value!r}' as double)" if math.isfinite(value) else f"double('{value}')"


_WHOLE = (IdentityTransform(), BucketTransform(3), TruncateTransform(10))
_DATES = (IdentityTransform(), DayTransform(), MonthTransform(), YearTransform(), BucketTransform(3))
KINDS: dict[str, Kind] = {
    "i": Kind(pa.int32(), (*range(-25, 25), 2**31 - 1, -(2**31)), str, _WHOLE),
    "n": Kind(pa.int64(), (*range(-25, 25), 2**63 - 1, -(2**63) + 1), "{}L".format, _WHOLE),
    "s": Kind(pa.string(), _TEXTS, _quoted, (IdentityTransform(), BucketTransform(3), TruncateTransform(1))),
    "d": Kind(pa.float64(), (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 36.0, 1e300, 5e-324), _double),
    "f": Kind(pa.float32(), (0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 8.0), lambda one: f"float({_double(one)})"),
    "m": Kind(pa.decimal128(9, 2), tuple(Decimal(n).scaleb(-2) for n in range(-300, 300, 37)), "{}BD".format, _WHOLE),
    "dt": Kind(
        pa.date32(), tuple(date(1969, 12, 1) + timedelta(days=n) for n in range(0, 90, 5)), "date'{}'".format, _DATES
    ),
    "ts": Kind(
        pa.timestamp("us", "UTC"),
        _MOMENTS,
        lambda one: f"timestamp'{one.replace(tzinfo=None).isoformat(' ')} UTC'",
        (DayTransform(), HourTransform(), MonthTransform(), IdentityTransform(), BucketTransform(3)),
    ),
    "o": Kind(pa.bool_(), (True, False), str, (IdentityTransform(),), is_keyed=False),
    "b": Kind(pa.binary(), tuple(text.encode() for text in _TEXTS), lambda one: f"X'{one.hex()}'"),
}


@dataclass
class RandomTable:
    """A table of random columns, partitions, deletes and writers, with indexes in a random state."""

    lake: Lake
    session: SparkSession
    name: str
    chance: Random
    columns: tuple[str, ...] = ()
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make it."""
        chance = self.chance
        self.columns = tuple(chance.sample(sorted(KINDS), chance.randint(3, 5)))
        schema = pa.schema([pa.field("k", pa.int64()), *(pa.field(name, KINDS[name].arrow) for name in self.columns)])
        table = self.lake.create(schema, self.name, properties={"format-version": "2"})
        if chance.random() < 0.6:
            self._partition(table)
        files = chance.randint(2, 6)
        for number in range(files):
            if number and chance.random() < 0.2:
                self._partition(self.lake.table(self.name))
            self._append(schema, chance.randint(1, 30))
        if chance.random() < 0.4:
            self._delete()
        self._index()

    def _partition(self, table: Table) -> None:
        """Another spec."""
        names = [name for name in self.columns if KINDS[name].transforms]
        if not names:
            return
        taken = {spec_field.name for spec in table.specs().values() for spec_field in spec.fields}
        chosen = self.chance.sample(names, min(len(names), self.chance.randint(1, 2)))
        with table.update_spec() as spec:
            for old in table.spec().fields:
                # Iceberg allows a column one transform of time
                if self.chance.random() < 0.7 or old.name.partition("_")[0] in chosen:
                    spec.remove_field(old.name)
            for name in chosen:
                transform = self.chance.choice(KINDS[name].transforms)
                title = f"{name}_{transform}".replace("[", "_").replace("]", "") + "_part"
                if title not in taken:
                    spec.add_field(name, transform, title)
                    self.told.append(f"partitioned by {transform} of {name}")

    def _append(self, schema: pa.Schema, rows: int) -> None:
        chance = self.chance
        columns: list[list[Any]] = [[chance.randint(0, 400) for _ in range(rows)]]
        for name in self.columns:
            some = chance.sample(KINDS[name].values, min(len(KINDS[name].values), chance.randint(1, 8)))
            nulls = chance.choice((0, 0, 0.2, 1))
            columns.append([None if chance.random() < nulls else chance.choice(some) for _ in range(rows)])
        data = pa.table(columns, schema=schema)
        table = self.lake.table(self.name)
        # PyIceberg writes no manifests of format version 3.
        if chance.random() < 0.5 and table.format_version < 3:
            table.append(data)
        else:
            self.session.createDataFrame(data).coalesce(1).createOrReplaceTempView("appended")
            self.session.sql(f"insert into {self.place} select * from appended")

    def _delete(self) -> None:
        if self.chance.random() < 0.5:
            self.session.sql(f"alter table {self.place} set tblproperties ('format-version' = '3')")
        self.session.sql(f"alter table {self.place} set tblproperties ('write.delete.mode' = 'merge-on-read')")
        for rest in self.chance.sample(range(7), self.chance.randint(1, 2)):
            self.session.sql(f"delete from {self.place} where k % 7 = {rest}")
            self.told.append(f"without k % 7 = {rest}")

    def _index(self) -> None:
        keyed = ["k", *(name for name in self.columns if KINDS[name].is_keyed)]
        for name in self.chance.sample(keyed, self.chance.randint(0, 3)):
            segments = self.chance.choice((None, None, 1, 2))
            self.lake.reindex(index_on(name, name=f"by_{name}"), max_segments=segments, name=self.name)
            self.told.append(f"index on {name}, segments {segments}")
        if self.chance.random() < 0.3:
            schema = pa.schema(
                [pa.field("k", pa.int64()), *(pa.field(name, KINDS[name].arrow) for name in self.columns)]
            )
            self._append(schema, 10)
            self.told.append("appended after its indexes")

    @property
    def place(self) -> str:
        """Its name in Spark's own catalog."""
        return f"skipstone.ns.{self.name}"


@dataclass(frozen=True)
class RandomFilter:
    """A filter in both languages. ``arrow``: None where PyIceberg has no such test."""

    sql: str
    arrow: expr.BooleanExpression | None


def random_filter(chance: Random, columns: Sequence[str], depth: int = 2) -> RandomFilter:
    """A filter on ``columns`` and k."""
    if depth == 0 or chance.random() < 0.35:
        return _leaf(chance, chance.choice(["k", *columns]))
    if chance.random() < 0.2:
        inner = random_filter(chance, columns, depth - 1)
        return RandomFilter(f"not ({inner.sql})", inner.arrow and expr.Not(inner.arrow))
    sides = [random_filter(chance, columns, depth - 1) for _ in range(2)]
    word, node = chance.choice((("and", expr.And), ("or", expr.Or)))
    both = [side.arrow for side in sides if side.arrow is not None]
    return RandomFilter(f"(({sides[0].sql}) {word} ({sides[1].sql}))", node(*both) if len(both) == 2 else None)


_COMPARISONS: dict[str, Any] = {
    "=": expr.EqualTo,
    "!=": expr.NotEqualTo,
    "<": expr.LessThan,
    "<=": expr.LessThanOrEqual,
    ">": expr.GreaterThan,
    ">=": expr.GreaterThanOrEqual,
}


def _leaf(chance: Random, name: str) -> RandomFilter:
    kind = KINDS.get(name, Kind(pa.int64(), tuple(range(401)), "{}L".format))
    one, *others = chance.choices(kind.values, k=chance.randint(1, 4))
    test = chance.random()
    if test < 0.12:
        return RandomFilter(f"{name} is null", expr.IsNull(name))
    if test < 0.2:
        return RandomFilter(f"{name} is not null", expr.NotNull(name))
    if test < 0.4:
        values = [one, *others]
        word, node = chance.choice((("in", expr.In), ("not in", expr.NotIn)))
        told = ", ".join(map(kind.sql, values))
        return RandomFilter(f"{name} {word} ({told})", None if _is_odd(values) else node(name, values))
    if name == "s" and test < 0.6:
        word, node = chance.choice((("like", expr.StartsWith), ("not like", expr.NotStartsWith)))
        start = one.replace("%", "\\%").replace("_", "\\_")
        return RandomFilter(f"s {word} {_quoted(start + '%')}", node("s", one))
    if name in ("d", "f") and test < 0.5:
        return RandomFilter(f"isnan({name})", expr.IsNaN(name))
    operator = chance.choice(list(_COMPARISONS))
    odd = _is_odd([one]) or name == "o"
    return RandomFilter(f"{name} {operator} {kind.sql(one)}", None if odd else _COMPARISONS[operator](name, one))


def _is_odd(values: Sequence[Any]) -> bool:
    """Whether PyIceberg's literals cannot say it."""
    return any(
        (isinstance(one, float) and not math.isfinite(one)) or isinstance(one, bytes | Decimal) for one in values
    )
