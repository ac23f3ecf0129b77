"""A lake that a Spark session with an Iceberg catalog reads, with and without indexes.

Used by the tests of the plan rewrite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession
from skipstone.compat.pyspark import java_frame, running_frame
from skipstone.query.plans.explanation import Explanation, RelationExplanation
from skipstone.query.plans.refusals import Refusal
from skipstone_core.contract.requests import IndexRef

from tests.spark.index_bed import Lake, index_on
from tests.spark.kept import Kept
from tests.spark.secondengine import second_spark

TABLE = "skipstone.ns.t"
BY_K, BY_G = index_on("k"), index_on("g", name="by_g")
SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("n", pa.int32())])
#: Segments, each of one file, and rows in each. Key k of row n is n * 7 % 400: spread over all files.
SEGMENTS, ROWS = 4, 100


@dataclass
class Bed:
    """A lake and a session on it."""

    lake: Lake
    spark: SparkSession

    def fill(self, name: str = "t", **options: object) -> None:
        """The table of SEGMENTS files."""
        fill(self.lake, name, **options)

    def reindex(self, *indexes: IndexRef, max_segments: int | None = None, name: str = "t") -> None:
        """Run reindex."""
        for index in indexes:
            self.lake.reindex(index, max_segments=max_segments, name=name)

    def query(self, text: str) -> Checked:
        """Run SQL with and without indexes; the answers must be the same."""
        return self.check(self.spark.sql(text))

    def check(self, df: DataFrame) -> Checked:
        """Run a DataFrame with and without indexes; the answers must be the same."""
        rewritten = skipstone.rewrite(df)
        found = Checked(rewritten, skipstone.explain(rewritten))
        expected = answer(skipstone.no_index(rewritten))
        assert found.answer == expected, str(found.explanation)
        relations = found.explanation.relations
        is_scanned = any(one.guard or (one.is_rewritten and one.scan) for one in relations)
        assert ("IcebergStagedScan" in found.plan) == (is_scanned or any(found.files_staged)), found.plan
        return found


@dataclass
class Checked:
    """A DataFrame after rewriting, with its explanation."""

    df: DataFrame
    explanation: Explanation

    def __post_init__(self) -> None:
        """Plan it, which the run may change, and run it."""
        self.plan = str(java_frame(running_frame(self.df)).queryExecution().executedPlan().toString())
        self.answer = answer(self.df)

    @property
    def files_read(self) -> list[int]:
        """Files read, of each relation that was rewritten."""
        return [one.plan.funnel.read for one in self.explanation.relations if one.is_rewritten and one.plan]

    @property
    def files_staged(self) -> list[int]:
        """Files read by tasks, of each relation that was rewritten: all but those that the driver reads."""
        return [staged(one) for one in self.explanation.relations if one.is_rewritten]

    @property
    def refusals(self) -> list[Refusal]:
        """Codes of the relations that were not."""
        return [one.refusal for one in self.explanation.relations if one.refusal]

    @property
    def only(self) -> RelationExplanation:
        """The one relation."""
        (found,) = self.explanation.relations
        return found


def staged(relation: RelationExplanation) -> int:
    """How many files of a relation tasks read."""
    assert relation.plan is not None
    here = {*relation.driver.ordinals, *relation.driver.scanned} if relation.driver else set()
    if relation.driver and relation.driver.takes_answer and relation.plan.answer:
        here |= set(relation.plan.answer.ordinals.tolist())
    scanned = set(relation.scan.ordinals) if relation.scan else set()
    return len(set(relation.plan.ordinals) - here - scanned)


def fill(lake: Lake, name: str = "t", **options: object) -> None:
    """The table of SEGMENTS files."""
    table = lake.create(SCHEMA, name, **options)
    for segment in range(SEGMENTS):
        table.append(rows_of_segment(segment))


def rows_of_segment(segment: int) -> pa.Table:
    """The rows of one file."""
    numbers = range(segment * ROWS, segment * ROWS + ROWS)
    keys = [None if n % 50 == 49 else n * 7 % (SEGMENTS * ROWS) for n in numbers]
    return pa.table({"k": keys, "g": [f"g{n * 13 % 200}" for n in numbers], "n": list(numbers)}, schema=SCHEMA)


def answer(df: DataFrame) -> list[str]:
    """Rows in no order."""
    return sorted(repr(row) for row in df.collect())


def open_bed(spark: SparkSession, root: Path, driver_rows: int | None = 0) -> Bed:
    """An empty lake with a session of its own, in which the driver reads so many rows (None: as many as it likes)."""
    lake = Lake(root)
    bed = Bed(lake, second_spark(spark, lake.warehouse))
    if driver_rows is not None:
        bed.spark.conf.set("skipstone.driverRows", str(driver_rows))
    return bed


@pytest.fixture(scope="module")
def module_bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """The table with an index on k that misses the last segment, and a full one on g."""
    bed = open_bed(spark, tmp_path_factory.mktemp("lake"))
    bed.fill()
    bed.reindex(BY_K, max_segments=SEGMENTS - 1)
    bed.reindex(BY_G)
    yield bed
    bed.lake.catalog.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The table with full indexes on k and g."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    fill(lake)
    for index in (BY_K, BY_G):
        lake.reindex(index)
    lake.catalog.close()
    return Kept(lake.root, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def filled(spark: SparkSession, kept: Kept) -> Iterator[Bed]:
    """The table with full indexes on k and g, to be changed."""
    made = open_bed(spark, kept.restored())
    yield made
    made.lake.catalog.close()


@pytest.fixture
def bed(spark: SparkSession, tmp_path: Path) -> Iterator[Bed]:
    """An empty lake."""
    made = open_bed(spark, tmp_path)
    yield made
    made.lake.catalog.close()


def scans(plan: str) -> int:
    """Relations that a physical plan reads from staged files.

    A plan shows a relation more than once, and relations that read the same files share a task set. No two have the
    same columns.
    """
    return len(set(re.findall(r"([^\s\[]*)\] IcebergStagedScan\(.*taskSetID=(\S+)\)", plan)))
