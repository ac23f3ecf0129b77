"""Days and moments that Iceberg holds and Python does not: typed files bring them into tables, indexes and merges."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro import writer as write_avro
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import DateType, LongType, NestedField, TimestampType, TimestamptzType
from pyspark.sql import SparkSession
from skipstone.query import ReadOptions, read
from skipstone.sources.plain import PlainLimits
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import MergeAction, MergeClause, SourceFormat
from skipstone_core.errors import BadData

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append
from tests.spark.load_bed import Bed, source
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.plans_bed import open_bed
from tests.spark.secondengine import second_spark

TABLE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "d", DateType()),
    NestedField(3, "t", TimestampType()),
    NestedField(4, "z", TimestamptzType()),
    NestedField(5, "v", LongType()),
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("z", pa.timestamp("us", tz="UTC")),
        ("v", pa.int64()),
    ]
)
HOUR = 3_600_000_000
DAYS = (-(2**31), -100_000_000, -719_163, -1, 0, 2_932_897, 100_000_000, 2**31 - 1)
MOMENTS = (
    -(2**63), -(2**31) * HOUR, -62_135_596_800_000_001, -1, 0, 253_402_300_800_000_000, 2**31 * HOUR - 1, 2**63 - 1,
)  # fmt: skip
Row = tuple[int, int, int, int, int]
#: One for each day, with the moment at its place.
ROWS: tuple[Row, ...] = tuple((at, DAYS[at], MOMENTS[at], MOMENTS[at], 0) for at in range(len(DAYS)))
NUMBERS = "id, unix_date(d), unix_micros(cast(t as timestamp)), unix_micros(z), v"
#: Of which the hour is an int.
IN_HOURS = ROWS[1:-1]
SPECS: dict[str, tuple[int, Transform[int, int], tuple[Row, ...]]] = {
    "day": (2, IdentityTransform(), ROWS),
    "year": (2, YearTransform(), ROWS),
    "month": (2, MonthTransform(), ROWS),
    "bucket of days": (2, BucketTransform(4), ROWS),
    "moment": (3, IdentityTransform(), ROWS),
    "year of instants": (4, YearTransform(), ROWS),
    "month of moments": (3, MonthTransform(), ROWS),
    "day of instants": (4, DayTransform(), ROWS),
    "hour": (4, HourTransform(), IN_HOURS),
    "bucket of moments": (3, BucketTransform(4), ROWS),
}
#: Nothing is read by the driver itself.
BY_SPARK = PlainLimits(rows=0, unpacked_bytes=0)


def arrow_of(rows: tuple[Row, ...]) -> pa.Table:
    columns = [
        pa.array(column, pa.int32() if at == 1 else pa.int64()) for at, column in enumerate(zip(*rows, strict=True))
    ]
    return pa.table([column.view(kind) for column, kind in zip(columns, ARROW.types, strict=True)], schema=ARROW)


def put_parquet(path: Path, rows: tuple[Row, ...]) -> None:
    pq.write_table(arrow_of(rows), path)


def put_avro(path: Path, rows: tuple[Row, ...]) -> None:
    types = ["long", {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "local-timestamp-micros"},
             {"type": "long", "logicalType": "timestamp-micros"}, "long"]  # fmt: skip
    fields = [{"name": name, "type": kind} for name, kind in zip(ARROW.names, types, strict=True)]
    with path.open("wb") as file:
        write_avro(file, {"type": "record", "name": "r", "fields": fields},
                   [dict(zip(ARROW.names, row, strict=True)) for row in rows])  # fmt: skip


def spec_of(name: str) -> PartitionSpec:
    field_id, transform, _ = SPECS[name]
    return PartitionSpec(PartitionField(field_id, 1000, transform, "p"))


def numbers(spark: SparkSession, bed: Bed | MergeBed, name: str = "t", where: str = "true") -> list[tuple[int, ...]]:
    """The rows as plain Spark reads them."""
    session = second_spark(spark, bed.warehouse)
    frame = session.sql(f"select {NUMBERS} from {bed.warehouse.catalog.name}.ns.{name} where {where} order by id")
    return [tuple(row) for row in frame.collect()]


#: Layout and mode of a merge by each column.
MERGED = {
    "d": ("month", "copy-on-write"),
    "t": ("month of moments", "merge-on-read"),
    "z": ("bucket of moments", "copy-on-write"),
}
NO_SHARE = DriverShare(rows=0, source_bytes=0, candidate_bytes=0, searched_rows=0, indexed_rows=0)
#: Conditions of Spark's on far values, and the rows that they hold for.
FAR = {
    "d > date'9999-12-31'": lambda row: row[1] > 2_932_896,
    "d < date'-9999-01-01'": lambda row: row[1] < -4_371_588,
    "z > timestamp'9999-12-31 23:59:59.999999Z'": lambda row: row[3] > 253_402_300_799_999_999,
    "t < timestamp_ntz'-9999-01-01 00:00:00'": lambda row: row[2] < -377_705_203_200_000_000,
}


def put(path: Path, kind: SourceFormat, rows: tuple[Row, ...]) -> None:
    (put_parquet if kind is SourceFormat.PARQUET else put_avro)(path, rows)


def test_loads_partition_them(tmp_path: Path, spark: SparkSession) -> None:
    bed = Bed(tmp_path)
    for at, (name, (_, _, rows)) in enumerate(SPECS.items()):
        put_parquet(bed.root / f"{at}.parquet", rows)
        bed.create(TABLE, f"t{at}", partition_spec=spec_of(name))
        report = bed.load(source(SourceFormat.PARQUET, f"{at}.parquet"), f"t{at}")
        assert (report.outcome, report.counts["rowsLoaded"]) == (RunOutcome.COMMITTED, len(rows)), (name, report)
        assert numbers(spark, bed, f"t{at}") == list(rows), name
        for where, holds in FAR.items():
            assert numbers(spark, bed, f"t{at}", where) == [row for row in rows if holds(row)], (name, where)


@pytest.mark.parametrize("by", ["driver", "Spark"])
@pytest.mark.parametrize("kind", [SourceFormat.PARQUET, SourceFormat.AVRO])
def test_loads_bring_them_as_they_are(tmp_path: Path, spark: SparkSession, kind: SourceFormat, by: str) -> None:
    bed, limits = Bed(tmp_path), BY_SPARK if by == "Spark" else None
    put(bed.root / "far", kind, ROWS)
    bed.create(TABLE, partition_spec=spec_of("year of instants"))
    assert bed.load(source(kind, "far"), limits=limits).counts["rowsLoaded"] == len(ROWS)
    assert numbers(spark, bed) == list(ROWS)


def test_an_hour_that_iceberg_has_no_number_for_is_told(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.create(TABLE, partition_spec=spec_of("hour"))
    for at in (0, -1):
        put_parquet(bed.root / "far.parquet", (ROWS[at],))
        with pytest.raises(BadData, match=r"its 'p' \(hour\) is of a time more than 244,000 years from 1970"):
            bed.load(source(SourceFormat.PARQUET, "far.parquet"))
    assert bed.rows() == []


@pytest.mark.parametrize("by", ["driver", "Spark"])
@pytest.mark.parametrize("key", MERGED)
def test_merges_by_them(tmp_path: Path, spark: SparkSession, key: str, by: str) -> None:
    layout, mode = MERGED[key]
    bed = MergeBed(tmp_path, limits=USUAL_SHARE if by == "driver" else NO_SHARE)
    bed.create(TABLE, spec_of(layout), **{"write.merge.mode": mode})
    assert bed.merge(task_of(bed.source(arrow_of(ROWS[::2])), keys=(key,))).counts["rowsInserted"] == len(ROWS[::2])
    Lake(tmp_path).reindex(index_on(key))
    changed = tuple((*row[:4], 1) for row in ROWS)
    report = bed.merge(task_of(bed.source(arrow_of(changed), "more"), keys=(key,)))
    assert (report.counts["rowsUpdated"], report.counts["rowsInserted"]) == (len(ROWS[::2]), len(ROWS[1::2]))
    assert numbers(spark, bed) == list(changed)
    Lake(tmp_path).reindex(index_on(key))
    for op in ("<", ">="):
        condition = f"{key} {op} " + ("date '1970-01-01'" if key == "d" else "timestamp '1970-01-01 00:00:00'")
        found, expected = (
            sorted(read(bed.table(), ["id"], condition, options)["id"].to_pylist())
            for options in (None, ReadOptions(use_indexes=False))
        )
        assert found == expected == [row[0] for row in ROWS if (row[0] < 4) == (op == "<")]
    gone = bed.source(arrow_of(ROWS[:1] + ROWS[-1:]), "gone")
    delete = MergeClause(action=MergeAction.DELETE)
    bed.merge(task_of(gone, keys=(key,), when_matched=(delete,), when_not_matched=()))
    assert numbers(spark, bed) == list(changed[1:-1])


@pytest.mark.parametrize("included", [(), ("d", "t", "z", "v")], ids=["positions", "covering"])
def test_queries_answer_them(tmp_path: Path, spark: SparkSession, included: tuple[str, ...]) -> None:
    bed, usual = open_bed(spark, tmp_path, driver_rows=None), tuple((n, n % 7, n, n, n) for n in range(100, 2000))
    bed.lake.create(ARROW)
    for rows in (ROWS + usual[:900], usual[900:]):
        append(bed.lake.table(), arrow_of(rows))
    bed.reindex(
        *(index_on(name, name=name, include=[one for one in included if one != name]) for name in ("id", *"dtz"))
    )
    for where, holds in {**FAR, "id in (0, 7)": lambda row: row[0] in (0, 7)}.items():
        found = bed.query(f"select {NUMBERS} from skipstone.ns.t where {where}")
        assert len(found.answer) == sum(map(holds, ROWS)), found.explanation
        assert sum(found.files_read) <= 1
    least = bed.query("select unix_date(min(d)), unix_micros(max(z)) from skipstone.ns.t where id in (0, 7)")
    assert least.df.collect() == [(DAYS[0], MOMENTS[-1])]
