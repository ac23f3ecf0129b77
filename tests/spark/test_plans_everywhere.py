"""A session that is enabled reads through indexes whatever runs its DataFrames, and answers as before."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import skipstone
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from tests.examples import turn
from tests.spark.plans_bed import BY_K, TABLE, Bed, filled, kept, module_bed, rows_of_segment
from tests.spark.secondengine import second_spark

__all__ = ["filled", "kept", "module_bed"]

#: Lets shells and notebooks show rows of a DataFrame.
EAGER = "spark.sql.repl.eagerEval.enabled"
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


def copied(df: DataFrame) -> list[Row]:
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
    "repr": lambda df, _: repr(df),
    "localCheckpoint": lambda df, _: df.localCheckpoint().collect(),
    "quantile": lambda df, _: df.approxQuantile("n", [0.5], 0.0),
    "corr": lambda df, _: round(df.corr("k", "n"), 9),
    "cov": lambda df, _: df.cov("k", "n"),
    "crosstab": lambda df, _: df.crosstab("k", "n").collect(),
    "freqItems": lambda df, _: df.freqItems(["k"]).collect(),
    "write": written,
    "writeTo": lambda df, _: copied(df),
    "mapInPandas": lambda df, _: df.mapInPandas(lambda frames: frames, df.schema).collect(),
    "aggregate": lambda df, _: df.groupBy("k").count().collect(),
}


@pytest.fixture
def sessions(filled: Bed) -> Iterator[tuple[SparkSession, SparkSession]]:
    """An enabled session on a table to be changed, and one that is not."""
    plain = second_spark(filled.spark, filled.lake.warehouse)
    for session in (filled.spark, plain):
        session.conf.set(EAGER, "true")
    skipstone.enable(filled.spark)
    yield filled.spark, plain
    skipstone.disable(filled.spark)


def same(found: object, expected: object) -> bool:
    """Whether answers are the same, rows in any order."""
    if isinstance(found, list) and isinstance(expected, list):
        return sorted(map(repr, found)) == sorted(map(repr, expected))
    return repr(found) == repr(expected)


@pytest.mark.filterwarnings("ignore:The copy keyword", "ignore:toPandas attempted")
@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_runs_a_dataframe_reads_through_the_indexes(
    enabled: SparkSession, told: Callable[[], int], action: str, tmp_path: Path
) -> None:
    enabled.conf.set(EAGER, "true")
    run = ACTIONS[action]
    found = run(frame(enabled), tmp_path)
    assert told() >= 1
    skipstone.disable(enabled)
    expected = run(frame(enabled), tmp_path)
    assert told() == 0
    assert same(found, expected)


def a_third_of(names: Iterable[str]) -> list[Any]:
    """All names; those that have no turn are marked for the soak."""
    now = turn(3)
    return [pytest.param(name, marks=[] if at % 3 == now else [pytest.mark.soak]) for at, name in enumerate(names)]


@pytest.mark.filterwarnings("ignore:The copy keyword", "ignore:toPandas attempted")
@pytest.mark.parametrize("action", a_third_of(ACTIONS))
def test_a_dataframe_sees_the_commits_that_spark_lets_it_see(
    filled: Bed, sessions: tuple[SparkSession, SparkSession], action: str, tmp_path: Path
) -> None:
    frames = [session.table(TABLE).select("k", "n").where("k in (7, 14)").sort("k") for session in sessions]
    run = ACTIONS[action]
    for _ in range(2):
        filled.lake.table().append(rows_of_segment(0))
        found, expected = (run(df, tmp_path) for df in frames)
        assert same(found, expected)


def test_a_dataframe_that_was_run_is_not_read_from_rows_that_are_cached_later(
    filled: Bed, sessions: tuple[SparkSession, SparkSession]
) -> None:
    frames = [frame(session) for session in sessions]
    assert [len(df.collect()) for df in frames] == [1, 1]
    filled.lake.table().append(rows_of_segment(0))
    answers = []
    for df in frames:
        df.cache()
        answers.append([len(df.collect()), df.count(), len(df.collect())])
        df.unpersist()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("action", ["crosstab", "freqItems"])
def test_what_spark_runs_later_sees_later_commits(
    filled: Bed, sessions: tuple[SparkSession, SparkSession], action: str
) -> None:
    lazy = [getattr(frame(session), action)(*(["k", "n"] if action == "crosstab" else [["n"]])) for session in sessions]
    filled.lake.table().append(rows_of_segment(0))
    found, expected = (df.collect() for df in lazy)
    assert same(found, expected)


@pytest.mark.parametrize(
    "change", ["drop table {}", "alter table {} drop column n", "create or replace table {} (k bigint) using iceberg"]
)
def test_a_table_that_changed_is_refused_as_spark_refuses_it(
    sessions: tuple[SparkSession, SparkSession], change: str
) -> None:
    frames = [frame(session) for session in sessions]
    sessions[1].sql(change.format(TABLE))
    found, expected = (refused(df) for df in frames)
    assert found == expected


def refused(df: DataFrame) -> str | None:
    """The condition that Spark names when it refuses to run a DataFrame."""
    with pytest.raises(AnalysisException) as caught:
        df.collect()
    return caught.value.getCondition()


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


def test_a_dataframe_that_is_shown_without_rows_is_not_looked_at(
    enabled: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "skipstone.query")
    enabled.conf.set(EAGER, "false")
    df = frame(enabled)
    assert (repr(df), df._repr_html_()) == ("DataFrame[k: bigint, n: int]", None)
    enabled.conf.set(EAGER, "true")
    assert repr(df) == "DataFrame[k: bigint, n: int]"  # a notebook that asks for HTML shows no text
    assert not caplog.records


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


def test_what_others_put_over_our_methods_stays(
    enabled: SparkSession, told: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    df, calls = frame(enabled), []
    collect = type(df).collect

    def others(self: DataFrame) -> list[Row]:
        calls.append(self)
        return collect(self)

    monkeypatch.setattr(type(df), "collect", inspect.unwrap(collect))  # what the class has when this is over
    monkeypatch.setattr(type(df), "collect", others)
    assert len(df.collect()) == 1
    assert told() == 1
    skipstone.disable(enabled)
    assert len(df.collect()) == 1
    assert (told(), calls) == (0, [df, df])


def test_disabling_gives_every_method_back(module_bed: Bed) -> None:
    kind = type(module_bed.spark.range(1))
    before = dict(vars(kind))
    skipstone.enable(module_bed.spark)
    skipstone.enable(module_bed.spark)
    assert dict(vars(kind)) != before
    skipstone.disable(module_bed.spark)
    assert dict(vars(kind)) == before


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
