"""Tables with data files in Avro: each way to use them answers without an index; an index says which file it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone_core.contract.reports import RunOutcome

from tests.spark.index_bed import index_on
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


def test_an_index_covers_the_other_files_and_names_the_avro_file(bed: Bed) -> None:
    bed.lake.reindex(BY_ID)
    state = bed.lake.state(BY_ID)
    assert (state.segments_synced, state.segments_failed, state.files_covered) == (1, 1, 1)
    assert re.search(r"\.avro cannot be indexed: it is AVRO; .* by rewrite_data_files with", state.message)
    found = bed.query(f"select p, s from {TABLE} where id = 10")
    assert len(found.answer) == 2
    assert sorted(read(bed.lake.table(), ["s"], "id = 10")["s"].to_pylist()) == ["a", "a"]
