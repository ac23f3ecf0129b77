"""MERGE statements as Spark reads them: the manifest gives the rows that Spark's own MERGE INTO gives on Iceberg.

DuckDB judges many generated statements (`tests/unit/test_sql2merge_random.py`); Spark judges what it alone writes: its
quotes, operators, casts and functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from skipstone.files.reader import describe_files
from skipstone.tables.filesets import read_file_set
from skipstone_cli.translating.dialects import find_dialect
from skipstone_cli.translating.jobs import Chosen, translate
from skipstone_core.contract.requests import WarehouseRef
from skipstone_operator.resources.kinds import parse
from skipstone_operator.resources.mergejob import MergeJobSpec

from tests.spark.secondengine import second_spark
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import Bench, rows_of
from tests.unit.test_sql2merge_random import SOURCE, TARGET, by_kernels, counted, schema_of

TABLE = [
    {"id": 1, "grp": "x", "a": 7, "name": "it's", "ok": True, "d": 0.25},
    {"id": 2, "grp": "y", "a": None, "name": "x", "ok": None, "d": -1.5},
    {"id": 3, "grp": None, "a": 3, "name": None, "ok": False, "d": None},
    {"id": 4, "grp": "x", "a": -2, "name": "y%", "ok": True, "d": 2.0},
    {"id": None, "grp": "x", "a": 1, "name": "n", "ok": None, "d": 0.0},
]
CHANGES = [
    {"id": 1, "grp": "q", "a": 10, "name": "new", "ok": None, "d": 1.0, "op": "U", "seq": 1},
    {"id": 1, "grp": "r", "a": -7, "name": "12", "ok": False, "d": 3.5, "op": "U", "seq": 2},
    {"id": 2, "grp": None, "a": 5, "name": "7", "ok": True, "d": None, "op": "D", "seq": 3},
    {"id": 3, "grp": "x", "a": None, "name": " 3 ", "ok": True, "d": 9.0, "op": None, "seq": 4},
    {"id": 8, "grp": "x", "a": 1, "name": "4", "ok": None, "d": 0.5, "op": "I", "seq": 5},
    {"id": 9, "grp": "y", "a": 2, "name": "5", "ok": None, "d": 0.5, "op": "D", "seq": 6},
]
NUMBERED = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS n FROM s"
HEAD = (
    f"ns.t AS t USING (SELECT * EXCEPT (n) FROM ({NUMBERED}) WHERE n = 1) AS s "
    "ON s.id = t.id AND (t.a > -5 OR t.a IS NULL)"
)
STATEMENTS = (
    "WHEN MATCHED AND s.op == 'D' THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET grp = s.grp, a = coalesce(t.a, 0) + s.a * 2, name = t.name || '/' || s.name, "
    "d = s.a / 4 "
    "WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT (id, a, d) VALUES (s.id, -s.a, s.d)",
    "WHEN MATCHED AND s.op <=> NULL THEN UPDATE SET name = 'it\\'s', a = cast(s.name AS BIGINT) % 2 "
    "WHEN MATCHED AND NOT s.op <=> 'D' THEN UPDATE SET name = \"say 'q'\", a = 10L - t.a "
    "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (id, concat(name, '-', grp))",
    "WHEN MATCHED AND !(t.ok IS TRUE) THEN DELETE "
    "WHEN MATCHED AND s.a BETWEEN -10 AND 3 THEN UPDATE SET d = round(t.d, 1), ok = s.ok, a = nvl(t.a, s.a) "
    "WHEN NOT MATCHED BY SOURCE AND t.name LIKE 'y%' THEN UPDATE SET a = t.a + 2, name = NULL",
    "WHEN MATCHED AND (t.a IS DISTINCT FROM s.a OR startswith(s.name, '1')) THEN UPDATE SET d = cast(s.a AS DOUBLE) "
    "WHEN NOT MATCHED BY SOURCE THEN DELETE",
)


@pytest.fixture
def bench(catalog: Catalog) -> Iterator[Bench]:
    """The table in two files."""
    table = catalog.create_table("ns.t", schema_of(TARGET))
    for rows in (TABLE[:3], TABLE[3:]):
        table.append(pa.Table.from_pylist(rows, schema_of(TARGET)))
    files = read_file_set(table)
    live = {one.path: rows_of(one, list(TARGET)) for one in describe_files(table, files, range(len(files)))}
    yield Bench(cast(RandomLake, None), table, table, files, live, [row for kept in live.values() for row in kept])


@pytest.mark.parametrize("clauses", STATEMENTS)
def test_a_translated_statement_does_what_spark_does(
    bench: Bench, warehouse: WarehouseRef, spark: SparkSession, tmp_path: Path, clauses: str
) -> None:
    chosen = Chosen(dialect=find_dialect("spark"), paths=("feed.parquet",), keys_are_set=True)
    found = translate(f"MERGE INTO {HEAD} {clauses}", chosen)
    assert found.manifest is not None, found.refused
    spec = parse(dict(found.manifest)).spec
    assert isinstance(spec, MergeJobSpec)
    ours = by_kernels(bench, spec, CHANGES)
    pq.write_table(pa.Table.from_pylist(CHANGES, schema_of(SOURCE)), tmp_path / "feed.parquet")
    session = second_spark(spark, warehouse)
    session.read.parquet(str(tmp_path / "feed.parquet")).createOrReplaceTempView("s")
    session.sql(f"MERGE INTO {warehouse.catalog.name}.{HEAD} {clauses}")
    assert ours == counted(bench.table.refresh().scan().to_arrow().to_pylist())
