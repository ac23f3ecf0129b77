"""A table with Inline indexes: loads and merges whose requests carry them, and the indexes as the index bed sees them.

Used by the tests of Inline indexes only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import IndexState, JobReport
from skipstone_core.contract.requests import (
    IndexRef,
    JobRequest,
    LoadTask,
    MergeTask,
    RunKind,
    SourceFormat,
    SourceSpec,
)

from tests.spark.index_bed import Lake, index_on
from tests.spark.merge_bed import DELETE_D, INSERT, UPDATE, MergeBed, Row, task_of

_UIDS = itertools.count(1)
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "city", StringType())
)
SOURCE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("op", pa.string())])
BY_NAME = replace(index_on("name"), is_inline=True)
#: One of each kind: keys only, with included columns, covering.
KINDS = (
    BY_NAME,
    replace(index_on("city", "id", name="city", include=("name",)), is_inline=True),
    replace(index_on("id", name="ids", include=("name", "city"), buckets=4), is_inline=True),
)
QUESTIONS = ("name = 'n7'", "name = 'new'", "id in (3, 20, 41) or id > 1000", "city = 'c2' and id < 30", "name is null")


@dataclass
class InlineBed:
    """A warehouse with the table ``t``; ``share``: of what runs do without Spark."""

    root: Path
    indexes: tuple[IndexRef, ...] = KINDS
    share: DriverShare = USUAL_SHARE
    merges: MergeBed = field(init=False)
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        """Open its catalog."""
        self.root.mkdir(exist_ok=True)
        self.merges, self.lake = MergeBed(self.root), Lake(self.root, share=self.share)

    def create(self, schema: Schema = SCHEMA, **properties: str) -> Table:
        """Make the table."""
        return self.merges.create(schema, **properties)

    def source(self, rows: Sequence[Row] | pa.Table, name: str) -> str:
        """Write a source file; its path relative to the root."""
        if isinstance(rows, pa.Table):
            return self.merges.source(rows, name)
        columns = SOURCE if any("op" in one for one in rows) else SOURCE.remove(SOURCE.get_field_index("op"))
        return self.merges.source(pa.Table.from_pylist([dict(one) for one in rows], columns), name)

    def load_request(self, rows: Sequence[Row] | pa.Table, **options: Any) -> JobRequest:
        """A load of a Parquet file with ``rows``; ``options``: of the task."""
        number = next(_UIDS)
        uid = f"{number:08d}-1111-0000-0000-000000000000"
        source = SourceSpec(format=SourceFormat.PARQUET, paths=(self.source(rows, f"load{number}"),))
        return JobRequest(
            kind=RunKind.LOAD,
            run_id=f"{uid[:8]}-cafe-1",
            attempt=1,
            warehouse=self.merges.warehouse,
            owner_kind="LoadJob",
            owner_name="job",
            owner_uid=uid,
            txn=uid,
            table=self.merges.ref,
            indexes=self.indexes,
            load=LoadTask(source=source, **options),
        )

    def merge_request(self, rows: Sequence[Row] | pa.Table, **fields: Any) -> JobRequest:
        """A merge by ``id``: rows whose ``op`` is D are deleted, others updated or inserted."""
        fields = {"when_matched": (DELETE_D, UPDATE), "when_not_matched": (INSERT,), **fields}
        task: MergeTask = task_of(self.source(rows, f"merge{next(_UIDS)}"), **fields)
        return replace(self.merges.request(task), indexes=self.indexes)

    def run(self, request: JobRequest, ports: CommitPorts | None = None) -> JobReport:
        """A whole run; the report as it is delivered."""
        run = run_load if request.kind is RunKind.LOAD else run_merge
        reporter, sink = Reporter(request, sink := Kept()), sink
        reporter.finish(run(request, reporter, ports, self.share))
        return JobReport.from_json(sink.last)

    def load(self, rows: Sequence[Row] | pa.Table, ports: CommitPorts | None = None, **options: Any) -> JobReport:
        """A whole load run."""
        return self.run(self.load_request(rows, **options), ports)

    def merge(self, rows: Sequence[Row] | pa.Table, ports: CommitPorts | None = None, **fields: Any) -> JobReport:
        """A whole merge run."""
        return self.run(self.merge_request(rows, **fields), ports)

    def assert_in_sync(self, report: JobReport) -> None:
        """The report and a fresh look say that no segment is missing; every row of the table is in every index once."""
        (told,) = report.table_states
        assert [state.uid for state in told.indexes] == [index.uid for index in self.indexes]
        for index, state in zip(self.indexes, told.indexes, strict=True):
            assert synced(state), state
            assert synced(self.lake.state(index))
            if state.files_live:
                self.lake.assert_every_row_once(index)
        self.assert_exact()

    def assert_exact(self) -> None:
        """Answers through the indexes are those of a scan."""
        for question in QUESTIONS:
            self.lake.assert_exact(question)


@dataclass
class Kept:
    """Keeps the last report."""

    last: str = ""

    def show(self, report: str) -> None:
        """Forget a report on the way."""

    def finish(self, report: str, short: str) -> None:
        """Keep it."""
        self.last = report


def synced(state: IndexState) -> bool:
    """Whether an index has all segments and all files."""
    return (state.segments_missing, state.files_covered, state.degraded) == (0, state.files_live, None)


def row(number: int, name: str = "") -> dict[str, object]:
    """A row of the table; some names are null."""
    return {"id": number, "name": name or (None if number % 11 == 0 else f"n{number}"), "city": f"c{number % 5}"}


def rows(start: int, count: int) -> list[dict[str, object]]:
    """Neighboring rows."""
    return [row(number) for number in range(start, start + count)]


def change(number: int, op: str = "U") -> dict[str, object]:
    """A change of a feed."""
    return {**row(number, "new"), "op": op}
