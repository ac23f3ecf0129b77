"""Tables with covering indexes are joined bucket by bucket: what an index holds is not shuffled, and no row is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession
from skipstone.compat.pyspark import java_frame, running_frame
from skipstone.indexes import buckets as hashes
from skipstone.query.plans.covering import partitions
from skipstone_core.indexing import indexes as index_rules

from tests.examples import turn
from tests.spark.index_bed import index_on, local
from tests.spark.plans_bed import Bed, answer, bed, open_bed
from tests.spark.rawdeletes import add_equality_delete

__all__ = ["bed"]

BUCKETS = 4
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("c", pa.decimal128(9, 2)),
        ("x", pa.float64()),
        ("n", pa.int32()),
        ("far", pa.string()),
    ]
)
HELD = ("n", "x")
BY_K = index_on("k", name="by_k", include=[*HELD, "s", "i"], buckets=BUCKETS)
BY_I = index_on("i", name="by_i", include=HELD, buckets=BUCKETS)
BY_S = index_on("s", name="by_s", include=HELD, buckets=BUCKETS)
BY_C = index_on("c", name="by_c", include=HELD, buckets=BUCKETS)
BY_K_S = index_on("k", "s", name="by_k_s", include=HELD, buckets=BUCKETS)
T, U = "skipstone.ns.t", "skipstone.ns.u"


def rows(seed: int, count: int = 60) -> pa.Table:
    random = Random(seed)
    columns = {
        "k": [None if random.random() < 0.1 else random.randrange(30) for _ in range(count)],
        "i": [random.randrange(-15, 15) for _ in range(count)],
        "s": [random.choice(["", "a", "\u20ac" * 5, "abc", None]) for _ in range(count)],
        "c": [Decimal(random.randrange(-9, 9)) / 4 for _ in range(count)],
        "x": [random.choice([0.0, -0.0, float("nan"), 1.5, None]) for _ in range(count)],
        "n": [seed * 1000 + number for number in range(count)],
        "far": ["far" for _ in range(count)],
    }
    return pa.table(columns, schema=SCHEMA)


def fill(bed: Bed) -> None:
    """Two tables of three segments, and all indexes on both."""
    bed.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    for number, name in enumerate("tu"):
        table = bed.lake.create(SCHEMA, name)
        for seed in range(3):
            table.append(rows(10 * number + seed))
        bed.reindex(BY_K, BY_I, BY_S, BY_C, BY_K_S, name=name)


@pytest.fixture(scope="module")
def synced(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Both tables, which no test changes."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    fill(made)
    yield made
    made.lake.catalog.close()


@pytest.fixture
def changing(bed: Bed) -> Bed:
    """Both tables, to be changed."""
    fill(bed)
    return bed


class Found:
    """A query joined through covering indexes: its plan, and what is said of it. Its answer is that of plain Spark."""

    def __init__(self, bed: Bed, text: str) -> None:
        rewritten = skipstone.sql(bed.spark, text)
        self.plan = plan_of(rewritten)
        self.said = str(skipstone.explain(rewritten))
        assert answer(rewritten) == answer(bed.spark.sql(text)), self.said

    @property
    def shuffles(self) -> list[str]:
        """What is below each shuffle, line by line."""
        lines = self.plan.splitlines()
        depths = [len(line) - len(line.lstrip(" :+-*(0123456789)")) for line in lines]
        found = []
        for at, line in enumerate(lines):
            if "Exchange hashpartitioning" in line:
                end = next((n for n in range(at + 1, len(lines)) if depths[n] <= depths[at]), len(lines))
                found.append("\n".join(lines[at + 1 : end]))
        return found

    @property
    def used(self) -> int:
        """How many relations are read from covering indexes."""
        return len(re.findall(r"covering index \S+: used", self.said))


def plan_of(df: DataFrame) -> str:
    return str(java_frame(running_frame(df)).queryExecution().executedPlan().toString())


def refusals(bed: Bed, text: str) -> list[str]:
    """Codes of covering indexes that are not used for a query, of which none is."""
    found = Found(bed, text)
    assert found.used == 0
    return sorted(set(re.findall(r"covering index \S+: not used: (\w+)", found.said)))


JOINS = (
    "select t.n, u.n, t.x from {t} t join {u} u on t.k = u.k",
    "select t.n, u.n from {t} t left join {u} u on t.k = u.k and u.n % 2 = 0",
    "select t.n, u.n from {t} t right join {u} u on t.k = u.k",
    "select t.n, u.n from {t} t full join {u} u on t.k = u.k",
    "select t.n from {t} t left semi join {u} u on t.k = u.k",
    "select t.n from {t} t left anti join {u} u on t.k = u.k",
    "select n from {t} t where k in (select k from {u} u where n % 3 = 0)",
    "select n from {t} t where not exists (select 1 from {u} u where t.k = u.k and u.n > t.n)",
    "select n from {t} t where n % 7 = 0 or exists (select 1 from {u} u where t.k = u.k)",
    "select t.n, u.n from {t} t, {u} u where t.k = u.k and t.n < u.n",
    "select k, count(*) from {t} t join {u} u using (k) group by k",
    "select t.n, m from {t} t join (select k, max(n) m from {u} group by k) u on t.k = u.k",
    "select t.n, (select max(n) from {u} u where t.k = u.k) from {t} t",
    "select t.n, u.n from {t} t join {u} u on t.i = u.i",
    "select t.n, u.n from {t} t join {u} u on t.i = u.k",
    "select t.n, u.n from {t} t left join {u} u on t.s = u.s where u.x is null or u.x > 1",
    "select t.n, u.n from {t} t join {u} u on t.c = u.c where t.x > 0 and u.n % 2 = 0",
    "select t.n, u.n from {t} t full join {u} u on u.s = t.s and t.k = u.k",
    "select a.n, b.n from {t} a join {t} b on a.k = b.k and a.n < b.n",
    "with v as (select k as key, n from {t} where x is not null) select v.n, u.n from v join {u} u on key = u.k",
)


#: A third of the joins has its turn in ``make test``, and another third beside missing segments.
_TURN = turn(3)


def joins_of(part: int) -> list[Any]:
    """The joins, of which only a soak takes those of the other parts."""
    return [pytest.param(text, marks=[] if at % 3 == part % 3 else [pytest.mark.soak]) for at, text in enumerate(JOINS)]


@pytest.mark.parametrize("text", joins_of(_TURN))
def test_nothing_of_synced_tables_is_shuffled(synced: Bed, text: str) -> None:
    found = Found(synced, text.format(t=T, u=U))
    assert found.used == 2, found.said
    assert found.shuffles == []


@pytest.mark.parametrize("text", joins_of(_TURN + 1))
def test_only_rows_of_missing_segments_are_shuffled(missing: Bed, text: str) -> None:
    found = Found(missing, text.format(t=T, u=U))
    assert found.used == 2, found.said
    assert found.shuffles
    assert all("IcebergStagedScan" in one and "ExistingRDD" not in one for one in found.shuffles), found.plan


@pytest.fixture(scope="module")
def missing(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Both tables with a segment that the indexes miss and rows deleted in several ways."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    fill(made)
    for name in "tu":
        made.spark.sql(f"alter table skipstone.ns.{name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
        made.spark.sql(f"delete from skipstone.ns.{name} where n % 11 = 0")
        made.lake.table(name).append(rows(7 if name == "t" else 17, 20))
    yield made
    made.lake.catalog.close()


def test_three_tables_are_joined_by_one_key(synced: Bed) -> None:
    found = Found(synced, f"select t.n, u.n, v.n from {T} t join {U} u on t.k = u.k join {T} v on u.k = v.k")
    assert found.used == 3
    assert found.shuffles == []


def test_a_table_without_such_an_index_is_shuffled_to_the_buckets_of_the_other_one(synced: Bed) -> None:
    found = Found(synced, f"select t.n, u.far from {T} t join {U} u on t.k = u.k")
    assert found.used == 1
    assert len(found.shuffles) == 1
    assert "Exchange hashpartitioning(k" in found.plan
    assert f", {BUCKETS})" in found.plan


def test_rows_of_replaced_and_removed_files_are_left_out(changing: Bed) -> None:
    changing.lake.table("t").overwrite(rows(5), overwrite_filter="n >= 1000 and n < 2000")
    changing.lake.table("u").delete("n >= 11000 and n < 12000")
    found = Found(changing, f"select t.n, u.n from {T} t full join {U} u on t.k = u.k")
    assert found.used == 2
    assert len(found.shuffles) == 1


def test_files_with_equality_deletes_are_read_themselves(changing: Bed) -> None:
    add_equality_delete(changing.lake.table("t"), {"k": [5, 6]})
    changing.lake.table("t").append(rows(6))
    changing.lake.table("t").append(rows(8))
    changing.lake.table("t").append(rows(9))
    changing.lake.table("t").append(rows(4))
    changing.reindex(BY_K)
    found = Found(changing, f"select t.n, u.n from {T} t full join {U} u on t.k = u.k")
    assert found.used == 2
    assert len(found.shuffles) == 1


@pytest.mark.parametrize("side", ["t", "u"])
def test_a_condition_that_fails_on_deleted_rows_does_not_fail(changing: Bed, side: str) -> None:
    changing.spark.sql(f"alter table {T} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    changing.spark.sql(f"delete from {T} where n = 1000")
    join = f"select t.n, u.n from {T} t join {U} u on t.k = u.k"
    found = Found(changing, f"{join} where 100 / ({side}.n - {'1000' if side == 't' else '1'}) <> 5")
    assert found.used == 2, found.said
    assert len(found.shuffles) == 1
    assert len(Found(changing, join).shuffles) == 0


def test_entries_of_small_segments_are_shuffled_until_they_are_merged(changing: Bed) -> None:
    changing.lake.table("t").append(rows(5, 10))
    changing.reindex(BY_K)
    assert any(file.bucket is None for file in changing.lake.index_table(BY_K).entries)
    found = Found(changing, f"select t.n, u.n from {T} t left join {U} u on t.k = u.k")
    assert "shuffled: 10 entries of small segments" in found.said
    assert len(found.shuffles) == 1
    for seed in range(6, 6 + index_rules.MERGE_FAN_IN - 1):
        changing.lake.table("t").append(rows(seed, 10))
        changing.reindex(BY_K)
    assert Found(changing, f"select t.n, u.n from {T} t left join {U} u on t.k = u.k").shuffles == []


def test_an_older_snapshot_is_joined_as_it_was(changing: Bed) -> None:
    snapshot = changing.lake.table("t").metadata.current_snapshot_id
    changing.lake.table("t").delete("n < 1000")
    text = f"select t.n, u.n from {T} version as of {snapshot} t join {U} u on t.k = u.k"
    found = Found(changing, text)
    assert found.used == 2
    assert found.shuffles == []


def test_renamed_and_widened_columns_are_joined_through_their_indexes(changing: Bed) -> None:
    changing.spark.sql(f"alter table {T} rename column i to j")
    changing.spark.sql(f"alter table {T} alter column j type bigint")
    changing.spark.sql(f"alter table {T} rename column n to number")
    found = Found(changing, f"select t.number, u.n from {T} t join {U} u on t.j = u.i")
    assert found.used == 2
    assert found.shuffles == []


def test_a_session_that_is_enabled_joins_by_buckets(synced: Bed) -> None:
    df = synced.spark.sql(f"select t.n, u.n from {T} t join {U} u on t.k = u.k")
    expected = answer(df)
    skipstone.enable(synced.spark)
    try:
        assert answer(synced.spark.sql(f"select t.n, u.n from {T} t join {U} u on t.k = u.k")) == expected
        assert df.count() == len(expected)
    finally:
        skipstone.disable(synced.spark)


def test_a_rewritten_dataframe_runs_again_and_is_joined_further(synced: Bed) -> None:
    text = f"select t.k, t.n, u.n as m from {T} t join {U} u on t.k = u.k"
    df, plain = skipstone.sql(synced.spark, text), synced.spark.sql(text)
    assert answer(df) == answer(df) == answer(plain)
    for own, expected in ((df, plain),):
        further = own.join(own.select("k").distinct(), "k").where("n % 2 = 0").groupBy("k").count()
        assert answer(further) == answer(
            expected.join(expected.select("k").distinct(), "k").where("n % 2 = 0").groupBy("k").count()
        )


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (f"select t.n, u.far from {T} t join {U} u on t.x = u.x", ["NotOffered"]),
        (f"select t.far, u.far from {T} t join {U} u on t.k = u.k", ["NotOffered"]),
        (
            f"select t.n, u.n from {T} t join {U} u on t.k = u.k and t.s = u.s and t.i = u.i",
            ["NotOffered", "StillShuffled"],
        ),
        (f"select t.n, u.n from {T} t join {U} u on t.k <=> u.k", []),
        (f"select /*+ broadcast(u) */ t.n, u.n from {T} t join {U} u on t.k = u.k", ["NotOffered", "NotShuffled"]),
    ],
)
def test_a_join_that_gains_nothing_runs_as_spark_runs_it(synced: Bed, text: str, reasons: list[str]) -> None:
    assert refusals(synced, text) == reasons


def test_a_table_that_is_hardly_covered_is_joined_as_spark_joins_it(changing: Bed) -> None:
    for seed in range(20, 24):
        changing.lake.table("t").append(rows(seed, 500))
        changing.lake.table("u").append(rows(seed + 10, 500))
    assert "NoGain" in refusals(changing, f"select t.n, u.n from {T} t left join {U} u on t.k = u.k and t.n = u.n")


def test_a_damaged_file_costs_time_only(changing: Bed) -> None:
    file = local(changing.lake.index_table(BY_K).entries[0].path)
    file.write_bytes(file.read_bytes()[:-20])
    text = f"select t.n, u.far from {T} t join {U} u on t.k = u.k"
    assert "Unreadable" in refusals(changing, text)
    changing.reindex(BY_K)
    assert Found(changing, text).used == 1


def test_another_hash_than_that_of_spark_is_found_out(synced: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.require_spark_hash.cache_clear()
    monkeypatch.setattr(hashes, "_SEED", 43)
    try:
        assert "NotBucketed" in refusals(synced, f"select t.n, u.n from {T} t join {U} u on t.k = u.k")
    finally:
        partitions.require_spark_hash.cache_clear()


def test_buckets_without_entries_are_empty(bed: Bed) -> None:
    bed.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    index = index_on("k", name="wide", include=["n"], buckets=32)
    for name, keys in (("t", [1, 2, 3, 90]), ("u", [3, 4, 90, 91])):
        schema = pa.schema([("k", pa.int64()), ("n", pa.int32())])
        bed.lake.create(schema, name).append(pa.table({"k": keys, "n": keys}, schema=schema))
        bed.reindex(index, name=name)
    for condition in ("true", "t.k > 50"):
        found = Found(bed, f"select t.n, u.n from {T} t full join {U} u on t.k = u.k where {condition}")
        assert found.used == 2
        assert found.shuffles == []


def test_conditions_apply_to_entries(synced: Bed) -> None:
    where = "t.k > 5 and t.s in ('a', 'abc') and t.x > 0 and u.k % 2 = 0 and coalesce(u.s, 'a') = 'a'"
    found = Found(synced, f"select t.n, u.n from {T} t join {U} u on t.k = u.k where {where}")
    assert found.used == 2
    assert found.shuffles == []


def test_what_is_done_is_explained(missing: Bed) -> None:
    said = Found(missing, f"select t.n, u.n from {T} t join {U} u on t.k = u.k").said
    assert "joined by k in 4 buckets" in said
    assert re.search(r"covering index t__si_by_k_\w+: used, 180 entries without a shuffle; 3/4 segments, missing", said)
    assert "shuffled: 20 rows of 1 files" in said
    assert "without 18 rows deleted by position" in said


def test_settings_of_the_session_stay_as_they_are(synced: Bed) -> None:
    names = ("spark.sql.adaptive.enabled", "spark.sql.iceberg.planning.preserve-data-grouping")
    before = [synced.spark.conf.get(name, None) for name in names]
    Found(synced, f"select t.n, u.n from {T} t join {U} u on t.k = u.k")
    assert [synced.spark.conf.get(name, None) for name in names] == before


def test_tables_of_other_numbers_of_buckets_are_joined_by_those_of_one(bed: Bed, tmp_path: Path) -> None:
    bed.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    for number, name in enumerate("tu"):
        bed.lake.create(SCHEMA, name).append(rows(number))
        bed.reindex(index_on("k", name="by_k", include=["n"], buckets=4 * (number + 1)), name=name)
    found = Found(bed, f"select t.n, u.n from {T} t join {U} u on t.k = u.k")
    assert found.used == 1
    assert len(found.shuffles) == 1
