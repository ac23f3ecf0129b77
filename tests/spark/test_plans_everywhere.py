"""A session that is enabled reads through indexes whatever runs its DataFrames, and answers as before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import skipstone
from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.plans_bed import BY_K, TABLE, Bed, module_bed, rows_of_segment
from tests.spark.secondengine import second_spark

__all__ = ["module_bed"]

QUERY = f"select k, n from {TABLE} where k = 7"


@pytest.fixture
def enabled(module_bed: Bed) -> Iterator[SparkSession]:
    """An enabled session on a table that is indexed."""
    skipstone.enable(module_bed.spark)
    yield module_bed.spark
    skipstone.disable(module_bed.spark)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How many relations were read through indexes since it was asked last."""
    caplog.set_level(logging.INFO, "skipstone.query")

    def count() -> int:
        found = sum("read through indexes" in record.getMessage() for record in caplog.records)
        caplog.clear()
        return found

    return count


def frame(spark: SparkSession) -> DataFrame:
    """Built as people build one: the condition comes last."""
    return spark.table(TABLE).select("k", "n").where("k = 7")


def written(df: DataFrame, folder: Path) -> list[Row]:
    df.write.mode("overwrite").parquet(str(folder))
    return df.sparkSession.read.parquet(str(folder)).collect()


def kept(df: DataFrame) -> list[Row]:
    df.writeTo("skipstone.ns.copied").createOrReplace()
    return df.sparkSession.table("skipstone.ns.copied").collect()


def seen(df: DataFrame) -> list[int]:
    """What tasks of ``foreach`` met."""
    found = df.sparkSession.sparkContext.accumulator(0)
    df.foreach(lambda row: found.add(row.n))
    return [found.value]


#: What runs a DataFrame, by name.
ACTIONS: dict[str, Callable[[DataFrame, Path], object]] = {
    "collect": lambda df, _: df.collect(),
    "count": lambda df, _: df.count(),
    "first": lambda df, _: df.first(),
    "head": lambda df, _: df.head(3),
    "take": lambda df, _: df.take(3),
    "tail": lambda df, _: df.tail(3),
    "isEmpty": lambda df, _: df.isEmpty(),
    "toPandas": lambda df, _: df.toPandas().to_dict("records"),
    "toArrow": lambda df, _: df.toArrow().to_pylist(),
    "toLocalIterator": lambda df, _: list(df.toLocalIterator()),
    "toJSON": lambda df, _: df.toJSON().collect(),
    "rdd": lambda df, _: df.rdd.map(lambda row: row.n).collect(),
    "foreach": lambda df, _: seen(df),
    "show": lambda df, _: df._show_string(),
    "html": lambda df, _: df._repr_html_(),
    "localCheckpoint": lambda df, _: df.localCheckpoint().collect(),
    "quantile": lambda df, _: df.approxQuantile("n", [0.5], 0.0),
    "corr": lambda df, _: df.corr("k", "n"),
    "cov": lambda df, _: df.cov("k", "n"),
    "crosstab": lambda df, _: df.crosstab("k", "n").collect(),
    "freqItems": lambda df, _: df.freqItems(["k"]).collect(),
    "write": written,
    "writeTo": lambda df, _: kept(df),
    "mapInPandas": lambda df, _: df.mapInPandas(lambda frames: frames, df.schema).collect(),
    "aggregate": lambda df, _: df.groupBy("k").count().collect(),
}


@pytest.mark.filterwarnings("ignore:The copy keyword", "ignore:toPandas attempted")
@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_runs_a_dataframe_reads_through_the_indexes(
    enabled: SparkSession, told: Callable[[], int], action: str, tmp_path: Path
) -> None:
    if action == "html":
        enabled.conf.set("spark.sql.repl.eagerEval.enabled", "true")
    run = ACTIONS[action]
    found = run(frame(enabled), tmp_path)
    assert told() >= 1
    skipstone.disable(enabled)
    expected = run(frame(enabled), tmp_path)
    assert told() == 0
    assert repr(found) == repr(expected) or sorted(map(repr, found)) == sorted(map(repr, expected))  # type: ignore[call-overload]


def test_queries_of_sql_and_of_views_are_dataframes_too(enabled: SparkSession, told: Callable[[], int]) -> None:
    (row,) = enabled.sql(QUERY).collect()
    assert told() == 1
    enabled.table(TABLE).createOrReplaceTempView("v")
    assert enabled.sql("select k, n from v where k = :k", {"k": 7}).collect() == [row]
    assert told() == 1


def test_what_explains_a_dataframe_says_what_indexes_do(
    enabled: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    enabled.sql(QUERY).explain()
    shown = capsys.readouterr().out
    assert "IcebergStagedScan" in shown
    assert f"== Skipstone ==\n{TABLE}: read through indexes\n  read k = 7\n" in shown


def test_what_was_said_by_hand_holds(enabled: SparkSession, told: Callable[[], int]) -> None:
    plain = skipstone.no_index(frame(enabled))
    assert [len(plain.collect()), plain.count(), len(plain.take(5)), len(plain.rdd.collect())] == [1, 1, 1, 1]
    assert told() == 0
    rewritten = skipstone.sql(enabled, QUERY)
    assert told() == 1
    assert [len(rewritten.collect()), rewritten.count(), len(rewritten.take(5))] == [1, 1, 1]
    assert rewritten.where("n is not null").count() == 1
    assert told() == 0
    enabled.conf.set("skipstone.enabled", "false")
    assert len(frame(enabled).collect()) == 1
    enabled.conf.unset("skipstone.enabled")
    assert told() == 0


def test_an_rdd_stays_the_same_one(enabled: SparkSession) -> None:
    df = frame(enabled)
    assert df.rdd is df.rdd


def test_other_sessions_have_their_own_say(module_bed: Bed, enabled: SparkSession, told: Callable[[], int]) -> None:
    other = second_spark(enabled, module_bed.lake.warehouse)
    assert len(frame(other).collect()) == 1
    assert told() == 0
    skipstone.enable(other)
    skipstone.disable(enabled)
    assert len(frame(enabled).collect()) == 1
    assert told() == 0
    assert len(frame(other).collect()) == 1
    assert told() == 1
    skipstone.disable(other)


def test_cached_and_streamed_rows_are_read_as_they_are(enabled: SparkSession, told: Callable[[], int]) -> None:
    df = frame(enabled).cache()
    assert df.count() == 1
    assert len(df.collect()) == 1
    df.unpersist()
    stream = enabled.readStream.table(TABLE).where("k = 7").writeStream.format("memory").queryName("streamed")
    stream.trigger(availableNow=True).start().awaitTermination()
    assert told() == 0
    assert enabled.table("streamed").count() == 1


def test_later_commits_are_seen(module_bed: Bed, enabled: SparkSession) -> None:
    before = frame(enabled).count()
    module_bed.lake.table().append(rows_of_segment(0))
    module_bed.reindex(BY_K)
    enabled.sql(f"refresh table {TABLE}")
    assert frame(enabled).count() == before + 1


def test_spark_connect_is_told_where_to_go() -> None:
    with pytest.raises(ValueError, match="read through the data source"):
        skipstone.enable(object())  # type: ignore[arg-type]
