"""Rules of planning one by one: a query has the same rows without any of them, be it disabled by name or failing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone.query.plans import optimizer
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.explanation import Explanation, RuleOutcome
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.state import QueryState
from skipstone_core.indexing import use as index_use

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import BY_G, BY_K, Bed, answer, open_bed

RULES = {rule.__name__: rule for rule in optimizer.RULES}
NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
#: With these, Spark joins tables by their partitions.
BY_PARTITIONS = {
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    **NO_BROADCAST,
}
#: Queries of which each rule changes one at least, with the settings that it takes.
QUERIES: dict[str, tuple[str, Mapping[str, str]]] = {
    "no index": ("select name from dim where d = 3", {}),
    "lookup": ("select n from fact where k = 14", {}),
    "grouped": ("select m from dim join (select k, max(n) m from fact group by k) x on x.k = d where name = 'n3'", {}),
    "partition keys": (
        "select f.n, p.v from dim join fact f on f.k = dim.d + 6 join beside p on p.d = dim.d where dim.name = 'n3'",
        {},
    ),
    "value": ("select n from fact where k = (select max(d) + 11 from dim where name = 'n3')", {}),
    "runtime filter": ("select f.n from fact f join dim on f.d = dim.d where dim.name = 'n3' and f.g = 'm1'", {}),
    "partitions": (
        "select a.n, b.k from fact a join fact b on a.d = b.d and a.n = b.n where a.g = 'm1'",
        BY_PARTITIONS,
    ),
    "buckets": ("select a.n, b.n m from wide a join wide b on a.k = b.k", NO_BROADCAST),
}


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Tables with indexes, one of them covering, and a small table dim."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    sql = made.spark.sql
    sql("create table skipstone.ns.dim using iceberg as select int(id) as d, concat('n', id) as name from range(8)")
    sql("create table skipstone.ns.fact (k int, g string, n int, d int) using iceberg partitioned by (d)")
    text = "case id div 8 % 4 when 0 then 'a' when 1 then 'z' else concat('m', id % 2) end"
    for part in (0, 1):
        rows = f"select int(id * 7 % 640 * 2 + {part}), {text}, int(id), int(id % 8) from range(640)"
        sql(f"insert into skipstone.ns.fact {rows}")
    sql("use skipstone.ns")
    sql("create table beside (v int, d int) using iceberg partitioned by (d)")
    sql("insert into beside select int(id), int(id % 8) from range(64)")
    sql("create table wide using iceberg as select id % 9 as k, int(id) as n from range(60)")
    made.reindex(BY_K, BY_G, name="fact")
    made.reindex(index_on("k", name="by_k", include=["n"], buckets=4), name="wide")
    yield made
    made.lake.catalog.close()


@pytest.fixture(autouse=True)
def _jobs_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are small."""
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)


@contextmanager
def under(bed: Bed, settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        bed.spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            bed.spark.conf.unset(name)


def explained(bed: Bed, query: str, settings: Mapping[str, str] | None = None) -> Explanation:
    """What became of a query, whose answer is that of plain Spark."""
    text, needed = QUERIES[query]
    with under(bed, {**needed, **(settings or {})}):
        rewritten = skipstone.sql(bed.spark, text)
        explanation = skipstone.explain(rewritten)
        assert answer(rewritten) == answer(bed.spark.sql(text)), str(explanation)
        return explanation


def outcome(explanation: Explanation, rule: str) -> RuleOutcome:
    return next(report.outcome for report in explanation.rules if report.name == rule)


@pytest.fixture(scope="module")
def changed_by(bed: Bed) -> dict[str, list[str]]:
    """The queries that each rule changes."""
    changed: dict[str, list[str]] = {rule: [] for rule in RULES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
        patch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)
        for query, (text, settings) in QUERIES.items():
            with under(bed, settings):
                rules = skipstone.explain(skipstone.sql(bed.spark, text)).rules
            for report in rules:
                if report.outcome is RuleOutcome.CHANGED:
                    changed[report.name].append(query)
    return changed


def test_every_rule_changes_a_query(changed_by: dict[str, list[str]]) -> None:
    without = {rule for rule, queries in changed_by.items() if not queries}
    assert without == {"NoIndexApplies"}  # of a query that is left as it is, explain tells all


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_disabled_by_name_changes_no_row(bed: Bed, changed_by: dict[str, list[str]], rule: str) -> None:
    for query in changed_by[rule] or ["no index"]:
        explanation = explained(bed, query, {f"skipstone.rules.{rule}": "false"})
        assert outcome(explanation, rule) is RuleOutcome.DISABLED
        assert f"rule {rule}: disabled, skipstone.rules.{rule} is false" in str(explanation)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_fails_costs_time_and_no_row(
    bed: Bed,
    changed_by: dict[str, list[str]],
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class _Failing:
        @staticmethod
        def apply(state: QueryState, cost: QueryCost) -> QueryState:
            RULES[rule].apply(state, cost)  # all of its work is for nothing
            raise OSError("no room left")

    _Failing.__name__ = rule
    rules = tuple(_Failing if known.__name__ == rule else known for known in optimizer.RULES)
    monkeypatch.setattr(optimizer, "RULES", rules)
    for query in changed_by[rule] or ["no index"]:
        explanation = explained(bed, query)
        assert outcome(explanation, rule) is RuleOutcome.FAILED
        assert f"rule {rule}: failed, the query is planned without it (no room left)" in str(explanation)
    assert f"Failed: the query is planned without rule {rule}: no room left" in caplog.text


def test_what_no_rule_plans_is_read_as_spark_reads_it(bed: Bed) -> None:
    for rule in ("NarrowRelations", "Substitute"):
        explanation = explained(bed, "lookup", {f"skipstone.rules.{rule}": "false"})
        assert [relation.refusal for relation in explanation.relations] == [Refusal.NOT_PLANNED]


def test_a_rule_that_there_is_not_is_named(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    explanation = explained(bed, "lookup", {"skipstone.rules.JoinKey": "false"})
    assert explanation.is_rewritten
    assert "skipstone.rules.JoinKey is set, but there is no such rule: use BucketJoins, JoinKeys, " in caplog.text


def test_the_time_of_each_rule_is_told(bed: Bed) -> None:
    explanation = explained(bed, "lookup")
    assert [report.name for report in explanation.rules] == [*RULES]
    assert sum(report.seconds for report in explanation.rules) > 0
    assert "rule" not in str(explanation)
