"""What others do on a real REST server at any moment of an expiry or a drop loses nobody's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, RESTError
from pyiceberg.table import Table
from skipstone.runs.drop import run_drop
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.expiry import Expired, expire_snapshots
from skipstone.tables.upkeep.removal import EXPIRED_DIRECTORY
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    DropTask,
    JobRequest,
    RunKind,
    TableRef,
    WarehouseRef,
)
from skipstone_core.ids import OWNER_PROPERTY
from skipstone_core.maintenance.policies import SnapshotPolicy
from skipstone_core.reasons import Reason

from tests.spark.catalogproxy import CatalogProxy, Instead, catalog_proxy
from tests.spark.lake import append, ref_of
from tests.spark.restserver import rest_catalog
from tests.spark.upkeep_bed import later

OWNER = "11111111-2222-3333-4444-555555555555"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
NAME = ("ns", "t")
NEWEST = SnapshotPolicy(max_age_seconds=0)
MOST = 60


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProxy]:
    """A proxy before a REST catalog."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as address, catalog_proxy(address) as found:
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
    for identifier in opened.list_tables("ns"):
        opened.drop_table(identifier)
    opened.close()


def make_table(catalog: Catalog, home: WarehouseRef, number: int, name: str = "t", version: str = "2") -> Table:
    """A table with two segments at a place of its own; the first snapshot has three rows."""
    properties = {"format-version": version, OWNER_PROPERTY: OWNER}
    location = f"file://{home.root}/ns/{name}-{number}"
    table = catalog.create_table(("ns", name), ROWS.schema, location=location, properties=properties)
    return append(append(table, ROWS), ROWS)


@contextmanager
def at_request(proxy: CatalogProxy, number: int, do: Callable[[], None]) -> Iterator[list[str]]:
    """Before the request of this number reaches the server, somebody else does something; all requests so far."""
    seen: list[str] = []

    def rule(method: str, path: str) -> None:
        seen.append(f"{method} {path}")
        if len(seen) == number:
            proxy.rules.clear()
            do()
            proxy.rules.append(rule)

    proxy.rules.append(rule)
    try:
        yield seen
    finally:
        proxy.rules.clear()


def expire(table: Table) -> Expired:
    return expire_snapshots(table.catalog, ref_of(table), NEWEST, later(0))


def rows_of(table: Table, ref: str) -> list[int]:
    snapshot = table.snapshot_by_name(ref)
    assert snapshot is not None
    return sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist())


def notes(home: WarehouseRef) -> list[Path]:
    return [path for path in Path(home.root, EXPIRED_DIRECTORY).rglob("*") if path.is_file()]


@pytest.mark.parametrize(("kind", "version"), [("tag", "2"), ("branch", "3")])
def test_a_ref_that_somebody_makes_at_any_moment_of_an_expiry_keeps_its_rows(
    kind: str, version: str, catalog: Catalog, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    put_back = 0
    for number in range(1, MOST):
        table = make_table(catalog, home, number, version=version)
        oldest = table.metadata.snapshots[0].snapshot_id
        made: list[bool] = []

        def name_it(table: Table = table, oldest: int = oldest, made: list[bool] = made) -> None:
            change = catalog.load_table(NAME).manage_snapshots()
            try:
                (change.create_tag if kind == "tag" else change.create_branch)(oldest, "kept").commit()
            except (RESTError, ValueError):
                return  # the snapshot is gone already, and whoever names it hears so
            made.append(True)

        with at_request(proxy, number, name_it) as seen:
            done = expire(table)
        now = catalog.load_table(NAME)
        assert done.is_done
        assert ("kept" in now.metadata.refs) == bool(made), seen
        if made:
            assert rows_of(now, "kept") == [1, 2, 3]
        assert rows_of(now, "main") == [1, 1, 2, 2, 3, 3]
        if done.notes:
            put_back += 1
            assert f"The {kind} 'kept' was made on the snapshot {oldest} while that expired; it names" in done.notes[0]
        assert not notes(home)
        assert expire(table).notes == ()
        assert rows_of(catalog.load_table(NAME), "main") == [1, 1, 2, 2, 3, 3]
        catalog.drop_table(NAME)
        if len(seen) < number:
            break
    assert put_back == 1


def test_a_ref_is_put_back_by_the_next_run_when_the_first_one_dies_after_its_commit(
    catalog: Catalog, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    table = make_table(catalog, home, 0)
    oldest = table.metadata.snapshots[0].snapshot_id
    is_dead = []

    def rule(method: str, path: str) -> Instead | None:
        if is_dead:
            return Instead(503)
        if method == "POST":
            proxy.rules.clear()
            catalog.load_table(NAME).manage_snapshots().create_tag(oldest, "kept").commit()
            proxy.rules.append(rule)
            is_dead.append(True)
        return None

    proxy.rules.append(rule)
    with pytest.raises(Exception, match=r"did not answer|503"):
        expire(table)
    proxy.rules.clear()
    assert "kept" not in catalog.load_table(NAME).metadata.refs
    append(catalog.load_table(NAME), ROWS)
    assert len(expire(table).notes) == 1
    assert rows_of(catalog.load_table(NAME), "kept") == [1, 2, 3]
    assert not notes(home)


def test_files_stay_when_the_metadata_before_the_expiry_is_not_listed_any_more(
    catalog: Catalog, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    table = make_table(catalog, home, 0)
    with table.transaction() as changed:
        changed.set_properties({"write.metadata.previous-versions-max": "1"})
    oldest, sent = table.metadata.snapshots[0], []

    def rule(method: str, path: str) -> None:
        if sent:
            proxy.rules.clear()
            append(catalog.load_table(NAME), ROWS)  # the commit of somebody else, after that of the expiry
        sent.extend([path] * (method == "POST"))

    proxy.rules.append(rule)
    done = expire(table)
    assert done.snapshots >= 1
    assert any("cannot be seen" in said for said in done.notes), done
    assert Path(plain_location(oldest.manifest_list)).exists()
    assert not notes(home)


def drop(home: WarehouseRef, table: Table) -> tuple[Reason, str]:
    ref = TableRef(namespace="ns", name="t", uid=OWNER, table_uuid=str(table.metadata.table_uuid))
    request = JobRequest(
        kind=RunKind.DROP, run_id="r-1", attempt=1, warehouse=home, owner_kind="Table", owner_name="t",
        owner_uid=OWNER, table=ref, drop=DropTask(),
    )  # fmt: skip
    report = run_drop(request, Reporter(request))
    return Reason(report.reason), report.message


def files_of(table: Table) -> set[Path]:
    found = Path(plain_location(table.location())).rglob("*")
    return {path for path in found if path.is_file() and not path.name.endswith(".crc")}


def test_a_table_that_takes_the_name_at_any_moment_of_a_drop_keeps_its_files(
    catalog: Catalog, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    replaced = []
    for number in range(1, MOST):
        blue = make_table(catalog, home, number)
        green = make_table(catalog, home, number, "green")
        before = files_of(blue), files_of(green)

        def swap() -> None:
            try:
                catalog.rename_table(NAME, ("ns", "blue"))
            except NoSuchTableError:
                return
            catalog.rename_table(("ns", "green"), NAME)

        with at_request(proxy, number, swap) as seen:
            reason, message = drop(home, blue)
        now = {catalog.load_table(name).metadata.table_uuid: name for name in catalog.list_tables("ns")}
        assert files_of(green) == before[1]
        if blue.metadata.table_uuid in now:
            assert reason is Reason.DATA_RETAINED
            assert files_of(blue) == before[0]
        else:
            assert (reason, files_of(blue)) == (Reason.DATA_DELETED, set())
        if green.metadata.table_uuid not in now:
            replaced.append(seen[number - 1])
            assert "it was renamed to ns.blue while it was dropped" in message
            again = catalog.register_table(NAME, message.rpartition("which was ")[2].rstrip("."))  # what it says
            assert again.scan().count() == 6
        for name in catalog.list_tables("ns"):
            catalog.drop_table(name)
        if len(seen) < number:
            break
    assert [method.partition(" ")[0] for method in replaced] == ["DELETE"], "the window is one request"


def test_no_server_is_asked_to_delete_files_that_another_table_uses(
    catalog: Catalog, home: WarehouseRef, proxy: CatalogProxy
) -> None:
    table = make_table(catalog, home, 0)
    other = catalog.create_table(("ns", "other"), ROWS.schema, location=f"file://{home.root}/ns/other")
    other.add_files([next(iter(table.scan().plan_files())).file.file_path])
    before = files_of(table)
    reason, message = drop(home, table)
    assert reason is Reason.DATA_RETAINED
    assert "ns.other uses its file" in message
    assert files_of(table) == before
    catalog.drop_table(("ns", "other"))
    assert drop(home, table)[0] is Reason.DATA_DELETED
    assert not files_of(table)
    assert not [
        path for method, path, _ in proxy.seen if "purgeRequested=True" in path or "purgeRequested=true" in path
    ]


def test_an_expiry_keeps_files_that_another_table_uses(catalog: Catalog, home: WarehouseRef) -> None:
    table = make_table(catalog, home, 0)
    other = catalog.create_table(("ns", "other"), ROWS.schema, location=f"file://{home.root}/ns/other")
    shared, alone = sorted(task.file.file_path for task in table.scan().plan_files())
    other.add_files([shared])
    table.overwrite(ROWS)
    done = expire(table)
    assert done.snapshots
    assert [said.partition(" of ")[0] for said in done.notes] == ["ns.other uses 1 file"]
    assert [Path(plain_location(path)).exists() for path in (shared, alone)] == [True, False]
    assert other.refresh().scan().count() == 3
    catalog.drop_table(("ns", "other"))
