"""Rows of other engines in years that Python's dates do not have: their files are merged and indexed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import MergeAction, MergeClause

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.secondengine import second_spark

T = "skipstone.ns.t"
NEW_V = MergeClause(action=MergeAction.UPDATE, values={"v": "source.v"})
FAR = ("-0044-03-15", "2013-01-01", "+12000-01-01")
#: Each a partition of its own, or all in one file.
LAYOUTS = {
    "one file": "",
    "days": "partitioned by (days(t))",
    "hours": "partitioned by (hours(z))",
    "dates": "partitioned by (d)",
}


@pytest.mark.parametrize(
    ("layout", "mode"), [*((layout, "copy-on-write") for layout in LAYOUTS), ("days", "merge-on-read")]
)
def test_files_with_far_years_are_merged_and_indexed(
    tmp_path: Path, spark: SparkSession, layout: str, mode: str
) -> None:
    bed, session = MergeBed(tmp_path), second_spark(spark, MergeBed(tmp_path).warehouse)
    session.sql(
        f"create table {T} (id bigint, d date, t timestamp_ntz, z timestamp, v string) using iceberg "
        f"{LAYOUTS[layout]} tblproperties ('format-version' = '2', 'write.merge.mode' = '{mode}')"
    )
    rows = [
        f"({id_}, date'{day}', timestamp_ntz'{day} 10:00:00', timestamp'{day} 10:00:00Z', 'old')"
        for id_, day in enumerate(FAR * 2)
    ]
    session.sql(f"insert into {T} select /*+ coalesce(1) */ * from (values {', '.join(rows)})")
    before = session.sql(f"select id, string(d), string(t), string(z) from {T} order by id").collect()
    path = bed.source(pa.table({"id": [0, 1, 2], "v": ["new"] * 3}))
    assert bed.merge(task_of(path, when_matched=(NEW_V,), when_not_matched=())).outcome is RunOutcome.COMMITTED
    after = session.sql(f"select id, string(d), string(t), string(z), v from {T} order by id").collect()
    assert [tuple(row) for row in after] == [(*row, "new" if row[0] < 3 else "old") for row in before]
    for column in ("d", "t", "z"):
        report = Lake(tmp_path).reindex(index_on(column, name=column))
        assert report.counts["entries"] == len(before)
