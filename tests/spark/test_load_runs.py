"""Loads end to end: what is in the table afterwards, what the report says, and that it happens once."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone.sources.listing import pinned_source
from skipstone.tables.committing.commits import CommitPorts, NoHooks, abort_txn
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import DuplicatesPolicy, JobRequest, SourceFormat, TableRef
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.spark.killed_app import run_until
from tests.spark.load_bed import Bed, ListSink, again, bad, csv, run, source
from tests.spark.secondengine import second_spark

PEOPLE = Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "name", StringType()))
ANN = [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]


@pytest.fixture
def bed(tmp_path: Path, spark: SparkSession) -> Bed:
    """A warehouse with an empty table ``t`` and the file ``in/a.csv``."""
    bed = Bed(tmp_path)
    bed.create(PEOPLE)
    bed.put("in/a.csv", "id,name\n1,Ann\n2,\n")
    return bed


class Hooks(NoHooks):
    """Does something once, before the first swap."""

    def __init__(self, before: Callable[[], object]) -> None:
        self._before: Callable[[], object] | None = before

    def before_swap(self, table: Table) -> None:
        """Do it."""
        before, self._before = self._before, None
        if before is not None:
            before()


def before_swap(action: Callable[[], object]) -> CommitPorts:
    return CommitPorts(hooks=Hooks(action))


def run_at_once(requests: list[JobRequest]) -> list[JobReport]:
    """Run all, each held before its first swap until every one is there."""
    barrier = threading.Barrier(len(requests))
    ports = [before_swap(lambda: barrier.wait(timeout=800)) for _ in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(run, requests, ports))


def live_files(bed: Bed) -> set[str]:
    return {task.file.file_path.removeprefix("file://") for task in bed.table().scan().plan_files()}


def test_a_csv_file_becomes_one_segment(bed: Bed) -> None:
    report = bed.load(csv("in/a.csv"))
    assert (report.outcome, report.reason) == (RunOutcome.COMMITTED, Reason.COMMITTED)
    assert report.counts == {"rowsRead": 2, "rowsLoaded": 2, "rowsRejected": 0, "segment": 1}
    assert report.snapshot_id == str(bed.table().metadata.current_snapshot_id)
    assert bed.rows() == ANN
    assert set(report.stages_ms) == {"write", "commit"}


def test_each_load_is_a_segment_of_its_own_and_the_report_has_the_tables_state(bed: Bed) -> None:
    bed.load(csv("in/a.csv"))
    report = bed.load(csv(bed.put("in/b.csv", "name,id\nBob,3\n")))
    assert report.counts["segment"] == 2
    (state,) = report.table_states
    assert (state.rows, state.segments.total, state.segments.valid, state.segments.latest) == (3, 2, 2, 2)


@pytest.mark.parametrize("kind", [SourceFormat.JSON, SourceFormat.PARQUET, SourceFormat.ORC])
def test_the_other_formats_load_too(bed: Bed, kind: SourceFormat, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "Ann"), (2, None)], "id int, name string").coalesce(1)
    getattr(frame.write, kind.value.lower())(str(bed.root / "in/spark"))
    assert bed.load(source(kind, "in/spark")).counts["rowsLoaded"] == 2
    assert bed.rows() == ANN


def test_columns_added_later_are_null_for_files_without_them(bed: Bed) -> None:
    with bed.table().update_schema() as change:
        change.add_column("age", LongType())
    bed.load(csv("in/a.csv"))
    assert bed.rows() == [{**row, "age": None} for row in ANN]


def test_a_source_without_rows_commits_once_and_changes_nothing(bed: Bed) -> None:
    request = bed.request(csv(bed.put("in/none.csv", "id,name\n")))
    first, second = run(request), run(again(request))
    assert (first.outcome, first.snapshot_id) == (RunOutcome.COMMITTED, "0")
    assert (second.outcome, second.snapshot_id) == (RunOutcome.ALREADY_COMMITTED, "0")
    assert first.counts == second.counts == {"rowsRead": 0, "rowsLoaded": 0, "rowsRejected": 0}
    assert bed.rows() == [] and bed.data_files() == set()


# Once and only once


def test_a_second_attempt_of_a_committed_load_reports_the_first(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    first, second = run(request), run(again(request))
    assert second.outcome is RunOutcome.ALREADY_COMMITTED
    assert (second.counts, second.snapshot_id) == (first.counts, first.snapshot_id)
    assert bed.rows() == ANN


def test_two_drivers_of_one_load_held_before_the_swap_leave_the_rows_once(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    reports = run_at_once([request, request])
    assert {report.outcome for report in reports} == {RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED}
    assert reports[0].counts == reports[1].counts
    assert bed.rows() == ANN


def test_two_loads_of_one_source_held_before_the_swap_leave_the_rows_once(bed: Bed) -> None:
    reports = run_at_once([bed.request(csv("in/a.csv")), bed.request(csv("in/a.csv"))])
    assert {report.reason for report in reports} == {Reason.COMMITTED, Reason.SOURCE_ALREADY_APPLIED}
    assert bed.rows() == ANN
    assert bed.data_files() == live_files(bed)


def test_two_loads_of_different_sources_held_before_the_swap_both_land(bed: Bed) -> None:
    bed.put("in/b.csv", "id,name\n3,Bob\n")
    reports = run_at_once([bed.request(csv("in/a.csv")), bed.request(csv("in/b.csv"))])
    assert sorted(report.counts["segment"] for report in reports) == [1, 2]
    assert [row["id"] for row in bed.rows()] == [1, 2, 3]


def drive(bed: Bed, request: JobRequest, fatal: str, **environment: str) -> tuple[int, Mapping[str, Any]]:
    """Run the application until it dies of ``fatal``; its exit code and report (empty when it left none)."""
    (bed.root / "request.json").write_text(request.to_json())
    report = bed.root / "report.json"
    report.unlink(missing_ok=True)
    known = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    ours = {"SKIPSTONE_REQUEST": str(bed.root / "request.json"), "SKIPSTONE_REPORT": str(report)}
    ended = run_until("load", fatal, {**known, **ours, **environment}, bed.root)
    return ended.code, json.loads(report.read_text()) if report.exists() else {}


def test_a_driver_killed_right_after_its_commit_is_complete_and_the_next_one_needs_no_jvm(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    code, report = drive(bed, request, "after SqlCatalog.commit_table")
    assert (code, report.get("outcome", "Running")) == (-signal.SIGKILL, "Running")
    assert bed.rows() == ANN
    code, report = drive(bed, again(request), "0", JAVA_HOME="/nonexistent", PATH="/nonexistent")
    assert (code, report["outcome"]) == (0, "AlreadyCommitted")
    assert report["counts"] == {"rowsRead": 2, "rowsLoaded": 2, "rowsRejected": 0, "segment": 1}
    assert bed.rows() == ANN


def test_a_driver_that_wakes_after_the_job_was_given_up_commits_nothing(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    assert request.table is not None
    table: TableRef = request.table
    report = run(request, before_swap(lambda: abort_txn(bed.catalog, table, request.txn)))
    assert (report.outcome, report.reason) == (RunOutcome.FAILED, Reason.ABORTED)
    assert bed.rows() == [] and bed.data_files() == set()
    assert run(again(request)).reason is Reason.ABORTED


def test_a_load_that_was_rolled_back_is_never_applied_again_by_itself(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    bed.load(csv(bed.put("in/b.csv", "id,name\n3,Bob\n")))
    before = bed.table().metadata.current_snapshot_id
    run(request)
    assert before is not None
    bed.table().manage_snapshots().rollback_to_snapshot(before).commit()
    report = run(again(request))
    assert (report.outcome, report.reason) == (RunOutcome.FAILED, Reason.ROLLED_BACK)
    assert [row["id"] for row in bed.rows()] == [3]


def test_the_same_source_under_another_job_is_refused_unless_allowed(bed: Bed) -> None:
    first = bed.request(csv("in/a.csv"))
    run(first)
    report = bed.load(csv("in/a.csv"))
    assert (report.outcome, report.reason) == (RunOutcome.FAILED, Reason.SOURCE_ALREADY_APPLIED)
    assert first.owner_uid in report.message and "source.duplicates to Allow" in report.message
    assert bed.load(csv("in/a.csv", duplicates=DuplicatesPolicy.ALLOW)).counts["segment"] == 2
    assert len(bed.rows()) == 4


def test_a_table_changed_before_the_swap_is_loaded_again_in_its_new_shape(bed: Bed) -> None:
    def add_column() -> None:
        with bed.table().update_schema() as change:
            change.add_column("age", LongType())

    report = run(bed.request(csv("in/a.csv")), before_swap(add_column))
    assert report.outcome is RunOutcome.COMMITTED
    assert bed.rows() == [{**row, "age": None} for row in ANN]
    assert bed.data_files() == live_files(bed)


# Sources that change or cannot be read


def test_a_source_that_changed_between_attempts_is_told(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    assert request.load is not None
    pinned_source(bed.warehouse, request.load.source, request.owner_uid)
    bed.put("in/a.csv", "id,name\n9,Zoe\n")
    with pytest.raises(BadData, match=r"'in/a\.csv' is not the file") as caught:
        run(again(request))
    assert caught.value.reason is Reason.SOURCE_CHANGED
    assert bed.rows() == []


class EditingReporter(Reporter):
    """Lets somebody edit the source when the run says that it begins to read."""

    def __init__(self, request: JobRequest, edit: Callable[[], object]) -> None:
        super().__init__(request, ListSink())
        self._edit = edit

    def progress(self, text: str, counts: Mapping[str, int] | None = None) -> None:
        """Edit once the listing is pinned."""
        if text.startswith("reading"):
            self._edit()


def test_a_source_that_changes_while_it_is_read_leaves_nothing(bed: Bed) -> None:
    request = bed.request(csv("in/a.csv"))
    with pytest.raises(BadData) as caught:
        run_load(request, EditingReporter(request, lambda: bed.put("in/a.csv", "id,name\n1,Eve\n2,\n")))
    assert caught.value.reason is Reason.SOURCE_CHANGED
    assert bed.rows() == [] and bed.data_files() == set()


@pytest.mark.parametrize(
    ("name", "content"),
    [("torn.csv.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03KL"), ("torn.json.gz", b"not gzip")],
)
def test_a_damaged_file_is_told_by_name(bed: Bed, name: str, content: bytes) -> None:
    kind = SourceFormat.CSV if name.startswith("torn.csv") else SourceFormat.JSON
    bed.put(f"in/{name}", content)
    with pytest.raises(BadData, match=f"'in/{name}'") as caught:
        bed.load(source(kind, f"in/{name}"))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE


def test_a_file_damaged_behind_its_header_is_told_by_name(bed: Bed) -> None:
    noise = random.Random(1)
    lines = "".join(f"{i},{noise.random()}\n" for i in range(50_000))
    packed = gzip.compress(f"id,name\n{lines}".encode())
    bed.put("in/torn.csv.gz", packed[: len(packed) // 2])
    with pytest.raises(BadData, match=r"'in/torn\.csv\.gz' cannot be read: .*(EOF|[Ee]nd of)") as caught:
        bed.load(csv("in/torn.csv.gz"))
    assert caught.value.reason is Reason.SOURCE_UNREADABLE
    assert bed.rows() == []


def test_a_format_v1_table_is_refused_before_anything_is_read(bed: Bed, spark: SparkSession) -> None:
    sql = "create table skipstone.ns.modern (id int) using iceberg tblproperties ('format-version' = '1')"
    second_spark(spark, bed.warehouse).sql(sql)
    with pytest.raises(BadSpec, match="format version 1") as caught:
        bed.load(csv("in/gone.csv"), "modern")
    assert caught.value.reason is Reason.FORMAT_VERSION_UNSUPPORTED


def test_a_missing_or_replaced_table_is_told(bed: Bed) -> None:
    with pytest.raises(BadSpec) as caught:
        bed.load(csv("in/a.csv"), "gone")
    assert caught.value.reason is Reason.TABLE_MISSING
    request = bed.request(csv("in/a.csv"))
    assert request.table is not None
    with pytest.raises(BadSpec) as caught:
        run(replace(request, table=replace(request.table, table_uuid="00000000-0000-0000-0000-000000000000")))
    assert caught.value.reason is Reason.TABLE_REPLACED


# Rows that do not fit

MIXED = "id,name\n1,Ann\nx,Bob\n2,\n3\n,Eve\n"


def test_bad_rows_fail_a_load_with_count_and_examples_and_leave_nothing(bed: Bed) -> None:
    with pytest.raises(BadData) as caught:
        bed.load(csv(bed.put("in/mixed.csv", MIXED)))
    assert caught.value.reason is Reason.BAD_RECORDS
    assert str(caught.value).startswith(
        "spec.badRecords: 3 rows do not fit and 0 are allowed; "
        "'in/mixed.csv': column 'id': the value is not of type int; "
        "'in/mixed.csv': the row does not have the 2 fields of the header; "
    )
    assert not any(value in str(caught.value) for value in ("Bob", "Eve", "'x'"))
    assert bed.rows() == [] and bed.data_files() == set()


def test_redirected_rows_stand_readable_in_a_reject_file_and_the_segment_is_partial(bed: Bed) -> None:
    request = bed.request(csv(bed.put("in/mixed.csv", MIXED)), bad_records=bad(BadRecordPolicy.REDIRECT))
    report = run(request)
    assert report.counts == {"rowsRead": 5, "rowsLoaded": 2, "rowsRejected": 3, "segment": 1}
    assert bed.rows() == ANN
    assert report.rejected_path == f".skipstone/rejected/{request.owner_uid}/{request.run_id}"
    (part,) = (bed.root / report.rejected_path).iterdir()
    assert part.name == "part-00000.jsonl"
    assert [json.loads(line) for line in part.read_text().splitlines()] == [
        {"file": "in/mixed.csv", "reason": "column 'id': the value is not of type int", "record": "x,Bob"},
        {"file": "in/mixed.csv", "reason": "the row does not have the 2 fields of the header", "record": "3"},
        {"file": "in/mixed.csv", "reason": "column 'id' is required and holds null", "record": ",Eve"},
    ]
    assert (report.table_states[0].segments.valid, report.table_states[0].segments.partial) == (0, 1)
    assert run(again(request)).rejected_path == report.rejected_path


def test_a_redirecting_load_without_bad_rows_names_no_reject_file(bed: Bed) -> None:
    report = bed.load(csv("in/a.csv"), bad_records=bad(BadRecordPolicy.REDIRECT))
    assert (report.rejected_path, report.counts["rowsRejected"]) == (None, 0)
    assert report.table_states[0].segments.partial == 0


def test_dropped_rows_are_counted_and_the_segment_is_partial(bed: Bed) -> None:
    report = bed.load(csv(bed.put("in/mixed.csv", MIXED)), bad_records=bad(BadRecordPolicy.DROP))
    assert report.counts == {"rowsRead": 5, "rowsLoaded": 2, "rowsRejected": 3, "segment": 1}
    assert report.table_states[0].segments.partial == 1
    assert report.rejected_path is None and bed.rows() == ANN


@pytest.mark.parametrize("policy", [BadRecordPolicy.REDIRECT, BadRecordPolicy.DROP])
def test_more_bad_rows_than_allowed_fail_a_load_and_leave_nothing(bed: Bed, policy: BadRecordPolicy) -> None:
    bed.put("in/mixed.csv", MIXED)
    with pytest.raises(BadData, match="3 rows do not fit and 2 are allowed") as caught:
        bed.load(csv("in/mixed.csv"), bad_records=bad(policy, 2))
    assert caught.value.reason is Reason.BAD_RECORDS
    assert bed.rows() == [] and bed.data_files() == set()
    assert list((bed.root / ".skipstone").rglob("*.jsonl")) == []
    assert bed.load(csv("in/mixed.csv"), bad_records=bad(policy, 3)).counts["rowsRejected"] == 3


def test_a_source_of_bad_rows_only_changes_nothing_and_is_remembered(bed: Bed) -> None:
    report = bed.load(csv(bed.put("in/bad.csv", "id,name\nx,y\n")), bad_records=bad(BadRecordPolicy.DROP))
    assert (report.outcome, report.snapshot_id) == (RunOutcome.COMMITTED, "0")
    assert report.counts == {"rowsRead": 1, "rowsLoaded": 0, "rowsRejected": 1}


@pytest.mark.parametrize("policy", [BadRecordPolicy.FAIL, BadRecordPolicy.REDIRECT], ids=str)
def test_a_json_record_with_bytes_that_are_no_text_is_a_bad_row(bed: Bed, policy: BadRecordPolicy) -> None:
    bed.put("in/a.json", b'{"id": 1, "name": "Ann"}\n{"id": 3, "name": "x\xffy"}\n{"id": 2}\n')
    asked = source(SourceFormat.JSON, "in/a.json")
    if policy is BadRecordPolicy.FAIL:
        with pytest.raises(BadData) as refused:
            bed.load(asked)
        assert refused.value.reason is Reason.BAD_RECORDS
        return
    report = bed.load(asked, bad_records=bad(policy, 1))
    assert (bed.rows(), report.counts["rowsRejected"]) == (ANN, 1)
    assert report.rejected_path is not None
    assert "x\ufffdy" in "".join(path.read_text() for path in (bed.root / report.rejected_path).iterdir())
