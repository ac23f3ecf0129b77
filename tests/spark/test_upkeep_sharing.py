"""An expiry deletes no file that another table of the catalog uses, and reads little of the others to know that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.tables.sharing.folders import FOLDERS_DIRECTORY, FolderRecord, folders_of
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.expiry import Expired, expire_snapshots
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.maintenance.policies import SnapshotPolicy

from tests.spark.lake import ref_of
from tests.spark.upkeep_bed import SCHEMA, Life, later

OTHER = ("ns", "other")


@pytest.fixture
def life(warehouse: WarehouseRef, catalog: Catalog) -> Life:
    found = Life(warehouse, catalog)
    found.other()
    found.other()
    return found


def expire(life: Life) -> Expired:
    return expire_snapshots(life.catalog, ref_of(life.table), SnapshotPolicy(max_age_seconds=0), later())


def files(life: Life) -> list[Path]:
    return sorted(Path(plain_location(task.file.file_path)) for task in life.table.scan().plan_files())


def as_it_is(_other: Table, path: Path) -> str:
    return f"file:{path}"


def escaped(_other: Table, path: Path) -> str:
    return f"file://{path.parent}/../data/{path.name}"


def relative(_other: Table, path: Path) -> str:
    return os.path.relpath(path)


def by_a_link(other: Table, path: Path) -> str:
    link = Path(plain_location(other.location()), "data", "linked.parquet")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(path)
    return f"file://{link}"


def through_a_folder(other: Table, path: Path) -> str:
    link = Path(plain_location(other.location()), "folder")
    link.symlink_to(path.parent)
    return f"file://{link}/{path.name}"


@pytest.mark.parametrize("is_old", [False, True], ids=["head", "old snapshot"])
@pytest.mark.parametrize("form", [as_it_is, escaped, relative, by_a_link, through_a_folder])
def test_a_file_that_another_table_took_over_stays(
    form: Callable[[Table, Path], str], is_old: bool, life: Life
) -> None:
    other = life.catalog.create_table(OTHER, SCHEMA)
    other.append(life.batch())
    shared, alone = files(life)
    other.add_files([form(other, shared)])
    taken = other.current_snapshot()
    assert taken is not None
    if is_old:
        other.overwrite(life.batch())
    life.rewrite()
    done = expire(life)
    assert (shared.exists(), alone.exists()) == (True, False)
    assert other.refresh().scan(snapshot_id=taken.snapshot_id).count() == 4
    (said,) = done.notes
    assert said.startswith("ns.other uses 1 file of snapshots that expired, such as ")
    assert shared.name in said
    assert not expire(life).notes


def test_a_table_that_takes_a_file_over_between_two_expiries_is_seen(life: Life) -> None:
    other = life.catalog.create_table(OTHER, SCHEMA)
    other.append(life.batch())
    life.rewrite()
    expire(life)
    (shared,) = files(life)
    other.add_files([f"file://{shared}"])
    life.rewrite()
    assert expire(life).notes
    assert shared.exists()
    life.catalog.drop_table(OTHER)
    life.other()
    life.rewrite()
    assert not expire(life).notes


def lists_of(table: Table) -> Iterator[Path]:
    for snapshot in table.refresh().metadata.snapshots:
        yield Path(plain_location(snapshot.manifest_list))


def test_files_stay_until_the_other_table_can_be_read(life: Life) -> None:
    other = life.catalog.create_table(OTHER, SCHEMA)
    shared, alone = files(life)
    other.add_files([f"file://{shared}"])
    (place,) = lists_of(other)
    whole = place.read_bytes()
    place.write_bytes(whole[:-20])
    life.rewrite()
    with pytest.raises(DependencyUnavailable, match=r"which files ns\.other uses cannot be seen"):
        expire(life)
    assert shared.exists()
    assert alone.exists()
    place.write_bytes(whole)  # what the message says
    assert expire(life).notes
    assert (shared.exists(), alone.exists()) == (True, False)


def test_a_table_without_a_file_of_its_own_keeps_nobody_from_deleting(life: Life) -> None:
    other = life.catalog.create_table(OTHER, SCHEMA)
    other.append(life.batch())
    shared, alone = files(life)
    other.add_files([f"file://{shared}"])
    next(lists_of(other)).unlink()
    life.rewrite()
    assert expire(life).notes
    assert (shared.exists(), alone.exists()) == (True, False)


def test_what_was_seen_of_a_table_is_not_read_again(life: Life) -> None:
    other = life.catalog.create_table(OTHER, SCHEMA)
    other.append(life.batch())
    life.rewrite()
    expire(life)
    for place in lists_of(other):
        place.write_bytes(b"whoever reads this raises")
    life.rewrite()
    assert expire(life).deleted.files


def test_a_record_that_is_torn_is_made_again(life: Life) -> None:
    other = life.catalog.create_table(OTHER, SCHEMA)
    life.rewrite()
    expire(life)
    place = Path(life.warehouse.root, FOLDERS_DIRECTORY, str(other.metadata.table_uuid))
    place.write_bytes(place.read_bytes()[:-3])
    (shared,) = files(life)
    other.add_files([f"file://{shared}"])
    life.rewrite()
    assert expire(life).notes
    assert shared.exists()


NAMES = st.text(st.sampled_from("ab%20/.#"), max_size=6)
PATHS = st.builds("{}{}".format, st.sampled_from(["s3://b/x/", "s3a://b/", "file:/x/", "file:///x/y/", ""]), NAMES)


@given(st.lists(PATHS, max_size=6), st.sampled_from(["s3://b/x", "file:///x"]))
def test_every_path_lies_in_one_of_its_folders(paths: list[str], location: str) -> None:
    folders = folders_of(paths, location)
    assert len(folders) <= 2
    assert all(any(plain_location(path).startswith(folder) for folder in folders) for path in paths)
    record = FolderRecord("m", {"l": folders}, {"a": folders, "b": ()})
    assert FolderRecord.decode(record.encode()) == record
