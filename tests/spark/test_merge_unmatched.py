"""Deletes and updates that find no row are counted: the same number wherever and however a merge runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from skipstone.runs.merging import rewrite as rewrite_module
from skipstone.runs.merging.merge import run_dry, run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.sinks import FileSink
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import ChangeFormat, SourceFormat, SourceSpec

from tests.spark.merge_bed import ALL_IN_SPARK, DELETE, DELETE_D, INSERT, UPDATE, MergeBed, task_of
from tests.spark.test_merge_feeds import event, flat, lines, maxwell
from tests.unit.feed_bed import ORDERS, Row

PLACES = pytest.mark.parametrize(
    ("limits", "mode"),
    [(USUAL_SHARE, "copy-on-write"), (USUAL_SHARE, "merge-on-read"), (ALL_IN_SPARK, "copy-on-write"),
     (ALL_IN_SPARK, "merge-on-read")],
)  # fmt: skip
DEBEZIUM = [
    event("d", 10, before={"id": 50}),  # no row
    event("d", 11, before={"id": 51}),  # twice: one row
    event("d", 11, before={"id": 51}),
    None,  # the tombstone of a delete
    event("c", 12, after={"id": 52}),  # inserted and deleted by this feed
    event("d", 13, before={"id": 52}),
    event("d", 14, before={"id": 1}),  # the table has it
    event("d", 15, before={"id": 53}),  # no row, and then there is one
    event("c", 16, after={"id": 53, "name": "new"}),
    event("u", 17, after={"id": 54, "name": "as if it were there"}),
    event("u", 18, after={"id": 54, "name": "once more"}),
    event("u", 19, after={"id": 55, "name": "gone again"}),
    event("d", 20, before={"id": 55}),
    event("u", 21, after={"id": 2, "name": "updated"}),
    event("r", 22, after={"id": 56, "name": "snapshot"}),
    event("u", 23, before={"id": 57}, after={"id": 58, "name": "of a key that the table lacks"}),
    event("u", 24, before={"id": 3}, after={"id": 59, "name": "of one that it has"}),
]


ID = {"name": "id", "type": "bigint"}


def wal2json(action: str, new: int | None = None, old: int | None = None) -> Row:
    parts = {"columns": new, "identity": old}
    others = [{"name": "name", "type": "text", "value": "x"}, {"name": "price", "type": "numeric", "value": 1}]
    images = {part: [{**ID, "value": key}, *others] for part, key in parts.items() if key is not None}
    return {"action": action, "lsn": "0/1", "schema": "public", "table": "orders", "pk": [ID], **images}


#: The insert tells all columns that the source has: 'placed' is not one, so that no update leaves it out.
WAL2JSON = [wal2json("I", 102), wal2json("U", 100, 100), wal2json("D", old=101), wal2json("U", 104, 103),
            wal2json("D", old=102)]  # fmt: skip


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def orders(bed: MergeBed, **properties: str) -> None:
    bed.create(ORDERS, **properties)
    bed.append(*([{"id": n + at, "name": f"n{n + at}", "price": Decimal(1)} for at in range(10)] for n in (0, 10)))


def unmatched(counts: Any) -> tuple[int, int]:
    return counts["rowsUnmatchedDeletes"], counts["rowsUnmatchedUpdates"]


def feed(path: str, tool: ChangeFormat = ChangeFormat.DEBEZIUM, kind: SourceFormat = SourceFormat.JSON) -> Any:
    source = SourceSpec(format=kind, paths=(path,), change_format=tool)
    return task_of("", source=source, when_matched=(), when_not_matched=())


@PLACES
@pytest.mark.usefixtures("spark")
def test_a_feed_counts_them_by_row(
    bed: MergeBed, limits: DriverShare, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.limits = limits
    if limits is ALL_IN_SPARK:
        monkeypatch.setattr("skipstone.runs.merging.slices.slicing.SLICE_BYTES", 500)  # in Spark, several slices
        monkeypatch.setattr(rewrite_module, "INSERT_HERE_ROWS", 1)  # and inserted by tasks
    orders(bed, **{"write.merge.mode": mode})
    report = bed.merge(feed(lines(bed, "1.json", *DEBEZIUM)))
    # the rows 50, 51, 53 and 57; the rows 54 and 55
    assert unmatched(report.counts) == (4, 2)
    counts = report.counts
    parts = [counts[name] for name in ("rowsMatching", "rowsInserted", "rowsUnmatched", "rowsSuperseded")]
    assert sum(parts) == counts["rowsSource"]
    summary = bed.table().current_snapshot().summary  # type: ignore[union-attr]
    assert summary["skipstone.merge.rowsUnmatchedDeletes"] == "4"  # type: ignore[index]


def test_what_comes_again_counts_the_rows_that_are_gone(bed: MergeBed) -> None:
    """At-least-once delivery: deletes come again, and so do rows that were created before them."""
    orders(bed)
    whole = [event("c", 1, after={"id": 60, "name": "x"}), event("d", 2, before={"id": 60})]
    bed.merge(feed(lines(bed, "1.json", *whole)))
    assert unmatched(bed.merge(feed(lines(bed, "2.json", *whole, None))).counts) == (0, 0)
    assert unmatched(bed.merge(feed(lines(bed, "3.json", whole[1]))).counts) == (1, 0)


def test_every_tool_tells_its_updates(bed: MergeBed) -> None:
    orders(bed)
    messages = [flat("u", 1, {"id": 70, "name": "x"}), flat("d", 2, {"id": 71}), flat("c", 3, {"id": 72})]
    report = bed.merge(feed(lines(bed, "flat.json", *messages), ChangeFormat.DEBEZIUM_FLAT))
    assert unmatched(report.counts) == (1, 1)
    messages = [maxwell("update", {"id": 73}, old={"name": "x"}), maxwell("delete", {"id": 74}),
                maxwell("insert", {"id": 75}), maxwell("bootstrap-insert", {"id": 76}),
                maxwell("update", {"id": 78}, old={"id": 77})]  # fmt: skip
    report = bed.merge(feed(lines(bed, "maxwell.json", *messages), ChangeFormat.MAXWELL))
    assert unmatched(report.counts) == (2, 1)
    report = bed.merge(feed(lines(bed, "wal2json.json", *WAL2JSON), ChangeFormat.WAL2JSON))
    assert unmatched(report.counts) == (2, 1)
    bed.text("dms/LOAD1.csv", "id,name\n80,load\n")
    bed.text("dms/20240501.csv", "Op,id,name\nU,81,x\nD,82,\nI,83,x\nU,80,x\nD,83,\n")
    report = bed.merge(feed("feeds/dms", ChangeFormat.DMS, SourceFormat.CSV))
    assert unmatched(report.counts) == (1, 1)


def test_a_truncate_takes_earlier_deletes_with_it(bed: MergeBed) -> None:
    orders(bed)
    messages = [event("d", 1, before={"id": 90}), event("t", 2), event("c", 3, after={"id": 91}),
                event("d", 4, before={"id": 92})]  # fmt: skip
    source = SourceSpec(
        format=SourceFormat.JSON,
        paths=(lines(bed, "1.json", *messages),),
        change_format=ChangeFormat.DEBEZIUM,
        allow_truncate=True,
    )
    report = bed.merge(task_of("", source=source, when_matched=(), when_not_matched=()))
    assert unmatched(report.counts) == (1, 0)


CHANGES = [
    {"id": 1, "name": None, "op": "D", "seq": 1},  # the table has it
    {"id": 50, "name": None, "op": "D", "seq": 2},  # no row
    {"id": 51, "name": "x", "op": "I", "seq": 3},  # inserted and deleted by this source
    {"id": 51, "name": None, "op": "D", "seq": 4},
    {"id": 52, "name": "new", "op": "U", "seq": 5},
    {"id": None, "name": None, "op": "D", "seq": 6},  # null equals no key
]


@PLACES
@pytest.mark.usefixtures("spark")
def test_clauses_count_deletes_that_no_row_of_the_table_can_change(
    bed: MergeBed, limits: DriverShare, mode: str
) -> None:
    bed.limits = limits
    orders(bed, **{"write.merge.mode": mode})
    insert = INSERT.__class__(action=INSERT.action, when="source.op != 'D'")
    changes = {"when_matched": (DELETE_D, UPDATE), "when_not_matched": (insert,), "sequence_by": "seq"}
    counts = bed.merge(task_of(bed.source(CHANGES), **changes)).counts
    assert unmatched(counts) == (2, 0)
    assert (counts["rowsDeleted"], counts["rowsInserted"], counts["rowsUnmatched"]) == (1, 1, 3)


def test_clauses_that_ask_the_table_tell_nothing_without_a_row(bed: MergeBed) -> None:
    orders(bed)
    rows: list[Row] = [{"id": 1, "name": "n"}, {"id": 50, "name": "n"}]
    asks = DELETE.__class__(action=DELETE.action, when="source.name = target.name")
    task = task_of(bed.source(rows), when_matched=(asks, DELETE), when_not_matched=())
    assert unmatched(bed.merge(task).counts) == (0, 0)
    task = task_of(bed.source(rows, "again"), when_matched=(DELETE,), when_not_matched=())
    assert unmatched(bed.merge(task).counts) == (2, 0)
    task = task_of(bed.source(rows, "insert"), when_matched=(DELETE,), when_not_matched=(INSERT,))
    assert unmatched(bed.merge(task).counts) == (0, 0)


def test_the_message_tells_them_whichever_attempt_reports(bed: MergeBed, tmp_path: Path) -> None:
    orders(bed)
    path = lines(bed, "1.json", *DEBEZIUM)
    uid = "aaaaaaaa-0000-0000-0000-000000000000"

    def told(run: Any) -> JobReport:
        request = bed.request(feed(path), uid)
        reporter = Reporter(request, FileSink(tmp_path / "report.json"))
        reporter.finish(run(request, reporter))
        return JobReport.from_json((tmp_path / "report.json").read_text())

    sentence = "4 deletes and 2 updates found no row"
    assert sentence in told(run_dry).message
    assert sentence in told(run_merge).message
    again = told(run_merge)
    assert (sentence in again.message, again.outcome.value, unmatched(again.counts)) == (
        True,
        "AlreadyCommitted",
        (4, 2),
    ), json.dumps(again.message)
