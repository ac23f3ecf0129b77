"""Files that other engines wrote as ORC or Avro beside Parquet files that an index covers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone.query.datasource import SkipstoneDataSource
from skipstone_core.contract.requests import MergeAction, MergeClause
from skipstone_core.errors import BadData

from tests.avrofiles import avro_file
from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import DELETE_D, INSERT, MergeBed, task_of
from tests.spark.plans_bed import TABLE, Bed, open_bed
from tests.spark.test_query_datasource import catalog_options

ROWS = 400
COLUMNS = "k, text, at, moment, day, money, ratio, flag, bytes, items, inner"
START, ANCIENT = datetime(2020, 7, 1, 0, 0, 0, 123456, tzinfo=UTC), datetime(1900, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)


def expected(number: int) -> dict[str, object]:
    """A row as ``read`` gives it; every third is ancient, every seventh has nulls."""
    moment = (ANCIENT if number % 3 == 0 else START) + timedelta(hours=number)
    nothing = number % 7 == 0
    return {
        "k": number,
        "text": None if nothing else f"text{number}é",
        "at": moment.replace(tzinfo=None),
        "moment": moment,
        "day": date(1950, 1, 1) + timedelta(days=number),
        "money": Decimal(number).scaleb(-2),
        "ratio": number / 4,
        "flag": number % 2 == 0,
        "bytes": str(number).encode(),
        "items": None if nothing else [number, None],
        "inner": {"a": number, "m": moment},
    }


def insert(bed: Bed, first: int) -> None:
    """One file of rows whose keys are all over the table's range."""
    hours = "make_dt_interval(0, cast(k as int))"
    base = "2020-07-01 00:00:00.123456", "1900-01-01 00:00:00.123456"
    ntz, tz = (f"if(k % 3 = 0, {kind}'{base[1]}{utc}', {kind}'{base[0]}{utc}') + {hours}"
               for kind, utc in (("timestamp_ntz", ""), ("timestamp", " UTC")))  # fmt: skip
    bed.spark.sql(f"""
        insert into {TABLE} select /*+ coalesce(1) */ k, if(k % 7 = 0, null, concat('text', k, 'é')), {ntz}, {tz},
          date_add(date'1950-01-01', cast(k as int)), cast(k as decimal(9, 2)) / 100, k / 4, k % 2 = 0,
          cast(cast(k as string) as binary), if(k % 7 = 0, null, array(cast(k as int), null)),
          named_struct('a', cast(k as int), 'm', {tz})
        from (select id * 4 + {first} as k from range({ROWS}))""")


def set_format(bed: Bed, kind: str) -> None:
    """What Spark writes from now on."""
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.format.default' = '{kind}')")


@pytest.fixture
def bed(spark: SparkSession, tmp_path: Path) -> Iterator[Bed]:
    """Two Parquet files that an index on k covers, and a newer ORC file; the driver reads what it likes."""
    made = open_bed(spark, tmp_path, driver_rows=None)
    made.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    made.spark.sql(f"""
        create table {TABLE} (k bigint, text string, at timestamp_ntz, moment timestamp, day date, money decimal(9, 2),
          ratio double, flag boolean, bytes binary, items array<int>, inner struct<a: int, m: timestamp>)
        using iceberg tblproperties
          ('format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.delete.format.default' = 'parquet')""")
    insert(made, 0)
    insert(made, 1)
    made.reindex(index_on("k"))
    set_format(made, "orc")
    insert(made, 2)
    yield made
    made.lake.catalog.close()


def test_an_index_is_used_beside_files_of_other_formats(bed: Bed) -> None:
    found = bed.query(f"select text, moment from {TABLE} where k in (400, 402)")
    assert (found.files_read, found.files_staged, len(found.answer)) == ([2], [1], 2), str(found.explanation)
    assert found.only.driver is not None
    set_format(bed, "avro")
    insert(bed, 3)
    found = bed.query(f"select text, moment from {TABLE} where k in (400, 402, 403)")
    assert (found.files_read, found.files_staged, len(found.answer)) == ([3], [2], 3), str(found.explanation)
    assert read(bed.lake.table(), ["text"], "k = 403").to_pylist() == [{"text": "text403é"}]


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_deletes_in_other_formats_are_applied(bed: Bed, kind: str) -> None:
    bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.delete.format.default' = '{kind}')")
    bed.spark.sql(f"delete from {TABLE} where k in (404, 402)")
    found = bed.query(f"select text from {TABLE} where k in (400, 404, 402)")
    assert (found.files_read, len(found.answer)) == ([2], 1), str(found.explanation)
    assert read(bed.lake.table(), ["k"], "k in (400, 402, 404)").to_pylist() == [{"k": 400}]
    merges = MergeBed(bed.lake.root)
    feed = pa.table({"k": pa.array([400, 404], pa.int64()), "text": ["new", "back"]})
    report = merges.merge(task_of(merges.source(feed), ("k",)))
    assert (report.counts["rowsUpdated"], report.counts["rowsInserted"]) == (1, 1)
    assert bed.spark.sql(f"select k from {TABLE} where k in (400, 402, 404) order by k").collect() == [(400,), (404,)]


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_files_of_other_formats_are_read_without_spark(bed: Bed, kind: str) -> None:
    set_format(bed, kind)
    insert(bed, 3)
    bed.spark.sql(f"delete from {TABLE} where k in (398, 399, 410)")
    wanted = [number for number in range(396, 412) if number not in (398, 399, 410)]
    found = read(bed.lake.table(), COLUMNS.split(", "), "k between 396 and 411").to_pylist()
    assert sorted(found, key=lambda one: one["k"]) == [expected(number) for number in wanted]
    for column, moment in (("at", "1900-01-17 18:00:00.123456"), ("moment", "1900-01-17 18:00:00.123456Z")):
        assert read(bed.lake.table(), ["k"], f"{column} = timestamp '{moment}'").to_pylist() == [{"k": 402}]
    for change in ("rename column text to label", "drop column ratio", "add column ratio double"):
        bed.spark.sql(f"alter table {TABLE} {change}")
    (row,) = read(bed.lake.table(), ["label", "ratio"], "k = 403").to_pylist()
    assert row == {"label": "text403é", "ratio": None}
    assert read(bed.lake.table(), ["ratio"], "ratio is null").num_rows == 4 * ROWS - 3
    assert read(bed.lake.table(), ["k"]).num_rows == 4 * ROWS - 3
    bed.spark.dataSource.register(SkipstoneDataSource)
    source = bed.spark.read.format("skipstone").options(**catalog_options(bed.lake)).load("ns.t")
    assert [row.label for row in source.where("k in (398, 402, 403)").select("label").orderBy("k").collect()] == [
        "text402é",
        "text403é",
    ]


def test_moments_that_arrow_does_not_read_from_orc_are_refused(bed: Bed) -> None:
    bed.spark.sql(f"insert into {TABLE} (k, at) values (402, timestamp_ntz'0001-01-01 00:00:00')")
    assert read(bed.lake.table(), ["k"], "k = 402").num_rows == 2
    with pytest.raises(BadData, match=r"\.orc cannot be read without Spark"):
        read(bed.lake.table(), ["at"], "k = 402")
    assert len(bed.query(f"select at from {TABLE} where k = 402").answer) == 2


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_changes_rows_of_any_format_and_writes_parquet(bed: Bed, mode: str) -> None:
    """Keys of all four files, one row of the ORC file and one of the Avro file deleted before."""
    set_format(bed, "avro")
    insert(bed, 3)
    bed.spark.sql(f"delete from {TABLE} where k in (398, 399)")
    if mode == "merge-on-read":
        bed.spark.sql(f"alter table {TABLE} set tblproperties ('write.merge.mode' = 'merge-on-read')")
    merges = MergeBed(bed.lake.root)
    feed = pa.table({
        "k": pa.array([400, 401, 402, 403, 398, 406, 407, 9999], pa.int64()),
        "text": [*(f"new{number}" for number in (400, 401, 402, 403, 398)), "x", "x", "new9999"],
        "op": [*"UUUUUDDU"],
    })  # fmt: skip
    task = task_of(
        merges.source(feed), ("k",), when_matched=(DELETE_D, MergeClause(action=MergeAction.UPDATE)),
        when_not_matched=(INSERT,),
    )  # fmt: skip
    report = merges.merge(task)
    counts = {name: report.counts[name] for name in ("rowsUpdated", "rowsDeleted", "rowsInserted", "filesTouched")}
    assert counts == {"rowsUpdated": 4, "rowsDeleted": 2, "rowsInserted": 2, "filesTouched": 4}
    columns = COLUMNS.split(", ")
    rows = {number: expected(number) for number in range(4 * ROWS) if number not in (398, 399, 406, 407)}
    for number in (400, 401, 402, 403):
        rows[number]["text"] = f"new{number}"
    for number in (398, 9999):
        rows[number] = {**dict.fromkeys(columns), "k": number, "text": f"new{number}"}
    for found in (read(bed.lake.table(), columns), bed.spark.table(TABLE).select(*columns).toArrow()):
        assert sorted(map(plain, found.to_pylist()), key=key_of) == sorted(map(plain, rows.values()), key=key_of)
    formats = [task.file.file_format for task in bed.lake.table().scan().plan_files()]
    kept = 2 if mode == "merge-on-read" else 0
    assert sum(one is not FileFormat.PARQUET for one in formats) == kept


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose times with a zone are in UTC."""
    return {name: plain(value) if isinstance(value, dict) else in_utc(value) for name, value in row.items()}


def in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def key_of(row: dict[str, Any]) -> int:
    return int(row["k"])


def test_what_a_merge_cannot_read_without_spark_is_told_and_nothing_changes(bed: Bed) -> None:
    bed.spark.sql(f"insert into {TABLE} (k, at) values (402, timestamp_ntz'0001-01-01 00:00:00')")
    before = bed.lake.table().metadata.current_snapshot_id
    merges = MergeBed(bed.lake.root)
    feed = pa.table({"k": pa.array([402], pa.int64()), "text": ["new"]})
    with pytest.raises(BadData, match=r"\.orc cannot be read without Spark"):
        merges.merge(task_of(merges.source(feed), ("k",), when_not_matched=()))
    assert bed.lake.table().metadata.current_snapshot_id == before


PEOPLE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "cents", DecimalType(9, 2)),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False)),
    NestedField(7, "points", MapType(8, StringType(), 9, LongType(), value_required=False)),
    NestedField(10, "place", StructType(NestedField(11, "city", StringType()), NestedField(12, "zip", LongType()))),
)
WRITTEN = {
    "type": "record", "name": "people", "fields": [
        {"name": "old_name", "type": ["string", "null"]},
        {"name": "extra", "type": ["null", "int", "string"]},
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "points", "type": {"type": "map", "values": "int"}},
        {"name": "place", "type": ["null", {"type": "record", "name": "place", "fields": [
            {"name": "zip", "type": "int"}, {"name": "street", "type": "string"}, {"name": "city", "type": "string"},
        ]}]},
    ],
}  # fmt: skip
RECORDS = [
    {"old_name": "a", "extra": 1, "id": 1, "at": 5, "cents": b"\xff\x85", "tags": ["x", None], "points": {"p": 3},
     "place": {"zip": 7, "street": "s", "city": "c"}},
    {"old_name": None, "extra": "t", "id": 2, "at": -1, "cents": b"\x7d", "tags": [], "points": {}, "place": None},
]  # fmt: skip


def people(lake: Lake) -> None:
    """The table, whose name is also that of an older column."""
    table = lake.catalog.create_table(("ns", "t"), PEOPLE)
    mapping = create_mapping_from_schema(table.schema()).model_dump_json().replace('["name"]', '["name","old_name"]')
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})


def add_avro(lake: Lake, content: bytes, records: int) -> None:
    """Add a file that knows no field ids, as add_files of Spark does."""
    path = lake.root / "people.avro"
    path.write_bytes(content)
    nothing: dict[int, Any] = {}
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=f"file://{path}", file_format=FileFormat.AVRO, partition=Record(),
        record_count=records, file_size_in_bytes=len(content), column_sizes=nothing, value_counts=nothing,
        null_value_counts=nothing, nan_value_counts=nothing, lower_bounds=nothing, upper_bounds=nothing,
        split_offsets=None, key_metadata=None, equality_ids=None, sort_order_id=None,
    )  # fmt: skip
    file.spec_id = 0
    with lake.table().transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def test_avro_files_without_field_ids_go_by_the_name_mapping(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    people(lake)
    add_avro(lake, avro_file(WRITTEN, RECORDS), 2)
    first, second = read(lake.table()).to_pylist()
    assert first == {
        "id": 1, "name": "a", "at": datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC), "cents": Decimal("-1.23"),
        "tags": ["x", None], "points": [("p", 3)], "place": {"city": "c", "zip": 7},
    }  # fmt: skip
    assert (second["id"], second["name"], second["cents"], second["place"]) == (2, None, Decimal("1.25"), None)
    assert read(lake.table(), ["id"], "cents > 1").to_pylist() == [{"id": 2}]
    lake.catalog.close()


@pytest.mark.parametrize(
    ("content", "records", "says"),
    [
        (avro_file(WRITTEN, RECORDS), 3, "is damaged: 2 of 3 rows can be read"),
        (avro_file(WRITTEN, RECORDS)[:-1], 2, "is damaged: the block at byte"),
        (b"PAR1", 2, "is damaged: it does not begin as Avro files do"),
        (avro_file({**WRITTEN, "fields": [{"name": "id", "type": "string"}]}, [{"id": "x"}]), 1,
         "cannot be read without Spark: column 'id': it is string, and the column is long"),
    ],
)  # fmt: skip
def test_an_avro_file_that_lacks_rows_or_does_not_fit_is_told(
    tmp_path: Path, content: bytes, records: int, says: str
) -> None:
    lake = Lake(tmp_path)
    people(lake)
    add_avro(lake, content, records)
    with pytest.raises(BadData, match=says):
        read(lake.table(), ["id"])
    lake.catalog.close()
