"""Whose folders are whose, in every form in which engines name them: no file goes that lies elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.statistics import StatisticsFile
from skipstone.tables.sharing.places import find_overlap, find_sharing
from skipstone.tables.storage import DurableFileIO, data_location, plain_location
from skipstone.tables.upkeep.expiry import expire_snapshots
from skipstone.tables.upkeep.orphans import OrphanSite, Spared, clean_orphans
from skipstone.tables.upkeep.purging import Purged, purge
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy, SnapshotPolicy

from tests.spark.lake import ref_of
from tests.spark.upkeep_bed import SCHEMA, Life, later

NEWEST = SnapshotPolicy(max_age_seconds=0)


@pytest.fixture
def life(warehouse: WarehouseRef, catalog: Catalog) -> Life:
    found = Life(warehouse, catalog)
    found.other()
    return found


def foreign_file(life: Life) -> Path:
    """A file of another folder, which the table names."""
    foreign = Path(life.warehouse.root, "feeds", "registered.parquet")
    foreign.parent.mkdir()
    pq.write_table(life.batch(), foreign)
    life.table.add_files([f"file://{foreign}"])
    life.note()
    return foreign


def test_a_property_that_names_no_folder_makes_nothing_the_tables_own(life: Life) -> None:
    with life.table.transaction() as changed:
        changed.set_properties({"write.data.path": "", "write.metadata.path": ""})
    assert data_location(life.table) == f"{life.table.location()}/data"
    foreign = foreign_file(life)
    life.rewrite()
    assert expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later()).deleted.files
    assert foreign.exists()
    life.table.add_files([f"file://{foreign}"])
    assert purge(life.catalog, life.table) == Purged(elsewhere=1)
    assert foreign.exists()


def test_a_table_is_dropped_though_a_list_and_a_manifest_are_cut_off(life: Life) -> None:
    life.other()
    first, second = life.table.metadata.snapshots
    (manifest,) = first.manifests(life.table.io)
    for path in (second.manifest_list, manifest.manifest_path):
        cut = Path(plain_location(path))
        cut.write_bytes(cut.read_bytes()[:-20])
    name = life.table.name()
    assert purge(life.catalog, life.table) == Purged()
    assert not life.catalog.table_exists(name)


def test_a_file_with_the_longest_name_goes_like_any_other(life: Life) -> None:
    longest = Path(plain_location(life.table.location()), "data", f"{'n' * 247}.parquet")
    pq.write_table(life.batch(), longest)
    life.table.add_files([f"file://{longest}"])
    life.rewrite()
    assert expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later()).deleted.left == 0
    assert not longest.exists()
    assert not [one for one in Path(life.warehouse.root, ".skipstone", "expired").rglob("*") if one.is_file()]


@pytest.mark.parametrize(
    "said", ["write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path"]
)
def test_orphans_are_not_looked_for_where_another_engine_writes_a_table(said: str, life: Life) -> None:
    place = f"{life.table.location()}/inner"
    life.catalog.create_table(("ns", "other"), SCHEMA, properties={said: place})
    assert "of ns.other" in (find_overlap(life.table) or "")


@pytest.mark.parametrize(
    "form", ["file:///a/b", "file:/a/b", "/a/b", "FILE:///a/b", "File:/a/b", "file://host/a/b", "file:////a/b"]
)
def test_all_forms_of_a_place_on_a_volume_are_one(form: str) -> None:
    assert plain_location(form) == "/a/b"
    assert DurableFileIO.parse_location(form)[2].replace("//", "/") == "/a/b"


@pytest.mark.parametrize("form", ["s3://a/b", "s3a://a/b", "s3n://a/b", "S3://a/b", "S3A://a/b"])
def test_all_forms_of_a_place_in_a_bucket_are_one(form: str) -> None:
    assert plain_location(form) == "s3://a/b"


def test_statistics_that_a_retained_snapshot_names_in_another_form_stay(life: Life) -> None:
    life.other()
    old, new = (one.snapshot_id for one in life.table.metadata.snapshots)
    path = Path(plain_location(life.table.location()), "metadata", "shared.stats")
    path.write_bytes(b"PFA1")
    with life.table.update_statistics() as update:
        for snapshot_id, form in ((old, f"file://{path}"), (new, f"file:{path}")):
            update.set_statistics(
                StatisticsFile(
                    snapshot_id=snapshot_id,
                    statistics_path=form,
                    file_size_in_bytes=4,
                    file_footer_size_in_bytes=4,
                    blob_metadata=[],
                )
            )
    assert expire_snapshots(life.catalog, ref_of(life.table), NEWEST, later()).snapshots == 1
    assert path.exists()
    life.check()


def test_what_a_link_leads_to_is_no_orphan(life: Life) -> None:
    data = Path(plain_location(life.table.location()), "data")
    pq.write_table(life.batch(), data / "target.parquet")
    for name, target in (("middle", "target.parquet"), ("link.parquet", "middle")):
        (data / name).symlink_to(data / target)
    life.table.add_files([f"file://{data}/link.parquet"])
    policy = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60)
    for run in range(2):
        spared = Spared(run_id=f"0000000{run}-12345678-1")
        ref = ref_of(life.table)
        site = OrphanSite(catalog=life.catalog, warehouse=life.warehouse, ref=ref, spared=spared, now_ms=later().now_ms)
        assert clean_orphans(site, policy).deleted == 0
    assert life.table.scan().count() == 4
    assert len(life.live()) == 4


@pytest.mark.parametrize(("said", "is_kept"), [("no", True), ("FALSE", True), ("0", True), ("", True), ("TRUE", False)])
def test_a_table_keeps_its_files_by_what_java_takes_for_false(said: str, is_kept: bool, life: Life) -> None:
    with life.table.transaction() as changed:
        changed.set_properties({"gc.enabled": said})
    assert ("gc.enabled" in (find_sharing(life.table) or "")) is is_kept
