"""Merges refuse names that are probably meant otherwise, tell what nothing uses, and account for every source row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import JobReport, UnusedColumn
from skipstone_core.contract.requests import (
    ColumnMapping,
    MergeAction,
    MergeClause,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from tests.spark.formats import WRITERS
from tests.spark.merge_bed import ALL_IN_SPARK, DELETE_D, INSERT, UPDATE, MergeBed, task_of

USERS = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "UserCode", StringType()), NestedField(3, "city", StringType())
)
READERS = [pytest.param(USUAL_SHARE, id="driver"), pytest.param(ALL_IN_SPARK, id="spark")]


@pytest.fixture
def bed(tmp_path: Path) -> MergeBed:
    found = MergeBed(tmp_path)
    found.create(USERS)
    found.append([{"id": 1, "UserCode": "a", "city": "x"}, {"id": 2, "UserCode": "b", "city": "y"}])
    return found


def parquet(path: str, **fields: Any) -> SourceSpec:
    return SourceSpec(format=SourceFormat.PARQUET, paths=(path,), **fields)


def refused(bed: MergeBed, rows: list[Mapping[str, Any]], **fields: Any) -> str:
    before = bed.rows()
    with pytest.raises(BadData) as caught:
        bed.merge(task_of(bed.source(rows), **fields))
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED
    assert bed.rows() == before
    return str(caught.value)


@pytest.mark.parametrize("name", ["usercode", "UserCode ", "USERCODE"])
def test_a_name_in_other_letters_is_refused_with_the_mapping_that_takes_it(bed: MergeBed, name: str) -> None:
    rows = [{"id": 1, name: "new", "city": "z"}]
    said = refused(bed, rows)
    assert f'{{column: "UserCode", from: "{name}"}}' in said
    mapping = (ColumnMapping(column="UserCode", from_=name),)
    bed.merge(task_of("", source=parquet(bed.source(rows), mapping=mapping)))
    assert "(1, 'new', 'z')" in bed.rows()


def test_a_file_with_neither_columns_nor_rows_is_no_reason_to_refuse_the_others(bed: MergeBed) -> None:
    path = bed.source([{"id": 1, "UserCode": "new", "city": "z"}])
    pq.write_table(pa.table({}), bed.root / path / "part-1.parquet")
    bed.merge(task_of(path))
    assert "(1, 'new', 'z')" in bed.rows()


def test_clauses_that_choose_their_columns_may_leave_any_out(bed: MergeBed) -> None:
    update = MergeClause(action=MergeAction.UPDATE, values={"city": "source.city"})
    rows = [{"id": 1, "usercode": "new", "city": "z"}]
    report = bed.merge(task_of(bed.source(rows), when_matched=(update,), when_not_matched=()))
    assert report.unused_columns == (UnusedColumn(name="usercode", rows=1),)
    assert "(1, 'a', 'z')" in bed.rows()


def test_a_merge_that_would_write_nothing_but_keys_is_refused(bed: MergeBed) -> None:
    said = refused(bed, [{"id": 1, "code": "new", "town": "z"}])
    assert "none of them feeds a column of the table" in said
    assert '{column: "UserCode", from: "code"}' in said


@pytest.mark.parametrize(
    ("row", "tool"),
    [
        ({"id": 1, "city": "q", "__deleted": "true", "__op": "d"}, "DebeziumFlat"),
        ({"id": 1, "city": "q", "after": {"id": 1}, "op": "c", "source": {"lsn": 1}}, "Debezium"),
        ({"id": 1, "city": "q", "database": "d", "table": "t", "type": "insert", "data": {"id": 1}}, "Maxwell"),
    ],
)
def test_a_change_feed_merged_as_plain_files_is_refused_with_its_change_format(
    bed: MergeBed, row: dict[str, Any], tool: str
) -> None:
    assert f"set source.changeFormat to {tool}" in refused(bed, [row])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("share", READERS)
def test_every_source_row_is_accounted_for_and_unused_columns_are_told(
    bed: MergeBed, spark: SparkSession, share: DriverShare
) -> None:
    bed.limits = share
    rows = [
        {"id": 1, "city": "q", "op": "U", "seq": 2, "more": "m", "deep": {"x": 1}},
        {"id": 1, "city": "p", "op": "U", "seq": 1, "more": None, "deep": None},
        {"id": 2, "city": "q", "op": "D", "seq": 1, "more": "m", "deep": None},
        {"id": 3, "city": "q", "op": "D", "seq": 1, "more": None, "deep": None},
        {"id": 4, "city": "q", "op": "U", "seq": 1, "more": "m", "deep": None},
    ]
    insert = MergeClause(action=MergeAction.INSERT, when="source.op != 'D'")
    report = bed.merge(
        task_of(bed.source(rows), when_matched=(DELETE_D, UPDATE), when_not_matched=(insert,), sequence_by="seq")
    )
    counts = report.counts
    assert (counts["rowsUpdated"], counts["rowsDeleted"], counts["rowsInserted"]) == (1, 1, 1)
    parts = [counts[name] for name in ("rowsMatching", "rowsInserted", "rowsUnmatched", "rowsSuperseded")]
    assert parts == [2, 1, 1, 1]
    assert sum(parts) == counts["rowsSource"] == 5
    assert report.unused_columns == (UnusedColumn(name="more", rows=3), UnusedColumn(name="deep"))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("kind", "share"),
    [
        *((kind, ALL_IN_SPARK) for kind in WRITERS if kind is not SourceFormat.PARQUET),
        (SourceFormat.AVRO, USUAL_SHARE),
    ],
)
def test_rows_of_every_format_are_accounted_for(bed: MergeBed, kind: SourceFormat, share: DriverShare) -> None:
    bed.limits = share
    rows = [
        {"id": 1, "city": "q", "op": "U", "more": "m"},
        {"id": 2, "city": "q", "op": "D", "more": None},
        {"id": 3, "city": "q", "op": "D", "more": "m"},
        {"id": 4, "city": "q", "op": "U", "more": None},
    ]
    path = bed.root / "feeds" / f"changes.{kind.lower()}"
    path.parent.mkdir(parents=True)
    path.write_bytes(WRITERS[kind](rows))
    options = {"header": "true"} if kind is SourceFormat.CSV else {}
    spec = SourceSpec(format=kind, paths=(f"feeds/{path.name}",), options=options)
    insert = MergeClause(action=MergeAction.INSERT, when="source.op != 'D'")
    report = bed.merge(task_of("", source=spec, when_matched=(DELETE_D, UPDATE), when_not_matched=(insert,)))
    parts = [report.counts[name] for name in ("rowsMatching", "rowsInserted", "rowsUnmatched", "rowsSuperseded")]
    assert (parts, report.counts["rowsSource"]) == ([2, 1, 1, 0], 4)
    assert report.unused_columns == (UnusedColumn(name="more", rows=2),)
    assert bed.rows() == ["(1, 'a', 'q')", "(4, None, 'q')"]


def test_unknown_columns_are_refused_or_added_as_the_source_asks(bed: MergeBed) -> None:
    rows = [{"id": 1, "city": "q", "more": 7}]
    with pytest.raises(BadData, match=r"the table does not have 1 column \('more'\)"):
        bed.merge(task_of("", source=parquet(bed.source(rows), unknown_columns=UnknownColumns.REFUSE)))
    report = bed.merge(task_of("", source=parquet(bed.source(rows), unknown_columns=UnknownColumns.ADD)))
    assert report.unused_columns == ()
    assert "(1, 'a', 'q', 7)" in bed.rows()


def test_keys_alone_may_be_inserted_where_the_source_has_no_more(bed: MergeBed) -> None:
    report: JobReport = bed.merge(task_of(bed.source([{"id": 9}]), when_matched=(), when_not_matched=(INSERT,)))
    assert report.counts["rowsInserted"] == 1


@pytest.mark.parametrize("key", ["id", "ID"])
def test_records_with_one_of_two_like_names_are_refused(bed: MergeBed, key: str) -> None:
    rows = [{"id": 1, "UserCode": "new", "city": "z"}, {key: 2, "usercode" if key == "id" else "UserCode": "late"}]
    (bed.root / "in").mkdir()
    (bed.root / "in" / "a.json").write_text("\n".join(json.dumps(row) for row in rows))
    given = SourceSpec(format=SourceFormat.JSON, paths=("in/a.json",))
    said = "'usercode' and not 'UserCode'" if key == "id" else "'ID' and not 'id'"
    with pytest.raises(BadData, match=rf"some records of 'in/a\.json' have {said}") as caught:
        bed.merge(task_of("", source=given))
    assert caught.value.reason is Reason.SOURCE_COLUMNS_UNUSED
