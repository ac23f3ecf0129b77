"""Tables with data files in Avro and ORC: merges change their rows, indexes cover them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.reasons import Reason

from tests.spark.index_bed import index_on, query, rows_of
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.plans_bed import TABLE, Bed, open_bed

BY_ID = index_on("id")


@pytest.fixture
def bed(spark: SparkSession, tmp_path: Path) -> Iterator[Bed]:
    """An Avro file in partition 1, a Parquet file in partition 2."""
    made = open_bed(spark, tmp_path)
    made.spark.sql(f"create table {TABLE} (p bigint, id bigint, s string) using iceberg partitioned by (p)")
    for partition, kind in ((1, "avro"), (2, "parquet")):
        made.spark.sql(f"alter table {TABLE} set tblproperties ('write.format.default' = '{kind}')")
        made.spark.sql(f"insert into {TABLE} values ({partition}, 10, 'a'), ({partition}, 20, 'b')")
    yield made
    made.lake.catalog.close()


def rows(bed: Bed) -> list[tuple[int, int, str]]:
    """As plain Spark reads them."""
    return sorted((row.p, row.id, row.s) for row in bed.spark.sql(f"select p, id, s from {TABLE}").collect())


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_changes_rows_of_an_avro_file(bed: Bed, tmp_path: Path, mode: str) -> None:
    merges = MergeBed(tmp_path)
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.merge.mode' = '{mode}')")
    for name, partition, id_ in (("beside", 2, 10), ("within", 1, 20)):
        source = merges.source([{"p": partition, "id": id_, "s": "new"}], name)
        assert merges.merge(task_of(source, ("p", "id"))).outcome is RunOutcome.COMMITTED
    assert rows(bed) == [(1, 10, "a"), (1, 20, "new"), (2, 10, "new"), (2, 20, "b")]
    merges.catalog.close()


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_an_index_covers_files_of_every_format(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Rows with nulls, odd floats, dates, decimals and texts, deleted in part; as keys and as included columns."""
    bed = open_bed(spark, tmp_path, driver_rows=None)
    bed.spark.sql(f"""
        create table {TABLE} (k bigint, f double, d date, m decimal(9, 2), s string, moment timestamp,
          st struct<a: int>)
        using iceberg tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read',
          'write.format.default' = '{kind}', 'write.delete.format.default' = '{kind}')""")
    for first in (0, 1):
        bed.spark.sql(f"""
            insert into {TABLE} select /*+ coalesce(1) */ k, case k % 5 when 0 then double('nan') when 1 then -0.0D
              else k / 4 end, if(k % 7 = 0, null, date_add(date'1950-01-01', cast(k as int))),
              cast(k as decimal(9, 2)) / 100, if(k % 6 = 0, null, concat('text', k, 'é')),
              timestamp'1900-01-01 00:00:00.123456 UTC' + make_dt_interval(0, cast(k as int)),
              named_struct('a', cast(k as int))
            from (select id * 2 + {first} as k from range(200))""")
    bed.spark.sql(f"delete from {TABLE} where k in (100, 101, 102)")
    everything = bed.spark.table(TABLE).toArrow()
    covering = index_on("k", name="covering", include=("s", "f"))
    indexes = (
        covering,
        index_on("f", name="floats"),
        index_on("d", "s", name="pair"),
        index_on("moment", name="times"),
    )
    for index in indexes:
        report = bed.lake.reindex(index)
        assert (report.reason, report.counts["entries"]) == (Reason.COMMITTED, 400), report.message
        bed.lake.assert_every_row_once(index)
        state = bed.lake.state(index)
        assert (state.segments_missing, state.segments_failed, state.files_covered) == (0, 0, 2)
    at = "timestamp '1900-01-05 05:00:00.123456Z'"
    for condition in (
        "k in (99, 100, 7)",
        "f = 0",
        "f > 98",
        "d = date '1950-02-12'",
        "s = 'text77é'",
        f"moment = {at}",
    ):
        found = read(bed.lake.table(), None, condition)
        expected = query(f"select * from rows where {condition.replace('Z', '')}", everything)
        assert rows_of(found) == rows_of(expected), condition
    checked = bed.query(f"select k, s, d, m from {TABLE} where k in (99, 100, 7)")
    assert (len(checked.answer), checked.refusals) == (2, []), str(checked.explanation)
    assert checked.only.plan is not None and checked.only.plan.positions
    held = bed.query(f"select k, s from {TABLE} where k in (99, 100, 7)")
    assert held.only.plan is not None and held.only.plan.answer is not None, str(held.explanation)
    bed.lake.catalog.close()


def test_a_merge_finds_its_rows_in_avro_files_by_an_index(bed: Bed, tmp_path: Path) -> None:
    bed.lake.reindex(BY_ID)
    assert bed.lake.state(BY_ID).files_covered == 2
    merges = MergeBed(tmp_path)
    source = merges.source([{"p": 1, "id": 20, "s": "new"}])
    request = replace(merges.request(task_of(source, ("p", "id"))), indexes=(BY_ID,))
    assert run_merge(request, Reporter(request)).outcome is RunOutcome.COMMITTED
    assert rows(bed) == [(1, 10, "a"), (1, 20, "new"), (2, 10, "a"), (2, 20, "b")]
    merges.catalog.close()
