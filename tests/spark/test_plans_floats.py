"""Rows that plain Spark loses by Iceberg's bounds, which hold no NaN and order -0.0 below 0.0, are found by us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import TABLE, Bed, open_bed

#: The files of the table, with the key and the value of each row; each has keys at both ends besides.
FILES = (
    {1: "1.0", 2: "NaN"},
    {3: "-0.0"},
    {4: "0.0"},
    {5: "-5.0", 6: None},
    {7: "Infinity"},
    {8: "7.0"},
    {9: "-1.0", 10: "9.0"},
)
#: Condition on x, the rows that plain Spark finds, and those for which Spark's own comparison is true, which we find.
CASES: dict[str, tuple[list[int], list[int]]] = {
    "x > 5.0": ([7], [2, 7]),
    "x >= 5.0": ([7], [2, 7]),
    "not x <= 5.0": ([7], [2, 7]),
    "x between 2.0 and nan": ([7], [2, 7]),
    "x > inf or x = 0.0": ([4], [2, 3, 4]),
    "x = 0.0": ([4], [3, 4]),
    "x = -0.0": ([4], [3, 4]),
    "x <=> 0.0": ([4], [3, 4]),
    "x in (0.0, 7.0)": ([4], [3, 4]),
    "x between 0.0 and 0.5": ([4], [3, 4]),
    "x >= 0.0": ([2, 4, 7], [2, 3, 4, 7]),
    "x = nan": ([2], [2]),
    "x >= nan": ([2], [2]),
    "x in (nan, 7.0)": ([2], [2]),
    "isnan(x)": ([2], [2]),
    "x <= -0.0": ([3, 4], [3, 4]),
    "x < 1.0": ([3, 4], [3, 4]),
}


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Seven files that Spark wrote, with an index on the key and one on each column of floats."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"), driver_rows=None)
    made.spark.sql(f"create table {TABLE} (k int, d double, f float) using iceberg")
    for file in FILES:
        rows = ", ".join(f"({k}, '{x}')" if x else f"({k}, null)" for k, x in file.items())
        made.spark.sql(
            f"insert into {TABLE} select /*+ coalesce(1) */ k, cast(x as double), cast(x as float) "
            f"from values {rows}, (-1000, null), (1000, null) v(k, x)"
        )
    made.reindex(index_on("k"), index_on("d", name="by_d"), index_on("f", name="by_f"))
    yield made
    made.lake.catalog.close()


def keys(df: DataFrame) -> list[int]:
    """The rows found."""
    return sorted(row.k for row in df.collect())


@pytest.mark.parametrize(("driver_rows", "column", "kind"), [("0", "d", "double"), ("100000", "f", "float")])
def test_what_plain_spark_loses_is_found_through_an_index(bed: Bed, driver_rows: str, column: str, kind: str) -> None:
    bed.spark.conf.set("skipstone.driverRows", driver_rows)
    each = (
        f"select {number} as n, k from {TABLE} where k in (2, 3, 4, 7) and ({written(condition, column, kind)})"
        for number, condition in enumerate(CASES)
    )
    df = bed.spark.sql(" union all ".join(each))
    rewritten = skipstone.rewrite(df)
    for relation, (plain, ours) in zip(skipstone.explain(rewritten).relations, CASES.values(), strict=True):
        # where the bounds of one file alone fit, an index saves nothing
        assert relation.is_rewritten or plain == ours, str(relation)
    by_spark, by_us = found(df), found(rewritten)
    assert {condition: (by_spark[number], by_us[number]) for number, condition in enumerate(CASES)} == CASES


def written(condition: str, column: str, kind: str) -> str:
    """A condition of CASES on a column of ``kind``."""
    text = condition.replace("isnan(x)", f"isnan({column})").replace("x ", f"{column} ")
    return text.replace("inf", f"{kind}('inf')").replace(" nan", f" {kind}('nan')").replace("(nan", f"({kind}('nan')")


def found(df: DataFrame) -> dict[int, list[int]]:
    """The rows found by the number of the query."""
    rows = df.collect()
    return {number: sorted(row.k for row in rows if row.n == number) for number in range(len(CASES))}


def test_a_relation_that_is_not_rewritten_loses_what_plain_spark_loses(bed: Bed) -> None:
    df = skipstone.sql(bed.spark, f"select k from {TABLE} where d > 5.0")
    assert not skipstone.explain(df).is_rewritten
    assert keys(df) == [7, 8, 10]
