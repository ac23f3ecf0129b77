"""Queries in the style of Spark's own SQL tests, through indexes, give what Spark gives on tables without files.

Some rows of each table are read by the driver and others by tasks, so that the optimizer meets unions of both, and
scans with residuals.

`make test` takes every second query; which ones changes with the commit. `make soak-query` has the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans.refusals import Refusal
from skipstone_core.indexing import use as index_use

from tests.examples import turn
from tests.spark.index_bed import index_on
from tests.spark.plans_bed import Bed, answer, open_bed

BY_LIVE = index_on("live")
NAMES = ("m1", "m2", "m3")
SCHEMA = pa.schema([("c1", pa.int32()), ("c2", pa.int32()), ("c3", pa.string()), ("live", pa.int32())])
FILES, ROWS, LIVE = 4, 12, 3

#: m1, m2, m3 are tables, indexed by live; t1, t2, t3 are views of their rows with live = 1.
QUERIES = {
    # subqueries that are no condition
    "exists in the select list": "select *, exists (select 1 from t2 where t2.c1 = t1.c1) from t1",
    "in in the select list": "select *, c1 in (select c1 from t2) from t1",
    "correlated in in the select list": "select *, c1 in (select c1 from t2 where t2.c2 = t1.c2) from t1",
    "in in order by": "select *, c1 in (select c1 from t2) as f from t1 order by f, c2, c1",
    "exists in case": "select case when exists (select 1 from t2 where t2.c1 = t1.c1) then 1 else c2 end from t1",
    "in in an aggregate": "select sum(if(c1 in (select c1 from t2), 1, 0)) from t1",
    "exists of a tuple": "select c1, (c1, c2) in (select c1, c2 from t2) from t1",
    # correlated conditions
    "count of greater": "select * from m1 where live = 1 and (select count(*) from m2 where m2.c1 > m1.c1) = 1",
    "sum of greater": "select * from m1 where live = 1 and (select sum(c2) from t2 where t2.c1 > m1.c1) > 1",
    "count of equal": "select * from m1 where live = 1 and (select count(*) from m2 where m2.c1 = m1.c1) = 0",
    "count of greater, selected": "select c1, (select count(*) from t2 where t2.c1 >= t1.c1 and t2.c2 < t1.c2) from t1",
    "maximum of the same key": "select * from t1 where c2 = (select max(c2) from t2 where t2.c1 = t1.c1)",
    "nested": "select * from t1 where c1 in (select c1 from t2 where c2 in (select c2 from t3 where t3.c1 = t2.c1))",
    "exists of an inequality": "select * from t1 where exists (select 1 from t2 where t2.c1 > t1.c1 and t2.c2 = t1.c2)",
    "not exists": "select * from t1 where not exists (select 1 from t2 where t2.c1 = t1.c1)",
    "not in": "select * from t1 where c1 not in (select c1 from t2)",
    "in with aggregate": "select * from t1 where c1 in (select max(c1) from t2 group by c2 having count(*) > 0)",
    "in with union": "select * from t1 where c1 in (select c1 from t2 union select c1 from t3)",
    "in with a window": "select * from t1 where c1 in (select c1 from (select c1, rank() over (order by c2) r from t2) "
    "where r < 3)",
    "exists in an outer join": "select t1.c1, t2.c2 from t1 left join t2 on t1.c1 = t2.c1 and "
    "exists (select 1 from t3 where t3.c1 = t1.c1)",
    "lateral with an inequality": "select t1.c1, s from t1, lateral (select sum(c2) s from t2 where t2.c1 > t1.c1)",
    "lateral limit": "select t1.c1, x from t1, lateral (select c2 x from t2 where t2.c1 >= t1.c1 order by c2 limit 1)",
    "correlated having": "select c1 from t1 group by c1 having exists (select 1 from t2 where t2.c2 > max(t1.c2))",
    # grouping and windows
    "grouping sets": "select c1, c2, count(*) from t1 group by grouping sets ((c1), (c2), ())",
    "cube": "select c1, c3, sum(c2), grouping_id() from t1 group by cube (c1, c3)",
    "rollup over a join": "select t1.c1, t2.c3, count(*) from t1 join t2 using (c1) group by rollup (t1.c1, t2.c3)",
    "windows": "select c1, sum(c2) over (partition by c3 order by c1, c2 rows between 1 preceding and current row), "
    "lag(c1) over (order by c1, c2, c3) from t1",
    "qualify by a subquery": "select * from (select *, row_number() over (order by c1, c2, c3) r from t1) where r in "
    "(select c2 from t2)",
    # set operations and joins
    "intersect all": "select c1 from t1 intersect all select c1 from t2",
    "except all": "select c1 from t1 except all select c1 from t2",
    "full join": "select t1.c1, t2.c1 from t1 full join t2 on t1.c1 = t2.c1",
    "three of one": "select a.c1, b.c2, c.c3 from t1 a join t1 b on a.c1 = b.c1 left join t1 c on b.c2 = c.c2",
    "anti join": "select * from t1 left anti join t2 on t1.c1 = t2.c1 and t1.c2 < t2.c2",
    "cte in a subquery": "with c as (select * from t1) select * from c where c1 > (select avg(c1) from c)",
    "pivot": "select * from (select c1, c2, c3 from t1) pivot (sum(c2) for c3 in ('a', 'b'))",
    "pipes": "from t1 |> where c1 > 1 |> extend c1 in (table t4) as f |> aggregate count(*) group by f",
}


def rows(table: int, file: int) -> pa.Table:
    """Rows of one file; those with live = 1 are few, and in the first and the last file only."""
    numbers = range(file * ROWS, file * ROWS + ROWS)
    return pa.table(
        {
            "c1": [None if n % 7 == table else (n * (table + 2)) % 5 for n in numbers],
            "c2": [None if n % 11 == table else n % 4 for n in numbers],
            "c3": ["abc"[(n + table) % 3] for n in numbers],
            "live": [1 if file in (0, FILES - 1) and n % ROWS < LIVE else n % 2 * 2 for n in numbers],
        },
        schema=SCHEMA,
    )


@dataclass(frozen=True)
class Sides:
    """A session on the lake, and one on the same rows without files."""

    bed: Bed
    reference: SparkSession


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Three tables whose index misses the last file."""
    bed = open_bed(spark, tmp_path_factory.mktemp("lake"), driver_rows=LIVE)
    reference = bed.spark.newSession()
    bed.spark.sql("use skipstone.ns")
    for number, name in enumerate(NAMES):
        table = bed.lake.create(SCHEMA, name)
        for file in range(FILES):
            table.append(rows(number, file))
        bed.reindex(BY_LIVE, max_segments=FILES - 1, name=name)
        held = pa.concat_tables([rows(number, file) for file in range(FILES)])
        reference.createDataFrame(held).createOrReplaceTempView(name)
    for session in (bed.spark, reference):
        session.sql("create temporary view t4 as select explode(array(1, 3)) as c1")
        for number in (1, 2, 3):
            session.sql(f"create temporary view t{number} as select c1, c2, c3 from m{number} where live = 1")
    yield Sides(bed, reference)
    bed.lake.catalog.close()


def queries() -> list[Any]:
    """Every second query has its turn; the others are for a soak."""
    first = turn(2)
    marks: list[list[Any]] = [[], [pytest.mark.soak]]
    return [
        pytest.param(text, marks=marks[(first + number) % 2], id=name)
        for number, (name, text) in enumerate(QUERIES.items())
    ]


@pytest.mark.parametrize("text", queries())
def test_the_answer_is_that_of_spark(sides: Sides, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "FEW_ROWS_PART", 0.4)  # so that rows of small files are read by position
    rewritten = skipstone.sql(sides.bed.spark, text)
    explanation = skipstone.explain(rewritten)
    assert explanation.is_rewritten, explanation
    assert not {one.refusal for one in explanation.relations} & {Refusal.FAILED, Refusal.CANNOT_PLAN}, explanation
    assert answer(rewritten) == answer(sides.reference.sql(text)), explanation
