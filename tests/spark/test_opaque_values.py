"""Columns that are moved as they are, in tables of PyIceberg's: what is read of them, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType
from skipstone.query import read
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import (
    ChangeFormat,
    LoadTask,
    MergeAction,
    MergeClause,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import DELETE, INSERT, UPDATE, MergeBed, task_of

#: The number 1 as a variant, and a point as WKB.
ONE = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}
POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")
ROWS = [{"id": 1, "name": "a", "v": ONE, "g": POINT, "st": {"w": ONE}}, {"id": 2, "name": None, "v": None, "g": None}]


def kind(text: str) -> IcebergType:
    """The type of that name."""
    return IcebergType.model_validate(text)


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "v", kind("variant")),
    NestedField(4, "g", kind("geography(OGC:CRS84, karney)")),
    NestedField(5, "x", kind("unknown")),
    NestedField(6, "st", StructType(NestedField(7, "w", kind("variant"), required=False)), required=False),
)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA, **{"format-version": "3"})
    made.append(ROWS)
    yield made
    made.catalog.close()


def test_files_hold_the_types_that_the_schema_names(bed: MergeBed) -> None:
    (path,) = bed.paths()
    told = str(pq.ParquetFile(path).schema)
    assert "optional group field_id=3 v (Variant(1)) {" in told
    assert "optional binary field_id=4 g (Geography(crs=OGC:CRS84, algorithm=karney));" in told
    assert "group field_id=7 w (Variant(1)) {" in told
    assert " x" not in told
    assert duckdb.sql(f"select id, v::varchar, st.w::varchar from '{path}' order by id").fetchall() == [
        (1, "1", "1"),
        (2, None, None),
    ]


def test_values_are_read_as_they_are(bed: MergeBed) -> None:
    expected = [{"x": None, "st": None} | row for row in ROWS]
    assert read(bed.table()).sort_by("id").to_pylist() == expected
    assert read(bed.table(), ["id"], "v is not null and x is null").to_pylist() == [{"id": 1}]
    assert read(bed.table(), ["g"], "id = 1").to_pylist() == [{"g": POINT}]


@pytest.mark.parametrize("text", ["v = 1", "g = 'x'", "x = 1", "v in (1, 2)"])
def test_conditions_on_values_are_refused(bed: MergeBed, text: str) -> None:
    with pytest.raises(BadSpec, match=r"variant|geography|unknown") as refused:
        read(bed.table(), ["id"], text)
    assert refused.value.field == "filter"


@pytest.mark.parametrize("name", ["v", "g", "x", "st"])
def test_no_index_holds_them(bed: MergeBed, name: str) -> None:
    lake = Lake(bed.root)
    for index in (index_on(name), index_on("id", include=(name,)), index_on(name, buckets=4)):
        with pytest.raises(UserError, match=f"column '{name}' is a") as refused:
            lake.reindex(index)
        assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED


def load(bed: MergeBed, rows: pa.Table) -> None:
    """Load a Parquet file."""
    source = SourceSpec(format=SourceFormat.PARQUET, paths=(bed.source(rows, "load"),))
    request = bed.request(task_of("none"))
    request = replace(request, kind=RunKind.LOAD, owner_kind="LoadJob", merge=None, load=LoadTask(source=source))
    report = run_load(request, Reporter(request))
    assert report.outcome is RunOutcome.COMMITTED, report.message


@pytest.mark.parametrize("name", ["v", "g", "x", "st"])
def test_a_load_refuses_a_source_that_names_them(bed: MergeBed, name: str) -> None:
    with pytest.raises(BadSpec, match=f"column '{name}' of the table is .*: leave it out of the source") as refused:
        load(bed, pa.table({"id": [3], name: ["1"]}))
    assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    load(bed, pa.table({"id": [3], "name": ["c"]}))
    assert read(bed.table(), None, "id = 3").to_pylist() == [
        {"id": 3, "name": "c", "v": None, "g": None, "x": None, "st": None}
    ]


@pytest.mark.parametrize("name", ["v", "g", "x"])
def test_a_merge_refuses_to_give_them_values_and_goes_on_without(bed: MergeBed, name: str) -> None:
    feed = bed.source(pa.table({"id": [1, 3], "name": ["one", "three"], name: ["1", "2"]}))
    for clauses in ({}, {"when_matched": (MergeClause(action=MergeAction.UPDATE, values={name: "source.name"}),)}):
        with pytest.raises(BadSpec, match=f"'{name}' is .* in the table, and Skipstone moves its values") as refused:
            bed.merge(task_of(feed, **clauses))
        assert refused.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    chosen = {"name": "source.name"}
    bed.merge(
        task_of(
            feed,
            when_matched=(replace(UPDATE, values=chosen),),
            when_not_matched=(replace(INSERT, values={"id": "source.id", **chosen}),),
        )
    )
    assert {row["id"]: (row["name"], row["v"]) for row in read(bed.table()).to_pylist()} == {
        1: ("one", ONE),
        2: (None, None),
        3: ("three", None),
    }


def test_null_is_a_value_that_a_merge_can_give(bed: MergeBed) -> None:
    nulls: dict[str, Any] = {"v": "null", "g": "null", "x": "null"}
    bed.merge(task_of(bed.source([{"id": 1}]), when_matched=(replace(UPDATE, values=nulls),)))
    assert {(row["v"], row["g"], row["name"]) for row in read(bed.table()).to_pylist()} == {
        (None, None, "a"),
        (None, None, None),
    }


def test_a_required_column_is_never_inserted(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    schema = Schema(SCHEMA.fields[0], SCHEMA.fields[1], NestedField(3, "v", kind("variant"), required=True))
    bed.create(schema, **{"format-version": "3"})
    bed.append([{"id": 1, "name": "a", "v": ONE}, {"id": 2, "name": "b", "v": ONE}])
    changes = [{"id": 1, "name": "one"}, {"id": 3, "name": "three"}]
    feed = bed.source(changes)
    with pytest.raises(BadSpec, match="'v' is variant and required in the table"):
        bed.merge(task_of(feed))
    with pytest.raises(BadSpec, match=r"column 'v' of the table is variant, .*: make the column optional"):
        load(bed, pa.table({"id": [3], "name": ["c"]}))
    bed.merge(task_of(feed, when_not_matched=()))
    bed.merge(task_of(bed.source([{"id": 2}], "gone"), when_matched=(DELETE,), when_not_matched=()))
    assert read(bed.table()).to_pylist() == [{"id": 1, "name": "one", "v": ONE}]
    with bed.table().update_schema() as change:
        change.make_column_optional("v")
    report = bed.merge(task_of(bed.source([*changes, {"id": 4, "name": "four"}], "more")))
    assert report.outcome is RunOutcome.COMMITTED, (report.reason, report.message)
    assert sorted(read(bed.table(), ["id"])["id"].to_pylist()) == [1, 3, 4]
    bed.catalog.close()


def test_a_change_feed_refuses_a_message_that_names_one(bed: MergeBed) -> None:
    message = (
        '{"database":"d","table":"t","type":"update","xid":1,"commit":true,"position":"a.1:4","data":{"id":1,"v":"1"}}'
    )
    source = SourceSpec(
        format=SourceFormat.JSON, paths=(bed.text("feed.json", message + "\n"),), change_format=ChangeFormat.MAXWELL
    )
    with pytest.raises(BadData, match="'v' is variant"):
        bed.merge(task_of("", source=source, when_matched=(), when_not_matched=()))
