"""Whole merge runs, one after the other on random tables, against a merge of dictionaries.

Each table lives through a chain of merges, so later ones find files, deletes and columns that earlier ones left.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import DuplicatesPolicy, JobRequest, MergeTask, RunKind, SourceFormat, SourceSpec
from skipstone_core.errors import BadData
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.examples import turn
from tests.spark.lake import read_all
from tests.spark.merge_bed import ALL_IN_SPARK
from tests.unit.merge_feeds import POOL, Feed, random_feed, random_merge, random_table
from tests.unit.merge_reference import Refused, Row
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import counted

#: Tasks that look for keys take more time than they find: few chains have them, the first of them among these.
REWRITTEN_IN_SPARK = replace(ALL_IN_SPARK, searched_rows=USUAL_SHARE.searched_rows)
#: Tables by where they are merged: of those in Spark one has its turn; `make soak-merge` runs the rest of SOAK_TABLES.
SPARK_TABLES, DRIVER_TABLES, SOAK_TABLES = 2, 6, 40
MERGES_PER_TABLE = 9
MODES = ("copy-on-write", MergeMode.MERGE_ON_READ)
#: Spark reads fixed[n] as binary, which feeds no fixed[n] column.
KINDS = {name: kind for name, kind in POOL.items() if name != "fixed"}


def seeds(first: int, taken: range) -> list[Any]:
    """SOAK_TABLES tables; those at the places in ``taken`` are no soak."""
    places = range(SOAK_TABLES)
    return [pytest.param(first + at, marks=[] if at in taken else [pytest.mark.soak]) for at in places]


def its_turn() -> range:
    """The place of the table in Spark that has its turn."""
    at = turn(SPARK_TABLES)
    return range(at, at + 1)


@pytest.mark.parametrize("seed", seeds(1002, its_turn()))
def test_a_chain_of_merges_equals_the_reference(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    merge_a_chain(tmp_path, seed, ALL_IN_SPARK if seed % 6 == 0 else REWRITTEN_IN_SPARK)


@pytest.mark.parametrize("seed", seeds(3000, range(DRIVER_TABLES)))
def test_a_chain_of_merges_in_the_driver_equals_the_reference(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    merge_a_chain(tmp_path, seed, USUAL_SHARE)


def merge_a_chain(tmp_path: Path, seed: int, limits: DriverShare) -> None:
    """MERGES_PER_TABLE merges into a random table, each compared; every other table is merged on read."""
    lake, random = random_table(tmp_path, seed, KINDS), Random(seed)
    with lake.table.transaction() as change:
        change.set_properties({MERGE_MODE: MODES[seed % 2]})
    committed = 0
    for number in range(MERGES_PER_TABLE):
        feed = random_feed(lake, random)
        task, meaning = random_merge(lake, feed, random)
        request = request_of(lake, written(tmp_path, feed, number), task, number)
        said = f"seed {seed}, {lake.log}, merge {number}\n{task}\n{feed.rows}"
        try:
            expected = meaning.apply(lake.rows().to_pylist(), feed.rows)
        except Refused:
            with pytest.raises(BadData):
                run_merge(request, Reporter(request), share=limits)
            expected = lake.rows().to_pylist()
        else:
            assert run_merge(request, Reporter(request), share=limits).outcome is RunOutcome.COMMITTED, said
            committed += 1
        assert counted(rows_of(lake), lake) == counted(expected, lake), said
        lake.hold(expected)
    assert committed
    lake.lake.catalog.close()


def written(root: Path, feed: Feed, number: int) -> str:
    """The feed as a Parquet file; its path relative to the root."""
    path = root / "feeds" / f"{number}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(feed.rows, schema=feed.schema), path)
    return f"feeds/{number}.parquet"


def request_of(lake: RandomLake, path: str, task: MergeTask, number: int) -> JobRequest:
    """A job of its own for each merge."""
    source = SourceSpec(format=SourceFormat.PARQUET, paths=(path,), duplicates=DuplicatesPolicy.ALLOW)
    uid = f"{number:08d}-0000-0000-0000-000000000000"
    return JobRequest(
        kind=RunKind.MERGE,
        run_id=f"{number:08d}-00000000-1",
        attempt=1,
        warehouse=lake.lake.warehouse,
        owner_kind="MergeJob",
        owner_name="m",
        owner_uid=uid,
        txn=uid,
        table=lake.lake.ref(),
        merge=MergeTask(**{**vars(task), "source": source}),
    )


def rows_of(lake: RandomLake) -> list[Row]:
    """The table as our reader gives it."""
    rows: list[Row] = read_all(lake.table).to_pylist()
    return rows
