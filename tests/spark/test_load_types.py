"""Every type through a load: the values that engines get wrong, read back by three of them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from skipstone.runs.reporting.progress import count_tasks, task_progress
from skipstone.runs.reporting.report import Reporter
from skipstone.session import FORCED, spark_session
from skipstone_core.contract.requests import SourceFormat
from skipstone_core.errors import BadData

from tests.spark.load_bed import Bed, ListSink, csv, source
from tests.spark.secondengine import duckdb_rows, spark_rows

KINDS = {
    "n": IntegerType(),
    "boolean": BooleanType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "decimal": DecimalType(38, 10),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "time": TimeType(),
    "uuid": UUIDType(),
    "fixed": FixedType(4),
    "binary": BinaryType(),
}
TABLE = Schema(*(NestedField(i, name, kind, required=name == "n") for i, (name, kind) in enumerate(KINDS.items(), 1)))
OLD = datetime.fromisoformat("1880-01-01T00:00:00.000001")
FAR = datetime.fromisoformat("9999-12-31T23:59:59.999999")
LONG = "𝄞é\u0000" * 400
ROWS: list[dict[str, Any]] = [
    {
        "n": 1,
        "boolean": True,
        "long": -(2**63),
        "float": math.nan,
        "double": math.nan,
        "decimal": Decimal("-9999999999999999999999999999.9999999999"),
        "date": date(1, 1, 1),
        "timestamp": OLD,
        "timestamptz": OLD.replace(tzinfo=UTC),
        "string": LONG,
        "time": time(0, 0),
        "uuid": UUID(int=0),
        "fixed": b"\x00\x01\x02\xff",
        "binary": b"",
    },
    {
        "n": 2,
        "boolean": False,
        "long": 2**63 - 1,
        "float": -0.0,
        "double": -0.0,
        "decimal": Decimal("0.0000000001"),
        "date": date(9999, 12, 31),
        "timestamp": FAR,
        "timestamptz": FAR.replace(tzinfo=UTC),
        "string": "",
        "time": time(23, 59, 59, 999_999),
        "uuid": UUID(int=2**128 - 1),
        "fixed": b"abcd",
        "binary": bytes(range(256)),
    },
    {"n": 3, "float": -math.inf, "double": math.inf, "string": "NaN"},
    {"n": 4},
]
TEXT_KINDS = [name for name in KINDS if name not in ("fixed", "binary")]


def expected(names: list[str]) -> list[dict[str, Any]]:
    return [{name: comparable(row.get(name)) for name in names} for row in ROWS]


def comparable(value: Any) -> Any:
    """Equal exactly when the values are the same: tells NaN, zeros of both signs and null apart."""
    if isinstance(value, float):
        return (value.hex(), math.copysign(1, value)) if not math.isnan(value) else "NaN"
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def read_back(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    rows = sorted(table.select(names).to_pylist(), key=lambda row: int(row["n"]))
    return [{name: comparable(value) for name, value in row.items()} for row in rows]


def as_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if name == "boolean" else str(value)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Bed:
    """Tables ``text`` and ``parquet`` with the rows above, loaded from those formats."""
    bed = Bed(tmp_path_factory.mktemp("types"))
    lines = [",".join(TEXT_KINDS), *(",".join(as_text(n, row.get(n)) for n in TEXT_KINDS) for row in ROWS)]
    bed.put("in/a.csv", "\n".join(lines) + "\n")
    bed.create(TABLE, "text")
    assert bed.load(csv("in/a.csv"), "text").counts["rowsLoaded"] == len(ROWS)
    arrays = {name: [row.get(name) for row in ROWS] for name in KINDS}
    types = {"n": pa.int32(), "float": pa.float32(), "fixed": pa.binary(4), "uuid": pa.uuid()} | {
        "decimal": pa.decimal128(38, 10), "time": pa.time64("us"), "timestamptz": pa.timestamp("us", tz="UTC")
    }  # fmt: skip
    arrays["uuid"] = [value.bytes if value is not None else None for value in arrays["uuid"]]
    columns = {name: pa.array(values, types.get(name)) for name, values in arrays.items()}
    pq.write_table(pa.table(columns), bed.root / "in/a.parquet")
    bed.create(TABLE, "parquet")
    assert bed.load(source(SourceFormat.PARQUET, "in/a.parquet"), "parquet").counts["rowsLoaded"] == len(ROWS)
    return bed


def test_text_values_are_read_back_by_pyiceberg(bed: Bed) -> None:
    assert read_back(bed.arrow("text"), TEXT_KINDS) == expected(TEXT_KINDS)


def test_parquet_values_are_read_back_by_pyiceberg(bed: Bed) -> None:
    assert read_back(bed.arrow("parquet"), list(KINDS)) == expected(list(KINDS))


@pytest.mark.parametrize("name", ["text", "parquet"])
def test_values_are_read_back_by_duckdb(bed: Bed, name: str) -> None:
    names = [one for one in TEXT_KINDS if one != "uuid"]
    assert read_back(duckdb_rows(bed.table(name)), names) == expected(names)


@pytest.mark.parametrize("name", ["text", "parquet"])
def test_values_are_read_back_by_plain_spark(bed: Bed, spark: SparkSession, name: str) -> None:
    bed_table = bed.table(name)
    with bed_table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("time")  # the Iceberg runtime for Spark has no time type
    names = [one for one in TEXT_KINDS if one not in ("time", "uuid")]
    assert read_back(spark_rows(spark, bed.warehouse, f"ns.{name}"), names) == expected(names)


def test_an_orc_file_that_spark_does_not_read_is_told(spark: SparkSession, tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.create(Schema(NestedField(1, "at", TimestampType())))
    out = pa.BufferOutputStream()
    orc.write_table(pa.table({"at": pa.array([-1_000_001], pa.timestamp("us"))}), out)
    bed.put("in/a.orc", bytes(out.getvalue()))
    with pytest.raises(BadData, match=r"'in/a.orc' has a timestamp before 1970 .* write such files as Parquet"):
        bed.load(source(SourceFormat.ORC, "in"))
    bed.catalog.close()


def test_the_session_keeps_its_settings_whatever_others_set(bed: Bed, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.caseSensitive", "false")
    session = spark_session(bed.request(csv("in/a.csv")))
    assert {key: session.conf.get(key) for key in FORCED} == dict(FORCED)


def test_tasks_of_a_job_are_counted(bed: Bed, spark: SparkSession) -> None:
    request = bed.request(csv("in/a.csv"))
    with task_progress(spark, Reporter(request, ListSink()), "counting"):
        spark.range(10, numPartitions=3).foreach(lambda _: None)
    # Spark counts tasks in a thread of its own, behind the job
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert count_tasks(spark.sparkContext.statusTracker(), f"{request.run_id}-counting") == (3, 3)
