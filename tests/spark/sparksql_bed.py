"""Sessions that see the tables of Spark's own SQL tests as rows in memory, and as indexed Iceberg tables.

The tables that an input makes are made again in each session as temporary views of the same names. Iceberg tables hold
other rows besides, which the views leave out by a condition that an index answers. Used by the soak that runs the
inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import skipstone
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.index_bed import Lake, index_on
from tests.spark.secondengine import second_spark
from tests.spark.sparksql_inputs import Input, read_data

#: The column by which views know the rows of an input, and its value there.
LIVE, IS_LIVE = "skipstone_live", 1
FILES, OTHER_ROWS = 4, 12
#: Sessions that have the rows in other orders, to see whether a query depends on that.
SHUFFLED = 3
#: Columns of the types that an index takes.
_INDEXED = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date),
    *(pa.types.is_timestamp, pa.types.is_string, pa.types.is_binary),
)
#: Types that Iceberg has not, and the ones that hold their values.
_WIDER = {pa.int8(): pa.int32(), pa.int16(): pa.int32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_VIEW = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?P<kind>(?:global\s+)?temp(?:orary)?\s+)?view\s+(?:if\s+not\s+exists\s+)?"
    r"(?P<name>[\w.`]+)",
    re.IGNORECASE,
)
_DROP = re.compile(r"drop\s+(?:temp(?:orary)?\s+)?(?:table|view)\s+(?:if\s+exists\s+)?(?P<name>[\w.`]+)", re.IGNORECASE)
#: Commands whose effect is a session's own.
_OWN = re.compile(
    r"(set|reset|declare|(un)?cache|clear|use)\b|(create|drop)\s+(or\s+replace\s+)?temp(orary)?\s+(function|variable)\b",
    re.IGNORECASE,
)
#: Commands that only tell something.
_TELLS = re.compile(r"(describe|desc|show|explain|analyze|refresh|comment|begin)\b", re.IGNORECASE)
_SQL_TESTS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True)
class State:
    """How far the indexes of the tables are, and how many rows the driver reads."""

    name: str
    covered: int
    deletes: bool
    driver_rows: int


STATES = (
    State("some", FILES - 1, deletes=False, driver_rows=3),
    State("all", FILES, deletes=False, driver_rows=0),
    State("deletes", FILES, deletes=True, driver_rows=100_000),
)


@dataclass(eq=False)
class Sides:
    """The sessions of one input.

    ``first``: runs what the input says. ``memory``: sees rows in memory; ``shuffled``: the same in other orders.
    ``indexed``: sees Iceberg tables; ``enabled``: the same, and rewrites whatever it runs, joins too.
    """

    lake: Lake
    state: State
    first: SparkSession
    memory: SparkSession
    shuffled: tuple[SparkSession, ...]
    indexed: SparkSession
    enabled: SparkSession
    tables: int = 0
    plain_tables: list[str] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)

    @property
    def others(self) -> tuple[SparkSession, ...]:
        """All but the first."""
        return (self.memory, *self.shuffled, self.indexed, self.enabled)

    def prepare(self) -> None:
        """Make Iceberg tables of the tables that have changed."""
        for name in sorted(self.changed):
            found = _attempt(lambda name=name: self.first.table(name))
            if found is not None:
                self.show(name, found)
        self.changed.clear()

    def command(self, text: str) -> None:
        """Run a statement that gives no rows, in every session that it concerns."""
        if _TELLS.match(text):
            return
        if _attempt(lambda: self.first.sql(text)) is None:
            return
        if view := _VIEW.match(text):
            self._made_view(text, view)
        elif drop := _DROP.match(text):
            self.changed.discard(_bare(drop["name"]))
            for session in self.others:
                session.catalog.dropTempView(_bare(drop["name"]))
        elif _OWN.match(text):
            for session in self.others:
                _attempt(lambda session=session: session.sql(text))
        else:
            self.changed |= {name for name in _tables(self.first) if re.search(rf"\b{re.escape(name)}\b", text, re.I)}

    def _made_view(self, text: str, view: re.Match[str]) -> None:
        """A view of rows becomes a table; a view of views is made in every session, of their own."""
        kind, name = view["kind"] or "", view["name"]
        if "global" in kind.lower():
            return
        made = _attempt(lambda: self.first.table(name))
        if made is None:
            return
        if kind and _holds_rows(made):
            self.show(name, made)
            return
        self.prepare()
        own = text if kind else re.sub(r"\bview\b", "temporary view", text, count=1, flags=re.I)
        own = re.sub(r"create\s+(or\s+replace\s+)?", "create or replace ", own, count=1, flags=re.I)
        for session in self.others:
            _attempt(lambda session=session: session.sql(own))

    def show(self, name: str, made: DataFrame) -> None:
        """Let every session see the rows of a table as a view of the same name."""
        name = _bare(name)
        try:
            rows = _as_iceberg_has_them(made.toArrow())
            self.tables += 1
            table = f"t{self.tables}"
            self._store(table, rows)
        except Exception:  # noqa: BLE001 - a table that Iceberg cannot hold stays what it is
            self.plain_tables.append(name)
            for session in self.others:
                _in(session, made, name)
            return
        columns = ", ".join(f"`{one}`" for one in rows.column_names)
        view = f"select {columns} from skipstone.ns.{table} where {LIVE} = {IS_LIVE}"
        for session in (self.indexed, self.enabled):
            session.sql(view).createOrReplaceTempView(f"`{name}`")
        schema = self.indexed.table(f"`{name}`").schema
        for number, session in enumerate((self.memory, *self.shuffled)):
            order = Random(f"{name} {number}").sample(range(len(rows)), len(rows)) if number else range(len(rows))
            held = rows.take(pa.array(order, pa.int64()))
            session.createDataFrame(held, schema=schema).createOrReplaceTempView(f"`{name}`")

    def _store(self, name: str, rows: pa.Table) -> None:
        """An Iceberg table of several segments with the rows in the first and the last one."""
        flagged = _with_flag(rows, [IS_LIVE] * len(rows))
        table = self.lake.create(flagged.schema, name)
        half = (len(rows) + 1) // 2
        live = {0: flagged.slice(0, half), FILES - 1: flagged.slice(half)}
        for file in range(FILES):
            parts = [_other_rows(rows, file)]
            if self.state.deletes and len(rows):
                parts.append(_with_flag(rows.slice(0, 3), [3] * min(3, len(rows))))
            table.append(pa.concat_tables([*parts, *([live[file]] if file in live else [])]))
        for number, columns in enumerate(_keys(rows)):
            self.lake.reindex(index_on(*columns, name=f"by_{number}"), max_segments=self.state.covered, name=name)
        if self.state.deletes and len(rows):
            self._delete(name)

    def _delete(self, name: str) -> None:
        """Rows that look like those of the input are deleted by position."""
        properties = "'write.update.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read'"
        self.indexed.sql(f"alter table skipstone.ns.{name} set tblproperties ({properties})")
        self.indexed.sql(f"delete from skipstone.ns.{name} where {LIVE} = 3")

    def close(self) -> None:
        """Leave nothing to the next input."""
        skipstone.disable(self.enabled)
        self.first.catalog.clearCache()
        for database in self.first.catalog.listDatabases():
            if database.name != "default":
                self.first.sql(f"drop database if exists `{database.name}` cascade")
        self.lake.catalog.close()


def open_sides(spark: SparkSession, root: Path, given: Input, state: State) -> Sides:
    """Sessions for an input, with the tables that Spark's tests have before they begin."""
    lake = Lake(root)
    first, memory, *shuffled = (spark.newSession() for _ in range(2 + SHUFFLED))
    indexed, enabled = (second_spark(spark, lake.warehouse) for _ in range(2))
    sides = Sides(lake, state, first, memory, tuple(shuffled), indexed, enabled)
    skipstone.enable(enabled)
    first.sql(f"create database soak location '{root}/plain'")
    for session in (first, *sides.others):
        for key, value in {**_SQL_TESTS, **given.settings}.items():
            session.conf.set(key, value)
        session.sql("use soak")
        session.conf.set("skipstone.driverRows", str(state.driver_rows))
    enabled.conf.set("skipstone.joinRows", "100000")
    words = " ".join(one.text for one in given.statements).lower()
    for name, make in TEST_DATA.items():
        if re.search(rf"\b{name}\b", words):
            sides.show(name, make(first))
    return sides


def _attempt(run: Callable[[], DataFrame]) -> DataFrame | None:
    """What a statement gives; None when Spark refuses it, as it shall many of its tests."""
    try:
        return run()
    except (PySparkException, Py4JJavaError, ValueError, TypeError):
        return None


def _bare(name: str) -> str:
    return name.replace("`", "").rsplit(".", 1)[-1]


def _tables(session: SparkSession) -> Iterator[str]:
    """The tables of the current schema, which the statement before may have dropped."""
    found = _attempt(lambda: session.sql("show tables"))
    return (row.tableName for row in (found.collect() if found is not None else ()) if not row.isTemporary)


def _holds_rows(made: DataFrame) -> bool:
    """Whether a view is of rows that stand in its definition."""
    plan = str(made._jdf.queryExecution().analyzed().toString())
    leaves = [line for line in plan.splitlines() if re.search(r"\bRelation\b|HiveTableRelation", line)]
    return plan.count("View (") <= 1 and not leaves


def _in(session: SparkSession, made: DataFrame, name: str) -> None:
    """The view as the first session has it."""
    found = _attempt(lambda: session.createDataFrame(made.collect(), made.schema))
    if found is not None:
        found.createOrReplaceTempView(f"`{name}`")


def _as_iceberg_has_them(rows: pa.Table) -> pa.Table:
    fields = [pa.field(one.name, _WIDER.get(one.type, one.type)) for one in rows.schema]
    return rows.cast(pa.schema(fields))


def _with_flag(rows: pa.Table, flags: Sequence[int]) -> pa.Table:
    return rows.append_column(pa.field(LIVE, pa.int32()), pa.array(flags, pa.int32()))


def _other_rows(rows: pa.Table, file: int) -> pa.Table:
    """Rows that no view shows: the values of each column in an order of its own."""
    random = Random(file)
    if not len(rows):
        return _with_flag(rows, [])
    count = min(OTHER_ROWS, 4 * len(rows))
    columns = {
        name: rows.column(name).take(pa.array([random.randrange(len(rows)) for _ in range(count)]))
        for name in rows.column_names
    }
    return _with_flag(pa.table(columns, schema=rows.schema), [number % 2 * 2 for number in range(count)])


def _keys(rows: pa.Table) -> Iterator[tuple[str, ...]]:
    """Columns of indexes: the flag, the first ones that can be keys, and the first two together."""
    yield (LIVE,)
    found = [one.name for one in rows.schema if any(is_kind(one.type) for is_kind in _INDEXED)]
    yield from ((name,) for name in found[:2])
    if len(found) > 1:
        yield (found[1], found[0])


def _of_lines(session: SparkSession, name: str, schema: str, kinds: Sequence[Callable[[str], object]]) -> DataFrame:
    rows = [tuple(kind(text) for kind, text in zip(kinds, line, strict=True)) for line in read_data(name)]
    return session.createDataFrame(rows, schema)


_ONEK = (
    "unique1 int, unique2 int, two int, four int, ten int, twenty int, hundred int, thousand int, twothousand int, "
    "fivethous int, tenthous int, odd int, even int, stringu1 string, stringu2 string, string4 string"
)
_ONEK_KINDS = (*(int,) * 13, *(str,) * 3)
#: What Spark's suite makes before it runs an input.
TEST_DATA: dict[str, Callable[[SparkSession], DataFrame]] = {
    "testdata": lambda session: session.sql("select int(id) key, string(id) value from range(1, 101)"),
    "arraydata": lambda session: session.sql(
        "select * from values (array(1, 2, 3), array(array(1, 2, 3))), (array(2, 3, 4), array(array(2, 3, 4))) "
        "as t(arraycol, nestedarraycol)"
    ),
    "mapdata": lambda session: session.sql("select map(id, 'a' || id) mapcol from range(1, 6)"),
    "aggtest": lambda session: _of_lines(session, "agg", "a int, b float", (int, float)),
    "onek": lambda session: _of_lines(session, "onek", _ONEK, _ONEK_KINDS),
    "tenk1": lambda session: _of_lines(session, "tenk", _ONEK, _ONEK_KINDS),
}
