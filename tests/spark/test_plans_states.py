"""Queries through indexes stay exact whatever happened to the table, to the index, or to both since."""

from __future__ import annotations

import datetime as dt
import gc
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import skipstone
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyspark.sql import DataFrame, SparkSession
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing import staging

from tests.spark.jvmcalls import counted_calls
from tests.spark.plans_bed import BY_G, BY_K, ROWS, SEGMENTS, TABLE, Bed, bed, filled, kept, rows_of_segment, scans
from tests.spark.rawdeletes import add_equality_delete, add_position_delete

__all__ = ["bed", "filled", "kept"]

ASKED = f"select * from {TABLE} where k in (7, 14, 21) or g = 'g13'"


@pytest.mark.parametrize("version", ["2", "3"], ids=["position deletes", "deletion vectors"])
def test_rows_that_spark_deleted_stay_away(bed: Bed, version: str) -> None:
    properties = f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read'"
    bed.spark.sql(f"create table {TABLE} (k bigint, g string, n int) using iceberg tblproperties ({properties})")
    for start in (0, 100, 200):
        rows = f"select (id + {start}) * 7 % 300, concat('g', id % 50), int(id + {start}) from range(100)"
        bed.spark.sql(f"insert into {TABLE} select /*+ coalesce(1) */ * from ({rows})")
    bed.reindex(BY_K, BY_G)
    assert len(bed.query(f"select n from {TABLE} where k = 7").answer) == 1
    bed.spark.sql(f"delete from {TABLE} where k in (7, 21)")
    assert bed.query(f"select n from {TABLE} where k = 7").answer == []
    found = bed.query(f"select n from {TABLE} where k in (7, 14)")
    assert len(found.answer) == 1
    assert found.files_read
    # who names this column gets deleted rows too
    assert len(bed.query(f"select n, _deleted, _pos from {TABLE} where k in (7, 14)").answer) == 2


def test_deletes_of_other_writers_stay_applied(filled: Bed) -> None:
    target = next(iter(filled.lake.table().scan(row_filter="n = 1").plan_files())).file
    add_position_delete(filled.lake.table(), target, [1])
    assert filled.query(f"select n from {TABLE} where k = 7").answer == []
    add_equality_delete(filled.lake.table(), {"k": [14]})
    found = filled.query(f"select n from {TABLE} where k in (7, 14, 21)")
    assert found.answer == ["Row(n=3)"]
    assert found.files_read == [1]


def test_what_was_written_since_is_read_by_min_and_max(filled: Bed) -> None:
    assert filled.query(f"select n from {TABLE} where k = 7").files_read == [1]
    filled.spark.sql(f"insert into {TABLE} values (7, 'g1', 1001)")
    assert filled.query(f"select n from {TABLE} where k = 7").files_read == [2]
    filled.spark.sql(f"update {TABLE} set n = n + 1 where k = 14")
    filled.query(ASKED)
    filled.spark.sql(f"delete from {TABLE} where n < 100")
    filled.query(ASKED)
    filled.reindex(BY_K)
    filled.query(ASKED)


def test_an_older_snapshot_is_read_with_its_own_coverage(bed: Bed) -> None:
    bed.fill()
    bed.reindex(BY_K, max_segments=2)
    second = bed.lake.table().snapshots()[1]
    found = bed.query(f"select n from {TABLE} version as of {second.snapshot_id} where k = 7")
    assert found.files_read == [1]
    assert found.only.plan is not None
    assert found.only.plan.funnel.total == 2
    moment = dt.datetime.fromtimestamp(second.timestamp_ms / 1000, dt.UTC).isoformat(sep=" ", timespec="milliseconds")
    text = f"select n from {TABLE} timestamp as of '{moment.removesuffix('+00:00')}' where k = 7"
    assert bed.query(text).files_read == [1]
    bed.lake.table().manage_snapshots().create_tag(second.snapshot_id, "early").commit()
    assert bed.query(f"select n from {TABLE} version as of 'early' where k = 7").files_read == [1]


def test_an_older_snapshot_is_read_in_its_own_columns(filled: Bed) -> None:
    """Scans of tasks read by the names of the table's schema: of a column that was replaced they read nothing."""
    old = filled.lake.table().current_snapshot().snapshot_id  # type: ignore[union-attr]
    for change in ("rename column g to was_g", "add column g string", "alter column n type bigint"):
        filled.spark.sql(f"alter table {TABLE} {change}")
    filled.spark.sql(f"insert into {TABLE} (k, g, n) values (7, 'new', 1000)")
    found = filled.query(f"select * from {TABLE} version as of {old} where k = 7")
    assert found.answer == ["Row(k=7, g='g13', n=1)"]
    assert found.files_read == [1]
    assert any("g='new'" in row for row in filled.query(f"select * from {TABLE} where k = 7").answer)


def test_a_rewritten_query_keeps_its_snapshot_and_its_columns(filled: Bed) -> None:
    df = skipstone.sql(filled.spark, f"select * from {TABLE} where k = 7")
    for change in ("rename column g to was_g", "add column g string"):
        filled.spark.sql(f"alter table {TABLE} {change}")
    filled.spark.sql(f"insert into {TABLE} (k, g, n) values (7, 'new', 1000)")
    assert [tuple(row) for row in df.collect()] == [(7, "g13", 1)]
    assert [tuple(row) for row in df.where("n > 0").collect()] == [(7, "g13", 1)]


def test_a_query_that_is_rewritten_again_sees_later_commits(filled: Bed) -> None:
    df = filled.spark.table(TABLE).where("k = 7")
    before = skipstone.rewrite(df)
    filled.lake.table().append(rows_of_segment(0))
    assert [before.count(), skipstone.rewrite(df).count(), df.count()] == [1, 2, 2]


def test_relations_that_are_not_rewritten_are_pinned_too(filled: Bed) -> None:
    table = filled.spark.table(TABLE)
    df = table.where("k = 7").select("n").union(table.select("n"))
    rewritten = skipstone.rewrite(df)
    filled.lake.table().append(rows_of_segment(0))
    rows = SEGMENTS * ROWS
    assert [rewritten.count(), rewritten.where("n >= 0").count(), df.count()] == [rows + 1, rows + 1, rows + ROWS + 2]


def test_explaining_pins_nothing(filled: Bed) -> None:
    df = filled.spark.table(TABLE).where("k = 7")
    skipstone.explain(df)
    filled.lake.table().append(rows_of_segment(0))
    assert len(df.collect()) == 2


def test_columns_change_and_the_index_follows(filled: Bed) -> None:
    filled.spark.sql(f"alter table {TABLE} rename column k to key")
    filled.spark.sql(f"alter table {TABLE} alter column n type bigint")
    assert filled.query(f"select * from {TABLE} where key = 7").files_read == [1]
    filled.spark.sql(f"alter table {TABLE} drop column g")
    filled.spark.sql(f"alter table {TABLE} add column g string")
    assert filled.query(f"select * from {TABLE} where g = 'g13'").refusals == [Refusal.INDEX_NOT_USED]
    filled.spark.sql(f"insert into {TABLE} (key, g, n) values (7, 'g13', 5000)")
    assert filled.query(f"select * from {TABLE} where key = 7 and g = 'g13'").files_read == [2]


PARTITIONS: dict[str, tuple[Transform, ...]] = {
    "at": (DayTransform(), IdentityTransform()),
    "g": (BucketTransform(4), TruncateTransform(2), IdentityTransform()),
    "d": (YearTransform(), IdentityTransform()),
    "u": (IdentityTransform(),),
    "x": (IdentityTransform(),),
    "b": (IdentityTransform(),),
    "z": (HourTransform(), IdentityTransform()),
}


def test_partitions_of_every_kind_reach_the_reader(bed: Bed) -> None:
    columns = "k bigint, g string, n int, at timestamp_ntz, z timestamp, d date, u decimal(10, 2), x double, b boolean"
    bed.spark.sql(f"create table {TABLE} ({columns}) using iceberg")
    rows = """select id * 7 % 40 as k, if(id = 3, null, concat('gé', id % 3)), int(id),
              timestamp_ntz '2024-02-29 12:34:56.789012' + make_interval(0, 0, 0, id % 2),
              timestamp '1899-12-31 23:59:59.999999', date '1969-12-31', cast(id / 7 as decimal(10, 2)), id / 8, id < 5
              from range(10)"""
    bed.spark.sql(f"insert into {TABLE} {rows}")
    for column, transforms in PARTITIONS.items():
        with bed.lake.table().update_spec() as update:
            for transform in transforms:
                update.add_field(column, transform, f"{column}_{type(transform).__name__}")
        bed.spark.sql(f"insert into {TABLE} {rows}")
    bed.reindex(BY_K)
    found = bed.query(f"select * from {TABLE} where k = 7")
    assert found.files_read
    assert bed.query(f"select _partition, _spec_id, * from {TABLE} where k in (7, 21)").files_read


def test_a_file_that_cannot_be_handed_over_leaves_its_relation_to_spark(bed: Bed) -> None:
    """JSON has no NaN, and Iceberg takes tasks as JSON."""
    bed.spark.sql(f"create table {TABLE} (k bigint, x double) using iceberg partitioned by (x)")
    rows = "(7, double('NaN')), (9, double('NaN')), (6, 1.0), (8, 1.0)"
    bed.spark.sql(f"insert into {TABLE} values {rows}")
    bed.reindex(BY_K)
    assert bed.query(f"select * from {TABLE} where k = 7").refusals == [Refusal.FAILED]
    found = bed.query(f"select * from {TABLE} a join (select * from {TABLE} where k = 8) b on a.k < b.k where a.k = 7")
    assert found.refusals == [Refusal.FAILED]
    assert found.files_read == [1]


def test_an_index_that_is_gone_or_broken_costs_time_only(filled: Bed, caplog: pytest.LogCaptureFixture) -> None:
    root = Path(filled.lake.index_table(BY_G).table.location().removeprefix("file://"))
    for file in (root / "data").rglob("*.parquet"):
        file.write_bytes(b"PAR1 nothing PAR1")
    found = filled.query(f"select n from {TABLE} where k = 7 or g = 'g13'")
    assert found.refusals
    assert "cannot be read" in caplog.text
    assert filled.query(f"select n from {TABLE} where k = 7 and g = 'g13'").files_read == [1]
    filled.lake.catalog.drop_table(filled.lake.index_table(BY_K).identifier)
    assert filled.query(f"select n from {TABLE} where k = 7").refusals
    shutil.rmtree(root)
    assert filled.query(f"select n from {TABLE} where g = 'g13'").refusals


def test_readers_skip_row_groups_of_files_that_are_read(bed: Bed) -> None:
    options = "'write.parquet.row-group-size-bytes' = '1', 'write.parquet.row-group-check-min-record-count' = '100'"
    check = "'write.parquet.row-group-check-max-record-count' = '100'"
    bed.spark.sql(f"create table {TABLE} (k bigint, g string, n int) using iceberg tblproperties ({options}, {check})")
    for start in (0, 1000):
        rows = f"select /*+ coalesce(1) */ (id + {start}) * 7 % 2000, 'g', int(id + {start}) from range(1000)"
        bed.spark.sql(f"insert into {TABLE} {rows}")
    bed.reindex(BY_K)
    found = bed.query(f"select n, _pos from {TABLE} where k in (7, 14) and n >= 0 and n <= 2000")
    assert found.files_read == [1]
    read = found.df._jdf.queryExecution().executedPlan().collectLeaves().apply(0).metrics()
    assert int(read.apply("numOutputRows").value()) < 1000
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    bed.spark.sql(f"delete from {TABLE} where k = 14")
    assert len(bed.query(f"select n, _pos from {TABLE} where k in (7, 14)").answer) == 1


def test_task_sets_live_as_long_as_a_plan_that_reads_them(filled: Bed) -> None:
    derived = skipstone.sql(filled.spark, f"select n, k from {TABLE} where k = 7").where("n >= 0")
    gc.collect()
    filled.spark._jvm.System.gc()  # type: ignore[union-attr]
    assert [row.n for row in derived.collect()] == [1]
    sets = staging.staged_sets(filled.spark._jvm)
    sets.free()
    before = len(sets)
    del derived
    assert _left(filled.spark, sets, before) < before


def _left(spark: SparkSession, sets: staging.StagedSets, before: int) -> int:
    """Task sets left after both collectors have run; the JVM tells of what it collected a little later."""
    for _ in range(1000):
        gc.collect()
        spark._jvm.System.gc()  # type: ignore[union-attr]
        sets.free()
        if len(sets) < before:
            break
    return len(sets)


def test_each_use_of_a_dataframe_is_read_by_its_own_condition(filled: Bed) -> None:
    table = filled.spark.table(TABLE)
    found = filled.check(table.where("k = 7").select("n").union(table.where("g = 'g26'").select("n")))
    assert scans(found.plan) == 2
    half = filled.check(table.where("k = 7").select("n").union(table.select("n")))
    assert half.refusals == [Refusal.NO_CONDITION]
    assert half.files_read == [1]


def test_what_planning_asks_of_the_jvm_does_not_grow_with_the_files(bed: Bed) -> None:
    for name in ("few", "many"):
        bed.fill(name)
    more = bed.lake.table("many").scan().to_arrow()
    for start in range(0, more.num_rows, 50):
        bed.lake.table("many").append(more.slice(start, 50))
    for name in ("few", "many"):
        bed.reindex(BY_K, name=name, max_segments=3)
    # What the JVM keeps between rewritings it may drop when memory is short, and then makes again: the least counts.
    few, many = (min(_planned(bed, name) for _ in range(3)) for name in ("few", "many"))
    assert few[0] < many[0]
    assert few[1] == many[1]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("select n from skipstone.ns.plain where k = 7", 51),
        ("select n from skipstone.ns.t where g = 'g1'", 57),
        ("select k, n from skipstone.ns.t where g in ('g1', 'g2') order by n limit 3", 57),
        ("select t.n from skipstone.ns.t t join skipstone.ns.plain p on t.n = p.n where p.g = 'g1'", 68),
    ],
)
def test_a_query_that_no_index_serves_is_left_after_few_calls(bed: Bed, text: str, most: int) -> None:
    bed.fill("t")
    bed.fill("plain")
    bed.reindex(BY_K)
    skipstone.rewrite(bed.spark.sql(text))
    found = []
    for _ in range(3):
        df = bed.spark.sql(text)
        found.append(_calls(partial(_is_left, df)))
    assert all(is_left for is_left, _ in found)
    assert min(calls for _, calls in found) <= most


def _is_left(df: DataFrame) -> bool:
    return skipstone.rewrite(df) is df


def _planned(bed: Bed, name: str) -> tuple[int, int]:
    """Files read and calls made by a rewriting after the first."""
    text = f"select n from skipstone.ns.{name} where k = 7"
    skipstone.rewrite(bed.spark.sql(text))
    df = bed.spark.sql(text)
    rewritten, calls = _calls(lambda: skipstone.rewrite(df))
    (plan,) = (one.plan for one in skipstone.explain(rewritten).relations)
    assert plan is not None
    return plan.funnel.read, calls


def _calls(run: Callable[[], Any]) -> tuple[Any, int]:
    """What ``run`` gives, and how many calls it makes to the JVM."""
    with counted_calls() as sent:
        found = run()
    return found, len(sent)
