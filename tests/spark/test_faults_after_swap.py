"""What goes wrong after a swap was sent, for every kind of run that commits: no false answer, no live file is deleted.

Each case runs as a driver does (``run_app``), is asked whether it told the truth, and is tried again. That all files of
the table are there, and that Java reads it, is checked after each step. `make soak-merge` has all cases.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.intake import Intake, source_record, take_source
from skipstone.runs.load import run_load
from skipstone.runs.main import Run, run_app
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.table import run_table
from skipstone.tables.catalogs import OwnSqlCatalog
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    ColumnSpec,
    ConsumePolicy,
    JobRequest,
    LoadTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableTask,
)
from skipstone_core.history.commits import Committed
from skipstone_core.table_properties import MERGE_MODE

from tests.examples import turn
from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append, write_files
from tests.spark.load_bed import HEADER, ListSink
from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, task_of
from tests.spark.soundness import Soundness

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
IDS = pa.schema([("id", pa.int64())])
MINUTE_NS = 60 * 1_000_000_000
#: Commits that do not wait before they look again.
QUICK = CommitPorts(pause=lambda _: None)
_RUNS = itertools.count(1)


@dataclass
class Job:
    """A run, the commit of it that meets the fault, and whether the table is right when it is applied once."""

    catalog: Catalog
    request: JobRequest
    run: Run
    target: tuple[str, str]
    marker: str
    assert_right: Callable[[], object]
    ledger: Path | None = None


def seeded(bed: MergeBed, feed: str, **properties: str) -> tuple[SourceSpec, JobRequest]:
    """A table of five rows whose source folder holds one file that was consumed, and ``feed``, which was not."""
    bed.create(SCHEMA, **properties)
    source = SourceSpec(
        format=SourceFormat.CSV,
        paths=("feeds",),
        options=HEADER,
        consume=ConsumePolicy.NEW,
        consumer="MergeSchedule ns/feed",
    )
    first = bed.request(task_of("feeds", source=source))
    bed.text("a.csv", "id,v,op\n")
    intake = take_source(first, bed.table(), source)
    assert isinstance(intake, Intake)
    rows = pa.table({"id": pa.array(range(5), pa.int64()), "v": ["old"] * 5})
    change = TableCommit(
        pinned=pin_table(bed.table()),
        added=write_files(bed.table(), rows),
        txn=first.txn,
        record=source_record(intake, {}),
        ledger=intake.ledger,
    )
    assert isinstance(commit_table(bed.catalog, bed.ref, change), Committed)
    bed.text("b.csv", feed)
    return source, first


def assert_rows(bed: MergeBed, expected: dict[int, str]) -> None:
    """The table holds exactly these rows."""
    found = sorted((row["id"], row["v"]) for row in bed.table().scan().to_arrow().to_pylist())
    assert found == sorted(expected.items())


def load(root: Path) -> Job:
    """Two rows are appended."""
    bed = MergeBed(root)
    source, first = seeded(bed, "id,v,op\n10,a,\n11,b,\n")
    uid = f"{next(_RUNS):08d}-1111-0000-0000-000000000000"
    request = replace(
        first,
        kind=RunKind.LOAD,
        run_id=f"{uid[:8]}-1",
        owner_uid=uid,
        txn=uid,
        merge=None,
        load=LoadTask(source=source),
    )
    expected = {**dict.fromkeys(range(5), "old"), 10: "a", 11: "b"}
    ledger = root / ".skipstone" / "consumed"
    right = lambda: assert_rows(bed, expected)  # noqa: E731
    return Job(
        bed.catalog, request, partial(run_load, ports=QUICK), ("ns", "t"), "skipstone.load.rowsLoaded", right, ledger
    )


def merge(root: Path, mode: str) -> Job:
    """A row is updated, one deleted, one inserted."""
    bed = MergeBed(root)
    source, _ = seeded(bed, "id,v,op\n2,two,U\n3,three,D\n9,nine,U\n", **{MERGE_MODE: mode})
    request = bed.request(task_of("feeds", source=source, when_matched=(DELETE_D, UPDATE)))
    expected = {0: "old", 1: "old", 2: "two", 4: "old", 9: "nine"}
    right = lambda: assert_rows(bed, expected)  # noqa: E731
    ledger = root / ".skipstone" / "consumed"
    return Job(
        bed.catalog, request, partial(run_merge, ports=QUICK), ("ns", "t"), "skipstone.merge.filesTotal", right, ledger
    )


def reindex(root: Path) -> Job:
    """One of two segments is entered."""
    lake, index = Lake(root), index_on("id")
    append(lake.create(IDS), pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    lake.reindex(index)
    append(lake.table(), pa.table({"id": pa.array([4, 5], pa.int64())}))
    target = lake.index_table(index).identifier
    right = lambda: lake.assert_every_row_once(index)  # noqa: E731
    return Job(
        lake.catalog, lake.request(index), partial(run_reindex, ports=QUICK), target, "skipstone.segments", right
    )


def compaction(root: Path) -> Job:
    """The index is merged without the entries of a file that no snapshot holds any more."""
    lake, index = Lake(root), index_on("id")
    table = append(lake.create(IDS), pa.table({"id": pa.array(range(100), pa.int64())}))
    lake.reindex(index)
    files = read_file_set(table)
    added = write_files(table, pa.table({"id": pa.array([4, 5], pa.int64())}))
    change = TableCommit(pinned=files.pinned, removed=(files.data_file(0),), added=added)
    assert isinstance(commit_table(lake.catalog, lake.ref(), change), Committed)
    assert files.snapshot_id is not None
    lake.table().maintenance.expire_snapshots().by_id(files.snapshot_id).commit()
    target = lake.index_table(index).identifier
    right = lambda: lake.assert_every_row_once(index)  # noqa: E731
    return Job(lake.catalog, lake.request(index), partial(run_reindex, ports=QUICK), target, "skipstone.merge", right)


def table_change(root: Path) -> Job:
    """A column is added."""
    bed = MergeBed(root)
    bed.create(SCHEMA)
    bed.append([{"id": 1, "v": "old"}])
    columns = (ColumnSpec(name="id", type="long"), ColumnSpec(name="v", type="string"))
    more = (*columns, ColumnSpec(name="more", type="int"))
    request = replace(
        bed.request(task_of("feeds")), kind=RunKind.TABLE, merge=None, txn="", table_task=TableTask(columns=more)
    )

    def right() -> None:
        assert bed.table().schema().column_names == ["id", "v", "more"]
        assert bed.table().scan().count() == 1

    return Job(bed.catalog, request, run_table, ("ns", "t"), "", right)


KINDS: dict[str, Callable[[Path], Job]] = {
    "load": load,
    "merge copy-on-write": lambda root: merge(root, "copy-on-write"),
    "merge on read": lambda root: merge(root, "merge-on-read"),
    "reindex": reindex,
    "index compaction": compaction,
    "table change": table_change,
}
Send = Callable[[], Any]


@dataclass
class Stage:
    """The catalog as all runs of this process meet it: the marked commit of ``job`` meets ``fault``, once."""

    job: Job
    fault: Callable[[Stage, Send], Any]
    held: list[Send] = field(default_factory=list)
    undo: list[Callable[[], object]] = field(default_factory=list)
    met: bool = False

    def commit_table(self, real: Callable[..., Any], catalog: Catalog, table: Table, *change: Any) -> Any:
        """Any commit of this process."""
        if not self.met and self._is_marked(table, change[1]):
            self.met = True
            return self.fault(self, lambda: real(catalog, table, *change))
        self.land()
        return real(catalog, table, *change)

    def land(self) -> None:
        """What was on its way arrives."""
        while self.held:
            self.held.pop()()

    def fix(self) -> None:
        """Everything is where it belongs again."""
        while self.undo:
            self.undo.pop()()
        self.land()

    def _is_marked(self, table: Table, updates: tuple[Any, ...]) -> bool:
        if table.name() != self.job.target:
            return False
        summaries = [one.snapshot.summary for one in updates if isinstance(one, AddSnapshotUpdate)]
        return not self.job.marker or any(self.job.marker in one.additional_properties for one in summaries if one)

    def rename(self) -> None:
        """The table gets another name."""
        away = (self.job.target[0], "elsewhere")
        self.job.catalog.rename_table(self.job.target, away)
        self.undo.append(lambda: self.job.catalog.rename_table(away, self.job.target))

    def hide(self, path: Path) -> None:
        """A file or folder is away."""
        hidden = path.rename(path.with_name(f"{path.name}.hidden"))
        self.undo.append(lambda: hidden.rename(path))


def renamed(stage: Stage, send: Send) -> Any:
    """It landed, the answer is lost, and the table has another name."""
    send()
    stage.rename()
    raise ConnectionError("the answer was lost")


def renamed_after_the_answer(stage: Stage, send: Send) -> Any:
    """It landed and said so; then the table has another name."""
    answer = send()
    stage.rename()
    return answer


def metadata_away(stage: Stage, send: Send) -> Any:
    """It landed, the answer is lost, and the metadata file cannot be found."""
    send()
    stage.hide(Path(stage.job.catalog.load_table(stage.job.target).metadata_location.removeprefix("file://")))
    raise ConnectionError("the answer was lost")


def answer_lost(stage: Stage, send: Send) -> Any:
    """It landed, and the answer is lost."""
    send()
    raise ConnectionError("the answer was lost")


def connection_reset(stage: Stage, send: Send) -> Any:
    """It never arrives, which nobody knows."""
    raise ConnectionResetError("connection reset by peer")


def late(stage: Stage, send: Send) -> Any:
    """It arrives when the next one is sent."""
    stage.held.append(send)
    raise TimeoutError("no answer")


def late_without_ledger(stage: Stage, send: Send) -> Any:
    """It arrives when the run has ended, which could not read its ledger meanwhile."""
    assert stage.job.ledger
    stage.hide(stage.job.ledger)
    stage.held.append(send)
    raise TimeoutError("no answer")


FAULTS = (
    renamed,
    renamed_after_the_answer,
    metadata_away,
    answer_lost,
    connection_reset,
    late,
)
#: Kinds that `make test` takes through every fault. The others commit as they do: a fourth of their cases takes turns.
ALWAYS = ("load", "merge copy-on-write")


def met() -> list[Any]:
    """Kinds and their faults; what only a soak takes is marked."""
    first, found = turn(4), []
    for number, (kind, fault) in enumerate(itertools.product(KINDS, (*FAULTS, late_without_ledger))):
        if fault is late_without_ledger and not kind.startswith(("load", "merge")):
            continue
        marks = [] if kind in ALWAYS or (first + number) % 4 == 0 else [pytest.mark.soak]
        found.append(pytest.param(kind, fault, marks=marks, id=f"{kind}-{fault.__name__}"))
    return found


@dataclass
class Runner:
    """Runs jobs as drivers do, in a catalog that may be faulty."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def run(self, job: Job) -> JobReport:
        """What the run reports."""
        path, sink = self.folder / "request.json", ListSink()
        path.write_text(job.request.to_json())
        run_app(job.request.kind, job.run, {"SKIPSTONE_REQUEST": str(path)}, sink)
        return JobReport.from_json(sink.last)

    def run_on(self, stage: Stage) -> JobReport:
        """What it reports when its commit meets the fault."""
        real = OwnSqlCatalog.commit_table
        faulty = lambda catalog, table, *change: stage.commit_table(real, catalog, table, *change)  # noqa: E731
        with self.monkeypatch.context() as patched:
            patched.setattr(OwnSqlCatalog, "commit_table", faulty)
            return self.run(stage.job)


@pytest.fixture
def runner(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """In a folder of its own."""
    yield Runner(tmp_path_factory.mktemp("requests"), monkeypatch)


@pytest.mark.parametrize(("kind", "fault"), met())
def test_no_false_answer_and_no_lost_file(
    kind: str, fault: Callable[[Stage, Send], Any], tmp_path: Path, runner: Runner, soundness: Soundness
) -> None:
    stage = Stage(KINDS[kind](tmp_path), fault)
    report = runner.run_on(stage)
    assert stage.met
    assert report.outcome in (RunOutcome.COMMITTED, RunOutcome.UNKNOWN), report
    stage.fix()
    soundness.check_folder(tmp_path)
    if report.outcome is RunOutcome.COMMITTED:
        stage.job.assert_right()
    again = runner.run(stage.job)
    assert again.outcome in (RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED), again
    stage.job.assert_right()
    stage.job.catalog.close()


def clocks() -> list[Any]:
    """Kinds and how wrong a clock is; a clock that is ahead and one that is behind take turns."""
    first, found = turn(2), []
    for number, (kind, minutes) in enumerate(itertools.product(KINDS, (10, -10))):
        marks = [] if (first + number + number // 2) % 2 else [pytest.mark.soak]
        found.append(pytest.param(kind, minutes, marks=marks, id=f"{kind}-{minutes}"))
    return found


@pytest.mark.parametrize(("kind", "minutes"), clocks())
def test_a_node_whose_clock_is_wrong_leaves_a_readable_table(
    kind: str, minutes: int, tmp_path: Path, runner: Runner, soundness: Soundness
) -> None:
    job, clock = KINDS[kind](tmp_path), time.time_ns
    with runner.monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: clock() + minutes * MINUTE_NS)
        assert runner.run(job).outcome is RunOutcome.COMMITTED
    job.assert_right()
    soundness.check_folder(tmp_path)
    properties = {"written.by": "a node whose clock is right"}
    job.catalog.load_table(job.target).transaction().set_properties(properties).commit_transaction()
    soundness.check_folder(tmp_path)
    job.catalog.close()
