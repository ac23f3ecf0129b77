"""What a merge refuses: one sentence that names the place and the way out, and the table stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, UUIDType
from skipstone.runs.merging import source as merge_source
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.requests import (
    ColumnMapping,
    ColumnSpec,
    MergeAction,
    MergeClause,
    MergeTask,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import ALL_IN_SPARK, DELETE_D, INSERT, UPDATE, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "n", LongType()),
)
FEED = pa.table({"id": [1, 2], "name": ["a", "b"], "n": [1, 2], "op": ["U", "D"]})


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    made.append([{"id": i, "name": f"name {i}", "n": i} for i in range(5)])
    yield made
    made.catalog.close()


def refused(bed: MergeBed, task: MergeTask) -> UserError:
    """The error of a merge that must leave nothing behind."""
    rows, files, head = bed.rows(), bed.on_disk(), bed.table().metadata_location
    with pytest.raises(UserError) as caught:
        bed.merge(task)
    assert bed.rows() == rows
    assert bed.on_disk() == files
    assert bed.table().metadata_location == head
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"keys": [("nope", "id")]}, Reason.KEY_COLUMN_MISSING, "spec.keys[0]: the table has no column 'nope'"),
        ({"keys": [("id", "nope")]}, Reason.KEY_COLUMN_MISSING, "spec.keys[0]: the source has no column 'nope'"),
        (
            {"keys": [("id", "op")]},
            Reason.KEY_TYPE_MISMATCH,
            "spec.keys[0]: 'id' is long in the table but 'op' is string",
        ),
        (
            {"when_matched": (replace(DELETE_D, when="source.op = "),)},
            Reason.INVALID_SPEC,
            "spec.whenMatched[0].when: at position 13: the text ends too early",
        ),
        (
            {"when_matched": (replace(DELETE_D, when="target.nope = 1"),)},
            Reason.INVALID_SPEC,
            "spec.whenMatched[0].when: there is no column target.nope",
        ),
        (
            {"when_not_matched": (replace(INSERT, when="source.nope = 1"),)},
            Reason.INVALID_SPEC,
            "spec.whenNotMatched[0].when: there is no column source.nope",
        ),
        (
            {"target_where": "target.nope = 1"},
            Reason.INVALID_SPEC,
            "spec.targetWhere: there is no column target.nope",
        ),
        ({"sequence_by": "nope"}, Reason.SOURCE_COLUMN_MISSING, "spec.sequenceBy: the source has no column 'nope'"),
        ({"time_zone": "Mars/Olympus"}, Reason.INVALID_SPEC, "Mars/Olympus"),
        (
            {"when_not_matched": (replace(INSERT, values={"id": "id"}),)},
            Reason.SOURCE_COLUMN_MISSING,
            "'name' is required in the table and nothing feeds it",
        ),
    ],
)
def test_a_task_that_does_not_fit_is_refused(
    bed: MergeBed, fields: dict[str, Any], reason: Reason, message: str
) -> None:
    error = refused(bed, task_of(bed.source(FEED), **fields))
    assert error.reason is reason
    assert message in str(error)
    assert isinstance(error, BadSpec)


def test_duplicate_keys_without_a_sequence_are_refused_by_name(bed: MergeBed) -> None:
    feed = pa.concat_tables([FEED, FEED.slice(1)])
    error = refused(bed, task_of(bed.source(feed)))
    assert isinstance(error, BadData)
    assert error.reason is Reason.DUPLICATE_SOURCE_KEYS
    assert "the same key in id:" in str(error)
    assert "spec.sequenceBy" in str(error)


def test_the_last_change_of_each_key_wins(bed: MergeBed) -> None:
    rows = [{"id": i % 3, "name": f"change {i}", "n": 100 + i, "op": "U", "seq": (i * 7) % 20} for i in range(20)]
    report = bed.merge(task_of(bed.source(rows), sequence_by="seq"))
    last = {i: max((row for row in rows if row["id"] == i), key=lambda row: int(str(row["seq"]))) for i in range(3)}
    found = {row["id"]: row["name"] for row in bed.table().scan().to_arrow().to_pylist()}
    assert found == {**{i: row["name"] for i, row in last.items()}, 3: "name 3", 4: "name 4"}
    assert report.counts["rowsSource"] == 20
    assert report.counts["rowsUpdated"] == 3


CSV = "id,name,n,op,seq\n1,late,5,U,10\n1,early,4,U,9\n7,new,1,U,1\n"


def csv(bed: MergeBed, *columns: ColumnSpec, content: str = CSV) -> SourceSpec:
    path = bed.text("feed.csv", content)
    return SourceSpec(format=SourceFormat.CSV, paths=(path,), options={"header": "true"}, columns=columns)


def test_a_csv_sequence_without_a_type_is_refused(bed: MergeBed) -> None:
    error = refused(bed, task_of("", source=csv(bed), sequence_by="seq"))
    assert "declare it in spec.source.columns" in str(error)


def test_a_csv_sequence_with_a_type_orders_by_number(bed: MergeBed) -> None:
    bed.merge(task_of("", source=csv(bed, ColumnSpec(name="seq", type="long")), sequence_by="seq"))
    found = {row["id"]: row["name"] for row in bed.table().scan().to_arrow().to_pylist()}
    assert found[1] == "late"
    assert found[7] == "new"


def test_rows_that_do_not_fit_are_refused_with_file_and_column_and_no_value(bed: MergeBed) -> None:
    error = refused(bed, task_of("", source=csv(bed, content="id,name,n,op\n1,a,1,U\nx1,b,2,U\n")))
    assert error.reason is Reason.BAD_RECORDS
    assert "feed.csv: column 'id'" in str(error)
    assert "x1" not in str(error)


def test_a_null_in_a_required_column_is_refused(bed: MergeBed) -> None:
    feed = pa.table({"id": [1, 9], "name": pa.array([None, None], pa.string()), "n": [5, 6], "op": ["U", "U"]})
    error = refused(bed, task_of(bed.source(feed)))
    assert error.reason is Reason.BAD_RECORDS
    assert "'name' is required" in str(error)


def test_what_finished_tasks_wrote_is_discarded_when_the_inserts_fail(bed: MergeBed) -> None:
    feed = pa.table({"id": [1, 9], "name": pa.array(["fine", None], pa.string()), "n": [5, 6], "op": ["U", "U"]})
    assert refused(bed, task_of(bed.source(feed))).reason is Reason.BAD_RECORDS


def test_a_source_that_is_missing_or_outside_is_refused(bed: MergeBed) -> None:
    assert refused(bed, task_of("feeds/nothing")).reason is Reason.SOURCE_NOT_FOUND
    assert refused(bed, task_of("../secrets")).reason is Reason.PATH_OUTSIDE_WAREHOUSE


@pytest.mark.parametrize(("limits", "reader"), [(ALL_IN_SPARK, "read_source"), (USUAL_SHARE, "find_plain")])
def test_a_source_that_changes_while_it_is_read_is_refused(
    bed: MergeBed, monkeypatch: pytest.MonkeyPatch, limits: DriverShare, reader: str
) -> None:
    bed.limits = limits
    path = bed.source(FEED)
    original = getattr(merge_source, reader)

    def changed(*arguments: Any) -> Any:
        read = original(*arguments)
        bed.source(FEED.slice(1))
        return read

    monkeypatch.setattr(merge_source, reader, changed)
    assert refused(bed, task_of(path)).reason is Reason.SOURCE_CHANGED


def test_mapping_feeds_columns_of_other_names(bed: MergeBed) -> None:
    feed = pa.table({"key": [1, 8], "label": ["x", "y"]})
    source = SourceSpec(
        format=SourceFormat.PARQUET, paths=(bed.source(feed),), mapping=(ColumnMapping(column="name", from_="label"),)
    )
    bed.merge(task_of("", [("id", "key")], source=source))
    found = {row["id"]: (row["name"], row["n"]) for row in bed.table().scan().to_arrow().to_pylist()}
    assert found[1] == ("x", 1)
    assert found[8] == ("y", None)


def test_uuid_keys_in_text_match_uuid_columns(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    bed.create(Schema(NestedField(1, "id", UUIDType()), NestedField(2, "v", StringType())))
    first, second = "00000000-0000-0000-0000-00000000ab01", "00000000-0000-0000-0000-000000000002"
    bed.append([{"id": bytes.fromhex(first.replace("-", "")), "v": "old"}])
    content = f"id,v\n{first.upper()},new\n{second},added\n"
    report = bed.merge(task_of("", source=csv(bed, content=content)))
    assert report.counts["rowsUpdated"] == 1
    assert report.counts["rowsInserted"] == 1


def test_a_merge_that_changes_nothing_commits_its_transaction(bed: MergeBed) -> None:
    before, paths = bed.rows(), bed.paths()
    clause = MergeClause(action=MergeAction.UPDATE, when="source.op = 'X'")
    task = task_of(bed.source(FEED), when_matched=(clause,), when_not_matched=())
    uid = "bbbbbbbb-0000-0000-0000-000000000000"
    report = bed.merge(task, uid)
    assert report.snapshot_id == "0"
    assert report.counts["rowsMatched"] == 2
    assert report.counts["filesTouched"] == 1
    assert report.counts["filesRewritten"] == 0
    assert (bed.rows(), bed.paths()) == (before, paths)
    assert bed.merge(task, uid).reason is Reason.ALREADY_COMMITTED


def test_a_settled_job_needs_no_source_and_no_spark(bed: MergeBed, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = "cccccccc-0000-0000-0000-000000000000"
    task = task_of(bed.source(FEED), when_matched=(DELETE_D, UPDATE))
    bed.merge(task, uid)

    def no_spark(*_: object) -> None:
        raise AssertionError("a settled job must not start Spark")

    monkeypatch.setattr("skipstone.runs.merging.merge.spark_session", no_spark)
    gone = replace(task, source=replace(task.source, paths=("feeds/gone",)))
    request = bed.request(gone, uid)
    assert run_merge(request, Reporter(request)).reason is Reason.ALREADY_COMMITTED
