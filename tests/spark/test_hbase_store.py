"""An index whose entries are in a real HBase: rows are those without an index, whatever happens to the store.

`make soak-hbase` runs all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from unittest import mock

import pytest
from skipstone.indexes.coverage import read_covers
from skipstone.indexes.stores.hbase import store as hbase_store
from skipstone.indexes.stores.hbase.client import HBaseTable, StoreUnavailable
from skipstone.indexes.stores.hbase.generations import id_of_cell
from skipstone.indexes.stores.hbase.store import ORPHAN_SECONDS, HBaseStore
from skipstone.indexes.upkeep.expiry import READERS_SECONDS
from skipstone.query import explain
from skipstone.runs.drop import run_drop
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.requests import DropTask, IndexRef, JobRequest, ReindexTask, RunKind
from skipstone_core.contract.stores import HBaseRef
from skipstone_core.reasons import Reason

from tests.ports import free_port
from tests.spark.hbase import cells_of, hbase_server, remove_cells, restore, wipe
from tests.spark.hbase_bed import ROWS, HBaseBed
from tests.spark.merge_bed import AtSwap
from tests.spark.resolve_bed import POLICY, ResolveBed

_TABLES = count()
KEYS = [{"id": 5000}, {"id": 7001}, {"id": 999_999}]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A running HBase."""
    with hbase_server(tmp_path_factory.mktemp("hbase") / "server") as port:
        yield port


@pytest.fixture
def store(port: int) -> HBaseRef:
    """A table of its own for each test."""
    return HBaseRef(host="127.0.0.1", port=port, table=f"t{next(_TABLES)}", timeout_seconds=60)


def generations_in(store: HBaseRef) -> set[str]:
    """The generations of which a cell is in HBase."""
    return {id_of_cell(name.removeprefix(b"e:")) for named in cells_of(store).values() for name in named}


def ids(bed: HBaseBed) -> set[str]:
    """The generations that cover rows name."""
    return {held.generation.id for held in bed.held}


def assert_asked(message: str, *, left: str) -> None:
    """The key index stage asked the store, and left so many files."""
    assert f"files to {left}" in message, message


def test_merges_and_lookups_find_rows_by_the_store(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(6)
    bed.reindex()
    state = bed.state
    assert (state.segments_synced, state.entries, state.degraded) == (6, 6 * ROWS, None)
    assert state.store == f"hbase://127.0.0.1:{store.port}/{store.table}?timeoutSeconds=60"
    assert bed.looked_up("id = 5000").num_rows == 1
    assert bed.looked_up("id in (5000, 7001, 6, 7003)").num_rows == 3
    assert bed.looked_up("id = 5000 and v < 0").num_rows == 0
    assert bed.looked_up("id is null").num_rows == 6
    explained = str(explain(bed.bed.table(), "id > 5000"))
    assert "an index in HBase serves only conditions that name values of all its columns" in explained
    assert_asked(bed.merged(KEYS), left="2")
    bed.reindex()
    assert bed.state.segments_missing == 0
    assert bed.looked_up("id in (5000, 999999)").num_rows == 2
    assert {*ids(bed)} <= generations_in(store)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("columns", "key", "condition"),
    [
        (("cents",), {"cents": Decimal("5.01")}, "cents = 5.01"),
        (("name", "id"), {"name": "n5001", "id": 5001}, "name = 'n5001' and id in (5001, 5002)"),
    ],
    ids=["decimals", "two columns"],
)
def test_keys_of_other_types(
    store: HBaseRef, tmp_path: Path, columns: tuple[str, ...], key: dict[str, object], condition: str
) -> None:
    bed = HBaseBed(tmp_path, store, columns)
    bed.add(4)
    bed.reindex()
    assert bed.looked_up(condition).num_rows == 1
    assert bed.looked_up(f"{condition} and v = 77").num_rows == 0
    assert_asked(bed.merged([key], columns), left="1")


def test_a_store_that_is_emptied_costs_time_only(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(3)
    bed.reindex()
    wipe(store)
    assert bed.state.degraded is Reason.INDEX_DAMAGED
    assert (bed.state.segments_missing, bed.state.files_covered) == (3, 0)
    assert bed.looked_up("id = 5000").num_rows == 1
    bed.merged(KEYS)
    report = bed.reindex()
    assert "are gone, with the whole table" in report.message
    assert (bed.state.segments_missing, bed.state.degraded) == (0, None)
    assert_asked(bed.merged([{"id": 5000}]), left="1")


def test_a_copy_that_is_older_or_torn_costs_time_only(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(2)
    bed.reindex()
    older = cells_of(store)
    bed.add(2)
    bed.reindex()
    newer = cells_of(store)
    restore(store, older)
    assert (bed.state.degraded, bed.state.segments_missing) == (Reason.INDEX_DAMAGED, 2)
    bed.looked_up("id in (5000, 5003)")
    assert_asked(bed.merged([{"id": 5000}]), left="3")  # the file of the key, and those that are not known
    bed.reindex()
    assert bed.state.segments_missing == 0
    restore(store, newer, keep=lambda row: row[0] < 0x80)
    bed.looked_up("id in (5000, 5003, 7001)")
    bed.merged([{"id": 5003}, {"id": 7001}])


@pytest.mark.soak
def test_cells_that_others_remove_are_missed_by_who_asks_for_them(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(4)
    bed.reindex()
    oldest = bed.held[0].generation
    with mock.patch.object(hbase_store, "LOOKED_PAGES", 0):  # a short look may not see a single page
        assert remove_cells(store, lambda _, name: id_of_cell(name.removeprefix(b"e:")) == oldest.id) > 0
        assert bed.state.degraded is None
        assert bed.looked_up("id in (5000, 5003)").num_rows == 2
        bed.merged([{"id": 5000}, {"id": 5003}])


def test_a_run_that_dies_between_two_writes_loses_nothing(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(2)
    bed.reindex()
    bed.add(2)
    known = ids(bed)

    class Killed(BaseException):
        """The process ends here: nothing is caught, nothing is tidied."""

    def die(*_: object) -> None:
        raise Killed

    with mock.patch.object(HBaseTable, "put", die), suppress(Killed):
        bed.reindex()
    assert (ids(bed), bed.state.segments_missing) == (known, 2)
    ports = CommitPorts(hooks=AtSwap(before=die))
    with suppress(Killed):
        bed.reindex(ports)
    orphans = generations_in(store) - known
    assert (ids(bed), len(orphans)) == (known, 1)
    bed.looked_up("id in (5000, 5003)")
    assert_asked(bed.merged([{"id": 5000}]), left="3")
    bed.reindex()
    assert bed.state.segments_missing == 0
    assert orphans <= generations_in(store)  # it may be under way for all that is known
    now = time.time()
    replace(HBaseStore(bed.table, store), clock=lambda: now + ORPHAN_SECONDS + 60).tidy(read_covers(bed.table))
    assert generations_in(store) == ids(bed)


@pytest.mark.soak
def test_generations_are_merged_and_stale_entries_go(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    for _ in range(8):
        bed.add()
        bed.reindex()
    assert len(bed.held) == 1
    assert bed.held[0].generation.rows == 8 * ROWS
    assert bed.looked_up("id in (5000, 5007)").num_rows == 2
    assert len(generations_in(store)) == 8 + 1  # readers may know the older ones
    covers, now = read_covers(bed.table), time.time()
    replace(HBaseStore(bed.table, store), clock=lambda: now + READERS_SECONDS - 60).tidy(covers)
    assert len(generations_in(store)) == 8 + 1
    replace(HBaseStore(bed.table, store), clock=lambda: now + READERS_SECONDS + 60).tidy(covers)
    assert generations_in(store) == ids(bed)
    assert_asked(bed.merged([{"id": 5000}]), left="1")


@pytest.mark.soak
def test_two_runs_at_once_leave_one_generation_each_file(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(2)
    bed.reindex()
    bed.add(2)
    bed.reindex(CommitPorts(hooks=AtSwap(before=lambda: bed.reindex() and None)))
    assert bed.state.segments_missing == 0
    assert sorted(file_id for held in bed.held for file_id in held.file_ids.tolist()) == [0, 1, 2, 3]
    assert generations_in(store) == ids(bed)
    assert bed.looked_up("id in (5000, 5003)").num_rows == 2


@pytest.mark.soak
def test_a_full_rebuild_replaces_entries_in_place(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(3)
    bed.reindex()
    before = ids(bed)
    bed.reindex(rebuild="full/1")
    assert not ids(bed) & before
    assert bed.state.segments_missing == 0
    assert_asked(bed.merged([{"id": 5000}]), left="1")


@pytest.mark.soak
def test_a_store_that_does_not_answer_costs_time_only(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(2)
    bed.reindex()
    with mock.patch.object(HBaseTable, "get", side_effect=StoreUnavailable(store, "it is away")):
        state = bed.state
        assert (state.degraded, state.segments_missing) == (Reason.STORAGE_UNAVAILABLE, 2)
        assert "it is away" in state.message
        assert bed.looked_up("id = 5000").num_rows == 1
        assert "it is away" in bed.merged(KEYS)


@pytest.mark.soak
def test_a_store_that_moves_is_filled_again(store: HBaseRef, tmp_path: Path) -> None:
    bed = HBaseBed(tmp_path, store)
    bed.add(2)
    bed.reindex()
    bed.store = replace(store, table=f"{store.table}_moved")
    bed.reindex()
    assert bed.state.store.startswith(f"hbase://127.0.0.1:{store.port}/{store.table}_moved")
    assert (bed.state.segments_missing, generations_in(bed.store)) == (0, ids(bed))
    assert_asked(bed.merged([{"id": 5000}]), left="1")


@pytest.mark.soak
def test_a_drop_takes_the_rows_of_its_index_only(store: HBaseRef, tmp_path: Path) -> None:
    for name in ("dropped", "kept"):
        (tmp_path / name).mkdir()
    bed, other = HBaseBed(tmp_path / "dropped", store), HBaseBed(tmp_path / "kept", store)
    for each in (bed, other):
        each.add(2)
        each.reindex()
    request = JobRequest(
        kind=RunKind.DROP,
        run_id="33333333-00000001-1",
        attempt=1,
        warehouse=bed.bed.warehouse,
        owner_kind="SecondaryIndex",
        owner_name=bed.index.name,
        owner_uid=bed.index.uid,
        table=bed.bed.ref,
        drop=DropTask(index=bed.index),
    )
    assert run_drop(request, Reporter(request)).reason is Reason.DATA_DELETED
    assert generations_in(store) == ids(other)


def resolving_bed(root: Path, store: HBaseRef) -> ResolveBed:
    """Twelve files with keys between one another, of which the index knows all but the last."""
    bed = ResolveBed(root)
    bed.make()
    index = IndexRef(name="in-store", uid="33333333-0000-0000-0000-000000000000", columns=("id",), store=store)
    for number in range(12):
        if number == 11:
            request = replace(bed.maintenance((), POLICY), kind=RunKind.REINDEX, maintain=None, indexes=(index,))
            request = replace(request, owner_uid=index.uid, reindex=ReindexTask(index=index))
            assert run_reindex(request, Reporter(request)).outcome == "Committed"
        bed.add(*({"id": 100 * place + number, "k": f"k{number}"} for place in range(20)), {"id": None, "k": "k5"})
    return bed


@pytest.mark.parametrize("event", ["nothing", "emptied", "another column", "null"])
def test_equality_deletes_are_resolved_by_the_store(store: HBaseRef, tmp_path: Path, event: str) -> None:
    bed = resolving_bed(tmp_path, store)
    names = ["id", "k"] if event == "another column" else ["id"]
    keys = [{"id": 705, "k": "k5"}, {"id": 1303, "k": "other"}, {"id": 11, "k": "k11"}, {"id": 90_001, "k": "k1"}]
    bed.delete_equal(names, [*keys, {"id": None}] if event == "null" else keys)
    if event == "emptied":
        wipe(store)
    step = bed.resolve()
    by_index, scanned = (9, 3) if event in ("nothing", "another column") else (0, 12)
    assert (step.is_done, step.counts["filesByIndex"], step.counts["filesScanned"]) == (True, by_index, scanned), step
    assert (bed.numbers_held(), bed.equality_files()) == (sorted(bed.live), 0)


def test_nobody_at_the_address_is_said_in_one_sentence() -> None:
    nowhere = HBaseRef(host="127.0.0.1", port=free_port())
    with pytest.raises(StoreUnavailable, match=r"^the store hbase://.* does not answer: .*; look at spec.store"):
        HBaseTable(nowhere, waits=()).get([b"row"])
