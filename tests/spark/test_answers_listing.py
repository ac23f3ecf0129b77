"""All tables are looked at before a file is deleted, however many the catalog has and however they are renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from skipstone.tables.answers.listing import AT_ONCE, TooMany, ahead, all_tables, list_tables_up_to, load_others
from skipstone.tables.catalogs import OwnSqlCatalog
from skipstone.tables.resolution import find_table
from skipstone.tables.sharing.places import find_overlap, find_sharing
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason
from sqlalchemy import insert
from sqlalchemy.orm import Session

from tests.spark.lake import ref_of

MANY = 2001
SCHEMA = pa.schema([("id", pa.int64())])


def register_many(catalog: Catalog, table: Table, namespace: str) -> None:
    """Many tables in ``namespace``, all with the metadata of ``table``."""
    assert isinstance(catalog, SqlCatalog)
    catalog.create_namespace(namespace)
    rows = [
        {
            "catalog_name": catalog.name,
            "table_namespace": namespace,
            "table_name": f"t{number:05}",
            "metadata_location": table.metadata_location,
        }
        for number in range(MANY)
    ]
    with Session(catalog.engine) as session:
        session.execute(insert(IcebergTables), rows)
        session.commit()


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """The table ``ns.t``."""
    return catalog.create_table(("ns", "t"), SCHEMA)


@pytest.fixture
def crowd(catalog: Catalog, table: Table) -> None:
    """Many tables, which are listed before those of a namespace below theirs."""
    register_many(catalog, catalog.create_table(("ns", "other"), SCHEMA), "z")
    catalog.create_namespace(("z", "below"))


@pytest.mark.usefixtures("crowd")
def test_a_table_that_overlaps_is_found_among_thousands(catalog: Catalog, table: Table) -> None:
    catalog.create_table(("z", "below", "inside"), SCHEMA, location=f"{table.location()}/data/inside")
    assert "z.below.inside" in (find_overlap(table) or "")
    assert "z.below.inside" in (find_sharing(table) or "")


@pytest.mark.usefixtures("table")
def test_a_part_of_a_list_is_no_list(catalog: Catalog) -> None:
    catalog.create_namespace(("ns", "inner"))
    catalog.create_table(("ns", "inner", "t"), SCHEMA)
    every = (("ns", "inner", "t"), ("ns", "t"))
    assert list_tables_up_to(catalog, 2) == every
    assert list_tables_up_to(catalog, 1) == TooMany(1)
    assert sorted(all_tables(catalog)) == list(every)


def test_a_table_that_is_renamed_while_others_are_loaded_is_found(catalog: Catalog, table: Table) -> None:
    for name in ("a", "b"):
        catalog.create_table(("ns", name), SCHEMA)

    def load(identifier: Identifier) -> Table:
        if identifier == ("ns", "a"):
            catalog.rename_table(("ns", "a"), ("ns", "zz"))
        return catalog.load_table(identifier)

    assert sorted(one.name() for one in load_others(catalog, table.name(), load)) == [("ns", "b"), ("ns", "zz")]


@pytest.mark.parametrize("moves", ["renamed", "dropped", "swapped"])
def test_a_table_that_takes_a_name_which_was_looked_at_is_found(catalog: Catalog, table: Table, moves: str) -> None:
    uuids = {name: catalog.create_table(("ns", name), SCHEMA).metadata.table_uuid for name in ("a", "b")}
    was_moved = False

    def load(identifier: Identifier) -> Table:
        nonlocal was_moved
        while identifier[-1] == "b" and not was_moved:
            if not looked_at_a.wait(60):
                raise TimeoutError
            was_moved = True
            if moves == "dropped":
                catalog.drop_table(("ns", "a"))
            else:
                catalog.rename_table(("ns", "a"), ("ns", "old"))
            catalog.rename_table(("ns", "b"), ("ns", "a"))
            if moves == "swapped":
                catalog.rename_table(("ns", "old"), ("ns", "b"))
        found = catalog.load_table(identifier)
        if identifier[-1] == "a":
            looked_at_a.set()
        return found

    looked_at_a = Event()
    assert uuids["b"] in {one.metadata.table_uuid for one in load_others(catalog, table.name(), load)}


def test_a_catalog_that_tells_all_namespaces_below_each_is_looked_through_once(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnSqlCatalog, "list_namespaces", lambda self, namespace=(): [("ns",)])
    assert list(all_tables(catalog)) == [table.name()]


def test_a_catalog_that_knows_no_namespaces_below_one_tells_its_tables(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(_: Catalog, namespace: Identifier = ()) -> list[Identifier]:
        if namespace:
            raise NoSuchNamespaceError(namespace)
        return [("ns",)]

    monkeypatch.setattr(OwnSqlCatalog, "list_namespaces", listed)
    assert list(all_tables(catalog)) == [table.name()]


@pytest.mark.parametrize("method", ["list_tables", "load_table"])
def test_what_a_catalog_lists_and_says_not_to_have_is_not_taken_for_absent(
    method: str, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_namespace("below")
    other = catalog.create_table(("below", "inside"), SCHEMA, location=f"{table.location()}/data/inside")
    known = replace(ref_of(other), name="renamed", table_uuid=str(other.metadata.table_uuid))
    asked: Callable[[Catalog, Identifier], object] = getattr(OwnSqlCatalog, method)

    def answer(self: Catalog, name: Identifier) -> object:
        if name == ("below",):
            raise NoSuchNamespaceError("no")
        if name == other.name():
            raise NoSuchTableError("no")
        return asked(self, name)

    monkeypatch.setattr(OwnSqlCatalog, method, answer)
    for look in (lambda: find_overlap(table), lambda: find_table(catalog, known)):
        with pytest.raises(DependencyUnavailable, match="and lists it all the same") as caught:
            look()
        assert caught.value.reason is Reason.CATALOG_UNAVAILABLE


def test_little_is_begun_before_it_is_asked_for() -> None:
    drawn: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10 * AT_ONCE):
            drawn.append(number)
            yield number

    doubled = ahead(lambda number: 2 * number, numbers())
    assert [next(doubled) for _ in range(3)] == [0, 2, 4]
    assert len(drawn) <= AT_ONCE + 3
    assert list(doubled) == [2 * number for number in range(3, 10 * AT_ONCE)]
