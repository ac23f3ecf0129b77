"""The 22 queries of TPC-H at a small scale, through indexes that lag behind: the answers are those of plain Spark.

`make soak-sparksql` runs them with Spark's own tests, and prints which relations use an index, and why others do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession
from skipstone.query.plans.explanation import Explanation, RelationExplanation
from skipstone.query.plans.refusals import Refusal
from skipstone_core.indexing import use as index_use

from tests.bench.lineitem import generated
from tests.bench.tpch_queries import QUERIES
from tests.spark.index_bed import index_on
from tests.spark.lake import append
from tests.spark.plans_bed import Bed, open_bed

SCALE = 0.02
#: Tables by how many segments they have; indexes miss the last one where there are several.
SEGMENTS = {
    "lineitem": 8,
    "orders": 8,
    "partsupp": 4,
    "part": 4,
    "customer": 4,
    "supplier": 1,
    "nation": 1,
    "region": 1,
}
INDEXES = {
    "lineitem": ("l_orderkey", "l_partkey", "l_suppkey", "l_shipdate", "l_shipmode", "l_receiptdate"),
    "orders": ("o_orderkey", "o_custkey", "o_orderdate"),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "part": ("p_partkey", "p_brand", "p_size", "p_type"),
    "customer": ("c_custkey", "c_mktsegment", "c_nationkey"),
    "supplier": ("s_suppkey", "s_nationkey"),
    "nation": ("n_name",),
    "region": ("r_name",),
}
#: What conditions of an OR over several relations say of one of them: of a query, the relation and a part of it.
OF_AN_OR = {
    7: ("nation", "n_name = 'FRANCE' or n_name = 'GERMANY'"),
    19: ("part", "p_brand = 'Brand#12'"),
}


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """All tables, with their indexes."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"), driver_rows=None)
    for name, segments in SEGMENTS.items():
        for segment in range(segments):
            rows = generated(made.lake.root, SCALE, name, segment, segments)
            if not segment:
                made.lake.create(rows.schema, name)
            append(made.lake.table(name), rows)
        for column in INDEXES[name]:
            made.reindex(index_on(column, name=column), max_segments=max(1, segments - 1), name=name)
    made.spark.sql("use skipstone.ns")
    yield made
    made.lake.catalog.close()


def rows_of(df: DataFrame) -> Counter[str]:
    """Rows in no order."""
    return Counter(map(repr, df.collect()))


def told(one: RelationExplanation) -> str:
    """What became of a relation, in short."""
    name = one.table.rsplit(".", 1)[-1]
    if one.refusal is not None:
        codes = sorted({f"{use.name.split('__si_')[-1]}: {use.code}" for use in one.plan.indexes}) if one.plan else []
        return f"{name} {one.refusal}" + (f" ({', '.join(codes)})" if one.refusal is Refusal.INDEX_NOT_USED else "")
    assert one.plan is not None
    return f"{name} {one.plan.funnel.read}/{one.plan.funnel.total} files" + (" by a join" if one.joined else "")


def check(number: int, found: DataFrame, explanation: Explanation, expected: Counter[str]) -> None:
    """Print what became of a query, and compare its answer."""
    print(f"\nQ{number}: {'; '.join(told(one) for one in explanation.relations)}")
    assert not {one.refusal for one in explanation.relations} & {Refusal.FAILED, Refusal.CANNOT_PLAN}, explanation
    assert rows_of(found) == expected, explanation


@pytest.mark.soak
@pytest.mark.parametrize("number", sorted(QUERIES))
def test_answers_are_those_of_plain_spark(bed: Bed, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QUERIES[number]
    expected = rows_of(bed.spark.sql(query))
    found = skipstone.sql(bed.spark, query)
    explanation = skipstone.explain(found)
    check(number, found, explanation, expected)
    if number in OF_AN_OR:
        table, condition = OF_AN_OR[number]
        assert condition in "".join(one.text() for one in explanation.relations if one.table.endswith(f".{table}"))
    monkeypatch.setattr(index_use, "SMALL_SIDE_PART", 1.0)
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 0)
    bed.spark.conf.set("skipstone.joinRows", "100000")
    try:
        joined = skipstone.sql(bed.spark, query)
        check(number, joined, skipstone.explain(joined), expected)
    finally:
        bed.spark.conf.unset("skipstone.joinRows")
