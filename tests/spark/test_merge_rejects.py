"""Changes of a feed that cannot be applied: what is left out with them, told, kept and merged again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from skipstone.runs.merging import feed as feed_module
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.sinks import FileSink
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.feeds import Infinity
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import (
    BadRecordPolicy,
    BadRecordsSpec,
    ChangeFormat,
    ConsumePolicy,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData

from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.spark.test_merge_feeds import PLACEHOLDER, event, lines

Row = Mapping[str, Any]
EVENTS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "seen", TimestamptzType()),
    NestedField(4, "essay", StringType()),
)
REDIRECT, DROP = (BadRecordsSpec(policy=BadRecordPolicy(name)) for name in ("Redirect", "Drop"))
T0, T1, T2, FOREVER = (
    *(f"2024-05-0{day}T10:00:00Z" for day in (1, 2, 3)),
    "infinity",
)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def events(bed: MergeBed) -> None:
    bed.create(EVENTS)
    bed.append([{"id": n, "name": f"n{n}", "seen": None, "essay": f"e{n}"} for n in range(1, 7)])


def row(number: int, name: str, seen: str | None = T0, essay: str = "e") -> dict[str, Any]:
    return {"id": number, "name": name, "seen": seen, "essay": essay}


def merge(bed: MergeBed, path: str, bad: BadRecordsSpec | None = REDIRECT, **source: Any) -> JobReport:
    """A merge of Debezium's messages at ``path``; its last report, as users see it."""
    spec = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.DEBEZIUM, **source)
    request = bed.request(task_of("", source=spec, when_matched=(), when_not_matched=(), bad_records=bad))
    told = bed.root / f"{request.run_id}.json"
    reporter = Reporter(request, FileSink(told))
    reporter.finish(run_merge(request, reporter, None, bed.limits))
    return JobReport.from_json(told.read_text())


def names(bed: MergeBed) -> dict[int, str]:
    return {one["id"]: one["name"] for one in bed.table().scan().to_arrow().to_pylist()}


def rejected(bed: MergeBed, report: JobReport) -> list[dict[str, Any]]:
    assert report.rejected_path is not None
    folder = bed.root / report.rejected_path
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


def adds_up(report: JobReport) -> dict[str, int]:
    counts = dict(report.counts)
    parts = ("rowsMatching", "rowsInserted", "rowsUnmatched", "rowsSuperseded", "rowsRejected", "rowsWaiting")
    assert counts.get("rowsSource", 0) == sum(counts.get(name, 0) for name in parts)
    return counts


@pytest.mark.parametrize("limits", [USUAL_SHARE, ALL_IN_SPARK], ids=["driver", "spark"])
def test_one_bad_message_never_stops_a_feed(
    bed: MergeBed, limits: DriverShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.limits = limits
    monkeypatch.setattr(feed_module, "SLICE_BYTES", 700)  # in Spark, one feed is of several slices
    events(bed)
    first = [
        event("u", 1, after=row(1, "before")),
        event("u", 2, after=row(1, "never", FOREVER)),  # 1 stops here
        event("u", 3, after=row(1, "waits", T1)),
        event("u", 4, after=row(2, "fine")),
        event("u", 5, before=row(1, "waits"), after=row(7, "moved")),  # so 7 waits for 1
        event("u", 6, after=row(7, "moved again")),
        event("c", 7, after=row(8, "new", FOREVER)),
        event("d", 8, before=row(3, "n3")),
        event("u", 9, before=row(4, "n4"), after=row(9, "half", FOREVER)),  # 4 stays as long as 9 is missing
        event("u", 10, after=row(4, "no row of 4 before this one")),
    ]
    path = lines(bed, "feed/1.json", *first)
    with pytest.raises(BadData, match=r"'feeds/feed/1.json', line 2: column 'seen': .* infinity.*source.infinity"):
        merge(bed, path, None)
    with pytest.raises(BadData, match=r"10 are|9 are|5 are allowed.*line 2: column 'seen'.*maxCount"):
        merge(bed, path, replace(REDIRECT, max_count=5))
    assert not (bed.root / ".skipstone" / "rejected").exists() or not any(
        (bed.root / ".skipstone" / "rejected").rglob("*.jsonl")
    )

    report = merge(bed, "feeds/feed", consume=ConsumePolicy.NEW, consumer="s")
    assert names(bed) == {1: "before", 2: "fine", 4: "n4", 5: "n5", 6: "n6"}
    counts = adds_up(report)
    assert (counts["rowsSource"], counts["rowsRejected"], counts["rowsWaiting"]) == (12, 4, 5)
    kept = rejected(bed, report)
    assert [(one["file"], one["line"]) for one in kept] == [("feeds/feed/1.json", n) for n in (2, 3, 5, 6, 7, 9, 10)]
    assert [json.loads(one["record"]) for one in kept] == [first[n - 1] for n in (2, 3, 5, 6, 7, 9, 10)]
    assert "column 'seen'" in kept[0]["reason"] and "source.infinity" in kept[0]["reason"]
    assert "'feeds/feed/1.json', line 2" in kept[1]["reason"]
    assert "The first: 'feeds/feed/1.json', line 2: column 'seen'" in report.message
    assert "status.rejectedPath" in report.message

    # Later runs: a whole row or a delete makes what is missing obsolete; what is partial waits.
    second = [
        event("u", 20, after=row(1, "whole", T2)),
        event("u", 21, after=row(8, "partial", T2, PLACEHOLDER)),
        event("u", 22, after=row(2, "fine too", T2, PLACEHOLDER)),
    ]
    lines(bed, "feed/2.json", *second)
    report = merge(bed, "feeds/feed", consume=ConsumePolicy.NEW, consumer="s")
    assert names(bed) == {1: "whole", 2: "fine too", 4: "n4", 5: "n5", 6: "n6"}
    counts = adds_up(report)
    assert (counts["rowsSource"], counts["rowsRejected"], counts["rowsWaiting"]) == (3, 0, 1)
    assert [one["line"] for one in rejected(bed, report)] == [2]

    # A setting repairs them; of row 1 they are older than what the table has.
    report = merge(bed, "feeds/feed", None, infinity=Infinity.MAX, only_rejected=True)
    assert names(bed) == {
        1: "whole", 2: "fine too", 4: "no row of 4 before this one", 5: "n5", 6: "n6", 7: "moved again",
        8: "partial", 9: "half",
    }  # fmt: skip
    adds_up(report)
    report = merge(bed, "feeds/feed", None, infinity=Infinity.MAX, only_rejected=True)
    assert report.counts.get("rowsUpdated", 0) == report.counts.get("rowsInserted", 0) == 0
    assert names(bed)[1] == "whole"
