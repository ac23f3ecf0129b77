"""Loads and merges of small Csv and Json, which the driver does without Spark: the same rows."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import SparkSession
from skipstone.sources.plain import PlainLimits
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.requests import ColumnSpec, MergeAction, MergeClause, MergeTask, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec

from tests.spark.formats import WRITERS
from tests.spark.load_bed import Bed, bad, csv, source
from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, task_of

ALL_IN_SPARK, USUAL = PlainLimits(0, 0), PlainLimits(1_000_000, 64 << 20)
TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "born", DateType()),
    NestedField(4, "price", DecimalType(9, 2)),
    NestedField(5, "weight", DoubleType()),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "good", BooleanType()),
    NestedField(8, "clock", TimeType()),
    NestedField(9, "key", UUIDType()),
)
KEY = "00000000-0000-0000-0000-00000000AB01"
ROW = {
    "id": 1,
    "name": 'a "b", c',
    "born": "2013-1-31",
    "price": "1.50",
    "weight": "-1e5",
    "at": "2013-07-01 10:00",
    "good": "yes",
    "clock": "9:05",
    "key": KEY,
    "more": "unused",
}
EXPECTED = {
    "id": 1,
    "name": 'a "b", c',
    "born": date(2013, 1, 31),
    "price": Decimal("1.50"),
    "weight": -1e5,
    "at": datetime(2013, 7, 1, 8, tzinfo=UTC),
    "good": True,
}


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def written(bed: Bed, kind: SourceFormat) -> SourceSpec:
    """Three files: one packed, one with nulls and fewer columns, one without rows."""
    short = {"id": 2, "name": None}
    if kind is SourceFormat.JSON:
        bed.put("in/1.json.gz", gzip.compress(json.dumps(ROW).encode()))
        bed.put("in/2.json", f"{json.dumps(short)}\r\n\n{json.dumps({'id': 3, 'good': False})}")
        return source(kind, "in")
    names = ",".join(ROW)
    line = ",".join('"{}"'.format(str(value).replace('"', '""')) for value in ROW.values())
    bed.put("in/1.csv.gz", gzip.compress(f"\ufeff{names}\r\n{line}\r\n".encode()))
    bed.put("in/2.csv", "good,id,name\n\n,2,\nFALSE,3,")
    bed.put("in/3.csv", f"{names}\n")
    return csv("in")


@pytest.mark.parametrize("kind", [SourceFormat.CSV, SourceFormat.JSON])
def test_the_rows_and_counts_are_those_of_spark(bed: Bed, spark: SparkSession, kind: SourceFormat) -> None:
    files = written(bed, kind)
    seen = {}
    for name, limits in {"here": None, "by_spark": ALL_IN_SPARK}.items():
        bed.create(TABLE, name)
        report = bed.load(files, name, time_zone="Europe/Madrid", **({"limits": limits} if limits else {}))
        assert ("session" in report.stages_ms) is (name == "by_spark")
        seen[name] = (bed.rows(name), report.counts, report.unused_columns, report.unused_total)
    assert seen["here"] == seen["by_spark"]
    first, *others = bed.rows("here")
    assert EXPECTED.items() <= first.items()
    assert [(row["id"], row["name"], row["good"]) for row in others] == [(2, None, None), (3, None, False)]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (SourceFormat.CSV, "x,late"),
        (SourceFormat.CSV, "3"),
        (SourceFormat.CSV, ",a null in a required column"),
        (SourceFormat.JSON, '{"id": "x"}'),
        (SourceFormat.JSON, "{id: 3"),
    ],
)
def test_rows_that_do_not_fit_are_told_by_spark_and_counted_once(
    bed: Bed, spark: SparkSession, kind: SourceFormat, line: str
) -> None:
    """The good rows above it are not loaded twice."""
    bed.create(TABLE)
    if kind is SourceFormat.CSV:
        content = "id,name\n" + "".join(f"{i},n{i}\n" for i in range(1000)) + line
        files = csv(bed.put("in/1.csv", content))
    else:
        content = "".join(f'{{"id": {i}}}\n' for i in range(1000)) + line
        files = source(kind, bed.put("in/1.json", content))
    report = bed.load(files, bad_records=bad(BadRecordPolicy.DROP))
    assert "session" in report.stages_ms
    assert (report.counts["rowsRead"], report.counts["rowsLoaded"], report.counts["rowsRejected"]) == (1001, 1000, 1)
    assert [row["id"] for row in bed.rows()] == [*range(1000)]


def test_a_pattern_that_none_of_the_columns_needs_is_told_by_spark(bed: Bed, spark: SparkSession) -> None:
    bed.create(TABLE)
    files = csv(bed.put("in/1.csv", "id\n1\n"), options={"timestampFormat": "no pattern"})
    with pytest.raises(BadSpec, match=r"timestampFormat.* is not a pattern that Spark understands"):
        bed.load(files)


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (TABLE, '{"id": 1, "name": "a", "Name": "b"}'),
        (TABLE, '{"id": 1, "more": {}}'),
        (Schema(*TABLE.fields, NestedField(10, "tags", ListType(11, StringType()))), '{"id": 1, "tags": ["a"]}'),
    ],
)
def test_json_of_which_spark_alone_knows_the_columns_is_left_to_it(
    bed: Bed, spark: SparkSession, schema: Schema, content: str
) -> None:
    bed.create(schema)
    report = bed.load(source(SourceFormat.JSON, bed.put("in/1.json", content)))
    assert "session" in report.stages_ms
    assert [row["id"] for row in bed.rows()] == [1]


def test_objects_and_lists_are_text_as_they_are_written(bed: Bed, spark: SparkSession) -> None:
    bed.create(TABLE)
    content = '[{"id": 1, "name": {"a":[1.50, "é\\u0041"] }}, {"id": 2.0e0, "name": [ ]}]'
    files = source(
        SourceFormat.JSON, bed.put("in/1.json", content.replace("2.0e0", "2")), options={"multiLine": "true"}
    )
    report = bed.load(files)
    assert "session" not in report.stages_ms
    assert [row["name"] for row in bed.rows()] == ['{"a":[1.50, "é\\u0041"] }', "[ ]"]


def test_files_that_unpack_to_more_than_the_driver_holds_are_left_to_spark(bed: Bed, spark: SparkSession) -> None:
    for kind, content in {
        SourceFormat.CSV: "id,name\n" + f"1,{'long' * 2_500}\n" * 500,
        SourceFormat.JSON: f'{{"id": 1, "name": "{"long" * 2_500}"}}\n' * 500,
    }.items():
        bed.create(TABLE, str(kind).lower())
        name = bed.put(f"in/1.{kind}.gz", gzip.compress(content.encode()))
        files: Any = csv(name) if kind is SourceFormat.CSV else source(kind, name)
        report = bed.load(files, str(kind).lower(), limits=PlainLimits(rows=1_000, unpacked_bytes=1 << 20))
        assert "session" in report.stages_ms
        assert report.counts["rowsLoaded"] == 500


@pytest.mark.parametrize("in_spark", [False, True])
@pytest.mark.parametrize("kind", [SourceFormat.CSV, SourceFormat.JSON])
def test_folders_that_look_like_partitions_change_no_value(
    bed: Bed, spark: SparkSession, kind: SourceFormat, *, in_spark: bool
) -> None:
    """Spark would take ``id=7`` for the value of a column, and refuses folders of several depths."""
    bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    folders = ("in/id=7", "in/c0=8/name=x", "other")
    for at, folder in enumerate(folders):
        bed.put(f"{folder}/{at}.{str(kind).lower()}", WRITERS[kind]([{"id": at, "name": f"n{at}"}]))
    files = csv(*folders) if kind is SourceFormat.CSV else source(kind, *folders)
    report = bed.load(files, limits=ALL_IN_SPARK if in_spark else USUAL)
    assert ("session" in report.stages_ms) is in_spark
    assert bed.rows() == [{"id": at, "name": f"n{at}"} for at in range(3)]


FEEDS = {
    SourceFormat.CSV: 'op,seq,id,name,more\nU,2,1,"new, one",x\nU,1,1,old,\nD,1,2,,\nU,1,4,added,y\n',
    SourceFormat.JSON: """
{"op": "U", "seq": 2, "id": 1, "name": "new, one", "more": "x"}
{"op": "U", "seq": 1, "id": 1, "name": "old"}
{"op": "D", "seq": 1, "id": 2}
{"op": "U", "seq": 1, "id": 4, "name": "added", "more": "y"}
""",
}


def feed_of(kind: SourceFormat, path: str) -> MergeTask:
    """A merge by ``id`` of the last change of each; the source's own columns have declared types."""
    columns = tuple(ColumnSpec(name=n, type=t) for n, t in {"op": "string", "seq": "long", "more": "string"}.items())
    options = {"header": "true"} if kind is SourceFormat.CSV else {}
    spec = SourceSpec(
        format=kind, paths=(path,), options=options, columns=(*columns, ColumnSpec(name="more", type="string"))
    )
    return task_of(
        "",
        source=spec,
        sequence_by="seq",
        when_matched=(DELETE_D, UPDATE),
        when_not_matched=(MergeClause(action=MergeAction.INSERT, when="source.op != 'D'"),),
    )


@pytest.mark.parametrize("kind", [SourceFormat.CSV, SourceFormat.JSON])
def test_merges_apply_what_spark_would(tmp_path: Path, spark: SparkSession, kind: SourceFormat) -> None:
    seen = {}
    for name, share in {"here": USUAL_SHARE, "by_spark": NO_SHARE}.items():
        (tmp_path / name).mkdir()
        bed = MergeBed(tmp_path / name, share)
        bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
        bed.append([{"id": at, "name": "was"} for at in range(4)])
        report = bed.merge(feed_of(kind, bed.text(f"1.{kind}", FEEDS[kind])))
        assert ("session" in report.stages_ms) is (name == "by_spark")
        seen[name] = (bed.rows(), report.counts, report.unused_columns)
    assert seen["here"] == seen["by_spark"]
    assert seen["here"][0] == ["(0, 'was')", "(1, 'new, one')", "(3, 'was')", "(4, 'added')"]


def test_a_value_that_does_not_fit_fails_a_merge_although_nothing_uses_it(tmp_path: Path, spark: SparkSession) -> None:
    bed = MergeBed(tmp_path)
    bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    bed.append([{"id": 1, "name": "was"}])
    task = feed_of(SourceFormat.CSV, bed.text("1.csv", "id,op,seq,name,more\n1,U,1,a,x\n"))
    source = replace(task.source, columns=(ColumnSpec(name="seq", type="long"), ColumnSpec(name="more", type="int")))
    with pytest.raises(BadData, match="column 'more': the value is not of type int"):
        bed.merge(replace(task, source=source))
