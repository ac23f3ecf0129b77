"""Each catalog type against a real one: SQLite, PostgreSQL, Iceberg's own REST server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from skipstone.runs.check import check_catalog
from skipstone.tables.catalogs import OwnSqlCatalog, load_table, open_catalog
from skipstone.tables.committing.commits import CommitPorts, NoHooks, TableCommit, abort_txn, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone.tables.namespaces import find_mark, mark_namespace
from skipstone.tables.resolution import Lost, find_table
from skipstone.tables.shaping.schemas import Declaration, Ownership, ensure_table
from skipstone_core.contract.columns import PartitionFieldSpec
from skipstone_core.contract.requests import CatalogRef, CatalogType, ColumnSpec, TableRef, TableTask, WarehouseRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.history.commits import Aborted, AlreadyCommitted, Committed, Conflicted, Outcome, Present, Unknown
from skipstone_core.reasons import Reason
from sqlalchemy import text

from tests.spark.lake import read_all, write_files
from tests.spark.postgres import PASSWORD, USER, Server, make_certificate, postgres
from tests.spark.restserver import rest_catalog
from tests.spark.sqlproxy import CommitProxy, Moment, commit_proxy

REF = TableRef(namespace="shop", name="orders", uid="9d1f0c3e-0000-4000-8000-000000000001")
TASK = TableTask(
    columns=(ColumnSpec(name="id", type="long", required=True), ColumnSpec(name="price", type="decimal(9,2)")),
    partitioning=(PartitionFieldSpec(column="id", transform="Bucket", width=4),),
)
ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL for this module."""
    with postgres() as found:
        yield found


@pytest.fixture(scope="module")
def postgres_port(server: Server) -> int:
    """Where it listens."""
    return server.port


@pytest.fixture(scope="module")
def rest_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A REST catalog for this module."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address:
        yield address


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of pods whose Secret fits the PostgreSQL."""
    monkeypatch.setenv("SKIPSTONE_CATALOG_USER", USER)
    monkeypatch.setenv("SKIPSTONE_CATALOG_PASSWORD", PASSWORD)


def sql_catalog(port: int, parameters: str = "") -> CatalogRef:
    """The catalog in the PostgreSQL behind ``port``."""
    return CatalogRef(type=CatalogType.SQL, uri=f"postgresql://127.0.0.1:{port}/postgres{parameters}")


@pytest.fixture(params=["sqlite", "postgres", "rest"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> WarehouseRef:
    """A warehouse whose catalog is of each kind in turn."""
    if request.param == "sqlite":
        catalog = CatalogRef(type=CatalogType.SQL)
    elif request.param == "postgres":
        request.getfixturevalue("login")
        catalog = sql_catalog(request.getfixturevalue("postgres_port"))
    else:
        catalog = CatalogRef(type=CatalogType.REST, uri=request.getfixturevalue("rest_address"))
    return WarehouseRef(name="wh", root=str(tmp_path), catalog=catalog)


@pytest.fixture
def opened(home: WarehouseRef) -> Iterator[Catalog]:
    """The open catalog, without a table REF at the end."""
    catalog = open_catalog(home)
    yield catalog
    if catalog.table_exists(REF.identifier):
        catalog.drop_table(REF.identifier)
    catalog.close()


@pytest.fixture
def table(opened: Catalog, home: WarehouseRef) -> Table:
    """The table of TASK."""
    made, ownership = ensure_table(opened, Declaration(warehouse=home, ref=REF, task=TASK))
    assert ownership is Ownership.CREATED
    return made


def change(table: Table) -> TableCommit:
    """A load of ROWS under one transaction."""
    return TableCommit(pinned=pin_table(table), added=write_files(table, ROWS), txn="t1")


def test_a_table_is_found_by_its_uuid_and_its_end_is_proven(opened: Catalog, table: Table) -> None:
    mark_namespace(opened, "shop")
    mark = find_mark(opened, "shop")
    mark_namespace(opened, "shop")
    assert mark
    assert find_mark(opened, "shop") == mark
    known = replace(REF, table_uuid=str(table.metadata.table_uuid), location=table.location(), namespace_id=mark)
    opened.rename_table(REF.identifier, ("shop", "renamed"))
    found = find_table(opened, known)
    assert isinstance(found, TableRef)
    assert found.name == "renamed"
    opened.drop_table(("shop", "renamed"))
    lost = find_table(opened, known)
    assert isinstance(lost, Lost)
    assert lost.is_proven


def test_a_table_lives_in_a_namespace_of_several_levels(opened: Catalog, home: WarehouseRef) -> None:
    ref = replace(REF, namespace="shop.eu.north")
    made, _ = ensure_table(opened, Declaration(warehouse=home, ref=ref, task=TASK))
    assert made.name() == ("shop", "eu", "north", "orders")
    assert made.location() == f"file://{home.root}/shop.eu.north/orders"
    assert isinstance(commit_table(opened, ref, change(made)), Committed)
    mark_namespace(opened, ref.namespace)
    mark = find_mark(opened, ref.namespace)
    assert mark
    known = replace(ref, table_uuid=str(made.metadata.table_uuid), location=made.location(), namespace_id=mark)
    opened.rename_table(ref.identifier, ("shop", "eu", "renamed"))
    found = find_table(opened, known)
    assert isinstance(found, TableRef)
    assert (found.namespace, found.name) == ("shop.eu", "renamed")
    assert read_all(load_table(opened, found), ["id"]).num_rows == ROWS.num_rows
    opened.drop_table(found.identifier)
    lost = find_table(opened, known)
    assert isinstance(lost, Lost)
    assert lost.is_proven


def test_a_table_is_created_loaded_and_read(opened: Catalog, table: Table, home: WarehouseRef) -> None:
    check_catalog(opened)
    outcome = commit_table(opened, REF, change(table))
    assert isinstance(outcome, Committed)
    now = load_table(opened, replace(REF, table_uuid=str(table.metadata.table_uuid)))
    assert sorted(read_all(now, ["id"]).column(0).to_pylist()) == list(range(10))
    assert now.location().startswith(f"file://{home.root}/")
    assert isinstance(commit_table(opened, REF, change(now)), AlreadyCommitted)


def test_two_drivers_at_a_barrier_commit_once(opened: Catalog, table: Table, home: WarehouseRef) -> None:
    barrier = threading.Barrier(2, timeout=800)
    first_round = threading.local()
    outcomes: list[Outcome] = []

    class AtTheBarrier(NoHooks):
        def before_swap(self, _: Table) -> None:
            if not hasattr(first_round, "over"):
                first_round.over = True
                barrier.wait()

    def drive(planned: TableCommit) -> None:
        own = open_catalog(home)
        outcomes.append(commit_table(own, REF, planned, CommitPorts(hooks=AtTheBarrier())))
        own.close()

    drivers = [threading.Thread(target=drive, args=(change(table),)) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(800)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyCommitted", "Committed"]
    assert read_file_set(opened.load_table(REF.identifier)).files["records"].to_pylist() != []
    assert read_all(opened.load_table(REF.identifier), ["id"]).num_rows == 10


@pytest.mark.usefixtures("login")
def test_drivers_that_open_an_empty_database_at_once_all_get_it(
    postgres_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = WarehouseRef(name="wh", root=str(tmp_path), catalog=sql_catalog(postgres_port))
    first = open_catalog(home)
    assert isinstance(first, SqlCatalog)
    with first.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("create database crowded"))
    first.close()
    crowded = replace(home, catalog=replace(home.catalog, uri=f"postgresql://127.0.0.1:{postgres_port}/crowded"))
    barrier = threading.Barrier(4, timeout=800)
    create = OwnSqlCatalog.create_tables

    def at_once(self: OwnSqlCatalog) -> None:
        with suppress(threading.BrokenBarrierError):
            barrier.wait()
        barrier.abort()
        create(self)

    monkeypatch.setattr(OwnSqlCatalog, "create_tables", at_once)
    found: list[object] = []

    def drive() -> None:
        own = open_catalog(crowded)
        found.append(own.list_namespaces())
        own.close()

    drivers = [threading.Thread(target=drive) for _ in range(4)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(800)
    assert found == [[]] * 4


def test_an_aborted_transaction_never_lands(opened: Catalog, table: Table) -> None:
    planned = change(table)
    assert isinstance(abort_txn(opened, REF, "t1"), Aborted)
    outcome = commit_table(opened, REF, planned)
    assert isinstance(outcome, Conflicted)
    assert outcome.reason is Reason.ABORTED


@pytest.fixture
def proxy(postgres_port: int) -> Iterator[CommitProxy]:
    """In front of the PostgreSQL."""
    with commit_proxy(postgres_port) as started:
        yield started


def commit_through(proxy: CommitProxy, home: WarehouseRef, planned: TableCommit, *moment: Moment) -> Outcome:
    """What a driver says whose connection is cut at its COMMIT; with ``moment`` the catalog is away after that."""
    own = open_catalog(replace(home, catalog=sql_catalog(proxy.port, "?sslmode=disable&gssencmode=disable")))
    for one in moment:
        proxy.arm(one, goes_away=True)
    outcome = commit_table(own, REF, planned, CommitPorts(pause=lambda _: None))
    own.close()
    return outcome


@pytest.mark.parametrize("home", ["postgres"], indirect=True)
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_commit_whose_connection_is_lost_lands_once(
    proxy: CommitProxy, home: WarehouseRef, table: Table, opened: Catalog, moment: Moment
) -> None:
    planned = change(table)
    proxy.arm(moment)
    assert isinstance(commit_through(proxy, home, planned), Committed)
    assert proxy.met == [moment]
    assert read_all(opened.load_table(REF.identifier), ["id"]).num_rows == 10


@pytest.mark.parametrize("home", ["postgres"], indirect=True)
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_commit_that_lost_its_catalog_is_found_out_later(
    proxy: CommitProxy, home: WarehouseRef, table: Table, opened: Catalog, moment: Moment
) -> None:
    has_landed = moment is Moment.AFTER
    planned = change(table)
    told = commit_through(proxy, home, planned, moment)
    assert isinstance(told, Unknown)
    assert "closed the connection" in told.message and "UPDATE" not in told.message
    assert isinstance(abort_txn(opened, REF, "t1"), Present if has_landed else Aborted)
    again = commit_table(opened, REF, planned)
    assert isinstance(again, AlreadyCommitted) is has_landed
    assert read_all(opened.load_table(REF.identifier), ["id"]).num_rows == (10 if has_landed else 0)


@pytest.mark.parametrize("home", ["postgres"], indirect=True)
def test_who_confirms_waits_for_a_commit_that_is_on_its_way(
    proxy: CommitProxy, home: WarehouseRef, table: Table, opened: Catalog
) -> None:
    assert isinstance(commit_through(proxy, home, change(table), Moment.HELD), Unknown)
    found: list[object] = []
    asker = threading.Thread(target=lambda: found.append(abort_txn(opened, REF, "t1")))
    asker.start()
    watcher = open_catalog(home)
    assert isinstance(watcher, SqlCatalog)
    waiting = text("select count(*) from pg_locks where not granted")
    while asker.is_alive():
        with watcher.engine.connect() as connection:
            if connection.execute(waiting).scalar():
                break
    watcher.close()
    proxy.release()
    asker.join(800)
    assert [type(state) for state in found] == [Present]
    assert read_all(opened.load_table(REF.identifier), ["id"]).num_rows == 10


def test_a_missing_table_is_told(opened: Catalog) -> None:
    with pytest.raises(BadSpec) as caught:
        load_table(opened, REF)
    assert caught.value.reason is Reason.TABLE_MISSING
    assert str(caught.value) == "The catalog 'skipstone' holds no table shop.orders."


def test_a_replaced_table_is_told(opened: Catalog, table: Table, home: WarehouseRef) -> None:
    known = replace(REF, table_uuid=str(table.metadata.table_uuid))
    opened.drop_table(REF.identifier)
    ensure_table(opened, Declaration(warehouse=home, ref=REF, task=TASK))
    with pytest.raises(BadSpec, match="is another table now") as caught:
        load_table(opened, known)
    assert caught.value.reason is Reason.TABLE_REPLACED


def test_an_open_catalog_that_goes_away_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").mkdir()
    home = WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.SQL))
    with pytest.raises(DependencyUnavailable) as caught:
        open_catalog(home)
    assert caught.value.reason is Reason.CATALOG_UNAVAILABLE


def test_a_wrong_password_is_unavailable_and_not_shown(
    postgres_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKIPSTONE_CATALOG_USER", USER)
    monkeypatch.setenv("SKIPSTONE_CATALOG_PASSWORD", "guessed wrong")
    catalog = sql_catalog(postgres_port, "?sslmode=require")
    with pytest.raises(DependencyUnavailable) as caught:
        open_catalog(WarehouseRef(name="wh", root=str(tmp_path), catalog=catalog))
    assert str(caught.value) == (
        "The catalog 'skipstone' refused the credentials of spec.credentialsSecretRef: connection to server at "
        f'"127.0.0.1", port {postgres_port} failed: FATAL: password authentication failed for user "{USER}"'
    )


@pytest.mark.usefixtures("login")
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:{port}/nothing", 'port {port} failed: FATAL: database "nothing" does not exist'),
        ("127.0.0.1:1/postgres", 'connection to server at "127.0.0.1", port 1 failed: Connection refused'),
        ("127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert=/none", 'file "/none" does not exist'),
    ],
)
def test_a_database_that_cannot_be_reached_is_told_in_a_sentence(
    postgres_port: int, tmp_path: Path, address: str, said: str
) -> None:
    catalog = CatalogRef(type=CatalogType.SQL, uri=f"postgresql://{address.format(port=postgres_port)}")
    with pytest.raises(DependencyUnavailable) as caught:
        open_catalog(WarehouseRef(name="wh", root=str(tmp_path), catalog=catalog))
    told = str(caught.value)
    assert told.startswith("The catalog 'skipstone' did not answer: connection to server at ")
    assert said.format(port=postgres_port) in told
    assert "psycopg" not in told and "\n" not in told


@pytest.mark.parametrize(
    ("uri", "reason", "said"),
    [
        ("not a url", Reason.INVALID_SPEC, "is not an SQLAlchemy URL"),
        ("mysql://h/db", Reason.INVALID_SPEC, "use sqlite or postgresql"),
        ("secret with blanks", Reason.INVALID_SPEC, "is not an SQLAlchemy URL"),
        ("postgresql://u:secret@h/db", Reason.INVALID_SPEC, "put it into the Secret"),
        ("postgresql://u:se/secret@h/db", Reason.INVALID_SPEC, "put it into the Secret"),
        ("postgresql://h/db?password=secret", Reason.INVALID_SPEC, "has a parameter that is not allowed"),
        ("postgresql://h/db?sslmode=require&token=secret", Reason.INVALID_SPEC, "has a parameter that is not allowed"),
        ("postgresql+asyncpg://h/db", Reason.INVALID_SPEC, "the image of runs has no driver 'postgresql.asyncpg'"),
        ("sqlite://", Reason.INVALID_SPEC, "needs a file below the root"),
        ("sqlite:////etc/catalog.db", Reason.PATH_OUTSIDE_WAREHOUSE, "is not below the Warehouse's root"),
    ],
)
def test_an_sql_uri_that_cannot_work_is_refused(tmp_path: Path, uri: str, reason: Reason, said: str) -> None:
    home = WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.SQL, uri=uri))
    with pytest.raises(BadSpec, match=said) as caught:
        open_catalog(home)
    assert caught.value.reason is reason
    assert caught.value.field == "spec.catalog.uri"
    assert "secret" not in str(caught.value)


def test_a_server_is_trusted_by_its_certificate_when_the_address_says_so(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKIPSTONE_CATALOG_USER", USER)
    monkeypatch.setenv("SKIPSTONE_CATALOG_PASSWORD", PASSWORD)

    def is_encrypted(parameters: str) -> bool:
        uri = f"postgresql://localhost:{server.port}/postgres?{parameters}"
        home = WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.SQL, uri=uri))
        catalog = open_catalog(home)
        assert isinstance(catalog, SqlCatalog)
        with catalog.engine.connect() as connection:
            encrypted = connection.execute(text("select ssl from pg_stat_ssl where pid = pg_backend_pid()")).scalar()
        catalog.close()
        return bool(encrypted)

    assert is_encrypted("sslmode=disable") is False
    assert is_encrypted("application_name=skipstone") is True, "the default takes TLS where it is offered"
    assert is_encrypted(f"sslmode=verify-full&sslrootcert={server.certificate}") is True
    stranger, _ = make_certificate(tmp_path)
    with pytest.raises(DependencyUnavailable, match="certificate verify failed"):
        is_encrypted(f"sslmode=verify-full&sslrootcert={stranger}")


def test_a_symbolic_link_out_of_the_root_is_no_catalog_file(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "catalog.db").symlink_to(tmp_path / "elsewhere.db")
    home = WarehouseRef(name="wh", root=str(root), catalog=CatalogRef(type=CatalogType.SQL))
    with pytest.raises(BadSpec) as caught:
        open_catalog(home)
    assert caught.value.reason is Reason.PATH_OUTSIDE_WAREHOUSE


@pytest.mark.parametrize(("uri", "error"), [("ftp://x", BadSpec), ("http://127.0.0.1:9", DependencyUnavailable)])
def test_a_rest_address_that_cannot_work_is_refused(tmp_path: Path, uri: str, error: type[Exception]) -> None:
    home = WarehouseRef(name="wh", root=str(tmp_path), catalog=CatalogRef(type=CatalogType.REST, uri=uri))
    with pytest.raises(error):
        open_catalog(home)
