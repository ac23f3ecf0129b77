"""Columns that a feed has in snapshots only, or no more: seen across jobs, whichever place reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.sinks import FileSink
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import ChangeFormat, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.test_merge_feeds import event, lines, maxwell
from tests.unit.feed_bed import Row

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "upper", StringType()),
    NestedField(4, "own", StringType()),  # no feed has it
)
#: The source is read in Spark's tasks, the rest is done in the driver.
READ_IN_SPARK = replace(USUAL_SHARE, source_bytes=0)
HERE_AND_IN_SPARK = pytest.mark.parametrize("limits", [USUAL_SHARE, READ_IN_SPARK], ids=["driver", "spark"])
GENERATED = {"generated": {"upper": "'u' || name"}}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    yield made
    made.catalog.close()


class Feed:
    """Jobs of one feed, one after the other; a message a log position."""

    def __init__(self, bed: MergeBed, tool: ChangeFormat = ChangeFormat.DEBEZIUM) -> None:
        self.bed, self.tool, self.lsn, self.jobs = bed, tool, 0, 0

    def message(self, op: str, row: Row, **more: Any) -> Row:
        self.lsn += 1
        snapshot = {"snapshot": "true"} if op == "r" else {}
        sequence = json.dumps([str(self.lsn - 1), str(self.lsn)])
        return event(op, self.lsn, after=row, **{"sequence": sequence, **snapshot, **more})

    def merge(self, *messages: Row, **source: Any) -> JobReport:
        self.jobs += 1
        path = lines(self.bed, f"{self.jobs}.json", *messages)
        spec = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=self.tool, **source)
        request = self.bed.request(task_of("", source=spec, when_matched=(), when_not_matched=()))
        told = self.bed.root / "report.json"
        reporter = Reporter(request, FileSink(told))
        reporter.finish(run_merge(request, reporter, share=self.bed.limits))
        return JobReport.from_json(told.read_text())

    def rows(self) -> dict[int, Any]:
        return {row["id"]: row["upper"] for row in self.bed.table().scan().to_arrow().to_pylist()}


def row(number: int, name: str, **more: Any) -> Row:
    return {"id": number, "name": name, **more}


@HERE_AND_IN_SPARK
@pytest.mark.usefixtures("spark")
def test_a_generated_column_is_refused_until_it_is_declared(
    bed: MergeBed, limits: DriverShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.runs.merging.slices.slicing.SLICE_BYTES", 300)  # in Spark, several slices
    bed.limits, feed = limits, Feed(bed)
    snapshot = [feed.message("r", row(n, f"n{n}", upper=f"un{n}")) for n in range(6)]
    changes = [feed.message("u", row(1, "new")), feed.message("c", row(9, "c"))]
    with pytest.raises(BadData, match=r"1 column \('upper'\) and changes do not.*source.generated") as caught:
        feed.merge(*snapshot, *changes)
    assert (caught.value.reason, feed.rows()) == (Reason.SOURCE_COLUMN_MISSING, {})
    feed.merge(*snapshot)
    before = bed.rows()
    with pytest.raises(BadData, match=r"'upper'"):
        feed.merge(*changes)
    assert bed.rows() == before, "snapshot and changes in different jobs"
    feed.merge(*changes, **GENERATED)
    assert feed.rows() == {0: "un0", 1: "unew", 2: "un2", 3: "un3", 4: "un4", 5: "un5", 9: "uc"}
    with pytest.raises(BadData, match=r"'upper'"):
        feed.merge(feed.message("u", row(2, "x")))
    feed.merge(feed.message("u", row(2, "x")), generated={"upper": "null"})
    assert (feed.rows()[2], feed.rows()[3]) == (None, "un3")


#: What PostgreSQL 15 had in the end. `size` was added with the default 7, which old rows have without a message.
LINES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "amount", LongType()),
    NestedField(4, "total", DecimalType(9, 2)),
)
SELECTED = [(1, "1.50", 5, "7.50"), (4, "2.00", 7, "14.00"), (5, "9.99", 1, "9.99"), (6, "1.00", 1, "1.00"),
            (30, None, 1, None)]  # fmt: skip


@pytest.mark.parametrize("tool", [ChangeFormat.DEBEZIUM, ChangeFormat.DEBEZIUM_FLAT])
def test_recorded_messages_of_a_generated_column_become_the_rows_of_the_database(
    tmp_path: Path, tool: ChangeFormat
) -> None:
    """Written by Debezium 3.6.1 of `total numeric(9,2) generated always as (price * amount) stored`."""
    bed = MergeBed(tmp_path)
    bed.create(LINES)
    feed = Feed(bed, tool)
    recorded = (Path(__file__).parent / "recorded" / "generated" / f"{tool}.json").read_text().splitlines()
    messages = [json.loads(message) for message in recorded]
    feed.merge(*messages[:3])
    with pytest.raises(BadData, match=r"1 column \('total'\)"):
        feed.merge(*messages[3:])
    feed.merge(*messages[3:], generated={"total": "round(price * amount, 2)"})
    rows = bed.table().scan().to_arrow().sort_by("id").to_pylist()
    exact = [tuple(str(value) if isinstance(value, Decimal) else value for value in row.values()) for row in rows]
    assert exact == SELECTED
    bed.catalog.close()


@HERE_AND_IN_SPARK
@pytest.mark.usefixtures("spark")
def test_a_generated_column_is_added_by_the_snapshot_that_has_it(bed: MergeBed, limits: DriverShare) -> None:
    bed.limits, feed = limits, Feed(bed)
    settings: Any = {"unknown_columns": UnknownColumns.ADD, "generated": {"twice": "name || extra"}}
    with pytest.raises(BadSpec, match="the table has no column 'twice'"):
        feed.merge(feed.message("c", row(1, "a")), **settings)
    feed.merge(
        feed.message("r", row(1, "a", extra="b", twice="ab")), feed.message("u", row(1, "c", extra="d")), **settings
    )
    (found,) = bed.table().scan().to_arrow().to_pylist()
    assert (found["extra"], found["twice"]) == ("d", "cd")


def test_a_declaration_is_remembered_when_it_is_removed(bed: MergeBed) -> None:
    feed = Feed(bed)
    feed.merge(feed.message("c", row(1, "a")), **GENERATED)
    with pytest.raises(BadData, match=r"'upper'"):
        feed.merge(feed.message("u", row(1, "b")))


def test_columns_that_the_feed_never_has_are_left_alone(bed: MergeBed) -> None:
    feed = Feed(bed)
    feed.merge(*(feed.message("r", row(n, "x")) for n in range(3)))
    report = feed.merge(feed.message("u", row(1, "y")))
    assert not report.gone_columns
    assert "no value for 2 columns of the table: 'upper', 'own'" in report.message


@HERE_AND_IN_SPARK
@pytest.mark.usefixtures("spark")
def test_a_dropped_column_is_named_in_every_job_after_it(bed: MergeBed, limits: DriverShare) -> None:
    bed.limits, feed = limits, Feed(bed)
    feed.merge(feed.message("r", row(1, "a", upper="A")), feed.message("c", row(2, "b", upper="B")))
    for _ in range(2):
        report = feed.merge(feed.message("u", row(1, "c")))
        assert report.gone_columns == ("upper",)
        assert "no longer has 1 column of the table that earlier jobs merged: 'upper'" in report.message
        assert "'own'" in report.message
    assert feed.rows() == {1: "A", 2: "B"}
    assert feed.merge(event("d", 99, before={"id": 2})).gone_columns == ("upper",), "deletes have keys only"
    assert feed.merge(feed.message("u", row(1, "d", upper=None))).gone_columns == ()
    assert feed.merge(event("d", 99, before={"id": 2})).gone_columns == ()


def test_a_new_snapshot_tells_that_a_column_was_dropped_before_any_change(bed: MergeBed) -> None:
    feed = Feed(bed)
    feed.merge(feed.message("r", row(1, "a", upper="A")))
    change = feed.message("u", row(1, "b"))
    with pytest.raises(BadData, match="merge a new snapshot"):
        feed.merge(change)
    report = feed.merge(change, feed.message("r", row(1, "b")))
    assert report.gone_columns == ("upper",)
    assert feed.merge(feed.message("u", row(1, "c"))).gone_columns == ()


def test_changes_from_before_a_column_was_added_are_no_sign(bed: MergeBed) -> None:
    """An incremental snapshot has the column that changes before it lack."""
    feed = Feed(bed)
    feed.merge(
        feed.message("c", row(1, "a")),
        feed.message("r", row(1, "a", upper="A")),
        feed.message("u", row(1, "b", upper="B")),
    )
    assert feed.rows() == {1: "B"}
    feed.merge(feed.message("c", row(2, "c")), feed.message("r", row(3, "d", own="D")))
    with pytest.raises(BadData, match="'own'"):
        feed.merge(feed.message("c", row(4, "e", upper="E")))


def test_feeds_of_other_tables_have_columns_of_their_own(bed: MergeBed) -> None:
    feed = Feed(bed)
    feed.merge(feed.message("r", row(1, "a", upper="A")))
    feed.merge(feed.message("c", row(2, "b"), table="other"))
    tool = Feed(bed, ChangeFormat.MAXWELL)
    tool.jobs = 10
    tool.merge(maxwell("bootstrap-insert", row(3, "c", own="x")))
    report = tool.merge(maxwell("insert", row(4, "d")))  # with output_nulls=false, Maxwell leaves nulls out
    assert report.gone_columns == ("own",)
    assert len([name for name in bed.table().properties if name.startswith("skipstone.feed.")]) == 3
