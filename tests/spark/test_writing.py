"""Files of an attempt that did not commit are gone; files that a commit names, or may name, stay. Every kind of run."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
import skipstone
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.history.commits import AlreadyCommitted, Committed, Unknown
from skipstone_core.table_properties import MERGE_MODE

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append, ref_of, write_files
from tests.spark.load_bed import Bed, csv
from tests.spark.merge_bed import DELETE_D, UPDATE, AtSwap, MergeBed, task_of

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
FEED = pa.table({"id": [2, 3, 9], "v": ["two", "three", "nine"], "op": ["U", "D", "U"]})


@dataclass
class Attempt:
    """Writes one file and commits it; ``fail`` ends it in between."""

    table: Table
    txn: str = "t1"
    fail: BaseException | None = None
    path: Path = field(init=False)

    def __call__(self, written: WrittenFiles) -> TableCommit:
        """Write."""
        (file,) = written.note(write_files(self.table, ROWS))
        self.path = Path(file.file_path.removeprefix("file://"))
        if self.fail:
            raise self.fail
        return TableCommit(pinned=pin_table(self.table), added=(file,), txn=self.txn)

    def commit(self, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None) -> object:
        """Through the one function."""
        ports = CommitPorts(hooks=AtSwap(before=before, after=after), pause=lambda _: None)
        site = CommitSite(catalog=self.table.catalog, ref=ref_of(self.table), ports=ports)
        return commit_written(site, self.table, self)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Of one segment."""
    return append(catalog.create_table(("ns", "t"), ROWS.schema), ROWS)


@pytest.mark.parametrize("error", [OSError("full"), ValueError("a bug")])
def test_what_fails_before_the_commit_leaves_nothing(table: Table, error: Exception) -> None:
    attempt = Attempt(table, fail=error)
    with pytest.raises(type(error)):
        attempt.commit()
    assert not attempt.path.exists()


def test_an_attempt_overtaken_by_its_twin_leaves_nothing(table: Table) -> None:
    attempt, twin = Attempt(table), Attempt(table)
    outcome = attempt.commit(before=lambda: twin.commit() and None)
    assert isinstance(outcome, AlreadyCommitted)
    assert not attempt.path.exists()
    assert twin.path.exists()


def test_an_attempt_whose_table_is_gone_leaves_nothing(table: Table) -> None:
    attempt = Attempt(table)
    attempt.commit(before=lambda: table.catalog.drop_table(table.name()))
    assert not attempt.path.exists()


def test_what_is_committed_stays(table: Table) -> None:
    attempt = Attempt(table)
    assert isinstance(attempt.commit(), Committed)
    assert attempt.path.exists()


def test_what_may_be_committed_stays(table: Table) -> None:
    def vanish() -> None:
        table.catalog.rename_table(table.name(), ("ns", "elsewhere"))
        raise ConnectionError("no answer")

    attempt = Attempt(table)
    assert isinstance(attempt.commit(after=vanish), Unknown)
    assert attempt.path.exists()


def test_a_process_killed_after_its_swap_keeps_its_files(table: Table) -> None:
    def kill() -> None:
        raise SystemExit(137)

    attempt = Attempt(table)
    with pytest.raises(SystemExit):
        attempt.commit(after=kill)
    assert attempt.path.exists()


def test_a_load_overtaken_by_its_twin_leaves_nothing(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.create(SCHEMA)
    request = bed.request(csv(bed.put("in/a.csv", "id,v\n1,a\n2,b\n")))

    def twin() -> None:
        assert request.table is not None
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]})
        added = write_files(bed.table(), rows)
        change = TableCommit(pinned=pin_table(bed.table()), added=added, txn=request.txn)
        assert isinstance(commit_table(bed.catalog, request.table, change), Committed)

    report = bed.load(request.load.source, uid=request.owner_uid, ports=CommitPorts(hooks=AtSwap(before=twin)))  # type: ignore[union-attr]
    assert report.outcome is RunOutcome.ALREADY_COMMITTED
    live = {path.removeprefix("file://") for path in bed.table().inspect.files()["file_path"].to_pylist()}
    assert bed.data_files() == live
    bed.catalog.close()


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_that_fails_after_its_rewrite_leaves_nothing(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA, **{MERGE_MODE: mode})
    bed.append([{"id": number, "v": "old"} for number in range(5)])
    before = bed.on_disk()

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("skipstone.runs.merging.merge._summary", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        bed.merge(task_of(bed.source(FEED), when_matched=(DELETE_D, UPDATE)))
    assert bed.on_disk() == before


def test_an_index_run_whose_catalog_fails_before_the_swap_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, index = Lake(tmp_path), index_on("id")
    append(lake.create(ROWS.schema), ROWS)
    lake.reindex(index)
    append(lake.table(), ROWS)
    before, request = set(tmp_path.rglob("*.parquet")), lake.request(index)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("skipstone.tables.catalogs.write_metadata", full)
        with pytest.raises(OSError, match="No space left"):
            run_reindex(request, Reporter(request))
    assert set(tmp_path.rglob("*.parquet")) == before
    assert lake.reindex(index).outcome is RunOutcome.COMMITTED
    lake.assert_every_row_once(index)
    lake.catalog.close()


def test_nobody_else_deletes_files_that_were_written() -> None:
    """Only the module of ``commit_written`` calls ``discard_files`` and, for index runs, its owner ``discard``."""
    found = set()
    for path in Path(skipstone.__path__[0]).rglob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        if names & {"discard_files", "commit_table"}:
            found.add(path.name)
    assert found == {"writing.py"}
