"""MERGE statements of every form, generated: the manifest gives the rows of Spark's own MERGE INTO on Iceberg.

Of tables of many small files, so that a file that is pruned wrongly loses its rows. The values have no NaN and no -0.0,
of which Spark with Iceberg loses rows under pushed filters.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from skipstone.files.reader import describe_files
from skipstone.tables.filesets import read_file_set
from skipstone_operator.resources.kinds import parse
from skipstone_operator.resources.mergejob import MergeJobSpec

from tests.examples import cases
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import Bench, rows_of
from tests.unit.test_sql2merge_random import (
    SOURCE,
    TARGET,
    VALUES,
    by_kernels,
    counted,
    schema_of,
    sources,
    statements,
    translated,
)

FILES, ROWS = 8, 2


class SparkBench:
    """A table of small files, and Spark's way to merge into it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._catalog = SqlCatalog("forms", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        self._catalog.create_namespace("n")
        table = self._catalog.create_table("n.t", schema_of(TARGET))
        drawn = random.Random(11)
        for _ in range(FILES):
            rows = [{name: drawn.choice(VALUES[kind]) for name, kind in TARGET.items()} for _ in range(ROWS)]
            table.append(pa.Table.from_pylist(rows, schema_of(TARGET)))
        self._table = self._catalog.load_table("n.t")
        files = read_file_set(self._table)
        live = {one.path: rows_of(one, list(TARGET)) for one in describe_files(self._table, files, range(len(files)))}
        rows = [row for kept in live.values() for row in kept]
        self.bench = Bench(cast(RandomLake, None), self._table, self._table, files, live, rows)
        self._session = spark.newSession()
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{root}/catalog.db",
            ".warehouse": f"file://{root}",
            ".jdbc.schema-version": "V1",
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            self._session.conf.set(f"spark.sql.catalog.forms{key}", value)
        for key, value in {"sql.shuffle.partitions": 1, "sql.adaptive.enabled": "false"}.items():
            self._session.conf.set(f"spark.{key}", value)

    def merge(self, statement: str, rows: Sequence[dict[str, object]]) -> list[dict[str, Any]]:
        """The rows of the table after the statement, which is then taken back."""
        given = pa.Table.from_pylist(list(rows), schema_of(SOURCE))
        self._session.createDataFrame(given).createOrReplaceTempView("s")
        self._session.sql(statement.replace("MERGE INTO t ", "MERGE INTO forms.n.t AS t ", 1)).collect()
        found = self._catalog.load_table("n.t").scan().to_arrow().to_pylist()
        snapshot = self._table.metadata.current_snapshot_id
        self._session.sql(f"CALL forms.system.set_current_snapshot('n.t', {snapshot})").collect()
        return found

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()


@pytest.fixture(scope="module")
def spark_bench(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBench]:
    bench = SparkBench(spark, str(tmp_path_factory.mktemp("forms")))
    yield bench
    bench.close()


@pytest.mark.timeout(40000)
@settings(max_examples=cases(3, 2000), phases=[Phase.generate], deadline=None)
@given(st.data())
def test_a_merge_of_any_form_gives_the_rows_of_spark(spark_bench: SparkBench, data: st.DataObject) -> None:
    statement = data.draw(statements())
    rows = data.draw(sources(statement.keys, repeats=statement.repeats))
    found = translated(statement)
    if found.refused:  # one of several rows of a null key
        rows = [row for row in rows if None not in [row[key] for key in statement.keys]]
        found = translated(statement, keys_are_set=True)
    assert found.manifest is not None, (statement.spark, found.refused)
    spec = parse(dict(found.manifest)).spec
    assert isinstance(spec, MergeJobSpec)
    ours = by_kernels(spark_bench.bench, spec, rows)
    assert ours == counted(spark_bench.merge(statement.spark, rows)), (statement.spark, rows)
