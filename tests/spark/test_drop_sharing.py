"""A drop run deletes no file that another table uses, and nothing but the table that it judged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from skipstone.indexes.tables import index_identifier
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone_core.contract.requests import TableRef, WarehouseRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.ids import INDEX_UID_PROPERTY, OWNER_PROPERTY
from skipstone_core.maintenance.policies import SnapshotPolicy
from skipstone_core.reasons import Reason

from tests.spark.lake import append, ref_of
from tests.spark.merge_bed import AtSwap
from tests.spark.moments import at_statement
from tests.spark.test_runs_drop import INDEX, ROWS, UID, drop, make
from tests.spark.upkeep_bed import later

NAME = ("ns", "t")
CLONE = ("ns", "clone")


def files_of(table: Table) -> set[Path]:
    return {path for path in Path(plain_location(table.location())).rglob("*") if path.is_file()}


def copy(catalog: Catalog, table: Table) -> Table:
    return catalog.register_table(CLONE, table.metadata_location)


def copy_with_metadata_elsewhere(catalog: Catalog, table: Table) -> Table:
    with copy(catalog, table).transaction() as changed:
        place = f"{Path(plain_location(table.location())).parent}/elsewhere"
        changed.set_properties({"write.metadata.path": f"file://{place}"})
    found = catalog.load_table(CLONE)
    found.append(ROWS)
    return catalog.load_table(CLONE)


def at_the_same_place(catalog: Catalog, table: Table) -> Table:
    place = f"file://{Path(plain_location(table.location())).parent}/elsewhere"
    properties = {"write.metadata.path": place}
    return append(catalog.create_table(CLONE, ROWS.schema, location=table.location(), properties=properties), ROWS)


def taken_over(catalog: Catalog, table: Table) -> Table:
    """Another table, elsewhere, to which a file of the first one was added."""
    found = catalog.create_table(CLONE, ROWS.schema)
    path = next(iter(table.scan().plan_files())).file.file_path
    found.add_files([path.replace("file://", "file:")])
    return catalog.load_table(CLONE)


def taken_over_by_an_old_snapshot(catalog: Catalog, table: Table) -> Table:
    taken_over(catalog, table).overwrite(ROWS)
    return catalog.load_table(CLONE)


def taken_over_by_a_link(catalog: Catalog, table: Table) -> Table:
    """A file of the first table was added by a link of another name."""
    clone = catalog.create_table(CLONE, ROWS.schema)
    link = Path(plain_location(clone.location())) / "link.parquet"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(plain_location(next(iter(table.scan().plan_files())).file.file_path))
    clone.add_files([f"file://{link}"])
    return catalog.load_table(CLONE)


def taken_over_by_a_relative_path(catalog: Catalog, table: Table) -> Table:
    """A file of the first table was added by an engine that runs beside it."""
    clone = catalog.create_table(CLONE, ROWS.schema)
    path = plain_location(next(iter(table.scan().plan_files())).file.file_path)
    clone.add_files([os.path.relpath(path)])
    return catalog.load_table(CLONE)


SHARING = (
    copy,
    copy_with_metadata_elsewhere,
    at_the_same_place,
    taken_over,
    taken_over_by_an_old_snapshot,
    taken_over_by_a_link,
    taken_over_by_a_relative_path,
)


@pytest.mark.parametrize("share", SHARING)
def test_a_table_whose_files_another_one_uses_is_kept_and_the_way_out_loses_nothing(
    share: Callable[[Catalog, Table], Table], catalog: Catalog, warehouse: WarehouseRef
) -> None:
    table = make(catalog)
    clone = share(catalog, table)
    rows, before = clone.scan().count(), files_of(table)
    named = [Path(plain_location(path)) for path in read_reach(table).paths()]
    report = drop(warehouse, uuid=str(table.metadata.table_uuid))
    assert report.reason is Reason.DATA_RETAINED
    assert table.location() in report.message
    assert "ns.clone" in report.message
    assert files_of(table) == before
    assert catalog.load_table(NAME).scan().count() == 6
    assert catalog.load_table(CLONE).scan().count() == rows
    catalog.drop_table(CLONE)  # what the message says: without its files
    assert drop(warehouse).reason is Reason.DATA_DELETED
    assert not [path for path in named if path.exists()]


def test_a_copy_in_another_catalog_of_the_same_database_keeps_its_files(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    table = make(catalog)
    other = SqlCatalog("other", uri=f"sqlite:///{warehouse.root}/catalog.db", warehouse=f"file://{warehouse.root}")
    other.create_namespace("ns")
    clone = other.register_table(NAME, table.metadata_location)
    report = drop(warehouse)
    assert report.reason is Reason.DATA_RETAINED
    assert "other.ns.t has its metadata below" in report.message
    with pytest.raises(BadSpec, match=r"other\.ns\.t has its metadata below"):
        expire_snapshots(catalog, ref_of(table), SnapshotPolicy(max_age_seconds=0), later())
    assert clone.refresh().scan().count() == 6
    other.drop_table(NAME)  # what the message says
    other.close()
    assert drop(warehouse).reason is Reason.DATA_DELETED


@pytest.mark.parametrize("kept", [NAME, CLONE])
def test_whichever_of_two_copies_is_dropped_as_the_message_says_the_other_keeps_its_rows(
    kept: tuple[str, str], catalog: Catalog, warehouse: WarehouseRef
) -> None:
    table = make(catalog)
    copy(catalog, table).append(ROWS)
    rows = catalog.load_table(kept).scan().count()
    assert "DROP TABLE without PURGE" in drop(warehouse).message
    catalog.drop_table(CLONE if kept == NAME else NAME)
    left = catalog.load_table(kept)
    assert expire_snapshots(catalog, ref_of(left), SnapshotPolicy(max_age_seconds=0), later()).snapshots
    assert catalog.load_table(kept).scan().count() == rows


def test_a_table_that_keeps_its_files_by_a_property_keeps_them_until_it_is_set(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    with make(catalog).transaction() as changed:
        changed.set_properties({"gc.enabled": "false"})
    report = drop(warehouse)
    assert report.reason is Reason.DATA_RETAINED
    assert "gc.enabled is 'false'" in report.message
    table = catalog.load_table(NAME)
    assert table.scan().count() == 6
    with table.transaction() as changed:
        changed.set_properties({"gc.enabled": "true"})
    assert drop(warehouse).reason is Reason.DATA_DELETED
    assert not files_of(table)


@pytest.mark.parametrize("lost", ["metadata", "manifest-list", "manifest"])
def test_a_table_that_cannot_be_read_keeps_the_files_of_others(
    lost: str, catalog: Catalog, warehouse: WarehouseRef
) -> None:
    table = make(catalog)
    clone = taken_over(catalog, table)
    head = clone.current_snapshot()
    assert head is not None
    places = {
        "metadata": clone.metadata_location,
        "manifest-list": head.manifest_list,
        "manifest": head.manifests(clone.io)[0].manifest_path,
    }
    place = Path(plain_location(places[lost]))
    place.rename(place.with_suffix(".away"))
    before = files_of(table)
    with pytest.raises(DependencyUnavailable, match=r"which files ns\.clone uses cannot be seen"):
        drop(warehouse)
    assert files_of(table) == before
    assert catalog.table_exists(NAME)
    place.with_suffix(".away").rename(place)  # what the message says
    assert drop(warehouse).reason is Reason.DATA_RETAINED


@pytest.mark.parametrize("share", [copy, copy_with_metadata_elsewhere])
def test_an_index_table_of_which_there_is_a_copy_is_kept(
    share: Callable[[Catalog, Table], Table], catalog: Catalog, warehouse: WarehouseRef
) -> None:
    identifier = index_identifier(warehouse, TableRef(namespace="ns", name="t", uid=UID), INDEX)
    index = append(catalog.create_table(identifier, ROWS.schema, properties={INDEX_UID_PROPERTY: INDEX.uid}), ROWS)
    share(catalog, index)
    assert drop(warehouse, INDEX).reason is Reason.DATA_RETAINED
    assert catalog.load_table(identifier).scan().count() == 3


def clear(catalog: Catalog, *tables: Table) -> None:
    """Take all tables and the folders of some away."""
    for name in catalog.list_tables("ns"):
        catalog.drop_table(name)
    for table in tables:
        shutil.rmtree(plain_location(table.location()), ignore_errors=True)


def test_a_table_that_takes_the_name_at_any_moment_of_the_drop_is_kept(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    was_changed = False
    for number in range(1, 100):
        table = make(catalog)
        green = append(catalog.create_table(("ns", "green"), ROWS.schema, properties={OWNER_PROPERTY: "x"}), ROWS)

        def swap() -> None:
            try:
                catalog.rename_table(NAME, ("ns", "blue"))
            except NoSuchTableError:
                return  # it was dropped before
            catalog.rename_table(("ns", "green"), NAME)

        with at_statement(number, swap) as seen:
            report = drop(warehouse, uuid=str(table.metadata.table_uuid))
        now = {catalog.load_table(one).metadata.table_uuid: one for one in catalog.list_tables("ns")}
        assert catalog.load_table(now[green.metadata.table_uuid]).scan().count() == 3
        if table.metadata.table_uuid in now:
            assert report.reason is Reason.DATA_RETAINED, number
            assert catalog.load_table(now[table.metadata.table_uuid]).scan().count() == 6
            was_changed = True
        else:
            assert report.reason is Reason.DATA_DELETED
            assert not [path for path in files_of(table) if path not in files_of(green)]
        clear(catalog, table, green)
        if len(seen) < number:
            break
    assert was_changed


def test_a_commit_at_any_moment_of_the_drop_leaves_no_file_and_no_half_of_a_table(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    for number in range(1, 100):
        table = make(catalog)

        def commit() -> None:
            try:
                catalog.load_table(NAME).append(ROWS)
            except NoSuchTableError:
                return

        with at_statement(number, commit) as seen:
            assert drop(warehouse).reason is Reason.DATA_DELETED
        assert not catalog.table_exists(NAME)
        assert not files_of(table), number
        if len(seen) < number:
            break


def test_a_copy_that_is_made_before_the_last_look_at_the_catalog_keeps_its_files(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    reasons = set()
    for number in range(1, 100):
        table = make(catalog)
        with at_statement(number, partial(copy, catalog, table)) as seen:
            reasons.add(drop(warehouse).reason)
        listed = [
            at for at, statement in enumerate(seen, 1) if "SELECT iceberg_tables.table_namespace, iceberg" in statement
        ]
        if number <= listed[-1]:
            assert catalog.load_table(CLONE).scan().count() == 6, seen
        clear(catalog, table)
        if len(seen) < number:
            break
    assert reasons == {Reason.DATA_RETAINED, Reason.DATA_DELETED}


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "known"])
def test_a_file_that_another_table_takes_over_between_both_looks_stays(
    catalog: Catalog, warehouse: WarehouseRef, *, is_new: bool
) -> None:
    if not is_new:
        catalog.create_table(CLONE, ROWS.schema)
    make(catalog)
    with at_statement(0, clear) as seen:
        drop(warehouse)
    dropped = next(at for at, statement in enumerate(seen, 1) if statement.startswith("DELETE FROM iceberg_tables"))
    table = make(catalog)
    paths, before = [task.file.file_path for task in table.scan().plan_files()], files_of(table)

    def take_over() -> None:
        other = catalog.create_table(CLONE, ROWS.schema) if is_new else catalog.load_table(CLONE)
        other.add_files(paths)

    with at_statement(dropped, take_over):
        report = drop(warehouse)
    assert report.reason is Reason.DATA_RETAINED
    assert "ns.clone uses its file" in report.message
    assert files_of(table) == before
    assert catalog.load_table(CLONE).scan().count() == 6
    assert not catalog.table_exists(NAME)


def test_files_stay_and_are_told_if_nobody_can_say_after_the_drop_who_uses_them(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    append(catalog.create_table(CLONE, ROWS.schema), ROWS)
    make(catalog)
    with at_statement(0, clear) as seen:
        drop(warehouse)
    dropped = next(at for at, statement in enumerate(seen, 1) if statement.startswith("DELETE FROM iceberg_tables"))
    table = make(catalog)
    before = files_of(table)

    def damage() -> None:
        head = append(catalog.load_table(CLONE), ROWS).current_snapshot()
        assert head is not None
        lists.append(Path(plain_location(head.manifest_list)))
        lists[0].rename(lists[0].with_suffix(".away"))

    lists: list[Path] = []
    with at_statement(dropped, damage):
        report = drop(warehouse)
    assert report.reason is Reason.DATA_RETAINED
    assert f"data at {table.location()} was not deleted: whether another table uses it" in report.message
    assert files_of(table) == before
    lists[0].with_suffix(".away").rename(lists[0])


def keep_by_property(catalog: Catalog, table: Table) -> None:
    with table.transaction() as changed:
        changed.set_properties({"gc.enabled": "false"})


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("share", [copy, keep_by_property])
def test_an_expiry_deletes_no_file_of_a_table_that_is_shared_once_it_has_begun(
    share: Callable[[Catalog, Table], object], moment: str, catalog: Catalog, warehouse: WarehouseRef
) -> None:
    table = make(catalog)
    before, policy = files_of(table), SnapshotPolicy(max_age_seconds=0)
    ports = replace(later(), hooks=AtSwap(**{moment: lambda: share(catalog, table)}))
    done = expire_snapshots(catalog, ref_of(table), policy, ports)
    assert (done.snapshots, done.deleted.files, done.is_done) == (1, 0, False)
    assert done.reason is Reason.RESOURCE_CONFLICT
    assert "no file of ns.t is deleted" in done.message
    assert files_of(table) >= before
    if share is copy:
        clone = catalog.load_table(CLONE)
        assert [clone.scan(snapshot_id=one.snapshot_id).count() for one in clone.snapshots()] == [3, 6]
        catalog.drop_table(CLONE)  # what the message says: without its files
    else:
        with catalog.load_table(NAME).transaction() as changed:
            changed.set_properties({"gc.enabled": "true"})
    assert expire_snapshots(catalog, ref_of(table), policy, later()).deleted.files
    assert catalog.load_table(NAME).scan().count() == 6
    assert not before <= files_of(table)
