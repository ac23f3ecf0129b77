"""Once a swap was sent, only a fresh look at the table may say that it did not land: everything else is Unknown.

The catalog, its files and the rivals are real; what goes wrong, and when, is chosen.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import InputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType
from skipstone.tables import catalogs
from skipstone.tables.catalogs import OwnSqlCatalog, load_table
from skipstone.tables.committing.commits import CommitPorts, TableCommit, abort_txn, commit_table
from skipstone.tables.decoding.metadatafiles import write_metadata
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.history.commits import Aborted, Committed, Conflicted, Outcome, TxnRecord, Unknown
from skipstone_core.reasons import Reason

from tests.spark.lake import append, ref_of, write_files

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
TXN = "9d1f0c3e-0000-4000-8000-000000000001"
Act = Callable[[], object]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with one segment."""
    return append(catalog.create_table(("ns", "t"), ROWS.schema), ROWS)


@dataclass
class Fault:
    """Does something when the first swap is about to be sent, when it went through, and at each pause after that."""

    before: Act = field(default=lambda: None)
    after: Act = field(default=lambda: None)
    paused: Act = field(default=lambda: None)
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

    def ports(self) -> CommitPorts:
        """Without waiting."""
        return CommitPorts(hooks=self, pause=lambda _: self.paused() and None)


def lost() -> None:
    """The answer never arrives."""
    raise ConnectionError("the answer was lost")


def both(*acts: Act) -> Act:
    """One after the other."""
    return lambda: [act() for act in acts]


@dataclass
class Load:
    """A planned append of ROWS."""

    table: Table
    options: Mapping[str, Any] = field(default_factory=dict)
    change: TableCommit = field(init=False)

    def __post_init__(self) -> None:
        """Write its file."""
        added = write_files(self.table, ROWS)
        self.change = TableCommit(pinned=pin_table(self.table), added=added, txn=TXN, **self.options)

    def commit(self, fault: Fault, catalog: Catalog | None = None) -> Outcome:
        """What comes of it; who gets Conflicted or AlreadyCommitted deletes its files."""
        return commit_table(catalog or self.table.catalog, ref_of(self.table), self.change, fault.ports())


def rename(table: Table, name: str = "elsewhere") -> Act:
    """The table gets another name."""
    return lambda: table.catalog.rename_table(table.name(), ("ns", name))


def metadata_file(table: Table) -> Path:
    """The metadata that the catalog names now."""
    return Path(table.catalog.load_table(table.name()).metadata_location.removeprefix("file://"))


def unfinished_files(table: Table) -> set[str]:
    """Manifests on disk that no snapshot of the table ``ns.t`` reaches."""
    now = table.catalog.load_table(table.name())
    known = {snapshot.manifest_list for snapshot in now.metadata.snapshots}
    known |= {one.manifest_path for snapshot in now.metadata.snapshots for one in snapshot.manifests(now.io)}
    folder = Path(table.location().removeprefix("file://"))
    return {str(path) for path in folder.rglob("*.avro")} - {path.removeprefix("file://") for path in known}


def test_an_answer_is_proof_whatever_becomes_of_the_table_then(table: Table) -> None:
    outcome = Load(table).commit(Fault(after=rename(table)))
    assert isinstance(outcome, Committed)
    assert table.catalog.load_table(("ns", "elsewhere")).scan().count() == 6


def test_a_table_renamed_while_the_answer_was_lost_is_unknown(table: Table) -> None:
    outcome = Load(table).commit(Fault(after=both(rename(table), lost)))
    assert isinstance(outcome, Unknown)
    assert "the answer was lost" in outcome.message
    assert table.catalog.load_table(("ns", "elsewhere")).scan().count() == 6


def test_a_table_exchanged_for_another_while_the_answer_was_lost_is_unknown(table: Table) -> None:
    other = append(table.catalog.create_table(("ns", "green"), ROWS.schema), ROWS)
    exchange = both(rename(table), lambda: table.catalog.rename_table(other.name(), ("ns", "t")), lost)
    assert isinstance(Load(table).commit(Fault(after=exchange)), Unknown)
    assert table.catalog.load_table(("ns", "t")).scan().count() == 3


def test_a_table_that_is_away_for_a_moment_is_looked_for_again(table: Table) -> None:
    def back() -> None:
        if not table.catalog.table_exists(table.name()):
            table.catalog.rename_table(("ns", "elsewhere"), table.name())

    assert isinstance(Load(table).commit(Fault(after=both(rename(table), lost), paused=back)), Committed)


def test_metadata_that_is_away_for_good_after_a_lost_answer_is_unknown(table: Table) -> None:
    hidden: list[Path] = []

    def hide() -> None:
        hidden.append(metadata_file(table).rename(metadata_file(table).with_suffix(".hidden")))

    assert isinstance(Load(table).commit(Fault(after=both(hide, lost))), Unknown)
    hidden[0].rename(hidden[0].with_suffix(".json"))
    assert table.catalog.load_table(table.name()).scan().count() == 6


def test_metadata_that_is_away_before_anything_was_sent_is_an_error_that_may_pass(table: Table) -> None:
    load, path = Load(table), metadata_file(table)
    hidden = path.rename(path.with_suffix(".hidden"))
    with pytest.raises(DependencyUnavailable, match="names a metadata file of") as caught:
        load.commit(Fault())
    hidden.rename(path)
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE


def test_rivals_that_delete_old_metadata_between_pointer_and_file_are_outrun(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    table.transaction().set_properties(eager).commit_transaction()
    read, rivals = OwnSqlCatalog.metadata_in, [1, 1, 0, 1, 0]

    def overtaken(file: InputFile) -> TableMetadata:
        """Two commits between the catalog's answer and the reading of what it named."""
        if rivals and rivals.pop():
            monkeypatch.setattr(OwnSqlCatalog, "metadata_in", staticmethod(read))
            for _ in range(2):
                now = table.catalog.load_table(table.name())
                now.transaction().set_properties({"rival": now.metadata_location}).commit_transaction()
            monkeypatch.setattr(OwnSqlCatalog, "metadata_in", staticmethod(overtaken))
        return read(file)

    load = Load(table.catalog.load_table(table.name()))
    monkeypatch.setattr(OwnSqlCatalog, "metadata_in", staticmethod(overtaken))
    assert isinstance(load.commit(Fault(after=lost)), Committed)
    assert not rivals


class Ledger:
    """A ledger that cannot be read from its ``away``-th look on."""

    def __init__(self, away: int) -> None:
        """``away`` 0: from the start."""
        self.looks, self.away = 0, away

    def find_conflict(self, table: Table) -> None:
        """Look."""
        self.looks += 1
        if self.looks > self.away:
            raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, "the ledger is away")

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        """None."""
        return {}


def test_a_ledger_that_is_away_while_a_swap_may_still_land_is_unknown(table: Table) -> None:
    late = LateCatalog(table.catalog)
    outcome = Load(table, {"ledger": Ledger(away=1)}).commit(Fault(), late)
    assert isinstance(outcome, Unknown)
    assert "the ledger is away" in outcome.message
    late.land()
    assert table.catalog.load_table(table.name()).scan().count() == 6


def test_a_ledger_that_is_away_before_anything_was_sent_is_an_error(table: Table) -> None:
    with pytest.raises(DependencyUnavailable, match="the ledger is away"):
        Load(table, {"ledger": Ledger(away=0)}).commit(Fault())
    assert unfinished_files(table) == set()


class LateCatalog:
    """A catalog whose first swap gets no answer and is carried out later."""

    def __init__(self, catalog: Catalog) -> None:
        """In front of ``catalog``."""
        self._catalog, self._held = catalog, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any) -> Any:
        """The first one waits."""
        if self._held:
            return self._catalog.commit_table(*arguments)
        self._held.append(arguments)
        raise ConnectionError("no answer within a minute")

    def land(self) -> None:
        """Now it is carried out."""
        self._catalog.commit_table(*self._held[0])


def test_a_swap_that_lands_late_is_found_and_not_sent_twice(table: Table) -> None:
    late = LateCatalog(table.catalog)
    fault = Fault()
    fault.paused = lambda: fault.swaps == 1 and late.land()
    assert isinstance(Load(table).commit(fault, late), Committed)  # type: ignore[arg-type]
    assert fault.swaps == 1
    assert table.catalog.load_table(table.name()).scan().count() == 6


def test_a_swap_that_arrives_after_its_successor_is_refused(table: Table) -> None:
    late = LateCatalog(table.catalog)
    assert isinstance(Load(table).commit(Fault(), late), Committed)  # type: ignore[arg-type]
    with pytest.raises(CommitFailedException):
        late.land()
    assert table.catalog.load_table(table.name()).scan().count() == 6


def test_another_shape_is_no_conflict_while_a_swap_may_still_land(table: Table) -> None:
    def change_and_back() -> None:
        with table.catalog.load_table(table.name()).update_schema() as update:
            update.add_column("more", StringType())

    outcome = Load(table).commit(Fault(paused=change_and_back), LateCatalog(table.catalog))  # type: ignore[arg-type]
    assert isinstance(outcome, Unknown)


def test_a_swap_whose_number_another_took_is_dead(table: Table) -> None:
    """A merge that got no answer, and a rival that removed its file: planning again is right, and nothing is left."""
    files = read_file_set(table)
    (file,) = [files.data_file(0)]
    change = TableCommit(pinned=files.pinned, removed=(file,), added=write_files(table, ROWS), txn=TXN)

    def rival() -> None:
        theirs = TableCommit(pinned=files.pinned, removed=(file,), txn="rival")
        assert isinstance(commit_table(table.catalog, ref_of(table), theirs), Committed)

    fault, late = Fault(), LateCatalog(table.catalog)
    fault.paused = lambda: fault.swaps == 1 and rival()
    outcome = commit_table(late, ref_of(table), change, fault.ports())  # type: ignore[arg-type]
    assert isinstance(outcome, Conflicted)
    assert unfinished_files(table) == set()
    with pytest.raises(CommitFailedException):
        late.land()


class RepeatingProxy(LateCatalog):
    """In front of a catalog: sends the first swap twice and passes on the second answer, which is no."""

    def commit_table(self, *arguments: Any) -> Any:
        """Sent twice, the first time."""
        if not self._held:
            self._held.append(arguments)
            self._catalog.commit_table(*arguments)
        return self._catalog.commit_table(*arguments)


def test_a_refusal_of_a_repeated_request_is_looked_behind(table: Table) -> None:
    outcome = Load(table).commit(Fault(), RepeatingProxy(table.catalog))  # type: ignore[arg-type]
    assert isinstance(outcome, Committed)
    assert table.catalog.load_table(table.name()).scan().count() == 6


def test_a_refusal_of_a_repeated_request_is_unknown_when_the_table_is_away(table: Table) -> None:
    class Renaming(RepeatingProxy):
        def commit_table(self, *arguments: Any) -> Any:
            try:
                return super().commit_table(*arguments)
            finally:
                rename(table)()

    assert isinstance(Load(table).commit(Fault(), Renaming(table.catalog)), Unknown)  # type: ignore[arg-type]
    assert table.catalog.load_table(("ns", "elsewhere")).scan().count() == 6


def test_a_table_dropped_before_the_swap_is_a_conflict_for_a_catalog_that_answers_itself(table: Table) -> None:
    assert isinstance(table.catalog, OwnSqlCatalog)
    outcome = Load(table).commit(Fault(before=lambda: table.catalog.drop_table(table.name())))
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.TABLE_MISSING


@pytest.mark.parametrize("again", [False, True], ids=["rolled back", "rolled forward"])
def test_a_commit_that_landed_is_committed_even_when_it_was_rolled_back_since(table: Table, again: bool) -> None:
    before = table.current_snapshot()
    assert before is not None

    def roll_back() -> None:
        now = table.catalog.load_table(table.name())
        landed = now.metadata.current_snapshot_id
        assert landed is not None
        now.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        if again:
            now = table.catalog.load_table(table.name())
            now.manage_snapshots().set_current_snapshot(landed).commit()

    load = Load(table, {"record": TxnRecord(time_ms=0, counts={"rowsLoaded": 3})})
    outcome = load.commit(Fault(after=both(roll_back, lost)))
    assert isinstance(outcome, Committed)
    assert outcome.record.counts == {"rowsLoaded": 3}
    assert table.catalog.load_table(table.name()).scan(snapshot_id=outcome.snapshot_id).count() == 6


def test_no_room_for_metadata_is_an_error_and_nothing_is_left(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*arguments: Any) -> None:
        write_metadata(*arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = Path(table.location().removeprefix("file://")) / "metadata"
    load, before = Load(table), set(folder.iterdir())
    monkeypatch.setattr(catalogs, "write_metadata", torn)
    with pytest.raises(OSError, match="No space left") as caught:
        load.commit(Fault())
    assert caught.value.errno == errno.ENOSPC
    assert set(folder.iterdir()) == before


def test_an_abort_whose_answer_was_lost_is_not_known_when_the_table_was_renamed(table: Table) -> None:
    ports = Fault(after=both(rename(table), lost)).ports()
    assert abort_txn(table.catalog, ref_of(table), TXN, ports) is None


def test_an_abort_that_got_its_answer_is_known_whatever_becomes_of_the_table_then(table: Table) -> None:
    assert isinstance(abort_txn(table.catalog, ref_of(table), TXN, Fault(after=rename(table)).ports()), Aborted)


def test_a_plan_on_an_empty_table_sees_files_whose_snapshot_expired(catalog: Catalog) -> None:
    empty = catalog.create_table(("ns", "e"), ROWS.schema)
    seen: list[int] = []

    def guard(_: Table, added: tuple[Any, ...]) -> str | None:
        seen.append(len(added))
        return "others added rows"

    change = TableCommit(pinned=pin_table(empty), added=write_files(empty, ROWS), txn=TXN, guard=guard)
    first = append(empty, ROWS).current_snapshot()
    assert first is not None
    append(load_table(catalog, ref_of(empty)), ROWS)
    load_table(catalog, ref_of(empty)).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert isinstance(commit_table(catalog, ref_of(empty), change), Conflicted)
    assert seen == [2]
