"""Queries of every shape through indexes: the answer is Spark's own, and fewer files are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import skipstone

from tests.spark.plans_bed import TABLE, Bed, Checked, answer, module_bed, scans

__all__ = ["module_bed"]

#: SQL with t for the table, and the files read of each relation that is rewritten. Segment 4 of k is missing.
SHAPES = {
    "equality": ("select n from t where k = 7", [2]),
    "no column of it": ("select count(*) from t where k = 7", [2]),
    "null": ("select * from t where k is null and g = 'g37'", [2]),
    "null-safe equality": ("select n from t where k <=> 7", [2]),
    "in": ("select n from t where k in (7, 14, null)", [2]),
    "in with casts": ("select n from t where k in (7, cast('14' as int), 21.0)", [2]),
    "range": ("select n from t where k > 6 and k <= 8", [2]),
    "between": ("select n from t where k between 7 and 8", [2]),
    "prefix": ("select n from t where g like 'g37%'", [2]),
    "like without wildcard": ("select n from t where g like 'g37'", [2]),
    "text compared with a number": ("select n from t where k = '7'", [2]),
    "two indexes": ("select n from t where k = 7 and g = 'g13'", [1]),
    "two indexes, one arm each": ("select n from t where k = 7 or g = 'g37'", [3]),
    "arms of conjunctions": ("select n from t where (k = 7 and n > 0) or (k = 14 and g like '%3%')", [2]),
    "or over both sides of a join": (
        "select a.n from t a join t b on a.n = b.n where (a.k = 7 and b.k = 14) or (a.k = 14 and b.k = 7)",
        [2, 2],
    ),
    "coalesce": ("select n from t where coalesce(k, -1) = 7", [2]),
    "coalesce with the default": ("select n from t where coalesce(k, -1) = -1 and g = 'g37'", [2]),
    "coalesce, greater": ("select n from t where 8 > coalesce(k, 9) and g = 'g13'", [1]),
    "not": ("select n from t where not (k <> 7 or n < 0)", [2]),
    "not over or": ("select n from t where not (k < 7 or k > 7)", [2]),
    "other conditions": ("select n from t where k = 7 and n % 2 = 1 and upper(g) <> 'X'", [2]),
    "no such key": ("select n from t where k = 7 and g = 'g100x'", [0]),
    "alias": ("select n from (select k + 0 as z, k as x, n from t) where x = 7 and z < 9", [2]),
    "join": ("select a.n, b.n from t a join t b on a.k = b.k where a.k = 7", [2, 2]),
    "join with another table": ("select n, id from range(400) r join t on r.id = t.k where r.id = 7", [2]),
    "left join, its left side": ("select a.n, b.n from t a left join t b on a.k = b.k where a.k = 7", [2, 2]),
    "left join made inner": ("select a.n, b.n from t a left join t b on a.k = b.k where b.k = 7", [2, 2]),
    "condition in on": ("select a.n, b.n from t a left join t b on a.n = b.n and b.k = 7", [2]),
    "semi join": ("select n from t a left semi join t b on a.k = b.k and b.k = 7", [2, 2]),
    "aggregate": ("select g, count(*), sum(n) from t where k in (7, 14) group by g having count(*) > 0", [2]),
    "having on the key": ("select k, count(*) from t group by k having k = 7", [2]),
    "window on the key": (
        "select * from (select k, rank() over (partition by k order by n) r from t) where k = 7",
        [2],
    ),
    "distinct": ("select * from (select distinct k, g from t) where k = 7", [2]),
    "sort and limit": ("select n from t where k in (7, 14, 21) order by n limit 2", [2]),
    "scalar subquery": ("select (select max(n) from t where k = 7) m, 1 from range(2)", [2]),
    "in subquery": ("select n from t where n in (select n from t where k = 7)", [2]),
    "exists": ("select n from t a where k = 7 and exists (select 1 from t b where b.n = a.n and b.k = 7)", [2, 2]),
    "not in subquery": ("select count(*) from t where n not in (select n from t where k = 7)", [2]),
    "subquery in a join condition": (
        "select a.n from t a join t b on a.n = b.n and a.n <= (select max(n) from t where k = 7) where b.k = 7",
        [2, 2],
    ),
    "count of a correlated inequality": (
        "select n from t a where k = 7 and (select count(*) from t b where b.n > a.n) = 398",
        [2],
    ),
    "lateral": ("select n, m from t a, lateral (select max(n) m from t b where b.k = 7 and b.n >= a.n)", [2]),
    "cte": ("with c as (select * from t where n >= 0) select n from c where k = 7", [2]),
    "cte used twice": ("with c as (select * from t) select n from c where k = 7 union all select n from c", [2]),
    "union": ("select n from t where k = 7 union all select n from t where k = 14", [2, 2]),
    "except": ("select n from t where k = 7 except select n from t where k = 14", [2, 2]),
    "pivot": ("select * from (select k, n, g from t where k = 7) pivot (max(n) for g in ('g13', 'g26'))", [2]),
    "generate": ("select k, x from t lateral view explode(array(n, n + 1)) as x where k = 7", [2]),
    "metadata columns": ("select n, _pos, _file, _spec_id from t where k = 7", [2]),
    "the current time": ("select n from t where k = 7 and current_date() > date '2020-01-01'", [2]),
    "parameters of a view": ("select n from v where k = 7", [2]),
    "temporary view": ("select n from tv where k = 7", [2]),
    "pipe": ("from t |> where k = 7 |> select n", [2]),
    "condition after an aggregate in a pipe": ("from t |> aggregate count(*) as c group by k |> where k = 7", [2]),
    "function of the session": ("select n from t where k = next_key(6)", [2]),
    "table function of the session": ("select n from rows_of(7)", [2]),
    "names in another case of parts": ("select a.`n` from t as a where a.`k` = 7 and `a`.k < 9", [2]),
}


@pytest.fixture(scope="module")
def views(module_bed: Bed) -> Iterator[None]:
    """A view of Spark's own catalog, a temporary one, and functions written in SQL."""
    function = "create or replace temporary function"
    module_bed.spark.sql(f"{function} next_key(key bigint) returns bigint return key + 1")
    module_bed.spark.sql(
        f"{function} rows_of(key bigint) returns table (k bigint, n int) return select k, n from {TABLE} where k = key"
    )
    module_bed.spark.sql(f"create or replace view default.v as select k, n from {TABLE} where n >= 0")
    module_bed.spark.sql(f"create or replace temporary view tv as select n, k from {TABLE}")
    yield
    module_bed.spark.sql("drop view default.v")


@pytest.mark.parametrize(("text", "files"), SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.usefixtures("views")
def test_a_query_reads_the_files_that_its_conditions_leave(module_bed: Bed, text: str, files: list[int]) -> None:
    found = module_bed.query(re.sub(r"(from|join) t\b", rf"\1 {TABLE}", text).replace("t.k", f"{TABLE}.k"))
    assert found.files_read == files, str(found.explanation)
    assert scans(found.plan) == len([count for count in files if count])


def test_sql_runs_through_indexes(module_bed: Bed) -> None:
    df = skipstone.sql(module_bed.spark, f"select n from {TABLE} where k = :key", {"key": 7})
    assert scans(Checked(df, skipstone.explain(df)).plan) == 1
    assert [row.n for row in df.collect()] == [1]


def test_each_relation_is_logged_in_a_line(module_bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "skipstone.query"):
        skipstone.sql(module_bed.spark, f"select a.n from {TABLE} a join {TABLE} b on a.n = b.n where a.k = 7")
    lines = [record.getMessage() for record in caplog.records if record.name == "skipstone.query"]
    assert len(lines) == 2
    assert (
        "skipstone.ns.t: read through indexes; read (k = 7 and n is not null); files: 4 total, 4 after min/max, 2 read"
        in lines[0]
    )
    assert "missing 4" in lines[0]
    assert "NoCondition" in lines[1]


def test_what_is_kept_in_the_cache_of_spark_is_read_from_there(module_bed: Bed) -> None:
    for keep in ("cache", "persist"):
        df = skipstone.sql(module_bed.spark, f"select n from {TABLE} where k in (7, 14)")
        expected = answer(df)
        assert getattr(df, keep)() is df
        try:
            assert "InMemory" in df._jdf.queryExecution().executedPlan().toString()
            assert answer(df) == expected
            assert skipstone.explain(df).is_rewritten
        finally:
            df.unpersist()


def without_counters(explained: str) -> list[str]:
    """An explanation without what the process remembers, which each planning changes."""
    return [line for line in explained.splitlines() if "caches:" not in line]


def test_explaining_does_not_run_and_changes_nothing(module_bed: Bed) -> None:
    df = module_bed.spark.sql(f"select n from {TABLE} where k = 7")
    said = str(skipstone.explain(df))
    assert without_counters(said) == without_counters(str(skipstone.explain(skipstone.rewrite(df))))
    assert "index t__si_idx" in said
    assert "3/4 segments, missing 4" in said
    assert "IcebergStagedScan" not in df._jdf.queryExecution().executedPlan().toString()
    assert str(skipstone.explain(module_bed.spark.range(3))) == "the query reads no Iceberg table"
