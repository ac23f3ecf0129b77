"""What a REST catalog answers, and what that proves: a real server, with a proxy before it where it must misbehave.

A 404 whose cause is another one than the table's absence must never let a run take the table for dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table import Table
from skipstone.runs.confirm import run_confirm
from skipstone.runs.drop import run_drop
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.answers.refusals import refused_commit
from skipstone.tables.catalogs import load_table, open_catalog
from skipstone.tables.committing.commits import TableCommit, abort_txn, commit_table
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table
from skipstone.tables.namespaces import find_mark, mark_namespace
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone.tables.upkeep.orphans import OrphanSite, Spared, clean_orphans
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ConfirmTask,
    DropTask,
    JobRequest,
    RunKind,
    TableRef,
    WarehouseRef,
)
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.history.commits import Committed, Conflicted, Outcome, Unknown
from skipstone_core.ids import OWNER_PROPERTY
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy, SnapshotPolicy
from skipstone_core.reasons import Reason

from tests.spark.catalogproxy import PAGE, CatalogProxy, Instead, catalog_proxy, iceberg_error
from tests.spark.lake import append, ref_of, write_files
from tests.spark.restserver import rest_catalog
from tests.spark.upkeep_bed import later

TXN = "9d1f0c3e-0000-4000-8000-000000000001"
OWNER = "11111111-2222-3333-4444-555555555555"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
NAME = ("ns", "t")
HOUR_MS = 3_600_000
LOAD = "/tables/t"
NOT_FOUND = iceberg_error(404, "NotFoundException", "Failed to open input stream for file: m.json")
BAD_REQUEST = iceberg_error(400, "BadRequestException", "Malformed request: no")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A REST catalog for this module."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        yield address


@pytest.fixture
def proxy(upstream: str) -> Iterator[CatalogProxy]:
    """Before the catalog."""
    with catalog_proxy(upstream) as found:
        yield found


@pytest.fixture
def home(proxy: CatalogProxy, tmp_path: Path) -> WarehouseRef:
    """A Warehouse behind the proxy."""
    return WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.REST, uri=proxy.address))


@pytest.fixture
def catalog(home: WarehouseRef, proxy: CatalogProxy) -> Iterator[Catalog]:
    """The open catalog with the namespace ``ns``, whose tables are dropped at the end."""
    opened = open_catalog(home)
    opened.create_namespace_if_not_exists("ns")
    yield opened
    proxy.rules.clear()
    proxy.page_size = 0
    for identifier in opened.list_tables("ns"):
        opened.drop_table(identifier)
    opened.close()


def make_table(catalog: Catalog, home: WarehouseRef, name: str = "t", place: str = "ns/t") -> Table:
    """A table with one segment, at ``place`` below the root."""
    properties = {"format-version": "2", OWNER_PROPERTY: OWNER}
    location = f"file://{home.root}/{place}"
    return append(catalog.create_table(("ns", name), ROWS.schema, location=location, properties=properties), ROWS)


@pytest.fixture
def table(catalog: Catalog, home: WarehouseRef) -> Table:
    """The table ``ns.t``."""
    return make_table(catalog, home)


@contextmanager
def away(table: Table) -> Iterator[None]:
    """The metadata file that the catalog names is away."""
    path = Path(re.sub("^file:/*", "/", table.metadata_location))
    path.rename(path.with_suffix(".away"))
    yield
    path.with_suffix(".away").rename(path)


def files_of(table: Table, ending: str = "*") -> set[Path]:
    """All files below its location."""
    root = Path(re.sub("^file:/*", "/", table.location()))
    return {path for path in root.rglob(ending) if path.is_file() and not path.name.endswith(".crc")}


def request_for(home: WarehouseRef, kind: RunKind, ref: TableRef) -> JobRequest:
    """What a pod is asked."""
    return JobRequest(
        kind=kind,
        run_id="r-1",
        attempt=1,
        warehouse=home,
        owner_kind="LoadJob",
        owner_name="l",
        owner_uid=TXN,
        table=ref,
        confirm=ConfirmTask(txn=TXN) if kind is RunKind.CONFIRM else None,
        drop=DropTask() if kind is RunKind.DROP else None,
    )


def confirm(home: WarehouseRef, ref: TableRef) -> JobReport:
    """A whole confirm run."""
    request = request_for(home, RunKind.CONFIRM, ref)
    return run_confirm(request, Reporter(request))


def known(table: Table) -> TableRef:
    """The table as status remembers it."""
    mark_namespace(table.catalog, "ns")
    mark = find_mark(table.catalog, "ns")
    return replace(
        ref_of(table), table_uuid=str(table.metadata.table_uuid), location=table.location(), namespace_id=mark
    )


def clean(home: WarehouseRef, table: Table, number: int) -> None:
    """Look for orphans a day later, and delete those that an earlier look found."""
    spared = Spared(run_id=f"0000000{number}-12345678-1")
    site = OrphanSite(catalog=table.catalog, warehouse=home, ref=ref_of(table), spared=spared, now_ms=later().now_ms)
    clean_orphans(site, OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60))


# --- a 404 is no proof of absence ---


def test_a_neighbor_whose_metadata_file_is_away_keeps_its_files(
    catalog: Catalog, table: Table, home: WarehouseRef
) -> None:
    neighbor = make_table(catalog, home, "neighbor", "ns/t/neighbor")
    before = files_of(neighbor, "*.parquet")
    with away(neighbor):
        for number in range(2):
            with pytest.raises(DependencyUnavailable, match=r"answers 404 for the table ns\.neighbor") as caught:
                clean(home, table, number)
            assert caught.value.reason is Reason.CATALOG_UNAVAILABLE
    assert before
    assert files_of(neighbor, "*.parquet") == before


def test_a_job_that_committed_is_not_absent_while_the_metadata_file_is_away(table: Table, home: WarehouseRef) -> None:
    ref = known(table)
    change = TableCommit(pinned=pin_table(table), added=write_files(table, ROWS), txn=TXN)
    assert isinstance(commit_table(table.catalog, ref, change), Committed)
    with away(table.catalog.load_table(NAME)), pytest.raises(DependencyUnavailable) as caught:
        confirm(home, ref)
    assert caught.value.reason is Reason.CATALOG_UNAVAILABLE
    assert confirm(home, ref).outcome is RunOutcome.ALREADY_COMMITTED


def test_a_job_whose_table_was_dropped_is_absent(table: Table, home: WarehouseRef) -> None:
    ref = known(table)
    table.catalog.drop_table(NAME)
    report = confirm(home, ref)
    assert (report.outcome, report.reason) == (RunOutcome.ABSENT, Reason.TABLE_MISSING)


def test_a_table_is_not_told_as_deleted_that_the_server_does_not_find(
    table: Table, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    request = request_for(home, RunKind.DROP, replace(ref_of(table), uid=OWNER))
    proxy.answer("DELETE", LOAD, Instead(404, NOT_FOUND))
    with pytest.raises(DependencyUnavailable, match="answers 404"):
        run_drop(request, Reporter(request))
    proxy.rules.clear()
    assert run_drop(request, Reporter(request)).reason is Reason.DATA_DELETED


@pytest.mark.parametrize(
    ("kind", "is_proof"),
    [
        ("NoSuchTableException", True),
        ("NoSuchIcebergTableException", True),
        ("NoSuchNamespaceException", True),
        ("NotFoundException", False),
        ("NoSuchCatalogException", False),
    ],
)
def test_only_what_iceberg_calls_an_absent_table_is_one(
    kind: str, is_proof: bool, table: Table, proxy: CatalogProxy
) -> None:
    proxy.answer("GET", LOAD, Instead(404, iceberg_error(404, kind, "no")))
    with pytest.raises(BadSpec if is_proof else DependencyUnavailable) as caught:
        load_table(table.catalog, ref_of(table))
    assert caught.value.reason is (Reason.TABLE_MISSING if is_proof else Reason.CATALOG_UNAVAILABLE)


@pytest.mark.parametrize("body", [PAGE, b"", b"{}", NOT_FOUND.replace(b"404", b"500")])
def test_an_answer_that_says_nothing_is_compared_with_all_pages_of_the_list(
    body: bytes, catalog: Catalog, table: Table, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    for name in ("a", "b"):
        make_table(catalog, home, name, f"ns/{name}")
    proxy.page_size = 1
    proxy.answer("GET", LOAD, Instead(404, body))
    with pytest.raises(DependencyUnavailable, match="and lists it all the same"):
        load_table(catalog, ref_of(table))
    with pytest.raises(DependencyUnavailable, match="and lists it all the same"):
        proxy.answer("HEAD", LOAD, Instead(404))
        catalog.table_exists(NAME)
    proxy.rules.clear()
    catalog.drop_table(NAME)
    proxy.answer("GET", LOAD, Instead(404, body))
    with pytest.raises(BadSpec) as caught:
        load_table(catalog, ref_of(table))
    assert caught.value.reason is Reason.TABLE_MISSING
    assert not catalog.table_exists(NAME)


def test_a_server_that_finds_nothing_at_all_proves_nothing(table: Table, proxy: CatalogProxy) -> None:
    proxy.rules.append(lambda method, path: Instead(404, PAGE))
    with pytest.raises(DependencyUnavailable, match="answers 404 for its list of namespaces") as caught:
        load_table(table.catalog, ref_of(table))
    assert "spec.catalog.uri" in str(caught.value)
    proxy.rules = [lambda method, path: Instead(404, PAGE) if "/ns" in path else None]
    with pytest.raises(DependencyUnavailable, match="answers 404 for the namespace ns and lists it"):
        load_table(table.catalog, ref_of(table))
    assert find_mark(table.catalog, "ns") == ""


def test_a_server_that_lists_nothing_proves_nothing_without_a_type(
    home: WarehouseRef, table: Table, proxy: CatalogProxy
) -> None:
    space = "/v1/{prefix}/namespaces/{namespace}"
    few = {"defaults": {}, "overrides": {}, "endpoints": [f"GET {space}", f"GET {space}/tables/{{table}}"]}
    proxy.answer("GET", "/v1/config", Instead(200, json.dumps(few).encode()))
    proxy.rules.append(lambda method, path: Instead(404, PAGE) if "/ns" in path else None)
    poor = open_catalog(home)
    with pytest.raises(DependencyUnavailable, match="and lists no tables"):
        load_table(poor, ref_of(table))
    with pytest.raises(DependencyUnavailable, match="and lists no namespaces"):
        poor.load_namespace_properties("ns")
    poor.close()


@pytest.mark.parametrize("body", [PAGE, b"", b"{}", b"[]"])
def test_what_is_no_answer_of_a_catalog_tells_nothing_of_a_table(
    body: bytes, table: Table, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    ref = known(table)
    change = TableCommit(pinned=pin_table(table), added=write_files(table, ROWS), txn=TXN)
    assert isinstance(commit_table(table.catalog, ref, change), Committed)
    for end, ask in (
        (LOAD, lambda: load_table(table.catalog, ref)),
        (LOAD, lambda: confirm(home, ref)),
        ("/namespaces", lambda: clean(home, table, 1)),
        ("/tables", lambda: clean(home, table, 1)),
    ):
        proxy.rules.clear()
        proxy.answer("GET", end, Instead(200, body))
        with pytest.raises(DependencyUnavailable, match="answers what no catalog answers") as caught:
            ask()
        assert caught.value.reason is Reason.CATALOG_UNAVAILABLE
    proxy.rules.clear()
    assert confirm(home, ref).outcome is RunOutcome.ALREADY_COMMITTED


# --- a refusal is no doubt ---


def load(table: Table, ahead_ms: int = 0) -> Outcome:
    """Write and commit by a clock that is ahead."""
    site = CommitSite(catalog=table.catalog, ref=ref_of(table), ports=later(ahead_ms))

    def write(written: WrittenFiles) -> TableCommit:
        added = written.note(write_files(written.table, ROWS))
        return TableCommit(pinned=pin_table(written.table), added=added, txn=TXN)

    return commit_written(site, table.catalog.load_table(NAME), write)


def test_a_commit_that_the_server_refuses_for_its_time_leaves_nothing_and_tells_why(table: Table) -> None:
    before = files_of(table)
    refused = load(table, HOUR_MS)
    assert isinstance(refused, Conflicted)
    assert refused.reason is Reason.CLOCK_SKEWED
    assert "the clock of its server is behind that of this node" in refused.message
    assert files_of(table) == before
    assert isinstance(load(table), Committed)


def test_a_refusal_of_another_kind_is_told_in_the_words_of_the_server(table: Table, proxy: CatalogProxy) -> None:
    before = files_of(table)
    proxy.answer("POST", LOAD, Instead(400, BAD_REQUEST))
    refused = load(table)
    assert isinstance(refused, Conflicted)
    assert refused.reason is Reason.CATALOG_UNAVAILABLE
    assert "refused the change of ns.t: BadRequestException: Malformed request: no" in refused.message
    assert files_of(table) == before
    assert len([1 for method, path, _ in proxy.seen if method == "POST" and path.endswith(LOAD)]) == 2


@pytest.mark.parametrize(
    "instead",
    [
        Instead(400, PAGE),
        Instead(403, b'{"message": "no"}'),
        Instead(408, iceberg_error(408, "RequestTimeout", "no")),
        Instead(409, PAGE),
        Instead(409),
    ],
)
def test_what_may_come_from_somebody_else_leaves_the_outcome_unknown_and_the_files(
    instead: Instead, table: Table, proxy: CatalogProxy
) -> None:
    before = files_of(table, "*.parquet")
    proxy.answer("POST", LOAD, instead)
    assert isinstance(load(table), Unknown)
    assert len(files_of(table, "*.parquet") - before) == 1


def test_a_refusal_of_what_landed_is_not_believed(table: Table, proxy: CatalogProxy) -> None:
    proxy.answer("POST", LOAD, Instead(400, BAD_REQUEST, is_late=True))
    assert isinstance(load(table), Committed)
    assert table.catalog.load_table(NAME).scan().count() == 6


def test_a_refusal_for_the_time_names_the_clock_that_is_behind(table: Table, proxy: CatalogProxy) -> None:
    body = iceberg_error(400, "DataInvalid", "Invalid snapshot timestamp 1: before last updated timestamp 2")
    proxy.answer("POST", LOAD, Instead(400, body))
    with pytest.raises(RESTError) as caught:
        table.transaction().set_properties({"a": "b"}).commit_transaction()
    now_ms = table.metadata.last_updated_ms
    for clock, behind in ((now_ms, "that of this node"), (now_ms - 1, "the last change of the table")):
        refused = refused_commit(caught.value, table, clock)
        assert refused is not None
        assert refused.reason is Reason.CLOCK_SKEWED
        assert f"the clock of its server is behind {behind}" in refused.message


def test_a_fence_that_the_server_refuses_is_told(table: Table) -> None:
    with pytest.raises(DependencyUnavailable) as caught:
        abort_txn(table.catalog, ref_of(table), TXN, later(HOUR_MS))
    assert caught.value.reason is Reason.CLOCK_SKEWED


def test_an_expiry_that_the_server_refuses_tells_why_and_deletes_nothing(table: Table, proxy: CatalogProxy) -> None:
    append(table, ROWS)
    policy, before = SnapshotPolicy(max_age_seconds=0), files_of(table)
    refusal = iceberg_error(
        400, "IllegalArgumentException", "Invalid update timestamp 1: before last snapshot log entry"
    )
    proxy.answer("POST", LOAD, Instead(400, refusal))
    done = expire_snapshots(table.catalog, ref_of(table), policy, later(0))
    assert (done.is_done, done.reason, done.snapshots) == (False, Reason.CLOCK_SKEWED, 0)
    assert "set both clocks right" in done.message
    assert files_of(table) == before
    proxy.rules.clear()
    assert expire_snapshots(table.catalog, ref_of(table), policy, later(0)).snapshots == 1
