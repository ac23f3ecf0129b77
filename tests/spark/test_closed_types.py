"""Types that close a table to Spark: they are told and not added unasked, and other types hold their values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
)
from pyspark.sql import SparkSession
from skipstone.tables.states import table_state
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.requests import ChangeFormat, ColumnSpec, SchemaEvolution, SourceFormat, SourceSpec
from skipstone_core.errors import BadSpec, UserError
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.spark.load_bed import Bed, source
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.secondengine import second_spark

TIMES = [time(12, 34, 56, 123456), None, time(), time(23, 59, 59, 999999), time(0, 0, 0, 5000)]
TEXTS = ["12:34:56.123456", None, "00:00:00.000000", "23:59:59.999999", "00:00:00.005000"]
MICROS = [45_296_123_456, None, 0, 86_399_999_999, 5_000]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (TimeType(), "at (time)"),
        (TimestampNanoType(), "at (timestamp_ns)"),
        (TimestamptzNanoType(), "at (timestamptz_ns)"),
        (StructType(NestedField(3, "t", TimeType(), required=False)), "at (time)"),
        (LongType(), ""),
    ],
    ids=str,
)
def test_a_table_says_that_spark_cannot_open_it(
    bed: MergeBed, spark: SparkSession, kind: IcebergType, told: str
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", kind, required=False))
    bed.create(schema, **{"format-version": "3"})
    said = table_state(bed.catalog, bed.ref).state.caveats
    assert [told in one for one in said] == ([True] if told else [])
    query = f"select id from skipstone.{bed.namespace}.t"
    other = second_spark(spark, bed.warehouse)
    if not told:
        assert other.sql(query).collect() == []
        return
    with pytest.raises(Exception, match=r"does not support time|unsupported type to Spark"):
        other.sql(query).collect()


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_what_nothing_can_ask_is_not_indexed(bed: MergeBed, kind: IcebergType) -> None:
    bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "at", kind)), **{"format-version": "3"})
    lake = Lake(bed.root)
    for index in (index_on("at"), index_on("id", include=("at",)), index_on("id", "at", buckets=4)):
        with pytest.raises(UserError, match=f"column 'at' is a {kind}") as refused:
            lake.reindex(index)
        assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED


@pytest.mark.parametrize(("kind", "values"), [(StringType(), TEXTS), (LongType(), MICROS)], ids=str)
def test_times_of_typed_files_are_loaded_as_text_or_as_microseconds(
    tmp_path: Path, kind: IcebergType, values: list[object]
) -> None:
    bed = Bed(tmp_path)
    bed.create(Schema(NestedField(1, "n", LongType()), NestedField(2, "at", kind)))
    expected = {}
    for number, (stored, held) in enumerate(((pa.time64("us"), range(5)), (pa.time32("ms"), (1, 2, 4)))):
        keys = [10 * number + at for at in held]
        rows = pa.table({"n": keys, "at": pa.array([TIMES[at] for at in held], stored)})
        pq.write_table(rows, tmp_path / f"times{number}.parquet")
        bed.load(source(SourceFormat.PARQUET, f"times{number}.parquet"))
        expected |= dict(zip(keys, (values[at] for at in held), strict=True))
    assert {row["n"]: row["at"] for row in bed.rows()} == expected
    bed.catalog.close()


def test_times_of_day_are_added_as_text(tmp_path: Path) -> None:
    merges = MergeBed(tmp_path)
    merges.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    merges.append([{"id": 1, "name": "a"}])
    rows = pa.table({"id": [1, 2], "at": pa.array([TIMES[0], TIMES[3]], pa.time64("us"))})
    asked = SourceSpec(format=SourceFormat.PARQUET, paths=(merges.source(rows),), unknown_columns=UnknownColumns.ADD)
    merges.merge(task_of("", source=asked))
    assert merges.rows() == [f"(1, 'a', '{TEXTS[0]}')", f"(2, None, '{TEXTS[3]}')"]
    merges.catalog.close()

    bed = Bed(tmp_path)
    pq.write_table(rows.rename_columns(["id", "until"]), tmp_path / "more.parquet")
    bed.load(source(SourceFormat.PARQUET, "more.parquet", unknown_columns=UnknownColumns.ADD))
    assert sorted(str(row["until"]) for row in bed.rows()) == sorted(["None", "None", TEXTS[0], TEXTS[3]])
    assert str(bed.table().schema().find_type("until")) == "string"
    (tmp_path / "t.csv").write_text("9,10:00:00\n")
    columns = (ColumnSpec(name="id", type="long"), ColumnSpec(name="clock", type="time"))
    with pytest.raises(BadSpec, match="a new column 'clock' of the type time would close the table"):
        bed.load(source(SourceFormat.CSV, "t.csv", unknown_columns=UnknownColumns.ADD, columns=columns))
    bed.catalog.close()


def test_a_change_feed_adds_times_of_day_as_text(bed: MergeBed) -> None:
    bed.create(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))
    kinds = {
        "at": "io.debezium.time.MicroTime",
        "iso": "io.debezium.time.IsoTime",
        "zoned": "io.debezium.time.ZonedTime",
    }
    texts = {"iso": "12:34:56Z", "zoned": "12:34:56.5Z"}
    fields = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}]
    fields += [
        {"field": name, "type": "int64" if name == "at" else "string", "name": kind} for name, kind in kinds.items()
    ]
    row = {"id": 1, "name": "a", "at": MICROS[0], **texts}
    images = [{"field": "after", "type": "struct", "fields": fields}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "fields": images}
    payload = {"op": "c", "before": None, "after": row, "source": {"connector": "mysql", "db": "d", "table": "t",
               "file": "b.1", "pos": 4, "row": 0, "server_id": 1, "snapshot": "false"}}  # fmt: skip
    path = bed.text("feed.json", json.dumps({"schema": schema, "payload": payload}) + "\n")
    asked = SourceSpec(
        format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.DEBEZIUM, unknown_columns=UnknownColumns.ADD
    )
    bed.merge(task_of("", source=asked, when_matched=(), when_not_matched=()))
    assert bed.table().scan().to_arrow().to_pylist() == [{"id": 1, "name": "a", "at": TEXTS[0], **texts}]


def test_a_merge_does_not_close_a_table_by_adding_a_column(bed: MergeBed, spark: SparkSession) -> None:
    table = bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    bed.append([{"id": 1, "name": "a"}])
    feed = bed.source(pa.table({"id": [1, 2], "at": pa.array(TIMES[2:4], pa.time64("us"))}))
    task = task_of(feed, schema_evolution=SchemaEvolution.ADD_COLUMNS)
    with pytest.raises(BadSpec, match="a new column 'at' of the type time would close the table") as refused:
        bed.merge(task)
    assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    with table.update_schema() as change:
        change.add_column("at", StringType())
    bed.merge(task)
    found = second_spark(spark, bed.warehouse).sql("select id, at from skipstone.ns.t order by id").collect()
    assert [tuple(row) for row in found] == [(1, TEXTS[2]), (2, TEXTS[3])]
