"""Which storage a Warehouse has, as requests name it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from skipstone.storage.buckets.objects import ObjectStorage
from skipstone.storage.opening import open_storage
from skipstone.storage.volume import Volume
from skipstone.tables.catalogs import open_catalog, table_location
from skipstone_core.codec import decode, encode
from skipstone_core.contract.places import PlaceRef, S3Ref, SourceLocationRef
from skipstone_core.contract.requests import CatalogRef, CatalogType, TableRef, WarehouseRef
from skipstone_core.errors import BadSpec, ContractViolation
from skipstone_core.merging.feeds import in_words

CATALOG = CatalogRef(type=CatalogType.REST)
PLACES = in_words(("root", *PlaceRef.BUCKETS))
LAKE = S3Ref(bucket="lake", prefix="prod/", region="eu-central-1", endpoint="https://s3", path_style_access=True)


def test_a_warehouse_has_the_storage_that_its_request_names() -> None:
    volume = WarehouseRef(name="w", root="/skipstone/main", catalog=CATALOG)
    assert open_storage(volume) == Volume("/skipstone/main")
    assert open_storage(replace(volume, root="", s3=LAKE)) == ObjectStorage(LAKE)


def test_tables_of_a_warehouse_in_a_bucket_are_made_there() -> None:
    warehouse = WarehouseRef(name="w", catalog=CATALOG, s3=LAKE)
    ref = TableRef(namespace="ns", name="t", uid="u")
    assert table_location(warehouse, ref) == "s3://lake/prod/ns/t"
    assert table_location(replace(warehouse, s3=replace(LAKE, prefix="")), ref) == "s3://lake/ns/t"


@pytest.mark.parametrize("uri", ["", "sqlite:////skipstone/main/catalog.db"])
def test_an_sql_catalog_of_a_warehouse_in_a_bucket_is_no_file(uri: str) -> None:
    warehouse = WarehouseRef(name="w", catalog=CatalogRef(type=CatalogType.SQL, uri=uri), s3=LAKE)
    with pytest.raises(BadSpec, match="needs PostgreSQL: set an address with postgresql://"):
        open_catalog(warehouse)


@pytest.mark.parametrize("storages", [{}, {"root": "/r", "s3": LAKE}])
def test_a_warehouse_has_exactly_one_storage(storages: dict[str, Any]) -> None:
    with pytest.raises(ContractViolation, match=f"exactly one storage: set one of {PLACES}"):
        WarehouseRef(name="w", catalog=CATALOG, **storages)


@pytest.mark.parametrize("storages", [{}, {"root": "/r", "s3": LAKE}])
def test_a_source_location_has_exactly_one_storage(storages: dict[str, Any]) -> None:
    with pytest.raises(ContractViolation, match=f"exactly one storage: set one of {PLACES}"):
        SourceLocationRef(name="landing", **storages)


def test_source_locations_travel_as_json_with_the_names_of_their_variables() -> None:
    landing = SourceLocationRef(name="landing", s3=replace(LAKE, credentials_prefix="SKIPSTONE_LOCATION_LANDING_"))
    warehouse = WarehouseRef(name="w", catalog=CATALOG, root="/r", locations=(landing,))
    sent = encode(warehouse)
    assert sent["locations"][0]["s3"]["credentialsPrefix"] == "SKIPSTONE_LOCATION_LANDING_"
    assert decode(WarehouseRef, sent, strict=False) == warehouse


def test_a_place_in_a_bucket_travels_as_json() -> None:
    warehouse = WarehouseRef(name="w", catalog=CATALOG, s3=LAKE)
    sent = encode(warehouse)
    assert sent["s3"] == {
        "bucket": "lake",
        "prefix": "prod/",
        "region": "eu-central-1",
        "endpoint": "https://s3",
        "pathStyleAccess": True,
        "credentialsPrefix": "",
    }
    assert decode(WarehouseRef, {**sent, "s3": {**sent["s3"], "later": 1}}, strict=False) == warehouse
    assert decode(WarehouseRef, {**sent, "s3": {"bucket": "lake"}}, strict=False).s3 == S3Ref(bucket="lake")


def test_a_volume_whose_records_are_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".skipstone").symlink_to(tmp_path / "away")
    with pytest.raises(BadSpec, match="is a symbolic link"):
        Volume(str(tmp_path / "root")).probe("probe-r")
