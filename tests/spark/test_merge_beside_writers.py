"""Ten merges race a writer in another process: no row is lost or there twice, and history explains each."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.merging.merge import MAX_PLANS, run_merge
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.ids import TXN_SUMMARY

from tests.spark.interleavings import POINTS, Held
from tests.spark.merge_bed import MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
MERGES = 10
#: Appends that the other writer is told to make while a merge runs: each can make it plan once more, and it plans often
#: enough for these.
APPENDS = MAX_PLANS - 1
Row = tuple[int, str]


def feed_of(number: int) -> dict[int, str]:
    """Merge ``number`` changes row 5, a row of the other writer that may be there, and adds one."""
    return {5: f"merge {number}", 1000 + 3 * number: f"merge {number}", 5000 + number: f"merge {number}"}


def replayed(table: Table, feeds: dict[str, dict[int, str]]) -> list[Row]:
    """The rows that the snapshots of ``table`` make one after the other."""
    rows: list[Row] = [(number, "old") for number in range(20)]
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)[1:]:
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        if (txn := told.get(TXN_SUMMARY)) is not None:
            feed = feeds[txn]
            held = {number for number, _ in rows}
            rows = [(number, feed.get(number, value)) for number, value in rows]
            rows += [(number, value) for number, value in feed.items() if number not in held]
        else:
            number = int(told["appender.number"])
            rows += [(one, f"theirs {number}") for one in ([1000 + number, 5] if number % 3 == 0 else [1000 + number])]
    return sorted(rows)


@contextmanager
def appender(bed: MergeBed) -> Iterator[subprocess.Popen[str]]:
    """The other writer; it has ended afterwards."""
    command = [sys.executable, str(Path(__file__).with_name("appender.py")), str(bed.root), "ns.t"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def test_ten_merges_race_an_append_without_loss(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA)
    bed.append([{"id": i, "v": "old"} for i in range(10)], [{"id": i, "v": "old"} for i in range(10, 20)])
    feeds: dict[str, dict[int, str]] = {}
    replans, told = 0, list[str]()
    with appender(bed) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for number, stage in zip(range(MERGES), [stage for stage in POINTS.values() if stage] * MERGES, strict=False):
            feed = feed_of(number)
            source = bed.source(pa.table({"id": list(feed), "v": list(feed.values())}), f"feed{number}")
            request = bed.request(task_of(source))
            feeds[request.txn] = feed

            def tell(there: IO[str] = other.stdin, back: IO[str] = other.stdout) -> None:
                """One append is in when the stage begins, the others race it."""
                print(APPENDS, file=there, flush=True)
                told.append(back.readline())

            reporter = Held(request, stage, tell)
            assert run_merge(request, reporter).outcome is RunOutcome.COMMITTED
            replans += sum(text.startswith("planning again") for text in reporter.said)
            told.extend(itertools.islice(other.stdout, APPENDS * (number + 1) - len(told)))
        other.stdin.close()
    assert [int(line) for line in told] == list(range(1, MERGES * APPENDS + 1))
    table = bed.table()
    found = sorted((row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist())
    assert found == replayed(table, feeds)
    assert len(table.metadata.snapshots) == 1 + MERGES + MERGES * APPENDS
    assert replans > 0, "no append came between"
    bed.catalog.close()
