"""What Spark does with the partitions of a table is not lost to an index that saves less."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from skipstone.query.plans.refusals import Refusal
from skipstone_core.indexing import use as index_use

from tests.spark.plans_bed import BY_G, BY_K, Bed, Checked, open_bed

#: With these, Spark joins tables by their partitions.
GROUPED = {
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
NO_BROADCAST = {THRESHOLD: "-1"}
STAR = "select f.n from skipstone.ns.fact f join skipstone.ns.dim on f.d = dim.d where dim.name = 'n3'"
ALIKE = "select a.n, b.k from skipstone.ns.fact a join skipstone.ns.fact b on a.d = b.d and a.n = b.n"
#: Conditions that leave half of the 16 files, and one.
HALF, ONE = "g = 'm1'", "k = 14"


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A table fact with two files in each of eight partitions, and a table dim with a row for each of them."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    rows = "select int(id) as d, concat('n', id) as name from range(8)"
    made.spark.sql(f"create table skipstone.ns.dim using iceberg as {rows}")
    made.spark.sql("create table skipstone.ns.fact (k int, g string, n int, d int) using iceberg partitioned by (d)")
    text = "case id div 8 % 4 when 0 then 'a' when 1 then 'z' else concat('m', id % 2) end"
    for part in (0, 1):
        rows = f"select int(id * 7 % 640 * 2 + {part}), {text}, int(id), int(id % 8) from range(640)"
        made.spark.sql(f"insert into skipstone.ns.fact {rows}")
    made.reindex(BY_K, BY_G, name="fact")
    yield made
    made.lake.catalog.close()


def under(bed: Bed, settings: dict[str, str], text: str) -> Checked:
    """Run a query with and without indexes under some settings."""
    for name, value in settings.items():
        bed.spark.conf.set(name, value)
    try:
        return bed.query(text)
    finally:
        for name in settings:
            bed.spark.conf.unset(name)


@pytest.mark.parametrize("settings", [{}, {"spark.sql.adaptive.enabled": "false"}], ids=["adaptive", "fixed"])
def test_a_relation_that_a_join_filters_is_left_to_spark(bed: Bed, settings: dict[str, str]) -> None:
    found = under(bed, settings, f"{STAR} and f.{HALF}")
    assert found.refusals == [Refusal.RUNTIME_FILTER, Refusal.NO_INDEX]
    assert "dynamicpruning" in found.plan
    assert found.explanation.relations[0].plan.funnel.read == 8


def test_a_relation_that_a_join_filters_in_a_subquery_is_left_to_spark(bed: Bed) -> None:
    found = bed.query(f"select d from skipstone.ns.dim where d >= (select count(n) - 40 from ({STAR} and f.{HALF}))")
    assert Refusal.RUNTIME_FILTER in found.refusals
    assert not found.files_read


def test_an_index_that_leaves_few_files_saves_more_than_a_filter(bed: Bed) -> None:
    assert bed.query(f"{STAR} and f.{ONE}").files_read == [1]


@pytest.mark.parametrize(
    "settings", [NO_BROADCAST, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}], ids=["sorted", "off"]
)
def test_a_filter_that_does_not_come_is_no_reason(bed: Bed, settings: dict[str, str]) -> None:
    assert under(bed, settings, f"{STAR} and f.{HALF}").files_read == [8]


def test_tables_joined_by_their_partitions_are_left_to_spark(bed: Bed) -> None:
    found = under(bed, GROUPED | NO_BROADCAST, f"{ALIKE} where a.{HALF}")
    assert found.refusals == [Refusal.PARTITIONED_JOIN, Refusal.NO_CONDITION]
    assert "Exchange" not in found.plan


def test_a_join_that_needs_no_more_shuffles_goes_through_the_index(bed: Bed) -> None:
    assert under(bed, GROUPED, f"{ALIKE} where a.{HALF}").files_read == [8]
    assert under(bed, NO_BROADCAST, f"{ALIKE} where a.{HALF}").files_read == [8]


def test_a_table_that_is_read_alone_goes_through_the_index(bed: Bed) -> None:
    text = f"select d, count(*) from skipstone.ns.fact where {HALF} group by d"
    assert under(bed, GROUPED | NO_BROADCAST, text).files_read == [8]


def test_keys_narrow_what_spark_would_have_filtered_by_a_side_that_ran_first(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)
    bed.spark.sql("create table skipstone.ns.beside (v int, d int) using iceberg partitioned by (d)")
    bed.spark.sql("insert into skipstone.ns.beside select int(id), int(id % 8) from range(64)")
    text = (
        "select f.n, p.v from skipstone.ns.dim join skipstone.ns.fact f on f.k = dim.d + 6 "
        "join skipstone.ns.beside p on p.d = dim.d where dim.name = 'n3'"
    )
    assert "dynamicpruning" in str(bed.spark.sql(text)._jdf.queryExecution().executedPlan().toString())
    found = bed.query(text)
    assert "which ran first" in str(found.explanation)
    assert found.files_read == [1, 1], str(found.explanation)
