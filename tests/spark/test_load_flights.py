"""A real file of 336,776 rows, loaded and compared with a second engine that reads the same CSV."""

from __future__ import annotations

import zipfile
from pathlib import Path

import duckdb
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType, TimestamptzType
from pyspark.sql import SparkSession
from skipstone_core.contract.reports import RunOutcome

from demo.data import COLUMNS, TEXT_COLUMNS, flights_archive
from tests.spark.load_bed import Bed, csv

REQUIRED = frozenset({"year", "month", "day", "carrier", "flight", "origin", "time_hour"})


def column_type(name: str) -> IntegerType | StringType | TimestamptzType:
    if name == "time_hour":
        return TimestamptzType()
    return StringType() if name in TEXT_COLUMNS else IntegerType()


FLIGHTS = Schema(
    *(NestedField(i, name, column_type(name), required=name in REQUIRED) for i, name in enumerate(COLUMNS, start=1))
)
BY_MONTH = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "month"))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Bed:
    bed = Bed(tmp_path_factory.mktemp("flights"))
    bed.create(FLIGHTS, "flights", partition_spec=BY_MONTH)
    (bed.root / "landing").mkdir()
    with zipfile.ZipFile(flights_archive()) as archive:
        archive.extract("flights.csv", bed.root / "landing")
    report = bed.load(csv("landing/flights.csv", options={"nullValue": "NA"}), "flights")
    assert report.outcome is RunOutcome.COMMITTED
    assert report.counts == {"rowsRead": 336_776, "rowsLoaded": 336_776, "rowsRejected": 0, "segment": 1}
    assert "session" not in report.stages_ms, "the driver reads it"
    print("stages in ms:", dict(report.stages_ms))
    return bed


@pytest.fixture(scope="module")
def engine(loaded: Bed) -> duckdb.DuckDBPyConnection:
    """DuckDB with the view ``original`` on the CSV and ``loaded`` on the data files of the table."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    types = {"time_hour": "TIMESTAMPTZ"} | {n: "VARCHAR" for n in TEXT_COLUMNS if n != "time_hour"}
    columns = ", ".join(f"'{name}': '{types.get(name, 'INTEGER')}'" for name in COLUMNS)
    path = Path(loaded.root) / "landing/flights.csv"
    connection.execute(
        f"CREATE VIEW original AS FROM read_csv('{path}', header=true, nullstr='NA', columns={{{columns}}})"
    )
    files = [task.file.file_path.removeprefix("file://") for task in loaded.table("flights").scan().plan_files()]
    connection.execute(f"CREATE VIEW loaded AS SELECT {', '.join(COLUMNS)} FROM read_parquet({files})")
    return connection


def test_every_month_has_its_own_files(loaded: Bed) -> None:
    tasks = list(loaded.table("flights").scan().plan_files())
    assert {task.file.partition[0] for task in tasks} == set(range(1, 13))


@pytest.mark.parametrize("name", COLUMNS)
def test_nulls_and_values_of_each_column_equal_those_of_a_second_engine(
    engine: duckdb.DuckDBPyConnection, name: str
) -> None:
    facts = f"count(*), count({name}), count(DISTINCT {name}), sum(hash({name})::HUGEINT)"
    facts += f", min({name})::VARCHAR, max({name})::VARCHAR"
    original, found = (engine.execute(f"SELECT {facts} FROM {view}").fetchone() for view in ("original", "loaded"))
    assert found == original


def test_rows_equal_those_of_a_second_engine(engine: duckdb.DuckDBPyConnection) -> None:
    difference = "SELECT count(*) FROM (FROM {} EXCEPT ALL FROM {})"
    assert engine.execute(difference.format("original", "loaded")).fetchone() == (0,)
    assert engine.execute(difference.format("loaded", "original")).fetchone() == (0,)
