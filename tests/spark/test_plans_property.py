"""Random conditions in Spark SQL, of every type, in every state of the indexes: the answer is always that of Spark.

Iceberg's own filters lose rows of NaN and of signed zeros, which Spark's comparisons keep: where it differs from an
unfiltered scan, rows that it loses may be found through an index, or not.

Several queries at a time run as one union, with a relation each, so that hundreds take seconds. `make test` runs
QUERIES of a fixed seed in every state, with one of DRIVER_ROWS that has its turn there; `make soak-query` runs the rest
of these, and of each feature a fiftieth of SKIPSTONE_SOAK_CASES of others.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone_core.indexing import use as index_use

from tests.examples import cases, turn
from tests.spark.index_bed import index_on
from tests.spark.joinqueries import SMALL, Columns, random_join
from tests.spark.kept import Kept
from tests.spark.plans_bed import TABLE, Bed, answer, open_bed
from tests.spark.rawdeletes import add_equality_delete
from tests.spark.sqlconditions import VALUES, condition, leaf, literal

QUERIES, SOAK_QUERIES, HELD = cases(2, 4), 20, 2
SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "50000")) // 50
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
#: Rows that the driver reads itself at most.
DRIVER_ROWS = (0, 3, 100_000)
SCHEMA = pa.schema([*(pa.field(name, kind) for name, (kind, _) in VALUES.items()), pa.field("n", pa.int32())])
INDEXES = tuple(index_on(column, name=f"by_{column}") for column in VALUES if column != "b")
COMPOSITE = index_on("b", "s", name="by_b_s")
#: Indexes that hold the values of all other columns.
WIDE = tuple(
    index_on(*keys, name=f"wide_{keys[0]}", include=[name for name in SCHEMA.names if name not in keys])
    for keys in (("i",), ("d", "b"))
)


def rows(seed: int, count: int) -> pa.Table:
    """Random rows; a file holds few of the values, so that there is something to skip."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[object]] = {"n": [seed * 1000 + number for number in range(count)]}
    for name, (_, values) in VALUES.items():
        few = [None, *(values[int(at)] for at in random.integers(0, len(values), 3))]
        columns[name] = [few[int(at)] for at in random.integers(0, len(few), count)]
    return pa.table(columns, schema=SCHEMA)


@dataclass
class States:
    """A lake that is brought into one state after the other: copies of it lie beside."""

    spark: SparkSession
    root: Path
    beside: Path
    kept: dict[str, Kept] = field(default_factory=dict)
    bed: Bed | None = None

    def open(self, state: str) -> Bed:
        """The lake in ``state``; daylight saving time matters in its session."""
        self.close()
        if state in self.kept:
            self.kept[state].restored()
        self.bed = open_bed(self.spark, self.root)
        self.bed.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        return self.bed

    def keep(self, state: str) -> None:
        """Call what the lake is now ``state``."""
        self.close()
        self.kept[state] = Kept(self.root, self.beside / state)

    def close(self) -> None:
        """Close the catalog."""
        if self.bed is not None:
            self.bed.lake.catalog.close()
            self.bed = None


@pytest.fixture(scope="module")
def states(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[States]:
    """A lake in all STATES."""
    made = States(spark, tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("kept"))
    made.open("new").lake.create(SCHEMA, "small").append(rows(99, 8))
    table = made.open("new").lake.create(SCHEMA)
    for seed in range(5):
        table.append(rows(seed, 12))
    made.keep("none")
    made.open("none").reindex(*INDEXES, COMPOSITE, *WIDE, max_segments=3)
    made.keep("some")
    made.open("some").reindex(*INDEXES, COMPOSITE, *WIDE)
    made.keep("all")
    for state, change in CHANGES.items():
        change(made.open("all"))
        made.keep(state)
    yield made
    made.close()


def let_stale(bed: Bed) -> None:
    """Replace the rows of a file, and append others."""
    bed.lake.table().overwrite(rows(7, 12), overwrite_filter="n >= 1000 and n < 2000")
    bed.lake.table().append(rows(8, 12))


def delete(bed: Bed) -> None:
    """Delete some rows by equality and others by position."""
    add_equality_delete(bed.lake.table(), {"k": [5, 0]})
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    bed.spark.sql(f"delete from {TABLE} where n % 5 = 0")


def delete_positions(bed: Bed) -> None:
    """Delete some rows by position, of which indexes can answer."""
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    bed.spark.sql(f"delete from {TABLE} where n % 3 = 0")


def drop(bed: Bed) -> None:
    """Drop an index."""
    bed.lake.catalog.drop_table(bed.lake.index_table(COMPOSITE).identifier)


def spoil(bed: Bed) -> None:
    """Cut every second file of two indexes in half."""
    for index in (INDEXES[0], COMPOSITE, WIDE[0]):
        root = Path(bed.lake.index_table(index).table.location().removeprefix("file://"))
        for file in sorted((root / "data").rglob("*.parquet"))[::2]:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


CHANGES: dict[str, Callable[[Bed], None]] = {
    "stale": let_stale,
    "deletes": delete,
    "positions": delete_positions,
    "dropped": drop,
    "corrupt": spoil,
}
STATES = ("none", "some", "all", *CHANGES)


@pytest.fixture(scope="module")
def bed(states: States, request: pytest.FixtureRequest) -> Bed:
    """The lake in one state, and all its rows as Spark's view ``unfiltered``."""
    made = states.open(request.param)
    made.spark.table(TABLE).localCheckpoint().createOrReplaceTempView("unfiltered")
    made.spark.table(SMALL).localCheckpoint().createOrReplaceTempView("unfiltered_small")
    return made


def select(random: Random, number: int) -> str:
    """A query for some columns; one of an indexed column alone may be answered by its index."""
    columns = ", ".join(random.choice([["n"], [random.choice(sorted(VALUES))], random.sample(sorted(VALUES), 3)]))
    return f"select {number} as q, to_json(struct({columns})) as found from {TABLE} where {condition(random)}"


def held(random: Random, number: int) -> str:
    """A query that an index of all columns may answer alone."""
    columns = ", ".join(random.sample(SCHEMA.names, random.randint(1, len(SCHEMA.names))))
    bound = " or ".join(leaf(random, [wide.columns[0] for wide in WIDE]) for _ in range(random.randint(1, 2)))
    more = f" and {condition(random)}" if random.random() < 0.6 else ""
    return f"select {number} as q, to_json(struct({columns})) as found from {TABLE} where ({bound}){more}"


#: Joins of t with {small}, rows of two columns x and m, by a column {c}. They select what there is of t.n and m.
JOINS = (
    "select {q}, to_json(struct(t.n, m)) from {t} t join {small} on t.{c} = x where {where}",
    "select {q}, to_json(struct(t.n, m)) from {small} join {t} t on x = t.{c} and m < t.n where {where}",
    "select {q}, to_json(struct(t.n, m)) from {small} left join {t} t on x = t.{c} and {where}",
    "select {q}, to_json(struct(t.n, m)) from {small} left join {t} t on x = t.{c} where t.n is null or {where}",
    "select {q}, to_json(struct(t.n, m)) from {t} t right join {small} on x = t.{c} and {where}",
    "select {q}, to_json(struct(t.n, m)) from {t} t left join {small} on x = t.{c} where {where}",
    "select {q}, to_json(struct(t.n, m)) from {t} t full join {small} on x = t.{c}",
    "select {q}, to_json(struct(t.n)) from {t} t left semi join {small} on x <=> t.{c} where {where}",
    "select {q}, to_json(struct(t.n)) from {t} t where {c} in (select x from {small}) and {where}",
    "select {q}, to_json(struct(t.n)) from {t} t where {c} not in (select x from {small}) and {where}",
    "select {q}, to_json(struct(t.n)) from {t} t where exists (select 1 from {small} where x = t.{c}) or {where}",
    "select {q}, to_json(struct(m)) from {small} where x in (select {c} from {t} t where {where})",
    "select {q}, to_json(struct(m)) from {small} where m = 99001 or x in (select {c} from {t} t where {where})",
    "select {q}, to_json(struct(m)) from {small} where not exists (select 1 from {t} t where t.{c} = x and {where})",
    "select {q}, to_json(struct(m, a)) from {small} join (select {c}, max(n) a from {t} t group by {c}) on x = {c}",
    "select {q}, to_json(struct(m, (select max(n) from {t} t where t.{c} = x and {where}))) from {small}",
    "select {q}, to_json(struct(u.n, t.n, m)) from {t} u join {t} t on u.n = t.n - 1 join {small} on x = t.{c}",
    "select {q}, to_json(struct(t.n, m)) from (select *, {c} as y from {t}) t join {small} on x = y and {where}",
)
#: Columns of conditions beside joins: Iceberg's own filters lose no rows of these.
EXACT = ("k", "i", "s", "c", "d", "b")


def join(random: Random, number: int) -> str:
    """A join of the table with a few rows."""
    column, other = random.choice(sorted(VALUES)), random.choice(EXACT)
    small = f"(select {column} as x, n as m from {SMALL} where n % 4 <> {random.randrange(5)})"
    value = literal(other, random.choice(VALUES[other][1]))
    where = f"t.{other} {random.choice(['=', '<>', '<', '>='])} {value}"
    form = random.choice(JOINS)
    return form.format(q=f"{number} as q", t=TABLE, small=small, c=column, where=where).replace(
        ")) from", ")) as j from"
    )


def composed(random: Random) -> str:
    """A query of joined sources."""
    y = random.choice(EXACT)
    return random_join(
        random, 0, Columns(random.choice(sorted(VALUES)), y, lambda: literal(y, random.choice(VALUES[y][1])))
    )


def check_joins(bed: Bed, random: Random, count: int) -> int:
    """So many random joins as one, and a composed one for every second of them by itself, with indexes and on all rows;
    how many relations were narrowed by what ran first.
    """
    united = " union all ".join(join(random, number) for number in range(count))
    return sum(check_join(bed, text) for text in (united, *(composed(random) for _ in range(count // 2))))


def check_join(bed: Bed, text: str) -> int:
    """A query with indexes and on all rows; how many relations were narrowed by what ran first."""
    rewritten = skipstone.sql(bed.spark, text)
    explanation = str(skipstone.explain(rewritten))
    unfiltered = text.replace(TABLE, "unfiltered").replace(SMALL, "unfiltered_small")
    assert answer(rewritten) == answer(bed.spark.sql(unfiltered)), f"{text}\n{explanation}"
    assert "Failed" not in explanation
    return explanation.count("which ran first")


def check_queries(bed: Bed, random: Random, count: int, form: Callable[[Random, int], str] = select) -> str:
    """So many random queries as one, with and without indexes and on all rows; how their relations are read."""
    text = " union all ".join(form(random, number) for number in range(count))
    rewritten = skipstone.sql(bed.spark, text)
    explanation = str(skipstone.explain(rewritten))
    found, plain = (Counter(answer(df)) for df in (rewritten, skipstone.no_index(rewritten)))
    right = Counter(answer(bed.spark.sql(text.replace(TABLE, "unfiltered"))))
    assert plain <= found <= right, explanation
    assert "Failed" not in explanation
    return explanation


def check_conditions(bed: Bed, random: Random, count: int) -> int:
    """So many random conditions; how many relations are read through indexes."""
    return check_queries(bed, random, count).count("read through indexes")


def check_held(bed: Bed, random: Random, count: int) -> int:
    """So many queries that an index may answer, HELD as one; how many relations tasks read from one.

    A condition that may fail on deleted rows keeps tasks from the entries of files with deletes in its whole query.
    """
    unions = [check_queries(bed, random, HELD, held) for _ in range(count // HELD)]
    return sum(explanation.count("read by tasks from the index alone") for explanation in unions)


#: What random queries are about: each is checked alone in a soak, and says how often an index was of use.
FEATURES = {"conditions": check_conditions, "index only": check_held, "joins": check_joins}


def states_and_rows() -> list[Any]:
    """All pairs; what only a soak takes is marked."""
    first, found = turn(len(DRIVER_ROWS)), []
    for number, state in enumerate(STATES):
        now = DRIVER_ROWS[(first + number) % len(DRIVER_ROWS)]
        for limit in DRIVER_ROWS:
            marks = [] if limit == now else [pytest.mark.soak]
            found.append(pytest.param(state, limit, marks=marks, id=f"{state}-{limit}"))
    return found


def has_indexes(bed: Bed) -> bool:
    """Whether the table has any index."""
    return any("__si_" in name for _, name in bed.lake.catalog.list_tables("ns"))


@pytest.mark.parametrize(("bed", "driver_rows"), states_and_rows(), indirect=["bed"])
def test_any_condition_gives_what_an_unfiltered_scan_gives(
    bed: Bed, request: pytest.FixtureRequest, driver_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.4)  # files of few rows have rows to be read by position, too
    monkeypatch.setattr(index_use, "WORTHWHILE_PART", 2.0)  # and tasks read small indexes
    monkeypatch.setattr(index_use, "SCAN_ROWS_PART", 2.0)
    bed.spark.conf.set("skipstone.driverRows", str(driver_rows))
    check_queries(bed, Random(request.node.callspec.id), QUERIES)
    check_queries(bed, Random(request.node.callspec.id), QUERIES, held)
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)
    check_joins(bed, Random(request.node.callspec.id), QUERIES)


@pytest.mark.parametrize(
    ("bed", "driver_rows"), [("none", 0), ("some", 0), ("all", 0), ("all", 1000), ("deletes", 0)], indirect=["bed"]
)
def test_a_subquery_is_the_same_in_the_select_list_and_among_the_grouping_keys(
    bed: Bed, driver_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "WORTHWHILE_PART", 2.0)
    monkeypatch.setattr(index_use, "SCAN_ROWS_PART", 2.0)
    bed.spark.conf.set("skipstone.driverRows", str(driver_rows))
    used = 0
    for bound in ("one.i = 5", "one.k = 7", "one.s >= 'a'", "one.i is not null"):
        count = f"(select count(*) from {TABLE} one where one.i = other.i and {bound})"
        found = bed.query(f"select i, {count}, sum(n) from {TABLE} other group by all")
        used += sum(one.is_rewritten for one in found.explanation.relations)
    assert bool(used) == has_indexes(bed)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("bed", STATES, indirect=True)
def test_random_queries_for_as_long_as_wished(
    bed: Bed, feature: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.4)
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)
    used = count = 0
    for done in range(0, SOAK_CASES // len(STATES), SOAK_QUERIES):
        seed = f"{SOAK_SEED} {done}"
        bed.spark.conf.set("skipstone.driverRows", str(DRIVER_ROWS[done // SOAK_QUERIES % len(DRIVER_ROWS)]))
        part = 0.5 if done // SOAK_QUERIES % 4 == 3 else 2.0
        monkeypatch.setattr(index_use, "WORTHWHILE_PART", part)
        monkeypatch.setattr(index_use, "SCAN_ROWS_PART", part)
        used += FEATURES[feature](bed, Random(seed), SOAK_QUERIES)
        count += SOAK_QUERIES
        print(f"\nseed {seed}, {request.node.name}: {count} cases done, {used} relations read by what an index told")
    # entries do not say which rows were deleted by their values
    never = feature == "index only" and request.node.callspec.params["bed"] == "deletes"
    assert bool(used) == (has_indexes(bed) and not never)


@pytest.mark.parametrize("per_column", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_indexes_are_used_in_every_state_that_has_them(states: States, per_column: int) -> None:
    text = " union all ".join(
        f"select n from {TABLE} where {name} = {literal(name, value)}"
        for name, (_, values) in VALUES.items()
        for value in values[:per_column]
    )
    used = {
        state: sum(one.is_rewritten for one in skipstone.explain(states.open(state).spark.sql(text)).relations)
        for state in STATES
    }
    assert used["none"] == 0
    assert min(used[state] for state in STATES if state != "none") > 0, used
    assert used["some"] <= used["all"]
