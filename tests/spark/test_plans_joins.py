"""Joins through indexes: the keys of a small side, which runs first, narrow the other side; the answer is Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType

import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone.compat.pyspark import java_frame, running_frame
from skipstone.query.plans import cost
from skipstone_core.indexing import use as index_use

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import BY_G, BY_K, Bed, open_bed

#: Files of the table t, and rows in each. Key k of row n is n * 7 % 640: no bounds tell where one is.
FILES, ROWS = 16, 40


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """The table t with indexes on k and g, and a table small with the same keys in one file."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    made.spark.sql("create table skipstone.ns.t (k bigint, g string, n int, i int) using iceberg")
    for first in range(0, FILES * ROWS, ROWS):
        rows = f"select id * 7 % 640, concat('g', id % 7), int(id), int(id % 50) from range({first}, {first + ROWS})"
        made.spark.sql(f"insert into skipstone.ns.t select /*+ coalesce(1) */ * from ({rows})")
    rows = (
        "select /*+ coalesce(1) */ id as k, concat('n', id) as name, int(id) as i, nullif(id, 5) as j from range(640)"
    )
    made.spark.sql(f"create table skipstone.ns.small using iceberg as {rows}")
    made.spark.sql("use skipstone.ns")
    rows = "select /*+ repartition(16) */ if(k % 9 = 0, null, k) as k, n, i from t"
    made.spark.sql(f"create table nullable using iceberg as {rows}")
    made.reindex(BY_K, BY_G)
    made.reindex(BY_K, index_on("i", name="by_i"), name="nullable")
    yield made
    made.lake.catalog.close()


@pytest.fixture(autouse=True)
def _jobs_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are small."""
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)


#: Joins of t and small, of which ``{}`` leaves the row with k = 3, and the files that are read of t.
SHAPES = {
    "inner": ("select t.n, s.name from t join small s on t.k = s.k where s.name in ('n3', 'n77')", [2]),
    "inner, sides swapped": ("select t.n from small s join t on s.k = t.k where {}", [1]),
    "rows of the query": ("select t.n from t join values (3L), (78L), (null) v(k) on t.k = v.k", [2]),
    "in": ("select n from t where k in (select k from small s where {})", [1]),
    "exists": ("select n from t where exists (select 1 from small s where s.k = t.k and {})", [1]),
    "left join": ("select s.name, t.n from small s left join t on s.k = t.k where {}", [1]),
    "right join": ("select s.name, t.n from t right join (select * from small s where {}) s on s.k = t.k", [1]),
    "widened": ("select t.n from t join (select float(i) f, k from small s where {}) s on t.k = int(s.f)", [1]),
    "expression": ("select t.n from t join small s on t.k = s.k + 1 where {}", [1]),
    "not exists": ("select name from small s where {} and not exists (select 1 from t where t.k = s.k)", [1]),
    "aggregate": ("select m from small s join (select k, max(n) m from t group by k) x on x.k = s.k where {}", [1]),
    "scalar subquery": ("select (select max(n) from t where t.k = s.k) from small s where {}", [1]),
    "two joins": ("select t.n from t join small s on t.k = s.k join small r on t.i = r.k where {} and r.i = 29", [1]),
    "days before 1582": (
        "select t.n, d, w from t join (select k, date'1582-10-10' d, timestamp'1582-10-10 01:01:01' w from small s "
        "where {}) s on t.k = s.k",
        [1],
    ),
    "bytes that are not text": (
        "select t.n, hex(m['x']) from t join (select k, map('x', string(unhex('ff'))) m from small s where {}) s "
        "on t.k = s.k",
        [1],
    ),
    "nested subqueries": (
        "select i from small s where i < 6 and exists (select 1 from t where t.k = s.k and t.n in "
        "(select max(n) from t t2 where t2.k = t.k))",
        [],
    ),
    "null-safe": ("select t.n from t join small s on t.k <=> s.k where {}", [1]),
    "union": (
        "select x.n from (select k, n from t union all select k, i from small) x join small s using (k) where {}",
        [1],
    ),
    "window by the column": (
        "select n from (select k, n, max(n) over (partition by k) from t) x join small s on x.k = s.k where {}",
        [1],
    ),
    "generator": (
        "select e from (select k, e from t lateral view explode(array(n, i)) as e) x join small s on x.k = s.k "
        "where {}",
        [1],
    ),
    "intersect": ("select k from t intersect select k from small s where {}", [1]),
    "tables in a list": ("select t.n from small r, small s, t where t.k = s.k and r.i = t.i and {}", [1]),
    "keys of a part": (
        "select t.n, u.m from (select s.k, s.name from small s join t r on s.k = r.k where {}) s join t on t.k = s.k "
        "join (select k, max(n) m from t group by k) u on u.k = s.k",
        [1, 1, 1],
    ),
    "snowflake": (
        "select t.n from t join small s on t.k = s.k join (select i from small where name = 'n3') r on s.i = r.i",
        [1],
    ),
    "value of a subquery": ("select n from t where k = (select max(k) from small s where {})", [1]),
    "expression of such a value": ("select n from t where k = (select i from small s where {}) + 1", [1]),
    "no value of a subquery": ("select n from t where k = (select i from small where name = 'none')", [0]),
    "no key": ("select t.n from t join small s on t.k = s.k where s.name = 'none'", [0]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_keys_of_a_small_side_narrow_the_other_one(bed: Bed, shape: str) -> None:
    text, files = SHAPES[shape]
    found = bed.query(text.format("s.name = 'n3'"))
    assert found.files_read == files, str(found.explanation)


#: Iceberg's types of keys, and a value of each for a number, in SQL.
KINDS = {
    "timestamp": "timestamp_seconds(id * 7000000000 - 60000000000)",
    "timestamp_ntz": "timestampadd(second, id, timestamp_ntz'1500-01-01 00:00:00')",
    "binary": "unhex(lpad(hex(id), 6, 'F0'))",
    "decimal(12, 3)": "cast(id / 8 as decimal(12, 3))",
    "date": "date_add(date'1582-10-10', int(id))",
    "boolean": "id = 3",
    "double": "double(id) / 3",
}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_type_narrow(bed: Bed, kind: str) -> None:
    name, index = f"t_{kind[:4]}{len(kind)}", index_on("x", name=f"by_{len(kind)}")
    bed.spark.sql(f"create table skipstone.ns.{name} (x {kind}, n int) using iceberg")
    for first in range(0, 12, 3):
        rows = f"select /*+ coalesce(1) */ {KINDS[kind]}, int(id) from range({first}, {first + 3})"
        bed.spark.sql(f"insert into skipstone.ns.{name} {rows}")
    bed.reindex(index, name=name)
    found = bed.query(f"select l.n from {name} l join (select {KINDS[kind]} y from values (3L) v(id)) on x = y")
    assert found.files_read == [1], str(found.explanation)
    assert len(found.answer) == 1


INNER = "select s.name, t.n from t join small s on t.k = s.k where {}"
#: Joins that nothing runs first of, and the settings that make it so.
LEFT_TO_SPARK = {
    "full outer join": ("select t.n, s.name from t full join (select * from small where k = 3) s on t.k = s.k", {}),
    "side that is kept": ("select t.n, s.name from t left join (select * from small where k = 3) s on t.k = s.k", {}),
    "not in": ("select n from t where k not in (select k from small where name = 'n3')", {}),
    "inequality": ("select t.n from t join small s on t.k <= s.k and s.name = 'n3'", {}),
    "expression of the column": ("select t.n from t join small s on t.k + 1 = s.k where s.name = 'n3'", {}),
    "column without an index": ("select t.n from t join small s on t.n = s.i where s.name = 'n3'", {}),
    "limit between": (
        "select t.n from (select * from t limit 999) t join small s on t.k = s.k where s.name = 'n3'",
        {},
    ),
    "sample": ("select t.n from t tablesample (100 percent) t join small s on t.k = s.k where s.name = 'n3'", {}),
    "other way round": ("select a.n from t a join t b on a.k = b.k and a.n = b.n", {}),
    "too many rows": (INNER.format("s.i < 6"), {"skipstone.joinRows": "5"}),
    "not asked for": (INNER.format("s.name = 'n3'"), {"skipstone.joinRows": "0"}),
    "bytes that are not text": (
        "select t.n from t join (select k, string(unhex('ff')) x from small where i < 2) s on t.g = s.x",
        {},
    ),
}


@pytest.mark.parametrize("case", LEFT_TO_SPARK)
def test_what_no_keys_can_narrow_is_left_to_spark(bed: Bed, case: str) -> None:
    text, settings = LEFT_TO_SPARK[case]
    for name, value in settings.items():
        bed.spark.conf.set(name, value)
    try:
        found = bed.query(text)
    finally:
        bed.spark.conf.set("skipstone.joinRows", "100000")
    assert found.files_read == [], str(found.explanation)
    assert "ran first" not in str(found.explanation)


#: Conditions that depend on whether a subquery gives null, or false: it has a null, and no ``i`` that is looked for.
MAY_BE_NULL = (
    "not (t.n > 1000 or t.i in ({}))",
    "not (t.n >= 0 and t.i in ({}))",
    "not (t.n < 0 or not (t.n >= 0 and t.i not in ({})))",
    "not (s.i < 0 or (t.n >= 0 and t.i in ({})))",
    "(t.i in ({})) = false",
    "(t.i in ({})) is null",
    "coalesce(t.i in ({}), true)",
    "if(t.i in ({}), false, true)",
    "case when not t.i in ({}) then true else false end",
)


@pytest.mark.parametrize("condition", MAY_BE_NULL)
def test_subqueries_that_may_be_null_mean_what_they_mean_to_spark(bed: Bed, condition: str) -> None:
    subquery = "select nullif(i, 4) from small where i < 9"
    bed.query(f"select t.n from t join small s on t.k = s.k where s.name = 'n3' and {condition.format(subquery)}")
    bed.query(
        f"select t.n, {condition.format(subquery)} from t join small s on t.k = s.k where s.name = 'n3' and t.n >= 0"
    )


def test_a_side_of_as_many_rows_as_allowed_runs_first(bed: Bed) -> None:
    bed.spark.conf.set("skipstone.joinRows", "5")
    try:
        assert bed.query(INNER.format("s.i < 5")).files_read == [5]
    finally:
        bed.spark.conf.set("skipstone.joinRows", "100000")


#: Sides of which an index, or the table itself, tells that they have more rows than the limit of 50.
LARGE = {
    "range": "select k from ranged where i between 100 and 600",
    "range without nulls": "select k, i + 1 as j from (select * from ranged where i >= 100 and i is not null)",
    "with a whole table": "select ranged.k from ranged join other on ranged.k = other.k where i >= 100",
    "whole table": "select * from ranged",
}
#: Sides that may have fewer, and have.
MAY_BE_SMALL = {
    "range": "select k from ranged where i between 3 and 7",
    "another condition": "select k from ranged where i between 100 and 600 and name = 'n120'",
    "a condition inside another": "select k from ranged where if(i >= 100, name like '%120', false)",
    "with few keys": "select r.k from ranged r join (select * from small limit 3) s on r.k = s.k where r.i >= 1",
    "explode": "select explode(if(i = 120, array(k), cast(array() as array<bigint>))) as k from ranged where i >= 100",
    "limit": "select k from ranged where i >= 100 limit 5",
    "aggregate": "select max(k) as k from ranged where i >= 100",
    "deleted rows": "select k from merged where i >= 3",
    "rows of files that are gone": "select k from over where i >= 3",
}


@pytest.fixture(scope="module")
def sides(bed: Bed) -> Bed:
    """Tables with an index on i; of some of them most rows are gone."""
    bed.spark.sql("create table ranged using iceberg as select /*+ coalesce(1) */ * from small")
    bed.spark.sql("create table other using iceberg as select /*+ coalesce(1) */ id as k from range(10001)")
    merged = "using iceberg tblproperties ('write.delete.mode' = 'merge-on-read', 'format-version' = '2')"
    for name, kind in (("merged", merged), ("over", "using iceberg")):
        bed.spark.sql(f"create table {name} {kind} as select /*+ coalesce(1) */ * from small")
    for name in ("ranged", "merged", "over"):
        bed.reindex(index_on("i", name="by_i"), name=name)
    bed.spark.sql("delete from merged where i > 8")
    bed.spark.sql("insert overwrite over select /*+ coalesce(1) */ * from small where i < 9")
    for name in ("merged", "over"):
        bed.reindex(index_on("i", name="by_i"), name=name)
    return bed


@pytest.mark.parametrize("side", LARGE)
def test_a_side_that_is_known_to_be_too_large_does_not_run_first(
    sides: Bed, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not _runs_first(sides, LARGE[side], caplog)


@pytest.mark.parametrize("side", MAY_BE_SMALL)
def test_a_side_that_may_be_small_runs_first(sides: Bed, side: str, caplog: pytest.LogCaptureFixture) -> None:
    assert _runs_first(sides, MAY_BE_SMALL[side], caplog)


def _runs_first(bed: Bed, side: str, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether a side of a join runs first, for nothing maybe; the answer of the join is the same."""
    bed.spark.conf.set("skipstone.joinRows", "50")
    try:
        with caplog.at_level("INFO", "skipstone.query"):
            found = bed.query(f"select t.n from t join ({side}) s on t.k = s.k")
    finally:
        bed.spark.conf.set("skipstone.joinRows", "100000")
    return "which ran first" in str(found.explanation) or "is not run first" in caplog.text


@pytest.mark.parametrize(
    ("side", "is_first"),
    [
        ("select k from small where name = 'n3'", True),
        ("select k + 1 as k from small where name in ('n3', 'n4') and i > 3", True),
        ("select k from small where i < 300", False),
        ("select k from small", False),
        ("select explode(array(k)) as k from small where name = 'n3'", False),
    ],
)
def test_a_side_runs_first_at_a_higher_cost_when_a_look_says_that_it_gives_few_rows(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, side: str, *, is_first: bool
) -> None:
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 0)
    monkeypatch.setattr(index_use, "FEW_ROWS_SIDE_PART", 1.0)
    monkeypatch.setattr(cost, "FEW_KEYS", 10)
    bed.spark.conf.set("skipstone.driverRows", "100000")
    try:
        assert _runs_first(bed, side, caplog) is is_first
        bed.spark.conf.set("skipstone.driverRows", "0")
        assert not _runs_first(bed, side, caplog)
    finally:
        bed.spark.conf.set("skipstone.driverRows", "0")


def test_a_side_that_cannot_be_looked_at_is_left_to_spark(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 0)
    monkeypatch.setattr(index_use, "FEW_ROWS_SIDE_PART", 1.0)
    monkeypatch.setattr(cost, "probable_rows", fails)
    bed.spark.conf.set("skipstone.driverRows", "100000")
    try:
        assert not _runs_first(bed, "select k from small where name = 'n3'", caplog)
    finally:
        bed.spark.conf.set("skipstone.driverRows", "0")


@pytest.mark.parametrize(("rows", "is_here"), [(1000, True), (2, True), (1, False), (0, False)])
def test_the_driver_reads_a_small_side_without_a_job(bed: Bed, rows: int, *, is_here: bool) -> None:
    context, group = bed.spark.sparkContext, f"driver of {rows} rows"
    bed.spark.conf.set("skipstone.driverRows", str(rows))
    context.setJobGroup(group, group)
    try:
        found = skipstone.rewrite(bed.spark.sql(INNER.format("s.name in ('n3', 'n4') and length(s.name) = 2")))
        assert "which ran first and gave 2 rows" in str(skipstone.explain(found))
        assert (not context.statusTracker().getJobIdsForGroup(group)) is is_here
        assert [row.name for row in found.orderBy("name").collect()] == ["n3", "n4"]
    finally:
        context.setJobGroup("", "")
        bed.spark.conf.set("skipstone.driverRows", "0")


#: Queries with a side of which no column is used, and what they give.
WITHOUT_COLUMNS = {
    "select k from t where k = (select count(*) - 1 from small)": 639,
    "select k from t where k in (select count(*) - 1 from small)": 639,
    "select k from t where k = (select 3 from small limit 1)": 3,
    "select t.k from t join (select count(*) c from small where true) s on t.k = s.c - 1": 639,
}


@pytest.mark.parametrize("query", WITHOUT_COLUMNS)
def test_rows_of_which_no_column_is_used_are_counted(bed: Bed, query: str) -> None:
    bed.spark.conf.set("skipstone.driverRows", "100000")
    try:
        found = bed.query(query)
    finally:
        bed.spark.conf.set("skipstone.driverRows", "0")
    assert [row.k for row in found.df.collect()] == [WITHOUT_COLUMNS[query]]


@pytest.mark.parametrize(
    ("module", "limit", "most"), [(cost, "DRIVER_SCAN_VALUES", 100), (index_use, "DECODED_BYTES", 1000)]
)
def test_the_driver_leaves_large_files_to_tasks(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, most: int
) -> None:
    context, group = bed.spark.sparkContext, limit
    monkeypatch.setattr(module, limit, most)
    bed.spark.conf.set("skipstone.driverRows", "100000")
    try:
        query = INNER.format("s.name = 'n3'")
        bed.query(query)
        context.setJobGroup(group, group)
        assert "gave 1 rows" in str(skipstone.explain(skipstone.rewrite(bed.spark.sql(query))))
        assert context.statusTracker().getJobIdsForGroup(group)
    finally:
        context.setJobGroup("", "")
        bed.spark.conf.set("skipstone.driverRows", "0")


def test_keys_that_are_expressions_are_not_computed_for_rows_that_are_left_out(bed: Bed) -> None:
    side = "select s.k, s.i from small s join small b on s.k = b.k and s.i > b.i - 1 and s.i > b.k - b.i"
    query = f"select x.c from (select k, i, sum(n) c from t group by k, i) x join ({side}) y on x.k = y.k"
    bed.query(f"{query} and x.i = 100 div y.i")
    bed.query(f"{query} and x.i = y.i")


def test_rows_are_not_shuffled_to_be_matched(bed: Bed) -> None:
    bed.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        found = bed.query(GROUPED["aggregate"].format("s.i < 300"))
    finally:
        bed.spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert re.search(r"BroadcastHashJoin [^\n]*LeftSemi", found.plan), found.plan


#: Queries that group rows of t by k before they join them with the rows of small that ``{}`` leaves.
GROUPED = {
    "aggregate": "select s.name, m from small s join (select k, max(n) m from t group by k) x on x.k = s.k where {}",
    "renamed": "select m from small s join (select k + 0 z, k y, sum(i) m from t group by 1, 2) x on y = s.k where {}",
    "distinct": "select x.k from small s join (select distinct k, g from t) x on x.k = s.k where {}",
    "subquery": "select n from t join small s on t.k = s.k where {} and t.n > (select avg(n) from t u where u.k = s.k)",
    "window": "select r from (select k, rank() over (partition by k order by n) r from t) x join small s on x.k = s.k "
    "where {}",
    "null-safe": "select m from (select k y, max(n) m from nullable group by k) join small s on y <=> j where {}",
    "widened": "select m from (select i, max(n) m from nullable group by i) x join small s on x.i = s.k where {}",
    "two keys": "select m from small s join (select k, i, max(n) m from t group by k, i) x on x.k = s.k and x.i = s.i "
    "where {}",
    "semi": "select m from (select k, max(n) m from t group by k) x where k in (select k from small s where {})",
    "right side of a left join": "select s.name, m from (select * from small s where {}) s left join "
    "(select k, count(*) m from t group by k) x on x.k = s.k",
}


@pytest.mark.parametrize("condition", ["s.i < 300", "s.name = 'n3'", "s.i > 634", "false"])
@pytest.mark.parametrize("shape", GROUPED)
def test_rows_without_a_partner_are_not_grouped(bed: Bed, shape: str, condition: str) -> None:
    found = bed.query(GROUPED[shape].format(condition))
    if condition == "s.i < 300":
        below = found.plan.split("Aggregate" if shape != "window" else "Window", 1)[1]
        assert "LeftSemi" in below, found.plan
        assert "before its rows are grouped: with 300 rows" in str(found.explanation)


def test_a_side_that_runs_first_runs_once(bed: Bed) -> None:
    seen = bed.spark.sparkContext.accumulator(0)

    def look(name: str) -> str:
        seen.add(1)
        return name

    bed.spark.udf.register("look", look)
    found = skipstone.sql(bed.spark, "select t.n from t join small s on t.k = s.k where look(s.name) = 'n3'")
    assert "joined by k: 1 keys of the other side, which ran first and gave 1 rows" in str(skipstone.explain(found))
    assert found.collect() == bed.spark.sql("select n from t where k = 3").collect()
    assert seen.value == 640


def test_keys_narrow_files_by_their_bounds_where_the_index_lags(bed: Bed) -> None:
    bed.spark.sql("create table skipstone.ns.late (k bigint, n int) using iceberg")
    for first in range(0, 144, 9):
        rows = f"select /*+ coalesce(1) */ id, int(id) from range({first}, {first + 9})"
        bed.spark.sql(f"insert into skipstone.ns.late {rows}")
    bed.reindex(BY_K, max_segments=12, name="late")
    found = bed.query("select l.n from late l join small s on l.k = s.k where s.i in (3, 140)")
    assert found.files_read == [2]


def test_columns_keep_the_names_of_their_relations(bed: Bed) -> None:
    big, small = (bed.spark.table(f"skipstone.ns.{name}").alias(name) for name in ("t", "small"))
    joined = big.join(small.where("name = 'n3'"), big.k == small.k)
    found = skipstone.rewrite(joined)
    assert "which ran first" in str(skipstone.explain(found))
    assert found.columns == joined.columns
    assert found.select("t.n", "small.name", big.k).collect() == joined.select("t.n", "small.name", big.k).collect()


def test_a_rewritten_dataframe_knows_the_columns_that_it_does_not_select(bed: Bed) -> None:
    plain = bed.spark.sql("select t.n from t join small s on t.k = s.k where s.i < 5")
    found = skipstone.rewrite(plain)
    assert "which ran first" in str(skipstone.explain(found))
    assert len(found.collect()) == found.count() == found.toArrow().num_rows == 5
    assert found.orderBy("g", "name").collect() == plain.orderBy("g", "name").collect()
    assert found.where("n % 2 = 0").count() == plain.where("n % 2 = 0").count()


def test_rows_of_a_rewritten_join_can_be_cached(bed: Bed) -> None:
    found = skipstone.rewrite(bed.spark.sql(INNER.format("s.i < 5"))).cache()
    try:
        assert found.count() == 5
        assert "InMemoryTableScan" in str(java_frame(running_frame(found)).queryExecution().executedPlan().toString())
    finally:
        found.unpersist(blocking=True)


def test_a_small_side_goes_through_its_own_index(bed: Bed) -> None:
    found = bed.query("select b.n from t a join t b on b.k = a.n where a.k = 7")
    assert found.files_read == [1, 1], str(found.explanation)


def test_nothing_runs_first_beside_a_small_table(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert bed.query(INNER.format("s.name = 'n3'")).files_read == []
    assert bed.query("select t.n from t join values (3L) v(k) on t.k = v.k").files_read == [1]


def test_rows_in_the_cache_are_read_from_there(bed: Bed) -> None:
    cached = bed.spark.table("skipstone.ns.small").where("name = 'n3'").cache()
    try:
        found = skipstone.explain(bed.spark.sql(INNER.format("s.name = 'n3'")))
        assert "ran first" not in str(found)
    finally:
        cached.unpersist(blocking=True)
