"""Rows that plain Spark loses by Iceberg's bounds, which hold no NaN and order -0.0 below 0.0, are found by us."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from skipstone.query.plans.refusals import Refusal

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import TABLE, Bed, answer, open_bed

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


def test_no_state_of_an_index_changes_an_answer(spark: SparkSession, tmp_path: Path) -> None:
    """The index on floats is not there, lags, is complete, is damaged and is dropped in turn."""
    bed = open_bed(spark, tmp_path)
    make_table(bed)
    by_d = index_on("d", name="by_d")
    conditions = {condition: CASES[condition][1] for condition in ("x > 5.0", "x = 0.0", "x in (0.0, 7.0)")}
    asked = f"select k from {TABLE} where k between 1 and 9 and ({{}})"
    queries = [asked.format(written(condition, "d", "double")) for condition in conditions]
    text = " union all ".join(f"select {number} as n, k from ({query})" for number, query in enumerate(queries))
    expected = found(bed.spark.sql(text.replace(TABLE, local_copy(bed))))
    bed.spark.sql(f"refresh table {TABLE}")

    def guarded() -> set[bool]:
        """Whether the relations are read without the index, and yet not as Spark reads them."""
        df = skipstone.sql(bed.spark, text)
        relations = skipstone.explain(df).relations
        assert found(df) == expected, str(skipstone.explain(df))
        assert all(one.is_rewritten != bool(one.guard) for one in relations), str(skipstone.explain(df))
        return {bool(one.guard) for one in relations}

    assert guarded() == {True}
    bed.reindex(by_d, max_segments=2)
    guarded()
    bed.reindex(by_d)
    assert False in guarded()
    for file in (tmp_path / "ns").rglob("*.parquet"):
        if "by_d" in str(file):
            file.write_bytes(b"")
    assert guarded() == {True}
    bed.lake.catalog.drop_table(bed.lake.index_table(by_d).table.name())
    assert guarded() == {True}
    bed.lake.catalog.close()


#: Queries in which Spark hands Iceberg a condition on floats, or a smallest or largest value, in some other way.
SHAPES = (
    "select count(*) from t where d > 5",
    "select k from t where s.y > 5.0",
    "select k from t where f > 5",
    "select k from t where if(k = 2, d, null) > 5",
    "select k from (select k, d as e from t) where e > 5",
    "select d, count(*) from t group by d having d > 5",
    "select k from t where d in (select d from t where d > 5)",
    "select k from t where k in (select k from t where d = 0)",
    "select k, (select max(d) + 0.0 from t where d < 1) from t where d = 0",
    "select a.k, b.k from t a join t b on a.d = b.d where a.d = 0 and a.k = 3",
    "select a.k, b.k from t a left join t b on a.k = b.k and b.d > 5",
    "select k from t where d > 5 union select k from t where f = 0",
    "select k from t where d > (select min(f) from t where k = 8) - 1.0",
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) "
    "select i, k from n join t on k = i where d = 0",
    "select * from (select k, d, row_number() over (partition by d order by k) n from t) where d > 5",
    "select * from (select d, explode(array(k, k)) from t) where d > 5",
    "select k from t where d > 5 and k >= 0 and monotonically_increasing_id() >= 0",
    "select k, _pos, _spec_id, _deleted from t where d > 5",
    "from t |> where d > 5 |> select k",
    "select k from v where d > 5",
    "select k from t where g <> ', runtimeFilters=' and d > 5",
)


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """The table without any index."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    make_table(made)
    yield made
    made.lake.catalog.close()


def test_no_shape_of_a_query_loses_rows_without_an_index(plain: Bed) -> None:
    spark, copy = plain.spark, local_copy(plain)
    for shape in SHAPES:
        answers = []
        for source, view in ((copy, "of_copy"), (TABLE, "of_table")):
            spark.sql(f"create or replace temp view {view} as select * from {source}")
            hidden = ", 0l as _pos, 0 as _spec_id, false as _deleted" if source == copy else ""
            text = re.sub(r"\bt\b", f"(select *{hidden} from {source})" if hidden else source, shape)
            df = skipstone.sql(spark, text.replace(" v ", f" {view} "))
            answers.append(sorted(map(str, df.drop("_pos").collect())))
        assert answers[0] == answers[1], f"{shape}\n{skipstone.explain(df)}"


def test_what_is_asked_of_an_enabled_session_is_asked_of_all_rows(plain: Bed) -> None:
    frame = plain.spark.table(TABLE).where("k between 1 and 9")
    skipstone.enable(plain.spark)
    try:
        assert frame.where("d > 5").count() == 3
        assert keys(frame.where("d = 0.0")) == [3, 4]
        assert frame.where("d > 5").select("k").toPandas()["k"].isin([2, 7, 8]).sum() == 3
    finally:
        skipstone.disable(plain.spark)


#: What Spark runs queries of its own for, at once, as the values that become columns.
FINDING_COLUMNS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "pivot": lambda df: df.groupBy("k").pivot("k").count(),
    "pivot of floats": lambda df: df.groupBy("k").pivot("d").max("f"),
    "pivot of dates": lambda df: df.withColumn("t", F.date_add(F.lit("2020-01-01"), df.k)).groupBy().pivot("t").count(),
    "pivot of given values": lambda df: df.groupBy("k").pivot("k", [2]).count(),
    "crosstab": lambda df: df.crosstab("k", "d"),
    "transpose": lambda df: df.select("k", "f").transpose("k"),
}


def test_columns_that_spark_makes_of_values_are_those_of_all_rows(plain: Bed) -> None:
    frames = [plain.spark.table(name) for name in (TABLE, local_copy(plain))]
    skipstone.enable(plain.spark)
    try:
        for name, find in FINDING_COLUMNS.items():
            found, expected = (find(frame.where("k between 1 and 9 and d > 5")) for frame in frames)
            assert (found.columns, answer(found)) == (expected.columns, answer(expected)), name
    finally:
        skipstone.disable(plain.spark)


def test_a_query_without_a_condition_on_floats_is_left_alone(plain: Bed) -> None:
    for text in (
        f"select sum(d), avg(f) from {TABLE} where k > 3",
        f"select k, d * 2 from {TABLE}",
        f"select k from {TABLE} where d is not null",
        f"select a.k from {TABLE} a join {TABLE} b on a.d = b.d",
    ):
        df = plain.spark.sql(text)
        assert skipstone.rewrite(df) is df, text


def test_what_a_staged_list_of_files_does_not_tell_is_held_back(plain: Bed) -> None:
    """The files of a table that is read by its path are not ours to choose."""
    read = plain.spark.read.format("iceberg").load(plain.lake.table().metadata_location)
    df = skipstone.rewrite(read.where("k between 1 and 9 and d > 5").select("k"))
    (relation,) = skipstone.explain(df).relations
    assert keys(df) == [2, 7, 8], str(relation)
    assert (relation.refusal, bool(relation.guard)) == (Refusal.NO_CATALOG, True)


def make_table(bed: Bed) -> None:
    """The rows of FILES, a file each; also in a struct."""
    bed.spark.sql(f"create table {TABLE} (k int, d double, f float, s struct<y: double>, g string) using iceberg")
    for file in FILES:
        rows = ", ".join(f"({k}, '{x}')" if x else f"({k}, null)" for k, x in file.items())
        bed.spark.sql(
            f"insert into {TABLE} select /*+ coalesce(1) */ k, cast(x as double), cast(x as float), "
            f"named_struct('y', cast(x as double)), concat('g', k) "
            f"from values {rows}, (-1000, null), (1000, null) v(k, x)"
        )


def local_copy(bed: Bed) -> str:
    """A view of all rows, which Iceberg does not read."""
    whole = bed.spark.table(TABLE)
    bed.spark.createDataFrame(whole.collect(), whole.schema).createOrReplaceTempView("copy")
    return "copy"
