"""A transaction is in the table at most once, whatever is lost, killed, delayed or raced. Catalogs are real."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import (
    CommitPorts,
    NoHooks,
    TableCommit,
    abort_txn,
    commit_table,
    discard_files,
    find_digest,
    find_txn,
)
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.commits import (
    Aborted,
    Absent,
    AlreadyCommitted,
    Committed,
    Conflicted,
    Outcome,
    Present,
    RolledBack,
    TxnRecord,
    Unknown,
    txn_property,
)
from skipstone_core.reasons import Reason

from tests.spark.killed_app import forking
from tests.spark.lake import append, ref_of, write_files

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})
TXN = "9d1f0c3e-0000-4000-8000-000000000001"
RECORD = TxnRecord(time_ms=0, counts={"rowsLoaded": 3}, rejected_path="r", source_digest="d1")


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """An empty table whose owner asks for many retries: our commits must not care."""
    return catalog.create_table(("ns", "t"), ROWS.schema, properties={"commit.retry.num-retries": "20"})


def load(table: Table, txn: str = TXN, **options: Any) -> TableCommit:
    """A planned load of ROWS."""
    options.setdefault("record", RECORD)
    return TableCommit(pinned=pin_table(table), added=write_files(table, ROWS), txn=txn, **options)


def rows(table: Table) -> int:
    """Rows at the head."""
    return int(table.catalog.load_table(table.name()).scan().count())


def fresh(table: Table) -> Table:
    """The table as it is now."""
    return table.catalog.load_table(table.name())


def no_pause(attempt: int) -> None:
    """Retry at once."""


@dataclass
class Hooks(NoHooks):
    """Runs something before or after the first swap."""

    before: Callable[[], object] = field(default=lambda: None)
    after: Callable[[], object] = field(default=lambda: None)
    swaps: int = 0

    def before_swap(self, table: Table) -> None:
        """First time only."""
        self.swaps += 1
        if self.swaps == 1:
            self.before()

    def after_swap(self, table: Table) -> None:
        """First time only."""
        if self.swaps == 1:
            self.after()


def ports(**hooks: Callable[[], object]) -> CommitPorts:
    """Ports with hooks and without waiting."""
    return CommitPorts(hooks=Hooks(**hooks), pause=no_pause)


def lost() -> None:
    """A response that never arrives."""
    raise ConnectionError("the response was lost")


def test_a_commit_leaves_its_transaction_in_summary_and_property(table: Table) -> None:
    outcome = commit_table(table.catalog, ref_of(table), load(table, summary={"skipstone.kind": "load"}))
    assert isinstance(outcome, Committed)
    now = fresh(table)
    snapshot = now.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.snapshot_id == outcome.snapshot_id == outcome.record.snapshot_id
    assert snapshot.summary["skipstone.txn"] == TXN
    assert snapshot.summary["skipstone.kind"] == "load"
    assert find_txn(now, TXN) == Present(outcome.record, outcome.snapshot_id)
    assert outcome.record.counts == RECORD.counts
    assert rows(table) == 3


def test_a_second_attempt_finds_the_first_and_writes_nothing(table: Table) -> None:
    first = commit_table(table.catalog, ref_of(table), load(table))
    second = commit_table(table.catalog, ref_of(table), load(table))
    assert isinstance(first, Committed)
    assert second == AlreadyCommitted(first.record)
    assert rows(table) == 3


def test_a_commit_that_changes_nothing_is_remembered_too(table: Table) -> None:
    empty = TableCommit(pinned=pin_table(table), txn=TXN, record=RECORD)
    outcome = commit_table(table.catalog, ref_of(table), empty)
    assert isinstance(outcome, Committed)
    assert outcome.record.is_empty
    again = commit_table(table.catalog, ref_of(table), load(table))
    assert isinstance(again, AlreadyCommitted)
    assert rows(table) == 0


def test_two_drivers_of_one_job_at_a_barrier_before_the_swap_commit_once(table: Table, warehouse: WarehouseRef) -> None:
    barrier = threading.Barrier(2, timeout=800)
    outcomes: list[Outcome] = []

    def drive(change: TableCommit) -> None:
        catalog = open_catalog(warehouse)
        outcomes.append(commit_table(catalog, ref_of(table), change, ports(before=barrier.wait)))
        catalog.close()

    drivers = [threading.Thread(target=drive, args=(load(table),)) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(800)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyCommitted", "Committed"]
    assert rows(table) == 3


def _drive_process(warehouse: WarehouseRef, change: tuple[Any, ...], barrier: Any, results: Any) -> None:
    catalog = open_catalog(warehouse)
    table = catalog.load_table(("ns", "t"))
    outcome = commit_table(catalog, ref_of(table), load(table, *change), ports(before=barrier.wait))
    catalog.close()
    results.put(type(outcome).__name__)


def test_two_processes_of_one_job_commit_once(table: Table, warehouse: WarehouseRef) -> None:
    context = forking()
    barrier, results = context.Barrier(2, timeout=800), context.Queue()
    arguments = (warehouse, (TXN,), barrier, results)
    drivers = [context.Process(target=_drive_process, args=arguments) for _ in range(2)]
    for driver in drivers:
        driver.start()
    found = sorted(results.get(timeout=800) for _ in drivers)
    for driver in drivers:
        driver.join(800)
    assert found == ["AlreadyCommitted", "Committed"]
    assert rows(table) == 3


def test_a_lost_response_is_read_back_as_committed(table: Table) -> None:
    outcome = commit_table(table.catalog, ref_of(table), load(table), ports(after=lost))
    assert isinstance(outcome, Committed)
    assert rows(table) == 3


def test_a_lost_response_without_a_transaction_is_read_back_too(table: Table) -> None:
    change = TableCommit(pinned=pin_table(table), added=write_files(table, ROWS))
    assert isinstance(commit_table(table.catalog, ref_of(table), change, ports(after=lost)), Committed)
    assert rows(table) == 3


def test_a_driver_killed_after_its_commit_is_already_committed(table: Table) -> None:
    def killed() -> None:
        raise SystemExit(137)

    with pytest.raises(SystemExit):
        commit_table(table.catalog, ref_of(table), load(table), ports(after=killed))
    outcome = commit_table(table.catalog, ref_of(table), load(table))
    assert isinstance(outcome, AlreadyCommitted)
    assert outcome.record.counts == RECORD.counts
    assert outcome.record.rejected_path == "r"
    assert rows(table) == 3


def test_a_zombie_that_wakes_after_the_abort_commits_nothing(table: Table) -> None:
    def abort() -> None:
        assert isinstance(abort_txn(table.catalog, ref_of(table), TXN), Aborted)

    outcome = commit_table(table.catalog, ref_of(table), load(table), ports(before=abort))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.ABORTED
    assert rows(table) == 0


def test_an_abort_that_comes_too_late_finds_the_commit(table: Table) -> None:
    committed = commit_table(table.catalog, ref_of(table), load(table))
    assert isinstance(committed, Committed)
    assert abort_txn(table.catalog, ref_of(table), TXN) == Present(committed.record, committed.snapshot_id)


def test_an_abort_that_loses_its_race_finds_the_commit(table: Table) -> None:
    def commit() -> None:
        assert isinstance(commit_table(table.catalog, ref_of(table), load(table)), Committed)

    assert isinstance(abort_txn(table.catalog, ref_of(table), TXN, ports(before=commit)), Present)
    assert rows(table) == 3


def test_an_abort_is_made_once(table: Table) -> None:
    first = abort_txn(table.catalog, ref_of(table), TXN)
    assert abort_txn(table.catalog, ref_of(table), TXN) == first
    assert len(fresh(table).metadata.snapshots) == 1


def test_an_abort_outlives_its_expired_snapshot(table: Table) -> None:
    aborted = abort_txn(table.catalog, ref_of(table), TXN)
    assert isinstance(aborted, Aborted)
    append(fresh(table), ROWS)
    fresh(table).maintenance.expire_snapshots().by_id(aborted.snapshot_id).commit()
    outcome = commit_table(table.catalog, ref_of(table), load(fresh(table)))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.ABORTED


def test_a_rolled_back_commit_is_never_applied_again(table: Table) -> None:
    before = append(table, ROWS).current_snapshot()
    assert before is not None
    commit_table(table.catalog, ref_of(table), load(fresh(table)))
    fresh(table).manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    assert isinstance(find_txn(fresh(table), TXN), RolledBack)
    outcome = commit_table(table.catalog, ref_of(table), load(fresh(table)))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.ROLLED_BACK
    assert rows(table) == 3


def test_a_commit_whose_snapshot_expired_is_still_committed(table: Table) -> None:
    committed = commit_table(table.catalog, ref_of(table), load(table))
    assert isinstance(committed, Committed)
    append(fresh(table), ROWS)
    fresh(table).maintenance.expire_snapshots().by_id(committed.snapshot_id).commit()
    assert isinstance(commit_table(table.catalog, ref_of(table), load(fresh(table))), AlreadyCommitted)


def test_a_summary_alone_is_enough_to_know_a_transaction(table: Table) -> None:
    commit_table(table.catalog, ref_of(table), load(table))
    fresh(table).transaction().remove_properties(txn_property(TXN)).commit_transaction()
    assert isinstance(find_txn(fresh(table), TXN), Present)


def test_a_table_that_knows_nothing_says_so(table: Table) -> None:
    assert find_txn(append(table, ROWS), TXN) == Absent()


def test_loads_of_different_jobs_both_land_in_a_race(table: Table) -> None:
    def other() -> None:
        assert isinstance(commit_table(table.catalog, ref_of(table), load(table, "other")), Committed)

    hooks = Hooks(before=other)
    outcome = commit_table(table.catalog, ref_of(table), load(table), CommitPorts(hooks=hooks, pause=no_pause))
    assert isinstance(outcome, Committed)
    assert hooks.swaps == 2
    assert rows(table) == 6


def test_a_writer_that_always_loses_gives_up_with_a_conflict(table: Table) -> None:
    class Rival(NoHooks):
        def before_swap(self, _: Table) -> None:
            append(fresh(table), ROWS)

    change = load(table)
    outcome = commit_table(table.catalog, ref_of(table), change, CommitPorts(hooks=Rival(), pause=no_pause))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.CONFLICTED
    discard_files(table, change.added)
    live = read_file_set(fresh(table)).files["path"].to_pylist()
    assert all(Path(path.removeprefix("file://")).exists() for path in live)


def test_a_commit_that_cannot_be_read_back_is_unknown_and_keeps_its_files(table: Table) -> None:
    catalog = table.catalog
    change = load(table)

    class Cut(NoHooks):
        def after_swap(self, _: Table) -> None:
            catalog.engine.dispose()  # type: ignore[attr-defined]
            Path(root / "catalog.db").rename(root / "away.db")
            (root / "catalog.db").mkdir()
            raise ConnectionError("the catalog went away")

    root = Path(table.location().removeprefix("file://")).parents[1]
    outcome = commit_table(catalog, ref_of(table), change, CommitPorts(hooks=Cut(), pause=no_pause))
    assert isinstance(outcome, Unknown)
    assert all(Path(file.file_path.removeprefix("file://")).exists() for file in change.added)


def test_a_catalog_that_is_away_before_anything_was_sent_is_an_error(table: Table, tmp_path: Path) -> None:
    change = load(table)
    table.catalog.engine.dispose()  # type: ignore[attr-defined]
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(DependencyUnavailable) as caught:
        commit_table(table.catalog, ref_of(table), change, CommitPorts(pause=no_pause))
    assert caught.value.reason is Reason.CATALOG_UNAVAILABLE


def test_another_job_with_the_same_source_is_refused(table: Table) -> None:
    commit_table(table.catalog, ref_of(table), load(table, unique_source=True))
    assert find_digest(fresh(table), "d1") == TXN
    outcome = commit_table(table.catalog, ref_of(table), load(table, "other", unique_source=True))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.SOURCE_ALREADY_APPLIED
    assert TXN in outcome.message
    assert rows(table) == 3


def test_another_job_with_the_same_source_is_allowed_when_asked(table: Table) -> None:
    commit_table(table.catalog, ref_of(table), load(table))
    assert isinstance(commit_table(table.catalog, ref_of(table), load(table, "other")), Committed)
    assert rows(table) == 6


def test_a_source_that_was_rolled_back_may_be_applied_by_another_job(table: Table) -> None:
    before = append(table, ROWS).current_snapshot()
    assert before is not None
    commit_table(table.catalog, ref_of(table), load(fresh(table), unique_source=True))
    fresh(table).manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    assert find_digest(fresh(table), "d1") is None
    outcome = commit_table(table.catalog, ref_of(table), load(fresh(table), "other", unique_source=True))
    assert isinstance(outcome, Committed)


def test_partial_segments_are_remembered(table: Table) -> None:
    for txn in ("a", "b"):
        commit_table(table.catalog, ref_of(table), load(fresh(table), txn, is_partial=True))
    commit_table(table.catalog, ref_of(table), load(fresh(table), "c"))
    assert fresh(table).properties["skipstone.partial"] == "1,2"
