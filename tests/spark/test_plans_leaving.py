"""Queries that gain nothing: told by what a session remembers of their tables, and by that only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans import session
from skipstone.query.plans.leaving import facts

from tests.spark.jvmcalls import counted_calls
from tests.spark.plans_bed import BY_G, BY_K, ROWS, SEGMENTS, TABLE, Bed, answer, open_bed

PLAIN = "skipstone.ns.plain"
REMEMBERED = "skipstone.rememberedSeconds"
#: Queries that no index serves: t has one on k, plain has none.
LEFT = (
    f"select n from {PLAIN} where k = 7",
    f"select g, sum(k) as s from {TABLE} where n > 3 group by g having max(n) > 5 order by s limit 3",
    f"select t.n from {TABLE} t join {PLAIN} p on t.n = p.n where p.g = 'g1'",
    f"select n from {TABLE} where n in (select k from {PLAIN} where g = 'g7')",
    f"select n, rank() over (partition by g order by k) as place from {TABLE} where g < 'g3'",
    f"select (select max(k) from {PLAIN}) as top, n from {TABLE} where n = 5",
)
#: Queries on which more has to be known: an index may serve them, or ids of columns tell nothing.
LOOKED_AT = (
    f"select n from {TABLE} where k = 7",
    f"select s from (select g, k + 1 as s from {TABLE}) where s = 8",
    f"select g, max(k) as top from {TABLE} group by g having top > 390",
    f"select p.n from {TABLE} t join {PLAIN} p on t.k = p.n where p.g = 'g1'",
    f"select n from {PLAIN} where n in (select k from {TABLE} where g = 'g7')",
    f"select n from {PLAIN} p where exists (select 1 from {TABLE} t where t.k = p.n and t.g = 'g7')",
    f"select n from (select n, k from {TABLE} union all select n, k from {PLAIN}) where k = 7",
    f"with few as (select n, k from {TABLE}) select n from few where k = 7",
)
#: One call gives the settings, one the execution of the query, and one its outline; another one copies it.
CALLS = 3


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Two tables, one of which has an index on k, in a session that remembers what it has."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    for name in ("t", "plain"):
        made.fill(name)
    made.reindex(BY_K)
    made.spark.conf.set(REMEMBERED, "3600")
    yield made
    made.lake.catalog.close()


@pytest.mark.parametrize("text", LEFT)
def test_what_is_remembered_leaves_a_query_after_one_look_at_it(bed: Bed, text: str) -> None:
    skipstone.rewrite(bed.spark.sql(text))
    df = bed.spark.sql(text)
    with counted_calls() as sent:
        assert skipstone.rewrite(df) is df
    assert len(sent) <= CALLS, sent
    skipstone.enable(bed.spark)
    try:
        with counted_calls() as enabled:
            found = answer(df)
        skipstone.disable(bed.spark)
        with counted_calls() as disabled:
            assert answer(df) == found
    finally:
        skipstone.disable(bed.spark)
    assert len(enabled) <= len(disabled) + CALLS


@pytest.mark.parametrize("text", [*LEFT, *LOOKED_AT])
def test_nothing_is_left_that_a_closer_look_would_not_leave(bed: Bed, text: str) -> None:
    skipstone.rewrite(bed.spark.sql(text))
    df = bed.spark.sql(text)
    with counted_calls() as sent:
        is_left = skipstone.rewrite(df) is df
    is_left_at_once = len(sent) <= CALLS
    assert is_left_at_once == (text in LEFT)
    with closer_look(bed.spark):
        closer = bed.spark.sql(text)
        assert (skipstone.rewrite(closer) is closer) == is_left
        bed.query(text)


@contextmanager
def closer_look(spark: SparkSession) -> Iterator[None]:
    """Remember nothing meanwhile."""
    spark.conf.set(REMEMBERED, "0")
    try:
        yield
    finally:
        spark.conf.set(REMEMBERED, "3600")


def test_a_query_of_other_tables_is_left_at_once(bed: Bed) -> None:
    df = bed.spark.range(10).where("id = 3")
    with counted_calls() as sent:
        assert skipstone.rewrite(df) is df
    assert len(sent) <= CALLS, sent


def test_a_new_index_is_used_when_its_time_has_come(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.fill("late")
    query, now = "select n from skipstone.ns.late where g = 'g26'", facts.time.monotonic()

    def is_left() -> bool:
        df = bed.spark.sql(query)
        return skipstone.rewrite(df) is df

    assert is_left()
    bed.reindex(BY_G, name="late")
    assert is_left()
    monkeypatch.setattr(facts.time, "monotonic", lambda: now + 3599)
    assert is_left()
    monkeypatch.setattr(facts.time, "monotonic", lambda: now + 3700)
    assert not is_left()
    assert bed.query(query).files_read == [2]


def test_nothing_is_remembered_of_a_snapshot_that_is_new(bed: Bed) -> None:
    bed.fill("grows")
    query = "select count(*) from skipstone.ns.grows where n >= 0"
    counts = []
    for _ in range(2):
        counts.append(skipstone.sql(bed.spark, query).collect()[0][0])
        bed.lake.table("grows").append(bed.lake.table("grows").scan().to_arrow())
    assert counts == [SEGMENTS * ROWS, 2 * SEGMENTS * ROWS]


def test_rows_that_iceberg_loses_are_looked_at(bed: Bed) -> None:
    bed.spark.sql("create table skipstone.ns.floats (k int, x double) using iceberg")
    bed.spark.sql("insert into skipstone.ns.floats values (1, double('nan')), (2, 1.0)")
    query = "select k from skipstone.ns.floats where x > 5.0"
    for _ in range(2):
        assert [row.k for row in skipstone.sql(bed.spark, query).collect()] == [1]
    other = bed.spark.sql("select x from skipstone.ns.floats where k = 2")
    assert [row.x for row in skipstone.rewrite(other).collect()] == [1.0]


def test_a_session_whose_jvm_cannot_compile_looks_step_by_step(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "outliner", lambda *_: None)
    df = bed.spark.sql(LEFT[0])
    assert skipstone.rewrite(df) is df
    assert bed.query(LOOKED_AT[0]).files_read == [1]


def test_a_setting_that_is_not_a_number_remembers_nothing(bed: Bed) -> None:
    with closer_look(bed.spark):
        bed.spark.conf.set(REMEMBERED, "soon")
        explanation = str(skipstone.explain(bed.spark.sql(LEFT[0])))
    assert f"{REMEMBERED} is 'soon', not a number of seconds: it counts as 0" in explanation
